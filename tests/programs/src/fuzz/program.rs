// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Program`]: what the fuzzer runs, as data. A line for each call; the text that is recorded,
//! replayed and shrunk is the same program again.
//!
//! ```text
//! 0.0 SETUP
//! 0.0 h1 = ALLOC_MEMORY_OF_GPU gpu_id=$gpu va_addr=$place+0x40000 size=0x1000 flags=0x1
//! 0.1 MAP_MEMORY_TO_GPU handle=%h1 device_ids_array_ptr=[$gpu] n_devices=0x1
//! ```
//!
//! `0.1` is thread 1 of process 0. `$gpu` is what [`super::execute`] has prepared, `%h1` what the
//! line with that label gave; where that line was left out or failed, `%h1` is [`MISSING`], so that
//! a program without some of its lines is still a program.

use anyhow::{bail, ensure, Context, Result};
use std::fmt;
use std::str::FromStr;

/// What a label means whose line gave nothing.
pub const MISSING: u64 = 0x7777;

/// All lines in the order in which they were written or, in a record, begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub lines: Vec<Line>,
}

/// One call of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub process: u8,
    pub thread: u8,
    /// Under what name later lines know what it gives.
    pub label: Option<String>,
    /// An ioctl's name without `AMDKFD_IOC_`, or one of the words of [`super::execute`].
    pub call: String,
    /// Fields of the call's struct by their names in the header, and what the words take.
    pub fields: Vec<(String, Value)>,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Number(u64),
    /// `$name+offset`: what the process has prepared.
    Prepared(String, u64),
    /// `%label+offset`
    Label(String, u64),
    /// `[a b]`: the address of these 32-bit words.
    Words(Vec<Value>),
    /// `{event:age event:age}`: the address of as many `struct kfd_event_data`.
    Events(Vec<(Value, u64)>),
}

impl Line {
    pub fn new(process: u8, thread: u8, call: &str) -> Self {
        Self {
            process,
            thread,
            label: None,
            call: call.to_owned(),
            fields: Vec::new(),
        }
    }

    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.fields.push((name.to_owned(), value));
        self
    }

    /// The value of the field called `name`.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }
}

impl Program {
    /// One more than the highest number of a process.
    pub fn processes(&self) -> u8 {
        self.lines
            .iter()
            .map(|line| line.process + 1)
            .max()
            .unwrap_or(0)
    }

    /// Whether a line gives something by this name.
    pub fn has(&self, label: &str) -> bool {
        let mut labels = self.lines.iter().filter_map(|line| line.label.as_deref());
        labels.any(|known| known == label)
    }

    /// The lines of `process`.
    pub fn of(&self, process: u8) -> impl Iterator<Item = &Line> {
        self.lines
            .iter()
            .filter(move |line| line.process == process)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} ", self.process, self.thread)?;
        if let Some(label) = &self.label {
            write!(f, "{label} = ")?;
        }
        f.write_str(&self.call)?;
        for (name, value) in &self.fields {
            write!(f, " {name}={value}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, name, offset) = match self {
            Self::Number(number) => return write!(f, "{number:#x}"),
            Self::Prepared(name, offset) => ('$', name, offset),
            Self::Label(name, offset) => ('%', name, offset),
            Self::Words(values) => {
                let texts: Vec<String> = values.iter().map(Value::to_string).collect();
                return write!(f, "[{}]", texts.join(" "));
            }
            Self::Events(events) => {
                let text = |(event, age): &(Value, u64)| format!("{event}:{age:#x}");
                let texts: Vec<String> = events.iter().map(text).collect();
                return write!(f, "{{{}}}", texts.join(" "));
            }
        };
        write!(f, "{sign}{name}")?;
        match offset {
            0 => Ok(()),
            _ => write!(f, "+{offset:#x}"),
        }
    }
}

impl FromStr for Program {
    type Err = anyhow::Error;

    /// Empty lines and lines that begin with `#` say nothing.
    fn from_str(text: &str) -> Result<Self> {
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                let parsed: Result<Line> = line.parse();
                lines.push(parsed.with_context(|| format!("line {number}: {line}"))?);
            }
        }
        Ok(Self { lines })
    }
}

impl FromStr for Line {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = words(text).into_iter();
        let place = words.next().context("an empty line")?;
        let (process, thread) = place
            .split_once('.')
            .context("PROCESS.THREAD comes first")?;
        let mut call = words.next().context("no call")?;
        let mut label = None;
        if words.as_slice().first() == Some(&"=") {
            label = Some(call.to_owned());
            words.next();
            call = words.next().context("no call behind =")?;
        }
        let mut line = Line::new(process.parse()?, thread.parse()?, call);
        line.label = label;
        for word in words {
            let (name, value) = word.split_once('=').context("a field is NAME=VALUE")?;
            line.fields.push((name.to_owned(), value.parse()?));
        }
        Ok(line)
    }
}

/// The parts of a line: blanks within brackets part nothing.
fn words(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let part = |c: char| {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            _ => {}
        }
        c == ' ' && depth == 0
    };
    text.split(part).filter(|word| !word.is_empty()).collect()
}

impl FromStr for Value {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let inside = |open, close| text.strip_prefix(open)?.strip_suffix(close);
        if let Some(list) = inside('[', ']') {
            return Ok(Self::Words(
                list.split_whitespace()
                    .map(str::parse)
                    .collect::<Result<_>>()?,
            ));
        }
        if let Some(list) = inside('{', '}') {
            return Ok(Self::Events(
                list.split_whitespace().map(event).collect::<Result<_>>()?,
            ));
        }
        let (name, offset) = match text.split_once('+') {
            Some((name, offset)) => (name, number(offset)?),
            None => (text, 0),
        };
        if let Some(name) = name.strip_prefix('$') {
            return Ok(Self::Prepared(name.to_owned(), offset));
        }
        if let Some(name) = name.strip_prefix('%') {
            return Ok(Self::Label(name.to_owned(), offset));
        }
        ensure!(offset == 0, "an offset needs a name: {text}");
        Ok(Self::Number(number(name)?))
    }
}

fn event(text: &str) -> Result<(Value, u64)> {
    let (event, age) = text.split_once(':').context("an event is EVENT:AGE")?;
    Ok((event.parse()?, number(age)?))
}

/// A number, decimal or hexadecimal.
pub fn number(text: &str) -> Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match parsed {
        Ok(number) => Ok(number),
        Err(_) => bail!("not a number: {text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
0.0 SETUP
7.1 h1 = ALLOC_MEMORY_OF_GPU gpu_id=$gpu va_addr=$place+0x40000 size=0x1000
0.0 MAP_MEMORY_TO_GPU handle=%h1 device_ids_array_ptr=[$gpu 0x0 %q1+0x8] n_devices=0x3
0.0 WAIT_EVENTS events_ptr={%e1:0x0 0x5:0x2} num_events=0x2
0.0 WAIT_EVENTS events_ptr={} num_events=0x0
";

    #[test]
    fn what_is_printed_is_read_again() {
        let program: Program = TEXT.parse().unwrap();
        assert_eq!(program.lines.len(), 5);
        assert_eq!(program.to_string(), TEXT);
        assert_eq!(program.processes(), 8);
        assert_eq!(program.of(7).count(), 1);
    }

    #[test]
    fn comments_and_decimal_numbers_are_read() {
        let program: Program = "# seed 7\n\n  1.0 SLEEP ms=10\n".parse().unwrap();
        assert_eq!(program.to_string(), "1.0 SLEEP ms=0xa\n");
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        for text in [
            "x",
            "0 SETUP",
            "0.0",
            "0.0 h1 =",
            "0.0 SLEEP ms",
            "0.0 SLEEP ms=x",
            "0.0 SLEEP ms=5+1",
            "300.0 SETUP",
            "0.0 W e={1}",
        ] {
            let error = text.parse::<Program>().expect_err(text);
            assert!(error.to_string().contains("line 1"), "{error:#}");
        }
    }
}
