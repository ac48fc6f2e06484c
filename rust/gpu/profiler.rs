// SPDX-License-Identifier: GPL-2.0-only

//! The owner of a device's performance counters: one process at a time (PROFILER). One [`Profiler`]
//! for each device.

use crate::{
    ids::Serial,
    linux::errno, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// The process that has a device's performance counters.
#[pin_data]
pub(crate) struct Profiler {
    /// Who takes them or gives them back lets the queues know before another one does.
    #[pin]
    turn: Mutex<()>,
    #[pin]
    owner: Mutex<Option<Serial>>,
}

impl Profiler {
    /// No process has them.
    pub(super) fn new() -> Result<Arc<Self>> {
        let profiler = pin_init!(Self {
            turn <- new_mutex!((), "amdkfd::Profiler::turn"),
            owner <- new_mutex!(None, "amdkfd::Profiler::owner"),
        });
        Arc::pin_init(profiler, GFP_KERNEL)
    }

    /// Takes them, and lets the queues know with `tell`; its error changes nothing. `EALREADY`: it
    /// has them; `EBUSY`: another process has.
    pub(crate) fn take(&self, process: Serial, tell: impl FnOnce() -> Result) -> Result {
        let _turn = self.turn.lock();
        let mut owner = self.owner.lock();
        match *owner {
            None => *owner = Some(process),
            Some(other) if other == process => return Err(errno::already()),
            Some(_) => return Err(EBUSY),
        }
        drop(owner);
        tell()
    }

    /// Whether a process has them.
    pub(crate) fn is_taken(&self) -> bool {
        self.owner.lock().is_some()
    }

    /// Gives them back, and lets the queues know with `tell`; its error changes nothing. `EINVAL`:
    /// it does not have them.
    pub(crate) fn release(&self, process: Serial, tell: impl FnOnce() -> Result) -> Result {
        let _turn = self.turn.lock();
        let mut owner = self.owner.lock();
        if *owner != Some(process) {
            return Err(EINVAL);
        }
        *owner = None;
        drop(owner);
        tell()
    }
}

#[kernel::macros::kunit_tests(amdkfd_profiler)]
mod tests {
    use super::*;
    use crate::linux::workqueue::OwnedQueue;
    use kernel::{
        sync::atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        time::{
            delay::fsleep,
            Delta, //
        },
    };

    #[test]
    fn one_process_at_a_time() {
        let profiler = Profiler::new().unwrap();
        let (one, two) = (Serial::next(), Serial::next());
        let (nothing, never) = (|| Ok(()), || Err(EBADF));
        assert_eq!(profiler.release(one, never), Err(EINVAL));
        assert_eq!(profiler.take(one, nothing), Ok(()));
        assert_eq!(profiler.take(one, never), Err(errno::already()));
        assert_eq!(profiler.take(two, never), Err(EBUSY));
        assert_eq!(profiler.release(two, never), Err(EINVAL));
        assert_eq!(profiler.release(one, || Err(EIO)), Err(EIO));
        assert_eq!(profiler.take(two, nothing), Ok(()));
    }

    /// What is taken back is not what the next one has asked for meanwhile.
    #[test]
    fn queues_know_before_the_next_one_takes_them() {
        let profiler = Profiler::new().unwrap();
        let (one, two) = (Serial::next(), Serial::next());
        let count = Arc::new(Atomic::new(1), GFP_KERNEL).unwrap();
        assert_eq!(profiler.take(one, || Ok(())), Ok(()));
        let queue = OwnedQueue::unbound(c"amdkfd_test").unwrap();
        let (its, set) = (profiler.clone(), count.clone());
        let next = move || {
            // As soon as that is possible.
            while its.is_taken() {
                fsleep(Delta::from_millis(1));
            }
            let tell = || {
                set.store(2, Relaxed);
                Ok(())
            };
            assert_eq!(its.take(two, tell), Ok(()));
        };
        queue.try_spawn(GFP_KERNEL, next).unwrap();
        let tell = || {
            fsleep(Delta::from_millis(50));
            count.store(0, Relaxed);
            Ok(())
        };
        assert_eq!(profiler.release(one, tell), Ok(()));
        drop(queue);
        assert_eq!(count.load(Relaxed), 2);
    }
}
