// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Warnings of what software can cause as often as it likes: a wave in a loop, an indirect buffer
//! that is chained to itself. Each place in the source says the first few of each queue, and then
//! those whose number is a power of two, so that no program fills the host's disk; how many there
//! were is in the report. One [`Limited`] per GPU in its processors, one in its hubs, and one for
//! its BARs.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::processor::lock;

/// How many of a kind are told one by one.
const FIRST: u64 = 16;

/// What has been said so far.
#[derive(Debug, Default)]
pub struct Limited {
    /// By the place in the source, and whose it is.
    seen: Mutex<HashMap<(&'static str, u32), u64>>,
}

impl Limited {
    /// Counts one that `site`, a place in the source, has to say of `whose`: a queue's slot or the
    /// like, of which a GPU has few. Its number, if it is to be said.
    pub fn next(&self, site: &'static str, whose: u32) -> Option<u64> {
        let mut seen = lock(&self.seen);
        let times = seen.entry((site, whose)).or_default();
        *times += 1;
        (*times <= FIRST || times.is_power_of_two()).then_some(*times)
    }
}

/// `tracing::warn!` with how often this place has had something to say of `whose`, if it is to be
/// said.
macro_rules! warn_limited {
    ($limited:expr, $whose:expr, $($what:tt)+) => {
        if let Some(times) = $limited.next(concat!(file!(), ":", line!()), $whose) {
            tracing::warn!(times, $($what)+);
        }
    };
}
pub(crate) use warn_limited;

/// Counts warnings, for tests.
#[cfg(test)]
pub mod told {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    use tracing::span;

    /// Counts what is said on a thread.
    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicUsize>);

    impl tracing::Subscriber for Lines {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() <= tracing::Level::WARN
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    /// How many warnings `work` makes.
    pub fn lines(work: impl FnOnce()) -> usize {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), work);
        lines.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_of_many_are_told_for_each() {
        let limited = Limited::default();
        let told = |site, whose| {
            let all = (0..10_000).filter_map(|_| limited.next(site, whose));
            all.collect::<Vec<_>>()
        };
        let expected: Vec<u64> = (1..=16).chain((5..14).map(|power| 1 << power)).collect();
        assert_eq!(told("here", 1), expected);
        assert_eq!(told("here", 2), expected);
        assert_eq!(told("there", 1), expected);
        assert_eq!(limited.next("here", 1), None);
    }
}
