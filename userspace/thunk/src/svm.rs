// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Shared virtual memory (SVM): attributes of ranges of the process's ordinary memory, and
//! [`Managed`], memory that has them from the start.

use crate::range::{page, Range};
use crate::{Device, Error, Kfd, Plain, Result};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// An attribute of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SvmAttribute {
    /// `KFD_IOCTL_SVM_ATTR_*`.
    pub type_: u32,
    /// Its value.
    pub value: u32,
}

/// The most attributes of a call: a request has 14 bits for its size.
const MOST_ATTRIBUTES: usize = (REQUEST_SIZE as usize - 24) / size_of::<SvmAttribute>();
const REQUEST_SIZE: u32 = 0x3fff;

/// The struct with attributes behind it, whose number is in the request's size.
struct Call {
    request: u32,
    words: Vec<u64>,
}

// SAFETY: `words` has room for as many bytes as the request says: see `call`.
unsafe impl Ioctl for &mut Call {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.request as Opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }

    // SAFETY: it looks at neither.
    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

impl Kfd {
    /// Sets attributes of the pages of `size` bytes from address `start` on, both multiples of
    /// 4096. EPERM where the driver has no shared virtual memory, EFAULT where not all is mapped,
    /// EADDRINUSE where a buffer of the KFD's is. `Invalid`: more than 2044 attributes.
    ///
    /// # Safety
    /// `KFD_IOCTL_SVM_ATTR_ACCESS` and `_ACCESS_IN_PLACE` let all waves of this process read and
    /// write the pages, for as long as they are mapped. So from the call on, and until the pages
    /// are unmapped or have `KFD_IOCTL_SVM_ATTR_NO_ACCESS`, either nothing in the pages is what
    /// Rust believes to be its own (a reference points to it, or it is the stack, the heap's or a
    /// static), and all accesses of this process are volatile or atomic; or no kernel that runs
    /// touches what is. [`Managed`] sees to that by itself.
    ///
    /// ```compile_fail,E0133
    /// # fn of(kfd: &kfd::Kfd) -> kfd::Result<()> {
    /// let numbers = vec![0u32; 4096];
    /// kfd.set_svm(numbers.as_ptr() as u64 & !4095, 4096, &[])
    /// # }
    /// ```
    pub unsafe fn set_svm(&self, start: u64, size: u64, attributes: &[SvmAttribute]) -> Result<()> {
        let mut attributes = attributes.to_vec();
        self.svm(
            uapi::KFD_IOCTL_SVM_OP_SET_ATTR,
            start,
            size,
            &mut attributes,
        )
    }

    /// Asks for attributes of the pages from `start` on: the values of those whose types are given.
    /// `Invalid`: more than 2044.
    pub fn svm_attributes(
        &self,
        start: u64,
        size: u64,
        attributes: &mut [SvmAttribute],
    ) -> Result<()> {
        self.svm(uapi::KFD_IOCTL_SVM_OP_GET_ATTR, start, size, attributes)
    }

    fn svm(&self, op: u32, start: u64, size: u64, attributes: &mut [SvmAttribute]) -> Result<()> {
        let mut call = call(op, start, size, attributes)?;
        let object = || format!("memory {start:#x} to {:#x}", start.saturating_add(size));
        loop {
            // SAFETY: the request is SVM's, with the size of what it points to; addresses in it are
            // ranges whose attributes change, not pointers to follow.
            match unsafe { rustix::ioctl::ioctl(self.as_fd(), &mut call) } {
                Ok(()) => break,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(errno) => return Err(Error::of("SVM", object())(errno)),
            }
        }
        for (attribute, word) in attributes.iter_mut().zip(&call.words[3..]) {
            attribute.value = (word >> 32) as u32;
        }
        Ok(())
    }
}

bitflags::bitflags! {
    /// How GPUs see managed memory: `KFD_IOCTL_SVM_FLAG_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ManagedFlags: u32 {
        /// GPUs and the CPU see each other's writes at once.
        const COHERENT = uapi::KFD_IOCTL_SVM_FLAG_COHERENT;
        /// GPUs may not write.
        const READ_ONLY = uapi::KFD_IOCTL_SVM_FLAG_GPU_RO;
        /// Waves may execute it.
        const EXECUTABLE = uapi::KFD_IOCTL_SVM_FLAG_GPU_EXEC;
        /// GPUs read it more often than anybody writes.
        const READ_MOSTLY = uapi::KFD_IOCTL_SVM_FLAG_GPU_READ_MOSTLY;
        /// GPUs see it always, also where they repeat accesses that find no page (XNACK).
        const ALWAYS_MAPPED = uapi::KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED;
    }
}

/// Where the pages of managed memory are.
#[derive(Clone, Copy, Debug)]
pub enum Location<'a> {
    /// In the system's memory.
    System,
    /// In the memory of this GPU.
    Gpu(&'a Device),
}

impl Location<'_> {
    fn value(self) -> u32 {
        match self {
            // `KFD_IOCTL_SVM_LOCATION_SYSMEM`.
            Self::System => 0,
            Self::Gpu(device) => device.gpu_id(),
        }
    }
}

/// Ordinary memory of this process that GPUs see at the same address (`hipMallocManaged`). Its
/// pages may move into a GPU's memory and back; whoever touches one gets it.
///
/// It is the GPUs' until it is dropped: as with [`crate::Memory`], no kernel that uses it may run
/// then. Children do not have it.
#[derive(Debug)]
pub struct Managed {
    /// Those that see it; at least one.
    devices: Vec<Arc<Device>>,
    range: Range,
}

impl Managed {
    /// `size` bytes, rounded up to pages, all zeros, which these GPUs of one [`Kfd`] see.
    ///
    /// `Invalid`: no GPU, GPUs of several, or no bytes; or the driver has no shared virtual memory.
    pub fn new(devices: &[Arc<Device>], size: usize) -> Result<Self> {
        let first = devices
            .first()
            .ok_or_else(|| Error::Invalid("managed memory needs a GPU".into()))?;
        for device in devices {
            if !Arc::ptr_eq(device.kfd(), first.kfd()) {
                let reason = format!("{device} and {first} belong to two contexts");
                return Err(Error::Invalid(reason));
            }
            if !device.node().has_svm() {
                return Err(Error::Invalid(format!(
                    "{device} has no shared virtual memory with this driver (amdkfd.ko has it, but \
                     with its parameter svm=0)"
                )));
            }
        }
        let size = size
            .checked_next_multiple_of(page())
            .filter(|size| *size != 0)
            .ok_or_else(|| Error::Invalid("managed memory has at least one byte".into()))?;
        let mut range = Range::reserve(size)?;
        range.back_with_memory()?;
        let managed = Self {
            devices: devices.to_vec(),
            range,
        };
        let access = |device: &Arc<Device>| SvmAttribute {
            type_: uapi::KFD_IOCTL_SVM_ATTR_ACCESS,
            value: device.gpu_id(),
        };
        let attributes: Vec<_> = devices.iter().map(access).collect();
        managed.set(&attributes)?;
        Ok(managed)
    }

    /// Moves its pages there now. Those that cannot move stay, and are used where they are.
    pub fn prefetch(&self, to: Location<'_>) -> Result<()> {
        self.set(&[SvmAttribute {
            type_: uapi::KFD_IOCTL_SVM_ATTR_PREFETCH_LOC,
            value: self.checked(to)?,
        }])
    }

    /// Has its pages go there whenever a GPU misses one; `None`: wherever it is best.
    pub fn prefer(&self, location: Option<Location<'_>>) -> Result<()> {
        let value = match location {
            Some(location) => self.checked(location)?,
            // `KFD_IOCTL_SVM_LOCATION_UNDEFINED`.
            None => u32::MAX,
        };
        self.set(&[SvmAttribute {
            type_: uapi::KFD_IOCTL_SVM_ATTR_PREFERRED_LOC,
            value,
        }])
    }

    /// Sets flags, or takes them away.
    pub fn advise(&self, flags: ManagedFlags, set: bool) -> Result<()> {
        let type_ = match set {
            true => uapi::KFD_IOCTL_SVM_ATTR_SET_FLAGS,
            false => uapi::KFD_IOCTL_SVM_ATTR_CLR_FLAGS,
        };
        let value = flags.bits();
        self.set(&[SvmAttribute { type_, value }])
    }

    /// The value of a location, if that is one of this memory's GPUs or the system.
    fn checked(&self, location: Location<'_>) -> Result<u32> {
        match location {
            Location::Gpu(other) if self.devices.iter().all(|device| !is_same(device, other)) => {
                Err(Error::Invalid(format!("{other} does not see {self}")))
            }
            _ => Ok(location.value()),
        }
    }

    fn set(&self, attributes: &[SvmAttribute]) -> Result<()> {
        let (start, size) = (self.address(), self.size() as u64);
        // SAFETY: the pages are this value's own mapping: no reference points into them, and they
        // are read and written by relaxed atomic accesses of `Plain` values only.
        unsafe { self.devices[0].kfd().set_svm(start, size, attributes) }
    }

    /// The address, for CPU and GPUs alike.
    pub fn address(&self) -> u64 {
        self.range.address()
    }

    /// The size in bytes, whole pages.
    pub fn size(&self) -> usize {
        self.range.size()
    }

    /// The first byte, for atomics and for what this type has no method for.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.range.as_ptr()
    }

    /// Copies `values` to byte `offset`. Pages that are in a GPU's memory come back for it.
    ///
    /// # Panics
    /// When they don't fit, or `offset` is not aligned for `T`; and in a child of `fork`.
    pub fn write<T: Plain>(&self, offset: usize, values: &[T]) {
        self.range.write(offset, values);
    }

    /// Copies `count` values from byte `offset`. Pages that are in a GPU's memory come back for it.
    ///
    /// # Panics
    /// When there are not so many, or `offset` is not aligned for `T`; and in a child of `fork`.
    pub fn read<T: Plain>(&self, offset: usize, count: usize) -> Vec<T> {
        self.range.read(offset, count)
    }
}

fn is_same(one: &Device, other: &Device) -> bool {
    std::ptr::eq(one, other)
}

impl std::fmt::Display for Managed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (address, size) = (self.address(), self.size());
        write!(f, "managed memory of {size} bytes at {address:#x}")
    }
}

fn call(op: u32, start: u64, size: u64, attributes: &[SvmAttribute]) -> Result<Call> {
    if attributes.len() > MOST_ATTRIBUTES {
        return Err(Error::Invalid(format!(
            "{} attributes: a call has room for {MOST_ATTRIBUTES}",
            attributes.len()
        )));
    }
    let mut words = vec![start, size, u64::from(op) | (attributes.len() as u64) << 32];
    words.extend(
        attributes
            .iter()
            .map(|attribute| u64::from(attribute.type_) | u64::from(attribute.value) << 32),
    );
    let bytes = (words.len() * 8) as u32;
    Ok(Call {
        request: uapi::IOC_SVM & !(REQUEST_SIZE << 16) | bytes << 16,
        words,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_memory_needs_a_gpu() {
        let error = Managed::new(&[], 4096).expect_err("no GPU");
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }

    #[test]
    fn the_struct_is_laid_out_as_in_the_header() {
        use std::mem::offset_of;
        let attribute = SvmAttribute { type_: 5, value: 3 };
        let call = call(1, 0x1000, 0x2000, &[attribute]).expect("it is one");
        assert_eq!(call.words, [0x1000, 0x2000, 1 | 1 << 32, 5 | 3 << 32]);
        assert_eq!(call.request >> 16 & 0x3fff, 32);
        assert_eq!(offset_of!(uapi::kfd_ioctl_svm_args, op), 16);
        assert_eq!(offset_of!(uapi::kfd_ioctl_svm_args, nattr), 20);
        assert_eq!(size_of::<uapi::kfd_ioctl_svm_args>(), 24);
    }

    #[test]
    fn a_request_that_has_no_room_for_its_size_is_not_made() {
        let of = |count| call(1, 0x1000, 0x1000, &vec![SvmAttribute::default(); count]);
        let most = of(2044).expect("they fit");
        assert_eq!(most.request >> 16 & 0x3fff, 24 + 2044 * 8);
        assert_eq!(
            most.request & !(0x3fff << 16),
            uapi::IOC_SVM & !(0x3fff << 16)
        );
        assert!(matches!(of(2045), Err(Error::Invalid(_))));
    }
}
