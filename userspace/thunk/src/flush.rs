// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What CPUs have written to GPUs' memory, and how it gets there: through the host data path (HDP),
//! which has a register to empty it.

use crate::ioctl::call;
use crate::range::{page, Range};
use crate::{Device, Errno, Kfd, Result};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Of a context: its GPUs, how often their memory was written, and how often by the last flush of
/// all of them.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    devices: Mutex<Vec<Weak<Device>>>,
    noted: AtomicU64,
    flushed: AtomicU64,
}

impl Writes {
    /// One more GPU.
    pub(crate) fn add(&self, device: &Arc<Device>) {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|device| device.strong_count() > 0);
        devices.push(Arc::downgrade(device));
    }

    fn devices(&self) -> Vec<Arc<Device>> {
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.iter().filter_map(Weak::upgrade).collect()
    }

    fn flush(&self) -> Result<()> {
        let noted = self.noted.load(Ordering::Acquire);
        if self.flushed.load(Ordering::Acquire) < noted {
            let devices = self.devices();
            devices.iter().try_for_each(|device| device.flush_hdp())?;
            // Others wait with theirs until it is done.
            self.flushed.fetch_max(noted, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// The register of a GPU that empties its HDP.
#[derive(Debug, Default)]
pub(crate) struct Register(OnceLock<Option<RegisterPage>>);

/// A page of the GPU's registers that user space may write: `KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL` is
/// the first of them.
#[derive(Debug)]
struct RegisterPage {
    kfd: Arc<Kfd>,
    range: Range,
    handle: u64,
}

impl RegisterPage {
    /// None where user space can't have it.
    fn new(device: &Device) -> Result<Option<Self>> {
        let mut range = Range::reserve(page())?;
        let registers = || allocate(device, &range, uapi::KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP);
        let (handle, offset) = match registers() {
            Ok(found) => found,
            // From a driver that has no such page, and from one that is short of memory: then it
            // has none for a buffer either.
            Err(error) if error.errno() == Some(Errno::ENOMEM) => {
                let (buffer, _) = allocate(device, &range, uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT)?;
                free(device.kfd(), buffer);
                match registers() {
                    Ok(found) => found,
                    Err(_) => return Ok(None),
                }
            }
            Err(_) => return Ok(None),
        };
        range
            .back_with_file(device.kfd().as_fd(), offset)
            .inspect_err(|_| free(device.kfd(), handle))?;
        Ok(Some(Self {
            kfd: device.kfd().clone(),
            range,
            handle,
        }))
    }
}

impl Drop for RegisterPage {
    fn drop(&mut self) {
        free(&self.kfd, self.handle);
    }
}

impl Device {
    /// Sees to it that waves see what this process has written to the memory of any GPU of this
    /// one's context by [`crate::Memory::write`] until now. Costs two loads if there is nothing
    /// new. Errors as [`Device::flush_hdp`]: what was written may be anywhere.
    ///
    /// Of another process's GPU, whose memory came by a dma-buf, it knows nothing.
    pub fn flush_writes(&self) -> Result<()> {
        self.kfd().context().writes.flush()
    }

    /// Empties the GPU's host data path (HDP), in which writes of CPUs to its memory may stay for a
    /// while. Where user space can't reach the register that does so, there is none to empty (the
    /// CPU is the GPU's own), or the driver does it with each submission.
    ///
    /// ENOMEM: neither the process nor the kernel has room for the register's page now.
    pub fn flush_hdp(&self) -> Result<()> {
        let found = &self.register().0;
        let page = match found.get() {
            Some(page) => page,
            None => {
                let page = RegisterPage::new(self)?;
                found.get_or_init(|| page)
            }
        };
        if let Some(page) = page {
            std::sync::atomic::fence(Ordering::SeqCst);
            page.range.write(0, &[1u32]);
            // Its answer comes when the write has arrived.
            page.range.read::<u32>(0, 1);
        }
        Ok(())
    }

    /// Somebody has written to the GPU's memory.
    pub(crate) fn note_write(&self) {
        let writes = &self.kfd().context().writes;
        writes.noted.fetch_add(1, Ordering::Release);
    }
}

/// A page of that kind, which the GPU does not see: its handle, and where it is in the file.
fn allocate(device: &Device, range: &Range, kind: u32) -> Result<(u64, u64)> {
    let mut args = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
        va_addr: range.address(),
        size: range.size() as u64,
        gpu_id: device.gpu_id(),
        flags: kind | uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE,
        ..Default::default()
    };
    let object = || format!("the flush registers of {device}");
    // SAFETY: the address is a reservation, which lasts until after FREE.
    unsafe { call(device.kfd().as_ref(), object, &mut args)? };
    Ok((args.handle, args.mmap_offset))
}

fn free(kfd: &Kfd, handle: u64) {
    let mut args = uapi::kfd_ioctl_free_memory_of_gpu_args { handle };
    // SAFETY: the struct holds no pointer. A failure leaves it to the exit of the process.
    let _ = unsafe { call(kfd, String::new, &mut args) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two GPUs of one context, each of a file of its own: a buffer of the one may be used by the
    /// other.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_write_is_flushed_whichever_file_it_came_through() {
        let [one, two] = Device::two_without_a_driver();
        assert!(!Arc::ptr_eq(one.kfd(), two.kfd()));
        let writes = &one.kfd().context().writes;
        one.note_write();
        assert!(two.register().0.get().is_none() && one.register().0.get().is_none());
        two.flush_writes().expect("there is no register");
        assert!(one.register().0.get().is_some(), "it is not asked");
        assert_eq!(writes.flushed.load(Ordering::Relaxed), 1);
    }
}
