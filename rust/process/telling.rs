// SPDX-License-Identifier: GPL-2.0-only

//! Writing into a process's memory on its account: exceptions for its runtime, what waves have
//! saved. That takes a kernel thread, which waits for no program: see
//! [`in_address_space`](crate::linux::task::in_address_space).
//!
//! The runtime leaves a word of its memory and an event in the header of each queue's save area
//! (`struct kfd_context_save_area_header`, err_payload_addr and err_event_id): an exception's bit
//! is set in the one and the other signalled.
//!
//! Who has a kernel thread do so waits for it. There is one such errand for a process at a time:
//! the others wait for their turn, before they allocate anything, and a signal ends that.

use super::{
    queues,
    registry,
    Process,
    ProcessRef, //
};
use crate::{
    gfx::SaveArea,
    linux::{
        task::in_address_space,
        workqueue::OwnedQueue, //
    },
    uapi::kfd_context_save_area_header, //
};
use core::mem::offset_of;
use kernel::{
    new_condvar, new_mutex, new_work,
    prelude::*,
    sync::{
        Arc,
        Completion,
        CondVar,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};

/// Whose turn it is to have something done for a process. One for each process, embedded in it.
#[pin_data]
pub(super) struct Errands {
    #[pin]
    taken: Mutex<bool>,
    #[pin]
    free: CondVar,
}

impl Errands {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            taken <- new_mutex!(false, "amdkfd::Errands::taken"),
            free <- new_condvar!("amdkfd::Errands::free"),
        })
    }

    /// Waits for one's turn. Nothing may be locked. `ERESTARTSYS`: a signal.
    ///
    /// TIMEOUT: none but that. What those before do is bounded.
    fn turn(&self) -> Result<ErrandTurn<'_>> {
        let mut taken = self.taken.lock();
        while *taken {
            if self.free.wait_interruptible(&mut taken) {
                // It may have been told of a turn that it does not take.
                self.free.notify_one();
                return Err(ERESTARTSYS);
            }
        }
        *taken = true;
        Ok(ErrandTurn(self))
    }
}

/// A turn to have something done for a process; it ends when this is dropped.
pub(crate) struct ErrandTurn<'a>(&'a Errands);

impl Drop for ErrandTurn<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock() = false;
        self.0.free.notify_one();
    }
}

/// Something to be done for a process by a kernel thread, while somebody waits for it. It has all
/// that it takes but what it works on: from then on nothing about it can fail.
pub(super) struct Errand<T: Send + Unpin + 'static>(Arc<ErrandWork<T>>);

#[pin_data]
struct ErrandWork<T: Send + Unpin + 'static> {
    #[pin]
    work: Work<ErrandWork<T>>,
    #[pin]
    done: Completion,
    #[pin]
    subject: Mutex<Option<T>>,
    act: fn(&Process, T),
    process: ProcessRef,
    queue: &'static OwnedQueue,
}

impl_has_work! {
    impl{T: Send + Unpin + 'static} HasWork<Self> for ErrandWork<T> { self.work }
}

impl<T: Send + Unpin + 'static> WorkItem for ErrandWork<T> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let subject = this.subject.lock().take();
        if let Some(subject) = subject {
            (this.act)(&this.process, subject);
        }
        this.done.complete_all();
    }
}

impl<T: Send + Unpin + 'static> Errand<T> {
    /// An errand for `process` that calls `act`, which takes a bounded time.
    pub(super) fn new(process: &ProcessRef, act: fn(&Process, T)) -> Result<Self> {
        let queue = registry::get()?.errands();
        let errand = pin_init!(ErrandWork {
            work <- new_work!("amdkfd::Errand"),
            done <- Completion::new(),
            subject <- new_mutex!(None, "amdkfd::Errand"),
            act,
            process: process.clone(),
            queue,
        });
        Ok(Self(Arc::pin_init(errand, GFP_KERNEL)?))
    }

    /// Has a kernel thread do it with `subject` in the caller's turn, and returns when it has.
    /// Nothing may be locked.
    ///
    /// TIMEOUT: what is done is bounded, and so is what else that worker does.
    pub(super) fn run(self, _turn: &ErrandTurn<'_>, subject: T) {
        let Self(errand) = self;
        *errand.subject.lock() = Some(subject);
        // It cannot be queued already: it is run once.
        if errand.queue.enqueue(errand.clone()).is_ok() {
            errand.done.wait_for_completion();
        }
    }
}

impl Process {
    /// A turn to have a kernel thread write into the process's memory. Nothing may be locked.
    /// `ERESTARTSYS`: a signal came before it was the caller's.
    pub(crate) fn errand(&self) -> Result<ErrandTurn<'_>> {
        self.errands.turn()
    }

    /// Tells the runtime of exceptions of the queue with this save area, which `find` looks up when
    /// the queue can no longer go. For a kernel thread. `ENOENT`: there is no such queue; `EFAULT`:
    /// the runtime has not said where, or that is not there; `ETIMEDOUT`: it cannot be looked at.
    pub(crate) fn tell_runtime(
        &self,
        find: impl FnOnce() -> Option<SaveArea>,
        exceptions: u64,
    ) -> Result {
        // DESTROY_QUEUE waits for this: what is read and written here is the queue's.
        let _telling = self.telling();
        let header = find().ok_or(ENOENT)?.address.raw();
        let at = |offset: usize| header.wrapping_add(offset as u64);
        // The process's own, whatever program its leader runs by now.
        let event = in_address_space(self.address_space(), |memory| {
            let payload = memory.read(at(offset_of!(
                kfd_context_save_area_header,
                err_payload_addr
            )))?;
            let codes = memory.read(payload)? | exceptions;
            memory.write(payload, codes)?;
            memory.read(at(offset_of!(kfd_context_save_area_header, err_event_id)))
        })?;
        // CAST: The id is the lower half; what follows it is reserved.
        self.events().set(event as u32)
    }
}

/// SEND_RUNTIME_EVENT for the queue `id` of `process`, in the caller's `turn` with that. A runtime
/// that cannot be told is not.
pub(crate) fn send_to_runtime(
    turn: &ErrandTurn<'_>,
    process: &ProcessRef,
    id: u32,
    exceptions: u64,
) -> Result {
    let tell = |process: &Process, (id, exceptions): (u32, u64)| {
        let area = || {
            let (id, device) = queues::find(process, id)?;
            device.queues().properties(id).ok()?.save_area()
        };
        if let Err(error) = process.tell_runtime(area, exceptions) {
            pr_debug!(
                "process {}: its runtime was not told: {error:?}\n",
                process.pid
            );
        }
    };
    Errand::new(process, tell)?.run(turn, (id, exceptions));
    Ok(())
}

#[kernel::macros::kunit_tests(amdkfd_process_telling)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_errand_at_a_time() {
        let errands = KBox::pin_init(Errands::new(), GFP_KERNEL).unwrap();
        for _ in 0..2 {
            let turn = errands.turn().unwrap();
            assert!(*errands.taken.lock());
            drop(turn);
            assert!(!*errands.taken.lock());
        }
    }
}
