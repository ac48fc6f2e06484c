// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the kernel shows of the driver behind `/dev/kfd`, of amdgpu and of its GPUs.

use kfd::topology;
use rustix::io::Errno;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;

/// Who serves `/dev/kfd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Serving {
    /// There is no `/dev/kfd`.
    Nobody,
    /// The amdkfd in amdgpu.ko.
    C,
    /// amdkfd.ko.
    Rust,
}

/// A machine whose `/sys`, `/proc` and `/dev` lie under `root`.
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    /// The one that this program runs on.
    pub fn here() -> Self {
        Self::at("/")
    }

    /// One whose files lie in a directory.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where `path`, which begins with a slash, is found.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file without the blanks around it; `None` where it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Who serves `/dev/kfd`. amdkfd.ko may be loaded while the C driver serves, since it refuses
    /// some machines only when amdgpu comes: it says so in its state. Where it has none the C
    /// driver has its directory in debugfs while it serves, which only root can see.
    pub fn serving(&self) -> Serving {
        let is_rust = match self.rust_state() {
            Some(state) => state == "serving",
            None => self.has_rust() && !self.path("/sys/kernel/debug/kfd").exists(),
        };
        match is_rust {
            _ if !self.path("/sys/class/kfd/kfd").exists() => Serving::Nobody,
            true => Serving::Rust,
            false => Serving::C,
        }
    }

    /// What the amdkfd.ko that is loaded says that it does: `serving`, `waiting`, or `refused` and
    /// why.
    pub fn rust_state(&self) -> Option<String> {
        self.text("/sys/module/amdkfd/parameters/state")
    }

    /// Whether amdkfd.ko is loaded.
    pub fn has_rust(&self) -> bool {
        self.path("/sys/module/amdkfd").exists()
    }

    /// The version of the amdkfd.ko that is loaded, where it has one.
    pub fn rust_version(&self) -> Option<String> {
        self.text("/sys/module/amdkfd/version")
    }

    /// Whether amdgpu is loaded.
    pub fn has_amdgpu(&self) -> bool {
        self.path("/sys/module/amdgpu").exists()
    }

    /// Whether amdgpu is loaded and its initialisation, in which it probes the GPUs, is over.
    pub fn amdgpu_is_live(&self) -> bool {
        self.text("/sys/module/amdgpu/initstate").as_deref() == Some("live")
    }

    /// The build id of the amdgpu that is loaded, in hexadecimal.
    pub fn amdgpu_build_id(&self) -> Option<String> {
        let notes = fs::read(self.path("/sys/module/amdgpu/notes/.note.gnu.build-id")).ok()?;
        build_id(&notes)
    }

    /// The graphics cores (such as `9.4.3`) of the GPUs that the KFD serves, by PCI address. `None`
    /// is one that neither the GPU's firmware tells nor the topology.
    pub fn graphics_cores(&self) -> Vec<(String, Option<String>)> {
        let served = self.served();
        let entries = fs::read_dir(self.path("/sys/bus/pci/drivers/amdgpu"));
        let mut found: Vec<_> = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| {
                let slot = pci_slot(&name)?;
                let (_, target) = served.iter().find(|(served, _)| *served == slot)?;
                let core = self.graphics_core(&name);
                Some((name, core.or_else(|| core_of_target(*target))))
            })
            .collect();
        found.sort();
        found
    }

    fn graphics_core(&self, device: &str) -> Option<String> {
        let core = format!("/sys/bus/pci/drivers/amdgpu/{device}/ip_discovery/die/0/GC/0");
        let number = |name: &str| self.text(&format!("{core}/{name}"));
        let (major, minor) = (number("major")?, number("minor")?);
        Some(format!("{major}.{minor}.{}", number("revision")?))
    }

    /// The PCI domain and slot (bus and device) of each GPU in the topology, and its
    /// `gfx_target_version`. The function is left out: a partition's number stands there.
    fn served(&self) -> Vec<((u64, u64), u64)> {
        let root = self.path(topology::ROOT);
        let nodes = topology::nodes_under(&root).unwrap_or_default();
        nodes
            .iter()
            .filter(|node| node.is_gpu())
            .map(|node| {
                let slot = (node.property("domain"), node.property("location_id") >> 3);
                (slot, node.property("gfx_target_version"))
            })
            .collect()
    }
}

/// The graphics core that has this `gfx_target_version`, of those whose firmware has no table of
/// its parts (amdgpu knows these by their PCI ids; `kgd2kfd_probe()` has their targets). Raven's
/// are two, which share one.
fn core_of_target(target: u64) -> Option<String> {
    let core = match target {
        90000 => "9.0.1",
        90004 => "9.2.1",
        90006 => "9.4.0",
        90008 => "9.4.1",
        90010 => "9.4.2",
        _ => return None,
    };
    Some(core.into())
}

/// The PCI domain and slot of a device named `0000:03:00.0`.
fn pci_slot(name: &str) -> Option<(u64, u64)> {
    let (address, _) = name.rsplit_once('.')?;
    let mut numbers = address
        .split(':')
        .map(|part| u64::from_str_radix(part, 16).ok());
    let (domain, bus, device) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some((domain, bus << 5 | device))
}

/// `NT_GNU_BUILD_ID` of `<elf.h>`.
const BUILD_ID: u32 = 3;

/// The build id in the notes of an ELF file, in hexadecimal.
fn build_id(mut notes: &[u8]) -> Option<String> {
    loop {
        let word = |at: usize| Some(u32::from_ne_bytes(notes.get(at..at + 4)?.try_into().ok()?));
        let (owner_size, size, kind) = (word(0)?, word(4)?, word(8)?);
        let owner = notes.get(12..)?.get(..owner_size as usize)?;
        let from = 12 + (owner_size as usize).next_multiple_of(4);
        let content = notes.get(from..)?.get(..size as usize)?;
        if kind == BUILD_ID && owner == b"GNU\0" {
            return Some(content.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(from + (size as usize).next_multiple_of(4)..)?;
    }
}

/// What the kernel calls an error, without its number.
pub fn words(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::path::Path;

    /// Writes a file and the directories above it.
    pub fn write(root: &Path, path: &str, content: impl AsRef<[u8]>) {
        let path = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a file has a directory")).expect("writable");
        fs::write(path, content).expect("writable");
    }

    fn note(owner: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [owner.len() as u32, content.len() as u32, kind] {
            note.extend(word.to_ne_bytes());
        }
        for part in [owner, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let mut notes = note(b"Linux\0", 0x100, &[1, 2, 3]);
        notes.extend(note(b"GNU\0", 5, &[9; 4]));
        notes.extend(note(b"GNU\0", BUILD_ID, &[0xde, 0xad, 0x00, 0x01]));
        assert_eq!(build_id(&notes).as_deref(), Some("dead0001"));
    }

    #[test]
    fn notes_that_end_too_early_have_no_build_id() {
        let notes = note(b"GNU\0", BUILD_ID, &[1; 20]);
        for length in 0..notes.len() {
            assert_eq!(build_id(&notes[..length]), None, "{length} bytes");
        }
        assert_eq!(build_id(&note(b"GNU\0", u32::MAX, &[])), None);
        assert_eq!(build_id(&[0xff; 32]), None);
    }

    #[test]
    fn who_serves_is_told_by_sysfs_and_debugfs() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let machine = Machine::at(dir.path());
        let make = |path| fs::create_dir_all(machine.path(path)).expect("writable");
        assert_eq!(machine.serving(), Serving::Nobody);
        make("/sys/class/kfd/kfd");
        assert_eq!(machine.serving(), Serving::C);
        make("/sys/module/amdkfd");
        assert_eq!(machine.serving(), Serving::Rust);
        make("/sys/kernel/debug/kfd");
        assert_eq!(machine.serving(), Serving::C);
        for (state, serving) in [
            ("serving\n", Serving::Rust),
            ("waiting\n", Serving::C),
            ("refused: a virtual function is not supported\n", Serving::C),
        ] {
            write(dir.path(), "/sys/module/amdkfd/parameters/state", state);
            assert_eq!(machine.serving(), serving, "{state}");
        }
    }

    #[test]
    fn only_gpus_that_the_kfd_serves_are_looked_at() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let gpu = format!("{}/nodes/1", topology::ROOT);
        write(dir.path(), &format!("{gpu}/gpu_id"), "35281\n");
        // A partition: its number is in the function's bits.
        write(
            dir.path(),
            &format!("{gpu}/properties"),
            "location_id 769\ndomain 0\n",
        );
        for (device, revision) in [("0000:03:00.0", 3), ("0000:04:00.0", 4)] {
            let core = format!("/sys/bus/pci/drivers/amdgpu/{device}/ip_discovery/die/0/GC/0");
            for (name, number) in [("major", 9), ("minor", 4), ("revision", revision)] {
                write(dir.path(), &format!("{core}/{name}"), format!("{number}\n"));
            }
        }
        write(dir.path(), "/sys/bus/pci/drivers/amdgpu/new_id", "");
        assert_eq!(
            Machine::at(dir.path()).graphics_cores(),
            [("0000:03:00.0".to_owned(), Some("9.4.3".to_owned()))]
        );
    }

    #[test]
    fn what_firmware_does_not_tell_the_topology_does() {
        for (target, core) in [(90010, Some("9.4.2")), (90002, None)] {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let gpu = format!("{}/nodes/1", topology::ROOT);
            write(dir.path(), &format!("{gpu}/gpu_id"), "60198\n");
            let properties = format!("location_id 768\ndomain 0\ngfx_target_version {target}\n");
            write(dir.path(), &format!("{gpu}/properties"), properties);
            write(
                dir.path(),
                "/sys/bus/pci/drivers/amdgpu/0000:03:00.0/uevent",
                "",
            );
            assert_eq!(
                Machine::at(dir.path()).graphics_cores(),
                [("0000:03:00.0".to_owned(), core.map(str::to_owned))]
            );
        }
    }

    #[test]
    fn an_errno_has_words() {
        assert_eq!(words(Errno::BUSY), "Device or resource busy");
    }
}
