// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What sysfs says of this process, and of the machine.

use super::world::World;
use std::fs;
use std::path::Path;

const PROC: &str = "/sys/class/kfd/kfd/proc";
const TOPOLOGY: &str = "/sys/class/kfd/kfd/topology/nodes";

/// Waits until what this process has is in sysfs. The C driver puts it there at once; ours does it
/// a few milliseconds later, or when somebody reads this file.
pub fn settle() {
    // On the C driver there is no such file.
    let _ = fs::read("/sys/kernel/debug/amdkfd/queues");
}

/// Prints the files of this process: names, modes, and what can be compared of their values.
pub fn show(world: &mut World) {
    settle();
    let gpu = world.bench.gpu_id().to_string();
    let own = Path::new(PROC).join(std::process::id().to_string());
    walk(&own, "proc", &gpu);
}

/// Prints the topology's files of the GPU, each with its number of lines.
pub fn topology() {
    let mut nodes: Vec<_> = fs::read_dir(TOPOLOGY)
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    nodes.sort_by_key(fs::DirEntry::file_name);
    for node in nodes {
        let name = format!("topology {}", node.file_name().to_string_lossy());
        walk_names(&node.path(), &name);
    }
}

fn entries(directory: &Path) -> Vec<fs::DirEntry> {
    let mut entries: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    entries
}

fn walk(directory: &Path, name: &str, gpu: &str) {
    if !directory.exists() {
        println!("{name}: not there");
    }
    for entry in entries(directory) {
        let file = entry.file_name().to_string_lossy().replace(gpu, "GPU");
        let name = format!("{name}/{file}");
        if entry.path().is_dir() {
            println!("{name}/ {}", mode(&entry));
            walk(&entry.path(), &name, gpu);
            continue;
        }
        let value = match fs::read_to_string(entry.path()) {
            Ok(text) => value(&file, &text.replace(gpu, "GPU")),
            Err(error) => format!("{error}"),
        };
        println!("{name} {} {value}", mode(&entry));
    }
}

/// A value, end of line and all; for a time only whether it is a number.
fn value(file: &str, text: &str) -> String {
    match file {
        "evicted_ms" => format!("a number: {}", text.trim().parse::<u64>().is_ok()),
        _ => format!("{text:?}"),
    }
}

fn walk_names(directory: &Path, name: &str) {
    for entry in entries(directory) {
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            walk_names(&entry.path(), &name);
        } else {
            let lines = fs::read_to_string(entry.path()).map_or(0, |text| text.lines().count());
            println!("{name} {} {lines} lines", mode(&entry));
        }
    }
}

fn mode(entry: &fs::DirEntry) -> String {
    use std::os::unix::fs::PermissionsExt;
    entry.metadata().map_or("?".into(), |it| {
        format!("{:o}", it.permissions().mode() & 0o777)
    })
}
