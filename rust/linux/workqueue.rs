// SPDX-License-Identifier: GPL-2.0-only

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
    bindings, container_of, new_work,
    prelude::*,
    sync::Refcount,
    time::Jiffies,
    workqueue::{
        impl_has_work,
        DelayedWork,
        Queue,
        RawDelayedWorkItem,
        RawWorkItem,
        Work,
        WorkItem, //
    },
};

/// Runs work that waits for its time now, and returns when it has run. May sleep. Nobody may queue
/// it meanwhile: then it is nowhere any more afterwards.
pub(crate) fn flush_delayed<T, const ID: u64>(work: &DelayedWork<T, ID>) {
    // CAST: `DelayedWork` is a transparent wrapper of a `struct delayed_work` that C may change.
    let work = (&raw const *work)
        .cast_mut()
        .cast::<bindings::delayed_work>();
    // SAFETY: A `DelayedWork` is an initialised `struct delayed_work` at every moment.
    unsafe { bindings::flush_delayed_work(work) };
}

/// A queue that finishes its work before it goes.
pub(crate) struct OwnedQueue {
    queue: NonNull<bindings::workqueue_struct>,
}

// SAFETY: A workqueue may be used and destroyed from any thread.
unsafe impl Send for OwnedQueue {}
// SAFETY: A workqueue does its own locking.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Work of this queue runs on any CPU, several items at a time.
    pub(crate) fn unbound(name: &'static CStr) -> Result<Self> {
        Self::new(name, bindings::wq_flags_WQ_UNBOUND)
    }

    /// As [`OwnedQueue::unbound`], but none begins while the machine sleeps, or is about to.
    pub(crate) fn unbound_freezable(name: &'static CStr) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_FREEZABLE;
        Self::new(name, flags)
    }

    fn new(name: &'static CStr, flags: c_uint) -> Result<Self> {
        /// As many items at a time as the kernel finds right.
        const MAX_ACTIVE: c_int = 0;
        // SAFETY: The format takes one string, and `name` is one.
        let queue = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                flags,
                MAX_ACTIVE,
                name.as_char_ptr(),
            )
        };
        Ok(Self {
            queue: NonNull::new(queue).ok_or(ENOMEM)?,
        })
    }

    fn queue(&self) -> &Queue {
        // SAFETY: The queue is alive until drop, and the borrow cannot outlive `self`.
        unsafe { Queue::from_raw(self.queue.as_ptr()) }
    }

    /// Queues work. Legal in any context.
    pub(crate) fn enqueue<W, const ID: u64>(&self, work: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        self.queue().enqueue(work)
    }

    /// Runs `act` on the queue.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn try_spawn<T: FnOnce() + Send + 'static>(
        &self,
        flags: kernel::alloc::Flags,
        act: T,
    ) -> Result {
        Ok(self.queue().try_spawn(flags, act)?)
    }

    /// From now on no more than so many items run at a time.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn limit(&self, items: c_int) {
        // SAFETY: The queue is alive until drop, and keeps no order.
        unsafe { bindings::workqueue_set_max_active(self.queue.as_ptr(), items) };
    }

    /// Queues work when that time has passed. Legal in any context.
    ///
    /// # Safety
    ///
    /// The work is flushed ([`flush_delayed`]) before the queue is dropped, which does not wait
    /// for work whose time has not come.
    pub(crate) unsafe fn enqueue_delayed<W, const ID: u64>(
        &self,
        work: W,
        delay: Jiffies,
    ) -> W::EnqueueOutput
    where
        W: RawDelayedWorkItem<ID> + Send + 'static,
    {
        self.queue().enqueue_delayed(work, delay)
    }

    /// Queues delayed work at once, also if it waits for its time. Legal wherever work is queued.
    pub(crate) fn hasten<W, const ID: u64>(&self, work: W) -> W::EnqueueOutput
    where
        W: RawDelayedWorkItem<ID> + Send + 'static,
    {
        let queue = self.queue.as_ptr();
        // CAST: As in the kernel crate.
        const ANY_CPU: c_int = bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int;
        // SAFETY: As for `Queue::enqueue_delayed`: the work is the field of a `delayed_work`, and
        // false is returned when it was queued already: then mod_delayed_work says true.
        unsafe {
            work.__enqueue(move |work| {
                let delayed = container_of!(work, bindings::delayed_work, work);
                !bindings::mod_delayed_work_on(ANY_CPU, queue, delayed, 0)
            })
        }
    }

    /// Waits until the [`DeferredArc`] values are gone whose last owner let them go before this
    /// call, and for all other work that there is. May sleep.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn settle(&self) {
        // SAFETY: The queue is alive until drop.
        unsafe { bindings::__flush_workqueue(self.queue.as_ptr()) };
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: This is the only owner; nobody can queue any more.
        unsafe { bindings::destroy_workqueue(self.queue.as_ptr()) };
    }
}

/// What a [`DeferredArc`] shares.
pub(crate) trait Deferrable: Send + Sync + 'static {
    /// Its last owner has let it go: it is dropped soon. Called in any context.
    fn leaves(&self) {}
}

/// A shared value whose drop runs on a workqueue, so that its last owner may let it go in any
/// context.
///
/// # Invariants
///
/// It points to a pinned box that [`DeferredArc::new`] leaked, and owns one of its references.
pub(crate) struct DeferredArc<T: Deferrable>(NonNull<Body<T>>);

/// The value, who shares it, and what is queued in the end.
#[pin_data]
struct Body<T> {
    references: Refcount,
    #[pin]
    work: Work<Body<T>>,
    queue: &'static OwnedQueue,
    #[pin]
    value: T,
}

// SAFETY: The value may be used and, by the last owner, dropped on any thread.
unsafe impl<T: Deferrable> Send for DeferredArc<T> {}
// SAFETY: As above; a shared one can only be cloned or looked at.
unsafe impl<T: Deferrable> Sync for DeferredArc<T> {}

impl_has_work! {
    impl{T} HasWork<Self> for Body<T> { self.work }
}

impl<T: Deferrable> WorkItem for Body<T> {
    type Pointer = Pin<KBox<Self>>;

    fn run(this: Self::Pointer) {
        drop(this);
    }
}

impl<T: Deferrable> DeferredArc<T> {
    /// A value that will be dropped on `queue`. Its memory is the current task's.
    pub(crate) fn new<E>(queue: &'static OwnedQueue, value: impl PinInit<T, E>) -> Result<Self>
    where
        Error: From<E>,
    {
        let body = KBox::try_pin_init(
            try_pin_init!(Body {
                references: Refcount::new(1),
                work <- new_work!("amdkfd::DeferredArc"),
                queue,
                value <- value,
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: It stays where it is until `drop` makes it a pinned box again.
        let body = KBox::leak(unsafe { Pin::into_inner_unchecked(body) });
        // INVARIANT: The first reference is this one.
        Ok(Self(NonNull::from(body)))
    }

    /// Whether both are the same value.
    pub(crate) fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.0 == other.0
    }

    /// The value, for C code to keep: its reference is [`DeferredArc::from_raw`]'s to give back.
    pub(crate) fn into_raw(this: Self) -> *const T {
        let this = ManuallyDrop::new(this);
        // SAFETY: The body is alive, by the reference that is leaked here.
        unsafe { &raw const (*this.0.as_ptr()).value }
    }

    /// Undoes [`DeferredArc::into_raw`].
    ///
    /// # Safety
    ///
    /// `value` came from there, and its reference has not been given back.
    pub(crate) unsafe fn from_raw(value: *const T) -> Self {
        // SAFETY: By this function's own contract the value lies in a body.
        let body = unsafe { container_of!(value, Body<T>, value) };
        // INVARIANT: The reference that was leaked is this one's again.
        // SAFETY: As above, and a body is not at null.
        Self(unsafe { NonNull::new_unchecked(body.cast_mut()) })
    }

    fn body(&self) -> &Body<T> {
        // SAFETY: It is alive by the type's invariant.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Deferrable> Clone for DeferredArc<T> {
    fn clone(&self) -> Self {
        self.body().references.inc();
        // INVARIANT: The reference that was just added is this one.
        Self(self.0)
    }
}

impl<T: Deferrable> Deref for DeferredArc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.body().value
    }
}

impl<T: Deferrable> Drop for DeferredArc<T> {
    fn drop(&mut self) {
        if !self.body().references.dec_and_test() {
            return;
        }
        // SAFETY: By the type's invariant it is a leaked box that is pinned, and nobody else refers
        // to it.
        let body = unsafe { Pin::new_unchecked(KBox::from_raw(self.0.as_ptr())) };
        body.value.leaves();
        let queue = body.queue;
        queue.enqueue(body);
    }
}

#[kernel::macros::kunit_tests(amdkfd_workqueue)]
mod tests {
    use super::*;
    use kernel::sync::atomic::{
        ordering::Relaxed,
        Atomic, //
    };

    /// Values that were dropped.
    static DROPPED: Atomic<usize> = Atomic::new(0);

    struct Value {
        number: u32,
    }

    impl Deferrable for Value {}

    impl Drop for Value {
        fn drop(&mut self) {
            let _: usize = DROPPED.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn the_last_owner_lets_a_value_go_on_its_queue() {
        let queue = OwnedQueue::unbound(c"amdkfd_kunit").unwrap();
        let queue = KBox::into_raw(KBox::new(queue, GFP_KERNEL).unwrap());
        // SAFETY: It is freed below, when no value refers to it any more.
        let shared: &'static OwnedQueue = unsafe { &*queue };
        let one: DeferredArc<Value> = DeferredArc::new(shared, Value { number: 7 }).unwrap();
        let two = one.clone();
        assert!(DeferredArc::ptr_eq(&one, &two));
        drop(one);
        shared.settle();
        assert_eq!((two.number, DROPPED.load(Relaxed)), (7, 0));
        let raw = DeferredArc::into_raw(two);
        // SAFETY: It comes from there, and its reference was not given back.
        let two = unsafe { DeferredArc::from_raw(raw) };
        assert_eq!(two.number, 7);
        drop(two);
        shared.settle();
        assert_eq!(DROPPED.load(Relaxed), 1);
        // SAFETY: The box is the one above, and its last user is gone.
        drop(unsafe { KBox::from_raw(queue) });
    }
}
