// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! kfdctl: see what a KFD serves, and run kernels on it.

#[macro_use]
mod output;

mod bench;
mod clocks;
mod devices;
mod doctor;
mod driver;
mod events;
mod generate;
mod info;
mod queues;
mod ring;
mod run;
mod svm;
mod top;
mod trace;
mod units;
mod waves;

use clap::{CommandFactory, Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the nodes with their memory, caches and links.
    Info,
    /// Run a built-in example (vadd, saxpy, reduce, spin), or a kernel of a code object.
    Run(run::Run),
    /// Show which process has which queues on which GPU, and how fast they go.
    Top(top::Top),
    /// Show all that is known of a process's queues.
    Queues(top::Queues),
    /// Show the packets in a queue's ring, decoded.
    Ring(ring::Ring),
    /// Show a process's shared virtual memory: its ranges, and where their pages are.
    Svm(svm::Svm),
    /// Show the waves of a running program: where they are and what comes next.
    Waves(waves::Waves),
    /// Show SMI events (system management interface) as they come.
    Events(events::Events),
    /// Measure what one dispatch costs.
    Bench(bench::Bench),
    /// Find out why the GPU can't be used, and what to type against it.
    Doctor,
    /// Show which driver serves /dev/kfd, and choose one.
    Driver(driver::Driver),
    /// Print what a shell needs to complete this program's arguments.
    Completions {
        /// bash, elvish, fish, powershell or zsh.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory.
    Man {
        /// The directory, which must exist.
        directory: std::path::PathBuf,
    },
    /// Write what a package ships beside the program.
    #[command(hide = true)]
    Generate(generate::Generate),
    /// Print what each GPU's clock shows at which moment of CLOCK_MONOTONIC.
    #[command(hide = true)]
    Clocks,
    /// Run a program and show every call that it makes on a KFD.
    Trace(trace::Trace),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Info => info::info(arguments.json).map(|()| ExitCode::SUCCESS),
        Command::Run(run) => run.run(arguments.json).map(|()| ExitCode::SUCCESS),
        Command::Top(top) => top.run(arguments.json).map(|()| ExitCode::SUCCESS),
        Command::Queues(queues) => queues.run(arguments.json).map(|()| ExitCode::SUCCESS),
        Command::Ring(ring) => ring.run(arguments.json).map(|()| ExitCode::SUCCESS),
        Command::Svm(svm) => svm.run(arguments.json).map(|()| ExitCode::SUCCESS),
        Command::Waves(waves) => waves.run(arguments.json).map(|()| ExitCode::SUCCESS),
        Command::Events(events) => events.run(arguments.json).map(|()| ExitCode::SUCCESS),
        Command::Bench(bench) => bench.run(arguments.json).map(|()| ExitCode::SUCCESS),
        Command::Doctor => doctor::doctor(arguments.json).map(|()| ExitCode::SUCCESS),
        Command::Driver(driver) => driver.run(arguments.json),
        Command::Completions { shell } => {
            let mut command = Arguments::command();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "kfdctl", &mut script);
            let written = std::io::stdout().write_all(&script);
            written.map(|()| ExitCode::SUCCESS).map_err(Into::into)
        }
        Command::Man { directory } => {
            generate::man(Arguments::command(), &directory).map(|()| ExitCode::SUCCESS)
        }
        Command::Generate(generate) => generate.run(Arguments::command).map(|()| ExitCode::SUCCESS),
        Command::Clocks => clocks::print().map(|()| ExitCode::SUCCESS),
        Command::Trace(trace) => trace.run(arguments.json),
    };
    match result {
        Ok(status) => status,
        Err(error) if output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // It may have names of somebody's code object.
            eprintln!("kfdctl: {}", output::shown(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}
