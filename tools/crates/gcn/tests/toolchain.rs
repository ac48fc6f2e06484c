// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The decoder and the disassembler against LLVM's, over every opcode of every encoding with random
//! fields.

#[path = "support/toolchain.rs"]
mod toolchain;

use gcn::decode::{decode, decode_for, DecodeError};
use gcn::Target;
use std::collections::BTreeMap;
use toolchain::{clean, Numbers, Toolchain};

/// An encoding: its name, how many opcodes it has room for, and random dwords for one of them.
struct Encoding {
    name: &'static str,
    opcodes: u32,
    dwords: fn(u32, &mut Numbers) -> Vec<u32>,
}

/// A 9-bit source: mostly a VGPR or SGPR, sometimes a constant. Even, so that pairs are aligned.
fn source(n: &mut Numbers) -> u32 {
    match n.below(8) {
        0..=3 => 256 + 2 * n.below(100) as u32,
        4 => 4 * n.below(24) as u32,
        5 => 106,
        6 => 128 + n.below(81) as u32,
        _ => 240 + n.below(9) as u32,
    }
}

fn scalar_source(n: &mut Numbers) -> u32 {
    match n.below(8) {
        0..=3 => 4 * n.below(25) as u32,
        4 => [102, 104, 106, 108, 124, 126][n.below(6) as usize],
        5 => 128 + n.below(81) as u32,
        6 => 240 + n.below(9) as u32,
        _ => [235, 236, 237, 238, 251, 252, 253, 255][n.below(8) as usize],
    }
}

fn sgpr(n: &mut Numbers) -> u32 {
    match n.below(4) {
        0 => 106,
        _ => 16 * n.below(6) as u32,
    }
}

fn vgpr(n: &mut Numbers) -> u32 {
    2 * n.below(100) as u32
}

fn any(n: &mut Numbers, bits: u32) -> u32 {
    n.below(1 << bits) as u32
}

/// Mostly zero, as modifiers are.
fn rarely(n: &mut Numbers, bits: u32) -> u32 {
    if n.below(3) == 0 {
        any(n, bits)
    } else {
        0
    }
}

/// CBSZ and BLGP of `v_mfma_f32_*_f8f6f4` say a format; LLVM crashes where it is none.
fn known_formats(op: u32, [first, second]: [u32; 2]) -> Vec<u32> {
    if !(45..=46).contains(&op) {
        return vec![first, second];
    }
    let known = |word: u32, shift: u32| match word >> shift & 7 {
        0..=4 => word,
        _ => word & !(3 << shift),
    };
    vec![known(first, 8), known(second, 29)]
}

/// VOP3P's `v_mfma_ld_scale_b32`.
const LOAD_SCALES: u32 = 44;

const ENCODINGS: &[Encoding] = &[
    Encoding {
        name: "SOP2",
        opcodes: 96,
        dwords: |op, n| {
            let word =
                2 << 30 | op << 23 | sgpr(n) << 16 | scalar_source(n) << 8 | scalar_source(n);
            vec![word, n.next() as u32]
        },
    },
    Encoding {
        name: "SOPK",
        opcodes: 29,
        dwords: |op, n| {
            vec![
                0xb << 28 | op << 23 | sgpr(n) << 16 | any(n, 16),
                n.next() as u32,
            ]
        },
    },
    Encoding {
        name: "SOP1",
        opcodes: 256,
        dwords: |op, n| {
            vec![
                0xbe80_0000 | sgpr(n) << 16 | op << 8 | scalar_source(n),
                n.next() as u32,
            ]
        },
    },
    Encoding {
        name: "SOPC",
        opcodes: 128,
        dwords: |op, n| {
            let word = 0xbf00_0000 | op << 16 | scalar_source(n) << 8 | scalar_source(n);
            vec![word, n.next() as u32]
        },
    },
    Encoding {
        name: "SOPP",
        opcodes: 128,
        dwords: |op, n| {
            let immediates = [0, 1, any(n, 4), any(n, 10), any(n, 16)];
            vec![0xbf80_0000 | op << 16 | immediates[n.below(5) as usize]]
        },
    },
    Encoding {
        name: "SMEM",
        opcodes: 256,
        dwords: |op, n| {
            let (imm, soffset) = (any(n, 1), any(n, 1));
            let word = 0x30 << 26 | op << 18 | imm << 17 | rarely(n, 1) << 16 | soffset << 14;
            let offset = if imm != 0 { any(n, 21) } else { 4 * any(n, 4) };
            vec![
                word | sgpr(n) << 6 | any(n, 4) << 1,
                offset | (soffset * 4 * any(n, 4)) << 25,
            ]
        },
    },
    Encoding {
        name: "VOP1",
        opcodes: 256,
        dwords: |op, n| {
            let operands = if n.below(4) == 0 {
                0
            } else {
                vgpr(n) << 17 | source(n)
            };
            vec![0x7e00_0000 | op << 9 | operands]
        },
    },
    Encoding {
        name: "VOP1 SDWA",
        opcodes: 256,
        dwords: |op, n| vec![0x7e00_0000 | vgpr(n) << 17 | op << 9 | 249, sdwa(n, false)],
    },
    Encoding {
        name: "VOP1 DPP",
        opcodes: 256,
        dwords: |op, n| vec![0x7e00_0000 | vgpr(n) << 17 | op << 9 | 250, dpp(n, false)],
    },
    Encoding {
        name: "VOP2",
        opcodes: 62,
        dwords: |op, n| {
            vec![
                op << 25 | vgpr(n) << 17 | vgpr(n) << 9 | source(n),
                n.next() as u32,
            ]
        },
    },
    Encoding {
        name: "VOP2 SDWA",
        opcodes: 62,
        dwords: |op, n| vec![op << 25 | vgpr(n) << 17 | vgpr(n) << 9 | 249, sdwa(n, true)],
    },
    Encoding {
        name: "VOP2 DPP",
        opcodes: 62,
        dwords: |op, n| vec![op << 25 | vgpr(n) << 17 | vgpr(n) << 9 | 250, dpp(n, true)],
    },
    Encoding {
        name: "VOPC",
        opcodes: 256,
        dwords: |op, n| vec![0x7c00_0000 | op << 17 | vgpr(n) << 9 | source(n)],
    },
    Encoding {
        name: "VOPC SDWA",
        opcodes: 256,
        dwords: |op, n| {
            let destination = any(n, 1) << 15;
            let destination = destination | if destination != 0 { sgpr(n) << 8 } else { 0 };
            let word = sdwa(n, true) & !0xff00 | destination;
            vec![0x7c00_0000 | op << 17 | vgpr(n) << 9 | 249, word]
        },
    },
    Encoding {
        name: "VOP3",
        opcodes: 0x380,
        dwords: |op, n| {
            // Unused sources and modifiers must be zero: how many there are depends on the opcode.
            let sources = any(n, 2);
            // LLVM crashes where scalar registers should be 32 at once.
            let wide = (594..=611).contains(&op);
            let source = |n: &mut Numbers| if wide { 256 + vgpr(n) } else { source(n) };
            let mut second = source(n);
            if sources >= 1 {
                second |= source(n) << 9;
            }
            if sources >= 2 {
                second |= source(n) << 18;
            } else if sources == 1 && any(n, 1) != 0 {
                second |= sgpr(n) << 18;
            }
            let modifiers = match n.below(8) {
                0 => any(n, 3) << 8 | any(n, 1) << 15,
                1 => any(n, 4) << 11,
                2 => sgpr(n) << 8,
                _ => 0,
            };
            let second = second | rarely(n, 3) << 29 | rarely(n, 2) << 27;
            if n.below(16) == 0 && !wide {
                return vec![0x34 << 26 | op << 16, 0];
            }
            vec![0x34 << 26 | op << 16 | modifiers | vgpr(n), second]
        },
    },
    Encoding {
        name: "VOP3P",
        opcodes: 128,
        dwords: |op, n| {
            // LLVM crashes where these are no VGPRs.
            if (45..=46).contains(&op) {
                let vectors = |n: &mut Numbers| 256 + (vgpr(n) & !31);
                let second = vectors(n) | vectors(n) << 9 | vectors(n) << 18;
                return vec![0xd380_0000 | op << 16 | vgpr(n) & !31, second];
            }
            if op == LOAD_SCALES {
                return vec![0xd3ac_0000, (256 + vgpr(n)) | (256 + vgpr(n)) << 9];
            }
            let mut second = source(n);
            let sources = any(n, 2);
            if sources >= 1 {
                second |= source(n) << 9;
            }
            if sources >= 2 {
                second |= source(n) << 18;
            }
            let first = 0xd380_0000 | op << 16 | rarely(n, 8) << 8 | (vgpr(n) & !31);
            known_formats(op, [first, second | rarely(n, 3) << 29 | any(n, 2) << 27])
        },
    },
    Encoding {
        name: "MFMA",
        opcodes: 128,
        dwords: |op, n| {
            let vectors = |n: &mut Numbers| 256 + (vgpr(n) & !31);
            let second = vectors(n) | vectors(n) << 9 | vectors(n) << 18 | any(n, 2) << 27;
            let first = 0xd380_0000 | op << 16 | any(n, 1) << 15 | rarely(n, 7) << 8;
            known_formats(op, [first | vgpr(n) & !31, second | rarely(n, 3) << 29])
        },
    },
    Encoding {
        name: "MFMA with scales",
        opcodes: 128,
        dwords: |op, n| {
            let vectors = |n: &mut Numbers| 256 + (vgpr(n) & !31);
            let load = 0xd380_0000 | LOAD_SCALES << 16 | any(n, 2) << 11;
            let scales = source(n) | source(n) << 9 | any(n, 2) << 27;
            let first = 0xd380_0000 | op << 16 | any(n, 1) << 15 | 1 << 11;
            let formats = [n.below(5) as u32, n.below(5) as u32];
            let second = vectors(n) | vectors(n) << 9 | vectors(n) << 18 | any(n, 2) << 27;
            let last = second | formats[1] << 29;
            vec![load, scales, first | formats[0] << 8 | vgpr(n) & !31, last]
        },
    },
    Encoding {
        name: "DS",
        opcodes: 256,
        dwords: |op, n| {
            if n.below(4) == 0 {
                let field = [0, vgpr(n), vgpr(n) << 8, vgpr(n) << 24][n.below(4) as usize];
                let gds = u32::from(n.below(4) != 0);
                return vec![0x36 << 26 | op << 17 | gds << 16, field];
            }
            let used = any(n, 3);
            let field = |bit: u32, n: &mut Numbers| if used >> bit & 1 != 0 { vgpr(n) } else { 0 };
            let second = vgpr(n) | field(0, n) << 8 | field(1, n) << 16 | field(2, n) << 24;
            let first =
                0x36 << 26 | rarely(n, 1) << 25 | op << 17 | rarely(n, 1) << 16 | rarely(n, 16);
            vec![first, second]
        },
    },
    Encoding {
        name: "FLAT",
        opcodes: 128,
        dwords: |op, n| flat(op, 0, n),
    },
    Encoding {
        name: "SCRATCH",
        opcodes: 128,
        dwords: |op, n| flat(op, 1, n),
    },
    Encoding {
        name: "GLOBAL",
        opcodes: 128,
        dwords: |op, n| flat(op, 2, n),
    },
    Encoding {
        name: "MUBUF",
        opcodes: 128,
        dwords: |op, n| {
            let (idxen, offen) = (rarely(n, 1), rarely(n, 1));
            let flags = idxen << 13 | offen << 12 | rarely(n, 4) << 14;
            let address = if idxen | offen != 0 { vgpr(n) } else { 0 };
            let soffset = [0, 4, 128, 106][n.below(4) as usize];
            let srsrc = any(n, 4);
            let second = address | vgpr(n) << 8 | srsrc << 16 | rarely(n, 1) << 23 | soffset << 24;
            let zero = n.below(4) == 0;
            let first = 0x38 << 26 | op << 18 | if zero { 0 } else { flags | any(n, 12) };
            vec![first, if zero { 0 } else { second }]
        },
    },
    Encoding {
        name: "MTBUF",
        opcodes: 16,
        dwords: |op, n| {
            let (idxen, offen) = (rarely(n, 1), rarely(n, 1));
            let flags = idxen << 13 | offen << 12 | rarely(n, 1) << 14 | any(n, 7) << 19;
            let address = if idxen | offen != 0 { vgpr(n) } else { 0 };
            let soffset = [0, 4, 128, 106][n.below(4) as usize];
            let flags2 = rarely(n, 1) << 21 | rarely(n, 1) << 22 | rarely(n, 1) << 23;
            let second = address | vgpr(n) << 8 | any(n, 4) << 16 | flags2 | soffset << 24;
            vec![0x3a << 26 | op << 15 | flags | any(n, 12), second]
        },
    },
];

fn sdwa(n: &mut Numbers, two: bool) -> u32 {
    let sel = |n: &mut Numbers| n.below(7) as u32;
    let mut word = vgpr(n) | sel(n) << 8 | (n.below(3) as u32) << 11 | rarely(n, 1) << 13;
    word |= sel(n) << 16 | rarely(n, 3) << 19 | rarely(n, 1) << 23;
    if two {
        word |= sel(n) << 24 | rarely(n, 3) << 27;
    }
    word
}

fn dpp(n: &mut Numbers, two: bool) -> u32 {
    let ctrl = match n.below(3) {
        0 => any(n, 8),
        1 => [0x130, 0x134, 0x138, 0x13c, 0x140, 0x141, 0x142, 0x143][n.below(8) as usize],
        _ => ([0x100, 0x110, 0x120, 0x150][n.below(4) as usize]) + 1 + n.below(15) as u32,
    };
    let modifiers = rarely(n, if two { 4 } else { 2 }) << 20;
    vgpr(n) | ctrl << 8 | rarely(n, 1) << 19 | modifiers | any(n, 8) << 24
}

fn flat(op: u32, segment: u32, n: &mut Numbers) -> Vec<u32> {
    let flags = rarely(n, 2) << 16 | rarely(n, 1) << 25;
    let sve = if segment == 1 { any(n, 1) << 13 } else { 0 };
    let offset = if segment == 0 { any(n, 12) } else { any(n, 13) };
    let saddr = if segment == 0 {
        0
    } else {
        [0x7f, 0x7f, 4, 106][n.below(4) as usize]
    };
    let unused = n.below(3);
    let address = if segment == 1 && sve == 0 { 0 } else { vgpr(n) };
    let data = if unused == 0 { 0 } else { vgpr(n) };
    let vdst = if unused == 1 { 0 } else { vgpr(n) };
    let second = address | data << 8 | saddr << 16 | rarely(n, 1) << 23 | vdst << 24;
    vec![
        0x37 << 26 | op << 18 | segment << 14 | sve | flags | offset,
        second,
    ]
}

/// How often each opcode is tried.
const TRIES: u32 = 64;

#[test]
fn every_opcode_reads_as_llvm_reads_it() {
    compare(Target::Gfx942);
}

#[test]
fn every_opcode_of_gfx950_reads_as_llvm_reads_it() {
    compare(Target::Gfx950);
}

#[test]
fn every_opcode_of_gfx90a_reads_as_llvm_reads_it() {
    compare(Target::Gfx90a);
}

fn compare(target: Target) {
    let toolchain = Toolchain::of(target);
    let mut failures = Vec::new();
    for encoding in ENCODINGS {
        check_encoding(&toolchain, target, encoding, &mut failures);
    }
    for failure in failures.iter().take(60) {
        eprintln!("{failure}");
    }
    assert!(failures.is_empty(), "{} differences", failures.len());
}

fn check_encoding(
    toolchain: &Toolchain,
    target: Target,
    encoding: &Encoding,
    failures: &mut Vec<String>,
) {
    let mut numbers = Numbers::new(42);
    let mut groups = Vec::new();
    for op in 0..encoding.opcodes {
        for _ in 0..TRIES {
            let dwords = (encoding.dwords)(op, &mut numbers);
            let length = match decode_for(target, 0, &dwords) {
                Ok(inst) => inst.dwords.len(),
                Err(_) => dwords.len(),
            };
            groups.push(dwords[..length].to_vec());
        }
    }
    let answers = toolchain.disassemble(&groups);
    // How often an opcode was compared, and how often we alone read it.
    let mut seen: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    let (mut compared, mut refused) = (0, 0);
    for (index, (dwords, theirs)) in groups.iter().zip(&answers).enumerate() {
        let count = seen.entry(index as u32 / TRIES).or_default();
        let ours = decode_for(target, 0, dwords).map(|inst| inst.to_string());
        match (theirs, ours) {
            // An invalid register, a modifier that its operand cannot have.
            (Some(theirs), _) if theirs.contains("/*") => refused += 1,
            (Some(theirs), _) if theirs.contains("swizzle(") => refused += 1,
            // Not without the product behind it: that is another encoding.
            (Some(theirs), _) if theirs.contains("v_mfma_ld_scale") => count.0 += 1,
            (Some(theirs), ours) if is_spelled_anew(target, theirs) => {
                count.0 += 1;
                let name = |text: &str| text.split(' ').next().unwrap_or("").to_string();
                if ours.is_ok_and(|ours| name(&ours) != name(theirs)) {
                    failures.push(format!("{}: {dwords:08x?} llvm: {theirs}", encoding.name));
                }
            }
            // Its integer is spelled as a float.
            (Some(theirs), _) if theirs.contains("v_ldexp_f16") => count.0 += 1,
            (Some(theirs), _) if !theirs.contains("_sdwa") && theirs.contains("sext(") => {
                refused += 1
            }
            (Some(theirs), Ok(ours)) => {
                compared += 1;
                count.0 += 1;
                if clean(theirs) != clean(&ours) {
                    failures.push(format!(
                        "{}: {dwords:08x?} llvm: {theirs} ours: {ours}",
                        encoding.name
                    ));
                }
            }
            (Some(theirs), Err(DecodeError::Short | DecodeError::Unknown(_))) => {
                failures.push(format!(
                    "{}: {dwords:08x?} llvm: {theirs} ours: none",
                    encoding.name
                ));
            }
            (None, Ok(_)) => {
                refused += 1;
                count.1 += 1;
            }
            (None, Err(_)) => {}
        }
    }
    for (op, (both, alone)) in seen {
        if both == 0 && alone > 0 && !is_partial(encoding.name) {
            failures.push(format!(
                "{} opcode {op}: LLVM knows none like it",
                encoding.name
            ));
        }
    }
    let scales = encoding.name == "MFMA with scales";
    let expected = !scales || target == Target::Gfx950;
    assert_eq!(
        compared > 0,
        expected,
        "{}: what was compared",
        encoding.name
    );
    eprintln!(
        "{}: {compared} compared, {refused} that LLVM does not read",
        encoding.name
    );
}

/// Whether the LLVM of this target leaves out modifiers, or adds some, that the build root's LLVM
/// spells otherwise, and with it our disassembler.
fn is_spelled_anew(target: Target, text: &str) -> bool {
    let names = [
        "v_dot4_",
        "v_dot8_",
        "v_pk_fmac_f16",
        "v_alignbit",
        "v_alignbyte",
    ];
    target == Target::Gfx950 && names.iter().any(|name| text.starts_with(name))
}

/// SDWA and DPP do not exist for every opcode, which the decoder does not mind; the MFMA generator
/// serves only a part of VOP3P.
fn is_partial(encoding: &str) -> bool {
    encoding.ends_with("SDWA") || encoding.ends_with("DPP") || encoding.starts_with("MFMA")
}

/// A listing with the assembler's less usual spellings.
const LISTING: &str = include_str!("data/listing.s");

#[test]
fn a_listing_survives_assembly_and_disassembly() {
    let toolchain = Toolchain::new();
    let command = ["llvm-mc", "-arch=amdgcn", "-mcpu=gfx942", "-show-encoding"];
    let (output, messages) = toolchain.run(&command, LISTING);
    assert!(messages.is_empty(), "{messages}");
    let output = String::from_utf8(output).expect("llvm-mc writes text");
    let mut count = 0;
    for line in output.lines().filter(|line| line.contains("; encoding: [")) {
        let (text, encoding) = line.split_once("; encoding: [").expect("it has one");
        let bytes: Vec<u8> = encoding
            .trim_end_matches(']')
            .split(',')
            .map(|byte| u8::from_str_radix(&byte[2..], 16).expect("hexadecimal"))
            .collect();
        let dwords: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|dword| u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]]))
            .collect();
        let inst = decode(0, &dwords).expect("it decodes");
        assert_eq!(inst.dwords.len(), dwords.len(), "{line}");
        assert_eq!(clean(&inst.to_string()), clean(text));
        count += 1;
    }
    assert_eq!(
        count,
        LISTING
            .lines()
            .filter(|line| !line.starts_with("//") && !line.is_empty())
            .count()
    );
}

/// The trap handler that the kernel loads on a generation (linux:drivers/gpu/drm/amd/amdkfd,
/// cwsr_trap_handler.h), from the sources that the module is built with.
fn trap_handler(toolchain: &Toolchain) -> Vec<u32> {
    let core = match toolchain.target() {
        Target::Gfx90a => "aldebaran",
        Target::Gfx942 => "gfx9_4_3",
        Target::Gfx950 => "gfx9_5_0",
    };
    let tree = toolchain.path("KERNEL_TREE");
    let header = tree.join("drivers/gpu/drm/amd/amdkfd/cwsr_trap_handler.h");
    let text = std::fs::read_to_string(header).expect("the kernel source is there");
    let (_, array) = text
        .split_once(&format!("cwsr_trap_{core}_hex[] = {{"))
        .expect("the handler");
    let (array, _) = array.split_once("};").expect("its end");
    let dword = |word: &str| u32::from_str_radix(word.trim().trim_start_matches("0x"), 16).ok();
    array.split(',').filter_map(dword).collect()
}

#[test]
fn the_trap_handlers_read_as_llvm_reads_them() {
    Target::ALL.into_iter().for_each(read_trap_handler);
}

fn read_trap_handler(target: Target) {
    let toolchain = Toolchain::of(target);
    let dwords = trap_handler(&toolchain);
    let (mut groups, mut texts, mut at) = (Vec::new(), Vec::new(), 0);
    while at < dwords.len() {
        let inst = decode_for(target, 4 * at as u64, &dwords[at..]).expect("the handler is whole");
        groups.push(inst.dwords.clone());
        texts.push(clean(&inst.to_string()));
        at += inst.dwords.len();
    }
    let theirs = toolchain.disassemble(&groups);
    for ((dwords, ours), theirs) in groups.iter().zip(&texts).zip(&theirs) {
        // Fills up the last line; no instruction to either.
        assert_eq!(theirs.as_deref(), Some(ours.as_str()), "{dwords:08x?}");
    }
    let count = |name: &str| texts.iter().filter(|text| text.starts_with(name)).count();
    assert!(
        count("s_getreg_b32") > 10 && count("s_rfe_b64") > 0,
        "{} instructions",
        texts.len()
    );
}
