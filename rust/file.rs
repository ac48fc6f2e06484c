// SPDX-License-Identifier: GPL-2.0-only

//! /dev/kfd, and a [`File`] for each time it is opened.
//!
//! A file is a reference to the opener's process, or to another context of it that was made for this file
//! (CREATE_PROCESS), and nothing more. It works only for the thread
//! group that opened it, and before execve: a child that inherits it cannot use it, nor can whoever gets it
//! passed. An open file pins the module.

use crate::{
    doorbell,
    gpu::{
        self,
        gate, //
    },
    ids::GpuId,
    ioctl,
    linux::{
        chrdev::{
            CharDevice,
            FileOperations,
            Registration, //
        },
        mmap::Vma,
        task::in_compat_syscall, //
    },
    mmap::{
        BadCookie,
        MmapTarget, //
    },
    process::{
        self,
        Process,
        ProcessRef, //
    },
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        SetOnce,
        UniqueArc, //
    },
};

/// Name of the device, of its class and of its major number. User space looks for it under
/// `/sys/class/kfd/kfd`.
const NAME: &CStr = c"kfd";

/// What a file does. Made before the module serves anybody.
static OPERATIONS: SetOnce<FileOperations<File>> = SetOnce::new();

/// Makes this file usable. Once, before [`publish`].
pub(crate) fn prepare(module: &'static ThisModule) {
    OPERATIONS.populate(FileOperations::new(module));
}

/// Makes /dev/kfd appear; dropping what it returns makes it vanish.
pub(crate) fn publish() -> Result<Registration> {
    Registration::new(NAME, OPERATIONS.as_ref().ok_or(EBUSY)?)
}

/// One open file.
pub(crate) struct File {
    /// The process that CREATE_PROCESS made for this file: from then on the file is that one's.
    context: SetOnce<ProcessRef>,
    opener: ProcessRef,
}

impl File {
    /// Whose the file is.
    pub(crate) fn process(&self) -> &ProcessRef {
        self.context.as_ref().unwrap_or(&self.opener)
    }

    /// CREATE_PROCESS. `EINVAL`: it was called on this file before.
    pub(crate) fn create_context(&self) -> Result {
        if self.context.as_ref().is_some() {
            return Err(EINVAL);
        }
        let context = process::open_context(&self.opener)?;
        if self.context.populate(context.clone()) {
            return Ok(());
        }
        // Another thread was faster.
        process::close_context(&context);
        Err(EINVAL)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(context) = self.context.as_ref() {
            process::close_context(context);
        }
    }
}

impl CharDevice for File {
    type Data = Arc<File>;

    fn open(minor: u32) -> Result<Arc<File>> {
        if minor != 0 {
            return Err(ENODEV);
        }
        if in_compat_syscall() {
            let pid = kernel::current!().pid();
            pr_warn!("process {pid} is a 32-bit one; these are not supported\n");
            return Err(EPERM);
        }
        if gate::is_closed() {
            return Err(EAGAIN);
        }
        // Before there is a process: that would stay, were there no memory for its file.
        let file = UniqueArc::new_uninit(GFP_KERNEL)?;
        let opener = process::open()?;
        if gate::is_closed_by_now() {
            return Err(EAGAIN);
        }
        let file = file.write(File {
            context: SetOnce::new(),
            opener,
        });
        Ok(file.into())
    }

    fn ioctl(file: ArcBorrow<'_, File>, command: u32, argument: usize) -> Result {
        ioctl::dispatch(&file, command, argument)
    }

    fn mmap(file: ArcBorrow<'_, File>, vma: &Vma) -> Result {
        let process = file.process();
        if !process.is_current() {
            return Err(EBADF);
        }
        match MmapTarget::from_offset(vma.offset()) {
            // Its memory is the user's own.
            Ok(MmapTarget::Events) => Err(EINVAL),
            Ok(MmapTarget::Doorbell(id)) => {
                check_exists(id)?;
                let device = process.device_of(id).ok_or(ENODEV)?;
                doorbell::mmap(process, device, vma)
            }
            Ok(MmapTarget::Mmio(id)) => map_registers(process, id, vma),
            Err(BadCookie::Unsupported) => Err(EINVAL),
            Err(BadCookie::NoGpu) => Err(ENODEV),
        }
    }
}

/// `ENODEV`: there is no such GPU, or not any more.
fn check_exists(id: GpuId) -> Result {
    gpu::exists(id).then_some(()).ok_or(ENODEV)
}

/// Maps the page of a GPU's registers that user space may write: the HDP (host data path) flush.
fn map_registers(process: &Process, id: GpuId, vma: &Vma) -> Result {
    check_exists(id)?;
    let device = process.device_of(id).ok_or(ENODEV)?;
    if vma.size() != PAGE_SIZE {
        return Err(EINVAL);
    }
    match device.node().facts().mmio_remap_address {
        0 => Err(ENODEV),
        address => vma.map_io(address),
    }
}
