// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Shared virtual memory: attributes of ranges, as a driver takes and tells them, and what comes of
//! them when GPUs access the memory.

mod attribute;
mod beside;
mod effects;
mod forked;
mod fuse;
mod generate;
mod hold;
mod interpreter;
mod merged;
pub(crate) mod pieces;
mod stage;
pub mod supply;
mod told;
mod unmapped;
mod wholes;
mod world;

use crate::cases::of_script;
use anyhow::{ensure, Result};
use clap::{Args, ValueEnum};
use interpreter::Interpreter;

/// Set and ask for attributes of memory, have GPUs access it, and print what each step came to.
#[derive(Args)]
pub struct Svm {
    what: What,
    /// Have the GPUs repeat accesses that find no page.
    #[arg(long)]
    xnack: bool,
    /// This case alone.
    #[arg(long)]
    case: Option<String>,
    /// Where a generated sequence begins; each seed is another sequence.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Steps of a generated sequence.
    #[arg(long, default_value_t = 200)]
    steps: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Scripts of SET_ATTR and GET_ATTR, of maps and unmaps.
    Attributes,
    /// The same, generated.
    Generated,
    /// Scripts in which GPUs access the memory, each in a process of its own.
    Effects,
    /// Scripts about areas that are larger than memory, one at a time.
    Bounds,
    /// Scripts that leave memory of GPUs to children, one at a time.
    Left,
    /// Large pages in VRAM of which threads use single pages, `--steps` times.
    Pieces,
    /// Large pages that go to VRAM and home while threads give them up, `--steps` times.
    Wholes,
    /// Large pages come home, slowly, beside memory of which something is said.
    Beside,
    /// A prefetch of pages that the kernel has merged, and goes on merging, `--steps` times.
    Merged,
    /// The same of one that was in the swap when its mapping ceased to be mergeable.
    Swapped,
    /// A prefetch of pages that a child has, too, while the kernel merges its own.
    Forked,
    /// Two pages that are unmapped and mapped by turns, `--steps` times, while the driver's workers
    /// wait for others.
    Unmapped,
    /// A process with some memory, for tools to look at; goes on with each line it reads.
    Hold,
    /// Scripts in which memory is out while something happens to its GPU, one at a time.
    Stays,
    /// A process of 1 GiB that is idle for a while.
    Idle,
    /// Scripts of twice the VRAM of a GPU with 512 MiB, each in a process of its own.
    Oversubscribed,
    /// Scripts of two GPUs that access the same memory, each in a process of its own.
    Linked,
}

/// The scripts; `interpreter.rs` says how they are written.
const SCRIPTS: &[&str] = &[
    include_str!("svm/values.txt"),
    include_str!("svm/ranges.txt"),
    include_str!("svm/memory.txt"),
    include_str!("svm/buffers.txt"),
    include_str!("svm/gpus.txt"),
];

/// Those with GPUs.
const EFFECTS: &[&str] = &[
    include_str!("svm/access.txt"),
    include_str!("svm/changes.txt"),
    include_str!("svm/vram.txt"),
    include_str!("svm/processes.txt"),
    include_str!("svm/told.txt"),
];

impl What {
    fn scripts(self) -> &'static [&'static str] {
        match self {
            Self::Attributes => SCRIPTS,
            Self::Generated | Self::Hold => &[],
            Self::Pieces | Self::Wholes | Self::Beside => &[],
            Self::Merged | Self::Swapped | Self::Forked | Self::Unmapped => &[],
            Self::Effects => EFFECTS,
            Self::Bounds => &[include_str!("svm/bounds.txt")],
            Self::Left => &[include_str!("svm/left.txt")],
            Self::Stays => &[include_str!("svm/stays.txt")],
            Self::Idle => &[include_str!("svm/idle.txt")],
            Self::Oversubscribed => &[include_str!("svm/oversubscribed.txt")],
            Self::Linked => &[include_str!("svm/linked.txt")],
        }
    }

    /// The name on the command line, where each case is a process of its own.
    fn of_processes(self) -> Option<&'static str> {
        match self {
            Self::Effects => Some("effects"),
            Self::Oversubscribed => Some("oversubscribed"),
            Self::Linked => Some("linked"),
            _ => None,
        }
    }
}

impl Svm {
    pub fn run(&self) -> Result<()> {
        let scripts = self.what.scripts();
        match (self.what, self.what.of_processes()) {
            (What::Hold, _) => hold::run(),
            (What::Pieces, _) => pieces::run(self.xnack, self.seed, self.steps),
            (What::Wholes, _) => wholes::run(self.xnack, self.seed, self.steps),
            (What::Beside, _) => beside::run(self.xnack),
            (What::Merged, _) => merged::run(self.xnack, self.steps),
            (What::Swapped, _) => merged::swapped(self.xnack),
            (What::Forked, _) => forked::run(self.xnack),
            (What::Unmapped, _) => match &self.case {
                Some(file) => unmapped::kept(file.as_ref(), self.seed),
                None => unmapped::run(self.steps),
            },
            (What::Generated, _) => generate::run(self.xnack, self.seed, self.steps),
            (_, Some(what)) if self.case.is_none() => {
                let all = scripts.iter().flat_map(|script| of_script(script));
                effects::run_each(what, all.map(|(name, _)| name), self.xnack)
            }
            _ => self.scripts(scripts),
        }
    }

    fn scripts(&self, scripts: &[&str]) -> Result<()> {
        let stack = [0u8; 3 * world::PAGE as usize];
        let mut interpreter = Interpreter::new(self.xnack, stack.as_ptr() as u64)?;
        let mut found = false;
        for script in scripts {
            for (name, lines) in of_script(script) {
                if self.case.as_deref().is_none_or(|wanted| wanted == name) {
                    interpreter.case(name, &lines)?;
                    found = true;
                }
            }
        }
        std::hint::black_box(stack);
        ensure!(found, "there is no such case");
        Ok(())
    }
}
