// SPDX-License-Identifier: GPL-2.0-only

//! A line of what C said: `kind name=value ... : index=word ...`, all in hexadecimal.

use crate::{
    gfx::testing::known,
    ids::{DoorbellIndex, GpuVa, IpVersion, UserVa},
};
use std::collections::HashMap;

pub(super) struct Line<'a> {
    pub(super) text: &'a str,
    pub(super) kind: &'a str,
    fields: HashMap<&'a str, &'a str>,
    /// What C made of them.
    made: &'a str,
}

impl<'a> Line<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let (given, made) = text.split_once(" :").unwrap_or((text, ""));
        let mut words = given.split(' ');
        Self {
            text,
            kind: words.next().unwrap_or(""),
            fields: words.filter_map(|word| word.split_once('=')).collect(),
            made,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.fields.get(name).copied()
    }

    pub(super) fn wide(&self, name: &str) -> u64 {
        let text = self
            .text(name)
            .unwrap_or_else(|| panic!("no {name}: {}", self.text));
        u64::from_str_radix(text, 16).unwrap_or_else(|_| panic!("{name}: {}", self.text))
    }

    pub(super) fn number(&self, name: &str) -> u32 {
        u32::try_from(self.wide(name)).unwrap_or_else(|_| panic!("{name}: {}", self.text))
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.wide(name) != 0
    }

    /// The numbers of a list with commas; none if there is no such list.
    pub(super) fn numbers(&self, name: &str) -> Vec<u32> {
        let list = self.text(name).unwrap_or("");
        let numbers = list.split(',').filter(|text| !text.is_empty());
        numbers
            .map(|text| u32::from_str_radix(text, 16).expect("a number"))
            .collect()
    }

    pub(super) fn gc(&self) -> IpVersion {
        let parts = self
            .text("gc")
            .unwrap_or_else(|| panic!("no core: {}", self.text));
        let parts: Vec<u8> = parts
            .split('.')
            .map(|part| part.parse().expect("a core"))
            .collect();
        IpVersion::new(parts[0], parts[1], parts[2])
    }

    pub(super) fn gpu(&self, name: &str) -> GpuVa {
        known(GpuVa::new(self.wide(name)))
    }

    pub(super) fn user(&self, name: &str) -> UserVa {
        known(UserVa::new(self.wide(name)))
    }

    pub(super) fn doorbell(&self) -> DoorbellIndex {
        known(DoorbellIndex::new(self.number("doorbell")))
    }

    /// The first `count` words of what C made.
    pub(super) fn words(&self, count: usize) -> Vec<u32> {
        let mut words = vec![0; count];
        for (index, word) in self.made().filter_map(|made| made.split_once('=')) {
            let number = |text| u32::from_str_radix(text, 16).expect("a word");
            let index = number(index) as usize;
            assert!(index < count, "longer than ours: {}", self.text);
            words[index] = number(word);
        }
        words
    }

    /// What C made, word by word.
    pub(super) fn made(&self) -> impl Iterator<Item = &'a str> {
        self.made.split(' ').filter(|word| !word.is_empty())
    }
}
