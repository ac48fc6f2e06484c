// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The GPUs: one `gpu-model-server` process for each, and the firmware files the model accepts.

use crate::args::RunArgs;
use crate::child::{self, Reaped};
use crate::perfetto;
use crate::place::{cargo_build, Place};
use anyhow::{anyhow, bail, Context, Result};
use rustix::fs::{memfd_create, MemfdFlags};
use signal_hook::consts::SIGTERM;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const PACKAGE: &str = "gpu-model-server";
/// TIMEOUT: a server only makes its memory and socket before it says so.
const START: Duration = Duration::from_secs(30);
/// TIMEOUT: a server ends when QEMU has left; one that serves the next client gets a signal.
const LEAVE: Duration = Duration::from_secs(3);
/// TIMEOUT: how long it may take to write its report then.
const REPORT: Duration = Duration::from_secs(10);

/// The server's path: the one given, or the project's own, built when its source is there.
pub fn server(args: &RunArgs) -> Result<PathBuf> {
    if let Some(path) = &args.model_server {
        return path
            .canonicalize()
            .with_context(|| format!("the model's server {}", path.display()));
    }
    match Place::find() {
        Place::Tree(project) => build_server(&project.join("tools")),
        Place::Installed { programs, .. } => Ok(programs.join(PACKAGE)),
    }
}

fn build_server(workspace: &Path) -> Result<PathBuf> {
    if !workspace.join("crates").join(PACKAGE).exists() {
        bail!("this tree has no {PACKAGE}; set GPU_MODEL_SERVER to one, or use --gpus 0");
    }
    let status = cargo_build(workspace, PACKAGE).status();
    if !status.context("running cargo")?.success() {
        bail!("{PACKAGE} did not build");
    }
    Ok(workspace.join("target/debug").join(PACKAGE))
}

/// Firmware files of a kind of GPU, by name relative to /lib/firmware.
pub fn firmware(server: &Path, preset: &str, scratch: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let dir = scratch.join("firmware");
    fs::create_dir_all(&dir)?;
    let status = Command::new(server)
        .args(["firmware", "--preset", preset])
        .arg(&dir)
        .stdout(Stdio::null())
        .status();
    if !status
        .with_context(|| server.display().to_string())?
        .success()
    {
        bail!("`{PACKAGE} firmware` failed");
    }
    let entries = fs::read_dir(dir.join("amdgpu")).context("the model's firmware")?;
    entries
        .map(|entry| {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            Ok((format!("amdgpu/{name}"), fs::read(&path)?))
        })
        .collect()
}

/// The local memories of GPUs that xGMI connects: each server has all of them. Empty: they are not
/// connected. Kept until the servers have started, which inherit them.
pub struct Hive(Vec<OwnedFd>);

impl Hive {
    pub fn new(args: &RunArgs) -> Result<Self> {
        let nodes = if args.xgmi { args.gpu_count() } else { 0 };
        if nodes == 1 {
            bail!("--xgmi needs two GPUs or more");
        }
        let memory = |_| {
            let memory = memfd_create("gpu-vram", MemfdFlags::CLOEXEC)?;
            child::inherit(&memory)?;
            Ok(memory)
        };
        Ok(Self((0..nodes).map(memory).collect::<Result<_>>()?))
    }

    fn arguments(&self, number: usize) -> Vec<String> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let files = self
            .0
            .iter()
            .map(|fd| format!("/dev/fd/{}", fd.as_raw_fd()));
        let files: Vec<_> = files.collect();
        let node = number.to_string();
        vec![
            "--hive".into(),
            node,
            "--hive-memory".into(),
            files.join(","),
        ]
    }
}

/// A running model. Killed when dropped.
pub struct Gpu {
    number: usize,
    pub socket: PathBuf,
    pub log: PathBuf,
    pub ended: Ended,
    process: Reaped,
}

impl Gpu {
    /// Starts GPU number `number`, with socket and log in `dir`.
    pub fn start(
        server: &Path,
        args: &RunArgs,
        number: usize,
        dir: &Path,
        hive: &Hive,
    ) -> Result<Self> {
        let socket = dir.join(format!("gpu{number}.sock"));
        let log = match &args.log {
            Some(path) => PathBuf::from(format!("{}.gpu{number}", path.display())),
            None => dir.join(format!("gpu{number}.log")),
        };
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = child::command(server);
        command
            .arg("serve")
            .arg("--socket")
            .arg(&socket)
            .args(["--preset", args.preset(number)]);
        command.args(args.vram.iter().flat_map(|size| ["--vram", size]));
        command.args(hive.arguments(number));
        command.args(perfetto::model_arguments(args, dir, number));
        // Nothing then depends on how fast the host is.
        command.args(args.machine.icount.then_some("--synchronous"));
        let reports = args.model_args.contains("--report");
        if let Some(log) = args.log.as_ref().filter(|_| !reports) {
            let report = format!("{}.gpu{number}.report", log.display());
            command.arg("--report").arg(report);
        }
        // Cards differ by their number, unless the caller numbers them.
        if !args.model_args.contains("--serial") {
            command.arg("--serial").arg(number.to_string());
        }
        command.args(
            args.model_args
                .replace("{n}", &number.to_string())
                .split_whitespace(),
        );
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file.try_clone()?);
        let mut process = command.spawn().context("starting the GPU model")?;
        let stdout = process.stdout.take().ok_or_else(|| anyhow!("no pipe"))?;
        let ended = Ended::default();
        let process = Reaped::new(process);
        let gpu = Self {
            number,
            socket,
            log,
            ended: ended.clone(),
            process,
        };
        let (sender, listening) = channel();
        thread::spawn(move || copy_output(stdout, file, sender, &ended));
        let heard = listening.recv_timeout(START);
        heard.map_err(|_| anyhow!("the GPU model did not start: {}", gpu.last_words()))?;
        Ok(gpu)
    }

    /// The end of what the model said, for an error message.
    pub fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// After QEMU has gone: lets the model finish its report, and says when it did not end well.
    pub fn finish(mut self) -> Result<()> {
        let ended = self.process.wait_for(LEAVE).or_else(|| {
            self.process.terminate();
            self.process.wait_for(REPORT)
        });
        let name = format!("the model of GPU {}", self.number);
        match ended {
            Some(status) if status.success() || status.signal() == Some(SIGTERM) => Ok(()),
            Some(status) => bail!("{name} ended with {status}: {}", self.last_words()),
            None => bail!("{name} does not end"),
        }
    }
}

/// Set when a server has ended.
#[derive(Debug, Clone, Default)]
pub struct Ended(Arc<AtomicBool>);

impl Ended {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything goes to the log; the line that names the socket is also news.
fn copy_output(stdout: ChildStdout, mut log: File, listening: Sender<()>, ended: &Ended) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        if line.starts_with("listening ") {
            let _ = listening.send(());
        }
        let _ = writeln!(log, "{line}");
    }
    ended.0.store(true, Ordering::Relaxed);
}
