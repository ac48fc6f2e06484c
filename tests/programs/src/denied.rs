// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a process sees of a GPU that its device cgroup hides, as a container's does.

use crate::bench::name;
use crate::errno::{cookie, map};
use crate::raw::ioctl;
use anyhow::Result;
use clap::Args;
use kfd::Kfd;
use kfd_uapi as uapi;
use rustix::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// Print what comes of calls that name GPU_ID, and how many GPUs the process sees.
#[derive(Args)]
pub struct Denied {
    gpu_id: u32,
    /// Write this process to FILE, a cgroup's list of processes, when it has opened the KFD.
    #[arg(long, value_name = "FILE")]
    enter: Option<PathBuf>,
}

impl Denied {
    pub fn run(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let fd = kfd.as_fd();
        if let Some(list) = &self.enter {
            std::fs::write(list, std::process::id().to_string())?;
        }
        apertures(fd)?;
        for (what, kind, size) in [("doorbells", 3, 8192), ("registers", 0, 4096)] {
            let outcome = map(fd, cookie(kind, self.gpu_id), size);
            println!(
                "mmap of {what}: {}",
                outcome.map_or_else(name, |()| "0".into())
            );
        }
        checkpoint(fd);
        let gpu = u64::from(self.gpu_id);
        for &uapi::Ioctl {
            request,
            name: call,
            ..
        } in uapi::IOCTLS
        {
            // The GPU's name in every place where one could be. These would end or change the
            // process.
            if [
                "CREATE_PROCESS",
                "SVM",
                "CRIU_OP",
                "DBG_TRAP",
                "WAIT_EVENTS",
            ]
            .contains(&call)
            {
                continue;
            }
            if ["UNMAP_MEMORY_FROM_GPU", "GET_PROCESS_APERTURES_NEW"].contains(&call) {
                continue;
            }
            let outcome = ioctl(fd, request, &mut [gpu << 32 | gpu; 16]);
            println!("{call}: {}", outcome.map_or_else(name, |()| "0".into()));
        }
        Ok(())
    }
}

/// What comes of a checkpoint of what it may use: there is one as soon as it sees a GPU.
fn checkpoint(fd: BorrowedFd<'_>) {
    // Of no device, which is wrong where there is one.
    let args = |op| uapi::kfd_ioctl_criu_args {
        devices: 8,
        bos: 8,
        priv_data: 8,
        op,
        ..Default::default()
    };
    for (what, op) in [
        ("CHECKPOINT before", uapi::KFD_CRIU_OP_CHECKPOINT),
        ("PROCESS_INFO", uapi::KFD_CRIU_OP_PROCESS_INFO),
        ("CHECKPOINT", uapi::KFD_CRIU_OP_CHECKPOINT),
        ("UNPAUSE", uapi::KFD_CRIU_OP_UNPAUSE),
    ] {
        let outcome = ioctl(fd, uapi::IOC_CRIU_OP, &mut args(op));
        println!("{what}: {}", outcome.map_or_else(name, |()| "0".into()));
    }
}

/// How many GPUs the process sees: asked without room, with room for each node, and in the
/// old way.
fn apertures(fd: BorrowedFd<'_>) -> Result<()> {
    let mut args = uapi::kfd_ioctl_get_process_apertures_new_args::default();
    ioctl(fd, uapi::IOC_GET_PROCESS_APERTURES_NEW, &mut args)?;
    println!("apertures of {} GPUs", args.num_of_nodes);
    let mut room = [uapi::kfd_process_device_apertures::default(); 32];
    args.kfd_process_device_apertures_ptr = room.as_mut_ptr() as u64;
    if args.num_of_nodes > 0 {
        ioctl(fd, uapi::IOC_GET_PROCESS_APERTURES_NEW, &mut args)?;
    }
    let told = room.iter().filter(|one| one.gpu_id != 0).count();
    println!("{told} of them are told");
    let mut old = uapi::kfd_ioctl_get_process_apertures_args::default();
    ioctl(fd, uapi::IOC_GET_PROCESS_APERTURES, &mut old)?;
    println!("{} in the structure with room for seven", old.num_of_nodes);
    Ok(())
}
