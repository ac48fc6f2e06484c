// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Layouts of what lies in memory: packets, descriptors, interrupt entries. Each is a table that
//! names AMD's fields and the header that has them, and the code picks fields by these names, so
//! `tests/layouts.rs` compares what the model uses with the header. Pure.

use crate::processor::packet::field;

/// A field: some bits of a dword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// AMD's name, in capitals.
    pub name: &'static str,
    /// Which dword.
    pub dword: usize,
    /// Its lowest bit.
    pub shift: u32,
    /// How many bits.
    pub width: u32,
    /// Why it is not as the header has it.
    pub unlike: Option<&'static str>,
}

impl Field {
    /// Its bits in their place.
    pub const fn mask(self) -> u32 {
        (u32::MAX >> (32 - self.width)) << self.shift
    }

    /// Its value in the dword that has it.
    pub const fn pick(self, dword: u32) -> u32 {
        field(dword, self.shift, self.width)
    }

    /// A value in its place; what is too large loses its high bits.
    pub const fn place(self, value: u32) -> u32 {
        (value << self.shift) & self.mask()
    }

    /// A dword with this value in it.
    pub const fn replace(self, dword: u32, value: u32) -> u32 {
        dword & !self.mask() | self.place(value)
    }

    /// Its value.
    pub const fn of(self, dwords: &[u32]) -> u32 {
        self.pick(dwords[self.dword])
    }

    /// Whether it is not 0.
    pub const fn is_set(self, dwords: &[u32]) -> bool {
        self.of(dwords) != 0
    }

    /// 64 bits, of which this is the low half: the bits below the field are 0, the high half is
    /// the next dword.
    pub const fn wide(self, dwords: &[u32]) -> u64 {
        let high = (dwords[self.dword + 1] as u64) << 32;
        high | (dwords[self.dword] & self.mask()) as u64
    }
}

/// Where AMD's headers have a layout. Headers are named from `drivers/gpu/drm/amd`.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// A C structure of dwords and bit fields.
    Struct(&'static str, &'static str),
    /// Macros `PREFIX_FIELD(x)` or `PREFIX__FIELD(x)` that shift, and some that mask, a value. They
    /// do not say which dword it is.
    Place(&'static str, &'static str),
    /// `PREFIX_*_field_offset`, `_mask` and `_shift`.
    Offset(&'static str, &'static str),
    /// `REGISTER__FIELD__SHIFT` and `REGISTER__FIELD_MASK`.
    Register(&'static str, &'static str),
    /// `PREFIX_FIELD_FROM_IH_ENTRY(entry)`.
    Entry(&'static str, &'static str),
}

/// A packet, a descriptor or another thing with fields.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// What it is called here.
    pub name: &'static str,
    /// Where AMD has it. A field is in at least one of them, and the same in all that have it.
    pub sources: &'static [Source],
    /// The header's dwords before the first one that is counted here.
    pub first: usize,
    /// What the model uses of it.
    pub fields: &'static [Field],
}

/// Constants of an enumeration, or macros with a common prefix.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// What they are called here.
    pub name: &'static str,
    /// The header.
    pub header: &'static str,
    /// What AMD's names begin with.
    pub prefix: &'static str,
    /// Name after the prefix, in any case, and value.
    pub values: &'static [(&'static str, u32)],
}

/// Declares layouts, a module of [`Field`]s each, and the table of them, `LAYOUTS`: `name from
/// [sources] after FIRST { FIELD = dword: lowest bit, width; }`, and after a field that is not as
/// in the header the reason: `unlike "..."`.
macro_rules! layouts {
    ($(
        $(#[$doc:meta])*
        $module:ident from [$($source:expr),*] after $first:literal {
            $($field:ident = $dword:literal: $shift:literal, $width:literal
                $(unlike $why:literal)?;)*
        }
    )*) => {
        $(
            $(#[$doc])*
            pub mod $module {
                use $crate::layout::Field;
                $(pub const $field: Field = Field {
                    name: stringify!($field),
                    dword: $dword,
                    shift: $shift,
                    width: $width,
                    unlike: $crate::layout::layouts!(@why $($why)?),
                };)*
            }
        )*
        /// All of them, for a comparison with AMD's headers.
        pub const LAYOUTS: &[$crate::layout::Layout] = &[$($crate::layout::Layout {
            name: stringify!($module),
            sources: &[$($source),*],
            first: $first,
            fields: &[$($module::$field),*],
        },)*];
    };
    (@why) => { None };
    (@why $why:literal) => { Some($why) };
}

/// Declares constants, a module for each [`Values`], and the table of them, `VALUES`: `name: TYPE
/// from "header" "prefix" { NAME = value; }`.
macro_rules! values {
    ($(
        $(#[$doc:meta])*
        $module:ident: $type:ident from $header:literal $prefix:literal {
            $($(#[$what:meta])* $name:ident = $value:literal;)*
        }
    )*) => {
        $(
            $(#[$doc])*
            pub mod $module {
                $($(#[$what])* pub const $name: $type = $value;)*
            }
        )*
        /// All of them, for a comparison with AMD's headers.
        pub const VALUES: &[$crate::layout::Values] = &[$($crate::layout::Values {
            name: stringify!($module),
            header: $header,
            prefix: $prefix,
            values: &[$((stringify!($name), $module::$name as u32)),*],
        },)*];
    };
}

/// Declares a module of places, and the table of them with their names.
macro_rules! places {
    ($(#[$doc:meta])* $module:ident, $table:ident: $($name:ident = $place:literal;)*) => {
        $(#[$doc])*
        pub mod $module {
            $(pub const $name: usize = $place;)*
        }

        /// The same, for a comparison with AMD's headers.
        pub const $table: &[(&str, usize)] = &[$((stringify!($name), $place),)*];
    };
}

pub(crate) use {layouts, places, values};

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: Field = Field {
        name: "MIDDLE",
        dword: 1,
        shift: 2,
        width: 30,
        unlike: None,
    };

    #[test]
    fn a_field_is_picked_and_placed() {
        let dwords = [0, 0xffff_fffb, 7];
        assert_eq!(MIDDLE.of(&dwords), 0x3fff_fffe);
        assert_eq!(MIDDLE.wide(&dwords), 0x7_ffff_fff8);
        assert_eq!(MIDDLE.place(1), 4);
        assert_eq!(MIDDLE.replace(3, 0x4000_0001), 7);
        assert!(MIDDLE.is_set(&dwords) && !MIDDLE.is_set(&[0, 3]));
    }
}
