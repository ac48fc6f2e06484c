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
pub(super) struct Users {
    all: Atomic<i32>,
    /// Those of them that are processes; the others look at a node for a moment.
    processes: Atomic<i32>,
}

impl Users {
    pub(super) fn new() -> Result<Arc<Self>> {
        let users = Self {
            all: Atomic::new(0),
            processes: Atomic::new(0),
        };
        Ok(Arc::new(users, GFP_KERNEL)?)
    }

    pub(super) fn count(&self) -> i32 {
        // Pairs with the release in `UserCount`: who sees 0 sees all that the last one gave back.
        self.all.load(Acquire)
    }

    pub(super) fn processes(&self) -> i32 {
        // As above.
        self.processes.load(Acquire)
    }
}

/// One of them.
struct UserCount {
    users: Arc<Users>,
    is_process: bool,
}

impl Drop for UserCount {
    fn drop(&mut self) {
        if self.is_process {
            let _: i32 = self.users.processes.fetch_sub(1, Release);
        }
        let _: i32 = self.users.all.fetch_sub(1, Release);
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
    /// Who looks at the node.
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self::count(node, false)
    }

    /// A process that has the node.
    pub(crate) fn process(node: Arc<Node>) -> Self {
        Self::count(node, true)
    }

    fn count(node: Arc<Node>, is_process: bool) -> Self {
        let users = node.gpu.users.clone();
        let _: i32 = users.all.fetch_add(1, Relaxed);
        if is_process {
            let _: i32 = users.processes.fetch_add(1, Relaxed);
        }
        Self {
            node,
            _counted: UserCount { users, is_process },
        }
    }
}

impl Deref for NodeUser {
    type Target = Arc<Node>;

    fn deref(&self) -> &Arc<Node> {
        &self.node
    }
}
