// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Quick forms that write lanes' carries to scalar registers.

use super::operands::{fetch, put};
use super::{Aligned, Form, Room};
use crate::wave::{Wave, LANES};
use host_simd::Level;

/// Executes one of them.
#[inline(always)]
pub(super) fn carrying<L: Level>(level: L, wave: &mut Wave, form: &Form, room: &mut Room) {
    let mut flags = Aligned::ZEROS;
    let flags = &mut flags.0;
    let [hold_a, hold_b, hold_c, hold_d, ..] = &mut room.hold;
    let [low, high] = &mut room.result;
    let exec = wave.exec();
    match form {
        Form::Carry {
            subtracts,
            dst,
            src,
            from,
            out,
        } => {
            let a = fetch(wave, src[0], hold_a);
            let b = fetch(wave, src[1], hold_b);
            *hold_c = [0; LANES];
            if let Some(from) = from {
                level.put(hold_c, &[1; LANES], wave.scalar64(usize::from(*from)));
            }
            if *subtracts {
                for i in 0..LANES {
                    let (part, first) = a[i].overflowing_sub(b[i]);
                    let (all, second) = part.overflowing_sub(hold_c[i]);
                    low[i] = all;
                    flags[i] = if first | second { u32::MAX } else { 0 };
                }
            } else {
                for i in 0..LANES {
                    let (part, first) = a[i].overflowing_add(b[i]);
                    let (all, second) = part.overflowing_add(hold_c[i]);
                    low[i] = all;
                    flags[i] = if first | second { u32::MAX } else { 0 };
                }
            }
            put(level, dst.of(wave, 0), low, exec);
            wave.set_scalar64(usize::from(*out), level.mask(flags) & exec);
        }
        Form::Multiply {
            dst,
            src,
            addend,
            out,
        } => {
            let a = fetch(wave, src[0], hold_a);
            let b = fetch(wave, src[1], hold_b);
            let c = [
                fetch(wave, addend[0], hold_c),
                fetch(wave, addend[1], hold_d),
            ];
            for i in 0..LANES {
                let product = u64::from(a[i]).wrapping_mul(u64::from(b[i]));
                let addend = u64::from(c[0][i]) | u64::from(c[1][i]) << 32;
                let sum = product.wrapping_add(addend);
                low[i] = sum as u32;
                high[i] = (sum >> 32) as u32;
                flags[i] = if sum < product { u32::MAX } else { 0 };
            }
            put(level, dst.of(wave, 0), low, exec);
            put(level, dst.of(wave, 1), high, exec);
            wave.set_scalar64(usize::from(*out), level.mask(flags) & exec);
        }
        _ => {}
    }
}
