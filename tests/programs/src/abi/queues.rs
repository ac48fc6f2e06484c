// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Generated calls about queues.

use super::world::{Arg, Queue, World};
use kfd_uapi as uapi;

pub fn create(world: &mut World) {
    let mut args = world.bench.queue();
    let good = |name: &str, value: u64| Arg::new(value, name);
    let bad = [0, 8, 4096, 0xffff_8000_0000_0000];
    let gpu = world.gpu();
    let kind = world.pick(&[0, 1, 2, 2, 2, 3, 4, 5, 0xff]);
    let ring = good("ring", args.ring_base_address);
    let ring = world.mostly(95, ring, &bad);
    let size = good("all of it", args.ring_size.into());
    let size = world.mostly(90, size, &[0, 256, 1024, 4096, 65537, 131_072, 0x8000_0000]);
    let write = good("index", args.write_pointer_address);
    let write = world.mostly(96, write, &bad);
    let read = good("index", args.read_pointer_address);
    let read = world.mostly(96, read, &bad);
    let eop = good("eop", args.eop_buffer_address);
    let eop = world.mostly(96, eop, &bad);
    let eop_size = world.mostly(96, Arg::number(4096), &[0, 1, 4095, 8192]);
    let area = good("area", args.ctx_save_restore_address);
    let area = world.mostly(96, area, &bad);
    let percentage = world.mostly(90, Arg::number(100), &[0, 1, 50, 101, 0x164]);
    let priority = world.mostly(80, Arg::number(7), &[0, 11, 15, 16, 255]);
    let engine = world.pick(&[0, 1, 2, 9]);
    let metadata = world.mostly(94, Arg::number(0), &[1, 4096, 65536]);
    args.gpu_id = gpu.u32();
    args.queue_type = kind.u32();
    args.ring_base_address = ring.value;
    args.ring_size = size.u32();
    args.write_pointer_address = write.value;
    args.read_pointer_address = read.value;
    args.eop_buffer_address = eop.value;
    args.eop_buffer_size = eop_size.value;
    args.ctx_save_restore_address = area.value;
    args.queue_percentage = percentage.u32();
    args.queue_priority = priority.u32();
    args.sdma_engine_id = engine.u32();
    args.metadata_ring_size = metadata.u32();
    let outcome = world.call(uapi::IOC_CREATE_QUEUE, &mut args);
    let mut written = String::new();
    if outcome.is_ok() {
        let name = world.name("q");
        let kind = args.doorbell_offset >> 62;
        let gpu = (args.doorbell_offset >> 46) as u16;
        written = format!(
            "{name} id {} doorbell {kind} {} {:#x}",
            args.queue_id,
            u32::from(gpu) == world.bench.gpu_id(),
            args.doorbell_offset & 0x3fff_ffff_ffff
        );
        world.queues.push(Queue {
            id: args.queue_id,
            name,
            ring: args.ring_base_address,
        });
    }
    world.say(
        "CREATE_QUEUE",
        &[
            &gpu,
            &kind,
            &ring,
            &size,
            &write,
            &read,
            &eop,
            &eop_size,
            &area,
            &percentage,
            &priority,
            &engine,
            &metadata,
        ],
        outcome,
        &written,
    );
}

pub fn destroy(world: &mut World) {
    let queue = world.queue();
    let mut args = uapi::kfd_ioctl_destroy_queue_args {
        queue_id: queue.u32(),
        ..Default::default()
    };
    let outcome = world.call(uapi::IOC_DESTROY_QUEUE, &mut args);
    world.queues.retain(|it| it.id != queue.u32());
    if world.wave_sync == Some(queue.u32()) {
        world.wave_sync = None;
    }
    world.say("DESTROY_QUEUE", &[&queue], outcome, "");
}

pub fn update(world: &mut World) {
    let queue = world.queue();
    let ring = world
        .queues
        .iter()
        .find(|it| it.id == queue.u32())
        .map_or(0, |it| it.ring);
    let ring = Arg::new(ring, "ring");
    let ring = world.mostly(85, ring, &[0, 8, 4096, 0xffff_8000_0000_0000]);
    let whole = Arg::number(world.bench.ring.size() as u64);
    let size = world.mostly(85, whole, &[0, 256, 1000, 4096, 131_072]);
    let percentage = world.pick(&[0, 100, 100, 50, 101, 0x100]);
    let priority = world.pick(&[0, 7, 7, 15, 16]);
    let mut args = uapi::kfd_ioctl_update_queue_args {
        ring_base_address: ring.value,
        queue_id: queue.u32(),
        ring_size: size.u32(),
        queue_percentage: percentage.u32(),
        queue_priority: priority.u32(),
    };
    let outcome = world.call(uapi::IOC_UPDATE_QUEUE, &mut args);
    world.say(
        "UPDATE_QUEUE",
        &[&queue, &ring, &size, &percentage, &priority],
        outcome,
        "",
    );
}

pub fn set_cu_mask(world: &mut World) {
    let queue = world.queue();
    let bits = world.pick(&[0, 31, 32, 64, 128, 1024, 2048]);
    let word = world.pick(&[0, 1, 0xffff_ffff, 0x5555_5555]);
    let mask = [word.u32(); 64];
    let place = Arg::new(mask.as_ptr() as u64, "mask");
    let place = world.mostly(90, place, &[0, 0xffff_8000_0000_0000]);
    let mut args = uapi::kfd_ioctl_set_cu_mask_args {
        queue_id: queue.u32(),
        num_cu_mask: bits.u32(),
        cu_mask_ptr: place.value,
    };
    let outcome = world.call(uapi::IOC_SET_CU_MASK, &mut args);
    world.say("SET_CU_MASK", &[&queue, &bits, &word, &place], outcome, "");
}

pub fn get_wave_state(world: &mut World) {
    let queue = world.queue();
    let xccs = world.bench.device.node().xccs() as usize;
    let size = world.bench.queue().ctx_save_restore_size as usize * (xccs + 1) / 4;
    let mut area = vec![0u32; size];
    let place = Arg::new(area.as_ptr() as u64, "area");
    let place = world.mostly(85, place, &[0, 8, 0xffff_8000_0000_0000]);
    let exists = world.queues.iter().any(|it| it.id == queue.u32());
    // While the process is evicted, as when the kernel moves its memory, no queue of its runs, on
    // either driver: then one that is to run can be asked too. That does not last.
    let mut tries = 0..20;
    let (args, outcome) = loop {
        let mut args = uapi::kfd_ioctl_get_queue_wave_state_args {
            ctl_stack_address: place.value,
            queue_id: queue.u32(),
            ..Default::default()
        };
        // Nothing of an earlier try stays.
        area[..4].fill(0);
        let outcome = world.call(uapi::IOC_GET_QUEUE_WAVE_STATE, &mut args);
        if !exists || outcome == Err(rustix::io::Errno::INVAL) || tries.next().is_none() {
            if exists && outcome == Err(rustix::io::Errno::INVAL) && tries.len() < 20 {
                eprintln!("retried: GET_QUEUE_WAVE_STATE; the process was evicted");
            }
            break (args, outcome);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let written = format!(
        "{} {} {:x?}",
        args.ctl_stack_used_size,
        args.save_area_used_size,
        &area[..4]
    );
    world.say("GET_QUEUE_WAVE_STATE", &[&queue, &place], outcome, &written);
}

pub fn alloc_gws(world: &mut World) {
    let queue = world.queue();
    let count = world.pick(&[0, 64, 64, 1]);
    // Given back through another queue, C gives it to a second one when the first is destroyed.
    if count.value == 0 && world.wave_sync.is_some_and(|id| id != queue.u32()) {
        return;
    }
    let mut args = uapi::kfd_ioctl_alloc_queue_gws_args {
        queue_id: queue.u32(),
        num_gws: count.u32(),
        first_gws: 0x77,
        ..Default::default()
    };
    let outcome = world.call(uapi::IOC_ALLOC_QUEUE_GWS, &mut args);
    if outcome.is_ok() {
        world.wave_sync = (count.value != 0).then_some(queue.u32());
    }
    let written = format!("first {:#x}", args.first_gws);
    world.say("ALLOC_QUEUE_GWS", &[&queue, &count], outcome, &written);
}
