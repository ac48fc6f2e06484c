// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A KFD argument struct as names and values, from its bytes and the memory they point into.

use super::rules::{pointee, style, Pointee, Style};
use kfd_uapi::reflect::{constants, Field, Kind, Struct};
use serde_json::json;
use std::fmt::{self, Display, Formatter};

/// The most entries of a list that are read: more than any call of a sound program has.
const MOST: usize = 4096;
/// The most entries of a list that the text shows.
const SHOWN: usize = 16;

/// A decoded value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A decimal number.
    Number(i64),
    /// An address or mask.
    Hex(u64),
    /// Names of constants.
    Name(String),
    /// What lies at an address.
    At(u64, Box<Value>),
    /// Some of a kind.
    List(Vec<Value>),
    /// Fields with their names.
    Struct(Vec<(&'static str, Value)>),
}

/// The traced process's memory.
pub trait Memory {
    /// `size` bytes at `address`, if they can be read.
    fn read(&self, address: u64, size: usize) -> Option<Vec<u8>>;

    /// The `event_type` with which the process created event `id`, if that was seen.
    fn event_type(&self, id: u32) -> Option<u32>;
}

/// A struct's name without what all have in common.
pub fn short(name: &str) -> &str {
    let name = name.strip_prefix("kfd_").unwrap_or(name);
    let name = name.strip_prefix("ioctl_").unwrap_or(name);
    name.strip_suffix("_args").unwrap_or(name)
}

/// Decodes `bytes` as `known`, as far as they reach: old programs have shorter structs.
pub fn decode(known: &Struct, bytes: &[u8], memory: &dyn Memory) -> Value {
    Decoder { memory }.fields(known, bytes)
}

struct Decoder<'a> {
    memory: &'a dyn Memory,
}

impl Decoder<'_> {
    fn fields(&self, known: &Struct, bytes: &[u8]) -> Value {
        let owner = short(known.name);
        let mut fields = Vec::new();
        for field in known.fields {
            match (field.name, &field.kind) {
                ("", Kind::Struct(union)) => {
                    fields.extend(self.union(owner, known, bytes, field, union));
                }
                _ => fields.extend(
                    self.field(known, field, bytes)
                        .map(|value| (field.name, value)),
                ),
            }
        }
        Value::Struct(fields)
    }

    fn field(&self, known: &Struct, field: &Field, bytes: &[u8]) -> Option<Value> {
        let owner = short(known.name);
        let how = style(owner, field.name);
        if how == Style::Padding {
            return None;
        }
        let behind = pointee(owner, field.name);
        if let Some(Pointee::Following(name, count)) = behind {
            let count = number_of(known, count, bytes)? as usize;
            return Some(self.structs(name, bytes.get(field.offset..)?, count));
        }
        if let (Style::SvmValue, Some(kind)) = (how, number_of(known, "type", bytes)) {
            return Some(svm_value(kind as u32, number(field, bytes)? as u32));
        }
        let value = self.value(&field.kind, bytes.get(field.offset..)?, how)?;
        match (behind, &value) {
            (Some(behind), Value::Hex(address)) if *address != 0 => Some(
                self.behind(behind, *address, known, bytes)
                    .map_or(value.clone(), |found| Value::At(*address, Box::new(found))),
            ),
            _ => Some(value),
        }
    }

    fn value(&self, kind: &Kind, bytes: &[u8], how: Style) -> Option<Value> {
        Some(match kind {
            Kind::Word => scalar(u64::from(word(bytes)?), how, 32),
            Kind::Long => scalar(long(bytes)?, how, 64),
            Kind::Struct(name) => self.fields(Struct::by_name(name)?, bytes),
            Kind::Array(element, count) => {
                let size = size(element)?;
                let entries = bytes.chunks(size).take(*count);
                Value::List(
                    entries
                        .filter_map(|entry| self.value(element, entry, how))
                        .collect(),
                )
            }
            Kind::Tail => return None,
        })
    }

    /// The field of an anonymous union that the rest of the struct chooses.
    fn union(
        &self,
        owner: &str,
        known: &Struct,
        bytes: &[u8],
        field: &Field,
        union: &str,
    ) -> Option<(&'static str, Value)> {
        let choice = match style(owner, "") {
            Style::Union(choices) => {
                *choices.get(usize::try_from(number_of(known, "op", bytes)?).ok()?)?
            }
            _ => self.event_choice(number_of(known, "event_id", bytes)? as u32)?,
        };
        let union = Struct::by_name(union)?;
        let chosen = union.fields.iter().find(|field| field.name == choice)?;
        let value = self.value(&chosen.kind, bytes.get(field.offset..)?, Style::Decimal)?;
        Some((chosen.name, value))
    }

    fn event_choice(&self, id: u32) -> Option<&'static str> {
        Some(match self.memory.event_type(id)? {
            kfd_uapi::KFD_IOC_EVENT_MEMORY => "memory_exception_data",
            kfd_uapi::KFD_IOC_EVENT_HW_EXCEPTION => "hw_exception_data",
            _ => "signal_event_data",
        })
    }

    fn behind(&self, behind: Pointee, address: u64, known: &Struct, bytes: &[u8]) -> Option<Value> {
        let count = |name| number_of(known, name, bytes).map(|count| (count as usize).min(MOST));
        let words = |count: usize| {
            let bytes = self.memory.read(address, count * 4)?;
            let word = |bytes: &[u8]| word(bytes).map(|word| Value::Number(word.into()));
            Some(Value::List(bytes.chunks(4).filter_map(word).collect()))
        };
        match behind {
            Pointee::Words(name) => words(count(name)?),
            Pointee::Bits(name) => words(count(name)?.div_ceil(32)),
            Pointee::One(name) => {
                let known = Struct::by_name(name)?;
                Some(self.fields(known, &self.memory.read(address, known.size)?))
            }
            Pointee::Structs(name, counted) => {
                let (known, count) = (Struct::by_name(name)?, count(counted)?);
                let bytes = self.memory.read(address, known.size * count)?;
                Some(self.structs(name, &bytes, count))
            }
            Pointee::Following(..) => None,
        }
    }

    fn structs(&self, name: &str, bytes: &[u8], count: usize) -> Value {
        let entries = Struct::by_name(name).map(|known| {
            let chunks = bytes.chunks_exact(known.size).take(count);
            chunks.map(|entry| self.fields(known, entry)).collect()
        });
        Value::List(entries.unwrap_or_default())
    }
}

fn size(kind: &Kind) -> Option<usize> {
    match kind {
        Kind::Word => Some(4),
        Kind::Long => Some(8),
        Kind::Struct(name) => Struct::by_name(name).map(|known| known.size),
        Kind::Array(element, count) => size(element).map(|size| size * count),
        Kind::Tail => None,
    }
}

fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?))
}

fn long(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?))
}

/// The number in `field` of a struct.
fn number(field: &Field, bytes: &[u8]) -> Option<u64> {
    let bytes = bytes.get(field.offset..)?;
    match field.kind {
        Kind::Word => word(bytes).map(u64::from),
        Kind::Long => long(bytes),
        _ => None,
    }
}

/// The number in the field called `name`.
pub fn number_of(known: &Struct, name: &str, bytes: &[u8]) -> Option<u64> {
    number(known.fields.iter().find(|field| field.name == name)?, bytes)
}

fn scalar(value: u64, how: Style, bits: u32) -> Value {
    match how {
        Style::Hex => Value::Hex(value),
        Style::Signed if bits == 32 => Value::Number((value as u32 as i32).into()),
        Style::Name(prefix) => name(prefix, value).unwrap_or(Value::Number(value as i64)),
        Style::Flags(prefix) => Value::Name(flags(prefix, value)),
        Style::Exceptions => Value::Name(exceptions(value)),
        _ => match i64::try_from(value) {
            Ok(number) => Value::Number(number),
            Err(_) => Value::Hex(value),
        },
    }
}

/// The constant with `prefix` that is `value`; a count or mask among them is not meant.
fn name(prefix: &str, value: u64) -> Option<Value> {
    let no_value = ["VERSION_NUM", "MAX"];
    let mut names = constants(prefix).filter(|(name, _)| !no_value.contains(name));
    names
        .find(|(_, known)| u64::from(*known) == value)
        .map(|(name, _)| Value::Name(name.into()))
}

fn flags(prefix: &str, value: u64) -> String {
    let mut left = value;
    let mut names = Vec::new();
    for (name, bits) in constants(prefix) {
        if bits != 0 && left & u64::from(bits) == u64::from(bits) {
            names.push(name.trim_end_matches("_MASK").to_owned());
            left &= !u64::from(bits);
        }
    }
    if left != 0 || names.is_empty() {
        names.push(format!("{left:#x}"));
    }
    names.join("|")
}

/// `KFD_EC_MASK(ec)` is bit `ec - 1`.
fn exceptions(mask: u64) -> String {
    let mut left = mask;
    let mut names = Vec::new();
    for (name, code) in constants("EC_").filter(|(name, _)| !["NONE", "MAX"].contains(name)) {
        let bit = 1u64 << (code - 1);
        if left & bit != 0 {
            names.push(name.to_owned());
            left &= !bit;
        }
    }
    if left != 0 || names.is_empty() {
        names.push(format!("{left:#x}"));
    }
    names.join("|")
}

fn svm_value(kind: u32, value: u32) -> Value {
    match kind {
        kfd_uapi::KFD_IOCTL_SVM_ATTR_PREFERRED_LOC | kfd_uapi::KFD_IOCTL_SVM_ATTR_PREFETCH_LOC => {
            scalar(value.into(), Style::Name("KFD_IOCTL_SVM_LOCATION_"), 32)
        }
        kfd_uapi::KFD_IOCTL_SVM_ATTR_SET_FLAGS | kfd_uapi::KFD_IOCTL_SVM_ATTR_CLR_FLAGS => {
            scalar(value.into(), Style::Flags("KFD_IOCTL_SVM_FLAG_"), 32)
        }
        _ => Value::Number(value.into()),
    }
}

impl Value {
    /// For programs: numbers as numbers, addresses as strings in hexadecimal.
    pub fn json(&self) -> serde_json::Value {
        match self {
            Value::Number(number) => json!(number),
            Value::Hex(number) => json!(format!("{number:#x}")),
            Value::Name(name) => json!(name),
            Value::At(address, value) => {
                json!({ "address": format!("{address:#x}"), "value": value.json() })
            }
            Value::List(values) => values.iter().map(Value::json).collect(),
            Value::Struct(fields) => serde_json::Value::Object(
                fields
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.json()))
                    .collect(),
            ),
        }
    }

    /// The fields of `self` that are not as they were in `before`; both are of one struct.
    pub fn changed(&self, before: &Value) -> Vec<(&'static str, Value)> {
        let (Value::Struct(after), Value::Struct(before)) = (self, before) else {
            return Vec::new();
        };
        let changed = |field: &&(&'static str, Value)| !before.contains(field);
        after.iter().filter(changed).cloned().collect()
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Hex(number) => write!(f, "{number:#x}"),
            Value::Name(name) => f.write_str(name),
            Value::At(address, value) => write!(f, "{address:#x} -> {value}"),
            Value::List(values) => {
                let shown: Vec<_> = values.iter().take(SHOWN).map(Value::to_string).collect();
                let more = values.len().saturating_sub(SHOWN);
                let tail = if more > 0 {
                    format!(", and {more} more")
                } else {
                    String::new()
                };
                write!(f, "[{}{tail}]", shown.join(", "))
            }
            Value::Struct(fields) => write!(f, "{{{}}}", joined(fields)),
        }
    }
}

/// `name=value, …`.
pub fn joined(fields: &[(&'static str, Value)]) -> String {
    let texts: Vec<_> = fields
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[derive(Default)]
    struct Fake {
        memory: HashMap<u64, Vec<u8>>,
        events: HashMap<u32, u32>,
    }

    impl Memory for Fake {
        fn read(&self, address: u64, size: usize) -> Option<Vec<u8>> {
            Some(self.memory.get(&address)?.get(..size)?.to_vec())
        }

        fn event_type(&self, id: u32) -> Option<u32> {
            self.events.get(&id).copied()
        }
    }

    fn known(name: &str) -> &'static Struct {
        Struct::by_name(&format!("kfd_ioctl_{name}_args")).expect("it is in the header")
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn flags_and_names_are_words() {
        let bytes = words(&[0x1000, 0, 0x2000, 0, 0, 0, 0, 0, 7, 0x8000_0002]);
        let text = decode(known("alloc_memory_of_gpu"), &bytes, &Fake::default()).to_string();
        assert!(text.contains("va_addr=0x1000"), "{text}");
        assert!(text.contains("flags=GTT|WRITABLE"), "{text}");
    }

    #[test]
    fn short_structs_of_old_programs_are_shown_as_far_as_they_reach() {
        let text = decode(known("create_queue"), &[0; 88], &Fake::default()).to_string();
        assert!(text.contains("ctl_stack_size"), "{text}");
        assert!(!text.contains("sdma_engine_id"), "{text}");
    }

    #[test]
    fn lists_behind_pointers_are_read() {
        let mut fake = Fake::default();
        fake.memory.insert(0x100, words(&[7, 8]));
        let bytes = words(&[5, 0, 0x100, 0, 2, 0]);
        let text = decode(known("map_memory_to_gpu"), &bytes, &fake).to_string();
        assert!(
            text.contains("device_ids_array_ptr=0x100 -> [7, 8]"),
            "{text}"
        );
    }

    #[test]
    fn an_event_is_shown_by_what_it_was_created_as() {
        let mut fake = Fake::default();
        let mut event = words(&[1, 0, 0, 0, 0x5000, 0, 9, 0]);
        event.extend(words(&[0, 0, 3, 0]));
        fake.memory.insert(0x100, event);
        fake.events.insert(3, kfd_uapi::KFD_IOC_EVENT_MEMORY);
        let bytes = words(&[0x100, 0, 1, 1, u32::MAX, 0]);
        let text = decode(known("wait_events"), &bytes, &fake).to_string();
        assert!(text.contains("NotPresent=1"), "{text}");
        assert!(text.contains("va=0x5000"), "{text}");
        assert!(text.contains("wait_result=COMPLETE"), "{text}");
    }

    #[test]
    fn the_debuggers_union_goes_by_its_operation() {
        let mut bytes = words(&[42, kfd_uapi::KFD_IOC_DBG_TRAP_SET_FLAGS, 1, 0]);
        bytes.extend([0; 16]);
        let text = decode(known("dbg_trap"), &bytes, &Fake::default()).to_string();
        assert_eq!(
            text,
            "{pid=42, op=SET_FLAGS, set_flags={flags=SINGLE_MEM_OP}}"
        );
    }

    #[test]
    fn svm_attributes_follow_their_struct() {
        let bytes = words(&[0x1000, 0, 0x2000, 0, 0, 2, 0, u32::MAX, 5, 3]);
        let text = decode(known("svm"), &bytes, &Fake::default()).to_string();
        assert!(
            text.contains("type=PREFERRED_LOC, value=UNDEFINED"),
            "{text}"
        );
        assert!(
            text.contains("type=SET_FLAGS, value=HOST_ACCESS|COHERENT"),
            "{text}"
        );
    }

    #[test]
    fn what_a_call_changed_is_told() {
        let known = known("destroy_queue");
        let before = decode(known, &words(&[1, 0]), &Fake::default());
        let after = decode(known, &words(&[2, 0]), &Fake::default());
        assert_eq!(joined(&after.changed(&before)), "queue_id=2");
    }
}
