// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How fast waves run: lane-operations per second of loops of a few kinds. `cargo bench -p gcn`.

use gcn::{Access, Apertures, CodeCache, Fault, Memory, Outcome, Wave, Workgroup};

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

/// Loop bodies: name, dwords.
const BODIES: &[(&str, &[u32])] = &[
    // v_add_u32_e32 v1, v2, v3
    ("v_add_u32", &[0x6802_0702]),
    // v_mul_lo_u32 v1, v2, v3
    ("v_mul_lo_u32", &[0xd285_0001, 0x0002_0702]),
    // v_add_f32_e32 v1, v2, v3
    ("v_add_f32", &[0x0202_0702]),
    // v_fmac_f32_e32 v1, v2, v3
    ("v_fmac_f32", &[0x7602_0702]),
    // v_fma_f64 v[4:5], v[6:7], v[8:9], v[4:5]
    ("v_fma_f64", &[0xd1cc_0004, 0x0412_1106]),
    // v_rcp_f32_e32 v1, v2
    ("v_rcp_f32", &[0x7e02_4502]),
    // v_cmp_lt_u32_e32 vcc, v2, v3
    ("v_cmp_lt_u32", &[0x7d92_0702]),
    // v_cndmask_b32_e32 v1, v2, v3, vcc
    ("v_cndmask_b32", &[0x0002_0702]),
    // v_lshl_add_u64 v[4:5], v[6:7], 2, v[8:9]
    ("v_lshl_add_u64", &[0xd208_0004, 0x0421_0506]),
    // v_pk_fma_f32 v[4:5], v[6:7], v[8:9], v[4:5]
    ("v_pk_fma_f32", &[0xd3b0_4004, 0x1c12_1106]),
    // global_load_dword v1, v10, s[2:3]
    ("global_load_dword", &[0xdc50_8000, 0x0102_000a]),
    // ds_read_b32 v1, v10
    ("ds_read_b32", &[0xd86c_0000, 0x0100_000a]),
];

/// CPU time of this process: other load on the machine does not count.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells CPU time");
    let nanoseconds = text
        .split_whitespace()
        .next()
        .and_then(|field| field.parse::<f64>().ok());
    nanoseconds.expect("the first field is a number") / 1e9
}

/// How often a body stands in its loop, and how often the loop runs.
const COPIES: usize = 32;
const ROUNDS: u32 = 20_000;

fn main() {
    // `cargo test --benches` runs this too: once round is enough there.
    let rounds = if std::env::args().any(|argument| argument == "--bench") {
        ROUNDS
    } else {
        1
    };
    for exec in [u64::MAX, 0x5555_5555_5555_5555] {
        println!("EXEC {exec:#x}:");
        for (name, body) in BODIES {
            let (executed, seconds) = run(body, rounds, exec);
            let per_inst = seconds * 1e9 / executed as f64;
            let lanes = executed as f64 * f64::from(exec.count_ones()) / seconds;
            println!(
                "  {name:20} {per_inst:8.1} ns an instruction, {:8.2} G lane-operations/s",
                lanes / 1e9
            );
        }
    }
}

fn run(body: &[u32], rounds: u32, exec: u64) -> (u64, f64) {
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
    ram.0.resize(8192, 0);
    let mut wave = Wave::new(0, 16, 0);
    wave.scalar[0] = rounds;
    wave.scalar[2] = 4096;
    wave.set_exec(exec);
    for lane in 0..64 {
        for register in 0..10 {
            wave.vgpr[register][lane] = (1.0 + register as f32 + lane as f32).to_bits();
        }
        wave.vgpr[10][lane] = 4 * lane as u32;
    }
    let mut group = Workgroup::new(vec![wave], 4096, Apertures::default());
    let mut cache = CodeCache::new();
    let start = cpu_seconds();
    let outcome = group.run(&mut ram, &mut cache, u64::MAX);
    let seconds = cpu_seconds() - start;
    assert_eq!(outcome, Outcome::Done);
    (group.executed, seconds)
}
