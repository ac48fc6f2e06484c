// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Programs from a seed: what the fuzzer knows of the interface's types. The same seed gives the
//! same program, on any machine.

mod calls;
mod debugger;
mod first;
mod random;
mod svm;

pub use calls::{MEMORY, PLACE, PLACES};
pub use first::warm;

use super::program::{Line, Program, Value};
pub use random::Random;

/// Threads of a process.
const THREADS: usize = 2;

/// The longest that a line waits, in milliseconds.
const MOMENT: u64 = 200;

/// A generated program of so many lines, after each process's SETUP.
pub fn program(seed: u64, processes: u8, lines: usize) -> Program {
    let mut writer = Writer::new(seed, processes);
    for process in 0..processes {
        writer.line(process, "SETUP", |line| of_user(line, process));
    }
    for process in 0..processes {
        if writer.random.chance(60) {
            debugger::runtime(&mut writer, process);
        }
    }
    for _ in 0..lines {
        writer.step();
    }
    writer.program
}

/// The user of every second process; the others are root's.
const USER: u64 = 65534;

/// A process's SETUP, with its user.
fn of_user(line: Line, process: u8) -> Line {
    match process % 2 {
        1 => line.with("uid", Value::Number(USER)),
        _ => line,
    }
}

/// Such a program in which all processes have work on the GPU when it begins: for `--kill`.
pub fn loaded(seed: u64, processes: u8, lines: usize) -> Program {
    let rest = program(seed, processes, lines).lines;
    let (setups, rest) = rest.split_at(processes.into());
    let mut lines = setups.to_vec();
    for process in 0..processes {
        let launch = Line::new(process, 0, "LAUNCH")
            .with("groups", Value::Number(4))
            .with("rounds", Value::Number(1000));
        let file = Value::Prepared("kfd".into(), 0);
        let next = Value::Number(u64::from((process + 1) % processes));
        let send = Line::new(process, 1, "SEND")
            .with("file", file)
            .with("to", next);
        let fork = Line::new(process, 0, "FORK").with("lines", Value::Number(2));
        lines.extend([launch.clone(), fork, launch, send]);
    }
    lines.extend_from_slice(rest);
    // Nothing ends by itself before it is killed.
    let sleep = |process| Line::new(process, 0, "SLEEP").with("ms", Value::Number(30_000));
    lines.extend((0..processes).map(sleep));
    Program { lines }
}

/// `model` with some lines left out, doubled, replaced, moved to another thread, or with other
/// values. Each of the processes does what the model's process 0 does.
pub fn mutated(seed: u64, processes: u8, model: &Program) -> Program {
    let mut writer = Writer::new(seed, processes);
    for line in &model.lines {
        for process in 0..processes {
            writer.mutate(line, process);
        }
    }
    writer.program
}

/// `one` with some lines changed as by [`mutated`], each in its own process; and behind them some
/// lines of `other`, from anywhere in it, in the processes that they are of.
pub fn evolved(seed: u64, one: &Program, other: &Program) -> Program {
    let processes = one.processes().max(1);
    let mut writer = Writer::new(seed, processes);
    writer.know(one);
    for line in &one.lines {
        writer.mutate(line, line.process);
    }
    if writer.random.chance(40) && !other.lines.is_empty() {
        let first = writer.random.below(other.lines.len());
        let count = 1 + writer.random.below(other.lines.len() - first);
        for line in &other.lines[first..first + count] {
            if line.call != "SETUP" {
                writer.mutate(line, line.process % processes);
            }
        }
    }
    for _ in 0..writer.random.below(20) {
        writer.step();
    }
    writer.program
}

/// What lines so far have given, for later ones to use.
#[derive(Clone, Default)]
struct Labels {
    handles: Vec<String>,
    /// Those of the handles that some GPU sees.
    mapped: Vec<String>,
    queues: Vec<String>,
    events: Vec<String>,
    /// Those of the events that programs may set.
    signals: Vec<String>,
    files: Vec<String>,
    /// Those of the files that are dma-bufs, and /dev/kfd.
    dmabufs: Vec<String>,
    kfds: Vec<String>,
    mappings: Vec<String>,
    /// Processes that this one debugs, if all went well.
    sessions: Vec<u8>,
}

/// Writes one program.
struct Writer {
    random: Random,
    program: Program,
    labels: Vec<Labels>,
    made: usize,
}

impl Writer {
    fn new(seed: u64, processes: u8) -> Self {
        Self {
            random: Random::new(seed),
            program: Program::default(),
            labels: vec![Labels::default(); processes.into()],
            made: 0,
        }
    }

    /// Adds a line of some thread of `process`.
    fn line(&mut self, process: u8, call: &str, fill: impl FnOnce(Line) -> Line) {
        // SETUP and most of the rest happen in the first thread: order matters to good calls.
        let thread = match call {
            "SETUP" => 0,
            _ if self.random.chance(70) => 0,
            _ => self.random.below(THREADS) as u8,
        };
        self.program
            .lines
            .push(fill(Line::new(process, thread, call)));
    }

    /// Adds a line of the first thread.
    fn first(&mut self, process: u8, call: &str, fill: &dyn Fn(Line) -> Line) {
        self.program.lines.push(fill(Line::new(process, 0, call)));
    }

    /// A new label of this kind.
    fn label(&mut self, kind: char) -> String {
        self.made += 1;
        format!("{kind}{}", self.made)
    }

    /// One generated call of some process.
    fn step(&mut self) {
        let process = self.random.below(self.labels.len()) as u8;
        calls::any(self, process);
    }

    /// Later calls know what the lines of `program` give; new labels are none of its.
    fn know(&mut self, program: &Program) {
        for line in &program.lines {
            let Some(label) = &line.label else {
                continue;
            };
            let number = label.get(1..).and_then(|digits| digits.parse().ok());
            self.made = self.made.max(number.unwrap_or(0));
            let labels = &mut self.labels[usize::from(line.process)];
            if label.starts_with('d') {
                labels.dmabufs.push(label.clone());
            }
            let kind = match label.as_bytes().first() {
                Some(b'h') => &mut labels.handles,
                Some(b'q') => &mut labels.queues,
                Some(b'e') => &mut labels.events,
                Some(b'm') => &mut labels.mappings,
                _ => &mut labels.files,
            };
            kind.push(label.clone());
        }
    }

    fn mutate(&mut self, line: &Line, process: u8) {
        let mut line = line.clone();
        line.process = process;
        // A process is set up once: another time its VM would be taken.
        if line.call == "SETUP" {
            if line.field("uid").is_none() {
                line = of_user(line, process);
            }
            self.program.lines.push(line);
            return;
        }
        bound(&mut line);
        match self.random.below(100) {
            0..4 => return,
            4..8 => self.program.lines.push(line.clone()),
            8..14 => calls::any(self, process),
            14..22 => line.thread = self.random.below(THREADS) as u8,
            22..30 => self.change(&mut line),
            _ => {}
        }
        self.program.lines.push(line);
    }

    /// Gives one of the line's fields another value.
    fn change(&mut self, line: &mut Line) {
        if line.fields.is_empty() {
            return;
        }
        let field = self.random.below(line.fields.len());
        let odd = [
            0,
            1,
            8,
            0xfff,
            4096,
            1 << 20,
            1 << 31,
            u64::MAX,
            calls::KERNEL,
        ];
        line.fields[field].1 = Value::Number(self.random.pick(&odd));
        bound(line);
    }
}

/// No line waits for longer than a moment, as a program may that gets what it waits for: what does
/// not end is a failure.
fn bound(line: &mut Line) {
    let times = line
        .fields
        .iter_mut()
        .filter(|(name, _)| matches!(name.as_str(), "timeout" | "ms"));
    for (_, value) in times {
        if let Value::Number(milliseconds) = value {
            *milliseconds = (*milliseconds).min(MOMENT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::execute::place;
    use kfd_uapi::{ioctl_by_nr, reflect::Struct, IOCTLS};

    #[test]
    fn a_seed_gives_one_program_and_it_can_be_read_again() {
        let (one, two) = (program(7, 8, 300), program(8, 8, 300));
        assert_eq!(one, program(7, 8, 300));
        assert_ne!(one, two);
        assert_eq!(one.to_string().parse::<Program>().unwrap(), one);
        assert_eq!(one.processes(), 8);
    }

    #[test]
    fn the_first_program_has_queues_and_memory_on_both_gpus() {
        let text = warm().to_string();
        for wanted in [
            "gpu_id=$gpu ",
            "gpu_id=$gpu2 ",
            "1.0 SETUP uid=",
            "LAUNCH",
            "flags=0x2",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert_eq!(text.matches("CREATE_QUEUE").count(), 8);
    }

    #[test]
    fn a_loaded_program_begins_with_work_for_all() {
        let program = loaded(1, 3, 10);
        let launches = |process| {
            let lines = program.of(process).take(5);
            lines.filter(|line| line.call == "LAUNCH").count()
        };
        assert!((0..3).all(|process| launches(process) == 2), "{program}");
        assert!(program.lines[..3].iter().all(|line| line.call == "SETUP"));
    }

    #[test]
    fn every_ioctl_is_drawn() {
        let drawn = program(1, 8, 20_000);
        for ioctl in IOCTLS {
            let calls = drawn.lines.iter().filter(|line| line.call == ioctl.name);
            assert!(calls.count() > 0, "{}", ioctl.name);
        }
    }

    #[test]
    fn fields_are_the_headers() {
        for line in program(2, 8, 5000).lines {
            let Some(ioctl) = (1..=40)
                .filter_map(ioctl_by_nr)
                .find(|it| it.name == line.call)
            else {
                continue;
            };
            let known = Struct::by_name(ioctl.arguments);
            let apart = ["fd", "request_bytes"];
            let fields = line.fields.iter();
            for (name, _) in fields.filter(|(name, _)| !apart.contains(&name.as_str())) {
                let known = known.expect("fields need a struct");
                let found = place(Some(known), name);
                assert!(found.is_some(), "{}.{name}", line.call);
            }
        }
    }

    #[test]
    fn no_mutation_waits_for_ever() {
        let wait = Line::new(0, 0, "WAIT_EVENTS").with("timeout", Value::Number(0xffff_fffe));
        let sleep = Line::new(0, 0, "SLEEP").with("ms", Value::Number(1));
        let model = Program {
            lines: vec![wait, sleep],
        };
        let lines = (0..500).flat_map(|seed| mutated(seed, 8, &model).lines);
        let times = lines.flat_map(|line| {
            let times = ["timeout", "ms"].map(|name| line.field(name).cloned());
            times.into_iter().flatten()
        });
        for time in times {
            assert!(matches!(time, Value::Number(..=MOMENT)), "{time}");
        }
    }

    #[test]
    fn what_evolves_keeps_its_processes_and_takes_from_another() {
        let (one, other) = (program(1, 3, 60), program(2, 3, 60));
        let evolved = (0..20).map(|seed| evolved(seed, &one, &other));
        for program in evolved {
            assert_eq!(program.processes(), 3);
            let setups = program.lines.iter().filter(|line| line.call == "SETUP");
            assert_eq!(setups.count(), 3);
            assert_eq!(program.to_string().parse::<Program>().unwrap(), program);
        }
        assert_eq!(
            super::evolved(7, &one, &other),
            super::evolved(7, &one, &other)
        );
    }

    #[test]
    fn mutations_keep_most_of_the_model() {
        let model: Program = "0.0 SETUP\n0.0 SLEEP ms=1\n0.0 SLEEP ms=2\n"
            .parse()
            .unwrap();
        let lines: usize = (0..100)
            .map(|seed| mutated(seed, 2, &model).lines.len())
            .sum();
        assert!((500..700).contains(&lines), "{lines}");
    }
}
