// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One VMID's memory through one hub, with a small translation cache. Made per engine step or wave
//! slice by [`Chip::vm`] and dropped after it.

use super::{Access, FaultReason, Hub, Refusal, Translation, VA_MASK};
use crate::chip::Chip;
use crate::memory::BusError;

/// Entries of the translation cache; a power of two.
const CACHED: usize = 64;

/// A view of GPU virtual memory.
pub struct Vm<'a> {
    chip: &'a Chip,
    hub: Hub,
    vmid: u8,
    generation: u64,
    /// Translations of 4 KiB pages, by the page number's low bits.
    cache: Box<[Option<(u64, Translation)>; CACHED]>,
}

impl<'a> Vm<'a> {
    pub fn new(chip: &'a Chip, hub: Hub, vmid: u8) -> Self {
        let generation = chip.gmc.generation();
        Self {
            chip,
            hub,
            vmid,
            generation,
            cache: Box::new([None; CACHED]),
        }
    }

    pub fn vmid(&self) -> u8 {
        self.vmid
    }

    fn fault(&self, va: u64, access: Access, reason: FaultReason) -> Refusal {
        Refusal {
            hub: self.hub,
            vmid: self.vmid,
            va,
            access,
            reason,
        }
    }

    /// Where `va` leads, with the bytes left in its 4 KiB page.
    fn page(&mut self, va: u64, access: Access) -> Result<Translation, Refusal> {
        let generation = self.chip.gmc.generation();
        if generation != self.generation {
            self.cache.fill(None);
            self.generation = generation;
        }
        let va = va & VA_MASK;
        let number = va >> 12;
        let slot = number as usize % CACHED;
        let cached = self.cache[slot]
            .filter(|(n, _)| *n == number && !self.chip.inject.watches_addresses())
            .map(|(_, t)| t);
        let mut found = match cached {
            Some(page) => page,
            None => {
                let gmc = &self.chip.gmc;
                let start = va & !0xfff;
                let page = gmc.translate(self.chip, self.hub, self.vmid, start, access);
                // A fault names the byte that was wanted, not its page.
                let page = page.map_err(|fault| Refusal { va, ..fault })?;
                self.cache[slot] = Some((number, page));
                page
            }
        };
        if !found.permits(access) {
            return Err(self.fault(va, access, FaultReason::Permission));
        }
        found.at.address += va & 0xfff;
        found.length = 0x1000 - (va & 0xfff);
        Ok(found)
    }

    /// Translates without touching memory.
    pub fn translate(&mut self, va: u64, access: Access) -> Result<Translation, Refusal> {
        self.page(va, access)
    }

    /// Reads bytes, across pages. `access` is [`Access::Read`] or, for instructions,
    /// [`Access::Fetch`].
    pub fn read_as(&mut self, access: Access, va: u64, out: &mut [u8]) -> Result<(), Refusal> {
        let mut va = va;
        let mut left = out;
        while !left.is_empty() {
            let page = self.page(va, access)?;
            let (now, rest) = left.split_at_mut(left.len().min(page.length as usize));
            let bus = |_: BusError| self.fault(va, access, FaultReason::Bus);
            self.chip.read(page.at, now).map_err(bus)?;
            va = va.wrapping_add(now.len() as u64);
            left = rest;
        }
        Ok(())
    }

    pub fn read(&mut self, va: u64, out: &mut [u8]) -> Result<(), Refusal> {
        self.read_as(Access::Read, va, out)
    }

    pub fn write(&mut self, va: u64, data: &[u8]) -> Result<(), Refusal> {
        let mut va = va;
        let mut left = data;
        while !left.is_empty() {
            let page = self.page(va, Access::Write)?;
            let (now, rest) = left.split_at(left.len().min(page.length as usize));
            let bus = |_: BusError| self.fault(va, Access::Write, FaultReason::Bus);
            self.chip.write(page.at, now).map_err(bus)?;
            va = va.wrapping_add(now.len() as u64);
            left = rest;
        }
        Ok(())
    }

    pub fn read_u32(&mut self, va: u64) -> Result<u32, Refusal> {
        let mut bytes = [0; 4];
        self.read(va, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub fn read_u64(&mut self, va: u64) -> Result<u64, Refusal> {
        let mut bytes = [0; 8];
        self.read(va, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn write_u32(&mut self, va: u64, value: u32) -> Result<(), Refusal> {
        self.write(va, &value.to_le_bytes())
    }

    pub fn write_u64(&mut self, va: u64, value: u64) -> Result<(), Refusal> {
        self.write(va, &value.to_le_bytes())
    }

    /// Atomically replaces an aligned dword by `change(old)`; returns the old value.
    pub fn update32(
        &mut self,
        va: u64,
        change: &mut dyn FnMut(u32) -> u32,
    ) -> Result<u32, Refusal> {
        let page = self.page(va & !3, Access::Write)?;
        let memory = self.chip.memory(page.at.memory);
        let bus = |_| self.fault(va, Access::Write, FaultReason::Bus);
        memory.update32(page.at.address, change).map_err(bus)
    }

    /// The same for an aligned qword.
    pub fn update64(
        &mut self,
        va: u64,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Refusal> {
        let page = self.page(va & !7, Access::Write)?;
        let memory = self.chip.memory(page.at.memory);
        let bus = |_| self.fault(va, Access::Write, FaultReason::Bus);
        memory.update64(page.at.address, change).map_err(bus)
    }
}
