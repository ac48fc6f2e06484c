// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The service: takes one request after another from the virtio-serial port.

use crate::command::Task;
use crate::incoming::{self, Inbox, Line};
use crate::port::{self, Port};
use crate::{command, gpus, modules, net};
use anyhow::{anyhow, bail, Context, Result};
use kfd_vm_protocol::{Frame, Reply, Request, SHARE, SHARE_TAG};
use rustix::mount::{mount, MountFlags};
use rustix::time::{clock_settime, ClockId, Timespec};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
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
                hot,
            } => self
                .gpus
                .wait(count, Duration::from_millis(timeout_ms), hot)?,
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
            let port = self.port.clone();
            thread::spawn(move || stream_log(&port));
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

/// Sends the kernel's messages as they come, each as a line of text; ends with the port.
fn stream_log(port: &Port) -> Option<()> {
    let mut kmsg = File::open("/dev/kmsg").ok()?;
    let mut record = vec![0; 8192];
    loop {
        match kmsg.read(&mut record) {
            Ok(count) => {
                let line = log_line(&String::from_utf8_lossy(&record[..count]));
                port.send(Frame::Log(line.into_bytes())).ok()?;
            }
            // Messages were overwritten before they could be read: go on with the oldest there is.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {}
            Err(_) => return None,
        }
    }
}

/// A /dev/kmsg record, `level,number,microseconds,flags;text`, as dmesg shows it.
pub fn log_line(record: &str) -> String {
    let (head, text) = record.split_once(';').unwrap_or(("", record));
    let text = text.lines().next().unwrap_or_default();
    let micros: u64 = head
        .split(',')
        .nth(2)
        .and_then(|field| field.parse().ok())
        .unwrap_or(0);
    format!(
        "[{:5}.{:06}] {text}\n",
        micros / 1_000_000,
        micros % 1_000_000
    )
}

#[cfg(test)]
mod tests {
    use super::log_line;

    #[test]
    fn kernel_messages_look_like_dmesg() {
        let record = "6,339,5140900,-;amdgpu: loaded\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n";
        assert_eq!(log_line(record), "[    5.140900] amdgpu: loaded\n");
        assert_eq!(log_line("odd"), "[    0.000000] odd\n");
    }
}
