// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl bench`: what one dispatch costs, on the CPU and there and back.

use anyhow::{Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd};
use kfd_aql::{Arguments, BarrierAnd, CodeObject, Launch, Queue, Signals};
use std::time::{Duration, Instant};

/// How often.
#[derive(Args)]
pub struct Bench {
    /// The GPU to use, counted from 0.
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Dispatches for each figure.
    #[arg(long, default_value_t = 100)]
    repeat: u32,
}

const LIMIT: Duration = Duration::from_secs(60);

impl Bench {
    /// Measures, and prints a line for each figure, in microseconds.
    pub fn run(&self, json: bool) -> Result<()> {
        let kfd = Kfd::open()?;
        let gpus = topology::gpus()?;
        let node = gpus
            .get(self.gpu)
            .with_context(|| format!("no GPU {}: the KFD serves {}", self.gpu, gpus.len()))?;
        let device = Device::acquire(&kfd, node)?;
        let queue = Queue::new(&device, 4096)?;
        let done = Signals::new(&device, 64)?.signal(1)?;
        let code = CodeObject::load_one_of(&device, &kfd_examples::KERNELS)?;
        let cell = kfd::Memory::vram(&device, 4096)?;
        let arguments = Arguments::default().u64(cell.address()).u32(0);
        let (grid, group) = ([64, 1, 1], [64, 1, 1]);
        let empty = Launch::new(&device, &code, "spin", grid, group, arguments.bytes())?;

        let submit = self.times(|| {
            queue.submit(BarrierAnd::default())?;
            Ok(())
        })?;
        let barrier = BarrierAnd {
            completion: done.address(),
            ..BarrierAnd::default()
        };
        let there_and_back = self.times(|| {
            done.store(1);
            queue.submit(barrier)?;
            Ok(done.wait_busy(LIMIT)?)
        })?;
        let busy = self.times(|| {
            done.store(1);
            empty.submit(&queue, &done)?;
            Ok(done.wait_busy(LIMIT)?)
        })?;
        let asleep = self.times(|| {
            done.store(1);
            empty.submit(&queue, &done)?;
            Ok(done.wait_interrupt(LIMIT).map(drop)?)
        })?;
        let figures = [
            ("put a packet into the ring", submit),
            ("barrier packet, seen by a busy wait", there_and_back),
            ("empty kernel, seen by a busy wait", busy),
            ("empty kernel, woken by its interrupt", asleep),
        ];
        if json {
            let lines: Vec<_> = figures
                .iter()
                .map(|(name, times)| times.json(name))
                .collect();
            outln!("{}", serde_json::Value::from(lines));
        } else {
            outln!("{} times each on {device}, in us:", self.repeat.max(1));
            outln!("{:>12}{:>12}{:>12}", "least", "median", "99%");
            for (name, times) in figures {
                let Times {
                    least,
                    median,
                    most,
                } = times;
                outln!("{least:12.2}{median:12.2}{most:12.2}  {name}");
            }
        }
        Ok(())
    }

    fn times(&self, mut what: impl FnMut() -> Result<()>) -> Result<Times> {
        let mut times = Vec::new();
        for _ in 0..self.repeat.max(1) {
            let start = Instant::now();
            what()?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Times::of(times))
    }
}

/// What repeated work took, in microseconds.
#[derive(Clone, Copy)]
struct Times {
    least: f64,
    median: f64,
    /// What 99 of 100 did not exceed.
    most: f64,
}

impl Times {
    /// Of at least one.
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
        Self {
            least: at(0),
            median: at(50),
            most: at(99),
        }
    }

    fn json(&self, what: &str) -> serde_json::Value {
        serde_json::json!({
            "what": what,
            "least_us": self.least,
            "median_us": self.median,
            "p99_us": self.most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Times;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times = Times::of((1..=1000).rev().map(f64::from).collect());
        assert_eq!((times.least, times.median, times.most), (1.0, 501.0, 991.0));
        let one = Times::of(vec![7.0]);
        assert_eq!((one.least, one.median, one.most), (7.0, 7.0, 7.0));
    }
}
