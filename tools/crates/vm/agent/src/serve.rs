// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The service: takes one request after another from the virtio-serial port.

use crate::command::Task;
use crate::incoming::{self, Inbox, Line};
use crate::kernel_log::KernelLog;
use crate::port::{self, Port};
use crate::{command, gpus, modules, net};
use anyhow::{anyhow, bail, Context, Result};
use kfd_vm_protocol::{Frame, Reply, Request, SHARE, SHARE_TAG};
use rustix::mount::{mount, MountFlags};
use rustix::time::{clock_settime, ClockId, Timespec};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

/// What commands have that do not say otherwise.
#[derive(Default)]
struct Usual {
    env: Vec<(String, String)>,
    cwd: String,
}

/// Set once, when the machine is settled.
static USUAL: OnceLock<Usual> = OnceLock::new();

/// There if the host wants the kernel's messages.
static LOG: OnceLock<KernelLog> = OnceLock::new();

pub fn serve() -> Result<()> {
    let mut service = Service::new()?;
    loop {
        let (frame, line) = service.inbox.next()?;
        let Frame::Request(request) = frame else {
            bail!("not a request: {frame:?}")
        };
        match (request, line) {
            // A channel's command runs beside all others.
            (request, Some(line)) if line.channel != 0 => {
                let port = service.port.on(line.channel);
                thread::spawn(move || port.send(Frame::Reply(reply(run(&port, request, line)))));
            }
            (request, line) => {
                let answer = service.answer(request, line);
                service.port.send(Frame::Reply(reply(answer)))?;
            }
        }
    }
}

fn reply(answer: Result<Reply>) -> Reply {
    answer.unwrap_or_else(|error| Reply::Failed {
        message: format!("{error:#}"),
    })
}

fn run(port: &Port, request: Request, line: Line) -> Result<Reply> {
    let Request::Run {
        argv,
        env,
        cwd,
        terminal,
        ..
    } = request
    else {
        bail!("a channel is for commands")
    };
    let usual = USUAL.get_or_init(Usual::default);
    let env = [&usual.env[..], &env].concat();
    let task = Task {
        argv: &argv,
        env: &env,
        cwd: if cwd.is_empty() { &usual.cwd } else { &cwd },
        terminal,
    };
    let status = command::run(port, &task, line)?;
    flush_share();
    // The host may end the machine once it has the status.
    if let Some(log) = LOG.get() {
        log.catch_up();
    }
    Ok(Reply::Exit { status })
}

struct Service {
    inbox: Inbox,
    port: Port,
    /// Opened before any GPU can come, so that the arrival of none is lost.
    gpus: gpus::Watch,
}

impl Service {
    fn new() -> Result<Self> {
        // Without it few miss it.
        let _ = net::raise_loopback();
        let (incoming, port) = port::open()?;
        Ok(Self {
            inbox: incoming::sort(incoming),
            port,
            gpus: gpus::Watch::new()?,
        })
    }

    fn answer(&mut self, request: Request, line: Option<Line>) -> Result<Reply> {
        match request {
            Request::Hello => {
                let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
                return Ok(Reply::Ready {
                    release: release.trim().into(),
                });
            }
            Request::Settle {
                realtime_ns,
                log,
                env,
                cwd,
            } => {
                let _ = USUAL.set(Usual { env, cwd });
                self.settle(realtime_ns, log)?
            }
            Request::MountShare => mount_share()?,
            Request::LoadModule { name, parameters } => modules::load(&name, &parameters)?,
            Request::SetUpNetwork => net::set_up()?,
            Request::WriteFile { path, mode, size } => self.write_file(&path, mode, size)?,
            Request::AwaitGpus {
                count,
                timeout_ms,
                arrival,
            } => self
                .gpus
                .wait(count, Duration::from_millis(timeout_ms), arrival)?,
            Request::Run { .. } => {
                let line = line.ok_or(anyhow!("a command without a line"))?;
                return run(&self.port, request, line);
            }
        }
        Ok(Reply::Done)
    }

    fn settle(&self, realtime_ns: u64, log: bool) -> Result<()> {
        let now = Timespec {
            tv_sec: (realtime_ns / 1_000_000_000) as i64,
            tv_nsec: (realtime_ns % 1_000_000_000) as i64,
        };
        clock_settime(ClockId::Realtime, now).context("setting the clock")?;
        if log {
            let opened = KernelLog::open(self.port.clone()).context("opening /dev/kmsg")?;
            let log = LOG.get_or_init(|| opened);
            thread::spawn(|| log.stream());
        }
        Ok(())
    }

    /// Takes in all data even where the file cannot be written: the stream must stay in step.
    fn write_file(&mut self, path: &str, mode: u32, size: u64) -> Result<()> {
        let mut file = create(path, mode);
        let mut left = size;
        while left > 0 {
            let (Frame::Data(data), _) = self.inbox.next()? else {
                bail!("data of {path} expected")
            };
            left = left
                .checked_sub(data.len() as u64)
                .ok_or(anyhow!("too much data of {path}"))?;
            if let Ok(open) = &mut file {
                if let Err(error) = open.write_all(&data) {
                    file = Err(error.into());
                }
            }
        }
        file.map(drop).with_context(|| format!("writing {path}"))
    }
}

fn create(path: &str, mode: u32) -> Result<File> {
    if let Some(parent) = Path::new(path).parent() {
        fs::create_dir_all(parent)?;
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(file)
}

fn mount_share() -> Result<()> {
    let data = c"trans=virtio,version=9p2000.L,cache=mmap,msize=524288";
    mount(SHARE_TAG, SHARE, "9p", MountFlags::empty(), data).context("mounting the share")
}

/// The host kills the machine once it has the exit status: what was written must be there by then.
fn flush_share() {
    if let Ok(dir) = File::open(SHARE) {
        let _ = rustix::fs::syncfs(&dir);
    }
}
