// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Call`]: one system call on a KFD, from its entry to its end, and how it is written down.

use super::decode::{self, decode, joined, number_of, Value};
use super::tracee::{path_of, Entry, Process};
use crate::clocks::monotonic_ns;
use kfd_uapi::reflect::Struct;
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use serde_json::json;
use std::time::Duration;

/// A call that has begun.
#[derive(Debug)]
pub struct Call {
    /// When it began, in nanoseconds of CLOCK_MONOTONIC: the clock of the driver's tracepoints.
    pub start: u64,
    /// Its name: an ioctl's without `AMDKFD_IOC_`, or the system call's.
    pub name: String,
    kind: Kind,
    file: Option<(i32, String)>,
    before: Value,
}

#[derive(Debug)]
enum Kind {
    Open,
    Map,
    Ioctl {
        known: Option<&'static Struct>,
        address: u64,
        size: usize,
    },
}

/// How a call ended.
#[derive(Debug)]
pub struct End {
    /// What it returned, or its errno; `None` when the task ended in it.
    pub outcome: Option<Result<u64, i32>>,
    /// What it changed in its argument.
    pub changes: Vec<(&'static str, Value)>,
    /// How long it took.
    pub time: Duration,
}

const KFD: &str = "/dev/kfd";
const RENDER: &str = "/dev/dri/renderD";

impl Call {
    /// The call that `task` enters, if it is on a KFD or maps a buffer of a GPU.
    pub fn enter(task: Pid, process: &Process, entry: &Entry) -> Option<Call> {
        match entry.nr {
            libc::SYS_ioctl => Self::ioctl(task, process, entry),
            libc::SYS_mmap => Self::map(task, entry),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => Self::open(process, "open", entry.arguments[0], entry.arguments[1]),
            libc::SYS_openat => {
                Self::open(process, "openat", entry.arguments[1], entry.arguments[2])
            }
            libc::SYS_openat2 => {
                let flags = decode::Memory::read(process, entry.arguments[2], 8)?;
                let flags = u64::from_le_bytes(flags.try_into().ok()?);
                Self::open(process, "openat2", entry.arguments[1], flags)
            }
            _ => None,
        }
    }

    fn new(name: &str, kind: Kind, file: Option<(i32, String)>, before: Value) -> Self {
        Self {
            start: monotonic_ns(),
            name: name.to_owned(),
            kind,
            file,
            before,
        }
    }

    fn open(process: &Process, name: &str, path: u64, flags: u64) -> Option<Self> {
        let path = process.text(path)?;
        let path = path.to_str().filter(|path| is_gpu(path))?;
        let arguments = vec![
            ("path", Value::Name(path.to_owned())),
            ("flags", Value::Name(open_flags(flags))),
        ];
        Some(Self::new(name, Kind::Open, None, Value::Struct(arguments)))
    }

    fn map(task: Pid, entry: &Entry) -> Option<Self> {
        let [address, size, access, flags, fd, offset] = entry.arguments;
        let fd = fd as i32;
        let path = path_of(task, fd).filter(|path| is_gpu(path))?;
        let mut arguments = vec![
            ("addr", Value::Hex(address)),
            ("length", Value::Number(size as i64)),
            ("prot", Value::Name(protection(access))),
            ("flags", Value::Name(map_flags(flags))),
        ];
        arguments.extend(map_offset(&path, offset));
        let arguments = Value::Struct(arguments);
        Some(Self::new("mmap", Kind::Map, Some((fd, path)), arguments))
    }

    fn ioctl(task: Pid, process: &Process, entry: &Entry) -> Option<Self> {
        let [fd, request, address, ..] = entry.arguments;
        let (fd, request) = (fd as i32, request as u32);
        let path = path_of(task, fd).filter(|path| path == KFD)?;
        let size = (request >> 16 & 0x3fff) as usize;
        let found = kfd_uapi::ioctl_by_nr((request & 0xff) as u8);
        // A number that this kernel's header does not have is shown as a number.
        let name = found.map_or_else(
            || format!("ioctl number {:#x}, not in KFD 1.23", request & 0xff),
            |found| found.name.to_owned(),
        );
        let known = found.and_then(|found| Struct::by_name(found.arguments));
        let kind = Kind::Ioctl {
            known,
            address,
            size,
        };
        let mut call = Self::new(&name, kind, Some((fd, path)), Value::Struct(Vec::new()));
        call.before = call.argument(process);
        Some(call)
    }

    /// The argument as it is now in the process's memory.
    fn argument(&self, process: &Process) -> Value {
        let none = Value::Struct(Vec::new());
        let Kind::Ioctl {
            known: Some(known),
            address,
            size,
        } = self.kind
        else {
            return none;
        };
        match decode::Memory::read(process, address, size) {
            Some(bytes) => decode(known, &bytes, process),
            None => Value::Struct(vec![("unreadable", Value::Hex(address))]),
        }
    }

    /// Its end, with what the kernel wrote.
    pub fn leave(&self, process: &Process, outcome: Result<u64, i32>) -> End {
        let time = self.elapsed();
        if let (
            Ok(_),
            Kind::Ioctl {
                known: Some(known),
                address,
                size,
            },
        ) = (outcome, &self.kind)
        {
            note_event(process, known, *address, *size);
        }
        End {
            changes: self.argument(process).changed(&self.before),
            outcome: Some(outcome),
            time,
        }
    }

    /// The end of a call whose task ended in it.
    pub fn unfinished(&self) -> End {
        End {
            outcome: None,
            changes: Vec::new(),
            time: self.elapsed(),
        }
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(monotonic_ns().saturating_sub(self.start))
    }

    /// The file and arguments as a line of text has them.
    fn arguments(&self) -> String {
        let Value::Struct(fields) = &self.before else {
            return String::new();
        };
        let file = self.file.as_ref().map(|(fd, path)| format!("{fd}<{path}>"));
        let fields = match (&self.kind, fields.is_empty()) {
            (_, true) => None,
            (Kind::Ioctl { .. }, _) => Some(format!("{{{}}}", joined(fields))),
            _ => Some(joined(fields)),
        };
        [file, fields]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// One line for people.
    pub fn text(&self, task: Pid, since: u64, end: &End) -> String {
        let begin = seconds(since, self.start);
        let changes = if end.changes.is_empty() {
            String::new()
        } else {
            format!(" {{{}}}", joined(&end.changes))
        };
        format!(
            "{task:>7} {begin:10.6} {}({}) = {}{changes} <{:.6}>",
            self.name,
            self.arguments(),
            self.outcome(end),
            end.time.as_secs_f64()
        )
    }

    /// What it returned, as text.
    fn outcome(&self, end: &End) -> String {
        match (end.outcome, &self.kind) {
            (None, _) => "? (the task ended)".into(),
            (Some(Err(errno)), _) => {
                let errno = Errno::from_raw(errno);
                format!("-1 {errno:?} ({})", errno.desc())
            }
            (Some(Ok(value)), Kind::Map) => format!("{value:#x}"),
            (Some(Ok(value)), _) => value.to_string(),
        }
    }

    /// A number of the argument as the program gave it.
    pub fn before(&self, name: &str) -> Option<u64> {
        match &self.before {
            Value::Struct(fields) => number_in(fields, name),
            _ => None,
        }
    }

    /// A number of the argument as the kernel left it.
    pub fn after(&self, end: &End, name: &str) -> Option<u64> {
        number_in(&end.changes, name).or_else(|| self.before(name))
    }

    /// Whether a field of the argument is the constant `value`.
    pub fn says(&self, name: &str, value: &str) -> bool {
        let Value::Struct(fields) = &self.before else {
            return false;
        };
        let mut fields = fields.iter();
        fields.any(|(known, is)| *known == name && matches!(is, Value::Name(is) if is == value))
    }

    /// All of it, as text, for who shows more than lines.
    pub fn facts(&self, end: &End) -> Vec<(&'static str, kfd_timeline::Value)> {
        let mut facts = vec![
            ("argument", self.arguments().into()),
            ("result", self.outcome(end).into()),
        ];
        if !end.changes.is_empty() {
            facts.push(("changed", joined(&end.changes).into()));
        }
        facts
    }

    /// One object for programs.
    pub fn json(&self, task: Pid, leader: Pid, since: u64, end: &End) -> serde_json::Value {
        let (value, errno) = match end.outcome {
            None => (None, None),
            Some(Ok(value)) => (Some(value), None),
            Some(Err(errno)) => (None, Some(format!("{:?}", Errno::from_raw(errno)))),
        };
        json!({
            "pid": leader.as_raw(),
            "tid": task.as_raw(),
            "start": seconds(since, self.start),
            "seconds": end.time.as_secs_f64(),
            "call": self.name,
            "fd": self.file.as_ref().map(|(fd, _)| fd),
            "path": self.file.as_ref().map(|(_, path)| path),
            "arguments": self.before.json(),
            "changes": Value::Struct(end.changes.clone()).json(),
            "result": value,
            "errno": errno,
        })
    }
}

/// From one time of CLOCK_MONOTONIC to another.
fn seconds(since: u64, at: u64) -> f64 {
    Duration::from_nanos(at.saturating_sub(since)).as_secs_f64()
}

fn number_in(fields: &[(&'static str, Value)], name: &str) -> Option<u64> {
    let mut fields = fields.iter();
    match fields.find(|(known, _)| *known == name)?.1 {
        Value::Number(number) => u64::try_from(number).ok(),
        Value::Hex(number) | Value::At(number, _) => Some(number),
        _ => None,
    }
}

fn is_gpu(path: &str) -> bool {
    path == KFD || path.starts_with(RENDER)
}

/// Keeps the type of an event that was just made: later calls name only its id.
fn note_event(process: &Process, known: &Struct, address: u64, size: usize) {
    if known.name != "kfd_ioctl_create_event_args" {
        return;
    }
    let bytes = decode::Memory::read(process, address, size).unwrap_or_default();
    let field = |name| number_of(known, name, &bytes).map(|number| number as u32);
    if let (Some(id), Some(kind)) = (field("event_id"), field("event_type")) {
        process.created_event(id, kind);
    }
}

/// `offset` as the KFD reads it (`KFD_MMAP_TYPE_SHIFT`, `KFD_MMAP_GPU_ID_SHIFT` of kfd_priv.h).
fn map_offset(path: &str, offset: u64) -> Vec<(&'static str, Value)> {
    if path != KFD {
        return vec![("offset", Value::Hex(offset))];
    }
    let kind = ["MMIO", "RESERVED_MEM", "EVENTS", "DOORBELL"][(offset >> 62) as usize];
    let gpu_id = (offset >> 46 & 0xffff) as i64;
    let mut fields = vec![("type", Value::Name(kind.into()))];
    if gpu_id != 0 {
        fields.push(("gpu_id", Value::Number(gpu_id)));
    }
    let rest = offset & ((1 << 46) - 1);
    if rest != 0 {
        fields.push(("offset", Value::Hex(rest)));
    }
    fields
}

fn names(bits: u64, known: &[(u64, &str)], none: &str) -> String {
    let mut left = bits;
    let mut names = Vec::new();
    for (bit, name) in known {
        if left & bit == *bit {
            names.push((*name).to_owned());
            left &= !bit;
        }
    }
    if left != 0 {
        names.push(format!("{left:#x}"));
    }
    if names.is_empty() {
        return none.to_owned();
    }
    names.join("|")
}

fn protection(bits: u64) -> String {
    names(
        bits,
        &[(1, "PROT_READ"), (2, "PROT_WRITE"), (4, "PROT_EXEC")],
        "PROT_NONE",
    )
}

fn map_flags(bits: u64) -> String {
    let known = [
        (libc::MAP_SHARED_VALIDATE, "MAP_SHARED_VALIDATE"),
        (libc::MAP_SHARED, "MAP_SHARED"),
        (libc::MAP_PRIVATE, "MAP_PRIVATE"),
        (libc::MAP_FIXED, "MAP_FIXED"),
        (libc::MAP_FIXED_NOREPLACE, "MAP_FIXED_NOREPLACE"),
        (libc::MAP_NORESERVE, "MAP_NORESERVE"),
        (libc::MAP_POPULATE, "MAP_POPULATE"),
        (libc::MAP_LOCKED, "MAP_LOCKED"),
    ];
    names(bits, &known.map(|(bit, name)| (bit as u64, name)), "0")
}

fn open_flags(bits: u64) -> String {
    let access = ["O_RDONLY", "O_WRONLY", "O_RDWR", "3"][(bits & 3) as usize];
    let known = [
        (libc::O_CLOEXEC, "O_CLOEXEC"),
        (libc::O_NONBLOCK, "O_NONBLOCK"),
        (libc::O_SYNC, "O_SYNC"),
        // The kernel's value: the C library's is 0 where it is always on.
        (0o100000, "O_LARGEFILE"),
        (libc::O_NOCTTY, "O_NOCTTY"),
    ];
    let known: Vec<_> = known
        .iter()
        .filter(|(bit, _)| *bit != 0)
        .map(|(bit, name)| (*bit as u64, *name))
        .collect();
    let rest = names(bits & !3, &known, "");
    if rest.is_empty() {
        access.into()
    } else {
        format!("{access}|{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kfd_offset_is_split_into_its_meaning() {
        let offset = 3 << 62 | 35969 << 46 | 0x1000;
        let text = joined(&map_offset(KFD, offset));
        assert_eq!(text, "type=DOORBELL, gpu_id=35969, offset=0x1000");
    }

    #[test]
    fn flags_are_words() {
        assert_eq!(map_flags(0x11), "MAP_SHARED|MAP_FIXED");
        assert_eq!(protection(3), "PROT_READ|PROT_WRITE");
        assert_eq!(open_flags(0x80002), "O_RDWR|O_CLOEXEC");
        assert_eq!(open_flags(0), "O_RDONLY");
    }
}
