// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Waits for what a queue was given that has stopped: at a packet which the command processor does
//! not take, or by a wave's exception.

use crate::waves::{Gpu, GROUP, KERNELS};
use anyhow::{anyhow, ensure, Context, Result};
use kfd::{topology, Device, Events, Exceptions, Kfd, Memory};
use kfd_aql::{BarrierAnd, CodeObject, Error, Graph, KernelDispatch, Packet, Queue, Signals};
use kfd_aql::{Signal, Stream};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// A number of the program's own, which debuggers would be told.
const R_DEBUG: u64 = 0x1000;

/// Says how the wait for each bad packet ended.
pub fn packets() -> Result<()> {
    let kfd = Kfd::open()?;
    let device = Device::acquire(&kfd, topology::gpus()?.first().context("no GPU")?)?;
    let code = CodeObject::load_one_of(&device, &KERNELS)?;
    let signals = Signals::new(&device, 16)?;
    let right = KernelDispatch {
        workgroup: [64, 1, 1],
        grid: [64, 1, 1],
        private_segment: 0,
        group_segment: 0,
        kernel: code.kernel("gather")?.descriptor,
        arguments: 0,
        completion: 0,
        barrier: true,
    };
    let bad = [
        ("no kernel", KernelDispatch { kernel: 0, ..right }),
        (
            "no grid",
            KernelDispatch {
                grid: [0, 1, 1],
                ..right
            },
        ),
        (
            "a large work-group",
            KernelDispatch {
                workgroup: [2048, 1, 1],
                ..right
            },
        ),
        (
            "local memory",
            KernelDispatch {
                group_segment: 1 << 20,
                ..right
            },
        ),
        (
            "scratch",
            KernelDispatch {
                private_segment: 64,
                ..right
            },
        ),
    ];
    for (what, packet) in bad {
        asleep(&device, &signals, packet).with_context(|| what)?;
    }
    above(&device, &code, &signals, bad[0].1)?;
    let (queue, done) = (Queue::new(&device, 64)?, signals.signal(1)?);
    queue.submit(ends(&done))?;
    queue.wait(&done, PATIENCE)?;
    println!("another queue goes on");
    Ok(())
}

fn ends(done: &Signal) -> BarrierAnd {
    BarrierAnd {
        completion: done.address(),
        ..Default::default()
    }
}

/// The waiter sleeps when the queue comes to the packet.
fn asleep(device: &Arc<Device>, signals: &Arc<Signals>, bad: KernelDispatch) -> Result<()> {
    let queue = Queue::new(device, 64)?;
    let (gate, done) = (signals.signal(1)?, signals.signal(1)?);
    queue.submit(BarrierAnd::on(&[gate.address()])?)?;
    let completion = done.address();
    queue.submit(KernelDispatch { completion, ..bad })?;
    queue.check()?;
    std::thread::scope(|scope| {
        let waiters = [(); 2].map(|()| scope.spawn(|| queue.wait(&done, PATIENCE)));
        std::thread::sleep(Duration::from_millis(500));
        gate.store(0);
        let mut said = Vec::new();
        for waiter in waiters {
            let ended = waiter.join().map_err(|_| anyhow!("a panic"))?;
            said.push(refused(ended)?);
        }
        ensure!(said[0] == said[1], "{said:?}");
        println!("{}", said[0]);
        Ok(())
    })?;
    refused(queue.check())?;
    refused(queue.wait(&done, Duration::MAX))?;
    Ok(())
}

/// Streams, markers, graphs and rings that are full of it.
fn above(
    device: &Arc<Device>,
    code: &Arc<CodeObject>,
    signals: &Arc<Signals>,
    bad: KernelDispatch,
) -> Result<()> {
    let stream = Stream::new(device, signals, 0)?;
    stream.queue().submit(bad)?;
    let marker = stream.mark()?;
    refused(marker.wait(PATIENCE)).context("a marker")?;
    refused(stream.finish(PATIENCE)).context("a stream")?;
    while stream
        .queue()
        .ring()
        .try_submit(&Packet::from(bad))
        .is_some()
    {}
    refused(stream.queue().submit(bad).map(drop)).context("a full ring")?;
    let queue = Arc::new(Queue::new(device, 64)?);
    let memory = Memory::gtt(device, 4096)?;
    let launch = code.launch("gather")?.grid(GROUP).workgroup(GROUP);
    let launch = launch
        .arg(memory.address())
        .arg(memory.address())
        .arg(1u32)
        .build()?;
    let mut graph = Graph::new(vec![queue.clone()], signals);
    graph.add(&Arc::new(launch), &[])?;
    queue.submit(bad)?;
    refused(graph.run(PATIENCE).map(drop)).context("a graph")?;
    println!("a marker, a stream, a full ring and a graph: refused");
    Ok(())
}

fn refused(result: kfd_aql::Result<()>) -> Result<String> {
    match result {
        Err(error @ Error::Packet(_)) => Ok(error.to_string()),
        other => Err(anyhow!("it ended with {other:?}")),
    }
}

/// The wait for a wave with an instruction that no GPU has, and for one that traps, by a runtime
/// and a trap handler.
pub fn exceptions() -> Result<()> {
    let kfd = Kfd::open()?;
    // SAFETY: save areas say 0, or a word of a queue's own; no kernel here writes to one.
    let runtime = unsafe { kfd.enable_runtime(R_DEBUG, false)? };
    let device = Device::acquire(&kfd, topology::gpus()?.first().context("no GPU")?)?;
    let gpu = Gpu::with_events(device.clone(), 8, Events::new(&device)?)?;
    device.set_trap_handler(gpu.entry("on_trap")?, 0)?;
    for (what, number) in [("an illegal instruction", 7u32), ("a trap", 2)] {
        let queue = Queue::new(&device, 64)?.with_exceptions(&runtime)?;
        let (out, done) = (Memory::gtt(&device, 4096)?, gpu.signal()?);
        out.write(0, &[0u32]);
        let mut arguments = [out.address(), out.address() + 256, 0]
            .map(u64::to_le_bytes)
            .concat();
        arguments.extend(number.to_le_bytes());
        let launch = gpu.launch_in("raise", 64, 64, &arguments)?;
        launch.submit(&queue, &done)?;
        let ended = queue.wait(&done, PATIENCE);
        let Err(Error::Exception(exceptions)) = ended else {
            return Err(anyhow!("{what}: {ended:?}"));
        };
        let known = Exceptions::WAVE_TRAP | Exceptions::ILLEGAL_INSTRUCTION;
        println!("{what}: {:?}", exceptions & known);
        ensure!(queue.check().is_err(), "it is forgotten");
        // Before the memory that the wave looks at.
        queue.destroy()?;
    }
    let (queue, done) = (Queue::new(&device, 64)?, gpu.signal()?);
    queue.submit(ends(&done))?;
    queue.wait(&done, PATIENCE)?;
    println!("another queue goes on");
    Ok(())
}
