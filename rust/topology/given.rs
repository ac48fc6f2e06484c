// SPDX-License-Identifier: GPL-2.0-only

//! Which numbers (`gpu_id`) GPUs have. A number is given before its GPU is brought up, which takes
//! long and may happen to two GPUs at once, and comes back when the GPU is gone.

use super::identity::Identity;
use crate::ids::GpuId;
use kernel::{
    prelude::*,
    sync::global_lock, //
};

global_lock! {
    // SAFETY: `prepare` below runs before anything else of this file.
    unsafe(uninit) static GIVEN: Mutex<KVec<GpuId>> = KVec::new();
}

/// Makes this file usable.
///
/// # Safety
///
/// Must be called exactly once, before any other function of this file.
pub(super) unsafe fn prepare() {
    // SAFETY: By this function's own contract.
    unsafe { GIVEN.init() };
}

/// The number by which user space knows a GPU: no other one has it as long as this lives.
pub(crate) struct GivenId(GpuId);

impl GivenId {
    /// For a GPU that is about to come up. `ENOSPC`: all 65535 are taken.
    pub(super) fn new(identity: &Identity) -> Result<Self> {
        let mut given = GIVEN.lock();
        let taken = |id| given.iter().any(|other| other.raw() == id);
        let id = GpuId::new(identity.gpu_id(taken)).ok_or(ENOSPC)?;
        given.push(id, GFP_KERNEL)?;
        Ok(Self(id))
    }

    /// The number.
    pub(crate) fn id(&self) -> GpuId {
        self.0
    }
}

impl Drop for GivenId {
    fn drop(&mut self) {
        let mut given = GIVEN.lock();
        given.retain(|id| *id != self.0);
        if given.is_empty() {
            // Nobody drops a static: its memory must not outlive the module.
            *given = KVec::new();
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_topology_given)]
mod tests {
    use super::*;

    #[test]
    fn two_gpus_that_come_up_at_once_have_numbers_of_their_own() {
        let identity = Identity {
            devfn: 0,
            subsystem_vendor: 0x1002,
            subsystem_device: 0x74a1,
            domain: 0,
            device: 0x74a1,
            bus: 1,
            local_memory: 1 << 30,
            xcc_mask: 1,
        };
        let one = GivenId::new(&identity).unwrap();
        let (number, other) = (one.id(), GivenId::new(&identity).unwrap());
        assert!(other.id() != number);
        drop(one);
        assert!(GivenId::new(&identity).unwrap().id() == number);
        assert!(GivenId::new(&identity).unwrap().id() == number);
        drop(other);
    }
}
