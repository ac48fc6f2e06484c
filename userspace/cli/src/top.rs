// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl top` and `kfdctl queues`: how busy the GPUs are, who computes on which, through which
//! rings, how fast.

mod metrics;
mod text;
mod view;

use crate::devices::{devices, Device};
use crate::queues::{listed, snapshot, Kind, Process, Queue, Snapshot};
use crate::units::bytes;
use anyhow::{bail, Result};
use clap::Args;
use serde::Serialize;
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often to look, and what to print.
#[derive(Args)]
pub struct Top {
    /// Print one look and end.
    #[arg(long)]
    once: bool,
    /// Print one look as metrics for Prometheus (OpenMetrics text) and end.
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Seconds between two looks.
    #[arg(long, short, default_value_t = 1.0)]
    interval: f64,
}

/// What to show.
#[derive(Args)]
pub struct Queues {
    /// The process.
    pid: u32,
}

/// A queue with how fast it goes.
#[derive(Serialize)]
struct Rated<'a> {
    #[serde(flatten)]
    queue: &'a Queue,
    /// Units that wait in the ring or run.
    waiting: Option<u64>,
    /// Units that the ring has room for.
    capacity: u64,
    /// Units that the GPU took per second since the last look.
    rate: Option<f64>,
}

/// A process with its queues.
#[derive(Serialize)]
struct Row<'a> {
    pid: u32,
    context: Option<u32>,
    name: &'a str,
    vram: u64,
    faults: Option<u64>,
    cu_occupancy: Option<u64>,
    queues: Vec<Rated<'a>>,
}

type Rates = HashMap<(u32, Option<u64>), f64>;

/// All that one look finds.
struct Look {
    at: Instant,
    devices: Vec<Device>,
    snapshot: Snapshot,
    rates: Rates,
    /// Why rings, indices and faults are not there, where they are not.
    lacks: Option<String>,
}

impl Look {
    /// Looks now. Rates are of the time since `before`.
    fn now(before: Option<&Look>) -> Result<Self> {
        let (snapshot, lacks) = match snapshot() {
            Ok(snapshot) => (snapshot, None),
            Err(error) => match listed() {
                Some(snapshot) => (snapshot, Some(error.to_string())),
                None => return Err(error),
            },
        };
        let at = Instant::now();
        let since = |before: &Look| rates(&before.snapshot, &snapshot, at - before.at);
        Ok(Self {
            at,
            devices: devices()?,
            rates: before.map(since).unwrap_or_default(),
            snapshot,
            lacks,
        })
    }

    fn rate(&self, process: &Process, queue: &Queue) -> Option<f64> {
        self.rates.get(&(process.pid, queue.ring)).copied()
    }
}

impl Top {
    /// Looks once, or until it is interrupted.
    pub fn run(&self, json: bool) -> Result<()> {
        if !(self.interval > 0.0 && self.interval <= 3600.0) {
            bail!(
                "--interval {}: more than 0 and at most 3600 seconds",
                self.interval
            );
        }
        let interval = Duration::from_secs_f64(self.interval);
        let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        if !self.once && !self.prometheus && !json && is_terminal {
            return view::run(interval);
        }
        let mut before: Option<Look> = None;
        loop {
            let look = Look::now(before.as_ref())?;
            let text = match (json, self.prometheus) {
                (true, _) => format!("{}\n", self::json(&look)),
                (_, true) => metrics::text(&look)?,
                _ => text::screen(&look),
            };
            let mut output = std::io::stdout().lock();
            output.write_all(text.as_bytes())?;
            output.flush()?;
            if self.once || self.prometheus {
                return Ok(());
            }
            before = Some(look);
            std::thread::sleep(interval);
        }
    }
}

impl Queues {
    /// Shows all that is known of a process's queues.
    pub fn run(&self, json: bool) -> Result<()> {
        let mut snapshot = snapshot()?;
        snapshot.processes.retain(|process| process.pid == self.pid);
        if snapshot.processes.is_empty() {
            bail!("process {} has no queue on any GPU", self.pid)
        }
        if json {
            outln!("{}", processes(&snapshot, &Rates::new()));
        } else {
            let all: Vec<_> = snapshot.processes.iter().map(details).collect();
            out!("{}", all.join("\n"));
        }
        Ok(())
    }
}

/// How fast each queue went between two looks, by process and ring.
fn rates(before: &Snapshot, after: &Snapshot, time: Duration) -> Rates {
    let indices = |snapshot: &Snapshot| -> HashMap<(u32, Option<u64>), u64> {
        let all = snapshot.processes.iter().flat_map(|process| {
            let queues = process.queues.iter();
            queues.filter_map(|queue| Some(((process.pid, queue.ring), queue.read_index?)))
        });
        all.collect()
    };
    let old = indices(before);
    let rate = |(key, index): ((u32, Option<u64>), u64)| {
        let units = index.checked_sub(*old.get(&key)?)?;
        Some((key, units as f64 / time.as_secs_f64()))
    };
    indices(after).into_iter().filter_map(rate).collect()
}

fn processes(snapshot: &Snapshot, rates: &Rates) -> serde_json::Value {
    let rows = snapshot.processes.iter().map(|process| Row {
        pid: process.pid,
        context: process.context,
        name: &process.name,
        vram: process.vram,
        faults: process.faults,
        cu_occupancy: process.cu_occupancy,
        queues: process
            .queues
            .iter()
            .map(|queue| Rated {
                waiting: queue.fill().map(|(waiting, _)| waiting),
                capacity: queue.ring_size / queue.kind.unit(),
                rate: rates.get(&(process.pid, queue.ring)).copied(),
                queue,
            })
            .collect(),
    });
    serde_json::json!({ "driver": snapshot.driver, "processes": rows.collect::<Vec<_>>() })
}

fn json(look: &Look) -> serde_json::Value {
    let mut value = processes(&look.snapshot, &look.rates);
    value["devices"] = serde_json::json!(look.devices);
    value["lacks"] = serde_json::json!(look.lacks);
    value
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Aql => "AQL",
        Kind::Pm4 => "PM4",
        Kind::Sdma => "SDMA",
        Kind::Compute => "COMP",
    }
}

/// The view of `queues`: a block for each.
fn details(process: &Process) -> String {
    let (pid, name, context) = (process.pid, &process.name, process.of_context());
    let mut text = format!("process {pid} ({name}){context}\n");
    for queue in &process.queues {
        let number = |value: Option<u64>| value.map_or("?".into(), |value| value.to_string());
        let address = |value: Option<u64>| value.map_or("?".into(), |value| format!("{value:#x}"));
        text += &format!(
            "\nqueue {}: {} on GPU {}{}\n",
            number(queue.id.map(u64::from)),
            self::name(queue.kind),
            queue.gpu_id,
            match queue.runs {
                Some(false) => ", stopped",
                _ => "",
            }
        );
        text += &format!(
            "  ring         {}, {} ({} {})\n",
            address(queue.ring),
            bytes(queue.ring_size),
            queue.ring_size / queue.kind.unit(),
            unit(queue.kind)
        );
        for (name, at, value) in [
            ("read index", queue.read_pointer, queue.read_index),
            ("write index", queue.write_pointer, queue.write_index),
        ] {
            text += &format!("  {name:<12} {} at {}\n", number(value), address(at));
        }
        text += &format!("  doorbell     {}\n", number(queue.doorbell.map(u64::from)));
        if let Some(priority) = queue.priority {
            text += &format!("  priority     {priority}\n");
        }
    }
    text
}

/// What a ring's indices count.
pub fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Aql => "packets",
        Kind::Pm4 | Kind::Compute => "words",
        Kind::Sdma => "bytes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot of one process with one queue.
    pub fn snapshot(read: u64, write: u64) -> Snapshot {
        let queue = Queue {
            id: Some(1023),
            gpu_id: 65535,
            kind: Kind::Sdma,
            ring: Some(0x7fff_ffff_f000),
            ring_size: 1 << 30,
            read_pointer: Some(0x1000),
            write_pointer: Some(0x1008),
            doorbell: Some(1023),
            priority: Some(7),
            runs: Some(true),
            read_index: Some(read),
            write_index: Some(write),
        };
        let process = Process {
            pid: 4_194_304,
            context: None,
            name: "a-name-of-15-ch".into(),
            vram: 1 << 34,
            faults: Some(3),
            cu_occupancy: Some(152),
            queues: vec![queue],
        };
        Snapshot {
            driver: "amdkfd",
            processes: vec![process],
        }
    }

    /// A GPU at work.
    pub fn device() -> Device {
        Device {
            node: 16,
            gpu_id: 65535,
            target: Some("gfx942".into()),
            pci: "0000:03:00.0".into(),
            compute_units: 304,
            busy_percent: Some(100.0),
            partition: false,
            vram_used: Some(191 << 30),
            vram_total: Some(192 << 30),
            power_watts: Some(749.0),
            power_cap_watts: Some(750.0),
            temperature_celsius: Some(99.0),
            clock_mhz: Some(2100.0),
            cu_occupancy: Some(152),
        }
    }

    /// A look that had `before` a second ago.
    pub fn look(before: Option<Snapshot>, now: Snapshot) -> Look {
        let second = Duration::from_secs(1);
        let rates = before.map(|before| rates(&before, &now, second));
        Look {
            at: Instant::now(),
            devices: vec![device()],
            snapshot: now,
            rates: rates.unwrap_or_default(),
            lacks: None,
        }
    }

    #[test]
    fn rates_are_of_the_same_ring_only() {
        let mut other = snapshot(5, 9);
        other.processes[0].queues[0].ring = Some(0x1000);
        assert!(rates(&snapshot(1, 9), &other, Duration::from_secs(1)).is_empty());
    }

    #[test]
    fn programs_get_all_of_it() {
        let json = json(&look(None, snapshot(5, 9)));
        let queue = &json["processes"][0]["queues"][0];
        assert_eq!(queue["write_index"], 9);
        assert_eq!(queue["waiting"], 4);
        assert_eq!(queue["type"], "sdma");
        assert_eq!(queue["rate"], serde_json::Value::Null);
        assert_eq!(json["devices"][0]["busy_percent"], 100.0);
        assert_eq!(json["lacks"], serde_json::Value::Null);
    }
}
