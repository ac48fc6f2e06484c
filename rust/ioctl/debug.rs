// SPDX-License-Identifier: GPL-2.0-only

//! DBG_TRAP: fifteen operations of a debugger, in one ioctl. Arguments in, one call, answer out.

use super::Call;
use crate::{
    gfx::{
        LaunchMode,
        Watch, //
    },
    linux::errno,
    process::{
        debugger::{
            self,
            override_mode,
            traps,
            Event,
            Info,
            NewSession,
            Turn, //
        },
        report_fault,
        telling::send_to_runtime,
        Process,
        ProcessDevice,
        ProcessRef, //
    },
    queue::{
        QueueSnapshot,
        MAX_IDS, //
    },
    topology,
    uapi::{
        user_slice,
        view,
        *, //
    },
};
use kernel::{
    prelude::*,
    transmute::AsBytes, //
};

/// `enum kfd_dbg_trap_operations`
mod op {
    use crate::uapi::*;
    pub(super) const ENABLE: u32 = kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_ENABLE;
    pub(super) const DISABLE: u32 = kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_DISABLE;
    pub(super) const SEND_RUNTIME_EVENT: u32 =
        kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_SEND_RUNTIME_EVENT;
    pub(super) const SET_EXCEPTIONS_ENABLED: u32 =
        kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_SET_EXCEPTIONS_ENABLED;
    pub(super) const SET_WAVE_LAUNCH_OVERRIDE: u32 =
        kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_OVERRIDE;
    pub(super) const SET_WAVE_LAUNCH_MODE: u32 =
        kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_MODE;
    pub(super) const SUSPEND_QUEUES: u32 = kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_SUSPEND_QUEUES;
    pub(super) const RESUME_QUEUES: u32 = kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_RESUME_QUEUES;
    pub(super) const SET_NODE_ADDRESS_WATCH: u32 =
        kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_SET_NODE_ADDRESS_WATCH;
    pub(super) const CLEAR_NODE_ADDRESS_WATCH: u32 =
        kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_CLEAR_NODE_ADDRESS_WATCH;
    pub(super) const SET_FLAGS: u32 = kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_SET_FLAGS;
    pub(super) const QUERY_DEBUG_EVENT: u32 =
        kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_QUERY_DEBUG_EVENT;
    pub(super) const QUERY_EXCEPTION_INFO: u32 =
        kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_QUERY_EXCEPTION_INFO;
    pub(super) const GET_QUEUE_SNAPSHOT: u32 =
        kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_GET_QUEUE_SNAPSHOT;
    pub(super) const GET_DEVICE_SNAPSHOT: u32 =
        kfd_dbg_trap_operations_KFD_IOC_DBG_TRAP_GET_DEVICE_SNAPSHOT;
}

/// `KFD_SCHED_POLICY_NO_HWS`: without the firmware's scheduler nothing can be debugged.
const NO_HWS: i32 = 2;

/// Who debugs whom.
struct Debugging<'a> {
    caller: &'a Process,
    target: ProcessRef,
}

impl Debugging<'_> {
    /// See [`Turn::new`].
    fn turn(&self) -> Result<Turn<'_>> {
        Turn::new(self.caller, &self.target)
    }
}

/// DBG_TRAP.
///
/// The errors are those of the ABI, and so is their order.
pub(super) fn debug_trap(call: &Call<'_>, args: &mut DebugTrapArgs) -> Result {
    let caller = call.process;
    if !caller.is_primary() {
        return Err(errno::unsupported());
    }
    let scheduled = |device: &ProcessDevice| device.node().facts().sched_policy != NO_HWS;
    if !caller.devices().iter().all(|device| scheduled(device)) {
        return Err(EINVAL);
    }
    let target = debugger::find(args.pid, args.op == op::ENABLE)?;
    let it = Debugging { caller, target };
    let words = &mut args.words;
    if args.op == op::ENABLE {
        return enable(&it, view(words)?);
    }
    let hardware = (op::SET_WAVE_LAUNCH_OVERRIDE..=op::SET_FLAGS).contains(&args.op);
    it.turn()?.check(hardware)?;
    match args.op {
        op::DISABLE => it.turn()?.end(),
        op::SEND_RUNTIME_EVENT => send_runtime_event(&it, view(words)?),
        op::SET_EXCEPTIONS_ENABLED => set_exceptions_enabled(&it, view(words)?),
        op::SET_WAVE_LAUNCH_OVERRIDE => set_wave_launch_override(&it, view(words)?),
        op::SET_WAVE_LAUNCH_MODE => set_wave_launch_mode(&it, view(words)?),
        op::SUSPEND_QUEUES => suspend_queues(&it, view(words)?).map(|n| call.returns.set(n)),
        op::RESUME_QUEUES => resume_queues(&it, view(words)?).map(|n| call.returns.set(n)),
        op::SET_NODE_ADDRESS_WATCH => set_node_address_watch(&it, view(words)?),
        op::CLEAR_NODE_ADDRESS_WATCH => clear_node_address_watch(&it, view(words)?),
        op::SET_FLAGS => set_flags(&it, view(words)?),
        op::QUERY_DEBUG_EVENT => query_debug_event(&it, view(words)?),
        op::QUERY_EXCEPTION_INFO => query_exception_info(&it, view(words)?),
        op::GET_QUEUE_SNAPSHOT => get_queue_snapshot(&it, view(words)?),
        op::GET_DEVICE_SNAPSHOT => get_device_snapshot(&it, view(words)?),
        _ => Err(EINVAL),
    }
}

/// Copies as much of `value` to the user as there is room for.
fn show(value: &impl AsBytes, address: u64, room: u32) -> Result {
    let bytes = value.as_bytes();
    let shown = bytes.get(..room as usize).unwrap_or(bytes);
    let mut writer = user_slice(address, shown.len()).writer();
    writer.write_slice(shown)
}

/// ENABLE.
fn enable(it: &Debugging<'_>, args: &mut kfd_ioctl_dbg_trap_enable_args) -> Result {
    let new = NewSession::new(it.caller, &it.target, args.dbg_fd, args.exception_mask);
    let (session, runtime) = it.turn()?.begin(it.caller, new)?;
    let room = core::mem::replace(&mut args.rinfo_size, size_of::<kfd_runtime_info>() as u32);
    show(&runtime, args.rinfo_ptr, room).inspect_err(|_| {
        // It may have ended meanwhile, and another one begun.
        let _ = it.turn().and_then(|turn| turn.take_back(session));
    })
}

/// SEND_RUNTIME_EVENT.
fn send_runtime_event(
    it: &Debugging<'_>,
    args: &mut kfd_ioctl_dbg_trap_send_runtime_event_args,
) -> Result {
    let exceptions = args.exception_mask;
    let others = exceptions & !(EC_DEVICE_MEMORY_VIOLATION | EC_PROCESS_RUNTIME);
    // A signal while it waits for this finds nothing done: the call can be made again.
    let turn = match others {
        0 => None,
        _ => Some(it.target.errand()?),
    };
    if exceptions & EC_DEVICE_MEMORY_VIOLATION != 0 {
        let (device, fault) = it.turn()?.fault(args.gpu_id)?;
        report_fault(&it.target, device, fault);
    }
    if exceptions & EC_PROCESS_RUNTIME != 0 {
        it.turn()?.answer()?;
    }
    match turn {
        None => Ok(()),
        Some(turn) => send_to_runtime(&turn, &it.target, args.queue_id, others),
    }
}

/// SET_EXCEPTIONS_ENABLED.
fn set_exceptions_enabled(
    it: &Debugging<'_>,
    args: &mut kfd_ioctl_dbg_trap_set_exceptions_enabled_args,
) -> Result {
    it.turn()?.want(args.exception_mask)
}

/// SET_WAVE_LAUNCH_OVERRIDE.
fn set_wave_launch_override(
    it: &Debugging<'_>,
    args: &mut kfd_ioctl_dbg_trap_set_wave_launch_override_args,
) -> Result {
    let known = traps(&it.target);
    let chosen = core::mem::replace(&mut args.support_request_mask, known);
    let replaces = override_mode(args.override_mode)?;
    if chosen & !known != 0 {
        return Err(EACCES);
    }
    args.enable_mask = it.turn()?.set_traps(replaces, args.enable_mask, chosen)?;
    Ok(())
}

/// SET_WAVE_LAUNCH_MODE.
fn set_wave_launch_mode(
    it: &Debugging<'_>,
    args: &mut kfd_ioctl_dbg_trap_set_wave_launch_mode_args,
) -> Result {
    let mode = LaunchMode::new(args.launch_mode).ok_or(EINVAL)?;
    it.turn()?.set_launch_mode(mode)
}

/// The queues that a debugger names.
fn read_ids(address: u64, count: u32) -> Result<KVec<u32>> {
    if address == 0 && count != 0 || count as usize > MAX_IDS {
        return Err(EINVAL);
    }
    let mut ids = KVec::from_elem(0u32, count as usize, GFP_KERNEL)?;
    let mut reader = user_slice(address, size_of_val(&ids[..])).reader();
    reader.read_slice(ids.as_mut_bytes())?;
    Ok(ids)
}

/// Says what became of each. Whoever cannot be told has no use for it.
fn write_ids(address: u64, ids: &[u32]) {
    let mut writer = user_slice(address, size_of_val(ids)).writer();
    if let Err(error) = writer.write_slice(AsBytes::as_bytes(ids)) {
        pr_debug!("a debugger is not told of its queues: {error:?}\n");
    }
}

/// SUSPEND_QUEUES: returns how many are.
fn suspend_queues(
    it: &Debugging<'_>,
    args: &mut kfd_ioctl_dbg_trap_suspend_queues_args,
) -> Result<u32> {
    /// `USE_DEFAULT_GRACE_PERIOD` (kfd_device_queue_manager.h)
    const DEFAULT: u32 = u32::MAX;
    let mut ids = read_ids(args.queue_array_ptr, args.num_queues)?;
    let grace = (args.grace_period != DEFAULT).then_some(args.grace_period);
    let clear = args.exception_mask;
    let count = debugger::suspend(it.caller, &it.target, &mut ids, (grace, clear))?;
    write_ids(args.queue_array_ptr, &ids);
    Ok(count)
}

/// RESUME_QUEUES: returns how many are not suspended any more. Without an array: all.
fn resume_queues(
    it: &Debugging<'_>,
    args: &mut kfd_ioctl_dbg_trap_resume_queues_args,
) -> Result<u32> {
    if args.queue_array_ptr == 0 {
        return it.turn()?.resume(None);
    }
    let mut ids = read_ids(args.queue_array_ptr, args.num_queues)?;
    let count = it.turn()?.resume(Some(&mut ids))?;
    write_ids(args.queue_array_ptr, &ids);
    Ok(count)
}

/// SET_NODE_ADDRESS_WATCH.
fn set_node_address_watch(
    it: &Debugging<'_>,
    args: &mut kfd_ioctl_dbg_trap_set_node_address_watch_args,
) -> Result {
    let watch = Watch::new(args.mode, args.mask);
    let point = it.turn()?.watch(args.gpu_id, args.address, watch);
    match point {
        Ok(number) => args.id = number,
        // As it always was.
        Err(error) if error == ENOMEM => args.id = u32::MAX,
        Err(_) => {}
    }
    point.map(drop)
}

/// CLEAR_NODE_ADDRESS_WATCH.
fn clear_node_address_watch(
    it: &Debugging<'_>,
    args: &mut kfd_ioctl_dbg_trap_clear_node_address_watch_args,
) -> Result {
    it.turn()?.unwatch(args.gpu_id, args.id)
}

/// SET_FLAGS.
fn set_flags(it: &Debugging<'_>, args: &mut kfd_ioctl_dbg_trap_set_flags_args) -> Result {
    let (before, result) = it.turn()?.set_flags(args.flags);
    args.flags = before;
    result
}

/// QUERY_DEBUG_EVENT.
fn query_debug_event(
    it: &Debugging<'_>,
    args: &mut kfd_ioctl_dbg_trap_query_debug_event_args,
) -> Result {
    let event = it.turn()?.event(args.exception_mask)?;
    let Event {
        exceptions,
        gpu_id,
        queue_id,
    } = event.unwrap_or_default();
    args.exception_mask = exceptions;
    args.gpu_id = gpu_id;
    args.queue_id = queue_id;
    event.map(drop).ok_or(EAGAIN)
}

/// QUERY_EXCEPTION_INFO.
fn query_exception_info(
    it: &Debugging<'_>,
    args: &mut kfd_ioctl_dbg_trap_query_exception_info_args,
) -> Result {
    if args.info_ptr == 0 {
        return Err(EINVAL);
    }
    let (source, code) = (args.source_id, args.exception_code);
    let (room, address) = (args.info_size, args.info_ptr);
    let clear = args.clear_exception != 0;
    // The turn ends here, since what follows may wait for the caller's memory. What happens after
    // it is not forgotten by this call.
    let (info, session) = it.turn()?.info(source, code, clear)?;
    let (shown, size) = match info {
        Info::Nothing => (Ok(()), 0),
        Info::Fault(fault) => (show(&fault, address, room), size_of_val(&fault)),
        Info::Runtime(runtime) => (show(&runtime, address, room), size_of_val(&runtime)),
    };
    if let Err(error) = shown {
        if clear {
            let turn = it.turn();
            let _ = turn.and_then(|mut turn| turn.remember(source, code, session));
        }
        return Err(error);
    }
    // CAST: some bytes.
    args.info_size = size as u32;
    Ok(())
}

/// How many queues the process has, and the first `shown` of them. `EAGAIN`: they come faster than
/// room is made.
fn all_queues(
    it: &Debugging<'_>,
    clear: u64,
    shown: usize,
) -> Result<(usize, KVec<QueueSnapshot>)> {
    for _ in 0..8 {
        // Some more may come meanwhile.
        let mut all = KVec::with_capacity(it.target.queue_count() + 16, GFP_KERNEL)?;
        let count = it.turn()?.queues(clear, shown, &mut all)?;
        if let Some(count) = count {
            return Ok((count, all));
        }
    }
    Err(EAGAIN)
}

/// GET_QUEUE_SNAPSHOT.
fn get_queue_snapshot(
    it: &Debugging<'_>,
    args: &mut kfd_ioctl_dbg_trap_queue_snapshot_args,
) -> Result {
    let (room, stride) = (args.num_queues as usize, args.entry_size);
    args.num_queues = 0;
    if stride == 0 {
        return Err(EINVAL);
    }
    args.entry_size = stride.min(size_of::<kfd_queue_snapshot_entry>() as u32);
    let (count, all) = all_queues(it, args.exception_mask, room)?;
    for (index, queue) in (0u64..).zip(all.iter()) {
        let offset = index * u64::from(stride);
        show(
            &queue.entry,
            args.snapshot_buf_ptr.wrapping_add(offset),
            args.entry_size,
        )?;
    }
    // CAST: no more than `MAX_IDS`.
    args.num_queues = count as u32;
    Ok(())
}

/// GET_DEVICE_SNAPSHOT.
fn get_device_snapshot(
    it: &Debugging<'_>,
    args: &mut kfd_ioctl_dbg_trap_device_snapshot_args,
) -> Result {
    if args.snapshot_buf_ptr == 0 {
        return Err(EINVAL);
    }
    let (room, stride) = (args.num_devices as usize, args.entry_size);
    let devices = it.target.devices();
    // CAST: a handful.
    args.num_devices = devices.len() as u32;
    args.entry_size = stride.min(size_of::<kfd_dbg_device_info_entry>() as u32);
    let shown = devices.get(..room).unwrap_or(devices);
    let mut exceptions = KVec::from_elem(0, shown.len(), GFP_KERNEL)?;
    it.turn()?.devices(args.exception_mask, &mut exceptions)?;
    for (index, (device, exceptions)) in (0u64..).zip(shown.iter().zip(exceptions.iter())) {
        let address = args
            .snapshot_buf_ptr
            .wrapping_add(index * u64::from(stride));
        show(&device_info(device, *exceptions), address, args.entry_size)?;
    }
    Ok(())
}

/// A GPU as a debugger sees it.
fn device_info(device: &ProcessDevice, exceptions: u64) -> kfd_dbg_device_info_entry {
    let (node, apertures) = (device.node(), device.apertures());
    let facts = node.facts();
    let properties = topology::properties(node);
    let gpu = properties.gpu.unwrap_or_default();
    kfd_dbg_device_info_entry {
        exception_status: exceptions,
        lds_base: apertures.lds.base,
        lds_limit: apertures.lds.limit,
        scratch_base: apertures.scratch.base,
        scratch_limit: apertures.scratch.limit,
        gpuvm_base: apertures.gpuvm.base,
        gpuvm_limit: apertures.gpuvm.limit,
        gpu_id: device.gpu_id().raw(),
        location_id: properties.location_id,
        vendor_id: properties.vendor_id,
        device_id: properties.device_id,
        revision_id: facts.pci_revision,
        subsystem_vendor_id: facts.subsystem_vendor,
        subsystem_device_id: facts.subsystem_device,
        fw_version: facts.mec_fw_version,
        gfx_target_version: properties.gfx_target_version,
        simd_count: properties.simd_count,
        max_waves_per_simd: properties.max_waves_per_simd,
        // Of one XCC, of which sysfs has the sum: rocdbgapi multiplies it by num_xcc.
        array_count: properties.array_count / node.num_xcc().max(1),
        simd_arrays_per_engine: properties.simd_arrays_per_engine,
        num_xcc: node.num_xcc(),
        capability: gpu.capability,
        // CAST: what there is of it has 32 bits in this structure.
        debug_prop: gpu.debug_prop as u32,
        capability2: gpu.capability2,
        ..kfd_dbg_device_info_entry::default()
    }
}
