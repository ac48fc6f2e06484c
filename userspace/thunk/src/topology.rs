// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The machine as the KFD describes it in sysfs: nodes with their memory, caches and links.
//!
//! Read once, as plain data; nothing here needs `/dev/kfd` or any right beyond reading sysfs.

use crate::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the KFD publishes its topology.
pub const ROOT: &str = "/sys/devices/virtual/kfd/kfd/topology";

/// The `name value` lines of a `properties` file, in the units of the kernel's documentation.
pub type Properties = BTreeMap<String, u64>;

/// One node: a CPU with its memory, or a GPU (a partition of one).
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// The number in `nodes/<id>`.
    pub id: u32,
    /// What the KFD's calls take; 0 for a CPU.
    pub gpu_id: u32,
    /// The marketing or ASIC name; empty for a CPU.
    pub name: String,
    /// Everything of `properties`.
    pub properties: Properties,
    /// The memory banks.
    pub memory: Vec<Properties>,
    /// The caches.
    pub caches: Vec<Properties>,
    /// The links to other nodes.
    pub links: Vec<Properties>,
}

impl Node {
    /// Whether this is a GPU that this process may use.
    pub fn is_gpu(&self) -> bool {
        self.gpu_id != 0
    }

    /// A property by its name, 0 if the kernel does not show it.
    pub fn property(&self, name: &str) -> u64 {
        self.properties.get(name).copied().unwrap_or(0)
    }

    /// The graphics target as compilers name it, such as `gfx942`.
    pub fn target(&self) -> Option<String> {
        let version = self.property("gfx_target_version");
        let (major, minor, step) = (version / 10000, version / 100 % 100, version % 100);
        (version != 0).then(|| format!("gfx{major}{minor:x}{step:x}"))
    }

    /// How many accelerator core complexes (XCC) work as this node.
    pub fn xccs(&self) -> u64 {
        self.property("num_xcc").max(1)
    }

    /// How many compute units this node has.
    pub fn compute_units(&self) -> u64 {
        self.property("simd_count") / self.property("simd_per_cu").max(1)
    }

    /// Whether the GPU's driver offers shared virtual memory (`HSA_CAP_SVMAPI_SUPPORTED` in
    /// linux/kfd_sysfs.h).
    pub fn has_svm(&self) -> bool {
        self.property("capability") & 1 << 27 != 0
    }

    /// The bytes that a queue's context-save area has behind its waves, for all XCCs: the
    /// debugger's.
    ///
    /// The KFD wants 32 bytes for each wave that one XCC can hold, and does not show the figure
    /// (`linux:drivers/gpu/drm/amd/amdkfd/kfd_queue.c`, `debug_memory_size`).
    pub(crate) fn debug_memory_size(&self) -> u64 {
        let arrays = self.property("array_count") / self.property("simd_arrays_per_engine").max(1);
        let waves = (self.compute_units() / self.xccs() * 40).min(arrays * 512);
        (waves * 32).next_multiple_of(64)
    }
}

/// All nodes, in the order of their numbers.
pub fn nodes() -> Result<Vec<Node>> {
    nodes_under(Path::new(ROOT))
}

/// The GPUs among [`nodes`].
pub fn gpus() -> Result<Vec<Node>> {
    Ok(nodes()?.into_iter().filter(Node::is_gpu).collect())
}

/// All nodes of the topology at `root`, which need not be the running kernel's.
pub fn nodes_under(root: &Path) -> Result<Vec<Node>> {
    numbered(&root.join("nodes"))?
        .into_iter()
        .map(|(id, dir)| node(id, &dir))
        .collect()
}

fn node(id: u32, dir: &Path) -> Result<Node> {
    let gpu_id = match fs::read_to_string(dir.join("gpu_id")) {
        Ok(text) => text.trim().parse().unwrap_or(0),
        // A node that the device cgroup hides: it can't be read, and can't be used.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => 0,
        Err(error) => return Err(unreadable(&dir.join("gpu_id"), &error)),
    };
    Ok(Node {
        id,
        gpu_id,
        name: fs::read_to_string(dir.join("name"))
            .unwrap_or_default()
            .trim()
            .to_owned(),
        properties: properties(&dir.join("properties"))?,
        memory: all_properties(&dir.join("mem_banks"))?,
        caches: all_properties(&dir.join("caches"))?,
        links: all_properties(&dir.join("io_links"))?,
    })
}

/// The entries of `dir` that are numbers, in order; none if there is no such directory.
fn numbered(dir: &Path) -> Result<Vec<(u32, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => return Err(unreadable(dir, &error)),
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| entry.ok())
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    found.sort();
    Ok(found)
}

fn all_properties(dir: &Path) -> Result<Vec<Properties>> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    numbered(dir)?
        .into_iter()
        .map(|(_, entry)| properties(&entry.join("properties")))
        .collect()
}

fn properties(file: &Path) -> Result<Properties> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => String::new(),
        Err(error) => return Err(unreadable(file, &error)),
    };
    Ok(text.lines().filter_map(property).collect())
}

/// One `name value` line. Values are unsigned; the kernel prints a few of them as signed.
fn property(line: &str) -> Option<(String, u64)> {
    let (name, value) = line.trim().split_once(' ')?;
    let value = value.trim();
    let number = value
        .parse::<u64>()
        .ok()
        .or_else(|| value.parse::<i64>().ok().map(|v| v as u64));
    Some((name.to_owned(), number?))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::Topology {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().expect("a file has a directory")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn reads_a_tree() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let nodes = root.path().join("nodes");
        write(nodes.join("0/gpu_id"), "0\n");
        write(
            nodes.join("0/properties"),
            "cpu_cores_count 2\nsimd_count 0\n",
        );
        write(nodes.join("1/gpu_id"), "35969\n");
        write(nodes.join("1/name"), "ip discovery\n");
        let gpu = "simd_count 16\nsimd_per_cu 4\ngfx_target_version 90402\narray_count 1\n\
        simd_arrays_per_engine 1\n";
        write(nodes.join("1/properties"), gpu);
        write(
            nodes.join("1/caches/0/properties"),
            "level 1\nsize 32\nsibling_map 1,0,\n",
        );
        let nodes = nodes_under(root.path()).expect("a whole tree");
        assert_eq!(nodes.len(), 2);
        assert!(!nodes[0].is_gpu());
        assert_eq!(nodes[1].gpu_id, 35969);
        assert_eq!(nodes[1].target().as_deref(), Some("gfx942"));
        assert_eq!(nodes[1].compute_units(), 4);
        assert_eq!(nodes[1].caches[0]["size"], 32);
        assert_eq!(nodes[1].debug_memory_size(), 4 * 40 * 32);
    }

    #[test]
    fn a_missing_tree_is_an_error_that_names_it() {
        let error = nodes_under(Path::new("/nonexistent")).expect_err("nothing there");
        assert!(error.to_string().contains("/nonexistent/nodes"), "{error}");
    }
}
