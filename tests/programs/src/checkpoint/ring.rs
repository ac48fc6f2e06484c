// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The queues of a checkpoint. One whose ring UPDATE_QUEUE has taken is saved and restored without,
//! and may get another.

use super::restored::objects_at;
use crate::raw::{ioctl, Outcome};
use anyhow::{ensure, Context, Result};
use kfd::{Checkpoint, Kfd};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use std::ops::Range;
use std::sync::Arc;

/// Of all queues' rings here.
const BYTES: u32 = 4096;

/// Gives a queue this ring; 0: none.
pub fn set(kfd: &Arc<Kfd>, queue_id: u32, ring: u64) -> Outcome {
    let mut args = uapi::kfd_ioctl_update_queue_args {
        ring_base_address: ring,
        queue_id,
        ring_size: BYTES,
        queue_percentage: 100,
        queue_priority: 7,
    };
    ioctl(kfd.as_fd(), uapi::IOC_UPDATE_QUEUE, &mut args)
}

/// `struct kfd_criu_queue_priv_data`, as far as is looked at.
pub struct Saved {
    ring: u64,
    id: u32,
    /// `enum kfd_queue_type`.
    pub kind: u32,
    /// Where it begins and ends.
    pub place: Range<usize>,
}

const HEAD: usize = 120;

/// The queues of a checkpoint, which come first.
pub fn queues(kept: &Checkpoint) -> Result<Vec<Saved>> {
    let mut found = Vec::new();
    let mut at = objects_at(kept);
    for _ in 0..kept.objects {
        let bytes = kept.private.get(at..at + HEAD).context("too short")?;
        let word =
            |at: usize| -> Result<u32> { Ok(u32::from_le_bytes(bytes[at..at + 4].try_into()?)) };
        if word(0)? != 0 {
            break;
        }
        let (stack, descriptors) = (word(108)?, word(112)?);
        let end = at + HEAD + (stack + descriptors) as usize;
        found.push(Saved {
            ring: u64::from_le_bytes(bytes[8..16].try_into()?),
            id: word(76)?,
            kind: word(68)?,
            place: at..end,
        });
        at = end;
    }
    Ok(found)
}

/// The restored queue that has no ring gets that of another one, and none again.
pub fn back(kfd: &Arc<Kfd>, kept: &Checkpoint) -> Result<()> {
    let queues = queues(kept)?;
    let without = queues.iter().find(|queue| queue.ring == 0);
    let with = queues.iter().find(|queue| queue.ring != 0);
    let (id, ring) = (
        without.context("each queue has a ring")?.id,
        with.context("no queue has a ring")?.ring,
    );
    set(kfd, id, ring).context("a ring")?;
    set(kfd, id, 0).context("none")?;
    set(kfd, id, ring).context("a ring again")?;
    set(kfd, id, 0).context("none again")?;
    let nowhere = set(kfd, id, 1 << 46);
    ensure!(
        nowhere == Err(rustix::io::Errno::FAULT),
        "a ring that is not there: {nowhere:?}"
    );
    Ok(())
}
