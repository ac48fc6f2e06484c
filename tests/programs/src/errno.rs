// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A table of calls, mostly bad ones, and what each comes to. The C driver's answers are right by
//! definition: the test runs this on both drivers and compares the lines.

mod callers;
mod event;
mod memory;
mod queue;
mod sharing;

pub use callers::{after_exec, before_exec, not_opener, without_rights};
pub use event::own_page;

use crate::bench::{name, Bench};
use crate::raw::{self, ioctl, ioctl_at, Outcome};
use anyhow::{ensure, Result};
use kfd::{topology, Device, Kfd};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::process::Command;

/// Prints `case: outcome` for every case.
pub fn table() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    ensure!(!nodes.is_empty(), "no GPU");
    before_acquire(&kfd, nodes[0].gpu_id);
    let device = Device::acquire(&kfd, &nodes[0])?;
    let bench = Bench::new(&device)?;
    dispatch_rules(&bench);
    callers::openers(&bench)?;
    mappings(&bench);
    queue::queues(&bench);
    queue::queue_buffers(&bench);
    queue::queue_on_nothing(&bench);
    queue::live_queue(&bench);
    memory::memory(&bench);
    memory::mapping_to_gpu(&bench);
    sharing::sharing(&bench)?;
    sharing::graphics(&bench)?;
    sharing::profiler(&bench);
    event::events(&bench);
    event::interrupted(&bench)?;
    process(&bench);
    queue::stopped_queue(&bench);
    another_process(&["own-event-page".into()])?;
    unsupported(&bench);
    partly(&bench);
    optional(&bench);
    another_context(&bench)
}

fn show(case: &str, outcome: Outcome) {
    match outcome {
        Ok(()) => println!("{case}: 0"),
        Err(errno) => println!("{case}: {}", name(errno)),
    }
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
            queue::destroy_queue(fd, args.queue_id);
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

/// Runs this program once more.
fn another_process(arguments: &[String]) -> Result<()> {
    succeeds(Command::new(std::env::current_exe()?).args(arguments))
}

fn succeeds(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "the other process failed: {status}");
    Ok(())
}

/// `KFD_MMAP_TYPE_*` in bits 63:62, the GPU in bits 61:46 of the offset.
pub fn cookie(kind: u64, gpu_id: u32) -> u64 {
    kind << 62 | u64::from(gpu_id) << 46
}

fn doorbells(gpu_id: u32) -> u64 {
    cookie(3, gpu_id)
}

/// Maps so much of a file and takes it back.
pub fn map(fd: BorrowedFd<'_>, offset: u64, size: usize) -> Outcome {
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

/// Handles hold the GPU's id: print them without, so that lines compare.
fn relative(handle: u64, bench: &Bench) -> String {
    let gpu = if handle >> 32 == u64::from(bench.gpu_id()) {
        "GPU"
    } else {
        "other"
    };
    format!("{gpu}:{:#x}", handle as u32)
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

/// Calls whose arguments are all zero.
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
        ("SVM", uapi::IOC_SVM),
        ("CRIU_OP", uapi::IOC_CRIU_OP),
        ("PROFILER", uapi::IOC_PROFILER),
        ("RUNTIME_ENABLE", uapi::IOC_RUNTIME_ENABLE),
        ("DBG_TRAP", uapi::IOC_DBG_TRAP),
    ] {
        show(
            &format!("{name} of zeros"),
            ioctl(bench.kfd(), request, &mut [0u64; 16]),
        );
    }
}

/// What is debugged, and memory that GPUs and CPUs share page by page.
fn partly(bench: &Bench) {
    for case in ["", "twice"] {
        let mut args = uapi::kfd_ioctl_dbg_trap_args {
            pid: std::process::id(),
            op: uapi::KFD_IOC_DBG_TRAP_DISABLE,
            ..Default::default()
        };
        show(
            &format!("DBG_TRAP's end of what has not begun {case}"),
            ioctl(bench.kfd(), uapi::IOC_DBG_TRAP, &mut args),
        );
    }
    svm(bench.kfd(), "");
}

/// SVM without attributes.
fn svm(fd: BorrowedFd<'_>, whose: &str) {
    let page = 1 << 40;
    for (case, start_addr, size, nattr) in [
        ("of nothing", page, 0, 0),
        ("of half a page", page, 2048, 0),
        ("in the middle of a page", page + 8, 4096, 0),
        ("with fewer attributes than it says", page, 4096, 7),
        ("of a page", page, 4096, 0),
        ("of a page, once more", page, 4096, 0),
    ] {
        let mut args = uapi::kfd_ioctl_svm_args {
            start_addr,
            size,
            op: uapi::KFD_IOCTL_SVM_OP_GET_ATTR,
            nattr,
            ..Default::default()
        };
        show(
            &format!("SVM {case}{whose}"),
            ioctl(fd, uapi::IOC_SVM, &mut args),
        );
    }
}

/// Calls as they should be, of what this driver may not have yet.
fn optional(bench: &Bench) {
    let mut events = uapi::kfd_ioctl_smi_events_args {
        gpuid: bench.gpu_id(),
        ..Default::default()
    };
    show(
        "SMI_EVENTS of the GPU",
        ioctl(bench.kfd(), uapi::IOC_SMI_EVENTS, &mut events),
    );
    // KFD_IOC_PROFILER_VERSION
    show(
        "PROFILER's version",
        ioctl(bench.kfd(), uapi::IOC_PROFILER, &mut [2u64; 16]),
    );
}

/// A second context of this process, on a file of its own.
fn another_context(bench: &Bench) -> Result<()> {
    let file = rustix::fs::open(
        "/dev/kfd",
        rustix::fs::OFlags::RDWR,
        rustix::fs::Mode::empty(),
    )?;
    for case in ["once", "twice"] {
        show(
            &format!("CREATE_PROCESS {case}"),
            ioctl(&file, uapi::IOC_CREATE_PROCESS, &mut [0u64; 2]),
        );
    }
    svm(file.as_fd(), " of another context");
    let mut version = [0u64; 2];
    show(
        "GET_VERSION on the first file",
        ioctl(bench.kfd(), uapi::IOC_GET_VERSION, &mut version),
    );
    Ok(())
}
