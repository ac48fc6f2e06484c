// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The signals that end a run.

use crate::session::Failure;
use anyhow::Result;
use signal_hook::consts::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Those that would end a program that does not handle them, but for SIGKILL and what a fault of
/// its own raises. SIGPIPE is an error of a write.
const ENDING: &[i32] = &[
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU,
    SIGXFSZ, SIGIO,
];

/// The signals that end a run in order: everything is killed and removed on the way out.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Takes the signals, but for those that whoever started this process wants ignored: nohup
    /// does SIGHUP, a shell without job control SIGINT and SIGQUIT of what runs in the background.
    pub fn install() -> Result<Self> {
        let interrupt = Self::default();
        let ignored = ignored();
        for &signal in ENDING.iter().filter(|&&signal| !ignored.has(signal)) {
            signal_hook::flag::register_usize(signal, interrupt.0.clone(), signal as usize)?;
        }
        Ok(interrupt)
    }

    #[cfg(test)]
    pub fn set(&self, signal: usize) {
        self.0.store(signal, Ordering::Relaxed);
    }

    /// A signal that has come, and is not to end anything of ours.
    pub fn take(&self) -> Option<usize> {
        let number = self.0.swap(0, Ordering::Relaxed);
        (number != 0).then_some(number)
    }

    pub fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(Failure::Signal(signal as i32).into()),
        }
    }
}

/// Signals by their numbers.
#[derive(Clone, Copy, Default)]
pub struct Set(u64);

impl Set {
    pub fn has(self, signal: i32) -> bool {
        self.0 >> (signal - 1) & 1 != 0
    }
}

/// The signals that this process ignores. Of a process without procfs: none.
pub fn ignored() -> Set {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_by(&status)
}

fn ignored_by(status: &str) -> Set {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    Set(mask.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_a_failure_of_its_own() {
        let interrupt = Interrupt::default();
        assert!(interrupt.check().is_ok());
        interrupt.0.store(SIGTERM as usize, Ordering::Relaxed);
        let error = interrupt.check().unwrap_err();
        assert!(matches!(
            error.downcast_ref(),
            Some(Failure::Signal(SIGTERM))
        ));
    }

    #[test]
    fn ignored_signals_are_those_of_the_mask() {
        let set = ignored_by("SigBlk:\t0000000000000004\nSigIgn:\t0000000000001003\n");
        assert!(set.has(SIGHUP) && set.has(SIGINT) && set.has(SIGPIPE));
        assert!(!set.has(SIGQUIT) && !set.has(SIGTERM));
        assert!(!ignored_by("").has(SIGHUP));
        // Rust's runtime ignores it.
        assert!(ignored().has(SIGPIPE));
    }
}
