// SPDX-License-Identifier: GPL-2.0-only

//! The GPUs of a process: those that its cgroup lets it use.

use super::ProcessDevice;
use crate::{
    gpu::{
        gate,
        Node, //
    },
    linux::ratelimit::may_complain,
};
use core::ops::Deref;
use kernel::{
    prelude::*,
    sync::Arc,
    task::Kuid, //
};

/// The devices of a process, in topology order. Of one alone no list is made.
pub(super) enum Devices {
    /// One, or none.
    Few(Option<Arc<ProcessDevice>>),
    /// More than one.
    Many(KVec<Arc<ProcessDevice>>),
}

impl Devices {
    /// One more, behind the others.
    fn push(&mut self, device: Arc<ProcessDevice>) -> Result {
        match self {
            Self::Many(devices) => devices.push(device, GFP_KERNEL_ACCOUNT)?,
            Self::Few(none @ None) => *none = Some(device),
            Self::Few(Some(first)) => {
                let mut devices = KVec::new();
                devices.push(first.clone(), GFP_KERNEL_ACCOUNT)?;
                devices.push(device, GFP_KERNEL_ACCOUNT)?;
                *self = Self::Many(devices);
            }
        }
        Ok(())
    }

    /// What the current task's process, which is that user's, gets of these nodes: those that its
    /// cgroup lets it use. `EINVAL`: that is none. `EAGAIN`: the nodes may be about to change.
    pub(super) fn choose(nodes: &[Arc<Node>], user: Kuid) -> Result<Self> {
        // The opener may have waited long since it passed the gate.
        if gate::is_closed() {
            return Err(EAGAIN);
        }
        let mut devices = Self::Few(None);
        for node in nodes {
            let minor = node.partition().render_minor;
            if node.kgd().cgroup_permission(minor).is_ok() {
                if node.gate().is_closed() {
                    return Err(EAGAIN);
                }
                devices.push(ProcessDevice::new(node.clone(), user)?)?;
            }
        }
        if devices.is_empty() && gate::is_any_closed() {
            return Err(EAGAIN);
        }
        if devices.is_empty() {
            if may_complain() {
                let pid = kernel::current!().pid();
                pr_warn!("there is no GPU that process {pid} may use\n");
            }
            return Err(EINVAL);
        }
        Ok(devices)
    }

    /// Whether a new process retries faulting accesses: if all its GPUs were set up for that at
    /// boot.
    pub(super) fn xnack_by_default(&self) -> bool {
        self.iter().all(|device| !device.node().facts().noretry)
    }
}

impl Deref for Devices {
    type Target = [Arc<ProcessDevice>];

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Few(device) => device.as_slice(),
            Self::Many(devices) => devices,
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_devices)]
mod tests {
    use super::*;
    use crate::{
        gpu::{
            gate::Gate,
            Gpu,
            NoSink, //
        },
        ids::GpuId,
        kgd::fake::Fake,
        linux::users::user_of, //
    };

    #[test]
    fn a_device_that_is_reset_refuses_only_who_may_use_it() {
        let gates = [Gate::new().unwrap(), Gate::new().unwrap()];
        let sink = Arc::new(NoSink, GFP_KERNEL).unwrap();
        let nodes = [1, 2].map(|number| {
            let gate = gates[number as usize - 1].clone();
            let gpu = Gpu::new(Fake::new().unwrap(), gate).unwrap();
            Node::new(gpu, 0, GpuId::new(number).unwrap(), sink.clone()).unwrap()
        });
        let choose = |nodes: &[Arc<Node>]| Devices::choose(nodes, user_of(1));
        assert!(choose(&nodes).is_ok());
        gates[0].close();
        assert_eq!(choose(&nodes).err(), Some(EAGAIN));
        assert!(choose(&nodes[1..]).is_ok());
        // While it is partitioned it has no nodes.
        assert_eq!(choose(&[]).err(), Some(EAGAIN));
        gates[0].open();
        assert!(choose(&nodes).is_ok());
    }
}
