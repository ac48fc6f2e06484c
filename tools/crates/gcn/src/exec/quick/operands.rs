// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Operands and results of the quick forms: registers read where they are, constants and scalars
//! spread over the lanes, results under EXEC.

use super::{Lanes, Reg, Row, Signs};
use crate::wave::{Vgpr, Wave, LANES};
use host_simd::Level;

/// An operand's lanes, in their register or in `hold`.
#[inline(always)]
pub(super) fn fetch<'a>(wave: &'a Wave, from: Lanes, hold: &'a mut Vgpr) -> &'a Vgpr {
    if let Lanes::Vgpr(number) = from {
        return &wave.vgpr[usize::from(number)];
    }
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
    pub(super) fn lanes(self) -> &'static Vgpr {
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
    host_simd::spread(mask, hold);
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

/// The destination, and the operands that are used: those that it is itself are copied to `hold`,
/// which has room for three.
#[inline(always)]
pub(super) fn operands<'a>(
    wave: &'a mut Wave,
    dst: Reg,
    (src, uses): (&[Lanes; 3], [bool; 3]),
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
        if uses[0] {
            files.lanes(src[0], a)
        } else {
            &ZEROS
        },
        if uses[1] {
            files.lanes(src[1], b)
        } else {
            &ZEROS
        },
        if uses[2] {
            files.lanes(src[2], c)
        } else {
            &ZEROS
        },
    ];
    (to, operands)
}

/// The same if all that are used are VGPRs, as most are: without a jump by a table for each.
#[inline(always)]
pub(super) fn vgprs<'a>(
    wave: &'a mut Wave,
    dst: Reg,
    (src, uses): (&[Lanes; 3], [bool; 3]),
    hold: &'a mut [Vgpr],
) -> Option<(&'a mut Vgpr, [&'a Vgpr; 3])> {
    let Reg::Vgpr(at) = dst else { return None };
    let (left, rest) = wave.vgpr.split_at_mut(usize::from(at));
    let (to, right) = rest.split_first_mut()?;
    let [a, b, c] = hold.first_chunk_mut()?;
    let files = Files {
        left: &*left,
        current: &*to,
        right: &*right,
        other: &[],
        is_acc: false,
        scalars: &wave.scalar,
    };
    let mut operands = [&ZEROS; 3];
    for (index, hold) in [a, b, c].into_iter().enumerate() {
        if uses[index] {
            let Lanes::Vgpr(number) = src[index] else {
                return None;
            };
            operands[index] = files.own(usize::from(number), hold);
        }
    }
    Some((to, operands))
}

/// Whether [`vgprs`] finds them.
pub(super) fn are_vgprs(dst: Reg, src: &[Lanes; 3], uses: [bool; 3]) -> bool {
    let is_vgpr = |(src, uses): (&Lanes, bool)| !uses || matches!(src, Lanes::Vgpr(_));
    matches!(dst, Reg::Vgpr(_)) && src.iter().zip(uses).all(is_vgpr)
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
        self.own(number, hold)
    }

    /// A register of the destination's kind.
    #[inline(always)]
    fn own(self, number: usize, hold: &'a mut Vgpr) -> &'a Vgpr {
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

/// The first and the last active lane, of which there is one.
#[inline(always)]
pub(super) fn ends(exec: u64) -> (usize, usize) {
    let first = exec.trailing_zeros() as usize % LANES;
    let last = (LANES - 1).saturating_sub(exec.leading_zeros() as usize);
    (first, last.max(first))
}

/// Copies the lanes of `mask`.
#[inline(always)]
pub(super) fn put<L: Level>(level: L, to: &mut Vgpr, from: &Vgpr, mask: u64) {
    match mask {
        u64::MAX => *to = *from,
        _ => level.put(to, from, mask),
    }
}

/// Writes the active lanes of a result's registers.
#[inline(always)]
pub(super) fn write<L: Level>(level: L, wave: &mut Wave, dst: Reg, result: &[Vgpr]) {
    let exec = wave.exec();
    for (index, lanes) in result.iter().enumerate() {
        put(level, dst.of(wave, index), lanes, exec);
    }
}
