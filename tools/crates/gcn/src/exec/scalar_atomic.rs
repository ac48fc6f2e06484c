// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Scalar atomics, `s_atomic_*` and `s_buffer_atomic_*`: one memory update for the whole wave.
//! SDATA holds the operand (for compare-and-swap then the comparison), and takes the old value with
//! GLC.

use super::{atomic, unsupported, Done, Machine};
use crate::inst::{Inst, SmemInst};
use crate::memory::{Access, Fault};
use crate::op::{AtomicOp, Ty};

/// The operation of an atomic's name, and whether it is 64 bits wide.
fn operation(mnemonic: &str) -> Option<(AtomicOp, bool)> {
    let (_, name) = mnemonic.split_once("atomic_")?;
    let (name, wide) = match name.strip_suffix("_x2") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let op = match name {
        "swap" => AtomicOp::Swap,
        "cmpswap" => AtomicOp::CmpSwap,
        "add" => AtomicOp::Add,
        "sub" => AtomicOp::Sub,
        "smin" => AtomicOp::Smin,
        "umin" => AtomicOp::Umin,
        "smax" => AtomicOp::Smax,
        "umax" => AtomicOp::Umax,
        "and" => AtomicOp::And,
        "or" => AtomicOp::Or,
        "xor" => AtomicOp::Xor,
        "inc" => AtomicOp::Inc,
        "dec" => AtomicOp::Dec,
        _ => return None,
    };
    Some((op, wide))
}

impl Machine<'_> {
    pub(super) fn scalar_atomic(&mut self, inst: &Inst, smem: &SmemInst) -> Done {
        let Some((op, wide)) = operation(smem.op.mnemonic()) else {
            return Err(unsupported(inst));
        };
        let size = if wide { 8 } else { 4 };
        let address = self.scalar_atomic_address(smem, size);
        let data = usize::from(smem.data & 0x7f);
        let scalar = &self.wave.scalar;
        let dword = |index: usize| u64::from(scalar[(data + index) & 0x7f]);
        let quadword = |index: usize| dword(index) | dword(index + 1) << 32;
        let [first, second] = if wide {
            [quadword(0), quadword(2)]
        } else {
            [dword(0), dword(1)]
        };
        let old = match address {
            None => 0,
            Some(address) if address % size != 0 => {
                let access = Access::Atomic;
                return Err(Fault { address, access }.into());
            }
            Some(address) if wide => self.memory.update64(address, &mut |old| {
                atomic::apply64(op, atomic::PLAIN, old, first, second)
            })?,
            Some(address) => self
                .memory
                .update32(address, &mut |old| {
                    atomic::apply32(op, atomic::PLAIN, old, first as u32, second as u32)
                })?
                .into(),
        };
        if smem.glc {
            self.set32(smem.data, old as u32);
            if wide {
                self.set32(smem.data.wrapping_add(1), (old >> 32) as u32);
            }
        }
        Ok(())
    }

    /// None: beyond the buffer's end; nothing happens there, and the old value reads 0.
    fn scalar_atomic_address(&self, smem: &SmemInst, size: u64) -> Option<u64> {
        if smem.op.types()[1] != Ty::B128 {
            return Some(self.smem_address(smem, 1));
        }
        let offset = self.smem_offset(smem, 1);
        let base = usize::from(smem.base & 0x7c);
        let low = self.wave.scalar64(base);
        let stride = (low >> 48 & 0x3fff).max(1);
        let end = u64::from(self.wave.scalar[base + 2]) * stride;
        offset.checked_add(size).filter(|last| *last <= end)?;
        Some((low & 0xffff_ffff_fffc).wrapping_add(offset))
    }
}
