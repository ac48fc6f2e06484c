// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What sysfs says of each GPU at the moment: how busy it is, its memory, power, temperature and
//! clock. Nothing here needs more than the right to read sysfs; what is not there is `None`.

use crate::queues::contexts;
use anyhow::Result;
use kfd::topology::{self, Node};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel lists its devices.
const SYS: &str = "/sys";

/// A GPU, or a partition of one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Device {
    /// The number of its node in the topology.
    pub node: u32,
    /// What the KFD's calls take.
    pub gpu_id: u32,
    /// Its target, such as gfx942.
    pub target: Option<String>,
    /// Its place on the PCI bus.
    pub pci: String,
    /// Compute units.
    pub compute_units: u64,
    /// Percent of the last moment in which it computed, as its firmware counts it.
    pub busy_percent: Option<f64>,
    /// Whether it is one of several partitions of a card: how busy it is, power, temperature and
    /// clock are the card's then.
    pub partition: bool,
    /// Bytes of VRAM in use, by all programs and the kernel. Of a partition nobody counts them.
    pub vram_used: Option<u64>,
    /// Bytes of VRAM that it has: of a partition those that the KFD counts as its own.
    pub vram_total: Option<u64>,
    /// Watts of the package.
    pub power_watts: Option<f64>,
    /// The watts that it is kept below.
    pub power_cap_watts: Option<f64>,
    /// Degrees Celsius of its hottest part.
    pub temperature_celsius: Option<f64>,
    /// MHz of the shaders' clock.
    pub clock_mhz: Option<f64>,
    /// How many compute units the waves of all processes would fill (`cu_occupancy`).
    pub cu_occupancy: Option<u64>,
}

/// All GPUs that this user may see, in the order of their nodes.
pub fn devices() -> Result<Vec<Device>> {
    Ok(of(&topology::gpus()?, Path::new(SYS)))
}

fn of(gpus: &[Node], sys: &Path) -> Vec<Device> {
    let partition = |node: &Node| {
        gpus.iter()
            .filter(|other| place(other) == place(node))
            .count()
            > 1
    };
    let device = |node: &Node| device(node, partition(node), sys);
    gpus.iter().map(device).collect()
}

fn device(node: &Node, partition: bool, sys: &Path) -> Device {
    let pci = place(node);
    let file = |name: &str| number(&sys.join("bus/pci/devices").join(&pci).join(name));
    // What amdgpu says of memory is the card's.
    let (vram_used, vram_total) = match partition {
        true => (None, local_memory(node)),
        false => (file("mem_info_vram_used"), file("mem_info_vram_total")),
    };
    let dir = sys.join("bus/pci/devices").join(&pci);
    let hwmon = hwmon(&dir);
    let sensor = |names: &[&str], unit: f64| {
        let hwmon = hwmon.as_ref()?;
        let value = names.iter().find_map(|name| number(&hwmon.join(name)));
        value.map(|value| value as f64 / unit)
    };
    Device {
        node: node.id,
        gpu_id: node.gpu_id,
        target: node.target(),
        compute_units: node.compute_units(),
        busy_percent: file("gpu_busy_percent").map(|percent| percent as f64),
        partition,
        vram_used,
        vram_total,
        // Of the two, cards have the one or the other.
        power_watts: sensor(&["power1_average", "power1_input"], 1e6),
        power_cap_watts: sensor(&["power1_cap"], 1e6),
        // Labelled "junction"; cards with one sensor only have it as the first.
        temperature_celsius: sensor(&["temp2_input", "temp1_input"], 1e3),
        clock_mhz: sensor(&["freq1_input"], 1e6),
        cu_occupancy: cu_occupancy(&sys.join("class/kfd/kfd/proc"), node.gpu_id),
        pci,
    }
}

/// `DOMAIN:BUS:DEVICE.FUNCTION`; `location_id` has the last three in its low 16 bits, and above
/// them the partition's number.
fn place(node: &Node) -> String {
    let (domain, id) = (node.property("domain"), node.property("location_id"));
    let (bus, device, function) = (id >> 8 & 0xff, id >> 3 & 0x1f, id & 7);
    format!("{domain:04x}:{bus:02x}:{device:02x}.{function}")
}

/// The bytes of a node's own memory banks: those that the CPU sees, and those that it does not
/// (`HSA_MEM_HEAP_TYPE_FB_PUBLIC` and `_PRIVATE` of linux/kfd_sysfs.h).
fn local_memory(node: &Node) -> Option<u64> {
    let banks = node.memory.iter();
    let local = banks.filter(|bank| matches!(bank.get("heap_type"), Some(1 | 2)));
    let sizes = local.filter_map(|bank| bank.get("size_in_bytes").copied());
    sizes.reduce(|all, size| all + size)
}

fn hwmon(dir: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(dir.join("hwmon")).ok()?.flatten();
    entries.next().map(|entry| entry.path())
}

/// The sum over all processes and their contexts.
fn cu_occupancy(proc: &Path, gpu_id: u32) -> Option<u64> {
    let entries = fs::read_dir(proc).ok()?.flatten();
    let file = format!("stats_{gpu_id}/cu_occupancy");
    let each = entries.flat_map(|entry| {
        let contexts = contexts(&entry.path()).into_iter().map(|(_, dir)| dir);
        contexts.chain([entry.path()])
    });
    Some(each.filter_map(|dir| number(&dir.join(&file))).sum())
}

/// The number in a file of sysfs.
pub fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().expect("a file has a directory")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    fn node() -> Node {
        let properties = [
            ("location_id", 0x300 | 2 << 28),
            ("domain", 1),
            ("simd_count", 16),
            ("simd_per_cu", 4),
            ("gfx_target_version", 90402),
        ];
        let properties = properties.map(|(name, value)| (name.to_owned(), value));
        Node {
            id: 1,
            gpu_id: 77,
            name: String::new(),
            properties: properties.into_iter().collect(),
            memory: Vec::new(),
            caches: Vec::new(),
            links: Vec::new(),
        }
    }

    #[test]
    fn sensors_come_in_their_units() {
        let sys = tempfile::tempdir().expect("a temporary directory");
        let pci = sys.path().join("bus/pci/devices/0001:03:00.0");
        write(pci.join("gpu_busy_percent"), "87\n");
        write(pci.join("mem_info_vram_used"), "1048576\n");
        write(pci.join("hwmon/hwmon3/power1_input"), "512000000\n");
        write(pci.join("hwmon/hwmon3/temp2_input"), "61000\n");
        write(pci.join("hwmon/hwmon3/freq1_input"), "2100000000\n");
        for (pid, units) in [("10", "1\n"), ("11", "2\n"), ("11/context_0", "4\n")] {
            let proc = sys.path().join("class/kfd/kfd/proc").join(pid);
            write(proc.join("stats_77/cu_occupancy"), units);
        }
        let device = device(&node(), false, sys.path());
        assert_eq!(device.pci, "0001:03:00.0");
        assert_eq!(device.busy_percent, Some(87.0));
        assert_eq!((device.vram_used, device.vram_total), (Some(1 << 20), None));
        assert_eq!(device.power_watts, Some(512.0));
        assert_eq!(device.temperature_celsius, Some(61.0));
        assert_eq!(device.clock_mhz, Some(2100.0));
        assert_eq!((device.cu_occupancy, device.compute_units), (Some(7), 4));
    }

    #[test]
    fn a_partition_has_its_own_memory() {
        let sys = tempfile::tempdir().expect("a temporary directory");
        let pci = sys.path().join("bus/pci/devices/0001:03:00.0");
        write(pci.join("mem_info_vram_used"), "1048576\n");
        write(pci.join("mem_info_vram_total"), "206158430208\n");
        let parts = [0, 1].map(|part: u64| {
            let mut node = node();
            node.id += part as u32;
            let bank = [("heap_type", 1), ("size_in_bytes", 48 << 30)];
            let bank = bank.map(|(name, value)| (name.to_owned(), value));
            node.memory = vec![bank.into_iter().collect()];
            let location = node.properties.get_mut("location_id").expect("it has one");
            *location = 0x300 | part << 28;
            node
        });
        let devices = of(&parts, sys.path());
        for device in &devices {
            assert!(device.partition);
            assert_eq!(
                (device.vram_used, device.vram_total),
                (None, Some(48 << 30))
            );
        }
        let whole = &of(&parts[..1], sys.path())[0];
        assert_eq!(
            (whole.vram_used, whole.vram_total),
            (Some(1 << 20), Some(192 << 30))
        );
    }

    #[test]
    fn a_bare_card_has_no_numbers() {
        let sys = tempfile::tempdir().expect("a temporary directory");
        let device = device(&node(), false, sys.path());
        assert_eq!((device.busy_percent, device.cu_occupancy), (None, None));
    }
}
