// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A debugger's steps that concern waves: what a queue's save area has of them, read and written
//! through /proc/PID/mem as a debugger does.
//!
//! ```text
//! catch PID QUEUE COUNT    suspends the queue, again and again until so many waves were saved
//! waves PID QUEUE [from=ADDRESS]      shows them, with their PCs relative to an address
//! change PID QUEUE [halt=0|1] [step=0|1] [clear=1]    halts them or not, lets them go by single
//!                          instructions or not, forgets what they trapped for
//! ```
//!
//! The control stack grows down and the records of waves grow up, so its first word belongs to the
//! wave at the records' end. Two words on top make it a packet; then comes for each group a word
//! with the size of its waves (COMPUTE_RELAUNCH.IS_STATE), and one for each wave. A record is
//! VGPRs, 112 words of SGPRs, 32 of hardware registers with the trap temporaries, for a group's
//! first wave the local data share, and a gap. Sources: `struct kfd_context_save_area_header` of
//! `<linux/kfd_ioctl.h>`, COMPUTE_RELAUNCH, SQ_WAVE_STATUS, _TRAPSTS and _MODE of
//! `gc_9_4_3_sh_mask.h`, the order in `cwsr_trap_handler_gfx9.asm`.

use super::session::{Operation, Session};
use super::words::Words;
use anyhow::{ensure, Context, Result};
use kfd_uapi as uapi;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// More queues and GPUs than there are.
const ROOM: usize = 64;
/// TIMEOUT: a wave is there a moment after its doorbell was rung.
const COMES: Duration = Duration::from_secs(20);
const IS_EVENT: u32 = 1 << 30;
const IS_STATE: u32 = 1 << 31;
const FIRST_WAVE: u32 = 1 << 17;
const LANES: usize = 64;
const SGPRS: usize = 112;
const HARDWARE: usize = 32;
const GAP: usize = 64;
/// Places among the words of hardware registers.
const PC: usize = 1;
const STATUS: usize = 5;
const TRAPSTS: usize = 6;
const MODE: usize = 9;
const TTMP8: usize = 24;
const TTMP11: usize = 27;
/// STATUS.HALT and MODE.DEBUG_EN.
const HALT: u32 = 1 << 13;
const DEBUG_EN: u32 = 1 << 11;
/// Why a wave trapped: SQ_WAVE_TRAPSTS. ILLEGAL_INST and the watches are EXCP's and EXCP_HI's.
const CAUSES: &[(&str, u32)] = &[
    ("watch 0", 1 << 7),
    ("memory violation", 1 << 8),
    ("illegal instruction", 1 << 11),
    ("watch 1", 1 << 12),
    ("watch 2", 1 << 13),
    ("watch 3", 1 << 14),
    ("begins", 1 << 23),
    ("ends", 1 << 24),
    ("after an instruction", 1 << 25),
];
/// What arithmetic leaves there whether it traps or not.
const ARITHMETIC: &[(&str, u32)] = &[
    ("invalid", 1 << 0),
    ("denormal", 1 << 1),
    ("division by 0", 1 << 2),
    ("overflow", 1 << 3),
    ("underflow", 1 << 4),
    ("inexact", 1 << 5),
    ("integer division by 0", 1 << 6),
];

/// A queue's save area in another process.
struct Saved {
    memory: File,
    waves: Vec<Wave>,
}

/// A wave's hardware registers, and where they lie.
struct Wave {
    address: u64,
    words: [u32; HARDWARE],
}

impl Wave {
    fn pc(&self) -> u64 {
        u64::from(self.words[PC + 1] & 0xffff) << 32 | u64::from(self.words[PC])
    }

    fn show(&self, from: Option<u64>) -> String {
        let trapsts = self.words[TRAPSTS];
        let causes = CAUSES.iter().chain(ARITHMETIC);
        let causes = causes.filter(|(_, bit)| trapsts & bit != 0);
        let causes: Vec<&str> = causes.map(|(name, _)| *name).collect();
        let state = if self.words[STATUS] & HALT == 0 {
            "runs"
        } else {
            "stands"
        };
        let place = from.map_or(String::new(), |from| {
            format!(" at +{:#x}", self.pc().wrapping_sub(from))
        });
        let step = if self.words[MODE] & DEBUG_EN == 0 {
            ""
        } else {
            ", by single instructions"
        };
        format!(
            "{}.{} {state}{place}{step} [{}]",
            self.words[TTMP8],
            self.words[TTMP11] & 0x3f,
            causes.join(", ")
        )
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |word: &[u8]| u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    bytes.chunks_exact(4).map(word).collect()
}

/// Where the hardware registers of each wave begin, in bytes from the beginning of the records.
fn places(stack: &[u32], mut end: usize) -> Result<Vec<usize>> {
    let mut places = Vec::new();
    let mut size = None;
    for word in stack.iter().skip(2).filter(|word| **word & IS_EVENT == 0) {
        if word & IS_STATE != 0 {
            // VGPRS 5:0 in eights, LDS_SIZE 16:9 in 512 bytes.
            let vgprs = (*word as usize & 0x3f) * 8 + 8;
            size = Some((vgprs, (*word as usize >> 9 & 0xff) * 512));
            continue;
        }
        let (vgprs, lds) = size.context("the control stack begins with a wave")?;
        let lds = if word & FIRST_WAVE == 0 { 0 } else { lds };
        let scalars = 4 * (LANES * vgprs + SGPRS);
        end = end
            .checked_sub(scalars + 4 * HARDWARE + lds + GAP)
            .context("the control stack names more waves than were saved")?;
        places.push(end + scalars);
    }
    Ok(places)
}

impl Session {
    /// What the save areas of a queue have, one after the other for each XCC.
    fn look(&self, pid: u32, queue: u32) -> Result<Saved> {
        let memory = format!("/proc/{pid}/mem");
        let memory = OpenOptions::new().read(true).write(true).open(memory)?;
        let bytes = |at: u64, size: usize| -> Result<Vec<u8>> {
            let mut bytes = vec![0; size];
            memory.read_exact_at(&mut bytes, at)?;
            Ok(bytes)
        };
        let mut waves = Vec::new();
        for area in self.save_areas(pid, queue)? {
            let header = words(&bytes(area, 16)?);
            let stack_at = area + u64::from(header[0]);
            let stack = words(&bytes(stack_at, header[1] as usize)?);
            // The records end where the header says.
            let size = header[3] as usize;
            let records = (area + u64::from(header[2])).wrapping_sub(size as u64);
            for place in places(&stack, size)? {
                let address = records + place as u64;
                let read = words(&bytes(address, 4 * HARDWARE)?);
                waves.push(Wave {
                    address,
                    words: read.try_into().unwrap_or([0; HARDWARE]),
                });
            }
        }
        waves.sort_by_key(|wave| (wave.words[TTMP8], wave.words[TTMP11] & 0x3f));
        Ok(Saved { memory, waves })
    }

    fn save_areas(&self, pid: u32, queue: u32) -> Result<Vec<u64>> {
        let mut entries = [uapi::kfd_queue_snapshot_entry::default(); ROOM];
        let queue_snapshot = uapi::kfd_ioctl_dbg_trap_queue_snapshot_args {
            exception_mask: 0,
            snapshot_buf_ptr: entries.as_mut_ptr() as u64,
            num_queues: ROOM as u32,
            entry_size: size_of::<uapi::kfd_queue_snapshot_entry>() as u32,
        };
        let op = uapi::KFD_IOC_DBG_TRAP_GET_QUEUE_SNAPSHOT;
        self.trap(pid, op, &mut Operation { queue_snapshot })?;
        let mut entries = entries.iter();
        let entry = entries.find(|entry| entry.queue_id == queue && entry.ring_size != 0);
        let entry = entry.context("there is no such queue")?;
        let size = u64::from(entry.ctx_save_restore_area_size);
        let xccs = u64::from(self.xccs(pid, entry.gpu_id)?);
        Ok((0..xccs)
            .map(|xcc| entry.ctx_save_restore_address + xcc * size)
            .collect())
    }

    /// How many XCCs a GPU has.
    fn xccs(&self, pid: u32, gpu: u32) -> Result<u32> {
        let mut entries = [uapi::kfd_dbg_device_info_entry::default(); ROOM];
        let device_snapshot = uapi::kfd_ioctl_dbg_trap_device_snapshot_args {
            exception_mask: 0,
            snapshot_buf_ptr: entries.as_mut_ptr() as u64,
            num_devices: ROOM as u32,
            entry_size: size_of::<uapi::kfd_dbg_device_info_entry>() as u32,
        };
        let op = uapi::KFD_IOC_DBG_TRAP_GET_DEVICE_SNAPSHOT;
        self.trap(pid, op, &mut Operation { device_snapshot })?;
        let entry = entries.iter().find(|entry| entry.gpu_id == gpu);
        Ok(entry.context("there is no such GPU")?.num_xcc)
    }

    /// Suspends a queue, or lets it go on.
    fn set_suspended(&self, pid: u32, mut queue: u32, suspended: bool) -> Result<()> {
        let queue_array_ptr = std::ptr::from_mut(&mut queue) as u64;
        let (op, mut operation) = if suspended {
            let suspend_queues = uapi::kfd_ioctl_dbg_trap_suspend_queues_args {
                queue_array_ptr,
                num_queues: 1,
                ..Default::default()
            };
            let op = uapi::KFD_IOC_DBG_TRAP_SUSPEND_QUEUES;
            (op, Operation { suspend_queues })
        } else {
            let resume_queues = uapi::kfd_ioctl_dbg_trap_resume_queues_args {
                queue_array_ptr,
                num_queues: 1,
                ..Default::default()
            };
            let op = uapi::KFD_IOC_DBG_TRAP_RESUME_QUEUES;
            (op, Operation { resume_queues })
        };
        let count = self.trap(pid, op, &mut operation)?;
        ensure!(count == 1, "{count} queues");
        Ok(())
    }

    pub fn catch(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let (queue, wanted) = (words.number(2)? as u32, words.number(3)? as usize);
        let begin = Instant::now();
        loop {
            self.set_suspended(pid, queue, true)?;
            let count = self.look(pid, queue)?.waves.len();
            if count >= wanted || begin.elapsed() > COMES {
                return Ok(format!("{count} waves"));
            }
            self.set_suspended(pid, queue, false)?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn waves(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let from = match words.value("from") {
            Some(_) => Some(words.or("from", 0)?),
            None => None,
        };
        let saved = self.look(pid, words.number(2)? as u32)?;
        let shown: Vec<String> = saved.waves.iter().map(|wave| wave.show(from)).collect();
        Ok(format!("{} waves: {}", shown.len(), shown.join("; ")))
    }

    pub fn change(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let mut saved = self.look(pid, words.number(2)? as u32)?;
        for wave in &mut saved.waves {
            for (name, place, bit) in [("halt", STATUS, HALT), ("step", MODE, DEBUG_EN)] {
                match words.value(name) {
                    Some("0") => wave.words[place] &= !bit,
                    Some(_) => wave.words[place] |= bit,
                    None => {}
                }
            }
            if words.value("clear").is_some() {
                let causes = CAUSES.iter().chain(ARITHMETIC);
                let all = causes.fold(0, |all, (_, bit)| all | bit);
                wave.words[TRAPSTS] &= !all;
            }
            let bytes: Vec<u8> = wave.words.iter().flat_map(|it| it.to_le_bytes()).collect();
            saved.memory.write_all_at(&bytes, wave.address)?;
        }
        Ok(format!("{} waves", saved.waves.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_of_waves_lie_at_the_ends_of_their_records() {
        // Two waves of 8 VGPRs in a group with 512 bytes of local memory, and one of 16 alone.
        let stack = [
            0,
            0,
            IS_STATE | 1 << 9,
            FIRST_WAVE,
            0,
            IS_EVENT,
            IS_STATE | 1,
            FIRST_WAVE,
        ];
        let (scalars, rest) = (4 * (LANES * 8 + SGPRS), 4 * HARDWARE + GAP);
        let wide = 4 * LANES * 8;
        let all = 3 * (scalars + rest) + wide + 512;
        let last = scalars + wide;
        let second = last + rest + scalars;
        let first = second + rest + scalars;
        assert_eq!(places(&stack, all).expect("whole"), [first, second, last]);
        assert!(places(&stack, all - 512 - 1).is_err());
        assert!(places(&[0, 0, 0], all).is_err());
    }
}
