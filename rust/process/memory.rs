// SPDX-License-Identifier: GPL-2.0-only

//! What user space asks of buffers: they belong to a process on one GPU, and are mapped to any of
//! its GPUs.

use super::{
    doorbells,
    leaving::has_signal,
    Process,
    ProcessDevice, //
};
use crate::{
    event::SignalPage,
    kgd::{
        gpu_err,
        KernelMapping,
        Memory,
        TlbFlush,
        Vm, //
    },
    linux::{
        ratelimit::may_complain,
        task::is_killed, //
    },
    memory::{
        request::{
            BufferRequest,
            Source, //
        },
        Handle, //
    },
    svm::Pages,
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::{
        ordering::Relaxed,
        Atomic, //
    },
};

/// Allocates a buffer on a GPU. Returns its handle and where mmap on the DRM file finds it.
pub(crate) fn alloc(
    device: &ProcessDevice,
    request: BufferRequest,
    offset: u64,
) -> Result<(Handle, u64)> {
    let vm = device.vm()?.clone();
    let (size, flags) = (request.size, request.flags);
    let make = || Memory::alloc(vm, request.place(), size, offset, flags);
    let (index, offset) = device
        .buffers()
        .insert(request, make, Memory::mmap_offset)?;
    Ok((Handle::new(device.user_id(), index), offset))
}

/// What a new buffer shows: an address of the user's (`given`), or one on the GPU's bus. `EINVAL`:
/// it is of several kinds, or not as large as what it shows.
pub(crate) fn source_offset(
    device: &ProcessDevice,
    request: &BufferRequest,
    given: u64,
) -> Result<u64> {
    if !request.is_of_one_kind() {
        return Err(EINVAL);
    }
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

/// Makes a buffer the process's signal page. The caller holds the process's memory lock. `EINVAL`:
/// there is one already, or that is no such buffer.
pub(crate) fn take_signal_page(process: &Process, handle: Handle) -> Result {
    if process.events().has_page() {
        return Err(EINVAL);
    }
    let device = process.device(handle.gpu_id())?;
    device.vm()?;
    let buffers = device.buffers();
    let buffer = buffers.share(handle.index(), SignalPage::BYTES)?;
    let page = SignalPage::buffer(KernelMapping::new(buffer)?)?;
    process.events().set_page(page, handle.raw())
}

/// Imports a dma-buf at a GPU virtual address.
pub(crate) fn import(device: &ProcessDevice, fd: i32, address: u64) -> Result<Handle> {
    let vm = device.vm()?.clone();
    let make = || Memory::import(vm, fd, address);
    let (index, ()) = device
        .buffers()
        .insert(BufferRequest::imported(address), make, |_| ())?;
    Ok(Handle::new(device.user_id(), index))
}

/// Frees a buffer. `ERESTARTSYS`: a signal came while a GPU of the process's was being reset, or
/// the process is being killed: its end sees to that.
pub(crate) fn free(process: &Process, handle: Handle) -> Result {
    let buffers = process.device(handle.gpu_id())?.buffers();
    // Who has unmapped it may not have waited to the end.
    buffers.free(handle.index(), || match is_killed() {
        true => Err(ERESTARTSYS),
        false => await_resets(process),
    })
}

/// A file descriptor for a buffer. `EINVAL`: there is none of that handle, or it shows a device's
/// pages, of which amdgpu cannot keep two handles: it frees their list with each (`tbo.sg`).
/// `EPERM`: it shows the user's own pages.
pub(crate) fn export(process: &Process, handle: Handle, flags: u32) -> Result<i32> {
    // One look-up: between two of them the handle can become another buffer's.
    process
        .device(handle.gpu_id())?
        .buffers()
        .with_sharable(handle.index(), |memory| memory.export_dmabuf(flags))
}

/// Maps a buffer to GPUs, from the `done`-th on, and waits until they see it. `done` counts those
/// on which it is mapped, also if it fails: the user then goes on from there. What the user says is
/// done is not looked at: where that is no GPU of the process's, there is nothing to do.
///
/// `EINVAL`: the process does not use that GPU. `ENODEV`: it has no VM there. `ENOMEM`: there is no
/// such buffer. `EADDRINUSE`: memory at its address has attributes of shared virtual memory by now.
/// `EAGAIN`, `EIO`: that GPU may see still what was at its address before, for now or for good.
pub(crate) fn map(process: &Process, handle: Handle, gpus: &[u32], done: &mut u32) -> Result {
    let owner = process.device(handle.gpu_id())?;
    owner.vm()?;
    owner.buffers().with(handle.index(), ENOMEM, |memory| {
        let (address, bytes) = memory.place();
        let mut claim = None;
        for &gpu in gpus.iter().skip(*done as usize) {
            let device = process.device(gpu)?;
            let vm = device.vm()?;
            if let (None, Some(svm)) = (&claim, process.svm()) {
                // Until it is mapped, nobody gives attributes to memory there.
                claim = Some(svm.claim(Pages::around_bytes(address, bytes))?);
            }
            if let Some(claim) = &claim {
                claim.clear(vm)?;
            }
            vm.map(memory).inspect_err(|error| {
                // It may have been mapped for a moment. Its DMA mapping, of which another attempt
                // makes a second one, or finds it there and fails, goes with what the GPU knows.
                match flush_tlb(device, vm) {
                    Ok(()) => {
                        let _ = vm.dma_unmap(memory);
                    }
                    Err(_) => device.unflushed().add(),
                }
                refused(process, device, *error);
            })?;
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
        device.queues().give_back(&**device);
    }
    owner.buffers().with(handle.index(), ENOMEM, |memory| {
        let before = *done;
        let unmapped = unmap_each(process, memory, gpus, done);
        if unmapped == Err(ERESTARTSYS) {
            with_vms(process, gpus).for_each(|(device, _)| device.unflushed().add());
        }
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
/// first error counts. `ERESTARTSYS`: one may, for a signal came while it was being reset, and
/// [`free`] waits for it.
fn forget(process: &Process, memory: &Memory, gpus: &[u32]) -> Result {
    // No signal ends that but SIGKILL: who comes out too early can free what the GPU still reads.
    // What is left then is done when the process has ended.
    let mut result = memory.sync(false);
    if is_killed() {
        with_vms(process, gpus).for_each(|(device, _)| device.unflushed().add());
        return Err(ERESTARTSYS);
    }
    // All of them, before any is waited for: a signal may end that.
    for (device, vm) in with_vms(process, gpus) {
        // Nothing is forgotten by a GPU that is about to be reset, or does not answer. Its waves go
        // on until amdgpu has reset it, with what it knew.
        if flush_tlb(device, vm).is_err() {
            device.unflushed().add();
        }
    }
    for (device, vm) in with_vms(process, gpus) {
        // Only now: until then the GPU may still go to the old pages.
        let unmapped = settle(device, vm).and_then(|()| vm.dma_unmap(memory));
        result = result.and(unmapped);
    }
    result
}

/// Waits until a GPU has forgotten what it had not when that was unmapped. `ERESTARTSYS`: a signal
/// came first.
fn settle(device: &ProcessDevice, vm: &Vm) -> Result {
    let Some(due) = device.unflushed().due() else {
        return Ok(());
    };
    await_reset(device, vm)?;
    device.unflushed().settle(due);
    Ok(())
}

/// [`Queues::await_reset`](crate::queue::Queues::await_reset), and the GPU forgets what it knows.
fn await_reset(device: &ProcessDevice, vm: &Vm) -> Result {
    device.queues().await_reset(device, has_signal, || {
        let _ = flush_tlb(device, vm);
    })
}

/// The process gives memory back: waits for those of its GPUs that may go to it still, as they are
/// reset, or do not obey, or nobody has waited for them. `ERESTARTSYS`: a signal came first.
fn await_resets(process: &Process) -> Result {
    for device in process.devices() {
        let Ok(vm) = device.vm() else {
            continue;
        };
        settle(device, vm)?;
        if device.node().kgd().in_reset() || device.queues().are_at_work(&**device) {
            await_reset(device, vm)?;
        }
    }
    Ok(())
}

/// How often a GPU was asked in vain to forget what was unmapped, and up to which of these times it
/// has forgotten that since.
pub(super) struct Unflushed {
    asked: Atomic<u32>,
    settled: Atomic<u32>,
}

impl Unflushed {
    /// It has forgotten all.
    pub(super) const fn new() -> Self {
        Self {
            asked: Atomic::new(0),
            settled: Atomic::new(0),
        }
    }

    /// Asked in vain, once more. The page tables have been changed.
    fn add(&self) {
        self.asked.add(1, Relaxed);
    }

    /// What to [settle](Self::settle) when it has forgotten all that it knows now.
    fn due(&self) -> Option<u32> {
        let asked = self.asked.load(Relaxed);
        (asked != self.settled.load(Relaxed)).then_some(asked)
    }

    /// It has forgotten all that it knew at a call of [`Unflushed::due`]. Of two at a time the
    /// older one may be the last: then it is asked once more.
    fn settle(&self, due: u32) {
        self.settled.store(due, Relaxed);
    }
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
    if !matches!(error, EINTR | ERESTARTSYS) && may_complain() {
        let (pid, name) = (process.lead().pid(), device.node().pci_name());
        gpu_err!(name, "process {pid}: cannot map a buffer: {error:?}\n");
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_memory)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_forgotten_is_due_until_somebody_has_waited_for_it() {
        let unflushed = Unflushed::new();
        assert_eq!(unflushed.due(), None);
        unflushed.add();
        let first = unflushed.due().unwrap();
        // While that is waited for another comes, which may not be seen to.
        unflushed.add();
        unflushed.settle(first);
        let second = unflushed.due().unwrap();
        unflushed.settle(second);
        assert_eq!(unflushed.due(), None);
        unflushed.settle(first);
        assert_eq!(unflushed.due(), Some(second));
    }
}
