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
        open_file::{
            OpenFile,
            Owner, //
        },
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
        let owner = file.owner();
        let process = file.process_of(owner);
        if !process.is_current() {
            return Err(EBADF);
        }
        match MmapTarget::from_offset(vma.offset()) {
            // Its memory is the user's own.
            Ok(MmapTarget::Events) => Err(EINVAL),
            Ok(MmapTarget::Doorbell(id)) => {
                check_exists(id)?;
                let device = process.device_of(id).ok_or(ENODEV)?;
                doorbells::mmap(device, vma, Mark::new(device, owner).raw())
            }
            Ok(MmapTarget::Mmio(id)) => map_registers((process, owner), id, vma),
            Err(BadCookie::Unsupported) => Err(EINVAL),
            Err(BadCookie::NoGpu) => Err(ENODEV),
        }
    }

    fn touched(file: ArcBorrow<'_, OpenFile>, offset: u64, mark: u64) -> Result<u64> {
        let mark = Mark(mark);
        let process = file.process_of(mark.owner());
        let target = MmapTarget::from_offset(offset).map_err(|_| EFAULT)?;
        let (MmapTarget::Doorbell(id) | MmapTarget::Mmio(id)) = target else {
            return Err(EFAULT);
        };
        let device = process.device_of(id).ok_or(ENODEV)?;
        let node = device.node();
        // A reset has taken it for good, and the queues.
        if mark.cleared() != node.cleared() {
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

/// What a mapping knows of its beginning: for which of the file's processes it was made, whatever
/// the file is by now, and how often the GPU's mappings had been cleared.
#[derive(Clone, Copy, Debug)]
struct Mark(u64);

impl Mark {
    /// It is the context's.
    const CONTEXT: u64 = 1 << 32;

    fn new(device: &ProcessDevice, owner: Owner) -> Self {
        Self::of(device.node().cleared(), owner)
    }

    fn of(cleared: u32, owner: Owner) -> Self {
        Self(match owner {
            Owner::Opener => cleared.into(),
            Owner::Context => Self::CONTEXT | u64::from(cleared),
        })
    }

    fn raw(self) -> u64 {
        self.0
    }

    fn cleared(self) -> u32 {
        // CAST: The low half.
        self.0 as u32
    }

    fn owner(self) -> Owner {
        match self.0 & Self::CONTEXT {
            0 => Owner::Opener,
            _ => Owner::Context,
        }
    }
}

/// `ENODEV`: there is no such GPU, or not any more.
fn check_exists(id: GpuId) -> Result {
    gpu::exists(id).then_some(()).ok_or(ENODEV)
}

/// Maps the page of a GPU's registers that user space may write: the HDP (host data path) flush.
fn map_registers((process, owner): (&Process, Owner), id: GpuId, vma: &Vma) -> Result {
    check_exists(id)?;
    let device = process.device_of(id).ok_or(ENODEV)?;
    if vma.size() != PAGE_SIZE {
        return Err(EINVAL);
    }
    // Where it is found to be taken away, whatever the user has put into what is ignored.
    vma.set_offset(MmapTarget::Mmio(id).to_offset());
    vma.map_io(registers(device)?, Mark::new(device, owner).raw())
}

/// The bus address of that page. `ENODEV`: the GPU has none.
fn registers(device: &ProcessDevice) -> Result<u64> {
    match device.node().facts().mmio_remap_address {
        0 => Err(ENODEV),
        address => Ok(address),
    }
}

#[kernel::macros::kunit_tests(amdkfd_file)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_knows_whose_it_is_and_when_it_was_made() {
        for cleared in [0, 1, u32::MAX] {
            for owner in [Owner::Opener, Owner::Context] {
                let mark = Mark(Mark::of(cleared, owner).raw());
                assert_eq!((mark.cleared(), mark.owner()), (cleared, owner));
            }
        }
    }
}
