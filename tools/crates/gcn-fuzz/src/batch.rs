// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One batch: its source, its two compilations, and the comparison of what they compute.

use crate::kernel::{self, Kernel};
use crate::machine::{Arguments, Program, Ram};
use crate::toolchain::{Numbers, Toolchain};
use anyhow::{ensure, Context, Result};
use std::io::Write;
use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Work-items of a kernel: one work-group of two waves, the second not full.
pub const ITEMS: usize = 100;
/// Dwords of input.
const INPUTS: usize = 1024;
/// Quadwords that work-items change together.
const CELLS: usize = 32;

/// Each optimisation makes other instructions of the same text; without any there are many of few
/// kinds, and they take the longest to compile.
const LEVELS: [&str; 10] = [
    "-O1", "-O2", "-O3", "-O0", "-Os", "-O1", "-O2", "-O3", "-O2", "-Os",
];

/// The kernels of a batch.
fn kernels(number: u64, size: u64) -> Vec<Kernel> {
    let seed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut numbers = Numbers::new(seed);
    (0..size)
        .map(|index| kernel::generate(index, &mut numbers))
        .collect()
}

/// The source of a batch, for both sides, to read.
pub fn source(number: u64, size: u64) -> String {
    let kernels = kernels(number, size);
    let (device, host) = (device_source(&kernels), host_source(&kernels));
    format!("#ifdef __AMDGCN__\n{device}#else\n{host}#endif\n")
}

/// The host's source: all kernels and a main.
fn host_source(kernels: &[Kernel]) -> String {
    let mut text = String::from(include_str!("prelude.h"));
    text.extend(kernels.iter().map(|kernel| kernel.host.as_str()));
    text += "#include <stdio.h>\n";
    text += "static u32 in[INPUTS];\nstatic u64 out[ITEMS * 64], cells[CELLS];\n";
    text += "typedef void host(const u32 *, u64 *, u64 *, u32, u32);\n";
    let names = host_names(kernels.len() as u64);
    text += &format!("static host *const hosts[] = {{{names}}};\n");
    text += &format!("static const u32 results[] = {{{}}};\n", counts(kernels));
    text + include_str!("host.h")
}

/// The source of some kernels for the device.
fn device_source(kernels: &[Kernel]) -> String {
    let mut text = String::from(include_str!("prelude.h"));
    text.extend(kernels.iter().map(|kernel| kernel.device.as_str()));
    text
}

fn host_names(size: u64) -> String {
    (0..size).map(|index| format!("host{index}, ")).collect()
}

fn counts(kernels: &[Kernel]) -> String {
    kernels
        .iter()
        .map(|kernel| format!("{}, ", kernel.results))
        .collect()
}

/// Input of one kernel: dwords, cells, two arguments.
struct Input {
    dwords: Vec<u32>,
    cells: Vec<u64>,
    arguments: [u32; 2],
}

/// Bits that are interesting as integers and as floats of any width.
fn input(numbers: &mut Numbers) -> Input {
    const SPECIAL: [u32; 16] = [
        0,
        1,
        0xffff_ffff,
        0x8000_0000,
        0x7fff_ffff,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0x7fc0_0000,
        0x0000_0001,
        0x3c00_bc00,
        0x7c00_8000,
        0x4248_0000,
        0xff,
        0x8000_8000,
        0x4b00_0000,
    ];
    let mut dword = || match numbers.below(8) {
        0 => SPECIAL[numbers.below(16) as usize],
        1 => numbers.below(256) as u32,
        2 => (numbers.below(2000) as f32 / 16.0 - 60.0).to_bits(),
        3 => (numbers.below(65536) as u32) << numbers.below(17),
        _ => numbers.next() as u32,
    };
    Input {
        dwords: (0..INPUTS).map(|_| dword()).collect(),
        cells: (0..CELLS)
            .map(|_| u64::from(dword()) | u64::from(dword()) << 32)
            .collect(),
        arguments: [dword(), dword()],
    }
}

/// What became of a batch.
#[derive(Default)]
pub struct Report {
    /// What differs or cannot be run.
    pub failures: Vec<String>,
    /// Kernels that clang crashes on.
    pub refused: Vec<String>,
}

/// What compiles for each side.
pub struct Compilers {
    /// For the machine that this runs on.
    pub host: Toolchain,
    /// For the GPU.
    pub device: Toolchain,
}

/// One batch at work.
struct Batch<'a> {
    toolchain: &'a Toolchain,
    object: PathBuf,
    level: &'static str,
    kernels: Vec<Kernel>,
    inputs: Vec<Input>,
    expected: Vec<Results>,
    report: Report,
}

/// Compiles and runs a batch.
pub fn run(compilers: &Compilers, work: &Path, number: u64, size: u64) -> Result<Report> {
    let name = |suffix: &str| work.join(format!("batch{number}{suffix}"));
    let program = name(".host");
    let kernels = kernels(number, size);
    let text = host_source(&kernels);
    compile(&compilers.host, &text, &program, &["-static", "-O0"])?;
    let mut numbers = Numbers::new(number * 2 + 0x5eed);
    let inputs: Vec<Input> = kernels.iter().map(|_| input(&mut numbers)).collect();
    let expected = host(&program, &kernels, &inputs)?;
    std::fs::remove_file(&program).ok();
    let mut batch = Batch {
        toolchain: &compilers.device,
        object: name(".so"),
        level: LEVELS[(number % 10) as usize],
        kernels,
        inputs,
        expected,
        report: Report::default(),
    };
    batch.run_some(0..size as usize)?;
    Ok(batch.report)
}

impl Batch<'_> {
    /// Compiles some kernels for the device and runs them. Where the compiler fails, halves are
    /// tried, until the kernel is found that it fails on.
    fn run_some(&mut self, range: Range<usize>) -> Result<()> {
        let text = device_source(&self.kernels[range.clone()]);
        let cpu = format!("-mcpu={}", self.toolchain.target().name());
        let target = [
            "-target",
            "amdgcn-amd-amdhsa",
            &cpu,
            "-nogpulib",
            self.level,
        ];
        if let Err(error) = compile(self.toolchain, &text, &self.object, &target) {
            let message = error.to_string();
            ensure!(message.contains("Stack dump"), "{message}");
            if range.len() == 1 {
                self.report.refused.push(format!("kernel {}", range.start));
                return Ok(());
            }
            let middle = range.start + range.len() / 2;
            self.run_some(range.start..middle)?;
            return self.run_some(middle..range.end);
        }
        let elf = std::fs::read(&self.object).context("code object")?;
        std::fs::remove_file(&self.object).ok();
        let mut ram = Ram::new(64 << 20);
        let program = Program::load_for(self.toolchain.target(), &elf, &mut ram);
        let mark = ram.mark();
        for index in range {
            let (kernel, input) = (&self.kernels[index], &self.inputs[index]);
            ram.release(mark);
            let run = AssertUnwindSafe(|| device(&mut ram, &program, index, kernel, input));
            let failure = match catch_unwind(run) {
                Ok(ours) => compare(index, kernel, &ours, &self.expected[index]),
                Err(panic) => Some(format!("kernel {index}: {}", message(&*panic))),
            };
            self.report.failures.extend(failure);
        }
        Ok(())
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.unwrap_or_else(|| "panicked".to_string())
}

fn compile(toolchain: &Toolchain, text: &str, output: &Path, options: &[&str]) -> Result<()> {
    let output_name = output.to_str().context("path is UTF-8")?;
    let common = [
        toolchain.clang(),
        "-x",
        "c",
        "-",
        "-w",
        "-fwrapv",
        "-fno-math-errno",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
        "-Xclang",
        "-ffloat16-excess-precision=none",
        "-o",
        output_name,
        "-lm",
    ];
    // The device has no libm, and needs none.
    let common = if options[0] == "-target" {
        &common[..13]
    } else {
        &common[..]
    };
    let command: Vec<&str> = common.iter().chain(options).copied().collect();
    let (_, messages) = toolchain.run(&command, text);
    ensure!(output.exists(), "clang: {:.2000}", messages);
    Ok(())
}

/// Results of one kernel: quadwords by result and work-item, then the cells.
type Results = Vec<u64>;

fn host(program: &Path, kernels: &[Kernel], inputs: &[Input]) -> Result<Vec<Results>> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("host program")?;
    let mut bytes = Vec::new();
    for input in inputs {
        bytes.extend(input.dwords.iter().flat_map(|dword| dword.to_le_bytes()));
        bytes.extend(input.cells.iter().flat_map(|cell| cell.to_le_bytes()));
        bytes.extend(input.arguments.iter().flat_map(|dword| dword.to_le_bytes()));
    }
    let mut stdin = child.stdin.take().context("stdin is piped")?;
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let output = child.wait_with_output().context("host program")?;
    writer.join().ok();
    ensure!(output.status.success(), "host program: {}", output.status);
    let mut quadwords = output.stdout.chunks_exact(8).map(|bytes| {
        bytes
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    });
    let results: Vec<Results> = kernels
        .iter()
        .map(|kernel| {
            quadwords
                .by_ref()
                .take(kernel.results * ITEMS + CELLS)
                .collect()
        })
        .collect();
    let last = kernels
        .last()
        .map_or(0, |kernel| kernel.results * ITEMS + CELLS);
    ensure!(
        results.last().is_some_and(|results| results.len() == last),
        "short output"
    );
    Ok(results)
}

fn device(
    ram: &mut Ram,
    program: &Program,
    index: usize,
    kernel: &Kernel,
    input: &Input,
) -> Results {
    let dwords = ram.place(&input.dwords);
    let count = kernel.results * ITEMS;
    let out = ram.place(&vec![0u64; count]);
    let cells = ram.place(&input.cells);
    let [first, second] = input.arguments;
    let arguments = Arguments::new()
        .with(dwords)
        .with(out)
        .with(cells)
        .with(first)
        .with(second);
    let items = [ITEMS as u32, 1, 1];
    program.run(
        ram,
        &format!("kernel{index}"),
        arguments.bytes(),
        items,
        items,
    );
    let mut results = ram.take(out, count);
    results.extend(ram.take::<u64>(cells, CELLS));
    results
}

/// The first work-item that differs, for each result that differs.
fn compare(index: usize, kernel: &Kernel, ours: &[u64], expected: &[u64]) -> Option<String> {
    let mut text = String::new();
    for (result, (ours, expected)) in ours.chunks(ITEMS).zip(expected.chunks(ITEMS)).enumerate() {
        let Some(item) = ours.iter().zip(expected).position(|(x, y)| x != y) else {
            continue;
        };
        let name = kernel.names.get(result).map_or("cells", String::as_str);
        let (got, should) = (ours[item], expected[item]);
        text += &format!(" {name} [{item}] is {got:#x}, should be {should:#x};");
    }
    (!text.is_empty()).then(|| format!("kernel {index}:{text}"))
}
