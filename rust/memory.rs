// SPDX-License-Identifier: GPL-2.0-only

//! Memory that a process has of a GPU: video memory, system memory, the process's own memory made
//! visible to the GPU, doorbells and a page of registers.
//!
//! One [`Buffers`] for each process and GPU owns the buffers allocated there. User space names one
//! by a [`Handle`]. The GPU whose memory it is and the GPUs that see it are different things: a
//! buffer is mapped to any of the process's GPUs, and must be unmapped from all before it can be
//! freed. Moving, evicting and pinning are amdgpu's business.
//!
//! The table's lock is held across calls into amdgpu, which sleep and reclaim memory. So nothing
//! that reclaim can end up in (the mm notifier, quiescing a process) may take it, nor may mmap.

pub(crate) mod handle;
pub(crate) mod request;
mod table;

pub(crate) use handle::Handle;

use crate::{
    gauge::{
        Gauge,
        Held, //
    },
    kgd::{
        Memory,
        Vm, //
    },
};
use kernel::{
    alloc::KVVec,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};
use request::{
    BufferRequest,
    Source, //
};
use table::{
    HandleTable,
    TablePlace, //
};

/// Buffers that user space has handles of, of all processes.
pub(crate) static BUFFERS: Gauge = Gauge::new();

/// Who owns a buffer's memory.
enum Owner {
    /// The table alone: the user may free it.
    Table(Memory),
    /// The kernel uses it as well: it stays until the process ends.
    Shared(Arc<Memory>),
    /// amdgpu has failed to free it. It keeps its pages in place no more: all that can be done with
    /// it is to free it.
    Ending(Memory),
    /// The same of what the kernel has used.
    EndingShared(Arc<Memory>),
}

impl Owner {
    /// Frees the memory, or keeps it: `EBUSY`, it is mapped to a GPU, or amdgpu has failed.
    fn free(self) -> Result<(), (Error, Self)> {
        match self {
            Owner::Table(memory) | Owner::Ending(memory) => match memory.free() {
                Ok(_) => Ok(()),
                Err((EBUSY, memory)) => Err((EBUSY, Owner::Table(memory))),
                Err((error, memory)) => Err((error, Owner::Ending(memory))),
            },
            Owner::Shared(memory) | Owner::EndingShared(memory) => Memory::free_shared(memory)
                .map_err(|(error, memory)| (error, Owner::EndingShared(memory))),
        }
    }
}

/// A buffer that user space has a handle of.
struct Buffer {
    owner: Owner,
    request: BufferRequest,
    _held: Held,
}

impl Buffer {
    fn memory(&self) -> &Memory {
        match &self.owner {
            Owner::Table(memory) | Owner::Ending(memory) => memory,
            Owner::Shared(memory) | Owner::EndingShared(memory) => memory,
        }
    }

    /// Whether it is good for anything but to be freed.
    fn is_usable(&self) -> bool {
        !matches!(self.owner, Owner::Ending(_) | Owner::EndingShared(_))
    }
}

/// The buffers of one process on one GPU.
#[pin_data]
pub(crate) struct Buffers {
    #[pin]
    table: Mutex<HandleTable<Buffer>>,
    /// Bytes of VRAM.
    vram: Atomic<u64>,
}

impl Buffers {
    /// None.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            table <- new_mutex!(HandleTable::new(), "Buffers::table"),
            vram: Atomic::new(0),
        })
    }

    /// Bytes of VRAM that they take.
    pub(crate) fn vram_usage(&self) -> u64 {
        self.vram.load(Relaxed)
    }

    /// Adds what `make` makes. Returns the low half of its handle, and what `read` reads of it.
    pub(crate) fn insert<R>(
        &self,
        request: BufferRequest,
        make: impl FnOnce() -> Result<Memory>,
        read: impl FnOnce(&Memory) -> R,
    ) -> Result<(u32, R)> {
        let mut table = self.table.lock();
        let place = table.reserve()?;
        Ok(self.fill(&mut table, (place, request), make()?, read))
    }

    /// The same with a given number. `ENOMEM`: another buffer has it, or it is too large.
    pub(crate) fn insert_at<R>(
        &self,
        number: u32,
        request: BufferRequest,
        make: impl FnOnce() -> Result<Memory>,
        read: impl FnOnce(&Memory) -> R,
    ) -> Result<R> {
        let mut table = self.table.lock();
        let place = table.reserve_at(number)?;
        Ok(self.fill(&mut table, (place, request), make()?, read).1)
    }

    fn fill<R>(
        &self,
        table: &mut HandleTable<Buffer>,
        (place, request): (TablePlace, BufferRequest),
        memory: Memory,
        read: impl FnOnce(&Memory) -> R,
    ) -> (u32, R) {
        let answer = read(&memory);
        self.vram.fetch_add(request.vram_bytes(), Relaxed);
        let buffer = Buffer {
            owner: Owner::Table(memory),
            request,
            _held: BUFFERS.hold(),
        };
        (table.fill(place, buffer), answer)
    }

    /// The numbers of all buffers.
    pub(crate) fn numbers(&self) -> Result<KVVec<u32>> {
        let table = self.table.lock();
        let mut numbers = KVVec::with_capacity(table.iter().count(), GFP_KERNEL)?;
        for (number, _) in table.numbered() {
            numbers.push(number, GFP_KERNEL)?;
        }
        Ok(numbers)
    }

    /// Unmaps a buffer from these VMs and frees it: it was made a moment ago, and nothing of the
    /// process is on a GPU. In between `let_go`, under the lock: who has mapped it for the kernel
    /// does so no more, which takes its eviction fence for good. If amdgpu does not unmap it, for a
    /// queue's sake that is not gone yet or for a signal's, it stays as it is, and the kernel's; if
    /// it does not free it, until the user does, or the process ends.
    pub(crate) fn discard<'a>(
        &self,
        number: u32,
        vms: impl Iterator<Item = &'a Arc<Vm>>,
        let_go: impl FnOnce(),
    ) {
        let mut table = self.table.lock();
        let Some((place, buffer)) = table.take(number) else {
            return;
        };
        let mut unmapped = true;
        for vm in vms {
            // `EINVAL`: it was not mapped there.
            unmapped &= matches!(vm.unmap(buffer.memory()), Ok(()) | Err(EINVAL));
        }
        let freed = match unmapped {
            true => {
                let_go();
                buffer.owner.free()
            }
            false => Err((EBUSY, buffer.owner)),
        };
        match freed {
            Ok(()) => {
                self.vram.fetch_sub(buffer.request.vram_bytes(), Relaxed);
            }
            Err((_, owner)) => {
                table.fill(place, Buffer { owner, ..buffer });
            }
        }
    }

    /// Calls `action` with a buffer's memory, under the lock. `missing`: there is no such buffer.
    pub(crate) fn with<R>(
        &self,
        handle: u32,
        missing: Error,
        action: impl FnOnce(&Memory) -> Result<R>,
    ) -> Result<R> {
        let table = self.table.lock();
        let buffer = table.get(handle).filter(|buffer| buffer.is_usable());
        action(buffer.ok_or(missing)?.memory())
    }

    /// The same for a buffer that others may be given. `EINVAL`: there is none of that handle, or
    /// it shows a device's pages. `EPERM`: it shows the user's own, which are another's once they
    /// are unmapped; who has the file is not told then. amdgpu refuses them only while the
    /// process's leader has memory (`amdgpu_ttm_tt_get_usermm`).
    pub(crate) fn with_sharable<R>(
        &self,
        handle: u32,
        action: impl FnOnce(&Memory) -> Result<R>,
    ) -> Result<R> {
        let table = self.table.lock();
        let is_memory =
            |buffer: &&Buffer| buffer.is_usable() && buffer.request.source() == Source::Memory;
        let buffer = table.get(handle).filter(is_memory).ok_or(EINVAL)?;
        if buffer.request.shows_user_pages() {
            return Err(EPERM);
        }
        action(buffer.memory())
    }

    /// Frees a buffer. `EINVAL`: there is none. `EBUSY`: it is mapped to a GPU. `EPERM`: the kernel
    /// uses it. After any other error, `EINTR` or `ENOMEM`, it can only be freed: amdgpu has taken
    /// it off the list of what it validates before it found that out. Nobody unmaps a buffer from
    /// `before` on; of that an error is the answer, and nothing is freed.
    pub(crate) fn free(&self, handle: u32, before: impl FnOnce() -> Result) -> Result {
        let mut table = self.table.lock();
        let _ = table.get(handle).ok_or(EINVAL)?;
        before()?;
        let (place, buffer) = table.take(handle).ok_or(EINVAL)?;
        let freed = match buffer.owner {
            Owner::Shared(memory) => Err((EPERM, Owner::Shared(memory))),
            owner => owner.free(),
        };
        match freed {
            Ok(()) => {
                self.vram.fetch_sub(buffer.request.vram_bytes(), Relaxed);
                Ok(())
            }
            Err((error, owner)) => {
                table.fill(place, Buffer { owner, ..buffer });
                Err(error)
            }
        }
    }

    /// A buffer for the kernel to use: from now on it stays until the process ends. `EINVAL`: there
    /// is none of that handle, it has fewer than `bytes` bytes, or it is not the kernel's to map.
    /// The caller maps it for the kernel, which takes it out of the eviction fence: what can be
    /// known here must not make that fail afterwards.
    pub(crate) fn share(&self, handle: u32, bytes: usize) -> Result<Arc<Memory>> {
        let mut table = self.table.lock();
        let buffer = table.get(handle).ok_or(EINVAL)?;
        if buffer.request.bytes() < bytes as u64 || !buffer.is_usable() {
            return Err(EINVAL);
        }
        if let Owner::Shared(memory) = &buffer.owner {
            return Ok(memory.clone());
        }
        if !buffer.request.kernel_may_map() {
            return Err(EINVAL);
        }
        let shared = kernel::sync::UniqueArc::<Memory>::new_uninit(GFP_KERNEL)?;
        let (place, buffer) = table.take(handle).ok_or(EINVAL)?;
        let memory = match buffer.owner {
            Owner::Table(memory) | Owner::Ending(memory) => Arc::from(shared.write(memory)),
            Owner::Shared(memory) | Owner::EndingShared(memory) => memory,
        };
        let owner = Owner::Shared(memory.clone());
        table.fill(place, Buffer { owner, ..buffer });
        Ok(memory)
    }

    /// Unmaps all buffers from these VMs, and frees them. The process has ended: its queues are
    /// gone.
    pub(crate) fn clear<'a, I>(&self, vms: impl Fn() -> I)
    where
        I: Iterator<Item = &'a Arc<Vm>>,
    {
        // Not under the lock: freeing takes its time, and no buffer is added any more.
        let buffers = core::mem::replace(&mut *self.table.lock(), HandleTable::new());
        for buffer in buffers.iter() {
            for vm in vms() {
                // A failure shows when it is freed.
                let _ = vm.unmap_at_end(buffer.memory(), true);
            }
        }
        self.vram.store(0, Relaxed);
    }
}

#[kernel::macros::kunit_tests(amdkfd_memory)]
mod tests {
    use super::*;
    use crate::kgd::{
        fake::Fake,
        KernelMapping, //
    };

    /// `KFD_IOC_ALLOC_MEM_FLAGS_VRAM`, `…_USERPTR`, `…_DOORBELL` and `…_AQL_QUEUE_MEM`.
    const VRAM: u32 = 1;
    const USERPTR: u32 = 4;
    const DOORBELL: u32 = 8;
    const AQL_QUEUE_MEM: u32 = 1 << 27;

    fn buffers() -> Pin<KBox<Buffers>> {
        KBox::pin_init(Buffers::new(), GFP_KERNEL).unwrap()
    }

    fn add(buffers: &Buffers, vm: &Arc<Vm>, flags: u32) -> u32 {
        let request = BufferRequest {
            address: 0x10000,
            size: 8192,
            flags,
        };
        let make = || Memory::alloc(vm.clone(), request.place(), request.size, 0, flags);
        buffers.insert(request, make, |_| ()).unwrap().0
    }

    #[test]
    fn a_mapped_buffer_keeps_its_handle() {
        let fake = Fake::new().unwrap();
        let (vm, buffers) = (fake.vm().unwrap(), buffers());
        let handle = add(&buffers, &vm, VRAM);
        buffers
            .with(handle, ENOMEM, |memory| vm.map(memory))
            .unwrap();
        assert_eq!(buffers.free(handle, || Ok(())), Err(EBUSY));
        // Nobody unmaps it any more while it is waited for, and a signal leaves it.
        let waits = || match buffers.table.try_lock() {
            Some(_) => Ok(()),
            None => Err(ERESTARTSYS),
        };
        assert_eq!(buffers.free(handle, waits), Err(ERESTARTSYS));
        assert_eq!((fake.live().memories, buffers.vram_usage()), (1, 8192));
        buffers
            .with(handle, ENOMEM, |memory| vm.unmap(memory))
            .unwrap();
        assert_eq!(buffers.free(handle, || Ok(())), Ok(()));
        assert_eq!((fake.live().memories, buffers.vram_usage()), (0, 0));
        assert_eq!(buffers.free(handle, || Ok(())), Err(EINVAL));
    }

    #[test]
    fn a_buffer_of_a_given_number_is_discarded_with_all_that_uses_it() {
        let fake = Fake::new().unwrap();
        let (vm, buffers) = (fake.vm().unwrap(), buffers());
        let request = BufferRequest {
            address: 0x10000,
            size: 8192,
            flags: VRAM,
        };
        let make = || Memory::alloc(vm.clone(), request.place(), request.size, 0, VRAM);
        assert_eq!(buffers.insert_at(3, request, make, |_| 7), Ok(7));
        assert_eq!(buffers.insert_at(3, request, make, |_| 7), Err(ENOMEM));
        assert_eq!((fake.live().memories, buffers.vram_usage()), (1, 8192));
        assert_eq!(buffers.numbers().unwrap()[..], [3]);
        buffers.with(3, EINVAL, |memory| vm.map(memory)).unwrap();
        drop(buffers.share(3, 4096).unwrap());
        assert_eq!(buffers.free(3, || Ok(())), Err(EPERM));
        buffers.discard(3, [&vm].into_iter(), || ());
        buffers.discard(3, [&vm].into_iter(), || ());
        assert_eq!((fake.live().memories, buffers.vram_usage()), (0, 0));
    }

    #[test]
    fn what_cannot_be_discarded_is_freed_later() {
        let fake = Fake::new().unwrap();
        let (vm, buffers) = (fake.vm().unwrap(), buffers());
        let mapped = || {
            let handle = add(&buffers, &vm, VRAM);
            buffers.with(handle, EINVAL, |it| vm.map(it)).unwrap();
            handle
        };
        let left = || (fake.live().memories, buffers.vram_usage());
        // A queue uses it that is not gone yet: the user's, when that is.
        let handle = mapped();
        fake.keep_mapped();
        buffers.discard(handle, [&vm].into_iter(), || ());
        assert_eq!(buffers.free(handle, || Ok(())), Err(EBUSY));
        buffers.with(handle, EINVAL, |it| vm.unmap(it)).unwrap();
        assert_eq!(buffers.free(handle, || Ok(())), Ok(()));
        // A signal, and what the kernel no longer uses.
        let (handle, page) = (mapped(), mapped());
        drop(buffers.share(page, 4096).unwrap());
        for number in [handle, page] {
            fake.interrupt_free();
            buffers.discard(number, [&vm].into_iter(), || ());
            assert_eq!(buffers.with(number, ENOMEM, |it| vm.map(it)), Err(ENOMEM));
        }
        assert_eq!((left(), buffers.numbers().unwrap().len()), ((2, 16384), 2));
        assert_eq!(buffers.free(page, || Ok(())), Ok(()));
        // And at the end of the process.
        buffers.clear(|| [&vm].into_iter());
        assert_eq!(left(), (0, 0));
    }

    #[test]
    fn what_is_left_at_the_end_needs_no_page_tables() {
        let fake = Fake::new().unwrap();
        let (vm, buffers) = (fake.vm().unwrap(), buffers());
        let handles = [add(&buffers, &vm, VRAM), add(&buffers, &vm, VRAM)];
        buffers
            .with(handles[0], ENOMEM, |memory| vm.map(memory))
            .unwrap();
        fake.put_tables_out();
        let unmapped = buffers.with(handles[0], EINVAL, |memory| vm.unmap(memory));
        assert_eq!(unmapped, Err(ENOMEM));
        buffers.clear(|| [&vm].into_iter());
        assert_eq!((fake.live().memories, fake.live().kept_files), (0, 0));
    }

    #[test]
    fn the_kernel_lets_go_of_what_no_gpu_sees() {
        let fake = Fake::new().unwrap();
        let (vm, buffers) = (fake.vm().unwrap(), buffers());
        let kernels = || {
            let page = add(&buffers, &vm, 0);
            buffers.with(page, EINVAL, |it| vm.map(it)).unwrap();
            let shared = buffers.share(page, 4096).unwrap();
            (page, Some(KernelMapping::new(shared).unwrap()))
        };
        // Buffers, those that the kernel has, and those that GPUs see with no eviction fence.
        let left = || {
            let live = fake.live();
            (live.memories, live.kernel_maps, live.lost_fences)
        };
        let (page, mut mapping) = kernels();
        buffers.discard(page, [&vm].into_iter(), || mapping = None);
        assert_eq!(left(), (0, 0, 0));
        // A queue uses it that is not gone yet: it stays the kernel's, and in its place.
        let (page, mut mapping) = kernels();
        fake.keep_mapped();
        buffers.discard(page, [&vm].into_iter(), || mapping = None);
        assert_eq!(left(), (1, 1, 0));
        buffers.with(page, EINVAL, |it| vm.unmap(it)).unwrap();
        assert_eq!(buffers.free(page, || Ok(())), Err(EPERM));
        // A signal: no GPU sees it, and it is the user's to free.
        let (freed, mut unmapped) = kernels();
        fake.interrupt_free();
        buffers.discard(freed, [&vm].into_iter(), || unmapped = None);
        assert_eq!(left(), (2, 1, 0));
        assert_eq!(buffers.free(freed, || Ok(())), Ok(()));
        drop(mapping);
        buffers.clear(|| [&vm].into_iter());
        assert_eq!(left(), (0, 0, 0));
    }

    #[test]
    fn what_could_not_be_freed_can_only_be_freed() {
        let fake = Fake::new().unwrap();
        let (vm, buffers) = (fake.vm().unwrap(), buffers());
        let handle = add(&buffers, &vm, 0);
        fake.interrupt_free();
        assert_eq!(buffers.free(handle, || Ok(())), Err(EINTR));
        let mapped = buffers.with(handle, ENOMEM, |memory| vm.map(memory));
        assert_eq!(mapped, Err(ENOMEM));
        assert_eq!(buffers.share(handle, 4096).err(), Some(EINVAL));
        assert_eq!(fake.live().memories, 1);
        assert_eq!(buffers.free(handle, || Ok(())), Ok(()));
        assert_eq!(fake.live().memories, 0);
    }

    #[test]
    fn a_devices_pages_are_not_passed_on() {
        let fake = Fake::new().unwrap();
        let (vm, buffers) = (fake.vm().unwrap(), buffers());
        let export = |handle| buffers.with_sharable(handle, |memory| memory.export_dmabuf(0));
        let handle = add(&buffers, &vm, DOORBELL);
        assert_eq!(
            (export(handle), export(handle + 1)),
            (Err(EINVAL), Err(EINVAL))
        );
        let own = add(&buffers, &vm, USERPTR);
        assert_eq!(export(own), Err(EPERM));
        buffers.free(own, || Ok(())).unwrap();
        // The next buffer of that handle is looked at anew.
        buffers.free(handle, || Ok(())).unwrap();
        assert_eq!(add(&buffers, &vm, 0), handle);
        assert_eq!(fake.live().frees_with_another, 0);
        assert!(export(handle).is_ok());
        // It waits for who has a buffer of that handle in use, so that it stays what it was.
        let other = buffers.with_sharable(handle, |_| Ok(buffers.table.try_lock().is_some()));
        assert_eq!(other, Ok(false));
        buffers.free(handle, || Ok(())).unwrap();
        assert_eq!(fake.live().frees_with_another, 1);
    }

    #[test]
    fn what_could_not_be_made_leaves_nothing_behind() {
        let fake = Fake::new().unwrap();
        let (vm, buffers) = (fake.vm().unwrap(), buffers());
        let request = BufferRequest {
            address: 0,
            size: 8192,
            flags: VRAM,
        };
        assert_eq!(
            buffers.insert(request, || Err(ENOMEM), |_| ()).err(),
            Some(ENOMEM)
        );
        assert_eq!(buffers.vram_usage(), 0);
        assert_eq!(add(&buffers, &vm, 0), 0);
    }

    #[test]
    fn a_shared_buffer_is_not_the_users_to_free() {
        let fake = Fake::new().unwrap();
        let (vm, buffers) = (fake.vm().unwrap(), buffers());
        let handle = add(&buffers, &vm, 0);
        let memory = buffers.share(handle, 8192).unwrap();
        assert!(Arc::ptr_eq(&memory, &buffers.share(handle, 4096).unwrap()));
        assert_eq!(buffers.free(handle, || Ok(())), Err(EPERM));
        buffers
            .with(handle, ENOMEM, |memory| vm.map(memory))
            .unwrap();
        buffers
            .with(handle, ENOMEM, |memory| vm.unmap(memory))
            .unwrap();
        drop(memory);
        drop(buffers);
        assert_eq!(fake.live().memories, 0);
    }

    #[test]
    fn only_the_kernels_kind_of_buffer_is_shared() {
        let fake = Fake::new().unwrap();
        let (vm, buffers) = (fake.vm().unwrap(), buffers());
        let handle = add(&buffers, &vm, USERPTR);
        assert!(buffers
            .share(handle, 4096)
            .is_err_and(|error| error == EINVAL));
        assert!(buffers
            .share(handle + 1, 4096)
            .is_err_and(|error| error == EINVAL));
        let handle = add(&buffers, &vm, 0);
        assert!(buffers
            .share(handle, 8193)
            .is_err_and(|error| error == EINVAL));
        assert_eq!(buffers.free(handle, || Ok(())), Ok(()));
    }

    #[test]
    fn an_aql_ring_is_shared_for_what_it_has() {
        let fake = Fake::new().unwrap();
        let (vm, buffers) = (fake.vm().unwrap(), buffers());
        // 8192 bytes of addresses, which show 4096 bytes twice.
        let handle = add(&buffers, &vm, AQL_QUEUE_MEM);
        assert_eq!(buffers.share(handle, 8192).err(), Some(EINVAL));
        assert_eq!(buffers.free(handle, || Ok(())), Ok(()));
        let handle = add(&buffers, &vm, AQL_QUEUE_MEM);
        assert!(buffers.share(handle, 4096).is_ok());
        assert_eq!(buffers.free(handle, || Ok(())), Err(EPERM));
    }
}
