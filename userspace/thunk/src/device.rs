// SPDX-License-Identifier: GPL-2.0 OR MIT

//! [`Kfd`], the open `/dev/kfd`, one per process; [`Device`], one per GPU the process uses.

use crate::ioctl::call;
use crate::topology::Node;
use crate::{Error, Result};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{open, Mode, OFlags};
use std::sync::Arc;

const DEVICE_FILE: &str = "/dev/kfd";

/// The open `/dev/kfd`. The kernel ties it to the process that opened it: it is of no use after `fork`.
#[derive(Debug)]
pub struct Kfd {
    fd: OwnedFd,
    version: (u32, u32),
}

impl Kfd {
    /// Opens `/dev/kfd` and asks for the version of its interface.
    pub fn open() -> Result<Arc<Self>> {
        let fd = open(DEVICE_FILE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(Error::of("open", DEVICE_FILE))?;
        let mut args = uapi::kfd_ioctl_get_version_args::default();
        // SAFETY: the struct holds no pointer.
        unsafe { call(&fd, || DEVICE_FILE.into(), &mut args)? };
        Ok(Arc::new(Self {
            fd,
            version: (args.major_version, args.minor_version),
        }))
    }

    /// The interface's major and minor version.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The apertures of every GPU, by GPU id.
    fn apertures(&self) -> Result<Vec<uapi::kfd_process_device_apertures>> {
        let mut args = uapi::kfd_ioctl_get_process_apertures_new_args::default();
        // SAFETY: with no entries the kernel only tells their number.
        unsafe { call(self, || DEVICE_FILE.into(), &mut args)? };
        let mut entries =
            vec![uapi::kfd_process_device_apertures::default(); args.num_of_nodes as usize];
        args.kfd_process_device_apertures_ptr = entries.as_mut_ptr() as u64;
        // SAFETY: the pointer is to `num_of_nodes` entries, which live until after the call.
        unsafe { call(self, || DEVICE_FILE.into(), &mut args)? };
        entries.truncate(args.num_of_nodes as usize);
        Ok(entries)
    }
}

impl AsFd for Kfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Ranges of GPU addresses with a meaning of their own.
#[derive(Clone, Copy, Debug)]
pub struct Apertures {
    /// First address at which a flat access goes to the work-group's local data share.
    pub lds_base: u64,
    /// First address at which a flat access goes to the work-item's scratch.
    pub scratch_base: u64,
    /// First and last address for buffers.
    pub gpuvm: (u64, u64),
}

/// A GPU whose address space belongs to this process; it lasts as long as anything made on it.
#[derive(Debug)]
pub struct Device {
    kfd: Arc<Kfd>,
    node: Node,
    render: OwnedFd,
    apertures: Apertures,
}

impl Device {
    /// Opens the GPU's render node and makes its address space the one of this process's queues.
    ///
    /// Once per GPU and process: the kernel refuses a second render file with EBUSY.
    pub fn acquire(kfd: &Arc<Kfd>, node: &Node) -> Result<Arc<Self>> {
        let path = format!("/dev/dri/renderD{}", node.property("drm_render_minor"));
        let render = open(path.as_str(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(Error::of("open", path))?;
        let mut args = uapi::kfd_ioctl_acquire_vm_args {
            drm_fd: render.as_raw_fd() as u32,
            gpu_id: node.gpu_id,
        };
        // SAFETY: the struct holds no pointer; the kernel takes its own reference on the file.
        unsafe { call(kfd.as_ref(), || object(node), &mut args)? };
        let own = kfd
            .apertures()?
            .into_iter()
            .find(|entry| entry.gpu_id == node.gpu_id);
        let own =
            own.ok_or_else(|| Error::Invalid(format!("{} has no apertures", object(node))))?;
        let apertures = Apertures {
            lds_base: own.lds_base,
            scratch_base: own.scratch_base,
            gpuvm: (own.gpuvm_base, own.gpuvm_limit),
        };
        Ok(Arc::new(Self {
            kfd: kfd.clone(),
            node: node.clone(),
            render,
            apertures,
        }))
    }

    /// The open `/dev/kfd` this came from.
    pub fn kfd(&self) -> &Arc<Kfd> {
        &self.kfd
    }

    /// What the topology says of this GPU.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The id that the KFD's calls take.
    pub fn gpu_id(&self) -> u32 {
        self.node.gpu_id
    }

    /// The special ranges of this GPU's addresses.
    pub fn apertures(&self) -> Apertures {
        self.apertures
    }

    /// VRAM in bytes that could be allocated now.
    pub fn available_memory(&self) -> Result<u64> {
        let mut args = uapi::kfd_ioctl_get_available_memory_args {
            gpu_id: self.gpu_id(),
            ..Default::default()
        };
        // SAFETY: the struct holds no pointer.
        unsafe { call(self.kfd.as_ref(), || self.to_string(), &mut args)? };
        Ok(args.available)
    }

    /// The GPU's clock and the system's, read together.
    pub fn clocks(&self) -> Result<uapi::kfd_ioctl_get_clock_counters_args> {
        let mut args = uapi::kfd_ioctl_get_clock_counters_args {
            gpu_id: self.gpu_id(),
            ..Default::default()
        };
        // SAFETY: the struct holds no pointer.
        unsafe { call(self.kfd.as_ref(), || self.to_string(), &mut args)? };
        Ok(args)
    }

    pub(crate) fn render(&self) -> BorrowedFd<'_> {
        self.render.as_fd()
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&object(&self.node))
    }
}

fn object(node: &Node) -> String {
    format!("GPU {} (node {})", node.gpu_id, node.id)
}
