// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The names of a program's kernels. ROCm's loader keeps a list of code objects for debuggers
//! (`struct r_debug` and `struct link_map` of the C library's link.h), whose address RUNTIME_ENABLE
//! tells the driver, and so us.

use crate::queues::Memory;
use object::{Object, ObjectSymbol};
use std::collections::{HashMap, HashSet};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;

/// `r_debug.r_map`; `link_map`'s load address, name and next one.
const MAP: u64 = 8;
const ADDRESS: u64 = 0;
const NAME: u64 = 8;
const NEXT: u64 = 24;
/// No code object is larger, and no list longer.
const LARGEST: u64 = 1 << 30;
const LONGEST: usize = 1 << 16;

/// What is known of a process's kernels.
#[derive(Debug, Default)]
pub struct Kernels {
    r_debug: u64,
    seen: HashSet<(u64, String)>,
    names: HashMap<u64, String>,
}

impl Kernels {
    /// Those of the loader's list at `r_debug`.
    pub fn of(r_debug: u64) -> Self {
        Self {
            r_debug,
            ..Self::default()
        }
    }

    /// The name of the kernel whose descriptor is at `object`.
    pub fn name(&mut self, object: u64, memory: &Memory) -> Option<String> {
        if !self.names.contains_key(&object) {
            self.read(memory);
        }
        self.names.get(&object).cloned()
    }

    /// Reads code objects that are new in the list.
    fn read(&mut self, memory: &Memory) -> Option<()> {
        let mut at = memory.u64(self.r_debug.checked_add(MAP)?)?;
        for _ in 0..LONGEST {
            if at == 0 {
                break;
            }
            let load = memory.u64(at + ADDRESS)?;
            let uri = text(memory, memory.u64(at + NAME)?);
            if self.seen.insert((load, uri.clone())) {
                for (offset, name) in code(&uri, memory).map_or_else(Vec::new, |code| named(&code))
                {
                    self.names.insert(load.wrapping_add(offset), name);
                }
            }
            at = memory.u64(at + NEXT)?;
        }
        Some(())
    }
}

/// The text at `address`.
fn text(memory: &Memory, address: u64) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while bytes.len() < 4096
        && memory
            .read(address + bytes.len() as u64, &mut byte)
            .is_some()
    {
        if byte[0] == 0 {
            break;
        }
        bytes.push(byte[0]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where a code object is: `file://PATH#offset=N&size=N`, or `memory://PID#offset=N&size=N`.
fn place(uri: &str) -> (&str, u64, Option<u64>) {
    let (path, fragment) = uri.split_once(['#', '?']).unwrap_or((uri, ""));
    let field = |name: &str| {
        let mut fields = fragment.split('&');
        let value = fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))?;
        match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => value.parse().ok(),
        }
    };
    (path, field("offset").unwrap_or(0), field("size"))
}

/// The code object's bytes.
fn code(uri: &str, memory: &Memory) -> Option<Vec<u8>> {
    let (path, offset, size) = place(uri);
    if path.starts_with("memory://") {
        let mut bytes = vec![0; size.filter(|size| *size <= LARGEST)? as usize];
        memory.read(offset, &mut bytes)?;
        return Some(bytes);
    }
    let path = decoded(path.strip_prefix("file://")?);
    let mut file = std::fs::File::open(std::ffi::OsStr::from_bytes(&path)).ok()?;
    file.seek(SeekFrom::Start(offset)).ok()?;
    let mut bytes = Vec::new();
    let size = size.unwrap_or(LARGEST).min(LARGEST);
    file.take(size).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// A path without the escapes of a URI, which are %XX.
fn decoded(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let digits = (*first == b'%').then(|| more.get(..2)).flatten();
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    bytes
}

/// Kernels by the offset of their descriptors, which are symbols NAME.kd.
fn named(code: &[u8]) -> Vec<(u64, String)> {
    let Ok(file) = object::File::parse(code) else {
        return Vec::new();
    };
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let kernels = symbols.filter_map(|symbol| {
        let name = symbol.name().ok()?.strip_suffix(".kd")?;
        Some((symbol.address(), plain(name)))
    });
    kernels.collect()
}

/// A name as its program's source has it, without parameters.
fn plain(name: &str) -> String {
    let options = cpp_demangle::DemangleOptions::new()
        .no_params()
        .no_return_type();
    let symbol = cpp_demangle::Symbol::new(name).ok();
    let text = symbol.and_then(|symbol| symbol.demangle(&options).ok());
    text.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        assert_eq!(plain("_Z4gemmPKfS0_PfiPVi"), "gemm");
        assert_eq!(plain("vadd"), "vadd");
    }

    #[test]
    fn uris_name_files_and_memory() {
        let uri = "file:///opt/a%20b/hip_gemm#offset=4096&size=0x2348";
        assert_eq!(
            place(uri),
            ("file:///opt/a%20b/hip_gemm", 4096, Some(0x2348))
        );
        assert_eq!(decoded("/opt/a%20b%zz%"), b"/opt/a b%zz%");
        let uri = "memory://140#offset=0x7f00&size=9";
        assert_eq!(place(uri), ("memory://140", 0x7f00, Some(9)));
    }

    #[test]
    fn a_list_in_memory_is_followed() {
        // r_debug, two entries, their names, in this process; the second is one of garbage.
        let object = std::env::current_exe().expect("a path");
        let names = [
            format!("file://{}\0", object.display()),
            "memory://1\0".into(),
        ];
        let mut maps = [[0u64; 5]; 2];
        for (map, name) in maps.iter_mut().zip(&names) {
            map[1] = name.as_ptr() as u64;
        }
        maps[0][3] = maps[1].as_ptr() as u64;
        let r_debug = [9, maps[0].as_ptr() as u64];
        let mut kernels = Kernels::of(r_debug.as_ptr() as u64);
        assert_eq!(kernels.name(0x40, &Memory::of(std::process::id())), None);
        assert_eq!(kernels.seen.len(), 2);
    }
}
