// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A program from what `kfdctl --json trace` saw another program do: the same calls in the same
//! order, in one process. Ids become labels, addresses become places of the fuzzer's own.

use super::generate::{PLACE, PLACES};
use super::program::{number, Line, Program, Value};
use anyhow::{Context, Result};
use kfd_uapi::reflect::{constants, Field, Kind, Struct};
use kfd_uapi::{Ioctl, IOCTLS};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// What of a call's struct names a new object; with the kind of label, and the fields that later
/// name it.
const MADE: &[(&str, &str, char)] = &[
    ("ALLOC_MEMORY_OF_GPU", "handle", 'h'),
    ("IMPORT_DMABUF", "handle", 'h'),
    ("CREATE_QUEUE", "queue_id", 'q'),
    ("CREATE_EVENT", "event_id", 'e'),
    ("EXPORT_DMABUF", "dmabuf_fd", 'd'),
    ("SMI_EVENTS", "anon_fd", 's'),
];

/// Fields whose number is one of a set of constants, by what these begin with.
const NAMED: &[(&str, &str)] = &[
    ("flags", "KFD_IOC_ALLOC_MEM_FLAGS_"),
    ("queue_type", "KFD_IOC_QUEUE_TYPE_"),
    ("event_type", "KFD_IOC_EVENT_"),
    ("default_policy", "KFD_IOC_CACHE_POLICY_"),
    ("alternate_policy", "KFD_IOC_CACHE_POLICY_"),
    ("misc_process_flag", "KFD_PROC_FLAG_"),
    ("mode_mask", "KFD_RUNTIME_ENABLE_MODE_"),
];

/// The program that this trace is of: a JSON object a line.
pub fn program(trace: &str) -> Result<Program> {
    let mut reader = Reader::default();
    reader.program.lines.push(Line::new(0, 0, "SETUP"));
    for (index, line) in (1..).zip(trace.lines()) {
        let call: Json = serde_json::from_str(line).with_context(|| format!("line {index}"))?;
        reader.call(&call);
    }
    Ok(reader.program)
}

#[derive(Default)]
struct Reader {
    program: Program,
    /// Labels by field name and number.
    labels: BTreeMap<(&'static str, u64), String>,
    /// Buffers of the traced program by address: their size, and where ours lie.
    places: BTreeMap<u64, (u64, u64)>,
    used: u64,
    gpu: Option<u64>,
}

impl Reader {
    fn call(&mut self, call: &Json) {
        let name = call["call"].as_str().unwrap_or_default();
        let Some(ioctl) = IOCTLS.iter().find(|ioctl| ioctl.name == name) else {
            return;
        };
        let (arguments, changes) = (&call["arguments"], &call["changes"]);
        if name == "ALLOC_MEMORY_OF_GPU" {
            self.gpu = self.gpu.or(plain(&arguments["gpu_id"]));
            self.place(arguments);
        }
        let mut line = Line::new(0, 0, name);
        for field in Struct::by_name(ioctl.arguments).map_or(&[][..], |known| known.fields) {
            // SETUP has acquired the VM, and brought the page of events.
            if ["drm_fd", "event_page_offset"].contains(&field.name) {
                continue;
            }
            if let Some(value) = self.value(field, &arguments[field.name]) {
                line = line.with(field.name, value);
            }
        }
        line.label = self.made(ioctl, changes, arguments);
        self.program.lines.push(line);
    }

    /// Gives the buffer that is being allocated a place of ours, in whole places.
    fn place(&mut self, arguments: &Json) {
        let (Some(at), Some(size)) = (plain(&arguments["va_addr"]), plain(&arguments["size"]))
        else {
            return;
        };
        let room = size.next_multiple_of(PLACE);
        if self.used + room <= PLACES as u64 * PLACE {
            self.places.insert(at, (size, self.used));
            self.used += room;
        }
    }

    fn made(&mut self, ioctl: &Ioctl, changes: &Json, arguments: &Json) -> Option<String> {
        let (_, field, kind) = MADE.iter().find(|(call, ..)| *call == ioctl.name)?;
        let id = plain(&changes[*field]).or_else(|| plain(&arguments[*field]))?;
        let label = format!("{kind}{}", self.program.lines.len());
        self.labels.insert((*field, id), label.clone());
        Some(label)
    }

    fn value(&self, field: &Field, json: &Json) -> Option<Value> {
        if !matches!(field.kind, Kind::Word | Kind::Long) {
            return None;
        }
        if let Some(list) = json.get("value").and_then(Json::as_array) {
            return Some(self.list(list));
        }
        let number = match json.as_str() {
            Some(text) => number(text).ok().or_else(|| named(field.name, text))?,
            None => plain(json)?,
        };
        (number != 0).then(|| self.number(field.name, number))
    }

    fn list(&self, list: &[Json]) -> Value {
        let event = |item: &Json| {
            let id = plain(item.get("event_id")?)?;
            let age = plain(&item["signal_event_data"]["last_event_age"]).unwrap_or(0);
            Some((self.number("event_id", id), age))
        };
        if list.iter().any(|item| item.get("event_id").is_some()) {
            return Value::Events(list.iter().filter_map(event).collect());
        }
        let numbers = list.iter().filter_map(plain);
        Value::Words(numbers.map(|it| self.number("gpu_id", it)).collect())
    }

    /// A number as our program says it: by label, GPU or place where it is one of those.
    fn number(&self, field: &'static str, number: u64) -> Value {
        if let Some(label) = self.labels.get(&(field, number)) {
            return Value::Label(label.clone(), 0);
        }
        if ["gpu_id", "gpuid"].contains(&field) && Some(number) == self.gpu {
            return Value::Prepared("gpu".into(), 0);
        }
        let below = self.places.range(..=number).next_back();
        match below {
            Some((at, (size, place))) if number - at < *size => {
                Value::Prepared("place".into(), place + (number - at))
            }
            // An address of the traced program would be somebody else's here.
            _ if number >= 1 << 32 && field != "handle" => Value::Prepared("memory".into(), 0),
            _ => Value::Number(number),
        }
    }
}

fn plain(json: &Json) -> Option<u64> {
    match json {
        Json::String(text) => number(text).ok(),
        Json::Object(it) => plain(it.get("address")?),
        _ => json.as_u64().or_else(|| json.as_i64().map(|it| it as u64)),
    }
}

/// `GTT|WRITABLE` as a number.
fn named(field: &str, text: &str) -> Option<u64> {
    let (_, prefix) = NAMED.iter().find(|(name, _)| *name == field)?;
    let mut sum = 0;
    for word in text.split('|') {
        let known = || constants(prefix).find(|(name, _)| name.trim_end_matches("_MASK") == word);
        sum |= match number(word) {
            Ok(number) => number,
            Err(_) => u64::from(known()?.1),
        };
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_become_labels_and_addresses_places() {
        let trace = [
            r#"{"call":"openat","arguments":{"path":"/dev/kfd"},"changes":{},"result":3}"#,
            concat!(
                r#"{"call":"ALLOC_MEMORY_OF_GPU","arguments":{"va_addr":"0x7f0000000000","#,
                r#""size":8192,"handle":"0x0","gpu_id":35281,"flags":"GTT|WRITABLE"},"#,
                r#""changes":{"handle":"0x89d100000007"}}"#,
            ),
            concat!(
                r#"{"call":"MAP_MEMORY_TO_GPU","arguments":{"handle":"0x89d100000007","#,
                r#""device_ids_array_ptr":{"address":"0x10","value":[35281]},"n_devices":1},"#,
                r#""changes":{}}"#,
            ),
            concat!(
                r#"{"call":"CREATE_QUEUE","arguments":{"ring_base_address":"0x7f0000001000","#,
                r#""queue_type":"COMPUTE_AQL","read_pointer_address":"0x7fffff000000"},"#,
                r#""changes":{"queue_id":5}}"#,
            ),
            concat!(
                r#"{"call":"WAIT_EVENTS","arguments":{"events_ptr":{"address":"0x20","#,
                r#""value":[{"event_id":9,"signal_event_data":{"last_event_age":3}}]},"#,
                r#""num_events":1},"changes":{}}"#,
            ),
            r#"{"call":"DESTROY_QUEUE","arguments":{"queue_id":5},"changes":{}}"#,
        ]
        .join("\n");
        let text = program(&trace).unwrap().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "0.0 SETUP");
        assert!(lines[1].starts_with("0.0 h1 = ALLOC_MEMORY_OF_GPU va_addr=$place "));
        assert!(lines[1].contains("gpu_id=$gpu") && lines[1].contains("flags=0x80000002"));
        assert!(lines[2].contains("handle=%h1 device_ids_array_ptr=[$gpu] n_devices=0x1"));
        assert!(
            lines[3].contains("ring_base_address=$place+0x1000"),
            "{text}"
        );
        assert!(lines[3].contains("read_pointer_address=$memory"), "{text}");
        assert!(lines[3].contains("queue_type=0x2"), "{text}");
        assert!(lines[4].contains("events_ptr={0x9:0x3}"), "{text}");
        assert_eq!(lines[5], "0.0 DESTROY_QUEUE queue_id=%q3");
    }

    #[test]
    fn a_line_that_is_not_json_is_an_error() {
        assert!(program("{}\nx").unwrap_err().to_string().contains("line 2"));
    }
}
