// SPDX-License-Identifier: GPL-2.0-only

//! What user space asks of buffers: they belong to a process on one GPU, and are mapped to any of
//! its GPUs.

use super::{
    leaving::has_signal,
    Process,
    ProcessDevice, //
};
use crate::{
    kgd::{
        gpu_err,
        Memory,
        TlbFlush,
        Vm, //
    },
    linux::ratelimit::may_complain,
    memory::{
        request::BufferRequest,
        Handle, //
    },
};
use kernel::prelude::*;

/// Allocates a buffer on a GPU. Returns its handle and where mmap on the DRM file finds it.
pub(crate) fn alloc(
    device: &ProcessDevice,
    request: BufferRequest,
    offset: u64,
) -> Result<(Handle, u64)> {
    let vm = device.vm()?.clone();
    let BufferRequest {
        address,
        size,
        flags,
    } = request;
    let make = || Memory::alloc(vm, address, size, offset, flags);
    let (index, offset) = device
        .buffers()
        .insert(request, make, Memory::mmap_offset)?;
    Ok((Handle::new(device.gpu_id(), index), offset))
}

/// Imports a dma-buf at a GPU virtual address.
pub(crate) fn import(device: &ProcessDevice, fd: i32, address: u64) -> Result<Handle> {
    let vm = device.vm()?.clone();
    let make = || Memory::import(vm, fd, address);
    let (index, ()) = device
        .buffers()
        .insert(BufferRequest::imported(address), make, |_| ())?;
    Ok(Handle::new(device.gpu_id(), index))
}

/// Frees a buffer. `ERESTARTSYS`: a signal came while a GPU of the process's was being reset.
pub(crate) fn free(process: &Process, handle: Handle) -> Result {
    // Who has unmapped it may not have waited to the end.
    process.await_resets()?;
    process
        .device(handle.gpu_id())?
        .buffers()
        .free(handle.index())
}

/// A file descriptor for a buffer. `EINVAL`: there is none of that handle, or it shows a device's
/// pages, of which amdgpu cannot keep two handles: it frees their list with each (`tbo.sg`).
pub(crate) fn export(process: &Process, handle: Handle, flags: u32) -> Result<i32> {
    // One look-up: between two of them the handle can become another buffer's.
    process
        .device(handle.gpu_id())?
        .buffers()
        .with_memory(handle.index(), |memory| memory.export_dmabuf(flags))
}

/// Maps a buffer to GPUs, from the `done`-th on, and waits until they see it. `done` counts those
/// on which it is mapped, also if it fails: the user then goes on from there. What the user says is
/// done is not looked at: where that is no GPU of the process's, there is nothing to do.
///
/// `EINVAL`: the process does not use that GPU. `ENODEV`: it has no VM there. `ENOMEM`: there is no
/// such buffer.
pub(crate) fn map(process: &Process, handle: Handle, gpus: &[u32], done: &mut u32) -> Result {
    let owner = process.device(handle.gpu_id())?;
    owner.vm()?;
    owner.buffers().with(handle.index(), ENOMEM, |memory| {
        for &gpu in gpus.iter().skip(*done as usize) {
            let device = process.device(gpu)?;
            device
                .vm()?
                .map(memory)
                .inspect_err(|error| refused(process, device, *error))?;
            *done += 1;
        }
        memory.sync(true)
    })?;
    // Only now: the page tables are as they shall be.
    for (device, vm) in with_vms(process, gpus) {
        // What a GPU knows that is being reset it is about to forget.
        let _ = flush_tlb(device, vm);
    }
    Ok(())
}

/// Unmaps a buffer from GPUs, from the `done`-th on, and waits until they have forgotten it: also
/// if it fails, those from which it is unmapped, for it may be freed next. Errors as for [`map`];
/// `ERESTARTSYS`: a signal came while one was being reset, and the same call goes on from there.
pub(crate) fn unmap(process: &Process, handle: Handle, gpus: &[u32], done: &mut u32) -> Result {
    let owner = process.device(handle.gpu_id())?;
    for device in process.devices() {
        // What a queue had that is gone is the user's again as soon as the hardware has let go.
        let _ = device.queues().are_off(&**device);
    }
    owner.buffers().with(handle.index(), ENOMEM, |memory| {
        let before = *done;
        let unmapped = unmap_each(process, memory, gpus, done);
        if unmapped.is_err() && *done == before {
            return unmapped;
        }
        let gone = gpus.get(..*done as usize).unwrap_or(gpus);
        unmapped.and(forget(process, memory, gone))
    })
}

/// The part of [`unmap`] that can be refused.
fn unmap_each(process: &Process, memory: &Memory, gpus: &[u32], done: &mut u32) -> Result {
    for &gpu in gpus.iter().skip(*done as usize) {
        process.device(gpu)?.vm()?.unmap(memory)?;
        *done += 1;
    }
    Ok(())
}

/// When this returns these GPUs do not go to a buffer any more that was unmapped from them. The
/// first error counts. `ERESTARTSYS`: they may, for a signal came while one was being reset.
fn forget(process: &Process, memory: &Memory, gpus: &[u32]) -> Result {
    // No signal ends that: who comes out too early can free what the GPU still reads.
    let mut result = memory.sync(false);
    for (device, vm) in with_vms(process, gpus) {
        // Nothing is forgotten by a GPU that is about to be reset, or does not answer. Its waves go
        // on until amdgpu has reset it, with what it knew.
        if flush_tlb(device, vm).is_err() {
            let forget = || {
                let _ = flush_tlb(device, vm);
            };
            device.queues().await_reset(device, has_signal, forget)?;
        }
        // Only now: until then the GPU may still go to the old pages.
        result = result.and(vm.dma_unmap(memory));
    }
    result
}

/// Those of the GPUs on which the process has a VM.
fn with_vms<'a>(
    process: &'a Process,
    gpus: &'a [u32],
) -> impl Iterator<Item = (&'a ProcessDevice, &'a Vm)> {
    gpus.iter().filter_map(|&gpu| {
        let device = process.device(gpu).ok()?;
        Some((&**device, &**device.vm().ok()?))
    })
}

/// Makes a GPU forget what it knows of the process's page tables. Accesses in flight are waited
/// for. `EAGAIN`: it has not, for it is about to be reset; any other error: it does not answer,
/// which is said here.
fn flush_tlb(device: &ProcessDevice, vm: &Vm) -> Result {
    let result = vm.flush_tlb(TlbFlush::Heavyweight, device.node().xcc_mask());
    if let Err(error) = result {
        if error != EAGAIN {
            let name = device.node().pci_name();
            gpu_err!(name, "translations are not invalidated: {error:?}\n");
        }
    }
    result
}

fn refused(process: &Process, device: &ProcessDevice, error: Error) {
    // A signal is no failure: the user comes again.
    if error != ERESTARTSYS && may_complain() {
        let (pid, name) = (process.lead().pid(), device.node().pci_name());
        gpu_err!(name, "process {pid}: cannot map a buffer: {error:?}\n");
    }
}
