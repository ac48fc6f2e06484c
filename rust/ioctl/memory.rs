// SPDX-License-Identifier: GPL-2.0-only

//! The ioctls about memory: 0x16 to 0x19, 0x1c, 0x1d, 0x20, 0x23 and 0x24.

use super::Call;
use crate::{
    gpu,
    linux::{
        errno,
        trace, //
    },
    memory::{
        request::BufferRequest,
        Handle, //
    },
    mmap::MmapTarget,
    process::{
        memory,
        Process, //
    },
    svm::{
        self,
        Attribute,
        Common,
        Pages, //
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
    check_ranges(call.process, &request, args.mmap_offset)?;
    let device = call.process.device(args.gpu_id)?;
    if request.is_public_vram() && !topology::is_memory_public(device.node()) {
        return Err(EINVAL);
    }
    device.vm()?;
    let offset = memory::source_offset(device, &request, args.mmap_offset)?;
    let (handle, offset) = memory::alloc(device, request, offset)?;
    args.handle = handle.raw();
    args.mmap_offset = match request.shows_registers() {
        true => MmapTarget::Mmio(device.gpu_id()).to_offset(),
        false => offset,
    };
    Ok(())
}

/// Whether a new buffer has an address of its own. `EADDRINUSE`: it is, or shows, memory that has
/// attributes of shared virtual memory. It may get them afterwards, as long as the buffer is not
/// mapped: [`memory::map`] looks again.
fn check_ranges(process: &Process, request: &BufferRequest, shown: u64) -> Result {
    let Some(svm) = process.svm() else {
        return Ok(());
    };
    let in_use = |(address, bytes)| svm.has_ranges(Pages::around_bytes(address, bytes));
    let placed = request.address != 0 || request.vram_bytes() == 0;
    let is_user_memory = request.is_user_memory();
    if placed && in_use(request.place())? || is_user_memory && in_use((shown, request.size))? {
        return Err(errno::address_in_use());
    }
    Ok(())
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

/// GET_DMABUF_INFO: of a graphics buffer, by any GPU that the caller may use. The GPU is let go of
/// before user memory is written, which may wait for a program: its removal does not wait for that.
pub(super) fn get_dmabuf_info(
    _call: &Call<'_>,
    args: &mut kfd_ioctl_get_dmabuf_info_args,
) -> Result {
    // CAST: a file descriptor; the ABI has it unsigned.
    let fd = args.dmabuf_fd as i32;
    let info = gpu::find(topology::may_use)
        .ok_or(EINVAL)?
        .kgd()
        .dmabuf_info(fd)?;
    let room = args.metadata_size;
    args.size = info.size;
    args.metadata_size = info.metadata_size;
    if info.metadata_size > room {
        return Err(EINVAL);
    }
    args.flags = info.flags;
    let owner = info.device().ok_or(EINVAL)?;
    let id = gpu::id_of_memory(owner, info.partition, topology::may_use).ok_or(EINVAL)?;
    args.gpu_id = id.raw();
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

/// An attribute as a user passes it: `struct kfd_ioctl_svm_attribute`, a type and a value.
fn svm_attribute(word: u64) -> (u32, u32) {
    // CAST: the lower half is the type.
    (word as u32, (word >> 32) as u32)
}

/// SVM: gives an area attributes, or tells those that it has.
pub(super) fn svm(call: &Call<'_>, args: &mut kfd_ioctl_svm_args, words: &mut [u64]) -> Result {
    const _: () = assert!(size_of::<kfd_ioctl_svm_attribute>() == size_of::<u64>());
    let count = args.nattr as usize;
    if call.user_bytes < size_of::<kfd_ioctl_svm_args>() + count * size_of::<u64>() {
        return Err(EINVAL);
    }
    let process = call.process;
    if !process.is_primary() {
        return Err(errno::unsupported());
    }
    let unaligned = (args.start_addr | args.size) % PAGE_SIZE as u64 != 0;
    if unaligned || args.start_addr == 0 || args.size == 0 {
        return Err(EINVAL);
    }
    if !svm::is_enabled() {
        pr_info_once!("shared virtual memory (SVM) is not enabled (parameter svm)\n");
        return Err(EPERM);
    }
    let attributes = words.get_mut(..count).ok_or(EINVAL)?;
    // An area that no address space has, as C.
    let pages = Pages::of_bytes(args.start_addr, args.size);
    const SET: u32 = kfd_ioctl_svm_op_KFD_IOCTL_SVM_OP_SET_ATTR;
    const GET: u32 = kfd_ioctl_svm_op_KFD_IOCTL_SVM_OP_GET_ATTR;
    match args.op {
        SET => set_svm(process, pages, attributes),
        GET => get_svm(process, pages, attributes),
        _ => Err(EINVAL),
    }
}

/// The place of the GPU of that id among the process's.
fn place_of(process: &Process, gpu_id: u32) -> Option<usize> {
    let mut devices = process.devices().iter();
    devices.position(|device| device.user_id() == gpu_id)
}

fn set_svm(process: &Process, pages: Option<Pages>, words: &[u64]) -> Result {
    /// As many as most calls have at most: no memory is allocated for them.
    const FEW: usize = 8;
    const NONE: Attribute = Attribute::SetFlags(0);
    let (mut few, mut many) = ([NONE; FEW], KVec::new());
    let change = match few.get_mut(..words.len()) {
        Some(few) => few,
        None => {
            many.resize(words.len(), NONE, GFP_KERNEL)?;
            many.as_mut_slice()
        }
    };
    let svm = process.make_svm()?;
    let gpu = |id| place_of(process, id).filter(|place| svm.is_for(*place));
    for (attribute, word) in change.iter_mut().zip(words) {
        let (kind, value) = svm_attribute(*word);
        *attribute = Attribute::parse(kind, value, gpu).ok_or(EINVAL)?;
    }
    // Before it is looked at the area, as C.
    svm.check_vm()?;
    let pages = pages.ok_or(EOVERFLOW)?;
    let result = svm.set(pages, change);
    let pid = process.lead().pid();
    trace::svm_set_attr(pid, pages.into(), change.len(), &result);
    result
}

fn get_svm(process: &Process, pages: Option<Pages>, words: &mut [u64]) -> Result {
    let svm = process.make_svm()?;
    let pages = pages.ok_or(EOVERFLOW)?;
    // Before any is answered.
    let common = svm.get(pages, || {
        let mut kinds = words.iter().map(|word| svm_attribute(*word).0);
        kinds.all(Common::can_tell)
    })?;
    let gpu_id = |place: usize| {
        let device = process.devices().get(place)?;
        Some(device.user_id())
    };
    for word in words {
        let (kind, value) = svm_attribute(*word);
        let answer = common.answer(kind, value, |gpu| place_of(process, gpu), gpu_id);
        let (kind, value) = answer.ok_or(EINVAL)?;
        *word = u64::from(value) << 32 | u64::from(kind);
    }
    Ok(())
}
