// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One wave on a test bench: a piece of assembly, run to its end.
#![allow(dead_code, reason = "each test binary uses its part")]

use crate::machine::{Ram, APERTURES};
use crate::toolchain::Toolchain;
use gcn::{CodeCache, Outcome, Wave, Workgroup};

/// A work-group at its code, with v0 holding the lane number.
pub struct Bench {
    /// Its memory.
    pub ram: Ram,
    /// Its code.
    pub code: CodeCache,
    /// The wave's work-group.
    pub group: Workgroup,
}

impl Bench {
    /// One wave of 32 + 16 registers.
    pub fn new(text: &str) -> Bench {
        Self::of(&Toolchain::new(), text)
    }

    /// The same, of what this toolchain assembles.
    pub fn of(toolchain: &Toolchain, text: &str) -> Bench {
        let mut ram = Ram::new(1 << 20);
        let entry = ram.place(&toolchain.assemble(text));
        let data = ram.allocate(4096);
        let mut wave = Wave::new(entry, 32, 16);
        wave.vgpr[0] = std::array::from_fn(|lane| lane as u32);
        wave.set_scalar64(2, data);
        let group = Workgroup::new(vec![wave], 1024, APERTURES);
        Bench {
            ram,
            code: CodeCache::new(),
            group,
        }
    }

    /// Runs it.
    pub fn run(&mut self) -> Outcome {
        self.group.run(&mut self.ram, &mut self.code, 100_000)
    }

    /// The wave.
    pub fn wave(&self) -> &Wave {
        &self.group.waves[0]
    }
}

/// Runs `text` to its end and hands the wave to `check`.
pub fn after(test: &str, text: &str, set: impl Fn(&mut Wave), check: impl Fn(&Wave)) {
    let mut bench = Bench::new(&format!("{text}\ns_endpgm\n"));
    set(&mut bench.group.waves[0]);
    assert_eq!(bench.run(), Outcome::Done, "{test}");
    check(bench.wave());
}
