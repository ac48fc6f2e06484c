// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Printer`]: what kernels print.
//!
//! A compiler leaves `printf` to three parts, as "User Guide for AMDGPU Backend" has it: the code
//! object's metadata list each call's format with the sizes of its values (`amdhsa.printf`); a
//! function of the device, `__printf_alloc`, takes room in the buffer that the hidden argument
//! `hidden_printf_buffer` points to; and whoever has launched the kernel formats what is in there.
//! The buffer begins with how much is taken and how large it is, with these 8 bytes, both 32 bits
//! wide. Then come records: the number of a format, and its values, each from a multiple of 4 on.

mod layout;

use self::layout::{Layout, FLAGS};
use crate::code::field;
use crate::{CodeObject, Error, Result};
use kfd::Memory;
use rmpv::Value;
use std::sync::Arc;

/// What precedes the records.
const HEAD: usize = 8;
/// The largest record, far beyond what a format can say.
const MOST: usize = 1 << 16;

/// Takes what the kernels of one code object print: see [`LaunchBuilder::printer`].
///
/// What they print is here when they are done, and stays until [`take`](Self::take). The work-items
/// of a wave print in their order, and waves in any. What no longer fits is lost.
///
/// [`LaunchBuilder::printer`]: crate::LaunchBuilder::printer
#[derive(Debug)]
pub struct Printer {
    code: Arc<CodeObject>,
    memory: Memory,
}

/// What was printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Printed {
    /// All that was whole.
    pub text: String,
    /// Whether there was more, or might have been: less room is left than the longest of the code
    /// object's records takes. Kernels with AMD's device library leave no trace of what they found
    /// no room for.
    pub lost: bool,
}

impl Printer {
    /// One with room for about `bytes` bytes of values; at most 1 GiB.
    pub fn new(code: &Arc<CodeObject>, bytes: usize) -> Result<Arc<Self>> {
        let device = code.memory().device();
        let memory = Memory::gtt(device, bytes.clamp(1, 1 << 30) + HEAD)?;
        let printer = Self {
            code: code.clone(),
            memory,
        };
        printer.empty();
        Ok(Arc::new(printer))
    }

    /// What was printed since the last time.
    ///
    /// While a kernel that prints into it runs, what it prints may be lost, or seen in part; wait
    /// for its end first.
    pub fn take(&self) -> Printed {
        let taken = self.memory.read::<u32>(0, 1)[0] as usize;
        let room = self.memory.size() - HEAD;
        let records = self.memory.read::<u8>(HEAD, taken.min(room));
        self.empty();
        let formats = self.code.formats().unwrap_or_default();
        let (text, whole) = print(formats, &records);
        Printed {
            text,
            lost: !whole || is_full(formats, taken, room),
        }
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    pub(crate) fn is_of(&self, code: &Arc<CodeObject>) -> bool {
        Arc::ptr_eq(&self.code, code)
    }

    /// A record that is not written has the number 0, which is no format's.
    fn empty(&self) {
        let size = self.memory.size();
        self.memory.write(HEAD, &vec![0u8; size - HEAD]);
        self.memory.write(0, &[0, size as u32]);
    }
}

/// One call of `printf` in a code object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Format {
    id: u32,
    /// Of each value, in bytes.
    sizes: Vec<usize>,
    text: String,
}

impl Format {
    /// All that a code object has; None where its kernels print as HIP's buffered `printf`
    /// (`-mprintf-kind=buffered`) does, whose formats have the number 0: the records are others.
    pub(crate) fn all(metadata: &Value) -> Result<Option<Vec<Self>>> {
        let lines = field(metadata, "amdhsa.printf").and_then(Value::as_array);
        let lines = lines.map_or(&[][..], Vec::as_slice);
        let is_hip = |line: &Value| line.as_str().is_some_and(|line| line.starts_with("0:"));
        if lines.iter().any(is_hip) {
            return Ok(None);
        }
        let of = |line: &Value| line.as_str().and_then(Self::parse);
        let formats: Option<Vec<_>> = lines.iter().map(of).collect();
        let wrong = || Error::CodeObject("a format of printf that is none".into());
        formats.map(Some).ok_or_else(wrong)
    }

    /// `ID:COUNT:SIZE:...:TEXT`.
    fn parse(line: &str) -> Option<Self> {
        let (id, rest) = line.split_once(':')?;
        let (count, mut rest) = rest.split_once(':')?;
        let mut sizes = Vec::new();
        for _ in 0..count.parse::<u32>().ok()? {
            let (size, behind) = rest.split_once(':')?;
            sizes.push(size.parse::<usize>().ok().filter(|size| *size <= MOST)?);
            rest = behind;
        }
        Some(Self {
            id: id.parse::<u32>().ok().filter(|id| *id != 0)?,
            sizes,
            text: unescaped(rest),
        })
    }

    /// Bytes of its values.
    fn length(&self) -> usize {
        self.sizes.iter().map(|size| size.next_multiple_of(4)).sum()
    }

    fn print(&self, mut values: &[u8]) -> String {
        let mut sizes = self.sizes.iter();
        let mut text = String::new();
        let mut rest = self.text.as_str();
        while let Some((before, from)) = rest.split_once('%') {
            text += before;
            let Some((conversion, behind)) = Conversion::parse(from) else {
                // As it stands: no compiler that checks formats lets it pass.
                text.push('%');
                rest = from;
                continue;
            };
            rest = behind;
            if conversion.kind == '%' {
                text.push('%');
                continue;
            }
            let Some(size) = sizes.next() else {
                text.push('%');
                text += &from[..from.len() - behind.len()];
                continue;
            };
            text += &conversion.print(&values[..*size]);
            values = &values[size.next_multiple_of(4)..];
        }
        text + rest
    }
}

/// Whether a record may have found no room, where `taken` bytes of `room` are taken. One that finds
/// none adds itself nevertheless, or it does not: that depends on the `__printf_alloc`.
fn is_full(formats: &[Format], taken: usize, room: usize) -> bool {
    let longest = formats.iter().map(|format| 4 + format.length()).max();
    taken + longest.unwrap_or(0) > room
}

/// The text of all whole records, and whether these were all.
fn print(formats: &[Format], mut records: &[u8]) -> (String, bool) {
    let mut text = String::new();
    while let Some((id, rest)) = records.split_first_chunk() {
        let id = u32::from_le_bytes(*id);
        let format = formats.iter().find(|format| format.id == id);
        let Some(format) = format.filter(|format| format.length() <= rest.len()) else {
            return (text, false);
        };
        text += &format.print(rest);
        records = &rest[format.length()..];
    }
    (text, records.is_empty())
}

/// The compiler writes some characters as C does, and the colon in octal.
fn unescaped(text: &str) -> String {
    const ESCAPES: [(&str, char); 7] = [
        ("72", ':'),
        ("n", '\n'),
        ("r", '\r'),
        ("a", '\x07'),
        ("b", '\x08'),
        ("f", '\x0c'),
        ("v", '\x0b'),
    ];
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let escape = ESCAPES
            .iter()
            .find_map(|(name, is)| Some((part.strip_prefix(name)?, *is)));
        let (rest, is) = escape.unwrap_or((part, '\\'));
        plain.push(is);
        plain += rest;
    }
    plain
}

/// One of `%d`, `%-5.2f`, `%v4hlx`.
#[derive(Debug, PartialEq, Eq)]
struct Conversion<'a> {
    /// Flags, width and precision.
    flags: &'a str,
    /// How many values it is for.
    elements: Option<usize>,
    length: &'a str,
    kind: char,
}

impl<'a> Conversion<'a> {
    /// The one that a text behind a `%` begins with, and what follows it.
    fn parse(text: &'a str) -> Option<(Self, &'a str)> {
        let rest = text.trim_start_matches(FLAGS);
        let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let rest = match rest.strip_prefix('.') {
            Some(rest) => rest.trim_start_matches(|digit: char| digit.is_ascii_digit()),
            None => rest,
        };
        let flags = &text[..text.len() - rest.len()];
        let (elements, rest) = match rest.strip_prefix('v') {
            Some(rest) => {
                let behind = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
                let count = rest[..rest.len() - behind.len()].parse::<usize>().ok();
                (
                    Some(count.filter(|count| (2..=16).contains(count))?),
                    behind,
                )
            }
            None => (None, rest),
        };
        let behind = rest.trim_start_matches(['h', 'l', 'j', 'z', 't']);
        let length = &rest[..rest.len() - behind.len()];
        let kind = behind.chars().next().filter(char::is_ascii)?;
        let conversion = Self {
            flags,
            elements,
            length,
            kind,
        };
        Some((conversion, &behind[1..]))
    }

    fn print(&self, value: &[u8]) -> String {
        let Some(count) = self.elements else {
            return self.print_one(value);
        };
        // A vector of three has the size of one of four.
        let places = if count == 3 { 4 } else { count };
        let elements = value
            .chunks_exact((value.len() / places).max(1))
            .take(count);
        let elements: Vec<_> = elements.map(|element| self.print_one(element)).collect();
        elements.join(",")
    }

    /// What can't be formatted, such as `%a`, stays as it is.
    fn print_one(&self, value: &[u8]) -> String {
        let Self { flags, kind, .. } = self;
        let text = Layout::parse(flags).and_then(|layout| match kind {
            'd' | 'i' => signed(value, self.length).map(|number| layout.signed(number)),
            'u' | 'o' | 'x' | 'X' => unsigned(value, value.len().min(self.bytes()))
                .map(|number| layout.unsigned(*kind, number)),
            'c' => {
                let byte = value.first();
                byte.map(|byte| layout.padded(&char::from(*byte).to_string(), 1))
            }
            'p' => unsigned(value, value.len()).map(|number| layout.pointer(number)),
            's' => {
                let end = value.iter().position(|byte| *byte == 0);
                Some(layout.string(&value[..end.unwrap_or(value.len())]))
            }
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                float(value).map(|number| layout.float(*kind, number))
            }
            _ => None,
        });
        text.unwrap_or_else(|| format!("%{flags}{}{kind}", self.length))
    }

    /// How many bytes of a value count.
    fn bytes(&self) -> usize {
        match self.length {
            "hh" => 1,
            "h" => 2,
            _ => 8,
        }
    }
}

/// A number of 1, 2, 4 or 8 bytes, of which a length of `hh` or `h` leaves the lower ones.
fn signed(value: &[u8], length: &str) -> Option<i64> {
    let number = match *value {
        [a] => i8::from_le_bytes([a]).into(),
        [a, b] => i16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => i32::from_le_bytes([a, b, c, d]).into(),
        _ => i64::from_le_bytes(value.try_into().ok()?),
    };
    Some(match length {
        "hh" => (number as i8).into(),
        "h" => (number as i16).into(),
        _ => number,
    })
}

/// Of a number the lower `bytes` bytes.
fn unsigned(value: &[u8], bytes: usize) -> Option<u64> {
    let number = signed(value, "")? as u64;
    Some(match bytes {
        1 => (number as u8).into(),
        2 => (number as u16).into(),
        4 => (number as u32).into(),
        _ => number,
    })
}

fn float(value: &[u8]) -> Option<f64> {
    match *value {
        // Of vectors alone: compilers make a double of a half by itself.
        [a, b] => Some(half(u16::from_le_bytes([a, b]))),
        [a, b, c, d] => Some(f32::from_le_bytes([a, b, c, d]).into()),
        _ => Some(f64::from_le_bytes(value.try_into().ok()?)),
    }
}

/// The number of 16 bits: a sign, 5 bits of an exponent that is 15 too large, 10 of a fraction.
fn half(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    let size = match i32::from(bits >> 10 & 0x1f) {
        0 => fraction * 2f64.powi(-14),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        exponent => (1.0 + fraction) * 2f64.powi(exponent - 15),
    };
    size.copysign(if bits >> 15 == 0 { 1.0 } else { -1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record's text.
    fn of(line: &str, values: &[&[u8]]) -> String {
        let format = Format::parse(line).expect("a format");
        let mut record = format.id.to_le_bytes().to_vec();
        record.extend(values.concat());
        let (text, whole) = print(&[format], &record);
        assert!(whole, "{line}");
        text
    }

    #[test]
    fn values_are_printed_as_c_does() {
        let (seven, minus, half) = (&7u32.to_le_bytes(), &(-1i32).to_le_bytes(), 0.5f32);
        let half = &half.to_le_bytes();
        assert_eq!(
            of(
                r"2:4:4:8:4:8:item %u of %s\72 %5.2f %lx 100%%\n",
                &[seven, b"hello\0\0\0", half, &0xabcu64.to_le_bytes()]
            ),
            "item 7 of hello:  0.50 abc 100%\n"
        );
        assert_eq!(of("1:0:none", &[]), "none");
        assert_eq!(of("1:2:4:4:%d|%-4d|", &[minus, seven]), "-1|7   |");
        assert_eq!(of("1:2:4:4:%x %hhx", &[minus, minus]), "ffffffff ff");
        assert_eq!(of("1:2:4:4:%hu%+i", &[minus, seven]), "65535+7");
        assert_eq!(
            of("1:2:4:8:%c%p", &[b"x\0\0\0", &16u64.to_le_bytes()]),
            "x0x10"
        );
        assert_eq!(of("1:1:8:%.1e", &[&1.5f64.to_le_bytes()]), "1.5e+00");
        assert_eq!(
            of("1:1:16:%v3hld;", &[seven, minus, seven, minus]),
            "7,-1,7;"
        );
        assert_eq!(of("1:1:8:%v2hlf", &[half, half]), "0.500000,0.500000");
        assert_eq!(of("1:1:4:%v2hx", &[minus]), "ffff,ffff");
        // What there is no way to print.
        assert_eq!(of("1:1:8:%a %q", &[&[0; 8]]), "%a %q");
        assert_eq!(of("1:0:%d 5%", &[]), "%d 5%");
    }

    /// As clang passes them: a vector of halves as it is.
    #[test]
    fn halves_of_a_vector_are_numbers() {
        let of = |format: &str, halves: &[u16]| {
            let bytes: Vec<_> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
            of(&format!("1:1:{}:{format}", bytes.len()), &[&bytes])
        };
        assert_eq!(of("%v2hf", &[0x3c00, 0xc000]), "1.000000,-2.000000");
        let four = [0x7bff, 0x0001, 0x83ff, 0x8000];
        assert_eq!(of("%v4hg", &four), "65504,5.96046e-08,-6.09756e-05,-0");
        assert_eq!(
            of("%v3hg", &[0x3555, 0x7c00, 0xfc00, 7]),
            "0.333252,inf,-inf"
        );
        assert_eq!(of("%v2hg", &[0x7e00, 0x3800]), "nan,0.5");
    }

    #[test]
    fn plain_values_are_plain() {
        let float =
            |format: &str, value: f64| of(&format!("1:1:8:{format}"), &[&value.to_le_bytes()]);
        assert_eq!(float("%g", 0.0), "0");
        assert_eq!(float("%e", 0.0), "0.000000e+00");
        assert_eq!(float("%g", 10.0), "10");
        assert_eq!(float("%.20f", 0.5), "0.50000000000000000000");
        let least = i64::MIN.to_le_bytes();
        assert_eq!(of("1:1:8:%ld", &[&least]), "-9223372036854775808");
        let seven = 7u32.to_le_bytes();
        assert_eq!(of("1:2:4:4:%.3d %.8x", &[&seven, &seven]), "007 00000007");
    }

    /// Nor is there a way to print what is made to exhaust memory: the next value is still its own.
    #[test]
    fn widths_have_a_limit() {
        let seven = &7u32.to_le_bytes();
        let most = "99999999999999999999999";
        for wide in ["4097", "2000000000", most, ".2000000000", "9.4097"] {
            for kind in ["d", "x", "c", "s", "p"] {
                let line = format!("1:2:4:4:%-{wide}{kind}|%d");
                assert_eq!(of(&line, &[seven, seven]), format!("%-{wide}{kind}|7"));
            }
        }
        assert_eq!(of("1:1:4:%4096d", &[seven]).len(), 4096);
    }

    #[test]
    fn a_format_is_a_number_sizes_and_a_text() {
        for wrong in [
            "",
            "1",
            "1:1:%d",
            "0:0:x",
            "x:0:",
            "1:1:99999999999:%d",
            "1:-1:x",
        ] {
            assert_eq!(Format::parse(wrong), None, "{wrong}");
        }
        assert_eq!(unescaped(r"a\72b\n\\q\"), "a:b\n\\\\q\\");
        let all = |lines: &[&str]| {
            let lines: Vec<Value> = lines.iter().map(|line| Value::from(*line)).collect();
            Format::all(&Value::Map(vec![("amdhsa.printf".into(), lines.into())]))
        };
        let count = |lines| all(lines).expect("formats").map(|formats| formats.len());
        assert_eq!(count(&["1:0:a"]), Some(1));
        assert!(all(&["a"]).is_err());
        // HIP's, with a hash of the text, which is not a call's number.
        assert_eq!(count(&[r"0:0:1a2b3c4d5e6f,%d\n"]), None);
        assert_eq!(
            count(&["1:0:a", r#"0:0:ffffffff,"Non const format string""#]),
            None
        );
        let none = Format::all(&Value::Map(Vec::new())).expect("none");
        assert_eq!(none.map(|formats| formats.len()), Some(0));
    }

    #[test]
    fn what_found_no_room_is_lost() {
        let formats =
            ["1:0:a", "2:1:6:%s", "3:1:4:%u"].map(|line| Format::parse(line).expect("it"));
        assert!(!is_full(&formats, 0, 4096) && !is_full(&formats, 4096 - 12, 4096));
        // One that took no place for it, and one that did.
        assert!(is_full(&formats, 4096 - 8, 4096) && is_full(&formats, 4096 - 4, 4096));
        assert!(is_full(&formats, 4096, 4096) && is_full(&formats, 5000, 4096));
        assert!(!is_full(&[], 4096, 4096) && is_full(&[], 4097, 4096));
    }

    #[test]
    fn what_is_not_whole_ends_it() {
        let formats = [Format::parse("1:1:4:%u ").expect("one")];
        let whole = [1u32, 5, 1, 6].map(u32::to_le_bytes).concat();
        assert_eq!(print(&formats, &whole), ("5 6 ".into(), true));
        for cut in [15, 12, 9] {
            assert_eq!(print(&formats, &whole[..cut]), ("5 ".into(), false));
        }
        for other in [0u32, 2] {
            let records = [1, 5, other, 6].map(u32::to_le_bytes).concat();
            assert_eq!(print(&formats, &records), ("5 ".into(), false));
        }
    }
}
