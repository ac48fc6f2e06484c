// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The command line.

use crate::image::Source;
use crate::net::Publish;
use crate::run::UNLIMITED;
use anyhow::bail;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Parser)]
#[command(
    name = "kfd-vm",
    version,
    about = "Run a command in a virtual machine with modelled GPUs"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command as root in the guest and exit with its status (124: timeout, 125: the
    /// machine failed). Of an option given twice, the last counts.
    #[command(args_override_self = true)]
    Run(Box<CommandArgs>),
    /// A shell as root in the guest, on this terminal; without one, of what comes on standard
    /// input. Takes the options of `run`.
    #[command(args_override_self = true)]
    Shell(Box<ShellArgs>),
    /// Start a machine in the background and return when commands can run in it. Takes the options
    /// of `run`.
    #[command(args_override_self = true)]
    Up(Box<UpArgs>),
    /// Run a command in a machine that is up and exit with its status (124: timeout, 125: the
    /// machine failed).
    #[command(args_override_self = true)]
    Exec(Box<ExecArgs>),
    /// List the machines that are up: their names, and what they are.
    Ps,
    /// End a machine that is up, with all that runs in it.
    Down(DownArgs),
    /// Hold a machine: what `up` starts.
    #[command(hide = true, args_override_self = true)]
    Hold(Box<UpArgs>),
    /// Run commands as tests, one after the other in one machine, and say which pass: those that
    /// end with status 0. Exit with 1 if one fails. Takes the options of `run`.
    #[command(args_override_self = true)]
    Test(Box<TestArgs>),
    /// Write manual pages and completions.
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// Make the snapshot that `run` with the same machine options starts from.
    Prepare(MachineArgs),
    /// Become a child that dies with its parent.
    #[command(hide = true)]
    ExecChild {
        parent: i32,
        program: OsString,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

impl Command {
    /// Whether it starts programs that it waits for.
    pub fn holds_children(&self) -> bool {
        !matches!(
            self,
            Self::ExecChild { .. } | Self::Generate(_) | Self::Ps | Self::Down(_)
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kfd {
    /// Stock amdgpu, and our amdkfd.ko takes over from the C driver in it.
    Rust,
    /// Stock amdgpu with the C driver in it.
    C,
    /// No amdgpu at all.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kernel {
    /// The distribution's, unmodified.
    Stock,
    /// KUnit, lockdep, kmemleak (made by `sysroot debug-kernel`).
    Debug,
    /// KUnit, KASAN, kmemleak, fault injection (made by `sysroot kasan-kernel`).
    Kasan,
    /// KUnit, KCSAN, kmemleak (made by `sysroot kcsan-kernel`).
    Kcsan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Accel {
    /// By the processor where /dev/kvm makes machines, else translated.
    Auto,
    /// By the processor.
    Kvm,
    /// Translated: the same everywhere.
    Tcg,
}

/// What decides which machine is booted, and with that which snapshot fits.
#[derive(Debug, Clone, Args)]
pub struct MachineArgs {
    /// Which KFD serves /dev/kfd.
    #[arg(long, value_enum, default_value_t = Kfd::Rust)]
    pub kfd: Kfd,
    /// The guest's kernel.
    #[arg(long, value_enum, default_value_t = Kernel::Stock)]
    pub kernel: Kernel,
    /// The Debian suite of the guest's root, or, with a slash in it, a disk image of a root.
    #[arg(long, default_value = "trixie")]
    pub root: String,
    /// A root of your own: an archive of it (tar, plain or by gzip or zstd), or a container's image
    /// in a directory of OCI's layout, whose variables and working directory commands then have.
    #[arg(long, value_name = "FILE|oci:DIR[:TAG]", conflicts_with = "root")]
    pub image: Option<Source>,
    /// Memory of the guest, as QEMU writes it.
    #[arg(long, default_value = "2G", value_parser = size)]
    pub mem: String,
    /// Processors of the guest (always 1 with --icount).
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub smp: u8,
    /// How the guest's instructions are executed.
    #[arg(long, value_enum, default_value_t = Accel::Tcg, env = "KFD_VM_ACCEL")]
    pub accel: Accel,
    /// Count instructions: one is one nanosecond of guest time.
    #[arg(long)]
    pub icount: bool,
    /// The processors take turns instead of running at once: slower, but code that one of them
    /// patches is never stale on another, which QEMU does not promise otherwise.
    #[arg(long)]
    pub take_turns: bool,
    /// More words for the kernel's command line. Implies --cold.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub append: String,
    /// Parameters for amdgpu, such as "dpm=1 fw_load_type=0". May be given again, for more of them.
    #[arg(long, allow_hyphen_values = true)]
    pub amdgpu_args: Vec<String>,
    /// More arguments for QEMU, split at blanks, such as "-s" for a debugger. Implies --cold.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub qemu_args: String,
    /// A plugin for QEMU's translator, as its option -plugin wants it: FILE,NAME=VALUE.
    #[arg(long)]
    pub plugin: Option<String>,
    /// Say what is done and when; given twice, also the kernel's messages.
    #[arg(long, short, action = ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Debug, Clone, Args)]
pub struct CommandArgs {
    #[command(flatten)]
    pub options: RunArgs,
    /// Seconds the command may take, from its start; then the status is 124.
    #[arg(long, default_value = "600", value_parser = seconds)]
    pub timeout: Duration,
    /// Seconds for which the command may print nothing [default: no limit].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub silence: Option<Duration>,
    /// Give the command a terminal, which what is typed on ours goes to.
    #[arg(long, short)]
    pub tty: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub struct ShellArgs {
    #[command(flatten)]
    pub options: RunArgs,
    /// Seconds the shell may take [default: no limit].
    #[arg(long, value_parser = seconds)]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone, Args)]
pub struct TestArgs {
    #[command(flatten)]
    pub options: RunArgs,
    /// Seconds each test may take.
    #[arg(long, default_value = "600", value_parser = seconds)]
    pub timeout: Duration,
    /// Write what came of them as JUnit XML.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// The tests, each a line for the guest's shell. Lines "ok - WHAT" and "not ok - WHAT" of their
    /// output are cases of their own in the report.
    #[arg(required = true, value_name = "COMMAND")]
    pub tests: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub struct GenerateArgs {
    /// Write kfd-vm.1 and a page for each subcommand there.
    #[arg(long, value_name = "DIR", required_unless_present = "completions")]
    pub man: Option<PathBuf>,
    /// Write bash's, fish's and zsh's completions there, in files with the names that each shell
    /// looks for.
    #[arg(long, value_name = "DIR")]
    pub completions: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// The machine's name.
    #[arg(long, default_value = "kfd")]
    pub name: Name,
    #[command(flatten)]
    pub options: RunArgs,
}

#[derive(Debug, Clone, Args)]
pub struct ExecArgs {
    /// The machine's name.
    #[arg(long, default_value = "kfd")]
    pub name: Name,
    /// Seconds the command may take [default: no limit].
    #[arg(long, value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Give the command a terminal, which what is typed on ours goes to.
    #[arg(long, short)]
    pub tty: bool,
    /// Working directory in the guest [default: the machine's].
    #[arg(long)]
    pub cwd: Option<String>,
    /// An environment variable of the command.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub struct DownArgs {
    /// The machine's name.
    #[arg(long, default_value = "kfd")]
    pub name: Name,
}

/// What a machine in the background is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl std::str::FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if text.is_empty() || text.len() > 40 || !text.chars().all(is_plain) {
            return Err("up to 40 letters, digits, - and _ are a name");
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Number of GPUs [default: 1, with --kfd none 0].
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=crate::machine::MAX_GPUS as i64))]
    pub gpus: Option<u8>,
    /// The model's preset; several, divided by commas, are the first GPUs', and the last one is
    /// the others' too.
    #[arg(long, default_value = "mi300x")]
    pub gpu: String,
    /// VRAM of each GPU, as the model writes it [default: the model's].
    #[arg(long)]
    pub vram: Option<String>,
    /// Connect the GPUs with each other by xGMI: they make a hive.
    #[arg(long)]
    pub xgmi: bool,
    /// More arguments for `gpu-model-server serve`, split at blanks; {n} is the GPU's number.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub model_args: String,
    /// The GPU model's server [default: the project's, built if needed; the package's].
    #[arg(long, env = "GPU_MODEL_SERVER")]
    pub model_server: Option<PathBuf>,
    /// The module that --kfd rust inserts [default: the project's; installed: that of DKMS].
    #[arg(long, env = "KFD_MODULE")]
    pub module: Option<PathBuf>,
    /// Another module, to insert before it.
    #[arg(long, env = "KFD_ALSO", value_name = "FILE")]
    pub also: Option<PathBuf>,
    /// Parameters for the module.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub module_args: String,
    /// With --kfd rust: leave the module at /run/amdkfd/amdkfd.ko for the command to insert.
    #[arg(long)]
    pub no_insmod: bool,
    /// With --kfd rust: insert the module before the GPUs come.
    #[arg(long, conflicts_with = "no_insmod")]
    pub insmod_first: bool,
    /// Do not load amdgpu: the command does it (`modprobe amdgpu`). Implies --no-insmod.
    #[arg(long)]
    pub no_amdgpu: bool,
    /// The directory that the guest, as root, has at /mnt/share; with :ro it can't write there
    /// [default: none].
    #[arg(long, value_name = "DIR[:ro]", value_parser = Share::parse)]
    pub share: Option<Share>,
    /// Do not share any directory; as without --share.
    #[arg(long, conflicts_with = "share")]
    pub no_share: bool,
    /// Give the guest a network card: it reaches what this user's programs reach, this machine's
    /// own 127.0.0.1 as 10.0.2.2, and nothing reaches it.
    #[arg(long)]
    pub net: bool,
    /// Connections to this machine's port HOST go to the guest's port GUEST. ADDRESS is where they
    /// are taken [default: 127.0.0.1]. Implies --net.
    #[arg(long, value_name = "[ADDRESS:]HOST:GUEST[/udp]")]
    pub publish: Vec<Publish>,
    /// Working directory in the guest [default: ours when the share holds it, or the share].
    #[arg(long)]
    pub cwd: Option<String>,
    /// An environment variable of the command.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Boot from scratch with the GPUs plugged in, not from a snapshot.
    #[arg(long)]
    pub cold: bool,
    /// Write the kernel's messages to FILE, the console's to FILE.console, the models' to
    /// FILE.gpuN, and their reports to FILE.gpuN.report.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Write a timeline for Perfetto: the command's KFD calls, the driver's tracepoints, dispatches
    /// by the names of their kernels, and the models' packets, work-groups and interrupts.
    #[arg(long, value_name = "FILE", conflicts_with = "icount")]
    pub perfetto: Option<PathBuf>,
    /// Fail (125) when the kernel's log has a warning, a lockdep report, a leak or the like.
    #[arg(long)]
    pub check_log: bool,
}

impl MachineArgs {
    /// Whether the processor executes the guest's instructions: only a translator counts them, lets
    /// processors take turns or has plugins.
    pub fn kvm(&self) -> anyhow::Result<bool> {
        let needs_tcg = [
            (self.icount, "--icount"),
            (self.take_turns, "--take-turns"),
            (self.plugin.is_some(), "--plugin"),
        ];
        let needs_tcg = needs_tcg.iter().find(|(holds, _)| *holds);
        match (self.accel, needs_tcg) {
            (Accel::Tcg, _) | (Accel::Auto, Some(_)) => Ok(false),
            (Accel::Kvm, Some((_, option))) => bail!("{option} needs --accel tcg"),
            (Accel::Kvm, None) => crate::kvm::check().map(|()| true),
            (Accel::Auto, None) => Ok(crate::kvm::check().is_ok()),
        }
    }

    /// What `--accel auto` has chosen and why, in a line.
    pub fn chosen(&self, kvm: bool) -> String {
        match crate::kvm::check() {
            _ if kvm => "the processor executes the guest (KVM)".into(),
            Err(error) => format!("the guest is translated (TCG): {error:#}"),
            Ok(()) => "the guest is translated (TCG), as its other options want".into(),
        }
    }

    /// Why this machine is not started from a snapshot, if it is not.
    pub fn cold_reason(&self) -> Option<&'static str> {
        let reasons = [
            (!self.append.is_empty(), "--append"),
            (!self.qemu_args.is_empty(), "--qemu-args"),
        ];
        reasons
            .iter()
            .find(|(holds, _)| *holds)
            .map(|(_, reason)| *reason)
    }

    /// Whether the machine's snapshot has amdgpu loaded: it does unless there is to be none, or one
    /// with parameters.
    pub fn saved_with_amdgpu(&self) -> bool {
        self.kfd != Kfd::None && self.amdgpu_args.is_empty()
    }
}

impl RunArgs {
    pub fn gpu_count(&self) -> usize {
        let default = if self.machine.kfd == Kfd::None { 0 } else { 1 };
        self.gpus.unwrap_or(default).into()
    }

    /// The preset of GPU number `number`.
    pub fn preset(&self, number: usize) -> &str {
        let mut presets = self.gpu.split(',');
        let last = presets.clone().next_back();
        presets.nth(number).or(last).unwrap_or_default()
    }

    /// Whether the guest must not see that it is a virtual machine. amdgpu resets a GPU that is
    /// passed through to one whenever it loads, and of MI200 asks for the version of the firmware
    /// only later, without which it cannot (`aldebaran_mode1_reset`): it could not load twice. An
    /// MI300X beside it wants the guest to see that: it has no VBIOS, as amdgpu permits only there.
    pub fn wants_bare(&self) -> bool {
        let count = self.gpu_count();
        count > 0 && (0..count).all(|number| self.preset(number) == "mi250x")
    }

    pub fn has_network(&self) -> bool {
        self.net || !self.publish.is_empty()
    }

    pub fn cold_reason(&self) -> Option<&'static str> {
        let own = self.cold.then_some("--cold");
        own.or_else(|| self.machine.cold_reason())
    }

    pub fn saved_with_amdgpu(&self) -> bool {
        self.machine.saved_with_amdgpu() && !self.no_amdgpu
    }

    pub fn loads_amdgpu(&self) -> bool {
        self.machine.kfd != Kfd::None && !self.no_amdgpu
    }

    pub fn inserts_module(&self) -> bool {
        self.machine.kfd == Kfd::Rust && !self.no_insmod && !self.no_amdgpu
    }
}

/// A directory that the guest sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    pub directory: PathBuf,
    pub read_only: bool,
}

impl Share {
    fn parse(text: &str) -> Result<Self, String> {
        let (directory, read_only) = match text.strip_suffix(":ro") {
            Some(directory) => (directory, true),
            None => (text, false),
        };
        if directory.is_empty() {
            return Err("the directory's name is empty".into());
        }
        Ok(Self {
            directory: directory.into(),
            read_only,
        })
    }
}

fn size(text: &str) -> Result<String, String> {
    let digits = text.trim_end_matches(['M', 'G']);
    let valid = digits.parse::<u32>().is_ok_and(|n| n > 0) && text.len() - digits.len() == 1;
    valid
        .then(|| text.to_string())
        .ok_or_else(|| "a number with M or G, such as 2G".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse::<f64>()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds
        .filter(|s| !s.is_zero())
        .map(|s| s.min(UNLIMITED))
        .ok_or_else(|| "a positive number of seconds".into())
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is expected")?;
    if name.is_empty() {
        return Err("the name is empty".into());
    }
    Ok((name.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_command(line: &str) -> Result<CommandArgs, clap::Error> {
        match Cli::try_parse_from(line.split_whitespace())?.command {
            Command::Run(args) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    fn parse(line: &str) -> Result<RunArgs, clap::Error> {
        parse_command(line).map(|args| args.options)
    }

    #[test]
    fn the_command_keeps_its_own_options() {
        let args = parse_command("kfd-vm run --kfd c --gpus 2 -- ls -la --gpus 3").unwrap();
        assert_eq!(args.command, ["ls", "-la", "--gpus", "3"]);
        let options = args.options;
        assert_eq!((options.machine.kfd, options.gpu_count()), (Kfd::C, 2));
        let line = "kfd-vm run --env A=1 --env B=2 --timeout 5 --timeout 7 -- x";
        let args = parse_command(line).unwrap();
        assert_eq!((args.options.env.len(), args.timeout.as_secs()), (2, 7));
        assert!(!args.tty && parse_command("kfd-vm run -t -- x").unwrap().tty);
        assert_eq!(args.silence, None);
        let args = parse_command("kfd-vm run --silence 2.5 -- x").unwrap();
        assert_eq!(args.silence.map(|silence| silence.as_millis()), Some(2500));
        let args = parse("kfd-vm run --kfd c -- x").unwrap();
        assert!(args.loads_amdgpu() && !args.inserts_module());
    }

    #[test]
    fn defaults_follow_the_kfd() {
        assert_eq!(parse("kfd-vm run -- x").unwrap().gpu_count(), 1);
        assert!(parse("kfd-vm run -- x").unwrap().inserts_module());
        assert_eq!(parse("kfd-vm run --kfd none -- x").unwrap().gpu_count(), 0);
        assert_eq!(
            parse("kfd-vm run --kfd none --gpus 1 -- x")
                .unwrap()
                .gpu_count(),
            1
        );
    }

    #[test]
    fn each_gpu_has_its_preset() {
        let presets = |line: &str| {
            let args = parse(&format!("kfd-vm run {line} -- x")).unwrap();
            [0, 1, 2].map(|number| args.preset(number).to_owned())
        };
        assert_eq!(presets(""), ["mi300x"; 3]);
        assert_eq!(presets("--gpu mi308x"), ["mi308x"; 3]);
        assert_eq!(presets("--gpu a,b"), ["a", "b", "b"]);
        assert_eq!(presets("--gpu a,b,c,d"), ["a", "b", "c"]);
    }

    #[test]
    fn a_machine_with_mi200s_alone_is_bare() {
        let bare = |line: &str| {
            let args = parse(&format!("kfd-vm run {line} -- true")).unwrap();
            args.wants_bare()
        };
        assert!(bare("--gpu mi250x") && bare("--gpus 2 --gpu mi250x"));
        assert!(!bare("--gpus 2 --gpu mi300x,mi250x") && !bare("") && !bare("--gpus 0"));
    }

    #[test]
    fn what_a_snapshot_does_not_hold_is_booted_cold() {
        assert_eq!(parse("kfd-vm run -- x").unwrap().cold_reason(), None);
        for line in ["--cold", "--append quiet", "--qemu-args -s"] {
            let args = parse(&format!("kfd-vm run {line} -- x")).unwrap();
            assert_eq!(args.cold_reason(), line.split(' ').next(), "{line}");
        }
    }

    #[test]
    fn a_snapshot_has_amdgpu_unless_the_machine_does_without_or_wants_parameters() {
        let of = |line: &str| parse(&format!("kfd-vm run {line} -- x")).unwrap();
        assert!(of("--kfd c").saved_with_amdgpu());
        for line in ["--kfd none", "--amdgpu-args dpm=1", "--no-amdgpu"] {
            let args = of(line);
            assert!(!args.saved_with_amdgpu(), "{line}");
            assert_eq!(args.cold_reason(), None, "{line}");
        }
    }

    #[test]
    fn nothing_is_shared_unless_asked_for() {
        let share = |line: &str| parse(&format!("kfd-vm run {line} -- x")).unwrap().share;
        let of = |directory: &str, read_only| {
            Some(Share {
                directory: directory.into(),
                read_only,
            })
        };
        assert_eq!(share(""), None);
        assert_eq!(share("--no-share"), None);
        assert_eq!(share("--share build/guest"), of("build/guest", false));
        assert_eq!(share("--share /a:b:ro"), of("/a:b", true));
    }

    #[test]
    fn there_is_no_network_unless_asked_for() {
        let network = |line: &str| {
            parse(&format!("kfd-vm run {line} -- x"))
                .unwrap()
                .has_network()
        };
        assert!(!network(""));
        assert!(network("--net") && network("--publish 1:2 --publish 3:4"));
    }

    #[test]
    fn what_only_a_translator_does_is_translated() {
        let kvm = |line: &str| {
            let args = parse(&format!("kfd-vm run {line} -- x")).unwrap();
            args.machine.kvm().map_err(|error| error.to_string())
        };
        assert_eq!(kvm("--accel tcg"), Ok(false));
        for option in ["--icount", "--take-turns", "--plugin p"] {
            assert_eq!(kvm(&format!("--accel auto {option}")), Ok(false));
            let refused = kvm(&format!("--accel kvm {option}")).unwrap_err();
            assert!(
                refused.contains(option.split(' ').next().unwrap()),
                "{refused}"
            );
        }
        let usable = crate::kvm::check().is_ok();
        assert_eq!(kvm("--accel auto"), Ok(usable));
        assert_eq!(kvm("--accel kvm").is_ok(), usable);
    }

    #[test]
    fn nobody_waits_for_more_than_a_year() {
        for text in ["1e19", "31536001", "31536000"] {
            assert_eq!(seconds(text), Ok(UNLIMITED), "{text}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("1e20").is_err() && seconds("inf").is_err());
    }

    #[test]
    fn mistakes_are_refused() {
        for line in [
            "run",
            "run --gpus 9 -- x",
            "run --mem 2 -- x",
            "run --mem 0G -- x",
            "run --timeout 0 -- x",
            "run --timeout -1 -- x",
            "run --silence 0 -- x",
            "shell --silence 5",
            "run --env A -- x",
            "run --kfd d -- x",
            "run --no-share --share . -- x",
            "run --share :ro -- x",
            "run --accel xen -- x",
            "run --publish 80 -- x",
            "test",
            "test --junit f",
            "generate",
            "run --image oci: -- x",
            "run --image a.tar --root sid -- x",
            "shell ls",
            "exec",
            "up --name a/b",
            "up --name .",
            "down --gpus 1",
            "shell --tty",
            "run --icount --perfetto f -- x",
        ] {
            let line = format!("kfd-vm {line}");
            assert!(
                Cli::try_parse_from(line.split_whitespace()).is_err(),
                "{line}"
            );
        }
    }

    #[test]
    fn the_declarations_agree_with_each_other() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
