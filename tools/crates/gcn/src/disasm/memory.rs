// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! SMEM, vector memory and DS as text.

use super::{destination, flag, join, option, range, scalar_register, source};
use crate::inst::{DsInst, MemInst, SmemInst, Src};
use crate::op::mem::Segment;
use crate::op::{Ds, MemOp, Smem, Ty};
use crate::Target;

fn hex(value: i32) -> String {
    if value < 0 {
        format!("-0x{:x}", value.unsigned_abs())
    } else {
        format!("0x{value:x}")
    }
}

pub(super) fn smem(inst: &SmemInst) -> String {
    let types = inst.op.types();
    let data = match (inst.op, types[0].dwords()) {
        (Smem::s_atc_probe | Smem::s_atc_probe_buffer, _) if inst.data <= 64 => {
            inst.data.to_string()
        }
        (Smem::s_atc_probe | Smem::s_atc_probe_buffer, _) => hex(inst.data.into()),
        (_, 0) => String::new(),
        (_, dwords) => scalar_register(inst.data, dwords),
    };
    if types[1] == Ty::N {
        return join(inst.op.mnemonic(), &[data]);
    }
    let base = scalar_register(inst.base, types[1].dwords());
    let offset = match inst.soffset {
        Some(register) => source(register, Ty::B32) + &option("offset", hex(inst.offset), hex(0)),
        None => hex(inst.offset),
    };
    join(inst.op.mnemonic(), &[data, base, offset]) + &flag("glc", inst.glc && types[0] != Ty::N)
}

/// SC0, NT and SC1, which were GLC, SLC and SCC.
fn cache_flags(inst: &MemInst, target: Target) -> String {
    let [sc0, nt, sc1] = match target {
        Target::Gfx90a => ["glc", "slc", "scc"],
        _ => ["sc0", "nt", "sc1"],
    };
    flag(sc0, inst.sc0) + &flag(nt, inst.nt) + &flag(sc1, inst.sc1)
}

pub(super) fn vector(inst: &MemInst, target: Target) -> String {
    let mnemonic = format!("{}{}", inst.segment.prefix(), inst.name);
    if inst.op == MemOp::Cache {
        return match target {
            Target::Gfx90a => mnemonic,
            _ => mnemonic + &flag("sc0", inst.sc0) + &flag("sc1", inst.sc1),
        };
    }
    if matches!(inst.segment, Segment::Buffer | Segment::Typed) {
        return buffer(inst, &mnemonic, target);
    }
    let loaded = match inst.op {
        MemOp::Atomic(_, dwords) => dwords,
        op => op.data_dwords(),
    };
    let vaddr = match inst.vaddr {
        Some(vaddr) => range("v", vaddr.into(), inst.address_dwords()),
        None => "off".to_string(),
    };
    let saddr = match (inst.segment, inst.saddr) {
        (Segment::Flat, _) => String::new(),
        (_, None) => "off".to_string(),
        (Segment::Scratch, Some(saddr)) => scalar_register(saddr, 1),
        (_, Some(saddr)) => scalar_register(saddr, 2),
    };
    let operands = [
        destination(inst.dst, loaded),
        vaddr,
        destination(inst.data, inst.op.data_dwords()),
        saddr,
    ];
    let lds = inst.lds && target == Target::Gfx90a;
    join(&mnemonic, &operands)
        + &option("offset", inst.offset, 0)
        + &cache_flags(inst, target)
        + &flag("lds", lds)
}

fn buffer(inst: &MemInst, mnemonic: &str, target: Target) -> String {
    let dwords = inst.op.data_dwords();
    let data = match inst.op {
        _ if inst.lds => String::new(),
        op if op.is_load() => destination(inst.dst, dwords),
        _ => destination(inst.data, dwords),
    };
    let vaddr = match inst.vaddr {
        _ if inst.op == MemOp::StoreLds => String::new(),
        Some(vaddr) => range("v", vaddr.into(), inst.address_dwords()),
        None => "off".to_string(),
    };
    let soffset = match inst.soffset {
        Src::None => String::new(),
        soffset => source(soffset, Ty::B32),
    };
    join(
        mnemonic,
        &[data, vaddr, scalar_register(inst.srsrc, 4), soffset],
    ) + &inst.format.map_or_else(String::new, format_name)
        + &flag("idxen", inst.idxen)
        + &flag("offen", inst.offen)
        + &option("offset", inst.offset, 0)
        + &match inst.op {
            MemOp::StoreLds => flag("lds", inst.lds) + &cache_flags(inst, target),
            _ => cache_flags(inst, target) + &flag("lds", inst.lds),
        }
}

/// MTBUF's format by name; what is usual is not spelled.
fn format_name((data, number): (u8, u8)) -> String {
    const DATA: [&str; 16] = [
        "INVALID",
        "8",
        "16",
        "8_8",
        "32",
        "16_16",
        "10_11_11",
        "11_11_10",
        "10_10_10_2",
        "2_10_10_10",
        "8_8_8_8",
        "32_32",
        "16_16_16_16",
        "32_32_32",
        "32_32_32_32",
        "RESERVED_15",
    ];
    const NUMBER: [&str; 8] = [
        "UNORM",
        "SNORM",
        "USCALED",
        "SSCALED",
        "UINT",
        "SINT",
        "RESERVED_6",
        "FLOAT",
    ];
    let data = (data != 1).then(|| format!("BUF_DATA_FORMAT_{}", DATA[usize::from(data & 15)]));
    let number =
        (number != 0).then(|| format!("BUF_NUM_FORMAT_{}", NUMBER[usize::from(number & 7)]));
    let names: Vec<String> = data.into_iter().chain(number).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" format:[{}]", names.join(",")),
    }
}

pub(super) fn ds(inst: &DsInst) -> String {
    let types = inst.op.types();
    let name = inst.op.mnemonic();
    let is_gws = name.starts_with("ds_gws");
    let no_address = is_gws
        || matches!(
            inst.op,
            Ds::ds_nop
                | Ds::ds_consume
                | Ds::ds_append
                | Ds::ds_read_addtid_b32
                | Ds::ds_write_addtid_b32
        );
    let operands = [
        destination(inst.dst, types[0].dwords()),
        if no_address {
            String::new()
        } else {
            format!("v{}", inst.addr)
        },
        destination(inst.data0, types[1].dwords()),
        destination(inst.data1, types[2].dwords()),
    ];
    let two = name.contains("read2") || name.contains("write2") || name.contains("xchg2");
    let offsets = if two {
        option("offset0", inst.offset0, 0) + &option("offset1", inst.offset1, 0)
    } else {
        option("offset", inst.offset(), 0)
    };
    join(name, &operands) + &offsets + &flag("gds", inst.gds && is_gws)
}
