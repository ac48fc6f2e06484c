// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What a process sees of a GPU that its device cgroup hides, as a container's does.

use crate::bench::name;
use crate::raw::ioctl;
use anyhow::Result;
use clap::Args;
use kfd::Kfd;
use kfd_uapi as uapi;
use rustix::fd::AsFd;

/// Print what comes of calls that name GPU_ID, and how many GPUs the process is told of.
#[derive(Args)]
pub struct Denied {
    gpu_id: u32,
}

impl Denied {
    pub fn run(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let fd = kfd.as_fd();
        let mut apertures = uapi::kfd_ioctl_get_process_apertures_new_args::default();
        ioctl(fd, uapi::IOC_GET_PROCESS_APERTURES_NEW, &mut apertures)?;
        println!("apertures of {} GPUs", apertures.num_of_nodes);
        let gpu = u64::from(self.gpu_id);
        for &uapi::Ioctl {
            request,
            name: call,
            ..
        } in uapi::IOCTLS
        {
            // The GPU's name in every place where one could be. These would end or change the process.
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
