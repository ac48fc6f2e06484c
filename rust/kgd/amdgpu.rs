// SPDX-License-Identifier: GPL-2.0-only

//! The real [`Kgd`](super::Kgd): amdgpu, through `bridge.h`. One per device, made when amdgpu
//! brings the device up, owned by its `Gpu`.
//!
//! Every call passes pointers that came from the same bridge: the device pointer is valid until
//! `kgd2kfd_device_exit` returns, and a handle names a live object until it is consumed.

mod checkpoint;
mod power;
mod shared;
mod slots;
pub(crate) mod vram;

use self::power::Engines;
use super::{
    bindings as c,
    Bandwidth,
    BoHandle,
    Device,
    DeviceHandle,
    Domain,
    GpuFacts,
    Hardware,
    HqdPosition,
    KernelMemory,
    Kgd,
    LocalMemory,
    MemoryHandle,
    NewEntries,
    NewMemory,
    Occupancy,
    Preempt,
    ProcessHandle,
    ProcessMemory,
    QueueBos,
    QueueBuffer,
    QueueSlots,
    QueueWaves,
    RawDmabufInfo,
    RawDoorbells,
    RawKernelBo,
    Register,
    RegisterWrite,
    ResetGuard,
    SharedMemory,
    TileConfig,
    TlbFlush,
    VmHandle,
    VmTask,
    VmidBinding,
    Vms,
    XgmiLink,
    MAX_QUEUE_BUFFERS, //
};
use crate::ids::{
    DoorbellIndex,
    GpuVa,
    Pasid,
    UserVa,
    Vmid, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc, //
    },
};

/// A device of amdgpu's.
///
/// # Invariants
///
/// `adev` points to a `struct amdgpu_device` that is valid as long as this and whatever was made
/// through it.
pub(crate) struct Amdgpu {
    adev: DeviceHandle,
    facts: GpuFacts,
    /// Buffers of device pages.
    vrams: Atomic<usize>,
    engines: Engines,
}

impl Amdgpu {
    /// Copies the facts of the device.
    ///
    /// # Safety
    ///
    /// `adev` is a `struct amdgpu_device` that stays valid until the result and everything made
    /// through it is dropped. `resources` is null or a valid `struct kgd2kfd_shared_resources`.
    pub(crate) unsafe fn new(adev: NonNull<c_void>, resources: *const c_void) -> Result<Arc<Self>> {
        let mut facts = GpuFacts::default();
        // SAFETY: `adev` and `resources` by this function's contract; `facts` is ours.
        to_result(unsafe { c::bridge_facts(adev.as_ptr().cast(), resources.cast(), &mut facts) })?;
        // INVARIANT: By this function's contract `adev` stays valid for so long.
        let this = Self {
            adev: DeviceHandle(adev),
            facts,
            vrams: Atomic::new(0),
            // SAFETY: `adev` by this function's contract.
            engines: unsafe { Engines::new(adev) }?,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    fn adev(&self) -> *mut c::amdgpu_device {
        self.adev.0.as_ptr().cast()
    }
}

impl Device for Amdgpu {
    fn handle(&self) -> DeviceHandle {
        self.adev
    }

    fn facts(&self) -> &GpuFacts {
        &self.facts
    }

    fn local_memory(&self, partition: u32) -> LocalMemory {
        let mut out = LocalMemory::default();
        // SAFETY: By the type invariant, the device is valid; `out` is ours.
        unsafe { c::bridge_local_memory(self.adev(), partition, &mut out) };
        out
    }

    fn clock_counter(&self) -> u64 {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_clock_counter(self.adev()) }
    }

    fn occupancy(&self, xcc: u32) -> Occupancy {
        const MAX: usize = c::BRIDGE_MAX_QUEUES as usize;
        let mut occupancy = Occupancy {
            queues: KVec::new(),
            max_waves_per_cu: 0,
        };
        let Ok(mut found) = KVec::from_elem(c::bridge_queue_waves::default(), MAX, GFP_KERNEL)
        else {
            return occupancy;
        };
        // SAFETY: By the type invariant, the device is valid; `found` has room for as many as the
        // bridge fills.
        let told = unsafe {
            let max_waves = &raw mut occupancy.max_waves_per_cu;
            c::bridge_occupancy(self.adev(), xcc, found.as_mut_ptr(), max_waves)
        };
        let busy = found.iter().filter(|queue| told && queue.waves != 0);
        for queue in busy {
            let Some(doorbell) = DoorbellIndex::new(queue.doorbell) else {
                continue;
            };
            let waves = QueueWaves {
                doorbell,
                waves: queue.waves,
            };
            if occupancy.queues.push(waves, GFP_KERNEL).is_err() {
                break;
            }
        }
        occupancy
    }

    fn has_tensor_limit(&self) -> bool {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_has_tensor_limit(self.adev()) }
    }

    fn lift_tensor_limit(&self, lift: bool) -> Result {
        // SAFETY: By the type invariant, the device is valid.
        to_result(unsafe { c::bridge_tensor_limit(self.adev(), lift) })
    }

    fn throttle_count(&self) -> u64 {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_throttle_count(self.adev()) }
    }

    fn tile_config(&self) -> Result<TileConfig> {
        let mut out = TileConfig::default();
        // SAFETY: By the type invariant, the device is valid, `out` is ours.
        to_result(unsafe { c::bridge_tile_config(self.adev(), &mut out) })?;
        Ok(out)
    }

    fn xgmi_link(&self, peer: DeviceHandle) -> Option<XgmiLink> {
        let (mut hops, mut bandwidth) = (0, Bandwidth::default());
        let peer = peer.0.as_ptr().cast();
        // SAFETY: both devices are valid: a handle comes from a registered device, and nodes are
        // unregistered before their device goes. The out pointers are ours.
        to_result(unsafe { c::bridge_xgmi_hops(self.adev(), peer, &mut hops) }).ok()?;
        let (min, max) = (&mut bandwidth.min, &mut bandwidth.max);
        // SAFETY: as above.
        to_result(unsafe { c::bridge_xgmi_bandwidth(self.adev(), peer, min, max) }).ok()?;
        Some(XgmiLink {
            hops,
            // SAFETY: as above.
            sharing: unsafe { c::bridge_xgmi_sharing(self.adev(), peer) },
            bandwidth,
        })
    }

    fn xgmi_link_bandwidth(&self) -> Result<Bandwidth> {
        let mut bandwidth = Bandwidth::default();
        let (min, max) = (&mut bandwidth.min, &mut bandwidth.max);
        // SAFETY: By the type invariant, the device is valid. The out pointers are ours.
        to_result(unsafe { c::bridge_xgmi_link_bandwidth(self.adev(), min, max) })?;
        Ok(bandwidth)
    }

    fn pcie_bandwidth(&self) -> Result<Bandwidth> {
        let mut bandwidth = Bandwidth::default();
        let (min, max) = (&mut bandwidth.min, &mut bandwidth.max);
        // SAFETY: By the type invariant, the device is valid, the out pointers are ours.
        to_result(unsafe { c::bridge_pcie_bandwidth(self.adev(), min, max) })?;
        Ok(bandwidth)
    }

    fn cgroup_permission(&self, render_minor: u32) -> Result {
        // SAFETY: By the type invariant, the device is valid.
        to_result(unsafe { c::bridge_cgroup_permission(self.adev(), render_minor) })
    }
}

impl KernelMemory for Amdgpu {
    fn alloc_bo(&self, size: usize, domain: Domain, mqd: bool) -> Result<RawKernelBo> {
        let domain = match domain {
            Domain::Gtt => c::BRIDGE_DOMAIN_GTT,
            Domain::Vram => c::BRIDGE_DOMAIN_VRAM,
        };
        let mut out = c::bridge_kernel_bo::default();
        let size = size as u64;
        // SAFETY: By the type invariant, the device is valid, `out` is ours.
        to_result(unsafe { c::bridge_kernel_bo_alloc(self.adev(), size, domain, mqd, &mut out) })?;
        let bo = BoHandle(NonNull::new(out.bo.cast()).ok_or(ENOMEM)?);
        match (GpuVa::new(out.gpu_addr), NonNull::new(out.cpu.cast())) {
            (Some(gpu_va), Some(cpu)) => Ok(RawKernelBo { bo, gpu_va, cpu }),
            _ => {
                // SAFETY: just made, and nobody else has it.
                unsafe { c::bridge_kernel_bo_free(self.adev(), out.bo) };
                Err(EIO)
            }
        }
    }

    fn free_bo(&self, bo: RawKernelBo) {
        // SAFETY: the handle is consumed here.
        unsafe { c::bridge_kernel_bo_free(self.adev(), bo.bo.0.as_ptr().cast()) };
    }

    fn alloc_wave_sync(&self, count: u32) -> Result<BoHandle> {
        let mut out = null_mut();
        // SAFETY: By the type invariant, the device is valid, `out` is ours.
        to_result(unsafe { c::bridge_wave_sync_alloc(self.adev(), count, &mut out) })?;
        Ok(BoHandle(NonNull::new(out.cast()).ok_or(ENOMEM)?))
    }

    fn free_wave_sync(&self, bo: BoHandle) {
        // SAFETY: the handle is consumed here.
        unsafe { c::bridge_wave_sync_free(bo.0.as_ptr().cast()) };
    }

    fn alloc_doorbells(&self, size: usize, map: bool) -> Result<RawDoorbells> {
        let mut out = c::bridge_doorbells::default();
        let size = size as u64;
        // SAFETY: By the type invariant, the device is valid, `out` is ours.
        to_result(unsafe { c::bridge_doorbells_alloc(self.adev(), size, map, &mut out) })?;
        let bo = BoHandle(NonNull::new(out.bo.cast()).ok_or(ENOMEM)?);
        match DoorbellIndex::new(out.index) {
            Some(index) => Ok(RawDoorbells {
                bo,
                index,
                cpu: NonNull::new(out.cpu.cast()),
            }),
            None => {
                // SAFETY: just made, and nobody else has it.
                unsafe { c::bridge_doorbells_free(self.adev(), &mut out) };
                Err(EIO)
            }
        }
    }

    fn free_doorbells(&self, doorbells: RawDoorbells) {
        let mut raw = raw_doorbells(&doorbells);
        // SAFETY: the handle is consumed here.
        unsafe { c::bridge_doorbells_free(self.adev(), &mut raw) };
    }

    fn ring_doorbell(&self, doorbells: &RawDoorbells, offset: u32, value: u64) -> Result {
        if doorbells.cpu.is_none() {
            return Err(EINVAL);
        }
        // SAFETY: they are mapped, and the owner checked that `offset` lies inside.
        unsafe { c::bridge_doorbell_ring(&raw_doorbells(doorbells), offset, value) };
        Ok(())
    }
}

fn raw_doorbells(doorbells: &RawDoorbells) -> c::bridge_doorbells {
    c::bridge_doorbells {
        bo: doorbells.bo.0.as_ptr().cast(),
        index: doorbells.index.raw(),
        cpu: doorbells.cpu.map_or(null_mut(), |cpu| cpu.as_ptr().cast()),
    }
}

fn process(handle: &ProcessHandle) -> *mut c::bridge_process {
    handle.0.as_ptr().cast()
}

fn vm(handle: &VmHandle) -> *mut c::bridge_vm {
    handle.0.as_ptr().cast()
}

fn mem(handle: &MemoryHandle) -> *mut c::kgd_mem {
    handle.0.as_ptr().cast()
}

impl Vms for Amdgpu {
    fn create_process(&self, context: u16) -> Result<ProcessHandle> {
        let mut out = null_mut();
        // SAFETY: `out` is ours.
        to_result(unsafe { c::bridge_process_create(context, &mut out) })?;
        Ok(ProcessHandle(NonNull::new(out.cast()).ok_or(ENOMEM)?))
    }

    fn destroy_process(&self, handle: ProcessHandle) {
        // SAFETY: the handle is consumed here; its VMs are gone (trait).
        unsafe { c::bridge_process_destroy(process(&handle)) };
    }

    fn signal_eviction_fence(&self, handle: &ProcessHandle) -> bool {
        // SAFETY: By its invariant, the handle is live.
        unsafe { c::bridge_process_signal_eviction_fence(process(handle)) }
    }

    fn restore(&self, handle: &ProcessHandle) -> Result {
        // SAFETY: By its invariant, the handle is live.
        to_result(unsafe { c::bridge_process_restore(process(handle)) })
    }

    fn acquire_vm(&self, handle: &ProcessHandle, drm_fd: i32) -> Result<VmHandle> {
        let mut out = null_mut();
        let process = process(handle);
        // SAFETY: By their invariants, device and process are valid; `out` is ours; any number may
        // come as `drm_fd`.
        to_result(unsafe { c::bridge_vm_acquire(self.adev(), process, drm_fd, &mut out) })?;
        Ok(VmHandle(NonNull::new(out.cast()).ok_or(ENOMEM)?))
    }

    fn release_vm(&self, handle: VmHandle) {
        // SAFETY: the handle is consumed here.
        unsafe { c::bridge_vm_release(vm(&handle)) };
    }

    fn keep_file(&self, handle: &VmHandle) {
        // SAFETY: By its invariant, the handle is live.
        unsafe { c::bridge_vm_keep_file(vm(handle)) };
    }

    fn vm_is_file(&self, handle: &VmHandle, drm_fd: i32) -> bool {
        // SAFETY: By its invariant, the handle is live; any number may come as `drm_fd`.
        unsafe { c::bridge_vm_is_file(vm(handle), drm_fd) }
    }

    fn pasid(&self, handle: &VmHandle) -> Result<Pasid> {
        // SAFETY: By its invariant, the handle is live.
        Pasid::new(unsafe { c::bridge_vm_pasid(vm(handle)) }).ok_or(EINVAL)
    }

    fn vm_task(&self, handle: &VmHandle) -> VmTask {
        let mut task = VmTask::default();
        let name = task.name.0.as_mut_ptr();
        // SAFETY: By its invariant, the handle is live; the name has the bridge's 16 bytes.
        task.pid = unsafe { c::bridge_vm_task(vm(handle), name) };
        task
    }

    fn page_directory(&self, handle: &VmHandle) -> u64 {
        // SAFETY: By its invariant, the handle is live.
        unsafe { c::bridge_vm_page_directory(vm(handle)) }
    }

    fn flush_tlb(&self, handle: &VmHandle, flush: TlbFlush, xcc_mask: u32) -> Result {
        let flush = match flush {
            TlbFlush::Heavyweight => c::BRIDGE_TLB_HEAVYWEIGHT,
        };
        // SAFETY: By the invariants of this type and of handles, both are live.
        to_result(unsafe { c::bridge_vm_flush_tlb(self.adev(), vm(handle), flush, xcc_mask) })
    }

    fn get_queue_buffers(&self, handle: &VmHandle, wanted: &[QueueBuffer]) -> Result<QueueBos> {
        let mut places = [c::bridge_queue_buffer::default(); MAX_QUEUE_BUFFERS];
        let raw = places.get_mut(..wanted.len()).ok_or(EINVAL)?;
        for (raw, buffer) in raw.iter_mut().zip(wanted) {
            *raw = queue_buffer(buffer, null_mut());
        }
        // CAST: at most `MAX_QUEUE_BUFFERS`.
        let count = raw.len() as u32;
        // SAFETY: By its invariant, the handle is live; `raw` has `count` elements and is ours.
        to_result(unsafe { c::bridge_vm_get_queue_buffers(vm(handle), raw.as_mut_ptr(), count) })?;
        Ok(places.map(|buffer| NonNull::new(buffer.bo.cast()).map(BoHandle)))
    }

    fn put_queue_buffers(&self, handle: &VmHandle, buffers: QueueBos) {
        let mut bos = [null_mut(); MAX_QUEUE_BUFFERS];
        let mut count = 0;
        for (place, bo) in bos.iter_mut().zip(buffers.iter().flatten()) {
            *place = bo.0.as_ptr().cast();
            count += 1;
        }
        // SAFETY: By their invariants, handle and buffers are live; `bos` begins with `count`
        // buffers, whose references are consumed here, `buffers` being ours.
        unsafe { c::bridge_vm_put_queue_buffers(vm(handle), bos.as_mut_ptr(), count) };
    }
}

fn queue_buffer(buffer: &QueueBuffer, bo: *mut c::amdgpu_bo) -> c::bridge_queue_buffer {
    c::bridge_queue_buffer {
        address: buffer.address.raw(),
        size: buffer.size,
        bo,
    }
}

impl ProcessMemory for Amdgpu {
    fn alloc_memory(
        &self,
        handle: &VmHandle,
        address: u64,
        size: u64,
        mut offset: u64,
        flags: u32,
        restored: bool,
    ) -> Result<NewMemory> {
        let (vm, mut out) = (vm(handle), null_mut());
        let (place, to) = (&mut offset, &mut out);
        // SAFETY: By the invariants of this type and of handles, device and VM are live; the out
        // pointers are ours. amdgpu checks the numbers.
        to_result(unsafe {
            c::bridge_memory_alloc(self.adev(), vm, address, size, flags, restored, place, to)
        })?;
        Ok(NewMemory {
            memory: MemoryHandle(NonNull::new(out.cast()).ok_or(ENOMEM)?),
            mmap_offset: offset,
            size,
        })
    }

    fn free_memory(&self, handle: &VmHandle, memory: &MemoryHandle, another: bool) -> Result<u64> {
        let mut freed = 0;
        // SAFETY: By their invariants, device, VM and buffer are live. The owner does not use the
        // buffer after success.
        to_result(unsafe {
            c::bridge_memory_free(self.adev(), vm(handle), mem(memory), another, &mut freed)
        })?;
        Ok(freed)
    }

    fn map_memory(&self, handle: &VmHandle, memory: &MemoryHandle) -> Result {
        // SAFETY: By their invariants, device, VM and buffer are live.
        to_result(unsafe { c::bridge_memory_map(self.adev(), vm(handle), mem(memory)) })
    }

    fn unmap_memory(&self, handle: &VmHandle, memory: &MemoryHandle) -> Result {
        // SAFETY: By their invariants, device, VM and buffer are live.
        to_result(unsafe { c::bridge_memory_unmap(self.adev(), vm(handle), mem(memory)) })
    }

    fn unmap_memory_at_end(&self, handle: &VmHandle, memory: &MemoryHandle, ended: bool) -> Result {
        let (vm, memory) = (vm(handle), mem(memory));
        // SAFETY: By their invariants, device, VM and buffer are live.
        to_result(unsafe { c::bridge_memory_unmap_at_end(self.adev(), vm, memory, ended) })
    }

    fn dma_unmap_memory(&self, handle: &VmHandle, memory: &MemoryHandle) -> Result {
        // SAFETY: By their invariants, VM and buffer are live.
        to_result(unsafe { c::bridge_memory_dma_unmap(vm(handle), mem(memory)) })
    }

    fn sync_memory(&self, memory: &MemoryHandle, interruptible: bool) -> Result {
        // SAFETY: By their invariants, device and buffer are live.
        to_result(unsafe { c::bridge_memory_sync(self.adev(), mem(memory), interruptible) })
    }

    fn map_kernel(&self, memory: &MemoryHandle) -> Result<(NonNull<u8>, usize)> {
        let (mut cpu, mut size) = (null_mut(), 0);
        // SAFETY: By its invariant, the buffer is live, the out pointers are ours.
        to_result(unsafe { c::bridge_memory_map_kernel(mem(memory), &mut cpu, &mut size) })?;
        let cpu = NonNull::new(cpu.cast()).ok_or(ENOMEM)?;
        Ok((cpu, usize::try_from(size)?))
    }

    fn unmap_kernel(&self, memory: &MemoryHandle) {
        // SAFETY: By its invariant, the buffer is live.
        unsafe { c::bridge_memory_unmap_kernel(mem(memory)) };
    }

    fn import_dmabuf(&self, handle: &VmHandle, fd: i32, address: u64) -> Result<NewMemory> {
        let (vm, mut size, mut offset, mut out) = (vm(handle), 0, 0, null_mut());
        let (s, o) = (&mut size, &mut offset);
        // SAFETY: By the invariants of this type and of handles, device and VM are live; the out
        // pointers are ours. Any number may come as `fd`.
        to_result(unsafe {
            c::bridge_memory_import(self.adev(), vm, fd, address, s, o, &mut out)
        })?;
        Ok(NewMemory {
            memory: MemoryHandle(NonNull::new(out.cast()).ok_or(ENOMEM)?),
            mmap_offset: offset,
            size,
        })
    }

    fn export_dmabuf(&self, memory: &MemoryHandle, flags: u32) -> Result<i32> {
        // SAFETY: By its invariant, the buffer is live.
        let fd = unsafe { c::bridge_memory_export(mem(memory), flags) };
        to_result(fd.min(0))?;
        Ok(fd)
    }

    fn dmabuf_info(&self, fd: i32) -> Result<RawDmabufInfo> {
        let mut out = RawDmabufInfo::default();
        // SAFETY: By the type invariant, the device is valid, `out` is ours; any number may come as
        // `fd`.
        to_result(unsafe { c::bridge_dmabuf_info(self.adev(), fd, &mut out) })?;
        Ok(out)
    }

    fn available_memory(&self, partition: u32) -> u64 {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_memory_available(self.adev(), partition) }
    }

    fn memory_limits(&self, text: &mut [u8]) -> usize {
        // SAFETY: so many bytes of `text` may be written.
        unsafe { c::bridge_memory_limits(text.as_mut_ptr().cast(), text.len()) }
    }
}

impl Hardware for Amdgpu {
    fn can_reset_copy_engines(&self) -> bool {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_can_reset_sdma_engines(self.adev()) }
    }

    fn init_interrupts(&self, pipe: u32, xcc: u32) -> Result {
        // SAFETY: By the type invariant, the device is valid.
        to_result(unsafe { c::bridge_init_interrupts(self.adev(), pipe, xcc) })
    }

    fn load_hiq(
        &self,
        mqd: &RawKernelBo,
        offset: usize,
        position: HqdPosition,
        doorbell: DoorbellIndex,
        xcc: u32,
    ) -> Result {
        let HqdPosition { pipe, queue } = position;
        // SAFETY: the owner of `mqd` checked that `offset` lies inside.
        let mqd = unsafe { mqd.cpu.add(offset) }.as_ptr().cast();
        // SAFETY: By the type invariant, the device is valid; `mqd` is an MQD of the device's
        // generation (trait).
        to_result(unsafe { c::bridge_hiq_load(self.adev(), mqd, pipe, queue, doorbell.raw(), xcc) })
    }

    fn unmap_hiq(&self, doorbell: DoorbellIndex, xcc: u32) -> Result {
        // SAFETY: By the type invariant, the device is valid.
        to_result(unsafe { c::bridge_hiq_unmap(self.adev(), doorbell.raw(), xcc) })
    }

    fn iq_wait_times(&self, xcc: u32) -> u32 {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_iq_wait_times(self.adev(), xcc) }
    }

    fn dequeue_wait_counts(&self, wait_times: u32, sch_wave: u32, que_sleep: u32) -> RegisterWrite {
        let mut write = RegisterWrite {
            offset: 0,
            value: 0,
        };
        let (offset, value) = (&mut write.offset, &mut write.value);
        // SAFETY: By the type invariant, the device is valid, the out pointers are ours.
        unsafe {
            let adev = self.adev();
            c::bridge_dequeue_wait_counts(adev, wait_times, sch_wave, que_sleep, offset, value)
        };
        write
    }

    fn set_watch_address(&self, point: u32, address: u64, xcc: u32) -> Result {
        // SAFETY: By the type invariant, the device is valid.
        to_result(unsafe { c::bridge_set_watch_address(self.adev(), point, address, xcc) })
    }

    fn flush_hdp(&self) {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_flush_hdp(self.adev()) };
    }

    fn set_compute_idle(&self, idle: bool) {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_set_compute_idle(self.adev(), idle) };
    }
}

/// The registers that `read` writes to where it is told, of which it returns how many or an errno.
/// No reset begins meanwhile; what is allocated here is before. `EIO`: one runs.
fn registers(kgd: &dyn Kgd, read: impl FnOnce(*mut Register) -> c_int) -> Result<KVec<Register>> {
    let none = Register {
        offset: 0,
        value: 0,
    };
    let mut all = KVec::from_elem(none, c::BRIDGE_MAX_REGISTERS as usize, GFP_KERNEL)?;
    let count = {
        let _guard = ResetGuard::try_new(kgd)?;
        read(all.as_mut_ptr())
    };
    to_result(count.min(0))?;
    // CAST: not negative.
    all.truncate(count as usize);
    Ok(all)
}

/// The MQD at `offset`, of which the buffer's owner checked that it lies inside.
fn mqd_at(mqd: &RawKernelBo, offset: usize) -> *mut c_void {
    mqd.cpu.as_ptr().wrapping_add(offset).cast()
}
