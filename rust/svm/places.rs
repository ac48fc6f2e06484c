// SPDX-License-Identifier: GPL-2.0-only

//! How many workers one user keeps.
//!
//! Pages are brought back by workers of one queue, which has so many and no more, be they a
//! thousand or, where the machine has several nodes, some hundred. Of what a page is, its user
//! says: if of a file, the file's server may answer when it likes (FUSE), and the worker waits so
//! long, with no means to give up. So of all of a user's processes a few have a worker at a time.
//! The others come again, and leave the places of the queue to other users'.

use crate::{
    linux::users::{
        Share,
        Users, //
    },
    sched::slots::{
        SlotGuard,
        Slots, //
    },
};
use kernel::{
    prelude::*,
    static_lock_class,
    sync::Arc,
    task::Kuid, //
};

/// How many places a user has.
pub(super) const MOST: usize = 16;

/// The users who have processes that may need places.
pub(crate) struct Places(Arc<Users<Slots<1>>>);

/// A process of a user's; all of these have the same places.
pub(crate) struct Member(Share<Slots<1>>);

/// A place; it is free again when this is dropped.
pub(super) type Place<'a> = SlotGuard<&'a Slots<1>, 1>;

impl Places {
    /// Nobody has any.
    pub(crate) fn new() -> Result<Self> {
        let class = static_lock_class!();
        // Any number of processes.
        let users = Users::new(c"amdkfd::Places::users", class, usize::MAX, ENOSPC)?;
        Ok(Self(users))
    }

    /// One more process of that user's.
    pub(crate) fn join(&self, user: Kuid) -> Result<Member> {
        self.0.share(user, Slots::new(MOST), || true).map(Member)
    }
}

impl Member {
    /// A place. `None`: its user's are all taken.
    pub(super) fn take(&self) -> Option<Place<'_>> {
        Slots::take(&*self.0)
    }
}

#[kernel::macros::kunit_tests(amdkfd_svm_places)]
mod tests {
    use super::*;
    use crate::linux::users::user_of;

    #[test]
    fn a_user_has_a_few_places_however_many_processes() {
        let places = Places::new().unwrap();
        let [one, two, other] = [1, 1, 2].map(|id| places.join(user_of(id)).unwrap());
        let mut taken = KVec::new();
        for place in 0..MOST {
            let member = if place % 2 == 0 { &one } else { &two };
            taken.push(member.take().unwrap(), GFP_KERNEL).unwrap();
        }
        assert!(one.take().is_none() && two.take().is_none());
        assert!(other.take().is_some());
        drop(taken.pop());
        assert!(one.take().is_some() && two.take().is_some());
        drop(taken);
    }
}
