// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Queues with long kernels, more of them than the GPU has slots for: their waves must be taken off
//! and put back.

use anyhow::{ensure, Context, Result};
use clap::Args;
use kfd::{Device, Events, Kfd, Memory};
use kfd_aql::{CodeObject, Launch, Queue, Signal, Signals};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::raw;

pub static KERNELS: [&[u8]; 3] = [
    include_bytes!(concat!(env!("OUT_DIR"), "/tests.co")),
    include_bytes!(concat!(env!("OUT_DIR"), "/tests-gfx950.co")),
    include_bytes!(concat!(env!("OUT_DIR"), "/tests-gfx90a.co")),
];
/// Work-items of a group of these kernels.
pub const GROUP: u32 = 256;
const PATIENCE: Duration = Duration::from_secs(300);
/// How long waves may take to be on the GPU. Those of the C driver's processes without a trap
/// handler are never saved (tests/compare/waves.test).
const BEGIN: Duration = Duration::from_secs(30);

/// How many, and for how long.
#[derive(Args)]
pub struct Oversubscribe {
    /// Processes at the same time.
    #[arg(long, default_value_t = 2)]
    processes: u32,
    /// Queues of each.
    #[arg(long, default_value_t = 20)]
    queues: u32,
    /// Work-groups of each queue's kernel.
    #[arg(long, default_value_t = 2)]
    groups: u32,
    /// Rounds of the kernel.
    #[arg(long, default_value_t = 3000)]
    rounds: u32,
}

impl Oversubscribe {
    /// Runs the processes and checks all results.
    pub fn run(&self) -> Result<()> {
        if self.processes == 1 {
            return self.work();
        }
        let children: Vec<Child> = (0..self.processes)
            .map(|_| self.child())
            .collect::<Result<_>>()?;
        for mut child in children {
            let status = child.wait()?;
            ensure!(status.success(), "a process ended with {status}");
        }
        let queues = self.processes * self.queues;
        println!(
            "{} processes, {queues} queues: all results are right",
            self.processes
        );
        Ok(())
    }

    fn child(&self) -> Result<Child> {
        let [queues, groups, rounds] =
            [self.queues, self.groups, self.rounds].map(|n| n.to_string());
        Command::new(std::env::current_exe()?)
            .args(["oversubscribe", "--processes", "1", "--queues", &queues])
            .args(["--groups", &groups, "--rounds", &rounds])
            .stdin(Stdio::null())
            .spawn()
            .context("another kfd-tests")
    }

    fn work(&self) -> Result<()> {
        let gpu = Gpu::open(self.queues)?;
        let items = self.groups * GROUP;
        let seed = std::process::id();
        let mut running = Vec::new();
        for number in 0..self.queues {
            let queue = Queue::new(&gpu.device, 64)?;
            let out = Memory::gtt(&gpu.device, 4 * items as usize)?;
            let mut arguments = out.address().to_le_bytes().to_vec();
            arguments.extend((seed + number).to_le_bytes());
            arguments.extend(self.rounds.to_le_bytes());
            let launch = gpu.launch("churn", items, &arguments)?;
            let done = gpu.signals.signal(1)?;
            launch.submit(&queue, &done)?;
            running.push((queue, launch, done, out));
        }
        for (number, (_, _, done, out)) in (0..).zip(&running) {
            done.wait(PATIENCE)?;
            let results = out.read::<u32>(0, items as usize);
            for (group, got) in (0..).zip(results.chunks(GROUP as usize)) {
                let right = churn(group, seed + number, self.rounds);
                ensure!(got == right, "queue {number}, group {group}: wrong results");
            }
        }
        Ok(())
    }
}

/// What the kernel of that name computes for a group.
pub fn churn(group: u32, seed: u32, rounds: u32) -> Vec<u32> {
    let item = |lane: u32| (group * GROUP + lane).wrapping_mul(2_654_435_761);
    let mut x: Vec<u32> = (0..GROUP)
        .map(|lane| item(lane).wrapping_add(seed))
        .collect();
    for round in 0..rounds {
        let shared = x.clone();
        for (lane, x) in (0..).zip(&mut x) {
            let neighbour = shared[((lane + round) % GROUP) as usize];
            *x = x
                .wrapping_mul(1_664_525)
                .wrapping_add(1_013_904_223)
                .wrapping_add(neighbour);
        }
    }
    x
}

/// A process's GPU with the tests' kernels.
pub struct Gpu {
    device: Arc<Device>,
    signals: Arc<Signals>,
    code: Arc<CodeObject>,
}

impl Gpu {
    /// The first GPU, with that many signals.
    pub fn open(signals: u32) -> Result<Self> {
        let kfd = Kfd::open()?;
        let nodes = kfd::topology::gpus()?;
        Self::on(
            Device::acquire(&kfd, nodes.first().context("no GPU")?)?,
            signals,
        )
    }

    /// The GPU of a process that has acquired it, with room for so many signals.
    pub fn on(device: Arc<Device>, signals: u32) -> Result<Self> {
        Ok(Self {
            signals: Signals::new(&device, signals as usize)?,
            code: CodeObject::load_one_of(&device, &KERNELS)?,
            device,
        })
    }

    /// The GPU of a process that has events already.
    pub fn with_events(device: Arc<Device>, signals: u32, events: Arc<Events>) -> Result<Self> {
        Ok(Self {
            signals: Signals::with_events(&device, signals as usize, events)?,
            code: CodeObject::load_one_of(&device, &KERNELS)?,
            device,
        })
    }

    /// Another GPU of the same process, whose event page it uses too.
    pub fn beside(&self, device: Arc<Device>, signals: u32) -> Result<Self> {
        Self::with_events(device, signals, self.signals.events().clone())
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// A signal for one dispatch.
    pub fn signal(&self) -> Result<Signal> {
        Ok(self.signals.signal(1)?)
    }

    /// The first instruction of a kernel.
    pub fn entry(&self, kernel: &str) -> Result<u64> {
        /// `kernel_code_entry_byte_offset` of a kernel's descriptor.
        const ENTRY: usize = 16;
        let descriptor = self.code.kernel(kernel)?.descriptor;
        let at = (descriptor - self.code.memory().address()) as usize;
        let entry = self.code.memory().read::<u64>(at + ENTRY, 1)[0];
        Ok(descriptor.wrapping_add(entry))
    }

    pub fn launch(&self, kernel: &str, items: u32, arguments: &[u8]) -> Result<Launch> {
        self.launch_in(kernel, items, GROUP, arguments)
    }

    /// The same in groups of that many work-items.
    pub fn launch_in(
        &self,
        kernel: &str,
        items: u32,
        group: u32,
        arguments: &[u8],
    ) -> Result<Launch> {
        let group = [group as u16, 1, 1];
        Ok(Launch::new(
            &self.device,
            &self.code,
            kernel,
            [items, 1, 1],
            group,
            arguments,
        )?)
    }
}

/// Stops a queue in the middle of a kernel, looks at the waves that were saved, and lets it go on.
pub fn saved() -> Result<()> {
    const GROUPS: u32 = 3;
    let gpu = Gpu::open(1)?;
    let items = GROUPS * GROUP;
    let (flag, out) = (
        Memory::gtt(&gpu.device, 4096)?,
        Memory::gtt(&gpu.device, 4 * items as usize)?,
    );
    let arguments = [flag.address().to_le_bytes(), out.address().to_le_bytes()].concat();
    let launch = gpu.launch("hold", items, &arguments)?;
    let done = gpu.signals.signal(1)?;
    let queue = Queue::new(&gpu.device, 64)?;
    launch.submit(&queue, &done)?;
    // 12 waves: a word each, with 8 VGPRs, SGPRs and hardware registers at least.
    let whole = |(stack, state)| stack >= 4 * 12 && state >= 12 * (8 * 256 + 448 + 128);
    let begin = Instant::now();
    while !whole(stopped(&gpu, &queue)?) && begin.elapsed() < BEGIN {
        set_percentage(&gpu, &queue, uapi::KFD_MAX_QUEUE_PERCENTAGE)?;
        std::thread::sleep(Duration::from_millis(300));
    }
    for round in 0..3 {
        set_percentage(&gpu, &queue, uapi::KFD_MAX_QUEUE_PERCENTAGE)?;
        let (stack, state) = stopped(&gpu, &queue)?;
        println!("round {round}: control stack {stack} bytes, waves {state} bytes");
        ensure!(whole((stack, state)), "no waves were saved");
    }
    set_percentage(&gpu, &queue, uapi::KFD_MAX_QUEUE_PERCENTAGE)?;
    ensure!(done.load() == 1, "the kernel ended too early");
    flag.write(0, &[1u32]);
    finish(&done, &out, items)
}

fn finish(done: &Signal, out: &Memory, items: u32) -> Result<()> {
    done.wait(PATIENCE)?;
    let right: Vec<u32> = (0..items).map(|item| item * 3 + 1).collect();
    ensure!(out.read::<u32>(0, items as usize) == right, "wrong results");
    println!("all results are right");
    Ok(())
}

fn set_percentage(gpu: &Gpu, queue: &Queue, percentage: u32) -> Result<()> {
    let mut args = uapi::kfd_ioctl_update_queue_args {
        queue_id: queue.id(),
        ring_base_address: queue.packets().address(),
        ring_size: queue.packets().size() as u32,
        queue_percentage: percentage,
        queue_priority: 7,
    };
    raw::ioctl(gpu.device.kfd().as_fd(), uapi::IOC_UPDATE_QUEUE, &mut args).context("UPDATE_QUEUE")
}

/// Stops the queue; what [`wave_state`] says then.
fn stopped(gpu: &Gpu, queue: &Queue) -> Result<(u32, u32)> {
    set_percentage(gpu, queue, 0)?;
    wave_state(gpu, queue)
}

/// Bytes of the control stack and of the wave save area, of all XCCs.
fn wave_state(gpu: &Gpu, queue: &Queue) -> Result<(u32, u32)> {
    let area = queue.kfd_queue().save_area().context("no save area")?;
    let mut args = uapi::kfd_ioctl_get_queue_wave_state_args {
        queue_id: queue.id(),
        ctl_stack_address: area.address(),
        ..Default::default()
    };
    raw::ioctl(
        gpu.device.kfd().as_fd(),
        uapi::IOC_GET_QUEUE_WAVE_STATE,
        &mut args,
    )
    .context("GET_QUEUE_WAVE_STATE")?;
    Ok((args.ctl_stack_used_size, args.save_area_used_size))
}
