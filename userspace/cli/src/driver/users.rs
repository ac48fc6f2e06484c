// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which processes keep the driver behind `/dev/kfd` from being changed.

use super::machine::Machine;
use crate::queues::named;
use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::Path;

/// A process that uses `/dev/kfd`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    /// Its id.
    pub pid: u32,
    /// Its name, as `ps` shows it; empty when the process has ended.
    pub name: String,
    /// What it has of the driver's.
    pub has: Vec<&'static str>,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.name.as_str() {
            "" => "a process that has ended",
            name => name,
        };
        write!(
            f,
            "{name} (pid {}) has {}",
            self.pid,
            self.has.join(" and ")
        )
    }
}

/// The processes that use `/dev/kfd`, in the order of their ids: for root all of them, for others
/// their own.
pub fn users(machine: &Machine) -> Vec<User> {
    let served = numbers(&machine.path("/sys/class/kfd/kfd/proc"));
    let mut all = numbers(&machine.path("/proc"));
    all.extend(&served);
    all.sort_unstable();
    all.dedup();
    let user = |pid: u32| {
        let has = holdings(machine, pid, served.contains(&pid));
        let comm = fs::read(machine.path(&format!("/proc/{pid}/comm")));
        let name = named(&comm.unwrap_or_default());
        (!has.is_empty()).then_some(User { pid, name, has })
    };
    all.into_iter().filter_map(user).collect()
}

fn holdings(machine: &Machine, pid: u32, is_served: bool) -> Vec<&'static str> {
    let maps = machine
        .text(&format!("/proc/{pid}/maps"))
        .unwrap_or_default();
    let holds = [
        (has_open(machine, pid, is_kfd), "/dev/kfd open"),
        (
            has_open(machine, pid, is_events),
            "a file of its events open",
        ),
        (maps.lines().any(is_mapping), "a mapping of /dev/kfd"),
        (is_served, "memory or queues"),
    ];
    holds
        .iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, what)| *what)
        .collect()
}

/// Whether one of the process's open files is called what `wanted` looks for.
fn has_open(machine: &Machine, pid: u32, wanted: fn(&Path) -> bool) -> bool {
    let files = fs::read_dir(machine.path(&format!("/proc/{pid}/fd")));
    let mut names = files
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    names.any(|name| wanted(&name))
}

fn is_kfd(name: &Path) -> bool {
    // The node goes with the driver that made it: a file that outlives it has the second name.
    name == Path::new("/dev/kfd") || name == Path::new("/dev/kfd (deleted)")
}

fn is_events(name: &Path) -> bool {
    name == Path::new("anon_inode:kfd_smi_ev")
}

/// A line of `/proc/PID/maps`.
fn is_mapping(line: &str) -> bool {
    line.splitn(6, ' ')
        .last()
        .is_some_and(|name| is_kfd(Path::new(name.trim())))
}

/// The entries of a directory that are numbers; none where it cannot be read.
fn numbers(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::write;
    use super::*;
    use std::os::unix::fs::symlink;

    /// A process with open files of these names.
    fn process(root: &Path, pid: u32, name: &str, files: &[&str]) {
        write(root, &format!("/proc/{pid}/comm"), format!("{name}\n"));
        let open = root.join(format!("proc/{pid}/fd"));
        fs::create_dir_all(&open).expect("writable");
        for (number, file) in files.iter().enumerate() {
            symlink(file, open.join(number.to_string())).expect("writable");
        }
    }

    #[test]
    fn each_way_to_use_the_driver_is_found() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        process(
            dir.path(),
            7,
            "shell",
            &["/dev/null", "/dev/kfdx", "/tmp/dev/kfd"],
        );
        process(dir.path(), 12, "hip", &["/dev/null", "/dev/kfd"]);
        process(dir.path(), 100, "old one", &["/dev/kfd (deleted)"]);
        process(dir.path(), 101, "monitor", &["anon_inode:kfd_smi_ev"]);
        process(dir.path(), 102, "\x1bcmapper", &[]);
        write(
            dir.path(),
            "/proc/102/maps",
            "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus\n\
             7f0000000000-7f0000002000 rw-s 4c000000 00:06 9   /dev/kfd\n",
        );
        write(dir.path(), "/proc/self/comm", "kfdctl\n");
        fs::create_dir_all(dir.path().join("sys/class/kfd/kfd/proc/12")).expect("writable");
        fs::create_dir_all(dir.path().join("sys/class/kfd/kfd/proc/400")).expect("writable");
        let found: Vec<String> = users(&Machine::at(dir.path()))
            .iter()
            .map(User::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "hip (pid 12) has /dev/kfd open and memory or queues",
                "old one (pid 100) has /dev/kfd open",
                "monitor (pid 101) has a file of its events open",
                "?cmapper (pid 102) has a mapping of /dev/kfd",
                "a process that has ended (pid 400) has memory or queues",
            ]
        );
    }

    #[test]
    fn a_machine_without_proc_has_no_users() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(users(&Machine::at(dir.path())), []);
    }
}
