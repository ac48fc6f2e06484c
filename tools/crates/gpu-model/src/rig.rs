// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A GPU for tests: 256 MiB of local memory and 64 MiB of system memory in the heap, interrupts
//! counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use crate::chip::{Chip, Host, InterruptLine};
use crate::hive::Hive;
use crate::memory::{HeapMemory, PhysicalMemory};
use crate::model::{Config, GpuModel};
use crate::preset::Preset;

/// Local memory of the rig.
pub const VRAM: u64 = 256 << 20;
/// Where VMID 0 sees it: as the driver reads from MC_VM_FB_LOCATION_BASE.
pub const FB: u64 = 0x80_0000_0000;

#[derive(Default)]
pub struct Counter(AtomicUsize);

impl InterruptLine for Counter {
    fn trigger(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub struct Rig {
    pub model: GpuModel,
    interrupts: Arc<Counter>,
    cpu: Option<Arc<dyn PhysicalMemory>>,
}

impl Rig {
    pub fn new() -> Self {
        Self::of(Preset::mi300x())
    }

    pub fn of(preset: Preset) -> Self {
        let vram = Arc::new(HeapMemory::new(VRAM as usize));
        Self::with(preset, vram, None, None)
    }

    /// In hostile mode. [`Rig::cpu`] is local memory as a CPU writes it.
    pub fn hostile(seed: u64) -> Self {
        let vram = Arc::new(HeapMemory::new(VRAM as usize));
        Self {
            cpu: Some(vram.clone()),
            ..Self::with(Preset::mi300x(), vram, None, Some(seed))
        }
    }

    /// A node of a hive.
    pub fn in_hive(hive: Hive) -> Self {
        Self::with(Preset::mi300x(), hive.own(), Some(hive), None)
    }

    fn with(
        preset: Preset,
        vram: Arc<dyn PhysicalMemory>,
        hive: Option<Hive>,
        hostile: Option<u64>,
    ) -> Self {
        let interrupts = Arc::new(Counter::default());
        let host = Host {
            vram,
            hive,
            system: Arc::new(HeapMemory::new(64 << 20)),
            interrupt: interrupts.clone(),
            doorbells: None,
        };
        let config = Config {
            preset,
            vram_size: VRAM,
            serial: 0,
            synchronous: true,
            hostile,
            loses_memory: false,
        };
        Self {
            model: GpuModel::new(config, host).unwrap(),
            interrupts,
            cpu: None,
        }
    }

    /// Local memory past the host data path.
    pub fn cpu(&self) -> &dyn PhysicalMemory {
        self.cpu.as_deref().unwrap_or(self.vram())
    }

    pub fn chip(&self) -> &Chip {
        self.model.chip()
    }

    pub fn vram(&self) -> &dyn PhysicalMemory {
        &*self.chip().vram
    }

    pub fn system(&self) -> &dyn PhysicalMemory {
        &*self.chip().system
    }

    /// MSIs so far.
    pub fn interrupts(&self) -> usize {
        self.interrupts.0.load(Ordering::Relaxed)
    }

    /// Reads a register by its dword address, as a CPU does through BAR5.
    pub fn read(&self, dword: u64) -> u32 {
        let mut bytes = [0; 4];
        self.model.mmio_read(dword * 4, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub fn write(&self, dword: u64, value: u32) {
        self.model.mmio_write(dword * 4, &value.to_le_bytes());
    }
}
