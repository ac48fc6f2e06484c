// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Differential fuzzing of the interpreter: random C kernels, compiled by clang for a GPU and for
//! the host, must give the same bits.
//!
//! Kernels are made in batches: one source, one compilation for each side. A batch is a function of
//! its number, so that any can be made again, and a long run can go on where it was stopped.

#[path = "../../gcn/tests/support/machine.rs"]
mod machine;
#[path = "../../gcn/tests/support/toolchain.rs"]
mod toolchain;

mod batch;
mod expr;
mod kernel;
mod progress;

use anyhow::{Context, Result};
use batch::Compilers;
use clap::builder::PossibleValuesParser;
use clap::Parser;
use gcn::Target;
use progress::Progress;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use toolchain::Toolchain;

/// Random C kernels: clang for a GPU in the interpreter against clang for the host.
#[derive(Parser)]
struct Arguments {
    /// The GPU's processor.
    #[arg(long, default_value = "gfx942", value_parser = PossibleValuesParser::new(TARGETS))]
    target: String,
    /// How many kernels.
    #[arg(long, default_value_t = 1000)]
    kernels: u64,
    /// Number of the first batch.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Kernels in a batch.
    #[arg(long, default_value_t = 500)]
    batch: u64,
    /// Batches at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Remembers finished batches here; what it has is not run again.
    #[arg(long)]
    state: Option<PathBuf>,
    /// Keeps sources of failed kernels' batches here.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Prints the source of a batch and ends.
    #[arg(long)]
    print: Option<u64>,
}

/// The processors' names.
const TARGETS: [&str; 3] = [
    Target::ALL[0].name(),
    Target::ALL[1].name(),
    Target::ALL[2].name(),
];

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(number) = arguments.print {
        print!("{}", batch::source(number, arguments.batch));
        return Ok(());
    }
    let target = Target::ALL
        .into_iter()
        .find(|target| target.name() == arguments.target);
    let compilers = Compilers {
        host: Toolchain::new(),
        device: Toolchain::of(target.context("a target")?),
    };
    // Failures are printed with their kernel, not as panics.
    std::panic::set_hook(Box::new(|_| {}));
    let work = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/gcn-fuzz");
    let work = work.join(std::process::id().to_string());
    std::fs::create_dir_all(&work).context("work directory")?;
    let result = run(&arguments, &compilers, &work);
    std::fs::remove_dir_all(&work).ok();
    let [passed, failed, refused] = result?;
    if refused > 0 {
        println!("{refused} kernels were not run: clang crashes on them");
    }
    println!("{passed} passed, {failed} failed");
    anyhow::ensure!(failed == 0, "some kernels differ");
    Ok(())
}

/// Runs what is left to run; how many kernels passed, failed, and were
/// refused by the compiler in all.
fn run(arguments: &Arguments, compilers: &Compilers, work: &Path) -> Result<[u64; 3]> {
    let progress = Progress::open(arguments.state.as_deref(), arguments.batch)?;
    let batches = arguments.kernels.div_ceil(arguments.batch);
    let next = AtomicU64::new(arguments.first);
    let end = arguments.first + batches;
    let progress = Mutex::new(progress);
    let worker = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= end {
                return Ok(());
            }
            if progress.lock().expect("no worker panics").has(number) {
                continue;
            }
            let report = batch::run(compilers, work, number, arguments.batch)?;
            for failure in &report.failures {
                eprintln!("batch {number}: {failure}");
            }
            for refused in &report.refused {
                eprintln!("batch {number}: clang crashes on {refused}");
            }
            if let (Some(keep), false) = (&arguments.keep, report.failures.is_empty()) {
                std::fs::create_dir_all(keep)?;
                let source = batch::source(number, arguments.batch);
                std::fs::write(keep.join(format!("batch{number}.c")), source)?;
            }
            let mut progress = progress.lock().expect("no worker panics");
            let counts = [report.failures.len(), report.refused.len()].map(|n| n as u64);
            progress.add(number, counts)?;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.jobs.max(1))
            .map(|_| scope.spawn(worker))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("workers do not panic"))
    })?;
    let progress = progress.into_inner().expect("no worker panics");
    Ok(progress.totals(arguments.first..end))
}
