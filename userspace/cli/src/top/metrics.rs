// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One look as metrics for Prometheus: `kfdctl top --prometheus` in a cron job or a timer writes a
//! file that its node exporter collects.

use super::Look;
use crate::devices::Device;
use anyhow::Result;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;

/// A metric with its values: labels and number of each.
struct Metric {
    name: &'static str,
    help: &'static str,
    values: Vec<(Labels, f64)>,
}

/// The text that Prometheus reads.
pub fn text(look: &Look) -> Result<String> {
    let mut registry = Registry::with_prefix("kfd");
    for metric in devices(look).into_iter().chain(processes(look)) {
        let gauges = Gauges::default();
        for (mut labels, value) in metric.values {
            for (_, value) in &mut labels {
                *value = escaped(value);
            }
            gauges.get_or_create(&labels).set(value);
        }
        registry.register(metric.name, metric.help, gauges);
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// A label's value as the format has it. Who starts a process chooses its name.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}

/// A number of a device's, if it has one.
type Of<'a> = &'a dyn Fn(&Device) -> Option<f64>;

fn devices(look: &Look) -> Vec<Metric> {
    let number = |value: Option<u64>| value.map(|value| value as f64);
    let of = |name, help, labels: &dyn Fn(&Device) -> Labels, value: Of<'_>| {
        let values = look.devices.iter();
        let values = values.filter_map(|device| Some((labels(device), value(device)?)));
        Metric {
            name,
            help,
            values: values.collect(),
        }
    };
    let each = |name, help, value: Of<'_>| of(name, help, &own_labels, value);
    // Partitions have the same labels: the value, which is the same for all, is there once.
    let card = |name, help, value: Of<'_>| of(name, help, &card_labels, value);
    vec![
        card(
            "gpu_busy_ratio",
            "Part of the time in which it computed",
            &|device| device.busy_percent.map(|percent| percent / 100.0),
        ),
        each("gpu_vram_used_bytes", "VRAM in use", &|device| {
            number(device.vram_used)
        }),
        each("gpu_vram_bytes", "VRAM", &|device| {
            number(device.vram_total)
        }),
        card("gpu_power_watts", "Power of the package", &|device| {
            device.power_watts
        }),
        card(
            "gpu_temperature_celsius",
            "Temperature of its hottest part",
            &|device| device.temperature_celsius,
        ),
        card("gpu_clock_hertz", "The shaders' clock", &|device| {
            device.clock_mhz.map(|clock| clock * 1e6)
        }),
        each(
            "gpu_cu_occupancy",
            "Compute units that waves fill",
            &|device| number(device.cu_occupancy),
        ),
        each("gpu_compute_units", "Compute units", &|device| {
            Some(device.compute_units as f64)
        }),
    ]
}

fn own_labels(device: &Device) -> Labels {
    let gpu_id = ("gpu_id", device.gpu_id.to_string());
    vec![gpu_id, ("pci", device.pci.clone())]
}

/// Of a card in partitions, all of them.
fn card_labels(device: &Device) -> Labels {
    match device.partition {
        true => vec![("pci", device.pci.clone())],
        false => own_labels(device),
    }
}

fn processes(look: &Look) -> Vec<Metric> {
    let (mut vram, mut queues) = (Vec::new(), Vec::new());
    let (mut waiting, mut done, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for process in &look.snapshot.processes {
        let mut owner: Labels = vec![
            ("pid", process.pid.to_string()),
            ("name", process.name.clone()),
        ];
        if let Some(context) = process.context {
            owner.push(("context", context.to_string()));
        }
        vram.push((owner.clone(), process.vram as f64));
        queues.push((owner.clone(), process.queues.len() as f64));
        faults.extend(process.faults.map(|count| (owner.clone(), count as f64)));
        for queue in &process.queues {
            let mut labels = owner.clone();
            labels.push(("gpu_id", queue.gpu_id.to_string()));
            let id = queue.id.map_or_else(String::new, |id| id.to_string());
            labels.push(("queue", id));
            labels.push(("type", super::name(queue.kind).to_lowercase()));
            let fill = queue.fill();
            waiting.extend(fill.map(|(waiting, _)| (labels.clone(), waiting as f64)));
            done.extend(queue.read_index.map(|index| (labels, index as f64)));
        }
    }
    for values in [&mut waiting, &mut done] {
        only_single(values);
    }
    let metric = |name, help, values| Metric { name, help, values };
    vec![
        metric("process_vram_bytes", "VRAM of a process", vram),
        metric("process_queues", "Queues of a process", queues),
        metric(
            "process_memory_faults",
            "Accesses of a process's waves to memory that they may not touch",
            faults,
        ),
        metric(
            "queue_waiting",
            "Packets (AQL), words (PM4) or bytes (SDMA) that wait in the ring or run",
            waiting,
        ),
        metric(
            "queue_read_index",
            "Packets, words or bytes that the GPU has taken from the ring",
            done,
        ),
    ]
}

/// Leaves out what has the same labels as another: queues whose numbers are not known. The one or
/// the other value, at each look, would be worse than none.
fn only_single(values: &mut Vec<(Labels, f64)>) {
    let mut counts = HashMap::<_, u32>::new();
    for (labels, _) in values.iter() {
        *counts.entry(labels.clone()).or_default() += 1;
    }
    values.retain(|(labels, _)| counts[labels] == 1);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{look, snapshot};
    use super::*;

    #[test]
    fn each_gpu_and_queue_has_its_line() {
        let mut look = look(None, snapshot(5, 9));
        look.snapshot.processes[0].name = "odd \"name\"".into();
        let text = text(&look).expect("it can be written");
        for line in [
            "kfd_gpu_busy_ratio{gpu_id=\"65535\",pci=\"0000:03:00.0\"} 1.0",
            "kfd_gpu_power_watts{gpu_id=\"65535\",pci=\"0000:03:00.0\"} 749.0",
            "kfd_queue_waiting{pid=\"4194304\",name=\"odd \\\"name\\\"\",gpu_id=\"65535\",\
            queue=\"1023\",type=\"sdma\"} 4.0",
            "# TYPE kfd_queue_waiting gauge",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in {text}");
        }
    }

    #[test]
    fn a_card_in_partitions_has_one_power() {
        let mut look = look(None, snapshot(5, 9));
        look.devices[0].partition = true;
        let mut other = look.devices[0].clone();
        other.gpu_id = 7;
        look.devices.push(other);
        let text = text(&look).expect("it can be written");
        let lines = |start: &str| -> Vec<&str> {
            text.lines()
                .filter(|line| line.starts_with(start))
                .collect()
        };
        let power = ["kfd_gpu_power_watts{pci=\"0000:03:00.0\"} 749.0"];
        assert_eq!(lines("kfd_gpu_power_watts"), power);
        assert_eq!(lines("kfd_gpu_busy_ratio").len(), 1);
        assert_eq!(lines("kfd_gpu_compute_units{").len(), 2);
    }

    /// Each has a queue of that number.
    #[test]
    fn contexts_have_their_own_lines() {
        let mut look = look(None, snapshot(5, 9));
        let mut other = look.snapshot.processes[0].clone();
        other.context = Some(1);
        other.queues[0].read_index = Some(7);
        look.snapshot.processes.push(other);
        let text = text(&look).expect("it can be written");
        for (context, waiting) in [("", "4.0"), ("context=\"1\",", "2.0")] {
            let line = format!(
                "kfd_queue_waiting{{pid=\"4194304\",name=\"a-name-of-15-ch\",{context}\
                gpu_id=\"65535\",queue=\"1023\",type=\"sdma\"}} {waiting}"
            );
            assert!(text.lines().any(|known| known == line), "{line} in {text}");
        }
    }

    /// What has no number could be another queue's at the next look.
    #[test]
    fn queues_that_cannot_be_told_apart_are_left_out() {
        let mut look = look(None, snapshot(5, 9));
        let queues = &mut look.snapshot.processes[0].queues;
        queues[0].id = None;
        let single = text(&look).expect("it can be written");
        assert!(single.contains("kfd_queue_waiting{"), "{single}");
        let queues = &mut look.snapshot.processes[0].queues;
        queues.push(queues[0].clone());
        let double = text(&look).expect("it can be written");
        assert!(!double.contains("kfd_queue_waiting{"), "{double}");
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut look = look(None, snapshot(5, 9));
        look.devices[0].busy_percent = None;
        let text = text(&look).expect("it can be written");
        assert!(!text.contains("kfd_gpu_busy_ratio{"), "{text}");
    }
}
