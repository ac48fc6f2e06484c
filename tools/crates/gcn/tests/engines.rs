// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! All engines leave the same bits: random instructions of all kinds, on random registers, masks
//! and modes, by the reference and by the quick forms on each generation of vector units that this
//! machine has.

#[path = "support/numbers.rs"]
mod numbers;

use gcn::decode::decode_for;
use gcn::inst::{Body, Inst};
use gcn::op::{Sop1, Sopk};
use gcn::wave::{mode, sreg, status};
use gcn::{Apertures, CodeCache, Engine, Fault, Memory, Outcome, Target, Wave, Workgroup};
use numbers::numbers;
use std::ops::Range;

/// Code from 0 on, then data.
#[derive(Clone, Debug, PartialEq)]
struct Ram {
    bytes: Vec<u8>,
    /// Accesses that reach into `hole` are refused there, but only so many.
    hole: Range<u64>,
    times: u32,
    /// All accesses so far: to be asked can have effects.
    asked: Vec<(gcn::Access, u64, usize)>,
}

impl Ram {
    fn new(bytes: Vec<u8>) -> Ram {
        Ram {
            bytes,
            hole: 0..0,
            times: 0,
            asked: Vec::new(),
        }
    }

    /// What of an access is done, and the fault if that is not all of it.
    fn reach(
        &mut self,
        access: gcn::Access,
        address: u64,
        length: usize,
    ) -> (Range<usize>, Result<(), Fault>) {
        self.asked.push((access, address, length));
        let end = address.saturating_add(length as u64);
        let size = self.bytes.len() as u64;
        let mut stop = end.min(size);
        if self.times != 0 && address < self.hole.end && end > self.hole.start {
            self.times -= 1;
            stop = stop.min(self.hole.start);
        }
        let start = address.min(size);
        let reached = start as usize..stop.max(start) as usize;
        let address = address.saturating_add(reached.len() as u64);
        let done = match reached.len() == length {
            true => Ok(()),
            false => Err(Fault { address, access }),
        };
        (reached, done)
    }
}

impl Memory for Ram {
    fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let (range, done) = self.reach(gcn::Access::Fetch, address, bytes.len());
        bytes[..range.len()].copy_from_slice(&self.bytes[range]);
        done
    }
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let (range, done) = self.reach(gcn::Access::Read, address, bytes.len());
        bytes[..range.len()].copy_from_slice(&self.bytes[range]);
        done
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (range, done) = self.reach(gcn::Access::Write, address, bytes.len());
        self.bytes[range.clone()].copy_from_slice(&bytes[..range.len()]);
        done
    }
    fn update32(&mut self, at: u64, update: &mut dyn FnMut(u32) -> u32) -> Result<u32, Fault> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes)?;
        let old = u32::from_le_bytes(bytes);
        self.write(at, &update(old).to_le_bytes()).map(|()| old)
    }
    fn update64(&mut self, at: u64, update: &mut dyn FnMut(u64) -> u64) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        let old = u64::from_le_bytes(bytes);
        self.write(at, &update(old).to_le_bytes()).map(|()| old)
    }
    fn realtime(&mut self) -> u64 {
        0
    }
}

/// An encoding: its fixed bits, and those that are free.
const ENCODINGS: &[(u32, u32)] = &[
    // VOP2, twice, for it has more opcodes than bits of them.
    (0x0000_0000, 0x7fff_ffff),
    (0x0000_0000, 0x7fff_ffff),
    // VOP1, VOPC.
    (0x7e00_0000, 0x01ff_ffff),
    (0x7c00_0000, 0x01ff_ffff),
    // VOP3, with modifiers and with none; VOP3P.
    (0xd000_0000, 0x03ff_ffff),
    (0xd000_0000, 0x03ff_00ff),
    (0xd000_0000, 0x03ff_00ff),
    (0xd380_0000, 0x007f_ffff),
    // SOP2, SOPK, SOP1, SOPC.
    (0x8000_0000, 0x3fff_ffff),
    (0xb000_0000, 0x0fff_ffff),
    (0xbe80_0000, 0x007f_ffff),
    (0xbf00_0000, 0x007f_ffff),
];

/// The second dword of VOP3 and VOP3P without modifiers.
const PLAIN: u32 = 0x07ff_ffff;

/// Whether it can stand anywhere in a program: it leads nowhere else.
fn is_straight(inst: &Inst) -> bool {
    let leads_on = match inst.body {
        Body::Sop1 { op, .. } => !matches!(op, Sop1::s_getpc_b64),
        Body::Sopk { op, .. } => !matches!(
            op,
            Sopk::s_setreg_b32 | Sopk::s_setreg_imm32_b32 | Sopk::s_getreg_b32
        ),
        _ => true,
    };
    leads_on && !inst.ends_block() && inst.vgprs <= 256 && inst.accs <= 256
}

/// A random instruction.
fn instruction(target: Target, next: &mut dyn FnMut() -> u64) -> Inst {
    loop {
        let (fixed, free) = ENCODINGS[next() as usize % ENCODINGS.len()];
        let second = match next() % 4 {
            0 => u32::MAX,
            _ => PLAIN,
        };
        let words = [
            fixed | next() as u32 & free,
            next() as u32 & second,
            next() as u32,
            next() as u32,
        ];
        match decode_for(target, 0, &words) {
            Ok(inst) if is_straight(&inst) => return inst,
            _ => {}
        }
    }
}

/// Bits that are something to floats of any width, or to integers, or to nobody.
fn interesting(next: &mut dyn FnMut() -> u64) -> u32 {
    const SPECIAL: [u32; 16] = [
        0,
        1,
        0x8000_0000,
        0x8000_0001,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0001,
        0x7f80_0001,
        0x0080_0000,
        0x7f7f_ffff,
        0x3ff0_0000,
        0x7ff8_0000,
        0x3c00_3c00,
        u32::MAX,
    ];
    match next() % 8 {
        0 => SPECIAL[next() as usize % SPECIAL.len()],
        1 => next() as u32 & 0x3f,
        // Singles near one.
        2 | 3 => 0x3f00_0000 | next() as u32 & 0x80ff_ffff,
        _ => next() as u32,
    }
}

fn mask(next: &mut dyn FnMut() -> u64) -> u64 {
    match next() % 4 {
        0 | 1 => u64::MAX,
        2 => next() ^ next() << 32,
        _ => [0, 1, 1 << 63, 0x5555_5555_5555_5555][next() as usize % 4],
    }
}

/// A wave with something in all its registers.
fn wave(next: &mut dyn FnMut() -> u64) -> Wave {
    let mut wave = Wave::new(0, 256, 256);
    let calm = next() % 2 == 0;
    for register in wave.vgpr.iter_mut().chain(&mut wave.acc) {
        // Whole registers of numbers only, in which nothing has to be settled, and mixed ones.
        let mixed = !calm && next() % 2 == 0;
        let single = next() % 2 == 0;
        for lane in register.iter_mut() {
            *lane = match (mixed, single) {
                (true, _) => interesting(next),
                (false, true) => 0x3f00_0000 | next() as u32 & 0x80ff_ffff,
                (false, false) => next() as u32 & 0xbfff_bfff,
            };
        }
    }
    for register in &mut wave.scalar {
        *register = interesting(next);
    }
    wave.set_scalar64(sreg::VCC, mask(next));
    wave.set_exec(mask(next));
    wave.scc = next() % 2 == 0;
    if next() % 8 == 0 {
        wave.status |= status::PRIV;
    }
    if next() % 4 == 0 {
        let bits = mode::FP_ROUND | mode::FP_DENORM | mode::DX10_CLAMP | mode::IEEE;
        wave.mode = next() as u32 & bits;
    }
    wave
}

/// The work-group, its memory and the outcomes.
type Left = (Workgroup, Ram, Vec<Outcome>);

/// What an engine makes of a work-group; what memory refuses is tried again a few times.
fn after(target: Target, engine: Engine, group: &Workgroup, ram: &Ram) -> Left {
    let (mut group, mut ram) = (group.clone(), ram.clone());
    let mut code = CodeCache::with(target, engine);
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        outcomes.push(group.run(&mut ram, &mut code, 1000));
        if !matches!(outcomes.last(), Some(Outcome::Fault { .. })) {
            break;
        }
    }
    (group, ram, outcomes)
}

/// Says how the registers differ.
fn difference(expected: &Wave, found: &Wave) -> String {
    let files = [
        (&expected.vgpr, &found.vgpr, "v"),
        (&expected.acc, &found.acc, "a"),
    ];
    for (expected, found, name) in files {
        for (number, (one, other)) in expected.iter().zip(found.iter()).enumerate() {
            if let Some(lane) = (0..64).find(|lane| one[*lane] != other[*lane]) {
                let (one, other) = (one[lane], other[lane]);
                return format!("{name}{number}[{lane}] is {other:#x}, not {one:#x}");
            }
        }
    }
    for (number, (one, other)) in expected.scalar.iter().zip(&found.scalar).enumerate() {
        if one != other {
            return format!("scalar {number} is {other:#x}, not {one:#x}");
        }
    }
    let rest = |wave: &Wave| (wave.pc, wave.scc, wave.mode);
    format!("{:x?}, not {:x?}", rest(found), rest(expected))
}

/// What makes the next instruction of a program.
type Maker = fn(Target, &mut dyn FnMut() -> u64) -> Inst;

/// `ENGINES_TIMES`: so many times as many programs, for the long test.
fn times() -> usize {
    std::env::var("ENGINES_TIMES").map_or(1, |times| times.parse().expect("it is a number"))
}

/// Runs so many programs of `length` instructions, or as often as [`times`] has it.
fn compare(target: Target, seed: u64, programs: usize, (length, make): (usize, Maker)) {
    let mut next = numbers(seed);
    for _ in 0..programs * times() {
        let mut insts: Vec<Inst> = (0..length).map(|_| make(target, &mut next)).collect();
        link(target, &mut insts, &mut next);
        let end = 0xbf81_0000; // s_endpgm
        let words = insts.iter().flat_map(|inst| inst.dwords.clone());
        let words: Vec<u32> = words.chain([end]).collect();
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(bytes.len() <= DATA as usize);
        bytes.resize(DATA as usize, 0);
        bytes.extend((0..DATA_BYTES).map(|_| next() as u8));
        let mut ram = Ram::new(bytes);
        let place = DATA + next() % PAGE / 4 * 4;
        // A page, or an address that somebody has set a trap for.
        ram.hole = [DATA + PAGE..DATA + 2 * PAGE, place..place + 4][next() as usize % 2].clone();
        ram.times = [0, 1, 2, u32::MAX][next() as usize % 4];
        let apertures = Apertures {
            shared: SHARED,
            private: PRIVATE,
        };
        let mut wave = wave(&mut next);
        set_addresses(&mut wave, &mut next);
        let mut group = Workgroup::new(vec![wave], LDS_BYTES as usize, apertures);
        group.lds.fill_with(|| next() as u8);
        let expected = after(target, Engine::Reference, &group, &ram);
        for engine in Engine::all() {
            let found = after(target, engine, &group, &ram);
            if found != expected {
                let text: Vec<String> = insts.iter().map(Inst::to_string).collect();
                let how = difference(&expected.0.waves[0], &found.0.waves[0]);
                panic!(
                    "{engine:?}: {how}, {:x?} with {:x?}, not {:x?} with {:x?}: \
                     MODE {:x}, EXEC {:x}\n{}",
                    found.2,
                    found.1.asked,
                    expected.2,
                    expected.1.asked,
                    group.waves[0].mode,
                    group.waves[0].exec(),
                    text.join("\n")
                );
            }
        }
    }
}

/// Leads the branches to the beginnings of instructions, mostly behind them.
fn link(target: Target, insts: &mut [Inst], next: &mut dyn FnMut() -> u64) {
    let mut places = vec![0];
    for inst in insts.iter() {
        places.push(places.last().copied().unwrap_or(0) + inst.dwords.len());
    }
    for index in 0..insts.len() {
        if !insts[index].ends_block() {
            continue;
        }
        let to = match next() % 8 {
            0 => next() as usize % places.len(),
            _ => index + 1 + next() as usize % (insts.len() - index).min(4),
        };
        let distance = places[to] as i64 - places[index + 1] as i64;
        let word = insts[index].dwords[0] & 0xffff_0000 | u32::from(distance as u16);
        insts[index] = decode_for(target, 0, &[word]).expect("a branch with another distance");
    }
}

/// A random instruction, or a branch that [`link`] leads somewhere.
fn turn(target: Target, next: &mut dyn FnMut() -> u64) -> Inst {
    if next() % 3 != 0 {
        return instruction(target, next);
    }
    // s_branch, and s_cbranch of SCC, VCC and EXEC.
    let op = [2, 4, 5, 6, 7, 8, 9][next() as usize % 7];
    decode_for(target, 0, &[0xbf80_0000 | op << 16]).expect("a branch")
}

/// Where data begins, and how much there is.
const DATA: u64 = 4096;
const DATA_BYTES: u64 = 32768;
const PAGE: u64 = 4096;
const LDS_BYTES: u64 = 4096;
const SHARED: u64 = 1 << 32;
const PRIVATE: u64 = 2 << 32;
/// A pair of VGPRs with addresses, VGPRs with offsets in data and in LDS.
const ADDRESS: usize = 200;
const OFFSET: usize = 202;
const PLACE: usize = 203;

/// What the lanes add to an address: patterns that programs have, and others.
fn pattern(next: &mut dyn FnMut() -> u64) -> [u32; 64] {
    let first = match next() % 4 {
        0 => next() as u32 % 4,
        1 => next() as u32 % 1024,
        _ => next() as u32 % 256 * 4,
    };
    let kind = next() % 16;
    let size = [4, 8, 12, 16][next() as usize % 4];
    std::array::from_fn(|lane| {
        let lane = lane as u32;
        let step = match kind {
            0..=2 => 4 * lane,
            3 => 8 * lane,
            4 => 12 * lane,
            5 => 16 * lane,
            6 => 0,
            7 => lane / 8 * 32,
            8 => 4 * (63 - lane),
            9 => next() as u32 % 256 * 4,
            10 => next() as u32 % 2048,
            // Columns and rows of tiles, near each other or not.
            11 => lane / 16 * 64,
            12 => lane / 16 * 512 + lane % 16 * size,
            13 => lane / 16 * 2048 + lane % 16 * size,
            14 => match lane / 16 % 2 {
                0 => lane / 16 * 64,
                _ => lane % 16 * size,
            },
            _ => match next() % 64 {
                0 => next() as u32,
                _ => 4 * lane,
            },
        };
        first.wrapping_add(step)
    })
}

/// Registers that lead to memory: s[2:3], the buffer s[4:7], s8, scratch, and the VGPRs above.
fn set_addresses(wave: &mut Wave, next: &mut dyn FnMut() -> u64) {
    // What lies at it crosses into a page.
    let start = match next() % 4 {
        0 => DATA + PAGE - 300,
        _ => DATA,
    };
    let base = match next() % 16 {
        0 => SHARED + DATA % LDS_BYTES,
        1 => PRIVATE,
        // Data, and memory, end soon.
        2 => DATA + DATA_BYTES - 300,
        _ => start,
    };
    for (lane, offset) in pattern(next).into_iter().enumerate() {
        let address = base + u64::from(offset);
        wave.vgpr[ADDRESS][lane] = address as u32;
        wave.vgpr[ADDRESS + 1][lane] = (address >> 32) as u32;
    }
    wave.vgpr[OFFSET] = pattern(next);
    // Sums with an offset that wrap.
    let below = [0, 0, 0, 512][next() as usize % 4];
    wave.vgpr[PLACE] = pattern(next).map(|place| place.wrapping_sub(below));
    wave.set_scalar64(2, start);
    let records = [4096, 512, 260][next() as usize % 3];
    let stride = [0, 0, 16, 1 << 15][next() as usize % 4];
    // ADD_TID.
    let last = [0, 0, 0, 1 << 23][next() as usize % 4];
    wave.scalar[4..8].copy_from_slice(&[start as u32, stride << 16, records, last]);
    wave.scalar[8] = next() as u32 % 64 * 4;
    wave.set_scalar64(sreg::FLAT_SCRATCH, start);
    if next() % 8 != 0 {
        wave.set_scalar64(sreg::XNACK_MASK, 0);
    }
}

/// A random access to memory or LDS, at addresses from the registers that have some.
fn access(target: Target, next: &mut dyn FnMut() -> u64) -> Inst {
    loop {
        let mut below = |limit: u64| (next() % limit) as u32;
        let offset = [0, below(64) * 4, below(256)][below(3) as usize];
        let registers = below(190) << 8 | below(190) << 16 | below(190) << 24;
        let words = match below(8) {
            // FLAT, SCRATCH, GLOBAL: with an address in SGPRs, and without.
            0..=3 => {
                let segment = below(3);
                let scopes = if below(8) == 0 { 1 << 16 } else { 0 };
                let (address, base) = match (segment, below(2)) {
                    (2, 0) => (OFFSET, 2),
                    (1, 0) => (0, 8),
                    (1, _) => (OFFSET, 0x7f),
                    _ => (ADDRESS, 0x7f),
                };
                let first = 0xdc00_0000 | segment << 14 | scopes | below(64) << 18 | offset;
                let base = base << 16;
                [first, registers & 0xff00_ff00 | base | address as u32]
            }
            // MUBUF: in s[4:7].
            4 => {
                let offen = below(2) << 12 | [0, 0, 0, 1 << 13][below(4) as usize];
                let first = 0xe000_0000 | offen | below(64) << 18 | offset;
                let soffset = [128, 8][below(2) as usize] << 24;
                [
                    first,
                    soffset | 1 << 16 | registers & 0xff00 | OFFSET as u32,
                ]
            }
            _ => {
                let second = below(16) << 8;
                let first = 0xd800_0000 | below(256) << 17 | offset & 0xff | second;
                [first, registers | PLACE as u32]
            }
        };
        match decode_for(target, 0, &words) {
            Ok(inst) if is_straight(&inst) && matches!(inst.body, Body::Mem(_) | Body::Ds(_)) => {
                return inst
            }
            _ => {}
        }
    }
}

/// A product of the matrix core.
fn product(target: Target, next: &mut dyn FnMut() -> u64) -> Inst {
    loop {
        let fixed = [0xd3c0_0000, 0xd3d0_0000, 0xd3e0_0000][next() as usize % 3];
        let first = fixed | next() as u32 & 0x000f_80ff;
        // Small inline constants as C are rare, and so are CBSZ and BLGP.
        let modifiers = match next() % 4 {
            0 => u32::MAX,
            // Accumulation registers.
            _ => PLAIN | 3 << 27,
        };
        let second = next() as u32 & modifiers | 1 << 8 | 1 << 17;
        let second = if next() % 8 == 0 {
            second & !(1 << 26)
        } else {
            second | 1 << 26
        };
        match decode_for(target, 0, &[first, second]) {
            Ok(inst) if is_straight(&inst) && matches!(inst.body, Body::Valu(_)) => return inst,
            _ => {}
        }
    }
}

#[test]
fn one_instruction_does_the_same_on_all() {
    compare(Target::Gfx942, 1, 5_000, (1, instruction));
}

#[test]
fn programs_do_the_same_on_all() {
    compare(Target::Gfx942, 2, 3_000, (8, instruction));
}

#[test]
fn other_processors_do_the_same_on_all() {
    compare(Target::Gfx950, 3, 2_000, (4, instruction));
    compare(Target::Gfx90a, 10, 2_000, (4, instruction));
}

#[test]
fn memory_is_the_same_after_all() {
    compare(Target::Gfx942, 4, 4_000, (3, access));
    compare(Target::Gfx950, 5, 2_000, (3, access));
}

#[test]
fn branches_lead_all_to_the_same() {
    compare(Target::Gfx942, 8, 400, (24, turn));
}

/// Longer than a block.
#[test]
fn long_programs_do_the_same_on_all() {
    compare(Target::Gfx942, 9, 40, (400, instruction));
}

/// Each refusal costs an injected fault, and is counted.
#[test]
fn a_refused_access_is_made_once() {
    use gcn::Access::{Read, Write};
    let row = |number: u64| DATA + 256 * number;
    // The instruction, and what it asks until it is refused.
    let cases: [(u32, u32, Vec<_>); 6] = [
        // global_store_dword v202, v1, s[2:3]; global_load_dword v1, v202, s[2:3]
        (0xdc70_8000, 0x0002_01ca, vec![(Write, row(0), 256)]),
        (0xdc50_8000, 0x0102_00ca, vec![(Read, row(0), 256)]),
        // flat_store_dwordx4 v[200:201], v[1:4]; flat_load_dwordx4 v[1:4], v[200:201]
        (0xdc7c_0000, 0x007f_01c8, vec![(Write, row(0), 1024)]),
        (0xdc5c_0000, 0x017f_00c8, vec![(Read, row(0), 1024)]),
        // scratch_store_dwordx4 off, v[1:4], s8; scratch_load_dwordx4 v[1:4], off, s8
        (
            0xdc7c_4000,
            0x0008_0100,
            (0..3).map(|number| (Write, row(number), 256)).collect(),
        ),
        (
            0xdc5c_4000,
            0x0108_0000,
            (0..3).map(|number| (Read, row(number), 256)).collect(),
        ),
    ];
    for (first, second, asked) in cases {
        let mut bytes = vec![0; (DATA + DATA_BYTES) as usize];
        for (index, word) in [first, second, 0xbf81_0000].into_iter().enumerate() {
            bytes[4 * index..][..4].copy_from_slice(&u32::to_le_bytes(word));
        }
        let mut ram = Ram::new(bytes);
        (ram.hole, ram.times) = (row(2)..row(4), 1);
        if asked.len() == 1 && asked[0].2 == 256 {
            ram.hole = row(0)..row(1);
        }
        let mut wave = Wave::new(0, 256, 0);
        wave.set_exec(u64::MAX);
        wave.set_scalar64(2, DATA);
        wave.set_scalar64(sreg::FLAT_SCRATCH, DATA);
        let step = if asked[0].2 == 1024 { 16 } else { 4 };
        for lane in 0..64 {
            wave.vgpr[OFFSET][lane] = 4 * lane as u32;
            wave.vgpr[ADDRESS][lane] = DATA as u32 + step * lane as u32;
            for number in 1..=4 {
                wave.vgpr[number][lane] = (lane as u32) << 8 | number as u32;
            }
        }
        let group = Workgroup::new(
            vec![wave],
            0,
            Apertures {
                shared: 0,
                private: 0,
            },
        );
        for engine in Engine::all() {
            let (group, mut ram) = (&mut group.clone(), ram.clone());
            let mut code = CodeCache::with(Target::Gfx942, engine);
            let outcome = group.run(&mut ram, &mut code, 1000);
            assert!(
                matches!(outcome, Outcome::Fault { pc: 0, .. }),
                "{outcome:?}"
            );
            ram.asked
                .retain(|(access, ..)| *access != gcn::Access::Fetch);
            assert_eq!(ram.asked, asked, "{engine:?} {first:x}");
            assert_eq!((ram.times, group.executed), (0, 1));
            let all = if asked[0].0 == Write { u64::MAX } else { 0 };
            assert_eq!(group.waves[0].replay(), all);
            assert_eq!(group.run(&mut ram, &mut code, 1000), Outcome::Done);
        }
    }
}

#[test]
fn products_are_the_same_on_all() {
    compare(Target::Gfx942, 6, 4_000, (1, product));
    compare(Target::Gfx950, 7, 4_000, (1, product));
}
