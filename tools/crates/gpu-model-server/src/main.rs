// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `gpu-model-server`: serves one modelled GPU to QEMU over vfio-user, and writes the firmware
//! files a stock amdgpu wants.
//!
//! One process per GPU. It serves one connection and exits when QEMU closes it.

use gpu_model_server::{backend, memory};

use std::fs::File;
use std::io::Write;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{bail, Context, Result};
use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand};
use gpu_model::hive::Hive;
use gpu_model::memory::PhysicalMemory;
use gpu_model::model::{Config, GpuModel};
use gpu_model::pci;
use gpu_model::preset::{self, Preset};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// A gfx942 GPU in software, for QEMU's vfio-user-pci.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve one GPU until QEMU disconnects.
    Serve(Serve),
    /// Write the firmware files amdgpu loads into DIR/amdgpu.
    Firmware {
        /// Whose firmware: the first GPU's, if a machine has several kinds.
        #[arg(long, default_value = "mi300x")]
        #[arg(value_parser = PossibleValuesParser::new(preset::NAMES))]
        preset: String,
        dir: PathBuf,
    },
}

#[derive(clap::Args)]
struct Serve {
    /// Unix socket to listen on; must not exist.
    #[arg(long)]
    socket: PathBuf,
    /// Kind of GPU.
    #[arg(long, default_value = "mi300x", value_parser = PossibleValuesParser::new(preset::NAMES))]
    preset: String,
    /// Local memory, as 512M or 2G: a multiple of 256M [default: the preset's].
    #[arg(long, value_parser = parse_size)]
    vram: Option<u64>,
    /// Number of this card, which makes its unique id.
    #[arg(long, default_value_t = 0)]
    serial: u32,
    /// Node of a hive that this card is; --hive-memory names the local memories of all nodes.
    #[arg(long, value_name = "NODE", requires = "hive_memory")]
    hive: Option<u8>,
    /// A file for the local memory of each node, in their order, separated by commas; this card's
    /// is among them.
    #[arg(
        long,
        value_name = "FILE,...",
        value_delimiter = ',',
        requires = "hive"
    )]
    hive_memory: Vec<PathBuf>,
    /// Log every register access, doorbell, interrupt, packet and dispatch to FILE.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Of these targets alone.
    #[arg(
        long,
        value_name = "TARGET,...",
        value_delimiter = ',',
        requires = "trace"
    )]
    trace_only: Vec<String>,
    /// Exit with status 3 if software used a register, packet or instruction that is not modelled.
    #[arg(long)]
    strict: bool,
    /// Write the list of such registers to FILE at the end, also that by SIGTERM, and on SIGUSR1.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Make things go wrong by the rules of FILE (Documentation/model.md), which is read again on
    /// SIGHUP.
    #[arg(long, value_name = "FILE")]
    inject: Option<PathBuf>,
    /// Run engines inside the guest's accesses and count time by them, so that runs under -icount
    /// repeat.
    #[arg(long)]
    synchronous: bool,
    /// Do what hardware may do and the model otherwise does not (Documentation/model.md), as SEED
    /// chooses.
    #[arg(long, value_name = "SEED")]
    hostile: Option<u64>,
    /// Local memory is empty after a reset of the machine, which the end of a sleep (S3) is too.
    #[arg(long)]
    lose_vram: bool,
}

/// Exit status of `--strict` when something was missing.
const STRICT_FAILURE: i32 = 3;

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Serve(options) => {
            let status = serve(&options)?;
            std::process::exit(status);
        }
        Command::Firmware { preset, dir } => write_firmware(&preset, &dir),
    }
}

/// Bytes from `512M`, `2G` or a plain number.
fn parse_size(text: &str) -> Result<u64> {
    let (number, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = number.parse().context("not a size such as 512M or 2G")?;
    number.checked_mul(1 << shift).context("too large")
}

fn write_firmware(preset: &str, dir: &Path) -> Result<()> {
    let dir = dir.join("amdgpu");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let preset = Preset::by_name(preset).with_context(|| format!("no preset {preset}"))?;
    for (name, bytes) in gpu_model::firmware::files(preset.firmware) {
        let path = dir.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Warnings to standard error (`RUST_LOG` sets another level), everything to the trace file.
fn start_log(trace: Option<&Path>, only: &[String]) -> Result<()> {
    let level = match std::env::var("RUST_LOG") {
        Ok(text) => text.parse::<Targets>().context("RUST_LOG")?,
        Err(_) => Targets::new().with_default(LevelFilter::WARN),
    };
    let console = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_filter(level);
    let file = match trace {
        Some(path) => {
            let file =
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            // Seconds, what, and the rest: short enough to read, and to keep.
            let layer = tracing_subscriber::fmt::layer()
                .with_ansi(false)
                .with_level(false)
                .with_timer(tracing_subscriber::fmt::time::uptime())
                .with_writer(Arc::new(file));
            let all = Targets::new().with_default(LevelFilter::TRACE);
            let filter = match only {
                [] => all,
                only => only
                    .iter()
                    .map(|target| (target, LevelFilter::TRACE))
                    .collect(),
            };
            Some(layer.with_filter(filter))
        }
        None => None,
    };
    tracing_subscriber::registry()
        .with(console)
        .with(file)
        .init();
    Ok(())
}

/// Serves one connection; the exit status.
fn serve(options: &Serve) -> Result<i32> {
    start_log(options.trace.as_deref(), &options.trace_only)?;
    let Some(preset) = Preset::by_name(&options.preset) else {
        bail!("no preset {}", options.preset)
    };
    let vram_size = options.vram.unwrap_or(preset.default_vram);
    let (vram, hive, vram_file) = local_memory(options, vram_size)?;
    // In synchronous mode everything happens inside the guest's accesses.
    let doorbells = match options.synchronous {
        true => None,
        false => {
            let (memory, file) = memory::LocalMemory::new(pci::DOORBELL_SIZE)?;
            Some((Arc::new(memory), file))
        }
    };
    let system = Arc::new(memory::GuestMemory::default());
    let interrupt = Arc::new(backend::Msi::default());
    let host = gpu_model::chip::Host {
        vram,
        system: system.clone(),
        interrupt: interrupt.clone(),
        hive,
        doorbells: doorbells.as_ref().map(|(memory, _)| memory.clone() as _),
    };
    let config = Config {
        preset,
        vram_size,
        serial: options.serial,
        synchronous: options.synchronous,
        hostile: options.hostile,
        loses_memory: options.lose_vram,
    };
    let model = Arc::new(GpuModel::new(config, host)?);
    // So that who reads the trace knows when it was by the GPU's clock.
    tracing::trace!(target: "clock", "ticks {}", model.chip().clock.ticks());
    if let Some(path) = &options.inject {
        load_rules(&model, path)?;
    }
    let doorbell_file = doorbells.as_ref().map(|(_, file)| file);
    let server = backend::listen(&options.socket, &model, &vram_file, doorbell_file)?;
    let _socket = Socket(options.socket.clone());
    act_on_signals(model.clone(), options)?;
    println!("listening {}", options.socket.display());
    std::io::stdout().flush()?;
    let served = std::thread::scope(|scope| -> Result<()> {
        let watcher = std::thread::Builder::new().name("gpu-doorbells".into());
        watcher.spawn_scoped(scope, || {
            // Pauses as short as it asks for; without it they are longer.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            model.watch_doorbells();
        })?;
        let _watching = Watching(&model);
        let mut backend = backend::Backend::new(model.clone(), system, interrupt);
        server.run(&mut backend).context("connection to QEMU")
    });
    report(&model, options.report.as_deref())?;
    served?;
    let missing = model.missing();
    if options.strict && missing > 0 {
        eprintln!(
            "{missing} kinds of registers, packets or instructions are not modelled:\n{}",
            model.report()
        );
        return Ok(STRICT_FAILURE);
    }
    Ok(0)
}

/// A socket's file, removed when this goes.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        // Whoever started us may have removed it with its directory.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Ends the watching of doorbells when it goes, also in a panic.
struct Watching<'a>(&'a GpuModel);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.stop_watching();
    }
}

/// The card's memory, the hive that it is in, and the file that QEMU maps.
fn local_memory(
    options: &Serve,
    size: u64,
) -> Result<(Arc<dyn PhysicalMemory>, Option<Hive>, File)> {
    let Some(node) = options.hive else {
        let (vram, file) = memory::LocalMemory::new(pci::vram_bar(size))?;
        return Ok((Arc::new(vram), None, file));
    };
    let mut memories: Vec<Arc<dyn PhysicalMemory>> = Vec::new();
    let mut own = None;
    for (number, path) in (0..).zip(&options.hive_memory) {
        let (memory, file) = memory::LocalMemory::open(path, size)?;
        memories.push(Arc::new(memory));
        own = own.or((number == node).then_some(file));
    }
    let hive = Hive::new(node, size, memories)?;
    let file = own.context("no memory of this node")?;
    Ok((hive.own(), Some(hive), file))
}

/// Gives the model the rules of a file. An error leaves it those that it has.
fn load_rules(model: &GpuModel, path: &Path) -> Result<()> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let chip = model.chip();
    chip.inject
        .load(chip, &text)
        .with_context(|| path.display().to_string())?;
    Ok(())
}

/// Writes the report whenever SIGUSR1 comes, and reads the rules again on SIGHUP. A signal that
/// ends the process does so when the report is written and the socket removed.
fn act_on_signals(model: Arc<GpuModel>, options: &Serve) -> Result<()> {
    let (path, rules) = (options.report.clone(), options.inject.clone());
    let socket = options.socket.clone();
    // Without rules SIGHUP ends the process, as it ends others.
    let mut signals = Signals::new([SIGUSR1, SIGHUP, SIGTERM, SIGINT])?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                let done = match (signal, &rules) {
                    (SIGHUP, Some(rules)) => load_rules(&model, rules),
                    _ => report(&model, path.as_deref()),
                };
                if let Err(error) = done {
                    tracing::error!("{error:#}");
                }
                let is_end = match signal {
                    SIGHUP => rules.is_none(),
                    _ => signal != SIGUSR1,
                };
                if is_end {
                    drop(Socket(socket));
                    // Whoever waits for us is to see what ended us.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                    std::process::exit(128 + signal);
                }
            }
        })?;
    Ok(())
}

fn report(model: &GpuModel, path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = model.report();
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(parse_size("512M").unwrap(), 512 << 20);
        assert_eq!(parse_size("2G").unwrap(), 2 << 30);
        assert_eq!(parse_size("4096").unwrap(), 4096);
        assert!(parse_size("").is_err());
        assert!(parse_size("99999999999G").is_err());
        assert!(parse_size("2Gi").is_err());
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
