// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! AQL packets: 64 bytes each, HSA platform system architecture 1.2, section 2.9.

use super::{address, words, Decoded};

const VENDOR: u32 = 0;
const INVALID: u32 = 1;
const KERNEL_DISPATCH: u32 = 2;
const BARRIER_AND: u32 = 3;
const AGENT_DISPATCH: u32 = 4;
const BARRIER_OR: u32 = 5;
/// The vendor packet's format for an indirect buffer of PM4 (`AMD_AQL_FORMAT_PM4_IB` in ROCr).
const PM4_IB: u32 = 1;

/// Decodes one packet.
pub fn decode(bytes: &[u8]) -> Decoded {
    let packet = words(bytes);
    let header = packet.first().copied().unwrap_or(INVALID);
    let (name, fields) = match header & 0xff {
        KERNEL_DISPATCH => ("KERNEL_DISPATCH".into(), dispatch(&packet)),
        BARRIER_AND => ("BARRIER_AND".into(), barrier(&packet)),
        BARRIER_OR => ("BARRIER_OR".into(), barrier(&packet)),
        AGENT_DISPATCH => ("AGENT_DISPATCH".into(), completion(&packet)),
        VENDOR if header >> 16 & 0xff == PM4_IB => ("VENDOR PM4_IB".into(), indirect(&packet)),
        VENDOR => (
            format!("VENDOR format {:#x}", header >> 16 & 0xff),
            completion(&packet),
        ),
        // The command processor marks what it has taken; the rest of the packet stays.
        INVALID if is_dispatch(&packet) => {
            ("INVALID (was KERNEL_DISPATCH)".into(), dispatch(&packet))
        }
        INVALID => ("INVALID".into(), Vec::new()),
        kind => (format!("type {kind}, which AQL does not have"), Vec::new()),
    };
    let mut all = Vec::new();
    if header & 0xff != INVALID {
        all.extend(flags(header));
    }
    all.extend(fields);
    (name, all, 64)
}

/// Whether the body can only be a dispatch's: a work-group, a grid and code.
fn is_dispatch(packet: &[u32]) -> bool {
    let word = |at: usize| packet.get(at).copied().unwrap_or(0);
    word(1) & 0xffff != 0 && word(3) != 0 && (word(8) | word(9)) != 0 && word(8) % 64 == 0
}

/// Header bit 8 and the fence scopes at 10:9 and 12:11.
fn flags(header: u32) -> Vec<(&'static str, String)> {
    let scope = |shift: u32| ["none", "agent", "system", "3"][(header >> shift & 3) as usize];
    let mut fields = Vec::new();
    if header & 0x100 != 0 {
        fields.push(("barrier", "1".to_owned()));
    }
    fields.push(("acquire", scope(9).to_owned()));
    fields.push(("release", scope(11).to_owned()));
    fields
}

fn dispatch(packet: &[u32]) -> Vec<(&'static str, String)> {
    let word = |at: usize| packet.get(at).copied().unwrap_or(0);
    let mut fields = vec![
        ("grid", format!("{}x{}x{}", word(3), word(4), word(5))),
        (
            "workgroup",
            format!(
                "{}x{}x{}",
                word(1) & 0xffff,
                word(1) >> 16,
                word(2) & 0xffff
            ),
        ),
        ("scratch", word(6).to_string()),
        ("lds", word(7).to_string()),
        ("kernel", address(packet, 8)),
        ("kernarg", address(packet, 10)),
    ];
    fields.extend(completion(packet));
    fields
}

fn barrier(packet: &[u32]) -> Vec<(&'static str, String)> {
    let signals: Vec<_> = (0..5)
        .map(|index| address(packet, 2 + 2 * index))
        .filter(|signal| signal != "0x0")
        .collect();
    let mut fields = vec![("dependencies", format!("[{}]", signals.join(", ")))];
    fields.extend(completion(packet));
    fields
}

/// `INDIRECT_BUFFER` in words 1 to 4 (`amd_aql_pm4_ib` in ROCr): header, address, size.
fn indirect(packet: &[u32]) -> Vec<(&'static str, String)> {
    let size = packet.get(4).copied().unwrap_or(0) & 0xf_ffff;
    let mut fields = vec![("ib", address(packet, 2)), ("words", size.to_string())];
    fields.extend(completion(packet));
    fields
}

fn completion(packet: &[u32]) -> Vec<(&'static str, String)> {
    vec![("completion", address(packet, 14))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(words: &[(usize, u32)]) -> Vec<u8> {
        let mut all = [0u32; 16];
        for (at, word) in words {
            all[*at] = *word;
        }
        all.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_dispatch_tells_its_sizes() {
        let bytes = packet(&[
            (0, 0x1502 | 1 << 16),
            (1, 256 | 1 << 16),
            (2, 1),
            (3, 4096),
            (4, 1),
            (5, 1),
            (8, 0x1000),
            (14, 0x2000),
        ]);
        let (name, fields, size) = decode(&bytes);
        assert_eq!((name.as_str(), size), ("KERNEL_DISPATCH", 64));
        let field = |name| fields.iter().find(|(known, _)| *known == name);
        assert_eq!(field("grid").map(|(_, v)| v.as_str()), Some("4096x1x1"));
        assert_eq!(field("workgroup").map(|(_, v)| v.as_str()), Some("256x1x1"));
        assert_eq!(field("acquire").map(|(_, v)| v.as_str()), Some("system"));
        assert_eq!(field("completion").map(|(_, v)| v.as_str()), Some("0x2000"));
    }

    #[test]
    fn a_dispatch_that_was_taken_is_still_told() {
        let bytes = packet(&[(0, 1), (1, 64), (3, 64), (8, 0x40)]);
        assert_eq!(decode(&bytes).0, "INVALID (was KERNEL_DISPATCH)");
        assert_eq!(decode(&packet(&[(0, 1)])).0, "INVALID");
    }

    #[test]
    fn a_barrier_names_those_it_waits_for() {
        let bytes = packet(&[(0, 0x1503), (2, 0x100), (8, 0x200)]);
        let (name, fields, _) = decode(&bytes);
        assert_eq!(name, "BARRIER_AND");
        assert!(fields.contains(&("dependencies", "[0x100, 0x200]".into())));
    }
}
