// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Scenes of queues, of one process and of several, and the run list that the driver makes of them.
//!
//! Both drivers show the list in debugfs. Each packet must be the same on both, dword by dword. The
//! order of processes and of a process's queues is the driver's affair and is not compared: both
//! are sorted. Of what the driver picks (pasids, page tables, where descriptors lie) it is only
//! said that it is there. Packets: `kfd_pm4_headers_ai.h`, `kfd_pm4_headers_aldebaran.h`.

use crate::bench::{name, Bench};
use crate::mqd::dumps;
use crate::raw::ioctl;
use anyhow::{ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd};
use kfd_uapi as uapi;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// Where a driver shows run lists: ours, C's.
const FILES: [&str; 2] = ["/sys/kernel/debug/amdkfd/rls", "/sys/kernel/debug/kfd/rls"];

type Request = uapi::kfd_ioctl_create_queue_args;

/// More than the hardware has slots for.
const MANY: usize = 30;

/// Prints the run list of every scene.
pub fn all() -> Result<()> {
    let bench = bench()?;
    let good = bench.queue();
    let [aql, pm4, sdma] = KINDS.map(|(_, queue_type)| Request { queue_type, ..good });
    let mut stage = Stage::new(&bench);
    stage.scene("nothing", &[])?;
    for (title, kind) in [("AQL", aql), ("PM4", pm4), ("SDMA", sdma)] {
        stage.scene(title, &[kind])?;
        stage.scene(&format!("three {title}"), &[kind; 3])?;
        let drives = [(0, 100), (7, 50), (11, 1), (15, 100), (7, 0)];
        let driven = drives.map(|(queue_priority, queue_percentage)| Request {
            queue_priority,
            queue_percentage,
            ..kind
        });
        stage.scene(&format!("{title} of all priorities, one stopped"), &driven)?;
        stage.scene(&format!("only a stopped {title}"), &driven[4..])?;
        let no_ring = Request {
            ring_size: 0,
            ..kind
        };
        stage.scene(&format!("{title}, another without ring"), &[kind, no_ring])?;
    }
    stage.scene("one of each kind", &[aql, pm4, sdma])?;
    engines(&mut stage, sdma)?;
    changes(&mut stage, aql)?;
    stage.scene("more than there are slots for", &vec![aql; MANY])?;
    processes(&mut stage, aql)
}

/// The kinds of queues, as child processes get them.
const KINDS: [(&str, u32); 3] = [
    ("aql", uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL),
    ("pm4", uapi::KFD_IOC_QUEUE_TYPE_COMPUTE),
    ("sdma", uapi::KFD_IOC_QUEUE_TYPE_SDMA),
];

fn bench() -> Result<Bench> {
    let nodes = topology::gpus()?;
    let device = Device::acquire(&Kfd::open()?, nodes.first().context("no GPU")?)?;
    Bench::new(&device)
}

/// Each copy engine by its number.
fn engines(stage: &mut Stage<'_>, sdma: Request) -> Result<()> {
    let by_id = |sdma_engine_id| Request {
        queue_type: uapi::KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID,
        sdma_engine_id,
        ..sdma
    };
    for engine in 0..3 {
        stage.scene(&format!("SDMA engine {engine}"), &[by_id(engine)])?;
    }
    let xgmi = Request {
        queue_type: uapi::KFD_IOC_QUEUE_TYPE_SDMA_XGMI,
        ..sdma
    };
    stage.scene("SDMA over xGMI", &[xgmi])
}

/// What calls on queues that are there make of the list.
fn changes(stage: &mut Stage<'_>, aql: Request) -> Result<()> {
    let bench = stage.bench;
    let queues = stage.create(&[aql; 2]);
    let id = queues.first().context("no queue")?.0;
    let bits = [1u32];
    let mut mask = uapi::kfd_ioctl_set_cu_mask_args {
        queue_id: id,
        num_cu_mask: u32::BITS,
        cu_mask_ptr: bits.as_ptr() as u64,
    };
    say(
        "SET_CU_MASK",
        ioctl(bench.kfd(), uapi::IOC_SET_CU_MASK, &mut mask),
    );
    stage.show("one with a CU mask")?;
    for (title, num_gws) in [("with wave sync", 1), ("without it again", 0)] {
        let mut gws = uapi::kfd_ioctl_alloc_queue_gws_args {
            queue_id: id,
            num_gws,
            ..Default::default()
        };
        say(
            "ALLOC_QUEUE_GWS",
            ioctl(bench.kfd(), uapi::IOC_ALLOC_QUEUE_GWS, &mut gws),
        );
        stage.show(title)?;
    }
    for (title, percentage) in [("one stopped", 0), ("started again", 100)] {
        let mut update = uapi::kfd_ioctl_update_queue_args {
            ring_base_address: aql.ring_base_address,
            queue_id: id,
            ring_size: aql.ring_size,
            queue_percentage: percentage,
            queue_priority: 11,
        };
        say(
            "UPDATE_QUEUE",
            ioctl(bench.kfd(), uapi::IOC_UPDATE_QUEUE, &mut update),
        );
        stage.show(title)?;
    }
    drop(queues);
    stage.show("all gone")
}

/// Other processes with queues, and this one.
fn processes(stage: &mut Stage<'_>, aql: Request) -> Result<()> {
    let first = Other::start("aql,aql,sdma")?;
    stage.scene("two processes", &[aql])?;
    let second = Other::start("pm4")?;
    stage.scene("three processes", &[aql; 2])?;
    stage.scene("two others", &[])?;
    second.end()?;
    let crowd = (0..9)
        .map(|_| Other::start("pm4"))
        .collect::<Result<Vec<_>>>()?;
    stage.scene("more processes than VMIDs", &[aql])?;
    isolated(stage, aql)?;
    crowd.into_iter().try_for_each(Other::end)?;
    first.end()
}

/// The same processes, kept apart as the user wants: one at a time, and the cleaner shader before
/// it.
fn isolated(stage: &mut Stage<'_>, aql: Request) -> Result<()> {
    let minor = stage.bench.device.node().property("drm_render_minor");
    let file = format!("/sys/class/drm/renderD{minor}/device/enforce_isolation");
    for (mode, title) in [
        (1, "kept apart"),
        (2, "kept apart the old way"),
        (3, "kept apart without the shader"),
        (0, "together"),
    ] {
        std::fs::write(&file, mode.to_string()).with_context(|| file.clone())?;
        stage.scene(title, &[aql])?;
    }
    Ok(())
}

fn say(what: &str, result: rustix::io::Result<()>) {
    println!("{what}: {}", result.map_or_else(name, |()| "done".into()));
}

/// A process's queue, destroyed when dropped.
struct Live<'a>(u32, &'a Bench);

impl Drop for Live<'_> {
    fn drop(&mut self) {
        let mut args = uapi::kfd_ioctl_destroy_queue_args {
            queue_id: self.0,
            ..Default::default()
        };
        say(
            "DESTROY_QUEUE",
            ioctl(self.1.kfd(), uapi::IOC_DESTROY_QUEUE, &mut args),
        );
    }
}

/// Where scenes are played.
struct Stage<'a> {
    bench: &'a Bench,
}

impl<'a> Stage<'a> {
    fn new(bench: &'a Bench) -> Self {
        Self { bench }
    }

    fn create(&self, queues: &[Request]) -> Vec<Live<'a>> {
        let make = |args: &Request| {
            let mut args = *args;
            let made = ioctl(self.bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut args);
            say("CREATE_QUEUE", made);
            made.is_ok().then_some(Live(args.queue_id, self.bench))
        };
        queues.iter().filter_map(make).collect()
    }

    /// Makes these queues, prints the list and destroys them.
    fn scene(&mut self, title: &str, queues: &[Request]) -> Result<()> {
        println!("scene {title}");
        let _queues = self.create(queues);
        self.show(title)
    }

    fn show(&self, title: &str) -> Result<()> {
        let mut lists = Self::lists(title)?;
        // A process that is evicted, as when the kernel moves its memory, is there without its
        // queues, on either driver. That does not last.
        for tries in 0..20 {
            if !lists.iter().any(List::lacks_queues) {
                if tries > 0 {
                    eprintln!("retried: the list of {title}; a process was evicted");
                }
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            lists = Self::lists(title)?;
        }
        println!("list of {title}: {}", lists.len());
        for list in &lists {
            list.print(title, self.bench.queue().write_pointer_address);
        }
        Ok(())
    }

    fn lists(title: &str) -> Result<Vec<List>> {
        let parse = |words: &Vec<u32>| List::parse(words);
        let lists: Result<Vec<List>> = dumps(&FILES)?.iter().map(parse).collect();
        lists.with_context(|| format!("list of {title}"))
    }
}

/// A packet's words.
type Packet = Vec<u32>;

/// A run list: processes with their queues, and what follows them.
#[derive(Debug, Default, PartialEq, Eq)]
struct List {
    processes: Vec<(Packet, Vec<Packet>)>,
    chain: Option<Packet>,
}

impl List {
    const MAP_PROCESS: u32 = 0xa1;
    const MAP_QUEUES: u32 = 0xa2;
    const RUN_LIST: u32 = 0xa5;

    /// Packets of type 3; zeroes after them are room that is not used.
    fn parse(words: &[u32]) -> Result<Self> {
        let mut list = Self::default();
        let mut rest = words;
        while let Some(header) = rest.first().filter(|header| **header != 0) {
            let (kind, op, body) = (
                header >> 30,
                header >> 8 & 0xff,
                (header >> 16 & 0x3fff) + 1,
            );
            let length = body as usize + 1;
            ensure!(kind == 3 && length <= rest.len(), "no packet: {header:#x}");
            ensure!(list.chain.is_none(), "a packet behind the end");
            let (packet, after) = rest.split_at(length);
            rest = after;
            match op {
                Self::MAP_PROCESS => list.processes.push((packet.to_vec(), Vec::new())),
                Self::MAP_QUEUES => {
                    let process = list.processes.last_mut();
                    let (_, queues) = process.context("a queue before any process")?;
                    queues.push(packet.to_vec());
                }
                Self::RUN_LIST => list.chain = Some(packet.to_vec()),
                op => anyhow::bail!("packet {op:#x}"),
            }
        }
        ensure!(rest.iter().all(|word| *word == 0), "packets behind a hole");
        let mut pasids: Vec<_> = list
            .processes
            .iter()
            .map(|(map, _)| map[1] & 0xffff)
            .collect();
        pasids.sort_unstable();
        pasids.dedup();
        ensure!(
            pasids.len() == list.processes.len() && !pasids.contains(&0),
            "pasids: {pasids:?}"
        );
        Ok(list)
    }

    /// Whether a process is there without any queue.
    fn lacks_queues(&self) -> bool {
        self.processes.iter().any(|(_, queues)| queues.is_empty())
    }

    fn print(&self, title: &str, write_index: u64) {
        let mut texts: Vec<Vec<String>> = self
            .processes
            .iter()
            .map(|(map, queues)| {
                let mut queues: Vec<_> = queues
                    .iter()
                    .map(|queue| queue_text(queue, write_index))
                    .collect();
                queues.sort_unstable();
                [vec![process_text(map)], queues].concat()
            })
            .collect();
        texts.sort_unstable();
        for line in texts.iter().flatten() {
            println!("list of {title}: {line}");
        }
        if let Some(chain) = &self.chain {
            println!(
                "list of {title}: {}",
                text("RUN_LIST", chain, &[(1, ADDRESS), (2, HIGH)])
            );
        }
    }
}

/// A dword that is printed otherwise than as it is.
type Shown = fn(u32) -> String;

/// The low half of an address that the driver picked.
const ADDRESS: Shown = |word| {
    if word == 0 {
        "nowhere".into()
    } else {
        "somewhere".into()
    }
};
/// The high half: its sign, as it were.
const HIGH: Shown = |word| format!("high half {:#x}", word >> 16);

/// A doorbell's place within its process's two pages; which those are depends on who has just
/// ended.
const DOORBELL: Shown = |word| format!("doorbell {:#x}", word & 0xf000_1fff);

fn process_text(map: &[u32]) -> String {
    text(
        "MAP_PROCESS",
        map,
        &[
            (1, |word| format!("a pasid, {:#x}", word >> 16)),
            (2, |word| format!("page tables, flags {:#x}", word & 0xfff)),
            (3, HIGH),
        ],
    )
}

fn queue_text(map: &[u32], write_index: u64) -> String {
    let own = [map.get(5), map.get(6)]
        == [
            Some(&(write_index as u32)),
            Some(&((write_index >> 32) as u32)),
        ];
    let index: Shown = if own {
        |_| "its write index".into()
    } else {
        ADDRESS
    };
    text(
        "  MAP_QUEUES",
        map,
        &[
            (2, DOORBELL),
            (3, ADDRESS),
            (4, HIGH),
            (5, index),
            (6, HIGH),
        ],
    )
}

/// All of a packet's words but its header's, whose length follows from their number.
fn text(name: &str, packet: &[u32], shown: &[(usize, Shown)]) -> String {
    let word = |(at, word): (usize, &u32)| {
        let special = shown.iter().find(|(which, _)| *which == at);
        special.map_or_else(|| format!("{word:#x}"), |(_, show)| show(*word))
    };
    let words: Vec<_> = packet.iter().enumerate().map(word).collect();
    format!("{name}: {}", words.join(", "))
}

/// What another process does: makes queues, says so, and keeps them until stdin ends.
#[derive(Args)]
pub struct RunlistChild {
    /// aql, pm4 or sdma, for each queue.
    #[arg(value_delimiter = ',')]
    queues: Vec<String>,
}

impl RunlistChild {
    /// Does it.
    pub fn run(&self) -> Result<()> {
        let bench = bench()?;
        for kind in &self.queues {
            let (_, queue_type) = *KINDS
                .iter()
                .find(|(name, _)| name == kind)
                .context("no such kind")?;
            let mut args = Request {
                queue_type,
                ..bench.queue()
            };
            ioctl(bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut args).context("CREATE_QUEUE")?;
        }
        println!("ready");
        std::io::stdin().read_to_end(&mut Vec::new())?;
        Ok(())
    }
}

/// Another process with queues.
struct Other(Child);

impl Other {
    fn start(queues: &str) -> Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .args(["runlist-child", queues])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("another kfd-tests")?;
        let mut other = Self(child);
        let mut line = String::new();
        BufReader::new(other.0.stdout.take().context("no stdout")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "another process said {line:?}");
        Ok(other)
    }

    /// Its queues are gone when this returns.
    fn end(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        ensure!(self.0.wait()?.success(), "another process failed");
        Ok(())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: [u32; 3] = [0xc001_a100, 0x1400_8003, 0x1001];
    const QUEUE: [u32; 2] = [0xc000_a200, 7];

    #[test]
    fn a_list_is_processes_with_queues() {
        let words = [&PROCESS[..], &QUEUE, &QUEUE, &[0xc000_a500, 1], &[0, 0]].concat();
        let list = List::parse(&words).expect("a good list");
        assert_eq!(
            list.processes,
            [(PROCESS.to_vec(), vec![QUEUE.to_vec(); 2])]
        );
        assert_eq!(list.chain, Some(vec![0xc000_a500, 1]));
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        List::parse(&QUEUE).expect_err("a queue of nobody");
        List::parse(&PROCESS[..2]).expect_err("half a packet");
        List::parse(&[0, 5]).expect_err("a hole");
        let twice = [PROCESS, PROCESS].concat();
        List::parse(&twice).expect_err("one pasid twice");
    }
}
