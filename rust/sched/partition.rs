// SPDX-License-Identifier: GPL-2.0-only

//! What a scheduler knows of the partition of a device that its node is.

/// What a scheduler is started with.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    /// The node's logical XCCs.
    pub(crate) xcc_mask: u32,
    /// The node's VMIDs.
    pub(crate) vmid_mask: u32,
    /// Which partition of its device it is.
    pub(crate) partition: u32,
    /// The device's number for the node's first copy engine.
    pub(crate) first_engine: u32,
}

/// The logical XCCs of `mask`, each with its number within the node.
pub(super) fn xccs(mask: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut left = mask;
    let lowest = move || {
        let xcc = (left != 0).then(|| left.trailing_zeros());
        left &= left.wrapping_sub(1);
        xcc
    };
    core::iter::from_fn(lowest).zip(0..)
}
