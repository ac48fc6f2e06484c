// SPDX-License-Identifier: GPL-2.0

//! A workqueue of our own (`include/linux/workqueue.h`).
//!
//! The kernel crate only knows the system's queues, and those cannot be waited for: a module must
//! know that none of its work is left before it goes. Dropping an [`OwnedQueue`] runs what is
//! queued and then destroys the queue.

use core::{
    mem::ManuallyDrop,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    bindings, new_work,
    prelude::*,
    workqueue::{
        impl_has_work,
        DelayedWork,
        Queue,
        Work,
        WorkItem, //
    },
};

/// Runs work that waits for its time now, and returns when it has run. May sleep. Nobody may queue it
/// meanwhile: then it is nowhere any more afterwards.
pub(crate) fn flush_delayed<T, const ID: u64>(work: &DelayedWork<T, ID>) {
    // CAST: `DelayedWork` is a transparent wrapper of a `struct delayed_work` that C may change.
    let work = (&raw const *work)
        .cast_mut()
        .cast::<bindings::delayed_work>();
    // SAFETY: A `DelayedWork` is an initialised `struct delayed_work` at every moment.
    unsafe { bindings::flush_delayed_work(work) };
}

/// A queue that finishes its work before it goes.
pub(crate) struct OwnedQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: A workqueue may be used and destroyed from any thread.
unsafe impl Send for OwnedQueue {}
// SAFETY: A workqueue does its own locking.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Work of this queue runs on any CPU, several items at a time.
    pub(crate) fn unbound(name: &'static CStr) -> Result<Self> {
        Self::new(name, bindings::wq_flags_WQ_UNBOUND, 0)
    }

    /// The same, but no work begins while the machine goes to sleep and until it has woken up.
    pub(crate) fn freezable(name: &'static CStr) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_FREEZABLE;
        Self::new(name, flags, 0)
    }

    fn new(name: &'static CStr, flags: c_uint, max_active: c_int) -> Result<Self> {
        // SAFETY: The format takes one string, and `name` is one.
        let queue = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                flags,
                max_active,
                name.as_char_ptr(),
            )
        };
        NonNull::new(queue).map(Self).ok_or(ENOMEM)
    }

    /// Waits until what was queued before this call has run. May sleep.
    pub(crate) fn flush(&self) {
        // SAFETY: The queue is alive until drop.
        unsafe { bindings::__flush_workqueue(self.0.as_ptr()) };
    }
}

impl Deref for OwnedQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: The queue is alive until drop, and the borrow cannot outlive `self`.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: This is the only owner; nobody can queue any more.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

/// A value whose drop runs on a workqueue, so that its last owner may let it go in any context.
pub(crate) struct Deferred<T: Send + Sync + 'static> {
    body: ManuallyDrop<Pin<KBox<Body<T>>>>,
    queue: &'static OwnedQueue,
}

/// What is queued in the end.
#[pin_data]
struct Body<T> {
    #[pin]
    work: Work<Body<T>>,
    #[pin]
    value: T,
}

impl_has_work! {
    impl{T} HasWork<Self> for Body<T> { self.work }
}

impl<T: Send + Sync + 'static> WorkItem for Body<T> {
    type Pointer = Pin<KBox<Self>>;

    fn run(this: Self::Pointer) {
        drop(this);
    }
}

impl<T: Send + Sync + 'static> Deferred<T> {
    /// A value that will be dropped on `queue`.
    pub(crate) fn new<E>(queue: &'static OwnedQueue, value: impl PinInit<T, E>) -> Result<Self>
    where
        Error: From<E>,
    {
        let body = KBox::try_pin_init(
            try_pin_init!(Body {
                work <- new_work!("amdkfd::Deferred"),
                value <- value,
            }? Error),
            GFP_KERNEL,
        )?;
        Ok(Self {
            body: ManuallyDrop::new(body),
            queue,
        })
    }
}

impl<T: Send + Sync + 'static> Deref for Deferred<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.body.value
    }
}

impl<T: Send + Sync + 'static> Drop for Deferred<T> {
    fn drop(&mut self) {
        // SAFETY: The body is taken here only, and nobody uses `self` after its drop.
        let body = unsafe { ManuallyDrop::take(&mut self.body) };
        self.queue.enqueue(body);
    }
}
