// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Checkpoint`]: what a process has on its GPUs, as data, to be saved and made again (CRIU_OP).
//!
//! For `CAP_CHECKPOINT_RESTORE`, and on the `/dev/kfd` of the process itself: who checkpoints
//! another one has traced it and taken its descriptor over.

use crate::ioctl::call;
use crate::{Kfd, Result};
use kfd_uapi as uapi;
use rustix::fd::{FromRawFd, OwnedFd};

/// `KFD_INVALID_FD` of the kernel.
const NO_FILE: u32 = u32::MAX;
const NO_BUFFER: uapi::kfd_criu_bo_bucket = uapi::kfd_criu_bo_bucket {
    addr: 0,
    size: 0,
    offset: 0,
    restored_offset: 0,
    gpu_id: 0,
    alloc_flags: 0,
    dmabuf_fd: NO_FILE,
    pad: 0,
};

/// How much a process has: the room that its checkpoint needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointSizes {
    /// GPUs.
    pub devices: u32,
    /// Buffers.
    pub buffers: u32,
    /// Queues, events and ranges of shared memory.
    pub objects: u32,
    /// Bytes that only the kernel understands.
    pub private: u64,
    /// The process.
    pub pid: u32,
}

/// A process's GPUs, buffers and the rest, which only the kernel understands.
#[derive(Debug, Default)]
pub struct Checkpoint {
    /// Its GPUs, by the ids that it knows and by the true ones.
    pub devices: Vec<uapi::kfd_criu_device_bucket>,
    /// Its buffers. Their contents are read through `dmabuf_fd` of each that is not this process's
    /// memory.
    pub buffers: Vec<uapi::kfd_criu_bo_bucket>,
    /// Queues, events, ranges of shared memory.
    pub private: Vec<u8>,
    /// How many of those.
    pub objects: u32,
    /// What keeps the buffers' files open.
    files: Vec<OwnedFd>,
}

impl Kfd {
    /// Stops the process's queues and returns what there is to save. [`Kfd::unpause`] lets them go
    /// on.
    pub fn pause(&self) -> Result<CheckpointSizes> {
        let mut args = args(uapi::KFD_CRIU_OP_PROCESS_INFO);
        // SAFETY: this operation looks at no pointer.
        unsafe { call(self, || "a checkpoint".into(), &mut args)? };
        Ok(CheckpointSizes {
            devices: args.num_devices,
            buffers: args.num_bos,
            objects: args.num_objects,
            private: args.priv_data_size,
            pid: args.pid,
        })
    }

    /// Saves what there is, of the sizes that [`Kfd::pause`] returned.
    pub fn checkpoint(&self, sizes: CheckpointSizes) -> Result<Checkpoint> {
        let mut saved = Checkpoint {
            devices: vec![Default::default(); sizes.devices as usize],
            buffers: vec![NO_BUFFER; sizes.buffers as usize],
            private: vec![0; sizes.private as usize],
            objects: sizes.objects,
            files: Vec::new(),
        };
        let mut args = saved.args(uapi::KFD_CRIU_OP_CHECKPOINT);
        // SAFETY: the pointers are to as much as the args say, which lives until after the call.
        unsafe { call(self, || "a checkpoint".into(), &mut args)? };
        saved.take_files();
        Ok(saved)
    }

    /// Lets the queues of a process go on that [`Kfd::pause`] has stopped.
    pub fn unpause(&self) -> Result<()> {
        // SAFETY: this operation looks at no pointer.
        unsafe {
            call(
                self,
                || "a checkpoint".into(),
                &mut args(uapi::KFD_CRIU_OP_UNPAUSE),
            )
        }
    }

    /// Makes again what `saved` describes, in a process that has nothing yet: its devices name the
    /// GPUs and their open render nodes. The buffers' contents are the caller's to fill in, through
    /// new files.
    ///
    /// # Safety
    /// `saved` is what a kernel has told, but for `drm_fd` and `actual_gpu_id` of the devices, and
    /// its buffers of the process's memory lie where this process has memory for them.
    pub unsafe fn restore(&self, saved: &mut Checkpoint) -> Result<()> {
        saved.files.clear();
        saved
            .buffers
            .iter_mut()
            .for_each(|buffer| buffer.dmabuf_fd = NO_FILE);
        let mut args = saved.args(uapi::KFD_CRIU_OP_RESTORE);
        // SAFETY: the pointers are to as much as the args say, which lives until after the call.
        unsafe { call(self, || "a checkpoint".into(), &mut args)? };
        saved.take_files();
        Ok(())
    }

    /// Starts the queues of the restored process `pid`.
    pub fn resume(&self, pid: u32) -> Result<()> {
        let mut args = uapi::kfd_ioctl_criu_args {
            pid,
            ..args(uapi::KFD_CRIU_OP_RESUME)
        };
        // SAFETY: this operation looks at no pointer.
        unsafe { call(self, || format!("process {pid}"), &mut args) }
    }
}

impl Checkpoint {
    /// The arguments of CRIU_OP's operation `op` on this process, with pointers into this.
    pub fn args(&mut self, op: u32) -> uapi::kfd_ioctl_criu_args {
        uapi::kfd_ioctl_criu_args {
            devices: self.devices.as_mut_ptr() as u64,
            bos: self.buffers.as_mut_ptr() as u64,
            priv_data: self.private.as_mut_ptr() as u64,
            priv_data_size: self.private.len() as u64,
            num_devices: self.devices.len() as u32,
            num_bos: self.buffers.len() as u32,
            num_objects: self.objects,
            pid: 0,
            op,
        }
    }

    /// Owns the files that the kernel has opened for buffers, so that they are closed with this.
    fn take_files(&mut self) {
        let files = self.buffers.iter().map(|buffer| buffer.dmabuf_fd);
        let files = files.filter(|file| *file != NO_FILE);
        // SAFETY: the kernel has just made the descriptors for this call, and tells `NO_FILE` for
        // none.
        self.files = files
            .map(|file| unsafe { OwnedFd::from_raw_fd(file as i32) })
            .collect();
    }
}

fn args(op: u32) -> uapi::kfd_ioctl_criu_args {
    uapi::kfd_ioctl_criu_args {
        op,
        ..Default::default()
    }
}
