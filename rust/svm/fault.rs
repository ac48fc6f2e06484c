// SPDX-License-Identifier: GPL-2.0-only

//! A GPU misses a page, and tries again until it has it (XNACK).

use super::{
    attributes::{
        Attributes,
        Location, //
    },
    map::{
        Place,
        Wanted, //
    },
    migrate::{
        Target,
        Why, //
    },
    page_bits::GRANULE_PAGES,
    pages::{
        Pages,
        PAGE_SHIFT, //
    },
    region::REGION_PAGES,
    Gpu, Svm,
};
use crate::{
    linux::{
        errno,
        hmm::is_heap_or_stack,
        trace, //
    },
    svm::attributes::GpuSet,
    uapi::KFD_MIGRATE_TRIGGERS_KFD_MIGRATE_TRIGGER_PAGEFAULT_GPU, //
};
use kernel::{
    mm::{
        virt::flags,
        MmWithUser,
        MmapReadGuard, //
    },
    prelude::*,
    sync::{
        atomic::ordering::{
            Acquire,
            Relaxed,
            Release, //
        },
        Arc, //
    },
};

/// A retry fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// The page that is missing.
    pub(crate) page: u64,
    /// It was to be written.
    pub(crate) write: bool,
    /// When, by the clock of the interrupt ring.
    pub(crate) timestamp: u64,
}

/// What the process has mapped at a page.
struct Mapping {
    pages: Pages,
    readable: bool,
    writable: bool,
    device: bool,
    heap_or_stack: bool,
}

impl Mapping {
    /// What is mapped at a page, if anything is.
    fn of(lock: &MmapReadGuard<'_>, page: u64) -> Option<Self> {
        // CAST: an address of this kernel's size.
        let vma = lock.vma_lookup((page << PAGE_SHIFT) as usize)?;
        Some(Self {
            pages: Pages::new(
                vma.start() as u64 >> PAGE_SHIFT,
                vma.end() as u64 >> PAGE_SHIFT,
            ),
            readable: vma.flags() & flags::READ != 0,
            writable: vma.flags() & flags::WRITE != 0,
            device: super::set::is_device_memory(vma),
            heap_or_stack: is_heap_or_stack(vma),
        })
    }
}

impl Svm {
    /// The GPU at that place of the list misses a page. After an error it must not try again: it
    /// may not have it, or there is none.
    pub(crate) fn fault(self: &Arc<Self>, index: usize, fault: Fault) -> Result {
        let gpu = self.gpus.get(index).filter(|gpu| gpu.is_supported);
        let gpu = gpu.ok_or(EFAULT)?;
        // It goes away with its process.
        let Ok(mm) = self.users_mm() else {
            return Ok(());
        };
        if self.has_ended() {
            return Ok(());
        }
        if !self.xnack() {
            return Err(EFAULT);
        }
        let served = match self.is_outdated(gpu, fault) {
            true => Err(EAGAIN),
            false => self.serve((index, gpu), fault, &mm),
        };
        let served = match served {
            // They were not said of what is there now.
            Err(error) if is_refusal(error) && self.was_unmapped(fault.page) => Err(EAGAIN),
            served => served,
        };
        let address = fault.page << PAGE_SHIFT;
        trace::svm_fault(
            self.tgid(),
            self.id_of(index),
            address,
            fault.write,
            &served,
        );
        match served {
            Err(error) if is_transient(error) => {
                pr_debug!(
                    "a fault at page {:#x} is served later: {error:?}\n",
                    fault.page
                );
                // Else amdgpu takes the next one for the same.
                if let Ok(vm) = gpu.vm() {
                    vm.forget_fault(fault.page);
                }
                Ok(())
            }
            result => {
                gpu.counters.add_fault();
                result
            }
        }
    }

    /// Notes that the faults that wait to be handled may be of pages that are taken away now.
    pub(super) fn note_checkpoints(&self) {
        for gpu in self.gpus.iter().filter(|gpu| gpu.vm().is_ok()) {
            let checkpoint = gpu.node().kgd().fault_checkpoint();
            if checkpoint != 0 {
                gpu.checkpoint.store(checkpoint, Release);
            }
        }
    }

    /// Whether a fault may be of a page that has been taken away since.
    fn is_outdated(&self, gpu: &Gpu, fault: Fault) -> bool {
        let checkpoint = gpu.checkpoint.load(Acquire);
        if checkpoint == 0 {
            return false;
        }
        let kgd = gpu.node().kgd();
        let outdated = kgd.is_fault_before(fault.timestamp, checkpoint);
        if !outdated {
            // All that come now are younger. Time stamps wrap around.
            let _ = gpu.checkpoint.cmpxchg(checkpoint, 0, Relaxed);
        }
        outdated
    }

    fn serve(
        self: &Arc<Self>,
        (index, gpu): (usize, &Gpu),
        fault: Fault,
        mm: &MmWithUser,
    ) -> Result {
        let page = fault.page;
        self.check_reach(Pages::new(page, page + 1))?;
        // A wave misses many pages at once, of which most come with the first.
        let region = self.region_of(page);
        let granule = region.as_ref().and_then(|region| region.granule(page));
        if granule.is_some_and(|granule| granule.has(index, page, fault.write)) {
            gpu.vm()?.forget_fault(page);
            return Ok(());
        }
        drop(region);
        if self.was_unmapped(page) {
            self.settle_now()?;
        }
        let known = self.book.lock().ranges.at(page);
        if known.is_none() {
            self.add_range(page, mm).inspect_err(|_| {
                let _changing = self.changing.lock();
                self.retire(page / REGION_PAGES);
            })?;
        }
        // What is gone by now was unmapped: nobody has a right to it.
        let mapping = Mapping::of(&mm.mmap_read_lock(), page);
        let Some(mapping) = mapping else {
            return Ok(());
        };
        if !mapping.readable || fault.write && !mapping.writable {
            return Err(EPERM);
        }
        let (region, granule) = self.make_granule(page, mm)?;
        let turn = granule.turn().ok_or(EAGAIN)?;
        let Some((range, attributes)) = self.book.lock().ranges.at(page) else {
            return Ok(());
        };
        if !attributes.accessible().contains(index) {
            return Err(EACCES);
        }
        if fault.write && attributes.is_read_only() {
            return Err(EPERM);
        }
        if granule.has(index, page, false) {
            gpu.vm()?.forget_fault(page);
            return Ok(());
        }
        let place = Place {
            region: &region,
            granule: &granule,
            mm,
            _turn: &turn,
        };
        let wanted = |pages| Wanted {
            pages,
            gpus: GpuSet::EMPTY.with(index),
            again: false,
        };
        let window = window(page, range, &attributes);
        let window = window.intersection(mapping.pages).ok_or(EAGAIN)?;
        let target = self.target_of_fault(index, &attributes).ok_or(EACCES)?;
        // If they cannot be moved they are used where they are.
        self.tell_fault(index, fault);
        let why = Why {
            range,
            attributes,
            trigger: KFD_MIGRATE_TRIGGERS_KFD_MIGRATE_TRIGGER_PAGEFAULT_GPU,
        };
        let moved = self.move_to(&place, window, &why, target);
        if let Err(error) = moved {
            pr_debug!("pages around {page:#x} stay where they are: {error:?}\n");
        }
        let mapped = match self.map(&place, &wanted(window)) {
            Err(error) if error == EFAULT => {
                // Others cannot be had; can this one?
                self.map(&place, &wanted(Pages::new(page, page + 1)))
            }
            result => result,
        };
        // As C: it was tried, or something was there to be moved.
        let migrated = match target {
            Target::Gpu(_) => true,
            _ => moved == Ok(true) || granule.has_blocks(),
        };
        self.tell_fault_end(index, fault, migrated);
        mapped
    }

    /// Whether a buffer shows any of these pages (`USERPTR`), on a GPU that it is mapped for.
    fn has_userptr(&self, pages: Pages) -> Result<bool> {
        for vm in self.gpus.iter().filter_map(|gpu| gpu.vm().ok()) {
            if vm.has_userptr(pages.start, pages.len())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether memory around a page was unmapped whose attributes are there still.
    fn was_unmapped(&self, page: u64) -> bool {
        let region = self.region_of(page);
        region.is_some_and(|region| region.has_unmapped())
    }

    /// A GPU uses memory of which user space has said nothing: a range around the page, with what
    /// holds then. `EFAULT`: nothing is mapped there, a device's memory, or a buffer.
    fn add_range(self: &Arc<Self>, page: u64, mm: &MmWithUser) -> Result {
        Mapping::of(&mm.mmap_read_lock(), page).ok_or(EFAULT)?;
        self.make_region(page, mm)?;
        let lock = mm.mmap_read_lock();
        let changing = self.changing.lock();
        let area = Pages::new(page, page + 1);
        if !self.settle_watched(&changing, area)? {
            return Err(EAGAIN);
        }
        // What is unmapped from here on is told of.
        let mapping = Mapping::of(&lock, page).ok_or(EFAULT)?;
        if mapping.device {
            return Err(EFAULT);
        }
        let mut attributes = self.default_attributes();
        if mapping.heap_or_stack {
            attributes.preferred = Location::System;
        }
        let around = align(page, self.granularity.min(MOST));
        let within = around.intersection(mapping.pages);
        let within = within.and_then(|within| within.intersection(self.reach));
        let within = within.ok_or(EFAULT)?;
        if self.book.lock().ranges.at(page).is_some() {
            return Ok(());
        }
        let mut gap = self.book.lock().ranges.gap(page, within);
        if self.check_buffers(gap).is_err() {
            gap = area;
            self.check_buffers(gap).map_err(|_| EFAULT)?;
        }
        if self.has_userptr(gap)? {
            // Beside what a buffer shows it is a range; what it shows has the buffer's addresses.
            gap = area;
            if self.has_userptr(gap)? {
                return Err(EFAULT);
            }
        }
        // Nobody else changes them.
        let mut book = self.book.lock();
        let plan = book.ranges.plan(gap, |_| attributes)?;
        book.ranges.commit(plan);
        Ok(())
    }
}

/// The pages of a granule, as a power of two.
const MOST: u8 = GRANULE_PAGES.trailing_zeros() as u8;

/// So many pages, as a power of two, around one.
fn align(page: u64, granularity: u8) -> Pages {
    let size = 1 << granularity.min(63);
    let start = page & !(size - 1);
    Pages::new(start, start.saturating_add(size))
}

/// The pages that are brought along with one: of the same range, as many as its granularity says.
fn window(page: u64, range: Pages, attributes: &Attributes) -> Pages {
    let around = align(page, attributes.granularity.min(MOST));
    around.intersection(range).unwrap_or(around)
}

/// Whether the GPU may not have the page.
fn is_refusal(error: Error) -> bool {
    [EACCES, EPERM].contains(&error)
}

/// Whether what failed may succeed if it is tried again.
fn is_transient(error: Error) -> bool {
    let late = errno::timer_expired();
    [EAGAIN, EBUSY, ENOMEM, EINTR, ERESTARTSYS, ESRCH, late].contains(&error)
}
