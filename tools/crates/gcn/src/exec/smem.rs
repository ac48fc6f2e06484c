// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Scalar memory: loads and stores of whole dwords, cache control, clocks.

use super::{Done, Machine};
use crate::inst::{Inst, SmemInst, Src};
use crate::memory::CacheControl;
use crate::op::Smem;

/// Core clocks in a tick of the 100 MHz counter, for `s_memtime`.
const CLOCKS_PER_TICK: u64 = 21;

impl Machine<'_> {
    pub(super) fn smem(&mut self, inst: &Inst, smem: &SmemInst) -> Done {
        use Smem::*;
        let dwords = usize::from(smem.op.types()[0].dwords());
        match smem.op {
            s_load_dword | s_load_dwordx2 | s_load_dwordx4 | s_load_dwordx8 | s_load_dwordx16 => {
                let address = self.smem_address(smem, 1);
                self.scalar_load(smem, address, dwords)
            }
            s_scratch_load_dword | s_scratch_load_dwordx2 | s_scratch_load_dwordx4 => {
                let address = self.smem_address(smem, 64);
                self.scalar_load(smem, address, dwords)
            }
            s_buffer_load_dword
            | s_buffer_load_dwordx2
            | s_buffer_load_dwordx4
            | s_buffer_load_dwordx8
            | s_buffer_load_dwordx16 => self.buffer_load(smem, dwords),
            s_store_dword | s_store_dwordx2 | s_store_dwordx4 => {
                let address = self.smem_address(smem, 1);
                self.scalar_store(smem.data, address, dwords)
            }
            s_scratch_store_dword | s_scratch_store_dwordx2 | s_scratch_store_dwordx4 => {
                let address = self.smem_address(smem, 64);
                self.scalar_store(smem.data, address, dwords)
            }
            s_buffer_store_dword | s_buffer_store_dwordx2 | s_buffer_store_dwordx4 => {
                self.buffer_store(smem, dwords)
            }
            s_memrealtime => {
                let time = self.memory.realtime();
                self.set64(smem.data, time);
                Ok(())
            }
            s_memtime => {
                let time = self.memory.realtime().wrapping_mul(CLOCKS_PER_TICK);
                self.set64(smem.data, time);
                Ok(())
            }
            s_dcache_inv | s_dcache_inv_vol => {
                self.memory.control(CacheControl::InvalidateScalar);
                Ok(())
            }
            s_dcache_wb | s_dcache_wb_vol | s_dcache_discard | s_dcache_discard_x2
            | s_atc_probe | s_atc_probe_buffer => Ok(()),
            _ => self.scalar_atomic(inst, smem),
        }
    }

    /// Base + offsets; the register offset counts `unit` bytes. By the ISA guide the two lowest
    /// bits of each of them are ignored, not those of the sum.
    pub(super) fn smem_address(&self, smem: &SmemInst, unit: u64) -> u64 {
        let base = self.wave.scalar64(usize::from(smem.base & 0x7e)) & !3;
        base.wrapping_add(self.smem_offset(smem, unit))
    }

    /// The offsets of register and instruction, each without its two lowest bits.
    pub(super) fn smem_offset(&self, smem: &SmemInst, unit: u64) -> u64 {
        let register = smem.soffset.map_or(0, |src| u64::from(self.scalar32(src)));
        ((register * unit) & !3).wrapping_add_signed((smem.offset & !3).into())
    }

    fn scalar_load(&mut self, smem: &SmemInst, address: u64, dwords: usize) -> Done {
        let mut bytes = [0; 64];
        let bytes = &mut bytes[..4 * dwords];
        self.memory.read_scalar(address, bytes, smem.glc)?;
        for (index, dword) in bytes.chunks_exact(4).enumerate() {
            let value = u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]]);
            self.set32(smem.data.wrapping_add(index as u8), value);
        }
        Ok(())
    }

    fn scalar_store(&mut self, data: u8, address: u64, dwords: usize) -> Done {
        let mut bytes = [0; 16];
        for (index, dword) in bytes.chunks_exact_mut(4).enumerate().take(dwords) {
            let value = self.scalar32(Src::Scalar(data.wrapping_add(index as u8)));
            dword.copy_from_slice(&value.to_le_bytes());
        }
        Ok(self.memory.write_scalar(address, &bytes[..4 * dwords])?)
    }

    /// Where dword `index` of an access through a buffer descriptor is. None: beyond the buffer's
    /// end.
    fn buffer_dword(&self, smem: &SmemInst, index: u64) -> Option<u64> {
        let base = usize::from(smem.base & 0x7c);
        let low = self.wave.scalar64(base);
        let (address, stride) = (low & 0xffff_ffff_fffc, low >> 48 & 0x3fff);
        let records = u64::from(self.wave.scalar[base + 2]);
        let size = if stride == 0 {
            records
        } else {
            records * stride
        };
        let offset = self.smem_offset(smem, 1);
        let at = offset.checked_add(4 * index)?;
        at.checked_add(4).filter(|end| *end <= size)?;
        address.checked_add(at)
    }

    /// A load through a buffer descriptor: dwords beyond the buffer's end read 0.
    fn buffer_load(&mut self, smem: &SmemInst, dwords: usize) -> Done {
        // The data may overwrite the descriptor and the offset.
        let mut places = [None; 16];
        for (index, place) in (0..).zip(&mut places[..dwords]) {
            *place = self.buffer_dword(smem, index);
        }
        // Memory may refuse one of them, and the instruction be repeated.
        let mut values = [[0; 4]; 16];
        for (place, value) in places[..dwords].iter().zip(&mut values) {
            if let Some(address) = place {
                self.memory.read_scalar(*address, value, smem.glc)?;
            }
        }
        for (index, value) in (0u8..).zip(&values[..dwords]) {
            self.set32(smem.data.wrapping_add(index), u32::from_le_bytes(*value));
        }
        Ok(())
    }

    /// A store through a buffer descriptor: dwords beyond the buffer's end are dropped.
    fn buffer_store(&mut self, smem: &SmemInst, dwords: usize) -> Done {
        for index in 0..dwords {
            let value = self.scalar32(Src::Scalar(smem.data.wrapping_add(index as u8)));
            if let Some(address) = self.buffer_dword(smem, index as u64) {
                self.memory.write_scalar(address, &value.to_le_bytes())?;
            }
        }
        Ok(())
    }
}
