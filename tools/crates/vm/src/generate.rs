// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What is installed beside the program, made from its own arguments: manual pages and completions.

use crate::args::{Cli, GenerateArgs};
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use std::fs;
use std::path::Path;

/// Writes them; directories that are not there are made.
pub fn generate(args: &GenerateArgs) -> Result<u8> {
    if let Some(directory) = &args.man {
        make(directory)?;
        let pages = clap_mangen::generate_to(Cli::command(), directory);
        pages.with_context(|| directory.display().to_string())?;
    }
    if let Some(directory) = &args.completions {
        make(directory)?;
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let script =
                clap_complete::generate_to(shell, &mut Cli::command(), "kfd-vm", directory);
            script.with_context(|| directory.display().to_string())?;
        }
        // Bash's file is named after the program alone.
        let written = directory.join("kfd-vm.bash");
        let script = fs::read_to_string(&written)?;
        fs::write(directory.join("kfd-vm"), of_one_name(&script))?;
        fs::remove_file(written)?;
    }
    Ok(0)
}

/// clap_complete 4.6 takes the dash of the program's name for one between subcommands in half of
/// the names that it makes up for bash, which then completes nothing behind a subcommand.
fn of_one_name(script: &str) -> String {
    script.replace("kfd__subcmd__vm", "kfd__vm")
}

fn make(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())
}
