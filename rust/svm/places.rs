// SPDX-License-Identifier: GPL-2.0-only

//! How many workers one user keeps.
//!
//! Pages are brought back by workers of one queue, which has so many and no more, be they a
//! thousand or, where the machine has several nodes, some hundred. Of what a page is, its user
//! says: if of a file, the file's server may answer when it likes (FUSE), and the worker waits so
//! long, with no means to give up. So of all of a user's processes a few have a worker at a time.
//! The others come again, and leave the places of the queue to other users'.

use kernel::{
    bindings, new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        Arc,
        Mutex, //
    },
    task::Kuid,
};

/// How many places a user has.
pub(super) const MOST: u32 = 16;

/// Who has how many places.
#[pin_data]
pub(crate) struct Places {
    #[pin]
    users: Mutex<RBTree<bindings::uid_t, User>>,
}

/// A user with processes that may need places.
struct User {
    members: usize,
    taken: u32,
}

/// A process of a user's.
pub(crate) struct Member {
    places: Arc<Places>,
    user: bindings::uid_t,
}

/// A place; it is free again when this is dropped.
pub(super) struct Place<'a>(&'a Member);

impl Places {
    /// Nobody has any.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let places = pin_init!(Self {
            users <- new_mutex!(RBTree::new(), "amdkfd::Places::users"),
        });
        Arc::pin_init(places, GFP_KERNEL)
    }

    /// One more process of that user's.
    pub(crate) fn join(self: &Arc<Self>, user: Kuid) -> Result<Member> {
        let user = user.into_raw().val;
        let new = User {
            members: 0,
            taken: 0,
        };
        // Not under the lock: whoever brings pages back takes that.
        let node = RBTreeNode::new(user, new, GFP_KERNEL_ACCOUNT)?;
        let mut users = self.users.lock();
        let unused = match users.get(&user).is_some() {
            true => Some(node),
            false => users.insert(node),
        };
        if let Some(known) = users.get_mut(&user) {
            known.members += 1;
        }
        drop(users);
        drop(unused);
        let places = self.clone();
        Ok(Member { places, user })
    }
}

impl Member {
    /// A place. `None`: its user's are all taken.
    pub(super) fn take(&self) -> Option<Place<'_>> {
        let mut users = self.places.users.lock();
        let user = users.get_mut(&self.user).filter(|user| user.taken < MOST)?;
        user.taken += 1;
        Some(Place(self))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(user) = self.0.places.users.lock().get_mut(&self.0.user) {
            user.taken -= 1;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut users = self.places.users.lock();
        let is_last = users.get_mut(&self.user).is_some_and(|user| {
            user.members -= 1;
            user.members == 0
        });
        let node = if is_last {
            users.remove_node(&self.user)
        } else {
            None
        };
        drop(users);
        drop(node);
    }
}

#[kernel::macros::kunit_tests(amdkfd_svm_places)]
mod tests {
    use super::*;

    /// A user by number.
    fn user(id: u32) -> Kuid {
        Kuid::from_raw(bindings::kuid_t { val: id })
    }

    #[test]
    fn a_user_has_a_few_places_however_many_processes() {
        let places = Places::new().unwrap();
        let [one, two] = [1, 1].map(|id| places.join(user(id)).unwrap());
        let other = places.join(user(2)).unwrap();
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
        drop((one, other));
        assert_eq!(places.users.lock().keys().count(), 1);
        drop(two);
        assert_eq!(places.users.lock().keys().count(), 0);
    }
}
