// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Any bytes as a wave's code, on all engines that this machine has: what the reference makes of
//! it, all make, access for access.

use crate::input::Input;
use gcn::wave::{mode, sreg, status};
use gcn::{Access, Apertures, CodeCache, Engine, Fault, Memory, Outcome, Target, Wave, Workgroup};

/// Code at 0, data from here on.
const DATA: u64 = 0x2000;
const BYTES: u64 = 0x1_0000;
/// Where flat addresses mean LDS and scratch.
const APERTURES: Apertures = Apertures {
    shared: 1 << 32,
    private: 2 << 32,
};

/// Memory that remembers what it was asked.
#[derive(Clone, PartialEq)]
struct Ram {
    bytes: Vec<u8>,
    ticks: u64,
    asked: Vec<(Access, u64, usize)>,
}

impl Ram {
    fn at(&mut self, access: Access, address: u64, length: usize) -> Result<usize, Fault> {
        self.asked.push((access, address, length));
        match address.checked_add(length as u64) {
            Some(end) if end <= BYTES => Ok(address as usize),
            _ => Err(Fault { address, access }),
        }
    }

    fn update<const N: usize>(
        &mut self,
        address: u64,
        update: impl FnOnce([u8; N]) -> [u8; N],
    ) -> Result<[u8; N], Fault> {
        let at = self.at(Access::Atomic, address, N)?;
        let mut old = [0; N];
        old.copy_from_slice(&self.bytes[at..at + N]);
        self.bytes[at..at + N].copy_from_slice(&update(old));
        Ok(old)
    }
}

impl Memory for Ram {
    fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let at = self.at(Access::Fetch, address, bytes.len())?;
        bytes.copy_from_slice(&self.bytes[at..at + bytes.len()]);
        Ok(())
    }
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let at = self.at(Access::Read, address, bytes.len())?;
        bytes.copy_from_slice(&self.bytes[at..at + bytes.len()]);
        Ok(())
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.at(Access::Write, address, bytes.len())?;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn update32(&mut self, at: u64, update: &mut dyn FnMut(u32) -> u32) -> Result<u32, Fault> {
        self.update(at, |old| update(u32::from_le_bytes(old)).to_le_bytes())
            .map(u32::from_le_bytes)
    }
    fn update64(&mut self, at: u64, update: &mut dyn FnMut(u64) -> u64) -> Result<u64, Fault> {
        self.update(at, |old| update(u64::from_le_bytes(old)).to_le_bytes())
            .map(u64::from_le_bytes)
    }
    fn realtime(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }
}

/// Numbers that follow from a seed.
fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// A wave with numbers, addresses and floats in its registers, as the input has it.
fn wave(input: &mut Input) -> Wave {
    let mut wave = Wave::new(0, 128, 128);
    wave.mode = match input.u8() & 3 {
        0 => input.u32(),
        1 => 0,
        2 => u32::from(input.u16()) & (mode::FP_ROUND | mode::FP_DENORM | mode::IEEE),
        _ => wave.mode,
    };
    let exec = [
        u64::MAX,
        0,
        1,
        0x5555_5555_5555_5555,
        0xffff_0000,
        input.u64(),
    ];
    wave.set_exec(input.of(&exec));
    if input.u8() & 7 == 0 {
        wave.status |= status::PRIV;
    }
    let mut next = numbers(input.u64());
    for (number, register) in wave.vgpr.iter_mut().chain(wave.acc.iter_mut()).enumerate() {
        let (kind, start) = (number % 8, DATA as u32 + (next() as u32 & 0x3ffc));
        for (lane, value) in (0u32..).zip(register) {
            *value = match kind {
                0 => start + 4 * lane,
                1 => 0,
                2 => 4 * (next() as u32 & 0xff),
                3 => lane / 16 * 256 + lane % 16 * 4,
                4 => 0x3f00_0000 | next() as u32 & 0x80ff_ffff,
                5 => 0x3c00_3c00 | next() as u32 & 0x83ff_83ff,
                _ => next() as u32,
            };
        }
    }
    for (number, register) in wave.scalar[..100].iter_mut().enumerate() {
        *register = match number % 4 {
            0 => DATA as u32 + (next() as u32 & 0x3ffc),
            1 => [0, 0, 1, 2][next() as usize % 4],
            2 => next() as u32 & 0xfff,
            _ => next() as u32,
        };
    }
    wave.set_scalar64(sreg::FLAT_SCRATCH, DATA);
    wave
}

/// All engines have to leave the same work-group and the same memory, and to come to the same
/// outcomes.
pub fn engines(data: &[u8]) {
    let mut input = Input::new(data);
    let target = input.of(&Target::ALL);
    let waves = vec![wave(&mut input), wave(&mut input)];
    let group = Workgroup::new(waves, 4096, APERTURES);
    let mut code = Vec::new();
    while !input.is_empty() && code.len() < DATA as usize - 4 {
        code.extend(input.bytes::<4>());
    }
    code.extend(0xbf81_0000u32.to_le_bytes()); // s_endpgm
    code.resize(BYTES as usize, 0);
    let ram = Ram {
        bytes: code,
        ticks: 0,
        asked: Vec::new(),
    };
    let after = |engine: Engine| {
        let (mut group, mut ram) = (group.clone(), ram.clone());
        let mut code = CodeCache::with(target, engine);
        let mut outcomes: Vec<Outcome> = Vec::new();
        while outcomes.len() < 4 && outcomes.last() != Some(&Outcome::Done) {
            outcomes.push(group.run(&mut ram, &mut code, 500));
        }
        (group, ram, outcomes)
    };
    let expected = after(Engine::Reference);
    for engine in Engine::all() {
        let found = after(engine);
        assert_eq!(found.2, expected.2, "{engine:?}");
        assert!(found.1 == expected.1, "{engine:?} leaves other memory");
        assert!(found.0 == expected.0, "{engine:?} leaves other registers");
    }
}
