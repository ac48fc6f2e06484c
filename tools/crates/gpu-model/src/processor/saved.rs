// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Waves and half-done packets of preempted queues, until the queue is mapped again. One [`Saved`]
//! per GPU for compute, one for SDMA.
//!
//! Stands for what real hardware writes to the context save area. The MQD carries a token, so that
//! another queue that gets the same MQD memory later does not get the old one's waves.

use std::collections::HashMap;

/// How many queues can be kept; beyond, the oldest is forgotten (its owner is dead: nobody takes
/// that long).
const MAX_KEPT: usize = 4096;

/// What is kept, by token.
pub struct Saved<F> {
    last: u32,
    kept: HashMap<u32, (u64, F)>,
}

impl<F> Default for Saved<F> {
    fn default() -> Self {
        Saved {
            last: 0,
            kept: HashMap::new(),
        }
    }
}

impl<F: Default> Saved<F> {
    /// Keeps what was in flight; the token is for the MQD.
    pub fn put(&mut self, mqd: u64, flight: F) -> u32 {
        self.kept.retain(|_, (of, _)| *of != mqd);
        if self.kept.len() >= MAX_KEPT {
            let oldest = self
                .kept
                .keys()
                .max_by_key(|token| self.last.wrapping_sub(**token))
                .copied();
            oldest.and_then(|token| self.kept.remove(&token));
        }
        self.last = self.last.wrapping_add(1).max(1);
        self.kept.insert(self.last, (mqd, flight));
        self.last
    }

    /// Gives it back, if it is this queue's; forgets whatever else is kept for this MQD address.
    pub fn take(&mut self, mqd: u64, token: u32) -> F {
        let is_ours = self.kept.get(&token).is_some_and(|(of, _)| *of == mqd);
        let flight = if is_ours {
            self.kept.remove(&token)
        } else {
            None
        };
        self.kept.retain(|_, (of, _)| *of != mqd);
        flight.map(|(_, flight)| flight).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let mut saved = Saved::<u64>::default();
        let tokens: Vec<u32> = (1..=4097).map(|mqd| saved.put(mqd, mqd)).collect();
        assert_eq!(saved.take(1, tokens[0]), 0);
        assert_eq!(saved.take(4096, tokens[4095]), 4096);
        assert_eq!(saved.take(2, tokens[1]), 2);
    }

    #[test]
    fn a_flight_comes_back_once_and_only_to_its_queue() {
        const NOTHING: u32 = 0;
        let mut saved = Saved::<u32>::default();
        let token = saved.put(0x1000, 7);
        assert_eq!(saved.take(0x2000, token), NOTHING);
        assert_eq!(saved.take(0x1000, token), 7);
        assert_eq!(saved.take(0x1000, token), NOTHING);
        saved.put(0x1000, 7);
        assert_eq!(saved.take(0x1000, 0), NOTHING, "a new MQD has no token");
        assert!(saved.kept.is_empty());
    }
}
