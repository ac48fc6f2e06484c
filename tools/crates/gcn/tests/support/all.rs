// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Programs that run on all engines.

use crate::bench::Bench;
use crate::toolchain::Toolchain;
use gcn::{CodeCache, Engine, Outcome, Target, Wave};

/// Runs `text` on all engines and hands the work-group and its memory to `check`.
pub fn on_all(target: Target, text: &str, set: impl Fn(&mut Bench), check: impl Fn(&mut Bench)) {
    for engine in Engine::all() {
        let mut bench = Bench::of(&Toolchain::of(target), &format!("{text}\ns_endpgm\n"));
        bench.code = CodeCache::with(target, engine);
        set(&mut bench);
        assert_eq!(bench.run(), Outcome::Done, "{engine:?}: {text}");
        check(&mut bench);
    }
}

/// The same of the wave, on gfx942.
pub fn after(text: &str, set: impl Fn(&mut Wave), check: impl Fn(&Wave)) {
    on_all(
        Target::Gfx942,
        text,
        |bench| set(&mut bench.group.waves[0]),
        |bench| check(bench.wave()),
    );
}

/// What v1 of each instruction is whose operands are v2, v3 and v4, on all engines.
pub fn results(cases: &[(&str, [u32; 3], u32)]) {
    for (text, operands, result) in cases {
        let set = |wave: &mut Wave| {
            for (register, value) in (2..).zip(operands) {
                wave.vgpr[register] = [*value; 64];
            }
        };
        after(text, set, |wave| {
            let found = wave.vgpr[1][63];
            assert_eq!(found, *result, "{text} of {operands:x?}: {found:#x}");
        });
    }
}
