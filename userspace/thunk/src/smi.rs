// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`SmiEvents`]: events for system management, as they come. As many as one opens.

use crate::ioctl::call;
use crate::{Error, Kfd, Result};
use kfd_uapi as uapi;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// A stream of events of one GPU, as lines of text: a number in hexadecimal, then what belongs to
/// it.
#[derive(Debug)]
pub struct SmiEvents {
    file: OwnedFd,
    gpu_id: u32,
    rest: String,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SmiEvent {
    /// `KFD_SMI_EVENT_*`.
    pub number: u32,
    /// The number's name without the prefix; empty if this interface does not have it.
    pub name: &'static str,
    /// What the kernel says of it.
    pub text: String,
}

impl SmiEvents {
    /// Opens the stream of a GPU and asks for the events with these numbers; needs no VM.
    ///
    /// Those of other users' processes come only to root, and only with
    /// `KFD_SMI_EVENT_ALL_PROCESS` among the numbers.
    ///
    /// `Invalid`: a number that is none, which are 1 to 64.
    pub fn open(kfd: &Arc<Kfd>, gpu_id: u32, numbers: &[u32]) -> Result<Self> {
        let mask = mask(numbers)?;
        let mut args = uapi::kfd_ioctl_smi_events_args {
            gpuid: gpu_id,
            anon_fd: 0,
        };
        // SAFETY: the struct holds no pointer.
        unsafe { call(kfd.as_ref(), || format!("GPU {gpu_id}"), &mut args)? };
        // SAFETY: the kernel made the descriptor for this call.
        let file = unsafe { OwnedFd::from_raw_fd(args.anon_fd as i32) };
        let object = format!("SMI events of GPU {gpu_id}");
        rustix::io::write(&file, &mask.to_ne_bytes()).map_err(Error::of("write", object))?;
        Ok(Self {
            file,
            gpu_id,
            rest: String::new(),
        })
    }

    /// The GPU.
    pub fn gpu_id(&self) -> u32 {
        self.gpu_id
    }

    /// The descriptor, to wait for several streams at a time.
    pub fn raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// The events that have come by the end of `timeout`; it returns with the first.
    pub fn read(&mut self, timeout: Duration) -> Result<Vec<SmiEvent>> {
        let object = || format!("SMI events of GPU {}", self.gpu_id);
        let time = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut waiting = [PollFd::new(&self.file, PollFlags::IN)];
        match poll(&mut waiting, Some(&time)) {
            Ok(0) | Err(Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(errno) => return Err(Error::of("poll", object())(errno)),
        }
        let mut bytes = [0; 4096];
        let count = match rustix::io::read(&self.file, &mut bytes) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(Error::of("read", object())(errno)),
        };
        self.rest += &String::from_utf8_lossy(&bytes[..count]);
        Ok(take_lines(&mut self.rest))
    }
}

/// The events with these numbers as the kernel wants them: bit 0 is number 1.
fn mask(numbers: &[u32]) -> Result<u64> {
    numbers.iter().try_fold(0, |mask, number| {
        let bit = number.checked_sub(1).and_then(|bit| 1u64.checked_shl(bit));
        let bit =
            bit.ok_or_else(|| Error::Invalid(format!("{number} is no SMI event's number")))?;
        Ok(mask | bit)
    })
}

/// Takes the whole lines from `text`.
fn take_lines(text: &mut String) -> Vec<SmiEvent> {
    let Some(end) = text.rfind('\n') else {
        return Vec::new();
    };
    let lines: String = text.drain(..=end).collect();
    lines.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<SmiEvent> {
    let (number, text) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let number = u32::from_str_radix(number, 16).ok()?;
    let mut names = uapi::reflect::constants("KFD_SMI_EVENT_");
    Some(SmiEvent {
        number,
        name: names
            .find(|(name, value)| *value == number && *name != "MSG_SIZE")
            .map_or("", |(name, _)| name),
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_bits_and_no_others() {
        assert_eq!(mask(&[]).ok(), Some(0));
        assert_eq!(mask(&[1, 3, 64]).ok(), Some(5 | 1 << 63));
        assert!(mask(&[1, 0]).is_err());
        assert!(mask(&[65]).is_err());
        assert!(mask(&[u32::MAX]).is_err());
    }

    #[test]
    fn lines_are_events_and_parts_of_lines_wait() {
        let mut text = String::from("1 81:hip_vadd\nc 812\nd 8");
        let events = take_lines(&mut text);
        assert_eq!(events[0].name, "VMFAULT");
        assert_eq!(events[0].text, "81:hip_vadd");
        assert_eq!(events[1].name, "PROCESS_START");
        assert_eq!(text, "d 8");
    }
}
