// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! All queues of all processes as the kernel tells of them, and what their rings hold, as the
//! processes' memory tells. For programs that know nothing of it; needs root.
//!
//! Our driver lists every queue in `/sys/kernel/debug/amdkfd/queues`. The C driver has the hardware
//! descriptors in `/sys/kernel/debug/kfd/mqds` and the ids in `/sys/class/kfd/kfd/proc`.

mod mqds;

pub use self::mqds::contexts;

use crate::output::shown;
use anyhow::{bail, Result};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

const OURS: &str = "/sys/kernel/debug/amdkfd/queues";
const THEIRS: &str = "/sys/kernel/debug/kfd/mqds";
const PROC: &str = "/sys/class/kfd/kfd/proc";

/// What the packets of a ring are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Architected queuing language, 64 bytes each.
    Aql,
    /// PM4: 32-bit words.
    Pm4,
    /// The copy engine's: 32-bit words, counted in bytes.
    Sdma,
    /// AQL or PM4: sysfs does not say which.
    Compute,
}

impl Kind {
    /// The bytes that one step of the indices stands for.
    pub fn unit(self) -> u64 {
        match self {
            Kind::Aql => 64,
            Kind::Pm4 | Kind::Compute => 4,
            Kind::Sdma => 1,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "aql" => Kind::Aql,
            "pm4" => Kind::Pm4,
            "sdma" => Kind::Sdma,
            _ => return None,
        })
    }
}

/// One queue of a process. What could not be learned is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Queue {
    /// The id that CREATE_QUEUE gave, unique in its process's context.
    pub id: Option<u32>,
    /// The GPU it is on.
    pub gpu_id: u32,
    /// What it holds.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The ring's address.
    pub ring: Option<u64>,
    /// The ring's size in bytes.
    pub ring_size: u64,
    /// Where the consumer's index lies.
    pub read_pointer: Option<u64>,
    /// Where the producer's index lies.
    pub write_pointer: Option<u64>,
    /// Its doorbell's number in the process's slice, or in the GPU's BAR as far as C tells.
    pub doorbell: Option<u32>,
    /// Its priority, 0 to 15.
    pub priority: Option<u32>,
    /// Whether it may run now.
    pub runs: Option<bool>,
    /// The consumer's index, in the ring's units.
    pub read_index: Option<u64>,
    /// The producer's index.
    pub write_index: Option<u64>,
}

impl Queue {
    /// How many of its units wait in the ring or run, and how many there is room for.
    pub fn fill(&self) -> Option<(u64, u64)> {
        let capacity = self.ring_size / self.kind.unit();
        Some((self.waiting()?.min(capacity), capacity))
    }

    /// By how much the producer is ahead, as far as it says; `None` where it is behind.
    pub fn waiting(&self) -> Option<u64> {
        let (write, read) = (self.write_index?, self.read_index?);
        match self.kind {
            // CAST: these count on from 2^32 - 1 to 0, and are less than half of that apart.
            Kind::Pm4 => u64::try_from((write as u32).wrapping_sub(read as u32) as i32).ok(),
            _ => write.checked_sub(read),
        }
    }

    /// Reads both indices from the process's memory.
    fn look(&mut self, memory: &Memory) {
        let read = |address: Option<u64>| memory.u64(address.filter(|address| *address != 0)?);
        // A PM4 queue's indices are 32 bits and count on beyond the ring.
        let mask = match self.kind {
            Kind::Pm4 => 0xffff_ffff,
            _ => u64::MAX,
        };
        self.read_index = read(self.read_pointer).map(|index| index & mask);
        self.write_index = read(self.write_pointer).map(|index| index & mask);
    }
}

/// A process with queues, or one of its contexts of `/dev/kfd`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Which of its further contexts (CREATE_PROCESS). `None`: the one that opening `/dev/kfd`
    /// makes, or all together where the driver does not tell them apart.
    pub context: Option<u32>,
    /// Its name, as `ps` shows it.
    pub name: String,
    /// Bytes of VRAM it has, on all GPUs.
    pub vram: u64,
    /// How often its waves touched memory that they may not; `None` where the driver does not
    /// count.
    pub faults: Option<u64>,
    /// How many compute units its waves would fill, on all GPUs.
    pub cu_occupancy: Option<u64>,
    /// Its queues.
    pub queues: Vec<Queue>,
}

impl Process {
    /// For texts: ", context 1". Nothing for the one that most processes have alone.
    pub fn of_context(&self) -> String {
        let context = self.context.map(|context| format!(", context {context}"));
        context.unwrap_or_default()
    }
}

/// All that a driver shows.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Who serves `/dev/kfd`: "amdkfd" (ours) or "amdgpu" (the C driver).
    pub driver: &'static str,
    /// The processes that have queues, by pid, each context for itself.
    pub processes: Vec<Process>,
}

impl Snapshot {
    /// How many processes these are.
    pub fn count(&self) -> usize {
        let pids = self.processes.iter().map(|process| process.pid);
        pids.collect::<BTreeSet<_>>().len()
    }
}

/// Takes a snapshot.
pub fn snapshot() -> Result<Snapshot> {
    // Theirs is there while the C driver serves; ours also when it only waits for amdgpu.
    let (driver, mut processes) = match fs::read_to_string(THEIRS) {
        Ok(text) => ("amdgpu", mqds::processes(&text, Path::new(PROC))),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("{THEIRS}: {error}: only root may look into other programs' queues")
        }
        Err(_) => match fs::read_to_string(OURS) {
            Ok(text) => ("amdkfd", parse(&text)),
            Err(error) => bail!(
                "neither {OURS} nor {THEIRS} can be read ({error}): is a KFD loaded, debugfs \
                mounted, this user root?"
            ),
        },
    };
    for process in &mut processes {
        process.name = name_of(process.pid);
        let dir = Path::new(PROC).join(process.pid.to_string());
        let contexts = contexts(&dir).into_iter();
        // C does not say whose the queues are.
        let own = |number| process.context == Some(number) || driver == "amdgpu";
        let contexts = contexts.filter(|(number, _)| own(*number));
        let primary = process.context.is_none().then_some(dir);
        let dirs = primary.into_iter().chain(contexts.map(|(_, dir)| dir));
        let units = dirs.map(|dir| mqds::cu_occupancy(&dir));
        process.cu_occupancy = units.sum();
        let memory = Memory::of(process.pid);
        for queue in &mut process.queues {
            queue.look(&memory);
        }
    }
    processes.sort_by_key(|process| (process.pid, process.context));
    Ok(Snapshot { driver, processes })
}

/// What any user may see of all processes: which there are, their memory and waves, and of their
/// queues number, GPU, type and size. `None` where no KFD serves.
pub fn listed() -> Option<Snapshot> {
    let proc = Path::new(PROC);
    let mut processes = mqds::listed_processes(proc)?;
    for process in &mut processes {
        process.name = name_of(process.pid);
    }
    // Ours is a module; the C driver is a part of amdgpu.
    let ours = fs::read_to_string("/sys/module/amdkfd/parameters/state");
    let is_ours = ours.is_ok_and(|state| state.trim() == "serving");
    Some(Snapshot {
        driver: if is_ours { "amdkfd" } else { "amdgpu" },
        processes,
    })
}

/// A process's memory, if it may be read.
pub struct Memory(Option<File>);

impl Memory {
    /// The memory of process `pid`.
    pub fn of(pid: u32) -> Self {
        Self(File::open(format!("/proc/{pid}/mem")).ok())
    }

    /// The number at `address`.
    pub fn u64(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Fills `bytes` from `address` on.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        self.0.as_ref()?.read_exact_at(bytes, address).ok()
    }
}

/// What process `pid` is called, as `ps` shows it.
pub fn name_of(pid: u32) -> String {
    named(&fs::read(format!("/proc/{pid}/comm")).unwrap_or_default())
}

/// The name that a file `comm` has, which the process chooses: any bytes but NUL, and a newline
/// behind them.
pub fn named(comm: &[u8]) -> String {
    let name = String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(comm));
    shown(&name)
}

/// Our driver's file: `pid N gpu_id N …` and `pid N gpu_id N queue N …`, pairs of name and value;
/// behind the pid `context N` where it is not the process's first one.
fn parse(text: &str) -> Vec<Process> {
    let mut processes: Vec<Process> = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let value = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1).copied()
        };
        let Some(pid) = value("pid").and_then(number) else {
            continue;
        };
        let context = value("context").and_then(number);
        let (pid, context) = (pid as u32, context.map(|context| context as u32));
        let at = processes
            .iter()
            .position(|process| (process.pid, process.context) == (pid, context))
            .unwrap_or_else(|| {
                processes.push(Process {
                    pid,
                    context,
                    ..Process::default()
                });
                processes.len() - 1
            });
        let process = &mut processes[at];
        match value("queue") {
            Some(_) => process.queues.extend(queue(&value)),
            None => {
                process.vram += value("vram").and_then(number).unwrap_or(0);
                let faults = value("faults").and_then(number);
                process.faults = faults.map(|faults| process.faults.unwrap_or(0) + faults);
            }
        }
    }
    processes
}

fn queue<'a>(value: &dyn Fn(&str) -> Option<&'a str>) -> Option<Queue> {
    let field = |name| value(name).and_then(number);
    Some(Queue {
        id: field("queue").map(|id| id as u32),
        gpu_id: field("gpu_id")? as u32,
        kind: Kind::parse(value("type")?)?,
        ring: field("ring"),
        ring_size: field("bytes")?,
        read_pointer: field("read_pointer"),
        write_pointer: field("write_pointer"),
        doorbell: field("doorbell").map(|doorbell| doorbell as u32),
        priority: field("priority").map(|priority| priority as u32),
        runs: Some(field("runs")? != 0 && field("evicted")? == 0),
        read_index: None,
        write_index: None,
    })
}

/// A number, decimal or with 0x.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
pid 812 gpu_id 35969 vram 8192 faults 1
pid 812 gpu_id 35969 queue 0 type aql ring 0x7f0000000000 bytes 1048576 read_pointer \
0x7f0000200080 write_pointer 0x7f0000200038 doorbell 512 priority 7 runs 1 evicted 0
pid 812 gpu_id 35969 queue 1 type sdma ring 0x7f0000300000 bytes 4096 read_pointer 0x1000 \
write_pointer 0x1008 doorbell 0 priority 7 runs 1 evicted 1
";

    #[test]
    fn a_name_has_no_control_characters() {
        assert_eq!(named(b"vadd\n"), "vadd");
        assert_eq!(named(b"\x1b]0;ok\x07\x1bc\n"), "?]0;ok??c");
        assert_eq!(named(b"a\npid 7\n\n"), "a?pid 7?");
        // The kernel cuts names after 15 bytes, also within a character.
        assert_eq!(named(b"caf\xc3\n"), "caf\u{fffd}");
    }

    #[test]
    fn our_drivers_file_is_read() {
        let processes = parse(FILE);
        assert_eq!(processes.len(), 1);
        let process = &processes[0];
        assert_eq!((process.pid, process.context), (812, None));
        assert_eq!(process.vram, 8192);
        assert_eq!(process.faults, Some(1));
        let [aql, sdma] = &process.queues[..] else {
            panic!("two queues")
        };
        assert_eq!((aql.id, aql.kind), (Some(0), Kind::Aql));
        assert_eq!(aql.write_pointer, Some(0x7f00_0020_0038));
        assert_eq!(aql.runs, Some(true));
        assert_eq!((sdma.kind, sdma.runs), (Kind::Sdma, Some(false)));
    }

    /// Each has its own queue 0.
    #[test]
    fn contexts_are_told_apart() {
        let other = FILE.replace("pid 812", "pid 812 context 0");
        let processes = parse(&format!("{other}{FILE}"));
        let contexts = processes.iter().map(|process| process.context);
        assert_eq!(contexts.collect::<Vec<_>>(), [Some(0), None]);
        assert!(processes.iter().all(|process| process.queues.len() == 2));
        assert_eq!(processes[0].of_context(), ", context 0");
        assert_eq!(processes[1].of_context(), "");
        let driver = "amdkfd";
        assert_eq!(Snapshot { driver, processes }.count(), 1);
    }

    #[test]
    fn fill_is_what_lies_between_the_indices() {
        let mut queue = parse(FILE)[0].queues[0].clone();
        queue.read_index = Some(5);
        queue.write_index = Some(9);
        assert_eq!(queue.fill(), Some((4, 16384)));
        // The GPU may read on between our two looks.
        queue.read_index = Some(10);
        assert_eq!(queue.fill(), None);
        queue.write_index = Some(u64::MAX);
        assert_eq!(queue.fill(), Some((16384, 16384)));
    }

    #[test]
    fn indices_of_32_bits_come_round() {
        let mut queue = parse(FILE)[0].queues[0].clone();
        let indices = [0xffff_fff0u64, 0x1_0000_0004];
        let at = indices.as_ptr() as u64;
        (queue.read_pointer, queue.write_pointer) = (Some(at), Some(at + 8));
        queue.kind = Kind::Pm4;
        queue.look(&Memory::of(std::process::id()));
        assert_eq!(
            (queue.read_index, queue.write_index),
            (Some(0xffff_fff0), Some(4))
        );
        assert_eq!(
            (queue.waiting(), queue.fill()),
            (Some(20), Some((20, 1 << 18)))
        );
        (queue.read_pointer, queue.write_pointer) = (Some(at + 8), Some(at));
        queue.look(&Memory::of(std::process::id()));
        assert_eq!(queue.fill(), None, "the GPU has read on between our looks");
    }
}
