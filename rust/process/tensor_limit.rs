// SPDX-License-Identifier: GPL-2.0-only

//! A process's wish to have a GPU's peak tensor limiter (PTL) lifted. One for each process and GPU;
//! it ends with it.

use crate::{
    gpu::Node,
    kgd::gpu_warn, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

#[pin_data(PinnedDrop)]
pub(super) struct TensorLimit {
    node: Arc<Node>,
    #[pin]
    lifted: Mutex<bool>,
}

impl TensorLimit {
    /// Not lifted.
    pub(super) fn new(node: Arc<Node>) -> impl PinInit<Self> {
        pin_init!(Self {
            node,
            lifted <- new_mutex!(false, "amdkfd::TensorLimit"),
        })
    }

    /// Lifts it for this process, or takes that back. Asking twice changes nothing.
    pub(super) fn lift(&self, lift: bool) -> Result {
        let mut lifted = self.lifted.lock();
        if *lifted != lift {
            self.node.kgd().lift_tensor_limit(lift)?;
            *lifted = lift;
        }
        Ok(())
    }
}

#[pinned_drop]
impl PinnedDrop for TensorLimit {
    fn drop(self: Pin<&mut Self>) {
        if let Err(error) = self.lift(false) {
            let name = self.node.pci_name();
            gpu_warn!(name, "the tensor limiter stays lifted: {error:?}\n");
        }
    }
}
