// SPDX-License-Identifier: GPL-2.0-only

//! How a process leaves the GPUs for good.
//!
//! Its queues are unmapped, and when that is done nobody need wait for its eviction fence, and it
//! is forgotten. A queue that neither stops nor can be reset alone is at work until the whole GPU
//! is reset, which is asked for by then. So long the process's buffers stay where they are and it
//! is found, for who wants them: the end of its address space waits for that, though not for ever.
//! A reset may be forbidden (`amdgpu.gpu_recovery=0`), or its worker may be who waits here, with
//! the last reference to an address space. What is not off by then leaves later: a worker looks for
//! it ([`Evictor::outlast`]), and meanwhile what the process had of VRAM is nobody else's. Its own
//! pages the kernel takes nevertheless.

use super::{
    registry,
    Evictor,
    Lifecycle,
    Process,
    ProcessRef, //
};
use crate::{
    compat::smp_mb,
    linux::errno,
    queue::{
        await_obedience,
        PATIENCE, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::ordering::{
        Acquire,
        Release, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};

/// Ends a process whose address space ends, or whose file is closed. While it can be found, who
/// wants its buffers waits for its queues. `begin`: since when its address space waits.
pub(super) fn end(process: &ProcessRef, begin: Instant<Monotonic>) {
    match process.quiesce(begin) {
        Ok(()) => registry::forget(process),
        Err(_) => {
            let pid = process.pid;
            pr_err!("process {pid}: its GPU memory stays until the GPU is reset\n");
            // Without a VM it has no queue.
            if let Some(evictor) = process.evictor() {
                Evictor::outlast(evictor);
            }
        }
    }
}

/// Ends a context whose file is closed. One that its address space has waited for in vain is not
/// waited for once more: a process has as many as it has files.
pub(super) fn close_context(process: &ProcessRef) {
    // Its number is the next one's as soon as it cannot be found any more.
    let _ = process.files().hide();
    match process.evictor() {
        Some(evictor) if evictor.outlasts() => drop(is_over(process)),
        _ => end(process, Instant::now()),
    }
}

/// Looks once more for a process of which something was on a GPU that did not obey. False: it still
/// may be.
pub(super) fn is_over(process: &ProcessRef) -> bool {
    let over = process.leave().is_ok();
    if over {
        registry::forget(process);
    }
    over
}

/// Whether the current task has a signal to see to.
pub(super) fn has_signal() -> bool {
    kernel::current!().signal_pending()
}

impl Process {
    /// Takes everything off the GPUs, for good. Synchronous: who calls it beside another one waits
    /// until all is off, too. A call after that does nothing. `ETIME`: since `begin` too much time
    /// has gone by for a GPU that does not obey.
    ///
    /// Until it returns success the process must be found: while a queue of its does not stop, its
    /// buffers stay where they are ([`Process::is_off`]).
    ///
    /// May run under reclaim: it takes no lock that is held across an allocation. It waits for no
    /// reservation before its eviction fence is signalled: who has that may wait for the fence.
    pub(super) fn quiesce(&self, begin: Instant<Monotonic>) -> Result {
        const STEP: Delta = Delta::from_millis(10);
        // TIMEOUT: see above. Of several contexts of an address space each is asked once at least.
        while let Err(error) = self.leave() {
            if begin.elapsed() >= PATIENCE {
                return Err(error);
            }
            fsleep(STEP);
        }
        Ok(())
    }

    /// The same; waits for preemptions only. `ETIME`: a GPU has not obeyed.
    fn leave(&self) -> Result {
        if self.is_off.load(Acquire) {
            return Ok(());
        }
        self.inner.lock().lifecycle = Lifecycle::Quiesced;
        for device in self.devices() {
            device.queues().quiesce(&**device);
        }
        self.events.shut_down();
        if !self
            .devices()
            .iter()
            .all(|device| device.queues().are_off(&**device))
        {
            return Err(errno::timer_expired());
        }
        self.is_off.store(true, Release);
        // Who has asked for the fence just now has not seen that, and the fence is seen here; or it
        // sees that, and does not wait.
        smp_mb();
        // The evictor does nothing for the process any more, whose buffers may stay for long: a
        // child can have the file.
        self.let_buffers_move();
        for device in self.devices() {
            device.queues().give_back(&**device);
        }
        Ok(())
    }

    /// The process's queues have been evicted, and memory that they use is about to go: waits for a
    /// GPU that did not obey until it has, or has been reset ([`await_obedience`]). May run under
    /// reclaim, and under any lock of an address space.
    pub(super) fn await_eviction(&self) {
        let devices = self.devices().iter();
        let queues = devices.map(|device| (device.queues(), &**device));
        // No signal ends it.
        let _ = await_obedience(queues, None::<fn() -> bool>);
    }

    /// Whether all its queues are off the GPUs for good: nobody need wait for its eviction fence.
    pub(super) fn is_off(&self) -> bool {
        smp_mb();
        self.is_off.load(Acquire)
    }
}
