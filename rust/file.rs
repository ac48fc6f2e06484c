// SPDX-License-Identifier: GPL-2.0-only

//! /dev/kfd, and an [`OpenFile`] for each time it is opened.
//!
//! A file is a reference to the opener's process, or to another context of it that was made for
//! this file (CREATE_PROCESS), and nothing more. It works only for the thread group that opened it,
//! and before execve: a child that inherits it cannot use it, nor can whoever gets it passed. An
//! open file pins the module.

use crate::{
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
        ratelimit::may_complain,
        task::in_compat_syscall, //
    },
    mmap::{
        BadCookie,
        MmapTarget, //
    },
    process::{
        self,
        doorbells,
        open_file::OpenFile,
        Process,
        ProcessDevice, //
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
static OPERATIONS: SetOnce<FileOperations<DevKfd>> = SetOnce::new();

/// Makes this file usable. Once, before [`publish`].
pub(crate) fn prepare(module: &'static ThisModule) {
    OPERATIONS.populate(FileOperations::new(module));
}

/// Makes /dev/kfd appear; dropping what it returns makes it vanish.
pub(crate) fn publish() -> Result<Registration> {
    Registration::new(NAME, OPERATIONS.as_ref().ok_or(EBUSY)?)
}

/// The device.
struct DevKfd;

impl CharDevice for DevKfd {
    type Data = Arc<OpenFile>;

    fn open(minor: u32) -> Result<Arc<OpenFile>> {
        if minor != 0 {
            return Err(ENODEV);
        }
        if in_compat_syscall() {
            if may_complain() {
                let pid = kernel::current!().pid();
                pr_warn!("process {pid} is a 32-bit one; these are not supported\n");
            }
            return Err(EPERM);
        }
        if gate::is_closed() {
            return Err(EAGAIN);
        }
        // Before there is a process: that would stay, were there no memory for its file.
        let file = UniqueArc::new_uninit(GFP_KERNEL)?;
        let opener = process::open()?;
        gate::settle();
        let mut devices = opener.devices().iter();
        if gate::is_closed() || devices.any(|device| device.node().gate().is_closed()) {
            return Err(EAGAIN);
        }
        Ok(file.write(OpenFile::new(opener)).into())
    }

    // There is one caller, and each call goes through it.
    #[inline(always)]
    fn ioctl(file: ArcBorrow<'_, OpenFile>, command: u32, argument: usize) -> Result<u32> {
        ioctl::dispatch(&file, command, argument)
    }

    fn mmap(file: ArcBorrow<'_, OpenFile>, vma: &Vma) -> Result {
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
                doorbells::mmap(device, vma)
            }
            Ok(MmapTarget::Mmio(id)) => map_registers(process, id, vma),
            Err(BadCookie::Unsupported) => Err(EINVAL),
            Err(BadCookie::NoGpu) => Err(ENODEV),
        }
    }

    fn touched(file: ArcBorrow<'_, OpenFile>, offset: u64, mark: u32) -> Result<u64> {
        let process = file.process();
        let target = MmapTarget::from_offset(offset).map_err(|_| EFAULT)?;
        let (MmapTarget::Doorbell(id) | MmapTarget::Mmio(id)) = target else {
            return Err(EFAULT);
        };
        let device = process.device_of(id).ok_or(ENODEV)?;
        let node = device.node();
        // A reset has taken it for good, and the queues.
        if mark != node.cleared() {
            return Err(ENODEV);
        }
        // Who has mapped it during a reset waits for the end of that, unless there is none.
        if node.gate().is_closed() {
            let wait = node.gate().opens_soon() && gpu::exists(id);
            return Err(if wait { EAGAIN } else { ENODEV });
        }
        match target {
            MmapTarget::Doorbell(_) => {
                doorbells::touched(process, device, offset - target.to_offset())
            }
            _ => registers(device),
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
    // Where it is found to be taken away, whatever the user has put into what is ignored.
    vma.set_offset(MmapTarget::Mmio(id).to_offset());
    let mark = device.node().cleared();
    vma.map_io(registers(device)?, mark)
}

/// The bus address of that page. `ENODEV`: the GPU has none.
fn registers(device: &ProcessDevice) -> Result<u64> {
    match device.node().facts().mmio_remap_address {
        0 => Err(ENODEV),
        address => Ok(address),
    }
}
