// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Which batches are done: one line for each in a file that only grows, so that a run can be
//! stopped at any time. One per run.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::Path;

/// Finished batches: how many of their kernels failed and were refused by the compiler.
pub struct Progress {
    done: BTreeMap<u64, [u64; 2]>,
    /// Kernels in a batch.
    size: u64,
    file: Option<File>,
}

impl Progress {
    /// What the file remembers of batches of this size; nothing without a file.
    pub fn open(path: Option<&Path>, size: u64) -> Result<Progress> {
        let mut done = BTreeMap::new();
        let Some(path) = path else {
            return Ok(Progress {
                done,
                size,
                file: None,
            });
        };
        let text = std::fs::read_to_string(path).unwrap_or_default();
        for line in text.lines() {
            let words: Vec<u64> = line
                .split(' ')
                .filter_map(|word| word.parse().ok())
                .collect();
            // A line that was cut short is run again.
            if let [number, of, failed, refused] = words[..] {
                if of == size {
                    done.insert(number, [failed, refused]);
                }
            }
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("{}", path.display()))?;
        Ok(Progress {
            done,
            size,
            file: Some(file),
        })
    }

    /// Whether a batch is done.
    pub fn has(&self, number: u64) -> bool {
        self.done.contains_key(&number)
    }

    /// Remembers a batch: its failed and refused kernels.
    pub fn add(&mut self, number: u64, counts: [u64; 2]) -> Result<()> {
        self.done.insert(number, counts);
        let [failed, refused] = counts;
        if let Some(file) = &mut self.file {
            writeln!(file, "{number} {} {failed} {refused}", self.size).context("state file")?;
        }
        Ok(())
    }

    /// Kernels of these batches that passed, failed and were refused.
    pub fn totals(&self, batches: Range<u64>) -> [u64; 3] {
        let mut totals = [0; 3];
        for (_, [failed, refused]) in self.done.range(batches) {
            totals[0] += self.size.saturating_sub(failed + refused);
            totals[1] += failed;
            totals[2] += refused;
        }
        totals
    }
}
