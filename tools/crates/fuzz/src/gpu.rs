// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A GPU without a guest, brought so far that queues can run on it. One per input, so that an input
//! always does the same.
//!
//! Local memory is 256 MiB; VMID 0 sees it through the frame-buffer window, VMID 8 from address 0
//! on.

use std::sync::Arc;

use gpu_model::chip::{Host, InterruptLine};
use gpu_model::cp::layout::pq_control::PRIV_STATE;
use gpu_model::cp::mqd::dw;
use gpu_model::gmc::pte::Entry;
use gpu_model::memory::HeapMemory;
use gpu_model::model::{Config, GpuModel};
use gpu_model::preset::Preset;

/// Bytes of local memory.
pub const VRAM: u64 = 256 << 20;
/// Where VMID 0 sees it.
pub const FB: u64 = 0x80_0000_0000;
/// RCC_CONFIG_MEMSIZE.
const MEMSIZE: u64 = 0xde3;

struct Nowhere;

impl InterruptLine for Nowhere {
    fn trigger(&self) {}
}

pub struct Gpu {
    pub model: GpuModel,
}

/// A compute queue.
#[derive(Clone, Copy)]
pub struct Queue {
    pub vmid: u8,
    /// Where its things are in local memory: MQD, ring at 64 KiB, pointers at 128 KiB.
    pub at: u64,
    pub doorbell: u32,
    pub aql: bool,
    pub kiq: bool,
}

impl Queue {
    pub const RING: u64 = 0x1_0000;
    pub const POINTERS: u64 = 0x2_0000;
    /// log2 of the ring's dwords.
    pub const ORDER: u32 = 12;
}

impl Gpu {
    pub fn new() -> Self {
        let host = Host {
            vram: Arc::new(HeapMemory::new(VRAM as usize)),
            system: Arc::new(HeapMemory::new(64 << 20)),
            interrupt: Arc::new(Nowhere),
            hive: None,
            doorbells: None,
        };
        let config = Config {
            preset: Preset::mi300x(),
            vram_size: VRAM,
            serial: 0,
            synchronous: true,
            hostile: None,
            loses_memory: false,
        };
        let model = GpuModel::new(config, host).expect("a model of this size can be made");
        let gpu = Self { model };
        gpu.interrupt_ring();
        gpu.process();
        gpu
    }

    pub fn read(&self, dword: u64) -> u32 {
        let mut bytes = [0; 4];
        self.model.mmio_read(dword * 4, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub fn write(&self, dword: u64, value: u32) {
        self.model.mmio_write(dword * 4, &value.to_le_bytes());
    }

    pub fn put(&self, at: u64, dwords: &[u32]) {
        let bytes: Vec<u8> = dwords.iter().flat_map(|it| it.to_le_bytes()).collect();
        self.model
            .chip()
            .vram
            .write(at, &bytes)
            .expect("inside local memory");
    }

    pub fn put64(&self, at: u64, value: u64) {
        self.put(at, &[value as u32, (value >> 32) as u32]);
    }

    /// IH_RB_BASE, IH_RB_CNTL: 64 KiB of system memory, never read.
    fn interrupt_ring(&self) {
        self.write(0x1121, 0x10_0000 >> 8);
        self.write(0x1120, 1 | 14 << 1 | 1 << 17);
    }

    /// VMID 8 of both hubs: one page of 1 GiB.
    fn process(&self) {
        const ROOT: u64 = 0xf00_0000;
        self.put64(ROOT, (ROOT + 0x1000) | Entry::VALID);
        let all = Entry::VALID | Entry::READABLE | Entry::WRITEABLE | Entry::EXECUTABLE;
        self.put64(ROOT + 0x1000, Entry::LEAF | Entry::SNOOPED | all);
        // VM_CONTEXT8_CNTL: enabled, four levels; _PAGE_TABLE_END_ADDR. GC, MMHUB.
        for base in [0x2000, 0x1a340] {
            self.write(base + 0x868, 1 | 2 << 1 | 9 << 3);
            self.write(base + 0x91b, u32::MAX);
            self.write(base + 0x91c, 0xf);
        }
        self.model.chip().bind_vmid(0, 8, 33, ROOT | Entry::VALID);
    }

    /// Puts a queue on micro engine 1, pipe 0, as the driver does through registers.
    pub fn start(&self, queue: Queue) {
        let Queue {
            vmid,
            at,
            doorbell,
            aql,
            kiq,
        } = queue;
        let kernel = |offset: u64| FB + at + offset;
        let own = |offset| {
            if vmid == 0 {
                kernel(offset)
            } else {
                at + offset
            }
        };
        let (ring, pointers) = (own(Queue::RING), own(Queue::POINTERS));
        let mut mqd = [0u32; 256];
        let mut pair = |low: usize, value: u64| {
            mqd[low] = value as u32;
            mqd[low + 1] = (value >> 32) as u32;
        };
        pair(dw::CP_MQD_BASE_ADDR_LO, kernel(0));
        pair(dw::CP_HQD_PQ_BASE_LO, ring >> 8);
        pair(dw::CP_HQD_PQ_RPTR_REPORT_ADDR_LO, pointers + 128);
        pair(dw::CP_HQD_PQ_WPTR_POLL_ADDR_LO, pointers + 56);
        mqd[dw::CP_HQD_VMID] = vmid.into();
        mqd[dw::CP_HQD_PQ_CONTROL] =
            (Queue::ORDER - 1) | if vmid == 0 { PRIV_STATE.mask() } else { 0 };
        mqd[dw::CP_HQD_PQ_DOORBELL_CONTROL] = doorbell << 2 | 1 << 30;
        mqd[dw::CP_HQD_AQL_CONTROL] = aql.into();
        self.put(at, &mqd);
        // GRBM_GFX_CNTL: MEID 1; RLC_CP_SCHEDULERS.
        let slot = doorbell & 7;
        self.write(0x2022, 1 << 2 | slot << 8);
        if kiq {
            self.write(0xecaa, 0x80 | 1 << 5 | slot);
        }
        for (dword, value) in mqd.iter().enumerate().take(188).skip(128) {
            if dword != dw::CP_HQD_ACTIVE && *value != 0 {
                self.write(0x3245 + dword as u64 - 128, *value);
            }
        }
        self.write(0x3245 + dw::CP_HQD_ACTIVE as u64 - 128, 1);
        self.write(0x2022, 0);
    }

    pub fn ring(&self, doorbell: u32, value: u64) {
        self.model
            .doorbell_write(u64::from(doorbell) * 4, &value.to_le_bytes());
    }

    /// It still answers, can tell what it met, and is as new after a reset.
    pub fn is_well(&self) {
        assert_eq!(self.read(MEMSIZE), (VRAM >> 20) as u32);
        assert!(self.model.report().len() < 64 << 20);
        self.model.reset();
        assert_eq!(self.read(MEMSIZE), (VRAM >> 20) as u32);
    }
}

impl Default for Gpu {
    fn default() -> Self {
        Self::new()
    }
}
