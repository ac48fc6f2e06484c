// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What PM4 and SDMA packets have in common: bit fields and comparisons. Pure.

/// A field of a packet dword: `width` bits from `shift` on.
pub const fn field(dword: u32, shift: u32, width: u32) -> u32 {
    (dword >> shift) & (u32::MAX >> (32 - width))
}

/// WAIT_REG_MEM.FUNCTION and SDMA POLL_REGMEM.FUNC: whether `value` compares as asked to
/// `reference`.
pub const fn compare(function: u32, value: u64, reference: u64) -> bool {
    match function {
        1 => value < reference,
        2 => value <= reference,
        3 => value == reference,
        4 => value != reference,
        5 => value >= reference,
        6 => value > reference,
        _ => true,
    }
}

/// Compares a section of `Documentation/packets.md` with a table of packets, of which each has its
/// name and whether it is modelled. Those that are not modelled need not be documented, except as
/// what they are.
#[cfg(test)]
pub fn check_documented(section: &str, table: &[(&str, bool)]) {
    let text = include_str!("../../../../../Documentation/packets.md");
    let begin = text.find(&format!("## {section}\n")).expect("the section");
    let section = text[begin + 3..].split("\n## ").next().unwrap_or_default();
    let mut documented = Vec::new();
    for row in section.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let yes = match cells[3].split([':', ',', ';']).next() {
            Some("yes" | "nothing") => true,
            Some("no") => false,
            _ => panic!("neither yes, nothing nor no: {row}"),
        };
        for name in cells[1].split(", ") {
            assert!(!documented.contains(&name), "{name} has two rows");
            let known = table.iter().find(|(it, _)| *it == name);
            let modelled = known.is_some_and(|(_, modelled)| *modelled);
            assert_eq!(modelled, yes, "{name}: the document says {}", cells[3]);
            documented.push(name);
        }
    }
    for (name, modelled) in table {
        assert!(!modelled || documented.contains(name), "{name} has no row");
    }
}
