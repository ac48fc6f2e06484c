// SPDX-License-Identifier: GPL-2.0

//! News of the end of an address space (`include/linux/mmu_notifier.h`).
//!
//! [`watch`] makes the kernel call [`AddressSpaceUser::released`] once, before the pages of the
//! address space go. The watcher's reference is dropped after that by an SRCU callback, which no
//! one waits for; [`synchronize`] is for a module that is about to go.

use kernel::{
    bindings,
    error::to_result,
    mm::MmWithUser,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// What uses an address space and must stop when it ends.
pub(crate) trait AddressSpaceUser: Send + Sync + 'static {
    /// The last user of the address space is gone. When this returns, nothing may touch it.
    fn released(self: &Arc<Self>);
}

/// One registration, owned by the kernel from registration to `free_notifier`.
#[repr(C)]
struct Node<T: AddressSpaceUser> {
    notifier: Opaque<bindings::mmu_notifier>,
    user: Arc<T>,
}

impl<T: AddressSpaceUser> Node<T> {
    const OPS: bindings::mmu_notifier_ops = bindings::mmu_notifier_ops {
        release: Some(Self::release),
        free_notifier: Some(Self::free),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// `notifier` is the first field of a `Node<T>` that [`watch`] leaked.
    unsafe extern "C" fn release(
        notifier: *mut bindings::mmu_notifier,
        _mm: *mut bindings::mm_struct,
    ) {
        let node = notifier.cast::<Self>();
        // SAFETY: The node lives until `free`, which the kernel calls an SRCU grace period after
        // `mmu_notifier_put`, and this function runs inside an SRCU read section.
        unsafe { &(*node).user }.released();
        // SAFETY: Registration took the one reference that this gives back. The kernel calls
        // `release` once: it takes the node off its list.
        unsafe { bindings::mmu_notifier_put(notifier) };
    }

    /// # Safety
    ///
    /// As for `release`; called last.
    unsafe extern "C" fn free(notifier: *mut bindings::mmu_notifier) {
        // SAFETY: `watch` leaked this box, and the kernel has given up its pointer to it.
        drop(unsafe { KBox::from_raw(notifier.cast::<Self>()) });
    }
}

/// Calls `user.released()` when `mm` ends. `mm` must be the caller's own.
pub(crate) fn watch<T: AddressSpaceUser>(mm: &MmWithUser, user: Arc<T>) -> Result {
    let notifier = bindings::mmu_notifier {
        ops: &Node::<T>::OPS,
        ..pin_init::zeroed()
    };
    let node = KBox::new(
        Node {
            notifier: Opaque::new(notifier),
            user,
        },
        GFP_KERNEL,
    )?;
    let node = KBox::into_raw(node);
    // SAFETY: `node` is valid and stays where it is; `mm` has users because the caller holds one.
    let registered = to_result(unsafe {
        bindings::mmu_notifier_register(node.cast::<bindings::mmu_notifier>(), mm.as_raw())
    });
    if registered.is_err() {
        // SAFETY: The registration failed, so the box is still ours alone.
        drop(unsafe { KBox::from_raw(node) });
    }
    registered
}

/// Waits until every `free_notifier` that was due has run. May sleep.
pub(crate) fn synchronize() {
    // SAFETY: Called from process context, like any function that may sleep.
    unsafe { bindings::mmu_notifier_synchronize() };
}
