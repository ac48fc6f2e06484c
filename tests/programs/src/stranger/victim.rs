// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The process that is not to notice anything.

use super::SECRET;
use crate::running::{say, Running};
use crate::waves::Gpu;
use anyhow::{ensure, Context, Result};
use kfd::{Event, EventKind, Kfd, Memory, Queue, QueueKind, QueueMemory};
use std::time::{Duration, Instant};

/// What the kernel calls the victim's buffer, queue and event.
pub struct Names {
    pub handle: u64,
    pub queue: u32,
    pub event: u32,
}

impl Names {
    pub fn of(numbers: &[u64]) -> Result<Self> {
        let [handle, queue, event] = numbers else {
            anyhow::bail!("three names, not {numbers:?}");
        };
        Ok(Self {
            handle: *handle,
            queue: u32::try_from(*queue)?,
            event: u32::try_from(*event)?,
        })
    }
}

/// How much it has of either memory.
const SIZE: usize = 4 << 20;

struct Victim {
    queue: Queue,
    event: Event,
    ticks: Memory,
    secrets: Option<[Memory; 2]>,
    gpu: Gpu,
}

/// Says its names, and then answers each line: "look", "turns MILLISECONDS", "free".
pub fn run() -> Result<()> {
    let mut victim = Victim::new()?;
    let names = [
        victim.secrets.as_ref().context("its memory")?[0].handle(),
        victim.queue.id().into(),
        victim.event.id().into(),
    ];
    say(&names.map(|name| name.to_string()).join(","))?;
    for line in std::io::stdin().lines() {
        let answer = victim.answer(&line?)?;
        say(&answer)?;
    }
    Ok(())
}

impl Victim {
    fn new() -> Result<Self> {
        let gpu = Gpu::open(4)?;
        let secrets = [
            Memory::vram(gpu.device(), SIZE)?,
            Memory::gtt(gpu.device(), SIZE)?,
        ];
        for memory in &secrets {
            memory.write(0, &vec![SECRET; SIZE / 8]);
        }
        let place = QueueMemory {
            ring: Memory::gtt(gpu.device(), 0x4000)?.into(),
            ring_size: 0x4000,
            indices: Memory::gtt(gpu.device(), 4096)?.into(),
            write_index: 0,
            read_index: 0x80,
        };
        let signal = gpu.signal()?;
        let event = Event::new(signal.event().events(), EventKind::Signal, false)?;
        Ok(Self {
            queue: Queue::create(gpu.device(), QueueKind::Aql, place)?,
            event,
            ticks: Memory::gtt(gpu.device(), 4096)?,
            secrets: Some(secrets),
            gpu,
        })
    }

    fn answer(&mut self, line: &str) -> Result<String> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("look", _) => self.look(),
            ("turns", time) => {
                let longest = self.turns(Duration::from_millis(time.parse()?))?;
                Ok(longest.as_micros().to_string())
            }
            ("free", _) => {
                self.secrets = None;
                Ok("freed".into())
            }
            _ => anyhow::bail!("what is {line}?"),
        }
    }

    fn look(&self) -> Result<String> {
        let memory = self.secrets.iter().flatten();
        let words = memory.map(|memory| memory.read::<u64>(0, SIZE / 8));
        if !words.flatten().all(|word| word == SECRET) {
            return Ok("changed".into());
        }
        if self.event.wait(Some(Duration::ZERO))? {
            return Ok("signaled".into());
        }
        self.turn()?;
        Ok("whole".into())
    }

    /// A new file, a new queue, a kernel on it, its end.
    fn turn(&self) -> Result<Duration> {
        let begin = Instant::now();
        drop(Kfd::open()?);
        Running::start(&self.gpu, self.ticks.address())?.finish()?;
        Ok(begin.elapsed())
    }

    /// The longest of the turns that begin within `time`.
    fn turns(&self, time: Duration) -> Result<Duration> {
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        while begin.elapsed() < time {
            longest = longest.max(self.turn()?);
        }
        ensure!(longest > Duration::ZERO, "no turn");
        Ok(longest)
    }
}
