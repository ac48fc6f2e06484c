// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Translations that a thread remembers, so that it walks the page tables once for a page. One
//! cache per thread, for all GPUs of the process; whatever drops translations
//! ([`Gmc::invalidate`](crate::gmc::Gmc::invalidate)) changes their generation, and entries of
//! another one do not count. No two GPUs have the same.

use std::cell::RefCell;

use crate::chip::Chip;
use crate::gmc::Translation;
use crate::processor::bus::Space;

/// Bytes of a remembered page.
pub const PAGE: u64 = 0x1000;
/// Addresses are 48 bits wide.
pub const VA_MASK: u64 = 0xffff_ffff_ffff;
/// Pages whose translation a thread remembers.
const ENTRIES: usize = 1024;

/// A remembered translation of a page.
#[derive(Clone, Copy)]
struct Entry {
    space: Space,
    page: u64,
    generation: u64,
    translation: Translation,
}

thread_local! {
    static TLB: RefCell<Vec<Option<Entry>>> = RefCell::new(vec![None; ENTRIES]);
}

/// Where the page of `address` leads: remembered, or what `walk` finds, which is remembered then.
/// Rules of fault injection that name addresses are looked at by every walk, so there must be one.
pub fn lookup<E>(
    chip: &Chip,
    space: Space,
    address: u64,
    walk: impl FnOnce() -> Result<Translation, E>,
) -> Result<Translation, E> {
    let page = (address & VA_MASK) / PAGE;
    let generation = chip.gmc.generation();
    let key = (space, page, generation);
    let slot = (page as usize ^ usize::from(space.vmid) << 6) % ENTRIES;
    let known = TLB
        .with_borrow(|tlb| tlb[slot])
        .filter(|it| (it.space, it.page, it.generation) == key)
        .filter(|_| !chip.inject.watches_addresses());
    if let Some(entry) = known {
        return Ok(entry.translation);
    }
    let translation = walk()?;
    let entry = Entry {
        space,
        page,
        generation,
        translation,
    };
    TLB.with_borrow_mut(|tlb| tlb[slot] = Some(entry));
    Ok(translation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, Physical};
    use crate::processor::bus::Hub;

    fn found(address: u64) -> Result<Translation, ()> {
        Ok(Translation {
            at: Physical {
                memory: Memory::Vram,
                address,
            },
            length: PAGE,
            readable: true,
            writable: true,
            executable: true,
            snooped: true,
            mtype: crate::gmc::pte::Mtype::Rw,
        })
    }

    #[test]
    fn a_page_is_walked_once_until_translations_are_dropped() {
        let rig = crate::rig::Rig::new();
        let chip = rig.model.chip();
        let space = Space {
            hub: Hub::Gc(0),
            vmid: 8,
        };
        let at = |address, walk: Result<Translation, ()>| {
            lookup(chip, space, address, || walk).map(|it| it.at.address)
        };
        assert_eq!(at(0x1234, Err(())), Err(()), "a failed walk is not kept");
        assert_eq!(at(0x1234, found(0x8000)), Ok(0x8000));
        assert_eq!(at(0x1fff, Err(())), Ok(0x8000), "the same page");
        assert_eq!(at(0x2000, Err(())), Err(()), "the next page");
        chip.gmc.invalidate();
        assert_eq!(at(0x1234, found(0x9000)), Ok(0x9000));
    }
}
