// SPDX-License-Identifier: GPL-2.0-only

//! One at a time does something for a process, unless that does not come to an end; and users take
//! turns.
//!
//! Buffers of two processes that are brought back at a time push each other out again. But amdgpu
//! brings them back under a lock of the process's (`process_info->lock`), under which it also
//! waits for memory of the process's own (USERPTR): for a program, if that memory is a file whose
//! server does not answer. Who finds the lock taken tries again later. Where it is taken just then,
//! a turn that has lasted long is over for all others; of these turns without an end a user has a
//! few at a time and no more, for each keeps a worker. And users stand in line: one waits for a
//! single turn of each of those who were there before it, however many processes these have. The
//! more these are the less often each asks: of all of a user's one does so every few milliseconds.

use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex,
    task::Kuid,
    time::{
        Delta,
        Instant,
        Monotonic,
        Msecs, //
    },
};

/// How many turns without an end a user may have.
const MOST: usize = 8;

/// How soon one of a user's processes asks again.
const AGAIN: Msecs = 4;

/// At most so many of them share that.
const CROWD: u32 = 64;

/// Nobody waits for who has not asked again for so long.
const PATIENCE: Delta = Delta::from_millis(50);

/// For so many times as long it keeps its place in the line.
const KEPT: i64 = 20;

/// Whose turn it is.
#[pin_data]
pub(super) struct Turns {
    limit: Delta,
    #[pin]
    state: Mutex<State>,
}

/// The last turn that was taken, and who takes them.
struct State {
    number: u64,
    /// Since when. `None`: it is over.
    since: Option<Instant<Monotonic>>,
    patience: Delta,
    again: Msecs,
    /// The last place in the line that was given.
    place: u64,
    /// Those who wait, or have turns.
    users: KVec<User>,
}

/// Somebody who has asked for a turn.
struct User {
    id: Kuid,
    /// Its place in the line, if it waits.
    place: Option<u64>,
    /// When it asked last.
    asked: Instant<Monotonic>,
    /// How many of its turns have not ended.
    running: usize,
    /// How often its processes were refused since then, and how many of them they seem to be.
    refused: u32,
    since: Instant<Monotonic>,
    many: u32,
}

impl User {
    /// One of its processes is refused: when that shall ask again. Those that ask one after the
    /// other come again one after the other.
    fn refuse(&mut self, again: Msecs) -> Msecs {
        let round = Delta::from_millis((again * self.many).into());
        if self.since.elapsed() >= round {
            self.many = self.refused.clamp(1, CROWD);
            (self.refused, self.since) = (0, Instant::now());
        }
        self.refused += 1;
        again * (1 + (self.refused - 1) % CROWD)
    }
}

/// Why there is no turn now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is somebody else's. It shall be asked for again so much later.
    Others(Msecs),
    /// As many of the user's own do not end as may.
    Own,
}

/// A turn; it ends when this is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
    user: Kuid,
}

impl State {
    /// That user, who asks for a turn. `None`: there is no memory, for which nobody waits here.
    fn user(&mut self, id: Kuid) -> Option<&mut User> {
        for user in self.users.iter_mut() {
            user.place = user
                .place
                .filter(|_| user.asked.elapsed() < self.patience * KEPT);
        }
        self.users
            .retain(|user| user.running > 0 || user.place.is_some() || user.id == id);
        if !self.users.iter().any(|user| user.id == id) {
            let user = User {
                id,
                place: None,
                asked: Instant::now(),
                running: 0,
                refused: 0,
                since: Instant::now(),
                many: 1,
            };
            self.users.push(user, GFP_NOWAIT).ok()?;
        }
        let user = self.users.iter_mut().find(|user| user.id == id)?;
        user.asked = Instant::now();
        Some(user)
    }

    /// The place of the first in the line who asks still.
    fn first(&self) -> Option<u64> {
        let asks = |user: &&User| user.running < MOST && user.asked.elapsed() < self.patience;
        let waiting = self.users.iter().filter(asks);
        waiting.filter_map(|user| user.place).min()
    }
}

impl Turns {
    /// It is nobody's turn. What lasts longer than `limit` keeps nobody waiting.
    pub(super) fn new(limit: Delta) -> impl PinInit<Self> {
        Self::with_patience(limit, PATIENCE, AGAIN)
    }

    fn with_patience(limit: Delta, patience: Delta, again: Msecs) -> impl PinInit<Self> {
        let state = State {
            number: 0,
            since: None,
            patience,
            again,
            place: 0,
            users: KVec::new(),
        };
        pin_init!(Self {
            limit,
            state <- new_mutex!(state, "amdkfd::Turns"),
        })
    }

    /// Takes a turn for a process of that user's, who asks again in vain until there is one.
    pub(super) fn take(&self, id: Kuid) -> Result<Turn<'_>, Refused> {
        let mut state = self.state.lock();
        let is_over = state
            .since
            .is_none_or(|since| since.elapsed() >= self.limit);
        let (last, again) = (state.place, state.again);
        let user = state.user(id).ok_or(Refused::Others(again))?;
        if user.running >= MOST {
            return Err(Refused::Own);
        }
        let place = *user.place.get_or_insert(last + 1);
        state.place = last.max(place);
        if !is_over || state.first() != Some(place) {
            let wait = state.user(id).map_or(again, |user| user.refuse(again));
            return Err(Refused::Others(wait));
        }
        state.number += 1;
        state.since = Some(Instant::now());
        let number = state.number;
        let user = state.user(id).ok_or(Refused::Others(again))?;
        user.place = None;
        user.running += 1;
        Ok(Turn {
            turns: self,
            number,
            user: id,
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        // If not, it was over long ago, and another one's turn is not ours to end.
        if state.number == self.number {
            state.since = None;
        }
        let mut users = state.users.iter_mut();
        if let Some(user) = users.find(|user| user.id == self.user) {
            user.running -= 1;
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_turns)]
mod tests {
    use super::*;
    use crate::linux::users::user_of as user;
    use kernel::time::delay::fsleep;

    const LIMIT: Delta = Delta::from_millis(50);

    /// Sleeps for longer than that: twice as long, since jiffies are behind where ticks come late.
    fn outlast(time: Delta) {
        fsleep(time * 2);
    }

    /// With so much patience that a busy host does not matter.
    fn turns() -> Pin<KBox<Turns>> {
        KBox::pin_init(
            Turns::with_patience(LIMIT, Delta::from_secs(60), AGAIN),
            GFP_KERNEL,
        )
        .unwrap()
    }

    #[test]
    fn nobody_waits_for_who_does_not_come_to_an_end() {
        let turns = turns();
        let take = || turns.take(user(1));
        let stuck = take().ok().unwrap();
        assert_eq!(take().err(), Some(Refused::Others(AGAIN)));
        outlast(LIMIT);
        let other = take().ok().unwrap();
        assert!(take().is_err());
        // It comes to an end after all: that of the other one goes on.
        drop(stuck);
        assert!(take().is_err());
        drop(other);
        assert!(take().is_ok());
        assert!(take().is_ok());
    }

    #[test]
    fn users_stand_in_line() {
        let turns = turns();
        let refused = |id| matches!(turns.take(user(id)), Err(Refused::Others(_)));
        let first = turns.take(user(1)).ok().unwrap();
        assert!(refused(2) && refused(1) && refused(3));
        drop(first);
        assert!(refused(1) && refused(3));
        let second = turns.take(user(2)).ok().unwrap();
        // It has its next place behind the others.
        assert!(refused(2));
        drop(second);
        assert!(refused(2) && refused(3));
        assert!(turns.take(user(1)).is_ok());
        // Who is new is the last, however many come.
        assert!((4..20).all(refused) && refused(2));
        assert!(turns.take(user(3)).is_ok());
        assert!(turns.take(user(2)).is_ok());
        assert!(refused(5) && turns.take(user(4)).is_ok());
    }

    #[test]
    fn who_asks_no_more_is_not_waited_for() {
        const PATIENCE: Delta = Delta::from_millis(20);
        let turns = Turns::with_patience(Delta::from_secs(60), PATIENCE, AGAIN);
        let turns = KBox::pin_init(turns, GFP_KERNEL).unwrap();
        let first = turns.take(user(1)).ok().unwrap();
        assert!(turns.take(user(2)).is_err());
        drop(first);
        outlast(PATIENCE);
        assert!(turns.take(user(1)).is_ok());
        outlast(PATIENCE * KEPT);
        drop(turns.take(user(1)).ok().unwrap());
        let state = turns.state.lock();
        assert!(state.users.iter().all(|known| known.id == user(1)));
    }

    #[test]
    fn many_processes_of_a_user_ask_as_often_as_one() {
        const AGAIN: Msecs = 500;
        let minute = Delta::from_secs(60);
        let turns = Turns::with_patience(minute, minute, AGAIN);
        let turns = KBox::pin_init(turns, GFP_KERNEL).unwrap();
        let turn = turns.take(user(1)).ok().unwrap();
        let wait = |id| match turns.take(user(id)) {
            Err(Refused::Others(wait)) => wait,
            _ => 0,
        };
        assert!((1..=CROWD).all(|place| wait(2) == place * AGAIN));
        // Nor do they wait for longer than that, nor other users' at all.
        assert_eq!((wait(2), wait(3)), (AGAIN, AGAIN));
        // A round has as many as have asked in the one before.
        outlast(Delta::from_millis(AGAIN.into()));
        assert_eq!((wait(2), wait(2)), (AGAIN, 2 * AGAIN));
        outlast(Delta::from_millis(AGAIN.into()));
        assert_eq!((wait(2), wait(3)), (3 * AGAIN, AGAIN));
        drop(turn);
    }

    #[test]
    fn a_user_has_a_few_turns_without_an_end() {
        let turns = turns();
        let mut stuck = KVec::new();
        for _ in 0..MOST {
            outlast(LIMIT);
            stuck
                .push(turns.take(user(1)).ok().unwrap(), GFP_KERNEL)
                .unwrap();
        }
        outlast(LIMIT);
        assert_eq!(turns.take(user(1)).err(), Some(Refused::Own));
        for id in 2..20 {
            assert!(turns.take(user(id)).is_ok());
        }
        drop(stuck.pop());
        assert!(turns.take(user(1)).is_ok());
    }
}
