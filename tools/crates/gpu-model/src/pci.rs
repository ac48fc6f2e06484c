// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! PCI configuration space: identity, BARs, power management, PCI Express, MSI and one
//! vendor-specific extended capability. One per GPU.

use std::sync::{Mutex, PoisonError};

use crate::preset::Preset;

/// Bytes of configuration space, extended included.
pub const SIZE: usize = 4096;
/// Doorbells: BAR2.
pub const DOORBELL_SIZE: u64 = 2 << 20;

/// Bytes of BAR0, behind which local memory of so many bytes begins: BARs are powers of two.
pub const fn vram_bar(vram_size: u64) -> u64 {
    vram_size.next_power_of_two()
}

/// Bytes of BAR5 (registers): each XCC after the first has a window of 256 KiB from 512 KiB on.
pub fn mmio_size(preset: &Preset) -> u64 {
    let used = (u64::from(preset.xccs) + 1) << 18;
    used.next_power_of_two().max(512 << 10)
}

const VENDOR_AMD: u16 = 0x1002;
/// Processing accelerator, 0x120000: the class amdgpu takes whatever the device id.
const CLASS: u32 = 0x12_0000;
const PM: usize = 0x50;
const PCIE: usize = 0x64;
const MSI: usize = 0xa0;
const VENDOR_EXTENDED: usize = 0x100;
/// `PCI_EXP_DEVCTL_BCR_FLR`: function-level reset.
const DEVCTL_FLR: u8 = 0x80;

/// What a configuration write asks for beyond storing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    None,
    FunctionReset,
}

struct Space {
    bytes: Vec<u8>,
    /// Which bits the guest can change.
    writable: Vec<u8>,
}

impl Space {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn u8(&mut self, at: usize, value: u8) {
        self.put(at, &[value]);
    }

    fn u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn mask(&mut self, at: usize, bytes: &[u8]) {
        self.writable[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// The configuration space.
pub struct ConfigSpace {
    space: Mutex<Space>,
    device_id: u16,
    /// Sizes of BAR0, BAR2 and BAR5.
    bars: [u64; 3],
}

impl ConfigSpace {
    pub fn new(preset: &Preset, vram_size: u64) -> Self {
        let bars = [vram_bar(vram_size), DOORBELL_SIZE, mmio_size(preset)];
        let device_id = preset.device_id;
        Self {
            space: Mutex::new(power_on(device_id, bars)),
            device_id,
            bars,
        }
    }

    /// Back to the state after power-on.
    pub fn reset(&self) {
        *self.space.lock().unwrap_or_else(PoisonError::into_inner) =
            power_on(self.device_id, self.bars);
    }

    /// Reads; beyond the end as if nothing answered.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, byte) in out.iter_mut().enumerate() {
            let at = usize::try_from(offset).unwrap_or(SIZE).saturating_add(i);
            *byte = space.bytes.get(at).copied().unwrap_or(0xff);
        }
    }

    pub fn write(&self, offset: u64, data: &[u8]) -> Effect {
        let mut space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        let mut effect = Effect::None;
        for (i, &byte) in data.iter().enumerate() {
            let at = usize::try_from(offset).unwrap_or(SIZE).saturating_add(i);
            let Some(&mask) = space.writable.get(at) else {
                continue;
            };
            space.bytes[at] = space.bytes[at] & !mask | byte & mask;
            if at == PCIE + 9 && byte & DEVCTL_FLR != 0 {
                effect = Effect::FunctionReset;
            }
        }
        effect
    }
}

fn power_on(device_id: u16, bars: [u64; 3]) -> Space {
    let mut space = Space {
        bytes: vec![0; SIZE],
        writable: vec![0; SIZE],
    };
    header(&mut space, device_id, bars);
    capabilities(&mut space);
    space
}

fn header(s: &mut Space, device_id: u16, [vram, doorbells, mmio]: [u64; 3]) {
    s.u16(0x00, VENDOR_AMD);
    s.u16(0x02, device_id);
    s.mask(0x04, &0x0547u16.to_le_bytes());
    s.u16(0x06, 0x0010); // capability list
    s.u32(0x08, CLASS << 8);
    s.mask(0x0c, &[0xff]); // cache line size
    bar64(s, 0x10, vram);
    bar64(s, 0x18, doorbells);
    s.mask(0x24, &(!(mmio as u32 - 1)).to_le_bytes());
    s.u16(0x2c, VENDOR_AMD);
    s.u16(0x2e, device_id);
    s.u8(0x34, PM as u8);
    s.mask(0x3c, &[0xff]); // interrupt line
}

/// A 64-bit prefetchable memory BAR.
fn bar64(s: &mut Space, at: usize, size: u64) {
    s.u32(at, 0xc);
    s.mask(at, &(!(size - 1)).to_le_bytes());
}

fn capabilities(s: &mut Space) {
    s.put(PM, &[0x01, PCIE as u8]);
    s.u16(PM + 2, 0x0003);
    s.mask(PM + 4, &[0x03, 0x01]);

    s.put(PCIE, &[0x10, MSI as u8]);
    s.u16(PCIE + 2, 0x0002); // version 2, endpoint
                             // Function-level reset, role-based errors, 512-byte payload, extended
                             // tags.
    s.u32(PCIE + 4, 0x1000_8022);
    s.mask(PCIE + 8, &0x7fffu16.to_le_bytes());
    s.u32(PCIE + 12, 0x0000_0c04 | 16 << 4); // 16 GT/s, 16 lanes
    s.mask(PCIE + 16, &0x01fbu16.to_le_bytes());
    s.u16(PCIE + 18, 4 | 16 << 4);
    s.u32(PCIE + 36, 0x0000_0010); // completion timeout disable
    s.mask(PCIE + 40, &0x04ffu16.to_le_bytes());
    s.u32(PCIE + 44, 0x0000_001e); // 2.5 to 16 GT/s
    s.mask(PCIE + 48, &0x00ffu16.to_le_bytes());
    s.u16(PCIE + 48, 4);

    s.put(MSI, &[0x05, 0x00]);
    s.u16(MSI + 2, 0x0080); // 64-bit, one message
    s.mask(MSI + 2, &0x0071u16.to_le_bytes());
    s.mask(
        MSI + 4,
        &[0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    );

    // Vendor-specific extended capability, the last: id 0xb, version 1; its own header: id 1, 40
    // bytes, of which the last 32 are `inject::window`'s.
    s.u32(VENDOR_EXTENDED, 0x0001_000b);
    s.u32(VENDOR_EXTENDED + 4, 0x0280_0001);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> ConfigSpace {
        ConfigSpace::new(&Preset::mi300x(), 2 << 30)
    }

    fn read<const N: usize>(space: &ConfigSpace, at: u64) -> [u8; N] {
        let mut out = [0; N];
        space.read(at, &mut out);
        out
    }

    #[test]
    fn the_capability_list_ends_and_names_pm_pcie_msi() {
        let space = space();
        let mut at = read::<1>(&space, 0x34)[0];
        let mut ids = Vec::new();
        while at != 0 && ids.len() < 10 {
            let [id, next] = read::<2>(&space, at.into());
            ids.push(id);
            at = next;
        }
        assert_eq!(ids, [0x01, 0x10, 0x05]);
    }

    #[test]
    fn bars_answer_their_size() {
        let space = space();
        for (at, size) in [(0x10, 2u64 << 30), (0x18, 2 << 20)] {
            space.write(at, &[0xff; 8]);
            let value = u64::from_le_bytes(read(&space, at));
            assert_eq!(value & 0xf, 0xc);
            assert_eq!(!(value & !0xf) + 1, size);
        }
        space.write(0x24, &[0xff; 4]);
        assert_eq!(!u32::from_le_bytes(read(&space, 0x24)) + 1, 512 << 10);
    }

    #[test]
    fn identity_is_read_only_and_the_end_is_safe() {
        let space = space();
        space.write(0, &[0; 4]);
        assert_eq!(read(&space, 0), [0x02, 0x10, 0xa1, 0x74]);
        assert_eq!(read(&space, 4094), [0, 0, 0xff, 0xff]);
        assert_eq!(space.write(u64::MAX, &[1, 2]), Effect::None);
    }

    #[test]
    fn function_reset_is_an_effect_and_is_not_stored() {
        let space = space();
        assert_eq!(
            space.write(PCIE as u64 + 8, &[0x10, DEVCTL_FLR]),
            Effect::FunctionReset
        );
        assert_eq!(read(&space, PCIE as u64 + 9), [0]);
    }

    #[test]
    fn four_xccs_fit_into_the_register_bar() {
        assert_eq!(mmio_size(&Preset::mi300x()), 512 << 10);
        assert_eq!(mmio_size(&Preset::mi308x()), 2 << 20);
    }
}
