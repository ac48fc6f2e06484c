// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The L2's atomic operations as packets ask for them: PM4 ATOMIC_MEM and SDMA ATOMIC. One
//! [`Atomic`] per packet.
//!
//! Source of the codes: TC_OP_ATOMIC_* of `include/vega10_enum.h` (bit 5: 64-bit, bit 6: no return
//! value).

use super::bus::{Fault, View};

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// TC_OP code.
    pub op: u32,
    /// Where.
    pub address: u64,
    /// Operand.
    pub source: u64,
    /// What CMPSWAP compares to.
    pub compare: u64,
}

impl Atomic {
    /// Does it. The old value; None if the model has no such operation.
    pub fn execute(&self, view: View<'_>) -> Result<Option<u64>, Fault> {
        let is_wide = self.op & 0x20 != 0;
        let Some(operation) = operation(self.op & 0x1f) else {
            return Ok(None);
        };
        let (source, compare) = (self.source, self.compare);
        let old = if is_wide {
            let mut update = |old| operation(old, source, compare, 64);
            view.bus
                .update64(view.space, self.address & !7, &mut update)?
        } else {
            let (source, compare) = (source & 0xffff_ffff, compare & 0xffff_ffff);
            let mut update = |old: u32| operation(old.into(), source, compare, 32) as u32;
            view.bus
                .update32(view.space, self.address & !3, &mut update)?
                .into()
        };
        Ok(Some(old))
    }

    /// Whether a packet that loops until its compare is satisfied ends with this old value.
    pub fn is_satisfied(&self, old: u64) -> bool {
        let is_wide = self.op & 0x20 != 0;
        old == if is_wide {
            self.compare
        } else {
            self.compare & 0xffff_ffff
        }
    }
}

/// From (old, source, compare, width in bits) to the new value.
type Operation = fn(u64, u64, u64, u32) -> u64;

fn operation(code: u32) -> Option<Operation> {
    Some(match code {
        7 => |_, source, _, _| source,
        8 => |old, source, compare, _| if old == compare { source } else { old },
        15 => |old, source, _, _| old.wrapping_add(source),
        16 => |old, source, _, _| old.wrapping_sub(source),
        17 => |old, source, _, bits| {
            if signed(source, bits) < signed(old, bits) {
                source
            } else {
                old
            }
        },
        18 => |old, source, _, _| old.min(source),
        19 => |old, source, _, bits| {
            if signed(source, bits) > signed(old, bits) {
                source
            } else {
                old
            }
        },
        20 => |old, source, _, _| old.max(source),
        21 => |old, source, _, _| old & source,
        22 => |old, source, _, _| old | source,
        23 => |old, source, _, _| old ^ source,
        24 => |old, source, _, _| if old >= source { 0 } else { old + 1 },
        25 => |old, source, _, _| {
            if old == 0 || old > source {
                source
            } else {
                old - 1
            }
        },
        _ => return None,
    })
}

const fn signed(value: u64, bits: u32) -> i64 {
    (value << (64 - bits)) as i64 >> (64 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(code: u32, old: u64, source: u64, compare: u64, bits: u32) -> u64 {
        operation(code).expect("modelled")(old, source, compare, bits)
    }

    #[test]
    fn operations_follow_their_width() {
        assert_eq!(apply(15, 5, u64::MAX, 0, 64), 4);
        assert_eq!(apply(17, 1, 0xffff_ffff, 0, 32), 0xffff_ffff);
        assert_eq!(apply(17, 1, 0xffff_ffff, 0, 64), 1);
        assert_eq!(apply(8, 3, 9, 3, 64), 9);
        assert_eq!(apply(24, 7, 7, 0, 32), 0);
        assert_eq!(apply(25, 0, 7, 0, 32), 7);
        assert!(operation(0).is_none());
    }
}
