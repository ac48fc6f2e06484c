// SPDX-License-Identifier: GPL-2.0-only

//! DBG_TRAP: a process that another one, or itself, debugs. One [`Debugging`] for each process,
//! embedded in it; it has a [`Session`] while the process is debugged.
//!
//! A session belongs to the process that is debugged, and names its debugger by number only, so
//! that neither process keeps the other. It ends with DISABLE, with the address space of the one,
//! or with that of the other, whichever comes first.
//!
//! What happens to the process is latched whether the debugger wants to hear of it or not
//! (SET_EXCEPTIONS_ENABLED), and what it wants is looked at when it asks. What happened to a queue
//! is kept there; what happened to a GPU, or to the process, here. The debugger's file gets a byte
//! for what it wants ([`notice`]).
//!
//! # Locking
//!
//! `Debugging.state` is held across preemptions, and the end of an address space takes it: nothing
//! is allocated under it, and no user memory touched. Order: `Process.memory` → `Debugging.state` →
//! `Process.inner` → `Queues.inner`.

mod look;
mod notice;
mod queues;
mod runtime;
mod waves;

pub(crate) use look::{
    Event,
    Info, //
};
pub(super) use notice::outboxes;
pub(crate) use queues::suspend;
pub(crate) use waves::{
    override_mode,
    traps, //
};

use super::{
    registry,
    Process,
    ProcessDevice,
    ProcessRef, //
};
use crate::{
    gfx::{
        WaveControl,
        WATCH_POINTS, //
    },
    gpu::WatchPoint,
    ids::Serial,
    linux::{
        errno,
        task::{
            address_space_of,
            current_traces,
            find_task,
            leader_of, //
        },
    },
    process::MmId,
    uapi::{
        kfd_runtime_info,
        MemoryException,
        EC_DEVICE_MEMORY_VIOLATION,
        EC_DEVICE_QUEUE_DELETE,
        EC_QUEUE_NEW, //
    },
};
use kernel::{
    new_condvar, new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            ordering::{
                Acquire,
                Relaxed,
                Release, //
            },
            Atomic, //
        },
        lock::mutex::MutexGuard,
        Arc,
        CondVar,
        Mutex,
        SetOnce, //
    },
    task::Task,
};
use notice::{
    Notice,
    Outbox, //
};
use runtime::Runtime;

/// What a process has to do with debuggers.
#[pin_data]
pub(super) struct Debugging {
    /// There is a session, or was a moment ago: who finds false need not ask further.
    on: Atomic<bool>,
    /// The number of the process that debugs it, if another one does: whose session it is can be
    /// asked without the lock, which is held as long as hardware takes. 0: none.
    debugger: Atomic<u64>,
    /// The process has debugged another one.
    debugs: Atomic<bool>,
    /// From where it is told of those that it debugs; made with the first.
    outbox: SetOnce<Arc<Outbox>>,
    #[pin]
    state: Mutex<State>,
    /// The debugger has answered the runtime, or is gone.
    #[pin]
    answered: CondVar,
    /// Queues are not suspended any more.
    #[pin]
    resumed: CondVar,
}

/// What `Debugging.state` protects.
struct State {
    runtime: Runtime,
    session: Option<KBox<Session>>,
}

/// A process that is debugged.
struct Session {
    /// Which one of all.
    serial: Serial,
    /// `None`: the process debugs itself.
    debugger: Option<Serial>,
    notice: Notice,
    /// `KFD_EC_MASK` of what the debugger wants to hear of.
    wanted: u64,
    /// What has happened to the process.
    exceptions: u64,
    /// `enum kfd_dbg_trap_flags`
    flags: u32,
    /// Waves are under the debugger's control: the process's runtime is there.
    active: bool,
    /// One for each device of the process, in the same order.
    devices: KVec<DebuggedDevice>,
}

/// What a debugger knows of a GPU of the process, and has set there.
#[derive(Default)]
struct DebuggedDevice {
    /// What has happened there.
    exceptions: u64,
    /// The last memory violation that there was nothing before which had not been taken note of.
    fault: Option<MemoryException>,
    control: WaveControl,
    points: [Option<WatchPoint>; WATCH_POINTS],
}

impl DebuggedDevice {
    /// These have happened. Of a memory violation the first one's data are kept, until the debugger
    /// has taken note of it, by whichever call: the next one has data of its own.
    fn raise(&mut self, exceptions: u64, fault: Option<MemoryException>) {
        if self.exceptions & EC_DEVICE_MEMORY_VIOLATION == 0 {
            self.fault = fault.or(self.fault);
        }
        self.exceptions |= exceptions;
    }
}

/// A session that is to begin, made before anything is locked.
pub(crate) struct NewSession(KBox<Session>);

impl NewSession {
    /// A session in which `caller` debugs `target`, and is told by its file of that number of what
    /// is `wanted`. `EBADF`: there is no such file, or not for writing; `EINVAL`: it cannot be
    /// written without waiting; `EMFILE`: the user has too many debuggers.
    pub(crate) fn new(caller: &Process, target: &Process, file: u32, wanted: u64) -> Result<Self> {
        let serial = Serial::next();
        let notice = Notice::new(caller.debugging.outbox()?, serial, file)?;
        let count = target.devices().len();
        let mut devices = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            devices.push(DebuggedDevice::default(), GFP_KERNEL)?;
        }
        let myself = core::ptr::eq(caller, target);
        let session = Session {
            serial,
            debugger: (!myself).then_some(caller.serial()),
            notice,
            wanted,
            exceptions: 0,
            flags: 0,
            active: false,
            devices,
        };
        Ok(Self(KBox::new(session, GFP_KERNEL)?))
    }
}

impl Session {
    /// Tells the debugger that these have happened. False: it does not want to hear of them.
    fn tell(&self, exceptions: u64) -> bool {
        let wanted = self.wanted & exceptions != 0;
        if wanted {
            self.notice.send();
        }
        wanted
    }

    /// Lets the process's waves know that they have a debugger.
    fn activate(&mut self, process: &Process) {
        self.active = true;
        for (device, seen) in process.devices().iter().zip(self.devices.iter_mut()) {
            seen.control = rest(process, device, true);
            device.set_debug_flag(true);
        }
    }

    /// Takes everything back that the debugger has set and stopped.
    ///
    /// In this order: a queue that was suspended must not run with what the debugger has set, for
    /// its waves would trap, and nobody but the process's runtime would hear of that.
    ///
    /// `dispatch_info`: the runtime asks for it all the same.
    fn deactivate(&mut self, process: &Process, dispatch_info: bool) {
        if !core::mem::take(&mut self.active) {
            return;
        }
        self.flags = 0;
        for (device, seen) in process.devices().iter().zip(self.devices.iter_mut()) {
            let queues = device.queues();
            // Afterwards nobody's waves are watched there, or the GPU is reset.
            seen.control = rest(process, device, dispatch_info);
            seen.points = Default::default();
            device.set_debug_flag(false);
            queues.resume(&**device, None, &process.debugging.resumed);
            device.node().notify_resets();
        }
    }
}

/// The process's waves on a GPU are as without a debugger, but that they keep dispatch information
/// where that is asked for. Returns what is set there.
fn rest(process: &Process, device: &ProcessDevice, dispatch_info: bool) -> WaveControl {
    let always = device.node().generation().chip.dispatch_info_always_valid;
    let control = WaveControl {
        dispatch_info: dispatch_info && !always,
        ..WaveControl::default()
    };
    if let Err(error) = device.queues().set_control(device, control) {
        pr_debug!(
            "process {}: waves keep a debugger's settings: {error:?}\n",
            process.pid
        );
    }
    device.node().notify_resets();
    control
}

impl Debugging {
    pub(super) fn new() -> impl PinInit<Self> {
        let state = State {
            runtime: Runtime::default(),
            session: None,
        };
        pin_init!(Self {
            on: Atomic::new(false),
            debugger: Atomic::new(0),
            debugs: Atomic::new(false),
            outbox: SetOnce::new(),
            state <- new_mutex!(state, "amdkfd::Debugging::state"),
            answered <- new_condvar!("amdkfd::Debugging::answered"),
            resumed <- new_condvar!("amdkfd::Debugging::resumed"),
        })
    }

    /// From where the process is told of those that it debugs. `EMFILE`: see [`Outbox::new`].
    fn outbox(&self) -> Result<&Arc<Outbox>> {
        if self.outbox.as_ref().is_none() {
            let new = Outbox::new()?;
            // One at a time: who comes second finds the first one's. Its own goes when nothing is
            // locked any more.
            let spare = new.clone();
            let turn = self.state.lock();
            self.outbox.populate(new);
            drop(turn);
            drop(spare);
        }
        self.outbox.as_ref().ok_or(EAGAIN)
    }

    /// Who waits for a queue to be resumed waits for this.
    pub(super) fn resumed(&self) -> &CondVar {
        &self.resumed
    }
}

/// The process that `caller` means by the number of one of its tasks. `make`: it is made if there
/// is none and the caller traces the task. `ESRCH`: there is no such task, or it has no process;
/// others: it cannot be made.
pub(crate) fn find(pid: u32, make: bool) -> Result<ProcessRef> {
    // CAST: A process id is an `int`.
    let task = find_task(pid as i32).ok_or(ESRCH)?;
    let mm = address_space_of(&task).ok_or(ESRCH)?;
    if make && current_traces(&task) {
        return registry::open_traced(&task, &mm);
    }
    registry::of_mm(MmId::new(mm.as_raw())).ok_or(ESRCH)
}

/// A process of which the caller may ask what DBG_TRAP can do; nobody else does meanwhile.
pub(crate) struct Turn<'a> {
    process: &'a Process,
    state: MutexGuard<'a, State>,
}

impl<'a> Turn<'a> {
    /// A turn of `caller`'s with `target`. `EPERM`: it is neither the process itself, nor does the
    /// current task trace it, nor is it its debugger.
    pub(crate) fn new(caller: &Process, target: &'a Process) -> Result<Self> {
        let state = target.debugging.state.lock();
        let debugger = state.session.as_ref().and_then(|it| it.debugger);
        let allowed = core::ptr::eq(caller, target)
            || current_traces(target.lead())
            || debugger == Some(caller.serial());
        if !allowed {
            return Err(EPERM);
        }
        Ok(Self {
            process: target,
            state,
        })
    }

    /// ENABLE: returns the session's name and what the runtime has said. `EALREADY`: the process is
    /// debugged; `ESRCH`: it has ended.
    pub(crate) fn begin(
        mut self,
        caller: &Process,
        new: Result<NewSession>,
    ) -> Result<(Serial, kfd_runtime_info)> {
        if self.state.session.is_some() {
            return Err(errno::already());
        }
        let NewSession(mut session) = new?;
        // Its end takes the lock as well: it will end this session, or has begun already.
        self.process.alive().map(drop)?;
        self.state.runtime.forget_answers();
        if self.state.runtime.is_enabled() {
            session.activate(self.process);
        }
        if let Some(debugger) = session.debugger {
            // The debugger's end finds both: it comes after this call of its own.
            caller.debugging.debugs.store(true, Relaxed);
            self.process
                .debugging
                .debugger
                .store(debugger.raw(), Relaxed);
        }
        let serial = session.serial;
        self.state.session = Some(session);
        self.process.debugging.on.store(true, Release);
        Ok((serial, self.state.runtime.info()))
    }

    /// Ends the session of that name, if it has not ended yet.
    pub(crate) fn take_back(self, serial: Serial) -> Result {
        let session = self.state.session.as_ref();
        match session.is_some_and(|session| session.serial == serial) {
            true => self.end(),
            false => Ok(()),
        }
    }

    /// DISABLE. `EINVAL`: the process is not debugged.
    pub(crate) fn end(mut self) -> Result {
        let gone = end(self.process, &mut self.state).ok_or(EINVAL)?;
        drop(self);
        drop(gone);
        Ok(())
    }

    /// The session. `EINVAL`: the process is not debugged.
    fn session(&mut self) -> Result<&mut Session> {
        Ok(&mut **self.state.session.as_mut().ok_or(EINVAL)?)
    }

    /// The same for what concerns the hardware. `EPERM`: the process's runtime is not there.
    fn active(&mut self) -> Result<&mut Session> {
        let enabled = self.state.runtime.is_enabled();
        let session = self.session()?;
        enabled.then_some(session).ok_or(EPERM)
    }

    /// Checks whether the process is debugged (`EINVAL` if not); `hardware`: and its runtime there
    /// (`EPERM`).
    pub(crate) fn check(&mut self, hardware: bool) -> Result {
        if hardware {
            self.active().map(drop)
        } else {
            self.session().map(drop)
        }
    }

    /// SET_EXCEPTIONS_ENABLED: what of that has happened already is told.
    pub(crate) fn want(&mut self, wanted: u64) -> Result {
        let process = self.process;
        let session = self.session()?;
        session.wanted = wanted;
        let queues = process.devices().iter();
        let queues = queues.fold(0, |all, device| all | device.queues().exceptions());
        let devices = session.devices.iter();
        let devices = devices.fold(0, |all, device| all | device.exceptions);
        session.tell(session.exceptions | devices | queues);
        Ok(())
    }

    /// What SEND_RUNTIME_EVENT has to tell of a memory violation on a GPU, by its own name: what
    /// the debugger has been shown of one, or would be; else that there was one.
    pub(crate) fn fault(
        &mut self,
        gpu_id: u32,
    ) -> Result<(&'a Arc<ProcessDevice>, MemoryException)> {
        let process = self.process;
        let place = self.place(gpu_id).ok_or(ENODEV)?;
        let device = process.devices().get(place).ok_or(ENODEV)?;
        let session = self.session()?;
        let seen = session.devices.get(place).and_then(|seen| seen.fault);
        let unknown = MemoryException {
            gpu_id: device.user_id(),
            imprecise: 1,
            ..MemoryException::default()
        };
        Ok((device, seen.unwrap_or(unknown)))
    }

    /// SEND_RUNTIME_EVENT, for the runtime that waits in RUNTIME_ENABLE.
    pub(crate) fn answer(&mut self) -> Result {
        self.session()?;
        self.state.runtime.answer();
        self.process.debugging.answered.notify_all();
        Ok(())
    }

    /// The place of the process's device of that name among all.
    fn place(&self, gpu_id: u32) -> Option<usize> {
        let mut devices = self.process.devices().iter();
        devices.position(|device| device.gpu_id().raw() == gpu_id)
    }
}

/// Ends the session, if there is one. What is returned is to be dropped when nothing is locked.
fn end(process: &Process, state: &mut State) -> Option<KBox<Session>> {
    let mut session = state.session.take()?;
    process.debugging.on.store(false, Release);
    process.debugging.debugger.store(0, Relaxed);
    session.deactivate(process, state.runtime.keeps_dispatch_info());
    for device in process.devices() {
        device.queues().clear_exceptions(None, u64::MAX);
    }
    // Whoever waits for this debugger waits in vain.
    process.debugging.answered.notify_all();
    process.debugging.resumed.notify_all();
    Some(session)
}

impl Process {
    /// Whether the process is debugged.
    #[inline]
    pub(super) fn is_debugged(&self) -> bool {
        self.debugging.on.load(Acquire)
    }

    /// The process ends: it is not debugged any more, and debugs nobody. May run under reclaim.
    pub(super) fn leave_debugging(&self) {
        // Who is about to debug it has the lock: `is_debugged` does not know yet.
        let mut state = self.debugging.state.lock();
        let gone = end(self, &mut state);
        drop(state);
        drop(gone);
        if self.debugging.debugs.load(Relaxed) {
            registry::each(|process| process.end_session_of(self.serial()));
        }
    }

    /// That debugger is gone. Of whom another one debugs nothing is locked.
    fn end_session_of(&self, debugger: Serial) {
        if self.debugging.debugger.load(Relaxed) != debugger.raw() {
            return;
        }
        let mut state = self.debugging.state.lock();
        let session = state.session.as_ref();
        let gone = match session.is_some_and(|it| it.debugger == Some(debugger)) {
            true => end(self, &mut state),
            false => None,
        };
        drop(state);
        drop(gone);
    }

    /// The device has a VM by now: its waves shall know whether they have a debugger.
    pub(super) fn tell_waves(&self, device: &ProcessDevice) {
        let state = self.debugging.state.lock();
        let session = state.session.as_ref();
        device.set_debug_flag(session.is_some_and(|session| session.active));
    }

    /// These have happened to the queue with that doorbell. Returns those that no debugger wants to
    /// hear of. May sleep.
    pub(crate) fn queue_exception(
        &self,
        device: &ProcessDevice,
        doorbell: u32,
        exceptions: u64,
    ) -> u64 {
        if !self.is_debugged() {
            return exceptions;
        }
        let state = self.debugging.state.lock();
        let Some(session) = state.session.as_ref() else {
            return exceptions;
        };
        device.queues().raise_at(doorbell as usize, exceptions);
        session.tell(exceptions);
        exceptions & !session.wanted
    }

    /// The process has a new queue, which knows that.
    #[inline]
    pub(super) fn queue_came(&self) {
        if self.is_debugged() {
            self.tell_of_queue();
        }
    }

    #[cold]
    fn tell_of_queue(&self) {
        let state = self.debugging.state.lock();
        if let Some(session) = &state.session {
            session.tell(EC_QUEUE_NEW);
        }
    }

    /// A queue is gone from a GPU.
    pub(super) fn queue_went(&self, device: &Arc<ProcessDevice>) {
        if self.is_debugged() {
            self.device_exception(device, EC_DEVICE_QUEUE_DELETE, None);
        }
    }

    /// A memory access failed on a GPU. False: there is no debugger that wants to hear of it. May
    /// sleep.
    pub(crate) fn memory_violation(
        &self,
        device: &Arc<ProcessDevice>,
        fault: MemoryException,
    ) -> bool {
        self.is_debugged() && self.device_exception(device, EC_DEVICE_MEMORY_VIOLATION, Some(fault))
    }

    fn device_exception(
        &self,
        device: &Arc<ProcessDevice>,
        exceptions: u64,
        fault: Option<MemoryException>,
    ) -> bool {
        let Some(place) = self.place_of(device) else {
            return false;
        };
        let mut state = self.debugging.state.lock();
        let Some(session) = state.session.as_mut() else {
            return false;
        };
        if let Some(seen) = session.devices.get_mut(place) {
            seen.raise(exceptions, fault);
        }
        session.tell(exceptions)
    }
}

/// The leader of the task's thread group. `EINVAL`: it has ended, or runs in another address space
/// than `mm`.
pub(super) fn leader_in(task: &Task, mm: MmId) -> Result<ARef<Task>> {
    let leader = leader_of(task).ok_or(EINVAL)?;
    let its = address_space_of(&leader).ok_or(EINVAL)?;
    (MmId::new(its.as_raw()) == mm)
        .then_some(leader)
        .ok_or(EINVAL)
}
