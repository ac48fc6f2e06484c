// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What the processors (CP and SDMA) need from the rest of the GPU, and nothing else.
//!
//! The model implements [`Bus`] once, over its memory hubs, interrupt ring and register file; the
//! tests implement it over a flat memory. Nobody here knows PCI, vfio-user or page tables.

use std::ops::Range;

pub use gcn::Fault;

pub use crate::gmc::{Access, Hub};
pub use crate::ih::Interrupt;

use crate::hostile::caches::{Caches, Place};
use crate::hostile::Hostile;
use crate::inject::rule::{FenceKind, Hang, QueueAt};

/// A hub and a VMID in it: one address space. VMID 0 is the kernel's (FB window and GART).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Space {
    /// Whose page tables.
    pub hub: Hub,
    /// Which of its 16.
    pub vmid: u8,
}

/// What MAP_PROCESS has of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Binding {
    /// Process address space id.
    pub pasid: u16,
    /// VM_CONTEXTn_PAGE_TABLE_BASE_ADDR, flags included.
    pub page_table_base: u64,
    /// SH_MEM_BASES: private in 15:0, shared in 31:16.
    pub sh_mem_bases: u32,
    /// SH_MEM_CONFIG.
    pub sh_mem_config: u32,
    /// Trap handler code, byte address.
    pub tba: u64,
    /// Trap handler memory, byte address.
    pub tma: u64,
    /// Global wave sync counters that it has.
    pub gws: u8,
    /// The cleaner shader runs before its waves do, if another process was there.
    pub cleans: bool,
    /// What its debugger asks for.
    pub debug: DebugWords,
}

/// What MAP_PROCESS has for debugging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DebugWords {
    /// SPI_GDBG_PER_VMID_CNTL.
    pub spi: u32,
    /// TCP_WATCH0_CNTL to TCP_WATCH3_CNTL, without a VMID.
    pub watches: [u32; 4],
    /// Memory operations are precise.
    pub single_memops: bool,
}

/// SH_MEM_CONFIG.RETRY_DISABLE
const RETRY_DISABLE: u32 = 1 << 12;

impl Binding {
    /// What waves of the process do when memory refuses (XNACK).
    pub const fn on_fault(&self) -> OnFault {
        if self.sh_mem_config & RETRY_DISABLE == 0 {
            OnFault::Repeats
        } else {
            OnFault::Ends
        }
    }
}

/// What an accessor can do when memory refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFault {
    /// It cannot go on.
    Ends,
    /// It can repeat the access until the page is there.
    Repeats,
}

/// What it has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// End.
    Final,
    /// Repeat the access after a while: the fault is reported, and the driver may map a page.
    Retry,
}

/// The compute units of an XCC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Shader engines.
    pub engines: u8,
    /// Compute units of each that work.
    pub units: [u8; 4],
    /// What they execute.
    pub target: gcn::Target,
}

/// The GPU around the processors.
///
/// Called from several threads at once. A naturally aligned access of 4 or 8 bytes must be a single
/// one to the memory behind it. No method may call back into [`crate::cp::Cp::doorbell`].
pub trait Bus: Send + Sync {
    /// Reads memory.
    fn read(&self, space: Space, address: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Reads instructions.
    fn fetch(&self, space: Space, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let refused = |fault| Fault {
            access: Access::Fetch,
            ..fault
        };
        self.read(space, address, bytes).map_err(refused)
    }

    /// Writes memory.
    fn write(&self, space: Space, address: u64, bytes: &[u8]) -> Result<(), Fault>;

    /// Clears memory; an implementation may do that faster than by writing zeros.
    fn zero(&self, space: Space, address: u64, length: u64) -> Result<(), Fault> {
        self.write(space, address, &vec![0; length as usize])
    }

    /// Replaces an aligned dword atomically; returns the old one. `update` can run more than once.
    fn update32(
        &self,
        space: Space,
        address: u64,
        update: &mut dyn FnMut(u32) -> u32,
    ) -> Result<u32, Fault>;

    /// Like [`Bus::update32`] for a quadword.
    fn update64(
        &self,
        space: Space,
        address: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault>;

    /// Whether memory at `address` does an atomic operation that PCIe has not.
    fn goes_beyond_pcie(&self, _space: Space, _address: u64) -> Result<bool, Fault> {
        Ok(true)
    }

    /// Reads a register as XCC `xcc` sees it: `offset` in dwords, an XCC's own registers at XCC 0's
    /// place.
    fn reg_read(&self, xcc: u8, offset: u32) -> u32;

    /// Writes such a register.
    fn reg_write(&self, xcc: u8, offset: u32, value: u32);

    /// The process that the interrupt handler knows a VMID of a hub by: who loads a queue through
    /// registers says it there.
    fn pasid(&self, _space: Space) -> u16 {
        0
    }

    /// The doorbells that go to a copy engine and not to the command processor: dwords from the
    /// beginning of a page of them. None: all go wherever a queue listens.
    fn sdma_doorbells(&self, _engine: u8) -> Option<Range<u32>> {
        None
    }

    /// A queue is being mapped that listens to the doorbell at `dword`; before its write pointer is
    /// read from memory.
    fn listen(&self, _dword: u32) {}

    /// A queue that listened to it is gone.
    fn ignore(&self, _dword: u32) {}

    /// Puts an entry into the interrupt ring.
    fn interrupt(&self, interrupt: Interrupt);

    /// Reports an access that memory refused: fault registers and the interrupt of the hub.
    /// `on_fault` says what the accessor can do about it, the answer what it has to do.
    fn fault(&self, space: Space, pasid: u16, fault: Fault, on_fault: OnFault) -> Verdict;

    /// Gives `vmid` of XCC `xcc`'s hub and of MMHUB to a process.
    fn bind(&self, xcc: u8, vmid: u8, binding: &Binding);

    /// Forgets the translations of a VMID (None: of all) in an XCC's hub, and if asked in MMHUB.
    fn invalidate_tlb(&self, xcc: u8, vmid: Option<u8>, all_hubs: bool);

    /// Hostile mode.
    fn hostile(&self) -> Option<&Hostile> {
        None
    }

    /// The caches before waves, in hostile mode. All other accesses of memory know of them.
    fn caches(&self) -> Option<&Caches> {
        None
    }

    /// Changes whenever a TLB is flushed.
    fn generation(&self) -> u64 {
        0
    }

    /// Where an address leads: for those caches.
    fn place(&self, space: Space, address: u64, access: Access) -> Result<Place, Fault>;

    /// The constant 100 MHz counter.
    fn realtime(&self) -> u64;

    /// Whether the fault injection hangs a queue at the packet that it is about to begin.
    fn hangs(&self, _queue: &QueueAt) -> Option<Hang> {
        None
    }

    /// Writes a fence, of which the fault injection may have its own idea.
    fn write_fence(
        &self,
        _of: FenceKind,
        space: Space,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        self.write(space, address, bytes)
    }

    /// Whether the fault injection swallows the completion signal that is to be counted down now.
    fn withholds_signal(&self) -> bool {
        false
    }

    /// What an XCC has to run waves on.
    fn cores(&self) -> Cores;
}

/// Typed access to one address space.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The GPU.
    pub bus: &'a dyn Bus,
    /// The address space.
    pub space: Space,
}

impl View<'_> {
    /// Reads a dword.
    pub fn read32(&self, address: u64) -> Result<u32, Fault> {
        let mut bytes = [0; 4];
        self.bus.read(self.space, address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Reads a quadword.
    pub fn read64(&self, address: u64) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.bus.read(self.space, address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes a dword.
    pub fn write32(&self, address: u64, value: u32) -> Result<(), Fault> {
        self.bus.write(self.space, address, &value.to_le_bytes())
    }

    /// Writes a quadword.
    pub fn write64(&self, address: u64, value: u64) -> Result<(), Fault> {
        self.bus.write(self.space, address, &value.to_le_bytes())
    }

    /// Reads `count` dwords.
    pub fn dwords(&self, address: u64, count: usize) -> Result<Vec<u32>, Fault> {
        let mut bytes = vec![0; count * 4];
        self.bus.read(self.space, address, &mut bytes)?;
        Ok(to_dwords(&bytes))
    }

    /// Writes dwords.
    pub fn write_dwords(&self, address: u64, dwords: &[u32]) -> Result<(), Fault> {
        let bytes: Vec<u8> = dwords
            .iter()
            .flat_map(|dword| dword.to_le_bytes())
            .collect();
        self.bus.write(self.space, address, &bytes)
    }
}

/// Little-endian bytes as dwords; a rest of less than four bytes is left out.
pub fn to_dwords(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect()
}

/// Two dwords as one address or value.
pub const fn wide(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// How a wave of [`gcn`] sees a [`View`].
impl gcn::Memory for View<'_> {
    fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.bus.fetch(self.space, address, bytes)
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.bus.read(self.space, address, bytes)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.bus.write(self.space, address, bytes)
    }

    fn update32(&mut self, address: u64, update: &mut dyn FnMut(u32) -> u32) -> Result<u32, Fault> {
        self.bus.update32(self.space, address, update)
    }

    fn update64(&mut self, address: u64, update: &mut dyn FnMut(u64) -> u64) -> Result<u64, Fault> {
        self.bus.update64(self.space, address, update)
    }

    fn goes_beyond_pcie(&mut self, address: u64) -> Result<bool, Fault> {
        self.bus.goes_beyond_pcie(self.space, address)
    }

    fn realtime(&mut self) -> u64 {
        self.bus.realtime()
    }
}
