// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Counts by name: what software asked for and the model does not (fully) do (the burndown list),
//! and work that was done. One per GPU.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::limited::Limited;

/// Counts by name.
#[derive(Debug, Default)]
pub struct Stats {
    /// Warnings of what is counted.
    pub limited: Limited,
    lacking: Mutex<BTreeMap<&'static str, u64>>,
    done: Mutex<BTreeMap<&'static str, u64>>,
}

impl Stats {
    /// Counts one.
    pub fn count(&self, name: &'static str) {
        *super::lock(&self.lacking).entry(name).or_default() += 1;
    }

    /// All counts.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        super::lock(&self.lacking)
            .iter()
            .map(|(name, count)| (*name, *count))
            .collect()
    }

    /// One count.
    pub fn get(&self, name: &str) -> u64 {
        super::lock(&self.lacking).get(name).copied().unwrap_or(0)
    }

    /// Counts work.
    pub fn work(&self, name: &'static str, count: u64) {
        if count != 0 {
            *super::lock(&self.done).entry(name).or_default() += count;
        }
    }

    /// How much of some work was done.
    pub fn done(&self, name: &str) -> u64 {
        super::lock(&self.done).get(name).copied().unwrap_or(0)
    }

    /// All work that was done.
    pub fn all_done(&self) -> Vec<(&'static str, u64)> {
        let done = super::lock(&self.done);
        done.iter().map(|(name, count)| (*name, *count)).collect()
    }
}
