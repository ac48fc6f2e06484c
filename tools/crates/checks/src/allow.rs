// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Lines that may be longer: a list with a reason for each entry, and each must be needed.

use anyhow::{bail, ensure, Context, Result};
use glob::Pattern;

/// Which lines of a file may be longer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Which {
    All,
    /// Those that are no comments, in a file of one pattern a line.
    Patterns,
    /// Rows of Markdown tables, which cannot be wrapped.
    Tables,
}

struct Entry {
    line: usize,
    glob: Pattern,
    which: Which,
    used: bool,
}

/// The list.
#[derive(Default)]
pub struct Allowed {
    entries: Vec<Entry>,
}

impl Allowed {
    /// Reads lines `GLOB WHICH REASON`; a `#` begins a comment.
    pub fn parse(text: &str) -> Result<Self> {
        let mut entries = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            let line_number = number + 1;
            entries.push(Entry::parse(line_number, line).context(format!("line {line_number}"))?);
        }
        Ok(Self { entries })
    }

    /// Whether this line of a file may be longer.
    pub fn permits(&mut self, path: &str, line: &str) -> bool {
        let entry = self
            .entries
            .iter_mut()
            .find(|entry| entry.permits(path, line));
        if let Some(entry) = entry {
            entry.used = true;
            return true;
        }
        false
    }

    /// A complaint for each entry that has permitted no line.
    pub fn unused(&self) -> Vec<String> {
        self.entries
            .iter()
            .filter(|entry| !entry.used)
            .map(|entry| {
                format!(
                    "line {} of the allowed: no line needs {}",
                    entry.line, entry.glob
                )
            })
            .collect()
    }
}

impl Entry {
    fn parse(number: usize, line: &str) -> Result<Self> {
        let mut words = line.split_whitespace();
        let glob = words.next().context("no GLOB")?;
        let which = match words.next() {
            Some("all") => Which::All,
            Some("patterns") => Which::Patterns,
            Some("tables") => Which::Tables,
            other => bail!("{other:?} is not all, patterns or tables"),
        };
        ensure!(words.next().is_some(), "no reason");
        Ok(Self {
            line: number,
            glob: Pattern::new(glob)?,
            which,
            used: false,
        })
    }

    fn permits(&self, path: &str, line: &str) -> bool {
        let applies = match self.which {
            Which::All => true,
            Which::Patterns => !line.starts_with('#'),
            Which::Tables => line.trim_start().starts_with('|'),
        };
        applies && self.glob.matches(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_files_and_lines() {
        let text = "# comment\n\nd/*.md tables a row is one line\nx patterns so\n";
        let mut allowed = Allowed::parse(text).unwrap();
        assert!(allowed.permits("d/e/a.md", "| a |"));
        assert!(!allowed.permits("d/a.md", "a"));
        assert!(!allowed.permits("a.md", "| a |"));
        assert_eq!(
            allowed.unused(),
            ["line 4 of the allowed: no line needs x".to_string()]
        );
        assert!(!allowed.permits("x", "# a comment"));
        assert!(allowed.permits("x", "^a pattern$"));
        assert!(allowed.unused().is_empty());
    }

    #[test]
    fn an_entry_needs_a_reason() {
        assert!(Allowed::parse("x all").is_err());
        assert!(Allowed::parse("x some reason").is_err());
    }
}
