// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The IP discovery table: how the driver learns what blocks the GPU has and where. Built once from
//! the preset and put near the top of local memory, where firmware would leave it.
//!
//! Layouts as in `linux:drivers/gpu/drm/amd/include/discovery.h` (`binary_header`,
//! `ip_discovery_header`, `ip_v4`, `gc_info_v2_1`, `harvest_table`); all little-endian and packed.

use crate::preset::{IpBlock, Preset};

/// Distance of the table from the top of local memory (`DISCOVERY_TMR_OFFSET`).
pub const FROM_TOP: u64 = 64 << 10;

/// `BINARY_SIGNATURE`.
const BINARY_SIGNATURE: u32 = 0x2821_1407;
/// `DISCOVERY_TABLE_SIGNATURE`, "IPDS".
const DISCOVERY_TABLE_SIGNATURE: u32 = 0x5344_5049;
/// `GC_TABLE_ID`, "GC".
const GC_TABLE_ID: u32 = 0x4347;
/// `HARVEST_TABLE_SIGNATURE`, "HARV".
const HARVEST_TABLE_SIGNATURE: u32 = 0x5652_4148;

/// `TOTAL_TABLES` of the version 1 header.
const TABLES: usize = 6;
/// Indices of the tables we give, `enum table`.
const IP_DISCOVERY: usize = 0;
const GC: usize = 1;
const HARVEST_INFO: usize = 2;
/// `struct binary_header` with its table list.
const BINARY_HEADER: usize = 12 + TABLES * 8;
/// Bytes before the sum of `binary_checksum` begins.
const SUMMED_FROM: usize = 10;
/// `struct ip_discovery_header`.
const IP_HEADER: usize = 14 + 16 * 4 + 2;

/// Collects little-endian fields.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }
}

fn byte_sum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, &b| sum.wrapping_add(b.into()))
}

/// The whole binary for a preset.
pub fn build(preset: &Preset) -> Vec<u8> {
    let mut tables: [Vec<u8>; TABLES] = Default::default();
    tables[IP_DISCOVERY] = ip_table(preset, BINARY_HEADER as u16);
    tables[GC] = gc_table(preset);
    tables[HARVEST_INFO] = harvest_table();

    let mut list = Bytes::default();
    let mut body = Vec::new();
    for table in &tables {
        let offset = if table.is_empty() {
            0
        } else {
            BINARY_HEADER + body.len()
        };
        list.u16(offset as u16)
            .u16(byte_sum(table))
            .u16(table.len() as u16)
            .u16(0);
        body.extend_from_slice(table);
    }
    let size = (BINARY_HEADER + body.len()) as u16;
    let mut binary = Bytes::default();
    binary.u32(BINARY_SIGNATURE).u16(1).u16(0).u16(0).u16(size);
    binary.0.extend(list.0);
    binary.0.extend(body);
    let sum = byte_sum(&binary.0[SUMMED_FROM..]);
    binary.0[8..10].copy_from_slice(&sum.to_le_bytes());
    binary.0
}

/// One die with all IP instances; `start` is the table's offset in the binary, which die offsets
/// count from 0.
fn ip_table(preset: &Preset, start: u16) -> Vec<u8> {
    let mut ips = Bytes::default();
    let mut count = 0;
    for block in &preset.ips {
        for instance in 0..block.instances.len() {
            ip_entry(&mut ips, block, instance);
            count += 1;
        }
    }
    let size = IP_HEADER + 4 + ips.0.len();
    let mut table = Bytes::default();
    table
        .u32(DISCOVERY_TABLE_SIGNATURE)
        .u16(4)
        .u16(size as u16)
        .u32(0)
        .u16(1);
    table.u16(0).u16(start + IP_HEADER as u16);
    for _ in 1..16 {
        table.u16(0).u16(0);
    }
    // `base_addr_64_bit` 0.
    table.u16(0);
    table.u16(0).u16(count);
    table.0.extend(ips.0);
    table.0
}

fn ip_entry(out: &mut Bytes, block: &IpBlock, instance: usize) {
    let bases = &block.instances[instance];
    let (major, minor, revision) = block.version;
    out.u16(block.hardware_id)
        .u8(instance as u8)
        .u8(bases.len() as u8);
    out.u8(major).u8(minor).u8(revision).u8(0);
    for &base in bases {
        out.u32(base);
    }
}

/// `struct gc_info_v2_1`: sizes of the graphics core. CDNA3's numbers; caches in KiB.
fn gc_table(preset: &Preset) -> Vec<u8> {
    let fields = [
        preset.shader_engines,
        preset.cus_per_engine,           // gc_num_cu_per_sh
        1,                               // gc_num_sh_per_se
        4,                               // gc_num_rb_per_se
        16,                              // gc_num_tccs
        512,                             // gc_num_gprs
        32,                              // gc_num_max_gs_thds
        32,                              // gc_gs_table_depth
        1792,                            // gc_gsprim_buff_depth
        2048,                            // gc_parameter_cache_depth
        256,                             // gc_double_offchip_lds_buffer
        64,                              // gc_wave_size
        8,                               // gc_max_waves_per_simd
        32,                              // gc_max_scratch_slots_per_cu
        preset.target.lds_bytes() >> 10, // gc_lds_size
        1,                               // gc_num_sc_per_se
        4,                               // gc_num_packer_per_sc
        preset.cus_per_engine,           // gc_num_tcp_per_sh
        32,                              // gc_tcp_size_per_cu
        16,                              // gc_num_sdp_interface
        2,                               // gc_num_cu_per_sqc
        64,                              // gc_instruction_cache_size_per_sqc
        16,                              // gc_scalar_data_cache_size_per_sqc
        4096,                            // gc_tcc_size
    ];
    let mut table = Bytes::default();
    table
        .u32(GC_TABLE_ID)
        .u16(2)
        .u16(1)
        .u32(12 + 4 * fields.len() as u32);
    for field in fields {
        table.u32(field);
    }
    table.0
}

/// Nothing is harvested beyond what the preset leaves out.
fn harvest_table() -> Vec<u8> {
    let mut table = Bytes::default();
    table.u32(HARVEST_TABLE_SIGNATURE).u32(0);
    for _ in 0..32 {
        table.u32(0);
    }
    table.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u16_at(bytes: &[u8], at: usize) -> usize {
        usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
    }

    #[test]
    fn checksums_are_sums_of_the_bytes_they_cover() {
        let binary = build(&Preset::mi308x());
        assert_eq!(u16_at(&binary, 10), binary.len());
        let sum: usize = binary[10..].iter().map(|&b| usize::from(b)).sum();
        assert_eq!(u16_at(&binary, 8), sum & 0xffff);
        for table in 0..3 {
            let entry = 12 + table * 8;
            let (offset, size) = (u16_at(&binary, entry), u16_at(&binary, entry + 4));
            let sum: usize = binary[offset..offset + size]
                .iter()
                .map(|&b| usize::from(b))
                .sum();
            assert_eq!(u16_at(&binary, entry + 2), sum & 0xffff, "table {table}");
        }
    }

    #[test]
    fn the_die_lists_every_instance() {
        let preset = Preset::mi308x();
        let binary = build(&preset);
        let table = u16_at(&binary, 12);
        assert_eq!(&binary[table..table + 4], b"IPDS");
        let die = u16_at(&binary, table + 16);
        let instances: usize = preset.ips.iter().map(|b| b.instances.len()).sum();
        assert_eq!(u16_at(&binary, die + 2), instances);
        // Walking the variable-sized entries ends exactly at the table's end.
        let mut at = die + 4;
        for _ in 0..instances {
            at += 8 + 4 * usize::from(binary[at + 3]);
        }
        assert_eq!(at, table + u16_at(&binary, table + 6));
    }
}
