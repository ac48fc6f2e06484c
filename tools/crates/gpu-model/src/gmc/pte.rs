// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Page-table entries and directory entries of the GFX9 format, one 64-bit word each.
//!
//! Bits as `linux:drivers/gpu/drm/amd/amdgpu/amdgpu_vm.h` names them (`AMDGPU_PTE_*`,
//! `AMDGPU_PDE_*`).

use crate::memory::{Memory, Physical};

/// How caches treat a page: MTYPE_* of `include/vega10_enum.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mtype {
    /// Not coherent.
    Nc,
    /// Local memory, cached for reads and writes.
    Rw,
    /// Coherent by probes.
    Cc,
    /// Not cached by the L2.
    Uc,
}

/// One entry of a page table or page directory, or a context's base register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    /// `AMDGPU_PTE_VALID`.
    pub const VALID: u64 = 1 << 0;
    /// `AMDGPU_PTE_SYSTEM`: a bus address, not local memory.
    pub const SYSTEM: u64 = 1 << 1;
    /// `AMDGPU_PTE_SNOOPED`: coherent with caches on the way there, the CPUs' for example.
    pub const SNOOPED: u64 = 1 << 2;
    /// `AMDGPU_PTE_EXECUTABLE`.
    pub const EXECUTABLE: u64 = 1 << 4;
    /// `AMDGPU_PTE_READABLE`.
    pub const READABLE: u64 = 1 << 5;
    /// `AMDGPU_PTE_WRITEABLE`.
    pub const WRITEABLE: u64 = 1 << 6;
    /// `AMDGPU_PTE_PRT`: partially resident texture.
    pub const PRT: u64 = 1 << 51;
    /// `AMDGPU_PDE_PTE`: a directory entry that maps its whole range.
    pub const LEAF: u64 = 1 << 54;
    /// `AMDGPU_PTE_TF`: translate further, through one more table.
    pub const TRANSLATE_FURTHER: u64 = 1 << 56;

    /// Bits 47:6, where tables begin.
    const TABLE_MASK: u64 = 0x0000_ffff_ffff_ffc0;

    fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }

    pub fn valid(self) -> bool {
        self.has(Self::VALID)
    }

    pub fn readable(self) -> bool {
        self.has(Self::READABLE)
    }

    pub fn writable(self) -> bool {
        self.has(Self::WRITEABLE)
    }

    pub fn executable(self) -> bool {
        self.has(Self::EXECUTABLE)
    }

    pub fn snooped(self) -> bool {
        self.has(Self::SNOOPED)
    }

    pub fn is_leaf(self) -> bool {
        self.has(Self::LEAF)
    }

    pub fn translate_further(self) -> bool {
        self.has(Self::TRANSLATE_FURTHER)
    }

    /// Whether it says that an access is not to be repeated until it succeeds: two combinations
    /// that mean nothing else (`AMDGPU_VM_NORETRY_FLAGS`, and `_TF` for tables below a "further").
    pub fn forbids_retry(self) -> bool {
        const BELOW_FURTHER: u64 = Entry::VALID | Entry::SYSTEM | Entry::PRT;
        const ELSEWHERE: u64 = Entry::EXECUTABLE | Entry::LEAF | Entry::TRANSLATE_FURTHER;
        let permissions = Self::READABLE | Self::WRITEABLE;
        self.0 & (BELOW_FURTHER | permissions) == BELOW_FURTHER
            || self.0 & (ELSEWHERE | Self::VALID) == ELSEWHERE
    }

    pub fn memory(self) -> Memory {
        if self.has(Self::SYSTEM) {
            Memory::System
        } else {
            Memory::Vram
        }
    }

    /// `AMDGPU_PTE_MTYPE_VG10`: bits 58:57.
    pub fn mtype(self) -> Mtype {
        match self.0 >> 57 & 3 {
            0 => Mtype::Nc,
            1 => Mtype::Rw,
            2 => Mtype::Cc,
            _ => Mtype::Uc,
        }
    }

    /// Where the range it maps begins: bits 47:12. A range of 2 MiB or more need not begin at a
    /// multiple of its size: amdgpu chooses the size by the virtual address alone
    /// (`amdgpu_vm_pte_fragment`) when pages of system memory happen to lie one after the other.
    pub fn address(self) -> u64 {
        self.0 & 0x0000_ffff_ffff_f000
    }

    /// The table a directory entry points to, if it is valid.
    pub fn table(self) -> Option<Physical> {
        self.valid().then(|| Physical {
            memory: self.memory(),
            address: self.0 & Self::TABLE_MASK,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_combinations_forbid_retry() {
        use Entry as E;
        let forbids = |raw| Entry(raw).forbids_retry();
        assert!(forbids(E::VALID | E::SYSTEM | E::PRT));
        assert!(forbids(E::EXECUTABLE | E::LEAF | E::TRANSLATE_FURTHER));
        assert!(!forbids(E::VALID | E::SYSTEM | E::PRT | E::READABLE));
        // What amdgpu writes into the entries of memory that is not mapped.
        assert!(!forbids(E::EXECUTABLE));
        assert!(!forbids(0));
    }

    #[test]
    fn a_leaf_of_2_mib_may_begin_at_any_page() {
        let entry = Entry(Entry::LEAF | Entry::SYSTEM | Entry::VALID | 0x7f00_1234_5000);
        assert_eq!(entry.address(), 0x7f00_1234_5000);
        assert!(entry.is_leaf() && entry.memory() == Memory::System);
    }
}
