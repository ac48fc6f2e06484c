// SPDX-License-Identifier: GPL-2.0-only

//! Kgd, the kernel graphics driver underneath: what a KFD needs from it, and nothing else.
//!
//! One `Kgd` per device; [`Gpu`](crate::gpu::Gpu) owns it. [`amdgpu`] is the real one and the only
//! module that knows amdgpu; [`fake`] stands in for it under KUnit. The traits speak in raw
//! handles, which only those two can make; everybody else uses the owners in [`owned`], whose drop
//! gives back what they took.
//!
//! Unless a method says otherwise it may sleep, and allocate with `GFP_KERNEL`.

use crate::{
    ids::{
        DoorbellIndex,
        GpuVa,
        IpVersion,
        MemoryType,
        Pasid,
        UserVa,
        Vmid, //
    },
    linux::{
        hmm::HmmPfn,
        migrate::PageOwner, //
    },
};
use core::ptr::NonNull;
use kernel::prelude::*;

pub(crate) mod amdgpu;
mod bindings;
mod checkpoint;
mod device_pages;
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod fake;
mod message;
mod owned;
mod trap_handler;

pub(crate) use bindings::{
    bridge_dmabuf_info as RawDmabufInfo,
    bridge_facts as GpuFacts,
    bridge_local_memory as LocalMemory,
    bridge_partition as Partition,
    bridge_register as Register,
    bridge_tile_config as TileConfig, //
};
pub(crate) use checkpoint::{
    Checkpoints,
    MemoryFacts, //
};
pub(crate) use device_pages::{
    CopyPage,
    DeviceMemory,
    DevicePages,
    Direction,
    NewVram,
    MAX_PAGES, //
};
pub(crate) use message::{
    error,
    gpu_err,
    gpu_info,
    gpu_warn,
    info,
    warning,
    PciName, //
};
pub(crate) use owned::vram::{
    self,
    Copies,
    FaultEnd,
    Vram,
    VramOwner, //
};
pub(crate) use owned::{
    DmaPages,
    Doorbells,
    KernelBo,
    KernelMapping,
    Memory,
    MemoryContext,
    PowerGuard,
    QueueBuffers,
    ResetGuard,
    Tables,
    Vm,
    WaveSyncCounters, //
};

#[cfg(CONFIG_KUNIT = "y")]
pub(crate) use trap_handler::is_known_to_c;
pub(crate) use trap_handler::trap_handler;

/// Which device: amdgpu's pointer, for identity only. Two handles are equal if the devices are;
/// their order means nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceHandle(NonNull<c_void>);

impl DeviceHandle {
    /// Whether device pages of that owner are this device's alone, and not a hive's.
    pub(crate) fn owns(self, owner: PageOwner) -> bool {
        owner == PageOwner::new(self.0.as_ptr())
    }
}

// SAFETY: the pointer is compared and handed back to amdgpu, never dereferenced.
unsafe impl Send for DeviceHandle {}
// SAFETY: as above.
unsafe impl Sync for DeviceHandle {}

/// Declares an owning handle: a pointer of the implementation's that only it makes and consumes.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// # Invariants
        ///
        /// The object is live: the implementation takes the handle itself to end it.
        #[derive(PartialEq, Eq)]
        pub(crate) struct $name(NonNull<c_void>);

        // SAFETY: a handle is a name for an object of the Kgd implementation, all of whose methods
        // may be called from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    };
}

handle! {
    /// A buffer object that somebody holds a reference to.
    BoHandle
}
handle! {
    /// What all VMs of one process share.
    ProcessHandle
}
handle! {
    /// A compute VM: one DRM file's.
    VmHandle
}
handle! {
    /// A buffer of a compute process.
    MemoryHandle
}
handle! {
    /// A buffer of device pages.
    VramHandle
}
handle! {
    /// A copy between such a buffer and system memory.
    CopyHandle
}

/// Where a kernel buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// System memory behind the GPU's aperture.
    Gtt,
    /// The GPU's own memory.
    Vram,
}

/// A kernel buffer as the implementation made it.
pub(crate) struct RawKernelBo {
    bo: BoHandle,
    gpu_va: GpuVa,
    cpu: NonNull<u8>,
}

// SAFETY: the CPU mapping belongs to the buffer, which any thread may use.
unsafe impl Send for RawKernelBo {}
// SAFETY: as above; access through it is volatile (see `KernelBo`).
unsafe impl Sync for RawKernelBo {}

/// Doorbells as the implementation made them.
pub(crate) struct RawDoorbells {
    bo: BoHandle,
    index: DoorbellIndex,
    cpu: Option<NonNull<u8>>,
}

// SAFETY: as for `RawKernelBo`.
unsafe impl Send for RawDoorbells {}
// SAFETY: as for `RawKernelBo`; a doorbell is written with one store.
unsafe impl Sync for RawDoorbells {}

/// The least and the most that a link carries, MB/s. 0: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bandwidth {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

/// An xGMI link to another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XgmiLink {
    pub(crate) hops: u32,
    /// The firmware lets the two reach each other's memory.
    pub(crate) sharing: bool,
    pub(crate) bandwidth: Bandwidth,
}

/// Which translations to forget, and how thoroughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlbFlush {
    /// Translations, and waits for the accesses in flight.
    Heavyweight,
}

/// A buffer that a queue needs to stay mapped: exactly this mapping, or any that starts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueBuffer {
    pub(crate) address: GpuVa,
    /// In bytes, a multiple of the page size; 0: whatever is mapped there.
    pub(crate) size: u64,
}

/// How many buffers of the user's a queue needs at most.
pub(crate) const MAX_QUEUE_BUFFERS: usize = 5;

/// The buffers that a queue keeps, in the order in which they were asked for.
pub(crate) type QueueBos = [Option<BoHandle>; MAX_QUEUE_BUFFERS];

/// A buffer as it is made or imported.
pub(crate) struct NewMemory {
    memory: MemoryHandle,
    /// For mmap on the DRM file.
    pub(crate) mmap_offset: u64,
    pub(crate) size: u64,
}

/// The name of a task, as the kernel keeps it: any bytes, zero at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskName(pub(crate) [u8; 16]);

/// The task that made a VM the process's: whom SMI events of that VM name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VmTask {
    pub(crate) pid: i32,
    pub(crate) name: TaskName,
}

/// A register and the value it should have, as a packet wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterWrite {
    /// In dwords.
    pub(crate) offset: u32,
    pub(crate) value: u32,
}

/// A hardware queue slot of the micro engine compute (MEC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HqdPosition {
    pub(crate) pipe: u32,
    pub(crate) queue: u32,
}

/// The waves of a compute queue at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueWaves {
    pub(crate) doorbell: DoorbellIndex,
    pub(crate) waves: u32,
}

/// The waves of all compute queues of an XCC.
pub(crate) struct Occupancy {
    pub(crate) queues: KVec<QueueWaves>,
    pub(crate) max_waves_per_cu: u32,
}

/// Who and what the device is.
pub(crate) trait Device {
    /// The device's identity.
    fn handle(&self) -> DeviceHandle;
    /// What does not change while the device is up.
    fn facts(&self) -> &GpuFacts;
    /// Sizes and clock of a partition's local memory.
    fn local_memory(&self, partition: u32) -> LocalMemory;
    /// The GPU's own clock, 100 MHz on gfx9.4.3.
    fn clock_counter(&self) -> u64;
    /// How many waves the compute queues have on an XCC (logical). Nothing, if it cannot be told.
    fn occupancy(&self, xcc: u32) -> Occupancy;
    /// Whether the device has a peak tensor limiter (PTL).
    fn has_tensor_limit(&self) -> bool;
    /// Lifts it, or takes that back. `EOPNOTSUPP`: there is none.
    fn lift_tensor_limit(&self, lift: bool) -> Result;
    /// How often the GPU has slowed down for heat.
    fn throttle_count(&self) -> u64;
    /// Address swizzling parameters.
    fn tile_config(&self) -> Result<TileConfig>;
    /// The link to a peer, or `None`.
    fn xgmi_link(&self, peer: DeviceHandle) -> Option<XgmiLink>;
    /// One xGMI link, such as the one to the host.
    fn xgmi_link_bandwidth(&self) -> Result<Bandwidth>;
    /// The PCI Express link to the host.
    fn pcie_bandwidth(&self) -> Result<Bandwidth>;
    /// May the current task's device cgroup use this render node? `EPERM` if not.
    fn cgroup_permission(&self, render_minor: u32) -> Result;
}

/// Memory of the kernel's own, and doorbells.
pub(crate) trait KernelMemory {
    /// A pinned buffer, mapped for the kernel's VMID and for the CPU. `mqd`: gfx9 wants an MQD's
    /// pages after the first (its control stack) mapped with another memory type.
    fn alloc_bo(&self, size: usize, domain: Domain, mqd: bool) -> Result<RawKernelBo>;
    /// Gives it back.
    fn free_bo(&self, bo: RawKernelBo);
    /// So many counters of global wave sync (GWS): nobody else gets them until they are given back.
    fn alloc_wave_sync(&self, count: u32) -> Result<BoHandle>;
    /// Gives them back.
    fn free_wave_sync(&self, bo: BoHandle);
    /// Doorbells' pages; `map`: the kernel rings them. `ENOMEM`: others have them, without a wait.
    fn alloc_doorbells(&self, size: usize, map: bool) -> Result<RawDoorbells>;
    /// Gives them back.
    fn free_doorbells(&self, doorbells: RawDoorbells);
    /// Rings one, `offset` bytes from the first. Never sleeps. `EINVAL`: they are not mapped.
    fn ring_doorbell(&self, doorbells: &RawDoorbells, offset: u32, value: u64) -> Result;
}

/// Processes and their VMs.
pub(crate) trait Vms {
    /// For the current process. amdgpu passes `context` back with evictions.
    fn create_process(&self, context: u16) -> Result<ProcessHandle>;
    /// After all of its VMs are released.
    fn destroy_process(&self, process: ProcessHandle);
    /// Lets its buffers move. Returns whether that was so before.
    fn signal_eviction_fence(&self, process: &ProcessHandle) -> bool;
    /// Brings its buffers back and arms a new eviction fence.
    fn restore(&self, process: &ProcessHandle) -> Result;
    /// Makes the VM of an open render node of this device a compute VM.
    fn acquire_vm(&self, process: &ProcessHandle, drm_fd: i32) -> Result<VmHandle>;
    /// Lets go of the file.
    fn release_vm(&self, vm: VmHandle);
    /// The file stays for ever, and with it what is of the VM, when that is released: a buffer that
    /// could not be freed has pointers into it.
    fn keep_file(&self, vm: &VmHandle);
    /// Is `drm_fd` the file that the VM came from?
    fn vm_is_file(&self, vm: &VmHandle, drm_fd: i32) -> bool;
    /// The VM's name in interrupts and packets.
    fn pasid(&self, vm: &VmHandle) -> Result<Pasid>;
    /// The task that acquired it.
    fn vm_task(&self, vm: &VmHandle) -> VmTask;
    /// What `MAP_PROCESS` carries: the physical address of the page directory.
    fn page_directory(&self, vm: &VmHandle) -> u64;
    /// Invalidates translations on the given XCCs (logical). After an error (`ETIME`: the GPU does
    /// not answer; `EAGAIN`: it is being reset, or about to be) it may use what it had translated
    /// before.
    fn flush_tlb(&self, vm: &VmHandle, flush: TlbFlush, xcc_mask: u32) -> Result;
    /// Keeps the user's buffers where they are: all or none. `EINVAL` if one is not mapped so.
    fn get_queue_buffers(&self, vm: &VmHandle, wanted: &[QueueBuffer]) -> Result<QueueBos>;
    /// Lets them go.
    fn put_queue_buffers(&self, vm: &VmHandle, buffers: QueueBos);
}

/// Buffers of compute processes.
pub(crate) trait ProcessMemory {
    /// `flags` are the ABI's `KFD_IOC_ALLOC_MEM_FLAGS_*`. `offset` goes in for userptr and comes
    /// out for mmap. `restored`, of a checkpoint: the pages that the user's own memory shows need
    /// not be there before [`Checkpoints::trust_pages`].
    fn alloc_memory(
        &self,
        vm: &VmHandle,
        address: u64,
        size: u64,
        offset: u64,
        flags: u32,
        restored: bool,
    ) -> Result<NewMemory>;
    /// Returns the bytes of VRAM that came back. `EBUSY` while mapped to a GPU: still there. After
    /// any other error it is there, but its pages may move or go while GPUs see them. `another`:
    /// the process may have its memory by another handle, too.
    fn free_memory(&self, vm: &VmHandle, memory: &MemoryHandle, another: bool) -> Result<u64>;
    /// Maps it into this device's VM.
    fn map_memory(&self, vm: &VmHandle, memory: &MemoryHandle) -> Result;
    /// Unmaps it; the TLB is the caller's to flush.
    fn unmap_memory(&self, vm: &VmHandle, memory: &MemoryHandle) -> Result;
    /// The same of a process without queues, mapped or not, be there tables, and without a flush.
    /// `ended`: it waits for no job that never ends. `EBUSY`: a queue still uses it.
    fn unmap_memory_at_end(&self, vm: &VmHandle, memory: &MemoryHandle, ended: bool) -> Result;
    /// Ends its DMA mapping, after the TLB was flushed.
    fn dma_unmap_memory(&self, vm: &VmHandle, memory: &MemoryHandle) -> Result;
    /// Waits for page table updates. `ERESTARTSYS`: a signal, or `SIGKILL` if not `interruptible`.
    fn sync_memory(&self, memory: &MemoryHandle, interruptible: bool) -> Result;
    /// Maps a buffer in system memory for the kernel.
    fn map_kernel(&self, memory: &MemoryHandle) -> Result<(NonNull<u8>, usize)>;
    /// Ends that.
    fn unmap_kernel(&self, memory: &MemoryHandle);
    /// A buffer of another driver's, process's or API's.
    fn import_dmabuf(&self, vm: &VmHandle, fd: i32, address: u64) -> Result<NewMemory>;
    /// Returns a file descriptor of the current process.
    fn export_dmabuf(&self, memory: &MemoryHandle, flags: u32) -> Result<i32>;
    /// What a dma-buf is. Any device can be asked.
    fn dmabuf_info(&self, fd: i32) -> Result<RawDmabufInfo>;
    /// Bytes that a process may still allocate in a partition's VRAM.
    fn available_memory(&self, partition: u32) -> u64;
    /// What all processes have of the memory that they may have, for debugfs: the text's length.
    fn memory_limits(&self, text: &mut [u8]) -> usize;
}

/// How a VM's page table entries show pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageAccess {
    pub(crate) memory_type: MemoryType,
    /// They are the system's, or a GPU's.
    pub(crate) system: bool,
    /// The processor's caches are asked too.
    pub(crate) snooped: bool,
    pub(crate) writable: bool,
    pub(crate) executable: bool,
}

/// Entries of page tables that are to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntries {
    /// Of this page on.
    pub(crate) first: u64,
    pub(crate) access: PageAccess,
    /// Some may be there: the flush of the TLB that follows counts.
    pub(crate) replaces: bool,
}

/// Pages of a process's own memory in its VMs, by number (`first`, `count`), without a buffer.
pub(crate) trait SharedMemory {
    /// Locks the page tables, for `make_tables` and `map_pages`. `EBUSY`: they are out of VRAM.
    fn lock_tables(&self, vm: &VmHandle) -> Result;
    /// Unlocks them.
    fn unlock_tables(&self, vm: &VmHandle);
    /// Makes page tables for pages, at most 256, which are not mapped afterwards.
    fn make_tables(&self, vm: &VmHandle, first: u64, count: u64) -> Result;
    /// Maps as many pages as there are addresses, at most 256. With tables nothing is allocated.
    fn map_pages(&self, vm: &VmHandle, entries: NewEntries, addresses: &mut [u64]) -> Result;
    /// Waits until the page tables are as they shall be. `ETIME`: they are not, after a while.
    fn sync_tables(&self, vm: &VmHandle) -> Result;
    /// Unmaps pages, and waits; not under the tables' lock, legal under reclaim. The caller flushes
    /// the TLB. After an error (`EBUSY`: the tables are out of VRAM) they may be mapped still.
    fn unmap_pages(&self, vm: &VmHandle, first: u64, count: u64) -> Result;
    /// One part more or less has such pages: while any has, nobody has a new job in the VM.
    fn set_owes(&self, vm: &VmHandle, owes: bool);
    /// The process ends, and these pages are: they go before anybody else has a new job in the VM.
    fn note_pages(&self, vm: &VmHandle, first: u64, count: u64) -> Result;
    /// Gives system pages addresses for the device, and says whether that is to be undone.
    /// `EFAULT`: one is in the memory of a device.
    fn dma_map(&self, pfns: &[HmmPfn], addresses: &mut [u64]) -> Result<bool>;
    /// Undoes it.
    fn dma_unmap(&self, addresses: &[u64]);
    /// Whether a buffer is mapped among these pages.
    fn has_buffer(&self, vm: &VmHandle, first: u64, count: u64) -> Result<bool>;
    /// Whether a buffer that is mapped shows (`USERPTR`) any of so many of the process's pages.
    fn has_userptr(&self, vm: &VmHandle, first: u64, count: u64) -> Result<bool>;
    /// Takes bytes from what all processes may have. `ENOMEM`: there are not so many left.
    fn reserve_memory(&self, bytes: u64) -> Result;
    /// Gives them back.
    fn unreserve_memory(&self, bytes: u64);
    /// The time stamp of the youngest retry fault that is not handled yet; 0: there is none.
    fn fault_checkpoint(&self) -> u64;
    /// Whether a fault with this time stamp is not younger than that one.
    fn is_fault_before(&self, timestamp: u64, checkpoint: u64) -> bool;
    /// The next fault of that page is told of again.
    fn forget_fault(&self, page: u64, pasid: Pasid);
    /// Where the device's memory begins for it, and for those that reach it.
    fn device_memory_base(&self) -> u64;
    /// The memory partition (`Partition::mem_id`) that has this byte of VRAM, counted from its
    /// begin. `None`: there is one for all.
    fn memory_partition(&self, offset: u64) -> Option<i32>;
    /// How the device caches its own memory.
    fn local_memory_type(&self) -> MemoryType;
    /// Whether the machine may have several NUMA nodes.
    fn has_numa(&self) -> bool;
    /// How many pages move together where a user does not say, as a power of two.
    fn default_granularity(&self) -> u8;
}

/// Hardware queues and what is around them.
pub(crate) trait Hardware {
    /// Whether a copy engine can be reset alone; known once the device is up.
    fn can_reset_copy_engines(&self) -> bool;
    /// Enables a pipe's time-stamp and opcode-error interrupts.
    fn init_interrupts(&self, pipe: u32, xcc: u32) -> Result;
    /// Loads the HIQ (HSA interface queue) from its MQD, `offset` bytes into `mqd`: a whole MQD
    /// of the device's generation.
    fn load_hiq(
        &self,
        mqd: &RawKernelBo,
        offset: usize,
        position: HqdPosition,
        doorbell: DoorbellIndex,
        xcc: u32,
    ) -> Result;
    /// Takes it off, by way of the KIQ (kernel interface queue). Allocates nothing with reclaim.
    fn unmap_hiq(&self, doorbell: DoorbellIndex, xcc: u32) -> Result;
    /// `CP_IQ_WAIT_TIME2`.
    fn iq_wait_times(&self, xcc: u32) -> u32;
    /// The write that sets grace period and queue sleep in those wait times.
    fn dequeue_wait_counts(&self, wait_times: u32, sch_wave: u32, que_sleep: u32) -> RegisterWrite;
    /// Puts a watch point's address into the registers of an XCC (logical); `point`: below 4.
    /// `EINVAL`: above. No reset may run.
    fn set_watch_address(&self, point: u32, address: u64, xcc: u32) -> Result;
    /// Flushes the host data path cache: CPU writes to VRAM reach memory.
    fn flush_hdp(&self);
    /// Compute power profile off or on.
    fn set_compute_idle(&self, idle: bool);
}

/// A VMID and the process that it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VmidBinding {
    pub(crate) vmid: Vmid,
    pub(crate) pasid: Pasid,
    /// SH_MEM_CONFIG and SH_MEM_BASES.
    pub(crate) sh_mem: (u32, u32),
    pub(crate) page_directory: u64,
    /// Trap handler and its memory.
    pub(crate) trap: Option<(u64, u64)>,
}

/// What becomes of the waves of a queue that leaves the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preempt {
    /// They end by themselves first.
    Drain,
    /// They are killed.
    Reset,
    /// They are saved.
    Save,
}

/// Queues that the driver puts onto the hardware itself. None of these but those that say so may be
/// called while a reset runs.
pub(crate) trait QueueSlots {
    /// Gives a VMID to a process.
    fn bind_vmid(&self, binding: &VmidBinding, xcc_mask: u32) -> Result;
    /// Takes it back.
    fn unbind_vmid(&self, vmid: Vmid, xcc_mask: u32);
    /// Its process has its page directory elsewhere.
    fn move_page_directory(&self, vmid: Vmid, page_directory: u64, xcc_mask: u32);
    /// Kills its waves.
    fn kill_waves(&self, vmid: Vmid, xcc_mask: u32);
    /// Loads a queue into a slot of an XCC (logical), from its MQD, `offset` bytes into `mqd`.
    fn load_queue(
        &self,
        mqd: &RawKernelBo,
        offset: usize,
        position: HqdPosition,
        write_pointer: UserVa,
        xcc: u32,
    ) -> Result;
    /// Takes it off. `ETIME`: it does not stop.
    fn unload_queue(
        &self,
        mqd: &RawKernelBo,
        offset: usize,
        position: HqdPosition,
        preempt: Preempt,
        xcc: u32,
    ) -> Result;
    /// The ring of the user's queue that is in a slot, unless it is below 1 TiB.
    fn ring_in_slot(&self, position: HqdPosition, xcc: u32) -> Option<GpuVa>;
    /// Whether a queue is at work in a slot, or that cannot be found out. Allocates nothing with
    /// reclaim. It reads some fifty registers: for slots without a ring, when something hangs.
    fn slot_is_active(&self, position: HqdPosition, xcc: u32) -> bool;
    /// The registers of a slot, in ascending order. Keeps a reset from beginning itself, once it
    /// has allocated what it needs. `EIO`: one runs.
    fn slot_registers(&self, position: HqdPosition, xcc: u32) -> Result<KVec<Register>>;
    /// The registers of a copy queue of one of the device's engines, in ascending order; as
    /// `slot_registers`.
    fn sdma_registers(&self, engine: u32, queue: u32) -> Result<KVec<Register>>;
    /// The doorbell of the user's copy queue that an engine of the device has selected in a slot.
    fn copy_doorbell(&self, engine: u32, queue: u32) -> Option<u32>;
    /// Resets a copy engine: the user's queue that was on it is off then, the kernel's go on.
    /// Allocates nothing with reclaim. `EOPNOTSUPP`: the firmware cannot.
    fn reset_copy_engine(&self, engine: u32) -> Result;
    /// Resets a slot: the ring of the queue that has left it for that. `None`: none has.
    fn reset_slot(&self, position: HqdPosition, xcc: u32) -> Option<GpuVa>;
    /// Loads a copy queue; the MQD says where. Its write pointer is read from the memory of the
    /// VM's process: `EAGAIN` for a task that is neither of that process nor the kernel's own.
    fn load_sdma(
        &self,
        vm: &VmHandle,
        mqd: &RawKernelBo,
        offset: usize,
        write_pointer: UserVa,
    ) -> Result;
    /// Takes it off. `ETIME`: it does not stop.
    fn unload_sdma(&self, mqd: &RawKernelBo, offset: usize) -> Result;
}

/// Reset and power.
pub(crate) trait Power {
    /// Keeps a reset from beginning until `unlock_reset`; false if one runs, or the device was
    /// pulled out. Never sleeps.
    fn try_lock_reset(&self) -> bool;
    /// Undoes a successful `try_lock_reset`.
    fn unlock_reset(&self);
    /// Whether a reset runs, or waits for whoever keeps it from beginning: what the hardware was
    /// asked before, it does not answer any more. Never sleeps.
    fn in_reset(&self) -> bool;
    /// Whether the hardware has told of a fatal error: it does not answer until the reset that has
    /// to follow. Never sleeps.
    fn has_fatal_error(&self) -> bool;
    /// Asks for a reset of the device, later and in another context. Never sleeps.
    fn request_reset(&self);
    /// Whether amdgpu suspends or resumes it: what its memory has may be lost meanwhile, and it
    /// cannot be reset. Never sleeps.
    fn is_suspending(&self) -> bool;
    /// Whether the current task is the one in which amdgpu resets a copy engine of it that does not
    /// go on with amdgpu's own work. Never sleeps.
    fn resets_copy_engine(&self) -> bool;
    /// Whether the user wants a scheduler that hangs left as it is for now (`halt_if_hws_hang`),
    /// who may have said otherwise a moment ago.
    fn halts_on_hang(&self) -> bool;
    /// Whether the user wants processes kept apart on this partition (`enforce_isolation`): one at
    /// a time, and what it leaves in registers and LDS cleared. May change at any time.
    fn isolates(&self, partition: u32) -> bool;
    /// Has amdgpu clear and move memory again after a clear or move has failed, as in a reset.
    /// Whoever has a smaller number of [`mark_moves`](Self::mark_moves) than this returns may have
    /// lost memory in a move since. Under reclaim without `wait`; else it may sleep for some ms.
    fn heal_engines(&self, wait: bool) -> u64;
    /// The same, soon, and until it is done.
    fn heal_engines_soon(&self);
    /// What an engine has got to move until now is not the caller's, whose buffers stay where they
    /// are until this has returned. Never sleeps.
    fn mark_moves(&self) -> u64;
    /// Wakes the device and keeps it awake.
    fn power_get(&self) -> Result;
    /// Undoes a successful `power_get`.
    fn power_put(&self);
}

/// All of it: what stands under one GPU.
pub(crate) trait Kgd:
    Device
    + KernelMemory
    + Vms
    + ProcessMemory
    + Checkpoints
    + SharedMemory
    + DeviceMemory
    + Hardware
    + QueueSlots
    + Power
    + Send
    + Sync
{
}

impl<T> Kgd for T where
    T: Device
        + KernelMemory
        + Vms
        + ProcessMemory
        + Checkpoints
        + SharedMemory
        + DeviceMemory
        + Hardware
        + QueueSlots
        + Power
        + Send
        + Sync
{
}

impl RawDmabufInfo {
    /// The device whose memory it is.
    pub(crate) fn device(&self) -> Option<DeviceHandle> {
        NonNull::new(self.adev.cast()).map(DeviceHandle)
    }
}

impl GpuFacts {
    /// The graphics core's version.
    pub(crate) fn gc(&self) -> IpVersion {
        IpVersion::from_packed(self.gc_version)
    }

    /// The device's name on the PCI bus.
    #[cold]
    #[inline(never)]
    pub(crate) fn pci_name(&self) -> PciName {
        PciName {
            domain: self.pci_domain,
            bus: self.pci_bus,
            devfn: self.pci_devfn,
        }
    }

    /// How long a queue may take to leave its slot, in ms (`KFD_UNMAP_LATENCY_MS`): nine tenths of
    /// what a preemption may take, for two engines one after the other.
    pub(crate) fn unmap_latency_ms(&self) -> u32 {
        let all = self.queue_preemption_timeout_ms;
        (all - all / 10) / 2
    }

    /// The partitions there are.
    pub(crate) fn partitions(&self) -> &[Partition] {
        let count = (self.num_partitions as usize).min(self.partitions.len());
        &self.partitions[..count]
    }
}
