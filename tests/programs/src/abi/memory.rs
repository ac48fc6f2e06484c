// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Generated calls about memory.

use super::world::{Arg, Buffer, World, MEMORY};
use kfd_uapi as uapi;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What a buffer can be, and what it cannot.
fn flags(world: &mut World) -> Arg {
    let kind = [
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM | uapi::KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM | uapi::KFD_IOC_ALLOC_MEM_FLAGS_CONTIGUOUS,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT | uapi::KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM,
        0,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT | uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL | uapi::KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP,
    ];
    let extra = [
        0,
        0,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE | uapi::KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_COHERENT,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_EXT_COHERENT,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE,
    ];
    let (kind, extra) = (
        kind[world.below(kind.len())],
        extra[world.below(extra.len())],
    );
    Arg::number((kind | extra).into())
}

pub fn alloc(world: &mut World) {
    let (gpu, place, flags) = (world.gpu(), world.place(), flags(world));
    let size = world.pick(&[4096, 4096, 8192, 65536, 65536, 262_144, 0, 1, 100, 1 << 45]);
    let offset = Arg::new(world.memory, "memory");
    let offset = world.mostly(80, offset, &[0, 8, 0xffff_8000_0000_0000]);
    let mut args = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
        va_addr: place.value,
        size: size.value,
        handle: 0,
        mmap_offset: offset.value,
        gpu_id: gpu.u32(),
        flags: flags.u32(),
    };
    let outcome = world.call(uapi::IOC_ALLOC_MEMORY_OF_GPU, &mut args);
    let mut written = String::new();
    if outcome.is_ok() {
        let name = world.name("h");
        let kind = args.mmap_offset >> 62;
        written = format!("{name} {} mmap type {kind}", world.relative(args.handle));
        let device =
            uapi::KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL | uapi::KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP;
        world.buffers.push(Buffer {
            handle: args.handle,
            shows_device: args.flags & device != 0,
            name,
        });
    }
    let shown = [&gpu, &place, &size, &offset, &flags];
    world.say("ALLOC_MEMORY_OF_GPU", &shown, outcome, &written);
}

pub fn free(world: &mut World) {
    let handle = world.handle();
    // What the bench needs stays.
    if handle.value == world.bench.indices.handle() {
        return;
    }
    let mut args = uapi::kfd_ioctl_free_memory_of_gpu_args {
        handle: handle.value,
    };
    let outcome = world.call(uapi::IOC_FREE_MEMORY_OF_GPU, &mut args);
    if outcome.is_ok() {
        world.buffers.retain(|it| it.handle != handle.value);
    }
    world.say("FREE_MEMORY_OF_GPU", &[&handle], outcome, "");
}

/// GPUs to map to, and how they read.
fn gpus(world: &mut World) -> (Vec<u32>, Arg) {
    let count = world.below(4);
    let gpus: Vec<Arg> = (0..count).map(|_| world.gpu()).collect();
    let label: Vec<String> = gpus.iter().map(ToString::to_string).collect();
    let ids: Vec<u32> = gpus.iter().map(Arg::u32).collect();
    let pointer = Arg::new(ids.as_ptr() as u64, format!("[{}]", label.join(" ")));
    (ids, pointer)
}

pub fn map(world: &mut World) {
    let handle = world.handle();
    let (ids, pointer) = gpus(world);
    let pointer = world.mostly(95, pointer, &[0, 0xffff_8000_0000_0000]);
    let done = world.mostly(90, Arg::number(0), &[1, 2, 5]);
    let mut args = uapi::kfd_ioctl_map_memory_to_gpu_args {
        handle: handle.value,
        device_ids_array_ptr: pointer.value,
        n_devices: ids.len() as u32,
        n_success: done.u32(),
    };
    let outcome = world.call(uapi::IOC_MAP_MEMORY_TO_GPU, &mut args);
    let written = format!("{} done", args.n_success);
    world.say(
        "MAP_MEMORY_TO_GPU",
        &[&handle, &pointer, &done],
        outcome,
        &written,
    );
}

pub fn unmap(world: &mut World) {
    let handle = world.handle();
    // What the bench needs stays mapped, and where no VM is the C driver crashes.
    if handle.value == world.bench.indices.handle() {
        return;
    }
    let (ids, pointer) = gpus(world);
    let done = world.mostly(90, Arg::number(0), &[1, 2, 5]);
    let mut args = uapi::kfd_ioctl_unmap_memory_from_gpu_args {
        handle: handle.value,
        device_ids_array_ptr: pointer.value,
        n_devices: ids.len() as u32,
        n_success: done.u32(),
    };
    let outcome = world.call(uapi::IOC_UNMAP_MEMORY_FROM_GPU, &mut args);
    let written = format!("{} done", args.n_success);
    world.say(
        "UNMAP_MEMORY_FROM_GPU",
        &[&handle, &pointer, &done],
        outcome,
        &written,
    );
}

pub fn export(world: &mut World) {
    let handle = world.handle();
    let flags = world.pick(&[0, 0o2_000_000, 2, 0xffff_ffff]);
    // Two handles of a device's pages make amdgpu free what it has freed (tbo.sg).
    let mut buffers = world.buffers.iter();
    if buffers.any(|it| it.handle == handle.value && it.shows_device) {
        return;
    }
    let mut args = uapi::kfd_ioctl_export_dmabuf_args {
        handle: handle.value,
        flags: flags.u32(),
        dmabuf_fd: 0,
    };
    let outcome = world.call(uapi::IOC_EXPORT_DMABUF, &mut args);
    if outcome.is_ok() {
        // SAFETY: the kernel has just made it for this process.
        let fd = unsafe { OwnedFd::from_raw_fd(args.dmabuf_fd as i32) };
        world.dmabufs.push(fd);
    }
    world.say("EXPORT_DMABUF", &[&handle, &flags], outcome, "");
}

/// A file, mostly a dma-buf of this run's.
fn dmabuf(world: &mut World) -> Arg {
    let other = Arg::new(world.fd().as_raw_fd() as u64, "/dev/kfd");
    if world.dmabufs.is_empty() || !world.chance(80) {
        return world.mostly(50, other, &[0x7777, 0xffff_ffff]);
    }
    let index = world.below(world.dmabufs.len());
    Arg::new(world.dmabufs[index].as_raw_fd() as u64, format!("d{index}"))
}

pub fn import(world: &mut World) {
    let (gpu, place, file) = (world.gpu(), world.place(), dmabuf(world));
    let mut args = uapi::kfd_ioctl_import_dmabuf_args {
        va_addr: place.value,
        handle: 0,
        gpu_id: gpu.u32(),
        dmabuf_fd: file.u32(),
    };
    let outcome = world.call(uapi::IOC_IMPORT_DMABUF, &mut args);
    let mut written = String::new();
    if outcome.is_ok() {
        let name = world.name("h");
        written = format!("{name} {}", world.relative(args.handle));
        world.buffers.push(Buffer {
            handle: args.handle,
            shows_device: false,
            name,
        });
    }
    world.say("IMPORT_DMABUF", &[&gpu, &place, &file], outcome, &written);
}

pub fn dmabuf_info(world: &mut World) {
    let file = dmabuf(world);
    let room = world.pick(&[0, 0, 64, 256]);
    let metadata = [0u8; 256];
    let pointer = Arg::new(metadata.as_ptr() as u64, "metadata");
    let pointer = world.mostly(70, pointer, &[0, 0xffff_8000_0000_0000]);
    let mut args = uapi::kfd_ioctl_get_dmabuf_info_args {
        metadata_ptr: pointer.value,
        metadata_size: room.u32(),
        dmabuf_fd: file.u32(),
        ..Default::default()
    };
    let outcome = world.call(uapi::IOC_GET_DMABUF_INFO, &mut args);
    let written = format!(
        "size {} metadata {} flags {:#x} GPU {}",
        args.size,
        args.metadata_size,
        args.flags,
        args.gpu_id == world.bench.gpu_id()
    );
    world.say(
        "GET_DMABUF_INFO",
        &[&file, &room, &pointer],
        outcome,
        &written,
    );
}

pub fn available(world: &mut World) {
    let gpu = world.gpu();
    let mut args = uapi::kfd_ioctl_get_available_memory_args {
        gpu_id: gpu.u32(),
        ..Default::default()
    };
    let outcome = world.call(uapi::IOC_AVAILABLE_MEMORY, &mut args);
    // How much depends on what amdgpu itself has; that there is more than a buffer's worth does
    // not.
    let written = format!("plenty {}", args.available > MEMORY as u64);
    world.say("AVAILABLE_MEMORY", &[&gpu], outcome, &written);
}
