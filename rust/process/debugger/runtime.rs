// SPDX-License-Identifier: GPL-2.0-only

//! RUNTIME_ENABLE: the runtime of a process comes or goes, and waits until its debugger, if it has
//! one, has taken note of that.

use super::{
    rest,
    Process,
    Session,
    State, //
};
use crate::{
    ids::Serial,
    uapi::{
        kfd_dbg_runtime_state_DEBUG_RUNTIME_STATE_DISABLED as DISABLED,
        kfd_dbg_runtime_state_DEBUG_RUNTIME_STATE_ENABLED as ENABLED,
        kfd_runtime_info,
        EC_PROCESS_RUNTIME, //
    },
};
use kernel::{
    prelude::*,
    sync::lock::mutex::MutexGuard, //
};

/// What the runtime has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Runtime {
    enabled: bool,
    /// Where the runtime describes itself to a debugger.
    r_debug: u64,
    /// Waves keep dispatch information in their trap temporaries (TTMP).
    ttmp: bool,
    /// Answers of the debugger's that nobody has waited for yet.
    answers: u32,
    /// A wait that a signal has interrupted: the same call goes on with it.
    interrupted: Option<(Change, Serial)>,
}

/// Which call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Enable,
    Disable,
}

impl Runtime {
    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Waves keep dispatch information, whether or not there is a debugger.
    pub(super) fn keeps_dispatch_info(&self) -> bool {
        self.ttmp
    }

    /// As debuggers see it.
    pub(super) fn info(&self) -> kfd_runtime_info {
        kfd_runtime_info {
            r_debug: self.r_debug,
            runtime_state: if self.enabled { ENABLED } else { DISABLED },
            ttmp_setup: self.ttmp.into(),
        }
    }

    pub(super) fn answer(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }

    /// Another debugger has said nothing yet.
    pub(super) fn forget_answers(&mut self) {
        self.answers = 0;
    }

    /// Whether the call goes on with a wait that a signal has interrupted; false: there is nobody
    /// to wait for any more, for that session is over. `None`: it is a new call.
    fn resumes(&mut self, change: Change, session: Option<Serial>) -> Option<bool> {
        let (interrupted, waited_for) = self.interrupted.take()?;
        (interrupted == change).then_some(session == Some(waited_for))
    }
}

impl Session {
    /// The runtime has come or gone.
    fn runtime_changed(&mut self) {
        self.exceptions |= EC_PROCESS_RUNTIME;
        self.tell(EC_PROCESS_RUNTIME);
    }
}

impl Process {
    /// Whether the process's runtime has said that it is there, and wants to know of exceptions.
    pub(crate) fn has_runtime(&self) -> bool {
        self.debugging.state.lock().runtime.enabled
    }

    /// The runtime says that it is there, where a debugger finds it, and whether waves keep
    /// dispatch information for one. `EBUSY`: it is there; `EEXIST`: there are queues already;
    /// `ESRCH`: the process has ended; `EINTR`: a signal; the same call goes on then.
    pub(crate) fn enable_runtime(&self, r_debug: u64, ttmp: bool) -> Result {
        // A queue that is being made is not seen yet.
        let turn = self.memory_lock();
        let mut state = self.debugging.state.lock();
        let session = state.session.as_ref().map(|session| session.serial);
        let resumed = state.runtime.resumes(Change::Enable, session);
        if resumed.is_none() {
            self.alive().map(drop)?;
            if state.runtime.enabled {
                return Err(EBUSY);
            }
            if self.has_queues() {
                return Err(EEXIST);
            }
            state.runtime.enabled = true;
            state.runtime.r_debug = r_debug;
            state.runtime.ttmp = ttmp;
            if ttmp {
                self.devices().iter().for_each(|device| {
                    rest(self, device, true);
                });
            }
            if let Some(session) = state.session.as_mut() {
                session.activate(self);
                session.runtime_changed();
            }
        }
        drop(turn);
        if resumed == Some(false) {
            return Ok(());
        }
        self.await_answer(state, Change::Enable)
    }

    /// The runtime goes. `ESRCH`, `EINTR`: as above.
    pub(crate) fn disable_runtime(&self) -> Result {
        let mut state = self.debugging.state.lock();
        let session = state.session.as_ref().map(|session| session.serial);
        let resumed = state.runtime.resumes(Change::Disable, session);
        if resumed.is_none() {
            self.alive().map(drop)?;
            state.runtime.enabled = false;
            state.runtime.r_debug = 0;
            if let Some(session) = state.session.as_mut() {
                session.deactivate(self, false);
                session.runtime_changed();
            }
            self.devices().iter().for_each(|device| {
                rest(self, device, false);
            });
        }
        if resumed == Some(false) {
            state.runtime.ttmp = false;
            return Ok(());
        }
        self.await_answer(state, Change::Disable)?;
        self.debugging.state.lock().runtime.ttmp = false;
        Ok(())
    }

    /// Waits until the debugger has answered, if there is one, or is gone. `EINTR`: a signal.
    ///
    /// TIMEOUT: none but that. A debugger may look at the process as long as it lives.
    fn await_answer(&self, mut state: MutexGuard<'_, State>, change: Change) -> Result {
        let serial_of = |state: &State| state.session.as_ref().map(|session| session.serial);
        let Some(session) = serial_of(&state) else {
            return Ok(());
        };
        while serial_of(&state) == Some(session) {
            if let Some(left) = state.runtime.answers.checked_sub(1) {
                state.runtime.answers = left;
                return Ok(());
            }
            if self.debugging.answered.wait_interruptible(&mut state) {
                state.runtime.interrupted = Some((change, session));
                return Err(EINTR);
            }
        }
        Ok(())
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_runtime)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_call_goes_on_in_the_same_session() {
        let (one, other) = (Serial::next(), Serial::next());
        let interrupted = || Runtime {
            interrupted: Some((Change::Enable, one)),
            ..Runtime::default()
        };
        let resumes = |change, session| interrupted().resumes(change, session);
        assert_eq!(resumes(Change::Enable, Some(one)), Some(true));
        assert_eq!(resumes(Change::Disable, Some(one)), None);
        // That debugger is gone: there is nobody to wait for.
        assert_eq!(resumes(Change::Enable, Some(other)), Some(false));
        assert_eq!(resumes(Change::Enable, None), Some(false));
        assert_eq!(Runtime::default().resumes(Change::Enable, None), None);
        // Once.
        let mut runtime = interrupted();
        assert_eq!(runtime.resumes(Change::Disable, None), None);
        assert_eq!(runtime.resumes(Change::Enable, Some(one)), None);
    }
}
