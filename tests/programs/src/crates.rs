// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the crates do beyond single calls: code where other code was, arguments that change,
//! waiting for one of several signals, streams that do not finish, faults and resets as errors.

use crate::waves::GROUP;
use anyhow::{anyhow, bail, ensure, Context, Result};
use kfd::{topology, Buffer, Device, Kfd, Memory};
use kfd_aql::{BarrierAnd, CodeObject, CopyQueue, Error, Graph, Packet, Queue, Signal};
use kfd_aql::{Printer, Signals, Stream};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::io::{dup, dup2};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Inside the process's addresses, and nobody's.
const NOWHERE: u64 = 0x1234_5000;

/// Says what each came to.
pub fn all() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
    let bench = Bench {
        from: Buffer::gtt(&device, 1024)?,
        to: Buffer::gtt(&device, GROUP as usize)?,
        device,
    };
    let signals = Signals::new(&bench.device, 8)?;
    let queue = Arc::new(Queue::new(&bench.device, 64)?);
    let _stays = unflushed(&bench, &queue, &signals.signal(1)?)?;
    code_again(&bench, &queue, &signals.signal(1)?)?;
    arguments(&bench, &queue, &signals.signal(1)?)?;
    any(&bench, &queue, &[signals.signal(1)?, signals.signal(1)?])?;
    again(&bench, &queue)?;
    wrong_arguments(&bench)?;
    stack(&bench, &signals.signal(1)?)?;
    output(&bench, &queue, &signals.signal(1)?)?;
    unfinished(&bench)?;
    old_end(&bench)?;
    marked_since(&bench)?;
    taken_meanwhile(&bench)?;
    full(&bench)?;
    run_again(&bench)?;
    left_steps(&bench)?;
    dropped(&bench)?;
    left_behind(&bench)?;
    shared(&kfd, &bench)?;
    fault(&bench, &queue, &signals)
}

/// A wait on the first GPU while the second one is reset, which reading `recover` does.
pub fn reset_of_another(recover: &Path) -> Result<()> {
    let kfd = Kfd::open()?;
    let device = Device::acquire(&kfd, topology::gpus()?.first().context("no GPU")?)?;
    let other = second(&kfd)?;
    let signals = Signals::new(&device, 2)?;
    let (queue, _others) = (Queue::new(&device, 64)?, Queue::new(&other, 64)?);
    let (never, done) = (signals.signal(1)?, signals.signal(1)?);
    queue.submit(BarrierAnd::on(&[never.address()])?)?;
    std::thread::scope(|scope| {
        let reset = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            std::fs::read(recover)
        });
        let result = queue.wait(&done, PATIENCE);
        ensure!(matches!(result, Err(Error::Lost)), "{result:?}");
        println!("lost by the reset of another GPU");
        reset.join().map_err(|_| anyhow!("a panic"))??;
        let result = queue.check();
        ensure!(matches!(result, Err(Error::Lost)), "{result:?}");
        Ok(())
    })
}

fn second(kfd: &Arc<Kfd>) -> Result<Arc<Device>> {
    let nodes = topology::gpus()?;
    Ok(Device::acquire(kfd, nodes.get(1).context("one GPU")?)?)
}

struct Bench {
    device: Arc<Device>,
    /// What a kernel reads, and what it writes.
    from: Buffer<u32>,
    to: Buffer<u32>,
}

impl Bench {
    fn load(&self) -> Result<Arc<CodeObject>> {
        Ok(CodeObject::load_one_of(
            &self.device,
            &crate::waves::KERNELS,
        )?)
    }

    /// One word is read and written; how many packets that took.
    fn gather(
        &self,
        code: &Arc<CodeObject>,
        queue: &Queue,
        done: &Signal,
        word: u32,
    ) -> Result<u64> {
        let (from, to) = (&self.from, &self.to);
        from.set(0, word);
        to.set(0, 0);
        let launch = code.launch("gather")?.grid(GROUP).workgroup(GROUP);
        let launch = launch.arg(from).arg(to).arg(1u32).build()?;
        let (before, _) = queue.indices();
        done.store(1);
        launch.submit(queue, done)?;
        queue.wait(done, PATIENCE)?;
        ensure!(to.get(0) == word, "{:#x} instead of {word:#x}", to.get(0));
        Ok(queue.indices().0 - before)
    }
}

/// The first launch of a process that has no addresses left fails, since what the CPU has written
/// may be in the GPU's host data path; with addresses it is flushed and runs. Its code.
fn unflushed(bench: &Bench, queue: &Queue, done: &Signal) -> Result<Arc<CodeObject>> {
    let (code, words) = (bench.load()?, Buffer::<u32>::vram(&bench.device, 1)?);
    words.set(0, 8);
    let launch = code.launch("gather")?.grid(GROUP).workgroup(GROUP);
    let launch = launch.arg(&words).arg(&bench.to).arg(1u32).build()?;
    // What the error's text takes comes out of the heap.
    drop(Vec::<u8>::with_capacity(64 << 10));
    let result = with_no_more_addresses(|| launch.submit(queue, done))?;
    let errno = match &result {
        Err(Error::Kfd(error)) => error.errno(),
        _ => None,
    };
    ensure!(errno == Some(kfd::Errno::ENOMEM), "{result:?}");
    launch.submit(queue, done)?;
    queue.wait(done, PATIENCE)?;
    println!(
        "a launch that could not be flushed, and then: {}",
        bench.to.get(0)
    );
    Ok(code)
}

/// The process gets no page more than it has while `act` runs.
fn with_no_more_addresses<T>(act: impl FnOnce() -> T) -> Result<T> {
    let own = getrlimit(Resource::As);
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').next().context("no size")?.parse()?;
    let least = Rlimit {
        current: Some(pages * 4096),
        maximum: own.maximum,
    };
    setrlimit(Resource::As, least)?;
    let result = act();
    setrlimit(Resource::As, own)?;
    Ok(result)
}

/// Code that lies where other code was is made known to the instruction caches, once for a queue.
fn code_again(bench: &Bench, queue: &Queue, done: &Signal) -> Result<()> {
    let first = bench.load()?;
    let address = first.memory().address();
    let fresh = bench.gather(&first, queue, done, 1)?;
    ensure!(fresh == 1, "{fresh} packets for code where none was");
    drop(first);
    let again = bench.load()?;
    ensure!(again.memory().address() == address, "it lies elsewhere");
    let (one, two) = (
        bench.gather(&again, queue, done, 2)?,
        bench.gather(&again, queue, done, 3)?,
    );
    println!("code where code was: {one} packets, then {two}");
    Ok(())
}

/// Launches of one code object share memory for their arguments, and not the arguments.
fn arguments(bench: &Bench, queue: &Queue, done: &Signal) -> Result<()> {
    let (code, from, to) = (bench.load()?, &bench.from, &bench.to);
    from.set(0, 9);
    let make = || {
        let launch = code.launch("gather")?.grid(GROUP).workgroup(GROUP);
        launch.arg(from).arg(to).arg(0u32).build()
    };
    let launches = (0..100)
        .map(|_| make())
        .collect::<kfd_aql::Result<Vec<_>>>()?;
    let mut count = 0;
    for (number, launch) in launches.iter().enumerate() {
        // Only the last one's argument changes, so only it writes.
        if number == 99 {
            launch.set_argument(16, 1u32);
        }
        to.set(0, 0);
        done.store(1);
        launch.submit(queue, done)?;
        queue.wait(done, PATIENCE)?;
        count += u32::from(to.get(0) == 9);
    }
    println!("100 launches, {count} with another argument");
    Ok(())
}

/// One of two signals is enough, and it is told which.
fn any(bench: &Bench, queue: &Queue, [one, two]: &[Signal; 2]) -> Result<()> {
    let code = bench.load()?;
    let short = Duration::from_millis(100);
    let none = Signal::wait_any(&[one, two], short);
    ensure!(matches!(none, Err(Error::Timeout(_))), "{none:?}");
    bench.gather(&code, queue, two, 4)?;
    let first = Signal::wait_any(&[one, two], PATIENCE)?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(short);
            one.store(0);
        });
        two.store(1);
        let then = Signal::wait_any(&[one, two], PATIENCE)?;
        println!("the first of two signals: {first}, then {then}");
        Ok(())
    })
}

/// Beside the first signals of a process there are others, and what is done already is waited for
/// as often as wanted.
fn again(bench: &Bench, queue: &Queue) -> Result<()> {
    let done = Signals::new(&bench.device, 1)?.signal(1)?;
    bench.gather(&bench.load()?, queue, &done, 5)?;
    done.wait(PATIENCE)?;
    done.wait(PATIENCE)?;
    println!("a signal of others, waited for three times");
    Ok(())
}

/// What a kernel does not take is refused before it runs.
fn wrong_arguments(bench: &Bench) -> Result<()> {
    let code = bench.load()?;
    let launch = code.launch("gather")?.arg(1u64).arg(2u64).arg(3u64);
    let error = launch.build().err().context("a wrong size is taken")?;
    println!("{error}");
    Ok(())
}

/// A kernel whose stack is dynamic is refused without one, and runs with what it is given.
fn stack(bench: &Bench, done: &Signal) -> Result<()> {
    const DEPTH: u32 = 60;
    let files: Vec<_> = crate::waves::KERNELS.iter().copied().map(dynamic).collect();
    let files: Vec<_> = files.iter().map(Vec::as_slice).collect();
    let code = CodeObject::load_one_of(&bench.device, &files)?;
    let launch = || {
        code.launch("recurse")
            .map(|it| it.grid(GROUP).workgroup(GROUP))
    };
    match launch()?.arg(&bench.to).arg(DEPTH).build() {
        Err(error @ Error::Launch { .. }) => println!("{error}"),
        other => bail!("without a stack: {other:?}"),
    }
    // Each call has 16 bytes.
    let launch = launch()?
        .arg(&bench.to)
        .arg(DEPTH)
        .stack(16 * DEPTH)
        .build()?;
    let queue = Queue::with_scratch(&bench.device, 64, launch.scratch())?;
    done.store(1);
    launch.submit(&queue, done)?;
    queue.wait(done, PATIENCE)?;
    for (item, got) in (0u32..).zip(bench.to.read()) {
        let mix = |x: u32, n: u32| {
            let own = item.wrapping_mul(n + 3);
            (x ^ own).wrapping_mul(1_664_525).wrapping_add(own)
        };
        let want = (1..=DEPTH).fold(item, mix);
        ensure!(got == want, "item {item}: {got:#x} instead of {want:#x}");
    }
    println!("{DEPTH} calls deep");
    Ok(())
}

/// A code object whose `recurse` says that its stack is dynamic. OpenCL forbids recursion, so clang
/// takes it that there is none, and its metadata have the stack of a single call.
fn dynamic(file: &[u8]) -> Vec<u8> {
    // MessagePack: false, and true.
    const NO: &[u8] = b".uses_dynamic_stack\xc2";
    const YES: u8 = 0xc3;
    let find = |what: &[u8], from: usize| {
        let found = file[from..].windows(what.len()).position(|it| it == what);
        found.map(|at| from + at)
    };
    let mut mended = file.to_vec();
    // A kernel's entries are in the order of their names.
    if let Some(at) = find(b"recurse.kd", 0).and_then(|symbol| find(NO, symbol)) {
        mended[at + NO.len() - 1] = YES;
    }
    mended
}

/// What a kernel prints that leaves no trace of what it found no room for: that something is lost
/// is told nevertheless.
fn output(bench: &Bench, queue: &Queue, done: &Signal) -> Result<()> {
    const ROOM: usize = 4096 - 8;
    const LINE: usize = 20;
    let code = bench.load()?;
    let printer = Printer::new(&code, ROOM)?;
    for grid in [64, 256] {
        let launch = code.launch("tell")?.grid(grid).printer(&printer).build()?;
        done.store(1);
        launch.submit(queue, done)?;
        queue.wait(done, PATIENCE)?;
        let (printed, items) = (printer.take(), grid as usize);
        let lines = printed.text.lines().count();
        ensure!(lines == items.min(ROOM / LINE), "{lines} lines of {items}");
        ensure!(printed.lost == (lines < items), "{printed:?}");
    }
    println!("what a kernel has printed, and what it has not");
    Ok(())
}

/// Streams that are dropped before they have finished leave signals to others.
fn unfinished(bench: &Bench) -> Result<()> {
    let never = Signals::new(&bench.device, 1)?.signal(1)?;
    let signals = Signals::new(&bench.device, 2)?;
    for _ in 0..10 {
        let stream = Stream::new(&bench.device, &signals, 0)?;
        stream.queue().submit(BarrierAnd::on(&[never.address()])?)?;
        let result = stream.finish(Duration::from_millis(20));
        ensure!(matches!(result, Err(Error::Timeout(_))), "{result:?}");
    }
    Stream::new(&bench.device, &signals, 0)?.finish(PATIENCE)?;
    println!("a stream after ten that did not finish");
    Ok(())
}

/// A try to finish does not take its end for that of what another thread gave meanwhile.
fn old_end(bench: &Bench) -> Result<()> {
    let gates = Signals::new(&bench.device, 2)?;
    let gates = [gates.signal(1)?, gates.signal(1)?];
    let signals = Signals::new(&bench.device, 8)?;
    let stream = Stream::new(&bench.device, &signals, 0)?;
    let wait = |gate: &Signal| stream.queue().submit(BarrierAnd::on(&[gate.address()])?);
    let is_late = |milliseconds| {
        let result = stream.finish(Duration::from_millis(milliseconds));
        ensure!(matches!(result, Err(Error::Timeout(_))), "{result:?}");
        Ok(())
    };
    wait(&gates[0])?;
    is_late(20)?;
    std::thread::scope(|scope| {
        // It has the end of the first.
        let second = scope.spawn(|| is_late(1000));
        std::thread::sleep(Duration::from_millis(300));
        wait(&gates[1])?;
        stream.mark()?;
        second.join().map_err(|_| anyhow!("a panic"))?
    })?;
    gates[0].store(0);
    is_late(300)?;
    gates[1].store(0);
    stream.finish(PATIENCE)?;
    println!("a stream whose end another thread has moved");
    Ok(())
}

/// Nor for the end of a marker that was made since.
fn marked_since(bench: &Bench) -> Result<()> {
    let gates = Signals::new(&bench.device, 2)?;
    let gates = [gates.signal(1)?, gates.signal(1)?];
    let stream = Stream::new(&bench.device, &Signals::new(&bench.device, 8)?, 0)?;
    for gate in &gates {
        stream.queue().submit(BarrierAnd::on(&[gate.address()])?)?;
        is_late(stream.finish(Duration::from_millis(20)))?;
        let marker = stream.mark()?;
        ensure!(!marker.is_reached(), "a marker behind a gate");
    }
    gates[0].store(0);
    is_late(stream.finish(Duration::from_millis(300)))?;
    gates[1].store(0);
    stream.finish(PATIENCE)?;
    println!("a stream with a marker behind its end");
    Ok(())
}

/// Nor for the end of what another thread has taken meanwhile, which waits for room behind it.
fn taken_meanwhile(bench: &Bench) -> Result<()> {
    let gates = Signals::new(&bench.device, 2)?;
    let gates = [gates.signal(1)?, gates.signal(1)?];
    let stream = Stream::new(&bench.device, &Signals::new(&bench.device, 8)?, 0)?;
    let (code, from, to) = (bench.load()?, &bench.from, &bench.to);
    let launch = code.launch("gather")?.grid(GROUP).workgroup(GROUP);
    let launch = Arc::new(launch.arg(from).arg(to).arg(1u32).build()?);
    let gated = |gate: &Signal| BarrierAnd::on(&[gate.address()]).map(Packet::from);
    let late = |milliseconds| is_late(stream.finish(Duration::from_millis(milliseconds)));
    let pause = |milliseconds| std::thread::sleep(Duration::from_millis(milliseconds));
    from.set(0, 7);
    to.set(0, 0);
    stream.queue().submit(gated(&gates[0])?)?;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| late(1000));
        pause(300);
        let second = gated(&gates[1])?;
        stream.queue().submit(second)?;
        stream.launch(&launch)?;
        while stream.queue().ring().try_submit(&second).is_some() {}
        let taker = scope.spawn(|| late(3000));
        first.join().map_err(|_| anyhow!("a panic"))??;
        scope.spawn(|| {
            pause(300);
            gates[0].store(0);
        });
        late(1000)?;
        taker.join().map_err(|_| anyhow!("a panic"))?
    })?;
    gates[1].store(0);
    stream.finish(PATIENCE)?;
    println!(
        "a stream whose work another thread has taken: {}",
        to.get(0)
    );
    Ok(())
}

fn is_late<T: std::fmt::Debug>(result: kfd_aql::Result<T>) -> Result<()> {
    ensure!(matches!(result, Err(Error::Timeout(_))), "{result:?}");
    Ok(())
}

/// Limits are kept where there is no room, and where others wait for longer.
fn full(bench: &Bench) -> Result<()> {
    let gate = Signals::new(&bench.device, 1)?.signal(1)?;
    let stream = Stream::new(&bench.device, &Signals::new(&bench.device, 8)?, 0)?;
    let gated = BarrierAnd::on(&[gate.address()])?;
    stream.queue().submit(gated)?;
    let (marker, short) = (stream.mark()?, Duration::from_millis(100));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| marker.wait(PATIENCE));
        std::thread::sleep(short);
        let begin = Instant::now();
        is_late(marker.wait(short))?;
        while stream
            .queue()
            .ring()
            .try_submit(&Packet::from(gated))
            .is_some()
        {}
        is_late(stream.finish(short))?;
        let took = begin.elapsed();
        // TIMEOUT: far below what others wait for, far above a slow host's moments.
        ensure!(took < PATIENCE / 3, "0.2 s took {took:?}");
        gate.store(0);
        other.join().map_err(|_| anyhow!("a panic"))??;
        stream.finish(PATIENCE)?;
        println!("limits at a gate");
        Ok(())
    })
}

/// A run of a graph does not begin before the one before has ended, nor end with it.
fn run_again(bench: &Bench) -> Result<()> {
    let signals = Signals::new(&bench.device, 3)?;
    let gates = [signals.signal(1)?, signals.signal(1)?];
    let queue = Arc::new(Queue::new(&bench.device, 64)?);
    let (code, from, to) = (bench.load()?, &bench.from, &bench.to);
    let launch = code.launch("gather")?.grid(GROUP).workgroup(GROUP);
    let launch = Arc::new(launch.arg(from).arg(to).arg(1u32).build()?);
    let mut graph = Graph::new(vec![queue.clone()], &signals);
    graph.add(&launch, &[])?;
    let wait = |gate: &Signal| queue.submit(BarrierAnd::on(&[gate.address()])?);
    from.set(0, 1);
    wait(&gates[0])?;
    is_late(graph.run(Duration::from_millis(20)))?;
    wait(&gates[1])?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            gates[0].store(0);
        });
        is_late(graph.run(Duration::from_millis(700)))
    })?;
    from.set(0, 2);
    gates[1].store(0);
    graph.run(PATIENCE)?;
    println!("a graph whose runs were late: {}", to.get(0));
    Ok(())
}

/// A graph goes before a run is over, and its queues stay: the place of a step that is done is
/// nobody else's, for whom a barrier would wait that has not come to it yet.
fn left_steps(bench: &Bench) -> Result<()> {
    let others = Signals::new(&bench.device, 2)?;
    let (gate, done) = (others.signal(1)?, others.signal(1)?);
    let signals = Signals::new(&bench.device, 3)?;
    let queue = || Queue::new(&bench.device, 64).map(Arc::new);
    let queues = [queue()?, queue()?];
    let (code, from, to) = (bench.load()?, &bench.from, &bench.to);
    let launch = code.launch("gather")?.grid(GROUP).workgroup(GROUP);
    let launch = Arc::new(launch.arg(from).arg(to).arg(1u32).build()?);
    let mut graph = Graph::new(queues.to_vec(), &signals);
    // The second and the third are on the second queue.
    let first = graph.add(&launch, &[])?;
    let second = graph.add(&launch, &[])?;
    graph.add(&launch, &[second, first])?;
    queues[1].submit(BarrierAnd::on(&[gate.address()])?)?;
    is_late(graph.run(Duration::from_millis(300)))?;
    drop(graph);
    let other = signals.signal(1).map(drop);
    ensure!(matches!(other, Err(Error::NoSignal(_))), "{other:?}");
    gate.store(0);
    launch.submit(&queues[1], &done)?;
    queues[1].wait(&done, PATIENCE)?;
    println!("a queue behind a graph that was dropped");
    Ok(())
}

/// Who waits for a marker is told that its stream went before it was reached.
fn dropped(bench: &Bench) -> Result<()> {
    let gate = Signals::new(&bench.device, 1)?.signal(1)?;
    let stream = Stream::new(&bench.device, &Signals::new(&bench.device, 8)?, 0)?;
    let before = stream.mark()?;
    before.wait(PATIENCE)?;
    stream.queue().submit(BarrierAnd::on(&[gate.address()])?)?;
    let marker = stream.mark()?;
    let is_lost = |result| match result {
        Err(Error::Lost) => Ok(()),
        other => Err(anyhow!("not lost: {other:?}")),
    };
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| is_lost(marker.wait(PATIENCE)));
        std::thread::sleep(Duration::from_millis(300));
        drop(stream);
        waits.join().map_err(|_| anyhow!("a panic"))?
    })?;
    is_lost(marker.wait(PATIENCE))?;
    before.wait(PATIENCE)?;
    println!("a marker whose stream has gone");
    Ok(())
}

/// A stream goes, and its queue cannot be destroyed: neither the places of its markers nor the
/// arguments of its launches are anybody else's, whom the GPU would take for them.
fn left_behind(bench: &Bench) -> Result<()> {
    let gate = Signals::new(&bench.device, 1)?.signal(1)?;
    let signals = Signals::new(&bench.device, 1)?;
    let (code, from, to) = (bench.load()?, &bench.from, &bench.to);
    let others = Buffer::<u32>::gtt(&bench.device, GROUP as usize)?;
    let gather = |to| {
        let launch = code.launch("gather")?.grid(GROUP).workgroup(GROUP);
        launch.arg(from).arg(to).arg(1u32).build()
    };
    from.set(0, 6);
    to.set(0, 0);
    others.set(0, 0);
    let stream = Stream::new(&bench.device, &signals, 0)?;
    let gated = BarrierAnd::on(&[gate.address()])?;
    stream.queue().submit(gated)?;
    stream.launch(&Arc::new(gather(to)?))?;
    let marker = stream.mark()?;
    without_kfd(&bench.device, || drop((stream, marker)))?;
    let never = gather(&others)?;
    let other = signals.signal(1).map(drop);
    ensure!(matches!(other, Err(Error::NoSignal(_))), "{other:?}");
    gate.store(0);
    let begin = Instant::now();
    while signals.signal(1).is_err() {
        ensure!(begin.elapsed() < PATIENCE, "the marker is not reached");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(never);
    let words = (to.get(0), others.get(0));
    ensure!(
        words == (6, 0),
        "the launch had another's arguments: {words:?}"
    );
    println!("a launch and a marker of a stream whose queue was left");
    Ok(())
}

/// All calls that `act` makes fail.
fn without_kfd(device: &Device, act: impl FnOnce()) -> Result<()> {
    let (kfd, null) = (device.kfd().as_fd(), std::fs::File::open("/dev/null")?);
    let kept = dup(kfd)?;
    // SAFETY: the descriptor is there as long as the device, and not closed here.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(kfd.as_raw_fd()) });
    dup2(&null, &mut place)?;
    act();
    Ok(dup2(&kept, &mut place)?)
}

/// A buffer that a GPU is shown twice goes for good.
fn shared(kfd: &Arc<Kfd>, bench: &Bench) -> Result<()> {
    let other = second(kfd)?;
    let counts = || std::fs::read_to_string("/sys/kernel/debug/amdkfd/counts");
    let begin = Instant::now();
    loop {
        let before = counts()?;
        for _ in 0..3 {
            let memory = Memory::gtt(&other, 1 << 20)?;
            for device in [&other, &bench.device, &bench.device] {
                memory.share_with(device)?;
            }
        }
        let after = counts()?;
        if after == before {
            break;
        }
        // Workers may be giving back what this process has given up before. What stays here does so
        // each time.
        ensure!(begin.elapsed() < PATIENCE, "now {after}, {before} before");
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("a buffer shown to each GPU twice, and gone");
    Ok(())
}

/// The wait for a kernel that can't end any more is over, and says why: for that of a graph, for
/// what another one's queue was given, and for what comes later.
fn fault(bench: &Bench, queue: &Arc<Queue>, signals: &Arc<Signals>) -> Result<()> {
    let [never, done, copied] = [signals.signal(1)?, signals.signal(1)?, signals.signal(1)?];
    let stream = Stream::new(&bench.device, signals, 0)?;
    let gated = Packet::from(BarrierAnd::on(&[never.address()])?);
    stream.queue().submit(gated)?;
    let (marker, copies) = (stream.mark()?, CopyQueue::new(&bench.device)?);
    queue.check()?;
    let launch = bench.load()?;
    let launch = launch.launch("scatter")?.grid(GROUP).workgroup(GROUP);
    let launch = launch.arg(NOWHERE).arg(1u32).arg(2u32).arg(3u32).build()?;
    let launch = Arc::new(launch);
    let mut graph = Graph::new(vec![queue.clone()], signals);
    graph.add(&launch, &[])?;
    is_fault("a graph", graph.run(PATIENCE).map(drop))?;
    is_fault("a marker", marker.wait(PATIENCE))?;
    while stream.queue().ring().try_submit(&gated).is_some() {}
    is_fault("a full ring", stream.finish(PATIENCE))?;
    copies.copy(bench.from.address(), bench.to.address(), 4, &copied)?;
    is_fault("a copy", copies.wait(&copied, PATIENCE))?;
    launch.submit(queue, &done)?;
    is_fault("a kernel", queue.wait(&done, PATIENCE))?;
    ensure!(
        matches!(queue.check(), Err(Error::Fault(_))),
        "it is forgotten"
    );
    Ok(())
}

fn is_fault(what: &str, result: kfd_aql::Result<()>) -> Result<()> {
    match result {
        Err(Error::Fault(fault)) => println!("{what}: a page fault at {:#x}", fault.address),
        other => bail!("{what}: not a fault: {other:?}"),
    }
    Ok(())
}
