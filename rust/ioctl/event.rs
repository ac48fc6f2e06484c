// SPDX-License-Identifier: GPL-2.0-only

//! The ioctls about events: 0x08 to 0x0c.

use super::Call;
use crate::{
    event::{
        Mode,
        Outcome,
        WaitRequest, //
    },
    linux::wait::Timeout,
    memory::Handle,
    mmap::MmapTarget,
    process::memory,
    uapi::*, //
};
use kernel::prelude::*;

/// `KFD_EVENT_TIMEOUT_IMMEDIATE` (kfd_events.h).
const IMMEDIATE: u32 = 0;
/// `KFD_EVENT_TIMEOUT_INFINITE` (kfd_events.h).
const INFINITE: u32 = u32::MAX;

/// CREATE_EVENT. The first one may bring the signal page: `event_page_offset` is then a buffer's
/// handle.
pub(super) fn create_event(call: &Call<'_>, args: &mut kfd_ioctl_create_event_args) -> Result {
    if args.event_page_offset != 0 {
        let _turn = call.process.memory_lock();
        memory::take_signal_page(call.process, Handle::from_raw(args.event_page_offset))?;
    }
    args.event_page_offset = 0;
    let mode = if args.auto_reset != 0 {
        Mode::Auto
    } else {
        Mode::Manual
    };
    let event = call.process.events().create(args.event_type, mode)?;
    args.event_id = event.id;
    args.event_trigger_data = event.id;
    if event.has_slot {
        args.event_page_offset = MmapTarget::Events.to_offset();
        args.event_slot_index = event.id;
    }
    Ok(())
}

/// DESTROY_EVENT.
pub(super) fn destroy_event(call: &Call<'_>, args: &mut kfd_ioctl_destroy_event_args) -> Result {
    call.process.events().destroy(args.event_id)
}

/// SET_EVENT.
pub(super) fn set_event(call: &Call<'_>, args: &mut kfd_ioctl_set_event_args) -> Result {
    call.process.events().set(args.event_id)
}

/// RESET_EVENT.
pub(super) fn reset_event(call: &Call<'_>, args: &mut kfd_ioctl_reset_event_args) -> Result {
    call.process.events().reset(args.event_id)
}

/// WAIT_EVENTS. A wait that a signal interrupts is continued with what is left of its time.
pub(super) fn wait_events(call: &Call<'_>, args: &mut kfd_ioctl_wait_events_args) -> Result {
    let request = WaitRequest {
        records: args.events_ptr,
        count: args.num_events,
        all: args.wait_for_all != 0,
    };
    let mut timeout = match args.timeout {
        IMMEDIATE => Timeout::NONE,
        INFINITE => Timeout::FOREVER,
        ms => Timeout::from_millis(ms),
    };
    let result = call.process.events().wait(request, &mut timeout);
    if result == Err(ERESTARTSYS) && !matches!(args.timeout, IMMEDIATE | INFINITE) {
        args.timeout = timeout.to_millis();
    }
    args.wait_result = match result {
        Ok(Outcome::Complete) => KFD_IOC_WAIT_RESULT_COMPLETE,
        Ok(Outcome::TimedOut) => KFD_IOC_WAIT_RESULT_TIMEOUT,
        Err(_) => KFD_IOC_WAIT_RESULT_FAIL,
    };
    result.map(|_| ())
}
