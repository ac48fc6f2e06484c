// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! How fast waves run: nanoseconds of an instruction, of loops of a few kinds, on one core.
//! `cargo bench -p gcn [NAME]`, or with `--profile dev` as the server is usually built.
//!
//! Each loop runs for less than a millisecond or a few, many times, and its shortest time counts:
//! on a busy machine an average tells of the other load.

use gcn::{Access, Apertures, CodeCache, Fault, Memory, Outcome, Wave, Workgroup};
use std::time::{Duration, Instant};

/// Code at 0, data from 4096 on.
struct Ram(Vec<u8>);

impl Ram {
    fn at(&self, address: u64, length: usize, access: Access) -> Result<usize, Fault> {
        let at = address as usize;
        if at
            .checked_add(length)
            .is_some_and(|end| end <= self.0.len())
        {
            return Ok(at);
        }
        Err(Fault { address, access })
    }
}

impl Memory for Ram {
    fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let at = self.at(address, bytes.len(), Access::Fetch)?;
        bytes.copy_from_slice(&self.0[at..at + bytes.len()]);
        Ok(())
    }
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let at = self.at(address, bytes.len(), Access::Read)?;
        bytes.copy_from_slice(&self.0[at..at + bytes.len()]);
        Ok(())
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.at(address, bytes.len(), Access::Write)?;
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn update32(&mut self, address: u64, _: &mut dyn FnMut(u32) -> u32) -> Result<u32, Fault> {
        Err(Fault {
            address,
            access: Access::Atomic,
        })
    }
    fn update64(&mut self, address: u64, _: &mut dyn FnMut(u64) -> u64) -> Result<u64, Fault> {
        Err(Fault {
            address,
            access: Access::Atomic,
        })
    }
    fn realtime(&mut self) -> u64 {
        0
    }
}

/// Loop bodies: name, dwords, lane-operations with all lanes active.
const BODIES: &[(&str, &[u32], u64)] = &[
    // v_add_u32_e32 v1, v2, v3
    ("v_add_u32", &[0x6802_0702], 64),
    // v_mul_lo_u32 v1, v2, v3
    ("v_mul_lo_u32", &[0xd285_0001, 0x0002_0702], 64),
    // v_add_f32_e32 v1, v2, v3
    ("v_add_f32", &[0x0202_0702], 64),
    // v_fmac_f32_e32 v1, v2, v3
    ("v_fmac_f32", &[0x7602_0702], 64),
    // v_fma_f64 v[4:5], v[6:7], v[8:9], v[4:5]
    ("v_fma_f64", &[0xd1cc_0004, 0x0412_1106], 64),
    // v_rcp_f32_e32 v1, v2
    ("v_rcp_f32", &[0x7e02_4502], 64),
    // v_cmp_lt_u32_e32 vcc, v2, v3
    ("v_cmp_lt_u32", &[0x7d92_0702], 64),
    // v_cndmask_b32_e32 v1, v2, v3, vcc
    ("v_cndmask_b32", &[0x0002_0702], 64),
    // v_lshl_add_u64 v[4:5], v[6:7], 2, v[8:9]
    ("v_lshl_add_u64", &[0xd208_0004, 0x0421_0506], 64),
    // v_pk_fma_f32 v[4:5], v[6:7], v[8:9], v[4:5]
    ("v_pk_fma_f32", &[0xd3b0_4004, 0x1c12_1106], 64),
    // global_load_dword v1, v10, s[2:3]
    ("global_load_dword", &[0xdc50_8000, 0x0102_000a], 64),
    // ds_read_b32 v1, v10
    ("ds_read_b32", &[0xd86c_0000, 0x0100_000a], 64),
    // global_load_dword v1, v11, s[2:3]: every third dword
    ("global_load_strided", &[0xdc50_8000, 0x0102_000b], 64),
    // global_store_dword v10, v1, s[2:3]
    ("global_store_dword", &[0xdc70_8000, 0x0002_010a], 64),
    // scratch_load_dword v1, off, off offset:16
    ("scratch_load_dword", &[0xdc50_4010, 0x017f_0000], 64),
    // s_add_u32 s6, s7, s8: one operation for the wave
    ("s_add_u32", &[0x8006_0807], 1),
    // v_mfma_f32_32x32x2_f32 v[32:47], v20, v22, v[32:47]
    ("v_mfma_f32_32x32x2_f32", &[0xd3c4_0020, 0x0482_2d14], 2048),
    // v_mfma_f32_32x32x8_f16 v[32:47], v[20:21], v[22:23], v[32:47]
    ("v_mfma_f32_32x32x8_f16", &[0xd3cc_0020, 0x0482_2d14], 8192),
    // v_mfma_i32_32x32x16_i8 v[32:47], v[20:21], v[22:23], v[32:47]
    ("v_mfma_i32_32x32x16_i8", &[0xd3d6_0020, 0x0482_2d14], 16384),
    // v_mfma_f64_16x16x4_f64 v[32:39], v[20:21], v[22:23], v[32:39]
    ("v_mfma_f64_16x16x4_f64", &[0xd3ee_0020, 0x0482_2d14], 1024),
];

/// How often a body stands in its loop.
const COPIES: usize = 32;
/// How often a loop is timed.
const TIMES: u32 = 200;

/// How often the loop runs each time.
fn rounds(operations: u64) -> u32 {
    match operations {
        1 => 300,
        64 => 100,
        // Microseconds each.
        _ => 2,
    }
}

fn main() {
    // Cargo says `--bench` to it.
    let name_part = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let is_asked = |name: &str| name_part.as_ref().is_none_or(|part| name.contains(part));
    for (lanes, exec) in [("all", u64::MAX), ("half", 0x5555_5555_5555_5555)] {
        for (name, body, operations) in BODIES {
            // To the others EXEC does not matter.
            let is_told = *operations == 64 || exec == u64::MAX;
            if !is_asked(name) || !is_told {
                continue;
            }
            let rounds = rounds(*operations);
            let times = (0..TIMES).map(|_| run(body, rounds, exec));
            let shortest = times.min().unwrap_or_default().as_nanos();
            let count = COPIES as f64 * f64::from(rounds);
            let each = shortest as f64 / count;
            println!("{lanes:4} {name} {each:.2} ns");
        }
    }
}

fn run(body: &[u32], rounds: u32, exec: u64) -> Duration {
    let mut code: Vec<u32> = Vec::new();
    for _ in 0..COPIES {
        code.extend(body);
    }
    let back = -(code.len() as i32 + 3);
    // s_sub_u32 s0, s0, 1; s_cmp_lg_u32 s0, 0; s_cbranch_scc1 back; s_endpgm
    code.extend([
        0x8080_8100,
        0xbf07_8000,
        0xbf85_0000 | (back as u32 & 0xffff),
        0xbf81_0000,
    ]);
    let mut ram = Ram(code.iter().flat_map(|dword| dword.to_le_bytes()).collect());
    ram.0.resize(4 * 8192, 0);
    let mut wave = Wave::new(0, 64, 0);
    wave.scalar[2] = 4096;
    wave.set_scalar64(gcn::wave::sreg::FLAT_SCRATCH, 8192);
    wave.set_exec(exec);
    for lane in 0..64 {
        for register in 0..10 {
            wave.vgpr[register][lane] = (1.0 + register as f32 + lane as f32).to_bits();
        }
        wave.vgpr[10][lane] = 4 * lane as u32;
        wave.vgpr[11][lane] = 12 * lane as u32;
        // Halves and singles near one.
        for register in 20..24 {
            wave.vgpr[register][lane] = 0x3c00_3c00 + (lane * register) as u32;
        }
    }
    let mut cache = CodeCache::new();
    let mut time = Duration::ZERO;
    // Once before, so that decoding is not in the time.
    for rounds in [1, rounds] {
        wave.scalar[0] = rounds;
        let mut group = Workgroup::new(vec![wave.clone()], 4096, Apertures::default());
        let start = Instant::now();
        let outcome = group.run(&mut ram, &mut cache, u64::MAX);
        time = start.elapsed();
        assert_eq!(outcome, Outcome::Done);
    }
    time
}
