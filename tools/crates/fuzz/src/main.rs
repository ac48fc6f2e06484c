// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `gpu-fuzz`: the fuzz targets on bytes of a fixed pseudo-random sequence, a bounded time each.
//! Prints `ok - TARGET: ...` or `not ok - TARGET: ...` and ends with status 1 if there was one of
//! those.

use std::path::PathBuf;
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::Parser;
use gpu_fuzz::{Target, TARGETS};
use rustix::time::{clock_gettime, ClockId};

/// Runs the fuzz targets for a while each.
#[derive(Parser)]
struct Cli {
    /// Targets [default: all].
    #[arg(value_parser = PossibleValuesParser::new(TARGETS.map(|(name, _)| name)))]
    targets: Vec<String>,
    /// Seconds of each.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// The most inputs of each.
    #[arg(long, default_value_t = u64::MAX)]
    inputs: u64,
    /// The first input's number; an input with the same number has the same bytes.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run this file instead of made-up inputs.
    #[arg(long)]
    file: Option<PathBuf>,
}

/// An input that takes more of a CPU's time hangs: a busy machine does not count against it.
const LONGEST: Duration = Duration::from_secs(60);
/// So does one that takes this long without using the CPU.
const LONGEST_WAIT: Duration = Duration::from_secs(900);
/// The process may not grow beyond this.
const MOST_MEMORY: u64 = 4 << 30;

/// Whether a thread panicked: one of the model's own does not end the process.
static PANICKED: AtomicBool = AtomicBool::new(false);

fn main() {
    let cli = Cli::parse();
    let file = cli.file.as_ref().map(|path| match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(why) => {
            eprintln!("gpu-fuzz: {}: {why}", path.display());
            exit(2);
        }
    });
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICKED.store(true, Ordering::SeqCst);
        before(info);
    }));
    let wanted = |name: &str| cli.targets.is_empty() || cli.targets.iter().any(|it| it == name);
    let mut failed = false;
    for target in TARGETS.iter().filter(|(name, _)| wanted(name)) {
        failed |= !run(&cli, file.as_deref(), *target);
    }
    exit(failed.into());
}

/// Bytes of input `number`.
fn bytes(number: u64) -> Vec<u8> {
    let mut state = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let length = 1 << (3 + next() % 9);
    (0..length).map(|_| (next() >> 24) as u8).collect()
}

/// The CPU time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|it| it.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Ends the process when an input takes too long.
fn watch(name: &'static str, number: Arc<AtomicU64>, done: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut seen = (u64::MAX, Instant::now(), cpu_time());
        while !done.load(Ordering::SeqCst) {
            let now = number.load(Ordering::SeqCst);
            if seen.0 != now {
                seen = (now, Instant::now(), cpu_time());
            } else if cpu_time() - seen.2 > LONGEST || seen.1.elapsed() > LONGEST_WAIT {
                println!("not ok - {name}: input {now} hangs");
                exit(1);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}

fn run(cli: &Cli, file: Option<&[u8]>, (name, target): Target) -> bool {
    let (number, done) = (
        Arc::new(AtomicU64::new(cli.first)),
        Arc::new(AtomicBool::new(false)),
    );
    watch(name, number.clone(), done.clone());
    let (start, mut slowest) = (Instant::now(), (Duration::ZERO, 0));
    let mut trouble = None;
    let mut count = 0;
    while trouble.is_none() && count < cli.inputs && start.elapsed().as_secs() < cli.seconds {
        let at = cli.first + count;
        number.store(at, Ordering::SeqCst);
        let input = file.map_or_else(|| bytes(at), <[u8]>::to_vec);
        let began = Instant::now();
        let caught = std::panic::catch_unwind(|| target(&input));
        slowest = slowest.max((began.elapsed(), at));
        count += 1;
        if PANICKED.swap(false, Ordering::SeqCst) || caught.is_err() {
            trouble = Some(format!("input {at} panics"));
        } else if memory() > MOST_MEMORY {
            trouble = Some(format!("{} MiB used after input {at}", memory() >> 20));
        }
        if file.is_some() {
            break;
        }
    }
    done.store(true, Ordering::SeqCst);
    let (longest, at) = slowest;
    match &trouble {
        Some(why) => println!("not ok - {name}: {why}"),
        None => println!(
            "ok - {name}: {count} inputs in {} s, the longest {} ms ({at}), {} MiB",
            start.elapsed().as_secs(),
            longest.as_millis(),
            memory() >> 20
        ),
    }
    trouble.is_none()
}
