// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `kfd-vm run` from start to end: get a machine up, with its GPUs and its KFD, run the command.

use crate::args::{
    Accel, CommandArgs, ExecArgs, Kfd, MachineArgs, RunArgs, Share, ShellArgs, UpArgs,
};
use crate::assets::Assets;
use crate::background::{self, Held};
use crate::gpus::{self, Gpu, Hive};
use crate::image::Settings;
use crate::initramfs;
use crate::interrupt::Interrupt;
use crate::kernel_log;
use crate::machine::{gpu_device, Machine};
use crate::net;
use crate::output::{PassThrough, Sink};
use crate::perfetto::Perfetto;
use crate::scratch::Scratch;
use crate::session::{Failure, Limit, Session, Start};
use crate::snapshot;
use crate::{terminal, STATUS_FAILED};
use anyhow::{anyhow, bail, Context, Result};
use kfd_vm_protocol::{Arrival, Reply, Request, SHARE};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where the guest finds the module.
pub const MODULE: &str = "/run/amdkfd/amdkfd.ko";
/// What the module does, in one word or more.
const STATE: &str = "/sys/module/amdkfd/parameters/state";
/// Where it finds the one that is inserted before it.
const ALSO: &str = "/run/amdkfd/also.ko";
/// TIMEOUT: generous, for a machine that shares its processors with others; a boot takes 5 s alone.
pub const BOOT: Duration = Duration::from_secs(300);
/// TIMEOUT: the probe of a GPU takes 1 to 3 s alone, the loading of amdgpu 10 to 15 s.
pub const LOAD: Duration = Duration::from_secs(300);

/// What the machine is for.
pub struct Order {
    command: Vec<String>,
    /// How long it may take, and be silent.
    limit: Limit,
    /// Whether it has a terminal.
    terminal: bool,
    /// Whether it reads what we read.
    reads: bool,
}

const SHELL: &str = "command -v bash >/dev/null && exec bash -l; exec sh -l";
/// A year: nobody waits for more, and every clock can add it.
pub const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Order {
    pub fn of(args: &CommandArgs) -> Self {
        Self {
            command: args.command.clone(),
            limit: Limit {
                total: args.timeout,
                silence: args.silence,
            },
            terminal: args.tty,
            reads: true,
        }
    }

    /// Bash as at a login, or what a root has instead.
    pub fn of_shell(args: &ShellArgs) -> Self {
        Self {
            command: ["sh", "-c", SHELL].map(String::from).into(),
            limit: args.timeout.unwrap_or(UNLIMITED).into(),
            terminal: terminal::is_ours(),
            reads: true,
        }
    }

    /// A line for the shell.
    pub fn of_test(line: &str, limit: Duration) -> Self {
        Self {
            command: ["sh", "-c", line].map(String::from).into(),
            limit: limit.into(),
            terminal: false,
            reads: false,
        }
    }

    pub fn of_exec(args: &ExecArgs) -> Self {
        Self {
            command: args.command.clone(),
            limit: args.timeout.unwrap_or(UNLIMITED).into(),
            terminal: args.tty,
            reads: true,
        }
    }

    /// The same for another command.
    fn instead(&self, command: Vec<String>) -> Self {
        Self { command, ..*self }
    }

    pub fn has_terminal(&self) -> bool {
        self.terminal
    }

    pub fn limit(&self) -> Duration {
        self.limit.total
    }

    /// To run it there, with these variables beside those that it has anyway.
    pub fn request(&self, cwd: String, variables: &[(String, String)]) -> Request {
        let mut env = Vec::new();
        if self.terminal {
            env.extend(terminal::kind().map(|kind| ("TERM".into(), kind)));
        }
        env.extend(variables.iter().cloned());
        Request::Run {
            argv: self.command.clone(),
            env,
            cwd,
            input: self.reads,
            terminal: self.terminal.then(terminal::size),
        }
    }
}

pub fn prepare(args: &MachineArgs) -> Result<u8> {
    if let Some(reason) = args.cold_reason() {
        bail!("a machine with {reason} is always booted cold");
    }
    let scratch = Scratch::new(args.verbose > 0)?;
    let (assets, initramfs) = locate(args, &scratch.interrupt, false)?;
    let machine = Machine {
        args,
        kvm: args.kvm()?,
        bare: false,
        assets: &assets,
        initramfs: &initramfs,
    };
    snapshot::obtain(&machine, args.saved_with_amdgpu(), &scratch)?;
    Ok(0)
}

pub fn run(args: &RunArgs, order: &Order) -> Result<u8> {
    with_machine(args, |run, session| {
        run.scratch.note("running the command");
        let status = run.command(session, order, &mut PassThrough)?;
        run.scratch.note("the command ended");
        Ok(status)
    })
}

/// Holds a machine until somebody wants its end.
pub fn hold(args: &UpArgs) -> Result<u8> {
    let options = &args.options;
    if options.perfetto.is_some() {
        bail!("--perfetto shows one command: use kfd-vm run");
    }
    let held = Held::new(&args.name, working_directory(options)?, describe(options))?;
    let mut ender = None;
    let result = with_machine(options, |_, session| {
        ender = Some(session.hold(&held)?);
        Ok(0)
    });
    let reply = match &result {
        Ok(0) => Reply::Done,
        Ok(_) => Reply::Failed {
            message: "something failed; it is in the machine's log".into(),
        },
        Err(error) => Reply::Failed {
            message: format!("{error:#}"),
        },
    };
    held.end(match &reply {
        Reply::Failed { message } => message,
        _ => "the machine was ended",
    });
    if let Some(ender) = ender {
        background::answer(ender, reply);
    }
    result
}

/// What a machine is, in a few words.
fn describe(args: &RunArgs) -> String {
    let presets: Vec<_> = (0..args.gpu_count()).map(|n| args.preset(n)).collect();
    let image = args.machine.image.as_ref().map(|image| image.to_string());
    let root = image.unwrap_or_else(|| args.machine.root.clone());
    format!(
        "{:?} kernel, {}, KFD: {:?}, GPUs: {}, process {}",
        args.machine.kernel,
        root,
        args.machine.kfd,
        if presets.is_empty() {
            "none".into()
        } else {
            presets.join(" ")
        },
        std::process::id()
    )
    .to_lowercase()
}

/// Brings a machine up, has something done with it, and switches it off.
pub fn with_machine(
    args: &RunArgs,
    body: impl FnOnce(&Run<'_>, &mut Session) -> Result<u8>,
) -> Result<u8> {
    let end = until_end(args, body)?;
    Ok(match end.status {
        0 if !end.complaints.is_empty() => STATUS_FAILED,
        status => status,
    })
}

/// How a machine that did not fail has ended.
pub struct End {
    /// The body's.
    pub status: u8,
    /// What is not good around it: in the kernel's log, or of a model.
    pub complaints: Vec<String>,
}

/// The same, and what there is to complain of is said and returned.
pub fn until_end(
    args: &RunArgs,
    body: impl FnOnce(&Run<'_>, &mut Session) -> Result<u8>,
) -> Result<End> {
    let scratch = Scratch::new(args.machine.verbose > 0)?;
    let located = locate(&args.machine, &scratch.interrupt, args.has_network());
    let (assets, initramfs) = located?;
    let run = Run::new(args, &assets, scratch)?;
    let machine = Machine {
        args: &args.machine,
        kvm: args.machine.kvm()?,
        bare: args.wants_bare(),
        assets: &assets,
        initramfs: &initramfs,
    };
    if args.machine.accel == Accel::Auto {
        say!("kfd-vm: {}", args.machine.chosen(machine.kvm));
    }
    let gpus = run.start_gpus()?;
    let mut session = run
        .bring_up(&machine, &gpus)
        .map_err(|error| with_models(error, &gpus))?;
    let status = body(&run, &mut session).map_err(|error| with_models(error, &gpus))?;
    let findings = run.check_log(&mut session)?;
    let fetch = |perfetto: &Perfetto| perfetto.fetch(&mut session);
    let timeline = run.perfetto.as_ref().map(fetch).transpose()?;
    session.quit();
    run.scratch.note("the machine is off");
    let count = gpus.len();
    let complaints = finish(gpus, findings);
    if let Some((perfetto, timeline)) = run.perfetto.as_ref().zip(timeline) {
        perfetto.write(timeline, run.scratch.path(), count)?;
    }
    Ok(End { status, complaints })
}

/// What a machine is made of, made where it is not there yet.
pub fn locate(
    args: &MachineArgs,
    interrupt: &Interrupt,
    network: bool,
) -> Result<(Assets, PathBuf)> {
    let found = Assets::locate(args, interrupt).and_then(|assets| {
        if network && !initramfs::has_module(&assets.kernel, "virtio_net") {
            bail!("--net and --publish need --kernel stock: this kernel has no virtio_net");
        }
        let initramfs = initramfs::locate(&assets)?;
        Ok((assets, initramfs))
    });
    // A signal may have ended what it waited for.
    interrupt.check()?;
    found
}

fn finish(gpus: Vec<Gpu>, findings: Vec<String>) -> Vec<String> {
    let ends = gpus.into_iter().map(Gpu::finish);
    let mut errors: Vec<_> = ends
        .filter_map(Result::err)
        .map(|e| format!("{e:#}"))
        .collect();
    errors.extend(
        findings
            .iter()
            .map(|line| format!("the kernel's log: {line}")),
    );
    for error in &errors {
        say!("kfd-vm: {error}");
    }
    errors
}

/// A machine that failed may have failed because of its GPU.
fn with_models(error: anyhow::Error, gpus: &[Gpu]) -> anyhow::Error {
    if let Some(Failure::Signal(_)) = error.downcast_ref() {
        return error;
    }
    for (number, gpu) in gpus.iter().enumerate() {
        let words = gpu.last_words();
        if !words.is_empty() {
            say!("kfd-vm: the model of GPU {number} said last:\n{words}");
        }
    }
    error
}

pub struct Run<'a> {
    args: &'a RunArgs,
    scratch: Scratch,
    share: Option<Share>,
    module: Option<Vec<u8>>,
    also: Option<Vec<u8>>,
    perfetto: Option<Perfetto>,
    server: Option<PathBuf>,
    firmware: Vec<(String, Vec<u8>)>,
    settings: Settings,
}

impl<'a> Run<'a> {
    /// Finds all that the run needs from outside, so that what is missing is reported before a
    /// boot.
    fn new(args: &'a RunArgs, assets: &Assets, scratch: Scratch) -> Result<Self> {
        let server = (args.gpu_count() > 0)
            .then(|| gpus::server(args))
            .transpose()?;
        let firmware = server
            .as_ref()
            .map(|server| gpus::firmware(server, args.preset(0), scratch.path()));
        Ok(Self {
            args,
            share: share(args)?,
            module: module(args, &assets.module)?,
            also: also(args)?,
            perfetto: Perfetto::new(args)?,
            server,
            firmware: firmware.transpose()?.unwrap_or_default(),
            settings: assets.settings.clone(),
            scratch,
        })
    }

    fn start_gpus(&self) -> Result<Vec<Gpu>> {
        let Some(server) = &self.server else {
            return Ok(Vec::new());
        };
        let hive = Hive::new(self.args)?;
        let numbers = 0..self.args.gpu_count();
        numbers
            .map(|number| Gpu::start(server, self.args, number, self.scratch.path(), &hive))
            .collect()
    }

    /// A machine with its GPUs and KFD in place: from a snapshot where one fits, else booted.
    fn bring_up(&self, machine: &Machine<'_>, gpus: &[Gpu]) -> Result<Session> {
        match self.args.cold_reason() {
            Some(reason) => {
                self.scratch.note(&format!("booting cold ({reason})"));
                self.cold(machine, gpus)
            }
            None => self.warm(machine, gpus),
        }
    }

    fn cold(&self, machine: &Machine<'_>, gpus: &[Gpu]) -> Result<Session> {
        let mut start = self.start(machine, gpus)?;
        start.devices = self.devices(gpus);
        start.devices.extend(self.network_card());
        let mut session = Session::start(start)?;
        let release = session.hello()?;
        self.scratch.note(&format!("booted {release}"));
        self.equip(&mut session)?;
        if self.args.loads_amdgpu() {
            load_amdgpu(
                &mut session,
                &self.args.machine.amdgpu_args.join(" "),
                &self.scratch,
            )?;
        }
        if self.args.insmod_first {
            // There is no "before" for a GPU that amdgpu found at its start.
            self.scratch
                .note("--insmod-first has no effect on a cold boot");
        }
        self.await_gpus(&mut session, self.args.gpu_count(), Arrival::Found)?;
        self.insert_module(&mut session)?;
        Ok(session)
    }

    fn warm(&self, machine: &Machine<'_>, gpus: &[Gpu]) -> Result<Session> {
        let snapshot = snapshot::obtain(machine, self.args.saved_with_amdgpu(), &self.scratch)?;
        let mut start = self.start(machine, gpus)?;
        start.incoming = true;
        // That QEMU does not start, for a port that is taken, is not the snapshot's fault.
        let mut session = Session::start(start)?;
        if let Err(error) = snapshot.restore(&mut session) {
            drop(session);
            self.scratch.interrupt.check()?;
            say!("kfd-vm: the snapshot does not hold ({error:#}); booting cold");
            snapshot.discard();
            return self.cold(machine, gpus);
        }
        self.scratch.note("restored");
        if let Some(card) = self.network_card() {
            session.monitor.execute("device_add", card)?;
        }
        self.equip(&mut session)?;
        if self.args.loads_amdgpu() && !self.args.saved_with_amdgpu() {
            load_amdgpu(
                &mut session,
                &self.args.machine.amdgpu_args.join(" "),
                &self.scratch,
            )?;
        }
        if self.args.insmod_first {
            self.insert_module(&mut session)?;
        }
        for (plugged, device) in (1..).zip(self.devices(gpus)) {
            session.monitor.execute("device_add", device)?;
            // One after the other, so that they come up in their order. Those of a hive wait for
            // each other.
            if !self.args.xgmi || plugged == gpus.len() {
                self.await_gpus(&mut session, plugged, Arrival::Probed)?;
            }
        }
        if self.args.insmod_first {
            self.await_module(&mut session)?;
        } else {
            self.insert_module(&mut session)?;
        }
        Ok(session)
    }

    fn devices(&self, gpus: &[Gpu]) -> Vec<serde_json::Value> {
        let device = |(number, gpu): (usize, &Gpu)| {
            gpu_device(number as u8, &gpu.socket, self.args.machine.icount)
        };
        gpus.iter().enumerate().map(device).collect()
    }

    fn network_card(&self) -> Option<serde_json::Value> {
        self.args.has_network().then(net::card)
    }

    fn start<'m>(&self, machine: &'m Machine<'m>, gpus: &[Gpu]) -> Result<Start<'m>> {
        let log = |suffix: &str| {
            let path = self
                .args
                .log
                .as_ref()
                .map(|path| format!("{}{suffix}", path.display()));
            path.map(|path| File::create(&path).with_context(|| path.clone()))
                .transpose()
        };
        let kernel_log: Option<Box<dyn Write>> = match log("")? {
            Some(file) => Some(Box::new(file)),
            None if self.args.machine.verbose > 1 => Some(Box::new(io::stderr())),
            None => None,
        };
        let mut start = Start::new(machine, &self.scratch)?;
        start.share = self.share.clone().unwrap_or(start.share);
        let network = || net::backend(&self.args.publish);
        start.network = self.args.has_network().then(network);
        start.models = gpus.iter().map(|gpu| gpu.ended.clone()).collect();
        start.console_log = log(".console")?;
        start.kernel_log = kernel_log;
        Ok(start)
    }

    /// After a boot or a restore: the clock, the share, the network, firmware and module.
    fn equip(&self, session: &mut Session) -> Result<()> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .context("the host's clock")?;
        let log = self.args.log.is_some() || self.args.machine.verbose > 1;
        session.ask(
            &Request::Settle {
                realtime_ns: now.as_nanos() as u64,
                log,
                env: self.settings.env.clone(),
                cwd: self.settings.cwd.clone().unwrap_or("/root".into()),
            },
            BOOT,
        )?;
        if self.share.is_some() {
            session.ask(&Request::MountShare, BOOT)?;
        }
        if self.args.has_network() {
            session.load_module("virtio_net", "", LOAD)?;
            session.ask(&Request::SetUpNetwork, LOAD)?;
        }
        for (name, data) in &self.firmware {
            session.write_file(&format!("/lib/firmware/{name}"), 0o644, data, BOOT)?;
        }
        if let Some(module) = &self.module {
            session.write_file(MODULE, 0o644, module, BOOT)?;
        }
        if let Some(perfetto) = &self.perfetto {
            perfetto.equip(session)?;
        }
        if let Some(also) = &self.also {
            session.write_file(ALSO, 0o644, also, BOOT)?;
            session.load_module(ALSO, "", LOAD)?;
        }
        self.scratch.note("share, firmware and module are there");
        Ok(())
    }

    fn await_gpus(&self, session: &mut Session, count: usize, arrival: Arrival) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let arrival = match self.args.loads_amdgpu() {
            true => arrival,
            false => Arrival::OnBus,
        };
        let timeout_ms = LOAD.as_millis() as u64;
        session.ask(
            &Request::AwaitGpus {
                count,
                timeout_ms,
                arrival,
            },
            LOAD + LOAD,
        )?;
        self.scratch.note(match arrival {
            Arrival::OnBus => "the GPUs are on the bus",
            Arrival::Found | Arrival::Probed => "amdgpu has its GPUs",
        });
        Ok(())
    }

    fn insert_module(&self, session: &mut Session) -> Result<()> {
        if !self.args.inserts_module() {
            return Ok(());
        }
        session.load_module(MODULE, &self.args.module_args, LOAD)?;
        self.scratch.note("amdkfd.ko is in");
        Ok(())
    }

    /// A module that was there first takes over once a GPU has come, by itself.
    fn await_module(&self, session: &mut Session) -> Result<()> {
        if !self.args.inserts_module() || self.args.gpu_count() == 0 {
            return Ok(());
        }
        let serving = format!("until grep -qx serving {STATE}; do sleep 0.1; done");
        session.run_quietly(&["sh", "-c", &serving], LOAD)?;
        self.scratch.note("amdkfd.ko serves");
        Ok(())
    }

    pub fn command(&self, session: &mut Session, order: &Order, sink: &mut dyn Sink) -> Result<u8> {
        let order = match &self.perfetto {
            Some(perfetto) => order.instead(perfetto.command(&order.command)),
            None => order.instead(order.command.clone()),
        };
        let request = order.request(working_directory(self.args)?, &self.args.env);
        match session.run(&request, order.limit, sink)? {
            Reply::Exit { status } => Ok(status as u8),
            Reply::Failed { message } => bail!("in the guest: {message}"),
            other => bail!("unexpected reply {other:?}"),
        }
    }

    fn check_log(&self, session: &mut Session) -> Result<Vec<String>> {
        if !self.args.check_log {
            return Ok(Vec::new());
        }
        let log = session.run_quietly(&["dmesg"], BOOT)?;
        Ok(kernel_log::findings(&log)
            .into_iter()
            .map(String::from)
            .collect())
    }
}

/// Empty: the machine's usual one.
fn working_directory(args: &RunArgs) -> Result<String> {
    if let Some(cwd) = &args.cwd {
        return Ok(cwd.clone());
    }
    let Some(share) = share(args)? else {
        return Ok(String::new());
    };
    let here = std::env::current_dir().context("the working directory")?;
    Ok(match here.strip_prefix(&share.directory) {
        Ok(below) if below.as_os_str().is_empty() => SHARE.into(),
        Ok(below) => Path::new(SHARE).join(below).display().to_string(),
        Err(_) => SHARE.into(),
    })
}

pub fn load_amdgpu(session: &mut Session, args: &str, scratch: &Scratch) -> Result<()> {
    session.load_module("amdgpu", args, LOAD)?;
    scratch.note("amdgpu is loaded");
    Ok(())
}

fn share(args: &RunArgs) -> Result<Option<Share>> {
    let Some(share) = &args.share else {
        return Ok(None);
    };
    let directory = share.directory.canonicalize();
    let directory =
        directory.with_context(|| format!("the share {}", share.directory.display()))?;
    if !directory.is_dir() {
        bail!("the share {} is no directory", directory.display());
    }
    Ok(Some(Share {
        directory,
        ..*share
    }))
}

/// The module to insert: what is asked for, or the project's own.
fn module(args: &RunArgs, own: &Path) -> Result<Option<Vec<u8>>> {
    if args.machine.kfd != Kfd::Rust {
        return Ok(None);
    }
    let path = args.module.as_deref().unwrap_or(own);
    let data = unpacked(path).map_err(|error| {
        anyhow!(
            "{}: {error}; build the module, say --module or KFD_MODULE, or use --kfd c",
            path.display()
        )
    })?;
    Ok(Some(data))
}

/// A module's file; one named NAME.xz is decompressed, as those that DKMS installs have to be.
fn unpacked(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_none_or(|suffix| suffix != "xz") {
        return Ok(fs::read(path)?);
    }
    let file = File::open(path)?;
    let output = Command::new("xz").arg("-dc").stdin(file).output();
    let output = output.context("running xz")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

fn also(args: &RunArgs) -> Result<Option<Vec<u8>>> {
    let path = args.also.as_ref().filter(|_| args.machine.kfd == Kfd::Rust);
    path.map(|path| fs::read(path).with_context(|| path.display().to_string()))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_module_is_read_as_what_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("amdkfd.ko");
        fs::write(&plain, "module").unwrap();
        assert_eq!(unpacked(&plain).unwrap(), b"module");
        let packed = dir.path().join("amdkfd.ko.xz");
        assert!(unpacked(&packed).is_err());
        fs::write(&packed, "no archive").unwrap();
        assert!(unpacked(&packed).is_err());
        assert!(Command::new("xz")
            .args(["-k", "-f"])
            .arg(&plain)
            .status()
            .unwrap()
            .success());
        assert_eq!(unpacked(&packed).unwrap(), b"module");
    }
}
