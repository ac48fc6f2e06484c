// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl doctor`: what stands between this user and a GPU, and what to type against it.

use crate::driver::machine::{Machine, Serving};
use crate::driver::module::Module;
use crate::driver::secure::{self, Secure, Trust};
use crate::driver::Source;
use anyhow::{bail, Result};
use kfd::topology::{self, Node};
use kfd::Kfd;
use rustix::fs::{access, Access};
use rustix::io::Errno;
use serde::Serialize;
use std::path::Path;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Good,
    /// It works, but something is missing.
    Note,
    /// Nothing will work before this is right.
    Bad,
}

/// One check.
#[derive(Debug, Serialize)]
struct Finding {
    state: State,
    /// What was found.
    what: String,
    /// What to type, or to look at.
    remedy: Option<String>,
}

fn good(what: impl Into<String>) -> Finding {
    finding(State::Good, what, None)
}

fn bad(what: impl Into<String>, remedy: &str) -> Finding {
    finding(State::Bad, what, Some(remedy))
}

fn note(what: impl Into<String>, remedy: &str) -> Finding {
    finding(State::Note, what, Some(remedy))
}

fn finding(state: State, what: impl Into<String>, remedy: Option<&str>) -> Finding {
    Finding {
        state,
        what: what.into(),
        remedy: remedy.map(str::to_owned),
    }
}

/// Checks everything; fails when something is bad.
pub fn doctor(json: bool) -> Result<()> {
    let findings = examine();
    let printed = print(&findings, json);
    let bad = |finding: &&Finding| finding.state == State::Bad;
    match findings.iter().filter(bad).count() {
        0 => printed,
        // Whether or not anybody reads which.
        count => bail!("{count} of {} checks are bad", findings.len()),
    }
}

fn print(findings: &[Finding], json: bool) -> Result<()> {
    if json {
        outln!("{}", serde_json::to_string(findings)?);
    } else {
        for finding in findings {
            let mark = match finding.state {
                State::Good => "good",
                State::Note => "note",
                State::Bad => "BAD ",
            };
            outln!("{mark}  {}", finding.what);
            if let Some(remedy) = &finding.remedy {
                outln!("      -> {remedy}");
            }
        }
    }
    Ok(())
}

fn examine() -> Vec<Finding> {
    let mut findings = vec![amdgpu(), driver()];
    findings.extend(file(
        Path::new("/dev/kfd"),
        "modprobe -r amdgpu; modprobe amdgpu; then: dmesg | grep -i kfd",
    ));
    if findings.iter().all(|finding| finding.state != State::Bad) {
        findings.push(interface());
    }
    findings.extend(gpus());
    findings.push(debugfs());
    findings.push(secure_boot(&Machine::here()));
    findings
}

fn amdgpu() -> Finding {
    match Path::new("/sys/module/amdgpu").exists() {
        true => good("amdgpu is loaded"),
        false => bad(
            "amdgpu is not loaded",
            "modprobe amdgpu; then: dmesg | tail",
        ),
    }
}

fn driver() -> Finding {
    let machine = Machine::here();
    let version = machine.rust_version().unwrap_or_default();
    match machine.serving() {
        Serving::Rust => good(format!("amdkfd.ko {version} (Rust) is loaded")),
        Serving::Nobody if machine.has_rust() => note(
            format!("amdkfd.ko {version} (Rust) is loaded and waits for amdgpu"),
            "modprobe amdgpu",
        ),
        Serving::C if machine.has_rust() => note(
            "amdkfd.ko is loaded, but left the GPUs to amdgpu's own KFD (C)",
            "kfdctl driver use rust tells why",
        ),
        Serving::C => note(
            "the KFD is amdgpu's own (C)",
            "kfdctl driver use rust, for the one in Rust",
        ),
        Serving::Nobody => bad("there is no KFD", "modprobe amdgpu"),
    }
}

/// Whether the kernel takes the amdkfd.ko that is installed, as far as signatures go.
fn secure_boot(machine: &Machine) -> Finding {
    let secure = Secure::of(machine);
    if machine.has_rust() || !secure.wants_signatures() {
        let wants = match secure.wants_signatures() {
            true => "the kernel took amdkfd.ko",
            false => "modules need no signature",
        };
        return good(format!("{secure}: {wants}"));
    }
    let Ok(module) = Module::read(&Source::Installed) else {
        return note(
            format!(
                "{secure}: the kernel takes signed modules only, and no amdkfd.ko is installed"
            ),
            &format!(
                "install amdkfd-rs-dkms, which signs; then {}",
                secure::enrol()
            ),
        );
    };
    match secure::trust(machine, &module) {
        Trust::Enough(what) => good(what),
        // Not bad: the C driver works.
        Trust::Refused(what, remedy) | Trust::Unknown(what, remedy) => note(what, &remedy),
    }
}

/// Whether this user may read and write a device file.
fn file(path: &Path, absent: &str) -> Vec<Finding> {
    let name = path.display();
    vec![match access(path, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => good(format!("this user may use {name}")),
        Err(Errno::NOENT) => bad(format!("there is no {name}"), absent),
        Err(Errno::ACCESS | Errno::PERM) => {
            let group = group_of(path);
            bad(
                format!("this user may not use {name}, which belongs to group {group}"),
                &format!("usermod -aG {group} $USER, and log in again"),
            )
        }
        Err(errno) => bad(format!("{name}: {errno}"), "dmesg | tail"),
    }]
}

fn group_of(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let Ok(id) = std::fs::metadata(path).map(|data| data.gid()) else {
        return "render".into();
    };
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let mut entries = groups
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let found = entries.find(|entry| entry.get(2).is_some_and(|gid| *gid == id.to_string()));
    found.map_or_else(|| id.to_string(), |entry| entry[0].to_owned())
}

fn interface() -> Finding {
    let (major, minor) = (
        kfd_uapi::KFD_IOCTL_MAJOR_VERSION,
        kfd_uapi::KFD_IOCTL_MINOR_VERSION,
    );
    match Kfd::open().map(|kfd| kfd.version()) {
        Ok(version) if version == (major, minor) => good(format!(
            "/dev/kfd speaks KFD {major}.{minor}, as this program does"
        )),
        Ok((theirs, older)) => note(
            format!("/dev/kfd speaks KFD {theirs}.{older}, this program {major}.{minor}"),
            "nothing, as long as the major numbers agree",
        ),
        Err(error) => bad(error.to_string(), "dmesg | grep -i kfd"),
    }
}

fn gpus() -> Vec<Finding> {
    let gpus = match topology::gpus() {
        Ok(gpus) => gpus,
        Err(error) => {
            return vec![bad(
                error.to_string(),
                "ls /sys/class/kfd/kfd/topology; dmesg | grep -i kfd",
            )]
        }
    };
    if gpus.is_empty() {
        return vec![bad(
            "the topology has no GPU that this user may use",
            "lspci -d 1002:; dmesg | grep -iE 'kfd|amdgpu'",
        )];
    }
    gpus.iter().flat_map(gpu).collect()
}

fn gpu(node: &Node) -> Vec<Finding> {
    let target = node.target().unwrap_or_else(|| "of no known target".into());
    let named = format!("GPU {} (node {}) is a {target}", node.gpu_id, node.id);
    let has_examples = ["gfx942", "gfx950", "gfx90a"].contains(&target.as_str());
    let mut findings = vec![match has_examples {
        true => good(named),
        false => note(
            named,
            "the examples' kernels are for gfx942, gfx950, gfx90a; compile your own for this one",
        ),
    }];
    let render = format!("/dev/dri/renderD{}", node.property("drm_render_minor"));
    findings.extend(file(
        Path::new(&render),
        "modprobe amdgpu; then: ls -l /dev/dri",
    ));
    findings
}

fn debugfs() -> Finding {
    let kernel = Path::new("/sys/kernel/debug");
    let entries = std::fs::read_dir(kernel).map(|mut entries| entries.next().is_some());
    match entries {
        Ok(true) => good("debugfs can be read: kfdctl top, queues and ring work"),
        Ok(false) => note(
            "debugfs is not mounted: kfdctl top, queues and ring need it",
            "mount -t debugfs none /sys/kernel/debug",
        ),
        Err(_) => note(
            "this user may not read debugfs: kfdctl top, queues and ring are for root",
            "sudo kfdctl top",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_has_a_remedy() {
        let found = file(Path::new("/nonexistent/kfd"), "type this");
        assert_eq!(found[0].state, State::Bad);
        assert_eq!(found[0].remedy.as_deref(), Some("type this"));
    }

    #[test]
    fn the_group_of_a_file_has_a_name() {
        assert_eq!(group_of(Path::new("/")), "root");
    }
}
