// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Generated calls about the process, its events, and what watches it.

use super::world::{Arg, World};
use kfd_uapi as uapi;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};

const KERNEL: u64 = 0xffff_8000_0000_0000;

pub fn get_version(world: &mut World) {
    let mut args = uapi::kfd_ioctl_get_version_args::default();
    let outcome = world.call(uapi::IOC_GET_VERSION, &mut args);
    let written = format!("{}.{}", args.major_version, args.minor_version);
    world.say("GET_VERSION", &[], outcome, &written);
}

pub fn set_memory_policy(world: &mut World) {
    let gpu = world.gpu();
    let policy = world.pick(&[0, 1, 1, 2]);
    let alternate = world.pick(&[0, 1, 1, 2]);
    let base = world.pick(&[0, 1 << 32, KERNEL]);
    let size = world.pick(&[0, 65536, 1 << 40]);
    let flag = world.mostly(80, Arg::number(0), &[1, 2, 0xffff_ffff]);
    let mut args = uapi::kfd_ioctl_set_memory_policy_args {
        alternate_aperture_base: base.value,
        alternate_aperture_size: size.value,
        gpu_id: gpu.u32(),
        default_policy: policy.u32(),
        alternate_policy: alternate.u32(),
        misc_process_flag: flag.u32(),
    };
    let outcome = world.call(uapi::IOC_SET_MEMORY_POLICY, &mut args);
    let shown = [&gpu, &policy, &alternate, &base, &size, &flag];
    world.say("SET_MEMORY_POLICY", &shown, outcome, "");
}

pub fn get_clock_counters(world: &mut World) {
    let gpu = world.gpu();
    let mut args = uapi::kfd_ioctl_get_clock_counters_args {
        gpu_id: gpu.u32(),
        ..Default::default()
    };
    let outcome = world.call(uapi::IOC_GET_CLOCK_COUNTERS, &mut args);
    let written = format!(
        "GPU runs {}, CPU runs {}, system runs {} at {}",
        args.gpu_clock_counter != 0,
        args.cpu_clock_counter != 0,
        args.system_clock_counter != 0,
        args.system_clock_freq
    );
    world.say("GET_CLOCK_COUNTERS", &[&gpu], outcome, &written);
}

fn aperture(it: &uapi::kfd_process_device_apertures, gpu: u32) -> String {
    format!(
        "{:#x}-{:#x} {:#x}-{:#x} {:#x}-{:#x} GPU {} pad {}",
        it.lds_base,
        it.lds_limit,
        it.scratch_base,
        it.scratch_limit,
        it.gpuvm_base,
        it.gpuvm_limit,
        it.gpu_id == gpu,
        it.pad
    )
}

pub fn get_process_apertures(world: &mut World) {
    let mut args = uapi::kfd_ioctl_get_process_apertures_args {
        num_of_nodes: world.pick(&[0, 1, 7, 100]).u32(),
        ..Default::default()
    };
    let outcome = world.call(uapi::IOC_GET_PROCESS_APERTURES, &mut args);
    let first = aperture(&args.process_apertures[0], world.bench.gpu_id());
    let written = format!("{} nodes, {first}", args.num_of_nodes);
    world.say("GET_PROCESS_APERTURES", &[], outcome, &written);
}

pub fn get_process_apertures_new(world: &mut World) {
    let room = [uapi::kfd_process_device_apertures::default(); 8];
    let count = world.pick(&[0, 1, 1, 2, 3, 100, 0xffff_ffff]);
    let place = Arg::new(room.as_ptr() as u64, "room");
    let place = world.mostly(85, place, &[0, KERNEL]);
    let mut args = uapi::kfd_ioctl_get_process_apertures_new_args {
        kfd_process_device_apertures_ptr: place.value,
        num_of_nodes: count.u32(),
        pad: 0,
    };
    let outcome = world.call(uapi::IOC_GET_PROCESS_APERTURES_NEW, &mut args);
    let first = aperture(&room[0], world.bench.gpu_id());
    let written = format!("{} nodes, {first}", args.num_of_nodes);
    world.say(
        "GET_PROCESS_APERTURES_NEW",
        &[&count, &place],
        outcome,
        &written,
    );
}

pub fn set_scratch_backing_va(world: &mut World) {
    let (gpu, place) = (world.gpu(), world.place());
    let mut args = uapi::kfd_ioctl_set_scratch_backing_va_args {
        va_addr: place.value,
        gpu_id: gpu.u32(),
        pad: 0,
    };
    let outcome = world.call(uapi::IOC_SET_SCRATCH_BACKING_VA, &mut args);
    world.say("SET_SCRATCH_BACKING_VA", &[&gpu, &place], outcome, "");
}

pub fn get_tile_config(world: &mut World) {
    let tiles = [0u32; 64];
    let gpu = world.gpu();
    let count = world.pick(&[0, 1, 16, 32, 64]);
    let macros = world.pick(&[0, 1, 16, 64]);
    let place = Arg::new(tiles.as_ptr() as u64, "room");
    let place = world.mostly(85, place, &[0, KERNEL]);
    let mut args = uapi::kfd_ioctl_get_tile_config_args {
        tile_config_ptr: place.value,
        macro_tile_config_ptr: place.value,
        num_tile_configs: count.u32(),
        num_macro_tile_configs: macros.u32(),
        gpu_id: gpu.u32(),
        ..Default::default()
    };
    let outcome = world.call(uapi::IOC_GET_TILE_CONFIG, &mut args);
    let written = format!(
        "{} tiles {} macrotiles, {:#x}, banks {} ranks {}, {:x?}",
        args.num_tile_configs,
        args.num_macro_tile_configs,
        args.gb_addr_config,
        args.num_banks,
        args.num_ranks,
        &tiles[..4]
    );
    world.say(
        "GET_TILE_CONFIG",
        &[&gpu, &count, &macros, &place],
        outcome,
        &written,
    );
}

pub fn set_trap_handler(world: &mut World) {
    let (gpu, code, data) = (world.gpu(), world.place(), world.place());
    let mut args = uapi::kfd_ioctl_set_trap_handler_args {
        tba_addr: code.value,
        tma_addr: data.value,
        gpu_id: gpu.u32(),
        pad: 0,
    };
    let outcome = world.call(uapi::IOC_SET_TRAP_HANDLER, &mut args);
    world.say("SET_TRAP_HANDLER", &[&gpu, &code, &data], outcome, "");
}

pub fn acquire_vm(world: &mut World) {
    let gpu = world.gpu();
    let file = match world.below(4) {
        0 => Arg::new(world.render().as_raw_fd() as u64, "another render node"),
        1 => Arg::new(world.fd().as_raw_fd() as u64, "/dev/kfd"),
        2 => Arg::number(0x7777),
        _ => Arg::number(0xffff_ffff),
    };
    let mut args = uapi::kfd_ioctl_acquire_vm_args {
        drm_fd: file.u32(),
        gpu_id: gpu.u32(),
    };
    let outcome = world.call(uapi::IOC_ACQUIRE_VM, &mut args);
    world.say("ACQUIRE_VM", &[&gpu, &file], outcome, "");
}

pub fn set_xnack_mode(world: &mut World) {
    let mode = world.pick(&[0, 1, 2, 0xffff_ffff, 0xffff_ffff]);
    let mut args = uapi::kfd_ioctl_set_xnack_mode_args {
        xnack_enabled: mode.u32() as i32,
    };
    let outcome = world.call(uapi::IOC_SET_XNACK_MODE, &mut args);
    let written = format!("{}", args.xnack_enabled);
    world.say("SET_XNACK_MODE", &[&mode], outcome, &written);
}

pub fn runtime_enable(world: &mut World) {
    let (place, mode) = (world.place(), world.pick(&[0, 0, 1, 2, 3, 4, 0xffff_ffff]));
    let mut args = uapi::kfd_ioctl_runtime_enable_args {
        r_debug: place.value,
        mode_mask: mode.u32(),
        capabilities_mask: 0x77,
    };
    let outcome = world.call(uapi::IOC_RUNTIME_ENABLE, &mut args);
    let written = format!("capabilities {:#x}", args.capabilities_mask);
    world.say("RUNTIME_ENABLE", &[&place, &mode], outcome, &written);
}

pub fn deprecated(world: &mut World) {
    let calls = [
        ("DBG_REGISTER", uapi::IOC_DBG_REGISTER_DEPRECATED),
        ("DBG_UNREGISTER", uapi::IOC_DBG_UNREGISTER_DEPRECATED),
        ("DBG_ADDRESS_WATCH", uapi::IOC_DBG_ADDRESS_WATCH_DEPRECATED),
        ("DBG_WAVE_CONTROL", uapi::IOC_DBG_WAVE_CONTROL_DEPRECATED),
    ];
    let (name, request) = calls[world.below(calls.len())];
    let gpu = world.gpu();
    let mut args = [gpu.u32(); 8];
    let outcome = world.call(request, &mut args);
    world.say(name, &[&gpu], outcome, "");
}

pub fn create_event(world: &mut World) {
    let kind = world.pick(&[0, 0, 0, 1, 2, 3, 4, 5, 7, 8, 9, 77]);
    let auto = world.pick(&[0, 1, 2]);
    let page = world.mostly(95, Arg::number(0), &[1, 4096, 1 << 40]);
    let mut args = uapi::kfd_ioctl_create_event_args {
        event_page_offset: page.value,
        event_type: kind.u32(),
        auto_reset: auto.u32(),
        node_id: world.pick(&[0, 1, 77]).u32(),
        ..Default::default()
    };
    let outcome = world.call(uapi::IOC_CREATE_EVENT, &mut args);
    let mut written = String::new();
    if outcome.is_ok() {
        world.events.push(args.event_id);
        written = format!(
            "id {:#x} trigger {:#x} slot {} page type {}",
            args.event_id,
            args.event_trigger_data,
            args.event_slot_index,
            args.event_page_offset >> 62
        );
    }
    world.say("CREATE_EVENT", &[&kind, &auto, &page], outcome, &written);
}

pub fn destroy_event(world: &mut World) {
    let event = world.event();
    let mut args = uapi::kfd_ioctl_destroy_event_args {
        event_id: event.u32(),
        ..Default::default()
    };
    let outcome = world.call(uapi::IOC_DESTROY_EVENT, &mut args);
    world.events.retain(|id| *id != event.u32());
    world.say("DESTROY_EVENT", &[&event], outcome, "");
}

pub fn set_event(world: &mut World) {
    let event = world.event();
    let mut args = uapi::kfd_ioctl_set_event_args {
        event_id: event.u32(),
        ..Default::default()
    };
    let outcome = world.call(uapi::IOC_SET_EVENT, &mut args);
    world.say("SET_EVENT", &[&event], outcome, "");
}

pub fn reset_event(world: &mut World) {
    let event = world.event();
    let mut args = uapi::kfd_ioctl_reset_event_args {
        event_id: event.u32(),
        ..Default::default()
    };
    let outcome = world.call(uapi::IOC_RESET_EVENT, &mut args);
    world.say("RESET_EVENT", &[&event], outcome, "");
}

pub fn wait_events(world: &mut World) {
    let count = world.below(4);
    let mut data = Vec::new();
    let mut names = Vec::new();
    for _ in 0..count {
        let (event, age) = (world.event(), world.pick(&[0, 0, 1, 2, 5]));
        let mut record = uapi::kfd_event_data {
            event_id: event.u32(),
            ..Default::default()
        };
        record.__bindgen_anon_1.signal_event_data.last_event_age = age.value;
        names.push(format!("{event} at {age}"));
        data.push(record);
    }
    let list = Arg::new(data.as_ptr() as u64, format!("[{}]", names.join(", ")));
    let list = world.mostly(95, list, &[0, KERNEL]);
    let all = world.pick(&[0, 1]);
    let timeout = world.mostly(80, Arg::number(0), &[1, 2]);
    let mut args = uapi::kfd_ioctl_wait_events_args {
        events_ptr: list.value,
        num_events: count as u32,
        wait_for_all: all.u32(),
        timeout: timeout.u32(),
        wait_result: 77,
    };
    let outcome = world.call(uapi::IOC_WAIT_EVENTS, &mut args);
    let ages: Vec<u64> = data
        .iter()
        // SAFETY: every bit pattern is an age.
        .map(|record| unsafe { record.__bindgen_anon_1.signal_event_data.last_event_age })
        .collect();
    let written = format!("result {} ages {ages:?}", args.wait_result);
    world.say("WAIT_EVENTS", &[&list, &all, &timeout], outcome, &written);
}

pub fn smi_events(world: &mut World) {
    let gpu = world.gpu();
    let mut args = uapi::kfd_ioctl_smi_events_args {
        gpuid: gpu.u32(),
        anon_fd: 0,
    };
    let outcome = world.call(uapi::IOC_SMI_EVENTS, &mut args);
    if outcome.is_ok() {
        // SAFETY: the kernel has just made it for this process.
        let fd = unsafe { OwnedFd::from_raw_fd(args.anon_fd as i32) };
        world.smi.push(fd);
    }
    world.say("SMI_EVENTS", &[&gpu], outcome, "");
}

pub fn profiler(world: &mut World) {
    let operation = world.pick(&[0, 0, 1, 2, 3, 4, 77]);
    let (gpu, lock) = (world.gpu(), world.pick(&[0, 1, 1, 2]));
    // With a queue on the GPU the C driver waits for a lock that it holds (set_perfcount), for
    // ever.
    if operation.value == 0 && !world.queues.is_empty() {
        return;
    }
    let mut args = uapi::kfd_ioctl_profiler_args {
        op: operation.u32(),
        ..Default::default()
    };
    let counters = world.pick(&[0, 1]);
    args.__bindgen_anon_1.pmc = uapi::kfd_ioctl_pmc_settings {
        gpu_id: gpu.u32(),
        lock: lock.u32(),
        perfcount_enable: counters.u32(),
    };
    let outcome = world.call(uapi::IOC_PROFILER, &mut args);
    // SAFETY: every bit pattern is a number.
    let version = unsafe { args.__bindgen_anon_1.version };
    let written = match operation.value {
        2 => format!("version {version}"),
        _ => String::new(),
    };
    world.say(
        "PROFILER",
        &[&operation, &gpu, &lock, &counters],
        outcome,
        &written,
    );
}
