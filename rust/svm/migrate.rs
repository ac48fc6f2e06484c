// SPDX-License-Identifier: GPL-2.0-only

//! Pages go where they are used: into the memory of a GPU, and back.

use super::{
    attributes::{
        Attributes,
        Location, //
    },
    block::{
        self,
        Block,
        Mover,
        Room, //
    },
    home::{
        bring_home,
        TOO_LARGE, //
    },
    map::Place,
    page_bits::GRANULE_PAGES,
    pages::{
        Pages,
        PAGE_SHIFT, //
    },
    sleep,
    told::Told,
    Gpu, Svm,
};
use crate::{
    kgd::DevicePages,
    linux::{
        hmm,
        migrate::{
            self,
            DevicePage,
            LargePlace,
            Migration,
            PageOwner,
            Runs,
            Source,
            LARGE_PAGES, //
        },
    },
};
use kernel::{
    mm::{
        virt::{
            flags,
            VmaRef, //
        },
        MmapReadGuard, //
    },
    prelude::*,
    sync::Arc, //
};

// Who collects pages has the locks of their folios, and waits for others'. What is collected at
// once is within a granule: nobody who has a large folio's lock waits for that of another one.
const _: () = assert!(LARGE_PAGES as u64 == GRANULE_PAGES);

/// Where pages shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Where they are.
    Anywhere,
    /// In the system's memory.
    System,
    /// In that of the GPU at this place of the list.
    Gpu(usize),
}

/// Why pages move: their range and what is said of it, and `KFD_MIGRATE_TRIGGER_*`.
pub(super) struct Why {
    pub(super) range: Pages,
    pub(super) attributes: Attributes,
    pub(super) trigger: u32,
}

impl Why {
    fn locations(&self) -> (Location, Location) {
        (self.attributes.prefetch, self.attributes.preferred)
    }
}

impl Gpu {
    /// Its device pages, if it has any that pages are moved into.
    pub(super) fn memory(&self) -> Option<DevicePages> {
        let kgd = self.node().kgd();
        if kgd.facts().prefers_gtt {
            return None;
        }
        kgd.device_pages().ok()
    }

    fn owner(&self) -> Option<PageOwner> {
        Some(self.memory()?.owner)
    }

    /// The memory partition that is its own, if its device has several.
    fn memory_partition(&self) -> Option<i32> {
        let several = self.node().kgd().memory_partition(0).is_some();
        several.then(|| self.node().partition().mem_id)
    }

    /// Whether two GPUs have the same memory: partitions of a device do, unless that has several
    /// partitions, too.
    fn shares_memory(&self, other: &Gpu) -> bool {
        let same = |its: DevicePages| other.memory().is_some_and(|other| other.is(&its));
        self.memory().is_some_and(same) && self.memory_partition() == other.memory_partition()
    }

    /// Whether a page is in its memory; if `near`, in the partition that is its own.
    fn has(&self, page: DevicePage, near: bool) -> bool {
        let offset = self.memory().and_then(|memory| memory.offset_of(page.0));
        let Some(offset) = offset else {
            return false;
        };
        let own = self.memory_partition();
        !near || own.is_none() || self.node().kgd().memory_partition(offset) == own
    }
}

impl Svm {
    /// Whether two GPUs reach each other's memory.
    fn are_linked(&self, one: usize, other: usize) -> bool {
        let owner = |place: usize| self.gpus.get(place).and_then(Gpu::owner);
        one == other || owner(one).is_some_and(|owner_of_one| owner(other) == Some(owner_of_one))
    }

    /// Where pages go that a GPU has missed. `None`: it may not have them.
    pub(super) fn target_of_fault(&self, gpu: usize, attributes: &Attributes) -> Option<Target> {
        if !attributes.accessible().contains(gpu) {
            return None;
        }
        Some(match attributes.preferred {
            Location::System => Target::System,
            // CAST: a place in the list.
            Location::Gpu(place) if self.are_linked(gpu, place as usize) => {
                Target::Gpu(place as usize)
            }
            _ if attributes.access.contains(gpu) => Target::Gpu(gpu),
            _ => Target::Anywhere,
        })
    }

    /// Where pages go that are to be fetched before they are used.
    pub(super) fn target_of_prefetch(&self, to: Location, attributes: &Attributes) -> Target {
        let Location::Gpu(place) = to else {
            return Target::System;
        };
        let others = match self.xnack() {
            true => attributes.in_place,
            false => attributes.accessible(),
        };
        // CAST: a place in the list.
        let place = place as usize;
        match others.iter().all(|gpu| self.are_linked(gpu, place)) {
            true => Target::Gpu(place),
            false => Target::System,
        }
    }

    /// Moves pages of one granule, those that can be moved; whether any has moved. After an error
    /// those stay that have not been moved.
    pub(super) fn move_to(
        &self,
        place: &Place<'_>,
        pages: Pages,
        why: &Why,
        target: Target,
    ) -> Result<bool> {
        let gpu = match target {
            Target::Anywhere => return Ok(false),
            Target::System => None,
            Target::Gpu(index) => self.gpus.get(index).map(|gpu| (index, gpu)),
        };
        let memory = gpu.and_then(|(_, gpu)| gpu.memory());
        let kept = gpu.filter(|_| memory.is_some()).map(|(_, gpu)| gpu);
        let fetched = self.fetch(place, pages, why, kept)?;
        let (Some((index, gpu)), Some(memory)) = (gpu, memory) else {
            return Ok(fetched > 0);
        };
        let told = Told {
            pages,
            from: 0,
            to: self.id_of(index),
            trigger: why.trigger,
        };
        self.tell_migration(index, told, why.locations());
        let sent = self.send(place, pages, why, gpu, memory.owner);
        self.tell_migration_end(index, told, sent.map(drop));
        let sent = sent?;
        gpu.counters.add_in(sent);
        Ok(fetched + sent > 0)
    }

    /// The place in the list of the GPU whose memory a page is in. One in a partition that no GPU
    /// of the process has counts as the first's of that device.
    fn holder_of(&self, page: DevicePage) -> Option<usize> {
        let by = |near| self.gpus.iter().position(|gpu| gpu.has(page, near));
        by(true).or_else(|| by(false))
    }

    /// Brings pages into system memory, but for those in the memory of the GPU `kept`. Returns how
    /// many have moved.
    fn fetch(&self, place: &Place<'_>, pages: Pages, why: &Why, kept: Option<&Gpu>) -> Result<u32> {
        // With one GPU all that is in VRAM is in its own.
        let whole = |gpu: &Gpu| gpu.memory_partition().is_none();
        if kept.is_some_and(whole) && self.gpus.len() == 1 {
            return Ok(0);
        }
        // Nobody has pages in VRAM, and so nobody has inherited any.
        if block::BLOCKS.count() == 0 {
            return Ok(0);
        }
        let (mut result, mut moved) = (Ok(()), 0);
        for (index, gpu) in self.gpus.iter().enumerate() {
            let Some(memory) = gpu.memory() else {
                continue;
            };
            let same = |other: &Gpu| gpu.shares_memory(other);
            if self.gpus.iter().take(index).any(same) || kept.is_some_and(same) {
                continue;
            }
            let told = Told {
                pages,
                from: self.id_of(index),
                to: 0,
                trigger: why.trigger,
            };
            let (device, partition) = (gpu.node().kgd().handle(), gpu.memory_partition());
            let is_live =
                |block: &Arc<Block>| block.is_for(device, partition, pages) && block.is_live();
            // Without a block of its own pages may be here all the same: of a parent's.
            let mut begun = place.granule.blocks().iter().any(is_live);
            if begun {
                self.tell_migration(index, told, why.locations());
            }
            let mut count = 0;
            let each = each_mapping(place, pages, |lock, vma, here| {
                split_folios(place, (lock, vma), here, memory.owner, false)?;
                let bytes = here.start as usize..here.end as usize;
                let is_its = |page| match partition {
                    None => memory.holds(page),
                    Some(_) => self.holder_of(page) == Some(index),
                };
                let mut bring = |large| {
                    let migration =
                        Migration::from_device(vma, bytes.clone(), memory.owner, large)?;
                    let has_its = |source| matches!(source, Source::Device(page) if is_its(page));
                    if !(0..migration.len()).any(|index| has_its(migration.source(index))) {
                        return Ok(0);
                    }
                    if !begun {
                        begun = true;
                        self.tell_migration(index, told, why.locations());
                    }
                    bring_home(migration, is_its, false)
                };
                count += match bring(true) {
                    Err(error) if error == TOO_LARGE => {
                        split_folios(place, (lock, vma), here, memory.owner, true)?;
                        bring(false)?
                    }
                    moved => moved?,
                };
                Ok(())
            });
            if begun {
                self.tell_migration_end(index, told, each);
            }
            gpu.counters.add_out(count);
            moved += count;
            result = result.and(each);
        }
        result.map(|()| moved)
    }

    /// Moves pages of the system's into a GPU's memory. Returns how many have moved. `EAGAIN`: the
    /// machine sleeps, or is about to.
    fn send(
        &self,
        place: &Place<'_>,
        pages: Pages,
        why: &Why,
        gpu: &Gpu,
        owner: PageOwner,
    ) -> Result<u32> {
        // Until the pages are there.
        let _awake = sleep::enter()?;
        let mut is_possible = false;
        each_mapping(place, pages, |_, vma, _| {
            is_possible |= migrate::may_be_collected(vma);
            Ok(())
        })?;
        if !is_possible {
            // Nobody has to make room for nothing.
            return Ok(0);
        }
        let mover = self.mover(place, pages, why.range, gpu)?;
        mover.audience().set_locations(self.ids_at(why.locations()));
        let mut moved = 0;
        each_mapping(place, pages, |_, vma, here| {
            // Where the user wants no large pages none is made, there or on the way back.
            let large = migrate::may_be_large(vma);
            let mut runs = Runs::new(vma, here.start as usize..here.end as usize);
            while let Some(run) = runs.next_run() {
                let first = (run.start() >> PAGE_SHIFT) as u64;
                let collect = |large| Migration::from_system(run.clone(), owner, large);
                moved += mover.take(collect, first, large)?;
            }
            Ok(())
        })?;
        Ok(moved)
    }

    /// A block of the granule's that has places for pages, or a new one.
    fn mover(&self, place: &Place<'_>, pages: Pages, range: Pages, gpu: &Gpu) -> Result<Mover> {
        let (kgd, memory) = (gpu.node().kgd(), gpu.memory_partition());
        let granule = place.granule;
        {
            let mut blocks = granule.blocks();
            blocks.retain(|block| block.is_live());
            let is_its = |block: &&Arc<Block>| block.is_for(kgd.handle(), memory, pages);
            let mut fitting = blocks.iter().filter(is_its);
            if let Some(mover) = fitting.find_map(Block::enter) {
                return Ok(mover);
            }
        }
        let room = Room {
            partition: gpu.node().partition().id,
            memory,
            pages: granule.pages().intersection(range).unwrap_or(pages),
        };
        // For it others may be evicted: nothing that this needs is locked.
        let audience = self.audience(gpu);
        let mover = Block::make(kgd.clone(), room, audience, self.workers.blocks)?;
        granule.blocks().push(mover.block().clone(), GFP_KERNEL)?;
        Ok(mover)
    }
}

impl DevicePages {
    /// Whether it is the same device's.
    fn is(&self, other: &DevicePages) -> bool {
        self.first == other.first
    }

    /// Whether a device page is one of them.
    pub(super) fn holds(&self, page: DevicePage) -> bool {
        page.0
            .checked_sub(self.first.0)
            .is_some_and(|offset| offset < self.count)
    }

    /// Where a page of that number is, in bytes from the begin of the device's memory.
    pub(super) fn offset_of(&self, number: usize) -> Option<u64> {
        let offset = number.checked_sub(self.first.0)?;
        // CAST: A 64-bit kernel.
        (offset < self.count).then_some((offset as u64) << PAGE_SHIFT)
    }
}

/// The bytes of an area.
#[derive(Clone, Copy)]
struct Bytes {
    start: u64,
    end: u64,
}

/// Splits those large folios of device pages in a part of a mapping that [`Migration::from_device`]
/// leaves where they are: those that are mapped page by page, or of which not all is there, or
/// (`all`) any. One that somebody uses stays. Where HMM does not look, since nothing may be read
/// there, or pages are taken away all the time, those of the granule's own that are whole.
fn split_folios(
    place: &Place<'_>,
    (lock, vma): (&MmapReadGuard<'_>, &VmaRef),
    here: Bytes,
    owner: PageOwner,
    all: bool,
) -> Result {
    const ATTEMPTS: u32 = 3;
    /// The bytes of a large folio.
    const LARGE: u64 = (LARGE_PAGES as u64) << PAGE_SHIFT;
    if !LargePlace::is_possible() {
        return Ok(());
    }
    // CAST: at most a granule.
    let count = ((here.end - here.start) >> PAGE_SHIFT) as usize;
    let mut pfns = KVec::from_elem(0, count, GFP_KERNEL)?;
    let interval = &place.region.interval;
    // SAFETY: The region is used, and watched as long as it is; the lock is that of its process's
    // address space.
    let mut look = || unsafe {
        hmm::look(
            lock,
            (interval, interval.now()),
            here.start,
            Some(owner),
            &mut pfns,
        )
    };
    let is_readable = vma.flags() & flags::READ != 0;
    if !is_readable || !(0..ATTEMPTS).any(|_| look().is_ok()) {
        for index in 0.. {
            let Some(block) = place.granule.blocks().get(index).cloned() else {
                break;
            };
            block.split();
        }
        return Ok(());
    }
    // Pages of one folio are of the same multiple of its size.
    let mut last = None;
    for (page, pfn) in pfns.iter().enumerate() {
        if !hmm::is_there(*pfn) || !hmm::is_device_page(*pfn) {
            continue;
        }
        let begin = (here.start + ((page as u64) << PAGE_SHIFT)) & !(LARGE - 1);
        let is_whole = hmm::is_of_large_mapping(*pfn)
            && begin >= here.start
            && begin.saturating_add(LARGE) <= here.end;
        let number = hmm::page_number(*pfn);
        let folio = number / LARGE_PAGES;
        if (all || !is_whole) && last.replace(folio) != Some(folio) {
            // SAFETY: `is_device_page` has said above that it is one.
            let _ = unsafe { migrate::split(DevicePage(number)) };
        }
    }
    Ok(())
}

/// Calls `act` with each mapping in an area of pages, and the part of it that lies there. What
/// cannot be moved at all is left out. The first error counts.
fn each_mapping(
    place: &Place<'_>,
    pages: Pages,
    mut act: impl FnMut(&MmapReadGuard<'_>, &VmaRef, Bytes) -> Result,
) -> Result {
    let mut result = Ok(());
    let mut rest = pages;
    while !rest.is_empty() {
        // Each time anew: nobody has to wait for all of them.
        let lock = place.mm.mmap_read_lock();
        // CAST: an address of this kernel's size.
        let Some(vma) = lock.vma_lookup(rest.address() as usize) else {
            rest.start += 1;
            continue;
        };
        let end = (vma.end() as u64 >> PAGE_SHIFT).min(rest.end);
        let here = Bytes {
            start: rest.start << PAGE_SHIFT,
            end: end << PAGE_SHIFT,
        };
        match act(&lock, vma, here) {
            Err(error) if error != EINVAL => result = result.and(Err(error)),
            _ => (),
        }
        rest.start = end;
    }
    result
}
