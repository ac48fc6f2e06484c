// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The host threads that run work-groups together. One [`Crew`] per GPU, except in synchronous
//! mode.

use rayon_core::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// As many threads as the host has cores.
pub struct Crew {
    pool: ThreadPool,
}

impl Crew {
    /// Starts the threads.
    pub fn new() -> Result<Self, ThreadPoolBuildError> {
        let pool = ThreadPoolBuilder::new()
            .thread_name(|index| format!("gpu-waves-{index}"))
            .build()?;
        Ok(Crew { pool })
    }

    /// How many threads.
    pub fn size(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Runs `work` on each of `states` at the same time, and waits for all of them.
    pub fn run<T: Send>(&self, states: &mut [T], work: impl Fn(&mut T) + Sync) {
        let work = &work;
        self.pool.in_place_scope(|scope| {
            let Some((mine, others)) = states.split_first_mut() else {
                return;
            };
            for state in others {
                scope.spawn(move |_| work(state));
            }
            work(mine);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_worked_on_once() {
        let crew = Crew::new().expect("threads");
        let mut states = vec![0; 9];
        crew.run(&mut states, |state| *state += 1);
        assert_eq!(states, [1; 9]);
        crew.run(&mut [0; 0], |_| {});
    }
}
