// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The cases of events.

use super::{cookie, map, relative, show};
use crate::bench::Bench;
use crate::raw::ioctl;
use anyhow::Result;
use kfd::{topology, Device, Kfd, Memory};
use kfd_uapi as uapi;
use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::{sigaction, SaFlags, SigAction, SigHandler, SigSet, Signal};
use nix::unistd::Pid;
use rustix::fd::AsFd;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

pub(super) fn events(bench: &Bench) {
    let fd = bench.kfd();
    for event_type in 0..12 {
        let mut args = uapi::kfd_ioctl_create_event_args {
            event_type,
            ..Default::default()
        };
        let outcome = ioctl(fd, uapi::IOC_CREATE_EVENT, &mut args);
        show(&format!("CREATE_EVENT type {event_type}"), outcome);
        if outcome.is_ok() {
            let mut args = uapi::kfd_ioctl_destroy_event_args {
                event_id: args.event_id,
                ..Default::default()
            };
            show(
                "DESTROY_EVENT",
                ioctl(fd, uapi::IOC_DESTROY_EVENT, &mut args),
            );
        }
    }
    for offset in [1, 4096, bench.ring.handle()] {
        let mut args = uapi::kfd_ioctl_create_event_args {
            event_page_offset: offset,
            ..Default::default()
        };
        show(
            &format!("CREATE_EVENT page {}", relative(offset, bench)),
            ioctl(fd, uapi::IOC_CREATE_EVENT, &mut args),
        );
    }
    for event_id in [0x7777, 0x8000_0000, u32::MAX] {
        for (call, request) in [
            ("SET_EVENT", uapi::IOC_SET_EVENT),
            ("RESET_EVENT", uapi::IOC_RESET_EVENT),
            ("DESTROY_EVENT", uapi::IOC_DESTROY_EVENT),
        ] {
            let mut args = uapi::kfd_ioctl_set_event_args {
                event_id,
                ..Default::default()
            };
            show(
                &format!("{call} {event_id:#x}"),
                ioctl(fd, request, &mut args),
            );
        }
    }
    let mut data = [uapi::kfd_event_data {
        event_id: 0x7777,
        ..Default::default()
    }];
    for (case, count, address) in [
        ("of an unknown event", 1, data.as_mut_ptr() as u64),
        ("of no events", 0, data.as_mut_ptr() as u64),
        ("at NULL", 1, 0),
        ("at the kernel's", 1, 0xffff_8000_0000_0000),
        ("of 2^26 events", 1 << 26, data.as_mut_ptr() as u64),
        ("of too many events", u32::MAX, data.as_mut_ptr() as u64),
    ] {
        let mut args = uapi::kfd_ioctl_wait_events_args {
            events_ptr: address,
            num_events: count,
            timeout: 0,
            ..Default::default()
        };
        let outcome = ioctl(fd, uapi::IOC_WAIT_EVENTS, &mut args);
        show(
            &format!("WAIT_EVENTS {case}, result {}", args.wait_result),
            outcome,
        );
    }
}

/// Whether a thread of this process sleeps.
fn sleeps(task: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{task}/stat"));
    stat.is_ok_and(|text| {
        text.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('S'))
    })
}

/// Waits that a signal ends: with a handler that lets calls go on, and with one that does not.
pub(super) fn interrupted(bench: &Bench) -> Result<()> {
    extern "C" fn nothing(_: i32) {}
    let mut event = uapi::kfd_ioctl_create_event_args::default();
    ioctl(bench.kfd(), uapi::IOC_CREATE_EVENT, &mut event)?;
    let mut data = [uapi::kfd_event_data {
        event_id: event.event_id,
        ..Default::default()
    }];
    for (case, flags, timeout) in [
        ("of 10 s, interrupted", SaFlags::empty(), 10_000),
        ("for ever, interrupted", SaFlags::empty(), u32::MAX),
        ("of 1 s that goes on", SaFlags::SA_RESTART, 1_000),
    ] {
        let action = SigAction::new(SigHandler::Handler(nothing), flags, SigSet::empty());
        // SAFETY: the handler does nothing.
        unsafe { sigaction(Signal::SIGUSR1, &action)? };
        let (waiter, task) = (pthread_self(), nix::unistd::gettid());
        let (over, is_over) = channel::<()>();
        let woken = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(400));
            // The signal of one that does not wait yet is lost.
            loop {
                let next = match sleeps(task) {
                    true => pthread_kill(waiter, Signal::SIGUSR1).map(|()| 1000)?,
                    false => 10,
                };
                match is_over.recv_timeout(Duration::from_millis(next)) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return nix::Result::Ok(()),
                }
            }
        });
        let mut args = uapi::kfd_ioctl_wait_events_args {
            events_ptr: data.as_mut_ptr() as u64,
            num_events: 1,
            timeout,
            ..Default::default()
        };
        let outcome = ioctl(bench.kfd(), uapi::IOC_WAIT_EVENTS, &mut args);
        drop(over);
        woken.join().expect("it does not panic")?;
        let left = match args.timeout {
            left if left == timeout => "all of its time left",
            _ => "less time left",
        };
        show(
            &format!("WAIT_EVENTS {case}, {left}, result {}", args.wait_result),
            outcome,
        );
    }
    let mut destroy = uapi::kfd_ioctl_destroy_event_args {
        event_id: event.event_id,
        ..Default::default()
    };
    Ok(ioctl(bench.kfd(), uapi::IOC_DESTROY_EVENT, &mut destroy)?)
}

/// What a process gets that brings its own page of event slots, which is memory of a GPU's.
pub fn own_page() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, &nodes[0])?;
    let (first, second) = (Memory::gtt(&device, 32768)?, Memory::gtt(&device, 32768)?);
    let small = Memory::gtt(&device, 4096)?;
    let user = Memory::userptr(&device, 32768)?;
    // Half of that, which the GPU sees twice in a row.
    let mut aql = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
        va_addr: 1 << 40,
        size: 32768,
        gpu_id: device.gpu_id(),
        flags: uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT
            | uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE
            | uapi::KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM,
        ..Default::default()
    };
    ioctl(kfd.as_fd(), uapi::IOC_ALLOC_MEMORY_OF_GPU, &mut aql)?;
    for (case, page) in [
        ("a page of no buffer", first.handle() | 0xffff),
        ("a page of no GPU", 1 << 32),
        ("a page that is too small", small.handle()),
        ("a page of half its size", aql.handle),
        ("a page of the process's memory", user.handle()),
        ("its own page", first.handle()),
        ("a second page", second.handle()),
    ] {
        let mut args = uapi::kfd_ioctl_create_event_args {
            event_page_offset: page,
            ..Default::default()
        };
        show(
            &format!("CREATE_EVENT with {case}"),
            ioctl(kfd.as_fd(), uapi::IOC_CREATE_EVENT, &mut args),
        );
    }
    show(
        "mmap of its own page",
        map(kfd.as_fd(), cookie(2, 0), 32768),
    );
    for (case, handle) in [
        ("what was too small", aql.handle),
        ("its own page", first.handle()),
    ] {
        let mut args = uapi::kfd_ioctl_free_memory_of_gpu_args { handle };
        show(
            &format!("FREE_MEMORY_OF_GPU of {case}"),
            ioctl(kfd.as_fd(), uapi::IOC_FREE_MEMORY_OF_GPU, &mut args),
        );
    }
    Ok(())
}
