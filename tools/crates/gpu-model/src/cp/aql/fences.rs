// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The fences of an AQL packet: what it acquires when it begins, and releases when it is done. Pure
//! functions of its header; the caches are those of all XCCs of the partition.

use crate::cp::queue::{Body, Queue};
use crate::processor::packet::field;

/// HSA_FENCE_SCOPE_SYSTEM; 1 is AGENT, 0 NONE.
const SYSTEM: u32 = 2;

/// The packet begins: waves see what others have released.
pub fn acquire(queue: &Queue, body: &mut Body, header: u32) {
    if field(header, 9, 2) == 0 {
        return;
    }
    body.invalidate_code();
    if let Some(caches) = queue.shared.bus.caches() {
        queue
            .partition()
            .for_each(|xcc| caches.invalidate(xcc, [true; 3]));
    }
}

/// The packet is done: others see what its waves have stored. Within an agent of one XCC they do so
/// anyway.
pub fn release(queue: &Queue, header: u32) {
    let Some(caches) = queue.shared.bus.caches() else {
        return;
    };
    let scope = field(header, 11, 2);
    if scope >= SYSTEM || scope != 0 && queue.xcc.of > 1 {
        queue.partition().for_each(|xcc| caches.write_back(xcc));
    }
}
