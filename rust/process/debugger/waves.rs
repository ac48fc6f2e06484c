// SPDX-License-Identifier: GPL-2.0-only

//! How the waves of a debugged process behave: what makes them trap, how they begin, which memory
//! accesses are caught.

use super::{
    DebuggedDevice,
    Process,
    Turn, //
};
use crate::{
    gfx::{
        LaunchMode,
        TrapMask,
        Watch,
        WaveControl, //
    },
    uapi::{
        kfd_dbg_trap_flags_KFD_DBG_TRAP_FLAG_SINGLE_ALU_OP as SINGLE_ALU_OP,
        kfd_dbg_trap_flags_KFD_DBG_TRAP_FLAG_SINGLE_MEM_OP as SINGLE_MEM_OP, //
    },
};
use kernel::prelude::*;

/// `KFD_DBG_TRAP_FLAG_LDS_OUT_OF_ADDR_RANGE`, which older headers lack.
const LDS_OUT_OF_ADDR_RANGE: u32 = 4;

impl Turn<'_> {
    /// Changes what is set on all GPUs of the process. The first that does not obey ends it.
    fn set_controls(&mut self, change: impl Fn(&mut WaveControl)) -> Result {
        let process = self.process;
        let session = self.active()?;
        for (device, seen) in process.devices().iter().zip(session.devices.iter_mut()) {
            change(&mut seen.control);
            let set = device.queues().set_control(&**device, seen.control);
            device.node().notify_resets();
            set?;
        }
        Ok(())
    }

    /// SET_WAVE_LAUNCH_OVERRIDE: of the traps in `chosen` those in `values` are on. Returns which
    /// were on before.
    pub(crate) fn set_traps(&mut self, replaces: bool, values: u32, chosen: u32) -> Result<u32> {
        let last = self.active()?.devices.last();
        let before = last.map_or(0, |seen| seen.control.traps.bits());
        self.set_controls(|control| {
            control.traps = control.traps.with(values, chosen);
            control.replaces_traps = replaces;
        })?;
        Ok(before)
    }

    /// SET_WAVE_LAUNCH_MODE.
    pub(crate) fn set_launch_mode(&mut self, mode: LaunchMode) -> Result {
        self.set_controls(|control| control.launch_mode = mode)
    }

    /// SET_FLAGS: returns those that were set before, also where it fails. `EACCES`: a GPU does not
    /// know one of them.
    pub(crate) fn set_flags(&mut self, flags: u32) -> (u32, Result) {
        let before = match self.active() {
            Ok(session) => session.flags,
            Err(error) => return (flags, Err(error)),
        };
        let mut chips = self
            .process
            .devices()
            .iter()
            .map(|device| device.node().generation().chip);
        let imprecise = if chips.all(|chip| chip.precise_memory_operations) {
            0
        } else {
            SINGLE_MEM_OP
        };
        let unknown = SINGLE_ALU_OP | LDS_OUT_OF_ADDR_RANGE | imprecise;
        if flags & unknown != 0 {
            return (before, Err(EACCES));
        }
        let set = |turn: &mut Self, flags: u32| {
            turn.session()?.flags = flags;
            let single = flags & SINGLE_MEM_OP != 0;
            turn.set_controls(|control| control.single_memory_operations = single)
        };
        let result = set(self, flags);
        if result.is_err() {
            // What cannot be taken back is on a GPU that is being reset.
            let _ = set(self, before);
        }
        (before, result)
    }

    /// The GPU of that name, for a watch point. `ENODEV`: the process has none.
    fn watched(&mut self, gpu_id: u32) -> Result<usize> {
        self.active()?;
        self.place(gpu_id).ok_or(ENODEV)
    }

    /// SET_NODE_ADDRESS_WATCH: catches accesses of the process's waves on a GPU. Returns the watch
    /// point's number. `ENOMEM`: all are taken, by this process or by others.
    pub(crate) fn watch(&mut self, gpu_id: u32, address: u64, watch: Watch) -> Result<u32> {
        let place = self.watched(gpu_id)?;
        let device = self.process.devices().get(place).ok_or(ENODEV)?;
        let point = device.node().watch(address)?;
        let number = point.number();
        let seen = self.device(place)?;
        *seen.control.watches.get_mut(number).ok_or(ENOMEM)? = Some(watch);
        let control = seen.control;
        let set = device.queues().set_control(&**device, control);
        device.node().notify_resets();
        if let Err(error) = set {
            self.forget_watch(place, number)?;
            return Err(error);
        }
        if let Some(free) = self.device(place)?.points.get_mut(number) {
            *free = Some(point);
        }
        // CAST: below 4.
        Ok(number as u32)
    }

    /// CLEAR_NODE_ADDRESS_WATCH. `EINVAL`: the process has no such watch point. After any other
    /// error it is free all the same.
    pub(crate) fn unwatch(&mut self, gpu_id: u32, number: u32) -> Result {
        let place = self.watched(gpu_id)?;
        let number = number as usize;
        let points = &mut self.device(place)?.points;
        let point = points.get_mut(number).and_then(Option::take);
        let point = point.ok_or(EINVAL)?;
        let result = self.forget_watch(place, number);
        // Nobody's waves are watched there any more, or the GPU is reset.
        drop(point);
        result
    }

    fn device(&mut self, place: usize) -> Result<&mut DebuggedDevice> {
        self.session()?.devices.get_mut(place).ok_or(ENODEV)
    }

    fn forget_watch(&mut self, place: usize, number: usize) -> Result {
        let seen = self.device(place)?;
        if let Some(watch) = seen.control.watches.get_mut(number) {
            *watch = None;
        }
        let control = seen.control;
        let device = self.process.devices().get(place).ok_or(ENODEV)?;
        let result = device.queues().set_control(&**device, control);
        device.node().notify_resets();
        result
    }
}

/// SET_WAVE_LAUNCH_OVERRIDE: whether traps replace what programs ask for. `EPERM`: that is no mode.
pub(crate) fn override_mode(mode: u32) -> Result<bool> {
    use crate::uapi::{
        kfd_dbg_trap_override_mode_KFD_DBG_TRAP_OVERRIDE_OR as OR,
        kfd_dbg_trap_override_mode_KFD_DBG_TRAP_OVERRIDE_REPLACE as REPLACE,
    };
    match mode {
        OR => Ok(false),
        REPLACE => Ok(true),
        _ => Err(EPERM),
    }
}

/// What can make waves trap on each of the process's GPUs.
pub(crate) fn traps(process: &Process) -> u32 {
    let devices = process.devices().iter();
    let mut chips = devices.map(|device| device.node().generation().chip);
    match chips.all(|chip| chip.traps_at_ends) {
        true => TrapMask::ALL.bits(),
        false => TrapMask::ALL.exceptions(),
    }
}
