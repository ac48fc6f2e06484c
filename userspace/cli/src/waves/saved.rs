// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The waves of a queue that was taken off the hardware, as its save area holds them. Pure.
//!
//! The control stack grows down, the records of waves grow up: its first word belongs to the wave
//! at the records' end. Two words on top make it a packet of relaunches; then comes for each group
//! a word with the size of its waves (COMPUTE_RELAUNCH.IS_STATE), and one for each wave. A record
//! is VGPRs, SGPRs, hardware registers with the trap temporaries, for a group's first wave the
//! local data share, and a gap. Sources: `struct kfd_context_save_area_header` of
//! `<linux/kfd_ioctl.h>`, COMPUTE_RELAUNCH of `gc_9_4_3_sh_mask.h`, the order in
//! `cwsr_trap_handler_gfx9.asm`. The modelled GPU's side of it is `cp/cwsr/stack.rs` of the crate
//! gpu-model.

use anyhow::{Context, Result};

/// Lanes of a wave.
pub const LANES: usize = 64;
/// Words before the first group.
const PACKET: usize = 2;
const IS_EVENT: u32 = 1 << 30;
const IS_STATE: u32 = 1 << 31;
/// s0 to s101, FLAT_SCRATCH, XNACK_MASK, VCC, and room for four more.
const SGPRS: usize = 112;
/// General ones among them.
const GENERAL: usize = 102;
const VCC: usize = 106;
/// M0, PC and so on in the first half, TTMPs in the second.
const HARDWARE: usize = 32;
const TTMP: usize = 16;
/// Bytes behind each record.
const GAP: usize = 64;
/// STATUS.HALT.
const HALT: u32 = 1 << 13;
/// TRAPSTS.MEM_VIOL and ILLEGAL_INST.
const MEM_VIOL: u32 = 1 << 8;
const ILLEGAL_INST: u32 = 1 << 11;

/// A wave as it was saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wave {
    /// The address of its next instruction.
    pub pc: u64,
    /// Which lanes are active.
    pub exec: u64,
    /// Hardware registers of these names.
    pub status: u32,
    pub trapsts: u32,
    pub mode: u32,
    pub m0: u32,
    pub vcc: u64,
    /// The trap temporaries; 8 to 11 say what the wave belongs to.
    pub ttmp: Vec<u32>,
    /// Scalar registers from s0 on.
    pub sgprs: Vec<u32>,
    /// Vector registers from v0 on, with a word for each lane.
    pub vgprs: Vec<Vec<u32>>,
    /// Accumulation registers from a0 on.
    pub accs: Vec<Vec<u32>>,
}

impl Wave {
    /// The work-group's place in the grid.
    pub fn group(&self) -> [u32; 3] {
        [8, 9, 10].map(|at| self.ttmp.get(at).copied().unwrap_or(0))
    }

    /// Its number in the work-group.
    pub fn number(&self) -> u32 {
        self.ttmp.get(11).map_or(0, |word| word & 0x3f)
    }

    /// The packet that dispatched it: the low bits of its index in the queue.
    pub fn packet(&self) -> u32 {
        self.ttmp.get(11).map_or(0, |word| word >> 6 & 0x1ff_ffff)
    }

    /// Whether it goes on when the queue does, and why not.
    pub fn state(&self) -> &'static str {
        match self.trapsts {
            _ if self.status & HALT == 0 => "runs",
            cause if cause & MEM_VIOL != 0 => "memory violation",
            cause if cause & ILLEGAL_INST != 0 => "illegal instruction",
            _ => "halted",
        }
    }
}

/// What the waves of a group have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    vgprs: usize,
    accs: usize,
    lds: usize,
}

impl Size {
    /// COMPUTE_RELAUNCH: VGPRS 5:0 in eights, LDS_SIZE 16:9 in 128 words, and of gfx90a and later
    /// ACCUM_OFFSET 29:24 in fours.
    fn of(word: u32) -> Self {
        let all = (word as usize & 0x3f) * 8 + 8;
        let vgprs = ((word as usize >> 24 & 0x3f) * 4 + 4).min(all);
        Self {
            vgprs,
            accs: all - vgprs,
            lds: (word as usize >> 9 & 0xff) * 512,
        }
    }

    fn bytes(self, first: bool) -> usize {
        let lds = if first { self.lds } else { 0 };
        4 * (LANES * (self.vgprs + self.accs) + SGPRS + HARDWARE) + lds + GAP
    }
}

/// The waves of a control stack and of the records, whose last ends where the bytes do.
pub fn waves(stack: &[u8], records: &[u8]) -> Result<Vec<Wave>> {
    let mut end = records.len();
    let mut size = None;
    let mut waves = Vec::new();
    for word in words(stack).into_iter().skip(PACKET) {
        if word & IS_EVENT != 0 {
            continue;
        }
        if word & IS_STATE != 0 {
            size = Some(Size::of(word));
            continue;
        }
        let size = size.context("the control stack begins with a wave, not with its size")?;
        // FIRST_WAVE.
        let bytes = size.bytes(word & 1 << 17 != 0);
        let begin = end
            .checked_sub(bytes)
            .context("the control stack names more waves than were saved")?;
        waves.push(wave(size, &words(&records[begin..end])));
        end = begin;
    }
    waves.sort_by_key(|wave| (wave.packet(), wave.group(), wave.number()));
    Ok(waves)
}

/// One record.
fn wave(size: Size, record: &[u32]) -> Wave {
    let vectors = |from: usize, count: usize| -> Vec<Vec<u32>> {
        let each = record[LANES * from..LANES * (from + count)].chunks(LANES);
        each.map(<[u32]>::to_vec).collect()
    };
    let scalars = &record[LANES * (size.vgprs + size.accs)..];
    let hardware = &scalars[SGPRS..];
    let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    Wave {
        m0: hardware[0],
        // Above bit 47 stand the number of a trap and the like.
        pc: pair(hardware[1], hardware[2] & 0xffff),
        exec: pair(hardware[3], hardware[4]),
        status: hardware[5],
        trapsts: hardware[6],
        mode: hardware[9],
        vcc: pair(scalars[VCC], scalars[VCC + 1]),
        ttmp: hardware[TTMP..HARDWARE].to_vec(),
        sgprs: scalars[..GENERAL].to_vec(),
        vgprs: vectors(0, size.vgprs),
        accs: vectors(size.vgprs, size.accs),
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |word: &[u8]| u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    bytes.chunks_exact(4).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack of one group of two waves with 8 VGPRs, 4 of them for accumulation, and 512 bytes of
    /// local memory, and their records: the second wave's lies first.
    fn saved() -> (Vec<u8>, Vec<u8>) {
        let stack = [0, 0x222, IS_STATE | 1 << 9, 1 << 17, 1 << 16];
        let size = Size::of(stack[2]);
        let mut records = Vec::new();
        for number in [1u32, 0] {
            let mut record = vec![0u32; size.bytes(number == 0) / 4];
            record[3] = 30 + number;
            record[4 * LANES + 5] = 40 + number;
            record[8 * LANES + 7] = 70 + number;
            let hardware = 8 * LANES + SGPRS;
            record[hardware + 1] = 0x1000 + number;
            record[hardware + 2] = 0xff_1234;
            record[hardware + 5] = number * HALT;
            record[hardware + TTMP + 8] = 9;
            record[hardware + TTMP + 11] = 77 << 6 | number;
            records.extend(record);
        }
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        (bytes(&stack), bytes(&records))
    }

    #[test]
    fn a_wave_is_where_its_word_says() {
        let (stack, records) = saved();
        let waves = waves(&stack, &records).expect("it is whole");
        assert_eq!(waves.len(), 2);
        for (number, wave) in (0..).zip(&waves) {
            assert_eq!(wave.pc, 0x1234_0000_1000 + u64::from(number));
            assert_eq!((wave.number(), wave.packet()), (number, 77));
            assert_eq!(wave.group(), [9, 0, 0]);
            assert_eq!(wave.vgprs[0][3], 30 + number);
            assert_eq!(wave.accs[0][5], 40 + number);
            assert_eq!(wave.sgprs[7], 70 + number);
        }
        assert_eq!((waves[0].state(), waves[1].state()), ("runs", "halted"));
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let (stack, records) = saved();
        assert!(waves(&stack, &records[16..]).is_err());
        assert!(waves(&[0; 12], &records).is_err());
        assert_eq!(waves(&[], &[]).expect("no waves"), []);
    }

    #[test]
    fn a_wave_tells_why_it_stands() {
        let mut wave = Wave {
            status: HALT,
            trapsts: ILLEGAL_INST,
            ..Wave::default()
        };
        assert_eq!(wave.state(), "illegal instruction");
        wave.trapsts |= MEM_VIOL;
        assert_eq!(wave.state(), "memory violation");
    }
}
