// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The build root's LLVM, for tests. Without one they fail.
#![allow(dead_code, reason = "each test binary uses its part")]

use gcn::Target;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `tools/sysroot/sysroot`, which has a build root.
pub struct Toolchain {
    script: PathBuf,
    target: Target,
}

impl Toolchain {
    /// The toolchain.
    ///
    /// # Panics
    ///
    /// Where no build root was made: nothing is tested without LLVM.
    pub fn new() -> Toolchain {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sysroot/sysroot");
        let toolchain = Toolchain {
            script,
            target: Target::Gfx942,
        };
        let llvm = toolchain.path("BUILD_ROOT").join("usr/bin/llvm-mc");
        assert!(
            llvm.symlink_metadata().is_ok(),
            "no LLVM; make it with `tools/sysroot/sysroot build-root`"
        );
        toolchain
    }

    /// The one for another processor: of the newer LLVM, which knows them all.
    pub fn of(target: Target) -> Toolchain {
        Toolchain {
            target,
            ..Toolchain::new()
        }
    }

    /// The processor.
    pub fn target(&self) -> Target {
        self.target
    }

    /// The compiler's command.
    pub fn clang(&self) -> &'static str {
        match self.target {
            Target::Gfx90a | Target::Gfx942 => "clang",
            Target::Gfx950 => "clang-21",
        }
    }

    /// llvm-mc's command for the processor, with these options.
    fn llvm_mc<'a>(&self, cpu: &'a str, options: &'a str) -> Vec<&'a str> {
        let program = match self.target {
            Target::Gfx90a | Target::Gfx942 => "llvm-mc",
            Target::Gfx950 => "llvm-mc-21",
        };
        vec![program, "-arch=amdgcn", cpu, options]
    }

    fn cpu(&self) -> String {
        format!("-mcpu={}", self.target.name())
    }

    /// A path that `sysroot env` prints.
    pub fn path(&self, name: &str) -> PathBuf {
        let output = Command::new(&self.script).arg("env").output();
        let text = String::from_utf8(output.expect("sysroot runs").stdout).expect("UTF-8");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        PathBuf::from(line.unwrap_or_else(|| panic!("sysroot env prints no {name}")))
    }

    /// Runs a command of the build root with `input`; its output and its messages.
    pub fn run(&self, command: &[&str], input: &str) -> (Vec<u8>, String) {
        let mut child = Command::new(&self.script)
            .arg(match self.target {
                Target::Gfx90a | Target::Gfx942 => "run",
                Target::Gfx950 => "run-llvm",
            })
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sysroot can be started");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let input = input.to_string();
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().expect("sysroot ends");
        writer.join().expect("writer ends").ok();
        (
            output.stdout,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }

    /// The dwords of a piece of assembly.
    pub fn assemble(&self, text: &str) -> Vec<u32> {
        let cpu = self.cpu();
        let (output, messages) = self.run(&self.llvm_mc(&cpu, "-show-encoding"), text);
        assert!(!messages.contains("error"), "{messages}");
        let output = String::from_utf8(output).expect("llvm-mc writes text");
        let mut dwords = Vec::new();
        for line in output.lines() {
            let Some((_, encoding)) = line.split_once("; encoding: [") else {
                continue;
            };
            let byte = |byte: &str| u8::from_str_radix(byte.trim_start_matches("0x"), 16);
            let bytes: Result<Vec<u8>, _> = encoding
                .trim_end_matches(']')
                .split(',')
                .map(byte)
                .collect();
            let bytes = bytes.expect("no labels: their encodings are fixed up later");
            let dword = |dword: &[u8]| u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]]);
            dwords.extend(bytes.chunks_exact(4).map(dword));
        }
        dwords
    }

    /// What llvm-mc makes of each group of dwords: `None` if it is no instruction, else the text.
    pub fn disassemble(&self, groups: &[Vec<u32>]) -> Vec<Option<String>> {
        // Two s_nops of a rare value separate the groups: one can be taken for a literal.
        const MARK: &str = "0x77 0x77 0x80 0xbf 0x78 0x77 0x80 0xbf\n";
        let bytes = |dword: &u32| {
            dword
                .to_le_bytes()
                .map(|byte| format!("{byte:#04x}"))
                .join(" ")
        };
        let mut input = String::new();
        for group in groups {
            input += &group.iter().map(bytes).collect::<Vec<_>>().join(" ");
            input += "\n";
            input += MARK;
        }
        let cpu = self.cpu();
        let (output, messages) = self.run(&self.llvm_mc(&cpu, "-disassemble"), &input);
        let refused: Vec<usize> = messages
            .lines()
            // Others are read, with unused fields that are not zero.
            .filter(|line| line.contains("invalid instruction encoding"))
            .filter_map(|line| {
                line.strip_prefix("<stdin>:")?
                    .split(':')
                    .next()?
                    .parse()
                    .ok()
            })
            .map(|line: usize| (line - 1) / 2)
            .collect();
        let output = String::from_utf8(output).expect("llvm-mc writes text");
        let texts: Vec<Vec<String>> = output
            .split("s_nop 0x7778")
            .map(|part| part.trim().trim_end_matches("s_nop 0x7777"))
            .map(|part| {
                part.lines()
                    .map(clean)
                    .filter(|line| !line.is_empty())
                    .collect()
            })
            .collect();
        assert_eq!(
            texts.len(),
            groups.len() + 1,
            "llvm-mc answered for each group: {messages:.300}"
        );
        let single = |(index, lines): (usize, &Vec<String>)| {
            (!refused.contains(&index) && lines.len() == 1).then(|| lines[0].clone())
        };
        texts[..groups.len()]
            .iter()
            .enumerate()
            .map(single)
            .collect()
    }
}

/// A line without comments, directives and spare blanks.
pub fn clean(line: &str) -> String {
    let line = line.split("//").next().unwrap_or("");
    let line = line.split("; encoding").next().unwrap_or("");
    if line.trim_start().starts_with('.') {
        return String::new();
    }
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A small generator of numbers; the same ones at each run.
pub struct Numbers(u64);

impl Numbers {
    /// Starts at a seed.
    pub fn new(seed: u64) -> Self {
        Numbers(seed | 1)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }
}
