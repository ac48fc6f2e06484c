// SPDX-License-Identifier: GPL-2.0-only

//! An object that is there for a while, for callers that nobody can keep out beforehand.
//!
//! One [`Removable`] for each place where such an object can be. [`Removable::remove`] returns when
//! the object is dropped: it waits for everybody who uses it, and so nobody else drops it, whenever
//! they are done.

use core::{
    ops::Deref,
    ptr::{
        null_mut,
        NonNull, //
    },
    sync::atomic::{
        AtomicPtr,
        Ordering, //
    },
};
use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            ordering::{
                Full,
                Relaxed, //
            },
            Atomic, //
        },
        rcu,
        Arc,
        Completion, //
    },
};

/// A place for an object. Dropped, it removes what is there.
pub(crate) struct Removable<T: Send + Sync> {
    /// Null: there is none. Read under RCU, which is what an interrupt is.
    present: AtomicPtr<Present<T>>,
}

/// An object that is there.
struct Present<T> {
    object: T,
    uses: Arc<Uses>,
}

/// How many uses an object has: one is that of the place where it is.
#[pin_data]
struct Uses {
    count: Atomic<i32>,
    #[pin]
    over: Completion,
}

impl Uses {
    /// One ends. Nothing of the object is touched any more when it was the last.
    fn end_one(&self) {
        if self.count.fetch_sub(1, Full) == 1 {
            self.over.complete_all();
        }
    }
}

/// One use of an object, which is not removed meanwhile. May be held while sleeping.
pub(crate) struct InUse<'a, T> {
    object: &'a T,
    uses: Arc<Uses>,
}

impl<T> Deref for InUse<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.object
    }
}

impl<T> Drop for InUse<'_, T> {
    fn drop(&mut self) {
        self.uses.end_one();
    }
}

impl<T: Send + Sync> Removable<T> {
    /// A place where nothing is.
    pub(crate) const fn new() -> Self {
        Self {
            present: AtomicPtr::new(null_mut()),
        }
    }

    /// Puts an object there, in place of one that may have been.
    pub(crate) fn put(&self, object: T) -> Result {
        let uses = pin_init!(Uses {
            count: Atomic::new(1),
            over <- Completion::new(),
        });
        let uses = Arc::pin_init(uses, GFP_KERNEL)?;
        let present = KBox::new(Present { object, uses }, GFP_KERNEL)?;
        self.remove();
        self.present
            .store(KBox::into_raw(present), Ordering::Release);
        Ok(())
    }

    /// Runs `action`, which must not sleep, on the object if it is there. Legal in any context.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&T) -> R) -> Option<R> {
        let _guard = rcu::Guard::new();
        let present = NonNull::new(self.present.load(Ordering::Acquire))?;
        // SAFETY: From `into_raw` in `put`; `remove` waits for this RCU section before it frees.
        Some(action(&unsafe { present.as_ref() }.object))
    }

    /// The object if it is there, for as long as it is needed. Never sleeps.
    pub(crate) fn get(&self) -> Option<InUse<'_, T>> {
        let _guard = rcu::Guard::new();
        let present = NonNull::new(self.present.load(Ordering::Acquire))?;
        // SAFETY: From `into_raw` in `put`; `remove` waits for this RCU section, and then for the
        // use that is counted here, before it frees.
        let present = unsafe { present.as_ref() };
        let _: i32 = present.uses.count.fetch_add(1, Relaxed);
        Some(InUse {
            object: &present.object,
            uses: present.uses.clone(),
        })
    }

    /// Removes the object, if there is one: nobody finds it any more, and when this returns it is
    /// dropped.
    /// TIMEOUT: none. What is dropped may be in use until then.
    pub(crate) fn remove(&self) {
        let present = self.present.swap(null_mut(), Ordering::AcqRel);
        let Some(raw) = NonNull::new(present) else {
            return;
        };
        // SAFETY: no locks are held that a reader under RCU takes. After it nobody begins to use
        // the object.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: From `into_raw` in `put`, and freed below.
        let uses = unsafe { raw.as_ref() }.uses.clone();
        uses.end_one();
        uses.over.wait_for_completion();
        // SAFETY: From `into_raw` in `put`. It was taken from its place here, and so it is freed
        // once; nobody uses it.
        drop(unsafe { KBox::from_raw(raw.as_ptr()) });
    }
}

impl<T: Send + Sync> Drop for Removable<T> {
    fn drop(&mut self) {
        self.remove();
    }
}

#[kernel::macros::kunit_tests(amdkfd_linux_removable)]
mod tests {
    use super::*;
    use crate::linux::workqueue::OwnedQueue;
    use kernel::{
        sync::atomic::ordering::{
            Acquire,
            Release, //
        },
        time::{
            delay::fsleep,
            Delta, //
        },
    };

    /// Tells when it is dropped.
    struct Told(Arc<Atomic<bool>>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, Release);
        }
    }

    fn told() -> (Told, Arc<Atomic<bool>>) {
        let dropped = Arc::new(Atomic::new(false), GFP_KERNEL).unwrap();
        (Told(dropped.clone()), dropped)
    }

    #[test]
    fn what_is_removed_is_not_there() {
        let place = Removable::new();
        assert!(place.get().is_none() && place.with(|_: &Told| ()).is_none());
        let (object, dropped) = told();
        place.put(object).unwrap();
        assert!(place.get().is_some() && place.with(|_| ()).is_some());
        place.remove();
        assert!(place.get().is_none() && place.with(|_| ()).is_none());
        assert!(dropped.load(Acquire));
        let (object, dropped) = told();
        place.put(object).unwrap();
        drop(place);
        assert!(dropped.load(Acquire));
    }

    #[test]
    fn who_removes_it_waits_for_its_uses() {
        let place = Arc::new(Removable::new(), GFP_KERNEL).unwrap();
        let (object, dropped) = told();
        place.put(object).unwrap();
        let returned = Arc::new(Atomic::new(false), GFP_KERNEL).unwrap();
        let used = place.get().unwrap();
        let (other, done) = (place.clone(), returned.clone());
        let remove = move || {
            other.remove();
            done.store(true, Release);
        };
        let queue = OwnedQueue::unbound(c"amdkfd_test").unwrap();
        queue.try_spawn(GFP_KERNEL, remove).unwrap();
        while place.with(|_| ()).is_some() {
            fsleep(Delta::from_millis(1));
        }
        // Nobody new finds it; whoever has it keeps it, and the other one waits for that.
        fsleep(Delta::from_millis(50));
        assert!(!returned.load(Acquire) && !dropped.load(Acquire));
        drop(used);
        drop(queue);
        assert!(returned.load(Acquire) && dropped.load(Acquire));
    }
}
