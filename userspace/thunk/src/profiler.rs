// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`ProfilerLock`]: one process at a time has a GPU's performance counters.

use crate::ioctl::{call, call_once};
use crate::{Device, Errno, Error, Kfd, Result};
use kfd_uapi as uapi;
use std::sync::Arc;

type Operation = uapi::kfd_ioctl_profiler_args__bindgen_ty_1;

impl Kfd {
    /// The version of the profiler's interface.
    pub fn profiler_version(&self) -> Result<u32> {
        let mut args = uapi::kfd_ioctl_profiler_args {
            op: uapi::KFD_IOC_PROFILER_VERSION,
            __bindgen_anon_1: Operation { version: 0 },
        };
        // SAFETY: the struct holds no pointer.
        unsafe { call(self, || "the profiler".into(), &mut args)? };
        // SAFETY: all of the union is numbers, and this is the one that the kernel has written.
        Ok(unsafe { args.__bindgen_anon_1.version })
    }
}

/// A GPU's performance counters, taken for this process until it is dropped.
#[derive(Debug)]
pub struct ProfilerLock(Arc<Device>);

impl ProfilerLock {
    /// Takes the counters; EBUSY when another process has them, EALREADY when this one has, EPERM
    /// without `CAP_PERFMON`.
    ///
    /// With `count`, queues of this process count from now on.
    ///
    /// Where there is a limiter of peaks it is lifted; an error of that (EIO) leaves the counters
    /// untaken.
    pub fn take(device: &Arc<Device>, count: bool) -> Result<Self> {
        take(|lock| set(device, lock, count && lock))?;
        Ok(Self(device.clone()))
    }

    /// Lets the GPU's limiter of peaks (PTL) work, or not. EOPNOTSUPP where there is none.
    pub fn limit_peaks(&self, enable: bool) -> Result<()> {
        let ptl = uapi::kfd_ioctl_ptl_control {
            gpu_id: self.0.gpu_id(),
            enable: enable.into(),
        };
        operate(
            &self.0,
            uapi::KFD_IOC_PROFILER_PTL_CONTROL,
            Operation { ptl },
        )
    }
}

impl Drop for ProfilerLock {
    fn drop(&mut self) {
        // A failure leaves it to the exit of the process.
        let _ = set(&self.0, false, false);
    }
}

/// Takes the counters with `set`, which takes (true) or gives back (false) once each time.
///
/// The kernel makes the caller their owner first and lifts the limiter then. An error of that
/// leaves them with a process that has no value to give them back by, and that would be told
/// EALREADY for each other try.
fn take(mut set: impl FnMut(bool) -> Result<()>) -> Result<()> {
    let of_others = [Errno::EALREADY, Errno::EBUSY, Errno::EPERM];
    set(true).inspect_err(|error| {
        if !error
            .errno()
            .is_some_and(|errno| of_others.contains(&errno))
        {
            // EINVAL where they are not this process's.
            let _ = set(false);
        }
    })
}

/// Tried once: what has failed in the middle is not begun again before it is undone.
fn set(device: &Device, lock: bool, count: bool) -> Result<()> {
    let pmc = uapi::kfd_ioctl_pmc_settings {
        gpu_id: device.gpu_id(),
        lock: lock.into(),
        perfcount_enable: count.into(),
    };
    let mut args = uapi::kfd_ioctl_profiler_args {
        op: uapi::KFD_IOC_PROFILER_PMC,
        __bindgen_anon_1: Operation { pmc },
    };
    // SAFETY: the struct holds no pointer.
    let done = unsafe { call_once(device.kfd().as_ref(), &mut args) };
    done.map(drop).map_err(Error::of("PROFILER", named(device)))
}

fn named(device: &Device) -> String {
    format!("the profiler of {device}")
}

fn operate(device: &Device, op: u32, operation: Operation) -> Result<()> {
    let mut args = uapi::kfd_ioctl_profiler_args {
        op,
        __bindgen_anon_1: operation,
    };
    // SAFETY: the struct holds no pointer.
    unsafe { call(device.kfd().as_ref(), || named(device), &mut args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_could_not_be_taken_whole_are_given_back() {
        let calls = |first: Option<Errno>| {
            let mut calls = Vec::new();
            let result = take(|lock| {
                calls.push(lock);
                match first.filter(|_| lock) {
                    None => Ok(()),
                    Some(errno) => Err(Error::Call {
                        call: "PROFILER",
                        object: String::new(),
                        errno,
                    }),
                }
            });
            (calls, result.err().and_then(|error| error.errno()))
        };
        assert_eq!(calls(None), (vec![true], None));
        for errno in [Errno::EIO, Errno::EINVAL, Errno::EAGAIN, Errno::EINTR] {
            assert_eq!(calls(Some(errno)), (vec![true, false], Some(errno)));
        }
        for errno in [Errno::EALREADY, Errno::EBUSY, Errno::EPERM] {
            assert_eq!(calls(Some(errno)), (vec![true], Some(errno)));
        }
    }
}
