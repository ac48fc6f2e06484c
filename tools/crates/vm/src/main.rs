// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `kfd-vm`: runs a command as root in a virtual machine with modelled GPUs, a stock kernel, stock
//! amdgpu and a KFD of choice, and passes its output and exit status through.

/// Says something on standard error. That nobody reads it, or that its disk is full, is no reason
/// to end: `eprintln` would panic.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr().lock(),
            format_args!("{}\n", format_args!($($words)*)),
        );
    }};
}

mod args;
mod assets;
mod background;
mod child;
mod cpio;
mod generate;
mod gpus;
mod guest;
mod image;
mod init;
mod initramfs;
mod input;
mod interrupt;
mod kernel_log;
mod kvm;
mod machine;
mod net;
mod output;
mod perfetto;
mod place;
mod qmp;
mod run;
mod scratch;
mod session;
mod snapshot;
mod terminal;
mod testing;

use args::{Cli, Command};
use clap::Parser;
use run::Order;
use std::process::ExitCode;

/// What `timeout` of coreutils says, so that scripts know it.
const STATUS_TIMEOUT: u8 = 124;
/// The machine, not the command, failed.
const STATUS_FAILED: u8 = 125;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        // What is over at once, or becomes another program, needs nobody above it.
        command if command.holds_children() && init::is_needed() => init::run(),
        Command::Run(args) => run::run(&args.options, &Order::of(&args)),
        Command::Shell(args) => run::run(&args.options, &Order::of_shell(&args)),
        Command::Up(args) => background::up(&args),
        Command::Hold(args) => run::hold(&args),
        Command::Exec(args) => background::exec(&args),
        Command::Ps => background::ps(),
        Command::Down(args) => background::down(&args),
        Command::Test(args) => testing::test(&args),
        Command::Generate(args) => generate::generate(&args),
        Command::Prepare(args) => run::prepare(&args),
        Command::ExecChild {
            parent,
            program,
            args,
        } => child::exec(parent, &program, &args),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            say!("kfd-vm: {error:#}");
            match error.downcast_ref::<session::Failure>() {
                Some(session::Failure::Timeout(_)) => ExitCode::from(STATUS_TIMEOUT),
                Some(session::Failure::Signal(number)) => ExitCode::from(128 + *number as u8),
                _ => ExitCode::from(STATUS_FAILED),
            }
        }
    }
}
