// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Reads C headers as far as AMD's need it: macros, enumerations, structures of dwords and bit
//! fields.

use std::collections::HashMap;

/// A field of a structure or of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CField {
    /// Its name.
    pub name: String,
    /// Dword from the structure's beginning.
    pub dword: usize,
    /// Lowest bit.
    pub shift: u32,
    /// Bits.
    pub width: u32,
}

/// What a header defines.
#[derive(Default)]
pub struct Header {
    /// Macros: name, with parameters as in `NAME(x)`, to their text without comments.
    pub macros: HashMap<String, String>,
    /// Values of enumerations.
    pub values: HashMap<String, u32>,
    /// Names of macros and enumerations in capitals, to their values.
    numbers: HashMap<String, u32>,
    /// What is not for the preprocessor.
    code: String,
}

impl Header {
    /// Reads a header.
    pub fn parse(text: &str) -> Self {
        let text = without_comments(text).replace("\\\n", " ");
        let mut header = Header::default();
        for line in text.lines() {
            match line.trim_start().strip_prefix('#') {
                Some(directive) => header.define(directive),
                None => header.code.extend([line, "\n"]),
            }
        }
        header.enumerate_all();
        let values = header.values.iter().map(|(name, value)| (name, *value));
        let macros = header.macros.iter();
        let macros = macros
            .filter_map(|(name, text)| Some((name, number(text.split_whitespace().next()?)?)));
        let numbers = values.chain(macros);
        header.numbers = numbers
            .map(|(name, value)| (name.to_ascii_uppercase(), value))
            .collect();
        header
    }

    /// The number that a macro or an enumeration's name stands for, whatever its case.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(&name.to_ascii_uppercase()).copied()
    }

    /// The fields of a structure.
    pub fn structure(&self, name: &str) -> Vec<CField> {
        let words = words(&self.code);
        let begin = words.windows(3).position(|at| at == ["struct", name, "{"]);
        let begin = begin.unwrap_or_else(|| panic!("no struct {name}"));
        let mut members = Members::default();
        members.read(&words[begin + 3..], false);
        members.fields
    }

    fn define(&mut self, directive: &str) {
        let Some(rest) = directive.trim_start().strip_prefix("define") else {
            return;
        };
        let rest = rest.trim();
        let end = match rest.find(|c: char| !(c.is_alphanumeric() || c == '_')) {
            Some(end) if rest[end..].starts_with('(') => end + rest[end..].find(')').unwrap() + 1,
            Some(end) => end,
            None => return,
        };
        let (name, value) = rest.split_at(end);
        self.macros.insert(name.into(), value.trim().into());
    }

    fn enumerate_all(&mut self) {
        let code = std::mem::take(&mut self.code);
        let words = words(&code);
        for (at, word) in words.iter().enumerate() {
            match (*word, words.get(at + 1..)) {
                ("enum", Some(["{", rest @ ..])) => self.enumerate(rest),
                ("enum", Some([_, "{", rest @ ..])) => self.enumerate(rest),
                _ => {}
            }
        }
        self.code = code;
    }

    fn enumerate(&mut self, words: &[&str]) {
        let body = words.split(|word| *word == "}").next().unwrap();
        let mut next = 0;
        for item in body.split(|word| *word == ",") {
            match item {
                [name, "=", value] => {
                    next = number(value)
                        .or_else(|| self.values.get(*value).copied())
                        .unwrap();
                    self.values.insert(name.to_string(), next);
                }
                [name] => drop(self.values.insert(name.to_string(), next)),
                _ => continue,
            }
            next = next.wrapping_add(1);
        }
    }
}

/// Members of a structure or union while they are read.
#[derive(Default)]
struct Members {
    fields: Vec<CField>,
    bit: usize,
}

impl Members {
    /// Reads members to the closing brace; how many words they are, with the brace.
    fn read(&mut self, words: &[&str], is_union: bool) -> usize {
        let (first, mut last, mut at) = (self.bit, self.bit, 0);
        while words[at] != "}" {
            if is_union {
                self.bit = first;
            }
            at += match &words[at..] {
                [kind @ ("struct" | "union"), "{", rest @ ..] => {
                    let inside = 2 + self.read(rest, *kind == "union");
                    inside + rest_of_declaration(&words[at + inside..])
                }
                declaration => {
                    let length = rest_of_declaration(declaration);
                    self.declare(&declaration[..length - 1]);
                    length
                }
            };
            last = last.max(self.bit);
        }
        self.bit = last.next_multiple_of(32);
        at + 1
    }

    /// A member: type, name, and how many bits or elements.
    fn declare(&mut self, words: &[&str]) {
        let (name, width, count) = match words {
            [.., name, ":", bits] => (name, bits.parse().unwrap(), 1),
            [.., name, "[", count, "]"] => (name, 32, count.parse().unwrap()),
            [.., name] => (name, 32, 1),
            [] => return,
        };
        if width == 32 {
            self.bit = self.bit.next_multiple_of(32);
        }
        self.fields.push(CField {
            name: name.to_string(),
            dword: self.bit / 32,
            shift: self.bit as u32 % 32,
            width,
        });
        self.bit += width as usize * count;
    }
}

/// Words to the next semicolon, and it.
fn rest_of_declaration(words: &[&str]) -> usize {
    words.iter().position(|word| *word == ";").unwrap() + 1
}

/// A decimal or hexadecimal number, also in parentheses and with a suffix.
pub fn number(text: &str) -> Option<u32> {
    let text = text.trim_matches(['(', ')', 'L', 'U', 'u']);
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Where the next comment begins.
fn comment(text: &str) -> Option<usize> {
    let begins = |at: &usize| matches!(text.as_bytes().get(at + 1), Some(b'/' | b'*'));
    text.match_indices('/').map(|(at, _)| at).find(begins)
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(begin) = comment(rest) {
        out.push_str(&rest[..begin]);
        let end = if rest[begin..].starts_with("//") {
            "\n"
        } else {
            "*/"
        };
        let length = rest[begin + 2..]
            .find(end)
            .map_or(rest.len() - begin, |at| at + 2);
        let after = &rest[begin + length..];
        rest = after.strip_prefix("*/").unwrap_or(after);
        out.push(' ');
    }
    out + rest
}

fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for piece in text.split_whitespace() {
        let mut from = 0;
        for (at, sign) in piece.match_indices(|c: char| !(c.is_alphanumeric() || c == '_')) {
            words.extend([&piece[from..at], sign]);
            from = at + sign.len();
        }
        words.push(&piece[from..]);
    }
    words.retain(|word| !word.is_empty());
    words
}
