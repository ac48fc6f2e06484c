// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl run`: kernels through an AQL queue, and what came of them.

use crate::output::shown;
use anyhow::{bail, ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd, Memory};
use kfd_aql::{Arguments, CodeObject, Completion, Launch, Queue, Signals};
use kfd_examples::KERNELS;
use serde::Serialize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const GROUP: u16 = 256;

/// What to run.
#[derive(Args)]
pub struct Run {
    /// vadd, saxpy, reduce, spin, or the path of a code object, or of a program of hipcc's.
    what: String,
    /// The kernel of the code object.
    kernel: Option<String>,
    /// Elements for the examples; steps for spin.
    #[arg(long, short = 'n', default_value_t = (1 << 20) + 1)]
    elements: u32,
    /// Work-items of the grid, as X or X,Y,Z.
    #[arg(long, default_value = "64", value_parser = triple::<u32>)]
    grid: [u32; 3],
    /// Work-items of a work-group, as X or X,Y,Z.
    #[arg(long, default_value = "64", value_parser = triple::<u16>)]
    workgroup: [u16; 3],
    /// Arguments in order: 5 or 5u32, 7u64, 1.5f32, buf:SIZE (a buffer of zeros, printed
    /// afterwards).
    #[arg(long, value_delimiter = ' ')]
    args: Vec<String>,
    /// Bytes of stack for each work-item of a kernel whose code object does not say how many it
    /// needs: one that recurses, or calls by pointer.
    #[arg(long)]
    stack: Option<u32>,
    /// The GPU to use, counted from 0.
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// How often to dispatch it.
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Seconds to wait for the GPU.
    #[arg(long, default_value_t = 60)]
    timeout: u64,
}

/// What a run came to.
#[derive(Serialize)]
struct Report {
    name: String,
    gpu_id: u32,
    elements: u32,
    dispatches: u32,
    wrong: u64,
    /// How many of them the KFD told of through its event: all, or somebody polled.
    interrupts: u64,
    milliseconds: f64,
    /// The first words of the code object's buffers afterwards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    buffers: Vec<Vec<u32>>,
}

impl Report {
    fn print(&self, json: bool) -> Result<()> {
        match json {
            true => outln!("{}", serde_json::to_string(self)?),
            false => outln!("{}", self.text()),
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        ensure!(
            self.wrong == 0,
            "{}: {} of {} results are wrong",
            self.name,
            self.wrong,
            self.elements
        );
        ensure!(
            self.interrupts == u64::from(self.dispatches),
            "{}: completion came without an interrupt",
            self.name
        );
        Ok(())
    }

    /// The report as text: the buffers, a line each, and a line of all else.
    fn text(&self) -> String {
        let mut text = String::new();
        for (index, words) in self.buffers.iter().enumerate() {
            let words: Vec<_> = words.iter().map(|word| format!("{word:08x}")).collect();
            text += &format!("buffer {index}: {}\n", words.join(" "));
        }
        let Report {
            name,
            gpu_id,
            elements,
            dispatches,
            wrong,
            interrupts,
            milliseconds,
            buffers: _,
        } = self;
        let name = shown(name);
        text + &format!(
            "{name}: {elements} elements on GPU {gpu_id}, {dispatches} dispatches, \
            {interrupts} interrupts, {milliseconds:.1} ms, {wrong} wrong"
        )
    }
}

/// A GPU with a queue and signals.
struct Bench {
    device: Arc<Device>,
    signals: Arc<Signals>,
    queue: Queue,
}

impl Run {
    /// Runs it and prints the report; fails when a result is wrong.
    pub fn run(&self, json: bool) -> Result<()> {
        let bench = Bench::new(self.gpu)?;
        let report = match self.what.as_str() {
            "vadd" => self.vadd(&bench)?,
            "saxpy" => self.saxpy(&bench)?,
            "reduce" => self.reduce(&bench)?,
            "spin" => self.spin(&bench)?,
            _ => self.file(&bench)?,
        };
        let printed = report.print(json);
        // Before what printing came to: a reader that leaves makes no result right.
        report.check()?;
        printed
    }

    fn vadd(&self, bench: &Bench) -> Result<Report> {
        let count = self.elements as usize;
        let [a, b, c] = [
            bench.buffer(count)?,
            bench.buffer(count)?,
            bench.buffer(count)?,
        ];
        let (left, right) = (floats(count, 0.5), floats(count, 3.0));
        a.write(0, &left);
        b.write(0, &right);
        let arguments = Arguments::default()
            .u64(a.address())
            .u64(b.address())
            .u64(c.address())
            .u32(self.elements);
        let (report, _in_use) = self.example(bench, "vadd", &arguments)?;
        let sums = left.iter().zip(&right).map(|(x, y)| x + y);
        let wrong = c
            .read::<f32>(0, count)
            .iter()
            .zip(sums)
            .filter(|(got, want)| *got != want)
            .count();
        Ok(Report {
            wrong: wrong as u64,
            ..report
        })
    }

    fn saxpy(&self, bench: &Bench) -> Result<Report> {
        let (count, factor) = (self.elements as usize, 2.5f32);
        let [x, y] = [bench.buffer(count)?, bench.buffer(count)?];
        let (left, mut right) = (floats(count, 0.25), floats(count, 7.0));
        x.write(0, &left);
        y.write(0, &right);
        let arguments = Arguments::default()
            .u32(factor.to_bits())
            .u64(x.address())
            .u64(y.address())
            .u32(self.elements);
        let (report, _in_use) = self.example(bench, "saxpy", &arguments)?;
        for _ in 0..self.repeat {
            // The values are small multiples of powers of two: fused or not, the sum is exact.
            right
                .iter_mut()
                .zip(&left)
                .for_each(|(y, x)| *y += factor * x);
        }
        let wrong = y
            .read::<f32>(0, count)
            .iter()
            .zip(&right)
            .filter(|(got, want)| got != want)
            .count();
        Ok(Report {
            wrong: wrong as u64,
            ..report
        })
    }

    fn reduce(&self, bench: &Bench) -> Result<Report> {
        let count = self.elements as usize;
        let [input, sum] = [bench.buffer(count)?, bench.buffer(1)?];
        let values: Vec<u32> = (0..self.elements)
            .map(|i| i.wrapping_mul(2_654_435_761))
            .collect();
        input.write(0, &values);
        sum.write(0, &[0u32]);
        let arguments = Arguments::default()
            .u64(input.address())
            .u64(sum.address())
            .u32(self.elements);
        let (report, _in_use) = self.example(bench, "reduce", &arguments)?;
        let once = values
            .iter()
            .fold(0u32, |sum, value| sum.wrapping_add(*value));
        let wrong = sum.read::<u32>(0, 1)[0] != once.wrapping_mul(self.repeat);
        Ok(Report {
            wrong: wrong.into(),
            ..report
        })
    }

    fn spin(&self, bench: &Bench) -> Result<Report> {
        let done = bench.buffer(1)?;
        done.write(0, &[0u32]);
        let code = CodeObject::load_one_of(&bench.device, &KERNELS)?;
        let arguments = Arguments::default().u64(done.address()).u32(self.elements);
        let launch = Launch::new(
            &bench.device,
            &code,
            "spin",
            [256, 1, 1],
            [64, 1, 1],
            arguments.bytes(),
        )?;
        let report = self.dispatch(bench, "spin", &launch)?;
        let wrong = done.read::<u32>(0, 1)[0].abs_diff(4 * self.repeat);
        Ok(Report {
            wrong: wrong.into(),
            ..report
        })
    }

    fn file(&self, bench: &Bench) -> Result<Report> {
        let path = PathBuf::from(&self.what);
        let file = std::fs::read(&path)
            .with_context(|| format!("{}: neither an example nor a file", path.display()))?;
        let loaded = match is_code_object(&file) {
            true => vec![CodeObject::load(&bench.device, &file)?],
            false => CodeObject::load_fat(&bench.device, &file)?,
        };
        let all: Vec<_> = loaded.iter().flat_map(|code| code.kernels()).collect();
        let name = match (&self.kernel, &all[..]) {
            (Some(name), _) => name,
            (None, [only]) => &only.name,
            (None, _) => bail!(
                "which kernel? {}",
                all.iter()
                    .map(|kernel| kernel.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        };
        let code = loaded.iter().find(|code| code.kernel(name).is_ok());
        let code = code.unwrap_or(&loaded[0]);
        let (arguments, buffers) = parse_arguments(bench, &self.args)?;
        let launch = Launch::with_stack(
            &bench.device,
            code,
            name,
            self.grid,
            self.workgroup,
            arguments.bytes(),
            self.stack,
        )?;
        let report = self.dispatch(bench, name, &launch)?;
        let words = |buffer: &Memory| buffer.read::<u32>(0, (buffer.size() / 4).min(16));
        Ok(Report {
            buffers: buffers.iter().map(words).collect(),
            ..report
        })
    }

    fn example(&self, bench: &Bench, name: &str, arguments: &Arguments) -> Result<(Report, InUse)> {
        ensure!(self.elements > 0, "at least one element");
        let code = CodeObject::load_one_of(&bench.device, &KERNELS)?;
        let grid = self
            .elements
            .checked_next_multiple_of(GROUP.into())
            .context("too many elements")?;
        let launch = Launch::new(
            &bench.device,
            &code,
            name,
            [grid, 1, 1],
            [GROUP, 1, 1],
            arguments.bytes(),
        )?;
        let report = self.dispatch(bench, name, &launch)?;
        Ok((report, InUse(code, launch)))
    }

    /// Submits `repeat` times, each after the one before, and sleeps until the event of each.
    fn dispatch(&self, bench: &Bench, name: &str, launch: &Launch) -> Result<Report> {
        let done = bench.signals.signal(1)?;
        let own = match launch.scratch() {
            0 => None,
            bytes => Some(Queue::with_scratch(&bench.device, 64, bytes)?),
        };
        let queue = own.as_ref().unwrap_or(&bench.queue);
        let start = Instant::now();
        let mut last = Completion::default();
        for _ in 0..self.repeat {
            done.store(1);
            launch.submit(queue, &done)?;
            let timeout = Duration::from_secs(self.timeout);
            last = in_slices(
                timeout,
                |slice| done.wait_interrupt(slice),
                || queue.check(),
            )
            .with_context(|| format!("{name} on {}", bench.device))?;
        }
        Ok(Report {
            name: name.to_owned(),
            gpu_id: bench.device.gpu_id(),
            elements: self.elements,
            dispatches: self.repeat,
            wrong: 0,
            interrupts: last.interrupts,
            milliseconds: start.elapsed().as_secs_f64() * 1e3,
            buffers: Vec::new(),
        })
    }
}

/// What a dispatch used. To free it flushes TLBs, and the GPU's caches with them: it stays until
/// the results have been read, so that they come from a release and from nothing else.
#[allow(dead_code)] // Held, not looked at.
struct InUse(Arc<CodeObject>, Launch);

impl Bench {
    fn new(gpu: usize) -> Result<Self> {
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        let node = nodes
            .get(gpu)
            .with_context(|| format!("no GPU {gpu}: the KFD serves {}", nodes.len()))?;
        let device = Device::acquire(&kfd, node)?;
        let signals = Signals::new(&device, 64)?;
        let queue = Queue::new(&device, 256)?;
        Ok(Self {
            device,
            signals,
            queue,
        })
    }

    fn buffer(&self, words: usize) -> Result<Memory> {
        Ok(Memory::vram(&self.device, words * 4)?)
    }
}

/// Waits as long as `timeout` with `wait`, which notices nothing but what it waits for, and looks
/// with `check` now and then whether that can still come.
fn in_slices<T>(
    timeout: Duration,
    wait: impl Fn(Duration) -> kfd_aql::Result<T>,
    check: impl Fn() -> kfd_aql::Result<()>,
) -> kfd_aql::Result<T> {
    const SLICE: Duration = Duration::from_secs(1);
    let mut left = timeout;
    loop {
        let slice = left.min(SLICE);
        match wait(slice) {
            Err(kfd_aql::Error::Timeout(_)) => check()?,
            ended => return ended,
        }
        left -= slice;
        if left.is_zero() {
            return Err(kfd_aql::Error::Timeout(timeout));
        }
    }
}

fn parse_arguments(bench: &Bench, texts: &[String]) -> Result<(Arguments, Vec<Memory>)> {
    let (mut arguments, mut buffers) = (Arguments::default(), Vec::new());
    for text in texts {
        arguments = if let Some(size) = text.strip_prefix("buf:") {
            let size = size
                .parse::<usize>()
                .with_context(|| format!("{text}: a size in bytes"))?;
            let buffer = Memory::vram(&bench.device, size)?;
            buffer.write(0, &vec![0u8; size]);
            let arguments = arguments.u64(buffer.address());
            buffers.push(buffer);
            arguments
        } else {
            scalar(arguments, text).with_context(|| format!("{text}: not an argument"))?
        };
    }
    Ok((arguments, buffers))
}

fn scalar(arguments: Arguments, text: &str) -> Result<Arguments> {
    Ok(if let Some(float) = text.strip_suffix("f32") {
        arguments.u32(float.parse::<f32>()?.to_bits())
    } else if let Some(number) = text.strip_suffix("u64") {
        arguments.u64(number.parse()?)
    } else {
        arguments.u32(text.strip_suffix("u32").unwrap_or(text).parse()?)
    })
}

/// Up to three sizes; those that are not said are 1.
fn triple<T: Copy + From<u8> + FromStr>(text: &str) -> Result<[T; 3], String> {
    let mut sizes = [T::from(1); 3];
    for (axis, word) in text.split(',').enumerate() {
        let place = sizes.get_mut(axis);
        let place = place.ok_or("a grid has at most three dimensions")?;
        let size = word.trim().parse();
        *place = size.map_err(|_| format!("{word:?} is no size such as 64"))?;
    }
    Ok(sizes)
}

/// `count` values that differ from their neighbours and are exact in 24 bits.
fn floats(count: usize, start: f32) -> Vec<f32> {
    (0..count).map(|i| start + (i % 4096) as f32).collect()
}

/// Whether it is an ELF file for an AMD GPU, and not a program or a bundle.
fn is_code_object(file: &[u8]) -> bool {
    // `e_machine` of `EM_AMDGPU`.
    file.get(18..20) == Some(&224u16.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_have_up_to_three_dimensions() {
        assert_eq!(triple::<u32>("64"), Ok([64, 1, 1]));
        assert_eq!(triple::<u16>("4, 5,6"), Ok([4, 5, 6]));
        for text in ["1,2,3,4", "", "1,", "70000", "-1", "x"] {
            assert!(triple::<u16>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_wait_looks_for_what_ends_it() {
        use kfd_aql::Error::{Lost, Timeout};
        let waits = std::cell::Cell::new(0);
        let never = |slice| {
            waits.set(waits.get() + 1);
            Err::<(), _>(Timeout(slice))
        };
        let timeout = Duration::from_millis(2500);
        let ended = in_slices(timeout, never, || Ok(()));
        assert!(
            matches!(ended, Err(Timeout(all)) if all == timeout),
            "{ended:?}"
        );
        assert_eq!(waits.replace(0), 3);
        let lost = || if waits.get() == 2 { Err(Lost) } else { Ok(()) };
        let ended = in_slices(Duration::MAX, never, lost);
        assert!(matches!(ended, Err(Lost)), "{ended:?}");
        assert!(in_slices(timeout, |_| Ok(()), || Err(Lost)).is_ok());
    }

    #[test]
    fn buffers_are_part_of_the_report() {
        let report = Report {
            name: "k\x1bc".into(),
            gpu_id: 7,
            elements: 1,
            dispatches: 1,
            wrong: 0,
            interrupts: 1,
            milliseconds: 1.0,
            buffers: vec![vec![1, 0xff], vec![2]],
        };
        let text = report.text();
        assert!(
            text.starts_with("buffer 0: 00000001 000000ff\nbuffer 1: 00000002\nk?c: "),
            "{text}"
        );
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(json["buffers"][0][1], 255);
        assert_eq!(json["name"], "k\x1bc");
    }

    #[test]
    fn scalars_are_read_by_their_suffix() {
        let size = |text| {
            scalar(Arguments::default(), text)
                .map(|arguments| arguments.bytes().len())
                .ok()
        };
        assert_eq!(
            [size("5"), size("5u64"), size("1.5f32"), size("x")],
            [Some(4), Some(8), Some(4), None]
        );
    }
}
