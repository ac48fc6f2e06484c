// SPDX-License-Identifier: GPL-2.0-only

//! A table from small numbers to shared objects that is read without a lock, in any context
//! (`include/linux/xarray.h`, `include/linux/rcupdate.h`).
//!
//! A reader borrows an object for the length of a closure. Whoever put it in holds an [`RcuEntry`];
//! dropping that takes the object out and waits until no reader has it any more.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::{
        rcu,
        Arc,
        ArcBorrow, //
    },
    types::{
        ForeignOwnable,
        Opaque, //
    },
};

/// Objects by number.
#[pin_data(PinnedDrop)]
pub(crate) struct RcuTable<T: Send + Sync + 'static> {
    #[pin]
    xa: Opaque<bindings::xarray>,
    _objects: PhantomData<Arc<T>>,
}

// SAFETY: The table hands out shared references only, and locks its changes itself.
unsafe impl<T: Send + Sync> Send for RcuTable<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for RcuTable<T> {}

impl<T: Send + Sync> RcuTable<T> {
    /// An empty table.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let table = pin_init!(Self {
            // SAFETY: The slot is valid for writes.
            xa <- Opaque::ffi_init(|xa| unsafe { bindings::xa_init_flags(xa, 0) }),
            _objects: PhantomData,
        });
        Arc::pin_init(table, GFP_KERNEL)
    }

    /// Puts an object in. `EEXIST` if the number is taken.
    pub(crate) fn insert(self: &Arc<Self>, index: u32, object: Arc<T>) -> Result<RcuEntry<T>> {
        let index = index as usize;
        let new = object.into_foreign();
        let (xa, none) = (self.xa.get(), core::ptr::null_mut());
        // SAFETY: The table is initialised, and `new` is aligned to at least four bytes as an entry
        // must be. On success the table owns the reference. The function lets the lock go while it
        // allocates.
        let old = unsafe {
            bindings::xa_lock(xa);
            let old = bindings::__xa_cmpxchg(xa, index, none, new, bindings::GFP_KERNEL);
            bindings::xa_unlock(xa);
            old
        };
        // SAFETY: `old` came from the call above.
        let result = to_result(unsafe { bindings::xa_err(old) }).and_then(|()| {
            if old.is_null() {
                Ok(())
            } else {
                Err(EEXIST)
            }
        });
        if let Err(error) = result {
            // SAFETY: The table did not take the reference.
            drop(unsafe { Arc::<T>::from_foreign(new) });
            return Err(error);
        }
        Ok(RcuEntry {
            table: self.clone(),
            index,
        })
    }

    /// Shows the object of this number to `look`, which must not sleep. Legal in any context.
    /// Who takes a reference is not its last owner before `look` returns.
    pub(crate) fn with<R>(
        &self,
        index: u32,
        look: impl FnOnce(ArcBorrow<'_, T>) -> R,
    ) -> Option<R> {
        let _guard = rcu::read_lock();
        // SAFETY: The table is initialised.
        let found = unsafe { bindings::xa_load(self.xa.get(), index as usize) };
        let found = NonNull::new(found.cast::<T>())?;
        // SAFETY: Entries come from `Arc::into_foreign`, which for an `Arc` is the address of the
        // shared object's inner value, and `RcuEntry::drop` keeps the reference for as long as an
        // RCU reader may have found it.
        let object = unsafe { Arc::<T>::borrow(found.as_ptr().cast()) };
        Some(look(object))
    }
}

#[pinned_drop]
impl<T: Send + Sync> PinnedDrop for RcuTable<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The table is initialised. It is empty: every entry holds a reference to it.
        unsafe { bindings::xa_destroy(self.xa.get()) };
    }
}

/// An object in an [`RcuTable`]. Its drop may sleep.
pub(crate) struct RcuEntry<T: Send + Sync + 'static> {
    table: Arc<RcuTable<T>>,
    index: usize,
}

impl<T: Send + Sync> Drop for RcuEntry<T> {
    fn drop(&mut self) {
        // SAFETY: The table is initialised.
        let object = unsafe { bindings::xa_erase(self.table.xa.get(), self.index) };
        // SAFETY: Called from a context that may sleep, as the type says.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: The reference that `insert` gave to the table; no reader has it any more.
        drop(unsafe { Arc::<T>::try_from_foreign(object) });
    }
}

#[kernel::macros::kunit_tests(amdkfd_rcu_table)]
mod tests {
    use super::*;

    fn number(value: u32) -> Arc<u32> {
        Arc::new(value, GFP_KERNEL).unwrap()
    }

    #[test]
    fn an_object_is_there_as_long_as_its_entry() {
        let table = RcuTable::new().unwrap();
        let entry = table.insert(7, number(70)).unwrap();
        assert_eq!(table.with(7, |value| *value), Some(70));
        drop(entry);
        assert_eq!(table.with(7, |value| *value), None);
    }

    #[test]
    fn a_number_is_given_once() {
        let table = RcuTable::new().unwrap();
        let entry = table.insert(7, number(70)).unwrap();
        assert!(table.insert(7, number(71)).is_err());
        assert_eq!(table.with(7, |value| *value), Some(70));
        drop(entry);
        assert!(table.insert(7, number(72)).is_ok());
    }
}
