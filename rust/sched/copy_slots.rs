// SPDX-License-Identifier: GPL-2.0-only

//! Slots of a node's copy engines, as a set.

use crate::{
    bits::set_bits,
    gfx::SdmaPlace, //
};

/// Slots of copy engines, both counted within the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CopySlots {
    /// Bit n: slot n of the engine.
    engines: [u32; Self::ENGINES],
}

impl CopySlots {
    /// As many as a device has (`AMDGPU_MAX_SDMA_INSTANCES`).
    const ENGINES: usize = 16;

    fn engine(&mut self, place: SdmaPlace) -> Option<(&mut u32, u32)> {
        let engine = self.engines.get_mut(place.engine as usize)?;
        Some((engine, 1u32.checked_shl(place.queue)?))
    }

    /// Adds a slot.
    pub(super) fn insert(&mut self, place: SdmaPlace) {
        if let Some((engine, bit)) = self.engine(place) {
            *engine |= bit;
        }
    }

    /// Takes a slot out.
    pub(super) fn remove(&mut self, place: SdmaPlace) {
        if let Some((engine, bit)) = self.engine(place) {
            *engine &= !bit;
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The engines that have any.
    pub(super) fn engines(&self) -> impl Iterator<Item = u32> + '_ {
        let all = (0..).zip(&self.engines);
        all.filter(|(_, slots)| **slots != 0)
            .map(|(engine, _)| engine)
    }

    /// The slots, engine by engine.
    pub(super) fn iter(&self) -> impl Iterator<Item = SdmaPlace> + '_ {
        let all = (0..).zip(&self.engines);
        all.flat_map(|(engine, slots)| {
            set_bits((*slots).into()).map(move |queue| SdmaPlace { engine, queue })
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
