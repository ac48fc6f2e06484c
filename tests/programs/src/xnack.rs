// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A process whose GPU repeats accesses that find no page (XNACK). The driver may bring the page,
//! and the kernel goes on; or it gives up, and reports a fault.

use crate::cases;
use crate::running::{Running, PATIENCE};
use crate::waves::Gpu;
use anyhow::{ensure, Context, Result};
use clap::{Args, ValueEnum};
use kfd::{Device, Event, EventKind, Kfd, Memory};
use rustix::mm::{
    madvise, mmap_anonymous, mprotect, munmap, Advice, MapFlags, MprotectFlags, ProtFlags,
};
use std::ffi::c_void;
use std::time::{Duration, Instant};

/// Make it happen, each case in a process of its own, and print what came of it.
#[derive(Args)]
pub struct Xnack {
    /// This one alone.
    #[arg(long)]
    case: Option<Case>,
}

/// Where the GPU writes.
#[derive(Clone, Copy, ValueEnum)]
enum Case {
    /// Where nothing is.
    Nowhere,
    /// A buffer that was freed before.
    Freed,
    /// Memory of the process that it may not touch.
    Forbidden,
    /// Memory of the process that is not mapped for the GPU.
    Own,
    /// The same, from which the kernel takes the pages while the GPU writes to it.
    Dropped,
}

/// Bytes of it, and of the pages around it that nobody may touch.
const SIZE: usize = 64 << 10;
/// Bytes of what is taken away before the kernel starts, which writes to their beginning: the
/// kernel's own buffers may come to lie at their end.
const HOLE: usize = 64 << 20;
/// How long the driver may take to answer a fault.
const POLL: Duration = Duration::from_millis(5);

impl Xnack {
    pub fn run(&self) -> Result<()> {
        match self.case {
            Some(case) => Bench::new()?.run(case),
            None => cases::run_each::<Case>("xnack"),
        }
    }
}

/// A process with XNACK.
struct Bench {
    gpu: Gpu,
    faults: Event,
}

/// Memory of the process, with pages around it that nobody may touch. It stays until the process
/// ends.
struct Place(*mut c_void);

impl Place {
    fn new(size: usize, access: MprotectFlags) -> Result<Self> {
        // SAFETY: a new mapping, nobody's.
        let all = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                size + 2 * SIZE,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
            )?
        };
        let place = Self(all.wrapping_byte_add(SIZE));
        // SAFETY: inside what was just mapped.
        unsafe { mprotect(place.0, size, access)? };
        Ok(place)
    }

    fn address(&self) -> u64 {
        self.0 as u64
    }

    fn word(&self) -> u32 {
        // SAFETY: in the mapping, aligned; the GPU may write to it meanwhile.
        unsafe { self.0.cast::<u32>().read_volatile() }
    }
}

impl Bench {
    fn new() -> Result<Self> {
        let kfd = Kfd::open()?;
        // SAFETY: the kernels here write to the mappings of the cases only.
        unsafe { kfd.set_xnack(true)? };
        ensure!(kfd.xnack()?, "XNACK stays off");
        let nodes = kfd::topology::gpus()?;
        let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
        let gpu = Gpu::on(device, 4)?;
        let page = gpu.signal()?;
        let faults = Event::new(page.event().events(), EventKind::Memory, false)?;
        Ok(Self { gpu, faults })
    }

    fn run(self, case: Case) -> Result<()> {
        let both = MprotectFlags::READ | MprotectFlags::WRITE;
        match case {
            Case::Nowhere => {
                let place = Place::new(HOLE, both)?;
                // SAFETY: nobody but the GPU looks there.
                unsafe { munmap(place.0, HOLE)? };
                self.fails(place.address())
            }
            Case::Freed => {
                let buffer = Memory::vram(self.gpu.device(), HOLE)?;
                let address = buffer.address();
                drop(buffer);
                self.fails(address)
            }
            Case::Forbidden => self.fails(Place::new(SIZE, MprotectFlags::empty())?.address()),
            Case::Own => {
                let place = Place::new(SIZE, both)?;
                let Some(running) = self.start(&place)? else {
                    return Ok(());
                };
                running.finish()?;
                println!("the kernel goes on and ends");
                Ok(())
            }
            Case::Dropped => self.dropped(Place::new(SIZE, both)?),
        }
    }

    /// A kernel counts at an address without memory: a fault is reported.
    fn fails(&self, address: u64) -> Result<()> {
        let running = Running::start(&self.gpu, address)?;
        ensure!(self.faults.wait(Some(PATIENCE))?, "no fault is told");
        self.tell(address)?;
        // Its queue has faulted and stays off; it goes with the process.
        std::mem::forget(running);
        Ok(())
    }

    fn tell(&self, address: u64) -> Result<()> {
        let fault = self.faults.fault().context("an event without a fault")?;
        println!(
            "fault: not present {}, read only {}, no execute {}, in the page: {}",
            fault.not_present,
            fault.read_only,
            fault.no_execute,
            fault.address == address
        );
        Ok(())
    }

    /// Starts a kernel that counts there. None: the driver gave up, and reported a fault.
    fn start(&self, place: &Place) -> Result<Option<Running>> {
        let running = Running::start(&self.gpu, place.address())?;
        if self.ticks(place)? {
            return Ok(Some(running));
        }
        self.tell(place.address())?;
        std::mem::forget(running);
        Ok(None)
    }

    /// Waits until the kernel has counted on. False: a fault was reported.
    fn ticks(&self, place: &Place) -> Result<bool> {
        let (begin, first) = (Instant::now(), place.word());
        while begin.elapsed() < PATIENCE {
            if self.faults.wait(Some(POLL))? {
                return Ok(false);
            }
            if place.word() != first {
                return Ok(true);
            }
        }
        anyhow::bail!("the kernel does not go on, and no fault is told")
    }

    fn dropped(&self, place: Place) -> Result<()> {
        let Some(running) = self.start(&place)? else {
            return Ok(());
        };
        for _ in 0..3 {
            // SAFETY: what the GPU wrote is lost, and it writes on.
            unsafe { madvise(place.0, SIZE, Advice::LinuxDontNeed)? };
            ensure!(self.ticks(&place)?, "a fault is told");
        }
        running.finish()?;
        println!("the kernel goes on without its pages, three times, and ends");
        Ok(())
    }
}
