// SPDX-License-Identifier: GPL-2.0-only

//! A spinlock that keeps interrupts off while it is held.
//!
//! The kernel crate's `SpinLock` leaves interrupts as they are, so data that an interrupt handler
//! also touches cannot live in it. [`IrqSpinLock`] is the same `Lock` with another [`Backend`]:
//! `spin_lock_irqsave` / `spin_unlock_irqrestore` (`include/linux/spinlock.h`). Under it nothing
//! sleeps or allocates, and but for two pairs (`Documentation/locking.md`) no other lock of ours is
//! taken.

use kernel::{
    bindings,
    prelude::*,
    sync::lock::{
        Backend,
        Guard,
        Lock, //
    },
};

/// A value behind an interrupt-safe spinlock.
pub(crate) type IrqSpinLock<T> = Lock<T, IrqSave>;

/// Proof that the lock is held and interrupts are off on this CPU.
pub(crate) type IrqGuard<'a, T> = Guard<'a, T, IrqSave>;

/// Creates an initialiser of an [`IrqSpinLock`] with a lock class of its own.
macro_rules! new_irq_spinlock {
    ($inner:expr, $name:literal) => {
        $crate::linux::spinlock::IrqSpinLock::new(
            $inner,
            ::kernel::c_str!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_irq_spinlock;

/// The `spin_lock_irqsave` flavour of a spinlock.
pub(crate) struct IrqSave;

/// The raw lock inside a `spinlock_t`, which is what the exported functions take. It lies at the
/// very beginning (`spinlock_check()` in spinlock.h).
fn raw(lock: *mut bindings::spinlock_t) -> *mut bindings::raw_spinlock_t {
    lock.cast()
}

// SAFETY: `lock` returns only when the spinlock is owned by this CPU, `unlock` releases it, and the
// guard state holds the interrupt flags that the matching `lock` saved.
unsafe impl Backend for IrqSave {
    type State = bindings::spinlock_t;
    type GuardState = c_ulong;

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: The caller promises that `ptr` may be written and that `name` and `key` live for
        // ever.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The caller promises that `ptr` is an initialised lock.
        unsafe { bindings::_raw_spin_lock_irqsave(raw(ptr)) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, flags: &Self::GuardState) {
        // SAFETY: The caller owns the lock; `flags` are those of the `lock` call it pairs with.
        unsafe { bindings::_raw_spin_unlock_irqrestore(raw(ptr), *flags) }
    }

    #[inline]
    unsafe fn try_lock(_ptr: *mut Self::State) -> Option<Self::GuardState> {
        // `spin_trylock_irqsave` is a macro around an inline function; nobody here needs it, and
        // "not acquired" is always a truthful answer.
        None
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: The caller promises that `ptr` is an initialised lock.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}
