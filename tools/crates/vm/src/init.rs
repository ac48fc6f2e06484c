// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! As process 1 of a container: whoever is that gets the orphans of all others, and no signal ends
//! it that it has no handler for. So kfd-vm goes on in a child, and process 1 reaps, passes signals
//! on, and ends as the child did.

use crate::child;
use crate::interrupt;
use anyhow::{anyhow, Context, Result};
use rustix::process::{getpid, kill_process, wait, Pid, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::Signals;

/// What ends a program, or tells it something; not what a fault of its own raises.
const PASSED_ON: &[i32] = &[
    signal_hook::consts::SIGHUP,
    signal_hook::consts::SIGINT,
    signal_hook::consts::SIGQUIT,
    signal_hook::consts::SIGTERM,
    signal_hook::consts::SIGUSR1,
    signal_hook::consts::SIGUSR2,
    signal_hook::consts::SIGALRM,
    signal_hook::consts::SIGWINCH,
    signal_hook::consts::SIGCONT,
];

/// Whether this process has to be a container's init.
pub fn is_needed() -> bool {
    getpid().is_init()
}

/// Runs this program again as a child, and returns its status, as a shell gives it.
pub fn run() -> Result<u8> {
    // What is ignored is ignored by the child as well.
    let ignored = interrupt::ignored();
    let passed_on = PASSED_ON.iter().filter(|&&signal| !ignored.has(signal));
    // Before there is a child that could end.
    let mut signals = Signals::new(passed_on.chain([&SIGCHLD]))?;
    let program = std::env::current_exe().context("this program's name")?;
    // The terminal is the child's to read.
    let mut command = child::in_our_group(program);
    command.args(std::env::args_os().skip(1));
    let started = command.spawn().context("starting kfd-vm under process 1")?;
    let child = Pid::from_child(&started);
    loop {
        while let Some((pid, status)) = wait_for_any()? {
            if pid == child {
                return Ok(as_a_shell_says(status));
            }
        }
        for number in signals.wait().filter(|number| *number != SIGCHLD) {
            if let Some(signal) = Signal::from_named_raw(number) {
                // It fails only for a child that has ended meanwhile.
                let _ = kill_process(child, signal);
            }
        }
    }
}

/// Whoever has ended, our child or an orphan.
fn wait_for_any() -> Result<Option<(Pid, WaitStatus)>> {
    match wait(WaitOptions::NOHANG) {
        Ok(ended) => Ok(ended),
        Err(rustix::io::Errno::CHILD) => Err(anyhow!("kfd-vm ended unseen")),
        Err(error) => Err(error).context("waiting for children"),
    }
}

fn as_a_shell_says(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|number| 128 + number);
    signal.or(status.exit_status()).unwrap_or(0) as u8
}
