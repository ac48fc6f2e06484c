// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The kernel's modules, by the kernel's own list of what needs what: a root need not have kmod.

use anyhow::{anyhow, Context, Result};
use rustix::io::Errno;
use rustix::system::finit_module;
use std::ffi::CString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const MODULES: &str = "/usr/lib/modules";

/// Loads a module, which is a file where `name` has a slash in it, else one of the kernel's with
/// all that it needs. What is loaded already stays.
pub fn load(name: &str, parameters: &str) -> Result<()> {
    if name.contains('/') {
        return insert(Path::new(name), parameters);
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let directory = Path::new(MODULES).join(release.trim());
    let list = directory.join("modules.dep");
    let list = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let order = order(&list, name).ok_or_else(|| anyhow!("the kernel has no module {name}"))?;
    let (last, first) = order.split_last().ok_or_else(|| anyhow!("no module"))?;
    for path in first {
        already(insert(&directory.join(path), ""))?;
    }
    already(insert(&directory.join(last), parameters))
}

fn insert(path: &Path, parameters: &str) -> Result<()> {
    let context = || format!("inserting {}", path.display());
    let file = File::open(path).with_context(context)?;
    let parameters = CString::new(parameters)?;
    finit_module(&file, &parameters, 0).with_context(context)
}

fn already(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.downcast_ref() == Some(&Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// The files of a module and of all it needs, those first that others need. modules.dep has a line
/// "path: needs..." for each, the nearest first.
fn order(list: &str, name: &str) -> Option<Vec<PathBuf>> {
    let of = |path: &str| {
        let file = path.rsplit('/').next().unwrap_or(path);
        file.split('.').next().unwrap_or(file).replace('-', "_")
    };
    let wanted = name.replace('-', "_");
    let (path, needs) = list
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(path, _)| of(path) == wanted)?;
    let all = needs.split_whitespace().rev().chain([path]);
    Some(all.map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_comes_first() {
        let list = "k/a-b.ko: k/c.ko k/d.ko\nk/c.ko: k/d.ko\nk/d.ko:\n";
        let order = |name| order(list, name).map(|paths| paths.to_vec());
        assert_eq!(
            order("a_b").unwrap(),
            ["k/d.ko", "k/c.ko", "k/a-b.ko"].map(PathBuf::from)
        );
        assert_eq!(order("d").unwrap(), [PathBuf::from("k/d.ko")]);
        assert_eq!(order("a"), None);
    }
}
