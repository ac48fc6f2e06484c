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
        Mover, //
    },
    map::Place,
    pages::{
        Pages,
        PAGE_SHIFT, //
    },
    Gpu, Svm,
};
use crate::{
    kgd::DevicePages,
    linux::migrate::{
        Migration,
        PageOwner,
        Source, //
    },
};
use kernel::prelude::*;

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

    /// Moves pages of one granule, those that can be moved. `range`: the pages around them with the
    /// same attributes. Of an error those stay that have not been moved.
    pub(super) fn move_to(
        &self,
        place: &Place<'_>,
        pages: Pages,
        range: Pages,
        target: Target,
    ) -> Result {
        match target {
            Target::Anywhere => Ok(()),
            Target::System => self.fetch(place, pages, None),
            Target::Gpu(index) => {
                let gpu = self.gpus.get(index).ok_or(EINVAL)?;
                let Some(memory) = gpu.memory() else {
                    return self.fetch(place, pages, None);
                };
                self.fetch(place, pages, Some(memory))?;
                self.send(place, pages, range, gpu, memory.owner)
            }
        }
    }

    /// Brings pages into system memory, but for those in `kept`.
    fn fetch(&self, place: &Place<'_>, pages: Pages, kept: Option<DevicePages>) -> Result {
        let is_kept = |migration: &Migration<'_>, index: u32| match migration.source(index) {
            Source::Device(page) => kept.is_some_and(|kept| kept.has(page)),
            _ => false,
        };
        // With one GPU all that is in VRAM is in its own.
        if kept.is_some() && self.gpus.len() == 1 {
            return Ok(());
        }
        let mut result = Ok(());
        for (index, gpu) in self.gpus.iter().enumerate() {
            let Some(owner) = gpu.owner() else {
                continue;
            };
            let done = |other: &Gpu| other.owner() == Some(owner);
            if self.gpus.iter().take(index).any(done) {
                continue;
            }
            let each = each_mapping(place, pages, |vma, here| {
                let bytes = here.start as usize..here.end as usize;
                let migration = Migration::from_device(vma, bytes, owner)?;
                let keeps: KVec<bool> = {
                    let mut keeps = KVec::new();
                    for index in 0..migration.len() {
                        keeps.push(is_kept(&migration, index), GFP_KERNEL)?;
                    }
                    keeps
                };
                let wanted = |index: u32| keeps.get(index as usize) == Some(&false);
                block::bring_home(migration, wanted, false).map(drop)
            });
            result = result.and(each);
        }
        result
    }

    /// Moves pages of the system's into a GPU's memory.
    fn send(
        &self,
        place: &Place<'_>,
        pages: Pages,
        range: Pages,
        gpu: &Gpu,
        owner: PageOwner,
    ) -> Result {
        let mover = self.mover(place, pages, range, gpu)?;
        each_mapping(place, pages, |vma, here| {
            let bytes = here.start as usize..here.end as usize;
            let migration = Migration::from_system(vma, bytes, owner)?;
            mover.take(migration, here.start >> PAGE_SHIFT).map(drop)
        })
    }

    /// A block of the granule's that has places for pages, or a new one.
    fn mover(&self, place: &Place<'_>, pages: Pages, range: Pages, gpu: &Gpu) -> Result<Mover> {
        let kgd = gpu.node().kgd();
        let granule = place.granule;
        {
            let mut blocks = granule.blocks();
            blocks.retain(|block| block.is_live());
            let mut fitting = blocks
                .iter()
                .filter(|block| block.is_for(kgd.handle(), pages));
            if let Some(mover) = fitting.find_map(Block::enter) {
                return Ok(mover);
            }
        }
        let around = granule.pages().intersection(range).unwrap_or(pages);
        let partition = gpu.node().partition().id;
        // For it others may be evicted: nothing that this needs is locked.
        let mover = Block::make(kgd.clone(), partition, around, self.blocks_queue)?;
        granule.blocks().push(mover.block().clone(), GFP_KERNEL)?;
        Ok(mover)
    }
}

impl DevicePages {
    /// Whether a page is one of them.
    fn has(&self, page: crate::linux::migrate::DevicePage) -> bool {
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

/// Calls `act` with each mapping in an area of pages, and the part of it that lies there. What
/// cannot be moved at all is left out. The first error counts.
fn each_mapping(
    place: &Place<'_>,
    pages: Pages,
    mut act: impl FnMut(&kernel::mm::virt::VmaRef, Bytes) -> Result,
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
        match act(vma, here) {
            Err(error) if error != EINVAL => result = result.and(Err(error)),
            _ => (),
        }
        rest.start = end;
    }
    result
}
