// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The cases of memory.

use super::{relative, show};
use crate::bench::Bench;
use crate::raw::ioctl;
use kfd::Memory;
use kfd_uapi as uapi;

impl Bench {
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
            for (what, op) in [
                ("PROCESS_INFO", uapi::KFD_CRIU_OP_PROCESS_INFO),
                ("UNPAUSE", uapi::KFD_CRIU_OP_UNPAUSE),
            ] {
                let mut args = uapi::kfd_ioctl_criu_args {
                    op,
                    ..Default::default()
                };
                let counted = ioctl(self.kfd(), uapi::IOC_CRIU_OP, &mut args);
                show(&format!("{what} {case}"), counted);
            }
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

pub(super) fn memory(bench: &Bench) {
    use uapi::{
        KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL as DOORBELL, KFD_IOC_ALLOC_MEM_FLAGS_GTT as GTT,
        KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP as MMIO, KFD_IOC_ALLOC_MEM_FLAGS_USERPTR as USERPTR,
        KFD_IOC_ALLOC_MEM_FLAGS_VRAM as VRAM,
    };
    bench.try_alloc("as it should be", |_| ());
    bench.try_alloc("of no GPU", |args| args.gpu_id = 1);
    for size in [
        0,
        1,
        4095,
        4097,
        1 << 46,
        u64::MAX,
        u64::MAX - 4095,
        u64::MAX - 8191,
    ] {
        bench.try_alloc(&format!("of {size:#x} bytes"), |args| args.size = size);
    }
    for (case, flags) in [
        ("flags of none", 0),
        ("user memory at none", USERPTR),
        ("VRAM", VRAM),
        ("VRAM or GTT", VRAM | GTT),
    ] {
        bench.try_alloc(&format!("of too many bytes, {case}"), |args| {
            args.size = 1 << 63;
            args.flags = flags;
        });
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
        VRAM | USERPTR,
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

pub(super) fn mapping_to_gpu(bench: &Bench) {
    let fd = bench.kfd();
    let ids = [bench.gpu_id(), 1, bench.gpu_id()];
    let same = [bench.gpu_id(); 9];
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
    // What is done is not looked at.
    try_map(
        "to an unknown device that is done and a known one",
        &|args| {
            args.device_ids_array_ptr += 4;
            args.n_devices = 2;
            args.n_success = 1;
        },
    );
    try_map("to the same device nine times", &|args| {
        args.device_ids_array_ptr = same.as_ptr() as u64;
        args.n_devices = 9;
    });
    try_map(
        "to nine devices, of which the list ends too soon",
        &|args| {
            args.device_ids_array_ptr = 4096;
            args.n_devices = 9;
        },
    );
    try_map("of which all is done", &|args| args.n_success = 1);
    try_map("of which too much is done", &|args| args.n_success = 2);
    try_map("with ids at NULL", &|args| args.device_ids_array_ptr = 0);
    try_map("with ids at the kernel's", &|args| {
        args.device_ids_array_ptr = 0xffff_8000_0000_0000
    });
}
