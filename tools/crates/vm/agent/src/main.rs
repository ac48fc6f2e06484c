// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The guest's agent: one static binary, `/init` of the initramfs.
//!
//! As process 1 it builds the guest's root, starts itself a second time as the service, and from
//! then on only reaps what loses its parent. When the service ends, the machine is switched off.

mod boot;
mod command;
mod gpus;
mod incoming;
mod kernel_log;
mod modules;
mod net;
mod port;
mod serve;

use anyhow::{Context, Result};
use rustix::process::{getpid, wait, Pid, WaitOptions};
use rustix::system::{reboot, RebootCommand};
use std::process::Command;

const SERVE: &str = "serve";

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [word] if word == SERVE => {
            if let Err(error) = serve::serve() {
                eprintln!("kfd-vm-agent: {error:#}");
                std::process::exit(1);
            }
            return;
        }
        [word, program, args @ ..] if word == command::ON_TERMINAL => {
            std::process::exit(command::become_on_terminal(program, args));
        }
        _ => {}
    }
    if !getpid().is_init() {
        eprintln!("kfd-vm-agent: runs as the init process of a guest of kfd-vm");
        std::process::exit(2);
    }
    if let Err(error) = init() {
        eprintln!("kfd-vm-agent: {error:#}");
    }
    rustix::fs::sync();
    // It does not return, and when it fails the kernel panics over the death of init: seen as well.
    let _ = reboot(RebootCommand::PowerOff);
}

fn init() -> Result<()> {
    boot::build_root()?;
    let service = Command::new("/proc/self/exe")
        .arg(SERVE)
        .spawn()
        .context("starting the service")?;
    reap_until(Pid::from_child(&service))
}

/// Waits for every child, ours and adopted, until the service itself ends.
fn reap_until(service: Pid) -> Result<()> {
    loop {
        if let Some((pid, _)) = wait(WaitOptions::empty()).context("waiting for children")? {
            if pid == service {
                return Ok(());
            }
        }
    }
}
