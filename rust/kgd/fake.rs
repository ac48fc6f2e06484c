// SPDX-License-Identifier: GPL-2.0-only

//! A [`Kgd`](super::Kgd) without hardware, for KUnit: memory is the kernel's own, VMs and buffers
//! are bookkeeping. It counts what is out, so that a test can see that everything came back, and
//! refuses what amdgpu refuses.

mod checkpoint;
mod power;
mod shared;
mod slots;
mod vms;
mod vram;

pub(crate) use vram::Folio;

use super::{
    Bandwidth,
    BoHandle,
    Device,
    DeviceHandle,
    Domain,
    GpuFacts,
    Hardware,
    HqdPosition,
    KernelMemory,
    LocalMemory,
    MemoryContext,
    MemoryFacts,
    MemoryHandle,
    NewEntries,
    NewMemory,
    Occupancy,
    Partition,
    Power,
    Preempt,
    ProcessHandle,
    ProcessMemory,
    QueueBos,
    QueueBuffer,
    QueueSlots,
    RawDmabufInfo,
    RawDoorbells,
    RawKernelBo,
    Register,
    RegisterWrite,
    SharedMemory,
    TileConfig,
    TlbFlush,
    Vm,
    VmHandle,
    VmTask,
    VmidBinding,
    Vms,
    XgmiLink, //
};
use crate::{
    ids::{
        DoorbellIndex,
        GpuVa,
        Pasid,
        UserVa,
        Vmid, //
    },
    linux::errno,
};
use core::ptr::NonNull;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// Where the fake's buffers begin for the GPU. They never overlap.
const FIRST_GPU_VA: u64 = 0x7fff_0000_0000;

/// What is out, and what the hardware would know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) bos: u32,
    pub(crate) doorbells: u32,
    /// Bytes of the aperture that somebody has who does not give them away.
    others_doorbells: usize,
    pub(crate) processes: u32,
    pub(crate) vms: u32,
    /// Those that stay for ever.
    pub(crate) kept_files: u32,
    pub(crate) memories: u32,
    /// Buffers freed of which the process might have had another handle.
    pub(crate) frees_with_another: u32,
    /// Buffers that the kernel has mapped, and those that GPUs saw still when it let go of them.
    pub(crate) kernel_maps: u32,
    pub(crate) lost_fences: u32,
    pub(crate) queue_buffers: u32,
    pub(crate) awake: u32,
    pub(crate) reset_locks: u32,
    /// XCCs with a HIQ.
    pub(crate) hiqs: u32,
    /// How often one has taken it.
    pub(crate) hiq_loads: u32,
    /// Its slots, 8 a pipe.
    hiq_slots: u64,
    /// Doorbells rung so far.
    pub(crate) rings: u32,
    pub(crate) in_reset: bool,
    /// amdgpu has the reset lock, for something that is no reset.
    lock_held: bool,
    /// How often a reset was asked for.
    pub(crate) resets_asked: u32,
    /// amdgpu suspends or resumes it.
    suspending: bool,
    /// Whoever asks resets a copy engine for amdgpu.
    resets_copy_engine: bool,
    /// amdgpu's moves; how often its engines were to be healed soon.
    moves: power::Moves,
    heals: u32,
    /// A reset waits for the lock; a fatal error was detected.
    pub(crate) reset_waits: bool,
    pub(crate) fatal_error: bool,
    interrupts_free: bool,
    /// A buffer stays mapped.
    keeps_mapped: bool,
    /// The firmware's scheduler does not take its queue.
    refuses_hiq: bool,
    /// The user wants processes kept apart.
    pub(crate) isolates: bool,
    /// VMIDs that processes have, and the page directory that one of them was told of last.
    pub(crate) vmids: u32,
    pub(crate) moved_to: u64,
    /// Slots with queues, 8 a pipe; copy queues.
    pub(crate) slots: u64,
    /// Those of them whose ring amdgpu does not show, for it is below 1 TiB.
    low_rings: u64,
    pub(crate) copy_queues: u32,
    /// Pages that were noted as mapped when their process ended.
    pub(crate) noted_pages: u64,
    /// Parts of them with pages that are to be gone.
    pub(crate) owing: u64,
    /// The page tables are out until then; so it was.
    out_until_told: bool,
    pub(crate) was_told: bool,
    /// The task is neither the process's nor the kernel's.
    pub(crate) is_foreign: bool,
    pub(crate) last_preempt: Option<Preempt>,
    /// The slot (engine, queue, doorbell) of a copy queue that stays although firmware says that
    /// all have left.
    pub(crate) stuck_copy: Option<(u32, u32, u32)>,
    /// How often slots of copy engines were looked at, and which engines were reset alone.
    pub(crate) copy_looks: u32,
    pub(crate) copy_resets: u32,
    has_large: bool,
    pub(crate) folio: Folio,
    /// Whether pages of the user's own may not be there yet.
    distrusts: bool,
    /// Addresses of watch points.
    pub(crate) watched: [u64; 4],
    /// Bit n: waves were given n units of time to end by themselves. 0: as long as usual.
    pub(crate) graces: u32,
    /// Queues do not stop, nor are translations invalidated; they can be reset.
    pub(crate) stuck: bool,
    pub(crate) resettable: bool,
    /// Pages of shared virtual memory that VMs show, those with addresses, and bytes reserved.
    pub(crate) shared_pages: u64,
    /// How often page tables were made, how many are locked, and whether they are out of VRAM.
    pub(crate) tables_made: u32,
    pub(crate) table_locks: u32,
    pub(crate) tables_out: bool,
    /// Whoever wants to lock them waits; somebody does.
    tables_kept: bool,
    pub(crate) tables_wanted: bool,
    pub(crate) dma_pages: u64,
    pub(crate) reserved: u64,
    /// Buffers of device pages, copies from and to them, and those that were let go before they
    /// had ended: copies and queues are stuck together.
    pub(crate) vrams: u32,
    pub(crate) copies: u32,
    pub(crate) late_copies: u32,
    /// So many copies go on at a time; 0: as many as are begun.
    pub(crate) most_copies: u32,
    next_gpu_va: u64,
}

/// What the firmware's scheduler does when its doorbell rings: it gets the buffer with its queue,
/// and how far the queue is written.
pub(crate) type Firmware = fn(&Fake, NonNull<u8>, u64);

/// The firmware's scheduler.
struct FakeFirmware {
    rung: Firmware,
    /// The buffer that the HIQ was loaded from.
    memory: Option<NonNull<u8>>,
}

// SAFETY: the buffer belongs to whoever has loaded the HIQ, for as long as that rings doorbells.
unsafe impl Send for FakeFirmware {}

/// A device that is not there.
#[pin_data]
pub(crate) struct Fake {
    facts: GpuFacts,
    #[pin]
    firmware: Mutex<FakeFirmware>,
    #[pin]
    live: Mutex<Live>,
}

/// A buffer of the fake's: memory for the CPU, nothing for the GPU.
struct Bo {
    memory: VVec<u64>,
}

/// A process's buffer of the fake's.
struct FakeBuffer {
    bo: Bo,
    /// VMs that it is mapped in.
    mapped: u32,
    facts: MemoryFacts,
}

/// The facts of a small gfx9.4.3: one XCC, one partition.
fn facts() -> GpuFacts {
    let mut facts = GpuFacts {
        gc_version: 9 << 24 | 4 << 16 | 3 << 8,
        xcc_mask: 1,
        max_shader_engines: 4,
        max_sh_per_se: 1,
        max_cu_per_sh: 10,
        cu_count: 38,
        num_sdma_engines: 2,
        compute_vmid_bitmap: 0xff00,
        num_pipe_per_mec: 4,
        num_queue_per_pipe: 8,
        // The first queue of each pipe is amdgpu's.
        compute_queue_bitmap: 0xfefe_fefe,
        doorbell_address: 0x1000_0000,
        doorbell_size: 0x20_0000,
        doorbell_start_offset: 0x1000,
        // 48 bits of address, of which user space gets the lower half.
        max_pfn: 1 << 36,
        gpuvm_size: 1 << 47,
        num_partitions: 1,
        max_num_of_queues_per_device: 127,
        queue_preemption_timeout_ms: 2000,
        queue_reset: true,
        ..GpuFacts::default()
    };
    facts.partitions[0] = Partition {
        xcc_mask: 1,
        id: -1,
        mem_id: -1,
        ..Partition::default()
    };
    facts
}

impl Fake {
    /// A device with nothing out.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Self::with(|_| {})
    }

    /// Somebody has so many bytes of the doorbells' aperture, whoever wants them.
    pub(crate) fn keep_doorbells(&self, bytes: usize) {
        self.live.lock().others_doorbells = bytes;
    }

    /// The same, but for what `change` changes of its facts.
    pub(crate) fn with(change: impl FnOnce(&mut GpuFacts)) -> Result<Arc<Self>> {
        let mut facts = facts();
        change(&mut facts);
        let live = Live {
            next_gpu_va: FIRST_GPU_VA,
            ..Live::default()
        };
        let fake = pin_init!(Self {
            facts,
            firmware <- new_mutex!(FakeFirmware {
                rung: |_, _, _| (),
                memory: None,
            }),
            live <- new_mutex!(live),
        });
        Arc::pin_init(fake, GFP_KERNEL)
    }

    /// A VM of a process on the device.
    pub(crate) fn vm(self: &Arc<Self>) -> Result<Arc<Vm>> {
        let context = Arc::new(MemoryContext::new(self.clone(), 7)?, GFP_KERNEL)?;
        let vm = Vm::acquire(self.clone(), context, 3)?;
        Ok(Arc::new(vm, GFP_KERNEL)?)
    }

    /// Queues do not stop when asked, from now on, and perhaps not even when reset.
    pub(crate) fn set_stuck(&self, stuck: bool, resettable: bool) {
        let mut live = self.live.lock();
        (live.stuck, live.resettable) = (stuck, resettable);
        if !stuck {
            live.late_copies = 0;
        }
    }

    /// The page tables are out until a VM is told that it owes pages.
    pub(crate) fn set_tables_out_until_told(&self) {
        let mut live = self.live.lock();
        (live.tables_out, live.out_until_told) = (true, true);
    }

    /// So many copies go on at a time.
    pub(crate) fn set_most_copies(&self, most: u32) {
        self.live.lock().most_copies = most;
    }

    /// What is out now.
    pub(crate) fn live(&self) -> Live {
        Live {
            next_gpu_va: 0,
            ..*self.live.lock()
        }
    }

    /// The firmware's scheduler does this from now on; before, nothing.
    pub(crate) fn set_firmware(&self, rung: Firmware) {
        self.firmware.lock().rung = rung;
    }

    /// From now on the firmware's scheduler does not take its queue.
    pub(crate) fn refuse_hiq(&self) {
        self.live.lock().refuses_hiq = true;
    }
}

/// A handle to an object of the fake's.
fn own<T>(object: T) -> Result<NonNull<c_void>> {
    let raw = KBox::into_raw(KBox::new(object, GFP_KERNEL)?);
    NonNull::new(raw.cast()).ok_or(ENOMEM)
}

/// The object of a handle that is consumed.
///
/// # Safety
///
/// `handle` came from `own::<T>` and is not used again.
unsafe fn take<T>(handle: NonNull<c_void>) -> KBox<T> {
    // SAFETY: by this function's own contract.
    unsafe { KBox::from_raw(handle.as_ptr().cast()) }
}

fn new_bo(size: usize) -> Result<Bo> {
    let words = size.div_ceil(size_of::<u64>());
    Ok(Bo {
        memory: VVec::from_elem(0, words, GFP_KERNEL)?,
    })
}

fn cpu_of(bo: &mut Bo) -> NonNull<u8> {
    NonNull::new(bo.memory.as_mut_ptr().cast()).unwrap_or(NonNull::dangling())
}

impl Device for Fake {
    fn handle(&self) -> DeviceHandle {
        DeviceHandle(NonNull::from(self).cast())
    }

    fn facts(&self) -> &GpuFacts {
        &self.facts
    }

    fn local_memory(&self, _partition: u32) -> LocalMemory {
        LocalMemory::default()
    }

    fn clock_counter(&self) -> u64 {
        0
    }

    fn occupancy(&self, _: u32) -> Occupancy {
        Occupancy {
            queues: KVec::new(),
            max_waves_per_cu: 40,
        }
    }

    fn has_tensor_limit(&self) -> bool {
        false
    }

    fn lift_tensor_limit(&self, _: bool) -> Result {
        Err(errno::unsupported())
    }

    fn throttle_count(&self) -> u64 {
        0
    }

    fn tile_config(&self) -> Result<TileConfig> {
        Ok(TileConfig::default())
    }

    fn xgmi_link(&self, _peer: DeviceHandle) -> Option<XgmiLink> {
        None
    }

    fn xgmi_link_bandwidth(&self) -> Result<Bandwidth> {
        Ok(Bandwidth {
            min: 50_000,
            max: 50_000,
        })
    }

    fn pcie_bandwidth(&self) -> Result<Bandwidth> {
        Ok(Bandwidth::default())
    }

    fn cgroup_permission(&self, _render_minor: u32) -> Result {
        Ok(())
    }
}

impl KernelMemory for Fake {
    fn alloc_bo(&self, size: usize, _domain: Domain, _mqd: bool) -> Result<RawKernelBo> {
        let mut bo = new_bo(size)?;
        let cpu = cpu_of(&mut bo);
        // Not under the lock, which notifiers take.
        let bo = BoHandle(own(bo)?);
        let mut live = self.live.lock();
        let gpu_va = GpuVa::new(live.next_gpu_va).ok_or(ENOMEM)?;
        live.next_gpu_va += size.next_multiple_of(4096) as u64;
        live.bos += 1;
        Ok(RawKernelBo { bo, gpu_va, cpu })
    }

    fn free_bo(&self, bo: RawKernelBo) {
        self.live.lock().bos -= 1;
        // SAFETY: from `alloc_bo`, and consumed.
        drop(unsafe { take::<Bo>(bo.bo.0) });
    }

    fn alloc_wave_sync(&self, count: u32) -> Result<BoHandle> {
        let bo = BoHandle(own(new_bo(count as usize)?)?);
        self.live.lock().bos += 1;
        Ok(bo)
    }

    fn free_wave_sync(&self, bo: BoHandle) {
        self.live.lock().bos -= 1;
        // SAFETY: from `alloc_wave_sync`, and consumed.
        drop(unsafe { take::<Bo>(bo.0) });
    }

    fn alloc_doorbells(&self, size: usize, map: bool) -> Result<RawDoorbells> {
        let facts = &self.facts;
        let left = facts.doorbell_size - facts.doorbell_start_offset;
        if (size + self.live.lock().others_doorbells) as u64 > left {
            return Err(ENOMEM);
        }
        let mut bo = new_bo(size)?;
        let cpu = map.then_some(cpu_of(&mut bo));
        let index = DoorbellIndex::new(0x400).ok_or(EINVAL)?;
        let bo = BoHandle(own(bo)?);
        self.live.lock().doorbells += 1;
        Ok(RawDoorbells { bo, index, cpu })
    }

    fn free_doorbells(&self, doorbells: RawDoorbells) {
        self.live.lock().doorbells -= 1;
        // SAFETY: from `alloc_doorbells`, and consumed.
        drop(unsafe { take::<Bo>(doorbells.bo.0) });
    }

    fn ring_doorbell(&self, doorbells: &RawDoorbells, offset: u32, value: u64) -> Result {
        let cpu = doorbells.cpu.ok_or(EINVAL)?;
        // SAFETY: the owner checked that `offset` is aligned and lies inside.
        unsafe { cpu.add(offset as usize).cast::<u64>().write_volatile(value) };
        self.live.lock().rings += 1;
        let FakeFirmware { rung, memory } = *self.firmware.lock();
        if let Some(memory) = memory {
            rung(self, memory, value);
        }
        Ok(())
    }
}

/// # Safety
///
/// `memory` came from `alloc_memory`, is not consumed yet, and only this reference is in use.
unsafe fn buffer<'a>(memory: &MemoryHandle) -> &'a mut FakeBuffer {
    // SAFETY: by this function's own contract.
    unsafe { memory.0.cast().as_mut() }
}

impl ProcessMemory for Fake {
    fn alloc_memory(
        &self,
        _vm: &VmHandle,
        address: u64,
        size: u64,
        offset: u64,
        flags: u32,
        _restored: bool,
    ) -> Result<NewMemory> {
        let bo = new_bo(usize::try_from(size)?)?;
        let facts = MemoryFacts {
            address,
            size,
            flags,
            mmap_offset: offset,
            user_address: offset,
        };
        let mapped = 0;
        let memory = MemoryHandle(own(FakeBuffer { bo, mapped, facts })?);
        self.live.lock().memories += 1;
        Ok(NewMemory {
            memory,
            mmap_offset: offset,
            size,
        })
    }

    fn free_memory(&self, _vm: &VmHandle, memory: &MemoryHandle, another: bool) -> Result<u64> {
        let mut live = self.live.lock();
        // SAFETY: the owner's; `live` keeps others out.
        let buffer = unsafe { buffer(memory) };
        if buffer.mapped != 0 {
            return Err(EBUSY);
        }
        if core::mem::take(&mut live.interrupts_free) {
            return Err(EINTR);
        }
        live.memories -= 1;
        live.frees_with_another += u32::from(another);
        // SAFETY: from `alloc_memory`; the owner does not use it after success.
        drop(unsafe { take::<FakeBuffer>(memory.0) });
        Ok(0)
    }

    fn map_memory(&self, _vm: &VmHandle, memory: &MemoryHandle) -> Result {
        let _live = self.live.lock();
        // SAFETY: the owner's; `live` keeps others out.
        unsafe { buffer(memory) }.mapped += 1;
        Ok(())
    }

    fn unmap_memory(&self, _vm: &VmHandle, memory: &MemoryHandle) -> Result {
        let mut live = self.live.lock();
        if core::mem::take(&mut live.keeps_mapped) {
            return Err(EBUSY);
        }
        if live.tables_out {
            return Err(ENOMEM);
        }
        // SAFETY: the owner's; `live` keeps others out.
        let buffer = unsafe { buffer(memory) };
        buffer.mapped = buffer.mapped.checked_sub(1).ok_or(EINVAL)?;
        Ok(())
    }

    fn unmap_memory_at_end(&self, _: &VmHandle, memory: &MemoryHandle, _: bool) -> Result {
        let _live = self.live.lock();
        // SAFETY: the owner's; `live` keeps others out.
        let buffer = unsafe { buffer(memory) };
        buffer.mapped = buffer.mapped.saturating_sub(1);
        Ok(())
    }

    fn dma_unmap_memory(&self, _vm: &VmHandle, _memory: &MemoryHandle) -> Result {
        Ok(())
    }

    fn sync_memory(&self, _memory: &MemoryHandle, _interruptible: bool) -> Result {
        Ok(())
    }

    fn map_kernel(&self, memory: &MemoryHandle) -> Result<(NonNull<u8>, usize)> {
        self.live.lock().kernel_maps += 1;
        // SAFETY: the owner's, who does not free it meanwhile.
        let bo = &mut unsafe { buffer(memory) }.bo;
        Ok((cpu_of(bo), bo.memory.len() * size_of::<u64>()))
    }

    fn unmap_kernel(&self, memory: &MemoryHandle) {
        self.let_go(memory);
    }

    fn import_dmabuf(&self, _vm: &VmHandle, _fd: i32, _address: u64) -> Result<NewMemory> {
        Err(EINVAL)
    }

    fn export_dmabuf(&self, _memory: &MemoryHandle, _flags: u32) -> Result<i32> {
        Ok(3)
    }

    fn dmabuf_info(&self, _fd: i32) -> Result<RawDmabufInfo> {
        Err(EINVAL)
    }

    fn available_memory(&self, _partition: u32) -> u64 {
        0
    }

    fn memory_limits(&self, _text: &mut [u8]) -> usize {
        0
    }
}

impl Hardware for Fake {
    fn can_reset_copy_engines(&self) -> bool {
        self.live.lock().resettable
    }

    fn init_interrupts(&self, _pipe: u32, _xcc: u32) -> Result {
        Ok(())
    }

    fn load_hiq(
        &self,
        mqd: &RawKernelBo,
        _offset: usize,
        position: HqdPosition,
        _doorbell: DoorbellIndex,
        xcc: u32,
    ) -> Result {
        if self.live.lock().refuses_hiq {
            return Err(errno::timer_expired());
        }
        self.firmware.lock().memory = Some(mqd.cpu);
        let mut live = self.live.lock();
        live.hiq_loads += 1;
        live.hiqs |= 1u32.checked_shl(xcc).ok_or(EINVAL)?;
        live.hiq_slots |= slots::slot_bit(position);
        Ok(())
    }

    fn unmap_hiq(&self, _doorbell: DoorbellIndex, xcc: u32) -> Result {
        let mut live = self.live.lock();
        live.hiqs &= !1u32.checked_shl(xcc).ok_or(EINVAL)?;
        if live.hiqs == 0 {
            live.hiq_slots = 0;
        }
        Ok(())
    }

    fn iq_wait_times(&self, _xcc: u32) -> u32 {
        0
    }

    fn dequeue_wait_counts(
        &self,
        wait_times: u32,
        sch_wave: u32,
        _que_sleep: u32,
    ) -> RegisterWrite {
        self.live.lock().graces |= 1 << sch_wave.min(31);
        RegisterWrite {
            offset: 0,
            value: wait_times,
        }
    }

    fn set_watch_address(&self, point: u32, address: u64, _xcc: u32) -> Result {
        let mut live = self.live.lock();
        *live.watched.get_mut(point as usize).ok_or(EINVAL)? = address;
        Ok(())
    }

    fn flush_hdp(&self) {}

    fn set_compute_idle(&self, _idle: bool) {}
}
