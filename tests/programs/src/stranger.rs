// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Two users on one GPU: what a stranger can learn of a victim's process, or do to it, and for how
//! long it can keep the victim from the GPU.
//!
//! Root starts both, each under a user of its own, and asks the victim what has become of it.

mod attack;
mod victim;

use crate::bench::name;
use crate::raw::{ioctl, Outcome};
use anyhow::{ensure, Context, Result};
use attack::Attack;
use clap::{Args, ValueEnum};
use kfd::{topology, Device, Kfd, Memory, MemoryFlags, SmiEvents};
use kfd_uapi as uapi;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use victim::Names;

/// Run a victim, a stranger, and what the stranger tries.
#[derive(Args)]
pub struct Stranger {
    /// Be one of them.
    #[arg(long, hide = true)]
    role: Option<Role>,
    /// The victim's buffer, queue and event.
    #[arg(long, hide = true, value_delimiter = ',')]
    of: Vec<u64>,
    /// What to try, of `attack`.
    #[arg(long, hide = true)]
    attack: Option<Attack>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    /// Has memory, a queue and an event, and computes when asked.
    Victim,
    /// Uses the victim's names.
    Guess,
    /// Listens to the GPU's events.
    Listen,
    /// Looks for the victim's data in memory that it is given.
    Search,
    /// Keeps the driver busy.
    Attack,
    /// Has a call that does not return, for an attack.
    Stuck,
    /// Has many buffers, for an attack.
    Bulk,
}

/// The users: neither has rights that the other has not.
const VICTIM: u32 = 65533;
const STRANGER: u32 = 65534;
/// What the victim has in its memory.
const SECRET: u64 = 0x5ec2_e75e_c2e7_5ec2;
/// How long a worker may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The victim waits no longer for a turn on the GPU than this, and than some undisturbed turns.
const LIMIT: Duration = Duration::from_secs(1);
const UNDISTURBED_TURNS: u32 = 5;
/// How often an attack must hold it up longer to have done so.
const TRIES: u32 = 3;

impl Stranger {
    pub fn run(&self) -> Result<()> {
        match self.role {
            None => all(),
            Some(Role::Victim) => victim::run(),
            Some(Role::Guess) => guess(&Names::of(&self.of)?),
            Some(Role::Listen) => listen(),
            Some(Role::Search) => search(),
            Some(Role::Attack) => self.attack.context("no attack is named")?.run(),
            Some(Role::Stuck) => attack::stuck(),
            Some(Role::Bulk) => attack::bulk(),
        }
    }
}

/// Another process of this test, with which one talks in lines.
struct Player {
    child: Child,
    say: Option<ChildStdin>,
    hear: BufReader<ChildStdout>,
}

impl Player {
    fn start(user: u32, role: &str, more: &[&str]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["stranger", "--role", role])
            .args(more)
            .uid(user)
            .gid(user)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self {
            say: child.stdin.take(),
            hear: BufReader::new(child.stdout.take().context("it has an output")?),
            child,
        })
    }

    /// The CPUs are shared by the scheduler's rules; this is about the driver.
    fn set_priority(&self, nice: i32) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        Ok(rustix::process::setpriority_process(Some(pid), nice)?)
    }

    /// The next line that it says.
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.hear.read_line(&mut line)? > 0, "it has ended");
        Ok(line.trim_end().to_owned())
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, what: &str) -> Result<String> {
        let say = self.say.as_mut().context("it was told to end")?;
        writeln!(say, "{what}")?;
        self.line()
    }

    /// Tells it to end, and returns what it still says.
    fn end(mut self) -> Result<Vec<String>> {
        drop(self.say.take());
        let lines = self.hear.lines().collect::<std::io::Result<_>>()?;
        let status = self.child.wait()?;
        ensure!(status.success(), "a process of the test failed: {status}");
        Ok(lines)
    }
}

/// Prints the verdict.
fn check(right: bool, what: &str) {
    println!("{} - {what}", if right { "ok" } else { "not ok" });
}

fn all() -> Result<()> {
    let mut victim = Player::start(VICTIM, "victim", &[])?;
    victim.set_priority(-20)?;
    let names = victim.line()?;
    let mut strangers = Player::start(STRANGER, "guess", &["--of", &names])?;
    while let Ok(line) = strangers.line() {
        println!("{line}");
    }
    strangers.end()?;
    look(&mut victim, "after another user has used its names")?;
    listened(&mut victim)?;
    for attack in Attack::value_variants() {
        held_up(&mut victim, *attack)?;
    }
    look(&mut victim, "after all attacks")?;
    ensure!(
        victim.ask("free")? == "freed",
        "the victim keeps its memory"
    );
    search_with("while the victim lives")?;
    victim.end()?;
    search_with("after the victim's end")
}

/// Whether the victim is as it was.
fn look(victim: &mut Player, when: &str) -> Result<()> {
    let state = victim.ask("look")?;
    check(state == "whole", &format!("the victim is {state} {when}"));
    Ok(())
}

/// A stranger listens to all events that there are, while the victim computes and visitors of its
/// user come and go.
fn listened(victim: &mut Player) -> Result<()> {
    let mut listener = Player::start(STRANGER, "listen", &[])?;
    ensure!(listener.line()? == "listening", "it does not listen");
    victim.ask("turns 500")?;
    let mut visitor = Command::new(std::env::current_exe()?)
        .args(["smi", "--visit"])
        .uid(VICTIM)
        .gid(VICTIM)
        .spawn()?;
    ensure!(visitor.wait()?.success(), "the visitor failed");
    // A worker takes it down, and tells of its end.
    let shown = format!("/sys/class/kfd/kfd/proc/{}", visitor.id());
    let begin = Instant::now();
    while std::fs::exists(&shown)? {
        ensure!(begin.elapsed() < PATIENCE, "the visitor is there still");
        std::thread::sleep(Duration::from_millis(20));
    }
    let heard = listener.end()?;
    check(
        heard.is_empty(),
        &format!("a stranger hears nothing of the victim: {heard:?}"),
    );
    Ok(())
}

/// The victim's longest turn is no longer than it may be while a stranger does its worst. A machine
/// that stands still for a moment holds it up as well, but not each time.
fn held_up(victim: &mut Player, attack: Attack) -> Result<()> {
    let value = attack.to_possible_value().context("an attack has a name")?;
    let name = value.get_name();
    let alone = longest_of(&victim.ask("turns 1000")?)?;
    let limit = LIMIT + alone * UNDISTURBED_TURNS;
    let mut go_on = false;
    for _ in 0..TRIES {
        let mut attacker = Player::start(STRANGER, "attack", &["--attack", name])?;
        attacker.set_priority(19)?;
        ensure!(attacker.line()? == "begun", "{name} does not begin");
        let beside = longest_of(&victim.ask("turns 3000")?);
        let did = attacker.end()?.join(", ");
        let beside = beside?;
        println!("figure: {name}: {did}; longest turn {beside:.1?}, undisturbed {alone:.1?}");
        go_on = beside <= limit;
        if go_on {
            break;
        }
    }
    check(go_on, &format!("{name}: the victim's turns go on"));
    Ok(())
}

/// The longest of the victim's turns, from its answer.
fn longest_of(answer: &str) -> Result<Duration> {
    let micros = answer.parse().with_context(|| format!("turns: {answer}"))?;
    Ok(Duration::from_micros(micros))
}

fn search_with(when: &str) -> Result<()> {
    let found = Player::start(STRANGER, "search", &[])?.end()?;
    for line in found {
        let (count, what) = line.split_once(' ').context("a count")?;
        check(
            count == "0",
            &format!("{what} {when}: {count} of the victim's words"),
        );
    }
    Ok(())
}

fn acquire() -> Result<std::sync::Arc<Device>> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    Ok(Device::acquire(&kfd, nodes.first().context("no GPU")?)?)
}

/// Waits until the test has heard enough.
fn until_told() -> Result<()> {
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// Uses another process's names; this one has nothing that could have the same.
fn guess(names: &Names) -> Result<()> {
    let device = acquire()?;
    let kfd = device.kfd();
    let gpu = device.gpu_id();
    let gpus = std::ptr::from_ref(&gpu) as u64;
    let mask = u64::MAX;
    let mask = std::ptr::from_ref(&mask) as u64;
    let event = uapi::kfd_event_data {
        event_id: names.event,
        ..Default::default()
    };
    let event = std::ptr::from_ref(&event) as u64;
    let (handle, queue_id, event_id) = (names.handle, names.queue, names.event);
    macro_rules! tried {
        ($request:ident, $args:ident { $($field:ident $(: $value:expr)?),* }) => {{
            let mut args = uapi::$args::default();
            $(args.$field = tried!(@ $field $(: $value)?);)*
            (stringify!($request), ioctl(kfd, uapi::$request, &mut args))
        }};
        (@ $field:ident) => { $field };
        (@ $field:ident : $value:expr) => { $value };
    }
    let (device_ids_array_ptr, n_devices) = (gpus, 1);
    let tried: [(&str, Outcome); 12] = [
        tried!(
            IOC_FREE_MEMORY_OF_GPU,
            kfd_ioctl_free_memory_of_gpu_args { handle }
        ),
        tried!(
            IOC_MAP_MEMORY_TO_GPU,
            kfd_ioctl_map_memory_to_gpu_args {
                handle,
                device_ids_array_ptr,
                n_devices
            }
        ),
        tried!(
            IOC_UNMAP_MEMORY_FROM_GPU,
            kfd_ioctl_unmap_memory_from_gpu_args {
                handle,
                device_ids_array_ptr,
                n_devices
            }
        ),
        tried!(IOC_EXPORT_DMABUF, kfd_ioctl_export_dmabuf_args { handle }),
        tried!(IOC_DESTROY_QUEUE, kfd_ioctl_destroy_queue_args { queue_id }),
        tried!(
            IOC_UPDATE_QUEUE,
            kfd_ioctl_update_queue_args {
                queue_id,
                queue_percentage: 0
            }
        ),
        tried!(
            IOC_SET_CU_MASK,
            kfd_ioctl_set_cu_mask_args {
                queue_id,
                num_cu_mask: 32,
                cu_mask_ptr: mask
            }
        ),
        tried!(
            IOC_GET_QUEUE_WAVE_STATE,
            kfd_ioctl_get_queue_wave_state_args {
                queue_id,
                ctl_stack_address: mask
            }
        ),
        tried!(IOC_SET_EVENT, kfd_ioctl_set_event_args { event_id }),
        tried!(IOC_RESET_EVENT, kfd_ioctl_reset_event_args { event_id }),
        tried!(IOC_DESTROY_EVENT, kfd_ioctl_destroy_event_args { event_id }),
        tried!(
            IOC_WAIT_EVENTS,
            kfd_ioctl_wait_events_args {
                events_ptr: event,
                num_events: 1,
                timeout: 0
            }
        ),
    ];
    for (request, outcome) in tried {
        let what = request.trim_start_matches("IOC_");
        match outcome {
            Ok(()) => check(
                false,
                &format!("{what} with another process's name succeeds"),
            ),
            Err(errno) => check(
                true,
                &format!("{what} with another process's name: {}", name(errno)),
            ),
        }
    }
    Ok(())
}

/// Says each event of the GPU that comes until it is told to end.
fn listen() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let gpu = nodes.first().context("no GPU")?.gpu_id;
    let numbers: Vec<u32> = (1..=uapi::KFD_SMI_EVENT_ALL_PROCESS).collect();
    let mut events = SmiEvents::open(&kfd, gpu, &numbers)?;
    crate::running::say("listening")?;
    until_told()?;
    for event in events.read(Duration::from_millis(500))? {
        println!("{} {}", event.number, event.text);
    }
    Ok(())
}

/// Counts the victim's words in memory of either kind that was just allocated.
fn search() -> Result<()> {
    const CHUNK: usize = 16 << 20;
    const CHUNKS: usize = 8;
    let device = acquire()?;
    let vram = MemoryFlags::VRAM | MemoryFlags::PUBLIC | MemoryFlags::WRITABLE;
    for (what, flags) in [
        ("VRAM", vram),
        ("system memory", MemoryFlags::GTT | MemoryFlags::WRITABLE),
    ] {
        let mut kept = Vec::new();
        for _ in 0..CHUNKS {
            kept.push(Memory::allocate(&device, CHUNK, flags)?);
        }
        let pages = (0..CHUNK).step_by(4096);
        let words = |memory: &Memory| {
            pages
                .clone()
                .filter(|&at| memory.read::<u64>(at, 2).contains(&SECRET))
                .count()
        };
        let found: usize = kept.iter().map(words).sum();
        println!("{found} {} MiB of {what}", (CHUNKS * CHUNK) >> 20);
    }
    Ok(())
}
