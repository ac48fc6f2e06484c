// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Decoded code, kept by address. One [`CodeCache`] per address space (VMID); its owner invalidates
//! it.

use crate::decode::{decode_for, DecodeError};
use crate::exec::{Quick, Room};
use crate::inst::Inst;
use crate::memory::{Fault, Memory};
use crate::workgroup::ExecError;
use crate::Target;
use host_simd::Host;
use std::collections::HashMap;

/// Bytes of an instruction cache line: code is fetched in pieces that end at a multiple of this.
const LINE: u64 = 64;
/// A block ends after this many instructions at the latest.
const LONGEST_BLOCK: usize = 256;

/// What executes instructions. All leave the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// One instruction after the other, each by what its opcode and all its modifiers say.
    Reference,
    /// The usual ones by loops that are compiled for these vector units, the rest as before.
    Quick(Host),
}

impl Engine {
    /// All that this machine has.
    pub fn all() -> Vec<Engine> {
        let quick = Host::levels().into_iter().map(Engine::Quick);
        std::iter::once(Engine::Reference).chain(quick).collect()
    }
}

impl Default for Engine {
    fn default() -> Self {
        Engine::Quick(Host::best())
    }
}

/// Instructions that run one after the other: only the last can leave the sequence.
#[derive(Debug)]
pub(crate) struct Block {
    /// Whose instructions they are.
    pub target: Target,
    /// At least one.
    pub insts: Vec<Inst>,
    /// Their quick forms.
    pub quick: Quick,
    /// Whose vector units run those.
    pub host: Host,
    /// VGPRs that they need.
    pub vgprs: usize,
    /// Accumulation VGPRs that they need.
    pub accs: usize,
}

/// Why there is no code at an address.
#[derive(Debug)]
pub(crate) enum CodeError {
    /// It cannot be fetched.
    Fault(Fault),
    /// It is no instruction.
    Error(ExecError),
}

/// Decoded instructions of one address space.
///
/// Must be invalidated when code can have changed: whenever the hardware would invalidate its
/// instruction cache (ACQUIRE_MEM, kernel launch with an acquire fence) or the page tables change.
#[derive(Debug, Default)]
pub struct CodeCache {
    target: Target,
    engine: Engine,
    blocks: Vec<Block>,
    /// Instructions in all blocks.
    held: usize,
    by_pc: HashMap<u64, usize>,
    /// Direct-mapped front of `by_pc`: address and index.
    recent: Vec<(u64, usize)>,
    /// For who runs them.
    room: Box<Room>,
}

/// Entries of [`CodeCache::recent`].
const RECENT: usize = 256;
/// More decoded instructions than these are not kept: a wave that runs through all of memory takes
/// no more of the host's. Real programs have fewer.
const MOST: usize = 1 << 19;

impl CodeCache {
    /// An empty cache, of gfx942.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty cache of another processor's instructions.
    pub fn of(target: Target) -> Self {
        Self {
            target,
            ..Self::default()
        }
    }

    /// An empty cache whose code this engine executes.
    pub fn with(target: Target, engine: Engine) -> Self {
        Self {
            target,
            engine,
            ..Self::default()
        }
    }

    /// Whose instructions they are.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Forgets everything.
    pub fn invalidate(&mut self) {
        self.blocks.clear();
        self.held = 0;
        self.by_pc.clear();
        self.recent.clear();
    }

    /// The block at `pc`, decoded now if it was not, and room to run it.
    pub(crate) fn block(
        &mut self,
        pc: u64,
        memory: &mut dyn Memory,
    ) -> Result<(&Block, &mut Room), CodeError> {
        let slot = (pc >> 2) as usize % RECENT;
        if let Some((address, index)) = self.recent.get(slot).copied() {
            if address == pc {
                return Ok((&self.blocks[index], &mut self.room));
            }
        }
        let index = match self.by_pc.get(&pc) {
            Some(index) => *index,
            None => {
                let block = read_block((self.target, self.engine), pc, memory)?;
                if self.held + block.insts.len() > MOST {
                    self.invalidate();
                }
                self.held += block.insts.len();
                self.blocks.push(block);
                self.by_pc.insert(pc, self.blocks.len() - 1);
                self.blocks.len() - 1
            }
        };
        if self.recent.is_empty() {
            // No code is at an odd address.
            self.recent = vec![(1, 0); RECENT];
        }
        self.recent[slot] = (pc, index);
        Ok((&self.blocks[index], &mut self.room))
    }
}

/// Dwords from an address on, fetched line by line as they are asked for.
struct Fetcher<'a> {
    memory: &'a mut dyn Memory,
    next: u64,
    words: Vec<u32>,
}

impl Fetcher<'_> {
    fn more(&mut self) -> Result<(), Fault> {
        let mut bytes = [0; LINE as usize];
        let bytes = &mut bytes[..(LINE - self.next % LINE) as usize];
        self.memory.fetch(self.next, bytes)?;
        self.next += bytes.len() as u64;
        let dword = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.words.extend(bytes.chunks_exact(4).map(dword));
        Ok(())
    }
}

/// Decodes from `pc` to the next jump. What cannot be fetched or decoded ends the block, unless it
/// is at `pc`.
fn read_block(
    (target, engine): (Target, Engine),
    pc: u64,
    memory: &mut dyn Memory,
) -> Result<Block, CodeError> {
    let pc = pc & !3;
    let mut fetcher = Fetcher {
        memory,
        next: pc,
        words: Vec::new(),
    };
    let mut insts: Vec<Inst> = Vec::new();
    let mut at = 0;
    while insts.len() < LONGEST_BLOCK {
        match next_inst(target, pc, at, &mut fetcher) {
            Ok(inst) => {
                at += inst.dwords.len();
                let last = inst.ends_block();
                insts.push(inst);
                if last {
                    break;
                }
            }
            Err(error) if insts.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    let most = |f: fn(&Inst) -> u16| insts.iter().map(f).max().unwrap_or(0).into();
    let (quick, host) = match engine {
        Engine::Reference => (Quick::none(&insts), Host::PORTABLE),
        Engine::Quick(host) => (Quick::of(&insts), host),
    };
    Ok(Block {
        target,
        quick,
        host,
        vgprs: most(|inst| inst.vgprs),
        accs: most(|inst| inst.accs),
        insts,
    })
}

fn next_inst(target: Target, pc: u64, at: usize, fetcher: &mut Fetcher) -> Result<Inst, CodeError> {
    loop {
        let words = fetcher.words.get(at..).unwrap_or(&[]);
        match decode_for(target, pc + 4 * at as u64, words) {
            Ok(inst) => return Ok(inst),
            Err(DecodeError::Short) => fetcher.more().map_err(CodeError::Fault)?,
            Err(DecodeError::Unknown(encoding)) => {
                let dwords = words.iter().take(2).copied().collect();
                return Err(CodeError::Error(ExecError::Unknown { encoding, dwords }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Access;

    /// Zeros everywhere, which are instructions.
    struct Zeros;

    impl Memory for Zeros {
        fn fetch(&mut self, _: u64, bytes: &mut [u8]) -> Result<(), Fault> {
            bytes.fill(0);
            Ok(())
        }
        fn read(&mut self, _: u64, bytes: &mut [u8]) -> Result<(), Fault> {
            bytes.fill(0);
            Ok(())
        }
        fn write(&mut self, address: u64, _: &[u8]) -> Result<(), Fault> {
            let access = Access::Write;
            Err(Fault { address, access })
        }
        fn update32(&mut self, at: u64, _: &mut dyn FnMut(u32) -> u32) -> Result<u32, Fault> {
            self.write(at, &[]).map(|()| 0)
        }
        fn update64(&mut self, at: u64, _: &mut dyn FnMut(u64) -> u64) -> Result<u64, Fault> {
            self.write(at, &[]).map(|()| 0)
        }
        fn realtime(&mut self) -> u64 {
            0
        }
    }

    #[test]
    fn a_wave_that_runs_through_memory_does_not_fill_the_hosts() {
        let mut cache = CodeCache::new();
        let mut pc = 0;
        let mut most = 0;
        while pc < 4 * (3 * MOST as u64) {
            let (block, _) = cache.block(pc, &mut Zeros).expect("zeros are code");
            assert_eq!(block.insts[0].pc, pc);
            pc += 4 * block.insts.len() as u64;
            most = most.max(cache.blocks.iter().map(|it| it.insts.len()).sum());
            assert_eq!(cache.by_pc.len(), cache.blocks.len());
        }
        assert!(most > MOST / 2 && most <= MOST, "{most}");
    }
}
