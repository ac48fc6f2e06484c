// SPDX-License-Identifier: GPL-2.0-only

//! Nothing goes into the memory of a GPU while the machine goes to sleep: no page of a process's,
//! and no page table.
//!
//! amdgpu moves out what is in VRAM before the power goes, and what came into it afterwards would
//! be lost. Tasks and our workers are frozen by then. But amdgpu's worker of retry faults is not,
//! and it may be anywhere when the machine begins to go to sleep. So whoever puts pages into VRAM
//! holds an [`Awake`] from before it looks for room until the pages are there, whoever locks a VM's
//! page tables, which brings them into VRAM, as long as they are locked ([`tables`]). After
//! [`begin`] nobody else does, and [`settle`] waits for both.

use crate::kgd::{
    Tables,
    Vm, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        ordering::{
            Acquire,
            Full,
            Release, //
        },
        Atomic, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// The one of the module.
static SLEEP: Sleep = Sleep::new();

/// Whether pages may go into VRAM.
struct Sleep {
    asleep: Atomic<bool>,
    /// Who puts pages there.
    movers: Atomic<i32>,
}

/// Pages may go into VRAM while this lives.
pub(crate) struct Awake<'a>(&'a Sleep);

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        let _: i32 = self.0.movers.fetch_sub(1, Release);
    }
}

impl Sleep {
    const fn new() -> Self {
        Self {
            asleep: Atomic::new(false),
            movers: Atomic::new(0),
        }
    }

    fn enter(&self) -> Result<Awake<'_>> {
        // Before it is looked whether that may be: either `begin` sees it, or this sees `begin`.
        let _: i32 = self.movers.fetch_add(1, Full);
        let awake = Awake(self);
        match self.asleep.load(Acquire) {
            true => Err(EAGAIN),
            false => Ok(awake),
        }
    }

    fn begin(&self) {
        let _: bool = self.asleep.xchg(true, Full);
    }

    /// False: somebody has not come to an end within `patience`.
    fn settle(&self, patience: Delta) -> bool {
        const STEP: Delta = Delta::from_millis(1);
        for _ in 0..patience.as_millis() / STEP.as_millis() {
            // Who sees 0 sees what the last one has put there.
            if self.movers.load(Acquire) == 0 {
                return true;
            }
            fsleep(STEP);
        }
        self.movers.load(Acquire) == 0
    }

    fn end(&self) {
        self.asleep.store(false, Release);
    }
}

/// Somebody begins to put pages into VRAM. `EAGAIN`: the machine sleeps, or is about to.
pub(crate) fn enter() -> Result<Awake<'static>> {
    SLEEP.enter()
}

/// Locks the page tables of a VM. `EAGAIN`: they have to stay where they are, as the machine
/// sleeps, or is about to; other errors as of [`Vm::tables`]. They are unlocked first of the two:
/// at the end of a scope, what a pattern names last goes first.
pub(super) fn tables(vm: &Vm) -> Result<(Awake<'static>, Tables<'_>)> {
    let awake = enter()?;
    Ok((awake, vm.tables()?))
}

/// Has amdgpu put a VM's page tables into VRAM again, if it has them elsewhere. `EAGAIN`: not now;
/// other errors as of [`Vm::tables`].
pub(super) fn bring_tables_back(vm: &Vm) -> Result {
    match tables(vm) {
        Ok((_awake, _tables)) => Ok(()),
        Err(EBUSY) => Err(EAGAIN),
        Err(error) => Err(error),
    }
}

/// The machine goes to sleep: nobody begins to put pages or page tables into VRAM until [`end`].
pub(crate) fn begin() {
    SLEEP.begin();
}

/// After [`begin`]: when this returns no page and no page table is on its way into VRAM. Whoever
/// has begun may be waiting for a copy engine, and so for its reset: not to be called with anything
/// locked that this needs.
pub(crate) fn settle() {
    /// Longer than a copy may take (10 s).
    const PATIENCE: Delta = Delta::from_secs(15);
    if !SLEEP.settle(PATIENCE) {
        pr_err!("what still moves into VRAM may be lost while the machine sleeps\n");
    }
}

/// It has woken up.
pub(crate) fn end() {
    SLEEP.end();
}

/// Whether it sleeps.
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) fn is_asleep() -> bool {
    SLEEP.asleep.load(Acquire)
}

#[kernel::macros::kunit_tests(amdkfd_svm_sleep)]
mod tests {
    use super::*;
    use crate::{
        kgd::fake::Fake,
        linux::workqueue::OwnedQueue, //
    };
    use kernel::sync::Arc;

    const SHORT: Delta = Delta::from_millis(20);

    impl Sleep {
        fn fall_asleep(&self, patience: Delta) -> bool {
            self.begin();
            self.settle(patience)
        }
    }

    #[test]
    fn no_page_comes_while_the_machine_sleeps() {
        let sleep = Sleep::new();
        assert!(sleep.enter().is_ok() && sleep.fall_asleep(SHORT));
        assert_eq!(sleep.enter().err(), Some(EAGAIN));
        // Who was refused is not waited for.
        assert!(sleep.fall_asleep(SHORT));
        sleep.end();
        assert!(sleep.enter().is_ok());
    }

    #[test]
    fn page_tables_stay_where_they_are_while_the_machine_sleeps() {
        let fake = Fake::new().unwrap();
        let vm = fake.vm().unwrap();
        let locked = tables(&vm).unwrap();
        assert_eq!(fake.live().table_locks, 1);
        // Who has them is waited for.
        assert!(!SLEEP.fall_asleep(SHORT));
        drop(locked);
        assert!(SLEEP.fall_asleep(SHORT));
        assert_eq!(tables(&vm).err(), Some(EAGAIN));
        assert_eq!(fake.live().table_locks, 0);
        end();
        assert!(tables(&vm).is_ok());
    }

    #[test]
    fn who_puts_pages_there_is_waited_for() {
        let sleep = Arc::new(Sleep::new(), GFP_KERNEL).unwrap();
        let awake = sleep.enter().unwrap();
        assert!(!sleep.fall_asleep(SHORT));
        sleep.end();
        let began = Arc::new(Atomic::new(false), GFP_KERNEL).unwrap();
        let (other, done) = (sleep.clone(), began.clone());
        let queue = OwnedQueue::unbound(c"amdkfd_test").unwrap();
        let fall_asleep = move || {
            assert!(other.fall_asleep(Delta::from_secs(10)));
            done.store(true, Release);
        };
        queue.try_spawn(GFP_KERNEL, fall_asleep).unwrap();
        fsleep(SHORT);
        assert!(!began.load(Acquire));
        drop(awake);
        drop(queue);
        assert!(began.load(Acquire) && sleep.enter().is_err());
    }
}
