// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Events: made, set, waited for, with few and with many of them live.

use super::{call, now, Meter};
use crate::bench::Bench;
use anyhow::{ensure, Result};
use kfd::{Device, Event, EventKind, Events, Wait};
use kfd_uapi as uapi;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub(super) fn all(meter: &Meter, bench: &Bench) -> Result<()> {
    let (device, events) = (&bench.device, &bench.events);
    let mut live = Vec::new();
    for count in [1, 100, 4000] {
        grow(&mut live, events, count)?;
        life(meter, device, count)?;
    }
    drop(live);
    for count in [1, 16, 256, 1000] {
        waits(meter, device, events, count)?;
    }
    for count in [1, 256, 1000] {
        wake_up(meter, events, count)?;
    }
    Ok(())
}

fn grow(live: &mut Vec<Event>, events: &Arc<Events>, count: usize) -> Result<()> {
    while live.len() < count {
        live.push(Event::new(events, EventKind::Signal, true)?);
    }
    Ok(())
}

/// One event more than there are, from its making to its end.
fn life(meter: &Meter, device: &Arc<Device>, live: usize) -> Result<()> {
    let kfd = device.kfd();
    let mut rows = ["CREATE_EVENT", "SET_EVENT", "RESET_EVENT", "DESTROY_EVENT"]
        .map(|name| meter.row(format!("{name} live={live}")));
    for _ in 0..100 {
        let mut args = uapi::kfd_ioctl_create_event_args {
            event_type: uapi::KFD_IOC_EVENT_SIGNAL,
            auto_reset: 1,
            ..Default::default()
        };
        rows[0].sample(|| call(kfd, uapi::IOC_CREATE_EVENT, &mut args))?;
        let event_id = args.event_id;
        let mut set = uapi::kfd_ioctl_set_event_args {
            event_id,
            ..Default::default()
        };
        rows[1].sample(|| call(kfd, uapi::IOC_SET_EVENT, &mut set))?;
        let mut reset = uapi::kfd_ioctl_reset_event_args {
            event_id,
            ..Default::default()
        };
        rows[2].sample(|| call(kfd, uapi::IOC_RESET_EVENT, &mut reset))?;
        let mut destroy = uapi::kfd_ioctl_destroy_event_args {
            event_id,
            ..Default::default()
        };
        rows[3].sample(|| call(kfd, uapi::IOC_DESTROY_EVENT, &mut destroy))?;
    }
    rows.into_iter().for_each(super::Row::print);
    Ok(())
}

/// WAIT_EVENTS that does not sleep.
fn waits(meter: &Meter, device: &Arc<Device>, events: &Arc<Events>, count: usize) -> Result<()> {
    let kfd = device.kfd();
    // Not reset by the wait, so that it finds them the same each time.
    let live: Vec<_> = (0..count)
        .map(|_| Event::new(events, EventKind::Signal, false))
        .collect::<Result<_, _>>()?;
    let mut data: Vec<_> = live
        .iter()
        .map(|event| uapi::kfd_event_data {
            event_id: event.id(),
            ..Default::default()
        })
        .collect();
    let mut wait = |wait_for_all: u32, result: u32| {
        let mut args = uapi::kfd_ioctl_wait_events_args {
            events_ptr: data.as_mut_ptr() as u64,
            num_events: count as u32,
            wait_for_all,
            ..Default::default()
        };
        call(kfd, uapi::IOC_WAIT_EVENTS, &mut args)?;
        ensure!(args.wait_result == result, "result {}", args.wait_result);
        Ok(())
    };
    let (complete, timeout) = (
        uapi::KFD_IOC_WAIT_RESULT_COMPLETE,
        uapi::KFD_IOC_WAIT_RESULT_TIMEOUT,
    );
    meter.measure(
        format!("WAIT_EVENTS n={count}, none set, no time"),
        50,
        || wait(0, timeout),
    )?;
    live[0].set()?;
    meter.measure(format!("WAIT_EVENTS n={count}, the first set"), 50, || {
        wait(0, complete)
    })?;
    live.iter().try_for_each(Event::set)?;
    meter.measure(
        format!("WAIT_EVENTS n={count}, all set, for all"),
        50,
        || wait(1, complete),
    )
}

/// From SET_EVENT in one thread to the return from WAIT_EVENTS in another, which waits for `count`.
fn wake_up(meter: &Meter, events: &Arc<Events>, count: usize) -> Result<()> {
    let live: Vec<_> = (0..count)
        .map(|_| Event::new(events, EventKind::Signal, true))
        .collect::<Result<_, _>>()?;
    let all: Vec<_> = live.iter().collect();
    let woken = AtomicU64::new(0);
    let mut row = meter.row(format!("SET_EVENT to wake-up n={count}"));
    thread::scope(|scope| {
        for _ in 0..50 {
            let waiter = scope.spawn(|| {
                let seen = events.wait(&all, Wait::Any, Some(Duration::from_secs(10)));
                woken.store(now(), Ordering::Release);
                seen
            });
            // Long enough for the waiter to sleep.
            thread::sleep(Duration::from_millis(20));
            let before = now();
            live[count - 1].set()?;
            ensure!(waiter.join().expect("the waiter")?, "it timed out");
            row.samples
                .push(woken.load(Ordering::Acquire) - before - meter.empty);
        }
        Ok(())
    })?;
    row.print();
    Ok(())
}
