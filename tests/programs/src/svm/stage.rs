// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Stage`]: a GPU whose kernels read and write memory of the process, and the faults that it
//! reports.

use super::world::PAGE;
use crate::running::{pattern, Running};
use crate::waves::{Gpu, GROUP};
use anyhow::{Context, Result};
use kfd::{Device, Event, EventKind, Memory};
use kfd_aql::{Launch, Queue, Signal};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a step may take on a loaded host.
const PATIENCE: Duration = Duration::from_secs(40);

/// How long a kernel may take that touches so many bytes: of more than the VRAM each 2 MiB come and
/// others go for them, which takes up to half a second on a busy host.
fn patience_for(size: u64) -> Duration {
    PATIENCE + Duration::from_secs(size >> 21)
}

/// How often a kernel's end and a fault are looked for.
const POLL: Duration = Duration::from_millis(2);
/// Signals of a GPU that are in use at the same time.
const SIGNALS: u32 = 32;
/// What the pattern multiplies a page's number by.
const FACTOR: u32 = 2_654_435_761;

/// A kernel on its way, and what it needs.
struct Started {
    _launch: Launch,
    done: Signal,
    out: Option<Memory>,
}

pub struct Stage {
    gpu: Gpu,
    queue: Queue,
    faults: Event,
    started: Vec<Started>,
    running: Option<Running>,
    /// A fault was reported: the queues are off for ever.
    lost: bool,
}

impl Stage {
    /// The process's first one, which has the event page.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        Self::of(Gpu::on(device.clone(), SIGNALS)?)
    }

    /// Another GPU of the process.
    pub fn beside(device: &Arc<Device>, first: &Self) -> Result<Self> {
        Self::of(first.gpu.beside(device.clone(), SIGNALS)?)
    }

    fn of(gpu: Gpu) -> Result<Self> {
        let signal = gpu.signal()?;
        let faults = Event::new(signal.event().events(), EventKind::Memory, false)?;
        Ok(Self {
            queue: Queue::new(gpu.device(), 64)?,
            gpu,
            faults,
            started: Vec::new(),
            running: None,
            lost: false,
        })
    }

    /// Submits a kernel with those arguments, for so many pages.
    fn submit(&mut self, kernel: &str, pages: u32, arguments: &[u8]) -> Result<()> {
        let items = pages.next_multiple_of(GROUP);
        let launch = self.gpu.launch(kernel, items, arguments)?;
        let done = self.gpu.signal()?;
        launch.submit(&self.queue, &done)?;
        self.started.push(Started {
            _launch: launch,
            done,
            out: None,
        });
        Ok(())
    }

    /// Starts to write the first word of each page.
    pub fn start(&mut self, [start, size]: [u64; 2], word: u32, mixed: bool) -> Result<()> {
        let pages = (size / PAGE) as u32;
        let mut arguments = start.to_le_bytes().to_vec();
        let factor = if mixed { FACTOR } else { 0 };
        for number in [pages, word, factor] {
            arguments.extend(number.to_le_bytes());
        }
        self.submit("scatter", pages, &arguments)
    }

    /// Waits for what was started last. A text: it faulted, or it does not end.
    fn finish(&mut self, patience: Duration) -> Result<std::result::Result<Started, String>> {
        let started = self.started.pop().context("nothing was started")?;
        let begin = Instant::now();
        while begin.elapsed() < patience {
            if started.done.load() <= 0 {
                return Ok(Ok(started));
            }
            if self.faults.wait(Some(POLL))? {
                // The fault may be an earlier kernel's; the queue is off in any case.
                self.lost = true;
                let said = self.fault()?;
                self.started.push(started);
                return Ok(Err(said));
            }
        }
        self.started.push(started);
        Ok(Err("it does not end".into()))
    }

    fn fault(&self) -> Result<String> {
        let fault = self.faults.fault().context("an event without a fault")?;
        Ok(format!(
            "fault: not present {}, read only {}, no execute {}",
            fault.not_present, fault.read_only, fault.no_execute
        ))
    }

    /// The GPU writes the first word of each page.
    pub fn write(&mut self, range: [u64; 2], word: u32, mixed: bool) -> Result<String> {
        if self.lost {
            return Ok("the queue is off".into());
        }
        self.start(range, word, mixed)?;
        Ok(match self.finish(patience_for(range[1]))? {
            Ok(_) => "done".into(),
            Err(said) => said,
        })
    }

    /// The same, which may never end.
    pub fn attempt(&mut self, range: [u64; 2], word: u32) -> Result<String> {
        self.start(range, word, false)?;
        let result = self.finish(PATIENCE / 20)?;
        self.lost = true;
        Ok(match result {
            Ok(_) => "done".into(),
            Err(said) => said,
        })
    }

    /// The first words of the pages as the GPU sees them.
    pub fn read(
        &mut self,
        [start, size]: [u64; 2],
    ) -> Result<std::result::Result<Vec<u32>, String>> {
        if self.lost {
            return Ok(Err("the queue is off".into()));
        }
        let pages = (size / PAGE) as u32;
        let out = Memory::gtt(self.gpu.device(), 4 * pages as usize)?;
        out.write(0, &vec![0x5a5a_5a5a_u32; pages as usize]);
        let mut arguments = [start, out.address()].map(u64::to_le_bytes).concat();
        arguments.extend(pages.to_le_bytes());
        self.submit("gather", pages, &arguments)?;
        if let Some(last) = self.started.last_mut() {
            last.out = Some(out);
        }
        Ok(self.finish(patience_for(size))?.map(|started| {
            let out = started.out.as_ref();
            out.map_or_else(Vec::new, |out| out.read::<u32>(0, pages as usize))
        }))
    }

    /// Starts a kernel that counts at an address.
    pub fn count(&mut self, address: u64) -> Result<()> {
        self.running = Some(Running::start(&self.gpu, address)?);
        Ok(())
    }

    /// Whether the kernel counts on, as `read` shows.
    pub fn counts(&mut self, read: impl Fn() -> Option<u32>) -> Result<String> {
        let begin = Instant::now();
        let mut last = read();
        let mut changes = 0;
        while begin.elapsed() < PATIENCE {
            if self.faults.wait(Some(POLL))? {
                self.lost = true;
                return self.fault();
            }
            let now = read();
            changes += u32::from(now != last);
            if changes == 3 {
                return Ok("it counts".into());
            }
            last = now;
        }
        Ok("it does not count".into())
    }

    /// Whether the kernel stands still, after the driver had time to stop it.
    pub fn stands(&mut self, read: impl Fn() -> Option<u32>) -> Result<String> {
        std::thread::sleep(Duration::from_millis(200));
        let first = read();
        if self.faults.wait(Some(Duration::from_millis(300)))? {
            self.lost = true;
            return self.fault();
        }
        Ok(match read() == first {
            true => "it stands".into(),
            false => "it counts".into(),
        })
    }

    /// The kernel that counts ends.
    pub fn end(&mut self) -> Result<String> {
        match self.running.take() {
            None => Ok("there is none".into()),
            Some(running) if self.lost => {
                std::mem::forget(running);
                Ok("the queue is off".into())
            }
            Some(running) => running.finish().map(|()| "it ended".into()),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What still runs goes with the process.
        std::mem::forget(std::mem::take(&mut self.started));
        std::mem::forget(self.running.take());
    }
}

/// The word of a page that `mixed` writing leaves.
pub fn mixed(page: usize, word: u32) -> u32 {
    pattern(page, word)
}
