// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Operands and results of the quick forms: registers read where they are, constants and scalars
//! spread over the lanes, results under EXEC.

use super::{Lanes, Reg, Row, Signs};
use crate::wave::{Vgpr, Wave, LANES};

/// An operand's lanes, in their register or in `hold`.
#[inline(always)]
pub(super) fn fetch<'a>(wave: &'a Wave, from: Lanes, hold: &'a mut Vgpr) -> &'a Vgpr {
    match from {
        Lanes::Vgpr(number) => &wave.vgpr[usize::from(number)],
        Lanes::Acc(number) => &wave.acc[usize::from(number)],
        Lanes::Row(row) => row.lanes(),
        Lanes::Constant(value) => {
            *hold = [value; LANES];
            hold
        }
        Lanes::Scalar(index) => {
            *hold = [wave.scalar[usize::from(index & 0x7f)]; LANES];
            hold
        }
    }
}

/// The operand with its sign changed as `signs` has it for source `index`.
#[inline(always)]
pub(super) fn signed<'a>(lanes: &'a Vgpr, signs: Signs, index: u8, hold: &'a mut Vgpr) -> &'a Vgpr {
    let (negated, magnitude) = (signs.negated >> index & 1, signs.magnitude >> index & 1);
    if negated | magnitude == 0 {
        return lanes;
    }
    let keep = !(u32::from(magnitude) << 31);
    let flip = u32::from(negated) << 31;
    for i in 0..LANES {
        hold[i] = lanes[i] & keep ^ flip;
    }
    hold
}

/// All lanes.
static ALL: Vgpr = [u32::MAX; LANES];

/// Each lane's bit in its half of a mask.
static BITS: Vgpr = {
    let mut bits = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        bits[lane] = 1 << (lane % 32);
        lane += 1;
    }
    bits
};

static ZEROS: Vgpr = [0; LANES];

/// The bits of the lanes below each lane: of the lanes from `first` on.
const fn below(first: usize) -> Vgpr {
    let mut rows = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        rows[lane] = match lane.saturating_sub(first) {
            count @ 0..=31 => (1 << count) - 1,
            _ => u32::MAX,
        };
        lane += 1;
    }
    rows
}

static BELOW: [Vgpr; 2] = [below(0), below(LANES / 2)];

impl Row {
    #[inline(always)]
    fn lanes(self) -> &'static Vgpr {
        match self {
            Row::Zeros => &ZEROS,
            Row::BelowLow => &BELOW[0],
            Row::BelowHigh => &BELOW[1],
        }
    }
}

/// All ones for the lanes of `mask`.
#[inline(always)]
pub(super) fn spread(mask: u64, hold: &mut Vgpr) -> &Vgpr {
    if mask == u64::MAX {
        return &ALL;
    }
    let (low, high) = hold.split_at_mut(LANES / 2);
    low.fill(mask as u32);
    high.fill((mask >> 32) as u32);
    for i in 0..LANES {
        hold[i] = if hold[i] & BITS[i] != 0 { u32::MAX } else { 0 };
    }
    hold
}

/// The operands with their signs changed; `hold` has room for three.
#[inline(always)]
pub(super) fn with_signs<'a>(
    operands: [&'a Vgpr; 3],
    signs: Signs,
    hold: &'a mut [Vgpr],
) -> [&'a Vgpr; 3] {
    let [a, b, c] = operands;
    match hold {
        [hold_a, hold_b, hold_c, ..] if signs != Signs::default() => [
            signed(a, signs, 0, hold_a),
            signed(b, signs, 1, hold_b),
            signed(c, signs, 2, hold_c),
        ],
        _ => operands,
    }
}

/// The destination, and the operands: those that it is itself are copied to `hold`, which has room
/// for three.
#[inline(always)]
pub(super) fn operands<'a>(
    wave: &'a mut Wave,
    dst: Reg,
    src: &[Lanes; 3],
    hold: &'a mut [Vgpr],
) -> (&'a mut Vgpr, [&'a Vgpr; 3]) {
    let (own, other, at, is_acc) = match dst {
        Reg::Vgpr(at) => (&mut wave.vgpr, &wave.acc, usize::from(at), false),
        Reg::Acc(at) => (&mut wave.acc, &wave.vgpr, usize::from(at), true),
    };
    let (left, rest) = own.split_at_mut(at);
    let (to, right) = rest.split_first_mut().expect("the wave has the register");
    let [a, b, c] = hold.first_chunk_mut().expect("there is room for three");
    let files = Files {
        left: &*left,
        current: &*to,
        right: &*right,
        other,
        is_acc,
        scalars: &wave.scalar,
    };
    let operands = [
        files.lanes(src[0], a),
        files.lanes(src[1], b),
        files.lanes(src[2], c),
    ];
    (to, operands)
}

/// Registers around a destination, and what else operands come from.
#[derive(Clone, Copy)]
struct Files<'a, 'b> {
    left: &'a [Vgpr],
    current: &'b Vgpr,
    right: &'a [Vgpr],
    /// The registers of the other kind.
    other: &'a [Vgpr],
    /// Whether the destination is an accumulation register.
    is_acc: bool,
    scalars: &'a [u32; 128],
}

impl<'a> Files<'a, '_> {
    /// An operand's lanes, in their register or in `hold`.
    #[inline(always)]
    fn lanes(self, from: Lanes, hold: &'a mut Vgpr) -> &'a Vgpr {
        let (acc, number) = match from {
            Lanes::Vgpr(number) => (false, usize::from(number)),
            Lanes::Acc(number) => (true, usize::from(number)),
            Lanes::Row(row) => return row.lanes(),
            Lanes::Constant(value) => {
                *hold = [value; LANES];
                return hold;
            }
            Lanes::Scalar(index) => {
                *hold = [self.scalars[usize::from(index & 0x7f)]; LANES];
                return hold;
            }
        };
        if acc != self.is_acc {
            return &self.other[number];
        }
        let at = self.left.len();
        if number < at {
            return &self.left[number];
        }
        if number == at {
            *hold = *self.current;
            return hold;
        }
        &self.right[number - at - 1]
    }
}

/// Copies the lanes of `mask`.
#[inline(always)]
pub(super) fn put(to: &mut Vgpr, from: &Vgpr, mask: u64) {
    if mask == u64::MAX {
        *to = *from;
        return;
    }
    let mut hold = [0; LANES];
    let keep = spread(mask, &mut hold);
    for i in 0..LANES {
        to[i] = from[i] & keep[i] | to[i] & !keep[i];
    }
}

/// A mask of flags that are 0 or 1: eight at a time, by a multiplication that gathers their bits.
#[inline(always)]
pub(super) fn gather(flags: &[u8; LANES]) -> u64 {
    let mut mask = 0;
    for index in 0..8 {
        let mut eight = [0; 8];
        eight.copy_from_slice(&flags[8 * index..][..8]);
        let bits = u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= bits << (8 * index);
    }
    mask
}

/// Writes the active lanes of a result's registers.
#[inline(always)]
pub(super) fn write(wave: &mut Wave, dst: Reg, result: &[Vgpr]) {
    let exec = wave.exec();
    for (index, lanes) in result.iter().enumerate() {
        put(dst.of(wave, index), lanes, exec);
    }
}
