// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Hostile mode: the GPU does all that hardware may do and this model otherwise does not, chosen by
//! a seed. One [`Hostile`] per GPU, in its [`Chip`](crate::chip::Chip); without it every question
//! costs a look at an `Option`.
//!
//! What a correct driver and correct programs may not notice. What each behaviour is, and why
//! hardware may do it: Documentation/model.md, "Hostile mode".

pub mod caches;
pub mod hdp;
pub mod leftovers;
mod lines;
#[cfg(test)]
mod on_gpu;
pub mod translations;
pub mod wave;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The seed's choices.
pub struct Hostile {
    seed: AtomicU64,
    state: AtomicU64,
    /// How often a translation was used that the page tables did not have any more.
    pub stale_translations: AtomicU64,
    /// How often the GPU read what a CPU had overwritten.
    pub stale_reads: AtomicU64,
    /// How often a wave used a line that was not so any more.
    pub stale_lines: AtomicU64,
    /// How often something was read of which an L2 had something newer.
    pub unwritten: AtomicU64,
}

impl Hostile {
    /// Two runs with a seed and the same questions in the same order go the same way.
    pub fn new(seed: u64) -> Self {
        Self {
            seed: AtomicU64::new(seed),
            state: AtomicU64::new(seed),
            stale_translations: AtomicU64::new(0),
            stale_reads: AtomicU64::new(0),
            stale_lines: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
        }
    }

    /// The seed that chooses.
    pub fn seed(&self) -> u64 {
        self.seed.load(Ordering::Relaxed)
    }

    /// From now on this one does, from its beginning. What the last one has made late, stale or
    /// kept stays so.
    pub fn set_seed(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
        self.state.store(seed, Ordering::Relaxed);
    }

    /// For the model's report: that the mode was at work, and where to look when a program fails.
    pub fn report(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "# hostile: {} stale translations, {} stale reads of local memory, {} of cache lines, \
             {} of what was not written back\n",
            count(&self.stale_translations),
            count(&self.stale_reads),
            count(&self.stale_lines),
            count(&self.unwritten)
        )
    }

    /// The next number (SplitMix64, which needs no more state than this).
    pub fn number(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.state.fetch_add(STEP, Ordering::Relaxed);
        let mut mixed = state.wrapping_add(STEP);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// True once in `n` times.
    pub fn one_in(&self, n: u64) -> bool {
        self.number() % n == 0
    }

    /// A time of up to `longest`; short ones are more frequent.
    pub fn time(&self, longest: Duration) -> Duration {
        let micros = longest.as_micros() as u64 + 1;
        let under = self.number() % micros + 1;
        Duration::from_micros(self.number() % under)
    }

    /// Lets such a time pass.
    pub fn pause(&self, longest: Duration) {
        std::thread::sleep(self.time(longest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_all() {
        let numbers = |seed| {
            let hostile = Hostile::new(seed);
            [0; 4].map(|_| hostile.number())
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        let hostile = Hostile::new(1);
        hostile.number();
        hostile.set_seed(3);
        assert_eq!([0; 4].map(|_| hostile.number()), numbers(3));
        hostile.set_seed(3);
        assert_eq!(hostile.seed(), 3);
        let hits = (0..1000).filter(|_| hostile.one_in(4)).count();
        assert!((150..350).contains(&hits), "{hits}");
        let longest = Duration::from_millis(1);
        assert!((0..1000).all(|_| hostile.time(longest) <= longest));
    }
}
