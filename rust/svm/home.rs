// SPDX-License-Identifier: GPL-2.0-only

//! Pages come out of the memory of devices into the system's.

use crate::{
    kgd::{
        Copies,
        Direction,
        Vram, //
    },
    linux::{
        errno,
        migrate::{
            DevicePage,
            Migration,
            SystemPage, //
        },
        workqueue::DeferredArc,
    },
};
use kernel::prelude::*;

/// A large folio does not move, for there is no large page where it goes, or none may be there: it
/// has to be split before.
pub(super) const TOO_LARGE: Error = E2BIG;

/// Pages of a block that are to be copied, and where to.
pub(super) type Job<'a> = (DeferredArc<Vram>, KVec<(SystemPage<'a>, u32)>);

/// Moves device pages of ours into system memory: those that `wanted` is true of. All or none of
/// them are copied, so they should be of one device. `lossy`: what cannot be copied becomes zeros.
/// Returns how many have moved. `ENOMEM`: not all could, and perhaps none. [`TOO_LARGE`]: none.
pub(super) fn bring_home(
    migration: Migration<'_>,
    wanted: impl Fn(DevicePage) -> bool,
    lossy: bool,
) -> Result<u32> {
    let mut jobs: KVec<Job<'_>> = KVec::new();
    let mut missing = false;
    for place in 0..migration.len() {
        let Some((vram, index)) = Vram::of(&migration, place, &wanted) else {
            continue;
        };
        let system = match lossy {
            true => migration.allocate_zeros(place),
            false => migration.allocate(place),
        };
        let Ok(system) = system else {
            if migration.size(place) > 1 {
                return Err(TOO_LARGE);
            }
            missing = true;
            continue;
        };
        let is_same = |job: &Job<'_>| DeferredArc::ptr_eq(&job.0, &vram);
        if !jobs.last().is_some_and(is_same) {
            let rest = (migration.len() - place) as usize;
            jobs.push((vram, KVec::with_capacity(rest, GFP_KERNEL)?), GFP_KERNEL)?;
        }
        let Some((_, list)) = jobs.last_mut() else {
            continue;
        };
        for (page, index) in system.iter().zip(index..) {
            list.push((page, index), GFP_KERNEL)?;
        }
    }
    let copied = copy_home(&jobs);
    drop(jobs);
    match copied {
        // What goes on writes to pages that somebody would have.
        Err(error) if !lossy || error == errno::timer_expired() => return Err(error),
        _ => (),
    }
    let moved = migration.commit();
    if missing {
        return Err(ENOMEM);
    }
    Ok(moved)
}

/// Copies what goes home, all blocks beside each other. `ETIME`: of one the copy goes on; another
/// error: none does.
pub(super) fn copy_home(jobs: &[Job<'_>]) -> Result {
    let mut all = KVec::with_capacity(jobs.len(), GFP_KERNEL)?;
    let mut result = Ok(());
    for (vram, list) in jobs {
        let mut copies = Copies::new(vram.clone(), Direction::ToSystem);
        let mut begun = copies.try_begin(list);
        if begun == Err(EBUSY) {
            // Many who each have some, and wait for others', would wait for each other.
            result = wait_for_all(&mut all, result);
            begun = copies.begin(list);
        }
        result = result.and(begun);
        all.push(copies, GFP_KERNEL)?;
    }
    wait_for_all(&mut all, result)
}

/// Waits for copies. Returns what came of these and of `others`.
fn wait_for_all(copies: &mut KVec<Copies>, others: Result) -> Result {
    let mut result = others;
    for copies in copies.drain_all() {
        let ended = copies.wait();
        result = match ended == Err(errno::timer_expired()) {
            true => ended,
            false => result.and(ended),
        };
    }
    result
}
