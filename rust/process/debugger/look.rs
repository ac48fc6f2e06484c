// SPDX-License-Identifier: GPL-2.0-only

//! What a debugger asks of a process: what has happened to it, and what it consists of.

use super::{
    Process,
    Serial,
    Turn, //
};
use crate::{
    linux::errno,
    process::queues::find as find_queue,
    queue::QueueSnapshot,
    uapi::{
        kfd_runtime_info,
        MemoryException,
        EC_DEVICES,
        EC_DEVICE_MEMORY_VIOLATION,
        EC_PROCESSES,
        EC_PROCESS_RUNTIME,
        EC_QUEUES, //
    },
};
use kernel::prelude::*;

/// What has happened, and to what. Default: nothing has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) exceptions: u64,
    /// 0: to the process as a whole.
    pub(crate) gpu_id: u32,
    /// Of no meaning but for what happens to queues.
    pub(crate) queue_id: u32,
}

/// More about an exception.
pub(crate) enum Info {
    Nothing,
    Fault(MemoryException),
    Runtime(kfd_runtime_info),
}

/// What an exception can happen to.
enum Source {
    Queue,
    Device,
    Process,
}

impl Source {
    /// `KFD_DBG_EC_TYPE_IS_QUEUE` and so on; `None`: the code is none.
    fn of(code: u32) -> Option<(Self, u64)> {
        let mask = 1u64.checked_shl(code.checked_sub(1)?)?;
        [
            (EC_QUEUES, Self::Queue),
            (EC_DEVICES, Self::Device),
            (EC_PROCESSES, Self::Process),
        ]
        .into_iter()
        .find_map(|(all, source)| (all & mask != 0).then_some((source, mask)))
    }
}

/// Takes note of all that has happened, and forgets `clear` of it.
fn note(happened: &mut u64, clear: u64) -> u64 {
    let all = *happened;
    *happened &= !clear;
    all
}

/// Sorts queues, which mostly stand in the opposite order.
fn newest_first(queues: &mut [QueueSnapshot]) {
    queues.reverse();
    // By insertion. The standard library's way is one that objtool cannot follow.
    for end in 1..queues.len() {
        for at in (1..=end).rev() {
            match queues.get(at - 1..=at) {
                Some([before, after]) if before.key > after.key => queues.swap(at - 1, at),
                _ => break,
            }
        }
    }
}

impl Turn<'_> {
    /// QUERY_DEBUG_EVENT: something that has happened and that the debugger wants to hear of, to a
    /// queue, else to a GPU, else to the process. All that happened to it is returned, of which
    /// `clear` is forgotten. `None`: there is nothing.
    pub(crate) fn event(&mut self, clear: u64) -> Result<Option<Event>> {
        let process = self.process;
        let session = self.session()?;
        let wanted = session.wanted;
        let pending = process
            .devices()
            .iter()
            .filter_map(|device| Some((device, device.queues().pending(wanted)?)));
        if let Some((device, found)) = pending.min_by_key(|(_, found)| found.key) {
            device.queues().clear_exceptions(Some(found.queue), clear);
            return Ok(Some(Event {
                exceptions: found.exceptions,
                gpu_id: device.gpu_id().raw(),
                queue_id: found.queue.raw(),
            }));
        }
        let mut devices = process.devices().iter().zip(session.devices.iter_mut());
        if let Some((device, seen)) = devices.find(|(_, seen)| seen.exceptions & wanted != 0) {
            let exceptions = note(&mut seen.exceptions, clear);
            return Ok(Some(Event {
                exceptions,
                gpu_id: device.gpu_id().raw(),
                queue_id: 0,
            }));
        }
        if session.exceptions & wanted == 0 {
            return Ok(None);
        }
        let exceptions = note(&mut session.exceptions, clear);
        Ok(Some(Event {
            exceptions,
            ..Event::default()
        }))
    }

    /// QUERY_EXCEPTION_INFO: what is known of the exception `code` of a queue, a GPU or the
    /// process, and in which session. With `clear` it is forgotten. `EINVAL`: that is no code, or
    /// there is no such queue or GPU; `ENODATA`: it has not happened.
    pub(crate) fn info(&mut self, source: u32, code: u32, clear: bool) -> Result<(Info, Serial)> {
        let (kind, mask) = Source::of(code).ok_or(EINVAL)?;
        let process = self.process;
        let place = self.place(source);
        let runtime = self.state.runtime.info();
        let session = self.session()?;
        let serial = session.serial;
        let clear = if clear { mask } else { 0 };
        let (happened, info) = match kind {
            Source::Queue => {
                let (id, device) = find_queue(process, source).ok_or(EINVAL)?;
                let happened = device.queues().exceptions_of(id).ok_or(EINVAL)?;
                device.queues().clear_exceptions(Some(id), clear);
                (happened, Info::Nothing)
            }
            Source::Device => {
                let seen = place.and_then(|place| session.devices.get_mut(place));
                let seen = seen.ok_or(EINVAL)?;
                let fault = seen.fault.filter(|_| mask == EC_DEVICE_MEMORY_VIOLATION);
                let happened = note(&mut seen.exceptions, clear);
                // The debugger knows the GPU by its own name, not by what the process calls it.
                let shown = fault.map(|fault| MemoryException {
                    gpu_id: source,
                    ..fault
                });
                (happened, shown.map_or(Info::Nothing, Info::Fault))
            }
            Source::Process => {
                let info = if mask == EC_PROCESS_RUNTIME {
                    Info::Runtime(runtime)
                } else {
                    Info::Nothing
                };
                (note(&mut session.exceptions, clear), info)
            }
        };
        if happened & mask == 0 {
            return Err(errno::no_data());
        }
        Ok((info, serial))
    }

    /// Undoes what [`Turn::info`] forgot of a GPU or the process, of which the debugger was not
    /// told. Does nothing in another session.
    pub(crate) fn remember(&mut self, source: u32, code: u32, serial: Serial) -> Result {
        let (kind, mask) = Source::of(code).ok_or(EINVAL)?;
        let place = self.place(source);
        let session = self.session()?;
        if session.serial != serial {
            return Ok(());
        }
        match kind {
            // Nothing is known of these that could not be told.
            Source::Queue => (),
            Source::Device => {
                if let Some(seen) = place.and_then(|place| session.devices.get_mut(place)) {
                    seen.exceptions |= mask;
                }
            }
            Source::Process => session.exceptions |= mask,
        }
        Ok(())
    }

    /// GET_QUEUE_SNAPSHOT: the process's queues, the newest first, as far as there is room in `to`,
    /// which does not grow, and as many as are to be `shown`. Of what happened to these `clear` is
    /// forgotten. Returns how many there are. `None`: there was no room for all of them; nothing is
    /// forgotten.
    pub(crate) fn queues(
        &mut self,
        clear: u64,
        shown: usize,
        to: &mut KVec<QueueSnapshot>,
    ) -> Result<Option<usize>> {
        self.session()?;
        let mut count = 0;
        for device in self.process.devices() {
            count += device.queues().snapshot(device.gpu_id(), to);
        }
        // Which are the newest is known of all only.
        if to.len() < count && shown > 0 {
            return Ok(None);
        }
        newest_first(to);
        to.truncate(shown);
        for queue in to.iter().filter(|_| clear != 0) {
            if let Some((id, device)) = find_queue(self.process, queue.entry.queue_id) {
                device.queues().clear_exceptions(Some(id), clear);
            }
        }
        Ok(Some(count))
    }

    /// GET_DEVICE_SNAPSHOT: what has happened on the process's first GPUs, as many as `to` has
    /// room for. Of that `clear` is forgotten.
    pub(crate) fn devices(&mut self, clear: u64, to: &mut [u64]) -> Result {
        let session = self.session()?;
        for (to, seen) in to.iter_mut().zip(session.devices.iter_mut()) {
            *to = note(&mut seen.exceptions, clear);
        }
        Ok(())
    }
}

impl Process {
    /// How many queues the process has at the moment.
    pub(crate) fn queue_count(&self) -> usize {
        self.devices()
            .iter()
            .map(|device| device.queues().count())
            .sum()
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_debugger)]
mod tests {
    use super::{
        super::DebuggedDevice,
        *, //
    };
    use crate::{
        sched::Key,
        uapi::EC_DEVICE_QUEUE_DELETE, //
    };

    #[test]
    fn a_memory_violation_is_known_until_the_next_one_after_it_was_noted() {
        let at = |va| MemoryException {
            va,
            ..MemoryException::default()
        };
        let mut seen = DebuggedDevice::default();
        let violation = EC_DEVICE_MEMORY_VIOLATION;
        seen.raise(violation, Some(at(0x1000)));
        seen.raise(violation, Some(at(0x2000)));
        seen.raise(EC_DEVICE_QUEUE_DELETE, None);
        assert_eq!(seen.fault, Some(at(0x1000)));
        assert_eq!(
            note(&mut seen.exceptions, violation),
            violation | EC_DEVICE_QUEUE_DELETE
        );
        // The runtime may still have to be told of it.
        seen.raise(EC_DEVICE_QUEUE_DELETE, None);
        assert_eq!(seen.fault, Some(at(0x1000)));
        seen.raise(violation, Some(at(0x3000)));
        assert_eq!(seen.fault, Some(at(0x3000)));
    }

    #[test]
    fn queues_are_shown_the_newest_first() {
        let mut keys = KVec::new();
        for _ in 0..6 {
            keys.push(Key::next(), GFP_KERNEL).unwrap();
        }
        // A name that came back stands before older ones.
        let mut queues = KVec::new();
        for place in [5, 1, 2, 0, 4, 3] {
            let entry = Default::default();
            let key = keys[place];
            queues
                .push(QueueSnapshot { key, entry }, GFP_KERNEL)
                .unwrap();
        }
        newest_first(&mut queues);
        assert!(queues
            .iter()
            .map(|it| it.key)
            .eq(keys.iter().rev().copied()));
        newest_first(&mut []);
    }

    #[test]
    fn a_code_says_what_it_happens_to() {
        let kind = |code| {
            Source::of(code).map(|(source, mask)| {
                assert_eq!(mask, 1 << (code - 1));
                match source {
                    Source::Queue => 'q',
                    Source::Device => 'd',
                    Source::Process => 'p',
                }
            })
        };
        for code in [1, 6, 16, 23, 30, 31] {
            assert_eq!(kind(code), Some('q'));
        }
        for code in 32..=36 {
            assert_eq!(kind(code), Some('d'));
        }
        assert_eq!((kind(48), kind(49)), (Some('p'), Some('p')));
        for code in [0, 7, 15, 24, 29, 37, 47, 50, 64, 65, u32::MAX] {
            assert_eq!(kind(code), None);
        }
    }
}
