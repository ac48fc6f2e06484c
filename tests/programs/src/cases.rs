// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Tests of several cases, each of which wants a process of its own.

use anyhow::{Context, Result};
use clap::ValueEnum;
use std::process::Command;

/// Runs each case as `kfd-tests COMMAND --case CASE`, and prints what it says and how it ends.
pub fn run_each<Case: ValueEnum>(command: &str) -> Result<()> {
    for case in Case::value_variants() {
        let name = case.to_possible_value().context("a case has a name")?;
        let program = std::env::current_exe()?;
        let output = Command::new(program)
            .args([command, "--case", name.get_name()])
            .output()?;
        let text = [output.stdout, output.stderr].concat();
        for line in String::from_utf8_lossy(&text).lines() {
            println!("{}: {line}", name.get_name());
        }
        println!("{}: {}", name.get_name(), output.status);
    }
    Ok(())
}
