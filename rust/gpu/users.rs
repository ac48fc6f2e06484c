// SPDX-License-Identifier: GPL-2.0-only

//! Who still uses a device: one [`Users`] for each `Gpu`, and a [`NodeUser`] for each process on
//! each of its nodes, and for whoever looks at a node without being such a process. amdgpu must not
//! take the device away before they are gone.

use super::Node;
use core::ops::Deref;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            ordering::{
                Acquire,
                Relaxed,
                Release, //
            },
            Atomic, //
        },
        Arc, //
    },
};

/// How many they are.
pub(super) struct Users(Atomic<i32>);

impl Users {
    pub(super) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Atomic::new(0)), GFP_KERNEL)?)
    }

    pub(super) fn count(&self) -> i32 {
        // Pairs with the release in `UserCount`: who sees 0 sees all that the last one gave back.
        self.0.load(Acquire)
    }
}

/// One of them.
struct UserCount(Arc<Users>);

impl Drop for UserCount {
    fn drop(&mut self) {
        let _: i32 = self.0 .0.fetch_sub(1, Release);
    }
}

/// A node that is in use. Made under the lock of the registry of nodes, so that nobody comes after
/// the device has been taken out of it. Dropped from top to bottom: it no longer counts when it has
/// let go.
pub(crate) struct NodeUser {
    node: Arc<Node>,
    _counted: UserCount,
}

impl NodeUser {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        let users = node.gpu.users.clone();
        let _: i32 = users.0.fetch_add(1, Relaxed);
        Self {
            node,
            _counted: UserCount(users),
        }
    }
}

impl Deref for NodeUser {
    type Target = Arc<Node>;

    fn deref(&self) -> &Arc<Node> {
        &self.node
    }
}
