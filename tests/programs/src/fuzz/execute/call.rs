// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! An ioctl of a line: the struct from the fields by their names, as the header lays them out.

use super::super::program::{Line, Value};
use super::World;
use kfd_uapi::reflect::{Field, Kind, Struct};
use kfd_uapi::{Ioctl, IOCTLS};
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

/// The argument of a call and what it points to.
struct Argument {
    bytes: Vec<u64>,
    /// Kept until the call is over.
    behind: Vec<Vec<u32>>,
}

impl World<'_> {
    pub fn ioctl(&self, line: &Line) {
        let Some(ioctl) = IOCTLS.iter().find(|ioctl| ioctl.name == line.call) else {
            return self
                .shared
                .complain(&format!("no such call: {}", line.call));
        };
        let known = Struct::by_name(ioctl.arguments);
        let mut argument = self.argument(line, known);
        let file = match line.field("fd") {
            Some(file) => self.value(file) as i32,
            None => self.kfd(),
        };
        let place = argument.bytes.as_mut_ptr();
        // SAFETY: the kernel writes as many bytes as the request says, for which there is room; and
        // through pointers in the struct, which are to lists that live as long, to memory of this
        // process that is set aside for that, or to nothing that is mapped.
        let outcome = unsafe { libc::ioctl(file, ioctl.request.into(), place) };
        self.shared.tally.count(ioctl.name, outcome == 0);
        if outcome == 0 {
            self.keep(line, ioctl, known, &argument.bytes);
        }
        drop(argument.behind);
    }

    fn argument(&self, line: &Line, known: Option<&Struct>) -> Argument {
        let mut argument = Argument {
            bytes: vec![0; ROOM / 8],
            behind: Vec::new(),
        };
        for (name, value) in line.fields.iter().filter(|(name, _)| name != "fd") {
            let Some((offset, bytes)) = place(known, name) else {
                self.shared.complain(&format!("no such field: {line}"));
                continue;
            };
            let number = match value {
                Value::Words(words) => argument.list(self.words(words)),
                Value::Events(events) => argument.list(self.events(events)),
                _ => self.value(value),
            };
            argument.write(offset, bytes, number);
        }
        argument
    }

    fn words(&self, words: &[Value]) -> Vec<u32> {
        words.iter().map(|word| self.value(word) as u32).collect()
    }

    /// As `struct kfd_event_data`, with the age where those of signals have it.
    fn events(&self, events: &[(Value, u64)]) -> Vec<u32> {
        use kfd_uapi::kfd_event_data as Data;
        let mut words = vec![0; events.len() * size_of::<Data>() / 4];
        for (data, (event, age)) in words.chunks_mut(size_of::<Data>() / 4).zip(events) {
            data[0] = *age as u32;
            data[1] = (age >> 32) as u32;
            data[std::mem::offset_of!(Data, event_id) / 4] = self.value(event) as u32;
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
                self.table().files.push(value as i32);
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

/// Where the field called `name` lies and how many bytes it has; `@12` is the word at byte 12.
fn place(known: Option<&Struct>, name: &str) -> Option<(usize, usize)> {
    if let Some(offset) = name.strip_prefix('@') {
        return Some((offset.parse::<usize>().ok()? & !3, 4));
    }
    let field: &Field = known?.fields.iter().find(|field| field.name == name)?;
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
