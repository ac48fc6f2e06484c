// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The chip: what all blocks of one GPU share and reach each other through.
//!
//! One [`Chip`] per GPU, owned by [`crate::model::GpuModel`] behind an `Arc`, and handed to every
//! block and engine call as `&Chip`. All of it is usable from the MMIO thread and the engine thread
//! at once: registers are atomics, the interrupt ring has its own small lock, and no call here
//! holds a lock while it calls a block.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::bus::RegisterBus;
use crate::doorbells::Doorbells;
use crate::engine::Wake;
use crate::gmc::{Gmc, Hub, Vm};
use crate::hive::Hive;
use crate::hostile::caches::Caches;
use crate::hostile::hdp::Hdp;
use crate::hostile::Hostile;
use crate::ih::Ih;
use crate::inject::Inject;
use crate::memory::{BusError, Memory, Physical, PhysicalMemory};
use crate::preset::Preset;

/// Raises the one message-signalled interrupt of the device.
pub trait InterruptLine: Send + Sync {
    fn trigger(&self);
}

/// What the host of a model gives it.
pub struct Host {
    /// Local memory, of the configured size.
    pub vram: Arc<dyn PhysicalMemory>,
    /// The guest's memory.
    pub system: Arc<dyn PhysicalMemory>,
    pub interrupt: Arc<dyn InterruptLine>,
    /// The GPUs that xGMI connects it with; `vram` is its own among their memories.
    pub hive: Option<Hive>,
    /// Memory behind the doorbell BAR, if the guest writes user queues' doorbells there instead of
    /// asking the model.
    pub doorbells: Option<Arc<dyn PhysicalMemory>>,
}

/// How time passes for the GPU.
pub enum Clock {
    /// The host's monotonic clock.
    Host(Instant),
    /// A counter that advances by a fixed step at each look: runs are reproducible.
    Counted(AtomicU64),
}

impl Clock {
    /// Ticks per second of the reference clock (`xclk`).
    pub const FREQUENCY: u64 = 100_000_000;

    pub fn host() -> Self {
        Self::Host(Instant::now())
    }

    pub fn counted() -> Self {
        Self::Counted(AtomicU64::new(0))
    }

    /// Ticks of the reference clock since the model began.
    pub fn ticks(&self) -> u64 {
        match self {
            Self::Host(start) => (start.elapsed().as_nanos() / 10) as u64,
            Self::Counted(count) => count.fetch_add(100, Ordering::Relaxed),
        }
    }
}

/// Shared state of one GPU.
pub struct Chip {
    pub preset: Preset,
    pub clock: Clock,
    /// Local memory; addresses are offsets from 0.
    pub vram: Arc<dyn PhysicalMemory>,
    /// Its place among other GPUs.
    pub hive: Option<Hive>,
    /// Bytes of local memory.
    pub vram_size: u64,
    /// The guest's memory over the bus.
    pub system: Arc<dyn PhysicalMemory>,
    pub interrupt: Arc<dyn InterruptLine>,
    /// Address translation of all hubs.
    pub gmc: Arc<Gmc>,
    /// The interrupt rings.
    pub ih: Arc<Ih>,
    /// All registers by address.
    pub bus: RegisterBus,
    /// Doorbells in memory, and who listens.
    pub doorbells: Doorbells,
    /// Rouses the engine thread.
    pub wake: Wake,
    /// Nanoseconds that queues have been run, once there are engines.
    pub busy: OnceLock<Arc<AtomicU64>>,
    /// Into how many compute partitions the XCCs are split.
    pub partitions: AtomicU8,
    /// What is to go wrong.
    pub inject: Inject,
    /// Hostile mode.
    pub hostile: Option<Arc<Hostile>>,
    /// Local memory behind the host data path, in hostile mode.
    pub hdp: Option<Arc<Hdp>>,
    /// The XCCs' caches, in hostile mode.
    pub caches: Option<Caches>,
    /// A block asked for a reset of the whole chip; done after the access that asked.
    reset_wanted: AtomicBool,
    /// Copy engines whose reset was asked for, by bit; done after that access, too.
    sdma_resets: AtomicU32,
}

impl Chip {
    pub fn new(
        preset: Preset,
        vram_size: u64,
        host: Host,
        (clock, hostile): (Clock, Option<Arc<Hostile>>),
        shared: (Arc<Gmc>, Arc<Ih>),
        bus: RegisterBus,
    ) -> Self {
        let Host {
            mut vram,
            system,
            interrupt,
            hive,
            doorbells,
        } = host;
        let (gmc, ih) = shared;
        // The memories of a hive are reached past what one GPU's CPU wrote.
        let behind = hostile.clone().filter(|_| hive.is_none());
        let hdp = behind.map(|hostile| Arc::new(Hdp::new(vram.clone(), hostile)));
        if let Some(hdp) = &hdp {
            vram = hdp.clone();
        }
        let caches = hdp.is_some().then_some(hostile.clone()).flatten();
        let caches =
            caches.map(|hostile| Caches::new(hostile, vram.clone(), system.clone(), preset.xccs));
        let (wake, reset_wanted) = (Wake::default(), AtomicBool::new(false));
        Self {
            preset,
            clock,
            vram,
            hive,
            vram_size,
            system,
            interrupt,
            gmc,
            ih,
            bus,
            doorbells: Doorbells::new(doorbells),
            wake,
            busy: OnceLock::new(),
            partitions: AtomicU8::new(1),
            inject: Inject::default(),
            hostile,
            hdp,
            caches,
            reset_wanted,
            sdma_resets: AtomicU32::new(0),
        }
    }

    /// Wants the whole chip reset (a mode 1 reset) once the present access is over.
    pub fn request_reset(&self) {
        self.reset_wanted.store(true, Ordering::Release);
    }

    /// Whether a reset was asked for since the last call.
    pub fn take_reset_request(&self) -> bool {
        self.reset_wanted.swap(false, Ordering::AcqRel)
    }

    /// Wants these copy engines reset once the present access is over.
    pub fn request_sdma_reset(&self, engines: u32) {
        self.sdma_resets.fetch_or(engines, Ordering::AcqRel);
    }

    /// The copy engines whose reset was asked for since the last call.
    pub fn take_sdma_resets(&self) -> u32 {
        self.sdma_resets.swap(0, Ordering::AcqRel)
    }

    /// One of the two.
    pub fn memory(&self, which: Memory) -> &dyn PhysicalMemory {
        match which {
            Memory::Vram => match &self.hive {
                Some(hive) => hive,
                None => &*self.vram,
            },
            Memory::System => &*self.system,
        }
    }

    pub fn read(&self, at: Physical, out: &mut [u8]) -> Result<(), BusError> {
        self.memory(at.memory).read(at.address, out)
    }

    pub fn write(&self, at: Physical, data: &[u8]) -> Result<(), BusError> {
        self.memory(at.memory).write(at.address, data)
    }

    /// What CPUs have written through BAR0 is there for the GPU.
    pub fn flush_hdp(&self) {
        if let Some(hdp) = &self.hdp {
            hdp.flush();
        }
    }

    /// Drops the translations of the VMIDs of `mask` in one hub. On gfx942 amdgpu makes each such
    /// request a heavy-weight one, too (`flush_tlb_needs_extra_type_2`), which flushes caches.
    pub fn invalidate_vmids(&self, hub: Hub, mask: u16) {
        self.gmc.invalidate_vmids(hub, mask);
        if let (Some(caches), Hub::Gc(xcc)) = (&self.caches, hub) {
            caches.flush(xcc);
        }
    }

    /// A view of one VMID's address space through one hub. Make one per engine step or wave slice:
    /// it caches translations until the page tables are invalidated.
    pub fn vm(&self, hub: Hub, vmid: u8) -> Vm<'_> {
        Vm::new(self, hub, vmid)
    }

    /// What an XCC's CP firmware does for a process it gives a VMID: page-table base in its hub and
    /// in the multimedia hub, and the PASID in the interrupt handler's tables. `page_table_base` is
    /// the packet's 64-bit value with its flag bits.
    pub fn bind_vmid(&self, xcc: u8, vmid: u8, pasid: u16, page_table_base: u64) {
        // Firmware gives a VMID to another process with an empty TLB.
        for hub in [Hub::Gc(xcc), Hub::Mm] {
            let before = (self.ih.pasid(hub, vmid), self.gmc.page_table(hub, vmid));
            if before != (pasid, page_table_base) {
                self.invalidate_vmids(hub, 1 << (vmid & 15));
            }
        }
        tracing::debug!(target: "gmc", "XCC {xcc}: VMID {vmid} is pasid {pasid}, root \
        {page_table_base:#x}");
        self.gmc.set_page_table(Hub::Gc(xcc), vmid, page_table_base);
        self.gmc.set_page_table(Hub::Mm, vmid, page_table_base);
        self.ih.set_pasid(Hub::Gc(xcc), vmid, pasid);
        self.ih.set_pasid(Hub::Mm, vmid, pasid);
    }
}
