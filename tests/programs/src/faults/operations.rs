// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The operations that are made to fail: every ioctl of the KFD as it should be called, opening,
//! mapping, and what is done to its files. Those that take a VM or an event page, which a process
//! has once, have a process for each fault.

mod debugger;
mod memory;
mod process;
mod queue;
mod shared;

use super::stage::{Call, Needs, Stage};
use anyhow::Result;
use rustix::io::Errno;

/// One operation.
pub struct Operation {
    pub name: &'static str,
    pub needs: Needs,
    /// It can be done once in a process.
    pub once: bool,
    /// What it says when it was done already, though its answer could not be written.
    pub again: Option<Errno>,
    /// A part of it may stay where the rest fails, as on the C driver.
    pub keeps: bool,
    /// What undoes it undoes also what could not be said.
    pub undone: bool,
    /// What it may say of a failed allocation other than ENOMEM: the kernel's answer, not the
    /// driver's.
    pub also: Option<Errno>,
    /// What the counts do not show and a fault must not change.
    pub intact: fn(&Stage) -> Result<()>,
    /// Prepares the call.
    pub ready: fn(&mut Stage) -> Result<Call>,
    /// Undoes the call, where it succeeded with this value, and the preparation.
    pub over: fn(&mut Stage, &Call, Option<u64>) -> Result<()>,
}

/// An operation that leaves nothing behind.
pub const fn plain(name: &'static str, ready: fn(&mut Stage) -> Result<Call>) -> Operation {
    Operation {
        name,
        needs: Needs::Bench,
        once: false,
        again: None,
        keeps: false,
        undone: false,
        also: None,
        intact: |_| Ok(()),
        ready,
        over: |_, _, _| Ok(()),
    }
}

impl Operation {
    const fn over(mut self, over: fn(&mut Stage, &Call, Option<u64>) -> Result<()>) -> Self {
        self.over = over;
        self
    }

    const fn intact(mut self, intact: fn(&Stage) -> Result<()>) -> Self {
        self.intact = intact;
        self
    }

    const fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }

    const fn once(mut self) -> Self {
        self.once = true;
        self
    }

    const fn keeps(mut self) -> Self {
        self.keeps = true;
        self
    }

    /// New memory where the process's own is undoes it.
    fn renewed(mut self) -> Self {
        self.undone = true;
        self.over(|stage, _, _| stage.renew())
    }

    const fn also(mut self, errno: Errno) -> Self {
        self.also = Some(errno);
        self
    }

    const fn again(mut self, errno: Errno) -> Self {
        self.again = Some(errno);
        self
    }
}

/// All of them, in the order of their numbers as far as that goes.
pub fn all() -> Vec<Operation> {
    [
        process::operations(),
        debugger::operations(),
        memory::operations(),
        queue::operations(),
        shared::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_uapi::IOCTLS;

    #[test]
    fn every_ioctl_is_among_them() {
        let operations = all();
        for ioctl in IOCTLS {
            let named =
                |operation: &Operation| operation.name.split([' ', ',']).next() == Some(ioctl.name);
            assert!(operations.iter().any(named), "{}", ioctl.name);
        }
    }
}
