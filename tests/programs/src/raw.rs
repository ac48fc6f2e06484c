// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Calls without the thunk's manners: any request number, any pointer.

use kfd::Memory;
use kfd_uapi as uapi;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;

/// What a call came to: 0, or the errno.
pub type Outcome = std::result::Result<(), Errno>;

struct Raw {
    request: u32,
    argument: *mut c_void,
}

// SAFETY: the caller of `ioctl` below answers for the pair.
unsafe impl Ioctl for Raw {
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.request as Opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    // SAFETY: it looks at no memory.
    unsafe fn output_from_ptr(value: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(value)
    }
}

/// Calls `request` with whatever `argument` is.
///
/// # Safety
/// Where `argument` is a good pointer, the kernel may write as many bytes there as `request` says.
pub unsafe fn ioctl_at(fd: impl AsFd, request: u32, argument: u64) -> Outcome {
    // SAFETY: passed on.
    unsafe { value_at(fd, request, argument) }.map(drop)
}

/// The same with what the call returns.
///
/// # Safety
/// As for [`ioctl_at`].
unsafe fn value_at(fd: impl AsFd, request: u32, argument: u64) -> Result<i32, Errno> {
    let raw = Raw {
        request,
        argument: argument as *mut c_void,
    };
    // SAFETY: passed on.
    unsafe { rustix::ioctl::ioctl(fd, raw) }
}

/// MAP_MEMORY_TO_GPU or UNMAP_MEMORY_FROM_GPU, whose arguments are alike, of one GPU.
pub fn change_mapping(request: u32, memory: &Memory, gpu_id: u32) -> Outcome {
    let mut args = uapi::kfd_ioctl_map_memory_to_gpu_args {
        handle: memory.handle(),
        device_ids_array_ptr: &raw const gpu_id as u64,
        n_devices: 1,
        n_success: 0,
    };
    ioctl(memory.device().kfd(), request, &mut args)
}

/// Calls `request` with `args`, whose size need not be the one in `request`.
pub fn ioctl<T>(fd: impl AsFd, request: u32, args: &mut T) -> Outcome {
    value(fd, request, args).map(drop)
}

/// The same with what the call returns.
pub fn value<T>(fd: impl AsFd, request: u32, args: &mut T) -> Result<i32, Errno> {
    // The kernel goes by the size in the request: give it room for any.
    let mut room = vec![0u64; (1 << 14) / 8 + size_of::<T>().div_ceil(8)];
    let place = room.as_mut_ptr().cast::<T>();
    // SAFETY: `place` has room for `T` and for every size that a request can say, aligned to 8.
    unsafe {
        place.copy_from_nonoverlapping(args, 1);
        let outcome = value_at(fd, request, place as u64);
        place.copy_to_nonoverlapping(args, 1);
        outcome
    }
}

/// ALLOC_MEMORY_OF_GPU of the process's own memory (USERPTR) at `address`, for as long as the file
/// is open.
pub fn alloc_user(kfd: impl AsFd, gpu_id: u32, address: u64, size: usize) -> Outcome {
    let mut args = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
        va_addr: address,
        size: size as u64,
        mmap_offset: address,
        gpu_id,
        flags: uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR | uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE,
        ..Default::default()
    };
    ioctl(kfd, uapi::IOC_ALLOC_MEMORY_OF_GPU, &mut args)
}

/// The request with another size.
pub fn resized(request: u32, size: u32) -> u32 {
    request & !(0x3fff << 16) | size << 16
}

/// The request with another number.
pub fn renumbered(request: u32, nr: u8) -> u32 {
    request & !0xff | u32::from(nr)
}

/// Whether the kernel runs 32-bit programs: without that, `int 0x80` is a fault.
pub fn has_compat() -> bool {
    std::path::Path::new("/proc/sys/abi/vsyscall32").exists()
}

/// Opens `path` as a 32-bit program would: through `int 0x80`, which the kernel treats as compat.
pub fn open_compat(path: &str) -> std::result::Result<OwnedFd, Errno> {
    use rustix::fd::FromRawFd;
    use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};
    const OPEN_32: i64 = 5;
    const O_RDWR: i64 = 2;
    // MAP_32BIT: the path below 4 GiB.
    let low = MapFlags::PRIVATE | MapFlags::from_bits_retain(0x40);
    // SAFETY: a new mapping, large
    // enough for the path and its
    // end.
    let page = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            4096,
            ProtFlags::READ | ProtFlags::WRITE,
            low,
        )?
    };
    // SAFETY: the page is new, zeroed and longer than any path used here.
    unsafe {
        page.cast::<u8>()
            .copy_from_nonoverlapping(path.as_ptr(), path.len().min(4095))
    };
    let result: i64;
    // SAFETY: the 32-bit system call open(path, flags); it clobbers r8 to r11 and rax only. rbx is
    // LLVM's, so it is saved by hand.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {path}", "int 0x80", "xchg rbx, {path}",
            path = inout(reg) page as i64 => _,
            inout("rax") OPEN_32 => result,
            in("rcx") O_RDWR,
            in("rdx") 0,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    let result = result as i32;
    match result {
        // SAFETY: a new descriptor of this process.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(result) }),
        _ => Err(Errno::from_raw_os_error(-result)),
    }
}
