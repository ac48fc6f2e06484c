// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! PM4 packets: a header with opcode and length, then words. Opcodes by the names of
//! `linux:drivers/gpu/drm/amd/amdgpu/soc15d.h` (`PACKET3_*`).

use super::{address, Decoded};

const OPCODES: &[(u32, &str)] = &[
    (0x10, "NOP"),
    (0x11, "SET_BASE"),
    (0x12, "CLEAR_STATE"),
    (0x13, "INDEX_BUFFER_SIZE"),
    (0x15, "DISPATCH_DIRECT"),
    (0x16, "DISPATCH_INDIRECT"),
    (0x1d, "ATOMIC_GDS"),
    (0x1e, "ATOMIC_MEM"),
    (0x20, "SET_PREDICATION"),
    (0x22, "COND_EXEC"),
    (0x28, "CONTEXT_CONTROL"),
    (0x33, "INDIRECT_BUFFER_CONST"),
    (0x37, "WRITE_DATA"),
    (0x3c, "WAIT_REG_MEM"),
    (0x3f, "INDIRECT_BUFFER"),
    (0x40, "COPY_DATA"),
    (0x42, "PFP_SYNC_ME"),
    (0x46, "EVENT_WRITE"),
    (0x49, "RELEASE_MEM"),
    (0x50, "DMA_DATA"),
    (0x58, "ACQUIRE_MEM"),
    (0x59, "REWIND"),
    (0x68, "SET_CONFIG_REG"),
    (0x69, "SET_CONTEXT_REG"),
    (0x76, "SET_SH_REG"),
    (0x79, "SET_UCONFIG_REG"),
    (0x81, "WRITE_CONST_RAM"),
    (0x90, "FRAME_CONTROL"),
];

/// Decodes the packet that `words` begin with.
pub fn decode(words: &[u32]) -> Decoded {
    let header = words.first().copied().unwrap_or(0);
    if header >> 30 != 3 {
        // Type 2 is a filler of one word; type 0 writes registers.
        let count = (header >> 16 & 0x3fff) as usize;
        return match header >> 30 {
            2 => ("type 2 filler".into(), Vec::new(), 4),
            kind => (
                format!("type {kind} header {header:#x}"),
                Vec::new(),
                (count + 2) * 4,
            ),
        };
    }
    let (opcode, count) = (header >> 8 & 0xff, header >> 16 & 0x3fff);
    let known = OPCODES.iter().find(|(number, _)| *number == opcode);
    let name = known.map_or_else(
        || format!("PACKET3 {opcode:#x}"),
        |(_, name)| (*name).into(),
    );
    // A NOP of the largest count is one word: padding.
    if opcode == 0x10 && count == 0x3fff {
        return (name, Vec::new(), 4);
    }
    let size = (count as usize + 2) * 4;
    (name, fields(opcode, words, count as usize + 1), size)
}

fn fields(opcode: u32, words: &[u32], count: usize) -> Vec<(&'static str, String)> {
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    match opcode {
        0x15 => vec![("groups", format!("{}x{}x{}", word(1), word(2), word(3)))],
        0x37 => vec![
            ("to", address(words, 2)),
            ("words", (count - count.min(3)).to_string()),
        ],
        0x3c => vec![
            ("at", address(words, 2)),
            ("reference", format!("{:#x}", word(4))),
            ("mask", format!("{:#x}", word(5))),
        ],
        0x3f => vec![
            ("ib", address(words, 1)),
            ("words", (word(3) & 0xf_ffff).to_string()),
        ],
        0x49 => vec![
            ("event", format!("{:#x}", word(1) & 0x3f)),
            ("to", address(words, 3)),
            ("data", address(words, 5)),
        ],
        0x68 | 0x69 | 0x76 | 0x79 => {
            let values: Vec<_> = (2..=count.min(9))
                .map(|at| format!("{:#x}", word(at)))
                .collect();
            vec![
                ("register", format!("{:#x}", word(1) & 0xffff)),
                ("values", format!("[{}]", values.join(", "))),
            ]
        }
        _ => {
            let values: Vec<_> = (1..=count.min(8))
                .map(|at| format!("{:#x}", word(at)))
                .collect();
            vec![("words", format!("[{}]", values.join(", ")))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_their_names_and_lengths() {
        let (name, fields, size) = decode(&[0xc003_3700, 0, 0x1000, 0x7f, 0xabcd]);
        assert_eq!((name.as_str(), size), ("WRITE_DATA", 20));
        assert!(
            fields.contains(&("to", "0x7f00001000".into())),
            "{fields:?}"
        );
        assert_eq!(decode(&[0xffff_1000]).2, 4);
        assert_eq!(decode(&[0x8000_0000]).0, "type 2 filler");
    }
}
