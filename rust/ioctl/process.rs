// SPDX-License-Identifier: GPL-2.0-only

//! The ioctls about a process as a whole and about its view of the GPUs.

use super::Call;
use crate::{
    linux::timekeeping::{
        boot_nanoseconds,
        raw_nanoseconds, //
    },
    process::{
        device::{
            TrapHandler, //
        },
        ProcessDevice, //
    },
    topology,
    uapi::{
        user_slice,
        *, //
    },
};
use kernel::prelude::*;

/// GET_VERSION: the ABI's version, as the kernel's header has it.
pub(super) fn get_version(_: &Call<'_>, args: &mut kfd_ioctl_get_version_args) -> Result {
    args.major_version = KFD_IOCTL_MAJOR_VERSION;
    args.minor_version = KFD_IOCTL_MINOR_VERSION;
    Ok(())
}

/// SET_MEMORY_POLICY. On gfx9 caching is chosen page by page; what there is to set is the precision
/// of matrix operations, on gfx9.5.0. C writes SH_MEM_CONFIG anew, and forgets that the process
/// chose XNACK; SET_XNACK_MODE's word stands here.
pub(super) fn set_memory_policy(
    call: &Call<'_>,
    args: &mut kfd_ioctl_set_memory_policy_args,
) -> Result {
    let known = [
        KFD_IOC_CACHE_POLICY_COHERENT,
        KFD_IOC_CACHE_POLICY_NONCOHERENT,
    ];
    if !known.contains(&args.default_policy) || !known.contains(&args.alternate_policy) {
        return Err(EINVAL);
    }
    let device = call.process.device(args.gpu_id)?;
    device.vm().map_err(|_| ESRCH)?;
    device.set_precise(args.misc_process_flag & KFD_PROC_FLAG_MFMA_HIGH_PRECISION != 0);
    Ok(())
}

/// GET_CLOCK_COUNTERS: the clocks of a GPU and of the system, read together.
pub(super) fn get_clock_counters(
    call: &Call<'_>,
    args: &mut kfd_ioctl_get_clock_counters_args,
) -> Result {
    let device = call.process.device(args.gpu_id);
    args.gpu_clock_counter = device.map_or(0, |device| device.node().kgd().clock_counter());
    args.cpu_clock_counter = raw_nanoseconds();
    args.system_clock_counter = boot_nanoseconds();
    args.system_clock_freq = 1_000_000_000;
    Ok(())
}

/// A device's apertures as the ABI states them.
fn apertures(device: &ProcessDevice) -> kfd_process_device_apertures {
    let apertures = device.apertures();
    kfd_process_device_apertures {
        lds_base: apertures.lds.base,
        lds_limit: apertures.lds.limit,
        scratch_base: apertures.scratch.base,
        scratch_limit: apertures.scratch.limit,
        gpuvm_base: apertures.gpuvm.base,
        gpuvm_limit: apertures.gpuvm.limit,
        gpu_id: device.gpu_id().raw(),
        pad: 0,
    }
}

/// GET_PROCESS_APERTURES: as many as the structure has room for.
pub(super) fn get_process_apertures(
    call: &Call<'_>,
    args: &mut kfd_ioctl_get_process_apertures_args,
) -> Result {
    args.num_of_nodes = 0;
    for (entry, device) in args
        .process_apertures
        .iter_mut()
        .zip(call.process.devices())
    {
        *entry = apertures(device);
        args.num_of_nodes += 1;
    }
    Ok(())
}

/// GET_PROCESS_APERTURES_NEW: as many as the user has room for; without room, how many there are.
pub(super) fn get_process_apertures_new(
    call: &Call<'_>,
    args: &mut kfd_ioctl_get_process_apertures_new_args,
) -> Result {
    let devices = call.process.devices();
    let room = args.num_of_nodes as usize;
    if room == 0 {
        args.num_of_nodes = u32::try_from(devices.len())?;
        return Ok(());
    }
    if room > topology::num_nodes() {
        return Err(EINVAL);
    }
    let shown = devices.get(..room).unwrap_or(devices);
    args.num_of_nodes = u32::try_from(shown.len())?;
    let bytes = shown.len() * size_of::<kfd_process_device_apertures>();
    let mut writer = user_slice(args.kfd_process_device_apertures_ptr, bytes).writer();
    shown
        .iter()
        .try_for_each(|device| writer.write(&apertures(device)))
}

/// SET_SCRATCH_BACKING_VA. There is nothing to set: `SH_HIDDEN_PRIVATE_BASE` ended with gfx8.
pub(super) fn set_scratch_backing_va(
    call: &Call<'_>,
    args: &mut kfd_ioctl_set_scratch_backing_va_args,
) -> Result {
    let device = call.process.device(args.gpu_id)?;
    device.vm()?;
    Ok(())
}

/// GET_TILE_CONFIG: how the GPU swizzles surfaces.
pub(super) fn get_tile_config(
    call: &Call<'_>,
    args: &mut kfd_ioctl_get_tile_config_args,
) -> Result {
    let config = call
        .process
        .device(args.gpu_id)?
        .node()
        .kgd()
        .tile_config()?;
    args.gb_addr_config = config.gb_addr_config;
    args.num_banks = config.num_banks;
    args.num_ranks = config.num_ranks;
    let tiles = config
        .tile
        .get(..config.num_tile as usize)
        .unwrap_or(&config.tile);
    show(tiles, args.tile_config_ptr, &mut args.num_tile_configs)?;
    let macrotile = &config.macrotile;
    let macrotiles = macrotile
        .get(..config.num_macrotile as usize)
        .unwrap_or(macrotile);
    show(
        macrotiles,
        args.macro_tile_config_ptr,
        &mut args.num_macro_tile_configs,
    )
}

/// Copies as many words as `count` has room for to the user, and says in `count` how many.
fn show(words: &[u32], address: u64, count: &mut u32) -> Result {
    let shown = words.get(..*count as usize).unwrap_or(words);
    *count = u32::try_from(shown.len())?;
    let written = user_slice(address, size_of_val(shown))
        .writer()
        .write_slice(shown.as_bytes());
    if written.is_err() {
        *count = 0;
    }
    written
}

/// SET_TRAP_HANDLER.
pub(super) fn set_trap_handler(
    call: &Call<'_>,
    args: &mut kfd_ioctl_set_trap_handler_args,
) -> Result {
    let device = call.process.device(args.gpu_id)?;
    device.vm().map_err(|_| ESRCH)?;
    device.set_trap_handler(TrapHandler {
        tba: args.tba_addr,
        tma: args.tma_addr,
    });
    Ok(())
}

/// ACQUIRE_VM.
pub(super) fn acquire_vm(call: &Call<'_>, args: &mut kfd_ioctl_acquire_vm_args) -> Result {
    // CAST: A file descriptor is an `int`; one that is none fails in there.
    call.process
        .acquire_vm(call.process.device(args.gpu_id)?, args.drm_fd as i32)
}

/// SET_XNACK_MODE; a negative mode asks for the present one.
pub(super) fn set_xnack_mode(call: &Call<'_>, args: &mut kfd_ioctl_set_xnack_mode_args) -> Result {
    if args.xnack_enabled < 0 {
        args.xnack_enabled = call.process.alive()?.xnack().into();
        return Ok(());
    }
    // A queue that is being made has read the mode, and is not seen yet. Nobody else changes it.
    let _turn = call.process.memory_lock();
    drop(call.process.alive()?);
    if call.process.has_queues() {
        return Err(EBUSY);
    }
    call.process.choose_xnack(args.xnack_enabled != 0)
}

/// RUNTIME_ENABLE: the runtime says where a debugger finds it, and whether waves keep dispatch
/// information for one; or that it goes.
pub(super) fn runtime_enable(call: &Call<'_>, args: &mut kfd_ioctl_runtime_enable_args) -> Result {
    if args.mode_mask & KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK == 0 {
        return call.process.disable_runtime();
    }
    let ttmp = args.mode_mask & KFD_RUNTIME_ENABLE_MODE_TTMP_SAVE_MASK != 0;
    call.process.enable_runtime(args.r_debug, ttmp)
}

/// SMI_EVENTS: a file that tells of a GPU.
pub(super) fn smi_events(call: &Call<'_>, args: &mut kfd_ioctl_smi_events_args) -> Result {
    let node = call.process.device(args.gpuid)?.node();
    // CAST: a file descriptor, which is not negative.
    args.anon_fd = node.listeners().open(call.process.space())? as u32;
    Ok(())
}

/// CREATE_PROCESS: the file becomes that of another context of the address space.
pub(super) fn create_process(call: &Call<'_>, _: &mut ()) -> Result {
    call.file.create_context()
}
