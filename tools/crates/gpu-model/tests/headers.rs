// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Compares every register the model declares with AMD's headers: name, segment and offset. The
//! headers are those of the kernel source that the module is built with.

#[path = "support/kernel_tree.rs"]
mod kernel_tree;

use std::collections::HashMap;
use std::path::Path;

/// A header's registers: segment and offset to the names there.
fn registers(path: &Path) -> HashMap<(u8, u32), Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut offsets = HashMap::new();
    let mut segments = HashMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some("#define"), Some(name), Some(value)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let name = name.trim_start_matches("reg").trim_start_matches("mm");
        match name.strip_suffix("_BASE_IDX") {
            Some(name) => drop(segments.insert(name.to_string(), value.parse::<u8>().unwrap())),
            None => {
                let digits = value.trim_start_matches("0x");
                if let Ok(offset) = u32::from_str_radix(digits, 16) {
                    offsets.insert(name.to_string(), offset);
                }
            }
        }
    }
    let mut places: HashMap<_, Vec<_>> = HashMap::new();
    for (name, offset) in offsets {
        if let Some(&segment) = segments.get(&name) {
            places.entry((segment, offset)).or_default().push(name);
        }
    }
    places
}

/// A name without its digits: what the elements of an array have in common.
fn stem(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[test]
fn declared_registers_are_where_amds_headers_have_them() {
    let headers = kernel_tree::kernel_tree().join("drivers/gpu/drm/amd/include/asic_reg");
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (header, table) in gpu_model::register_tables() {
        let known = registers(&headers.join(format!("{header}_offset.h")));
        for register in table {
            for index in 0..register.count {
                let at = register.offset + u32::from(index * register.step);
                let empty = Vec::new();
                let names = known.get(&(register.segment, at)).unwrap_or(&empty);
                let alike = |name: &String| stem(name) == stem(register.name);
                let fits = match index {
                    0 => names.iter().any(|name| name == register.name),
                    _ if register.name.contains('0') => names.iter().any(alike),
                    // A run of registers with names of their own, and holes: the last one is there.
                    _ => index + 1 < register.count || !names.is_empty(),
                };
                compared += 1;
                if !fits {
                    wrong.push(format!("{header} {}[{index}]: {names:?}", register.name));
                }
            }
        }
    }
    assert!(compared > 500, "only {compared} registers compared");
    assert!(
        wrong.is_empty(),
        "{} of {compared}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
