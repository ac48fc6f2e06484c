// SPDX-License-Identifier: GPL-2.0-only

//! The formats of `rust/gfx` against those of the C amdkfd, to the bit.
//!
//! The file that `C_FORMATS` names has a line for each descriptor, packet and interrupt that C's
//! own functions made, with the values that they made it of: tests/modules/c_formats.c writes it in
//! a guest, tests/tools/generations.test compares. This is the driver's code compiled for the host.

mod interrupts;
mod line;
mod packets;
mod queues;

use crate::{
    gfx::{
        testing::MI300X,
        CacheSizes,
        ChipFacts,
        ContextSaveSizes,
        Generation,
        ShMem,
        ShMemOptions, //
    },
    ids::IpVersion,
    topology::{
        cache,
        CACHE_INSTRUCTION, //
    },
};
use line::Line;
use std::collections::BTreeMap;

/// How many lines of a kind are alike, and which are not.
#[derive(Default)]
struct Tally {
    /// By graphics core and kind of line.
    same: BTreeMap<(IpKey, String), usize>,
    differing: Vec<String>,
}

type IpKey = (u8, u8, u8);

/// Differences that are shown, at most.
const SHOWN: usize = 40;

impl Tally {
    fn count(&mut self, line: &Line<'_>, result: Result<(), String>) {
        match result {
            Ok(()) => *self.same.entry((key(line), line.kind.into())).or_default() += 1,
            Err(what) => self.differing.push(format!("{what}\n  {}", line.text)),
        }
    }

    fn of(&self, kinds: &[&str]) -> usize {
        let wanted = self
            .same
            .iter()
            .filter(|((_, kind), _)| kinds.contains(&kind.as_str()));
        wanted.map(|(_, count)| count).sum()
    }
}

fn key(line: &Line<'_>) -> IpKey {
    let gc = line.gc();
    (gc.major, gc.minor, gc.revision)
}

/// Facts of a whole GPU of this core with memory of its own.
fn facts(gc: IpVersion) -> ChipFacts {
    ChipFacts { gc, ..MI300X }
}

/// Both are the same, or what they are.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: T, c: T) -> Result<(), String> {
    if ours == c {
        return Ok(());
    }
    Err(format!("{what}: ours {ours:x?}, C's {c:x?}"))
}

/// Both have the same words, or which differ.
fn same_words(ours: impl Fn(usize) -> u32, count: usize, line: &Line<'_>) -> Result<(), String> {
    let c = line.words(count);
    let differing: Vec<_> = (0..count)
        .filter(|&index| ours(index) != c[index])
        .map(|index| format!("word {index}: ours {:x}, C's {:x}", ours(index), c[index]))
        .collect();
    if differing.is_empty() {
        Ok(())
    } else {
        Err(differing.join("; "))
    }
}

/// All that ours knows, in order.
fn known_cores() -> impl Iterator<Item = IpVersion> {
    let versions = (0..0x20_0000u32).map(|number| {
        let [_, major, minor, revision] = number.to_be_bytes();
        IpVersion::new(major, minor, revision)
    });
    versions.filter(|gc| Generation::of(&facts(*gc)).is_ok())
}

fn chip(generation: &Generation, line: &Line<'_>) -> Result<(), String> {
    let (chip, words) = (generation.chip, generation.formats.runlist.words());
    same("target", chip.gfx_target_version, line.number("target"))?;
    same(
        "SDMA queues",
        chip.sdma_queues_per_engine,
        line.number("sdma_queues"),
    )?;
    same(
        "doorbell",
        chip.doorbell_bytes as u32,
        line.number("doorbell"),
    )?;
    same("watch points", chip.watch_points, line.number("watches"))?;
    same(
        "words of a process",
        words.process as u32,
        line.number("process_words"),
    )?;
    same(
        "words of a queue",
        words.queue as u32,
        line.number("queue_words"),
    )
}

fn save_area(generation: &Generation, line: &Line<'_>) -> Result<(), String> {
    let save = generation.chip.context_save;
    if save.lds_bytes_per_cu != line.number("lds") << 10 {
        return Err(format!("LDS: ours {:x}", save.lds_bytes_per_cu));
    }
    let c = ContextSaveSizes {
        control_stack: line.number("stack"),
        area: line.number("area"),
        debug: line.number("debug"),
    };
    same(
        "sizes",
        save.sizes(line.number("cus"), line.number("engines")),
        c,
    )?;
    same(
        "end-of-pipe buffer",
        generation.chip.eop_buffer_bytes,
        line.number("eop"),
    )
}

/// What is listed of the caches: level, KiB, line, whether of instructions, CUs that share one.
fn caches(generation: &Generation, line: &Line<'_>) -> Result<(), String> {
    let stated = CacheSizes {
        vector: line.number("tcp"),
        instruction: line.number("instruction"),
        scalar: line.number("scalar"),
        cus_per_sequencer: line.number("per_sqc"),
        second: line.number("tcc"),
        cus_of_second: 0,
        last: line.number("mall"),
        memory_partitions: 1,
    };
    let chip = generation.chip;
    let sizes = chip.cache_sizes.unwrap_or(stated);
    let ours: Vec<u32> = cache::kinds(&sizes, &chip.cache_lines, line.number("cus"))
        .iter()
        .filter(|kind| kind.size != 0)
        .flat_map(|kind| {
            let instructions = u32::from(kind.content & CACHE_INSTRUCTION != 0);
            [
                kind.level,
                kind.size,
                kind.line,
                instructions,
                kind.shared_by,
            ]
        })
        .collect();
    same("how many", ours.len() as u32, line.number("words"))?;
    same_words(|index| ours[index], ours.len(), line)
}

fn sh_mem(generation: &Generation, line: &Line<'_>) -> Result<(), String> {
    let per_process = line.flag("per_process");
    same(
        "XNACK per process",
        generation.chip.xnack_per_process,
        per_process,
    )?;
    let options = ShMemOptions {
        lds_base: line.wide("lds"),
        scratch_base: line.wide("scratch"),
        xnack: if per_process {
            line.flag("xnack")
        } else {
            !line.flag("noretry")
        },
        precise: line.flag("precise"),
    };
    let c = ShMem {
        config: line.number("config"),
        bases: line.number("bases"),
    };
    same("SH_MEM", (generation.formats.sh_mem)(options), c)
}

fn compare(dump: &str, tally: &mut Tally) {
    let mut queues = queues::Queues::default();
    for line in dump.lines().map(Line::new) {
        if line.kind == "end" {
            continue;
        }
        let Ok(generation) = Generation::of(&facts(line.gc())) else {
            continue;
        };
        let result = match line.kind {
            "chip" => chip(&generation, &line),
            // Not known: they have a level more.
            "caches" if line.gc().major == 10 => continue,
            "caches" => caches(&generation, &line),
            "save_area" => save_area(&generation, &line),
            "sh_mem" => sh_mem(&generation, &line),
            "compute" | "used" | "changed" | "hiq" | "sdma" => queues.compare(&generation, &line),
            "interrupt" => interrupts::compare(&generation, &line),
            _ => packets::compare(&generation, &line),
        };
        tally.count(&line, result);
    }
}

#[test]
#[ignore = "tests/tools/generations.test runs it, with what C said in a guest"]
fn formats_are_those_of_c() {
    let file = std::env::var("C_FORMATS").expect("C_FORMATS names what C said");
    let dump = std::fs::read_to_string(file).expect("what C said can be read");
    assert!(
        dump.lines()
            .last()
            .is_some_and(|last| last.starts_with("end ")),
        "cut short"
    );
    let mut tally = Tally::default();
    compare(&dump, &mut tally);
    for what in tally.differing.iter().take(SHOWN) {
        println!("differs: {what}");
    }
    let mut cores: Vec<_> = tally.same.keys().map(|(core, _)| *core).collect();
    cores.dedup();
    for (major, minor, revision) in cores {
        println!("core {major}.{minor}.{revision}");
    }
    for gc in known_cores() {
        println!("known {gc}");
    }
    let interrupts = tally.of(&["interrupt"]);
    println!("interrupts {interrupts}");
    println!("others {}", tally.same.values().sum::<usize>() - interrupts);
    println!("differing {}", tally.differing.len());
    assert!(tally.differing.is_empty());
}
