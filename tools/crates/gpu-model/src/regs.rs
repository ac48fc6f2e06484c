// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Registers: how a block names the ones it models, and where their values lie.
//!
//! Each hardware block (`nbio.rs`, `gmc.rs`, ...) declares one enum with `registers!`; every line
//! repeats what AMD's header says: the name without its `reg`/`mm` prefix, the segment
//! (`NAME_BASE_IDX`) and the dword offset inside that segment. An IP discovery table gives the
//! segment's base address per instance, so the absolute dword address is `base[segment] + offset`.
//!
//! What is not in such an enum is not modelled: [`crate::bus::RegisterBus`] logs it once and counts
//! it.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

/// One line of a block's register table: a register, or an array of equal ones.
#[derive(Clone, Copy, Debug)]
pub struct RegisterInfo {
    /// AMD's name, without prefix.
    pub name: &'static str,
    /// Index into the instance's base addresses (`NAME_BASE_IDX`).
    pub segment: u8,
    /// Dword offset from that base.
    pub offset: u32,
    /// How many of them follow each other (1: a single register).
    pub count: u16,
    /// Dwords from one to the next.
    pub step: u16,
}

/// A block's set of registers, made by `registers!`.
pub trait RegisterSet: Copy + Eq + Send + Sync + 'static {
    /// All registers of the set, in the order of their rows.
    const TABLE: &'static [RegisterInfo];
    /// AMD's header file the table repeats, without `_offset.h`.
    const HEADER: &'static str;

    /// The register's row in [`Self::TABLE`].
    fn row(self) -> usize;
    /// The register of a row.
    fn from_row(row: usize) -> Option<Self>;
}

/// Names one register inside its block: table row and array index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub row: u16,
    pub index: u16,
}

impl Key {
    /// The register this key names in set `R`, with its array index.
    pub fn of<R: RegisterSet>(self) -> Option<(R, usize)> {
        R::from_row(self.row.into()).map(|r| (r, self.index.into()))
    }
}

/// A register at its absolute place in the MMIO space.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Dword address.
    pub dword: u64,
    pub key: Key,
}

/// All registers of set `R` at the places an instance with these base addresses has them.
pub fn place<R: RegisterSet>(bases: &[u32]) -> Vec<Placed> {
    place_rows(R::TABLE, bases)
}

/// Another generation's table: that of set `R` with some rows elsewhere, or not there.
pub fn moved<R: RegisterSet>(to: fn(RegisterInfo) -> Option<RegisterInfo>) -> Vec<RegisterInfo> {
    let gone = |info: RegisterInfo| RegisterInfo { count: 0, ..info };
    let rows = R::TABLE.iter();
    rows.map(|info| to(*info).unwrap_or(gone(*info))).collect()
}

/// The same as [`place`] by a table with the rows of the set.
pub fn place_rows(table: &[RegisterInfo], bases: &[u32]) -> Vec<Placed> {
    let mut placed = Vec::new();
    for (row, info) in table.iter().enumerate() {
        let Some(&base) = bases.get(usize::from(info.segment)) else {
            continue;
        };
        for index in 0..info.count {
            let dword = u64::from(base) + u64::from(info.offset) + u64::from(index * info.step);
            placed.push(Placed {
                dword,
                key: Key {
                    row: row as u16,
                    index,
                },
            });
        }
    }
    placed
}

/// The name of a register of set `R`, as logs show it.
pub fn name_of<R: RegisterSet>(key: Key) -> String {
    match R::TABLE.get(usize::from(key.row)) {
        Some(info) if info.count > 1 => format!("{}[{}]", info.name, key.index),
        Some(info) => info.name.to_string(),
        None => format!("row {}", key.row),
    }
}

/// The stored values of one block instance. Reads and writes are atomic, so an engine thread may
/// look without a lock.
#[derive(Debug)]
pub struct RegisterFile<R> {
    /// First value of each row.
    starts: Vec<usize>,
    values: Vec<AtomicU32>,
    set: PhantomData<R>,
}

impl<R: RegisterSet> Default for RegisterFile<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: RegisterSet> RegisterFile<R> {
    pub fn new() -> Self {
        let mut starts = Vec::with_capacity(R::TABLE.len());
        let mut total = 0;
        for info in R::TABLE {
            starts.push(total);
            total += usize::from(info.count);
        }
        let values = std::iter::repeat_with(|| AtomicU32::new(0))
            .take(total)
            .collect();
        Self {
            starts,
            values,
            set: PhantomData,
        }
    }

    fn cell(&self, register: R, index: usize) -> Option<&AtomicU32> {
        let row = register.row();
        let count = usize::from(R::TABLE[row].count);
        (index < count).then(|| &self.values[self.starts[row] + index])
    }

    /// The value of array element `index`; 0 outside the array.
    pub fn at(&self, register: R, index: usize) -> u32 {
        self.cell(register, index)
            .map_or(0, |c| c.load(Ordering::Acquire))
    }

    pub fn set_at(&self, register: R, index: usize, value: u32) {
        if let Some(cell) = self.cell(register, index) {
            cell.store(value, Ordering::Release);
        }
    }

    pub fn get(&self, register: R) -> u32 {
        self.at(register, 0)
    }

    pub fn set(&self, register: R, value: u32) {
        self.set_at(register, 0, value);
    }

    /// Two 32-bit registers as one 64-bit value.
    pub fn pair(&self, low: R, high: R, index: usize) -> u64 {
        u64::from(self.at(low, index)) | u64::from(self.at(high, index)) << 32
    }

    pub fn set_pair(&self, low: R, high: R, index: usize, value: u64) {
        self.set_at(low, index, value as u32);
        self.set_at(high, index, (value >> 32) as u32);
    }

    /// All registers back to 0.
    pub fn clear(&self) {
        for value in &self.values {
            value.store(0, Ordering::Release);
        }
    }
}

/// Declares a block's registers: `NAME = segment @ offset;`, an array as `NAME[count]` or
/// `NAME[count; step]`.
#[macro_export]
macro_rules! registers {
    (
        $(#[$meta:meta])*
        $vis:vis enum $set:ident from $header:literal {
            $(
                $(#[$doc:meta])*
                $name:ident $([$count:literal $(; $step:literal)?])? =
                    $segment:literal @ $offset:literal;
            )*
        }
    ) => {
        $(#[$meta])*
        #[expect(non_camel_case_types, reason = "hardware names are verbatim")]
        #[allow(dead_code, reason = "a register that is only stored and returned is never named")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        $vis enum $set {
            $( $(#[$doc])* $name, )*
        }

        impl $crate::regs::RegisterSet for $set {
            const TABLE: &'static [$crate::regs::RegisterInfo] = &[
                $( $crate::regs::RegisterInfo {
                    name: stringify!($name),
                    segment: $segment,
                    offset: $offset,
                    count: 1 $( - 1 + $count )?,
                    step: $crate::registers!(@step $($($step)?)?),
                }, )*
            ];
            const HEADER: &'static str = $header;

            fn row(self) -> usize {
                self as usize
            }

            fn from_row(row: usize) -> Option<Self> {
                const ALL: &[$set] = &[ $( $set::$name, )* ];
                ALL.get(row).copied()
            }
        }
    };
    (@step) => { 1 };
    (@step $step:literal) => { $step };
}

#[cfg(test)]
mod tests {
    use super::*;

    registers! {
        enum Sample from "none" {
            SAMPLE_CNTL = 0 @ 0x10;
            SAMPLE_PAIRS[3; 2] = 1 @ 0x100;
            SAMPLE_TABLE[2] = 0 @ 0x20;
        }
    }

    #[test]
    fn arrays_are_placed_with_their_step() {
        let at: Vec<u64> = place::<Sample>(&[0x1000, 0x2000])
            .iter()
            .map(|p| p.dword)
            .collect();
        assert_eq!(at, [0x1010, 0x2100, 0x2102, 0x2104, 0x1020, 0x1021]);
    }

    #[test]
    fn a_segment_the_instance_lacks_is_left_out() {
        assert_eq!(place::<Sample>(&[0x1000]).len(), 3);
    }

    #[test]
    fn values_are_separate_per_index() {
        let file = RegisterFile::<Sample>::new();
        file.set_at(Sample::SAMPLE_PAIRS, 1, 7);
        file.set(Sample::SAMPLE_TABLE, 9);
        assert_eq!(
            [
                file.at(Sample::SAMPLE_PAIRS, 0),
                file.at(Sample::SAMPLE_PAIRS, 1)
            ],
            [0, 7]
        );
        assert_eq!(file.at(Sample::SAMPLE_TABLE, 0), 9);
        file.set_at(Sample::SAMPLE_PAIRS, 3, 1);
        assert_eq!(file.at(Sample::SAMPLE_PAIRS, 3), 0);
        assert_eq!(file.at(Sample::SAMPLE_TABLE, 0), 9);
    }
}
