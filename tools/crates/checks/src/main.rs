// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! lengths: complains of overlong lines, functions and files in what git tracks below a directory.
//!
//! `tests/tools/lengths.test` runs it; `tests/tools/lengths.allow` lists lines that may be longer.

mod allow;
mod functions;

use allow::Allowed;
use anyhow::{ensure, Context, Result};
use clap::Parser;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Columns of a line; a tab ends at the next multiple of 8, as for the kernel's checkpatch.
const COLUMNS: usize = 100;
/// Lines of a function, from its signature to its closing brace.
const FUNCTION_LINES: usize = 100;
/// Lines of a file below `rust/`.
const FILE_LINES: usize = 700;

/// Complains of overlong lines, functions and files in what git tracks.
#[derive(Parser)]
struct Arguments {
    /// The lines that may be longer, a file.
    #[arg(long)]
    allow: Option<PathBuf>,
    /// A directory of the repository.
    root: PathBuf,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut allowed = match &arguments.allow {
        Some(path) => Allowed::parse(&read(path)?).context(path.display().to_string())?,
        None => Allowed::default(),
    };
    let (mut files, mut functions, mut complaints) = (0, 0, Vec::new());
    for path in tracked(&arguments.root)? {
        let Some(text) = text(&arguments.root.join(&path))? else {
            continue;
        };
        files += 1;
        complaints.extend(long_lines(&path, &text, &mut allowed));
        let found = functions::of(&path, &text).context(path.clone())?;
        functions += found.len();
        complaints.extend(long_functions(&path, &found));
        complaints.extend(long_file(&path, &text));
    }
    complaints.extend(allowed.unused());
    for complaint in &complaints {
        println!("{complaint}");
    }
    println!("{files} files and {functions} functions examined");
    Ok(ExitCode::from(u8::from(!complaints.is_empty())))
}

fn long_lines(path: &str, text: &str, allowed: &mut Allowed) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let columns = columns(line);
        if columns > COLUMNS && !allowed.permits(path, line) {
            complaints.push(format!("{path}:{}: {columns} columns", number + 1));
        }
    }
    complaints
}

fn columns(line: &str) -> usize {
    line.chars().fold(0, |column, character| match character {
        '\t' => (column / 8 + 1) * 8,
        _ => column + 1,
    })
}

fn long_functions(path: &str, functions: &[functions::Function]) -> Vec<String> {
    functions
        .iter()
        .filter(|function| function.lines > FUNCTION_LINES)
        .map(|function| {
            let functions::Function { name, line, lines } = function;
            format!("{path}:{line}: the function {name} has {lines} lines")
        })
        .collect()
}

fn long_file(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    let is_source = path.starts_with("rust/") && !path.ends_with(".lock");
    (is_source && lines > FILE_LINES).then(|| format!("{path}: {lines} lines"))
}

/// The files that git tracks below a directory.
fn tracked(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z"])
        .output()
        .context("git")?;
    ensure!(
        output.status.success(),
        "git: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let names = String::from_utf8(output.stdout).context("a file name that is not UTF-8")?;
    let names: Vec<String> = names.split_terminator('\0').map(String::from).collect();
    ensure!(
        !names.is_empty(),
        "git tracks nothing in {}",
        root.display()
    );
    Ok(names)
}

/// What a file holds; nothing if it is not text, or deleted in the work tree.
fn text(path: &Path) -> Result<Option<String>> {
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let text = String::from_utf8(bytes).ok();
    Ok(text.filter(|text| !text.contains('\0')))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tab_ends_at_a_multiple_of_8() {
        assert_eq!(columns("\tx"), 9);
        assert_eq!(columns("1234567\tx"), 9);
        assert_eq!(columns("12345678\tx"), 17);
        assert_eq!(columns("── ä"), 4);
    }

    #[test]
    fn the_101st_column_is_one_too_many() {
        let mut allowed = Allowed::default();
        let text = format!("{}\n{}\n", "x".repeat(100), "x".repeat(101));
        assert_eq!(
            long_lines("a", &text, &mut allowed),
            ["a:2: 101 columns".to_string()]
        );
    }

    #[test]
    fn only_files_below_rust_have_a_limit() {
        let text = "x\n".repeat(701);
        assert_eq!(
            long_file("rust/a.rs", &text),
            Some("rust/a.rs: 701 lines".into())
        );
        assert_eq!(long_file("rust/a.rs", &text[2..]), None);
        assert_eq!(long_file("tools/a.rs", &text), None);
    }
}
