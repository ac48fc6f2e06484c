// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl waves PID`: what runs on the compute queues of another program. It is traced, its queues
//! are suspended, their save areas are read, and all goes on; a fraction of a second later it is as
//! it was. If this program is killed meanwhile the kernel resumes the queues.

mod saved;

use crate::queues::Memory;
use anyhow::{bail, Context, Result};
use clap::Args;
use gcn::Target;
use kfd::{Debugger, Exceptions, Kfd, QueueReport};
use kfd_uapi as uapi;
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;
use rustix::fd::AsFd;
use saved::{Wave, LANES};
use serde_json::json;
use std::mem::size_of;
use std::os::unix::net::UnixStream;

/// Whose waves, and how much of them.
#[derive(Args)]
pub struct Waves {
    /// The process.
    pid: u32,
    /// This queue alone, as `kfdctl top` numbers it.
    #[arg(long, short)]
    queue: Option<u32>,
    /// Show the scalar registers of each wave, too.
    #[arg(long, short)]
    registers: bool,
    /// Show the vector registers of each wave, too, with all lanes.
    #[arg(long)]
    vectors: bool,
}

/// A queue and its waves.
struct Queue {
    id: u32,
    gpu_id: u32,
    /// What its waves execute.
    target: Target,
    waves: Vec<Wave>,
}

/// The longest instruction has 2 words, and a literal.
const CODE: usize = 12;
/// `DEBUG_RUNTIME_STATE_ENABLED`.
const ENABLED: u32 = uapi::DEBUG_RUNTIME_STATE_ENABLED;

impl Waves {
    /// Prints the waves.
    pub fn run(&self, json: bool) -> Result<()> {
        let memory = Memory::of(self.pid);
        let queues = self.look(&memory)?;
        if json {
            let all: Vec<_> = queues
                .iter()
                .map(|queue| self.json(queue, &memory))
                .collect();
            outln!("{}", serde_json::Value::from(all));
            return Ok(());
        }
        for queue in &queues {
            out!("{}", self.text(queue, &memory));
        }
        Ok(())
    }

    /// The queues, with their waves as they are at one moment.
    fn look(&self, memory: &Memory) -> Result<Vec<Queue>> {
        let kfd = Kfd::open()?;
        let pid = Pid::from_raw(i32::try_from(self.pid)?);
        // It runs on, and is let go when this program ends.
        ptrace::seize(pid, ptrace::Options::empty()).map_err(|errno| self.not_traced(errno))?;
        let (_ours, news) = UnixStream::pair()?;
        let debugger = Debugger::attach(&kfd, self.pid, Exceptions::empty(), news.as_fd())?;
        if debugger.runtime().runtime_state != ENABLED {
            bail!(
                "process {} has not told the driver of a runtime (RUNTIME_ENABLE), as ROCm \
                programs do: its queues can't be suspended",
                self.pid
            )
        }
        let gpus = debugger.devices(Exceptions::empty())?;
        let gpu = |gpu_id| {
            let gpu = gpus.iter().find(|gpu| gpu.gpu_id == gpu_id);
            let target = gpu.map_or_else(Target::default, |gpu| target(gpu.gfx_target_version));
            (gpu.map_or(1, |gpu| gpu.num_xcc), target)
        };
        // A queue can be suspended when its debugger has seen it.
        let found = debugger.queues(Exceptions::QUEUE_NEW)?;
        let wanted: Vec<_> = found
            .into_iter()
            .filter(|entry| self.queue.is_none_or(|queue| queue == entry.queue_id))
            .filter(|entry| {
                entry.queue_type == uapi::KFD_IOC_QUEUE_TYPE_COMPUTE
                    || entry.queue_type == uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL
            })
            .collect();
        if let (Some(queue), true) = (self.queue, wanted.is_empty()) {
            bail!("process {} has no compute queue {queue}", self.pid)
        }
        let ids: Vec<u32> = wanted.iter().map(|entry| entry.queue_id).collect();
        let reports = debugger.suspend(&ids, 0, Exceptions::empty())?;
        let queues: Result<Vec<Queue>> = wanted
            .iter()
            .zip(reports)
            // One that is gone meanwhile.
            .filter(|(_, report)| *report != QueueReport::Invalid)
            .map(|(entry, report)| match report {
                QueueReport::Failed => bail!("the GPU does not suspend queue {}", entry.queue_id),
                _ => read_queue(memory, entry, gpu(entry.gpu_id)),
            })
            .collect();
        debugger.resume(&ids)?;
        queues
    }

    fn not_traced(&self, errno: Errno) -> anyhow::Error {
        let pid = self.pid;
        match errno {
            Errno::ESRCH => anyhow::anyhow!("there is no process {pid}"),
            Errno::EPERM => anyhow::anyhow!(
                "process {pid} may not be traced by this user, or another debugger traces it"
            ),
            errno => anyhow::anyhow!("tracing process {pid}: {}", errno.desc()),
        }
    }

    fn text(&self, queue: &Queue, memory: &Memory) -> String {
        let waves = queue.waves.len();
        let mut text = format!(
            "queue {} on GPU {}: {}\n",
            queue.id,
            queue.gpu_id,
            match waves {
                0 => "no waves".into(),
                1 => "1 wave".into(),
                _ => format!("{waves} waves"),
            }
        );
        if waves > 0 {
            text +=
                "  packet  group        wave  state                PC              lanes  next\n";
        }
        for wave in &queue.waves {
            let [x, y, z] = wave.group();
            text += &format!(
                "  {:>6}  {:<11}  {:>4}  {:<19}  {:#014x}  {:>5}  {}\n",
                wave.packet(),
                format!("{x},{y},{z}"),
                wave.number(),
                wave.state(),
                wave.pc,
                wave.exec.count_ones(),
                next(memory, wave.pc, queue.target)
            );
            if self.registers {
                text += &scalars(wave);
            }
            if self.vectors {
                text += &vectors("v", &wave.vgprs);
                text += &vectors("a", &wave.accs);
            }
        }
        text
    }

    fn json(&self, queue: &Queue, memory: &Memory) -> serde_json::Value {
        let waves: Vec<_> = queue
            .waves
            .iter()
            .map(|wave| {
                let mut told = json!({
                    "packet": wave.packet(),
                    "group": wave.group(),
                    "wave": wave.number(),
                    "state": wave.state(),
                    "pc": wave.pc,
                    "exec": wave.exec,
                    "next": next(memory, wave.pc, queue.target),
                });
                if self.registers {
                    told["registers"] = json!({
                        "status": wave.status, "trapsts": wave.trapsts, "mode": wave.mode,
                        "m0": wave.m0, "vcc": wave.vcc, "ttmp": wave.ttmp, "s": wave.sgprs,
                    });
                }
                if self.vectors {
                    told["v"] = json!(wave.vgprs);
                    told["a"] = json!(wave.accs);
                }
                told
            })
            .collect();
        json!({ "queue": queue.id, "gpu_id": queue.gpu_id, "waves": waves })
    }
}

/// The instruction set of a GPU by its `gfx_target_version`; gfx942's where it is another.
fn target(version: u32) -> Target {
    match version {
        90010 => Target::Gfx90a,
        90500 => Target::Gfx950,
        _ => Target::Gfx942,
    }
}

/// A suspended queue's waves, of all XCCs of its GPU.
fn read_queue(
    memory: &Memory,
    entry: &uapi::kfd_queue_snapshot_entry,
    (xccs, target): (u32, Target),
) -> Result<Queue> {
    let mut waves = Vec::new();
    for xcc in 0..u64::from(xccs) {
        let area =
            entry.ctx_save_restore_address + xcc * u64::from(entry.ctx_save_restore_area_size);
        waves.extend(
            read_waves(memory, area, entry.ctx_save_restore_area_size)
                .with_context(|| format!("queue {}: its save area at {area:#x}", entry.queue_id))?,
        );
    }
    Ok(Queue {
        id: entry.queue_id,
        gpu_id: entry.gpu_id,
        target,
        waves,
    })
}

/// The waves in a save area (`struct kfd_context_save_area_header`).
fn read_waves(memory: &Memory, area: u64, size: u32) -> Result<Vec<Wave>> {
    type Header = uapi::kfd_context_save_area_header;
    let mut bytes = [0; size_of::<Header>()];
    memory.read(area, &mut bytes).context("can't be read")?;
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    // wave_state: offset and size of the control stack; end and size of the waves, which lie below.
    let [stack, stack_bytes, end, wave_bytes] = [0, 4, 8, 12].map(word);
    let inside = |begin: Option<u32>, bytes: u32| {
        let end = begin?.checked_add(bytes)?;
        begin.filter(|_| end <= size)
    };
    let read = |begin: Option<u32>, count: u32| -> Result<Vec<u8>> {
        let begin = inside(begin, count).context("its header is not right")?;
        let mut bytes = vec![0; count as usize];
        memory
            .read(area + u64::from(begin), &mut bytes)
            .context("can't be read")?;
        Ok(bytes)
    };
    saved::waves(
        &read(Some(stack), stack_bytes)?,
        &read(end.checked_sub(wave_bytes), wave_bytes)?,
    )
}

/// The instruction at an address.
fn next(memory: &Memory, pc: u64, target: Target) -> String {
    let mut bytes = [0; CODE];
    // The last instruction of the code may be shorter.
    let read = (4..=CODE)
        .rev()
        .step_by(4)
        .find(|count| memory.read(pc, &mut bytes[..*count]).is_some());
    let Some(count) = read else {
        return "? (its code can't be read)".into();
    };
    let words: Vec<u32> = bytes[..count]
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    match gcn::decode::decode_for(target, pc, &words) {
        Ok(instruction) => instruction.to_string(),
        Err(_) => format!(".long {:#010x}", words[0]),
    }
}

/// Hardware registers, trap temporaries and scalar registers, eight a line.
fn scalars(wave: &Wave) -> String {
    let mut text = format!(
        "    exec {:#018x}  vcc {:#018x}  m0 {:#010x}\n    status {:#010x}  trapsts {:#010x}  mode \
        {:#010x}\n",
        wave.exec, wave.vcc, wave.m0, wave.status, wave.trapsts, wave.mode
    );
    text += &rows("ttmp", &wave.ttmp);
    text + &rows("s", &wave.sgprs)
}

/// Registers of 64 lanes: a head, and eight lines of eight.
fn vectors(name: &str, registers: &[Vec<u32>]) -> String {
    let mut text = String::new();
    for (number, lanes) in registers.iter().enumerate() {
        text += &format!("    {name}{number}\n");
        text += &rows("lane ", &lanes[..LANES]);
    }
    text
}

fn rows(name: &str, words: &[u32]) -> String {
    let mut text = String::new();
    for (row, words) in words.chunks(8).enumerate() {
        let first = format!("{name}{}", 8 * row);
        text += &format!("{first:<8}");
        for word in words {
            text += &format!(" {word:08x}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_has_its_instruction_set() {
        let [of_mi200, of_mi300, of_mi350] = [90010, 90402, 90500].map(target);
        assert_eq!(of_mi200, Target::Gfx90a);
        assert_eq!(of_mi300, Target::Gfx942);
        assert_eq!(of_mi350, Target::Gfx950);
    }

    #[test]
    fn registers_fit_80_columns() {
        let wave = Wave {
            ttmp: vec![u32::MAX; 16],
            sgprs: vec![u32::MAX; 102],
            ..Wave::default()
        };
        let text = scalars(&wave) + &vectors("v", &[vec![u32::MAX; LANES]]);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("s96 "), "{text}");
        assert!(text.contains("lane 56 "), "{text}");
    }
}
