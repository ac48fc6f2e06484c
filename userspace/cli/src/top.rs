// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl top` and `kfdctl queues`: who computes on which GPU, through which rings, how fast.

use crate::queues::{snapshot, Kind, Process, Queue, Snapshot};
use crate::units::bytes;
use anyhow::{bail, Result};
use clap::Args;
use serde::Serialize;
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often to look.
#[derive(Args)]
pub struct Top {
    /// Print one look and end.
    #[arg(long)]
    once: bool,
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
    name: &'a str,
    vram: u64,
    faults: Option<u64>,
    queues: Vec<Rated<'a>>,
}

type Rates = HashMap<(u32, Option<u64>), f64>;

impl Top {
    /// Looks once, or until it is interrupted.
    pub fn run(&self, json: bool) -> Result<()> {
        if !(self.interval > 0.0 && self.interval <= 3600.0) {
            bail!(
                "--interval {}: more than 0 and at most 3600 seconds",
                self.interval
            );
        }
        let mut before: Option<(Instant, Snapshot)> = None;
        loop {
            let now = Instant::now();
            let after = snapshot()?;
            let rates = before.as_ref().map_or_else(Rates::new, |(then, before)| {
                rates(before, &after, now.duration_since(*then))
            });
            self.show(&after, &rates, json)?;
            if self.once {
                return Ok(());
            }
            before = Some((now, after));
            std::thread::sleep(Duration::from_secs_f64(self.interval));
        }
    }

    fn show(&self, snapshot: &Snapshot, rates: &Rates, json: bool) -> Result<()> {
        let mut output = std::io::stdout().lock();
        if json {
            writeln!(output, "{}", self::json(snapshot, rates))?;
        } else {
            if !self.once && output.is_terminal() {
                // Home, and clear to the end of the screen.
                write!(output, "\x1b[H\x1b[J")?;
            }
            write!(output, "{}", screen(snapshot, rates))?;
        }
        Ok(output.flush()?)
    }
}

impl Queues {
    /// Shows all that is known of a process's queues.
    pub fn run(&self, json: bool) -> Result<()> {
        let mut snapshot = snapshot()?;
        snapshot.processes.retain(|process| process.pid == self.pid);
        let Some(process) = snapshot.processes.first() else {
            bail!("process {} has no queue on any GPU", self.pid)
        };
        if json {
            outln!("{}", self::json(&snapshot, &Rates::new()));
        } else {
            out!("{}", details(process));
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

fn json(snapshot: &Snapshot, rates: &Rates) -> serde_json::Value {
    let rows = snapshot.processes.iter().map(|process| Row {
        pid: process.pid,
        name: &process.name,
        vram: process.vram,
        faults: process.faults,
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

/// A line of the view: number, GPU, type, ring, waiting, fill, read and write index, rate,
/// doorbell.
fn line(columns: [&str; 10]) -> String {
    let [id, gpu, kind, ring, waiting, fill, read, write, rate, doorbell] = columns;
    format!(
        "{id:>4} {gpu:<5} {kind:<4} {ring:<8} {waiting:>6} {fill:>5} {read:>13} {write:>13} \
        {rate:>7} {doorbell:>4}\n"
    )
}

fn heading() -> String {
    line([
        "Q", "GPU", "TYPE", "RING", "WAIT", "FILL", "READ", "WRITE", "RATE/s", "BELL",
    ])
}

/// The view of `top`, at most 80 columns wide.
fn screen(snapshot: &Snapshot, rates: &Rates) -> String {
    let queues: usize = snapshot
        .processes
        .iter()
        .map(|process| process.queues.len())
        .sum();
    let mut text = format!(
        "/dev/kfd is served by {}: {} with {}\n",
        if snapshot.driver == "amdkfd" {
            "amdkfd.ko (Rust)"
        } else {
            "amdgpu's own (C)"
        },
        counted(snapshot.processes.len(), "process", "processes"),
        counted(queues, "queue", "queues"),
    );
    for process in &snapshot.processes {
        let faults = process
            .faults
            .map_or(String::new(), |faults| format!(", {faults} memory faults"));
        let name: String = process.name.chars().take(24).collect();
        text += &format!(
            "\n{} {name}: {} of VRAM{faults}\n{}",
            process.pid,
            bytes(process.vram),
            heading()
        );
        for queue in &process.queues {
            text += &row(queue, rates.get(&(process.pid, queue.ring)).copied());
        }
    }
    text
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn row(queue: &Queue, rate: Option<f64>) -> String {
    let shown = |value: Option<u64>| value.map_or("?".into(), |value| value.to_string());
    let fill = queue.fill();
    let percent = fill.map_or("?".into(), |(waiting, capacity)| {
        format!("{:.0}%", 100.0 * waiting as f64 / capacity.max(1) as f64)
    });
    let rate = match (queue.runs, rate) {
        (Some(false), _) => "stopped".into(),
        (_, rate) => rate.map_or("-".into(), short),
    };
    line([
        &shown(queue.id.map(u64::from)),
        &queue.gpu_id.to_string(),
        name(queue.kind),
        &bytes(queue.ring_size).replace(".0 ", " "),
        &shown(fill.map(|(waiting, _)| waiting)),
        &percent,
        &shown(queue.read_index),
        &shown(queue.write_index),
        &rate,
        &shown(queue.doorbell.map(u64::from)),
    ])
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Aql => "AQL",
        Kind::Pm4 => "PM4",
        Kind::Sdma => "SDMA",
    }
}

/// A rate in at most 7 columns.
fn short(rate: f64) -> String {
    match rate {
        rate if rate >= 1e9 => format!("{:.1}G", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.1}M", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.1}k", rate / 1e3),
        rate => format!("{rate:.1}"),
    }
}

/// The view of `queues`: a block for each.
fn details(process: &Process) -> String {
    let mut text = format!("process {} ({})\n", process.pid, process.name);
    for queue in &process.queues {
        let number = |value: Option<u64>| value.map_or("?".into(), |value| value.to_string());
        let address = |value: Option<u64>| value.map_or("?".into(), |value| format!("{value:#x}"));
        text += &format!(
            "\nqueue {}: {} on GPU {}{}\n",
            number(queue.id.map(u64::from)),
            name(queue.kind),
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
        Kind::Pm4 => "words",
        Kind::Sdma => "bytes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(read: u64, write: u64) -> Snapshot {
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
            name: "a-name-of-15-ch".into(),
            vram: 1 << 34,
            faults: Some(3),
            queues: vec![queue],
        };
        Snapshot {
            driver: "amdkfd",
            processes: vec![process],
        }
    }

    #[test]
    fn the_screen_fits_80_columns() {
        let (before, after) = (
            snapshot(1_000_000_000_000, 1_000_000_000_001),
            snapshot(1_000_500_000_000, 1_000_500_000_100),
        );
        let rates = rates(&before, &after, Duration::from_secs(1));
        let text = screen(&after, &rates);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("500.0M"), "{text}");
        assert!(text.contains("1000500000100"), "{text}");
    }

    #[test]
    fn rates_are_of_the_same_ring_only() {
        let mut other = snapshot(5, 9);
        other.processes[0].queues[0].ring = Some(0x1000);
        assert!(rates(&snapshot(1, 9), &other, Duration::from_secs(1)).is_empty());
    }

    #[test]
    fn programs_get_all_of_it() {
        let json = json(&snapshot(5, 9), &Rates::new());
        let queue = &json["processes"][0]["queues"][0];
        assert_eq!(queue["write_index"], 9);
        assert_eq!(queue["waiting"], 4);
        assert_eq!(queue["type"], "sdma");
        assert_eq!(queue["rate"], serde_json::Value::Null);
    }
}
