// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the interpreter sees of the world: memory behind one address space (VMID) and a clock.
//!
//! One implementation of [`Memory`] stands for one VMID; the caller makes it and lends it to each
//! `run`. Addresses are GPU virtual addresses after the flat apertures were taken out: LDS never
//! comes here, scratch (private) accesses come as the swizzled address in the wave's scratch
//! backing.

/// What an access that faulted wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Instruction fetch.
    Fetch,
    /// Scalar or vector load.
    Read,
    /// Scalar or vector store.
    Write,
    /// Read-modify-write.
    Atomic,
}

/// An access that memory refused: no translation, or not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{access:?} fault at {address:#x}")]
pub struct Fault {
    /// First byte that could not be reached.
    pub address: u64,
    /// What the access wanted.
    pub access: Access,
}

/// How far an access must be seen, or a cache control reach: SC1 and SC0 of a vector memory
/// instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Scope {
    /// The wave itself.
    #[default]
    Wave,
    /// SC0: its work-group.
    Group,
    /// SC1: the agent (all XCCs of a partition).
    Device,
    /// Both: other agents and CPUs.
    System,
}

impl Scope {
    /// By the bits.
    pub const fn of(sc0: bool, sc1: bool) -> Self {
        match (sc1, sc0) {
            (false, false) => Scope::Wave,
            (false, true) => Scope::Group,
            (true, false) => Scope::Device,
            (true, true) => Scope::System,
        }
    }
}

/// What an instruction asks of the caches between a wave and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheControl {
    /// `buffer_inv`: what others wrote is seen.
    Invalidate(Scope),
    /// `buffer_wbl2`: others see what was written.
    WriteBack(Scope),
    /// `s_dcache_inv`.
    InvalidateScalar,
    /// `s_icache_inv`.
    InvalidateCode,
}

/// The GPU virtual address space that a wave runs in.
///
/// An access of 1, 2, 4 or 8 bytes at a multiple of its size must be one access to the memory
/// behind it: CPUs poll what waves write. Longer accesses are several lanes or dwords at once, in
/// no order. A refused access must not have changed memory below the faulting page's part of it.
///
/// Methods with a default are for memory behind caches that keep what they may: without them there
/// is one kind of access, seen by all at once.
pub trait Memory {
    /// Reads instructions. The interpreter never asks across a 64-byte line.
    fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Reads `bytes.len()` bytes (1 to 1024; any alignment; may cross pages).
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Writes `bytes` (1 to 1024 of them; any alignment; may cross pages).
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault>;

    /// Replaces the dword at `address` (a multiple of 4) by `update(old)`, atomically towards other
    /// agents; returns the old value. `update` can be called more than once.
    fn update32(&mut self, address: u64, update: &mut dyn FnMut(u32) -> u32) -> Result<u32, Fault>;

    /// Like [`Memory::update32`] for a quadword at a multiple of 8.
    fn update64(&mut self, address: u64, update: &mut dyn FnMut(u64) -> u64) -> Result<u64, Fault>;

    /// Whether memory does an atomic operation at `address` that PCIe has not (it has FetchAdd,
    /// Swap and CAS): asked before each that is not done in an L2. Where not, it changes nothing
    /// and returns 0.
    fn goes_beyond_pcie(&mut self, _address: u64) -> Result<bool, Fault> {
        Ok(true)
    }

    /// The constant 100 MHz counter (`s_memrealtime`).
    fn realtime(&mut self) -> u64;

    /// Reads for a scalar load; `glc`: past the scalar cache.
    fn read_scalar(&mut self, address: u64, bytes: &mut [u8], glc: bool) -> Result<(), Fault> {
        let _ = glc;
        self.read(address, bytes)
    }

    /// Writes for a scalar store.
    fn write_scalar(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.write(address, bytes)
    }

    /// The scope of reads and writes from now on. [`Scope::Wave`] at first, and between
    /// instructions.
    fn set_scope(&mut self, _scope: Scope) {}

    /// Controls caches.
    fn control(&mut self, _control: CacheControl) {}
}
