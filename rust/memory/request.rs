// SPDX-License-Identifier: GPL-2.0-only

//! What a user asks for with ALLOC_MEMORY_OF_GPU.
//!
//! Core-only. Flags that say how memory is cached or accessed are amdgpu's to check; here is what
//! decides where a buffer comes from.

/// `KFD_IOC_ALLOC_MEM_FLAGS_*` (linux/kfd_ioctl.h).
mod flag {
    pub(super) const VRAM: u32 = 1 << 0;
    pub(super) const GTT: u32 = 1 << 1;
    pub(super) const USERPTR: u32 = 1 << 2;
    pub(super) const DOORBELL: u32 = 1 << 3;
    pub(super) const MMIO_REMAP: u32 = 1 << 4;
    pub(super) const AQL_QUEUE_MEM: u32 = 1 << 27;
    pub(super) const PUBLIC: u32 = 1 << 29;
}

/// Bytes of a page.
const PAGE: u64 = 4096;

/// A buffer as a user wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferRequest {
    /// Where the GPU shall see it.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// `KFD_IOC_ALLOC_MEM_FLAGS_*`.
    pub(crate) flags: u32,
}

/// Where a buffer's memory comes from, as far as it is not amdgpu's to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// amdgpu finds it: VRAM, or system memory, the user's or new.
    Memory,
    /// The process's doorbells.
    Doorbells,
    /// The page of registers that a user may write (HDP flush).
    Registers,
}

impl BufferRequest {
    /// A dma-buf of somebody else's: it takes no memory of the process's.
    pub(crate) const fn imported(address: u64) -> Self {
        Self {
            address,
            size: 0,
            flags: 0,
        }
    }

    /// Whether it has one of these flags.
    const fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Whether it is of one kind: what shows the device is no memory, neither the GPU's nor the
    /// system's nor the user's. Of both amdgpu makes the memory, and treats it as the other: it
    /// unpins user memory that it has never pinned, and keeps VRAM in the system's.
    pub(crate) const fn is_of_one_kind(&self) -> bool {
        !self.has(flag::DOORBELL | flag::MMIO_REMAP)
            || !self.has(flag::VRAM | flag::GTT | flag::USERPTR)
    }

    /// Where it comes from. Doorbells go before registers, whatever else is asked for.
    pub(crate) const fn source(&self) -> Source {
        if self.has(flag::DOORBELL) {
            Source::Doorbells
        } else if self.has(flag::MMIO_REMAP) {
            Source::Registers
        } else {
            Source::Memory
        }
    }

    /// It is VRAM that the CPU must see.
    pub(crate) const fn is_public_vram(&self) -> bool {
        self.has(flag::VRAM) && self.has(flag::PUBLIC)
    }

    /// It is memory that others can be given: VRAM, or the system's.
    pub(crate) const fn is_exported(&self) -> bool {
        self.has(flag::VRAM | flag::GTT)
    }

    /// It is a ring of AQL packets that is mapped twice in a row.
    pub(crate) const fn is_doubled(&self) -> bool {
        self.has(flag::AQL_QUEUE_MEM)
    }

    /// It is the user's own memory.
    pub(crate) const fn is_user_memory(&self) -> bool {
        self.has(flag::USERPTR)
    }

    /// It shows the user's own pages: nothing was asked for that amdgpu takes before these.
    pub(crate) const fn shows_user_pages(&self) -> bool {
        self.has(flag::USERPTR) && !self.has(flag::VRAM | flag::GTT)
    }

    /// The kernel can map it: it is not the user's own memory.
    pub(crate) const fn kernel_may_map(&self) -> bool {
        !self.has(flag::USERPTR)
    }

    /// Is `registers` asked for too? Then mmap finds it on /dev/kfd.
    pub(crate) const fn shows_registers(&self) -> bool {
        self.has(flag::MMIO_REMAP)
    }

    /// Bytes of memory that it takes, whole pages. The ring of an AQL queue is mapped twice in a
    /// row, and there once.
    pub(crate) const fn bytes(&self) -> u64 {
        let size = if self.has(flag::AQL_QUEUE_MEM) {
            self.size >> 1
        } else {
            self.size
        };
        match size.checked_next_multiple_of(PAGE) {
            Some(size) => size,
            None => u64::MAX - PAGE + 1,
        }
    }

    /// Where GPUs see it: address and bytes. What is mapped twice in a row takes twice the whole
    /// pages of its memory, which may be a page more than was asked for.
    pub(crate) const fn place(&self) -> (u64, u64) {
        let bytes = match self.is_doubled() {
            true => self.bytes().saturating_mul(2),
            false => self.size,
        };
        (self.address, bytes)
    }

    /// Bytes of VRAM that it takes.
    pub(crate) const fn vram_bytes(&self) -> u64 {
        if self.has(flag::VRAM) {
            self.bytes()
        } else {
            0
        }
    }
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_memory_request))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    const GTT: u32 = flag::GTT;

    fn request(size: u64, flags: u32) -> BufferRequest {
        BufferRequest {
            address: 0x10000,
            size,
            flags,
        }
    }

    #[test]
    fn doorbells_go_before_registers() {
        assert_eq!(
            request(1, flag::DOORBELL | flag::MMIO_REMAP).source(),
            Source::Doorbells
        );
        assert_eq!(
            request(1, flag::MMIO_REMAP | flag::VRAM).source(),
            Source::Registers
        );
        assert_eq!(request(1, flag::USERPTR).source(), Source::Memory);
        assert_eq!(request(1, 0).source(), Source::Memory);
    }

    #[test]
    fn what_shows_the_device_is_no_memory() {
        for device in [flag::DOORBELL, flag::MMIO_REMAP] {
            assert!(request(1, device).is_of_one_kind());
            for memory in [flag::USERPTR, flag::VRAM, GTT] {
                assert!(request(1, memory).is_of_one_kind());
                assert!(!request(1, memory | device).is_of_one_kind());
            }
        }
        assert!(request(1, flag::DOORBELL | flag::MMIO_REMAP).is_of_one_kind());
        assert!(request(1, flag::USERPTR | GTT).is_of_one_kind());
        assert!(request(1, 0).is_of_one_kind());
    }

    #[test]
    fn only_vram_takes_vram() {
        assert_eq!(request(5000, GTT).vram_bytes(), 0);
        assert_eq!(request(5000, flag::VRAM).vram_bytes(), 8192);
        assert_eq!(
            request(16384, flag::VRAM | flag::AQL_QUEUE_MEM).vram_bytes(),
            8192
        );
        assert_eq!(BufferRequest::imported(0x1000).vram_bytes(), 0);
    }

    #[test]
    fn an_aql_ring_has_half_of_its_size() {
        assert_eq!(request(5000, GTT).bytes(), 8192);
        assert_eq!(request(32768, GTT | flag::AQL_QUEUE_MEM).bytes(), 16384);
        assert_eq!(request(24576, GTT | flag::AQL_QUEUE_MEM).bytes(), 12288);
        assert_eq!(request(1 << 12, GTT | flag::AQL_QUEUE_MEM).bytes(), 4096);
        assert_eq!(BufferRequest::imported(0x1000).bytes(), 0);
    }

    #[test]
    fn an_aql_ring_is_seen_as_long_as_twice_its_memory() {
        let bytes = |size, flags| request(size, flags).place().1;
        assert_eq!(request(1, GTT).place(), (0x10000, 1));
        assert_eq!(bytes(32768, GTT | flag::AQL_QUEUE_MEM), 32768);
        // Half of an odd number of pages ends within a page.
        assert_eq!(bytes(12288, GTT | flag::AQL_QUEUE_MEM), 16384);
        assert_eq!(bytes(4096, GTT | flag::AQL_QUEUE_MEM), 8192);
        assert_eq!(bytes(u64::MAX, GTT | flag::AQL_QUEUE_MEM), u64::MAX);
    }

    #[test]
    fn an_absurd_size_is_no_overflow() {
        assert_eq!(request(u64::MAX, flag::VRAM).vram_bytes(), u64::MAX - 4095);
    }

    #[test]
    fn the_cpu_must_see_public_vram_only() {
        assert!(request(1, flag::VRAM | flag::PUBLIC).is_public_vram());
        assert!(!request(1, GTT | flag::PUBLIC).is_public_vram());
        assert!(!request(1, flag::VRAM).is_public_vram());
    }

    #[test]
    fn the_users_own_memory_is_not_the_kernels_to_map() {
        assert!(!request(1, flag::USERPTR).kernel_may_map());
        assert!(request(1, GTT).kernel_may_map());
    }

    #[test]
    fn memory_of_the_gpus_goes_before_the_users_pages() {
        assert!(request(1, flag::USERPTR).shows_user_pages());
        assert!(!request(1, flag::USERPTR | GTT).shows_user_pages());
        assert!(!request(1, flag::USERPTR | flag::VRAM).shows_user_pages());
        assert!(!request(1, GTT).shows_user_pages());
    }
}
