// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The cases of queues.

use super::show;
use crate::bench::Bench;
use crate::raw::ioctl;
use kfd_uapi as uapi;
use rustix::fd::BorrowedFd;

/// An address of the kernel's.
const KERNEL: u64 = 0xffff_8000_0000_0000;

impl Bench {
    fn try_queue(&self, case: &str, change: impl FnOnce(&mut uapi::kfd_ioctl_create_queue_args)) {
        let mut args = self.queue();
        change(&mut args);
        let outcome = ioctl(self.kfd(), uapi::IOC_CREATE_QUEUE, &mut args);
        show(&format!("CREATE_QUEUE {case}"), outcome);
        if outcome.is_ok() {
            destroy_queue(self.kfd(), args.queue_id);
        }
    }

    /// The same of a call that is refused: what it says of the ring's size all the same.
    fn try_ring(&self, case: &str, change: impl FnOnce(&mut uapi::kfd_ioctl_create_queue_args)) {
        let mut args = self.queue();
        args.ring_size = 64;
        change(&mut args);
        let outcome = ioctl(self.kfd(), uapi::IOC_CREATE_QUEUE, &mut args);
        show(&format!("CREATE_QUEUE small ring, {case}"), outcome);
        println!("  ring of {}", args.ring_size);
    }
}

pub(super) fn destroy_queue(fd: BorrowedFd<'_>, queue_id: u32) {
    let mut args = uapi::kfd_ioctl_destroy_queue_args {
        queue_id,
        ..Default::default()
    };
    show(
        "DESTROY_QUEUE after it",
        ioctl(fd, uapi::IOC_DESTROY_QUEUE, &mut args),
    );
}

pub(super) fn queues(bench: &Bench) {
    bench.try_queue("as it should be", |_| ());
    for size in [
        0,
        1,
        64,
        100,
        1024,
        4096,
        65535,
        65536,
        131072,
        0x4000_0000,
        0x8000_0000,
        u32::MAX,
    ] {
        bench.try_queue(&format!("ring of {size}"), |args| args.ring_size = size);
    }
    bench.try_ring("priority 16", |args| args.queue_priority = 16);
    bench.try_ring("ring at the kernel's", |args| {
        args.ring_base_address = KERNEL
    });
    bench.try_ring("ring of 65", |args| args.ring_size = 65);
    bench.try_ring("metadata ring of 3", |args| args.metadata_ring_size = 3);
    bench.try_ring("read index at the kernel's", |args| {
        args.read_pointer_address = KERNEL
    });
    bench.try_ring("type 100", |args| args.queue_type = 100);
    bench.try_ring("of no GPU", |args| args.gpu_id = 1);
    for percentage in [0, 50, 101, 0x100, 0xffff, 0x164] {
        bench.try_queue(&format!("percentage {percentage}"), |args| {
            args.queue_percentage = percentage
        });
    }
    for priority in [0, 15, 16, u32::MAX] {
        bench.try_queue(&format!("priority {priority}"), |args| {
            args.queue_priority = priority
        });
    }
    for kind in [0, 1, 3, 4, 5, 100] {
        bench.try_queue(&format!("type {kind}"), |args| args.queue_type = kind);
    }
    bench.try_queue("of no GPU", |args| args.gpu_id = 1);
    bench.try_queue("of GPU 0", |args| args.gpu_id = 0);
    for engine in [0, 1, 2, 100] {
        bench.try_queue(&format!("SDMA engine {engine}"), |args| {
            args.queue_type = uapi::KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID;
            args.sdma_engine_id = engine;
        });
    }
    for size in [1, 4096, 65536] {
        bench.try_queue(&format!("metadata ring of {size}"), |args| {
            args.metadata_ring_size = size
        });
    }
    for queue_id in [0, 99, 255, 256, 0x8000_0000, u32::MAX] {
        let mut args = uapi::kfd_ioctl_destroy_queue_args {
            queue_id,
            ..Default::default()
        };
        show(
            &format!("DESTROY_QUEUE {queue_id}"),
            ioctl(bench.kfd(), uapi::IOC_DESTROY_QUEUE, &mut args),
        );
    }
}

pub(super) fn queue_buffers(bench: &Bench) {
    let elsewhere = bench.ring.address() + (1 << 32);
    for (case, address) in [
        ("0", 0),
        ("misaligned", bench.ring.address() + 8),
        ("nowhere", elsewhere),
        ("the kernel's", KERNEL),
    ] {
        bench.try_queue(&format!("ring at {case}"), |args| {
            args.ring_base_address = address
        });
        bench.try_queue(&format!("write index at {case}"), |args| {
            args.write_pointer_address = address
        });
        bench.try_queue(&format!("read index at {case}"), |args| {
            args.read_pointer_address = address
        });
        bench.try_queue(&format!("EOP at {case}"), |args| {
            args.eop_buffer_address = address
        });
        bench.try_queue(&format!("context at {case}"), |args| {
            args.ctx_save_restore_address = address
        });
    }
    for size in [0, 1, 2048, 8192, 1 << 40] {
        bench.try_queue(&format!("EOP of {size}"), |args| {
            args.eop_buffer_size = size
        });
    }
    for (case, change) in [("less", -4096i64), ("more", 4096), ("none", i64::MIN)] {
        let of = |value: u32| {
            if change == i64::MIN {
                0
            } else {
                (i64::from(value) + change) as u32
            }
        };
        bench.try_queue(&format!("context size {case}"), |args| {
            args.ctx_save_restore_size = of(args.ctx_save_restore_size)
        });
        bench.try_queue(&format!("control stack {case}"), |args| {
            args.ctl_stack_size = of(args.ctl_stack_size)
        });
    }
}

/// Buffers of a queue where the VM maps nothing on purpose (partially resident textures).
pub(super) fn queue_on_nothing(bench: &Bench) {
    let nothing = bench.ring.address() - (1 << 36);
    let mut args = uapi::drm_amdgpu_gem_va {
        operation: uapi::AMDGPU_VA_OP_MAP,
        flags: uapi::AMDGPU_VM_PAGE_PRT,
        va_address: nothing,
        map_size: bench.ring.size() as u64,
        ..Default::default()
    };
    show(
        "GEM_VA of nothing",
        ioctl(bench.device.render(), uapi::IOC_DRM_GEM_VA, &mut args),
    );
    bench.try_queue("ring of nothing", |args| args.ring_base_address = nothing);
    bench.try_queue("ring of nothing and the context nowhere", |args| {
        args.ring_base_address = nothing;
        args.ctx_save_restore_address += 1 << 32;
    });
}

pub(super) fn live_queue(bench: &Bench) {
    let fd = bench.kfd();
    let mut queue = bench.queue();
    show(
        "CREATE_QUEUE to keep",
        ioctl(fd, uapi::IOC_CREATE_QUEUE, &mut queue),
    );
    let good = uapi::kfd_ioctl_update_queue_args {
        ring_base_address: queue.ring_base_address,
        queue_id: queue.queue_id,
        ring_size: queue.ring_size,
        queue_percentage: 100,
        queue_priority: 7,
    };
    let update = |case: &str, change: &dyn Fn(&mut uapi::kfd_ioctl_update_queue_args)| {
        let mut args = good;
        change(&mut args);
        show(
            &format!("UPDATE_QUEUE {case}"),
            ioctl(fd, uapi::IOC_UPDATE_QUEUE, &mut args),
        );
    };
    update("the same", &|_| ());
    update("of no queue", &|args| args.queue_id = 77);
    update("percentage 101", &|args| args.queue_percentage = 101);
    update("priority 16", &|args| args.queue_priority = 16);
    update("ring of 100", &|args| args.ring_size = 100);
    update("ring at the kernel's", &|args| {
        args.ring_base_address = 0xffff_8000_0000_0000
    });
    update("percentage 0", &|args| args.queue_percentage = 0);
    update("percentage 100", &|args| args.queue_percentage = 100);
    for (case, memory) in [
        ("ring", &bench.ring),
        ("context area", &bench.context),
        ("index page", &bench.indices),
    ] {
        let gpu_id = bench.gpu_id();
        let mut args = uapi::kfd_ioctl_unmap_memory_from_gpu_args {
            handle: memory.handle(),
            device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
            n_devices: 1,
            n_success: 0,
        };
        show(
            &format!("UNMAP of a live queue's {case}"),
            ioctl(fd, uapi::IOC_UNMAP_MEMORY_FROM_GPU, &mut args),
        );
    }
    let mut mode = uapi::kfd_ioctl_set_xnack_mode_args { xnack_enabled: 1 };
    show(
        "SET_XNACK_MODE 1 with a queue",
        ioctl(fd, uapi::IOC_SET_XNACK_MODE, &mut mode),
    );
    for (case, queue_id, count, mask) in [
        ("of no queue", 77, 32, true),
        ("of 0 bits", queue.queue_id, 0, true),
        ("of 33 bits", queue.queue_id, 33, true),
        ("at NULL", queue.queue_id, 32, false),
    ] {
        let bits = u32::MAX;
        let cu_mask_ptr = if mask {
            std::ptr::from_ref(&bits) as u64
        } else {
            0
        };
        let mut args = uapi::kfd_ioctl_set_cu_mask_args {
            queue_id,
            num_cu_mask: count,
            cu_mask_ptr,
        };
        show(
            &format!("SET_CU_MASK {case}"),
            ioctl(fd, uapi::IOC_SET_CU_MASK, &mut args),
        );
    }
    destroy_queue(fd, queue.queue_id);
    let mut again = uapi::kfd_ioctl_destroy_queue_args {
        queue_id: queue.queue_id,
        ..Default::default()
    };
    show(
        "DESTROY_QUEUE twice",
        ioctl(fd, uapi::IOC_DESTROY_QUEUE, &mut again),
    );
}

/// What can be asked of a queue only while it does not run.
pub(super) fn stopped_queue(bench: &Bench) {
    let fd = bench.kfd();
    let mut sdma = bench.queue();
    sdma.queue_type = uapi::KFD_IOC_QUEUE_TYPE_SDMA;
    let mut compute = bench.queue();
    for queue in [&mut compute, &mut sdma] {
        show(
            "CREATE_QUEUE to ask",
            ioctl(fd, uapi::IOC_CREATE_QUEUE, queue),
        );
    }
    let area = vec![0u32; compute.ctx_save_restore_size as usize * 16 / size_of::<u32>()];
    let place = area.as_ptr() as u64;
    let state = |case: &str, queue_id, ctl_stack_address| {
        let mut args = uapi::kfd_ioctl_get_queue_wave_state_args {
            ctl_stack_address,
            queue_id,
            ..Default::default()
        };
        let outcome = ioctl(fd, uapi::IOC_GET_QUEUE_WAVE_STATE, &mut args);
        let (stack, waves) = (args.ctl_stack_used_size, args.save_area_used_size);
        show(
            &format!("GET_QUEUE_WAVE_STATE {case}, {stack} and {waves} bytes"),
            outcome,
        );
    };
    state("of no queue", 77, place);
    state("of a queue that may run", compute.queue_id, place);
    state("of a copy queue", sdma.queue_id, place);
    let mut stop = uapi::kfd_ioctl_update_queue_args {
        ring_base_address: compute.ring_base_address,
        queue_id: compute.queue_id,
        ring_size: compute.ring_size,
        queue_percentage: 0,
        queue_priority: 7,
    };
    show(
        "UPDATE_QUEUE to stop it",
        ioctl(fd, uapi::IOC_UPDATE_QUEUE, &mut stop),
    );
    state("of a stopped queue", compute.queue_id, place);
    state("of a stopped queue to NULL", compute.queue_id, 0);
    state(
        "of a stopped queue to the kernel's",
        compute.queue_id,
        0xffff_8000_0000_0000,
    );
    let words = compute.ctx_save_restore_size as usize / size_of::<u32>();
    let xccs = bench.device.node().xccs() as usize;
    for (xcc, area) in area.chunks(words).take(xccs).enumerate() {
        println!(
            "GET_QUEUE_WAVE_STATE header of XCC {xcc}: {:x?}",
            &area[..4]
        );
    }
    for (case, queue_id, num_gws) in [
        ("64 to no queue", 77, 64),
        ("0 to a queue without", compute.queue_id, 0),
        ("64 to a queue", compute.queue_id, 64),
        ("64 twice", compute.queue_id, 64),
        ("64 to a copy queue", sdma.queue_id, 64),
    ] {
        let mut args = uapi::kfd_ioctl_alloc_queue_gws_args {
            queue_id,
            num_gws,
            ..Default::default()
        };
        show(
            &format!("ALLOC_QUEUE_GWS {case}"),
            ioctl(fd, uapi::IOC_ALLOC_QUEUE_GWS, &mut args),
        );
    }
    destroy_queue(fd, compute.queue_id);
    destroy_queue(fd, sdma.queue_id);
}
