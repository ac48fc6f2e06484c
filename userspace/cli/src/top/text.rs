// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What `kfdctl top` shows, as text.

use super::{name, Look};
use crate::devices::Device;
use crate::queues::{Queue, Snapshot};
use crate::units::bytes;

/// A line of the view: number, GPU, type, ring, waiting, fill, read and write index, rate,
/// doorbell.
fn line(columns: [&str; 10]) -> String {
    let [id, gpu, kind, ring, waiting, fill, read, write, rate, doorbell] = columns;
    format!(
        "{id:>4} {gpu:<5} {kind:<4} {ring:<8} {waiting:>6} {fill:>5} {read:>13} {write:>13} \
        {rate:>7} {doorbell:>4}\n"
    )
}

/// What a queue's cells are.
pub const HEADINGS: [&str; 10] = [
    "Q", "GPU", "TYPE", "RING", "WAIT", "FILL", "READ", "WRITE", "RATE/s", "BELL",
];

fn heading() -> String {
    line(HEADINGS)
}

/// The view of `top --once`, at most 80 columns wide.
pub fn screen(look: &Look) -> String {
    let snapshot = &look.snapshot;
    let mut text = title(snapshot) + "\n";
    if let Some(why) = &look.lacks {
        text += &wrapped(&format!("not shown: rings, indices, faults: {why}"));
    }
    if !look.devices.is_empty() {
        text += &format!(
            "\n{:>5} {:<8} {:>5} {:>22} {:>7} {:>6} {:>9} {:>11}\n",
            "GPU", "TARGET", "BUSY", "VRAM", "POWER", "TEMP", "CLOCK", "CUS"
        );
    }
    for device in &look.devices {
        text += &device_row(device);
    }
    for process in &snapshot.processes {
        let faults = process
            .faults
            .map_or(String::new(), |faults| format!(", {faults} memory faults"));
        let name: String = process.name.chars().take(24).collect();
        text += &format!(
            "\n{} {name}{}: {} of VRAM{faults}\n{}",
            process.pid,
            process.of_context(),
            bytes(process.vram),
            heading()
        );
        for queue in &process.queues {
            text += &line(
                row(queue, look.rate(process, queue))
                    .each_ref()
                    .map(String::as_str),
            );
        }
    }
    text
}

/// Who serves, and how many.
pub fn title(snapshot: &Snapshot) -> String {
    let queues = snapshot.processes.iter();
    let queues: usize = queues.map(|process| process.queues.len()).sum();
    format!(
        "/dev/kfd is served by {}: {} with {}",
        if snapshot.driver == "amdkfd" {
            "amdkfd.ko (Rust)"
        } else {
            "amdgpu's own (C)"
        },
        counted(snapshot.count(), "process", "processes"),
        counted(queues, "queue", "queues"),
    )
}

/// Lines of at most 80 columns.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            *line = word.to_owned();
        } else if line.len() + 1 + word.len() <= 80 {
            *line += &format!(" {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn device_row(device: &Device) -> String {
    let cells = device_cells(device);
    let [gpu, target, busy, vram, power, temperature, clock, units] = cells;
    format!(
        "{gpu:>5} {target:<8} {busy:>5} {vram:>22} {power:>7} {temperature:>6} {clock:>9} \
        {units:>11}\n"
    )
}

/// The GPU, its target, how busy, memory, power, temperature, clock, compute units.
pub fn device_cells(device: &Device) -> [String; 8] {
    let shown = |value: Option<f64>, unit: &str| {
        value.map_or("?".into(), |value| format!("{value:.0}{unit}"))
    };
    let size = |size: Option<u64>| size.map_or("?".into(), bytes);
    [
        device.gpu_id.to_string(),
        device.target.clone().unwrap_or_else(|| "?".into()),
        shown(device.busy_percent, "%"),
        format!("{} / {}", size(device.vram_used), size(device.vram_total)),
        shown(device.power_watts, " W"),
        shown(device.temperature_celsius, " C"),
        shown(device.clock_mhz, " MHz"),
        match device.cu_occupancy {
            Some(units) => format!("{units}/{}", device.compute_units),
            None => "?".into(),
        },
    ]
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The cells of [`HEADINGS`].
pub fn row(queue: &Queue, rate: Option<f64>) -> [String; 10] {
    let shown = |value: Option<u64>| value.map_or("?".into(), |value| value.to_string());
    let fill = queue.fill();
    let percent = fill.map_or("?".into(), |(waiting, capacity)| {
        format!("{:.0}%", 100.0 * waiting as f64 / capacity.max(1) as f64)
    });
    let rate = match (queue.runs, rate) {
        (Some(false), _) => "stopped".into(),
        (_, rate) => rate.map_or("-".into(), short),
    };
    [
        shown(queue.id.map(u64::from)),
        queue.gpu_id.to_string(),
        name(queue.kind).to_owned(),
        bytes(queue.ring_size).replace(".0 ", " "),
        shown(fill.map(|(waiting, _)| waiting)),
        percent,
        shown(queue.read_index),
        shown(queue.write_index),
        rate,
        shown(queue.doorbell.map(u64::from)),
    ]
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

#[cfg(test)]
mod tests {
    use super::super::tests::{look, snapshot};
    use super::*;

    #[test]
    fn the_screen_fits_80_columns() {
        let (before, after) = (
            snapshot(1_000_000_000_000, 1_000_000_000_001),
            snapshot(1_000_500_000_000, 1_000_500_000_100),
        );
        let mut look = look(Some(before), after);
        look.lacks = Some("/sys/kernel/debug/kfd/mqds: only root may look into it ".repeat(3));
        let text = screen(&look);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for shown in [
            "500.0M",
            "1000500000100",
            "749 W",
            "152/304",
            "191.0 GiB / 192.0 GiB",
        ] {
            assert!(text.contains(shown), "{shown} in {text}");
        }
    }
}
