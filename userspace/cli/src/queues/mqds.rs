// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the C driver shows of queues: memory queue descriptors (MQD) as hexadecimal dumps, grouped
//! by process and GPU, and in sysfs the id, type and size of each queue.
//!
//! The descriptors are those of graphics core 9 (`struct v9_mqd` and `struct v9_sdma_mqd` of
//! `linux:drivers/gpu/drm/amd/include/v9_structs.h`); others have other layouts and are left out.

use super::{number, Kind, Process, Queue};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Fields of `struct v9_mqd`, by dword.
mod compute {
    pub const PQ_BASE: usize = 136;
    pub const PQ_RPTR_REPORT_ADDR: usize = 139;
    pub const PQ_WPTR_POLL_ADDR: usize = 141;
    pub const PQ_DOORBELL_CONTROL: usize = 143;
    pub const PQ_CONTROL: usize = 145;
    pub const AQL_CONTROL: usize = 181;
}

/// Fields of `struct v9_sdma_mqd`, by dword.
mod sdma {
    pub const RB_CNTL: usize = 0;
    pub const RB_BASE: usize = 1;
    pub const RB_RPTR_ADDR_HI: usize = 8;
    pub const DOORBELL_OFFSET: usize = 22;
}

/// `CP_HQD_AQL_CONTROL.CONTROL0`: the driver sets it to 1 for queues of AQL packets.
const CONTROL0: u32 = 0x7fff;

/// What sysfs says of one queue.
struct Listed {
    id: u32,
    gpu_id: u32,
    size: u64,
    is_sdma: bool,
}

/// The processes of the dump `text`, with the ids that `proc` has.
pub fn processes(text: &str, proc: &Path) -> Vec<Process> {
    let mut processes: Vec<Process> = Vec::new();
    let mut dumps = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Process ") {
            finish(&mut processes, &mut dumps);
            let pid = rest.split_whitespace().next().and_then(number);
            processes.push(Process {
                pid: pid.unwrap_or(0) as u32,
                ..Process::default()
            });
        } else if let Some((kind, device)) = line.trim().split_once(" queue on device ") {
            let gpu_id = u32::from_str_radix(device.trim(), 16).unwrap_or(0);
            dumps.push((kind == "SDMA", gpu_id, Vec::new()));
        } else if let (Some((_, words)), Some((_, _, dump))) =
            (line.split_once(": "), dumps.last_mut())
        {
            let words = words.split_whitespace();
            dump.extend(words.filter_map(|word| u32::from_str_radix(word, 16).ok()));
        }
    }
    finish(&mut processes, &mut dumps);
    let mut processes = merged(processes);
    for (process, blocks) in &mut processes {
        let dir = proc.join(process.pid.to_string());
        let contexts = contexts(&dir).into_iter().map(|(_, dir)| vram(&dir));
        process.vram = vram(&dir) + contexts.sum::<u64>();
        if *blocks == 1 {
            name(process, listed(&dir.join("queues")));
        }
        process
            .queues
            .sort_by_key(|queue| (queue.id.is_none(), queue.id));
    }
    let processes = processes.into_iter().map(|(process, _)| process);
    let with_queues = processes.filter(|process| !process.queues.is_empty());
    with_queues.collect()
}

/// The processes with how many blocks each has: as many as contexts, and none says which one it is.
/// So a process's are one, and with several of them the ids in sysfs may be of any.
fn merged(blocks: Vec<Process>) -> Vec<(Process, usize)> {
    let mut processes: Vec<(Process, usize)> = Vec::new();
    for mut block in blocks {
        match processes.iter_mut().find(|(it, _)| it.pid == block.pid) {
            Some((known, count)) => {
                known.queues.append(&mut block.queues);
                *count += 1;
            }
            None => processes.push((block, 1)),
        }
    }
    processes
}

/// The contexts beside the first one, by number, of a process's directory.
pub fn contexts(dir: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let context = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let number = name.to_str()?.strip_prefix("context_")?.parse().ok()?;
        Some((number, entry.path()))
    };
    let mut all: Vec<_> = entries.filter_map(context).collect();
    all.sort();
    all
}

fn finish(processes: &mut [Process], dumps: &mut Vec<(bool, u32, Vec<u32>)>) {
    let Some(process) = processes.last_mut() else {
        return;
    };
    for (is_sdma, gpu_id, words) in dumps.drain(..) {
        process.queues.extend(if is_sdma {
            copy_queue(gpu_id, &words)
        } else {
            compute_queue(gpu_id, &words)
        });
    }
}

fn long(words: &[u32], low: usize) -> Option<u64> {
    Some(u64::from(*words.get(low)?) | u64::from(*words.get(low + 1)?) << 32)
}

fn compute_queue(gpu_id: u32, words: &[u32]) -> Option<Queue> {
    let control = *words.get(compute::PQ_CONTROL)?;
    let doorbell = *words.get(compute::PQ_DOORBELL_CONTROL)?;
    Some(Queue {
        id: None,
        gpu_id,
        kind: if words.get(compute::AQL_CONTROL)? & CONTROL0 != 0 {
            Kind::Aql
        } else {
            Kind::Pm4
        },
        // The register holds the address in units of 256 bytes, and the size as log2 of dwords,
        // less 1.
        ring: Some(long(words, compute::PQ_BASE)? << 8),
        ring_size: 4 << ((control & 0x3f) + 1).min(60),
        read_pointer: long(words, compute::PQ_RPTR_REPORT_ADDR),
        write_pointer: long(words, compute::PQ_WPTR_POLL_ADDR),
        doorbell: Some(doorbell >> 2 & 0x3ff_ffff),
        priority: None,
        runs: None,
        read_index: None,
        write_index: None,
    })
}

fn copy_queue(gpu_id: u32, words: &[u32]) -> Option<Queue> {
    // RB_CNTL.RB_SIZE, bits 6:1: log2 of dwords.
    let size = *words.get(sdma::RB_CNTL)? >> 1 & 0x3f;
    let (high, low) = (
        *words.get(sdma::RB_RPTR_ADDR_HI)?,
        *words.get(sdma::RB_RPTR_ADDR_HI + 1)?,
    );
    Some(Queue {
        id: None,
        gpu_id,
        kind: Kind::Sdma,
        ring: Some(long(words, sdma::RB_BASE)? << 8),
        ring_size: 4 << size.min(60),
        read_pointer: Some(u64::from(high) << 32 | u64::from(low)),
        // The hardware does not poll it, so the descriptor has no place for it.
        write_pointer: None,
        doorbell: Some(*words.get(sdma::DOORBELL_OFFSET)? >> 2 & 0x3ff_ffff),
        priority: None,
        runs: None,
        read_index: None,
        write_index: None,
    })
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn vram(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("vram_"))
        .filter_map(|entry| read_number(&entry.path()))
        .sum()
}

/// How many compute units a process fills on all GPUs, of its directory in sysfs; without those of
/// the contexts that have directories in there.
pub fn cu_occupancy(dir: &Path) -> Option<u64> {
    let entries = fs::read_dir(dir).ok()?.flatten();
    let each = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("stats_"))
        .filter_map(|entry| read_number(&entry.path().join("cu_occupancy")));
    Some(each.sum())
}

/// The processes of `proc`, with as much of them as sysfs has.
pub fn listed_processes(proc: &Path) -> Option<Vec<Process>> {
    let process = |pid, context, dir: PathBuf| {
        let queue = |listed: Listed| Queue {
            id: Some(listed.id),
            gpu_id: listed.gpu_id,
            kind: if listed.is_sdma {
                Kind::Sdma
            } else {
                Kind::Compute
            },
            ring: None,
            ring_size: listed.size,
            read_pointer: None,
            write_pointer: None,
            doorbell: None,
            priority: None,
            runs: None,
            read_index: None,
            write_index: None,
        };
        Process {
            pid,
            context,
            vram: vram(&dir),
            cu_occupancy: cu_occupancy(&dir),
            queues: listed(&dir.join("queues")).into_iter().map(queue).collect(),
            ..Process::default()
        }
    };
    let mut all = Vec::new();
    for entry in fs::read_dir(proc).ok()?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let dir = entry.path();
        let contexts = contexts(&dir).into_iter();
        all.extend(contexts.map(|(number, dir)| process(pid, Some(number), dir)));
        all.push(process(pid, None, dir));
    }
    all.sort_by_key(|process| (process.pid, process.context));
    Some(all)
}

fn listed(dir: &Path) -> Vec<Listed> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let queue = |entry: fs::DirEntry| {
        let number = |name| read_number(&entry.path().join(name));
        Some(Listed {
            id: entry.file_name().to_str()?.parse().ok()?,
            gpu_id: number("gpuid")? as u32,
            size: number("size")?,
            // KFD_QUEUE_TYPE_* of kfd_priv.h: 0 compute, 1 and 4 SDMA, 2 HIQ, 3 DIQ.
            is_sdma: matches!(number("type")?, 1 | 4 | 5),
        })
    };
    let mut all: Vec<_> = entries.filter_map(queue).collect();
    all.sort_by_key(|queue| queue.id);
    all
}

/// Gives each queue the id of the one in sysfs that is like it. Of several alike, ids go in the
/// order of their making; they are left out when the two sources do not agree on how many there
/// are.
fn name(process: &mut Process, listed: Vec<Listed>) {
    let mut left: BTreeMap<(u32, bool, u64), Vec<u32>> = BTreeMap::new();
    for queue in listed {
        let key = (queue.gpu_id, queue.is_sdma, queue.size);
        left.entry(key).or_default().push(queue.id);
    }
    let key = |queue: &Queue| (queue.gpu_id, queue.kind == Kind::Sdma, queue.ring_size);
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    for queue in &process.queues {
        *counts.entry(key(queue)).or_default() += 1;
    }
    left.retain(|key, ids| counts.get(key) == Some(&ids.len()));
    for queue in &mut process.queues {
        let ids = left.get_mut(&key(queue)).filter(|ids| !ids.is_empty());
        queue.id = ids.map(|ids| ids.remove(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dump as `seq_hex_dump` writes it, of a queue with these dwords set.
    fn dump(set: &[(usize, u32)]) -> String {
        let mut words = [0u32; 512];
        for (at, word) in set {
            words[*at] = *word;
        }
        let lines = words.chunks(8).enumerate().map(|(row, words)| {
            let words: Vec<_> = words.iter().map(|word| format!("{word:08x}")).collect();
            format!("    {:08x}: {}\n", row * 32, words.join(" "))
        });
        lines.collect()
    }

    #[test]
    fn the_c_drivers_dump_is_read() {
        let compute = dump(&[
            (compute::PQ_BASE, 0x1234),
            (compute::PQ_BASE + 1, 0x7f),
            (compute::PQ_WPTR_POLL_ADDR, 0x5038),
            (compute::PQ_RPTR_REPORT_ADDR, 0x5080),
            (compute::PQ_DOORBELL_CONTROL, 0x402 << 2),
            (compute::PQ_CONTROL, 11),
            (compute::AQL_CONTROL, 1),
        ]);
        let text = format!(
            "Process 812 PASID 812:\n  Compute queue on device 8c81\n\
            {compute}  SDMA queue on device 8c81\n{}",
            dump(&[(sdma::RB_CNTL, 18 << 1), (sdma::RB_BASE, 0x10)])
        );
        let root = tempfile::tempdir().expect("a temporary directory");
        let queue = root.path().join("812/queues/3");
        fs::create_dir_all(&queue).expect("writable");
        for (name, value) in [("gpuid", "35969"), ("size", "16384"), ("type", "0")] {
            fs::write(queue.join(name), value).expect("writable");
        }
        fs::write(root.path().join("812/vram_35969"), "4096\n").expect("writable");
        let processes = processes(&text, root.path());
        assert_eq!(processes[0].vram, 4096);
        let [aql, sdma] = &processes[0].queues[..] else {
            panic!("two queues")
        };
        assert_eq!((aql.kind, aql.id, aql.gpu_id), (Kind::Aql, Some(3), 35969));
        assert_eq!((aql.ring, aql.ring_size), (Some(0x7f00_0012_3400), 16384));
        assert_eq!(aql.write_pointer, Some(0x5038));
        assert_eq!(aql.doorbell, Some(0x402));
        assert_eq!((sdma.kind, sdma.ring_size), (Kind::Sdma, 1 << 20));
        assert_eq!(sdma.id, None);

        // The same without the right to read the dump.
        let stats = root.path().join("812/stats_35969");
        fs::create_dir_all(&stats).expect("writable");
        fs::write(stats.join("cu_occupancy"), "6\n").expect("writable");
        let listed = listed_processes(root.path()).expect("there is a directory");
        assert_eq!((listed[0].pid, listed[0].cu_occupancy), (812, Some(6)));
        let queue = &listed[0].queues[0];
        assert_eq!((queue.id, queue.kind), (Some(3), Kind::Compute));
        assert_eq!((queue.ring, queue.ring_size), (None, 16384));
    }

    /// Both have a queue 0 that is like the other's.
    #[test]
    fn contexts_have_their_own_queues() {
        let root = tempfile::tempdir().expect("a temporary directory");
        for (dir, vram, units) in [("812", "4096\n", "2\n"), ("812/context_0", "512\n", "3\n")] {
            let dir = root.path().join(dir);
            let queue = dir.join("queues/0");
            fs::create_dir_all(&queue).expect("writable");
            for (name, value) in [("gpuid", "35969"), ("size", "16384"), ("type", "0")] {
                fs::write(queue.join(name), value).expect("writable");
            }
            fs::write(dir.join("vram_35969"), vram).expect("writable");
            let stats = dir.join("stats_35969");
            fs::create_dir_all(&stats).expect("writable");
            fs::write(stats.join("cu_occupancy"), units).expect("writable");
        }
        let listed = listed_processes(root.path()).expect("there is a directory");
        let facts = |process: &Process| (process.pid, process.context, process.vram);
        let all: Vec<_> = listed.iter().map(facts).collect();
        assert_eq!(all, [(812, None, 4096), (812, Some(0), 512)]);
        assert!(listed.iter().all(|process| process.queues[0].id == Some(0)));
        let units = listed.iter().map(|process| process.cu_occupancy);
        assert_eq!(units.collect::<Vec<_>>(), [Some(2), Some(3)]);

        // C's dump does not say which context is whose.
        let queue = dump(&[(compute::PQ_CONTROL, 11), (compute::AQL_CONTROL, 1)]);
        let block = format!("Process 812 PASID 1:\n  Compute queue on device 8c81\n{queue}");
        let one = processes(&block, root.path());
        assert_eq!((one[0].context, one[0].queues[0].id), (None, Some(0)));
        let two = processes(&format!("{block}{block}"), root.path());
        assert_eq!((two.len(), facts(&two[0])), (1, (812, None, 4096 + 512)));
        let ids: Vec<_> = two[0].queues.iter().map(|queue| queue.id).collect();
        assert_eq!(ids, [None, None]);
    }
}
