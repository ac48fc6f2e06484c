// SPDX-License-Identifier: GPL-2.0-only

//! What a tester sees of shared virtual memory: ranges, and where their pages are.

use super::{
    attributes::{
        Attributes,
        MAX_GPUS, //
    },
    page_bits::{
        PageBits,
        GRANULE_PAGES, //
    },
    pages::Pages,
    region::RegionUse,
    Gpu, Svm,
};
use crate::linux::{
    hmm::{
        self,
        HmmPfn, //
    },
    migrate::PageOwner,
    task::{
        is_killed,
        lock_soon,
        Patience, //
    }, //
};
use kernel::{
    fmt,
    mm::MmWithUser,
    prelude::*, //
};

/// How often pages are looked at that are taken away meanwhile.
const ATTEMPTS: u32 = 10;

/// How many pages of a range are where.
struct Places {
    system: u64,
    /// Those that could not be looked at.
    unknown: u64,
    /// In the memory of each GPU; partitions of a device have the first one's.
    vram: KVec<u64>,
    /// Those that each GPU sees.
    seen: KVec<u64>,
}

impl Svm {
    /// Shows each range, two kinds of lines of names and values, in pages: `start` with what is
    /// said of it (as `KFD_IOCTL_SVM_ATTR_*` has it) and how many pages are in system memory or in
    /// none, and then for each GPU how it may access it, what is in its VRAM, and what it sees.
    /// Nothing stops meanwhile: the sums are of different moments. What a program keeps from being
    /// looked at is unknown: it is waited for a bounded time in all. Ends early for who is killed.
    pub(crate) fn list(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patience = Patience::new();
        let mut from = 0;
        loop {
            let next = self.book.lock().ranges.next(from);
            let Some((pages, attributes)) = next else {
                return Ok(());
            };
            from = pages.end;
            let places = match self.places(pages, &patience) {
                // It ends, and has none any more.
                Err(ESRCH) => return Ok(()),
                places => places.map_err(|_| fmt::Error)?,
            };
            self.show_range(f, pages, &attributes, &places)?;
        }
    }

    fn show_range(
        &self,
        f: &mut fmt::Formatter<'_>,
        pages: Pages,
        attributes: &Attributes,
        places: &Places,
    ) -> fmt::Result {
        let (pid, start) = (self.tgid(), pages.address());
        let (prefetch, preferred) = self.ids_at((attributes.prefetch, attributes.preferred));
        let (flags, granularity) = (attributes.flags, attributes.granularity);
        let (count, system, unknown) = (pages.len(), places.system, places.unknown);
        let known = places.vram.iter().sum::<u64>() + system + unknown;
        let absent = count.saturating_sub(known);
        write!(
            f,
            "pid {pid} start {start:#x} pages {count} preferred {preferred} "
        )?;
        write!(
            f,
            "prefetch {prefetch} flags {flags:#x} granularity {granularity} "
        )?;
        writeln!(f, "system {system} absent {absent} unknown {unknown}")?;
        for (place, (vram, seen)) in places.vram.iter().zip(places.seen.iter()).enumerate() {
            let access = match () {
                () if attributes.access.contains(place) => "yes",
                () if attributes.in_place.contains(place) => "in_place",
                () => "no",
            };
            let id = self.id_of(place);
            write!(f, "pid {pid} start {start:#x} gpu_id {id} access {access} ")?;
            writeln!(f, "vram {vram} seen {seen}")?;
        }
        Ok(())
    }

    fn places(&self, pages: Pages, patience: &Patience) -> Result<Places> {
        let mut places = Places {
            system: 0,
            unknown: 0,
            vram: KVec::from_elem(0, self.gpus.len(), GFP_KERNEL)?,
            seen: KVec::from_elem(0, self.gpus.len(), GFP_KERNEL)?,
        };
        let mut pfns = KVec::from_elem(0, GRANULE_PAGES as usize, GFP_KERNEL)?;
        for piece in pages.pieces(GRANULE_PAGES) {
            if is_killed() {
                return Err(EINTR);
            }
            // Not longer than that: its last user's end is the end of the queues.
            let mm = self.users_mm()?;
            // CAST: not more than a granule has.
            let pfns = pfns.get_mut(..piece.len() as usize).ok_or(EINVAL)?;
            let Some(region) = self.region_of(piece.start) else {
                places.unknown += piece.len();
                continue;
            };
            let of = (&**mm, patience);
            if self.look_at(&mut places, &region, of, piece, pfns).is_err() {
                places.unknown += piece.len();
            }
            let Some(granule) = region.granule(piece.start) else {
                continue;
            };
            let state = granule.state();
            for (seen, view) in places.seen.iter_mut().zip(state.views.iter()) {
                let here = view.mapped.intersection(PageBits::of(piece));
                *seen += here.runs(granule.first).map(|run| run.len()).sum::<u64>();
            }
        }
        Ok(places)
    }

    /// Counts where pages of one granule are.
    fn look_at(
        &self,
        places: &mut Places,
        region: &RegionUse,
        of: (&MmWithUser, &Patience),
        pages: Pages,
        pfns: &mut [HmmPfn],
    ) -> Result {
        let mut vram = [0u64; MAX_GPUS];
        let mut system = 0;
        let mut memories = KVec::new();
        for (place, gpu) in self.gpus.iter().enumerate() {
            if let Some(memory) = gpu.memory() {
                memories.push((place, memory), GFP_KERNEL)?;
            }
        }
        // The kernel tells of the device pages of one owner at a time.
        let owner_of = |gpu: &Gpu| gpu.memory().map(|memory| memory.owner);
        for (place, gpu) in self.gpus.iter().enumerate() {
            let owner = owner_of(gpu);
            let first = place == 0;
            let known = |other: &Gpu| owner_of(other) == owner;
            if !first && self.gpus.iter().take(place).any(known) {
                continue;
            }
            self.look(region, of, pages, owner, pfns)?;
            for pfn in pfns.iter().filter(|pfn| hmm::is_there(**pfn)) {
                let number = hmm::page_number(*pfn);
                let its = memories
                    .iter()
                    .find(|(_, its)| its.offset_of(number).is_some());
                match its.and_then(|(holder, _)| vram.get_mut(*holder)) {
                    Some(count) => *count += 1,
                    // Each time the same.
                    None if first => system += 1,
                    None => (),
                }
            }
        }
        places.system += system;
        for (sum, count) in places.vram.iter_mut().zip(vram) {
            *sum += count;
        }
        Ok(())
    }

    fn look(
        &self,
        region: &RegionUse,
        (mm, patience): (&MmWithUser, &Patience),
        pages: Pages,
        owner: Option<PageOwner>,
        pfns: &mut [HmmPfn],
    ) -> Result {
        let mut result = Err(EBUSY);
        for _ in 0..ATTEMPTS {
            // SAFETY: The region is used, and watched as long as it is.
            let since = unsafe { region.interval.begin() };
            let lock = lock_soon(mm, patience).ok_or(ETIMEDOUT)?;
            pfns.fill(0);
            let at = (&region.interval, since);
            // SAFETY: As above; the lock is that of its process's address space.
            result = unsafe { hmm::look(&lock, at, pages.address(), owner, pfns) };
            if result != Err(EBUSY) {
                break;
            }
        }
        result
    }
}
