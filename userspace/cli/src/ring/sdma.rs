// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Packets of the copy engine (SDMA 4): opcode in bits 7:0 of the header, sub-opcode in 15:8. Names
//! and layouts as in `linux:drivers/gpu/drm/amd/amdgpu/vega10_sdma_pkt_open.h`.

use super::{address, Decoded};

/// Opcode, name, length in words; a length of 0 is in the packet itself.
const OPCODES: &[(u32, &str, usize)] = &[
    (0, "NOP", 0),
    (1, "COPY", 7),
    (2, "WRITE", 0),
    (4, "INDIRECT", 6),
    (5, "FENCE", 4),
    (6, "TRAP", 2),
    (7, "SEM", 3),
    (8, "POLL_REGMEM", 6),
    (9, "COND_EXE", 5),
    (10, "ATOMIC", 8),
    (11, "CONST_FILL", 5),
    (12, "PTEPDE", 10),
    (13, "TIMESTAMP", 3),
    (14, "SRBM_WRITE", 3),
    (15, "PRE_EXE", 2),
];

/// Decodes the packet that `words` begin with.
pub fn decode(words: &[u32]) -> Decoded {
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    let (opcode, sub) = (word(0) & 0xff, word(0) >> 8 & 0xff);
    let Some((_, name, length)) = OPCODES.iter().find(|(number, ..)| *number == opcode) else {
        return (format!("opcode {opcode:#x}"), Vec::new(), 4);
    };
    let fields = match opcode {
        1 if sub == 0 => vec![
            ("bytes", (u64::from(word(1) & 0x3fff_ffff) + 1).to_string()),
            ("from", address(words, 3)),
            ("to", address(words, 5)),
        ],
        2 if sub == 0 => vec![
            ("to", address(words, 1)),
            ("words", count(word(3)).to_string()),
        ],
        4 => vec![("ib", address(words, 1)), ("words", word(3).to_string())],
        5 => vec![
            ("to", address(words, 1)),
            ("data", format!("{:#x}", word(3))),
        ],
        6 => vec![("context", format!("{:#x}", word(1)))],
        8 => vec![
            ("at", address(words, 1)),
            ("value", format!("{:#x}", word(3))),
            ("mask", format!("{:#x}", word(4))),
        ],
        10 => vec![
            ("operation", format!("{:#x}", word(0) >> 25)),
            ("at", address(words, 1)),
            ("data", address(words, 3)),
        ],
        11 => vec![
            ("to", address(words, 1)),
            ("data", format!("{:#x}", word(3))),
            ("bytes", (u64::from(word(4) & 0x3fff_ffff) + 1).to_string()),
        ],
        13 => vec![("to", address(words, 1))],
        _ => Vec::new(),
    };
    let length = match opcode {
        0 => 1 + (word(0) >> 16 & 0x3fff) as usize,
        2 => 4 + count(word(3)) as usize,
        _ => *length,
    };
    let name = match (opcode, sub) {
        (1 | 2, 0) => format!("{name}_LINEAR"),
        (_, 0) | (0 | 10, _) => (*name).to_owned(),
        _ => format!("{name}.{sub}"),
    };
    (name, fields, length * 4)
}

/// `WRITE_LINEAR` counts from 0.
fn count(word: u32) -> u32 {
    (word & 0xf_ffff) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_tells_from_where_to_where() {
        let (name, fields, size) = decode(&[1, 4095, 0, 0x1000, 1, 0x2000, 2]);
        assert_eq!((name.as_str(), size), ("COPY_LINEAR", 28));
        assert!(fields.contains(&("bytes", "4096".into())));
        assert!(fields.contains(&("from", "0x100001000".into())));
        assert!(fields.contains(&("to", "0x200002000".into())));
    }

    #[test]
    fn a_filler_has_the_length_it_says() {
        assert_eq!(decode(&[3 << 16]).2, 16);
        assert_eq!(decode(&[2, 0, 0, 7]).2, 48);
    }
}
