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
    /// VGPRs that they need.
    pub vgprs: usize,
    /// Accumulation VGPRs that they need.
    pub accs: usize,
}

impl Block {
    /// Bytes that a cache takes for it.
    fn bytes(&self) -> usize {
        let dwords = |inst: &Inst| size_of::<u32>() * inst.dwords.capacity() + ALLOCATION;
        size_of::<Inst>() * self.insts.capacity()
            + self.insts.iter().map(dwords).sum::<usize>()
            + self.quick.bytes()
            // The list of blocks grows by doubling; then, its pieces and its entry by address.
            + 2 * size_of::<Block>()
            + 3 * ALLOCATION
            + 4 * size_of::<(u64, usize)>()
    }
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
    /// Bytes of all blocks.
    held: usize,
    by_pc: HashMap<u64, usize>,
    /// Direct-mapped front of `by_pc`: address and index.
    recent: Vec<(u64, usize)>,
    /// For who runs them.
    room: Box<Room>,
}

/// Entries of [`CodeCache::recent`].
const RECENT: usize = 256;
/// What an allocation takes besides what was asked for, about.
const ALLOCATION: usize = 16;
/// More bytes of decoded instructions than these are not kept: a wave that runs through all of
/// memory takes no more of the host's. Real programs' are fewer.
const MOST: usize = 128 << 20;

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
                let bytes = block.bytes();
                if self.held + bytes > MOST {
                    self.invalidate();
                }
                self.held += bytes;
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
    insts.shrink_to_fit();
    let most = |f: fn(&Inst) -> u16| insts.iter().map(f).max().unwrap_or(0).into();
    let quick = match engine {
        Engine::Reference => Quick::none(&insts),
        Engine::Quick(host) => Quick::of(&insts, host),
    };
    Ok(Block {
        target,
        quick,
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

    /// The same dwords again and again, but for a literal that is different each time.
    struct Endless {
        words: &'static [u32],
        literal: bool,
    }

    impl Memory for Endless {
        fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
            for (number, bytes) in (address / 4..).zip(bytes.chunks_exact_mut(4)) {
                let index = number as usize % self.words.len();
                let word = match self.literal && index + 1 == self.words.len() {
                    true => number as u32 | 1 << 31,
                    false => self.words[index],
                };
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            Ok(())
        }
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
            self.fetch(address, bytes)
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

    /// Programs that take as much as they can: zeros, which are instructions; literals; a literal
    /// and a branch to what follows; matrix products of the most registers.
    const ENDLESS: [Endless; 4] = [
        Endless {
            words: &[0],
            literal: false,
        },
        // v_add_u32_e32 v0, literal, v0
        Endless {
            words: &[0x6800_00ff, 0],
            literal: true,
        },
        // s_branch 0; v_add_u32_e32 v0, literal, v0
        Endless {
            words: &[0xbf82_0000, 0x6800_00ff, 0],
            literal: true,
        },
        // v_mfma_f32_32x32x1_2b_f32 v[0:31], v0, v0, 0
        Endless {
            words: &[0xd3c0_0000, 0x0202_0100],
            literal: false,
        },
    ];

    #[test]
    fn a_wave_that_runs_through_memory_does_not_fill_the_hosts() {
        for mut memory in ENDLESS {
            let mut cache = CodeCache::new();
            let (mut pc, mut read, mut most) = (0, 0, 0);
            while read < 2 * MOST {
                let (block, _) = cache.block(pc, &mut memory).expect("it is code");
                assert_eq!(block.insts[0].pc, pc);
                // Constants and tables are no part of it.
                let bytes = block.bytes();
                let count = block.insts.len();
                assert!(
                    bytes <= 1024 + 512 * count,
                    "{bytes} for {count}: {block:?}"
                );
                pc = block.insts.last().map_or(0, Inst::next);
                read += bytes;
                most = most.max(cache.held);
                assert_eq!(cache.by_pc.len(), cache.blocks.len());
            }
            let sum: usize = cache.blocks.iter().map(Block::bytes).sum();
            assert_eq!(cache.held, sum);
            assert!(most > MOST / 2 && most <= MOST, "{most}");
        }
    }

    /// Products of the same shape have one table, whatever there is of them.
    #[test]
    fn a_block_of_products_has_quick_forms() {
        let [.., mut memory] = ENDLESS;
        let mut cache = CodeCache::new();
        let (block, _) = cache.block(0, &mut memory).expect("it is code");
        assert_eq!(block.insts.len(), LONGEST_BLOCK);
        assert_eq!(
            block.insts[0].to_string(),
            "v_mfma_f32_32x32x1_2b_f32 v[0:31], v0, v0, 0"
        );
        assert_eq!(block.quick.products(), LONGEST_BLOCK);
    }
}
