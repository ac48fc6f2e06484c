// SPDX-License-Identifier: GPL-2.0-only

//! [`Sleep`]: what of a device's suspends and resets is open.

use crate::{
    gpu::gate::Gate,
    process::power,
    svm, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Mutex, //
    },
    time::{
        Instant,
        Monotonic, //
    },
};

/// What of a device is open: it sleeps, is reset, or has gone. It comes back when all of that is
/// over.
pub(super) struct Sleep {
    pub(super) stops: Pin<KBox<Mutex<Stops>>>,
    pub(super) processes: Pin<KBox<Mutex<AwayProcesses>>>,
    /// Its gate is closed for its reset.
    pub(super) gate: Atomic<bool>,
}

/// Why the schedulers of a device are stopped, but for a reset.
#[derive(Default)]
pub(super) struct Stops {
    /// Suspends that are not over.
    pub(super) count: u32,
    /// So many of them began while amdgpu suspended the device.
    pub(super) sleeps: u32,
    /// So many of those are about to return to amdgpu, which cannot have given them up.
    pub(super) begins: u32,
    /// One of them is a sleep, in which power may go: what queues have in the device's memory is
    /// kept, or could not be.
    pub(super) saved: Option<Result>,
    /// So many are about to keep it.
    pub(super) saving: u32,
    /// Since when amdgpu has been seen not to suspend the device, though sleeps are open.
    pub(super) missed: Option<Instant<Monotonic>>,
}

/// Why processes are off all GPUs for a device.
#[derive(Default)]
pub(super) struct AwayProcesses {
    /// Suspends of processes that are not over.
    pub(super) count: u32,
    /// So many of them began while amdgpu suspended the device.
    pub(super) sleeps: u32,
    /// So many of those are about to return to amdgpu, which cannot have given them up.
    pub(super) begins: u32,
    /// What its memory has may be lost in one of them.
    pub(super) loses: bool,
    /// The device goes away: nobody is off for it any more.
    pub(super) retired: bool,
}

impl AwayProcesses {
    /// So many suspends are over, those that are no sleep last.
    fn end(&mut self, count: u32) {
        let left = self.count.saturating_sub(count);
        if self.count != 0 && left == 0 {
            power::resume(self.loses);
        }
        self.count = left;
        self.sleeps = self.sleeps.min(left);
    }
}

impl Sleep {
    pub(super) fn new() -> Result<Self> {
        let stops = new_mutex!(Stops::default(), "amdkfd::Sleep::stops");
        let processes = new_mutex!(AwayProcesses::default(), "amdkfd::Sleep::processes");
        Ok(Self {
            stops: KBox::pin_init(stops, GFP_KERNEL)?,
            processes: KBox::pin_init(processes, GFP_KERNEL)?,
            gate: Atomic::new(false),
        })
    }

    /// When this returns processes are off, whoever else takes them off meanwhile. `loses`: in a
    /// sleep, of which the first waits until nothing is on its way into the device's memory. In
    /// that time one of its copy engines, or all of it, may have to be reset: nothing is locked.
    pub(super) fn begin_processes(&self, loses: bool) {
        let mut away = self.processes.lock();
        if away.retired {
            return;
        }
        away.count += 1;
        away.sleeps += u32::from(loses);
        away.begins += u32::from(loses);
        let begins = loses && (away.count == 1 || !away.loses);
        if away.count == 1 {
            away.loses = loses;
            power::suspend(loses);
        } else if begins {
            away.loses = true;
            power::begin_loss();
        }
        drop(away);
        if begins {
            svm::sleep::settle();
        }
        if loses {
            self.processes.lock().begins -= 1;
        }
    }

    pub(super) fn end_processes(&self) {
        let mut away = self.processes.lock();
        away.end(1);
    }

    /// amdgpu suspends the device no longer: a sleep that is open is one that it has given up and
    /// told nobody of. Called where the next reset, of the device or of an engine, begins or ends:
    /// these come one after the other, but one may still be in `Served::suspend`.
    pub(super) fn end_sleeps(&self, stops: &mut Stops) {
        let over = stops.sleeps.saturating_sub(stops.begins);
        stops.sleeps -= over;
        stops.count = stops.count.saturating_sub(over);
        if stops.sleeps == 0 {
            // Its power has not gone.
            stops.saved = None;
        }
        let mut away = self.processes.lock();
        let over = away.sleeps.saturating_sub(away.begins);
        away.sleeps -= over;
        away.end(over);
    }

    /// Whether a sleep is open, and whether one is about to return to amdgpu.
    pub(super) fn sleeps(&self, stops: &Stops) -> (bool, bool) {
        let away = self.processes.lock();
        let (stops, away) = ((stops.sleeps, stops.begins), (away.sleeps, away.begins));
        (stops.0 | away.0 != 0, stops.1 | away.1 != 0)
    }

    /// The device goes away, asleep or not.
    pub(super) fn retire(&self) {
        let mut away = self.processes.lock();
        away.retired = true;
        let all = away.count;
        away.end(all);
    }

    pub(super) fn close(&self, gate: &Gate) {
        match self.gate.xchg(true, Relaxed) {
            false => gate.close(),
            // A reset before came to no good end, of which nobody tells.
            true => gate.again(),
        }
    }

    pub(super) fn open(&self, gate: &Gate) {
        if self.gate.xchg(false, Relaxed) {
            gate.open();
        }
    }
}
