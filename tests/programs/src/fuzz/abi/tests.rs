// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The model against a KFD that is right, and against one that has a bug: it finds the bug by what
//! generated programs do, and claims nothing of the right one.

use super::super::execute::place;
use super::super::generate::Random;
use super::*;
use kfd_uapi::IOCTLS;
use std::collections::BTreeSet;

/// What is wrong with a KFD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// The call does not ask whether the id is there.
    Unchecked(&'static str),
    /// An id is given while it is still another's.
    GivenTwice,
    /// What was given back stays.
    Stuck,
    /// A file of another process's is taken for the process's own.
    AnyFile,
    /// A field of a call's answer is this, though it succeeds.
    Answer(&'static str, &'static str, u64),
    /// It fails with an errno of the kernel's own.
    Errno,
}

const GPU: u64 = 0x8c81;

/// As much of a KFD as has ids.
struct Fake {
    bug: Bug,
    live: [BTreeSet<u64>; 3],
}

impl Fake {
    /// The lowest id that is free.
    fn give(&mut self, kind: Kind) -> u64 {
        let first = match kind {
            Kind::Buffer => GPU << 32,
            _ => 0,
        };
        let live = &mut self.live[kind as usize];
        let id = (first..).find(|id| !live.contains(id)).expect("a free id");
        live.insert(id);
        match self.bug {
            Bug::GivenTwice => first,
            _ => id,
        }
    }

    /// The errno of `call` on `words`, which get its answer.
    fn call(&mut self, call: &'static str, foreign: bool, words: &mut [u64]) -> i32 {
        if foreign && self.bug != Bug::AnyFile {
            return if self.bug == Bug::Errno {
                512
            } else {
                libc::EBADF
            };
        }
        let Some((_, field, kind, deed)) = IDS.iter().find(|(known, ..)| *known == call) else {
            return 0;
        };
        let id = fields(call, words).get(field).unwrap_or(0);
        match deed {
            Deed::Make => {
                let id = self.give(*kind);
                set(call, words, field, id);
                0
            }
            Deed::Take if self.bug == Bug::Stuck => libc::EINVAL,
            Deed::Take if self.live[*kind as usize].remove(&id) => 0,
            Deed::Use if self.live[*kind as usize].contains(&id) => 0,
            _ if self.bug == Bug::Unchecked(call) => 0,
            _ => libc::EINVAL,
        }
    }
}

fn known(call: &str) -> Option<&'static Struct> {
    let ioctl = IOCTLS.iter().find(|it| it.name == call)?;
    Struct::by_name(ioctl.arguments)
}

fn fields<'a>(call: &str, words: &'a [u64]) -> Fields<'a> {
    Fields {
        known: known(call),
        words,
    }
}

fn set(call: &str, words: &mut [u64], field: &str, value: u64) {
    let (offset, bytes) = place(known(call), field).expect("the field is the header's");
    let shift = offset % 8 * 8;
    let mask = if bytes == 4 { 0xffff_ffff << shift } else { !0 };
    words[offset / 8] = words[offset / 8] & !mask | value << shift & mask;
}

/// The answer to `call` as the right KFD fills it in, apart from ids.
fn fill(call: &str, words: &mut [u64], bug: Bug) {
    let id = fields(call, words).get("event_id").unwrap_or(0);
    let answers: &[(&str, &str, u64)] = &[
        ("CREATE_EVENT", "event_trigger_data", id),
        ("CREATE_EVENT", "event_slot_index", id),
        ("CREATE_EVENT", "event_page_offset", 2 << 62),
        (
            "CREATE_QUEUE",
            "doorbell_offset",
            3 << 62 | GPU << 46 | 0x40,
        ),
        ("MAP_MEMORY_TO_GPU", "n_success", 1),
        ("UNMAP_MEMORY_FROM_GPU", "n_success", 1),
        ("EXPORT_DMABUF", "dmabuf_fd", 7),
        ("AVAILABLE_MEMORY", "available", 4096),
        ("GET_VERSION", "major_version", 1),
    ];
    for (of, field, value) in answers.iter().filter(|(of, ..)| *of == call) {
        set(of, words, field, *value);
    }
    if let Bug::Answer(of, field, value) = bug {
        if of == call {
            set(of, words, field, value);
        }
    }
}

/// What the model says of a thousand calls, drawn from `seed`, on a KFD with this bug.
fn found(seed: u64, bug: Bug) -> Vec<String> {
    let facts = Facts {
        gpus: [(GPU as u32, 1 << 30)].into(),
        all_gpus: 1,
    };
    let mut abi = Abi::new(facts);
    let mut fake = Fake {
        bug,
        live: Default::default(),
    };
    let mut random = Random::new(seed);
    let mut wrong = Vec::new();
    let mut calls: Vec<&'static str> = IDS.iter().map(|it| it.0).collect();
    calls.extend(["AVAILABLE_MEMORY", "GET_VERSION"]);
    for _ in 0..1000 {
        let call = random.pick(&calls);
        let foreign = random.chance(3);
        let mut words = vec![0; 64];
        for (field, value) in [("gpu_id", GPU), ("n_devices", 1)] {
            if place(known(call), field).is_some() {
                set(call, &mut words, field, value);
            }
        }
        if let Some((_, field, kind, _)) = IDS.iter().find(|it| it.0 == call) {
            let guess = random.below(6) as u64;
            let first = if *kind == Kind::Buffer { GPU << 32 } else { 0 };
            set(call, &mut words, field, first + guess);
        }
        let before = words.clone();
        let request = Request {
            call,
            access: if foreign {
                Access::Foreign
            } else {
                Access::Own
            },
            fields: fields(call, &before),
            events: &[],
            list: None,
            stance: None,
        };
        let ticket = abi.begin(&request);
        let errno = fake.call(call, foreign, &mut words);
        if errno == 0 {
            fill(call, &mut words, bug);
        }
        let outcome = if errno == 0 { Ok(0) } else { Err(errno) };
        wrong.extend(abi.end(&ticket, &request, fields(call, &words), outcome));
    }
    wrong
}

#[test]
fn nothing_is_claimed_of_a_right_kfd() {
    for seed in 0..50 {
        assert_eq!(found(seed, Bug::None), Vec::<String>::new(), "seed {seed}");
    }
}

/// A planted bug is found, each time by the words for it.
fn finds(bug: Bug, words: &str) {
    for seed in 0..10 {
        let said = found(seed, bug);
        let right = said.iter().any(|it| it.contains(words));
        assert!(right, "{bug:?}, seed {seed}: {said:?}");
    }
}

#[test]
fn an_id_that_was_given_back_and_works_is_found_in_every_call() {
    for (call, ..) in IDS.iter().filter(|it| it.3 != Deed::Make) {
        finds(Bug::Unchecked(call), "is gone and works");
    }
}

#[test]
fn other_bugs_are_found() {
    finds(Bug::GivenTwice, "was given twice");
    finds(Bug::Stuck, "cannot be given back");
    finds(Bug::AnyFile, "another process opened");
    finds(Bug::Errno, "the kernel's own");
}

#[test]
fn answers_that_cannot_be_are_found() {
    for (call, field, value, words) in [
        ("ALLOC_MEMORY_OF_GPU", "handle", 7, "is no Buffer"),
        ("ALLOC_MEMORY_OF_GPU", "mmap_offset", 12, "mmap_offset"),
        (
            "CREATE_QUEUE",
            "doorbell_offset",
            3 << 62 | GPU << 46 | 8192,
            "doorbell_offset",
        ),
        (
            "CREATE_QUEUE",
            "doorbell_offset",
            3 << 62 | 77 << 46,
            "doorbell_offset",
        ),
        ("CREATE_QUEUE", "queue_id", 1024, "is no Queue"),
        ("CREATE_EVENT", "event_slot_index", 77, "another slot"),
        ("MAP_MEMORY_TO_GPU", "n_success", 0, "and no error"),
        ("EXPORT_DMABUF", "dmabuf_fd", 0xffff_ffff, "file"),
        ("AVAILABLE_MEMORY", "available", 2 << 30, "bytes are free"),
        ("GET_VERSION", "major_version", 2, "major"),
    ] {
        finds(Bug::Answer(call, field, value), words);
    }
}

/// A call that is about to be made, on event 0.
fn about(call: &'static str, words: &[u64]) -> Request<'static> {
    let words = words.to_vec().leak();
    Request {
        call,
        access: Access::Own,
        fields: fields(call, words),
        events: &[],
        list: None,
        stance: None,
    }
}

#[test]
fn calls_that_overlap_prove_nothing() {
    let mut abi = Abi::new(Facts::default());
    let words = [0; 64];
    let (create, destroy) = (
        about("CREATE_EVENT", &words),
        about("DESTROY_EVENT", &words),
    );
    let set = about("SET_EVENT", &words);
    let mut answer = [0; 64];
    fill("CREATE_EVENT", &mut answer, Bug::None);
    let (event, of_set) = (fields("CREATE_EVENT", &answer), fields("SET_EVENT", &words));
    let whole = |abi: &mut Abi, request: &Request<'_>, answer: Fields<'_>, outcome| {
        let ticket = abi.begin(request);
        abi.end(&ticket, request, answer, outcome)
    };
    assert!(whole(&mut abi, &create, event, Ok(0)).is_empty());
    assert!(whole(&mut abi, &destroy, of_set, Ok(0)).is_empty());
    assert_eq!(whole(&mut abi, &set, of_set, Ok(0)).len(), 1);
    // While another one is being made it may be that one.
    let making = abi.begin(&create);
    assert!(whole(&mut abi, &set, of_set, Ok(0)).is_empty());
    assert!(abi.end(&making, &create, event, Ok(0)).is_empty());
    // Whoever guesses its number may take it before its maker has heard of it: then it is free.
    let making = abi.begin(&create);
    _ = whole(&mut abi, &destroy, of_set, Ok(0));
    assert!(abi.end(&making, &create, event, Ok(0)).is_empty());
    assert!(whole(&mut abi, &create, event, Ok(0)).is_empty());
    assert_eq!(whole(&mut abi, &create, event, Ok(0)).len(), 1);
    // Of two who take it one fails.
    let (one, two) = (abi.begin(&destroy), abi.begin(&destroy));
    assert!(abi
        .end(&one, &destroy, of_set, Err(libc::EINVAL))
        .is_empty());
    assert!(abi.end(&two, &destroy, of_set, Ok(0)).is_empty());
    // What the thunk makes may have the number.
    abi.others_begin();
    abi.others_end();
    assert!(whole(&mut abi, &set, of_set, Ok(0)).is_empty());
}

#[test]
fn a_list_of_events_with_one_that_is_gone_must_not_work() {
    let mut abi = Abi::new(Facts::default());
    let words = [0; 64];
    let mut answer = [0; 64];
    fill("CREATE_EVENT", &mut answer, Bug::None);
    for call in ["CREATE_EVENT", "DESTROY_EVENT"] {
        let request = about(call, &words);
        let ticket = abi.begin(&request);
        assert!(abi
            .end(&ticket, &request, fields(call, &answer), Ok(0))
            .is_empty());
    }
    let mut request = about("WAIT_EVENTS", &words);
    request.events = &[0];
    let ticket = abi.begin(&request);
    let said = abi.end(&ticket, &request, fields("WAIT_EVENTS", &words), Ok(0));
    assert_eq!(said, ["Event 0x0 is gone and works"]);
}

/// DBG_TRAP about a process, with values in fields of the operation.
fn trap(pid: u64, op: u32, fields: &[(&str, u64)]) -> Vec<u64> {
    let mut words = vec![0; 64];
    let all = [("pid", pid), ("op", op.into())];
    for (field, value) in all.iter().chain(fields) {
        set("DBG_TRAP", &mut words, field, *value);
    }
    words
}

/// The caller's calls about one process, of which it is neither the tracer nor the same.
#[derive(Default)]
struct Stranger {
    abi: Abi,
    turn: u32,
    traces: bool,
}

impl Stranger {
    const PID: u64 = 77;

    fn call(&mut self, op: u32, fields: &[(&str, u64)], answer: &[(&str, u64)]) -> Vec<String> {
        self.listed(op, fields, answer, Ok(0), None)
    }

    fn listed(
        &mut self,
        op: u32,
        asked: &[(&str, u64)],
        answer: &[(&str, u64)],
        outcome: Result<u64, i32>,
        list: Option<&[u32]>,
    ) -> Vec<String> {
        let words = trap(Self::PID, op, asked);
        let mut request = about("DBG_TRAP", &words);
        self.turn += u32::from(request.changes_sessions());
        request.list = list;
        request.stance = Some(Stance {
            own: false,
            traces: self.traces,
            turn: self.turn,
            begun: self.turn,
        });
        let ticket = self.abi.begin(&request);
        let words = trap(Self::PID, op, &[asked, answer].concat());
        self.abi
            .end(&ticket, &request, fields("DBG_TRAP", &words), outcome)
    }

    fn enable(&mut self) -> Vec<String> {
        let size = [("enable.rinfo_size", 16)];
        self.call(kfd_uapi::KFD_IOC_DBG_TRAP_ENABLE, &[], &size)
    }
}

#[test]
fn strangers_debug_nobody() {
    const SEND: u32 = kfd_uapi::KFD_IOC_DBG_TRAP_SEND_RUNTIME_EVENT;
    const DISABLE: u32 = kfd_uapi::KFD_IOC_DBG_TRAP_DISABLE;
    let mut one = Stranger::default();
    let strange = ["a stranger debugs a process"];
    assert_eq!(one.call(SEND, &[], &[]), strange);
    assert_eq!(one.enable(), strange);
    // The tracer may, and its debugger, traced or not.
    let mut one = Stranger {
        traces: true,
        ..Stranger::default()
    };
    assert!(one.enable().is_empty());
    one.traces = false;
    assert!(one.call(SEND, &[], &[]).is_empty());
    assert!(one.call(DISABLE, &[], &[]).is_empty());
    assert_eq!(one.call(SEND, &[], &[]), strange);
    // What fails is right.
    assert!(one
        .listed(SEND, &[], &[], Err(libc::EPERM), None)
        .is_empty());
}

#[test]
fn a_process_has_one_session() {
    let mut one = Stranger {
        traces: true,
        ..Stranger::default()
    };
    assert!(one.enable().is_empty());
    assert_eq!(one.enable(), ["a process has two sessions"]);
    // Another one may have ended it.
    one.turn += 1;
    assert!(one.enable().is_empty());
    assert!(one
        .call(kfd_uapi::KFD_IOC_DBG_TRAP_DISABLE, &[], &[])
        .is_empty());
    assert!(one.enable().is_empty());
}

#[test]
fn an_enable_under_way_may_have_made_a_debugger() {
    let mut abi = Abi::default();
    let enable = trap(77, kfd_uapi::KFD_IOC_DBG_TRAP_ENABLE, &[]);
    let query = trap(77, kfd_uapi::KFD_IOC_DBG_TRAP_SEND_RUNTIME_EVENT, &[]);
    let stance = Some(Stance::default());
    let mut request = about("DBG_TRAP", &query);
    request.stance = stance;
    let asking = abi.begin(&request);
    let other = about("DBG_TRAP", &enable);
    let enabling = abi.begin(&other);
    let failed = abi.end(&enabling, &other, other.fields, Err(libc::EPERM));
    assert!(failed.is_empty());
    let said = abi.end(&asking, &request, request.fields, Ok(0));
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn answers_to_a_debugger_that_cannot_be_are_found() {
    use kfd_uapi::*;
    let found = |op, asked: &[(&str, u64)], answer: &[(&str, u64)], list| {
        let mut one = Stranger {
            traces: true,
            ..Stranger::default()
        };
        one.listed(op, asked, answer, Ok(1), list).len()
    };
    let event = "query_debug_event.exception_mask";
    let gpu = "query_debug_event.gpu_id";
    const QUERY: u32 = KFD_IOC_DBG_TRAP_QUERY_DEBUG_EVENT;
    assert_eq!(found(QUERY, &[], &[(event, 1 << 29), (gpu, 5)], None), 0);
    assert_eq!(found(QUERY, &[], &[(event, 1 << 47)], None), 0);
    for exceptions in [0, 1 << 47 | 1 << 29, 1 << 29, 1 << 40] {
        assert_eq!(found(QUERY, &[], &[(event, exceptions)], None), 1);
    }
    let queues = [("suspend_queues.num_queues", 2)];
    let invalid = 1 << KFD_DBG_QUEUE_INVALID_BIT;
    const SUSPEND: u32 = KFD_IOC_DBG_TRAP_SUSPEND_QUEUES;
    let (right, wrong) = ([0, invalid], [0, 1]);
    assert_eq!(found(SUSPEND, &queues, &[], Some(&right)), 0);
    assert_eq!(found(SUSPEND, &queues, &[], Some(&wrong)), 1);
    let asked = [("queue_snapshot.entry_size", 4096)];
    let size = |size| [("queue_snapshot.entry_size", size)];
    const QUEUES: u32 = KFD_IOC_DBG_TRAP_GET_QUEUE_SNAPSHOT;
    assert_eq!(found(QUEUES, &asked, &size(64), None), 0);
    assert_eq!(found(QUEUES, &asked, &size(4096), None), 1);
    for (op, field, value) in [
        (KFD_IOC_DBG_TRAP_SET_FLAGS, "set_flags.flags", 2),
        (
            KFD_IOC_DBG_TRAP_SET_WAVE_LAUNCH_MODE,
            "launch_mode.launch_mode",
            2,
        ),
        (
            KFD_IOC_DBG_TRAP_CLEAR_NODE_ADDRESS_WATCH,
            "clear_node_address_watch.id",
            4,
        ),
        (
            KFD_IOC_DBG_TRAP_QUERY_EXCEPTION_INFO,
            "query_exception_info.info_size",
            17,
        ),
        (15, "set_flags.flags", 0),
    ] {
        assert_eq!(found(op, &[(field, value)], &[], None), 1, "{op}");
    }
}
