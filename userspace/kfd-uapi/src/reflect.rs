// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The interface as data: names, offsets and sizes of all fields, and all constants by name.
//!
//! The tables are made from the same bindings as the structs, so that nothing of the interface can
//! be missing here.

/// A struct or union of the interface.
#[derive(Debug)]
pub struct Struct {
    /// The header's name, such as `kfd_ioctl_create_queue_args`.
    pub name: &'static str,
    /// Its size in bytes, without a flexible array at its end.
    pub size: usize,
    /// Whether its fields share one place.
    pub is_union: bool,
    /// Its fields in the header's order.
    pub fields: &'static [Field],
}

/// One field of a [`Struct`].
#[derive(Debug)]
pub struct Field {
    /// The header's name; empty for an anonymous union.
    pub name: &'static str,
    /// Where it lies, in bytes.
    pub offset: usize,
    /// What it holds.
    pub kind: Kind,
}

/// What a field holds.
#[derive(Debug)]
pub enum Kind {
    /// 32 bits.
    Word,
    /// 64 bits.
    Long,
    /// So many of one kind.
    Array(&'static Kind, usize),
    /// A [`Struct`], by its name.
    Struct(&'static str),
    /// A flexible array at the end of its struct.
    Tail,
}

/// One `#define` or enumerator of the interface.
#[derive(Debug)]
pub struct Constant {
    /// The header's name.
    pub name: &'static str,
    /// Its value.
    pub value: u32,
}

macro_rules! kind {
    (Word) => {
        Kind::Word
    };
    (Long) => {
        Kind::Long
    };
    (Tail) => {
        Kind::Tail
    };
    ((Struct $name:ident)) => {
        Kind::Struct(stringify!($name))
    };
    ([$element:tt; $count:expr]) => {
        Kind::Array(&kind!($element), $count)
    };
}

macro_rules! structs {
    ($($form:ident $owner:ident { $($field:ident $name:literal $kind:tt;)* })*) => {
        /// Every struct and union of the interface.
        pub static STRUCTS: &[Struct] = &[$(Struct {
            name: stringify!($owner),
            size: size_of::<crate::$owner>(),
            is_union: is_union!($form),
            fields: &[$(Field {
                name: $name,
                offset: std::mem::offset_of!(crate::$owner, $field),
                kind: kind!($kind),
            }),*],
        }),*];
    };
}

macro_rules! is_union {
    (struct) => {
        false
    };
    (union) => {
        true
    };
}

macro_rules! constants {
    ($($name:ident)*) => {
        /// Every constant of the interface, as its 32 bits.
        pub static CONSTANTS: &[Constant] =
            &[$(Constant { name: stringify!($name), value: crate::$name as u32 }),*];
    };
}

/// What `examples/generate.rs` wrote.
#[allow(clippy::unnecessary_cast)]
mod tables;
pub use tables::{CONSTANTS, STRUCTS};

impl Struct {
    /// The struct or union called `name`.
    pub fn by_name(name: &str) -> Option<&'static Struct> {
        STRUCTS.iter().find(|known| known.name == name)
    }
}

/// The constants whose name starts with `prefix`, with the rest of their name.
pub fn constants(prefix: &str) -> impl Iterator<Item = (&'static str, u32)> + '_ {
    CONSTANTS
        .iter()
        .filter_map(move |known| Some((known.name.strip_prefix(prefix)?, known.value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_compiler_puts_them() {
        let found = Struct::by_name("kfd_ioctl_create_queue_args").expect("it is in the header");
        let field = found.fields.iter().find(|field| field.name == "queue_id");
        assert_eq!(
            field.expect("it has that field").offset,
            std::mem::offset_of!(crate::kfd_ioctl_create_queue_args, queue_id)
        );
        assert_eq!(found.size, size_of::<crate::kfd_ioctl_create_queue_args>());
    }

    #[test]
    fn every_struct_that_a_field_names_is_there() {
        for known in STRUCTS {
            for field in known.fields {
                if let Kind::Struct(name) = field.kind {
                    assert!(Struct::by_name(name).is_some(), "{}.{}", known.name, name);
                }
            }
        }
    }

    #[test]
    fn constants_are_found_by_prefix() {
        let vram = constants("KFD_IOC_ALLOC_MEM_FLAGS_").find(|(name, _)| *name == "VRAM");
        assert_eq!(vram, Some(("VRAM", crate::KFD_IOC_ALLOC_MEM_FLAGS_VRAM)));
    }
}
