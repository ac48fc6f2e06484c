// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Corpus`]: the programs that were the first to reach some edge of the driver's code, in a
//! directory that outlives the machine. One per fuzzer.
//!
//! Edges are offsets into one build of the module, so what is known of them is kept with that
//! build; for another one the programs run again first. A program is made smaller before it is
//! kept, as long as it reaches the edges that were new.

use super::generate::{self, Random};
use super::program::Program;
use super::read;
use super::shrink::shrink;
use anyhow::{ensure, Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Edges of the driver's code, by their offsets.
pub type Edges = BTreeSet<u64>;

/// Programs that are run to make one smaller: each takes seconds.
const TRIES: u32 = 12;

/// One that reaches so many new edges owes them to most of its lines, as the first ones do.
const MANY: usize = 100;

pub struct Corpus {
    directory: PathBuf,
    /// The module's build.
    build: String,
    programs: Vec<Program>,
    known: Edges,
    /// Programs that have not run on this build yet.
    unseen: Vec<Program>,
    /// Edges of this build when it was opened, and programs.
    before: (usize, usize),
}

impl Corpus {
    /// What `directory` has for this build of the module. It is made if it is not there.
    pub fn open(directory: &Path, build: &str) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "fuzz") {
                names.push(path);
            }
        }
        names.sort();
        let programs: Vec<Program> = names.iter().map(|it| read(it)).collect::<Result<_>>()?;
        let mut corpus = Self {
            directory: directory.to_owned(),
            build: build.to_owned(),
            unseen: Vec::new(),
            before: (0, programs.len()),
            known: Edges::new(),
            programs,
        };
        match fs::read_to_string(corpus.edges_file()) {
            Ok(text) => corpus.known = edges(&text)?,
            Err(_) => corpus.unseen = corpus.programs.clone(),
        }
        corpus.before.0 = corpus.known.len();
        Ok(corpus)
    }

    fn edges_file(&self) -> PathBuf {
        self.directory.join(format!("edges-{}", self.build))
    }

    /// The next program to run, from `seed`; nothing if it should be one that owes nothing to the
    /// corpus.
    pub fn next(&mut self, seed: u64) -> Option<Program> {
        if let Some(program) = self.unseen.pop() {
            return Some(program);
        }
        let mut random = Random::new(!seed);
        if self.programs.is_empty() || !random.chance(60) {
            return None;
        }
        let one = &self.programs[random.below(self.programs.len())];
        let other = &self.programs[random.below(self.programs.len())];
        Some(generate::evolved(seed, one, other))
    }

    /// `program` has reached these edges. If some are new, it is made smaller by `run`, which gives
    /// what a program reaches, and kept.
    pub fn learn(
        &mut self,
        program: &Program,
        reached: &Edges,
        run: &mut dyn FnMut(&Program) -> Result<Edges>,
    ) -> Result<()> {
        let new: Edges = reached.difference(&self.known).copied().collect();
        if new.is_empty() {
            return Ok(());
        }
        self.known.extend(&new);
        if !self.programs.contains(program) {
            let small = smaller(program, &new, run)?;
            let name = self.directory.join(format!("{:016x}.fuzz", digest(&small)));
            let text = format!("# edges that were new: {}\n{small}", new.len());
            write(&name, &text)?;
            self.programs.push(small);
        }
        let lines: Vec<String> = self.known.iter().map(|it| format!("{it:x}\n")).collect();
        write(&self.edges_file(), &lines.concat())
    }

    /// What it has come to, in words.
    pub fn summary(&self) -> String {
        let (edges, programs) = (self.known.len(), self.programs.len());
        let new = (edges - self.before.0, programs - self.before.1);
        format!(
            "corpus: {programs} programs, {} of them new; {edges} edges, {} new",
            new.1, new.0
        )
    }
}

/// `program` without what it does not need to reach what it reaches of `new` each time.
fn smaller(
    program: &Program,
    new: &Edges,
    run: &mut dyn FnMut(&Program) -> Result<Edges>,
) -> Result<Program> {
    if new.len() > MANY {
        return Ok(program.clone());
    }
    let again: Edges = run(program)?.intersection(new).copied().collect();
    if again.is_empty() {
        // A matter of chance: it may come again in the whole program.
        return Ok(program.clone());
    }
    let (mut left, mut failed) = (TRIES, None);
    let small = shrink(program, &mut |candidate| {
        if left == 0 || failed.is_some() {
            return false;
        }
        left -= 1;
        match run(candidate) {
            Ok(reached) => again.is_subset(&reached),
            Err(error) => {
                failed = Some(error);
                false
            }
        }
    });
    failed.map_or(Ok(small), Err)
}

/// As a whole, or not at all: the machine may go in the middle.
fn write(path: &Path, text: &str) -> Result<()> {
    let part = path.with_extension("part");
    fs::write(&part, text).with_context(|| part.display().to_string())?;
    fs::rename(&part, path).with_context(|| path.display().to_string())
}

/// FNV-1a: a name that the same program has everywhere.
fn digest(program: &Program) -> u64 {
    let text = program.to_string();
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn edges(text: &str) -> Result<Edges> {
    let parse = |line| u64::from_str_radix(line, 16).with_context(|| format!("edge {line:?}"));
    text.lines().map(parse).collect()
}

/// The recorder of edges in the kernel: `tests/modules/faults.ko`, and a module with coverage.
pub struct Recorder {
    places: PathBuf,
}

impl Recorder {
    /// Where there is none, that is an error: a fuzzer that learns nothing looks like one that
    /// does.
    pub fn new(places: &Path) -> Result<Self> {
        let recorder = Self {
            places: places.to_owned(),
        };
        recorder.forget()?;
        Ok(recorder)
    }

    /// The build id of the module that is recorded.
    pub fn build() -> Result<String> {
        let note = "/sys/module/amdkfd/notes/.note.gnu.build-id";
        let bytes = fs::read(note).context(note)?;
        ensure!(bytes.len() > 16, "{note} has no build id");
        // The note's name, "GNU", ends after 16 bytes.
        Ok(bytes[16..]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    }

    /// Forgets what was reached.
    pub fn forget(&self) -> Result<()> {
        let name = || self.places.display().to_string();
        fs::write(&self.places, "0").with_context(name)
    }

    /// What was reached since.
    pub fn reached(&self) -> Result<Edges> {
        let text = fs::read_to_string(&self.places)?;
        let places = text.lines().filter_map(|line| line.strip_prefix("plain "));
        let reached = edges(&places.map(|it| format!("{it}\n")).collect::<String>())?;
        ensure!(!reached.is_empty(), "the module has no coverage");
        Ok(reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that goes with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("kfd-corpus-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A driver with an edge for each call, one for each pair of neighbours of one process.
    fn run(program: &Program) -> Edges {
        let number = |name: &str| name.bytes().map(u64::from).sum::<u64>();
        let mut reached = Edges::new();
        for process in 0..program.processes() {
            let calls: Vec<u64> = program.of(process).map(|it| number(&it.call)).collect();
            reached.extend(&calls);
            reached.extend(calls.windows(2).map(|two| two[0] << 32 | two[1]));
        }
        reached
    }

    fn learn(corpus: &mut Corpus, program: &Program) {
        corpus
            .learn(program, &run(program), &mut |it| Ok(run(it)))
            .unwrap();
    }

    #[test]
    fn programs_that_reach_something_new_are_kept_smaller() {
        let scratch = Scratch::new("kept");
        let mut corpus = Corpus::open(&scratch.0, "one").unwrap();
        assert!(corpus.next(1).is_none());
        let program = generate::program(3, 4, 40);
        learn(&mut corpus, &program);
        assert_eq!(corpus.programs.len(), 1);
        let text: Program = "0.0 SETUP\n0.0 GET_VERSION\n0.0 DIE\n1.0 SETUP\n1.0 GET_VERSION\n"
            .parse()
            .unwrap();
        learn(&mut corpus, &text);
        learn(&mut corpus, &text);
        assert_eq!(corpus.programs.len(), 2);
        let kept = corpus.programs[1].to_string();
        assert_eq!(corpus.programs[1].processes(), 1, "{kept}");
        assert_eq!(
            corpus.known,
            run(&program).union(&run(&text)).copied().collect()
        );
    }

    #[test]
    fn what_is_kept_is_there_again_and_is_evolved() {
        let scratch = Scratch::new("again");
        let mut corpus = Corpus::open(&scratch.0, "one").unwrap();
        learn(&mut corpus, &generate::program(3, 2, 40));
        let known = corpus.known.clone();
        let mut again = Corpus::open(&scratch.0, "one").unwrap();
        assert_eq!((again.known.len(), again.unseen.len()), (known.len(), 0));
        assert!((0..50).any(|seed| again.next(seed).is_some()));
        assert_eq!(
            again.summary(),
            format!(
                "corpus: 1 programs, 0 of them new; {} edges, 0 new",
                known.len()
            )
        );
        // Of another build nothing is known: its programs come first, and none is kept twice.
        let mut other = Corpus::open(&scratch.0, "two").unwrap();
        let first = other.next(1).unwrap();
        learn(&mut other, &first);
        assert_eq!(other.programs.len(), 1);
        assert_eq!(other.known, run(&first));
    }

    #[test]
    fn what_comes_by_chance_is_kept_whole() {
        let scratch = Scratch::new("chance");
        let mut corpus = Corpus::open(&scratch.0, "one").unwrap();
        let program = generate::program(3, 2, 40);
        let reached = Edges::from([77]);
        corpus
            .learn(&program, &reached, &mut |_| Ok(Edges::new()))
            .unwrap();
        assert_eq!(corpus.programs, [program]);
    }
}
