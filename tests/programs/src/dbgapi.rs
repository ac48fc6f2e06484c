// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A debugger of HIP programs that uses AMD's own library, as gdb does: it attaches to a program
//! that runs and to one that it starts, looks at agents, queues, dispatches and waves, stops them,
//! reads and writes registers and memory, sets breakpoints and watch points, steps, and lets go.
//! The program goes on, and says what its kernel has computed.

mod client;
mod inferior;
mod library;
mod scenes;

use anyhow::{bail, ensure, Result};
use clap::{Args, ValueEnum};
use inferior::{Inferior, PATIENCE};
use library::{Library, List, Of, Process};
use nix::unistd::Pid;
use std::time::Instant;

/// Debug `hip_debugged`.
#[derive(Args)]
pub struct Dbgapi {
    /// The program.
    #[arg(long)]
    program: String,
    /// These scenes alone.
    #[arg(long)]
    case: Vec<Scene>,
    /// Play the one scene in this process; with a pid: the part of the debugger that ends.
    #[arg(long, hide = true)]
    here: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Scene {
    /// Attach to a running program, look at all there is, and let go.
    Look,
    /// Stop the waves, change a register and memory, and let go.
    Change,
    /// The same with a program that is started.
    Start,
    /// Stop the waves at an instruction.
    Breakpoint,
    /// Let a wave execute one instruction after the other.
    Step,
    /// Stop the wave that stores to a word.
    Watch,
    /// A wave that stores to where nothing is.
    Violation,
    /// Look at a program from its first instruction until its end.
    Along,
    /// End in the middle of it, while queues are suspended.
    Abandon,
}

impl Dbgapi {
    pub fn run(&self) -> Result<()> {
        if let (Some(pid), [scene]) = (self.here, &self.case[..]) {
            return scenes::play(*scene, &self.program, pid);
        }
        let scenes = match &self.case[..] {
            [] => Scene::value_variants(),
            some => some,
        };
        let mut failed = 0;
        // Each in a process of its own: one cannot do without the library's state of another.
        for scene in scenes {
            failed += u32::from(!scenes::play_alone(*scene, &self.program)?);
        }
        ensure!(failed == 0, "{failed} scenes failed");
        Ok(())
    }
}

/// `amd_dbgapi_event_kind_t`.
const WAVE_STOP: u32 = 1;
const BREAKPOINT_RESUME: u32 = 4;
const RUNTIME: u32 = 5;
/// `amd_dbgapi_event_info_t`.
const EVENT_WAVE: u32 = 3;
const EVENT_THREAD: u32 = 5;

/// A debugger at work.
pub struct Debugger {
    library: Library,
    inferior: Inferior,
    process: Option<Process>,
    /// Events that came: kind, and the wave of it.
    came: Vec<(u32, u64)>,
    /// Lines that the program said.
    lines: Vec<String>,
}

impl Debugger {
    pub fn new(inferior: Inferior) -> Result<Self> {
        Ok(Self {
            library: Library::open(&client::CALLBACKS_70, &client::CALLBACKS)?,
            inferior,
            process: None,
            came: Vec::new(),
            lines: Vec::new(),
        })
    }

    pub fn process(&self) -> Result<Process> {
        match self.process {
            Some(process) => Ok(process),
            None => bail!("it is not attached"),
        }
    }

    /// Attaches the library to the traced program.
    pub fn attach(&mut self) -> Result<()> {
        self.process = Some(self.library.attach(self.inferior.id())?);
        Ok(())
    }

    /// Lets the program go.
    pub fn detach(&mut self) -> Result<()> {
        self.forget()?;
        self.inferior.let_go()
    }

    /// The library lets go of the program, which stays traced or has ended.
    pub fn forget(&mut self) -> Result<()> {
        let process = self.process()?;
        self.process = None;
        self.library.detach(process)
    }

    /// Sees to threads and events until something is so.
    pub fn until(&mut self, what: &str, is: impl Fn(&Self) -> bool) -> Result<()> {
        let begin = Instant::now();
        while !is(self) {
            ensure!(begin.elapsed() < PATIENCE, "{what} does not come");
            self.attend()?;
        }
        Ok(())
    }

    /// What has happened since, of threads, waves and lines.
    fn attend(&mut self) -> Result<()> {
        while self.inferior.attend(&self.library, self.process)? {}
        if let Some(process) = self.process {
            while let Some((event, kind)) = self.library.event(process)? {
                let wave = match kind {
                    WAVE_STOP => self.library.info(Of::Event, event, EVENT_WAVE)?,
                    BREAKPOINT_RESUME => {
                        let thread: usize = self.library.info(Of::Event, event, EVENT_THREAD)?;
                        self.inferior.go_past(Pid::from_raw(thread as i32))?;
                        0
                    }
                    _ => 0,
                };
                self.came.push((kind, wave));
                self.library.event_processed(event)?;
            }
        }
        if let Some(line) = self.inferior.line()? {
            self.lines.push(line);
        }
        Ok(())
    }

    /// The ids of what the program has.
    pub fn list(&self, list: List) -> Result<Vec<u64>> {
        self.library.list(self.process()?, list)
    }
}

impl Drop for Debugger {
    /// What goes wrong half way: the library's own static destructors must not find a process that
    /// is attached, of whose memory and queues they would still ask (7.2's crashes then).
    fn drop(&mut self) {
        if self.process.is_some() {
            self.inferior.kill();
            if let Err(error) = self.forget() {
                eprintln!("not detached: {error:#}");
            }
        }
    }
}
