// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Address translation hub (ATHUB): which process a VMID belongs to, for translations by the host.
//! One per GPU.
//!
//! The model translates nothing through the host, so only the protocol matters: a mapping is
//! written, the hub confirms it by the VMID's bit in the status register, and the driver clears
//! that bit.

use crate::bus::Block;
use crate::chip::Chip;
use crate::preset::{ip, Generation, Preset};
use crate::registers;
use crate::regs::{moved, name_of, place, place_rows, Key, Placed, RegisterFile, RegisterInfo};

registers! {
    /// Where MI200 has the mappings.
    pub enum AthubRegister from "athub/athub_1_0" {
        /// Bit n: the mapping of VMID n has been taken. Written: bits to clear.
        ATC_VMID_PASID_MAPPING_UPDATE_STATUS = 0 @ 0x000b;
        /// Of the graphics VMIDs. `PASID` 15:0, `NO_INVALIDATION` 30, `VALID` 31.
        ATC_VMID0_PASID_MAPPING[16] = 0 @ 0x000c;
        /// Of the same VMIDs as the other hub has them (MMHUB, for the copy engines).
        ATC_VMID16_PASID_MAPPING[16] = 0 @ 0x003d;
    }
}

use AthubRegister::*;

/// Where MI300 has them (`athub_1_8_0_offset.h`), which has none for the other hub.
pub fn of_mi300() -> Vec<RegisterInfo> {
    moved::<AthubRegister>(|info| {
        let offset = info.offset + 0x33;
        (info.name != "ATC_VMID16_PASID_MAPPING").then_some(RegisterInfo { offset, ..info })
    })
}

/// The hub.
pub struct Athub {
    generation: Generation,
    bases: Vec<u32>,
    registers: RegisterFile<AthubRegister>,
}

impl Athub {
    pub fn new(preset: &Preset) -> Self {
        Self {
            generation: preset.generation,
            bases: preset.bases(ip::ATHUB, 0).to_vec(),
            registers: RegisterFile::new(),
        }
    }
}

impl Block for Athub {
    fn name(&self) -> String {
        "ATHUB".into()
    }

    fn registers(&self) -> Vec<Placed> {
        match self.generation {
            Generation::Mi300 => place_rows(&of_mi300(), &self.bases),
            Generation::Mi200 => place::<AthubRegister>(&self.bases),
        }
    }

    fn register_name(&self, key: Key) -> String {
        name_of::<AthubRegister>(key)
    }

    fn read(&self, _chip: &Chip, key: Key) -> u32 {
        key.of::<AthubRegister>()
            .map_or(0, |(register, index)| self.registers.at(register, index))
    }

    fn write(&self, _chip: &Chip, key: Key, value: u32) {
        let status = self.registers.get(ATC_VMID_PASID_MAPPING_UPDATE_STATUS);
        let status = match key.of::<AthubRegister>() {
            Some((ATC_VMID0_PASID_MAPPING, vmid)) => {
                self.registers.set_at(ATC_VMID0_PASID_MAPPING, vmid, value);
                status | 1 << vmid
            }
            Some((ATC_VMID16_PASID_MAPPING, vmid)) => {
                self.registers.set_at(ATC_VMID16_PASID_MAPPING, vmid, value);
                status | 1 << (16 + vmid)
            }
            Some((ATC_VMID_PASID_MAPPING_UPDATE_STATUS, _)) => status & !value,
            None => return,
        };
        self.registers
            .set(ATC_VMID_PASID_MAPPING_UPDATE_STATUS, status);
    }

    fn reset(&self, _chip: &Chip) {
        self.registers.clear();
    }
}

#[cfg(test)]
mod tests {
    use crate::preset::Preset;
    use crate::rig::Rig;

    #[test]
    fn a_mapping_is_confirmed_until_the_driver_has_seen_it() {
        const STATUS: u64 = 0xc20 + 0x3e;
        const VMID9: u64 = 0xc20 + 0x3f + 9;
        let rig = Rig::new();
        assert_eq!(rig.read(STATUS), 0);
        rig.write(VMID9, 0x8000_0042);
        assert_eq!(rig.read(STATUS), 1 << 9);
        rig.write(STATUS, 1 << 8);
        assert_eq!(rig.read(STATUS), 1 << 9);
        rig.write(STATUS, 1 << 9);
        assert_eq!((rig.read(STATUS), rig.read(VMID9)), (0, 0x8000_0042));
    }

    #[test]
    fn an_mi250x_confirms_those_of_the_other_hub_as_well() {
        const STATUS: u64 = 0xc20 + 0x0b;
        const VMID9_OF_MMHUB: u64 = 0xc20 + 0x3d + 9;
        let rig = Rig::of(Preset::mi250x());
        rig.write(VMID9_OF_MMHUB, 0x8000_0042);
        assert_eq!(rig.read(STATUS), 1 << 25);
        rig.write(STATUS, 1 << 25);
        assert_eq!(
            (rig.read(STATUS), rig.read(VMID9_OF_MMHUB)),
            (0, 0x8000_0042)
        );
    }
}
