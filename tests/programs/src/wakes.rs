// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Wake-ups: pairs of threads that wake each other through two events and wait for ever each time.
//! One wake-up that is lost, in the moment in which a waiter goes to sleep, and a pair stands
//! still.

use anyhow::{bail, Context, Result};
use clap::Args;
use kfd::{topology, Device, Event, EventKind, Events, Kfd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How many, and how often.
#[derive(Args)]
pub struct Wakes {
    /// Pairs of threads.
    #[arg(long, default_value_t = 4)]
    pairs: usize,
    /// How often each wakes the other.
    #[arg(long, default_value_t = 5000)]
    rounds: u64,
    /// After how many seconds without a round a pair stands still.
    #[arg(long, default_value_t = 60)]
    patience: u64,
}

/// Two events, and how many rounds have been made with them.
struct Pair {
    there: Event,
    back: Event,
    rounds: AtomicU64,
}

impl Pair {
    fn new(events: &Arc<Events>) -> Result<Self> {
        let event = || Event::new(events, EventKind::Signal, true);
        Ok(Self {
            there: event()?,
            back: event()?,
            rounds: AtomicU64::new(0),
        })
    }

    fn ask(&self, rounds: u64) -> Result<()> {
        for round in 1..=rounds {
            self.there.set()?;
            self.back.wait(None)?;
            self.rounds.store(round, Ordering::Relaxed);
        }
        Ok(())
    }

    fn answer(&self, rounds: u64) -> Result<()> {
        for _ in 0..rounds {
            self.there.wait(None)?;
            self.back.set()?;
        }
        Ok(())
    }
}

impl Wakes {
    pub fn run(&self) -> Result<()> {
        let node = topology::gpus()?.into_iter().next().context("no GPU")?;
        let device = Device::acquire(&Kfd::open()?, &node)?;
        let events = Events::new(&device)?;
        let pairs: Vec<Arc<Pair>> = (0..self.pairs)
            .map(|_| Pair::new(&events).map(Arc::new))
            .collect::<Result<_>>()?;
        let rounds = self.rounds;
        let mut threads = Vec::new();
        for pair in &pairs {
            let (one, other) = (pair.clone(), pair.clone());
            threads.push(thread::spawn(move || one.ask(rounds)));
            threads.push(thread::spawn(move || other.answer(rounds)));
        }
        self.watch(&pairs)?;
        for thread in threads {
            thread.join().expect("no thread panics")?;
        }
        println!("{} pairs woke each other {rounds} times", self.pairs);
        Ok(())
    }

    /// Until all rounds are made. An error: a pair stands still; its threads end with the process.
    fn watch(&self, pairs: &[Arc<Pair>]) -> Result<()> {
        let mut last = vec![(0, Instant::now()); pairs.len()];
        loop {
            for (index, (pair, last)) in pairs.iter().zip(&mut last).enumerate() {
                let rounds = pair.rounds.load(Ordering::Relaxed);
                if rounds != last.0 {
                    *last = (rounds, Instant::now());
                }
                if rounds < self.rounds && last.1.elapsed() > Duration::from_secs(self.patience) {
                    bail!("pair {index} stands still after {rounds} rounds: a wake-up is lost");
                }
            }
            if last.iter().all(|(rounds, _)| *rounds == self.rounds) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
