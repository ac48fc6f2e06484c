// SPDX-License-Identifier: GPL-2.0 OR MIT

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
    /// Measures, and prints a line for each figure: the median, in microseconds.
    pub fn run(&self, json: bool) -> Result<()> {
        let kfd = Kfd::open()?;
        let gpus = topology::gpus()?;
        let node = gpus
            .get(self.gpu)
            .with_context(|| format!("no GPU {}: the KFD serves {}", self.gpu, gpus.len()))?;
        let device = Device::acquire(&kfd, node)?;
        let queue = Queue::new(&device, 4096)?;
        let done = Signals::new(&device, 64)?.signal(1)?;
        let code = CodeObject::load(&device, kfd_examples::KERNELS)?;
        let cell = kfd::Memory::vram(&device, 4096)?;
        let arguments = Arguments::default().u64(cell.address()).u32(0);
        let (grid, group) = ([64, 1, 1], [64, 1, 1]);
        let empty = Launch::new(&device, &code, "spin", grid, group, arguments.bytes())?;

        let submit = self.median(|| {
            queue.submit(BarrierAnd::default());
            Ok(())
        })?;
        let barrier = BarrierAnd {
            completion: done.address(),
            ..BarrierAnd::default()
        };
        let there_and_back = self.median(|| {
            done.store(1);
            queue.submit(barrier);
            Ok(done.wait_busy(LIMIT)?)
        })?;
        let busy = self.median(|| {
            done.store(1);
            empty.submit(&queue, &done);
            Ok(done.wait_busy(LIMIT)?)
        })?;
        let asleep = self.median(|| {
            done.store(1);
            empty.submit(&queue, &done);
            Ok(done.wait(LIMIT).map(drop)?)
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
                .map(|(name, time)| serde_json::json!({ "what": name, "microseconds": time }))
                .collect();
            println!("{}", serde_json::Value::from(lines));
        } else {
            println!("median of {} on {device}:", self.repeat.max(1));
            for (name, time) in figures {
                println!("{time:12.2} us  {name}");
            }
        }
        Ok(())
    }

    fn median(&self, mut what: impl FnMut() -> Result<()>) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..self.repeat.max(1) {
            let start = Instant::now();
            what()?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}
