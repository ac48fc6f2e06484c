// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`ProfilerLock`]: one process at a time has a GPU's performance counters.

use crate::ioctl::call;
use crate::{Device, Kfd, Result};
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
    pub fn take(device: &Arc<Device>, count: bool) -> Result<Self> {
        set(device, true, count)?;
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

fn set(device: &Device, lock: bool, count: bool) -> Result<()> {
    let pmc = uapi::kfd_ioctl_pmc_settings {
        gpu_id: device.gpu_id(),
        lock: lock.into(),
        perfcount_enable: count.into(),
    };
    operate(device, uapi::KFD_IOC_PROFILER_PMC, Operation { pmc })
}

fn operate(device: &Device, op: u32, operation: Operation) -> Result<()> {
    let mut args = uapi::kfd_ioctl_profiler_args {
        op,
        __bindgen_anon_1: operation,
    };
    let named = || format!("the profiler of {device}");
    // SAFETY: the struct holds no pointer.
    unsafe { call(device.kfd().as_ref(), named, &mut args) }
}
