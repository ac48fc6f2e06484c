// SPDX-License-Identifier: GPL-2.0-only

//! Which process a pasid names: interrupts and faults come with no more than that, and however many
//! processes a user makes, finding one of them takes others no time.

use super::{
    registry,
    ProcessName, //
};
use crate::{
    ids::Pasid,
    linux::spinlock::{
        new_irq_spinlock,
        IrqSpinLock, //
    },
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
};

/// The names of processes by pasid. Under an interrupt-safe lock, a leaf, under which nothing is
/// allocated.
#[pin_data]
pub(super) struct Pasids {
    #[pin]
    names: IrqSpinLock<RBTree<Pasid, ProcessName>>,
}

impl Pasids {
    /// None.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            names <- new_irq_spinlock!(RBTree::new(), "amdkfd::Pasids::names"),
        })
    }

    /// The pasid is that process's. amdgpu gives each to one VM at a time.
    fn add(&self, pasid: Pasid, process: ProcessName) -> Result {
        let node = RBTreeNode::new(pasid, process, GFP_KERNEL)?;
        let before = self.names.lock().insert(node);
        // Outside the lock.
        drop(before);
        Ok(())
    }

    fn remove(&self, pasid: Pasid) {
        let node = self.names.lock().remove_node(&pasid);
        drop(node);
    }

    /// The process of a pasid, which may have ended. Legal in any context.
    pub(super) fn find(&self, pasid: Pasid) -> Option<ProcessName> {
        self.names.lock().get(&pasid).copied()
    }
}

/// A pasid names a process as long as this lives.
pub(super) struct PasidName(Pasid);

impl PasidName {
    pub(super) fn new(pasid: Pasid, process: ProcessName) -> Result<Self> {
        registry::get()?.pasids().add(pasid, process)?;
        Ok(Self(pasid))
    }
}

impl Drop for PasidName {
    fn drop(&mut self) {
        if let Ok(registry) = registry::get() {
            registry.pasids().remove(self.0);
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_pasids)]
mod tests {
    use super::*;
    use crate::process::MmId;

    #[test]
    fn a_pasid_names_one_process() {
        let pasids = KBox::pin_init(Pasids::new(), GFP_KERNEL).unwrap();
        let [one, two] = [7, 8].map(|pasid| Pasid::new(pasid).unwrap());
        let name = |mm, context| (MmId(mm), context);
        pasids.add(one, name(0x1000, 3)).unwrap();
        pasids.add(two, name(0x2000, 0)).unwrap();
        assert_eq!(pasids.find(one), Some(name(0x1000, 3)));
        pasids.remove(one);
        assert_eq!(
            (pasids.find(one), pasids.find(two)),
            (None, Some(name(0x2000, 0)))
        );
        pasids.add(one, name(0x2000, 1)).unwrap();
        assert_eq!(pasids.find(one), Some(name(0x2000, 1)));
    }
}
