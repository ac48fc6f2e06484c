// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Sequences that chance would hardly find: limits, order, what one file may do to another.

use super::files;
use super::world::World;
use crate::bench::name;
use crate::raw::{ioctl, Outcome};
use anyhow::Result;
use kfd::{topology, Kfd};
use kfd_uapi as uapi;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::{read, write};
use std::time::{Duration, Instant};

/// How long a context may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

fn say(case: &str, outcome: Outcome) {
    match outcome {
        Ok(()) => println!("script {case}: 0"),
        Err(errno) => println!("script {case}: {}", name(errno)),
    }
}

/// What a process may do that has no VM yet.
pub fn before_acquire() -> Result<()> {
    let kfd = Kfd::open()?;
    let gpu_id = topology::gpus()?.first().map_or(0, |node| node.gpu_id);
    let fd = kfd.as_fd();
    for &uapi::Ioctl { request, name, .. } in uapi::IOCTLS {
        // These are for scripts of their own.
        if [
            "CREATE_PROCESS",
            "SVM",
            "CRIU_OP",
            "DBG_TRAP",
            "UNMAP_MEMORY_FROM_GPU",
        ]
        .contains(&name)
        {
            continue;
        }
        // A signal event: the C driver of older kernels makes a page for it, and the process
        // keeps that.
        if name != "CREATE_EVENT" {
            say(
                &format!("{name} of zeros"),
                ioctl(fd, request, &mut [0u64; 64]),
            );
        }
        say(
            &format!("{name} of ones"),
            ioctl(fd, request, &mut [u64::MAX; 64]),
        );
        let mut gpus = [u64::from(gpu_id) << 32 | u64::from(gpu_id); 64];
        // A number of records that large is a list that large.
        if !["WAIT_EVENTS", "GET_PROCESS_APERTURES_NEW"].contains(&name) {
            say(&format!("{name} of GPU ids"), ioctl(fd, request, &mut gpus));
        }
    }
    Ok(())
}

/// All scripts.
pub fn all(world: &mut World) -> Result<()> {
    files::show(world);
    files::topology();
    many_queues(world);
    many_events(world)?;
    buffers_of_queues(world);
    wave_sync(world);
    profiler(world)?;
    smi_file(world)?;
    secondary()
}

/// Queue ids are the lowest free ones; the process's files show each queue.
fn many_queues(world: &mut World) {
    let mut ids = Vec::new();
    for kind in [2, 2, 0, 1, 3, 4, 2, 1] {
        let mut args = world.bench.queue();
        args.queue_type = kind;
        let outcome = world.call(uapi::IOC_CREATE_QUEUE, &mut args);
        say(
            &format!("queue of type {kind}: id {}", args.queue_id),
            outcome,
        );
        if outcome.is_ok() {
            ids.push(args.queue_id);
        }
    }
    files::show(world);
    for place in [1, 3] {
        if let Some(&id) = ids.get(place) {
            destroy(world, id);
        }
    }
    for _ in 0..2 {
        let mut args = world.bench.queue();
        let outcome = world.call(uapi::IOC_CREATE_QUEUE, &mut args);
        say(&format!("queue in a gap: id {}", args.queue_id), outcome);
        if outcome.is_ok() && !ids.contains(&args.queue_id) {
            ids.push(args.queue_id);
        }
    }
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().for_each(|id| destroy(world, id));
    files::show(world);
}

fn destroy(world: &World, queue_id: u32) {
    let mut args = uapi::kfd_ioctl_destroy_queue_args {
        queue_id,
        ..Default::default()
    };
    say(
        &format!("DESTROY_QUEUE {queue_id}"),
        world.call(uapi::IOC_DESTROY_QUEUE, &mut args),
    );
}

/// How many events of each kind there can be, and what happens at the end.
fn many_events(world: &World) -> Result<()> {
    for kind in [0, 1, 8] {
        let mut ids = Vec::new();
        let error = loop {
            let mut args = uapi::kfd_ioctl_create_event_args {
                event_type: kind,
                ..Default::default()
            };
            match world.call(uapi::IOC_CREATE_EVENT, &mut args) {
                Ok(()) => ids.push(args.event_id),
                Err(errno) => break name(errno),
            }
            if ids.len() > 10_000 {
                break "no limit".into();
            }
        };
        let (first, last) = (ids.first().copied(), ids.last().copied());
        println!(
            "script events of type {kind}: {} from {first:x?} to {last:x?}, then {error}",
            ids.len()
        );
        for event_id in ids {
            let mut args = uapi::kfd_ioctl_destroy_event_args {
                event_id,
                ..Default::default()
            };
            if let Err(errno) = world.call(uapi::IOC_DESTROY_EVENT, &mut args) {
                println!("script DESTROY_EVENT {event_id:#x}: {}", name(errno));
            }
        }
    }
    Ok(())
}

/// What a live queue needs cannot be unmapped or freed; when it is gone, it can.
fn buffers_of_queues(world: &World) {
    let mut queue = world.bench.queue();
    say(
        "a queue whose buffers go",
        world.call(uapi::IOC_CREATE_QUEUE, &mut queue),
    );
    let gpu_id = world.bench.gpu_id();
    let buffers = [
        ("ring", &world.bench.ring),
        ("indices", &world.bench.indices),
        ("eop", &world.bench.eop),
        ("area", &world.bench.context),
    ];
    let pass = |when: &str| {
        for (name, memory) in buffers {
            let mut unmap = uapi::kfd_ioctl_unmap_memory_from_gpu_args {
                handle: memory.handle(),
                device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
                n_devices: 1,
                n_success: 0,
            };
            let outcome = world.call(uapi::IOC_UNMAP_MEMORY_FROM_GPU, &mut unmap);
            say(
                &format!("unmap the {name} {when}, {} done", unmap.n_success),
                outcome,
            );
            let mut free = uapi::kfd_ioctl_free_memory_of_gpu_args {
                handle: memory.handle(),
            };
            if outcome.is_err() {
                let outcome = world.call(uapi::IOC_FREE_MEMORY_OF_GPU, &mut free);
                say(&format!("free the {name} {when}"), outcome);
            }
            let mut map = uapi::kfd_ioctl_map_memory_to_gpu_args {
                handle: memory.handle(),
                device_ids_array_ptr: std::ptr::from_ref(&gpu_id) as u64,
                n_devices: 1,
                n_success: 0,
            };
            let outcome = world.call(uapi::IOC_MAP_MEMORY_TO_GPU, &mut map);
            say(&format!("map the {name} again {when}"), outcome);
        }
    };
    pass("of a live queue");
    destroy(world, queue.queue_id);
    pass("of no queue");
}

/// Global wave sync: one queue of a process has all of it.
fn wave_sync(world: &World) {
    let mut queues = [2, 2, 1].map(|kind| {
        let mut args = world.bench.queue();
        args.queue_type = kind;
        say(
            "a queue for wave sync",
            world.call(uapi::IOC_CREATE_QUEUE, &mut args),
        );
        args.queue_id
    });
    let gws = |queue_id, num_gws| {
        let mut args = uapi::kfd_ioctl_alloc_queue_gws_args {
            queue_id,
            num_gws,
            first_gws: 0x77,
            ..Default::default()
        };
        let outcome = world.call(uapi::IOC_ALLOC_QUEUE_GWS, &mut args);
        say(
            &format!(
                "{num_gws} of GWS to queue {queue_id}, from {:#x}",
                args.first_gws
            ),
            outcome,
        );
    };
    for (queue, count) in [
        (0, 0),
        (0, 64),
        (0, 64),
        (1, 64),
        (2, 64),
        (0, 0),
        (0, 0),
        (1, 1),
        (0, 64),
    ] {
        gws(queues[queue], count);
    }
    queues.reverse();
    queues.into_iter().for_each(|id| destroy(world, id));
}

/// Only one process at a time has a GPU's counters, and it must give them back itself.
fn profiler(world: &World) -> Result<()> {
    let call = |op, gpu_id, lock, on| {
        let mut args = uapi::kfd_ioctl_profiler_args {
            op,
            ..Default::default()
        };
        args.__bindgen_anon_1.pmc = uapi::kfd_ioctl_pmc_settings {
            gpu_id,
            lock,
            perfcount_enable: on,
        };
        let outcome = world.call(uapi::IOC_PROFILER, &mut args);
        say(&format!("profiler {op} lock {lock} counters {on}"), outcome);
    };
    let gpu = world.bench.gpu_id();
    for (op, lock, on) in [
        (0, 0, 0),
        (0, 1, 1),
        (0, 1, 1),
        (0, 2, 0),
        (0, 0, 0),
        (0, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
    ] {
        call(op, gpu, lock, on);
    }
    for (op, enable) in [(3, 0), (3, 0), (3, 1), (3, 1), (1, 0), (2, 0)] {
        call(op, gpu, enable, 0);
    }
    call(0, 1, 1, 1);
    call(3, 1, 1, 0);
    Ok(())
}

fn smi_open(fd: BorrowedFd<'_>, gpuid: u32) -> std::result::Result<OwnedFd, rustix::io::Errno> {
    let mut args = uapi::kfd_ioctl_smi_events_args { gpuid, anon_fd: 0 };
    ioctl(fd, uapi::IOC_SMI_EVENTS, &mut args)?;
    // SAFETY: the kernel has just made it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(args.anon_fd as i32) })
}

/// The file of a GPU's events: what can be done with it.
fn smi_file(world: &World) -> Result<()> {
    let file = match smi_open(world.fd(), world.bench.gpu_id()) {
        Ok(file) => file,
        Err(errno) => {
            println!("script SMI file: {}", name(errno));
            return Ok(());
        }
    };
    let mut room = [0u8; 256];
    let ready = |case: &str| {
        let mut fds = [PollFd::new(&file, PollFlags::IN | PollFlags::OUT)];
        let zero = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let count = poll(&mut fds, Some(&zero));
        println!("script SMI poll {case}: {count:?} {:?}", fds[0].revents());
    };
    ready("when new");
    for bytes in [0, 1, 256] {
        let result = read(&file, &mut room[..bytes]).map(|_| ());
        say(&format!("SMI read of {bytes} bytes"), result);
    }
    for mask in [&[][..], &[0xff; 7], &[0xff; 8], &[0xff; 16]] {
        let result = write(&file, mask);
        println!(
            "script SMI write of {} bytes: {:?}",
            mask.len(),
            result.map_err(name)
        );
    }
    // SAFETY: an address of the kernel's is refused before it is looked at.
    say(
        "SMI ioctl",
        ioctl(&file, uapi::IOC_GET_VERSION, &mut [0u64; 2]),
    );
    ready("after that");
    let other = smi_open(world.fd(), world.bench.gpu_id()).map_err(name);
    println!("script SMI a second file: {}", other.is_ok());
    // Without a mask there are no events.
    if let Ok(other) = other {
        let outcome = read(&other, &mut room).map(|_| ());
        say("SMI read of the second", outcome);
    }
    Ok(())
}

/// CREATE_PROCESS: another context of the same address space.
fn secondary() -> Result<()> {
    let gpu_id = topology::gpus()?.first().map_or(0, |node| node.gpu_id);
    let open = || {
        std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/kfd")
    };
    let files = [open()?, open()?, open()?];
    let create =
        |file: &std::fs::File| ioctl(file.as_fd(), uapi::IOC_CREATE_PROCESS, &mut [0u64; 1]);
    say("CREATE_PROCESS", create(&files[0]));
    say("CREATE_PROCESS again", create(&files[0]));
    say("CREATE_PROCESS on another file", create(&files[1]));
    let gpu = gpu_id.to_string();
    let own = format!("/sys/class/kfd/kfd/proc/{}", std::process::id());
    let shown = || {
        super::files::settle();
        let mut names: Vec<String> = std::fs::read_dir(&own)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().replace(&gpu, "GPU"))
            .collect();
        names.sort();
        names
    };
    println!("script contexts with two more: {}", shown().join(" "));
    for (index, file) in files.iter().enumerate() {
        let mut event = uapi::kfd_ioctl_create_event_args::default();
        let outcome = ioctl(file, uapi::IOC_CREATE_EVENT, &mut event);
        // The first context may have events of the run's; the others begin anew.
        let id = if index < 2 { event.event_id } else { 0 };
        say(&format!("an event of context {index}: {id}"), outcome);
        let mut apertures = uapi::kfd_ioctl_get_process_apertures_new_args::default();
        let outcome = ioctl(file, uapi::IOC_GET_PROCESS_APERTURES_NEW, &mut apertures);
        say(
            &format!("apertures of context {index}: {}", apertures.num_of_nodes),
            outcome,
        );
        let mut memory = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
            va_addr: 1 << 32,
            size: 4096,
            gpu_id,
            flags: uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT,
            ..Default::default()
        };
        let outcome = ioctl(file, uapi::IOC_ALLOC_MEMORY_OF_GPU, &mut memory);
        say(&format!("memory of context {index}"), outcome);
        if outcome.is_ok() {
            let mut args = uapi::kfd_ioctl_free_memory_of_gpu_args {
                handle: memory.handle,
            };
            say(
                "its end",
                ioctl(file, uapi::IOC_FREE_MEMORY_OF_GPU, &mut args),
            );
        }
    }
    drop(files);
    // A worker ends them, on either driver.
    let begin = Instant::now();
    let left = loop {
        let names = shown();
        let ended = !names.iter().any(|name| name.starts_with("context_"));
        if ended || begin.elapsed() > PATIENCE {
            break names;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    println!("script contexts at the end: {}", left.join(" "));
    Ok(())
}
