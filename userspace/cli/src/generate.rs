// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What packages ship beside the program, made from its own arguments: manual pages and
//! completions.

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};

/// Where to write what.
#[derive(Args)]
pub struct Generate {
    /// Write kfdctl.1 and a page for each subcommand there.
    #[arg(long, value_name = "DIR", required_unless_present = "completions")]
    man: Option<PathBuf>,
    /// Write bash's, fish's and zsh's completions there, in files with the names that each shell
    /// looks for.
    #[arg(long, value_name = "DIR")]
    completions: Option<PathBuf>,
}

impl Generate {
    /// Writes them; directories that are not there are made.
    pub fn run(&self, command: impl Fn() -> Command) -> Result<()> {
        if let Some(directory) = &self.man {
            make(directory)?;
            man(command(), directory)?;
        }
        if let Some(directory) = &self.completions {
            make(directory)?;
            completions(command(), directory)?;
        }
        Ok(())
    }
}

fn make(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())
}

/// Writes a page for the program and for each subcommand of it.
pub fn man(command: Command, directory: &Path) -> Result<()> {
    clap_mangen::generate_to(command, directory).with_context(|| directory.display().to_string())
}

fn completions(mut command: Command, directory: &Path) -> Result<()> {
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command, "kfdctl", directory)
            .with_context(|| directory.display().to_string())?;
    }
    // Bash's file is named after the program alone.
    let written = directory.join("kfdctl.bash");
    fs::rename(&written, directory.join("kfdctl")).with_context(|| written.display().to_string())
}
