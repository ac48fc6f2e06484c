// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Generated steps over a small area, in the language of the scripts: the same for each seed, on
//! every driver.

use super::interpreter::Interpreter;
use crate::fuzz::Random;
use anyhow::Result;

/// Pages of the area.
const PAGES: usize = 40;
/// Steps after which the whole area is looked at.
const LOOK: u32 = 10;

struct Generator {
    random: Random,
    gpus: usize,
    /// Whether memory may move or be given up. Then nothing goes to VRAM: where memory that is
    /// there moves, the C driver breaks; where it was given up, what comes back may be its old
    /// contents.
    moves: bool,
}

/// Does so many steps.
pub fn run(xnack: bool, seed: u64, steps: u32) -> Result<()> {
    let mut interpreter = Interpreter::new(xnack, 0)?;
    interpreter.world.clear()?;
    let mut generator = Generator {
        random: Random::new(seed),
        gpus: interpreter.world.gpus.len(),
        moves: seed % 2 == 0,
    };
    interpreter.line(&format!("map 0 {PAGES}"))?;
    for step in 1..=steps {
        interpreter.line(&generator.step())?;
        if step % LOOK == 0 {
            interpreter.line(&format!("runs 0 {PAGES}"))?;
            interpreter.line(&format!("read 0 {PAGES}"))?;
        }
    }
    Ok(())
}

impl Generator {
    /// Some pages of the area: place and length.
    fn range(&mut self) -> (usize, usize) {
        let place = self.random.below(PAGES);
        let most = self.random.pick(&[1, 2, 4, 8, 16, PAGES]);
        let length = 1 + self.random.below(most);
        (place, length.min(PAGES - place))
    }

    fn gpu(&mut self) -> String {
        match self.random.below(20) {
            0 => self.random.pick(&["0", "1", "0xffff", "none"]).into(),
            _ => format!("G{}", self.random.below(self.gpus)),
        }
    }

    fn attribute(&mut self) -> String {
        let gpu = self.gpu();
        match self.random.below(18) {
            0..3 => format!("access={gpu}"),
            3..5 => format!("inplace={gpu}"),
            5..7 => format!("noaccess={gpu}"),
            7 => format!("pref={gpu}"),
            8 => format!("pref={}", self.random.pick(&["cpu", "none"])),
            9 if !self.moves => format!("fetch={gpu}"),
            9..11 => "fetch=cpu".into(),
            11 => format!("fetch={}", self.random.pick(&["cpu", "none"])),
            12..14 => format!("set={:#x}", self.flags()),
            14..16 => format!("clear={:#x}", self.flags()),
            16 => format!(
                "gran={}",
                self.random.pick(&[0, 1, 5, 9, 10, 62, 63, 64, 255, 256])
            ),
            _ => self
                .random
                .pick(&["type0x8=0", "gran=9", "set=0", "clear=0"])
                .into(),
        }
    }

    /// Flags of a range.
    fn flags(&mut self) -> u32 {
        match self.random.below(10) {
            0 => self.random.pick(&[0x100, 0x8000_0000, 0xffff_ffff]),
            _ => 1 << self.random.below(8) | 1 << self.random.below(8),
        }
    }

    fn attributes(&mut self) -> String {
        let count = 1 + self.random.below(3);
        let all: Vec<String> = (0..count).map(|_| self.attribute()).collect();
        all.join(" ")
    }

    fn step(&mut self) -> String {
        let (place, length) = self.range();
        let range = format!("{place} {length}");
        match self.random.below(100) {
            0..40 => format!("set {range} {}", self.attributes()),
            40..48 => format!("get {range}"),
            48..59 => format!("map {range} {}", self.access()),
            59..64 => format!("unmap {range}"),
            64..69 => format!("protect {range} {}", self.access()),
            69..75 => format!("advise {range} {}", self.advice()),
            75..79 if self.moves => {
                format!("move {range} {}", self.random.below(PAGES - length + 1))
            }
            75..81 => format!("resize {range} {}", 1 + self.random.below(PAGES - place)),
            81..88 => format!("write {range} {}", 1 + self.random.below(1000)),
            88..100 => self.buffer(&range),
            _ => unreachable!("below a hundred"),
        }
    }

    fn access(&mut self) -> &'static str {
        self.random.pick(&["rw", "rw", "rw", "rw", "r", "none"])
    }

    fn advice(&mut self) -> &'static str {
        match self.moves && self.random.chance(50) {
            true => "dontneed",
            false => self
                .random
                .pick(&["hugepage", "nohugepage", "cold", "dontfork"]),
        }
    }

    fn buffer(&mut self, range: &str) -> String {
        let name = self.random.pick(&["a", "b"]);
        match self.random.below(10) {
            0..3 => {
                let kind = self.random.pick(&["gtt", "vram"]);
                format!("alloc {name} {kind} {range}")
            }
            3..5 => format!("try {name} G{}", self.random.below(self.gpus)),
            5..8 => format!("off {name} G0"),
            _ => format!("release {name}"),
        }
    }
}
