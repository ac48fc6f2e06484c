// SPDX-License-Identifier: GPL-2.0-only

//! Owners of what a [`Kgd`] hands out: made by asking, given back by dropping.
//!
//! Each keeps its `Kgd` alive. [`Vm`] keeps its [`MemoryContext`], [`Memory`] and [`QueueBuffers`]
//! keep their [`Vm`]; so the order in which a process lets go of them does not matter.

pub(crate) use doorbells::Doorbells;
pub(crate) use shared::{
    DmaPages,
    Tables, //
};

use super::{
    gpu_err,
    BoHandle,
    Domain,
    HqdPosition,
    Kgd,
    MemoryHandle,
    NewMemory,
    PciName,
    Preempt,
    ProcessHandle,
    QueueBos,
    QueueBuffer,
    RawKernelBo,
    TlbFlush,
    VmHandle,
    VmTask,
    MAX_QUEUE_BUFFERS, //
};
use crate::ids::{
    DoorbellIndex,
    GpuVa,
    Pasid,
    UserVa, //
};
use core::{
    mem::ManuallyDrop,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// Bytes of a copy queue's MQD (`struct v9_sdma_mqd`).
const SDMA_MQD_BYTES: usize = 512;

/// Memory that the GPU reads and writes at the same time: `size` bytes that are accessed volatile
/// only.
pub(crate) struct VolatileMemory {
    cpu: NonNull<u8>,
    size: usize,
}

// SAFETY: any thread may access the memory (`new`).
unsafe impl Send for VolatileMemory {}
// SAFETY: as above; all access is volatile.
unsafe impl Sync for VolatileMemory {}

impl VolatileMemory {
    /// # Safety
    ///
    /// `size` bytes at `cpu`, page-aligned, must be readable and writable while the window lives,
    /// and no reference may point into them.
    unsafe fn new(cpu: NonNull<u8>, size: usize) -> Self {
        Self { cpu, size }
    }

    /// Checks that `len` bytes at `offset` lie inside, and returns where.
    fn range(&self, offset: usize, len: usize) -> Result<NonNull<u8>> {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.size {
            return Err(EINVAL);
        }
        // SAFETY: the memory is `size` bytes long (`new`), and `offset <= end <= size`.
        Ok(unsafe { self.cpu.add(offset) })
    }

    /// As `range`, for a `T` that must be aligned there.
    fn typed<T>(&self, offset: usize) -> Result<NonNull<T>> {
        if offset % align_of::<T>() != 0 {
            return Err(EINVAL);
        }
        Ok(self.range(offset, size_of::<T>())?.cast())
    }

    /// Reads a dword.
    pub(crate) fn read_u32(&self, offset: usize) -> Result<u32> {
        let at = self.typed::<u32>(offset)?;
        // SAFETY: in range and aligned (`typed`); the memory is there (`new`); any bits are a
        // `u32`.
        Ok(unsafe { at.read_volatile() })
    }

    /// Reads a quadword.
    pub(crate) fn read_u64(&self, offset: usize) -> Result<u64> {
        let at = self.typed::<u64>(offset)?;
        // SAFETY: as in `read_u32`.
        Ok(unsafe { at.read_volatile() })
    }

    /// Writes a dword.
    pub(crate) fn write_u32(&self, offset: usize, value: u32) -> Result {
        let at = self.typed::<u32>(offset)?;
        // SAFETY: in range and aligned (`typed`); the memory is there, and only accessed
        // volatile (`new`).
        unsafe { at.write_volatile(value) };
        Ok(())
    }

    /// Writes a quadword.
    pub(crate) fn write_u64(&self, offset: usize, value: u64) -> Result {
        let at = self.typed::<u64>(offset)?;
        // SAFETY: as in `write_u32`.
        unsafe { at.write_volatile(value) };
        Ok(())
    }

    /// Writes dwords that nobody reads before he is told of them.
    pub(crate) fn write_dwords(&self, offset: usize, dwords: &[u32]) -> Result {
        if offset % align_of::<u32>() != 0 {
            return Err(EINVAL);
        }
        let at = self.range(offset, size_of_val(dwords))?.cast::<u32>();
        // SAFETY: `range` checked all of them and the line before it their alignment; the memory is
        // there and no reference points into it (`new`), so `dwords` lies elsewhere.
        unsafe { at.copy_from_nonoverlapping(NonNull::from(dwords).cast(), dwords.len()) };
        Ok(())
    }

    /// Reads dwords that no CPU writes meanwhile. Of what the hardware writes it may get a part.
    pub(crate) fn read_dwords(&self, offset: usize, dwords: &mut [u32]) -> Result {
        if offset % align_of::<u32>() != 0 {
            return Err(EINVAL);
        }
        let at = self.range(offset, size_of_val(dwords))?.cast::<u32>();
        // SAFETY: As in `write_dwords`, the other way round; any bits are a `u32`, those of a word
        // that the hardware is about to write, too.
        unsafe { at.copy_to_nonoverlapping(NonNull::from(&mut *dwords).cast(), dwords.len()) };
        Ok(())
    }

    /// Sets `len` bytes to `byte`.
    pub(crate) fn fill(&self, offset: usize, len: usize, byte: u8) -> Result {
        let start = self.range(offset, len)?;
        // SAFETY: `range` checked it. No reference into the buffer exists.
        unsafe { start.write_bytes(byte, len) };
        Ok(())
    }
}

/// A kernel buffer: pinned, with an address for the GPU and one for the CPU.
pub(crate) struct KernelBo {
    kgd: Arc<dyn Kgd>,
    raw: ManuallyDrop<RawKernelBo>,
    window: VolatileMemory,
}

impl KernelBo {
    /// The name of the device whose buffer it is.
    pub(crate) fn pci_name(&self) -> PciName {
        self.kgd.facts().pci_name()
    }

    /// Allocates `size` bytes. See [`super::KernelMemory::alloc_bo`] for `mqd`.
    pub(crate) fn new(kgd: Arc<dyn Kgd>, size: usize, domain: Domain, mqd: bool) -> Result<Self> {
        let raw = kgd.alloc_bo(size, domain, mqd)?;
        let bo = Self {
            kgd,
            // SAFETY: the mapping is `size` bytes long and goes when `raw` does.
            window: unsafe { VolatileMemory::new(raw.cpu, size) },
            raw: ManuallyDrop::new(raw),
        };
        bo.fill(0, size, 0)?;
        Ok(bo)
    }

    /// Its address for VMID 0 and for packets.
    pub(crate) fn gpu_va(&self) -> GpuVa {
        self.raw.gpu_va
    }

    /// Loads the HIQ from the MQD that lies `offset` bytes into this buffer.
    pub(crate) fn load_hiq(
        &self,
        offset: usize,
        position: HqdPosition,
        doorbell: DoorbellIndex,
        xcc: u32,
    ) -> Result {
        self.window.range(offset, 1)?;
        self.kgd
            .load_hiq(&self.raw, offset, position, doorbell, xcc)
    }

    /// Loads a compute queue from its MQD `offset` bytes into this buffer.
    pub(crate) fn load_queue(
        &self,
        offset: usize,
        position: HqdPosition,
        write_pointer: UserVa,
        xcc: u32,
    ) -> Result {
        self.window.range(offset, PAGE_SIZE)?;
        self.kgd
            .load_queue(&self.raw, offset, position, write_pointer, xcc)
    }

    /// Takes it off.
    pub(crate) fn unload_queue(
        &self,
        offset: usize,
        position: HqdPosition,
        preempt: Preempt,
        xcc: u32,
    ) -> Result {
        self.window.range(offset, PAGE_SIZE)?;
        self.kgd
            .unload_queue(&self.raw, offset, position, preempt, xcc)
    }

    /// Takes the copy queue off whose MQD is `offset` bytes into this buffer.
    pub(crate) fn unload_sdma(&self, offset: usize) -> Result {
        self.window.range(offset, SDMA_MQD_BYTES)?;
        self.kgd.unload_sdma(&self.raw, offset)
    }
}

impl Deref for KernelBo {
    type Target = VolatileMemory;

    fn deref(&self) -> &VolatileMemory {
        &self.window
    }
}

impl Drop for KernelBo {
    fn drop(&mut self) {
        // SAFETY: `raw` is taken here only, and nobody uses `self` after drop.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        self.kgd.free_bo(raw);
    }
}

/// A device's counters of global wave sync, which amdgpu keeps for compute as long as this lives.
pub(crate) struct WaveSyncCounters {
    kgd: Arc<dyn Kgd>,
    bo: ManuallyDrop<BoHandle>,
}

impl WaveSyncCounters {
    /// All of them. Fails where somebody has some.
    pub(crate) fn new(kgd: Arc<dyn Kgd>) -> Result<Self> {
        let bo = kgd.alloc_wave_sync(kgd.facts().gws_size)?;
        Ok(Self {
            kgd,
            bo: ManuallyDrop::new(bo),
        })
    }
}

impl Drop for WaveSyncCounters {
    fn drop(&mut self) {
        // SAFETY: `bo` is taken here only, and nobody uses `self` after drop.
        let bo = unsafe { ManuallyDrop::take(&mut self.bo) };
        self.kgd.free_wave_sync(bo);
    }
}

/// What the VMs of one process share: its list of buffers and its eviction fence.
///
/// One per process, made by the process itself when it acquires its first VM.
pub(crate) struct MemoryContext {
    kgd: Arc<dyn Kgd>,
    raw: ManuallyDrop<ProcessHandle>,
}

impl MemoryContext {
    /// For the current process; `context` comes back with an eviction.
    pub(crate) fn new(kgd: Arc<dyn Kgd>, context: u16) -> Result<Self> {
        let raw = kgd.create_process(context)?;
        Ok(Self {
            kgd,
            raw: ManuallyDrop::new(raw),
        })
    }

    /// The queues are off: the process's buffers may move, or go. Returns whether they could
    /// before.
    pub(crate) fn signal_eviction_fence(&self) -> bool {
        self.kgd.signal_eviction_fence(&self.raw)
    }

    /// Brings evicted buffers back; the queues may go on afterwards.
    pub(crate) fn restore(&self) -> Result {
        self.kgd.restore(&self.raw)
    }
}

impl Drop for MemoryContext {
    fn drop(&mut self) {
        // SAFETY: `raw` is taken here only, and nobody uses `self` after drop.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        self.kgd.destroy_process(raw);
    }
}

/// A process's virtual memory on one GPU: the VM of a DRM file that the process opened.
pub(crate) struct Vm {
    // Dropped by `drop` before the context, which the VM belongs to.
    raw: ManuallyDrop<VmHandle>,
    kgd: Arc<dyn Kgd>,
    _context: Arc<MemoryContext>,
    pasid: Pasid,
}

impl Vm {
    /// The name of its device.
    pub(crate) fn pci_name(&self) -> PciName {
        self.kgd.facts().pci_name()
    }

    /// Takes the VM of `drm_fd`, an open render node of `kgd`'s device, over for compute.
    pub(crate) fn acquire(
        kgd: Arc<dyn Kgd>,
        context: Arc<MemoryContext>,
        drm_fd: i32,
    ) -> Result<Self> {
        let raw = kgd.acquire_vm(&context.raw, drm_fd)?;
        match kgd.pasid(&raw) {
            Ok(pasid) => Ok(Self {
                raw: ManuallyDrop::new(raw),
                kgd,
                _context: context,
                pasid,
            }),
            Err(error) => {
                kgd.release_vm(raw);
                Err(error)
            }
        }
    }

    /// Its name in interrupts and packets.
    pub(crate) fn pasid(&self) -> Pasid {
        self.pasid
    }

    /// The task that acquired it.
    pub(crate) fn task(&self) -> VmTask {
        self.kgd.vm_task(&self.raw)
    }

    /// Is this the file that the VM came from?
    pub(crate) fn is_file(&self, drm_fd: i32) -> bool {
        self.kgd.vm_is_file(&self.raw, drm_fd)
    }

    /// The physical address of its page directory, as `MAP_PROCESS` wants it.
    pub(crate) fn page_directory(&self) -> u64 {
        self.kgd.page_directory(&self.raw)
    }

    /// Invalidates its translations on the given logical XCCs. After an error (`ETIME`, `EAGAIN`)
    /// the GPU may use what it had translated before.
    pub(crate) fn flush_tlb(&self, flush: TlbFlush, xcc_mask: u32) -> Result {
        self.kgd.flush_tlb(&self.raw, flush, xcc_mask)
    }

    /// Maps a buffer, of this GPU or a peer's, into this VM.
    pub(crate) fn map(&self, memory: &Memory) -> Result {
        self.kgd.map_memory(&self.raw, &memory.raw)
    }

    /// Unmaps it. The caller flushes the TLB, then calls [`Vm::dma_unmap`].
    pub(crate) fn unmap(&self, memory: &Memory) -> Result {
        self.kgd.unmap_memory(&self.raw, &memory.raw)
    }

    /// Unmaps it, if it is mapped, of a process that has no queue, or has `ended`.
    pub(crate) fn unmap_at_end(&self, memory: &Memory, ended: bool) -> Result {
        self.kgd.unmap_memory_at_end(&self.raw, &memory.raw, ended)
    }

    /// Loads a copy queue of the process from its MQD `offset` bytes into `mqd`.
    pub(crate) fn load_sdma(&self, mqd: &KernelBo, offset: usize, write_pointer: UserVa) -> Result {
        mqd.window.range(offset, SDMA_MQD_BYTES)?;
        self.kgd
            .load_sdma(&self.raw, &mqd.raw, offset, write_pointer)
    }

    /// Ends the buffer's DMA mapping for this GPU.
    pub(crate) fn dma_unmap(&self, memory: &Memory) -> Result {
        self.kgd.dma_unmap_memory(&self.raw, &memory.raw)
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // SAFETY: `raw` is taken here only, and nobody uses `self` after drop.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        self.kgd.release_vm(raw);
    }
}

/// A buffer of a compute process. It must be unmapped from every VM before it goes.
pub(crate) struct Memory {
    // Freed by `drop` before the VM that it belongs to.
    raw: ManuallyDrop<MemoryHandle>,
    vm: Arc<Vm>,
    mmap_offset: u64,
    size: u64,
    /// Where GPUs see it: address and bytes.
    place: (u64, u64),
    /// It was imported or exported: the process may have its memory by another handle, too.
    may_have_another: Atomic<bool>,
    /// It has been freed: only its reference to the VM is left to give back.
    is_freed: bool,
}

impl Memory {
    /// Allocates on the VM's GPU. `place`: where GPUs see it, which may be more bytes than `size`.
    /// See [`super::ProcessMemory::alloc_memory`].
    pub(crate) fn alloc(
        vm: Arc<Vm>,
        place: (u64, u64),
        size: u64,
        offset: u64,
        flags: u32,
    ) -> Result<Self> {
        let kgd = &vm.kgd;
        let new = kgd.alloc_memory(&vm.raw, place.0, size, offset, flags, false)?;
        Ok(Self::own(vm, new, place, false))
    }

    /// Imports a dma-buf at a GPU virtual address.
    pub(crate) fn import(vm: Arc<Vm>, fd: i32, address: u64) -> Result<Self> {
        let new = vm.kgd.import_dmabuf(&vm.raw, fd, address)?;
        let place = (address, new.size);
        Ok(Self::own(vm, new, place, true))
    }

    fn own(vm: Arc<Vm>, new: NewMemory, place: (u64, u64), may_have_another: bool) -> Self {
        Self {
            raw: ManuallyDrop::new(new.memory),
            vm,
            mmap_offset: new.mmap_offset,
            size: new.size,
            place,
            may_have_another: Atomic::new(may_have_another),
            is_freed: false,
        }
    }

    /// Where mmap on the DRM file finds it.
    pub(crate) fn mmap_offset(&self) -> u64 {
        self.mmap_offset
    }

    /// Where GPUs see it that it is mapped for: address and bytes.
    pub(crate) fn place(&self) -> (u64, u64) {
        self.place
    }

    /// Frees it and returns the bytes of VRAM that came back; hands it back if it is still mapped.
    pub(crate) fn free(mut self) -> Result<u64, (Error, Self)> {
        match self.try_free() {
            Ok(freed) => {
                self.is_freed = true;
                Ok(freed)
            }
            Err(error) => Err((error, self)),
        }
    }

    /// Frees what the kernel has used, or hands it back. If somebody has it still, the last one
    /// frees it.
    pub(crate) fn free_shared(this: Arc<Self>) -> Result<(), (Error, Arc<Self>)> {
        let Some(this) = Arc::into_unique_or_drop(this) else {
            return Ok(());
        };
        let mut this = Pin::into_inner(this);
        match this.try_free() {
            Ok(_) => {
                this.is_freed = true;
                Ok(())
            }
            Err(error) => Err((error, this.into())),
        }
    }

    /// With `is_freed` this is never called again.
    fn try_free(&self) -> Result<u64> {
        let another = self.may_have_another.load(Relaxed);
        self.vm.kgd.free_memory(&self.vm.raw, &self.raw, another)
    }

    /// See [`ProcessMemory::sync_memory`].
    pub(crate) fn sync(&self, interruptible: bool) -> Result {
        self.vm.kgd.sync_memory(&self.raw, interruptible)
    }

    /// Returns a file descriptor of the current process. Nobody frees it meanwhile.
    pub(crate) fn export_dmabuf(&self, flags: u32) -> Result<i32> {
        self.may_have_another.store(true, Relaxed);
        self.vm.kgd.export_dmabuf(&self.raw, flags)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.is_freed {
            return;
        }
        if let Err(error) = self.try_free() {
            // What amdgpu has of it leads there.
            self.vm.kgd.keep_file(&self.vm.raw);
            let (name, pid, bytes) = (self.vm.pci_name(), self.vm.task().pid, self.size);
            gpu_err!(
                name,
                "process {pid}: a buffer of {bytes} bytes is leaked: {error:?}\n"
            );
        }
    }
}

/// A process's buffer in system memory, mapped for the kernel too, and pinned. When this is dropped
/// amdgpu unpins it, and leaves it without an eviction fence: it may move under queues that use it.
/// So whoever has it until then uses it no more afterwards.
pub(crate) struct KernelMapping {
    memory: Arc<Memory>,
    window: VolatileMemory,
}

impl KernelMapping {
    /// Maps the whole of it.
    pub(crate) fn new(memory: Arc<Memory>) -> Result<Self> {
        let (cpu, size) = memory.vm.kgd.map_kernel(&memory.raw)?;
        // SAFETY: the mapping is `size` bytes long and goes when this object does.
        let window = unsafe { VolatileMemory::new(cpu, size) };
        Ok(Self { memory, window })
    }

    /// Bytes.
    pub(crate) fn size(&self) -> usize {
        self.window.size
    }
}

impl Deref for KernelMapping {
    type Target = VolatileMemory;

    fn deref(&self) -> &VolatileMemory {
        &self.window
    }
}

impl Drop for KernelMapping {
    fn drop(&mut self) {
        self.memory.vm.kgd.unmap_kernel(&self.memory.raw);
    }
}

/// User memory that a queue depends on, kept mapped until dropped.
pub(crate) struct QueueBuffers {
    vm: Arc<Vm>,
    buffers: QueueBos,
}

impl QueueBuffers {
    /// All or none of `wanted`. `EINVAL` if one is not mapped so.
    pub(crate) fn get(vm: Arc<Vm>, wanted: &[QueueBuffer]) -> Result<Self> {
        let buffers = vm.kgd.get_queue_buffers(&vm.raw, wanted)?;
        Ok(Self { vm, buffers })
    }

    /// The same without a first one: what is wanted stands behind it.
    pub(crate) fn get_others(vm: Arc<Vm>, wanted: &[QueueBuffer]) -> Result<Self> {
        if wanted.len() >= MAX_QUEUE_BUFFERS {
            return Err(EINVAL);
        }
        let mut others = Self::get(vm, wanted)?;
        others.buffers.rotate_right(1);
        Ok(others)
    }

    /// Exchanges the first buffer, if there is one, for the first of `other`, of the same VM.
    pub(crate) fn swap_first(&mut self, other: &mut Self) {
        let ([mine, ..], [theirs, ..]) = (&mut self.buffers, &mut other.buffers);
        core::mem::swap(mine, theirs);
    }
}

impl Drop for QueueBuffers {
    fn drop(&mut self) {
        let buffers = core::mem::take(&mut self.buffers);
        self.vm.kgd.put_queue_buffers(&self.vm.raw, buffers);
    }
}

/// While it lives, no reset begins: hardware may be touched.
pub(crate) struct ResetGuard<'a>(&'a dyn Kgd);

impl<'a> ResetGuard<'a> {
    /// `EIO` while a reset runs, or when the device was pulled out. Never sleeps.
    pub(crate) fn try_new(kgd: &'a dyn Kgd) -> Result<Self> {
        if kgd.try_lock_reset() {
            Ok(Self(kgd))
        } else {
            Err(EIO)
        }
    }
}

impl Drop for ResetGuard<'_> {
    fn drop(&mut self) {
        self.0.unlock_reset();
    }
}

/// While it lives, the device stays awake.
pub(crate) struct PowerGuard(Arc<dyn Kgd>);

impl PowerGuard {
    /// Wakes the device.
    pub(crate) fn new(kgd: Arc<dyn Kgd>) -> Result<Self> {
        kgd.power_get()?;
        Ok(Self(kgd))
    }
}

impl Drop for PowerGuard {
    fn drop(&mut self) {
        self.0.power_put();
    }
}

mod checkpoint;
mod doorbells;
mod shared;
mod tests;

pub(crate) mod vram;
