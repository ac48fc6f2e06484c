// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The layers above queues: a copy engine that fills and copies, two streams that wait for each
//! other, a kernel with scratch, and a graph that is run twice. On the first GPU, or on the one of
//! that number, from 0.

use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory};
use kfd_aql::{Arguments, CodeObject, CopyQueue, Graph, Launch, Queue, Signals, Stream};
use std::sync::Arc;
use std::time::Duration;

const COUNT: usize = 1024;
/// Numbers of each work-item of `median`.
const OWN: usize = 32;
const PATIENCE: Duration = Duration::from_secs(60);

struct Gpu {
    device: Arc<Device>,
    code: Arc<CodeObject>,
    signals: Arc<Signals>,
}

fn main() -> Result<()> {
    let kfd = Kfd::open()?;
    let gpus = topology::gpus()?;
    let number: usize = std::env::args().nth(1).map_or(Ok(0), |n| n.parse())?;
    let gpu = gpus.get(number).context("there is no such GPU")?;
    let device = Device::acquire(&kfd, gpu)?;
    let code = CodeObject::load_one_of(&device, &kfd_examples::KERNELS)?;
    let signals = Signals::new(&device, 64)?;
    let gpu = Gpu {
        device,
        code,
        signals,
    };
    copies(&gpu)?;
    medians(&gpu)?;
    diamond(&gpu)
}

/// A fill and a copy by a copy engine, out of VRAM that the CPU does not see.
fn copies(gpu: &Gpu) -> Result<()> {
    const BYTES: usize = 9 << 20;
    let flags = kfd::MemoryFlags::VRAM | kfd::MemoryFlags::WRITABLE;
    let hidden = Memory::allocate(&gpu.device, BYTES, flags)?;
    let shown = Memory::gtt(&gpu.device, BYTES)?;
    let queue = CopyQueue::new(&gpu.device)?;
    let (filled, copied) = (gpu.signals.signal(1)?, gpu.signals.signal(1)?);
    queue.fill(hidden.address(), 0x600d_f00d, BYTES as u64, &filled)?;
    queue.copy(hidden.address(), shown.address(), BYTES as u64, &copied)?;
    queue.wait(&copied, PATIENCE)?;
    ensure!(filled.load() == 0, "the copy is done before the fill");
    let words = shown.read::<u32>(0, BYTES / 4);
    let wrong = words.iter().filter(|word| **word != 0x600d_f00d).count();
    ensure!(wrong == 0, "{wrong} words are wrong");
    println!(
        "{} words filled and copied by queue {}",
        words.len(),
        queue.id()
    );
    Ok(())
}

/// Medians on one stream, their sum on another that waits for the first.
fn medians(gpu: &Gpu) -> Result<()> {
    let numbers: Vec<u32> = (0..COUNT * OWN)
        .map(|i| (i as u32).wrapping_mul(2_654_435_761) >> 12)
        .collect();
    let input = Memory::gtt(&gpu.device, numbers.len() * 4)?;
    let (middle, sum) = (
        Memory::gtt(&gpu.device, COUNT * 4)?,
        Memory::gtt(&gpu.device, 4)?,
    );
    input.write(0, &numbers);
    sum.write(0, &[0u32]);
    let on = |kernel, from: &Memory, to: &Memory| {
        let arguments = Arguments::default().u64(from.address()).u64(to.address());
        launch(gpu, kernel, arguments.u32(COUNT as u32))
    };
    let (median, reduce) = (on("median", &input, &middle)?, on("reduce", &middle, &sum)?);
    let sorting = Stream::new(&gpu.device, &gpu.signals, median.scratch())?;
    let adding = Stream::new(&gpu.device, &gpu.signals, 0)?;
    sorting.launch(&median)?;
    adding.wait_for(&sorting.mark()?)?;
    adding.launch(&reduce)?;
    adding.finish(PATIENCE)?;

    let want = numbers.chunks(OWN).map(|own| {
        let mut own = own.to_vec();
        own.sort_unstable();
        own[OWN / 2]
    });
    let want: Vec<u32> = want.collect();
    ensure!(middle.read::<u32>(0, COUNT) == want, "a median is wrong");
    let total = want.iter().fold(0u32, |sum, one| sum.wrapping_add(*one));
    ensure!(sum.read::<u32>(0, 1)[0] == total, "the sum is wrong");
    println!(
        "{COUNT} medians with {} bytes of scratch each; their sum is {total}",
        median.scratch()
    );
    Ok(())
}

/// One makes two, two make one: y = 1, then b and c each take y, then d takes both. Twice.
fn diamond(gpu: &Gpu) -> Result<()> {
    let [one, a, b, c, d] = [1.0f32, 0.0, 0.0, 0.0, 0.0].map(|value| -> Result<Memory> {
        let memory = Memory::gtt(&gpu.device, COUNT * 4)?;
        memory.write(0, &[value; COUNT]);
        Ok(memory)
    });
    let (one, a, b, c, d) = (one?, a?, b?, c?, d?);
    let add = |factor: f32, what: &Memory, to: &Memory| {
        let arguments = Arguments::default().f32(factor).u64(what.address());
        launch(gpu, "saxpy", arguments.u64(to.address()).u32(COUNT as u32))
    };
    let queues = [Queue::new(&gpu.device, 64)?, Queue::new(&gpu.device, 64)?].map(Arc::new);
    queues.iter().for_each(|queue| queue.profile(true));
    let mut graph = Graph::new(queues.to_vec(), &gpu.signals);
    let first = graph.add(&add(1.0, &one, &a)?, &[])?;
    let left = graph.add(&add(2.0, &a, &b)?, &[first])?;
    let right = graph.add(&add(3.0, &a, &c)?, &[first])?;
    let joined = graph.add(&add(1.0, &b, &d)?, &[left, right])?;
    graph.add(&add(1.0, &c, &d)?, &[joined])?;
    // a: 1, 2; b: 2, 6; c: 3, 9; d: 5, then 20.
    for want in [5.0f32, 20.0] {
        let times = graph.run(PATIENCE)?;
        // Which waits for which, by their numbers.
        for (before, after) in [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)] {
            let (ended, began) = (times[before].ticks.1, times[after].ticks.0);
            ensure!(
                0 < ended && ended <= began,
                "step {after} began before {before} ended"
            );
        }
        let found = d.read::<f32>(0, COUNT);
        ensure!(
            found.iter().all(|value| *value == want),
            "{} is not {want}",
            found[0]
        );
    }
    println!("5 steps on {} queues, twice: 20", queues.len());
    Ok(())
}

fn launch(gpu: &Gpu, kernel: &str, arguments: Arguments) -> Result<Arc<Launch>> {
    let (grid, group) = ([COUNT as u32, 1, 1], [256, 1, 1]);
    let launch = Launch::new(
        &gpu.device,
        &gpu.code,
        kernel,
        grid,
        group,
        arguments.bytes(),
    )?;
    Ok(Arc::new(launch))
}
