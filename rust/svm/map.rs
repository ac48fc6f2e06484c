// SPDX-License-Identifier: GPL-2.0-only

//! Showing pages to GPUs.

use super::{
    attributes::{
        Attributes,
        GpuSet, //
    },
    granule::{
        Granule,
        Turn, //
    },
    page_bits::{
        PageBits,
        GRANULE_PAGES, //
    },
    pages::{
        Pages,
        PAGE_SHIFT, //
    },
    region::Region,
    sleep, Gpu, Svm,
};
use crate::{
    gfx::{
        Coherence,
        SystemMemory, //
    },
    ids::MemoryType,
    kgd::{
        DevicePages,
        DmaPages,
        Kgd,
        PageAccess,
        Tables,
        TlbFlush,
        Vm, //
    },
    linux::{
        hmm::{
            self,
            HmmPfn,
            Reason,
            Sequence, //
        },
        migrate::{
            self,
            DevicePage,
            PageOwner,
            LARGE_PAGES, //
        },
    },
    uapi::{
        KFD_IOCTL_SVM_FLAG_COHERENT,
        KFD_IOCTL_SVM_FLAG_EXT_COHERENT, //
    },
};
use kernel::{
    mm::{
        virt::flags,
        MmWithUser, //
    },
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};

/// How long pages are tried to be mapped that are taken away again and again
/// (`HMM_RANGE_DEFAULT_TIMEOUT`).
const PATIENCE: Delta = Delta::from_millis(1000);

/// The pages that one call to amdgpu maps: of more, up to 2 MiB, it would make an entry of a page
/// directory, which a change of one of them destroys.
const MOST_AT_A_TIME: u64 = 256;

/// What shall be shown to whom.
pub(super) struct Wanted {
    /// In one granule.
    pub(super) pages: Pages,
    /// Those that may access them by then: what the attributes say when pages are shown counts.
    pub(super) gpus: GpuSet,
    /// Those that see them see them otherwise.
    pub(super) again: bool,
}

/// Where it happens.
pub(super) struct Place<'a> {
    pub(super) region: &'a Region,
    pub(super) granule: &'a Granule,
    pub(super) mm: &'a MmWithUser,
    /// The granule's.
    pub(super) _turn: &'a Turn<'a>,
}

/// The pages of one mapping, as they were at one moment.
struct Found<'a> {
    pages: Pages,
    pfns: &'a [HmmPfn],
    /// Whose device pages may be among them.
    holders: &'a Holders,
    since: Sequence,
    writable: bool,
    /// What was said of them then. Who says something else shows them again.
    attributes: Attributes,
}

/// The GPUs of a process that have device pages.
struct Holders {
    all: KVec<Memory>,
    /// Others may have pages of the same owner: those of a hive.
    with_others: bool,
}

/// The memory of one of them.
struct Memory {
    /// Its place in the list.
    gpu: usize,
    pages: DevicePages,
    kgd: Arc<dyn Kgd>,
    /// It is one.
    whole: bool,
}

/// Where a page is: in the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    /// The place in the list of a GPU of that device.
    gpu: usize,
    /// The device's memory partition; `None`: it has one.
    partition: Option<i32>,
}

impl Holders {
    /// The place in `all` of the memory that a page is in.
    fn memory_of(&self, pfn: HmmPfn) -> Option<usize> {
        let number = hmm::page_number(pfn);
        let mut all = self.all.iter();
        all.position(|memory| memory.pages.offset_of(number).is_some())
    }

    /// How many of these pages, from the first on, are in the same memory as that.
    fn count_same(&self, pfns: &[HmmPfn]) -> usize {
        let Some(first) = pfns.first() else {
            return 0;
        };
        let memory = self.memory_of(*first);
        let place = memory.and_then(|place| self.all.get(place));
        let same = |pfn: &&HmmPfn| match place {
            // In which partition each is has to be asked.
            Some(memory) if !memory.whole => self.of(**pfn) == self.of(*first),
            _ => self.memory_of(**pfn) == memory,
        };
        pfns.iter().take_while(same).count()
    }

    /// In whose memory a page is. `None`: the system's, or one that no GPU of the process has.
    fn of(&self, pfn: HmmPfn) -> Option<Holder> {
        let number = hmm::page_number(pfn);
        self.all.iter().find_map(|memory| {
            let offset = memory.pages.offset_of(number)?;
            let partition = match memory.whole {
                true => None,
                false => memory.kgd.memory_partition(offset),
            };
            let gpu = memory.gpu;
            Some(Holder { gpu, partition })
        })
    }

    /// Whether a page is a device's that no GPU of the process has.
    fn lack(&self, pfn: HmmPfn) -> bool {
        self.with_others && self.of(pfn).is_none() && hmm::is_device_page(pfn)
    }
}

/// A run of pages, all in the memory of one GPU or the system's.
struct Run {
    pages: Pages,
    holder: Option<Holder>,
}

impl Gpu {
    /// How the GPU sees pages of the system's.
    fn access(
        &self,
        holder: Option<(&Gpu, Option<i32>)>,
        attributes: &Attributes,
        writable: bool,
    ) -> PageAccess {
        let node = self.node();
        let chip = node.generation().chip;
        let is_plain = chip.coherence == Coherence::Plain;
        let asked = match is_plain {
            true => KFD_IOCTL_SVM_FLAG_COHERENT | KFD_IOCTL_SVM_FLAG_EXT_COHERENT,
            false => KFD_IOCTL_SVM_FLAG_EXT_COHERENT,
        };
        let coherent = attributes.flags & asked != 0;
        let own = match coherent {
            true => MemoryType::CoherentlyCached,
            false if is_plain => MemoryType::ReadWrite,
            false => node.kgd().local_memory_type(),
        };
        let remote = match coherent {
            true => MemoryType::Uncached,
            false => MemoryType::NonCoherent,
        };
        // As `svm_range_get_pte_flags` has it.
        let is_near = holder.is_some_and(|(holder, partition)| self.is_near(holder, partition));
        let memory_type = match (holder, chip.system_memory) {
            (Some(_), _) if is_near => own,
            (Some(_), _) => remote,
            (None, SystemMemory::Uncached) => MemoryType::Uncached,
            (None, SystemMemory::NonCoherent) => remote,
            (None, SystemMemory::Own) if node.kgd().has_numa() => remote,
            (None, SystemMemory::Own) => own,
        };
        PageAccess {
            memory_type,
            system: holder.is_none(),
            snooped: !(is_plain && is_near) || node.facts().connected_to_cpu,
            writable: writable && !attributes.is_read_only(),
            executable: attributes.is_executable(),
        }
    }
}

impl Gpu {
    /// Whether the memory of another GPU's device is near it: it is its own, and if the device has
    /// several memory partitions, its own one.
    fn is_near(&self, other: &Gpu, partition: Option<i32>) -> bool {
        let own = self.node().partition().mem_id;
        self.node().kgd().handle() == other.node().kgd().handle()
            && partition.is_none_or(|partition| partition == own)
    }
}

impl Svm {
    /// Where a GPU's pages are, for all GPUs that reach its memory.
    fn device_addresses(&self, holder: &Gpu, pfns: &[HmmPfn]) -> Result<KVec<u64>> {
        let memory = holder.memory().ok_or(ENODEV)?;
        let base = holder.node().kgd().device_memory_base();
        let mut addresses = KVec::with_capacity(pfns.len(), GFP_KERNEL)?;
        for pfn in pfns {
            let offset = memory.offset_of(hmm::page_number(*pfn)).ok_or(EINVAL)?;
            addresses.push(base + offset, GFP_KERNEL)?;
        }
        Ok(addresses)
    }

    /// Shows pages to GPUs, those that can be had. `EFAULT`: some cannot. `EAGAIN`, `EBUSY`,
    /// `ENOMEM`: not now.
    pub(super) fn map(self: &Arc<Self>, place: &Place<'_>, wanted: &Wanted) -> Result {
        match self.map_those_there(place, wanted)?.is_empty() {
            true => Ok(()),
            false => Err(EFAULT),
        }
    }

    /// The same. Returns the pages that cannot be had.
    pub(super) fn map_those_there(
        self: &Arc<Self>,
        place: &Place<'_>,
        wanted: &Wanted,
    ) -> Result<PageBits> {
        let mut missing = PageBits::NONE;
        if wanted.gpus.is_empty() {
            return Ok(missing);
        }
        // CAST: at most a granule.
        let mut pfns = KVec::from_elem(0, wanted.pages.len() as usize, GFP_KERNEL)?;
        let mut rest = wanted.pages;
        while !rest.is_empty() {
            match self.map_some(place, wanted, rest, &mut pfns) {
                Ok(done) => rest.start = done,
                // What cannot be had, page by page: the others can.
                Err(error) if error == EFAULT => {
                    let (done, not_there) = self.map_each(place, wanted, rest, &mut pfns)?;
                    missing = missing.union(not_there);
                    rest.start = done;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(missing)
    }

    /// Shows the pages of the mapping that `pages` begin in, one by one, those that can be had.
    /// Returns where the next one begins, and those that cannot.
    fn map_each(
        self: &Arc<Self>,
        place: &Place<'_>,
        wanted: &Wanted,
        pages: Pages,
        pfns: &mut [HmmPfn],
    ) -> Result<(u64, PageBits)> {
        let end = {
            let lock = place.mm.mmap_read_lock();
            // CAST: an address of this kernel's size.
            let vma = lock.vma_lookup(pages.address() as usize);
            vma.map_or(pages.start + 1, |vma| vma.end() as u64 >> PAGE_SHIFT)
        };
        let end = end.min(pages.end);
        let mut missing = PageBits::NONE;
        for page in pages.start..end {
            let one = Pages::new(page, page + 1);
            // That is what has been tried.
            if one == pages {
                missing.insert(page);
                break;
            }
            match self.map_some(place, wanted, one, pfns) {
                Ok(_) => (),
                Err(error) if error == EFAULT => missing.insert(page),
                Err(error) => return Err(error),
            }
        }
        Ok((end, missing))
    }

    /// Shows the pages of the mapping that `pages` begin in, all of them. Returns where the next
    /// one begins. `EFAULT`: there is none, or one of them cannot be had.
    fn map_some(
        self: &Arc<Self>,
        place: &Place<'_>,
        wanted: &Wanted,
        pages: Pages,
        pfns: &mut [HmmPfn],
    ) -> Result<u64> {
        let begun = Instant::<Monotonic>::now();
        let owner = self.owner_for(wanted.gpus);
        let holders = self.holders(owner)?;
        loop {
            if self.has_ended() {
                return Err(ESRCH);
            }
            let interval = &place.region.interval;
            // SAFETY: The region is used, and watched as long as it is.
            let since = unsafe { interval.begin() };
            let lock = place.mm.mmap_read_lock();
            // Attributes of what was unmapped are not those of what is there now.
            if place.region.has_unmapped() {
                drop(lock);
                self.settle_now()?;
                if begun.elapsed() > PATIENCE {
                    return Err(EAGAIN);
                }
                continue;
            }
            let Some((range, attributes)) = self.book.lock().ranges.at(pages.start) else {
                return Ok(pages.start + 1);
            };
            // CAST: an address of this kernel's size.
            let vma = lock.vma_lookup(pages.address() as usize).ok_or(EFAULT)?;
            let end = (vma.end() as u64 >> PAGE_SHIFT)
                .min(pages.end)
                .min(range.end);
            if vma.flags() & flags::READ == 0 {
                let shown = attributes.shown_at_once(self.xnack());
                // If there are page tables one is told when they can be touched.
                if !shown.is_empty() && hmm::may_have_pages(vma) {
                    place.region.note_absent(Pages::new(pages.start, end));
                }
                return Ok(end);
            }
            let here = Pages::new(pages.start, end);
            let pfns = pfns.get_mut(..here.len() as usize).ok_or(EINVAL)?;
            let writable = vma.flags() & flags::WRITE != 0;
            let at = (interval, since);
            // SAFETY: As above; the place's region and address space are one process's.
            let fault = |owner, pfns: &mut [HmmPfn]| unsafe {
                hmm::fault(&lock, at, here.address(), writable, owner, pfns)
            };
            let mut brought = fault(owner, pfns);
            // A device page that is shared, with a child, comes home to be written; so does one of
            // a GPU that the process does not have.
            let shared = |pfn: &HmmPfn| writable && !hmm::is_writable(*pfn);
            let comes_home = |pfn: &HmmPfn| shared(pfn) || holders.lack(*pfn);
            if brought.is_ok() && owner.is_some() && pfns.iter().any(comes_home) {
                brought = fault(None, pfns);
            }
            drop(lock);
            let found = Found {
                pages: here,
                pfns,
                holders: &holders,
                since,
                writable,
                attributes,
            };
            match brought {
                Ok(()) if self.show(place, wanted, &found)? => return Ok(end),
                Err(error) if error != EBUSY => return Err(error),
                _ => (),
            }
            if begun.elapsed() > PATIENCE {
                return Err(EAGAIN);
            }
            // A copy that what is to be shown waits for may last.
            fsleep(Delta::from_nanos(50_000 + begun.elapsed().as_nanos() / 8));
        }
    }

    /// Whose device pages all these GPUs reach.
    fn owner_for(&self, gpus: GpuSet) -> Option<PageOwner> {
        let mut owners = gpus.iter().map(|place| {
            let memory = self.gpus.get(place).and_then(Gpu::memory);
            memory.map(|memory| memory.owner)
        });
        let first = owners.next()??;
        owners.all(|owner| owner == Some(first)).then_some(first)
    }

    /// The GPUs whose device pages may be found if those of `owner` stay where they are.
    fn holders(&self, owner: Option<PageOwner>) -> Result<Holders> {
        let mut holders = Holders {
            all: KVec::new(),
            with_others: false,
        };
        if owner.is_none() {
            return Ok(holders);
        }
        for (gpu, it) in self.gpus.iter().enumerate() {
            let memory = it.memory();
            if let Some(pages) = memory.filter(|memory| Some(memory.owner) == owner) {
                let kgd = it.node().kgd().clone();
                holders.with_others |= !kgd.handle().owns(pages.owner);
                let whole = kgd.memory_partition(0).is_none();
                let memory = Memory {
                    gpu,
                    pages,
                    kgd,
                    whole,
                };
                holders.all.push(memory, GFP_KERNEL)?;
            }
        }
        Ok(holders)
    }

    /// Shows pages that were found to all GPUs that shall see them. False: they have been taken
    /// away meanwhile.
    fn show(
        self: &Arc<Self>,
        place: &Place<'_>,
        wanted: &Wanted,
        found: &Found<'_>,
    ) -> Result<bool> {
        let gpus = wanted.gpus.intersection(found.attributes.accessible());
        for index in gpus.iter() {
            let Some(gpu) = self.gpus.get(index).filter(|gpu| gpu.vm().is_ok()) else {
                continue;
            };
            let todo = {
                let state = place.granule.state();
                let view = state.views.get(index).ok_or(EINVAL)?;
                let all = PageBits::of(found.pages);
                if wanted.again {
                    all
                } else {
                    all.minus(view.mapped)
                }
            };
            for run in todo.runs(place.granule.first) {
                let mut rest = run;
                while !rest.is_empty() {
                    let run = found.first_of_one_kind(rest);
                    rest.start = run.pages.end;
                    if !self.show_run(place, found, (index, gpu), &run)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Shows pages next to each other, all in one memory, to one GPU.
    fn show_run(
        self: &Arc<Self>,
        place: &Place<'_>,
        found: &Found<'_>,
        (index, gpu): (usize, &Gpu),
        run: &Run,
    ) -> Result<bool> {
        let (vm, granule) = (gpu.vm()?, place.granule);
        let pfns = found.pfns_of(run.pages).ok_or(EINVAL)?;
        let holder = match run.holder {
            Some(holder) => Some((self.gpus.get(holder.gpu).ok_or(EINVAL)?, holder.partition)),
            None => None,
        };
        let (mut dma, mut device) = match holder {
            None => (DmaPages::new(vm.clone(), pfns)?, None),
            Some((holder, _)) => {
                let addresses = self.device_addresses(holder, pfns)?;
                (DmaPages::none(vm.clone(), pfns.len())?, Some(addresses))
            }
        };
        let mut room = match dma.must_be_undone() {
            true => Some(KVec::from_elem(
                0,
                GRANULE_PAGES as usize,
                GFP_KERNEL_ACCOUNT,
            )?),
            false => None,
        };
        let access = gpu.access(holder, &found.attributes, found.writable);
        let (awake, tables) = sleep::tables(vm)?;
        // Not under the state's lock: for tables amdgpu may have to wait for others' memory.
        let made = !granule.has_tables(index);
        if made {
            tables.make(run.pages.start, 1)?;
        }
        let mut state = granule.state();
        if !place.region.interval.holds(found.since) || device.is_some() && is_leaving(pfns) {
            return Ok(false);
        }
        if holder.is_none() && access.writable {
            // SAFETY: `map_some` found them by `fault`, and nothing was taken away since: a
            // notifier that would do that waits for `state`.
            unsafe { hmm::mark_dirty(pfns) };
        }
        let bits = PageBits::of(run.pages);
        state.always = match found.attributes.is_always_mapped() {
            true => state.always.union(bits),
            false => state.always.minus(bits),
        };
        let view = state.views.get_mut(index).ok_or(EINVAL)?;
        view.has_tables |= made;
        let seen = view.mapped.union(view.stale).intersection(bits);
        let edge = view.edge(run.pages);
        // Before it is done: some of them may be, if it fails.
        view.read_only = !access.writable || view.read_only && !view.mapped.is_empty();
        view.mapped = view.mapped.union(bits);
        let addresses = match &mut device {
            Some(addresses) => &mut addresses[..],
            None => dma.addresses(),
        };
        // Until all is written, what was there before may be: then the last page may still be
        // translated together with the one behind, whose entry is what it was.
        let (before, now) = (view.joined, joined(run.pages, addresses));
        view.joined = before.union(now);
        let written = write(&tables, run.pages, access, !seen.is_empty(), addresses);
        if written.is_ok() {
            view.stale = view.stale.minus(bits);
            view.tell(vm);
            view.joined = before.minus(bits).union(edge).union(now);
        }
        view.exchange(
            (run.pages.start % GRANULE_PAGES) as usize,
            &mut dma,
            &mut room,
        );
        drop(state);
        drop(tables);
        // A copy engine's own reset waits for it, and what comes now may wait for that engine.
        drop(awake);
        let shown = written
            .and_then(|()| vm.sync_pages())
            .and_then(|()| forget_before(gpu, vm, !seen.is_empty()));
        if let Err(error) = shown {
            // Some of them are shown, perhaps: none is to be, before it is tried again.
            self.take(granule, run.pages, Reason::Other);
            if granule.is_stale(index, run.pages) {
                // The device may use what was there before.
                dma.leave();
            }
            return Err(error);
        }
        Ok(true)
    }
}

/// A GPU translates no more what was there before, if it `replaced` anything, when this returns. If
/// not, there is nothing to be flushed but what amdgpu asks for: on GC 9.4.0 in a hive the L2 may
/// have cached that there was nothing, and page tables may have moved. A reset forgets that anyway.
fn forget_before(gpu: &Gpu, vm: &Vm, replaced: bool) -> Result {
    let flushed = vm.flush_tlb(TlbFlush::Heavyweight, gpu.node().xcc_mask());
    match replaced {
        true => flushed,
        false => Ok(()),
    }
}

impl Found<'_> {
    /// What HMM says of some of them.
    fn pfns_of(&self, pages: Pages) -> Option<&[HmmPfn]> {
        // CAST: places in a granule.
        let place = pages.start.checked_sub(self.pages.start)? as usize;
        self.pfns.get(place..place + pages.len() as usize)
    }

    /// The first of these pages that are in the same memory.
    fn first_of_one_kind(&self, pages: Pages) -> Run {
        let pfns = self.pfns_of(pages).unwrap_or_default();
        let holder = pfns.first().and_then(|pfn| self.holders.of(*pfn));
        let count = self.holders.count_same(pfns).max(1) as u64;
        let pages = Pages::new(pages.start, (pages.start + count).min(pages.end));
        Run { pages, holder }
    }
}

/// Whether one of these device pages is of a large folio that is on its way to where it goes.
fn is_leaving(pfns: &[HmmPfn]) -> bool {
    let mut last = None;
    pfns.iter().any(|pfn| {
        let number = hmm::page_number(*pfn);
        let folio = number / LARGE_PAGES;
        last.replace(folio) != Some(folio) && migrate::is_leaving(DevicePage(number))
    })
}

/// Writes page table entries. `replaces`: some were there before.
fn write(
    tables: &Tables<'_>,
    pages: Pages,
    access: PageAccess,
    replaces: bool,
    addresses: &mut [u64],
) -> Result {
    for piece in pages.pieces(MOST_AT_A_TIME) {
        // CAST: a place in a granule.
        let place = (piece.start - pages.start) as usize;
        let addresses = addresses.get_mut(place..place + piece.len() as usize);
        tables.map(piece.start, access, replaces, addresses.ok_or(EINVAL)?)?;
    }
    Ok(())
}

/// Those of these pages behind which the next one lies in memory, too, and is mapped with them.
fn joined(pages: Pages, addresses: &[u64]) -> PageBits {
    let mut joined = PageBits::NONE;
    for (page, pair) in (pages.start..).zip(addresses.windows(2)) {
        if (page + 1) % MOST_AT_A_TIME != 0 && pair[0] + (1 << PAGE_SHIFT) == pair[1] {
            joined.insert(page);
        }
    }
    joined
}
