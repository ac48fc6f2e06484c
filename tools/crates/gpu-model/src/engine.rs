// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Engines: the parts of the GPU that work on their own (command processor, SDMA), and what runs
//! them.
//!
//! An engine's [`Engine::doorbell`] and its block's register writes run on the MMIO thread (the
//! guest CPU waits meanwhile): there it maps, unmaps and preempts queues, and executes the kernel's
//! queues (KIQ, HIQ) at once. Doorbells in memory come from the thread that watches them instead
//! ([`crate::doorbells`]), never at the same time as an MMIO access. Work of user queues runs in
//! [`Engine::step`] on the engine thread, in slices of about a millisecond, each taken out of the
//! engine's lock, so that the MMIO thread can ask a running queue to stop and wait for its slice to
//! end.
//!
//! In synchronous mode there is no race: the MMIO thread itself steps until all engines are idle or
//! waiting on memory, and the engine thread only looks after those that wait.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::chip::Chip;

/// What a step of an engine or of one of its queues achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// Nothing to do until a doorbell or register write comes.
    Idle,
    /// Waits for memory to change (a signal, a polled address): look again soon.
    Polling,
    /// There is more to do.
    Busy,
}

/// A dword index into the doorbell BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DoorbellIndex(pub u32);

/// Something that runs work from queues.
pub trait Engine: Send + Sync {
    fn name(&self) -> String;
    /// A doorbell was written (`value` is 32 or 64 bits wide as the guest wrote it). True if it is
    /// one of this engine's; false lets the next engine look.
    fn doorbell(&self, chip: &Chip, index: DoorbellIndex, value: u64) -> bool;
    /// Runs one bounded slice of work.
    fn step(&self, chip: &Chip) -> Progress;
    /// Drops all queues and work.
    fn reset(&self, chip: &Chip);
    /// The same for these copy engines, by bit.
    fn reset_sdma(&self, _engines: u32) {}
    /// What software asked for and the engine does not do: a line per kind, with its count.
    fn burndown(&self) -> String {
        String::new()
    }
    /// What the engine has done, as far as it is counted: a line per kind, with its count.
    fn work(&self) -> String {
        String::new()
    }
}

/// Rouses the engine thread, and stops it.
#[derive(Default)]
pub struct Wake {
    state: Mutex<WakeState>,
    changed: Condvar,
}

#[derive(Default)]
struct WakeState {
    kicks: u64,
    stopped: bool,
}

impl Wake {
    /// There may be work: called by an engine that got some outside of its `step`.
    pub fn kick(&self) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .kicks += 1;
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stopped = true;
        self.changed.notify_all();
    }

    fn kicks(&self) -> u64 {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .kicks
    }

    /// Waits for a kick after the `seen`-th, at most for `timeout` if one is given. False: stop.
    fn wait(&self, seen: u64, timeout: Option<Duration>) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let still = |s: &mut WakeState| s.kicks == seen && !s.stopped;
        match timeout {
            Some(timeout) => match self.changed.wait_timeout_while(state, timeout, still) {
                Ok((state, _)) => !state.stopped,
                Err(_) => false,
            },
            None => self
                .changed
                .wait_while(state, still)
                .is_ok_and(|s| !s.stopped),
        }
    }
}

/// Steps every engine once; the most urgent answer counts.
pub fn step_all(chip: &Chip, engines: &[Arc<dyn Engine>]) -> Progress {
    engines
        .iter()
        .map(|e| e.step(chip))
        .max()
        .unwrap_or(Progress::Idle)
}

/// The engine thread; dropping it stops and joins it.
pub struct EngineThread {
    chip: Arc<Chip>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EngineThread {
    /// The shortest and the longest pause between two looks at polled memory.
    const POLL_MIN: Duration = Duration::from_micros(20);
    const POLL_MAX: Duration = Duration::from_millis(1);

    pub fn spawn(chip: Arc<Chip>, engines: Vec<Arc<dyn Engine>>) -> std::io::Result<Self> {
        let shared = chip.clone();
        let thread = std::thread::Builder::new()
            .name("engines".into())
            .spawn(move || Self::run(&shared, &engines))?;
        Ok(Self {
            chip,
            thread: Some(thread),
        })
    }

    fn run(chip: &Chip, engines: &[Arc<dyn Engine>]) {
        let mut seen = 0;
        let mut pause = Self::POLL_MIN;
        let mut timeout = None;
        while chip.wake.wait(seen, timeout) {
            seen = chip.wake.kicks();
            timeout = match step_all(chip, engines) {
                Progress::Busy => {
                    pause = Self::POLL_MIN;
                    Some(Duration::ZERO)
                }
                Progress::Polling => {
                    pause = (pause * 2).min(Self::POLL_MAX);
                    Some(pause)
                }
                Progress::Idle => None,
            };
        }
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.chip.wake.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
