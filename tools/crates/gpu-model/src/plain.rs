// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A block whose registers the driver only sets and reads back: nothing in the model depends on
//! them. Each such block says so by being one of these, with an explicit list of registers and the
//! values they have after power-on.

use crate::bus::Block;
use crate::chip::Chip;
use crate::regs::{name_of, place, Key, Placed, RegisterFile, RegisterSet};

/// A block of stored registers.
pub struct Plain<R: RegisterSet> {
    name: String,
    bases: Vec<u32>,
    power_on: Vec<(R, u32)>,
    read_only: Vec<R>,
    registers: RegisterFile<R>,
}

impl<R: RegisterSet> Plain<R> {
    /// `power_on` gives the values that are not 0; `read_only` the registers that ignore writes.
    pub fn new(
        name: impl Into<String>,
        bases: &[u32],
        power_on: &[(R, u32)],
        read_only: &[R],
    ) -> Self {
        let block = Self {
            name: name.into(),
            bases: bases.to_vec(),
            power_on: power_on.to_vec(),
            read_only: read_only.to_vec(),
            registers: RegisterFile::new(),
        };
        block.restore();
        block
    }

    fn restore(&self) {
        self.registers.clear();
        for &(register, value) in &self.power_on {
            self.registers.set(register, value);
        }
    }
}

impl<R: RegisterSet> Block for Plain<R> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn registers(&self) -> Vec<Placed> {
        place::<R>(&self.bases)
    }

    fn register_name(&self, key: Key) -> String {
        name_of::<R>(key)
    }

    fn read(&self, _chip: &Chip, key: Key) -> u32 {
        key.of::<R>()
            .map_or(0, |(register, index)| self.registers.at(register, index))
    }

    fn write(&self, _chip: &Chip, key: Key, value: u32) {
        match key.of::<R>() {
            Some((register, index)) if !self.read_only.contains(&register) => {
                self.registers.set_at(register, index, value);
            }
            _ => {}
        }
    }

    fn reset(&self, _chip: &Chip) {
        self.restore();
    }
}
