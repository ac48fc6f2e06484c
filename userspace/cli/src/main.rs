// SPDX-License-Identifier: GPL-2.0 OR MIT

//! kfdctl: see what a KFD serves, and run kernels on it.

mod info;
mod queues;
mod ring;
mod run;
mod top;
mod trace;
mod units;

use clap::{Parser, Subcommand};
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
        Command::Trace(trace) => trace.run(arguments.json),
    };
    match result {
        Ok(status) => status,
        Err(error) => {
            eprintln!("kfdctl: {error:#}");
            ExitCode::FAILURE
        }
    }
}
