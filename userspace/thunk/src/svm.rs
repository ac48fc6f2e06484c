// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Shared virtual memory (SVM): attributes of ranges of the process's ordinary memory.

use crate::{Error, Kfd, Result};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;

/// An attribute of a range: `KFD_IOCTL_SVM_ATTR_*` and its value.
pub use kfd_uapi::kfd_ioctl_svm_attribute as SvmAttribute;

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
    /// Sets attributes of the pages from `start` on. EPERM where the kernel or GPU has no SVM.
    pub fn set_svm(&self, start: u64, size: u64, attributes: &[SvmAttribute]) -> Result<()> {
        let mut attributes = attributes.to_vec();
        self.svm(
            uapi::KFD_IOCTL_SVM_OP_SET_ATTR,
            start,
            size,
            &mut attributes,
        )
    }

    /// Asks for attributes of the pages from `start` on: the values of those whose types are given.
    pub fn svm_attributes(
        &self,
        start: u64,
        size: u64,
        attributes: &mut [SvmAttribute],
    ) -> Result<()> {
        self.svm(uapi::KFD_IOCTL_SVM_OP_GET_ATTR, start, size, attributes)
    }

    fn svm(&self, op: u32, start: u64, size: u64, attributes: &mut [SvmAttribute]) -> Result<()> {
        let mut call = call(op, start, size, attributes);
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

fn call(op: u32, start: u64, size: u64, attributes: &[SvmAttribute]) -> Call {
    let mut words = vec![start, size, u64::from(op) | (attributes.len() as u64) << 32];
    words.extend(
        attributes
            .iter()
            .map(|attribute| u64::from(attribute.type_) | u64::from(attribute.value) << 32),
    );
    let bytes = (words.len() * 8) as u32;
    Call {
        request: uapi::IOC_SVM & !(0x3fff << 16) | bytes << 16,
        words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_struct_is_laid_out_as_in_the_header() {
        use std::mem::offset_of;
        let attribute = SvmAttribute { type_: 5, value: 3 };
        let call = call(1, 0x1000, 0x2000, &[attribute]);
        assert_eq!(call.words, [0x1000, 0x2000, 1 | 1 << 32, 5 | 3 << 32]);
        assert_eq!(call.request >> 16 & 0x3fff, 32);
        assert_eq!(offset_of!(uapi::kfd_ioctl_svm_args, op), 16);
        assert_eq!(offset_of!(uapi::kfd_ioctl_svm_args, nattr), 20);
        assert_eq!(size_of::<uapi::kfd_ioctl_svm_args>(), 24);
    }
}
