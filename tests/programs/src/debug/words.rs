// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Words`]: a step's words, and names of exceptions.

use anyhow::{Context, Result};
use kfd_uapi as uapi;

/// A step: words, and words with a value (`size=16`).
pub struct Words<'a> {
    pub plain: Vec<&'a str>,
    named: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    pub fn of(line: &'a str) -> Self {
        let (named, plain): (Vec<&str>, Vec<&str>) =
            line.split_whitespace().partition(|word| word.contains('='));
        Self {
            plain,
            named: named
                .iter()
                .filter_map(|word| word.split_once('='))
                .collect(),
        }
    }

    /// Without the first word.
    pub fn rest(&self) -> Self {
        Self {
            plain: self.plain.iter().skip(1).copied().collect(),
            named: self.named.clone(),
        }
    }

    /// The word at that place.
    pub fn word(&self, at: usize) -> Result<&'a str> {
        self.plain.get(at).copied().context("a word is missing")
    }

    /// The number at that place.
    pub fn number(&self, at: usize) -> Result<u64> {
        number(self.word(at)?)
    }

    /// The numbers from that place on.
    pub fn numbers(&self, at: usize) -> Result<Vec<u32>> {
        let words = self.plain.iter().skip(at);
        words.map(|word| Ok(number(word)? as u32)).collect()
    }

    pub fn value(&self, name: &str) -> Option<&'a str> {
        let found = self.named.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value)
    }

    /// The number behind a name, or what it is without.
    pub fn or(&self, name: &str, default: u64) -> Result<u64> {
        self.value(name).map_or(Ok(default), number)
    }

    /// The exceptions behind a name, or what they are without.
    pub fn exceptions(&self, name: &str, default: u64) -> Result<u64> {
        self.value(name).map_or(Ok(default), parse_exceptions)
    }
}

/// A number, decimal or hexadecimal; "-1" and the like are 64 bits.
pub fn number(text: &str) -> Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text
            .parse()
            .ok()
            .or_else(|| text.parse::<i64>().ok().map(|number| number as u64)),
    };
    parsed.with_context(|| format!("{text}: no number"))
}

/// Codes and names of exceptions (`enum kfd_dbg_trap_exception_code`).
fn codes() -> impl Iterator<Item = (&'static str, u32)> {
    uapi::reflect::constants("EC_").filter(|(name, _)| !matches!(*name, "NONE" | "MAX"))
}

/// The code of an exception, by name or as a number.
pub fn code(text: &str) -> Result<u32> {
    match codes().find(|(name, _)| *name == text) {
        Some((_, code)) => Ok(code),
        None => Ok(number(text)? as u32),
    }
}

/// A mask: "all", a number, or names with "|" between them.
fn parse_exceptions(text: &str) -> Result<u64> {
    if text == "all" {
        return Ok(u64::MAX);
    }
    if let Ok(mask) = number(text) {
        return Ok(mask);
    }
    text.split('|')
        .map(|name| Ok(1 << (code(name)? - 1)))
        .try_fold(0, |mask, bit: Result<u64>| Ok(mask | bit?))
}

/// A mask by its names.
pub fn show_exceptions(mask: u64) -> String {
    let mut left = mask;
    let mut names = Vec::new();
    for (name, code) in codes() {
        if left & 1 << (code - 1) != 0 {
            names.push(name.to_owned());
            left &= !(1 << (code - 1));
        }
    }
    if left != 0 || names.is_empty() {
        names.push(format!("{left:#x}"));
    }
    names.join("|")
}
