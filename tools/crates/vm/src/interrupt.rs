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
    pub fn install() -> Result<Self> {
        let interrupt = Self::default();
        for &signal in ENDING {
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
}
