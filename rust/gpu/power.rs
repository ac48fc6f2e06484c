// SPDX-License-Identifier: GPL-2.0-only

//! A device that sleeps, is reset, or goes away: what amdgpu's calls about that come to.
//!
//! amdgpu makes these calls one after the other for a device. It pairs a suspend with a resume or with
//! the end of the device, which is the drop of its [`Served`], and a pre-reset with a post-reset. What
//! is open between the two is the [`Sleep`].

use super::{
    gate,
    Gpu,
    Served, //
};
use crate::{
    compat::smp_mb,
    doorbell,
    kfd,
    linux::task::Signal,
    mmap::MmapTarget,
    process::power::{
        self,
        Cause, //
    },
    sched::NodeQueues, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::{
        ordering::Relaxed,
        Atomic, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// What a device has to undo when it comes back, or ends instead.
pub(super) struct Sleep {
    /// Processes are off all GPUs for it.
    processes: Atomic<bool>,
    /// /dev/kfd cannot be opened for its reset.
    gate: Atomic<bool>,
}

impl Sleep {
    pub(super) fn new() -> Self {
        Self {
            processes: Atomic::new(false),
            gate: Atomic::new(false),
        }
    }

    fn begin_processes(&self) {
        if !self.processes.xchg(true, Relaxed) {
            power::suspend();
        }
    }

    fn end_processes(&self) {
        if self.processes.xchg(false, Relaxed) {
            power::resume();
        }
    }

    fn close_gate(&self) {
        if !self.gate.xchg(true, Relaxed) {
            gate::close();
        }
    }

    fn open_gate(&self) {
        if self.gate.xchg(false, Relaxed) {
            gate::open();
        }
    }

    /// The device ends, asleep or not.
    pub(super) fn end(&self) {
        self.open_gate();
        self.end_processes();
    }
}

/// The resets of a device, for what would be lost in one and must not begin unseen. One for each `Gpu`.
///
/// Odd while there is one: begins and ends are counted. Changed by one task at a time.
pub(crate) struct Resets(Atomic<u32>);

/// A moment between two resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quiet(u32);

impl Resets {
    pub(super) fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// A reset begins, perhaps anew. Who looks for what is lost comes after this.
    fn begin(&self) {
        let count = self.0.load(Relaxed);
        self.0.store(count.wrapping_add(1 + count % 2), Relaxed);
        // Pairs with the one in `has_begun_since`: either that sees the reset, or we see what has begun.
        smp_mb();
    }

    /// It is over.
    fn end(&self) {
        let count = self.0.load(Relaxed);
        self.0.store(count.wrapping_add(count % 2), Relaxed);
    }

    /// This moment. `EAGAIN`: there is a reset.
    pub(crate) fn quiet(&self) -> Result<Quiet> {
        let count = self.0.load(Relaxed);
        match count % 2 {
            0 => Ok(Quiet(count)),
            _ => Err(EAGAIN),
        }
    }

    /// Whether a reset has begun since, for whoever can be seen by now.
    pub(crate) fn has_begun_since(&self, quiet: Quiet) -> bool {
        // Pairs with the one in `begin`.
        smp_mb();
        self.0.load(Relaxed) != quiet.0
    }
}

/// How long a process may take to end by itself when its GPU goes away.
const GRACE: Delta = Delta::from_secs(3);

/// How long waiting goes on without a word.
const PATIENCE: Delta = Delta::from_secs(10);

impl Gpu {
    /// Waits until no process uses the device, or the time is over.
    fn wait_for_users(&self, time: Delta) -> bool {
        const STEP: Delta = Delta::from_millis(10);
        for _ in 0..time.as_millis() / STEP.as_millis() {
            if self.users.count() == 0 {
                return true;
            }
            fsleep(STEP);
        }
        self.users.count() == 0
    }
}

impl Served {
    /// All nodes are tried; the first error counts.
    fn each_queues(&self, act: impl Fn(&NodeQueues) -> Result) -> Result {
        let mut result = Ok(());
        for node in self.nodes() {
            result = result.and(act(node.queues()));
        }
        result
    }

    fn stop(&self) {
        if let Err(error) = self.each_queues(NodeQueues::stop) {
            pr_err!("queues may stay on a GPU that sleeps or goes away ({error:?})\n");
        }
    }

    fn start(&self) -> Result {
        self.each_queues(NodeQueues::start)
            .inspect_err(|error| pr_err!("a GPU does not compute again ({error:?})\n"))
    }

    /// Power is about to go, or the device. `processes`: their buffers are too.
    pub(crate) fn suspend(&self, processes: bool) {
        self.stop();
        if processes {
            self.suspend_processes();
        }
    }

    /// Undoes it.
    pub(crate) fn resume(&self, processes: bool) -> Result {
        self.start()?;
        if processes {
            self.resume_processes();
        }
        Ok(())
    }

    /// Takes all processes off all GPUs.
    pub(crate) fn suspend_processes(&self) {
        self.sleep.begin_processes();
    }

    /// Undoes it, if no other device sleeps.
    pub(crate) fn resume_processes(&self) {
        self.sleep.end_processes();
    }

    /// A reset begins: from now until [`Served::post_reset`] the hardware is amdgpu's alone.
    pub(crate) fn pre_reset(&self, cause: &str) {
        for node in self.nodes() {
            node.listeners().tell_reset(false, cause);
        }
        self.sleep.close_gate();
        self.stop();
        let cause = match self.gpu.ecc.load(Relaxed) {
            true => Cause::Ecc,
            false => Cause::Hang,
        };
        self.gpu.resets.begin();
        power::lose(self.gpu.kgd.handle(), cause);
    }

    /// The reset is over. New queues run; those from before it never will.
    pub(crate) fn post_reset(&self) -> Result {
        let started = self.start();
        self.gpu.ecc.store(false, Relaxed);
        self.gpu.resets.end();
        self.sleep.open_gate();
        for node in self.nodes() {
            node.listeners().tell_reset(true, "");
        }
        started
    }

    /// The device's memory had an error that could not be corrected. Never sleeps.
    pub(crate) fn note_ecc_error(&self) {
        self.gpu.ecc.store(true, Relaxed);
    }

    /// Takes the user's mappings of doorbells and registers away: whoever touches them gets a SIGBUS.
    pub(crate) fn clear_mappings(&self) {
        for node in self.nodes() {
            let doorbells = MmapTarget::Doorbell(node.id());
            kfd::zap(doorbells.to_offset(), doorbell::slice_bytes(node));
            kfd::zap(MmapTarget::Mmio(node.id()).to_offset(), PAGE_SIZE as u64);
        }
    }

    /// The device goes away: its processes are asked to end, then made to. Returns when all have let go of it.
    ///
    /// TIMEOUT: none beyond that. What amdgpu frees next is theirs. Who is left is a file of /dev/kfd
    /// that was passed on to another process, or a task that cannot be killed.
    pub(crate) fn end_processes(&self) {
        let handle = self.gpu.kgd.handle();
        power::end(handle, Signal::Bus);
        if self.gpu.wait_for_users(GRACE) {
            return;
        }
        power::end(handle, Signal::Kill);
        while !self.gpu.wait_for_users(PATIENCE) {
            let left = self.gpu.users.count();
            pr_warn!("a GPU goes away; waiting for {left} processes to let go of it\n");
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_gpu_power)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_not_missed() {
        let resets = Resets::new();
        let before = resets.quiet().unwrap();
        assert!(!resets.has_begun_since(before));
        resets.begin();
        assert_eq!(resets.quiet(), Err(EAGAIN));
        assert!(resets.has_begun_since(before));
        // It did not help, and is tried again.
        resets.begin();
        assert_eq!(resets.quiet(), Err(EAGAIN));
        resets.end();
        assert!(resets.has_begun_since(before));
        let after = resets.quiet().unwrap();
        assert!(!resets.has_begun_since(after));
        resets.end();
        assert_eq!(resets.quiet(), Ok(after));
    }
}
