// SPDX-License-Identifier: GPL-2.0-only

//! One at a time does something for a process, unless that does not come to an end; and users take
//! turns.
//!
//! Buffers of two processes that are brought back at a time push each other out again. But amdgpu
//! brings them back under a lock of the process's (`process_info->lock`), under which it also
//! waits for memory of the process's own (USERPTR): for a program, if that memory is a file whose
//! server does not answer. So a turn that has lasted long is over for all others. Of these turns
//! without an end a user has a few at a time and no more, for each keeps a worker. And whoever has
//! not had one for longer goes first: so a user waits for one turn of each of the others, however
//! many processes these have.

use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex,
    task::Kuid,
    time::{
        Delta,
        Instant,
        Monotonic, //
    },
};

/// How many turns without an end a user may have.
const MOST: usize = 8;

/// Who has not asked again for so long waits no more. A process asks every few milliseconds.
const PATIENCE: Delta = Delta::from_millis(50);

/// For so long it is known when a user had its last turn.
const MEMORY: Delta = Delta::from_secs(10);

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
    users: KVec<User>,
}

/// Somebody who has asked for a turn.
struct User {
    id: Kuid,
    /// The number of its last one.
    last: u64,
    /// It was refused one.
    waits: bool,
    /// When it asked last.
    asked: Instant<Monotonic>,
    /// How many of its turns have not ended.
    running: usize,
}

/// Why there is no turn now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is somebody else's.
    Others,
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
    /// That user, who asks for a turn. `None`: no memory.
    fn user(&mut self, id: Kuid) -> Option<&mut User> {
        self.users
            .retain(|user| user.running > 0 || user.asked.elapsed() < MEMORY);
        let known = self.users.iter().position(|user| user.id == id);
        let place = match known {
            Some(place) => place,
            None => {
                let user = User {
                    id,
                    last: 0,
                    waits: false,
                    asked: Instant::now(),
                    running: 0,
                };
                self.users.push(user, GFP_KERNEL).ok()?;
                self.users.len() - 1
            }
        };
        let user = self.users.get_mut(place)?;
        user.asked = Instant::now();
        Some(user)
    }

    /// Whether somebody waits who had its last turn before that number.
    fn is_awaited(&self, before: u64) -> bool {
        self.users.iter().any(|user| {
            user.waits
                && user.last < before
                && user.running < MOST
                && user.asked.elapsed() < PATIENCE
        })
    }
}

impl Turns {
    /// It is nobody's turn. What lasts longer than `limit` keeps nobody waiting.
    pub(super) fn new(limit: Delta) -> impl PinInit<Self> {
        let state = State {
            number: 0,
            since: None,
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
        let user = state.user(id).ok_or(Refused::Others)?;
        if user.running >= MOST {
            return Err(Refused::Own);
        }
        user.waits = true;
        let last = user.last;
        if !is_over || state.is_awaited(last) {
            return Err(Refused::Others);
        }
        state.number += 1;
        state.since = Some(Instant::now());
        let number = state.number;
        let user = state.user(id).ok_or(Refused::Others)?;
        (user.last, user.waits) = (number, false);
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
    use kernel::time::delay::fsleep;

    const LIMIT: Delta = Delta::from_millis(50);

    /// A user by number.
    fn user(id: u32) -> Kuid {
        let raw = kernel::bindings::kuid_t { val: id };
        Kuid::from_raw(raw)
    }

    fn turns() -> Pin<KBox<Turns>> {
        KBox::pin_init(Turns::new(LIMIT), GFP_KERNEL).unwrap()
    }

    #[test]
    fn nobody_waits_for_who_does_not_come_to_an_end() {
        let turns = turns();
        let take = || turns.take(user(1));
        let stuck = take().ok().unwrap();
        assert_eq!(take().err(), Some(Refused::Others));
        fsleep(LIMIT);
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
    fn who_has_not_had_a_turn_for_longer_goes_first() {
        let turns = turns();
        let first = turns.take(user(1)).ok().unwrap();
        assert_eq!(turns.take(user(1)).err(), Some(Refused::Others));
        assert_eq!(turns.take(user(2)).err(), Some(Refused::Others));
        drop(first);
        // Another process of the user's asks before the other user does.
        assert_eq!(turns.take(user(1)).err(), Some(Refused::Others));
        let second = turns.take(user(2)).ok().unwrap();
        assert_eq!(turns.take(user(1)).err(), Some(Refused::Others));
        drop(second);
        assert_eq!(turns.take(user(2)).err(), Some(Refused::Others));
        drop(turns.take(user(1)).ok().unwrap());
        // Who asks no more is not waited for.
        fsleep(PATIENCE);
        assert!(turns.take(user(1)).is_ok());
    }

    #[test]
    fn a_user_has_a_few_turns_without_an_end() {
        let turns = turns();
        let mut stuck = KVec::new();
        for _ in 0..MOST {
            fsleep(LIMIT);
            stuck
                .push(turns.take(user(1)).ok().unwrap(), GFP_KERNEL)
                .unwrap();
        }
        fsleep(LIMIT);
        assert_eq!(turns.take(user(1)).err(), Some(Refused::Own));
        for id in 2..20 {
            assert!(turns.take(user(id)).is_ok());
        }
        drop(stuck.pop());
        assert!(turns.take(user(1)).is_ok());
    }
}
