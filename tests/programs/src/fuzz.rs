// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The fuzzer: generated programs of calls that several processes make at once, each kept as text
//! before it runs. After every program the driver must be as it was. A program that fails can be
//! run again and made smaller. `Documentation/fuzzing.md` describes how.

mod abi;
mod corpus;
mod execute;
mod floors;
mod generate;
mod program;
mod round;
mod shared;
mod shrink;
mod trace;
mod watch;

pub use generate::Random;
pub use watch::left_behind;

use anyhow::{bail, ensure, Context, Result};
use clap::{Args, Subcommand};
use corpus::{Corpus, Recorder};
use program::Program;
use round::Rounds;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Run generated programs of calls in several processes, and look what they leave behind.
#[derive(Args)]
pub struct Fuzz {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Generate programs and run them.
    Run(Run),
    /// Run a program of a file again.
    Replay(Replay),
    /// Make a failing program smaller.
    Shrink(Shrink),
    /// Print a generated program.
    Show(Size),
    /// Make a program of what `kfdctl --json trace` wrote.
    FromTrace {
        /// The trace.
        trace: PathBuf,
    },
}

/// Which programs.
#[derive(Args)]
struct Size {
    /// The first program's seed; each further one has the next number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes that run at once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    processes: u8,
    /// Generated calls of a program.
    #[arg(long, default_value_t = 400)]
    lines: usize,
    /// Programs to begin with, instead of nothing, in half of the rounds.
    #[arg(long = "from", value_name = "FILE")]
    models: Vec<PathBuf>,
}

/// How programs are run.
#[derive(Args)]
struct How {
    /// Write each line there before it is begun: on a disk of the host's, it outlives the kernel.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Seconds that a call may take.
    #[arg(long, default_value_t = 60)]
    bound: u64,
}

#[derive(Args)]
struct Run {
    #[command(flatten)]
    size: Size,
    #[command(flatten)]
    how: How,
    /// Begin no program after so many seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Kill all processes of each program, with work on the GPU, until so many have been killed.
    #[arg(long, default_value_t = 0, value_name = "TIMES")]
    kill: u64,
    /// Where a failing program is kept.
    #[arg(long, default_value = "/tmp/failed.fuzz")]
    keep: PathBuf,
    /// Programs that reached something new are kept there, and later ones are made of them.
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// With --corpus: where the kernel tells which edges of the driver were reached.
    #[arg(long, value_name = "FILE", default_value = "/sys/kernel/debug/places")]
    places: PathBuf,
    /// Fail if too few calls of an ioctl were good (tests/programs/src/fuzz/floors.rs).
    #[arg(long)]
    floors: bool,
}

/// What has been reached, and how it is known.
struct Learning {
    corpus: Corpus,
    recorder: Recorder,
}

#[derive(Args)]
struct Replay {
    #[command(flatten)]
    how: How,
    /// How often: which process comes first is chance.
    #[arg(long, default_value_t = 5)]
    times: u32,
    /// The program.
    program: PathBuf,
}

#[derive(Args)]
struct Shrink {
    #[command(flatten)]
    how: How,
    /// How often a smaller program may succeed before it counts as one that does not fail.
    #[arg(long, default_value_t = 3)]
    times: u32,
    /// Instead of running programs here, run this command with the name of a file of one; other
    /// than 0 means that it fails. For failures that take the kernel along.
    #[arg(long, value_name = "CMD")]
    test: Option<String>,
    /// The program; the smaller one goes to standard output.
    program: PathBuf,
}

impl Fuzz {
    pub fn run(&self) -> Result<()> {
        match &self.action {
            Action::Run(run) => run.run(),
            Action::Replay(replay) => replay.run(),
            Action::Shrink(shrink) => shrink.run(),
            Action::Show(size) => {
                print!("{}", size.program(size.seed, &size.models()?));
                Ok(())
            }
            Action::FromTrace { trace } => {
                print!("{}", trace::program(&fs::read_to_string(trace)?)?);
                Ok(())
            }
        }
    }
}

fn read(path: &Path) -> Result<Program> {
    let text = fs::read_to_string(path);
    let name = || path.display().to_string();
    text.with_context(name)?.parse().with_context(name)
}

impl Size {
    fn models(&self) -> Result<Vec<Program>> {
        self.models.iter().map(|path| read(path)).collect()
    }

    fn program(&self, seed: u64, models: &[Program]) -> Program {
        match models.get((seed / 2) as usize % models.len().max(1)) {
            Some(model) if seed % 2 == 0 => generate::mutated(seed, self.processes, model),
            _ => generate::program(seed, self.processes, self.lines),
        }
    }
}

impl How {
    fn rounds(&self, killing: bool) -> Result<Rounds> {
        let bound = Duration::from_secs(self.bound);
        Rounds::new(self.record.clone(), bound, killing, &generate::warm())
    }
}

impl Run {
    fn run(&self) -> Result<()> {
        let models = self.size.models()?;
        let rounds = self.how.rounds(self.kill > 0)?;
        let mut learning = self.learning()?;
        let begin = Instant::now();
        let mut seed = self.size.seed;
        while !self.is_over(&rounds, begin.elapsed()) {
            let evolved = learning.as_mut().and_then(|it| it.corpus.next(seed));
            let program = match (self.kill, evolved) {
                (0, Some(program)) => program,
                (0, None) => self.size.program(seed, &models),
                _ => generate::loaded(seed, self.size.processes, self.size.lines),
            };
            match &mut learning {
                Some(learning) => self.one_more(learning, &rounds, seed, &program)?,
                None => self.one(&rounds, seed, &program)?,
            }
            seed += 1;
        }
        self.tell(&rounds, seed - self.size.seed, begin.elapsed())?;
        if let Some(learning) = &learning {
            println!("{}", learning.corpus.summary());
        }
        Ok(())
    }

    fn learning(&self) -> Result<Option<Learning>> {
        let Some(directory) = &self.corpus else {
            return Ok(None);
        };
        let recorder = Recorder::new(&self.places)?;
        let corpus = Corpus::open(directory, &Recorder::build()?)?;
        Ok(Some(Learning { corpus, recorder }))
    }

    /// Runs `program`, which must leave nothing and break no promise.
    fn one(&self, rounds: &Rounds, seed: u64, program: &Program) -> Result<()> {
        let failures = rounds.run(program)?;
        if !failures.is_empty() {
            fs::write(&self.keep, program.to_string())?;
            let kept = self.keep.display();
            bail!("seed {seed}, kept in {kept}: {}", failures.join("; "));
        }
        Ok(())
    }

    /// The same, and learns from what it reaches.
    fn one_more(
        &self,
        learning: &mut Learning,
        rounds: &Rounds,
        seed: u64,
        program: &Program,
    ) -> Result<()> {
        let recorder = &learning.recorder;
        let mut reach = |program: &Program| {
            recorder.forget()?;
            self.one(rounds, seed, program)?;
            recorder.reached()
        };
        let reached = reach(program)?;
        learning.corpus.learn(program, &reached, &mut reach)
    }

    fn is_over(&self, rounds: &Rounds, time: Duration) -> bool {
        match self.kill {
            0 => time >= Duration::from_secs(self.seconds),
            times => rounds.tally.good("KILLED") >= times,
        }
    }

    /// What was done. A fuzzer whose calls are all refused tests nothing.
    fn tell(&self, rounds: &Rounds, programs: u64, time: Duration) -> Result<()> {
        let rows = rounds.tally.rows();
        for row in &rows {
            let (time, longest) = (row.time.as_secs_f64(), row.longest.as_secs_f64());
            println!(
                "{}: {} good, {} refused, {time:.1} s, one of them {longest:.3} s",
                row.name, row.good, row.refused
            );
        }
        let good: u64 = rows.iter().map(|row| row.good).sum();
        let bad: u64 = rows.iter().map(|row| row.refused).sum();
        println!(
            "{programs} programs of {} processes in {} s, {} calls, {good} of them good, {} \
            killed: nothing is left",
            self.size.processes,
            time.as_secs(),
            good + bad,
            rounds.tally.good("KILLED")
        );
        ensure!(good >= bad / 4, "nearly every call was refused");
        let below = if self.floors {
            floors::below(&rows)
        } else {
            Vec::new()
        };
        ensure!(below.is_empty(), "too few good calls: {}", below.join("; "));
        Ok(())
    }
}

impl Replay {
    fn run(&self) -> Result<()> {
        let program = read(&self.program)?;
        let rounds = self.how.rounds(false)?;
        for time in 1..=self.times {
            let failures = rounds.run(&program)?;
            ensure!(failures.is_empty(), "time {time}: {}", failures.join("; "));
        }
        println!("{} times, and nothing is left behind", self.times);
        Ok(())
    }
}

impl Shrink {
    fn run(&self) -> Result<()> {
        let program = read(&self.program)?;
        let candidate = self.program.with_extension("candidate");
        let small = match &self.test {
            Some(command) => shrink::shrink(&program, &mut |program| {
                (0..self.times).any(|_| fails_outside(command, &candidate, program))
            }),
            None => shrink::shrink(&program, &mut |program| {
                (0..self.times).any(|_| self.fails(program))
            }),
        };
        ensure!(
            small != program,
            "it did not fail once more, or is as small as it can be"
        );
        print!("{small}");
        Ok(())
    }

    /// Whether it fails here. Each time with counts of its own: what the last one left is there
    /// still.
    fn fails(&self, program: &Program) -> bool {
        let failures = self
            .how
            .rounds(false)
            .and_then(|rounds| rounds.run(program));
        eprintln!("{} lines: {failures:?}", program.lines.len());
        failures.is_ok_and(|failures| !failures.is_empty())
    }
}

/// Whether `command` fails with a file of this program.
fn fails_outside(command: &str, candidate: &Path, program: &Program) -> bool {
    let status = fs::write(candidate, program.to_string()).and_then(|()| {
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            &format!("{command} \"$0\""),
            &candidate.display().to_string(),
        ]);
        shell.status()
    });
    eprintln!("{} lines: {status:?}", program.lines.len());
    status.is_ok_and(|status| !status.success())
}
