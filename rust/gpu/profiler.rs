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
    #[pin]
    owner: Mutex<Option<Serial>>,
}

impl Profiler {
    /// No process has them.
    pub(super) fn new() -> Result<Arc<Self>> {
        let profiler = pin_init!(Self { owner <- new_mutex!(None, "amdkfd::Profiler") });
        Arc::pin_init(profiler, GFP_KERNEL)
    }

    /// Takes them. `EALREADY`: it has them; `EBUSY`: another process has.
    pub(crate) fn take(&self, process: Serial) -> Result {
        let mut owner = self.owner.lock();
        match *owner {
            None => *owner = Some(process),
            Some(other) if other == process => return Err(errno::already()),
            Some(_) => return Err(EBUSY),
        }
        Ok(())
    }

    /// Whether a process has them.
    pub(crate) fn is_taken(&self) -> bool {
        self.owner.lock().is_some()
    }

    /// Gives them back. `EINVAL`: it does not have them.
    pub(crate) fn release(&self, process: Serial) -> Result {
        let mut owner = self.owner.lock();
        if *owner != Some(process) {
            return Err(EINVAL);
        }
        *owner = None;
        Ok(())
    }
}

#[kernel::macros::kunit_tests(amdkfd_profiler)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time() {
        let profiler = Profiler::new().unwrap();
        let (one, two) = (Serial::next(), Serial::next());
        assert_eq!(profiler.release(one), Err(EINVAL));
        assert_eq!(profiler.take(one), Ok(()));
        assert_eq!(profiler.take(one), Err(errno::already()));
        assert_eq!(profiler.take(two), Err(EBUSY));
        assert_eq!(profiler.release(two), Err(EINVAL));
        assert_eq!(profiler.release(one), Ok(()));
        assert_eq!(profiler.take(two), Ok(()));
    }
}
