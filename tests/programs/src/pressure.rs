// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Eviction: a client of the render node fills VRAM, so that amdgpu moves the buffers of processes
//! that compute out of it. Their queues must stop for that time and go on afterwards, with all
//! memory as it was.

use crate::running::{moves, say, vram_and_ticks, wrong_pages, Running, PATIENCE};
use crate::waves::Gpu;
use anyhow::{bail, ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd, Memory, SmiEvent, SmiEvents};
use kfd_uapi as uapi;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{open, Mode, OFlags};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Fill VRAM until each of some processes was evicted and restored.
#[derive(Args)]
pub struct Pressure {
    /// Processes that compute.
    #[arg(long, default_value_t = 2)]
    processes: usize,
    /// MiB of VRAM of each.
    #[arg(long, default_value_t = 64)]
    mib: usize,
    /// How often each must be evicted and restored.
    #[arg(long, default_value_t = 2)]
    times: u32,
    /// Instead: so many processes end, one after the other, as they are evicted, and leave their
    /// file to a child.
    #[arg(long)]
    dying: Option<u32>,
    /// Instead: a process imports what it has exported itself, and gives that back, before room is
    /// made once.
    #[arg(long, conflicts_with = "dying")]
    imported: bool,
    /// Be one of the processes.
    #[arg(long, hide = true)]
    worker: bool,
    /// Be one that is about to end.
    #[arg(long, hide = true)]
    victim: bool,
}

/// A buffer of the render node's client.
const CHUNK: u64 = 16 << 20;
/// `PROCESS_RESTORE_TIME_MS` (kfd_priv.h) is 100: in the second half of that time nothing runs any
/// more.
const QUIET: u64 = 50_000_000;
/// How long a child keeps the file of a process that has ended.
const HELD: Duration = Duration::from_secs(120);

impl Pressure {
    pub fn run(&self) -> Result<()> {
        if self.worker {
            return self.work();
        }
        if self.victim {
            return self.wait_for_the_end();
        }
        if let Some(times) = self.dying {
            return (0..times).try_for_each(|number| self.end_one(number));
        }
        if self.imported {
            return self.evict_importer();
        }
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let mut events = told(node.gpu_id)?;
        let mut workers = Vec::new();
        for _ in 0..self.processes {
            workers.push(Worker::start(self)?);
        }
        let minor = node.property("drm_render_minor");
        let begin = Instant::now();
        while !workers
            .iter()
            .all(|worker| worker.content.load(Ordering::Relaxed))
        {
            ensure!(
                begin.elapsed() < PATIENCE * 4,
                "not all processes were evicted"
            );
            let client = fill_vram(minor, (self.processes * self.mib) as u64)?;
            std::thread::sleep(Duration::from_millis(50));
            drop(client);
            // They run for a while, so that each is evicted anew.
            std::thread::sleep(Duration::from_millis(300));
        }
        let mut all = Vec::new();
        // Until no more events come: the last ones come back a little later.
        loop {
            let mut more = events.read(Duration::from_secs(1))?;
            // Root gets those of the others, too.
            more.retain(|event| workers.iter().any(|worker| is_of(event, worker.child.id())));
            if more.is_empty() && settled(&all) {
                break;
            }
            ensure!(
                begin.elapsed() < PATIENCE * 5,
                "not all are restored: {all:?}"
            );
            all.extend(more);
        }
        for (number, worker) in workers.into_iter().enumerate() {
            worker.finish(number, node.gpu_id, &all)?;
        }
        Ok(())
    }

    /// A process ends when amdgpu has just asked for its room: others get it though a child has the
    /// file.
    fn end_one(&self, number: u32) -> Result<()> {
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let mib = self.mib.to_string();
        let mut victim = Command::new(std::env::current_exe()?)
            .args(["pressure", "--victim", "--mib", &mib])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut holder = String::new();
        BufReader::new(victim.stdout.take().context("no pipe")?).read_line(&mut holder)?;
        let holder = Pid::from_raw(holder.trim().parse().context("the process does not run")?);
        let client = Client::new(node.property("drm_render_minor"))?;
        let patience = Duration::from_millis(1 + u64::from(number % 6));
        let own = self.mib as u64 * (1 << 20) / CHUNK + 2;
        let (free, progress) = (client.free()? / CHUNK, Progress::default());
        let (begin, last) = std::thread::scope(|scope| {
            let taker = scope.spawn(|| client.take_many(free + own, &progress));
            // Who takes more than is free waits until the process is evicted, 10 ms after it is
            // asked to go.
            while !taker.is_finished() && !progress.stands(free.saturating_sub(own), patience) {
                std::thread::sleep(Duration::from_micros(200));
            }
            let killed = victim.kill();
            let begin = Instant::now();
            let last = taker.join();
            killed?;
            let last = last.map_err(|_| anyhow::anyhow!("a thread failed"))?;
            anyhow::Ok((begin, last?))
        })?;
        let idle = client.wait_until_idle(last)?;
        let time = begin.elapsed();
        kill(holder, Signal::SIGKILL)?;
        victim.wait()?;
        ensure!(
            idle && time < HELD / 4,
            "the room of a process that has ended is not free after {time:?}"
        );
        Ok(())
    }

    /// Its queue must stop before its memory moves.
    fn evict_importer(&self) -> Result<()> {
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let mut events = told(node.gpu_id)?;
        let worker = Worker::start(self)?;
        // Less than what the process has: nothing else of its needs to move.
        let client = fill_vram(node.property("drm_render_minor"), CHUNK >> 20)?;
        let begin = Instant::now();
        while !worker.content.load(Ordering::Relaxed) {
            ensure!(begin.elapsed() < PATIENCE, "the process was not evicted");
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(client);
        let mut all = Vec::new();
        while all.is_empty() || !settled(&all) {
            ensure!(begin.elapsed() < PATIENCE, "not all are restored: {all:?}");
            let mut more = events.read(Duration::from_secs(1))?;
            more.retain(|event| is_of(event, worker.child.id()));
            all.extend(more);
        }
        worker.finish(0, node.gpu_id, &all)
    }

    /// Has VRAM, and a child with the same file.
    fn wait_for_the_end(&self) -> Result<()> {
        let gpu = Gpu::open(4)?;
        let _vram = vram_and_ticks(gpu.device(), self.mib, 1)?;
        // The duplicate stays open in the child.
        let _file = rustix::io::dup(gpu.device().kfd().as_fd())?;
        let holder = Command::new("sleep")
            .arg(HELD.as_secs().to_string())
            .stdout(Stdio::null())
            .spawn()?;
        say(&holder.id().to_string())?;
        std::thread::sleep(HELD);
        bail!("nobody has ended the process")
    }

    fn work(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let device = Device::acquire(&kfd, topology::gpus()?.first().context("no GPU")?)?;
        let seed = std::process::id();
        // Before the code is: so it is what amdgpu moves first.
        let (memory, ticks) = vram_and_ticks(&device, self.mib, seed)?;
        if self.imported {
            drop(Memory::import(&device, memory.export()?.as_fd())?);
        }
        let gpu = Gpu::on(device, 4)?;
        let mut watch = Watch::new(told(gpu.device().gpu_id())?);
        let running = Running::start(&gpu, ticks.address())?;
        let count = || ticks.read::<u32>(0, 1)[0];
        ensure!(moves(count), "the kernel does not run");
        say("running")?;
        let stop = end_of_input();
        let mut content = false;
        while !stop.load(Ordering::Relaxed) {
            watch.look(&count)?;
            let once = self.imported && watch.restored > 0;
            if !content && (once || watch.has_seen(self.times)) {
                content = true;
                say("content")?;
            }
        }
        ensure!(moves(count), "the kernel does not go on");
        running.finish()?;
        let wrong = wrong_pages(&gpu, &memory, seed)?;
        ensure!(wrong == 0, "{wrong} pages have changed");
        say("right")
    }
}

/// Becomes true when nothing more comes from whoever started this.
fn end_of_input() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let set = ended.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        set.store(true, Ordering::Relaxed);
    });
    ended
}

/// The SMI events of queues that are evicted and restored.
pub fn told(gpu_id: u32) -> Result<SmiEvents> {
    let numbers = [
        uapi::KFD_SMI_EVENT_QUEUE_EVICTION,
        uapi::KFD_SMI_EVENT_QUEUE_RESTORE,
    ];
    Ok(SmiEvents::open(&Kfd::open()?, gpu_id, &numbers)?)
}

/// Whether as many were restored as evicted.
pub fn settled(events: &[SmiEvent]) -> bool {
    let count = |name| events.iter().filter(|event| event.name == name).count();
    count("QUEUE_EVICTION") == count("QUEUE_RESTORE")
}

/// One event, as its text says: when, and what its last word is.
fn parts(event: &SmiEvent) -> Result<(u64, &str)> {
    let mut words = event.text.split(' ');
    let time = words.next().and_then(|word| word.parse().ok());
    Ok((
        time.context("an event without a time")?,
        words.next_back().context("an event without a reason")?,
    ))
}

/// Whether it is of that process.
pub fn is_of(event: &SmiEvent, pid: u32) -> bool {
    event.text.contains(&format!(" -{pid} "))
}

/// Watches a kernel that counts, and the SMI events of its queue.
struct Watch {
    events: SmiEvents,
    /// Count, and between which times it was read.
    samples: Vec<(u64, u32, u64)>,
    /// How often it was evicted and not restored, and when for the last time. They may be nested.
    evicted: (u32, u64),
    /// How often it was restored, and how often of these it was seen that nothing had run.
    restored: u32,
    seen: u32,
    begin: Instant,
}

impl Watch {
    fn new(events: SmiEvents) -> Self {
        Self {
            events,
            samples: Vec::new(),
            evicted: (0, 0),
            restored: 0,
            seen: 0,
            begin: Instant::now(),
        }
    }

    /// Whether that is enough. Where the host is too busy for two looks in 50 ms each time, once
    /// is; never is not.
    fn has_seen(&self, times: u32) -> bool {
        self.restored >= times
            && (self.seen >= times || self.seen > 0 && self.begin.elapsed() > PATIENCE)
    }

    /// One look: at the count, and at the events meanwhile.
    fn look(&mut self, count: &impl Fn() -> u32) -> Result<()> {
        let before = boot_time();
        let now = count();
        self.samples.push((before, now, boot_time()));
        for event in self.events.read(Duration::from_millis(2))? {
            // Root gets those of the others, too.
            if !is_of(&event, std::process::id()) {
                continue;
            }
            let (time, reason) = parts(&event)?;
            match (event.name, reason) {
                ("QUEUE_EVICTION", reason) => {
                    let ttm = uapi::KFD_QUEUE_EVICTION_TRIGGER_TTM;
                    ensure!(
                        reason == ttm.to_string(),
                        "evicted for another reason: {reason}"
                    );
                    self.evicted = (self.evicted.0 + 1, time);
                }
                ("QUEUE_RESTORE", "0") => self.restored(time)?,
                _ => bail!("told of {event:?}"),
            }
        }
        Ok(())
    }

    /// It may run again from this time on, unless it is evicted still, and not before.
    fn restored(&mut self, time: u64) -> Result<()> {
        let (times, last) = self.evicted;
        ensure!(times > 0, "restored, but not evicted");
        self.evicted.0 -= 1;
        if times > 1 {
            return Ok(());
        }
        let quiet = self
            .samples
            .iter()
            .filter(|(from, _, to)| *from + QUIET > time && *to < time);
        let quiet: Vec<u32> = quiet.map(|(_, count, _)| *count).collect();
        self.restored += 1;
        // A loaded host may have let it look too seldom to know.
        if time - last > 2 * QUIET && quiet.len() >= 2 {
            ensure!(
                quiet.iter().all(|count| *count == quiet[0]),
                "it ran while evicted: {quiet:?}"
            );
            self.seen += 1;
        }
        self.samples.clear();
        Ok(())
    }
}

/// The clock of the events, in nanoseconds.
fn boot_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// One of the processes.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: std::thread::JoinHandle<BufReader<ChildStdout>>,
    content: Arc<AtomicBool>,
}

impl Worker {
    /// Starts it, and waits until its kernel runs.
    fn start(pressure: &Pressure) -> Result<Self> {
        let (mib, times) = (pressure.mib.to_string(), pressure.times.to_string());
        let mut child = Command::new(std::env::current_exe()?)
            .args(["pressure", "--worker", "--mib", &mib, "--times", &times])
            .args(pressure.imported.then_some("--imported"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().context("no pipe")?;
        let mut output = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line == "running\n", "a process said {line:?}");
        let content = Arc::new(AtomicBool::new(false));
        let set = content.clone();
        let output = std::thread::spawn(move || {
            let mut line = String::new();
            let _ = output.read_line(&mut line);
            // At its end too: there is no use in waiting for more.
            set.store(true, Ordering::Relaxed);
            output
        });
        Ok(Self {
            child,
            input,
            output,
            content,
        })
    }

    /// Has it end, and prints what is known of it.
    fn finish(mut self, number: usize, gpu_id: u32, all: &[SmiEvent]) -> Result<()> {
        let pid = self.child.id();
        let evicted = fs::read_to_string(format!(
            "/sys/class/kfd/kfd/proc/{pid}/stats_{gpu_id}/evicted_ms"
        ));
        let evicted: Option<u64> = evicted.ok().and_then(|text| text.trim().parse().ok());
        drop(self.input);
        let mut said = String::new();
        let output = self.output.join();
        output
            .map_err(|_| anyhow::anyhow!("a thread failed"))?
            .read_to_string(&mut said)?;
        let status = self.child.wait()?;
        ensure!(
            status.success() && said == "right\n",
            "process {number} ended with {status}: {said:?}"
        );
        let told = |name| {
            let of = all.iter().filter(|event| is_of(event, pid));
            of.filter(|event| event.name == name).count()
        };
        let (out, back) = (told("QUEUE_EVICTION"), told("QUEUE_RESTORE"));
        println!(
            "process {number}: told of: {}, as often restored: {}, time counted: {}, results and \
            memory right",
            out > 0,
            out == back,
            evicted.is_some_and(|ms| ms > 0)
        );
        Ok(())
    }
}

/// Takes so much VRAM through the render node that `mib` MiB of what others have must go. Dropping
/// the client gives it back.
pub fn fill_vram(minor: u64, mib: u64) -> Result<Client> {
    let client = Client::new(minor)?;
    for _ in 0..(client.free()? + (mib << 20)).div_ceil(CHUNK) {
        client.take()?;
    }
    Ok(client)
}

/// A client of the render node. Dropped, it gives back what it has.
pub struct Client {
    file: OwnedFd,
    minor: u64,
}

impl Client {
    fn new(minor: u64) -> Result<Self> {
        let path = format!("/dev/dri/renderD{minor}");
        let file = open(path.as_str(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { file, minor })
    }

    /// Bytes of VRAM that nobody has.
    fn free(&self) -> Result<u64> {
        let dir = format!("/sys/class/drm/renderD{}/device", self.minor);
        let read = |name: &str| -> Result<u64> {
            Ok(fs::read_to_string(format!("{dir}/{name}"))?
                .trim()
                .parse()?)
        };
        Ok(read("mem_info_vram_total")? - read("mem_info_vram_used")?)
    }

    /// One more buffer of VRAM.
    fn take(&self) -> Result<u32> {
        let mut args = uapi::drm_amdgpu_gem_create::default();
        args.in_ = uapi::drm_amdgpu_gem_create_in {
            bo_size: CHUNK,
            alignment: 4096,
            domains: uapi::AMDGPU_GEM_DOMAIN_VRAM.into(),
            domain_flags: 0,
        };
        crate::raw::ioctl(&self.file, uapi::IOC_DRM_GEM_CREATE, &mut args).context("GEM_CREATE")?;
        // SAFETY: the call has written this member.
        Ok(unsafe { args.out.handle })
    }

    /// So many more. Returns the last one.
    fn take_many(&self, count: u64, progress: &Progress) -> Result<u32> {
        let mut last = 0;
        for taken in 0..count {
            progress.set(taken);
            last = self.take()?;
        }
        Ok(last)
    }

    /// Whether a buffer can be used before too long: what was there has moved.
    fn wait_until_idle(&self, handle: u32) -> Result<bool> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = now.tv_sec as u64 + HELD.as_secs() / 4;
        let mut args = uapi::drm_amdgpu_gem_wait_idle::default();
        args.in_ = uapi::drm_amdgpu_gem_wait_idle_in {
            handle,
            flags: 0,
            timeout: seconds * 1_000_000_000,
        };
        crate::raw::ioctl(&self.file, uapi::IOC_DRM_GEM_WAIT_IDLE, &mut args)
            .context("GEM_WAIT_IDLE")?;
        // SAFETY: the call has written this member.
        Ok(unsafe { args.out.status } == 0)
    }
}

/// How many buffers a client has taken, and when the last one was there.
#[derive(Default)]
struct Progress(Mutex<Option<(u64, Instant)>>);

impl Progress {
    fn set(&self, taken: u64) {
        *self.0.lock().unwrap() = Some((taken, Instant::now()));
    }

    /// Whether it has taken at least so many, and waits for the next one since then.
    fn stands(&self, least: u64, since: Duration) -> bool {
        let now = *self.0.lock().unwrap();
        now.is_some_and(|(taken, at)| taken >= least && at.elapsed() > since)
    }
}
