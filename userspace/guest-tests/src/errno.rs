// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A table of calls, mostly bad ones, and what each comes to. The C driver's answers are right by
//! definition: the test runs this on both drivers and compares the lines.

use crate::bench::{name, Bench};
use crate::raw::{self, ioctl, ioctl_at, Outcome};
use anyhow::{ensure, Result};
use kfd::{topology, Device, Kfd, Memory};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

/// Prints `case: outcome` for every case.
pub fn table() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    ensure!(!nodes.is_empty(), "no GPU");
    before_acquire(&kfd, nodes[0].gpu_id);
    let device = Device::acquire(&kfd, &nodes[0])?;
    let bench = Bench::new(&device)?;
    dispatch_rules(&bench);
    openers(&bench)?;
    mappings(&bench);
    queues(&bench);
    queue_buffers(&bench);
    live_queue(&bench);
    memory(&bench);
    mapping_to_gpu(&bench);
    events(&bench);
    process(&bench);
    unsupported(&bench);
    Ok(())
}

fn show(case: &str, outcome: Outcome) {
    match outcome {
        Ok(()) => println!("{case}: 0"),
        Err(errno) => println!("{case}: {}", name(errno)),
    }
}

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

    fn try_alloc(
        &self,
        case: &str,
        change: impl FnOnce(&mut uapi::kfd_ioctl_alloc_memory_of_gpu_args),
    ) {
        let room = match Memory::userptr(&self.device, 1 << 16) {
            Ok(room) => room,
            Err(error) => return println!("ALLOC {case}: no addresses: {error}"),
        };
        // Addresses that are valid and taken by nothing of the GPU's.
        let va = room.address() + (1 << 30);
        let mut args = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
            va_addr: va,
            size: 8192,
            gpu_id: self.gpu_id(),
            flags: uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT | uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE,
            ..Default::default()
        };
        change(&mut args);
        let outcome = ioctl(self.kfd(), uapi::IOC_ALLOC_MEMORY_OF_GPU, &mut args);
        show(&format!("ALLOC_MEMORY_OF_GPU {case}"), outcome);
        if outcome.is_ok() {
            let mut free = uapi::kfd_ioctl_free_memory_of_gpu_args {
                handle: args.handle,
            };
            show(
                &format!("FREE_MEMORY_OF_GPU {case}"),
                ioctl(self.kfd(), uapi::IOC_FREE_MEMORY_OF_GPU, &mut free),
            );
        }
    }
}

fn destroy_queue(fd: BorrowedFd<'_>, queue_id: u32) {
    let mut args = uapi::kfd_ioctl_destroy_queue_args {
        queue_id,
        ..Default::default()
    };
    show(
        "DESTROY_QUEUE after it",
        ioctl(fd, uapi::IOC_DESTROY_QUEUE, &mut args),
    );
}

fn before_acquire(kfd: &Kfd, gpu_id: u32) {
    let fd = kfd.as_fd();
    let mut memory = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
        va_addr: 1 << 32,
        size: 4096,
        gpu_id,
        flags: uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT,
        ..Default::default()
    };
    show(
        "ALLOC_MEMORY_OF_GPU before ACQUIRE_VM",
        ioctl(fd, uapi::IOC_ALLOC_MEMORY_OF_GPU, &mut memory),
    );
    let mut queue = uapi::kfd_ioctl_create_queue_args {
        gpu_id,
        ring_size: 4096,
        ..Default::default()
    };
    show(
        "CREATE_QUEUE before ACQUIRE_VM",
        ioctl(fd, uapi::IOC_CREATE_QUEUE, &mut queue),
    );
    for (case, drm_fd, gpu_id) in [
        ("no file", u32::MAX, gpu_id),
        ("a file that is not DRM's", fd.as_raw_fd() as u32, gpu_id),
        ("no GPU", fd.as_raw_fd() as u32, 1),
    ] {
        let mut args = uapi::kfd_ioctl_acquire_vm_args { drm_fd, gpu_id };
        show(
            &format!("ACQUIRE_VM {case}"),
            ioctl(fd, uapi::IOC_ACQUIRE_VM, &mut args),
        );
    }
}

fn dispatch_rules(bench: &Bench) {
    let fd = bench.kfd();
    let version = uapi::IOC_GET_VERSION;
    let mut room = [0u64; 64];
    for nr in [0x00, 0x29, 0x30, 0xff] {
        show(
            &format!("nr {nr:#x}"),
            ioctl(fd, raw::renumbered(version, nr), &mut room),
        );
    }
    show(
        "type L",
        ioctl(fd, version & !0xff00 | u32::from(b'L') << 8, &mut room),
    );
    for size in [0, 1, 4, 7, 8, 9, 16, 128, 1024, 0x3fff] {
        let outcome = ioctl(fd, raw::resized(version, size), &mut room);
        show(&format!("GET_VERSION of {size} bytes"), outcome);
    }
    show(
        "GET_VERSION as a write",
        ioctl(fd, version & !(3 << 30) | 1 << 30, &mut room),
    );
    show(
        "GET_VERSION without direction",
        ioctl(fd, version & !(3 << 30), &mut room),
    );
    let place = room.as_mut_ptr() as u64;
    for (case, address) in [
        ("NULL", 0),
        ("1", 1),
        ("an address of the kernel's", 0xffff_8000_0000_0000),
        ("a non-canonical address", 0x8000_0000_0000_0000),
        ("a misaligned address", place + 1),
        ("an address with nothing there", 0x1000),
    ] {
        // SAFETY: the only valid address among them is `room`'s, which is larger than the argument.
        show(&format!("GET_VERSION at {case}"), unsafe {
            ioctl_at(fd, version, address)
        });
        // SAFETY: as above.
        show(&format!("CREATE_EVENT at {case}"), unsafe {
            ioctl_at(fd, uapi::IOC_CREATE_EVENT, address)
        });
    }
    short_and_long(bench);
}

/// Structs of another age of the interface: shorter ones are filled with zeros, longer ones cut.
fn short_and_long(bench: &Bench) {
    let fd = bench.kfd();
    for size in [0, 8, 40, 80, 88, 95, 96, 97, 128] {
        let mut args = bench.queue();
        let outcome = ioctl(fd, raw::resized(uapi::IOC_CREATE_QUEUE, size), &mut args);
        show(&format!("CREATE_QUEUE of {size} bytes"), outcome);
        if outcome.is_ok() {
            destroy_queue(fd, args.queue_id);
        }
    }
    for size in [4, 8, 12] {
        let mut args = [u32::MAX; 4];
        show(
            &format!("SET_EVENT of {size} bytes"),
            ioctl(fd, raw::resized(uapi::IOC_SET_EVENT, size), &mut args),
        );
    }
    for size in [8, 24, 32] {
        let mut args = uapi::kfd_ioctl_wait_events_args {
            timeout: 0,
            ..Default::default()
        };
        show(
            &format!("WAIT_EVENTS of {size} bytes"),
            ioctl(fd, raw::resized(uapi::IOC_WAIT_EVENTS, size), &mut args),
        );
    }
}

fn openers(bench: &Bench) -> Result<()> {
    use rustix::fs::{open, Mode, OFlags};
    for (case, flags) in [
        ("read only", OFlags::RDONLY),
        ("write only", OFlags::WRONLY),
    ] {
        let outcome = open("/dev/kfd", flags, Mode::empty());
        show(
            &format!("open {case}"),
            outcome.as_ref().map(drop).map_err(|errno| *errno),
        );
        if let Ok(fd) = outcome {
            show(
                &format!("GET_VERSION on a file {case}"),
                ioctl(&fd, uapi::IOC_GET_VERSION, &mut [0u64; 2]),
            );
        }
    }
    show(
        "open by a 32-bit program",
        raw::open_compat("/dev/kfd").map(drop),
    );
    // Another process that holds the same file: it is not the opener.
    let inherited = rustix::io::dup(bench.kfd())?;
    let status = std::process::Command::new(std::env::current_exe()?)
        .args([
            "not-opener",
            &inherited.as_raw_fd().to_string(),
            &bench.gpu_id().to_string(),
        ])
        .status()?;
    ensure!(status.success(), "the other process failed: {status}");
    Ok(())
}

/// What a process sees on a file that its parent opened and passed on.
pub fn not_opener(fd: i32, gpu_id: u32) {
    // SAFETY: the parent left it open for this process; if not, the calls say EBADF.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    show(
        "GET_VERSION by a child",
        ioctl(fd, uapi::IOC_GET_VERSION, &mut [0u64; 2]),
    );
    show(
        "unknown ioctl by a child",
        ioctl(
            fd,
            raw::renumbered(uapi::IOC_GET_VERSION, 0x77),
            &mut [0u64; 2],
        ),
    );
    show(
        "mmap of doorbells by a child",
        map(fd, doorbells(gpu_id), 8192),
    );
}

/// `KFD_MMAP_TYPE_*` in bits 63:62, the GPU in bits 61:46 of the offset.
fn cookie(kind: u64, gpu_id: u32) -> u64 {
    kind << 62 | u64::from(gpu_id) << 46
}

fn doorbells(gpu_id: u32) -> u64 {
    cookie(3, gpu_id)
}

fn map(fd: BorrowedFd<'_>, offset: u64, size: usize) -> Outcome {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel picks, given back at once.
    unsafe {
        mmap(
            std::ptr::null_mut(),
            size,
            access,
            MapFlags::SHARED,
            fd,
            offset,
        )
        .and_then(|at| munmap(at, size))
    }
}

fn mappings(bench: &Bench) {
    let (fd, gpu) = (bench.kfd(), bench.gpu_id());
    for (case, offset, size) in [
        ("doorbells", doorbells(gpu), 8192),
        ("doorbells of no GPU", doorbells(1), 8192),
        ("one page of doorbells", doorbells(gpu), 4096),
        ("three pages of doorbells", doorbells(gpu), 12288),
        ("doorbells at a page", doorbells(gpu) | 4096, 8192),
        ("MMIO", cookie(0, gpu), 4096),
        ("two pages of MMIO", cookie(0, gpu), 8192),
        ("MMIO of no GPU", cookie(0, 1), 4096),
        ("offset 0", 0, 4096),
        ("type 1", cookie(1, gpu), 4096),
        ("events", cookie(2, 0), 32768),
        ("events, too large", cookie(2, 0), 65536),
    ] {
        show(&format!("mmap of {case}"), map(fd, offset, size));
    }
}

fn queues(bench: &Bench) {
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

fn queue_buffers(bench: &Bench) {
    const KERNEL: u64 = 0xffff_8000_0000_0000;
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

fn live_queue(bench: &Bench) {
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

fn memory(bench: &Bench) {
    use uapi::{
        KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL as DOORBELL, KFD_IOC_ALLOC_MEM_FLAGS_GTT as GTT,
        KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP as MMIO, KFD_IOC_ALLOC_MEM_FLAGS_USERPTR as USERPTR,
        KFD_IOC_ALLOC_MEM_FLAGS_VRAM as VRAM,
    };
    bench.try_alloc("as it should be", |_| ());
    bench.try_alloc("of no GPU", |args| args.gpu_id = 1);
    for size in [0, 1, 4095, 4097, 1 << 46, u64::MAX, u64::MAX - 4095] {
        bench.try_alloc(&format!("of {size:#x} bytes"), |args| args.size = size);
    }
    for (case, va) in [
        ("0", 0),
        ("misaligned", 0x7f00_0000_0010),
        ("the kernel's", 0xffff_8000_0000_0000),
        ("beyond 47 bits", 1 << 48),
    ] {
        bench.try_alloc(&format!("at {case}"), |args| args.va_addr = va);
    }
    for flags in [
        0,
        VRAM,
        GTT,
        VRAM | GTT,
        GTT | USERPTR,
        1 << 5,
        1 << 22,
        DOORBELL,
        MMIO,
        DOORBELL | MMIO,
        u32::MAX,
    ] {
        bench.try_alloc(&format!("flags {flags:#x}"), |args| args.flags = flags);
    }
    for (flags, size) in [
        (DOORBELL, 4096),
        (DOORBELL, 8192),
        (DOORBELL, 12288),
        (MMIO, 4096),
        (MMIO, 8192),
    ] {
        bench.try_alloc(&format!("flags {flags:#x} of {size}"), |args| {
            args.flags = flags;
            args.size = size;
        });
    }
    for offset in [0, 1, 0x1000, 0xffff_8000_0000_0000] {
        bench.try_alloc(&format!("user memory at {offset:#x}"), |args| {
            args.flags = USERPTR;
            args.mmap_offset = offset;
        });
    }
    for handle in [0, 1, u64::from(bench.gpu_id()) << 32 | 0xffff, u64::MAX] {
        let mut args = uapi::kfd_ioctl_free_memory_of_gpu_args { handle };
        show(
            &format!("FREE_MEMORY_OF_GPU {}", relative(handle, bench)),
            ioctl(bench.kfd(), uapi::IOC_FREE_MEMORY_OF_GPU, &mut args),
        );
    }
}

/// Handles hold the GPU's id: print them without, so that lines compare.
fn relative(handle: u64, bench: &Bench) -> String {
    let gpu = if handle >> 32 == u64::from(bench.gpu_id()) {
        "GPU"
    } else {
        "other"
    };
    format!("{gpu}:{:#x}", handle as u32)
}

fn mapping_to_gpu(bench: &Bench) {
    let fd = bench.kfd();
    let ids = [bench.gpu_id(), 1, bench.gpu_id()];
    let good = uapi::kfd_ioctl_map_memory_to_gpu_args {
        handle: bench.ring.handle(),
        device_ids_array_ptr: ids.as_ptr() as u64,
        n_devices: 1,
        n_success: 0,
    };
    let try_map = |case: &str, change: &dyn Fn(&mut uapi::kfd_ioctl_map_memory_to_gpu_args)| {
        for (call, request) in [
            ("MAP", uapi::IOC_MAP_MEMORY_TO_GPU),
            ("UNMAP", uapi::IOC_UNMAP_MEMORY_FROM_GPU),
        ] {
            let mut args = good;
            change(&mut args);
            let outcome = ioctl(fd, request, &mut args);
            show(&format!("{call} {case}, {} done", args.n_success), outcome);
        }
        let mut args = good;
        show(
            "MAP again",
            ioctl(fd, uapi::IOC_MAP_MEMORY_TO_GPU, &mut args),
        );
    };
    try_map("as it should be", &|_| ());
    try_map("of no buffer", &|args| args.handle = 0);
    try_map("of no buffer of the GPU's", &|args| args.handle |= 0xffff);
    try_map("to no device", &|args| args.n_devices = 0);
    try_map("to too many devices", &|args| args.n_devices = u32::MAX);
    try_map("to an unknown device", &|args| {
        args.device_ids_array_ptr += 4
    });
    try_map("to a known and an unknown device", &|args| {
        args.n_devices = 2
    });
    try_map("of which all is done", &|args| args.n_success = 1);
    try_map("of which too much is done", &|args| args.n_success = 2);
    try_map("with ids at NULL", &|args| args.device_ids_array_ptr = 0);
    try_map("with ids at the kernel's", &|args| {
        args.device_ids_array_ptr = 0xffff_8000_0000_0000
    });
}

fn events(bench: &Bench) {
    let fd = bench.kfd();
    for event_type in 0..12 {
        let mut args = uapi::kfd_ioctl_create_event_args {
            event_type,
            ..Default::default()
        };
        let outcome = ioctl(fd, uapi::IOC_CREATE_EVENT, &mut args);
        show(&format!("CREATE_EVENT type {event_type}"), outcome);
        if outcome.is_ok() {
            let mut args = uapi::kfd_ioctl_destroy_event_args {
                event_id: args.event_id,
                ..Default::default()
            };
            show(
                "DESTROY_EVENT",
                ioctl(fd, uapi::IOC_DESTROY_EVENT, &mut args),
            );
        }
    }
    for offset in [1, 4096, bench.ring.handle()] {
        let mut args = uapi::kfd_ioctl_create_event_args {
            event_page_offset: offset,
            ..Default::default()
        };
        show(
            &format!("CREATE_EVENT page {}", relative(offset, bench)),
            ioctl(fd, uapi::IOC_CREATE_EVENT, &mut args),
        );
    }
    for event_id in [0x7777, 0x8000_0000, u32::MAX] {
        for (call, request) in [
            ("SET_EVENT", uapi::IOC_SET_EVENT),
            ("RESET_EVENT", uapi::IOC_RESET_EVENT),
            ("DESTROY_EVENT", uapi::IOC_DESTROY_EVENT),
        ] {
            let mut args = uapi::kfd_ioctl_set_event_args {
                event_id,
                ..Default::default()
            };
            show(
                &format!("{call} {event_id:#x}"),
                ioctl(fd, request, &mut args),
            );
        }
    }
    let mut data = [uapi::kfd_event_data {
        event_id: 0x7777,
        ..Default::default()
    }];
    for (case, count, address) in [
        ("of an unknown event", 1, data.as_mut_ptr() as u64),
        ("of no events", 0, data.as_mut_ptr() as u64),
        ("at NULL", 1, 0),
        ("at the kernel's", 1, 0xffff_8000_0000_0000),
        ("of 2^26 events", 1 << 26, data.as_mut_ptr() as u64),
        ("of too many events", u32::MAX, data.as_mut_ptr() as u64),
    ] {
        let mut args = uapi::kfd_ioctl_wait_events_args {
            events_ptr: address,
            num_events: count,
            timeout: 0,
            ..Default::default()
        };
        let outcome = ioctl(fd, uapi::IOC_WAIT_EVENTS, &mut args);
        show(
            &format!("WAIT_EVENTS {case}, result {}", args.wait_result),
            outcome,
        );
    }
}

fn process(bench: &Bench) {
    let (fd, gpu) = (bench.kfd(), bench.gpu_id());
    for gpu_id in [gpu, 0, 1] {
        let which = if gpu_id == gpu {
            "the GPU".into()
        } else {
            format!("GPU {gpu_id}")
        };
        let mut clocks = uapi::kfd_ioctl_get_clock_counters_args {
            gpu_id,
            ..Default::default()
        };
        show(
            &format!("GET_CLOCK_COUNTERS {which}"),
            ioctl(fd, uapi::IOC_GET_CLOCK_COUNTERS, &mut clocks),
        );
        let mut scratch = uapi::kfd_ioctl_set_scratch_backing_va_args {
            gpu_id,
            ..Default::default()
        };
        show(
            &format!("SET_SCRATCH_BACKING_VA {which}"),
            ioctl(fd, uapi::IOC_SET_SCRATCH_BACKING_VA, &mut scratch),
        );
        let mut trap = uapi::kfd_ioctl_set_trap_handler_args {
            gpu_id,
            ..Default::default()
        };
        show(
            &format!("SET_TRAP_HANDLER {which}"),
            ioctl(fd, uapi::IOC_SET_TRAP_HANDLER, &mut trap),
        );
        let mut tile = uapi::kfd_ioctl_get_tile_config_args {
            gpu_id,
            ..Default::default()
        };
        show(
            &format!("GET_TILE_CONFIG {which}"),
            ioctl(fd, uapi::IOC_GET_TILE_CONFIG, &mut tile),
        );
        let mut free = uapi::kfd_ioctl_get_available_memory_args {
            gpu_id,
            ..Default::default()
        };
        show(
            &format!("AVAILABLE_MEMORY {which}"),
            ioctl(fd, uapi::IOC_AVAILABLE_MEMORY, &mut free),
        );
        for policy in [0, 1, 2] {
            let mut args = uapi::kfd_ioctl_set_memory_policy_args {
                gpu_id,
                default_policy: policy,
                alternate_policy: policy,
                ..Default::default()
            };
            show(
                &format!("SET_MEMORY_POLICY {policy} {which}"),
                ioctl(fd, uapi::IOC_SET_MEMORY_POLICY, &mut args),
            );
        }
    }
    apertures(bench);
    for xnack_enabled in [-1, 0, 1, 7] {
        let mut args = uapi::kfd_ioctl_set_xnack_mode_args { xnack_enabled };
        let outcome = ioctl(fd, uapi::IOC_SET_XNACK_MODE, &mut args);
        show(
            &format!(
                "SET_XNACK_MODE {xnack_enabled} tells {}",
                args.xnack_enabled
            ),
            outcome,
        );
    }
    show("ACQUIRE_VM twice with another file", second_vm(bench));
}

fn second_vm(bench: &Bench) -> Outcome {
    let path = format!(
        "/dev/dri/renderD{}",
        bench.device.node().property("drm_render_minor")
    );
    let other = rustix::fs::open(path, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())?;
    let mut args = uapi::kfd_ioctl_acquire_vm_args {
        drm_fd: other.as_raw_fd() as u32,
        gpu_id: bench.gpu_id(),
    };
    ioctl(bench.kfd(), uapi::IOC_ACQUIRE_VM, &mut args)
}

fn apertures(bench: &Bench) {
    let fd = bench.kfd();
    show(
        "GET_PROCESS_APERTURES",
        ioctl(
            fd,
            uapi::IOC_GET_PROCESS_APERTURES,
            &mut uapi::kfd_ioctl_get_process_apertures_args::default(),
        ),
    );
    for (case, count, address) in [
        ("none", 0, 0),
        ("at NULL", 1, 0),
        ("at the kernel's", 1, 0xffff_8000_0000_0000),
        ("too many", u32::MAX, 0),
    ] {
        let mut args = uapi::kfd_ioctl_get_process_apertures_new_args {
            kfd_process_device_apertures_ptr: address,
            num_of_nodes: count,
            ..Default::default()
        };
        let outcome = ioctl(fd, uapi::IOC_GET_PROCESS_APERTURES_NEW, &mut args);
        show(
            &format!(
                "GET_PROCESS_APERTURES_NEW {case}, {} nodes",
                args.num_of_nodes
            ),
            outcome,
        );
    }
}

/// What the slice answers without serving: the numbers whose arguments are all zero.
fn unsupported(bench: &Bench) {
    for (name, request) in [
        ("DBG_REGISTER_DEPRECATED", uapi::IOC_DBG_REGISTER_DEPRECATED),
        (
            "DBG_UNREGISTER_DEPRECATED",
            uapi::IOC_DBG_UNREGISTER_DEPRECATED,
        ),
        (
            "DBG_ADDRESS_WATCH_DEPRECATED",
            uapi::IOC_DBG_ADDRESS_WATCH_DEPRECATED,
        ),
        (
            "DBG_WAVE_CONTROL_DEPRECATED",
            uapi::IOC_DBG_WAVE_CONTROL_DEPRECATED,
        ),
        ("GET_QUEUE_WAVE_STATE", uapi::IOC_GET_QUEUE_WAVE_STATE),
        ("ALLOC_QUEUE_GWS", uapi::IOC_ALLOC_QUEUE_GWS),
        ("GET_DMABUF_INFO", uapi::IOC_GET_DMABUF_INFO),
        ("IMPORT_DMABUF", uapi::IOC_IMPORT_DMABUF),
        ("EXPORT_DMABUF", uapi::IOC_EXPORT_DMABUF),
        ("SMI_EVENTS", uapi::IOC_SMI_EVENTS),
        ("DBG_TRAP", uapi::IOC_DBG_TRAP),
    ] {
        show(
            &format!("{name} of zeros"),
            ioctl(bench.kfd(), request, &mut [0u64; 16]),
        );
    }
}
