// SPDX-License-Identifier: GPL-2.0 OR MIT

//! kfdctl: see what a KFD serves, and run kernels on it.

mod info;
mod run;
mod trace;

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
    /// Run a program and show every call that it makes on a KFD.
    Trace(trace::Trace),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Info => info::info(arguments.json).map(|()| ExitCode::SUCCESS),
        Command::Run(run) => run.run(arguments.json).map(|()| ExitCode::SUCCESS),
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
