// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The register bus: which block answers at which dword address, and the burndown list of those
//! that none does.
//!
//! One per GPU, inside [`Chip`]. BAR5, the PCIE index/data pair, and the engines' own register
//! packets all come here.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::chip::Chip;
use crate::preset::Preset;
use crate::regs::{Key, Placed};

/// A hardware block with registers. Calls may come from the MMIO thread and the engine thread at
/// once.
pub trait Block: Send + Sync {
    /// The instance's name, such as `GC[1]`.
    fn name(&self) -> String;
    /// All its registers with their absolute addresses.
    fn registers(&self) -> Vec<Placed>;
    /// The name of a register, for logs.
    fn register_name(&self, key: Key) -> String;
    fn read(&self, chip: &Chip, key: Key) -> u32;
    fn write(&self, chip: &Chip, key: Key, value: u32);
    /// Back to the state after power-on.
    fn reset(&self, chip: &Chip);
}

/// Where a register lies: block and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub block: usize,
    pub key: Key,
}

/// Uses of one register that no block models.
#[derive(Clone, Copy, Debug, Default)]
struct Unknown {
    reads: u64,
    writes: u64,
    last_written: u32,
}

/// Routes dword addresses to blocks.
pub struct RegisterBus {
    blocks: Vec<Arc<dyn Block>>,
    routes: HashMap<u64, Route>,
    /// Where each segment of each IP block begins, and its name.
    bases: BTreeMap<u64, String>,
    unknown: Mutex<BTreeMap<u64, Unknown>>,
    accesses: AtomicU64,
    /// The register read last, and how often in a row with one value.
    spin: Mutex<Spin>,
}

/// A register that is read over and over.
#[derive(Default)]
struct Spin {
    dword: u64,
    value: u32,
    times: u64,
    /// Those that were read too often, and the longest row of each.
    found: BTreeMap<u64, u64>,
}

impl RegisterBus {
    /// How many unmodelled registers are counted one by one: a guest that tries all addresses must
    /// not fill the host's memory.
    const MAX_UNKNOWN: usize = 1 << 16;
    /// Reads in a row that make a spin: a guest does some ten thousand a second.
    const SPINNING: u64 = 1 << 13;

    /// Builds the routes. Where two blocks claim one address the first in the list keeps it.
    pub fn new(preset: &Preset, blocks: Vec<Arc<dyn Block>>) -> Self {
        let mut routes = HashMap::new();
        for (block, it) in blocks.iter().enumerate() {
            for Placed { dword, key } in it.registers() {
                routes.entry(dword).or_insert(Route { block, key });
            }
        }
        Self {
            blocks,
            bases: preset.segments(),
            routes,
            unknown: Mutex::default(),
            accesses: AtomicU64::new(0),
            spin: Mutex::default(),
        }
    }

    pub fn blocks(&self) -> &[Arc<dyn Block>] {
        &self.blocks
    }

    /// Who answers at `dword`, if anyone.
    pub fn route(&self, dword: u64) -> Option<Route> {
        self.routes.get(&dword).copied()
    }

    /// `block.REGISTER` or `unknown`, for logs.
    pub fn name(&self, dword: u64) -> String {
        match self.route(dword) {
            Some(route) => {
                let block = &self.blocks[route.block];
                format!("{}.{}", block.name(), block.register_name(route.key))
            }
            None => self.place(dword),
        }
    }

    /// Where an unmodelled register lies: the IP block and segment whose base is next below, as
    /// AMD's headers count.
    fn place(&self, dword: u64) -> String {
        let below = self.bases.range(..=dword).next_back();
        match below.filter(|(base, _)| dword - **base < 0x1_0000) {
            Some((base, name)) => format!("{name}+{:#x}", dword - base),
            None => format!("unknown {dword:#x}"),
        }
    }

    /// The address of a register by the name that [`RegisterBus::name`] gives it.
    pub fn find(&self, name: &str) -> Option<u64> {
        let mut dwords = self.routes.keys().copied();
        dwords.find(|&dword| self.name(dword) == name)
    }

    pub fn read(&self, chip: &Chip, dword: u64) -> u32 {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        let value = match self.route(dword) {
            Some(route) => self.blocks[route.block].read(chip, route.key),
            None => self.unknown_read(dword),
        };
        let value = chip.inject.register(dword).unwrap_or(value);
        self.watch(dword, value);
        tracing::trace!(target: "mmio", "R {} {dword:#x} = {value:#x}", self.name(dword));
        value
    }

    /// What a register holds, for the model's own use: no access of the guest. 0: no block has it.
    pub fn peek(&self, chip: &Chip, dword: u64) -> u32 {
        let route = self.route(dword);
        route.map_or(0, |route| self.blocks[route.block].read(chip, route.key))
    }

    /// Names a register that software spins on: the same value so often in a row, with no other
    /// access between.
    fn watch(&self, dword: u64, value: u32) {
        let mut spin = self.spin.lock().unwrap_or_else(PoisonError::into_inner);
        if (spin.dword, spin.value) != (dword, value) {
            (spin.dword, spin.value, spin.times) = (dword, value, 0);
            return;
        }
        spin.times += 1;
        if spin.times < Self::SPINNING {
            return;
        }
        let times = spin.times;
        if spin.found.len() < Self::MAX_UNKNOWN {
            spin.found.insert(dword, times);
        }
        drop(spin);
        if times.is_power_of_two() {
            tracing::warn!(
                "the guest spins on {}: {times} times {value:#x}",
                self.name(dword)
            );
        }
    }

    /// The registers that software spun on, with the longest row.
    fn spun(&self) -> String {
        let spin = self.spin.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |(dword, times): (&u64, &u64)| {
            format!("# spun on {} {times} times\n", self.name(*dword))
        };
        spin.found.iter().map(line).collect()
    }

    pub fn write(&self, chip: &Chip, dword: u64, value: u32) {
        self.spin
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .times = 0;
        self.accesses.fetch_add(1, Ordering::Relaxed);
        tracing::trace!(target: "mmio", "W {} {dword:#x} = {value:#x}", self.name(dword));
        match self.route(dword) {
            Some(route) => self.blocks[route.block].write(chip, route.key, value),
            None => self.unknown_write(dword, value),
        }
    }

    /// The entry of an unmodelled register, unless there are too many; logs the first use.
    fn unknown<T: Default>(&self, dword: u64, update: impl FnOnce(&mut Unknown) -> T) -> T {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if !unknown.contains_key(&dword) {
            if unknown.len() >= Self::MAX_UNKNOWN {
                return T::default();
            }
            tracing::warn!(
                "register {dword:#x} ({}) is not modelled: it reads as last written",
                self.place(dword)
            );
        }
        update(unknown.entry(dword).or_default())
    }

    fn unknown_read(&self, dword: u64) -> u32 {
        self.unknown(dword, |it| {
            it.reads += 1;
            it.last_written
        })
    }

    fn unknown_write(&self, dword: u64, value: u32) {
        self.unknown(dword, |it| {
            it.writes += 1;
            it.last_written = value;
        });
    }

    /// How many distinct registers were used that no block models.
    pub fn unknown_count(&self) -> usize {
        self.unknown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// The burndown list, one line per unmodelled register that was used.
    pub fn burndown(&self) -> String {
        let unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        let accesses = self.accesses.load(Ordering::Relaxed);
        let count = unknown.len();
        let mut text = format!("# {accesses} register accesses, {count} registers not modelled\n");
        text += &self.spun();
        text += "# dword reads writes last-written place\n";
        for (dword, it) in unknown.iter() {
            text += &format!(
                "{dword:#x} {} {} {:#x} {}\n",
                it.reads,
                it.writes,
                it.last_written,
                self.place(*dword)
            );
        }
        text
    }

    pub fn reset(&self, chip: &Chip) {
        for block in &self.blocks {
            block.reset(chip);
        }
        for entry in self
            .unknown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values_mut()
        {
            entry.last_written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::rig::Rig;

    /// MP1_SMN_C2PMSG_90.
    const RESPONSE: u64 = 0x1_629a;

    #[test]
    fn a_register_that_is_read_over_and_over_is_named() {
        let rig = Rig::new();
        let spin = |times| (0..times).for_each(|_| assert_eq!(rig.read(RESPONSE), 1));
        spin(5000);
        rig.write(0xc040, 1);
        spin(5000);
        assert!(!rig.model.report().contains("spun on"));
        spin(5000);
        assert!(rig.model.report().contains("spun on MP1.MP1_SMN_C2PMSG_90"));
    }

    #[test]
    fn unmodelled_registers_are_placed_as_headers_place_them() {
        let rig = Rig::new();
        rig.write(0xa000 + 0x1fff, 1);
        let report = rig.model.report();
        assert!(report.contains("0xbfff 0 1 0x1 GC[0].1+0x1fff"), "{report}");
        assert!(rig.model.missing() > 0);
    }
}
