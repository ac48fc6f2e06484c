// SPDX-License-Identifier: GPL-2.0-only

//! How many of something each user has, who may have so many of it.
//!
//! A table for each thing that is counted. What it knows of a user, with what all of that user's
//! share, is made with the first one, charged to who makes it, and goes with the last one.

use core::ops::Deref;
use kernel::{
    bindings,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        Arc,
        LockClassKey,
        Mutex, //
    },
    task::Kuid, //
};

/// The users who have any, by uid.
#[pin_data]
pub(crate) struct Users<T> {
    #[pin]
    entries: Mutex<RBTree<bindings::uid_t, Entry<T>>>,
    max: usize,
    full: Error,
}

struct Entry<T> {
    shared: Arc<T>,
    count: usize,
}

/// One of those that a user has, until this is dropped, which may sleep. It leads to what they
/// share.
pub(crate) struct Share<T> {
    users: Arc<Users<T>>,
    user: Kuid,
    shared: Arc<T>,
}

impl<T> Users<T> {
    /// Nobody has any. A user may have `max`, which is not 0; `full` is what is answered to one
    /// more.
    pub(crate) fn new(
        name: &'static CStr,
        class: Pin<&'static LockClassKey>,
        max: usize,
        full: Error,
    ) -> Result<Arc<Self>> {
        let users = pin_init!(Self {
            entries <- Mutex::new(RBTree::new(), name, class),
            max,
            full,
        });
        Arc::pin_init(users, GFP_KERNEL)
    }

    /// One more of that user's. `shared` is what the first one brings. May sleep. Refused if the
    /// user has `max`, unless `is_exempt`, which is asked only then and under the table's lock,
    /// says that this does not matter.
    pub(crate) fn share(
        self: &Arc<Self>,
        user: Kuid,
        shared: impl PinInit<T>,
        is_exempt: impl Fn() -> bool,
    ) -> Result<Share<T>> {
        let known = self.one_more(&mut self.entries.lock(), user, &is_exempt)?;
        let shared = match known {
            Some(shared) => shared,
            None => self.first(user, shared, &is_exempt)?,
        };
        Ok(Share {
            users: self.clone(),
            user,
            shared,
        })
    }

    /// As [`Users::share`], of a user who may have none yet.
    fn first(
        &self,
        user: Kuid,
        shared: impl PinInit<T>,
        is_exempt: impl Fn() -> bool,
    ) -> Result<Arc<T>> {
        let shared = Arc::pin_init(shared, GFP_KERNEL_ACCOUNT)?;
        let entry = Entry {
            shared: shared.clone(),
            count: 1,
        };
        // Not under the lock, which nobody holds who waits for memory.
        let node = RBTreeNode::new(user.into_raw().val, entry, GFP_KERNEL_ACCOUNT)?;
        let mut entries = self.entries.lock();
        let known = self.one_more(&mut entries, user, is_exempt)?;
        let unused = match known {
            Some(_) => Some(node),
            None => entries.insert(node),
        };
        drop(entries);
        drop(unused);
        Ok(known.unwrap_or(shared))
    }

    /// One more of a user's who has some, with what they share. `None`: he has none.
    fn one_more(
        &self,
        entries: &mut RBTree<bindings::uid_t, Entry<T>>,
        user: Kuid,
        is_exempt: impl Fn() -> bool,
    ) -> Result<Option<Arc<T>>> {
        let Some(entry) = entries.get_mut(&user.into_raw().val) else {
            return Ok(None);
        };
        if entry.count >= self.max && !is_exempt() {
            return Err(self.full);
        }
        entry.count += 1;
        Ok(Some(entry.shared.clone()))
    }

    /// What those share that the user has. `None`: there are none.
    pub(crate) fn find(&self, user: Kuid) -> Option<Arc<T>> {
        let entries = self.entries.lock();
        let entry = entries.get(&user.into_raw().val);
        entry.map(|entry| entry.shared.clone())
    }
}

impl<T> Share<T> {
    /// Whose it is.
    pub(crate) fn user(&self) -> Kuid {
        self.user
    }
}

impl<T> Deref for Share<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.shared
    }
}

impl<T> Drop for Share<T> {
    fn drop(&mut self) {
        let mut entries = self.users.entries.lock();
        let entry = entries.find_mut(&self.user.into_raw().val);
        let gone = entry.and_then(|mut entry| {
            entry.get_mut().count -= 1;
            (entry.get().count == 0).then(|| entry.remove_node())
        });
        drop(entries);
        drop(gone);
    }
}

/// For tests: a user by number.
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) fn user_of(id: u32) -> Kuid {
    Kuid::from_raw(bindings::kuid_t { val: id })
}

#[cfg(CONFIG_KUNIT = "y")]
impl<T> Users<T> {
    /// For tests: how many users there are, and how many all of them have.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let entries = self.entries.lock();
        let counts = entries.values().map(|entry| entry.count);
        (entries.keys().count(), counts.sum())
    }
}

#[kernel::macros::kunit_tests(amdkfd_users)]
mod tests {
    use super::*;
    use kernel::static_lock_class;

    fn users(max: usize) -> Arc<Users<u32>> {
        Users::new(c"test", static_lock_class!(), max, EMFILE).unwrap()
    }

    fn add(users: &Arc<Users<u32>>, id: u32) -> Result<Share<u32>> {
        users.share(user_of(id), 0, || false)
    }

    #[test]
    fn a_user_has_so_many_and_others_have_theirs() {
        let users = users(2);
        let [one, two] = [(); 2].map(|()| add(&users, 1).unwrap());
        assert_eq!(add(&users, 1).err(), Some(EMFILE));
        let other = add(&users, 2).unwrap();
        let exempt = users.share(user_of(1), 0, || true).unwrap();
        drop(one);
        assert!(add(&users, 1).is_err());
        drop(two);
        // Nobody asks for an exemption that needs none.
        let again = users.share(user_of(1), 0, || unreachable!()).unwrap();
        assert!(add(&users, 1).is_err());
        drop((other, exempt, again));
        assert_eq!(users.counts(), (0, 0));
    }

    #[test]
    fn users_are_counted_apart_as_long_as_they_have_any() {
        const USERS: usize = 1000;
        let users = users(2);
        let mut kept = KVVec::new();
        for place in 0..2 * USERS {
            let one = add(&users, (place % USERS) as u32).unwrap();
            kept.push(one, GFP_KERNEL).unwrap();
        }
        assert_eq!(users.counts(), (USERS, 2 * USERS));
        kept.truncate(USERS + 1);
        assert_eq!(users.counts(), (USERS, USERS + 1));
        drop(kept);
        assert_eq!(users.counts(), (0, 0));
    }

    #[test]
    fn what_is_shared_is_the_firsts_and_goes_with_the_last() {
        let users = users(2);
        let share = |id, value| users.share(user_of(id), value, || false).unwrap();
        let found = |id| users.find(user_of(id)).map(|shared| *shared);
        let (one, two, other) = (share(1, 10), share(1, 11), share(2, 20));
        assert_eq!((*one, *two, *other), (10, 10, 20));
        drop(one);
        assert_eq!((found(1), found(2)), (Some(10), Some(20)));
        drop(two);
        assert_eq!((found(1), found(2)), (None, Some(20)));
        assert_eq!(*share(1, 12), 12);
    }
}
