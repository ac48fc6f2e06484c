// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Tests of several cases: those of which each wants a process of its own, and scripts of cases.

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

/// The cases of a script: what stands after "case", and the lines below it but for empty ones and
/// those that begin with "#".
pub fn of_script(script: &str) -> Vec<(&str, Vec<&str>)> {
    let mut cases = Vec::new();
    for line in script.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("case ") {
            cases.push((name, Vec::new()));
        } else if let (Some((_, lines)), false) =
            (cases.last_mut(), line.is_empty() || line.starts_with('#'))
        {
            lines.push(line);
        }
    }
    cases
}
