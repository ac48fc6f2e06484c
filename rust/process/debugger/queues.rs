// SPDX-License-Identifier: GPL-2.0-only

//! SUSPEND_QUEUES and RESUME_QUEUES.

use super::{
    Process,
    ProcessRef,
    Turn, //
};
use crate::{
    process::wave_state::SavedQueues,
    queue::Named, //
};
use kernel::prelude::*;

/// SUSPEND_QUEUES: stops queues of a process and saves their waves, and says in the save areas of
/// all its compute queues on a GPU where it stops some what is saved. `ids`: which; afterwards each
/// has a bit for what it did not come to. `grace`: how long waves have to end by themselves, in
/// units of 1000 clocks of the GPU; `None`: as long as usual. `clear`: what happened to them and is
/// taken note of. Returns how many are suspended. `EPERM`, `EINVAL`: see [`Turn`]; `ERESTARTSYS`: a
/// signal. After an error nothing is suspended or taken note of.
pub(crate) fn suspend(
    caller: &Process,
    target: &ProcessRef,
    ids: &mut [u32],
    (grace, clear): (Option<u32>, u64),
) -> Result<u32> {
    if ids.is_empty() {
        return Turn::new(caller, target)?.check(true).map(|()| 0);
    }
    // Until all is written: there is room for one at a time.
    let errand = target.errand()?;
    // All that can fail comes first: what the debugger has taken note of is forgotten for good.
    let mut saved = SavedQueues::room(target)?;
    let mut named = Named::new(ids);
    let mut turn = Turn::new(caller, target)?;
    turn.check(true)?;
    let mut count = 0;
    for device in target.devices() {
        let queues = device.queues();
        let suspended = queues.suspend(&**device, &mut named, (grace, clear));
        device.node().notify_resets();
        if suspended > 0 {
            saved.want(device);
        }
        count += suspended;
    }
    drop(turn);
    if count > 0 {
        saved.look();
        saved.write(&errand);
    }
    Ok(count)
}

impl Turn<'_> {
    /// RESUME_QUEUES: the named ones, or all. Returns how many run again, if nothing else keeps
    /// them.
    pub(crate) fn resume(&mut self, ids: Option<&mut [u32]>) -> Result<u32> {
        self.check(true)?;
        let mut named = ids.map(Named::new);
        let mut count = 0;
        for device in self.process.devices() {
            let queues = device.queues();
            count += queues.resume(&**device, named.as_mut(), &self.process.debugging.resumed);
            device.node().notify_resets();
        }
        Ok(count)
    }
}
