// SPDX-License-Identifier: GPL-2.0-only

//! Changes of what is to run, and whether the hardware has obeyed.

use super::{
    Inner,
    Phase,
    Runlist, //
};
use crate::{
    kgd::ResetGuard,
    linux::errno,
    sched::{
        runlist_state::RunlistState,
        Key, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::ordering::Relaxed, //
};

impl Inner {
    /// Whether the hardware has another list than it should, for amdgpu kept the order from it.
    /// When it does not obey an order that it gets it is [`Phase::Hung`].
    pub(super) fn owes(&self) -> bool {
        match self.phase {
            Phase::Idle => !self.paused.any() && self.state.counts().queues > 0,
            Phase::Listed => self.behind,
            Phase::Hung | Phase::Stopped => false,
        }
    }
}

impl Runlist {
    /// Changes what is to run: off with everything, `change`, on with what is left. The change
    /// happens even if the hardware cannot be changed; then the error says so.
    pub(super) fn reschedule(
        &self,
        inner: &mut Inner,
        change: impl FnOnce(&mut RunlistState) -> Result,
    ) -> Result {
        self.reschedule_within(inner, None, |state, _| change(state))
    }

    /// The same; `grace`: how long waves have to end by themselves, if not as long as usual.
    /// `change` is told whether the hardware has let go of all queues, and written what it saves.
    pub(super) fn reschedule_within(
        &self,
        inner: &mut Inner,
        grace: Option<u32>,
        change: impl FnOnce(&mut RunlistState, bool) -> Result,
    ) -> Result {
        if inner.phase == Phase::Stopped {
            return change(&mut inner.state, false);
        }
        let before = inner.phase;
        let off = match ResetGuard::try_new(&*self.kgd) {
            Ok(guard) => self.take_off_within(inner, grace).map(|()| guard),
            Err(error) => {
                self.kept.store(true, Relaxed);
                Err(error)
            }
        };
        match off {
            Ok(_) => self.catch_up(inner),
            Err(_) => self.fall_behind(inner, before),
        }
        let changed = change(&mut inner.state, off.is_ok());
        let _guard = off?;
        self.put_on(inner).and(changed)
    }

    /// The same if the hardware is concerned: if what changes runs, or something may run since the
    /// hardware has not obeyed. Else `change` is all.
    pub(super) fn reschedule_if(
        &self,
        runs: bool,
        inner: &mut Inner,
        change: impl FnOnce(&mut RunlistState) -> Result,
    ) -> Result {
        if runs || inner.behind {
            self.reschedule(inner, change)
        } else {
            change(&mut inner.state)
        }
    }

    /// The same for what is to leave, of that process: of one that has nothing on hardware that
    /// does not obey `change` is all. `runs`: what is to leave is in the list.
    pub(super) fn reschedule_leaving(
        &self,
        process: Key,
        runs: bool,
        inner: &mut Inner,
        change: impl FnOnce(&mut RunlistState) -> Result,
    ) -> Result {
        let stranded = inner.behind && inner.state.is_stranded(process);
        let concerned = match inner.phase {
            Phase::Hung => stranded,
            Phase::Idle | Phase::Listed => runs || stranded,
            // Nobody gives it an order; a reset settles it.
            Phase::Stopped if stranded && !inner.left && !self.kgd.in_reset() => {
                return change(&mut inner.state).and(Err(errno::timer_expired()));
            }
            Phase::Stopped => false,
        };
        match concerned {
            true => self.reschedule(inner, change),
            false => change(&mut inner.state),
        }
    }

    /// Whether what the hardware has saved of a process's queues that do not run is there.
    pub(super) fn keeps(&self, inner: &Inner, process: Key) -> bool {
        let goes = || inner.left || self.kgd.in_reset() || self.kgd.is_suspending();
        let stays = inner.behind && inner.state.is_stranded(process);
        !(stays || inner.phase == Phase::Stopped && goes())
    }

    /// The hardware has not obeyed. `before`: what was on it.
    pub(super) fn fall_behind(&self, inner: &mut Inner, before: Phase) {
        // Without a list there is nothing that it could not have let go.
        if before == Phase::Listed && !inner.behind {
            inner.behind = true;
            inner.state.strand();
            self.patience.begin();
        }
    }

    /// It has, or was reset.
    pub(super) fn catch_up(&self, inner: &mut Inner) {
        inner.behind = false;
        self.patience.end();
    }
}
