// SPDX-License-Identifier: GPL-2.0-only

//! Slots of a node's copy engines, as a set.

use crate::{
    bits::set_bits,
    gfx::SdmaPlace, //
};

/// Slots of copy engines, both counted within the node.
///
/// # Invariants
///
/// Bit n of `used` is set exactly if `engines[n]` is not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CopySlots {
    used: u32,
    /// Bit n: slot n of the engine.
    engines: [u32; Self::ENGINES],
}

impl CopySlots {
    /// As many as a device has (`AMDGPU_MAX_SDMA_INSTANCES`).
    const ENGINES: usize = 16;

    /// Changes what an engine has, and sees to the invariant. `change`: the slots, and the one.
    fn change(&mut self, place: SdmaPlace, change: impl FnOnce(u32, u32) -> u32) {
        let engine = self.engines.get_mut(place.engine as usize);
        if let Some((slots, bit)) = engine.zip(1u32.checked_shl(place.queue)) {
            *slots = change(*slots, bit);
            // INVARIANT: the bit says what the engine has now.
            self.used = self.used & !(1 << place.engine) | u32::from(*slots != 0) << place.engine;
        }
    }

    /// Adds a slot.
    pub(super) fn insert(&mut self, place: SdmaPlace) {
        self.change(place, |slots, slot| slots | slot);
    }

    /// Takes a slot out.
    pub(super) fn remove(&mut self, place: SdmaPlace) {
        self.change(place, |slots, slot| slots & !slot);
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The engines that have any.
    pub(super) fn engines(&self) -> impl Iterator<Item = u32> + '_ {
        set_bits(self.used.into())
    }

    /// The slots, engine by engine.
    pub(super) fn iter(&self) -> impl Iterator<Item = SdmaPlace> + '_ {
        self.engines().flat_map(|engine| {
            let slots = self.engines.get(engine as usize).copied();
            let slots = set_bits(slots.unwrap_or_default().into());
            slots.map(move |queue| SdmaPlace { engine, queue })
        })
    }
}

#[kernel::macros::kunit_tests(amdkfd_sched_copy_slots)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_and_go() {
        let at = |engine, queue| SdmaPlace { engine, queue };
        let mut slots = CopySlots::default();
        assert!(slots.is_empty());
        for place in [at(15, 7), at(0, 3), at(15, 0), at(16, 0), at(0, 32)] {
            slots.insert(place);
        }
        assert!(slots.iter().eq([at(0, 3), at(15, 0), at(15, 7)]));
        assert!(slots.engines().eq([0, 15]));
        slots.remove(at(0, 3));
        slots.remove(at(0, 3));
        assert!(slots.engines().eq([15]) && !slots.is_empty());
    }
}
