// SPDX-License-Identifier: GPL-2.0-only

//! What RESTORE leaves for RESUME to do, which does it without the lock of whoever has this.

use kernel::{
    alloc::KVVec,
    prelude::*, //
};

/// What is owed to a process that was restored: nothing of it runs before it has that. One RESUME
/// at a time has taken it.
pub(crate) struct Owed<T> {
    items: KVVec<T>,
    is_taken: bool,
}

impl<T> Owed<T> {
    /// Nothing.
    pub(crate) const fn new() -> Self {
        Self {
            items: KVVec::new(),
            is_taken: false,
        }
    }

    /// RESTORE owes this. Nothing was owed, but it may have been taken.
    pub(super) fn owe(&mut self, items: KVVec<T>) {
        self.items = items;
    }

    /// What is to be given. `None`: another RESUME has taken it, and does not say yet what came of
    /// it.
    pub(super) fn take(&mut self) -> Option<KVVec<T>> {
        if core::mem::replace(&mut self.is_taken, true) {
            return None;
        }
        Some(core::mem::take(&mut self.items))
    }

    /// What came of what was taken; after an error all of it is owed still. Whether nothing is owed
    /// any more: if not, RESTORE came after it was taken.
    pub(super) fn settle(&mut self, taken: KVVec<T>, given: Result) -> Result<bool> {
        self.is_taken = false;
        if given.is_err() {
            self.items = taken;
        }
        given.map(|()| self.items.is_empty())
    }
}

#[kernel::macros::kunit_tests(amdkfd_checkpoint_owed)]
mod tests {
    use super::*;

    fn items(words: &[u32]) -> KVVec<u32> {
        let mut items = KVVec::new();
        items.extend_from_slice(words, GFP_KERNEL).unwrap();
        items
    }

    fn taken(owed: &mut Owed<u32>, words: &[u32]) -> KVVec<u32> {
        let taken = owed.take().unwrap();
        assert_eq!(taken[..], *words);
        // Another one waits.
        assert!(owed.take().is_none());
        taken
    }

    #[test]
    fn what_could_not_be_given_is_owed_still() {
        let mut owed = Owed::new();
        owed.owe(items(&[1, 2]));
        let first = taken(&mut owed, &[1, 2]);
        assert_eq!(owed.settle(first, Err(EFAULT)), Err(EFAULT));
        let second = taken(&mut owed, &[1, 2]);
        assert_eq!(owed.settle(second, Ok(())), Ok(true));
        let third = taken(&mut owed, &[]);
        assert_eq!(owed.settle(third, Ok(())), Ok(true));
    }

    #[test]
    fn what_is_owed_after_somebody_has_looked_is_given_next() {
        let mut owed = Owed::new();
        let early = taken(&mut owed, &[]);
        owed.owe(items(&[3]));
        assert_eq!(owed.settle(early, Ok(())), Ok(false));
        let all = taken(&mut owed, &[3]);
        assert_eq!(owed.settle(all, Ok(())), Ok(true));
    }
}
