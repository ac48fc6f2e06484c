// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl driver at-boot`: whether a unit of systemd's has amdkfd.ko take over when `/dev/kfd`
//! comes.
//!
//! The unit is wanted by the device, so nothing waits for a GPU that is not there, and an amdgpu
//! that is loaded late is noticed too. It stays active: what it does itself, and what is changed by
//! hand later, does not start it again.

use super::machine::Machine;
use super::module::tool;
use super::Choice;
use anyhow::{bail, ensure, Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The unit's name.
pub const UNIT: &str = "amdkfd-rs.service";
/// Where its Install section has systemd put the link that enables it.
const WANTS: &str = "/etc/systemd/system/dev-kfd.device.wants";
/// Where it is looked for, in systemd's order.
const PLACES: &[&str] = &[
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// While it is there the unit does not start: it would undo a choice made by hand when `/dev/kfd`
/// comes again. `/run` is empty after a boot.
const BY_HAND: &str = "/run/amdkfd-rs.by-hand";

/// From now until the next boot drivers are chosen by hand.
pub fn leave_to_hand(machine: &Machine) {
    // Who may not write there may not change drivers either.
    let _ = std::fs::write(machine.path(BY_HAND), "");
}

/// Which driver is to serve after the next boot.
pub fn at_boot(machine: &Machine) -> Choice {
    // The link may lead nowhere when another root is looked at.
    match link(machine).symlink_metadata() {
        Ok(_) => Choice::Rust,
        Err(_) => Choice::C,
    }
}

/// Chooses it.
pub fn set(machine: &Machine, choice: Choice) -> Result<()> {
    let unit = unit(machine);
    leave_to_hand(machine);
    if choice == Choice::Rust && unit.is_none() {
        bail!("{UNIT} is not installed: it comes with the package kfdctl");
    }
    match unit {
        // systemctl reloads systemd, too. Without it, as in a chroot, the link is all there is.
        Some(_) if machine.path("/run/systemd/system").exists() => systemctl(choice)?,
        Some(unit) if choice == Choice::Rust => enable(machine, &unit)?,
        _ => disable(machine)?,
    }
    ensure!(
        at_boot(machine) == choice,
        "{} is not as systemctl should leave it",
        WANTS
    );
    Ok(())
}

fn link(machine: &Machine) -> PathBuf {
    machine.path(WANTS).join(UNIT)
}

/// The unit's file, as a path of the machine's.
fn unit(machine: &Machine) -> Option<PathBuf> {
    let mut files = PLACES.iter().map(|place| Path::new(place).join(UNIT));
    files.find(|file| machine.path(&file.to_string_lossy()).exists())
}

fn systemctl(choice: Choice) -> Result<()> {
    let verb = match choice {
        Choice::Rust => "enable",
        Choice::C => "disable",
    };
    let status = tool("systemctl")
        .args(["--quiet", verb, UNIT])
        .status()
        .context("systemctl")?;
    ensure!(status.success(), "systemctl {verb} {UNIT} failed");
    Ok(())
}

fn enable(machine: &Machine, unit: &Path) -> Result<()> {
    let link = link(machine);
    fs::create_dir_all(machine.path(WANTS)).context(WANTS)?;
    match symlink(unit, &link) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        result => result.with_context(|| link.display().to_string()),
    }
}

fn disable(machine: &Machine) -> Result<()> {
    let link = link(machine);
    match fs::remove_file(&link) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result.with_context(|| link.display().to_string()),
    }?;
    // As systemctl does; it stays if somebody else's unit is wanted by the device too.
    let _ = fs::remove_dir(machine.path(WANTS));
    Ok(())
}

/// How long amdgpu may take to start: it announces `/dev/kfd` before it looks at its GPUs.
const STARTING: Duration = Duration::from_secs(120);

/// Waits until amdgpu has probed its GPUs; false if it does not come to an end.
pub fn wait_for_amdgpu(machine: &Machine) -> bool {
    let start = Instant::now();
    while !machine.amdgpu_is_live() {
        if start.elapsed() >= STARTING {
            return false;
        }
        sleep(Duration::from_millis(100));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::write;
    use super::*;

    const SHIPPED: &str = include_str!("../../systemd/amdkfd-rs.service");

    #[test]
    fn the_shipped_unit_is_enabled_where_we_look() {
        let wanted_by = SHIPPED
            .lines()
            .find_map(|line| line.strip_prefix("WantedBy="));
        let wants = format!("{}.wants", wanted_by.expect("it can be enabled"));
        assert_eq!(Path::new(WANTS).file_name(), Some(wants.as_ref()));
    }

    #[test]
    fn without_systemd_the_link_is_made_and_removed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let machine = Machine::at(dir.path());
        assert!(set(&machine, Choice::Rust).is_err(), "there is no unit");
        set(&machine, Choice::C).expect("nothing to disable");
        write(
            dir.path(),
            "/usr/lib/systemd/system/amdkfd-rs.service",
            SHIPPED,
        );
        for _ in 0..2 {
            set(&machine, Choice::Rust).expect("writable");
            assert_eq!(at_boot(&machine), Choice::Rust);
        }
        let target = fs::read_link(link(&machine)).expect("a link");
        assert_eq!(
            target,
            Path::new("/usr/lib/systemd/system/amdkfd-rs.service")
        );
        for _ in 0..2 {
            set(&machine, Choice::C).expect("writable");
            assert_eq!(at_boot(&machine), Choice::C);
        }
        assert!(!machine.path(WANTS).exists());
    }

    #[test]
    fn another_unit_of_the_device_stays() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let machine = Machine::at(dir.path());
        write(
            dir.path(),
            "/usr/lib/systemd/system/amdkfd-rs.service",
            SHIPPED,
        );
        write(dir.path(), &format!("{WANTS}/other.service"), "");
        set(&machine, Choice::Rust).expect("writable");
        set(&machine, Choice::C).expect("writable");
        assert!(machine.path(WANTS).join("other.service").exists());
    }
}
