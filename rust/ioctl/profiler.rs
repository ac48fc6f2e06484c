// SPDX-License-Identifier: GPL-2.0-only

//! PROFILER: who counts what a GPU does.

use super::Call;
use crate::{
    linux::{
        errno,
        task::{
            capable,
            Capability, //
        }, //
    },
    process::{
        self,
        ProcessDevice, //
    },
    uapi::*, //
};
use kernel::prelude::*;

const COUNTERS: u32 = kfd_profiler_ops_KFD_IOC_PROFILER_PMC;
const VERSION: u32 = kfd_profiler_ops_KFD_IOC_PROFILER_VERSION;
const TENSOR_LIMIT: u32 = kfd_profiler_ops_KFD_IOC_PROFILER_PTL_CONTROL;

/// PROFILER.
pub(super) fn profiler(call: &Call<'_>, args: &mut ProfilerArgs) -> Result {
    match args.op {
        VERSION => {
            args.words[0] = KFD_IOC_PROFILER_VERSION_NUM;
            Ok(())
        }
        COUNTERS => {
            let [gpu_id, lock, count] = args.words;
            counters(call, gpu_id, lock, count == 1)
        }
        TENSOR_LIMIT => {
            let [gpu_id, limit, _] = args.words;
            tensor_limit(call, gpu_id, limit != 0)
        }
        _ => Err(EINVAL),
    }
}

/// Performance counters: one process at a time has a GPU's, and says whether they count the queues
/// that there are.
fn counters(call: &Call<'_>, gpu_id: u32, lock: u32, count: bool) -> Result {
    if !capable(Capability::PerfMon) && !capable(Capability::SysAdmin) {
        return Err(EPERM);
    }
    let device = call.process.device(gpu_id)?;
    let profiler = device.node().profiler();
    match lock {
        0 => profiler.release(call.process.serial(), || {
            device.leave_tensor_limit()?;
            call.process.stop_counting(profiler, Some(device.gpu_id()));
            process::count_performance(device.node(), count);
            Ok(())
        }),
        1 => profiler.take(call.process.serial(), || {
            device.lift_tensor_limit_if_any()?;
            process::count_performance(device.node(), count);
            Ok(())
        }),
        // As if somebody else had them.
        _ => Err(EINVAL),
    }
}

/// The peak tensor limiter (PTL): a process can have it lifted, and put back. `EOPNOTSUPP`: the
/// GPU has none.
fn tensor_limit(call: &Call<'_>, gpu_id: u32, limit: bool) -> Result {
    let device: &ProcessDevice = call.process.device(gpu_id)?;
    if !device.node().kgd().has_tensor_limit() {
        return Err(errno::unsupported());
    }
    match limit {
        false => device.lift_tensor_limit(),
        true => device.leave_tensor_limit(),
    }
}
