// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A GPU for tests of the processors: both kinds over 16 MiB of flat memory. One per test.
//!
//! VMID 0 sees the memory as it is; another VMID sees it from its page-table base on, so that
//! processes differ.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::cp::layout::pq_control;
use crate::cp::mqd::{dw, HEADER, HQD_FIRST, STATIC_THREAD_MGMT};
use crate::cp::reg::CpRegister;
use crate::cp::Cp;
use crate::gmc::pte::Mtype;
use crate::hostile::caches::{Caches, Place};
use crate::hostile::Hostile;
use crate::inject::rule::{FenceKind, Hang, QueueAt};
use crate::memory::{HeapMemory, Memory, Physical, PhysicalMemory};
use crate::preset::Generation;
use crate::processor::bus::{
    wide, Access, Binding, Bus, Cores, Fault, Hub, Interrupt, OnFault, Space, Verdict,
};
use crate::processor::lock;
use crate::processor::runner::{Mode, Runner};
use crate::processor::stats::Stats;
use crate::sdma::Sdma;

const BYTES: u64 = 16 << 20;

/// The memory and what the processors did to the GPU around it.
pub struct Flat {
    pub memory: Arc<HeapMemory>,
    pub registers: Mutex<HashMap<(u8, u32), u32>>,
    pub interrupts: Mutex<Vec<Interrupt>>,
    pub faults: Mutex<Vec<(Space, u16, Fault)>>,
    pub bases: Mutex<[u64; 16]>,
    pub flushes: Mutex<Vec<Option<u8>>>,
    /// The hubs' contexts have retry on.
    pub retries: Mutex<bool>,
    /// Addresses of user VMIDs that do not translate.
    pub missing: Mutex<std::ops::Range<u64>>,
    /// Of each VMID, as the interrupt handler has it.
    pub pasids: Mutex<[u16; 16]>,
    /// The fault injection: queues that hang, fences that stay unwritten.
    pub hang: Mutex<Option<Hang>>,
    pub withheld: Mutex<Option<FenceKind>>,
    pub hostile: OnceLock<Arc<Hostile>>,
    pub caches: OnceLock<Caches>,
    /// Of all memory.
    pub mtype: Mutex<Mtype>,
    /// What waves execute, if not gfx942.
    pub target: OnceLock<gcn::Target>,
    /// Addresses where the model has a fault of its own.
    pub breaks: Mutex<std::ops::Range<u64>>,
    /// How often it was read or written.
    pub accesses: AtomicU64,
    /// Doorbells of the copy engines.
    pub sdma_doorbells: Mutex<Vec<std::ops::Range<u32>>>,
    /// Queues that listen to a doorbell.
    pub listeners: Mutex<HashMap<u32, i32>>,
}

impl Flat {
    fn at(&self, space: Space, address: u64, bytes: usize, access: Access) -> Result<u64, Fault> {
        let breaks = lock(&self.breaks).clone();
        let breaks = address < breaks.end && address.saturating_add(bytes as u64) > breaks.start;
        assert!(!breaks, "a fault of the model, made up by this test");
        let base = lock(&self.bases)[usize::from(space.vmid)];
        let last = address.saturating_add((bytes as u64).saturating_sub(1));
        let missing = lock(&self.missing).clone();
        if space.vmid != 0 && address < missing.end && last >= missing.start {
            let address = address.max(missing.start);
            return Err(Fault { address, access });
        }
        let end = address
            .checked_add(base)
            .and_then(|at| at.checked_add(bytes as u64));
        match end {
            Some(end) if end <= BYTES => Ok(address + base),
            _ => Err(Fault { address, access }),
        }
    }
}

impl Flat {
    fn settle(&self, at: u64, length: usize) {
        if let Some(caches) = self.caches.get() {
            caches.settle(physical(at), length);
        }
    }
}

const fn physical(address: u64) -> Physical {
    let memory = Memory::Vram;
    Physical { memory, address }
}

impl Bus for Flat {
    fn read(&self, space: Space, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        let at = self.at(space, address, bytes.len(), Access::Read)?;
        let xcc = match space.hub {
            Hub::Gc(xcc) => Some(xcc),
            Hub::Mm => None,
        };
        let read = match self.caches.get() {
            Some(caches) => caches.read(xcc, physical(at), bytes),
            None => self.memory.read(at, bytes),
        };
        read.map_err(|_| Fault {
            address,
            access: Access::Read,
        })
    }

    fn write(&self, space: Space, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        let access = Access::Write;
        let at = self.at(space, address, bytes.len(), access)?;
        if let Some(caches) = self.caches.get() {
            caches.probe(physical(at), bytes.len() as u64);
        }
        let written = self.memory.write(at, bytes);
        written.map_err(|_| Fault { address, access })
    }

    fn update32(
        &self,
        space: Space,
        address: u64,
        update: &mut dyn FnMut(u32) -> u32,
    ) -> Result<u32, Fault> {
        let access = Access::Atomic;
        let at = self.at(space, address, 4, access)?;
        self.settle(at, 4);
        let updated = self.memory.update32(at, update);
        updated.map_err(|_| Fault { address, access })
    }

    fn update64(
        &self,
        space: Space,
        address: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let access = Access::Atomic;
        let at = self.at(space, address, 8, access)?;
        self.settle(at, 8);
        let updated = self.memory.update64(at, update);
        updated.map_err(|_| Fault { address, access })
    }

    fn reg_read(&self, xcc: u8, offset: u32) -> u32 {
        lock(&self.registers)
            .get(&(xcc, offset))
            .copied()
            .unwrap_or(0)
    }

    fn reg_write(&self, xcc: u8, offset: u32, value: u32) {
        lock(&self.registers).insert((xcc, offset), value);
    }

    fn pasid(&self, space: Space) -> u16 {
        lock(&self.pasids)[usize::from(space.vmid)]
    }

    fn sdma_doorbells(&self, engine: u8) -> Option<std::ops::Range<u32>> {
        lock(&self.sdma_doorbells).get(usize::from(engine)).cloned()
    }

    fn listen(&self, dword: u32) {
        *lock(&self.listeners).entry(dword).or_default() += 1;
    }

    fn ignore(&self, dword: u32) {
        *lock(&self.listeners).entry(dword).or_default() -= 1;
    }

    fn interrupt(&self, interrupt: Interrupt) {
        lock(&self.interrupts).push(interrupt);
    }

    fn fault(&self, space: Space, pasid: u16, fault: Fault, on_fault: OnFault) -> Verdict {
        lock(&self.faults).push((space, pasid, fault));
        let retries = *lock(&self.retries) && on_fault == OnFault::Repeats;
        if retries {
            Verdict::Retry
        } else {
            Verdict::Final
        }
    }

    fn bind(&self, _xcc: u8, vmid: u8, binding: &Binding) {
        lock(&self.bases)[usize::from(vmid)] = binding.page_table_base & !0xfff;
    }

    fn invalidate_tlb(&self, _xcc: u8, vmid: Option<u8>, _all_hubs: bool) {
        lock(&self.flushes).push(vmid);
    }

    fn hostile(&self) -> Option<&Hostile> {
        self.hostile.get().map(|it| &**it)
    }

    fn caches(&self) -> Option<&Caches> {
        self.caches.get()
    }

    fn place(&self, space: Space, address: u64, access: Access) -> Result<Place, Fault> {
        Ok(Place {
            at: physical(self.at(space, address, 1, access)?),
            length: 0x1000 - address % 0x1000,
            mtype: *lock(&self.mtype),
        })
    }

    fn realtime(&self) -> u64 {
        1234
    }

    fn hangs(&self, queue: &QueueAt) -> Option<Hang> {
        lock(&self.hang).filter(|hang| hang.matches(queue))
    }

    fn write_fence(
        &self,
        of: FenceKind,
        space: Space,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        if *lock(&self.withheld) == Some(of) {
            return Ok(());
        }
        self.write(space, address, bytes)
    }

    fn withholds_signal(&self) -> bool {
        *lock(&self.withheld) == Some(FenceKind::Signal)
    }

    fn cores(&self) -> Cores {
        Cores {
            engines: 4,
            units: [1; 4],
            target: self.target.get().copied().unwrap_or_default(),
        }
    }
}

/// The GPU.
pub struct Rig {
    pub flat: Arc<Flat>,
    pub cp: Cp,
    pub sdma: Arc<Sdma>,
    pub runner: Arc<Runner>,
    pub stats: Arc<Stats>,
}

/// A queue for [`Rig::write_mqd`].
#[derive(Clone, Copy)]
pub struct Setup {
    pub mqd: u64,
    pub ring: u64,
    /// log2 of the ring's dwords.
    pub order: u32,
    pub doorbell: u32,
    pub aql: bool,
    pub privileged: bool,
    pub rptr: u64,
    pub wptr: u64,
    /// Its read pointer is another's to report.
    pub silent: bool,
}

/// Where the KIQ of each XCC has its things: MQD, ring and doorbell.
const KIQ_MQD: u64 = 0x10_0000;
const KIQ_RING: u64 = 0x11_0000;
const KIQ_DOORBELL: u32 = 0;

impl Rig {
    pub fn new(mode: Mode, xccs: u8) -> Self {
        let flat = Arc::new(Flat {
            memory: Arc::new(HeapMemory::new(BYTES as usize)),
            registers: Mutex::default(),
            interrupts: Mutex::default(),
            faults: Mutex::default(),
            bases: Mutex::default(),
            flushes: Mutex::default(),
            retries: Mutex::default(),
            missing: Mutex::default(),
            pasids: Mutex::default(),
            hang: Mutex::default(),
            withheld: Mutex::default(),
            hostile: OnceLock::new(),
            caches: OnceLock::new(),
            mtype: Mutex::new(Mtype::Rw),
            target: OnceLock::new(),
            breaks: Mutex::default(),
            accesses: AtomicU64::new(0),
            sdma_doorbells: Mutex::default(),
            listeners: Mutex::default(),
        });
        let bus: Arc<dyn Bus> = flat.clone();
        let stats = Arc::new(Stats::default());
        let runner = Arc::new(Runner::new(mode, stats.clone()));
        let sdma = Arc::new(Sdma::new(
            bus.clone(),
            runner.clone(),
            stats.clone(),
            (Generation::Mi300, 2),
        ));
        let cp = Cp::new(bus, runner.clone(), sdma.clone(), stats.clone(), xccs);
        let rig = Rig {
            flat,
            cp,
            sdma,
            runner,
            stats,
        };
        (0..xccs).for_each(|xcc| rig.start_kiq(xcc));
        rig
    }

    pub fn sync() -> Self {
        Self::new(Mode::Sync, 1)
    }

    fn kernel() -> Space {
        Space {
            hub: Hub::Mm,
            vmid: 0,
        }
    }

    /// How many queues listen to a doorbell.
    pub fn listeners(&self, dword: u32) -> i32 {
        lock(&self.flat.listeners).get(&dword).copied().unwrap_or(0)
    }

    pub fn write(&self, address: u64, dwords: &[u32]) {
        let bytes: Vec<u8> = dwords
            .iter()
            .flat_map(|dword| dword.to_le_bytes())
            .collect();
        self.flat
            .write(Self::kernel(), address, &bytes)
            .expect("test memory");
    }

    pub fn write64(&self, address: u64, value: u64) {
        self.write(address, &[value as u32, (value >> 32) as u32]);
    }

    pub fn read(&self, address: u64) -> u32 {
        let mut bytes = [0; 4];
        self.flat
            .read(Self::kernel(), address, &mut bytes)
            .expect("test memory");
        u32::from_le_bytes(bytes)
    }

    pub fn read64(&self, address: u64) -> u64 {
        wide(self.read(address), self.read(address + 4))
    }

    pub fn interrupts(&self) -> Vec<Interrupt> {
        std::mem::take(&mut lock(&self.flat.interrupts))
    }

    pub fn faults(&self) -> Vec<(Space, u16, Fault)> {
        std::mem::take(&mut lock(&self.flat.faults))
    }

    /// Waits until `done` holds, for at most 20 seconds.
    pub fn wait(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let start = std::time::Instant::now();
        while !done(self) {
            self.runner.poll();
            assert!(start.elapsed().as_secs() < 20, "timeout: {what}");
            std::thread::yield_now();
        }
    }

    /// Selects a queue slot.
    pub fn select(&self, xcc: u8, me: u32, pipe: u32, queue: u32) {
        self.cp.reg_write(
            xcc,
            CpRegister::GRBM_GFX_CNTL,
            0,
            pipe | me << 2 | queue << 8,
        );
    }

    /// A queue slot's register, by MQD dword.
    pub fn hqd(&self, xcc: u8, dword: usize) -> u32 {
        self.cp
            .reg_read(xcc, CpRegister::CP_MQD_BASE_ADDR, dword - HQD_FIRST)
            .expect("CP register")
    }

    pub fn set_hqd(&self, xcc: u8, dword: usize, value: u32) {
        assert!(self
            .cp
            .reg_write(xcc, CpRegister::CP_MQD_BASE_ADDR, dword - HQD_FIRST, value));
    }

    /// Writes an MQD; the read pointer is reported at `mqd + 0x800 + 128`, the write pointer is at
    /// `mqd + 0x900`.
    pub fn write_mqd(&self, setup: Setup) {
        let Setup {
            mqd,
            ring,
            order,
            doorbell,
            aql,
            privileged,
            rptr,
            wptr,
            silent,
        } = setup;
        let mut dwords = vec![0; 256];
        for se in STATIC_THREAD_MGMT {
            dwords[se] = !0;
        }
        dwords[dw::HEADER] = HEADER;
        dwords[dw::COMPUTE_TG_CHUNK_SIZE] = aql.into();
        dwords[dw::CP_MQD_BASE_ADDR_LO] = mqd as u32;
        dwords[dw::CP_HQD_PQ_BASE_LO] = (ring >> 8) as u32;
        dwords[dw::CP_HQD_PQ_CONTROL] = (order - 1)
            | if privileged {
                pq_control::PRIV_STATE.mask()
            } else {
                0
            }
            | if silent {
                pq_control::NO_UPDATE_RPTR.mask()
            } else {
                0
            };
        dwords[dw::CP_HQD_PQ_DOORBELL_CONTROL] = doorbell << 2;
        dwords[dw::CP_HQD_AQL_CONTROL] = aql.into();
        dwords[dw::CP_HQD_PQ_RPTR_REPORT_ADDR_LO] = rptr as u32;
        dwords[dw::CP_HQD_PQ_WPTR_POLL_ADDR_LO] = wptr as u32;
        self.write(mqd, &dwords);
    }

    /// Brings up the KIQ as gfx_v9_4_3_xcc_kiq_init_register() does: through registers.
    fn start_kiq(&self, xcc: u8) {
        let mqd = KIQ_MQD + u64::from(xcc) * 0x1000;
        let setup = Setup {
            mqd,
            ring: KIQ_RING + u64::from(xcc) * 0x1000,
            order: 10,
            doorbell: KIQ_DOORBELL + u32::from(xcc) * 0x20,
            aql: false,
            privileged: true,
            rptr: mqd + 0x880,
            wptr: mqd + 0x900,
            silent: false,
        };
        self.write_mqd(setup);
        self.cp.reg_write(
            xcc,
            CpRegister::RLC_CP_SCHEDULERS,
            0,
            0x80 | 1 << 5 | 1 << 3,
        );
        self.select(xcc, 1, 1, 0);
        for dword in [128, 136, 139, 141, 143, 145] {
            let value = self.read(mqd + 4 * dword as u64);
            self.set_hqd(xcc, dword, value);
        }
        self.set_hqd(xcc, dw::CP_HQD_ACTIVE, 1);
        self.select(xcc, 0, 0, 0);
        for pipe in 0..4 {
            // TIME_STAMP_INT_ENABLE, OPCODE_ERROR_INT_ENABLE, PRIV_REG_INT_ENABLE
            self.cp.reg_write(
                xcc,
                CpRegister::CP_ME1_PIPE0_INT_CNTL,
                pipe,
                7 << 24 | 1 << 23,
            );
        }
    }

    /// Sends packets through an XCC's KIQ.
    pub fn kiq(&self, xcc: u8, packets: &[u32]) {
        let mqd = KIQ_MQD + u64::from(xcc) * 0x1000;
        let at = self.read64(mqd + 0x900);
        let ring = KIQ_RING + u64::from(xcc) * 0x1000;
        for (n, dword) in (at..).zip(packets) {
            self.write(ring + 4 * (n % 1024), &[*dword]);
        }
        let wptr = at + packets.len() as u64;
        self.write64(mqd + 0x900, wptr);
        let doorbell = KIQ_DOORBELL + u32::from(xcc) * 0x20;
        assert!(self.cp.doorbell(u64::from(doorbell) * 4, wptr, 8));
    }

    /// Maps a kernel ring (or the HIQ) to a slot through the KIQ.
    pub fn map_by_kiq(&self, xcc: u8, slot: (u32, u32), engine: u32, setup: Setup) {
        self.write_mqd(setup);
        let (pipe, queue) = slot;
        let control = queue << 13 | pipe << 16 | engine << 26 | 1 << 29;
        let (mqd, wptr) = (setup.mqd as u32, setup.wptr as u32);
        self.kiq(
            xcc,
            &[pkt(0xa2, 6), control, setup.doorbell << 2, mqd, 0, wptr, 0],
        );
    }

    /// Appends packets to a PM4 ring and rings its doorbell.
    pub fn submit(&self, setup: Setup, packets: &[u32]) {
        let at = self.read64(setup.wptr);
        let size = 1 << setup.order;
        for (n, dword) in (at..).zip(packets) {
            self.write(setup.ring + 4 * (n % size), &[*dword]);
        }
        let wptr = at + packets.len() as u64;
        self.write64(setup.wptr, wptr);
        self.cp.doorbell(u64::from(setup.doorbell) * 4, wptr, 8);
    }
}

/// A type 3 header for `body` dwords.
pub const fn pkt(op: u32, body: u32) -> u32 {
    3 << 30 | (body - 1) << 16 | op << 8
}

/// A kernel ring: PM4, privileged.
pub const fn kernel_ring(mqd: u64, doorbell: u32) -> Setup {
    Setup {
        mqd,
        ring: mqd + 0x1000,
        order: 8,
        doorbell,
        aql: false,
        privileged: true,
        rptr: mqd + 0x880,
        wptr: mqd + 0x900,
        silent: false,
    }
}
