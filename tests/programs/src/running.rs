// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A kernel that runs until a flag ends it, for tests that take its memory or its queue away
//! meanwhile.

use crate::waves::{Gpu, GROUP};
use anyhow::{bail, ensure, Result};
use kfd::{topology, Device, Kfd, Memory, MemoryFlags};
use kfd_aql::{Launch, Queue, Signal};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a step may take on a loaded host.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The first two GPUs.
pub fn two_gpus(kfd: &Arc<Kfd>) -> Result<[Arc<Device>; 2]> {
    let nodes = topology::gpus()?;
    let [first, second, ..] = &nodes[..] else {
        bail!("two GPUs are needed");
    };
    Ok([Device::acquire(kfd, first)?, Device::acquire(kfd, second)?])
}

/// The kernel `tick` on a queue of its own.
pub struct Running {
    // The queue goes before what its kernel uses.
    _queue: Queue,
    _launch: Launch,
    done: Signal,
    flag: Memory,
    out: Memory,
}

impl Running {
    /// Starts it: it counts in the word at `ticks`, which the GPU can write.
    pub fn start(gpu: &Gpu, ticks: u64) -> Result<Self> {
        let flag = Memory::gtt(gpu.device(), 4096)?;
        let out = Memory::gtt(gpu.device(), 4 * GROUP as usize)?;
        flag.write(0, &[0u32]);
        let arguments = [flag.address(), ticks, out.address()].map(u64::to_le_bytes);
        let launch = gpu.launch("tick", GROUP, &arguments.concat())?;
        let done = gpu.signal()?;
        let queue = Queue::new(gpu.device(), 64)?;
        launch.submit(&queue, &done)?;
        Ok(Self {
            _queue: queue,
            _launch: launch,
            done,
            flag,
            out,
        })
    }

    /// Where it looks whether it shall end, its signal, and where it writes what it has.
    pub fn places(&self) -> (u64, u64, u64) {
        let (flag, out) = (self.flag.address(), self.out.address());
        (flag, self.done.address(), out)
    }

    /// Tells it to end, and looks at what its registers held.
    pub fn finish(self) -> Result<()> {
        ensure!(
            self.done.load() == 1,
            "the kernel ended before it was told to"
        );
        self.flag.write(0, &[1u32]);
        self.done.wait(PATIENCE)?;
        let right: Vec<u32> = (0..GROUP).map(|item| item * 3 + 1).collect();
        let got = self.out.read::<u32>(0, GROUP as usize);
        ensure!(got == right, "wrong results");
        Ok(())
    }
}

/// Waits until what `read` reads has changed twice: somebody writes to it now.
pub fn moves(read: impl Fn() -> u32) -> bool {
    let begin = Instant::now();
    let mut last = read();
    let mut changes = 0;
    while changes < 2 && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
        let now = read();
        changes += u32::from(now != last);
        last = now;
    }
    changes == 2
}

/// Says so at once to whoever started this.
pub fn say(word: &str) -> Result<()> {
    println!("{word}");
    Ok(std::io::stdout().flush()?)
}

/// A word for each page of memory, none like the next.
pub fn pattern(page: usize, seed: u32) -> u32 {
    (page as u32).wrapping_mul(2_654_435_761) ^ seed
}

/// Writes the pattern to the first word of each page.
pub fn fill(memory: &Memory, seed: u32) {
    for page in 0..memory.size() / 4096 {
        memory.write(page * 4096, &[pattern(page, seed)]);
    }
}

/// `mib` MiB of VRAM with the pattern of `seed`, and a word for [`Running`] to count in.
pub fn vram_and_ticks(device: &Arc<Device>, mib: usize, seed: u32) -> Result<(Memory, Memory)> {
    let flags = MemoryFlags::VRAM | MemoryFlags::PUBLIC | MemoryFlags::WRITABLE;
    let memory = Memory::allocate(device, mib << 20, flags)?;
    fill(&memory, seed);
    let ticks = Memory::gtt(device, 4096)?;
    ticks.write(0, &[0u32]);
    Ok((memory, ticks))
}

/// How many pages of `memory`, a multiple of 1 MiB, have another first word as the GPU sees it.
pub fn wrong_pages(gpu: &Gpu, memory: &Memory, seed: u32) -> Result<u32> {
    wrong_pages_at(
        gpu,
        [memory.address(), memory.size() as u64],
        seed,
        PATIENCE,
    )
}

/// The same of whatever is at an address, so many bytes, if that does not take longer.
pub fn wrong_pages_at(gpu: &Gpu, place: [u64; 2], seed: u32, patience: Duration) -> Result<u32> {
    Reader::new(gpu, place, seed)?.wrong_pages(patience)
}

/// Who does that later, and then makes nothing more.
pub struct Reader {
    // The queue goes before what its kernel uses.
    queue: Queue,
    done: Signal,
    launch: Launch,
    wrong: Memory,
}

impl Reader {
    pub fn new(gpu: &Gpu, [address, bytes]: [u64; 2], seed: u32) -> Result<Self> {
        let pages = (bytes / 4096) as u32;
        ensure!(pages % GROUP == 0, "{pages} pages are not whole groups");
        let wrong = Memory::gtt(gpu.device(), 4096)?;
        wrong.write(0, &[0u32]);
        let mut arguments = [address, wrong.address()].map(u64::to_le_bytes).concat();
        arguments.extend(seed.to_le_bytes());
        Ok(Self {
            launch: gpu.launch("verify", pages, &arguments)?,
            done: gpu.signal()?,
            queue: Queue::new(gpu.device(), 64)?,
            wrong,
        })
    }

    pub fn wrong_pages(self, patience: Duration) -> Result<u32> {
        self.launch.submit(&self.queue, &self.done)?;
        self.done.wait(patience)?;
        Ok(self.wrong.read::<u32>(0, 1)[0])
    }
}
