// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which file a line means, and whose it is: what [`super::super::abi`] may claim depends on that.

use super::super::abi::Access;
use super::super::program::{Line, Value};
use super::{Table, World};

/// A file that the lines opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    pub number: i32,
    origin: Origin,
    /// Another number each time that anything of it changes.
    change: u64,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A /dev/kfd, who opened it, and whose ids it has.
    Kfd(u32, Context),
    /// No /dev/kfd.
    Other,
}

/// Which of its process's contexts a /dev/kfd has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// The one that the file of SETUP has.
    First,
    /// One of its own.
    Other,
    /// Either.
    Unknown,
}

impl Origin {
    /// Of a /dev/kfd that this process has just opened.
    pub fn opened() -> Self {
        Self::Kfd(std::process::id(), Context::First)
    }

    /// Of a file that came with the number of who opened it, or 0 if it is no /dev/kfd.
    pub fn received(opener: u32) -> Self {
        match opener {
            0 => Self::Other,
            _ => Self::Kfd(opener, Context::Unknown),
        }
    }

    fn access(self) -> Access {
        match self {
            Self::Kfd(opener, _) if opener != std::process::id() => Access::Foreign,
            Self::Kfd(_, Context::First) => Access::Own,
            Self::Kfd(_, Context::Unknown) => Access::Unknown,
            Self::Kfd(_, Context::Other) | Self::Other => Access::Apart,
        }
    }
}

/// The file that a line uses.
#[derive(Clone, Copy)]
pub struct Used {
    pub number: i32,
    pub access: Access,
    /// None: it is the process's own of SETUP, which no line can close.
    change: Option<u64>,
}

impl Table {
    pub fn add(&mut self, number: i32, origin: Origin) {
        self.changes += 1;
        self.files.push(OpenFile {
            number,
            origin,
            change: self.changes,
        });
    }

    fn find(&self, number: i32) -> Option<OpenFile> {
        self.files.iter().find(|it| it.number == number).copied()
    }

    fn turn_into(&mut self, number: i32, origin: Origin) -> u64 {
        self.changes += 1;
        let file = self.files.iter_mut().find(|it| it.number == number);
        if let Some(file) = file {
            (file.origin, file.change) = (origin, self.changes);
        }
        self.changes
    }
}

impl World<'_> {
    fn own_access(&self) -> Access {
        match self.prepared.get() {
            Some(it) if it.process == std::process::id() => Access::Own,
            Some(_) => Access::Foreign,
            None => Access::Apart,
        }
    }

    /// The file of a line's `fd`; without one, that of SETUP.
    pub fn file_of(&self, line: &Line) -> Used {
        let number = match line.field("fd") {
            None => self.kfd(),
            Some(Value::Prepared(name, 0)) if name == "kfd" => self.kfd(),
            Some(file) => self.value(file) as i32,
        };
        if number == self.kfd() {
            return Used {
                number,
                access: self.own_access(),
                change: None,
            };
        }
        let known = self.table().find(number);
        Used {
            number,
            access: known.map_or(Access::Unknown, |it| it.origin.access()),
            change: known.map(|it| it.change).or(Some(0)),
        }
    }

    /// Whether nothing of the file has changed since then: its number is not another file's now.
    pub fn is_still(&self, used: Used) -> bool {
        match used.change {
            None => true,
            Some(change) => self.table().find(used.number).map(|it| it.change) == Some(change),
        }
    }

    /// Who opened file `number`, if it is a /dev/kfd; else 0.
    pub fn opener(&self, number: i32) -> u32 {
        if number == self.kfd() {
            return self.prepared.get().map_or(0, |it| it.process);
        }
        match self.table().find(number).map(|it| it.origin) {
            Some(Origin::Kfd(opener, _)) => opener,
            Some(Origin::Other) | None => 0,
        }
    }

    /// The file may be about to get a context of its own.
    pub fn blur(&self, file: Used) -> Used {
        if file.access == Access::Own && file.change.is_some() {
            let origin = Origin::Kfd(std::process::id(), Context::Unknown);
            let change = Some(self.table().turn_into(file.number, origin));
            return Used { change, ..file };
        }
        file
    }

    /// It has got one, or not.
    pub fn renamed(&self, file: Used, done: bool) {
        match (file.access, file.change) {
            (Access::Own, Some(_)) if self.is_still(file) => {
                let context = if done { Context::Other } else { Context::First };
                let origin = Origin::Kfd(std::process::id(), context);
                self.table().turn_into(file.number, origin);
            }
            (Access::Apart, _) => {}
            // It may have been any of the process's.
            _ if done => self.abi().lose(),
            _ => {}
        }
    }
}
