// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What one process of a program does: a thread for each of its threads, line by line. Besides
//! ioctls by their names there are these words:
//!
//! | word | does |
//! |---|---|
//! | `SETUP [uid=]` | becomes that user, opens `/dev/kfd`, acquires the VMs of the first two GPUs |
//! | | and prepares what `$` names; `$gpu2`, `$ring2` and so on are the second's, if there is one |
//! | `OPEN render=` | opens `/dev/kfd`, or the GPU's render node, once more |
//! | `CLOSE file=` | closes what a line of this process gave |
//! | `MMAP kind= gpu= bytes= access= [fd=]` | maps the KFD |
//! | `MUNMAP at=`, `TOUCH at=` | unmaps it, reads from it |
//! | `DISCARD at= bytes=` | puts fresh pages in place of some of `$memory` or `$svm` |
//! | `POKE at= bytes=` | writes to a page of `$svm` each |
//! | `FORK lines=` | a child does the next lines of this thread as well, and ends |
//! | `SEND file= to=`, `RECEIVE` | passes a file to another process of the program; takes one |
//! | `LAUNCH groups= rounds=`, `AWAIT ms=` | a real dispatch, and a wait for the oldest one |
//! | `SLEEP ms=`, `DIE` | sleeps; SIGKILL to itself |
//! | `TRACE process=`, `UNTRACE process=` | this thread traces a process of the program; no more |

mod call;
mod debugger;
mod files;
mod launch;
mod open_files;

pub use call::place;
pub use debugger::Turns;
pub use files::mailbox;

use super::abi::{Abi, Facts};
use super::generate::{MEMORY, PLACE, PLACES};
use super::program::{Line, Program, Value, MISSING};
use super::shared::Shared;
use crate::bench::Bench;
use crate::waves::Gpu;
use anyhow::{Context, Result};
use debugger::Waits;
use kfd::{topology, Device, Kfd};
use launch::Launches;
use nix::libc;
use nix::unistd::Pid;
use open_files::OpenFile;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};
use rustix::pipe::{pipe_with, PipeFlags};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a line waits for what another thread of its process is to give.
const MOMENT: Duration = Duration::from_millis(50);

/// One process at work: what its threads share.
struct World<'a> {
    program: &'a Program,
    shared: &'a Shared,
    number: u8,
    prepared: OnceLock<Prepared>,
    table: Mutex<Table>,
    launches: Mutex<Launches>,
    abi: Mutex<Abi>,
    waits: Waits,
}

/// What SETUP has made.
struct Prepared {
    /// Of the first GPU, and of the second.
    benches: Vec<Bench>,
    gpu: Gpu,
    places: u64,
    memory: u64,
    /// Memory that is shared with GPUs, if anything of it is.
    svm: u64,
    /// The pipe by which it is told of what it debugs; nobody reads it.
    notice: [OwnedFd; 2],
    /// Whose the file is.
    process: u32,
}

/// What the lines of a process have given so far.
#[derive(Default)]
struct Table {
    values: HashMap<String, u64>,
    /// Labels whose lines are over, with something given or nothing.
    over: HashSet<String>,
    /// Files that the lines opened, and may close.
    files: Vec<OpenFile>,
    /// Files so far, and changes of what is known of one.
    changes: u64,
    /// Mappings that MMAP made, and their sizes.
    mappings: HashMap<u64, usize>,
}

/// One thread of it.
struct Thread<'a> {
    world: &'a World<'a>,
    /// A child of FORK: it writes no record, for its parent has the same lines.
    forked: bool,
    /// Whom it traces.
    traces: Vec<Pid>,
}

/// Runs the lines of process `number` and never returns.
pub fn process(program: &Program, number: u8, shared: &Shared) -> ! {
    let world = World {
        program,
        shared,
        number,
        prepared: OnceLock::new(),
        table: Mutex::default(),
        launches: Mutex::default(),
        abi: Mutex::default(),
        waits: Waits::default(),
    };
    shared.is(number);
    let lines: Vec<&Line> = program.of(number).collect();
    let first = lines.iter().take_while(|line| line.call == "SETUP").count();
    world.thread().run(&lines[..first]);
    let last = lines.iter().map(|line| line.thread).max().unwrap_or(0);
    std::thread::scope(|scope| {
        let world = &world;
        scope.spawn(|| world.attend());
        let mut threads = Vec::new();
        for thread in 0..=last {
            let own = lines[first..].iter().filter(|line| line.thread == thread);
            let own: Vec<&Line> = own.copied().collect();
            threads.push(scope.spawn(move || world.thread().run(&own)));
        }
        for thread in threads {
            // One that panics has said so.
            let _ = thread.join();
        }
        world.waits.end();
    });
    // SAFETY: it ends the process. What it has open the kernel takes back: that is tested.
    unsafe { libc::_exit(0) }
}

impl<'a> World<'a> {
    fn thread(&'a self) -> Thread<'a> {
        Thread {
            world: self,
            forked: false,
            traces: Vec::new(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn abi(&self) -> MutexGuard<'_, Abi> {
        self.abi.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kfd(&self) -> i32 {
        let first = self.prepared.get().and_then(|it| it.benches.first());
        first.map_or(-1, |it| it.kfd().as_raw_fd())
    }

    fn value(&self, value: &Value) -> u64 {
        match value {
            Value::Number(number) => *number,
            Value::Prepared(name, offset) => self.prepared(name).wrapping_add(*offset),
            Value::Label(name, offset) => self
                .label(name)
                .map_or(MISSING, |value| value.wrapping_add(*offset)),
            // Only an ioctl has lists: `call`.
            Value::Words(_) | Value::Events(_) => 0,
        }
    }

    /// What the line with this label gave. Another thread may be about to make that call: it is
    /// given a moment.
    fn label(&self, name: &str) -> Option<u64> {
        let end = Instant::now() + MOMENT;
        while self.program.has(name) && Instant::now() < end {
            let table = self.table();
            if table.over.contains(name) {
                return table.values.get(name).copied();
            }
            drop(table);
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// The number in field `name` of `line`; 0 where there is none.
    fn number(&self, line: &Line, name: &str) -> u64 {
        line.field(name).map_or(0, |value| self.value(value))
    }

    fn prepared(&self, name: &str) -> u64 {
        if let Some(number) = name.strip_prefix("pid") {
            return number.parse().map_or(0, |number| self.pid(number));
        }
        let Some(it) = self.prepared.get() else {
            return 0;
        };
        let (name, second) = match name.strip_suffix('2') {
            Some(name) => (name, it.benches.get(1)),
            None => (name, None),
        };
        let Some(bench) = second.or(it.benches.first()) else {
            return 0;
        };
        let queue = bench.queue();
        match name {
            "gpu" => bench.gpu_id().into(),
            "kfd" => self.kfd() as u64,
            "place" => it.places,
            "memory" => it.memory,
            "svm" => it.svm,
            "notice" => it.notice[1].as_raw_fd() as u64,
            "ring" => queue.ring_base_address,
            "write" => queue.write_pointer_address,
            "read" => queue.read_pointer_address,
            "eop" => queue.eop_buffer_address,
            "area" => queue.ctx_save_restore_address,
            "area_size" => queue.ctx_save_restore_size.into(),
            "stack_size" => queue.ctl_stack_size.into(),
            _ => 0,
        }
    }

    /// Later lines know `value` by the label of `line`.
    fn gives(&self, line: &Line, value: u64) {
        if let Some(label) = &line.label {
            self.table().values.insert(label.clone(), value);
        }
    }

    fn setup(&self, user: Option<u32>) -> Result<()> {
        if let Some(user) = user {
            become_user(user)?;
            debugger::may_be_traced();
        }
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        let used = &nodes[..nodes.len().min(2)];
        let devices: Vec<_> = used
            .iter()
            .map(|node| Device::acquire(&kfd, node))
            .collect::<Result<_, _>>()?;
        let gpu = Gpu::on(devices.first().context("no GPU")?.clone(), launch::MOST)?;
        // The first event brings the process's page of them.
        gpu.signal()?;
        let reserve = |size: u64, access| {
            // SAFETY: new mappings where the kernel likes, which stay until the process ends.
            unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    size as usize,
                    access,
                    MapFlags::PRIVATE,
                )
            }
        };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let prepared = Prepared {
            benches: devices.iter().map(Bench::new).collect::<Result<_>>()?,
            gpu,
            places: reserve(PLACES as u64 * PLACE, ProtFlags::empty())? as u64,
            memory: reserve(MEMORY, access)? as u64,
            svm: reserve(MEMORY, access)? as u64,
            notice: [read, write],
            process: std::process::id(),
        };
        // A second SETUP prepares nothing more.
        if self.prepared.set(prepared).is_ok() {
            *self.abi() = Abi::new(facts(used, nodes.len()));
        }
        Ok(())
    }
}

/// What of the machine bounds the answers.
fn facts(used: &[topology::Node], all_gpus: usize) -> Facts {
    let memory = |node: &topology::Node| {
        let sizes = node.memory.iter().filter_map(|it| it.get("size_in_bytes"));
        sizes.sum::<u64>()
    };
    let gpus = used
        .iter()
        .map(|node| (node.gpu_id, memory(node)))
        .collect();
    Facts { gpus, all_gpus }
}

/// This process, which has one thread, is `user`'s from now on, without any group's rights.
fn become_user(user: u32) -> Result<()> {
    use nix::unistd::{setgroups, setresgid, setresuid, Gid, Uid};
    let (group, user) = (Gid::from_raw(user), Uid::from_raw(user));
    setgroups(&[])?;
    setresgid(group, group, group)?;
    setresuid(user, user, user)?;
    Ok(())
}

impl Thread<'_> {
    fn run(&mut self, lines: &[&Line]) {
        for (index, line) in lines.iter().enumerate() {
            if !self.forked {
                self.world.shared.record(line);
            }
            let begin = Instant::now();
            self.line(line, &lines[index + 1..]);
            if let Some(label) = &line.label {
                self.world.table().over.insert(label.clone());
            }
            self.world.shared.took(line, begin.elapsed());
            self.attend_traces();
        }
    }

    fn line(&mut self, line: &Line, following: &[&Line]) {
        let world = self.world;
        let number = |name| world.number(line, name);
        match line.call.as_str() {
            "SETUP" => match world.setup(line.field("uid").map(|_| number("uid") as u32)) {
                Ok(()) => world.shared.tally.count("SETUP", true),
                // Memory may be scarce: the others took it. Its calls fail then.
                Err(error) => world.shared.complain(&format!("SETUP: {error:#}")),
            },
            "OPEN" => world.open(line),
            "CLOSE" => world.close(number("file")),
            "MMAP" => world.map(line),
            "MUNMAP" => world.unmap(number("at")),
            "TOUCH" => world.touch(number("at")),
            "POKE" => world.poke(number("at"), number("bytes")),
            "DISCARD" => world.discard(number("at"), number("bytes")),
            "SEND" => world.send(number("file") as i32, number("to") as usize),
            "RECEIVE" => world.receive(line),
            "LAUNCH" => world.launch(number("groups") as u32, number("rounds") as u32),
            "AWAIT" => world.finish(Duration::from_millis(number("ms"))),
            "SLEEP" => std::thread::sleep(Duration::from_millis(number("ms"))),
            "FORK" => self.fork(&following[..following.len().min(number("lines") as usize)]),
            "DIE" => die(world.shared),
            "TRACE" => self.trace(number("process") as usize),
            "UNTRACE" => self.untrace(number("process") as usize),
            _ => world.ioctl(line, &|pid| self.traces(pid)),
        }
    }

    /// A child that does `lines` and ends; nobody waits for it but who waits for all.
    fn fork(&mut self, lines: &[&Line]) {
        // The child has no other thread that could let these go.
        let table = self.world.table();
        let launches = self.world.launches.lock();
        let abi = self.world.abi();
        // SAFETY: of what other threads may hold at this moment, the child takes only memory from
        // the allocator, which the C library makes ready for that, and the locks that are held
        // here.
        let child = unsafe { libc::fork() };
        drop((table, launches, abi));
        if child == 0 {
            // What it opens itself has a context of its own.
            self.world.abi().lose();
            self.forked = true;
            self.traces.clear();
            self.run(lines);
            // SAFETY: it ends the child.
            unsafe { libc::_exit(0) }
        }
        self.world.shared.tally.count("FORK", child > 0);
    }
}

fn die(shared: &Shared) {
    shared.tally.count("DIE", true);
    // SAFETY: it ends this process, and nothing else.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}
