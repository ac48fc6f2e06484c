// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the debugger does, one scene after the other. Each prints what it sees, the same on both
//! drivers.

use super::client::{memory, Breakpoint};
use super::inferior::{end_with_parent, Inferior, PATIENCE};
use super::library::{List, Of};
use super::{Debugger, Scene, RUNTIME, WAVE_STOP};
use anyhow::{bail, ensure, Context, Result};
use clap::ValueEnum;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// `amd_dbgapi_wave_info_t`.
const STATE: u32 = 1;
const STOP_REASON: u32 = 2;
const ARCHITECTURE: u32 = 9;
const PC: u32 = 10;
const GROUP: u32 = 12;
const NUMBER: u32 = 13;
const LANES: u32 = 14;
/// `amd_dbgapi_wave_state_t`: AMD_DBGAPI_WAVE_STATE_STOP.
const STOPPED: u32 = 3;
/// `amd_dbgapi_agent_info_t`, and of `amd_dbgapi_agent_state_t` the good one.
const AGENT_STATE: u32 = 4;
const SUPPORTED: u32 = 1;
/// `amd_dbgapi_register_info_t`: AMD_DBGAPI_REGISTER_INFO_NAME.
const NAME: u32 = 2;
/// `amd_dbgapi_architecture_info_t`: AMD_DBGAPI_ARCHITECTURE_INFO_BREAKPOINT_INSTRUCTION_PC_ADJUST.
const PC_ADJUST: u32 = 7;
/// Waves of hip_debugged's kernel.
const WAVES: usize = 4;
/// What the program computes for an item.
fn result(item: u32) -> u32 {
    item * 3 + 1
}

/// A wave: the library's id, its group's number, its own in the group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wave {
    group: u32,
    number: u32,
    id: u64,
}

/// A program whose kernel runs, and where it counts.
struct Started {
    debugger: Debugger,
    ticks: u64,
}

/// Plays a scene in a process of its own. Whether it came to its end.
pub fn play_alone(scene: Scene, program: &str) -> Result<bool> {
    let name = scene.to_possible_value().context("a scene has a name")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["dbgapi", "--program", program, "--here", "0"]);
    command.args(["--case", name.get_name()]);
    end_with_parent(&mut command);
    let output = command.output()?;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        println!("{}: {line}", name.get_name());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    for line in said.lines() {
        eprintln!("{}: {line}", name.get_name());
    }
    println!("{}: {}", name.get_name(), output.status);
    Ok(output.status.success())
}

/// Plays a scene; `pid`: what the debugger that abandons it debugs, or 0.
pub fn play(scene: Scene, program: &str, pid: u32) -> Result<()> {
    match scene {
        Scene::Look => look(program),
        Scene::Change => change(program),
        Scene::Start => start(program),
        Scene::Breakpoint => breakpoint(program),
        Scene::Step => step(program),
        Scene::Watch => watch(program),
        Scene::Violation => violation(program),
        Scene::Along => along(program),
        Scene::Abandon if pid != 0 => end_in_the_middle(pid),
        Scene::Abandon => abandon(program),
    }
}

/// The address behind "ready".
fn address(line: &str) -> Result<u64> {
    let word = line.split(' ').nth(1).context("ready and an address")?;
    Ok(u64::from_str_radix(word.trim_start_matches("0x"), 16)?)
}

impl Started {
    /// A program that runs before anybody debugs it.
    fn running(program: &str) -> Result<Self> {
        let mut inferior = Inferior::start(program, &[], false)?;
        let ticks = address(&inferior.wait_line()?)?;
        ensure!(inferior.wait_line()? == "running", "it does not run");
        inferior.trace()?;
        let mut debugger = Debugger::new(inferior)?;
        debugger.attach()?;
        debugger.until("the runtime", |debugger| debugger.had(RUNTIME) > 0)?;
        println!("attached to a running program");
        Ok(Self { debugger, ticks })
    }

    /// One that is debugged from its first instruction on.
    fn new(program: &str) -> Result<Self> {
        let inferior = Inferior::start(program, &[], true)?;
        let mut debugger = Debugger::new(inferior)?;
        debugger.attach()?;
        println!("attached, runtime loaded: {}", debugger.had(RUNTIME) > 0);
        debugger.inferior.begin()?;
        debugger.until("the kernel", |debugger| debugger.lines.len() >= 2)?;
        println!("runtime loaded: {}", debugger.had(RUNTIME) > 0);
        let ticks = address(&debugger.lines[0])?;
        Ok(Self { debugger, ticks })
    }

    /// Lets the program go on alone, and shows what it says.
    fn let_go(mut self) -> Result<()> {
        self.debugger.detach()?;
        println!("let go");
        finish(&mut self.debugger.inferior)
    }

    /// The program's end, while it is debugged.
    fn end_debugged(mut self) -> Result<()> {
        self.debugger.lines.clear();
        self.debugger.inferior.say("")?;
        self.debugger
            .until("its end", |debugger| debugger.inferior.ended.is_some())?;
        // What it said last may not have been read yet.
        while let Some(line) = self.debugger.inferior.line()? {
            self.debugger.lines.push(line);
        }
        for line in &self.debugger.lines {
            println!("the program: {line}");
        }
        let ended = self.debugger.inferior.ended.as_deref();
        println!("the program: {}", ended.unwrap_or_default());
        // As gdb does when a program has ended.
        self.debugger.forget()
    }

    /// The waves that there are, in order.
    fn waves(&self) -> Result<Vec<Wave>> {
        let library = &self.debugger.library;
        let mut waves = Vec::new();
        for id in self.debugger.list(List::Waves)? {
            waves.push(Wave {
                group: library.info::<[u32; 3]>(Of::Wave, id, GROUP)?[0],
                number: library.info(Of::Wave, id, NUMBER)?,
                id,
            });
        }
        waves.sort_unstable();
        Ok(waves)
    }

    /// All of the kernel's, which counts from the first one's beginning on.
    fn all_waves(&self) -> Result<Vec<Wave>> {
        let begin = Instant::now();
        loop {
            let waves = self.waves()?;
            if waves.len() == WAVES {
                return Ok(waves);
            }
            ensure!(begin.elapsed() < PATIENCE, "{} waves", waves.len());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops these waves.
    fn stop(&mut self, waves: &[Wave]) -> Result<()> {
        self.debugger.came.clear();
        for wave in waves {
            self.debugger.library.stop(wave.id)?;
        }
        self.stopped(waves.len())
    }

    /// Waits until so many have stopped.
    fn stopped(&mut self, count: usize) -> Result<()> {
        let stopped = move |debugger: &Debugger| debugger.had(WAVE_STOP) >= count;
        self.debugger.until("a stop", stopped)
    }

    /// Stops all waves, and shows them.
    fn stop_all(&mut self) -> Result<Vec<Wave>> {
        let waves = self.all_waves()?;
        self.stop(&waves)?;
        self.show(&waves)?;
        Ok(waves)
    }

    fn resume(&mut self, waves: &[Wave]) -> Result<()> {
        self.debugger.came.clear();
        for wave in waves {
            self.debugger.library.resume(wave.id, false)?;
        }
        Ok(())
    }

    fn info<T: Copy + Default>(&self, wave: Wave, query: u32) -> Result<T> {
        self.debugger.library.info(Of::Wave, wave.id, query)
    }

    /// Each wave's state.
    fn show(&self, waves: &[Wave]) -> Result<()> {
        for wave in waves {
            let state: u32 = self.info(*wave, STATE)?;
            let lanes: usize = self.info(*wave, LANES)?;
            let Wave { group, number, .. } = wave;
            if state == STOPPED {
                let reason: u32 = self.info(*wave, STOP_REASON)?;
                println!("wave {group}.{number}: stopped, reason {reason:#x}, {lanes} lanes");
            } else {
                println!("wave {group}.{number}: state {state}, {lanes} lanes");
            }
        }
        Ok(())
    }

    /// A wave's register by its name.
    fn register(&self, wave: Wave, name: &str) -> Result<u64> {
        let library = &self.debugger.library;
        for register in library.registers(wave.id)? {
            if library.text(Of::Register, register, NAME)? == name {
                return Ok(register);
            }
        }
        bail!("the wave has no {name}")
    }

    /// A word of the process's memory.
    fn word(&self, address: u64) -> Result<u32> {
        let mut bytes = [0; 4];
        let process = self.debugger.process()?;
        self.debugger
            .library
            .memory(process, address, &mut bytes, false)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn set_bytes(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let mut bytes = bytes.to_vec();
        let process = self.debugger.process()?;
        self.debugger
            .library
            .memory(process, address, &mut bytes, true)
    }

    /// Whether the kernel counts.
    fn counts(&self) -> Result<bool> {
        counts(|| self.word(self.ticks))
    }
}

/// Whether a word changes.
fn counts(word: impl Fn() -> Result<u32>) -> Result<bool> {
    let before = word()?;
    std::thread::sleep(Duration::from_millis(500));
    Ok(word()? != before)
}

/// A word of a process that is not debugged.
fn read_word(pid: u32, address: u64) -> Result<u32> {
    let mut bytes = [0; 4];
    memory(pid)?.read_exact_at(&mut bytes, address)?;
    Ok(u32::from_le_bytes(bytes))
}

/// A program's end that nobody debugs.
fn finish(inferior: &mut Inferior) -> Result<()> {
    inferior.say("")?;
    loop {
        let line = inferior.wait_line()?;
        println!("the program: {line}");
        if line.contains(" of ") {
            break;
        }
    }
    println!("the program: {}", inferior.wait()?);
    Ok(())
}

impl Debugger {
    /// How many events of a kind have come.
    fn had(&self, kind: u32) -> usize {
        self.came.iter().filter(|(came, _)| *came == kind).count()
    }
}

/// Shows the agents. Whether the library can do more with all of them.
fn show_agents(debugger: &Debugger) -> Result<bool> {
    let library = &debugger.library;
    let mut all = true;
    for agent in debugger.list(List::Agents)? {
        let state: u32 = library.info(Of::Agent, agent, AGENT_STATE)?;
        all &= state == SUPPORTED;
        // Name, state, slot, vendor and device, execution units and waves of each.
        println!(
            "agent {}: state {}, slot {:#x}, {:04x}:{:04x}, {} units of {} waves",
            library.text(Of::Agent, agent, 2)?,
            state,
            library.info::<u16>(Of::Agent, agent, 6)?,
            library.info::<u32>(Of::Agent, agent, 7)?,
            library.info::<u32>(Of::Agent, agent, 8)?,
            library.info::<usize>(Of::Agent, agent, 9)?,
            library.info::<usize>(Of::Agent, agent, 10)?
        );
    }
    Ok(all)
}

fn look(program: &str) -> Result<()> {
    let started = Started::running(program)?;
    let (debugger, library) = (&started.debugger, &started.debugger.library);
    if !show_agents(debugger)? {
        return started.let_go();
    }
    let mut queues = Vec::new();
    for queue in debugger.list(List::Queues)? {
        // Type and size in bytes. The library has the state in its header only.
        let kind: u32 = library.info(Of::Queue, queue, 4)?;
        let size: u64 = library.info(Of::Queue, queue, 8)?;
        queues.push((kind, size));
    }
    queues.sort_unstable();
    println!("queues, by type and size: {queues:?}");
    println!(
        "code objects: {}",
        !debugger.list(List::CodeObjects)?.is_empty()
    );
    for dispatch in debugger.list(List::Dispatches)? {
        println!(
            "dispatch: {} dimensions, {:?} items in groups of {:?}, LDS {}, code {}",
            library.info::<u32>(Of::Dispatch, dispatch, 9)?,
            library.info::<[u32; 3]>(Of::Dispatch, dispatch, 11)?,
            library.info::<[u16; 3]>(Of::Dispatch, dispatch, 10)?,
            library.info::<u64>(Of::Dispatch, dispatch, 13)?,
            library.info::<u64>(Of::Dispatch, dispatch, 16)? != 0
        );
    }
    let waves = started.all_waves()?;
    started.show(&waves)?;
    println!("it counts: {}", started.counts()?);
    started.let_go()
}

/// Changes a register of a lane, and a word.
fn change(program: &str) -> Result<()> {
    let mut started = Started::running(program)?;
    change_and_go(&mut started)?;
    started.let_go()
}

fn change_and_go(started: &mut Started) -> Result<()> {
    const LANE: u64 = 5;
    let waves = started.stop_all()?;
    println!("it counts: {}", started.counts()?);
    for wave in &waves {
        let register = started.register(*wave, "v40")?;
        let mut value = [0; 4];
        let library = &started.debugger.library;
        library.read_register(wave.id, register, 4 * LANE, &mut value)?;
        let item = wave.group * 128 + wave.number * 64 + LANE as u32;
        println!(
            "v40 of lane {LANE} is right: {}",
            u32::from_le_bytes(value) == result(item)
        );
    }
    let last = waves[WAVES - 1];
    let register = started.register(last, "v40")?;
    let library = &started.debugger.library;
    library.write_register(last.id, register, 4 * LANE, &1_000_000u32.to_le_bytes())?;
    started.set_bytes(started.ticks, &5_000_000u32.to_le_bytes())?;
    println!("the word is {}", started.word(started.ticks)?);
    started.resume(&waves)?;
    println!("it counts: {}", started.counts()?);
    println!("from there: {}", started.word(started.ticks)? > 5_000_000);
    Ok(())
}

/// The same with a program that is debugged from the beginning; it ends while it is debugged.
fn start(program: &str) -> Result<()> {
    let mut started = Started::new(program)?;
    change_and_go(&mut started)?;
    started.end_debugged()
}

/// No wave is stopped.
fn along(program: &str) -> Result<()> {
    let started = Started::new(program)?;
    show_agents(&started.debugger)?;
    println!("it counts: {}", started.counts()?);
    started.end_debugged()
}

/// What becomes of a program whose debugger is killed.
fn abandon(program: &str) -> Result<()> {
    let mut inferior = Inferior::start(program, &[], false)?;
    let ticks = address(&inferior.wait_line()?)?;
    ensure!(inferior.wait_line()? == "running", "it does not run");
    let pid = inferior.id();
    let mut debugger = Command::new(std::env::current_exe()?);
    debugger.args(["dbgapi", "--program", program, "--case", "abandon"]);
    debugger.args(["--here", &pid.to_string()]);
    end_with_parent(&mut debugger);
    let debugger = debugger.output()?;
    print!("{}", String::from_utf8_lossy(&debugger.stdout));
    eprint!("{}", String::from_utf8_lossy(&debugger.stderr));
    println!("the debugger: {}", debugger.status);
    println!("it counts: {}", counts(|| read_word(pid, ticks))?);
    finish(&mut inferior)
}

/// The debugger's part: its queues are suspended when it ends. What it has put into the program's
/// code does not end with it, and would be a trap for the program at its end (`r_brk`, when code
/// objects are unloaded): that is taken out before.
fn end_in_the_middle(pid: u32) -> Result<()> {
    let mut inferior = Inferior::of_another(pid);
    inferior.trace()?;
    let mut debugger = Debugger::new(inferior)?;
    debugger.attach()?;
    debugger.until("the runtime", |debugger| debugger.had(RUNTIME) > 0)?;
    let begin = Instant::now();
    while debugger.list(List::Waves)?.len() < WAVES {
        ensure!(begin.elapsed() < PATIENCE, "not all waves come");
        std::thread::sleep(Duration::from_millis(20));
    }
    debugger.library.stand_still(debugger.process()?)?;
    println!("waves: {}", debugger.list(List::Waves)?.len());
    Breakpoint::clear_all()?;
    Ok(nix::sys::signal::raise(nix::sys::signal::SIGKILL)?)
}

/// All waves come to the instruction that one of them was stopped at.
fn breakpoint(program: &str) -> Result<()> {
    let mut started = Started::running(program)?;
    let waves = started.stop_all()?;
    let architecture: u64 = started.info(waves[0], ARCHITECTURE)?;
    let library = &started.debugger.library;
    let instruction = library.breakpoint_instruction(architecture)?;
    let adjust: u64 = library.info(Of::Architecture, architecture, PC_ADJUST)?;
    // One of the second group: it takes no branch that others do not.
    let (others, last) = (&waves[..WAVES - 1], waves[WAVES - 1]);
    let place: u64 = started.info(last, PC)?;
    let instead_of = started.word(place)?;
    started.set_bytes(place, &instruction)?;
    started.resume(others)?;
    started.stopped(others.len())?;
    started.show(others)?;
    for wave in others {
        let pc: u64 = started.info(*wave, PC)?;
        println!("at the breakpoint: {}", pc - adjust == place);
        if adjust != 0 {
            let register = started.register(*wave, "pc")?;
            let library = &started.debugger.library;
            library.write_register(wave.id, register, 0, &place.to_le_bytes())?;
        }
    }
    started.set_bytes(place, &instead_of.to_le_bytes())?;
    started.resume(&waves)?;
    println!("it counts: {}", started.counts()?);
    started.let_go()
}

/// One wave goes on by single instructions while the others run.
fn step(program: &str) -> Result<()> {
    let mut started = Started::running(program)?;
    let waves = started.all_waves()?;
    let one = waves[WAVES - 1];
    started.stop(&[one])?;
    started.show(&[one])?;
    // Its loop has some 12 instructions.
    const STEPS: usize = 40;
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        let before: u64 = started.info(one, PC)?;
        started.debugger.came.clear();
        started.debugger.library.resume(one.id, true)?;
        started.stopped(1)?;
        let reason: u32 = started.info(one, STOP_REASON)?;
        let after: u64 = started.info(one, PC)?;
        ensure!(reason == 4, "it stopped for {reason:#x}");
        steps.push(after.wrapping_sub(before) as i64);
    }
    // A loop: forward by whole instructions, and back.
    let forward = steps.iter().filter(|step| (4..=12).contains(*step)).count();
    let back = steps.iter().filter(|step| **step < 0).count();
    println!(
        "{STEPS} steps, all of them forward or back: {}, around: {}",
        forward + back == steps.len(),
        back > 0
    );
    started.resume(&[one])?;
    println!("it counts: {}", started.counts()?);
    started.let_go()
}

/// The wave that counts.
fn watch(program: &str) -> Result<()> {
    let mut started = Started::running(program)?;
    started.all_waves()?;
    let process = started.debugger.process()?;
    started.debugger.came.clear();
    let library = &started.debugger.library;
    let watch = library.watch(process, started.ticks, 4)?;
    started.stopped(1)?;
    let waves = started.waves()?;
    started.show(&waves)?;
    println!("it counts: {}", started.counts()?);
    started.debugger.library.unwatch(watch)?;
    let stopped: Vec<Wave> = waves
        .into_iter()
        .filter(|wave| {
            started
                .info::<u32>(*wave, STATE)
                .is_ok_and(|state| state == STOPPED)
        })
        .collect();
    started.resume(&stopped)?;
    println!("it counts: {}", started.counts()?);
    started.let_go()
}

fn violation(program: &str) -> Result<()> {
    let mut inferior = Inferior::start(program, &["fault"], false)?;
    let ticks = address(&inferior.wait_line()?)?;
    inferior.trace()?;
    let mut debugger = Debugger::new(inferior)?;
    debugger.attach()?;
    debugger.until("the runtime", |debugger| debugger.had(RUNTIME) > 0)?;
    debugger.came.clear();
    debugger.library.set_precise(debugger.process()?, true)?;
    debugger.inferior.say("")?;
    let mut started = Started { debugger, ticks };
    started.stopped(1)?;
    let waves = started.waves()?;
    started.show(&waves)?;
    started.debugger.forget()?;
    println!("detached");
    Ok(())
}
