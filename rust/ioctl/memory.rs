// SPDX-License-Identifier: GPL-2.0-only

//! The ioctls about memory: 0x16 to 0x19, 0x1c, 0x1d, 0x20, 0x23 and 0x24.

use super::Call;
use crate::{
    gpu,
    linux::errno,
    memory::{
        request::{
            BufferRequest,
            Source, //
        },
        Handle, //
    },
    mmap::MmapTarget,
    process::{
        doorbells,
        memory,
        Process,
        ProcessDevice, //
    },
    topology,
    uapi::*, //
};
use kernel::{
    alloc::flags::__GFP_NOWARN,
    page::PAGE_SIZE,
    pr_info_once,
    prelude::*, //
};

/// ALLOC_MEMORY_OF_GPU.
pub(super) fn alloc_memory_of_gpu(
    call: &Call<'_>,
    args: &mut kfd_ioctl_alloc_memory_of_gpu_args,
) -> Result {
    let request = BufferRequest {
        address: args.va_addr,
        size: args.size,
        flags: args.flags,
    };
    if request.size == 0 {
        return Err(EINVAL);
    }
    if request.is_user_memory() && !call.process.is_primary() {
        return Err(errno::unsupported());
    }
    let device = call.process.device(args.gpu_id)?;
    if request.is_public_vram() && !topology::is_memory_public(device.node()) {
        return Err(EINVAL);
    }
    device.vm()?;
    let offset = source_offset(device, &request, args.mmap_offset)?;
    let (handle, offset) = memory::alloc(device, request, offset)?;
    args.handle = handle.raw();
    args.mmap_offset = match request.shows_registers() {
        true => MmapTarget::Mmio(device.gpu_id()).to_offset(),
        false => offset,
    };
    Ok(())
}

/// What a new buffer shows: an address of the user's (`given`), or one on the GPU's bus.
fn source_offset(device: &ProcessDevice, request: &BufferRequest, given: u64) -> Result<u64> {
    match request.source() {
        Source::Memory => Ok(given),
        Source::Doorbells if request.size != doorbells::bytes(device) as u64 => Err(EINVAL),
        Source::Doorbells => doorbells::physical_address(device),
        Source::Registers if request.size != PAGE_SIZE as u64 => Err(EINVAL),
        Source::Registers => match device.node().facts().mmio_remap_address {
            0 => Err(ENOMEM),
            address => Ok(address),
        },
    }
}

/// FREE_MEMORY_OF_GPU.
pub(super) fn free_memory_of_gpu(
    call: &Call<'_>,
    args: &mut kfd_ioctl_free_memory_of_gpu_args,
) -> Result {
    memory::free(call.process, Handle::from_raw(args.handle))
}

/// Does something with a buffer on GPUs, and counts those on which it is done.
type OnGpus = fn(&Process, Handle, &[u32], &mut u32) -> Result;

/// Calls `action` with the GPUs that a user lists: `count` at `list`. `EINVAL`: none, or more are
/// done than there are.
fn on_gpus(
    process: &Process,
    handle: u64,
    (list, count): (u64, u32),
    done: &mut u32,
    action: OnGpus,
) -> Result {
    /// So many need no memory of their own.
    const FEW: usize = 8;
    if count == 0 || *done > count {
        return Err(EINVAL);
    }
    let handle = Handle::from_raw(handle);
    // CAST: 64-bit.
    let count = count as usize;
    let read = |gpus: &mut [u32]| {
        let mut reader = user_slice(list, size_of_val(gpus)).reader();
        reader.read_slice(gpus.as_mut_bytes())
    };
    let mut few = [0; FEW];
    if let Some(gpus) = few.get_mut(..count) {
        read(gpus)?;
        return action(process, handle, gpus, done);
    }
    // The user chooses how many: too many are no reason to warn.
    let mut many = KVec::from_elem(0, count, GFP_KERNEL | __GFP_NOWARN)?;
    read(&mut many)?;
    action(process, handle, &many, done)
}

/// MAP_MEMORY_TO_GPU.
pub(super) fn map_memory_to_gpu(
    call: &Call<'_>,
    args: &mut kfd_ioctl_map_memory_to_gpu_args,
) -> Result {
    let gpus = (args.device_ids_array_ptr, args.n_devices);
    let done = &mut args.n_success;
    on_gpus(call.process, args.handle, gpus, done, memory::map)
}

/// UNMAP_MEMORY_FROM_GPU.
pub(super) fn unmap_memory_from_gpu(
    call: &Call<'_>,
    args: &mut kfd_ioctl_unmap_memory_from_gpu_args,
) -> Result {
    let gpus = (args.device_ids_array_ptr, args.n_devices);
    let done = &mut args.n_success;
    on_gpus(call.process, args.handle, gpus, done, memory::unmap)
}

/// AVAILABLE_MEMORY: how much VRAM a process can hope for.
pub(super) fn get_available_memory(
    call: &Call<'_>,
    args: &mut kfd_ioctl_get_available_memory_args,
) -> Result {
    let node = call.process.device(args.gpu_id)?.node();
    args.available = node.kgd().available_memory(node.index());
    Ok(())
}

/// GET_DMABUF_INFO: of a graphics buffer, by any GPU that the caller may use.
pub(super) fn get_dmabuf_info(
    _call: &Call<'_>,
    args: &mut kfd_ioctl_get_dmabuf_info_args,
) -> Result {
    let nodes = gpu::nodes()?;
    let node = nodes
        .iter()
        .find(|node| topology::may_use(node))
        .ok_or(EINVAL)?;
    // CAST: a file descriptor; the ABI has it unsigned.
    let info = node.kgd().dmabuf_info(args.dmabuf_fd as i32)?;
    let room = args.metadata_size;
    args.size = info.size;
    args.metadata_size = info.metadata_size;
    if info.metadata_size > room {
        return Err(EINVAL);
    }
    args.flags = info.flags;
    let owner = info.device().ok_or(EINVAL)?;
    // CAST: not negative.
    let partition = info.partition.max(0) as u32;
    args.gpu_id = gpu::id_of(owner, partition).ok_or(EINVAL)?.raw();
    if args.metadata_ptr == 0 {
        return Ok(());
    }
    let metadata = info
        .metadata
        .get(..info.metadata_size as usize)
        .ok_or(EINVAL)?;
    user_slice(args.metadata_ptr, metadata.len())
        .writer()
        .write_slice(metadata)
}

/// IMPORT_DMABUF.
pub(super) fn import_dmabuf(call: &Call<'_>, args: &mut kfd_ioctl_import_dmabuf_args) -> Result {
    let device = call.process.device(args.gpu_id)?;
    // CAST: a file descriptor; the ABI has it unsigned.
    args.handle = memory::import(device, args.dmabuf_fd as i32, args.va_addr)?.raw();
    Ok(())
}

/// EXPORT_DMABUF.
pub(super) fn export_dmabuf(call: &Call<'_>, args: &mut kfd_ioctl_export_dmabuf_args) -> Result {
    let handle = Handle::from_raw(args.handle);
    // CAST: a file descriptor, which is not negative.
    args.dmabuf_fd = memory::export(call.process, handle, args.flags)? as u32;
    Ok(())
}

/// SVM. Not there: the answer is that of a C driver configured without it, once the arguments make
/// sense.
pub(super) fn svm(call: &Call<'_>, args: &mut kfd_ioctl_svm_args) -> Result {
    let attributes = args.nattr as usize * size_of::<kfd_ioctl_svm_attribute>();
    if call.user_bytes < size_of::<kfd_ioctl_svm_args>() + attributes {
        return Err(EINVAL);
    }
    if !call.process.is_primary() {
        return Err(errno::unsupported());
    }
    let unaligned = (args.start_addr | args.size) % PAGE_SIZE as u64 != 0;
    if unaligned || args.start_addr == 0 || args.size == 0 {
        return Err(EINVAL);
    }
    pr_info_once!("shared virtual memory (SVM) is not supported\n");
    Err(EPERM)
}
