// SPDX-License-Identifier: GPL-2.0-only

//! Notification of the end of an address space (`include/linux/mmu_notifier.h`).
//!
//! [`watch`] makes the kernel call [`AddressSpaceUser::released`] once, before the pages of the
//! address space go. The registration's reference is dropped after that by an SRCU callback, which
//! no one waits for; [`synchronize`] is for a module that is about to go.

use super::{
    ffi,
    task::without_signals,
    workqueue::{
        Deferrable,
        DeferredArc, //
    },
};
use core::mem::ManuallyDrop;
use kernel::{
    bindings,
    error::to_result,
    mm::MmWithUser,
    prelude::*,
    types::Opaque, //
};

/// A registration, embedded in what it is for.
pub(crate) struct Notifier(Opaque<bindings::mmu_notifier>);

// SAFETY: Only the kernel reads and writes it, and does its own locking.
unsafe impl Send for Notifier {}
// SAFETY: As above.
unsafe impl Sync for Notifier {}

impl Notifier {
    /// None as yet.
    pub(crate) fn new<T: AddressSpaceUser>() -> Self {
        Self(Opaque::new(bindings::mmu_notifier {
            ops: &Calls::<T>::OPS,
            ..pin_init::zeroed()
        }))
    }
}

/// What uses an address space and must stop when it ends.
///
/// # Safety
///
/// At `NOTIFIER` there is a [`Notifier::new`] of this very type.
pub(crate) unsafe trait AddressSpaceUser: Deferrable + Sized {
    /// Where the notifier is, in bytes.
    const NOTIFIER: usize;

    /// The last user of the address space is gone. When this returns, nothing may touch it.
    fn released(this: &DeferredArc<Self>);
}

/// What the kernel calls.
struct Calls<T>(core::marker::PhantomData<T>);

impl<T: AddressSpaceUser> Calls<T> {
    const OPS: bindings::mmu_notifier_ops = bindings::mmu_notifier_ops {
        release: Some(Self::release),
        free_notifier: Some(Self::free),
        ..pin_init::zeroed()
    };

    /// The reference that [`watch`] leaked.
    ///
    /// # Safety
    ///
    /// `notifier` is a registered one of a `T`. The reference may be dropped once.
    unsafe fn user(notifier: *mut bindings::mmu_notifier) -> ManuallyDrop<DeferredArc<T>> {
        let user = notifier.wrapping_byte_sub(T::NOTIFIER).cast::<T>();
        // SAFETY: `watch` leaked this reference, by this function's own contract.
        ManuallyDrop::new(unsafe { DeferredArc::from_raw(user) })
    }

    /// # Safety
    ///
    /// `notifier` is one that [`watch`] registered.
    unsafe extern "C" fn release(
        notifier: *mut bindings::mmu_notifier,
        _mm: *mut bindings::mm_struct,
    ) {
        // SAFETY: The reference stays until `free`, which the kernel calls an SRCU grace period
        // after `mmu_notifier_put`, and this function runs inside an SRCU read section.
        let user = unsafe { Self::user(notifier) };
        T::released(&user);
        // SAFETY: Registration took the one reference that this gives back. The kernel calls
        // `release` once: it takes the notifier off its list.
        unsafe { bindings::mmu_notifier_put(notifier) };
    }

    /// # Safety
    ///
    /// As for `release`; called last.
    unsafe extern "C" fn free(notifier: *mut bindings::mmu_notifier) {
        // SAFETY: The kernel has given up its pointer, and this is called once.
        drop(ManuallyDrop::into_inner(unsafe { Self::user(notifier) }));
    }
}

/// An address space whose lock (mmap_lock) is held for writing.
pub(crate) struct LockedSpace<'a>(&'a MmWithUser);

impl<'a> LockedSpace<'a> {
    /// Waits for the lock, whose holder may be waiting for a program. Nothing may be locked that
    /// others need. `EINTR`: the current task is being killed.
    pub(crate) fn new(mm: &'a MmWithUser) -> Result<Self> {
        // SAFETY: `mm` is valid, and has users.
        to_result(unsafe { ffi::amdkfd_mm_lock_killable(mm.as_raw()) })?;
        Ok(Self(mm))
    }
}

impl Drop for LockedSpace<'_> {
    fn drop(&mut self) {
        // SAFETY: `new` took the lock.
        unsafe { ffi::amdkfd_mm_unlock(self.0.as_raw()) };
    }
}

/// Makes the kernel call [`AddressSpaceUser::released`] when the address space ends.
///
/// The kernel looks for a signal at each mapping. For most it need not, as that takes no time.
/// `ERESTARTNOINTR`: the current task is to stop, and then makes the same call again, unless it is
/// being killed.
///
/// # Safety
///
/// `user` is watched once.
pub(crate) unsafe fn watch<T: AddressSpaceUser>(
    space: &LockedSpace<'_>,
    user: DeferredArc<T>,
) -> Result {
    let user = DeferredArc::into_raw(user);
    // No reference to the field alone: the callbacks go from it to the whole value.
    // SAFETY: By the trait's contract a notifier is there, within the value.
    let notifier = unsafe { &raw const (*user.byte_add(T::NOTIFIER).cast::<Notifier>()).0 };
    let (notifier, mm) = (Opaque::cast_into(notifier), space.0.as_raw());
    // SAFETY: It is on no list, by this function's contract, and stays where it is until `free`.
    // The address space has users, and is locked.
    let register = || unsafe { bindings::__mmu_notifier_register(notifier, mm) };
    let registered = loop {
        match to_result(without_signals(register)) {
            // With no signal nobody makes the call again: the stop is over already.
            Err(EINTR) if !kernel::current!().signal_pending() => continue,
            Err(EINTR) => break Err(ERESTARTNOINTR),
            registered => break registered,
        }
    };
    if registered.is_err() {
        // SAFETY: The registration failed, so the reference that was just leaked is still ours.
        drop(unsafe { DeferredArc::from_raw(user) });
    }
    registered
}

/// Waits until every `free_notifier` that was due has run. May sleep.
pub(crate) fn synchronize() {
    // SAFETY: Called from process context, like any function that may sleep.
    unsafe { bindings::mmu_notifier_synchronize() };
}
