// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The guest's handle on the fault injection, on the model's counts and on hostile mode: registers
//! inside the vendor-specific extended capability of configuration space, which no driver knows.
//! Any root process of the guest reaches them through sysfs.

use crate::chip::Chip;
use crate::traffic::Traffic;

/// Flags that rules name, 32 bits; written and read.
pub const FLAGS: usize = 0x108;
/// How often a rule applied, 32 bits; read only.
pub const COUNT: usize = 0x10c;
/// What `va=arg` means, 64 bits; written and read.
pub const ARGUMENT: usize = 0x110;
const ARGUMENT_END: usize = 0x118;
/// Register reads, register writes and doorbells so far, 32 bits each; read only.
pub const TRAFFIC: usize = ARGUMENT_END;
/// The seed of hostile mode, its low 32 bits; written, its choices begin anew. 0 and without effect
/// where that mode is off.
pub const SEED: usize = TRAFFIC + 12;
/// Where the window ends.
pub const END: usize = SEED + 4;

fn bytes(chip: &Chip, traffic: &Traffic) -> [u8; END - FLAGS] {
    let inject = &chip.inject;
    let mut bytes = [0; END - FLAGS];
    bytes[..4].copy_from_slice(&inject.flags().to_le_bytes());
    bytes[COUNT - FLAGS..][..4].copy_from_slice(&inject.count().to_le_bytes());
    bytes[ARGUMENT - FLAGS..ARGUMENT_END - FLAGS].copy_from_slice(&inject.argument().to_le_bytes());
    let counts = bytes[TRAFFIC - FLAGS..SEED - FLAGS].chunks_exact_mut(4);
    for (place, count) in counts.zip(traffic.counts()) {
        place.copy_from_slice(&(count as u32).to_le_bytes());
    }
    let seed = chip.hostile.as_ref().map_or(0, |hostile| hostile.seed());
    bytes[SEED - FLAGS..].copy_from_slice(&(seed as u32).to_le_bytes());
    bytes
}

/// The place in the window of byte `i` of an access.
fn place(offset: u64, i: usize) -> Option<usize> {
    let at = usize::try_from(offset).ok()?.checked_add(i)?;
    at.checked_sub(FLAGS).filter(|at| *at < END - FLAGS)
}

/// Puts the registers into what a read of configuration space gave.
pub fn read(chip: &Chip, traffic: &Traffic, offset: u64, out: &mut [u8]) {
    let bytes = bytes(chip, traffic);
    for (i, byte) in out.iter_mut().enumerate() {
        if let Some(at) = place(offset, i) {
            *byte = bytes[at];
        }
    }
}

/// Takes the part of a write that falls into the window.
pub fn write(chip: &Chip, traffic: &Traffic, offset: u64, data: &[u8]) {
    let inject = &chip.inject;
    let old = bytes(chip, traffic);
    let (mut new, mut seeds) = (old, false);
    for (i, &byte) in data.iter().enumerate() {
        if let Some(at) = place(offset, i) {
            new[at] = byte;
            seeds |= at >= SEED - FLAGS;
        }
    }
    if let Some(hostile) = chip.hostile.as_ref().filter(|_| seeds) {
        let &[a, b, c, d] = new.last_chunk().expect("it is longer");
        hostile.set_seed(u32::from_le_bytes([a, b, c, d]).into());
    }
    let argument = ARGUMENT - FLAGS..ARGUMENT_END - FLAGS;
    if new[argument.clone()] != old[argument.clone()] {
        let new = &new[argument];
        let mut argument = [0; 8];
        argument.copy_from_slice(new);
        inject.set_argument(chip, u64::from_le_bytes(argument));
    }
    if new[..4] != old[..4] {
        inject.set_flags(chip, u32::from_le_bytes([new[0], new[1], new[2], new[3]]));
    }
}
