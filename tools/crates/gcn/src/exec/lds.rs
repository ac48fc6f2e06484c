// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! DS: the local data share, lane permutations, and requests to global wave sync.
//! LDS accesses out of bounds read 0 and write nothing. Address and offset are added in 32 bits,
//! and the sum wraps: LLVM counts on it from Sea Islands on (`GCNSubtarget::hasUsableDSOffset`),
//! and folds what it adds to an index that may be negative into the offset.

use super::valu::merge;
use super::{atomic, unsupported, Done, Machine, Stop};
use crate::inst::{DsInst, Dst, Inst};
use crate::op::{AtomicOp, Ds};
use crate::wave::{Vgpr, LANES};
use crate::workgroup::{GwsOp, GwsRequest};

/// Active lanes, lowest first.
pub(super) fn lanes(mask: u64) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}

impl Machine<'_> {
    pub(super) fn ds(&mut self, inst: &Inst, ds: &DsInst) -> Done {
        use Ds::*;
        if let Some(op) = gws_op(ds.op) {
            return Err(Stop::Gws(self.gws_request(ds, op)));
        }
        if ds.gds {
            return Err(unsupported(inst));
        }
        match ds.op {
            ds_read_b32 => self.lds_read::<1, 4>(ds),
            ds_read_b64 => self.lds_read::<2, 8>(ds),
            ds_read_b96 => self.lds_read::<3, 12>(ds),
            ds_read_b128 => self.lds_read::<4, 16>(ds),
            ds_read_b64_tr_b4 => self.lds_read_transposed::<2>(ds, 4),
            ds_read_b96_tr_b6 => self.lds_read_transposed::<3>(ds, 6),
            ds_read_b64_tr_b8 => self.lds_read_transposed::<2>(ds, 8),
            ds_read_b64_tr_b16 => self.lds_read_transposed::<2>(ds, 16),
            ds_write_b32 => self.lds_write::<1, 4>(ds),
            ds_write_b64 => self.lds_write::<2, 8>(ds),
            ds_write_b96 => self.lds_write::<3, 12>(ds),
            ds_write_b128 => self.lds_write::<4, 16>(ds),
            ds_read2_b32 => self.lds_read2(ds, 1, 4),
            ds_read2st64_b32 => self.lds_read2(ds, 1, 256),
            ds_read2_b64 => self.lds_read2(ds, 2, 8),
            ds_read2st64_b64 => self.lds_read2(ds, 2, 512),
            ds_write2_b32 => self.lds_write2(ds, 1, 4),
            ds_write2st64_b32 => self.lds_write2(ds, 1, 256),
            ds_write2_b64 => self.lds_write2(ds, 2, 8),
            ds_write2st64_b64 => self.lds_write2(ds, 2, 512),
            ds_wrxchg2_rtn_b32 => self.lds_exchange2(ds, 1, 4),
            ds_wrxchg2st64_rtn_b32 => self.lds_exchange2(ds, 1, 256),
            ds_wrxchg2_rtn_b64 => self.lds_exchange2(ds, 2, 8),
            ds_wrxchg2st64_rtn_b64 => self.lds_exchange2(ds, 2, 512),
            _ => self.ds_narrow(inst, ds),
        }
    }

    fn ds_narrow(&mut self, inst: &Inst, ds: &DsInst) -> Done {
        use Ds::*;
        match ds.op {
            ds_nop => Ok(()),
            ds_read_u8 => self.lds_read_narrow(ds, 1, |byte| byte),
            ds_read_i8 => self.lds_read_narrow(ds, 1, |byte| byte as i8 as u32),
            ds_read_u16 => self.lds_read_narrow(ds, 2, |half| half),
            ds_read_i16 => self.lds_read_narrow(ds, 2, |half| half as i16 as u32),
            ds_read_u8_d16 => self.lds_read_narrow(ds, 1, low_half),
            ds_read_i8_d16 => self.lds_read_narrow(ds, 1, |byte| low_half(byte as i8 as u32)),
            ds_read_u16_d16 => self.lds_read_narrow(ds, 2, low_half),
            ds_read_u8_d16_hi => self.lds_read_narrow(ds, 1, high_half),
            ds_read_i8_d16_hi => self.lds_read_narrow(ds, 1, |byte| high_half(byte as i8 as u32)),
            ds_read_u16_d16_hi => self.lds_read_narrow(ds, 2, high_half),
            ds_write_b8 => self.lds_write_narrow(ds, 1, 0),
            ds_write_b16 => self.lds_write_narrow(ds, 2, 0),
            ds_write_b8_d16_hi => self.lds_write_narrow(ds, 1, 16),
            ds_write_b16_d16_hi => self.lds_write_narrow(ds, 2, 16),
            ds_swizzle_b32 => self.swizzle(ds),
            ds_permute_b32 => self.permute(ds),
            ds_bpermute_b32 => self.permute_back(ds),
            ds_read_addtid_b32 | ds_write_addtid_b32 => self.by_thread(ds),
            ds_consume | ds_append => self.count_lanes(inst, ds),
            ds_condxchg32_rtn_b64 => self.conditional_exchange(ds),
            _ => match atomic_op(ds.op) {
                Some((op, 1)) => self.lds_atomic32(ds, op),
                Some((op, _)) => self.lds_atomic64(ds, op),
                None => Err(unsupported(inst)),
            },
        }
    }

    /// The dword at a byte address.
    pub(super) fn lds_dword(&self, address: u32) -> u32 {
        let mut bytes = [0; 4];
        self.lds_bytes(address.into(), &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Copies out; zeros beyond the end.
    pub(super) fn lds_bytes(&self, address: u64, bytes: &mut [u8]) {
        let range = address as usize..(address as usize).saturating_add(bytes.len());
        match self.lds.get(range) {
            Some(found) => bytes.copy_from_slice(found),
            None => bytes.fill(0),
        }
    }

    /// Copies in; nothing beyond the end.
    pub(super) fn lds_store(&mut self, address: u64, bytes: &[u8]) {
        let range = address as usize..(address as usize).saturating_add(bytes.len());
        if let Some(found) = self.lds.get_mut(range) {
            found.copy_from_slice(bytes);
        }
    }

    fn ds_address(&self, ds: &DsInst, lane: usize) -> u64 {
        let base = self.wave.vgpr[usize::from(ds.addr)][lane];
        base.wrapping_add(ds.offset()).into()
    }

    /// Register `index` of a data operand.
    pub(super) fn data(&self, dst: Dst, index: usize, lane: usize) -> u32 {
        match dst {
            Dst::Vgpr(number) => self.wave.vgpr[usize::from(number) + index][lane],
            Dst::Acc(number) => self.wave.acc[usize::from(number) + index][lane],
            Dst::None | Dst::Scalar(_) => 0,
        }
    }

    fn data64(&self, dst: Dst, lane: usize) -> u64 {
        u64::from(self.data(dst, 0, lane)) | u64::from(self.data(dst, 1, lane)) << 32
    }

    /// Writes register `index` of a destination for the active lanes.
    pub(super) fn put_data(&mut self, dst: Dst, index: usize, values: &Vgpr, mask: u64) {
        let register = match dst {
            Dst::Vgpr(number) => self.wave.vgpr.get_mut(usize::from(number) + index),
            Dst::Acc(number) => self.wave.acc.get_mut(usize::from(number) + index),
            Dst::None | Dst::Scalar(_) => None,
        };
        if let Some(register) = register {
            merge(register, values, mask);
        }
    }

    /// `BYTES` is 4 · `DWORDS`: a constant lets each lane be one move.
    fn lds_read<const DWORDS: usize, const BYTES: usize>(&mut self, ds: &DsInst) -> Done {
        let exec = self.wave.exec();
        let mut result = [[0; LANES]; DWORDS];
        let addresses = &self.wave.vgpr[usize::from(ds.addr)];
        let offset = ds.offset();
        for lane in lanes(exec) {
            let address = addresses[lane].wrapping_add(offset) as usize;
            let bytes = self
                .lds
                .get(address..)
                .and_then(|rest| rest.first_chunk::<BYTES>());
            let bytes = bytes.copied().unwrap_or([0; BYTES]);
            for (register, dword) in result.iter_mut().zip(bytes.chunks_exact(4)) {
                register[lane] = u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]]);
            }
        }
        for (index, register) in result.iter().enumerate() {
            self.put_data(ds.dst, index, register, exec);
        }
        Ok(())
    }

    /// `ds_read_*_tr_*`: what 16 lanes read is a matrix whose rows are 16 elements of `bits` bits,
    /// one lane's after the other's; each of the lanes gets a column. The ISA guide (11.4) wants
    /// EXEC to be all ones; here lanes that it leaves out count as zeros.
    fn lds_read_transposed<const DWORDS: usize>(&mut self, ds: &DsInst, bits: usize) -> Done {
        /// Lanes that work together, and elements of a row.
        const GROUP: usize = 16;
        let exec = self.wave.exec();
        let mut read = [0u128; LANES];
        for lane in lanes(exec) {
            let mut bytes = [0; 16];
            self.lds_bytes(self.ds_address(ds, lane), &mut bytes[..4 * DWORDS]);
            read[lane] = u128::from_le_bytes(bytes);
        }
        let count = 32 * DWORDS / bits;
        let column = |lane: usize| {
            (0..count).fold(0u128, |column, row| {
                let at = GROUP * row + lane % GROUP;
                let source = read[lane / GROUP * GROUP + at / count];
                let element = source >> (at % count * bits) & ((1 << bits) - 1);
                column | element << (row * bits)
            })
        };
        let columns: [u128; LANES] = std::array::from_fn(column);
        for index in 0..DWORDS {
            let register = columns.map(|column| (column >> (32 * index)) as u32);
            self.put_data(ds.dst, index, &register, exec);
        }
        Ok(())
    }

    fn lds_write<const DWORDS: usize, const BYTES: usize>(&mut self, ds: &DsInst) -> Done {
        for lane in lanes(self.wave.exec()) {
            let mut bytes = [0; BYTES];
            for (index, dword) in bytes.chunks_exact_mut(4).enumerate().take(DWORDS) {
                dword.copy_from_slice(&self.data(ds.data0, index, lane).to_le_bytes());
            }
            let address = self.ds_address(ds, lane) as usize;
            let rest = self.lds.get_mut(address..);
            if let Some(place) = rest.and_then(|rest| rest.first_chunk_mut::<BYTES>()) {
                *place = bytes;
            }
        }
        Ok(())
    }

    /// Both addresses of the two-address forms, whose offsets count units.
    fn two_addresses(&self, ds: &DsInst, lane: usize, unit: u32) -> [u64; 2] {
        let base = self.wave.vgpr[usize::from(ds.addr)][lane];
        [ds.offset0, ds.offset1].map(|offset| base.wrapping_add(u32::from(offset) * unit).into())
    }

    fn lds_read2(&mut self, ds: &DsInst, dwords: usize, unit: u32) -> Done {
        let exec = self.wave.exec();
        let mut result = [[0; LANES]; 4];
        for lane in lanes(exec) {
            for (which, address) in self.two_addresses(ds, lane, unit).into_iter().enumerate() {
                for index in 0..dwords {
                    let at = address + 4 * index as u64;
                    result[which * dwords + index][lane] =
                        self.lds_dword(at.min(u32::MAX.into()) as u32);
                }
            }
        }
        for (index, register) in result.iter().enumerate().take(2 * dwords) {
            self.put_data(ds.dst, index, register, exec);
        }
        Ok(())
    }

    fn lds_write2(&mut self, ds: &DsInst, dwords: usize, unit: u32) -> Done {
        for lane in lanes(self.wave.exec()) {
            let addresses = self.two_addresses(ds, lane, unit);
            for (address, data) in addresses.into_iter().zip([ds.data0, ds.data1]) {
                for index in 0..dwords {
                    let value = self.data(data, index, lane).to_le_bytes();
                    self.lds_store(address + 4 * index as u64, &value);
                }
            }
        }
        Ok(())
    }

    fn lds_exchange2(&mut self, ds: &DsInst, dwords: usize, unit: u32) -> Done {
        let exec = self.wave.exec();
        let mut result = [[0; LANES]; 4];
        for lane in lanes(exec) {
            let addresses = self.two_addresses(ds, lane, unit);
            for (which, data) in [ds.data0, ds.data1].into_iter().enumerate() {
                for index in 0..dwords {
                    let at = addresses[which] + 4 * index as u64;
                    let value = self.data(data, index, lane).to_le_bytes();
                    result[which * dwords + index][lane] =
                        self.lds_dword(at.min(u32::MAX.into()) as u32);
                    self.lds_store(at, &value);
                }
            }
        }
        for (index, register) in result.iter().enumerate().take(2 * dwords) {
            self.put_data(ds.dst, index, register, exec);
        }
        Ok(())
    }

    /// Reads 1 or 2 bytes; `f` makes the new register value of the old one and them.
    fn lds_read_narrow(&mut self, ds: &DsInst, bytes: usize, f: impl Fn(u32) -> u32) -> Done {
        let exec = self.wave.exec();
        let mut result = [0; LANES];
        for lane in lanes(exec) {
            let mut read = [0; 4];
            self.lds_bytes(self.ds_address(ds, lane), &mut read[..bytes]);
            result[lane] = f(u32::from_le_bytes(read));
        }
        self.put_data(ds.dst, 0, &result, exec);
        Ok(())
    }

    fn lds_write_narrow(&mut self, ds: &DsInst, bytes: usize, shift: u32) -> Done {
        for lane in lanes(self.wave.exec()) {
            let value = (self.data(ds.data0, 0, lane) >> shift).to_le_bytes();
            let address = self.ds_address(ds, lane);
            self.lds_store(address, &value[..bytes]);
        }
        Ok(())
    }

    /// DS compares with data0 and stores data1, unlike memory's atomics.
    fn lds_atomic32(&mut self, ds: &DsInst, op: AtomicOp) -> Done {
        let exec = self.wave.exec();
        let floats = atomic::in_lds(self.wave.mode);
        let mut result = [0; LANES];
        for lane in lanes(exec) {
            let address = self.ds_address(ds, lane);
            let old = self.lds_dword(address.min(u32::MAX.into()) as u32);
            let (data, second) = ordered(
                op,
                self.data(ds.data0, 0, lane),
                self.data(ds.data1, 0, lane),
            );
            let new = atomic::apply32(op, floats, old, data, second);
            self.lds_store(address, &new.to_le_bytes());
            result[lane] = old;
        }
        self.put_data(ds.dst, 0, &result, exec);
        Ok(())
    }

    fn lds_atomic64(&mut self, ds: &DsInst, op: AtomicOp) -> Done {
        let exec = self.wave.exec();
        let floats = atomic::in_lds(self.wave.mode);
        let mut result = [[0; LANES]; 2];
        for lane in lanes(exec) {
            let address = self.ds_address(ds, lane);
            let mut bytes = [0; 8];
            self.lds_bytes(address, &mut bytes);
            let old = u64::from_le_bytes(bytes);
            let (data, second) =
                ordered(op, self.data64(ds.data0, lane), self.data64(ds.data1, lane));
            let new = atomic::apply64(op, floats, old, data, second);
            self.lds_store(address, &new.to_le_bytes());
            result[0][lane] = old as u32;
            result[1][lane] = (old >> 32) as u32;
        }
        for (index, register) in result.iter().enumerate() {
            self.put_data(ds.dst, index, register, exec);
        }
        Ok(())
    }

    /// `ds_swizzle`: a fixed exchange.
    fn swizzle(&mut self, ds: &DsInst) -> Done {
        let control = ds.offset() as usize;
        let source = |lane: usize| swizzled(control, lane);
        let from = self.wave.vgpr[usize::from(ds.addr)];
        self.gather(ds, &from, source)
    }

    /// `ds_condxchg32`: two dwords, each replaced if its new value's top bit is set, without that
    /// bit.
    fn conditional_exchange(&mut self, ds: &DsInst) -> Done {
        let exec = self.wave.exec();
        let mut result = [[0; LANES]; 2];
        for lane in lanes(exec) {
            let address = self.ds_address(ds, lane) & !7;
            for (half, register) in result.iter_mut().enumerate() {
                let at = address + 4 * half as u64;
                register[lane] = self.lds_dword(at as u32);
                let new = self.data(ds.data0, half, lane);
                if new >> 31 != 0 {
                    self.lds_store(at, &(new & 0x7fff_ffff).to_le_bytes());
                }
            }
        }
        for (index, register) in result.iter().enumerate() {
            self.put_data(ds.dst, index, register, exec);
        }
        Ok(())
    }

    /// `ds_bpermute`: each lane names the lane it reads.
    fn permute_back(&mut self, ds: &DsInst) -> Done {
        let from = std::array::from_fn(|lane| self.data(ds.data0, 0, lane));
        let index: [usize; LANES] =
            std::array::from_fn(|lane| (self.ds_address(ds, lane) >> 2) as usize % LANES);
        self.gather(ds, &from, |lane| index[lane])
    }

    /// Inactive sources read 0.
    fn gather(&mut self, ds: &DsInst, from: &Vgpr, source: impl Fn(usize) -> usize) -> Done {
        let exec = self.wave.exec();
        let result = std::array::from_fn(|lane| {
            let source = source(lane);
            if exec >> source & 1 != 0 {
                from[source]
            } else {
                0
            }
        });
        self.put_data(ds.dst, 0, &result, exec);
        Ok(())
    }

    /// `ds_permute`: each lane names the lane it writes; lanes that nobody names get 0.
    fn permute(&mut self, ds: &DsInst) -> Done {
        let exec = self.wave.exec();
        let mut result = [0; LANES];
        for lane in lanes(exec) {
            let to = (self.ds_address(ds, lane) >> 2) as usize % LANES;
            result[to] = self.data(ds.data0, 0, lane);
        }
        self.put_data(ds.dst, 0, &result, exec);
        Ok(())
    }

    /// `ds_{read,write}_addtid`: the lane number is the address, M0 the base.
    fn by_thread(&mut self, ds: &DsInst) -> Done {
        let exec = self.wave.exec();
        let base = u64::from(self.wave.m0() & 0xffff) + u64::from(ds.offset());
        let address = |lane: usize| base + 4 * lane as u64;
        if ds.op == Ds::ds_read_addtid_b32 {
            let result = std::array::from_fn(|lane| self.lds_dword(address(lane) as u32));
            self.put_data(ds.dst, 0, &result, exec);
            return Ok(());
        }
        for lane in lanes(exec) {
            let value = self.data(ds.data0, 0, lane).to_le_bytes();
            self.lds_store(address(lane), &value);
        }
        Ok(())
    }

    /// `ds_append`, `ds_consume`: one counter moves by the number of active lanes; all lanes get
    /// its old value. Of M0 the ISA guide says nothing for LDS ("at instr_offset"), and LLVM puts
    /// the counter's address into it: refused unless it is 0, where both agree.
    fn count_lanes(&mut self, inst: &Inst, ds: &DsInst) -> Done {
        if self.wave.m0() != 0 {
            return Err(unsupported(inst));
        }
        let exec = self.wave.exec();
        let address = ds.offset();
        let old = self.lds_dword(address);
        let count = exec.count_ones();
        let new = match ds.op {
            Ds::ds_append => old.wrapping_add(count),
            _ => old.wrapping_sub(count),
        };
        self.lds_store(address.into(), &new.to_le_bytes());
        self.put_data(ds.dst, 0, &[old; LANES], exec);
        Ok(())
    }

    fn gws_request(&self, ds: &DsInst, op: GwsOp) -> GwsRequest {
        let exec = self.wave.exec();
        let lane = if exec == 0 {
            0
        } else {
            exec.trailing_zeros() as usize
        };
        GwsRequest {
            op,
            resource: ds.offset() + (self.wave.m0() >> 16 & 0x3f),
            value: self.data(ds.data0, 0, lane),
        }
    }
}

/// What a load of half a register leaves in it. Where registers have ECC (all of CDNA 3 and 4) a
/// register is written in whole, so that the other half is 0, where GFX9's manual keeps it:
/// rocBLAS's kernels add two such halves by OR.
pub(super) fn low_half(value: u32) -> u32 {
    value & 0xffff
}

pub(super) fn high_half(value: u32) -> u32 {
    value << 16
}

/// Data and second operand, as `atomic` wants them.
fn ordered<T>(op: AtomicOp, data0: T, data1: T) -> (T, T) {
    match op {
        AtomicOp::CmpSwap | AtomicOp::CmpSwapFloat => (data1, data0),
        _ => (data0, data1),
    }
}

fn gws_op(op: Ds) -> Option<GwsOp> {
    Some(match op {
        Ds::ds_gws_init => GwsOp::Init,
        Ds::ds_gws_sema_v => GwsOp::SemaV,
        Ds::ds_gws_sema_br => GwsOp::SemaBr,
        Ds::ds_gws_sema_p => GwsOp::SemaP,
        Ds::ds_gws_sema_release_all => GwsOp::SemaReleaseAll,
        Ds::ds_gws_barrier => GwsOp::Barrier,
        _ => return None,
    })
}

/// The operation and its dwords.
fn atomic_op(op: Ds) -> Option<(AtomicOp, u8)> {
    use AtomicOp::*;
    use Ds::*;
    Some(match op {
        ds_add_u32 | ds_add_rtn_u32 => (Add, 1),
        ds_sub_u32 | ds_sub_rtn_u32 => (Sub, 1),
        ds_rsub_u32 | ds_rsub_rtn_u32 => (Rsub, 1),
        ds_inc_u32 | ds_inc_rtn_u32 => (Inc, 1),
        ds_dec_u32 | ds_dec_rtn_u32 => (Dec, 1),
        ds_min_i32 | ds_min_rtn_i32 => (Smin, 1),
        ds_max_i32 | ds_max_rtn_i32 => (Smax, 1),
        ds_min_u32 | ds_min_rtn_u32 => (Umin, 1),
        ds_max_u32 | ds_max_rtn_u32 => (Umax, 1),
        ds_and_b32 | ds_and_rtn_b32 => (And, 1),
        ds_or_b32 | ds_or_rtn_b32 => (Or, 1),
        ds_xor_b32 | ds_xor_rtn_b32 => (Xor, 1),
        ds_mskor_b32 | ds_mskor_rtn_b32 => (MskOr, 1),
        ds_wrxchg_rtn_b32 => (Swap, 1),
        ds_cmpst_b32 | ds_cmpst_rtn_b32 => (CmpSwap, 1),
        ds_cmpst_f32 | ds_cmpst_rtn_f32 => (CmpSwapFloat, 1),
        ds_min_f32 | ds_min_rtn_f32 => (MinFloat, 1),
        ds_max_f32 | ds_max_rtn_f32 => (MaxFloat, 1),
        ds_add_f32 | ds_add_rtn_f32 => (AddFloat, 1),
        ds_pk_add_f16 | ds_pk_add_rtn_f16 => (PkAddF16, 1),
        ds_pk_add_bf16 | ds_pk_add_rtn_bf16 => (PkAddBf16, 1),
        ds_wrap_rtn_b32 => (Wrap, 1),
        _ => return atomic_op64(op),
    })
}

fn atomic_op64(op: Ds) -> Option<(AtomicOp, u8)> {
    use AtomicOp::*;
    use Ds::*;
    Some(match op {
        ds_add_u64 | ds_add_rtn_u64 => (Add, 2),
        ds_sub_u64 | ds_sub_rtn_u64 => (Sub, 2),
        ds_rsub_u64 | ds_rsub_rtn_u64 => (Rsub, 2),
        ds_inc_u64 | ds_inc_rtn_u64 => (Inc, 2),
        ds_dec_u64 | ds_dec_rtn_u64 => (Dec, 2),
        ds_min_i64 | ds_min_rtn_i64 => (Smin, 2),
        ds_max_i64 | ds_max_rtn_i64 => (Smax, 2),
        ds_min_u64 | ds_min_rtn_u64 => (Umin, 2),
        ds_max_u64 | ds_max_rtn_u64 => (Umax, 2),
        ds_and_b64 | ds_and_rtn_b64 => (And, 2),
        ds_or_b64 | ds_or_rtn_b64 => (Or, 2),
        ds_xor_b64 | ds_xor_rtn_b64 => (Xor, 2),
        ds_mskor_b64 | ds_mskor_rtn_b64 => (MskOr, 2),
        ds_wrxchg_rtn_b64 => (Swap, 2),
        ds_cmpst_b64 | ds_cmpst_rtn_b64 => (CmpSwap, 2),
        ds_cmpst_f64 | ds_cmpst_rtn_f64 => (CmpSwapFloat, 2),
        ds_min_f64 | ds_min_rtn_f64 => (MinFloat, 2),
        ds_max_f64 | ds_max_rtn_f64 => (MaxFloat, 2),
        ds_add_f64 | ds_add_rtn_f64 => (AddFloat, 2),
        _ => return None,
    })
}
/// The lane whose value `lane` takes by `ds_swizzle`'s control: within fours by a table; within
/// thirty-twos by and, or and exclusive or of its number, by rotation, or by reversing bits as a
/// fast Fourier transform does.
fn swizzled(control: usize, lane: usize) -> usize {
    let (half, within) = (lane & 32, lane & 31);
    let mask = control & 31;
    match control {
        0xe000.. => {
            let reversed = ((within as u8).reverse_bits() >> 3) as usize;
            half | reversed >> mask.count_ones() | within & mask
        }
        0xc000.. => {
            let by = control >> 5 & 31;
            let by = if control & 0x400 != 0 { 32 - by } else { by };
            half | within & mask | (within + by) & 31 & !mask
        }
        0x8000.. => lane & !3 | control >> (2 * (lane & 3)) & 3,
        _ => half | (within & mask | control >> 5 & 31) ^ control >> 10 & 31,
    }
}
