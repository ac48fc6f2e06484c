// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Abi`]: what a process may expect of the interface. One per process of a program; each of its
//! calls begins and ends here, and what comes of it that may not be is told in words.
//!
//! It knows which ids the lines were given and which they gave back: an id that was given back, or
//! that nobody can have been given, must not work, none may be given twice, and giving back one
//! that is there must work. Where two calls overlap that make or take an id of one kind, or where
//! the thunk has made some in between, it claims nothing. What calls return must be possible
//! ([`values`]). A file of another process's must not work at all.

mod debug;
#[cfg(test)]
mod tests;
mod values;

pub use debug::Stance;
pub use values::Facts;

use super::execute::place;
use kfd_uapi::reflect::Struct;
use nix::libc;
use std::collections::{HashMap, HashSet};

/// What ids are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Buffer,
    Queue,
    Event,
}

/// What a call does with the id in one of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Make,
    Use,
    Take,
}

/// The fields that hold ids. The list of WAIT_EVENTS is apart: [`Request::events`].
const IDS: &[(&str, &str, Kind, Deed)] = &[
    ("ALLOC_MEMORY_OF_GPU", "handle", Kind::Buffer, Deed::Make),
    ("IMPORT_DMABUF", "handle", Kind::Buffer, Deed::Make),
    ("MAP_MEMORY_TO_GPU", "handle", Kind::Buffer, Deed::Use),
    ("UNMAP_MEMORY_FROM_GPU", "handle", Kind::Buffer, Deed::Use),
    ("EXPORT_DMABUF", "handle", Kind::Buffer, Deed::Use),
    ("FREE_MEMORY_OF_GPU", "handle", Kind::Buffer, Deed::Take),
    ("CREATE_QUEUE", "queue_id", Kind::Queue, Deed::Make),
    ("UPDATE_QUEUE", "queue_id", Kind::Queue, Deed::Use),
    ("SET_CU_MASK", "queue_id", Kind::Queue, Deed::Use),
    ("GET_QUEUE_WAVE_STATE", "queue_id", Kind::Queue, Deed::Use),
    ("ALLOC_QUEUE_GWS", "queue_id", Kind::Queue, Deed::Use),
    ("DESTROY_QUEUE", "queue_id", Kind::Queue, Deed::Take),
    ("CREATE_EVENT", "event_id", Kind::Event, Deed::Make),
    ("SET_EVENT", "event_id", Kind::Event, Deed::Use),
    ("RESET_EVENT", "event_id", Kind::Event, Deed::Use),
    ("DESTROY_EVENT", "event_id", Kind::Event, Deed::Take),
];

/// The first id of events that have no slot, and how many of either kind there may be
/// (`KFD_FIRST_NONSIGNAL_EVENT_ID`, `KFD_SIGNAL_EVENT_LIMIT`).
const OTHER_EVENTS: u64 = 1 << 30;
const EVENTS: u64 = 4096;
/// `KFD_MAX_NUM_OF_QUEUES_PER_PROCESS`.
const QUEUES: u64 = 1024;

/// Whose file a call goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The process's own /dev/kfd, with its own context.
    Own,
    /// A /dev/kfd that another process opened.
    Foreign,
    /// Another file, or one with a context of its own: nothing of it touches the process's ids.
    Apart,
    /// Perhaps the process's own.
    Unknown,
}

/// An argument's struct by its fields.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    pub known: Option<&'static Struct>,
    pub words: &'a [u64],
}

impl Fields<'_> {
    /// The field called `name`.
    pub fn get(&self, name: &str) -> Option<u64> {
        let (offset, bytes) = place(self.known, name)?;
        let value = self.words.get(offset / 8)? >> (offset % 8 * 8);
        Some(if bytes == 4 {
            u64::from(value as u32)
        } else {
            value
        })
    }
}

/// A call as it is made.
pub struct Request<'a> {
    pub call: &'static str,
    pub access: Access,
    pub fields: Fields<'a>,
    /// The ids that WAIT_EVENTS lists.
    pub events: &'a [u64],
    /// When the call is over: the list that it was given, as it is then.
    pub list: Option<&'a [u32]>,
    /// What the caller of DBG_TRAP is to a process of the program that it names.
    pub stance: Option<Stance>,
}

impl Request<'_> {
    /// Whether it may begin or end a debugger's session.
    pub fn changes_sessions(&self) -> bool {
        use kfd_uapi::{KFD_IOC_DBG_TRAP_DISABLE, KFD_IOC_DBG_TRAP_ENABLE};
        let changes = [KFD_IOC_DBG_TRAP_DISABLE, KFD_IOC_DBG_TRAP_ENABLE];
        let op = self.fields.get("op").unwrap_or(u64::MAX);
        self.call == "DBG_TRAP" && changes.iter().any(|it| u64::from(*it) == op)
    }
}

/// What is known of an id that was given once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    Dead,
    Unknown,
}

/// How many calls that make ids, or take them, are under way and have been.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Busy {
    running: u32,
    begun: u64,
}

impl Busy {
    fn begin(&mut self) {
        self.running += 1;
        self.begun += 1;
    }

    fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
    }
}

/// The ids of one kind.
#[derive(Default)]
struct Ids {
    known: HashMap<u64, State>,
    making: Busy,
    taking: Busy,
    /// Whether somebody else in the process has some as well.
    others: bool,
    /// Whether somebody else may take what the lines were given.
    muddled: bool,
    /// Taken while one was being made: perhaps that one, of which nobody has heard yet.
    taken_early: HashSet<u64>,
}

impl Ids {
    /// Somebody else makes or takes some.
    fn forget_the_dead(&mut self) {
        self.others = true;
        for state in self.known.values_mut() {
            if *state == State::Dead {
                *state = State::Unknown;
            }
        }
    }

    fn forget_all(&mut self) {
        self.forget_the_dead();
        self.muddled = true;
        self.known.values_mut().for_each(|it| *it = State::Unknown);
    }
}

/// What was known when a call began.
pub struct Ticket {
    named: Vec<Named>,
    before: [(Busy, Busy); 3],
    debugging: Option<debug::Before>,
}

/// An id that a call names.
struct Named {
    kind: Kind,
    deed: Deed,
    id: u64,
    state: State,
}

/// What a process was given.
#[derive(Default)]
pub struct Abi {
    ids: [Ids; 3],
    values: values::Values,
    sessions: debug::Sessions,
    /// Nothing is claimed any more.
    lost: bool,
}

impl Abi {
    /// Of a process that has set itself up: the thunk has made buffers and events.
    pub fn new(facts: Facts) -> Self {
        let mut abi = Self {
            values: values::Values::new(facts),
            ..Self::default()
        };
        for kind in [Kind::Buffer, Kind::Event] {
            abi.ids[kind as usize].others = true;
        }
        abi
    }

    /// Somebody else, which is the thunk, is about to make and take ids, until
    /// [`Self::others_end`].
    pub fn others_begin(&mut self) {
        for ids in &mut self.ids {
            ids.making.begin();
            ids.taking.begin();
            ids.forget_the_dead();
        }
    }

    pub fn others_end(&mut self) {
        for ids in &mut self.ids {
            ids.making.end();
            ids.taking.end();
            ids.forget_the_dead();
        }
    }

    /// The context of the process's file may be another one: from now on nothing is claimed of ids.
    pub fn lose(&mut self) {
        self.lost = true;
    }

    /// `request` is about to be made.
    pub fn begin(&mut self, request: &Request<'_>) -> Ticket {
        let before = [0, 1, 2].map(|kind| (self.ids[kind].making, self.ids[kind].taking));
        let mut named = Vec::new();
        let reaches = matches!(request.access, Access::Own | Access::Unknown);
        for (_, field, kind, deed) in IDS.iter().filter(|(call, ..)| *call == request.call) {
            if !reaches {
                break;
            }
            let ids = &mut self.ids[*kind as usize];
            match deed {
                Deed::Make => ids.making.begin(),
                Deed::Take => ids.taking.begin(),
                Deed::Use => {}
            }
            let id = request.fields.get(field).unwrap_or(0);
            named.push(self.named(*kind, *deed, id));
        }
        let events = request.events.iter().filter(|_| reaches);
        let events = events.map(|id| self.named(Kind::Event, Deed::Use, u64::from(*id as u32)));
        named.extend(events.collect::<Vec<_>>());
        let debugging = (request.call == "DBG_TRAP").then(|| self.sessions.begin(request));
        Ticket {
            named,
            before,
            debugging,
        }
    }

    fn named(&self, kind: Kind, deed: Deed, id: u64) -> Named {
        let ids = &self.ids[kind as usize];
        let state = match ids.known.get(&id) {
            Some(state) => *state,
            None if !ids.others || !self.values.can_be(kind, id) => State::Dead,
            None => State::Unknown,
        };
        Named {
            kind,
            deed,
            id,
            state,
        }
    }

    /// `request` has returned that, or failed with an errno, with `answer` in its struct. What may
    /// not be, in words.
    pub fn end(
        &mut self,
        ticket: &Ticket,
        request: &Request<'_>,
        answer: Fields<'_>,
        outcome: Result<u64, i32>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let errno = outcome.err().unwrap_or(0);
        let done = outcome.is_ok();
        if request.access == Access::Foreign && done {
            wrong.push("it works on a file that another process opened".to_owned());
        }
        wrong.extend(values::errno(errno));
        for named in &ticket.named {
            match named.deed {
                Deed::Make => self.made(ticket, named, request, answer, done, &mut wrong),
                Deed::Use => self.used(ticket, named, done, &mut wrong),
                Deed::Take => self.taken(ticket, named, errno, &mut wrong),
            }
        }
        if let Some(before) = ticket.debugging {
            wrong.extend(self.sessions.end(before, request, answer, outcome));
        }
        if request.access == Access::Unknown && done {
            let kinds: Vec<Kind> = ticket.named.iter().map(|it| it.kind).collect();
            kinds
                .iter()
                .for_each(|it| self.ids[*it as usize].forget_all());
        }
        if request.access != Access::Own || self.lost {
            wrong.retain(|_| request.access == Access::Foreign);
            return wrong;
        }
        if done {
            wrong.extend(self.values.look_at(request, answer));
        }
        wrong
    }

    /// Whether no other call made an id of this kind, or took one, since `ticket`.
    fn alone(&self, ticket: &Ticket, kind: Kind, deed: Deed, own: u64) -> bool {
        let (making, taking) = ticket.before[kind as usize];
        let ids = &self.ids[kind as usize];
        let (before, now) = match deed {
            Deed::Take => (taking, ids.taking),
            _ => (making, ids.making),
        };
        before.running == 0 && now.begun == before.begun + own
    }

    fn made(
        &mut self,
        ticket: &Ticket,
        named: &Named,
        request: &Request<'_>,
        answer: Fields<'_>,
        done: bool,
        wrong: &mut Vec<String>,
    ) {
        let kind = named.kind;
        let alone = self.alone(ticket, kind, Deed::Take, 0);
        let ids = &mut self.ids[kind as usize];
        ids.making.end();
        let taken_early = std::mem::take(&mut ids.taken_early);
        if ids.making.running > 0 {
            ids.taken_early.clone_from(&taken_early);
        }
        let field = IDS.iter().find(|it| it.0 == request.call).map(|it| it.1);
        let Some(id) = field.and_then(|name| answer.get(name)).filter(|_| done) else {
            return;
        };
        if request.access != Access::Own {
            return;
        }
        let state = match taken_early.contains(&id) {
            true => State::Unknown,
            false => State::Live,
        };
        if ids.known.insert(id, state) == Some(State::Live) && alone {
            wrong.push(format!("{kind:?} {id:#x} was given twice"));
        }
        if !self.values.can_be(kind, id) {
            wrong.push(format!("{id:#x} is no {kind:?}"));
        }
    }

    fn used(&self, ticket: &Ticket, named: &Named, done: bool, wrong: &mut Vec<String>) {
        let alone = self.alone(ticket, named.kind, Deed::Make, 0);
        if named.state == State::Dead && done && alone {
            wrong.push(format!(
                "{:?} {:#x} is gone and works",
                named.kind, named.id
            ));
        }
    }

    fn taken(&mut self, ticket: &Ticket, named: &Named, errno: i32, wrong: &mut Vec<String>) {
        let (kind, id) = (named.kind, named.id);
        self.used(ticket, named, errno == 0, wrong);
        let made_none = self.alone(ticket, kind, Deed::Make, 0);
        let took_none = self.alone(ticket, kind, Deed::Take, 1);
        let ids = &mut self.ids[kind as usize];
        ids.taking.end();
        if errno == 0 {
            ids.muddled |= named.state == State::Unknown;
            match (named.state, made_none) {
                (State::Unknown, true) => {}
                (_, true) => _ = ids.known.insert(id, State::Dead),
                (_, false) => {
                    ids.known.insert(id, State::Unknown);
                    ids.taken_early.insert(id);
                }
            }
            return;
        }
        let there = named.state == State::Live && ids.known.get(&id) == Some(&State::Live);
        // A buffer stays while it is mapped, or is the page of events.
        let may_stay = kind == Kind::Buffer && errno == libc::EBUSY;
        if there && took_none && !ids.muddled && !may_stay {
            wrong.push(format!(
                "{kind:?} {id:#x} is there and cannot be given back: {errno}"
            ));
        }
    }
}
