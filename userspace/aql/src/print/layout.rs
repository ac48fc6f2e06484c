// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Layout`]: the flags, width and precision of a conversion, and what they make of a value. As C
//! has it (C17, 7.21.6.1), but for what is beyond [`WIDEST`].

/// The largest width and precision: C guarantees 4095 characters. Formats come out of files, and
/// none may have the host make gigabytes of one value.
const WIDEST: usize = 4096;
pub(super) const FLAGS: [char; 5] = ['-', '+', ' ', '#', '0'];

/// How a value is to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout<'a> {
    flags: &'a str,
    width: usize,
    precision: Option<usize>,
}

impl<'a> Layout<'a> {
    /// Of `-08.3` and the like; nothing where that is too wide.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let numbers = text.trim_start_matches(FLAGS);
        let number = |digits: &str| match digits {
            "" => Some(0),
            digits => digits.parse().ok().filter(|number| *number <= WIDEST),
        };
        let (width, precision) = match numbers.split_once('.') {
            Some((width, precision)) => (width, Some(number(precision)?)),
            None => (numbers, None),
        };
        Some(Self {
            flags: &text[..text.len() - numbers.len()],
            width: number(width)?,
            precision,
        })
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }

    /// `text`, which has `length` bytes on the GPU, with spaces up to the width.
    pub(super) fn padded(&self, text: &str, length: usize) -> String {
        let spaces = " ".repeat(self.width.saturating_sub(length));
        match self.has('-') {
            true => format!("{text}{spaces}"),
            false => format!("{spaces}{text}"),
        }
    }

    /// As many of a string's bytes as the precision leaves.
    pub(super) fn string(&self, bytes: &[u8]) -> String {
        let bytes = &bytes[..self.precision.unwrap_or(bytes.len()).min(bytes.len())];
        self.padded(&String::from_utf8_lossy(bytes), bytes.len())
    }

    /// `%d` and `%i`.
    pub(super) fn signed(&self, number: i64) -> String {
        let digits = self.digits(number.unsigned_abs().to_string());
        self.filled(self.sign(number < 0), "", &digits, self.precision.is_none())
    }

    /// `%u`, `%o`, `%x` or `%X`.
    pub(super) fn unsigned(&self, kind: char, number: u64) -> String {
        let digits = self.digits(match kind {
            'o' => format!("{number:o}"),
            'x' => format!("{number:x}"),
            'X' => format!("{number:X}"),
            _ => number.to_string(),
        });
        let (digits, prefix) = match kind {
            'o' if self.has('#') && !digits.starts_with('0') => (format!("0{digits}"), ""),
            'x' if self.has('#') && number != 0 => (digits, "0x"),
            'X' if self.has('#') && number != 0 => (digits, "0X"),
            _ => (digits, ""),
        };
        self.filled("", prefix, &digits, self.precision.is_none())
    }

    /// `%p`, as glibc shows it.
    pub(super) fn pointer(&self, address: u64) -> String {
        let text = match address {
            0 => "(nil)".to_owned(),
            address => format!("{address:#x}"),
        };
        self.padded(&text, text.len())
    }

    /// `%e`, `%f`, `%g` or one of these in capitals.
    pub(super) fn float(&self, kind: char, number: f64) -> String {
        let (size, precision) = (number.abs(), self.precision.unwrap_or(6));
        let text = match kind.to_ascii_lowercase() {
            _ if size.is_nan() => "nan".into(),
            _ if size.is_infinite() => "inf".into(),
            'e' => self.scientific(size, precision),
            'f' => self.fixed(size, precision),
            _ => self.shorter(size, precision.max(1)),
        };
        let text = match kind.is_ascii_uppercase() {
            true => text.to_ascii_uppercase(),
            false => text,
        };
        self.filled(
            self.sign(number.is_sign_negative()),
            "",
            &text,
            size.is_finite(),
        )
    }

    fn fixed(&self, size: f64, precision: usize) -> String {
        let point = if self.has('#') && precision == 0 {
            "."
        } else {
            ""
        };
        format!("{size:.precision$}{point}")
    }

    /// The exponent has at least two digits.
    fn scientific(&self, size: f64, precision: usize) -> String {
        let (digits, exponent) = scientific(size, precision);
        let point = if self.has('#') && precision == 0 {
            "."
        } else {
            ""
        };
        format!("{digits}{point}e{exponent:+03}")
    }

    /// `precision` digits in all, of which zeros behind the point are left out: with an exponent
    /// where they would not reach the point, or more than four zeros follow it.
    fn shorter(&self, size: f64, precision: usize) -> String {
        let (_, exponent) = scientific(size, precision - 1);
        let text = match usize::try_from(precision as i64 - 1 - exponent) {
            Ok(behind) if exponent >= -4 => self.fixed(size, behind),
            _ => self.scientific(size, precision - 1),
        };
        if self.has('#') || !text.contains('.') {
            return text;
        }
        let (digits, exponent) = text.split_at(text.find('e').unwrap_or(text.len()));
        let digits = digits.trim_end_matches('0').trim_end_matches('.');
        format!("{digits}{exponent}")
    }

    /// What precedes a number.
    fn sign(&self, is_negative: bool) -> &'static str {
        match () {
            () if is_negative => "-",
            () if self.has('+') => "+",
            () if self.has(' ') => " ",
            () => "",
        }
    }

    /// At least as many digits as the precision says, and none of a 0 where it is 0.
    fn digits(&self, digits: String) -> String {
        match self.precision {
            Some(0) if digits == "0" => String::new(),
            precision => format!("{digits:0>width$}", width = precision.unwrap_or(1)),
        }
    }

    /// The whole with spaces, or with zeros before the digits, up to the width.
    fn filled(&self, sign: &str, prefix: &str, digits: &str, may_have_zeros: bool) -> String {
        let length = sign.len() + prefix.len() + digits.len();
        if self.has('0') && !self.has('-') && may_have_zeros {
            let zeros = "0".repeat(self.width.saturating_sub(length));
            return format!("{sign}{prefix}{zeros}{digits}");
        }
        self.padded(&format!("{sign}{prefix}{digits}"), length)
    }
}

/// The digits of `d.ddd` with `precision` of them behind the point, and the power of ten. std
/// rounds the exact value, ties to even, as glibc does.
fn scientific(size: f64, precision: usize) -> (String, i64) {
    let text = format!("{size:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.to_owned(), exponent.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::libc;
    use std::ffi::CString;

    #[derive(Clone, Copy, Debug)]
    enum Number {
        Int(i64),
        Float(f64),
    }

    /// What glibc makes of a value.
    fn glibc(format: &str, value: Number) -> String {
        let format = CString::new(format).expect("no NUL in it");
        let mut text = vec![0u8; 8192];
        let (at, size, format) = (text.as_mut_ptr().cast(), text.len(), format.as_ptr());
        // SAFETY: the format has one conversion, of the value's type; `text` has `size` bytes.
        let length = unsafe {
            match value {
                Number::Int(value) => libc::snprintf(at, size, format, value),
                Number::Float(value) => libc::snprintf(at, size, format, value),
            }
        };
        text.truncate(usize::try_from(length).expect("no error"));
        String::from_utf8(text).expect("ASCII")
    }

    fn ours(layout: &str, kind: char, value: Number) -> String {
        let layout = Layout::parse(layout).expect("not too wide");
        match (kind, value) {
            ('d', Number::Int(number)) => layout.signed(number),
            ('p', Number::Int(number)) => layout.pointer(number as u64),
            (_, Number::Int(number)) => layout.unsigned(kind, number as u64),
            (_, Number::Float(number)) => layout.float(kind, number),
        }
    }

    /// All flags with all widths and precisions: what glibc has otherwise.
    fn differences(kinds: &str, value: Number) -> Vec<String> {
        let mut differences = Vec::new();
        for (number, kind) in (0..32).flat_map(|number| kinds.chars().map(move |it| (number, it))) {
            let flags = FLAGS.iter().enumerate();
            let flags: String = flags
                .filter_map(|(bit, flag)| (number >> bit & 1 == 1).then_some(*flag))
                .collect();
            for width in ["", "1", "9", "30"] {
                for precision in ["", ".", ".1", ".3", ".8", ".20", ".40"] {
                    let layout = format!("{flags}{width}{precision}");
                    let length = if matches!(value, Number::Int(_)) {
                        "l"
                    } else {
                        ""
                    };
                    let (ours, theirs) = (
                        ours(&layout, kind, value),
                        glibc(&format!("%{layout}{length}{kind}"), value),
                    );
                    if ours != theirs {
                        differences.push(format!(
                            "%{layout}{kind} of {value:?}: {ours:?} for {theirs:?}"
                        ));
                    }
                }
            }
        }
        differences
    }

    /// Numbers that look random.
    fn numbers() -> impl Iterator<Item = u64> {
        let next = |number: &u64| {
            let next = number.wrapping_mul(6_364_136_223_846_793_005);
            Some(next.wrapping_add(1_442_695_040_888_963_407))
        };
        std::iter::successors(Some(1), next).take(30)
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks glibc")]
    fn integers_are_as_glibcs() {
        let some = [
            0,
            1,
            7,
            8,
            -1,
            255,
            1 << 31,
            123_456_789_012,
            i64::MAX,
            i64::MIN,
        ];
        for value in some
            .into_iter()
            .chain(numbers().map(|number| number as i64))
        {
            let differ = differences("duoxX", Number::Int(value));
            assert!(differ.is_empty(), "{differ:#?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks glibc")]
    fn floats_are_as_glibcs() {
        let mut values = vec![
            0.0, 1.0, 2.0, 10.0, 0.1, 0.125, 0.5, 1.5, 2.5, 1e6, 1e5, 999_999.5,
        ];
        values.extend([
            123_456.789,
            1e-4,
            1e-5,
            9.995e-5,
            1e20,
            1e23,
            1e100,
            1.0 / 3.0,
        ]);
        values.extend([f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::INFINITY, f64::NAN]);
        values.extend(numbers().map(f64::from_bits));
        values.extend(numbers().map(|number| number as f32 as f64 / 4096.0));
        for value in values.into_iter().flat_map(|value| [value, -value]) {
            let mut differ = differences("eEfFgG", Number::Float(value));
            // glibc 2.36 leaves out the zeros of `%#g` where rounding adds a digit before the
            // point, which C does not permit.
            differ.retain(|it| value.abs() != 999_999.5 || !it.contains('#'));
            assert!(differ.is_empty(), "{differ:#?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks glibc")]
    fn pointers_are_as_glibcs() {
        for value in [0, 1, i64::MIN] {
            for layout in ["", "20", "-20"] {
                let value = Number::Int(value);
                assert_eq!(
                    ours(layout, 'p', value),
                    glibc(&format!("%{layout}p"), value)
                );
            }
        }
    }

    #[test]
    fn strings_have_bytes() {
        let shown = |layout| {
            let layout = Layout::parse(layout).expect("not too wide");
            layout.string("ab\u{e9}d".as_bytes())
        };
        assert_eq!([shown("7"), shown("-7")], ["  ab\u{e9}d", "ab\u{e9}d  "]);
        assert_eq!([shown(".2"), shown("-5.3")], ["ab", "ab\u{fffd}  "]);
    }
}
