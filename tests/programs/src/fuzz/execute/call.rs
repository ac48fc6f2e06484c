// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! An ioctl of a line: the struct from the fields by their names, as the header lays them out.

use super::super::abi::{Access, Fields, Request, Stance};
use super::super::program::{Line, Value};
use super::open_files::Origin;
use super::World;
use kfd_uapi::reflect::{Field, Kind, Struct};
use kfd_uapi::{kfd_event_data, Ioctl, IOCTLS};
use nix::libc;

/// Room for every size that a request can say.
const ROOM: usize = 1 << 14;

/// What of an ioctl's struct later lines want to know; whether it is a file.
const GIVEN: &[(&str, &str, bool)] = &[
    ("ALLOC_MEMORY_OF_GPU", "handle", false),
    ("IMPORT_DMABUF", "handle", false),
    ("CREATE_QUEUE", "queue_id", false),
    ("CREATE_EVENT", "event_id", false),
    ("EXPORT_DMABUF", "dmabuf_fd", true),
    ("SMI_EVENTS", "anon_fd", true),
];

/// The words of a `struct kfd_event_data`, and which of them is the event's id.
const EVENT_WORDS: usize = size_of::<kfd_event_data>() / 4;
const EVENT_ID: usize = std::mem::offset_of!(kfd_event_data, event_id) / 4;

/// The argument of a call and what it points to.
struct Argument {
    bytes: Vec<u64>,
    /// The events that it lists, as many as it says.
    events: Vec<u64>,
    /// Kept until the call is over.
    behind: Vec<Vec<u32>>,
}

/// What of a line is no field of the call's struct: the file, and how many bytes the request says.
const APART: &[&str] = &["fd", "request_bytes"];

impl World<'_> {
    /// `traces`: whether the thread traces the process with an id.
    pub fn ioctl(&self, line: &Line, traces: &dyn Fn(u32) -> bool) {
        let Some(ioctl) = IOCTLS.iter().find(|ioctl| ioctl.name == line.call) else {
            return self
                .shared
                .complain(&format!("no such call: {}", line.call));
        };
        let known = Struct::by_name(ioctl.arguments);
        let mut argument = self.argument(line, known);
        let before = argument.bytes.clone();
        let file = self.file_of(line);
        let fields = |words| Fields { known, words };
        let mut request = Request {
            call: ioctl.name,
            access: file.access,
            fields: fields(&before),
            events: &argument.events,
            list: None,
            stance: None,
        };
        let turn = self.turn(&request);
        let renames = ioctl.name == "CREATE_PROCESS";
        let file = if renames { self.blur(file) } else { file };
        let ticket = self.abi().begin(&request);
        let place = argument.bytes.as_mut_ptr();
        let number = self.request(line, ioctl);
        // SAFETY: the kernel writes as many bytes as the request says, for which there is room; and
        // through pointers in the struct, which are to lists that live as long, to memory of this
        // process that is set aside for that, or to nothing that is mapped.
        let call = || unsafe { libc::ioctl(file.number, number.into(), place) };
        let outcome = self.waits.during(ioctl.name, call);
        let errno = match outcome {
            0.. => 0,
            _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        };
        if renames {
            self.renamed(file, errno == 0);
        } else if !self.is_still(file) {
            request.access = Access::Unknown;
        }
        request.list = argument.behind.first().map(Vec::as_slice);
        request.stance = self.stance(&request, traces, turn);
        let outcome = match errno {
            0 => Ok(outcome as u64),
            _ => Err(errno),
        };
        let answer = fields(&argument.bytes);
        for wrong in self.abi().end(&ticket, &request, answer, outcome) {
            self.shared.complain(&format!("{wrong}: {line}"));
        }
        self.shared.tally.count(ioctl.name, errno == 0);
        if errno == 0 {
            self.keep(line, ioctl, known, &argument.bytes);
        }
        drop(argument.behind);
    }

    /// That a call is about to be made that may begin or end a session.
    fn turn(&self, request: &Request<'_>) -> u32 {
        let pid = request.fields.get("pid").unwrap_or(0) as u32;
        match request.changes_sessions() {
            true => self.shared.turns(pid).begin(),
            false => 0,
        }
    }

    /// What this process is to the one that DBG_TRAP names, if that is one of the program's.
    fn stance(
        &self,
        request: &Request<'_>,
        traces: &dyn Fn(u32) -> bool,
        turn: u32,
    ) -> Option<Stance> {
        let pid = request.fields.get("pid")? as u32;
        self.shared.knows(pid).then(|| Stance {
            own: pid == std::process::id(),
            traces: traces(pid),
            turn,
            begun: self.shared.turns(pid).begun(),
        })
    }

    /// The request's number, with another size where the line has one.
    fn request(&self, line: &Line, ioctl: &Ioctl) -> u32 {
        match line.field("request_bytes") {
            Some(bytes) => {
                let bytes = self.value(bytes).min(ROOM as u64 - 1) as u32;
                ioctl.request & !(0x3fff << 16) | bytes << 16
            }
            None => ioctl.request,
        }
    }

    fn argument(&self, line: &Line, known: Option<&Struct>) -> Argument {
        let mut argument = Argument {
            bytes: vec![0; ROOM / 8],
            events: Vec::new(),
            behind: Vec::new(),
        };
        let apart = |name: &str| APART.contains(&name);
        for (name, value) in line.fields.iter().filter(|(name, _)| !apart(name)) {
            let Some((offset, bytes)) = place(known, name) else {
                self.shared.complain(&format!("no such field: {line}"));
                continue;
            };
            let number = match value {
                Value::Words(words) => argument.list(self.words(words)),
                Value::Events(events) => {
                    let words = self.events(events);
                    let ids = words.chunks(EVENT_WORDS).map(|data| data[EVENT_ID].into());
                    argument.events = ids.collect();
                    argument.list(words)
                }
                _ => self.value(value),
            };
            argument.write(offset, bytes, number);
        }
        let listed = self.number(line, "num_events") as u32 as usize;
        argument.events.truncate(listed);
        argument
    }

    fn words(&self, words: &[Value]) -> Vec<u32> {
        words.iter().map(|word| self.value(word) as u32).collect()
    }

    /// As `struct kfd_event_data`, with the age where those of signals have it.
    fn events(&self, events: &[(Value, u64)]) -> Vec<u32> {
        let mut words = vec![0; events.len() * EVENT_WORDS];
        for (data, (event, age)) in words.chunks_mut(EVENT_WORDS).zip(events) {
            data[0] = *age as u32;
            data[1] = (age >> 32) as u32;
            data[EVENT_ID] = self.value(event) as u32;
        }
        words
    }

    fn keep(&self, line: &Line, ioctl: &Ioctl, known: Option<&Struct>, bytes: &[u64]) {
        for (_, name, is_file) in GIVEN.iter().filter(|(call, ..)| *call == ioctl.name) {
            let Some((offset, size)) = place(known, name) else {
                continue;
            };
            let value = bytes[offset / 8] >> (offset % 8 * 8);
            let value = if size == 4 {
                u64::from(value as u32)
            } else {
                value
            };
            if *is_file {
                self.table().add(value as i32, Origin::Other);
            }
            self.gives(line, value);
        }
    }
}

impl Argument {
    fn list(&mut self, words: Vec<u32>) -> u64 {
        self.behind.push(words);
        self.behind.last().map_or(0, |words| words.as_ptr() as u64)
    }

    fn write(&mut self, offset: usize, bytes: usize, number: u64) {
        let Some(word) = self.bytes.get_mut(offset / 8) else {
            return;
        };
        if bytes == 8 {
            *word = number;
        } else {
            let shift = offset % 8 * 8;
            *word = *word & !(0xffff_ffff << shift) | u64::from(number as u32) << shift;
        }
    }
}

/// Where the field called `name` lies and how many bytes it has; `@12` is the word at byte 12,
/// `enable.dbg_fd` the second field of a member of an unnamed union.
pub fn place(known: Option<&Struct>, name: &str) -> Option<(usize, usize)> {
    if let Some(offset) = name.strip_prefix('@') {
        return Some((offset.parse::<usize>().ok()? & !3, 4));
    }
    let known = known?;
    let named = |known: &'static Struct, name: &str| -> Option<&'static Field> {
        known.fields.iter().find(|field| field.name == name)
    };
    if let Some((member, name)) = name.split_once('.') {
        let inside = |kind: &Kind| match kind {
            Kind::Struct(name) => Struct::by_name(name),
            _ => None,
        };
        let union = known.fields.iter().find(|field| field.name.is_empty())?;
        let member = named(inside(&union.kind)?, member)?;
        let (offset, bytes) = place(inside(&member.kind), name)?;
        return Some((union.offset + member.offset + offset, bytes));
    }
    let field: &Field = known.fields.iter().find(|field| field.name == name)?;
    match field.kind {
        Kind::Word => Some((field.offset, 4)),
        Kind::Long => Some((field.offset, 8)),
        Kind::Array(..) | Kind::Struct(_) | Kind::Tail => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_longs_are_written_where_they_belong() {
        let mut argument = Argument {
            bytes: vec![0; 2],
            events: Vec::new(),
            behind: Vec::new(),
        };
        argument.write(8, 8, 0x1122_3344_5566_7788);
        argument.write(4, 4, 0xaabb_ccdd);
        argument.write(0, 4, 1);
        argument.write(12, 4, 2);
        assert_eq!(argument.bytes, [0xaabb_ccdd_0000_0001, 0x2_5566_7788]);
        argument.write(1 << 20, 4, 2);
    }

    #[test]
    fn members_of_unnamed_unions_have_places() {
        let known = Struct::by_name("kfd_ioctl_dbg_trap_args");
        for (name, found) in [
            ("op", Some((4, 4))),
            ("enable.exception_mask", Some((8, 8))),
            ("enable.dbg_fd", Some((28, 4))),
            ("resume_queues.num_queues", Some((16, 4))),
            ("enable.none", None),
            ("none.dbg_fd", None),
        ] {
            assert_eq!(place(known, name), found, "{name}");
        }
    }

    #[test]
    fn what_calls_give_is_in_their_structs() {
        for (call, field, _) in GIVEN {
            let ioctl = IOCTLS.iter().find(|ioctl| ioctl.name == *call).unwrap();
            assert!(
                place(Struct::by_name(ioctl.arguments), field).is_some(),
                "{call}"
            );
        }
    }
}
