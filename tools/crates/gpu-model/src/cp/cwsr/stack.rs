// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The control stack: what a preempted queue's saved waves are and where. Pure; one [`Saved`] per
//! wave in it.
//!
//! It grows down from the end of its room. A group is a word with the size of its waves
//! (COMPUTE_RELAUNCH.IS_STATE) and after it one word per wave; the group that was saved last comes
//! first. The wave save area grows up, so the first word's wave is the one at the area's end. On
//! top lie two words that make the stack a packet of relaunches. Source: what amd-dbgapi reads
//! (ROCdbgapi `src/architecture.cpp`, gfx9, gfx90a and gfx940), COMPUTE_RELAUNCH of
//! `gc_9_4_3_sh_mask.h`.

use crate::cp::packet::op;
use crate::processor::packet::field;

/// Words before the first group.
const HEADER: usize = 2;
/// COMPUTE_RELAUNCH from the beginning of the persistent (SH) space.
const RELAUNCH: u32 = 0x222;
const IS_EVENT: u32 = 1 << 30;
const IS_STATE: u32 = 1 << 31;
/// SGPRs that are saved: s0 to s101, FLAT_SCRATCH, XNACK_MASK, VCC, and room for four more.
const SGPRS: u64 = 112;
/// M0, PC and so on, and the 16 TTMPs.
const HARDWARE_BYTES: u64 = 128;
/// After each wave.
const GAP: u64 = 64;

/// What the waves of a group have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Architectural VGPRs, a multiple of 4.
    pub vgprs: u32,
    /// VGPRs with accumulation ones, a multiple of 8.
    pub all_vgprs: u32,
    /// LDS of the group, a multiple of the granule.
    pub lds_bytes: u32,
    /// What LDS is allocated in, bytes.
    pub lds_granule: u32,
}

impl Size {
    /// The size of waves with these registers.
    pub fn of(vgprs: usize, accs: usize, lds_bytes: usize, lds_granule: u32) -> Self {
        Size {
            vgprs: (vgprs as u32).next_multiple_of(4),
            all_vgprs: ((vgprs + accs) as u32).next_multiple_of(8),
            lds_bytes: (lds_bytes as u32).next_multiple_of(lds_granule),
            lds_granule,
        }
    }

    /// VGPRS 5:0 in eights, SGPRS 8:6 in sixteens with the TTMPs, LDS_SIZE 16:9 in granules,
    /// ACCUM_OFFSET 29:24 in fours.
    fn encode(self) -> u32 {
        (self.all_vgprs / 8).saturating_sub(1) & 0x3f
            | 7 << 6
            | ((self.lds_bytes / self.lds_granule) & 0xff) << 9
            | ((self.vgprs / 4).saturating_sub(1) & 0x3f) << 24
            | IS_STATE
    }

    fn decode(word: u32, lds_granule: u32) -> Self {
        let all_vgprs = (field(word, 0, 6) + 1) * 8;
        Size {
            vgprs: ((field(word, 24, 6) + 1) * 4).min(all_vgprs),
            all_vgprs,
            lds_bytes: field(word, 9, 8) * lds_granule,
            lds_granule,
        }
    }

    /// Bytes of a wave in the save area.
    pub fn wave_bytes(self, first: bool) -> u64 {
        let lds = if first { self.lds_bytes } else { 0 };
        u64::from(self.all_vgprs) * 256 + SGPRS * 4 + HARDWARE_BYTES + u64::from(lds) + GAP
    }
}

/// A saved wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Where its record begins, from the beginning of the context save area.
    pub offset: u64,
    /// The group's first wave: it has the LDS.
    pub first: bool,
    /// Its scratch, if it has some: shader engine and number in it.
    pub scratch: Option<(u8, u16)>,
}

/// A saved group: its waves, first one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What they have.
    pub size: Size,
    /// The waves.
    pub waves: Vec<Saved>,
}

impl Group {
    /// Places the group's waves from `offset` on; `scratch` has one entry a wave. Also the end of
    /// them.
    pub fn place(size: Size, scratch: &[Option<(u8, u16)>], offset: u64) -> (Self, u64) {
        let mut at = offset;
        let mut waves = Vec::with_capacity(scratch.len());
        for (index, scratch) in scratch.iter().enumerate().rev() {
            let first = index == 0;
            waves.push(Saved {
                offset: at,
                first,
                scratch: *scratch,
            });
            at += size.wave_bytes(first);
        }
        waves.reverse();
        (Group { size, waves }, at)
    }
}

/// The stack of groups that were saved in this order.
pub fn encode(groups: &[Group]) -> Vec<u32> {
    let mut words = vec![0, RELAUNCH];
    for group in groups.iter().rev() {
        words.push(group.size.encode());
        let last = group.waves.len().saturating_sub(1);
        // SCRATCH_SCOREBOARD_ID 8:0, SE_ID 10:9, SCRATCH_EN 15, LAST_WAVE 16, FIRST_WAVE 17.
        words.extend(group.waves.iter().enumerate().map(|(index, wave)| {
            let scratch = wave.scratch.map_or(0, |(engine, number)| {
                u32::from(number) & 0x1ff | (u32::from(engine) & 3) << 9 | 1 << 15
            });
            scratch | u32::from(index == last) << 16 | u32::from(wave.first) << 17
        }));
    }
    let body = words.len() as u32 - 1;
    words[0] = 3 << 30 | (body - 1) << 16 | u32::from(op::SET_SH_REG) << 8;
    words
}

/// The groups of a stack, in the order in which they were saved; `end`: of the wave save area.
/// None: it is corrupt.
pub fn decode(words: &[u32], end: u64, lds_granule: u32) -> Option<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    let mut state = None;
    let mut end = end;
    for word in words.get(HEADER..)? {
        if word & IS_EVENT != 0 {
            continue;
        }
        if word & IS_STATE != 0 {
            state = Some(Size::decode(*word, lds_granule));
            continue;
        }
        let first = field(*word, 17, 1) != 0;
        let size = state?;
        if first {
            let waves = Vec::new();
            groups.push(Group { size, waves });
        }
        let group = groups.last_mut().filter(|group| group.size == size)?;
        end = end.checked_sub(size.wave_bytes(first))?;
        let scratch = (field(*word, 9, 2) as u8, field(*word, 0, 9) as u16);
        group.waves.push(Saved {
            offset: end,
            first,
            scratch: (field(*word, 15, 1) != 0).then_some(scratch),
        });
    }
    groups.reverse();
    Some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_says_what_was_saved_and_where() {
        let big = Size::of(20, 12, 4096, 512);
        let small = Size::of(3, 0, 0, 512);
        assert_eq!((big.all_vgprs, small.all_vgprs), (32, 8));
        let (first, end) = Group::place(big, &[Some((1, 7)), None, Some((3, 300))], 0x2000);
        let (second, end) = Group::place(small, &[None], end);
        let groups = vec![first, second];
        let bytes = 32 * 256 + 448 + 128 + 64;
        assert_eq!(groups[0].waves[0].offset, 0x2000 + 2 * bytes);
        assert_eq!(end, 0x2000 + 3 * bytes + 4096 + 8 * 256 + 448 + 128 + 64);
        let words = encode(&groups);
        assert_eq!(words.len(), 2 + 4 + 2);
        assert_eq!(words[0] >> 16, 0xc000 | (words.len() as u32 - 2));
        assert_eq!(decode(&words, end, 512).as_ref(), Some(&groups));
        assert_eq!(decode(&words, 100, 512), None);
        assert_eq!(decode(&words[..1], end, 512), None);
        assert_eq!(decode(&[0, 0, 5], end, 512), None, "a wave without a state");
    }
}
