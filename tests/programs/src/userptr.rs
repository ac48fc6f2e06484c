// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory of the process's own that a GPU writes to while the kernel takes it away, moves it,
//! shares it with a child or swaps it out. The GPU must go on where the memory is then, or fail as
//! it should.

mod alone;
mod job;
mod left;

use crate::cases;
use crate::running::{fill, moves, pattern, say, wrong_pages, Running, PATIENCE};
use crate::waves::Gpu;
use anyhow::{ensure, Context, Result};
use clap::{Args, ValueEnum};
use kfd::{Event, EventKind, Memory, Resets};
use rustix::mm::{
    madvise, mmap_anonymous, mprotect, munmap, Advice, MapFlags, MprotectFlags, ProtFlags,
};
use std::ffi::c_void;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Make it happen, each case in a process of its own, and print what came of it.
#[derive(Args)]
pub struct Userptr {
    /// This one alone.
    #[arg(long)]
    case: Option<Case>,
    /// Unmap memory of which a queue knows that hangs, once /tmp/hung is there, and say when that
    /// is done, in seconds of the machine's.
    #[arg(long, conflicts_with = "case")]
    hung: bool,
    /// Free memory that a kernel writes to as soon as the GPU's reset is told of, and say when that
    /// is done.
    #[arg(long, conflicts_with_all = ["case", "hung"])]
    reset: bool,
    /// Leave memory that a kernel writes to, and that may only be read for a while, to a child that
    /// shares the address space, and become another program that uses the GPU.
    #[arg(long, conflicts_with_all = ["case", "hung", "reset"])]
    left: bool,
    /// Use memory, and have it taken away for a while, when the process's leader has ended.
    #[arg(long, conflicts_with_all = ["case", "hung", "reset", "left"])]
    without_leader: bool,
    /// Be killed while many pages are being looked for.
    #[arg(long, conflicts_with_all = ["case", "hung", "reset", "left", "without_leader"])]
    killed: bool,
    /// Have a job of the render node write to pages that have gone.
    #[arg(long, conflicts_with_all = ["case", "hung", "reset", "left", "without_leader"])]
    job: bool,
    /// Be that program: wait for the child.
    #[arg(long, hide = true, conflicts_with_all = ["case", "hung", "reset", "left"])]
    heir: bool,
}

/// What happens to the memory.
#[derive(Clone, Copy, ValueEnum)]
enum Case {
    /// It is unmapped: the GPU's next access fails.
    Munmap,
    /// It may only be read any more: the queue waits until that is over.
    Protect,
    /// Other memory takes its place: the GPU writes there.
    Replace,
    /// The process forks: the pages are the parent's, with the GPU's writes; the child has a copy.
    Fork,
    /// The kernel swaps it out.
    Pageout,
    /// The kernel makes large pages of it.
    Collapse,
    /// The kernel compacts all memory.
    Compact,
    /// It is unmapped where the GPU does not look: nothing but a pause comes of it.
    Unused,
}

/// Bytes of it: two large pages.
const SIZE: usize = 4 << 20;
/// Where the GPU counts; the first word of each page is the pattern's.
const TICKS: usize = 8;

impl Userptr {
    pub fn run(&self) -> Result<()> {
        if self.hung {
            return unmap_under_a_hang();
        }
        if self.reset {
            return free_under_a_reset();
        }
        if self.left {
            return left::to_child();
        }
        if self.without_leader {
            return alone::without_leader();
        }
        if self.killed {
            return alone::killed();
        }
        if self.job {
            return job::write_to_gone_pages();
        }
        if self.heir {
            return left::by_leader();
        }
        match self.case {
            Some(case) => Bench::new()?.run(case),
            None => cases::run_each::<Case>("userptr"),
        }
    }
}

/// The kernel that works on the memory does not even begin, and its queue does not stop.
fn unmap_under_a_hang() -> Result<()> {
    let gpu = Gpu::open(4)?;
    let memory = Memory::userptr(gpu.device(), SIZE)?;
    let running = Running::start(&gpu, memory.address() + TICKS as u64)?;
    let deadline = Instant::now() + PATIENCE;
    while !Path::new("/tmp/hung").exists() {
        ensure!(Instant::now() < deadline, "nothing hangs");
        std::thread::sleep(Duration::from_millis(10));
    }
    let begin = Instant::now();
    // SAFETY: nothing of the process looks there any more.
    unsafe { munmap(memory.as_ptr().as_ptr().cast(), SIZE)? };
    println!("munmap took {} ms", begin.elapsed().as_millis());
    println!("unmapped at {}", uptime()?);
    // They go with the process: no packet of theirs ends.
    std::mem::forget((running, memory));
    Ok(())
}

/// Seconds since the machine's begin.
fn uptime() -> Result<String> {
    let uptime = fs::read_to_string("/proc/uptime")?;
    Ok(uptime.split_whitespace().next().context("none")?.into())
}

/// Nothing is wrong with the queue whose kernel works on the memory: it goes on until the GPU is
/// reset, of which the process hears before.
fn free_under_a_reset() -> Result<()> {
    let gpu = Gpu::open(4)?;
    let resets = Resets::watch(gpu.device())?;
    let own = Memory::userptr(gpu.device(), SIZE)?;
    let system = Memory::gtt(gpu.device(), SIZE)?;
    let running = Running::start(&gpu, own.address() + TICKS as u64)?;
    let ticks = || own.read::<u32>(TICKS, 1)[0];
    ensure!(moves(ticks), "the kernel does not run");
    say("running")?;
    let deadline = Instant::now() + PATIENCE;
    while resets.look()?.is_none() {
        ensure!(Instant::now() < deadline, "nothing is reset");
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("told at {}", uptime()?);
    drop(system);
    println!("system memory freed at {}", uptime()?);
    drop(own);
    println!("own memory freed at {}", uptime()?);
    // It goes with the process: its packet does not end.
    std::mem::forget(running);
    Ok(())
}

/// The memory, with a kernel that counts in it.
struct Bench {
    gpu: Gpu,
    memory: Arc<Memory>,
    running: Running,
    seed: u32,
}

/// A fact about the kernel's work, from a file of `name value` lines.
fn number(file: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("{file} has no {name}"))?;
    let digits = line.trim_start_matches(':').split_whitespace().next();
    Ok(digits.context("a line without a number")?.parse()?)
}

impl Bench {
    fn new() -> Result<Self> {
        let gpu = Gpu::open(4)?;
        let memory = Arc::new(Memory::userptr(gpu.device(), SIZE)?);
        let seed = std::process::id();
        fill(&memory, seed);
        let running = Running::start(&gpu, memory.address() + TICKS as u64)?;
        let bench = Self {
            gpu,
            memory,
            running,
            seed,
        };
        ensure!(bench.ticks(), "the kernel does not run");
        Ok(bench)
    }

    fn ticks(&self) -> bool {
        moves(|| self.memory.read::<u32>(TICKS, 1)[0])
    }

    fn place(&self) -> *mut c_void {
        self.memory.as_ptr().as_ptr().cast()
    }

    fn run(self, case: Case) -> Result<()> {
        match case {
            Case::Munmap => self.unmapped(),
            Case::Protect => self.protected(),
            Case::Replace => self.replaced(),
            Case::Fork => self.forked(),
            Case::Pageout => self.swapped(),
            Case::Collapse => self.collapsed(),
            Case::Compact => {
                fs::write("/proc/sys/vm/compact_memory", "1")?;
                self.goes_on()
            }
            Case::Unused => self.unused(),
        }
    }

    /// The kernel goes on, the memory is what it was, also for the GPU.
    fn goes_on(self) -> Result<()> {
        ensure!(self.ticks(), "the kernel does not go on");
        self.running.finish()?;
        let wrong = wrong_pages(&self.gpu, &self.memory, self.seed)?;
        ensure!(wrong == 0, "{wrong} pages have changed for the GPU");
        let pages = 0..SIZE / 4096;
        let wrong = pages
            .filter(|&page| self.memory.read::<u32>(page * 4096, 1)[0] != pattern(page, self.seed))
            .count();
        ensure!(wrong == 0, "{wrong} pages have changed");
        println!("the kernel goes on and ends, all is as it was");
        Ok(())
    }

    /// The GPU's next access is a fault, and this is reported.
    fn unmapped(self) -> Result<()> {
        let done = self.gpu.signal()?;
        let faults = Event::new(done.event().events(), EventKind::Memory, false)?;
        // The process ends before anybody gives back what is there no more.
        std::mem::forget(self.memory.clone());
        // SAFETY: nothing of the process looks there any more.
        unsafe { munmap(self.place(), SIZE)? };
        ensure!(faults.wait(Some(PATIENCE))?, "no fault is told");
        let fault = faults.fault().context("an event without a fault")?;
        println!(
            "fault: not present {}, read only {}, no execute {}, in the page: {}",
            fault.not_present,
            fault.read_only,
            fault.no_execute,
            fault.address == self.memory.address()
        );
        // Its queue has faulted and stays off; it goes with the process.
        std::mem::forget(self.running);
        Ok(())
    }

    fn protected(self) -> Result<()> {
        self.protect_for_a_while()?;
        self.goes_on()
    }

    /// While the memory may not be written the queue is off, and nothing else is reported.
    fn protect_for_a_while(&self) -> Result<()> {
        // SAFETY: the process does not write there until it may again.
        unsafe { mprotect(self.place(), SIZE, MprotectFlags::READ)? };
        let first = self.memory.read::<u32>(TICKS, 1);
        std::thread::sleep(Duration::from_millis(300));
        println!(
            "the kernel waits: {}",
            first == self.memory.read::<u32>(TICKS, 1)
        );
        let both = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: as it was.
        unsafe { mprotect(self.place(), SIZE, both)? };
        Ok(())
    }

    fn replaced(self) -> Result<()> {
        let (place, access) = (self.place(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: the buffer's own range; what was there is lost, and nobody minds.
        unsafe { mmap_anonymous(place, SIZE, access, MapFlags::PRIVATE | MapFlags::FIXED)? };
        let start = self.memory.read::<u32>(TICKS, 1)[0];
        fill(&self.memory, self.seed);
        println!("the new memory starts anew: {}", start < 1 << 31);
        self.goes_on()
    }

    fn forked(self) -> Result<()> {
        // SAFETY: the range is the buffer's.
        unsafe { madvise(self.place(), SIZE, Advice::LinuxDoFork)? };
        // SAFETY: the child reads its memory and exits, without locks or allocation.
        let child = match unsafe { nix::unistd::fork()? } {
            nix::unistd::ForkResult::Child => self.be_child(),
            nix::unistd::ForkResult::Parent { child } => child,
        };
        ensure!(self.ticks(), "the kernel does not go on after the fork");
        let status = nix::sys::wait::waitpid(child, None)?;
        let copied = status == nix::sys::wait::WaitStatus::Exited(child, 0);
        println!("the child has a copy of its own: {copied}");
        self.goes_on()
    }

    /// In the child: the copy stays as it is, while the parent's goes on.
    fn be_child(&self) -> ! {
        let word = self.memory.as_ptr().cast::<u32>();
        // SAFETY: the child's copy of the mapping; the word is inside and aligned.
        let read = || unsafe { word.add(TICKS / 4).read_volatile() };
        let first = read();
        std::thread::sleep(Duration::from_millis(300));
        let same = read() == first;
        // SAFETY: as above, in the first page.
        let intact = unsafe { word.read_volatile() } == pattern(0, self.seed);
        // SAFETY: ends the child without running what the parent will run.
        unsafe { nix::libc::_exit(if same && intact { 0 } else { 1 }) }
    }

    fn swapped(self) -> Result<()> {
        let before = number("/proc/vmstat", "pswpout")?;
        for _ in 0..3 {
            // SAFETY: the range is the buffer's, and keeps its contents.
            unsafe { madvise(self.place(), SIZE, Advice::LinuxPageOut)? };
            ensure!(self.ticks(), "the kernel does not go on");
        }
        let pages = number("/proc/vmstat", "pswpout")? - before;
        println!("all pages went out: {}", pages >= (SIZE / 4096) as u64);
        self.goes_on()
    }

    fn collapsed(self) -> Result<()> {
        let huge = || number("/proc/self/smaps_rollup", "AnonHugePages");
        let place = self.place();
        // SAFETY: the range is the buffer's; it loses its contents, gets small pages, and then
        // large ones.
        unsafe {
            madvise(place, SIZE, Advice::LinuxNoHugepage)?;
            madvise(place, SIZE, Advice::LinuxDontNeed)?;
        }
        fill(&self.memory, self.seed);
        ensure!(self.ticks(), "the kernel does not go on with small pages");
        let before = huge()?;
        // SAFETY: as above.
        unsafe { madvise(place, SIZE, Advice::LinuxHugepage)? };
        // EAGAIN: somebody, such as the driver that restores the process, holds one of the pages
        // just now.
        let mut attempts = 0..100;
        let collapsed = loop {
            // SAFETY: as above.
            let result = unsafe { nix::libc::madvise(place, SIZE, nix::libc::MADV_COLLAPSE) };
            match nix::errno::Errno::result(result) {
                Err(nix::errno::Errno::EAGAIN) if attempts.next().is_some() => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                other => break other,
            }
        };
        collapsed.context("MADV_COLLAPSE")?;
        println!("large pages: {} KiB more", huge()? - before);
        self.goes_on()
    }

    fn unused(self) -> Result<()> {
        let other = Memory::userptr(self.gpu.device(), 1 << 20)?;
        fill(&other, 0);
        // SAFETY: nobody looks at it any more.
        unsafe { munmap(other.as_ptr().as_ptr().cast(), other.size())? };
        ensure!(self.ticks(), "the kernel does not go on");
        // Something else may have taken its place by now.
        std::mem::forget(other);
        self.goes_on()
    }
}
