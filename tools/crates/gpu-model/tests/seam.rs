// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The processors' modules stand in layers: none imports from one above it or beside it. Code of
//! tests counts, comments do not.

use std::path::{Path, PathBuf};

/// A module, and those that it may not name.
const SEAMS: &[(&str, &[&str])] = &[
    ("processor", &["cp", "sdma", "device"]),
    ("cp", &["sdma", "device"]),
    ("sdma", &["cp", "device"]),
];

/// The module's own file and those below.
fn files(module: &Path) -> Vec<PathBuf> {
    let mut found = vec![module.with_extension("rs")];
    let mut directories = vec![module.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("a module's directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn processors_do_not_know_each_other() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (module, others) in SEAMS {
        for file in files(&src.join(module)) {
            let text = std::fs::read_to_string(&file).expect("source text");
            let lines = text.lines().map(str::trim);
            for line in lines.filter(|line| !line.starts_with("//")) {
                for other in *others {
                    let names = line.contains(&format!("crate::{other}::"));
                    assert!(!names, "{}: {line}", file.display());
                }
            }
        }
    }
}
