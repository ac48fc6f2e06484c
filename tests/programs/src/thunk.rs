// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The thunk's calls that no other test makes: prints what each returns, without addresses, so that
//! the lines of both drivers can be compared.

use crate::bench::name;
use anyhow::{ensure, Context, Result};
use kfd::{
    topology, Debugger, Device, Exceptions, Kfd, Memory, ProfilerLock, Queue, QueueKind,
    QueueMemory,
};
use rustix::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// All of it.
pub fn all() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, nodes.first().context("there is no GPU")?)?;
    apertures(&kfd, &device)?;
    profiler(&device)?;
    secondary(&device)?;
    let memory = QueueMemory {
        ring: Memory::gtt(&device, 4096)?.into(),
        ring_size: 4096,
        indices: Memory::gtt(&device, 4096)?.into(),
        write_index: 0,
        read_index: 64,
    };
    let queue = Queue::create(&device, QueueKind::Pm4, memory)?;
    debugger(&kfd, &queue);
    checkpoint(&kfd);
    Ok(())
}

/// What `result` came to: a line that says it with the errno's name.
fn say<T>(what: &str, result: kfd::Result<T>, show: impl FnOnce(T) -> String) {
    let said = match result {
        Ok(value) => show(value),
        Err(error) => error.errno().map_or(error.to_string(), |errno| {
            name(rustix::io::Errno::from_raw_os_error(errno.raw())).to_string()
        }),
    };
    println!("{what}: {said}");
}

fn apertures(kfd: &Kfd, device: &Device) -> Result<()> {
    let first = kfd.first_apertures()?;
    let own = first.iter().find(|(gpu_id, _)| *gpu_id == device.gpu_id());
    let (_, own) = own.context("the GPU is not among the first apertures")?;
    let now = device.apertures();
    let same =
        (own.lds_base, own.scratch_base, own.gpuvm) == (now.lds_base, now.scratch_base, now.gpuvm);
    println!(
        "first apertures: {}, the same as the new: {same}",
        first.len()
    );
    say("tiles", device.tile_config(), |tiles| format!("{tiles:x?}"));
    Ok(())
}

fn profiler(device: &Arc<Device>) -> Result<()> {
    say("profiler", device.kfd().profiler_version(), |version| {
        version.to_string()
    });
    let lock = ProfilerLock::take(device, true)?;
    say("taken twice", ProfilerLock::take(device, false), |_| {
        "taken".into()
    });
    say("peaks", lock.limit_peaks(false), |()| "not limited".into());
    drop(lock);
    say("taken again", ProfilerLock::take(device, false), |_| {
        "taken".into()
    });
    Ok(())
}

/// Another context of this process has its own memory on the same GPU.
fn secondary(device: &Device) -> Result<()> {
    let kfd = Kfd::open_secondary()?;
    let other = Device::acquire(&kfd, device.node())?;
    let memory = Memory::gtt(&other, 4096)?;
    memory.write(0, &[7u32]);
    ensure!(
        memory.read::<u32>(0, 1) == [7],
        "its memory does not hold what is written"
    );
    println!("a second context: memory of its own");
    Ok(())
}

fn debugger(kfd: &Arc<Kfd>, queue: &Queue) {
    let pid = std::process::id();
    let (_ours, theirs) = match UnixStream::pair() {
        Ok(pair) => pair,
        Err(error) => return println!("debugger: {error}"),
    };
    let attached = Debugger::attach(kfd, pid, Exceptions::QUEUE_NEW, theirs.as_fd());
    let debugger = match attached {
        Ok(debugger) => debugger,
        Err(error) => return say("debugger", Err::<(), _>(error), |()| String::new()),
    };
    println!("debugger: runtime {}", debugger.runtime().runtime_state);
    say(
        "exceptions",
        debugger.set_exceptions(Exceptions::QUEUE_NEW),
        |()| "set".into(),
    );
    say("GPUs", debugger.devices(Exceptions::empty()), |found| {
        found.len().to_string()
    });
    say("queues", debugger.queues(Exceptions::empty()), |found| {
        let own = found.iter().filter(|entry| entry.queue_id == queue.id());
        let sizes: Vec<_> = own.map(|entry| entry.ring_size).collect();
        format!("{}, ours has {sizes:?}", found.len())
    });
    say("new", debugger.raised(Exceptions::QUEUE_NEW), |raised| {
        format!("{}", raised.is_some())
    });
    say("left", debugger.raised(Exceptions::QUEUE_NEW), |raised| {
        format!("{}", raised.is_some())
    });
    let nothing = Exceptions::empty();
    say(
        "suspend without a runtime",
        debugger.suspend(&[queue.id()], 0, nothing),
        |done| format!("{done:?}"),
    );
}

/// What a checkpoint of this very process holds; its queue goes on.
fn checkpoint(kfd: &Kfd) {
    let sizes = match kfd.pause() {
        Ok(sizes) => sizes,
        Err(error) => return say("checkpoint", Err::<(), _>(error), |()| String::new()),
    };
    println!(
        "checkpoint: {} GPUs, {} objects",
        sizes.devices, sizes.objects
    );
    say("its contents", kfd.checkpoint(sizes), |saved| {
        let full = saved.private.iter().any(|byte| *byte != 0);
        format!("{} buffers, private data: {full}", saved.buffers.len())
    });
    say("unpause", kfd.unpause(), |()| "done".into());
    say("unpause again", kfd.unpause(), |()| "done".into());
}
