// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl info`: the topology, for people and for programs.

use crate::units::bytes;
use anyhow::Result;
use kfd::topology::{self, Node, Properties};

/// Prints all nodes.
pub fn info(json: bool) -> Result<()> {
    let nodes = topology::nodes()?;
    if json {
        outln!("{}", serde_json::to_string_pretty(&nodes)?);
        return Ok(());
    }
    for node in &nodes {
        out!("{}", describe(node));
    }
    Ok(())
}

fn describe(node: &Node) -> String {
    let mut text = heading(node);
    for bank in &node.memory {
        let kind = memory_kind(get(bank, "heap_type"));
        text += &format!(
            "  memory   {:>10}  {kind}\n",
            bytes(get(bank, "size_in_bytes"))
        );
    }
    for (cache, count) in grouped(&node.caches) {
        text += &format!(
            "  cache    {:>10}  L{}{}\n",
            bytes(get(&cache, "size") << 10),
            get(&cache, "level"),
            times(count)
        );
    }
    for link in &node.links {
        let (kind, to) = (link_kind(get(link, "type")), get(link, "node_to"));
        text += &format!(
            "  link     to node {to}  {kind}, weight {}\n",
            get(link, "weight")
        );
    }
    text
}

fn heading(node: &Node) -> String {
    if !node.is_gpu() {
        return format!(
            "node {}: CPU, {} cores\n",
            node.id,
            node.property("cpu_cores_count")
        );
    }
    let target = node.target().unwrap_or_else(|| "unknown target".into());
    let (units, xccs) = (node.compute_units(), node.xccs());
    let clock = node.property("max_engine_clk_fcompute");
    format!(
        "node {}: GPU {}, {target}, {units} compute units, {xccs} XCC, {clock} MHz, renderD{}\n",
        node.id,
        node.gpu_id,
        node.property("drm_render_minor")
    )
}

/// Caches of the same level and size, counted, in the order of their first.
fn grouped(caches: &[Properties]) -> Vec<(Properties, usize)> {
    let mut groups: Vec<(Properties, usize)> = Vec::new();
    for cache in caches {
        let same = |other: &Properties| {
            ["level", "size", "type"]
                .iter()
                .all(|name| get(other, name) == get(cache, name))
        };
        match groups.iter_mut().find(|(first, _)| same(first)) {
            Some((_, count)) => *count += 1,
            None => groups.push((cache.clone(), 1)),
        }
    }
    groups
}

fn times(count: usize) -> String {
    if count > 1 {
        format!(" x {count}")
    } else {
        String::new()
    }
}

fn get(properties: &Properties, name: &str) -> u64 {
    properties.get(name).copied().unwrap_or(0)
}

/// `HSA_MEM_HEAP_TYPE_*` of `<linux/kfd_sysfs.h>`.
fn memory_kind(heap: u64) -> &'static str {
    match heap {
        0 => "system",
        1 => "VRAM, visible to the CPU",
        2 => "VRAM",
        3 => "global data share",
        4 => "local data share",
        5 => "scratch",
        _ => "of unknown kind",
    }
}

/// `HSA_IOLINK_TYPE_*` of `<linux/kfd_sysfs.h>`.
fn link_kind(kind: u64) -> &'static str {
    match kind {
        1 => "HyperTransport",
        2 => "PCI Express",
        5 => "QPI",
        11 => "XGMI",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_caches_are_counted() {
        let cache =
            |level, size| Properties::from([("level".into(), level), ("size".into(), size)]);
        let groups = grouped(&[cache(1, 32), cache(1, 32), cache(2, 4096)]);
        assert_eq!(
            groups.iter().map(|(_, count)| *count).collect::<Vec<_>>(),
            [2, 1]
        );
    }
}
