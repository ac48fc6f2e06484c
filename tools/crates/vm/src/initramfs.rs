// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Makes the guest's initramfs: the static agent as /init and the modules it needs for its root.

use crate::assets::{Assets, KernelFiles, Key};
use crate::cpio::Writer;
use crate::image::store;
use crate::place::{cargo_build, Place};
use crate::snapshot::keep;
use anyhow::{bail, Context, Result};
use kfd_vm_protocol::MODULE_LIST;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// By file name; what a kernel has built in is passed over.
const MODULES: &[&str] = &[
    "virtio_blk",
    "virtio_console",
    "ext4",
    "overlay",
    "9pnet_virtio",
    "9p",
    "virtio-rng",
];
/// The same for what only some machines need and not all kernels have.
const OPTIONAL_MODULES: &[&str] = &["squashfs"];
const DIRECTORIES: &[&str] = &["dev", "proc", "sys", "modules"];
const AGENT: &str = "kfd-vm-agent";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The path of the initramfs, which is made when the cache does not hold it. It is named by the
/// agent's source (that of a package: by the program) and the kernel, so that all worktrees with
/// the same agent share it.
pub fn locate(assets: &Assets) -> Result<PathBuf> {
    let place = Place::find();
    let key = match &place {
        Place::Tree(project) => Key::default()
            .tree(&project.join("tools/crates/vm/agent"))?
            .tree(&project.join("tools/crates/vm/protocol"))?,
        Place::Installed { programs, .. } => {
            Key::default().text(&String::from_utf8_lossy(&fs::read(programs.join(AGENT))?))
        }
    };
    let key = key
        .text(&MODULES.join(" "))
        .text(&OPTIONAL_MODULES.join(" "))
        .large_file(&assets.kernel.vmlinuz)?
        .finish();
    let path = assets.cache.join(format!("initramfs-{key}.cpio"));
    keep(&path);
    if !path.exists() {
        let agent = match place {
            Place::Tree(project) => build_agent(&project.join("tools"))?,
            Place::Installed { programs, .. } => programs.join(AGENT),
        };
        let bytes = build(&assets.kernel.modules, &fs::read(agent)?)?;
        store(&path, |mut file| Ok(file.write_all(&bytes)?))?;
    }
    Ok(path)
}

fn build(modules: &Path, agent: &[u8]) -> Result<Vec<u8>> {
    let mut archive = Writer::new(Vec::new());
    for dir in DIRECTORIES {
        archive.directory(dir)?;
    }
    archive.file("init", 0o755, agent)?;
    let mut list = String::new();
    let mut order = load_order(modules, MODULES)?;
    for name in OPTIONAL_MODULES {
        order.extend(load_order(modules, &[name]).unwrap_or_default());
    }
    for path in order {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let data = fs::read(&path).with_context(|| path.display().to_string())?;
        archive.file(&format!("modules/{name}"), 0o644, &data)?;
        list.push_str(&format!("/modules/{name}\n"));
    }
    archive.file(MODULE_LIST.trim_start_matches('/'), 0o644, list.as_bytes())?;
    Ok(archive.finish()?)
}

/// Compiles the agent, statically linked: the guest's root is not there yet when it starts.
fn build_agent(workspace: &Path) -> Result<PathBuf> {
    let mut cargo = cargo_build(workspace, AGENT);
    cargo.args(["--target", TARGET]).env(
        "RUSTFLAGS",
        "-C target-feature=+crt-static -C strip=symbols",
    );
    // The launcher's own cargo may have set it for its own build.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    if !cargo.status().context("running cargo")?.success() {
        bail!("the guest's agent did not build");
    }
    Ok(workspace
        .join("target")
        .join(TARGET)
        .join("debug")
        .join(AGENT))
}

/// Whether a kernel has a module, or has it built in.
pub fn has_module(kernel: &KernelFiles, name: &str) -> bool {
    load_order(&kernel.modules, &[name]).is_ok()
}

/// The files of the named modules and all they depend on, in an order that can be loaded.
fn load_order(modules: &Path, names: &[&str]) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string(modules.join("modules.dep")).context("modules.dep")?;
    let builtin = fs::read_to_string(modules.join("modules.builtin")).context("modules.builtin")?;
    let builtin: HashSet<_> = builtin.lines().map(stem).collect();
    let depends = parse_dependencies(&text);
    let mut order: Vec<PathBuf> = Vec::new();
    for name in names {
        match depends.get(name) {
            Some((path, needs)) => {
                // modules.dep lists the nearest first, so the last has to be loaded first.
                let all = needs.iter().rev().chain([path]);
                order.extend(all.map(|path| modules.join(path)));
            }
            None if builtin.contains(name) => {}
            None => bail!("the kernel has no module {name}"),
        }
    }
    let mut seen = HashSet::new();
    order.retain(|path| seen.insert(path.clone()));
    Ok(order)
}

fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".ko").unwrap_or(name)
}

/// `path: dependency dependency`, a line for each module, by the module's name.
fn parse_dependencies(text: &str) -> HashMap<&str, (&str, Vec<&str>)> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(path, needs)| (stem(path), (path, needs.split_whitespace().collect())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let dep = "k/a.ko: k/b.ko k/c.ko\nk/b.ko: k/c.ko\nk/c.ko:\nk/d-e.ko: k/c.ko\n";
        fs::write(dir.path().join("modules.dep"), dep).unwrap();
        fs::write(dir.path().join("modules.builtin"), "kernel/x/built.ko\n").unwrap();
        dir
    }

    #[test]
    fn modules_come_after_what_they_need_and_once() {
        let dir = modules();
        let order = load_order(dir.path(), &["a", "built", "d-e"]).unwrap();
        let order: Vec<_> = order.iter().map(|p| stem(p.to_str().unwrap())).collect();
        assert_eq!(order, ["c", "b", "a", "d-e"]);
    }

    #[test]
    fn a_missing_module_is_named() {
        let error = load_order(modules().path(), &["nope"]).unwrap_err();
        assert!(error.to_string().contains("nope"));
    }
}
