// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The cases of events.

use super::{cookie, map, relative, show};
use crate::bench::Bench;
use crate::raw::ioctl;
use anyhow::Result;
use kfd::{topology, Device, Kfd, Memory};
use kfd_uapi as uapi;
use rustix::fd::AsFd;

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

/// What a process gets that brings its own page of event slots, which is memory of a GPU's.
pub fn own_page() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, &nodes[0])?;
    let (first, second) = (Memory::gtt(&device, 32768)?, Memory::gtt(&device, 32768)?);
    for (case, page) in [("its own page", &first), ("a second page", &second)] {
        let mut args = uapi::kfd_ioctl_create_event_args {
            event_page_offset: page.handle(),
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
    let mut args = uapi::kfd_ioctl_free_memory_of_gpu_args {
        handle: first.handle(),
    };
    show(
        "FREE_MEMORY_OF_GPU of its own page",
        ioctl(kfd.as_fd(), uapi::IOC_FREE_MEMORY_OF_GPU, &mut args),
    );
    Ok(())
}
