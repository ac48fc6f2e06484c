// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Owner`]: the process that something was made in. A child of `fork` has a copy of the value,
//! but not of what it stands for: buffers of the process's memory and doorbells are not mapped
//! there, and other things may be, at the same addresses.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A process, among itself and its ancestors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

impl Owner {
    /// This process. It costs no system call but once.
    pub(crate) fn here() -> Self {
        /// Copied by `fork`, so that every child has a number that none of its ancestors has.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let Some(mark) = sys::mark() else {
            return Self(std::process::id().into());
        };
        match mark.load(Relaxed) {
            0 => {
                let new = LAST.fetch_add(1, Relaxed) + 1;
                let set = mark.compare_exchange(0, new, Relaxed, Relaxed);
                Self(set.map_or_else(|other| other, |_| new))
            }
            number => Self(number),
        }
    }

    /// Whether this process is it.
    pub(crate) fn is_here(self) -> bool {
        self == Self::here()
    }

    /// None that this process is.
    #[cfg(test)]
    pub(crate) fn elsewhere() -> Self {
        Self(u64::MAX)
    }
}

#[cfg(not(miri))]
mod sys {
    use rustix::mm::{madvise, mmap_anonymous, Advice, MapFlags, ProtFlags};
    use std::ptr::null_mut;
    use std::sync::atomic::AtomicU64;
    use std::sync::OnceLock;

    /// A word that is 0 at the beginning of each process; `None` where it can't be had.
    pub(super) fn mark() -> Option<&'static AtomicU64> {
        static MARK: OnceLock<Option<&AtomicU64>> = OnceLock::new();
        *MARK.get_or_init(|| {
            let (size, access) = (crate::range::page(), ProtFlags::READ | ProtFlags::WRITE);
            // SAFETY: a new mapping at an address that the kernel picks.
            let page = unsafe { mmap_anonymous(null_mut(), size, access, MapFlags::PRIVATE) };
            let page = page.ok()?;
            // SAFETY: nobody else knows the page, which stays.
            unsafe {
                madvise(page, size, Advice::LinuxWipeOnFork).ok()?;
                Some(AtomicU64::from_ptr(page.cast()))
            }
        })
    }
}

/// Miri has no `fork`.
#[cfg(miri)]
mod sys {
    use std::sync::atomic::AtomicU64;

    pub(super) fn mark() -> Option<&'static AtomicU64> {
        static MARK: AtomicU64 = AtomicU64::new(0);
        Some(&MARK)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nix::sys::wait::{waitpid, WaitStatus};
    use nix::unistd::{fork, ForkResult};

    /// Whether `act` is true in a child of this process.
    pub(crate) fn in_a_child(act: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child neither allocates nor takes a lock, and ends by itself.
        match unsafe { fork() }.expect("a child") {
            ForkResult::Child => {
                let status = if act() { 0 } else { 1 };
                // SAFETY: it ends the child without running what the parent will run.
                unsafe { nix::libc::_exit(status) }
            }
            ForkResult::Parent { child } => {
                waitpid(child, None).expect("it ends") == WaitStatus::Exited(child, 0)
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn each_child_is_another() {
        let parent = Owner::here();
        assert!(parent.is_here());
        assert!(in_a_child(|| {
            let child = Owner::here();
            let grandchild = || child.is_here() || parent.is_here();
            !parent.is_here() && child.is_here() && !in_a_child(grandchild)
        }));
        assert!(parent.is_here() && !Owner::elsewhere().is_here());
    }
}
