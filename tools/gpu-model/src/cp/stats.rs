// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The burndown list: what software asked for and the model does not (fully) do, by name. One per GPU.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// Counts by name.
#[derive(Debug, Default)]
pub struct Stats(Mutex<BTreeMap<&'static str, u64>>);

impl Stats {
    /// Counts one.
    pub fn count(&self, name: &'static str) {
        *super::lock(&self.0).entry(name).or_default() += 1;
    }

    /// All counts.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        super::lock(&self.0)
            .iter()
            .map(|(name, count)| (*name, *count))
            .collect()
    }

    /// One count.
    pub fn get(&self, name: &str) -> u64 {
        super::lock(&self.0).get(name).copied().unwrap_or(0)
    }
}
