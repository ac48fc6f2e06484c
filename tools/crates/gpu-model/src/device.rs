// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Where the command processors meet the rest of the model: their registers as blocks of the
//! register bus, memory and interrupts of the [`Chip`] as their [`Bus`], and their doorbells. One
//! [`Processors`] per GPU.
//!
//! The chip knows the blocks, and the processors know the chip. So blocks hold the processors
//! weakly: who owns [`Processors`] (the model) ends them, and their threads, before the chip.

mod tlb;

use std::cell::Cell;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use crate::bus::Block;
use crate::chip::Chip;
use crate::cp::reg::CpRegister;
use crate::cp::registers::STORED_POWER_ON;
use crate::cp::Cp;
use crate::engine::{DoorbellIndex, Engine, Progress};
use crate::gmc::pte::Mtype;
use crate::gmc::{FaultReason, Refusal, Translation};
use crate::hostile::caches::{Caches, Place};
use crate::hostile::Hostile;
use crate::inject::rule::{FenceKind, Hang, QueueAt};
use crate::limited::warn_limited;
use crate::memory::{BusError, Memory, Physical};
use crate::nbio;
use crate::preset::{ip, Preset};
use crate::processor::bus::{
    Access, Binding, Bus, Cores, Fault, Hub, Interrupt, OnFault, Space, Verdict,
};
use crate::processor::runner::{Mode, Runner};
use crate::processor::stats::Stats;
use crate::registers;
use crate::regs::{name_of, place, Key, Placed, RegisterFile};
use crate::sdma::{self, Sdma, ENGINE_DWORDS};
use tlb::{PAGE, VA_MASK};

registers! {
    /// All of an SDMA engine's register space; [`crate::sdma`] gives the places meaning.
    pub enum SdmaRegister from "sdma/sdma_4_4_2" {
        SDMA_REGISTER[0x600] = 0 @ 0x0000;
    }
}

/// The processors, once they are there.
type Socket = Arc<OnceLock<Weak<Processors>>>;

/// An XCC's registers on the bus.
struct CpBlock {
    socket: Socket,
    xcc: u8,
    bases: Vec<u32>,
    stored: RegisterFile<CpRegister>,
}

impl CpBlock {
    fn processors(&self) -> Option<Arc<Processors>> {
        self.socket.get()?.upgrade()
    }

    fn restore(&self) {
        self.stored.clear();
        for (register, value) in STORED_POWER_ON {
            self.stored.set(*register, *value);
        }
    }
}

impl Block for CpBlock {
    fn name(&self) -> String {
        format!("GC[{}]", self.xcc)
    }

    fn registers(&self) -> Vec<Placed> {
        place::<CpRegister>(&self.bases)
    }

    fn register_name(&self, key: Key) -> String {
        name_of::<CpRegister>(key)
    }

    fn read(&self, _chip: &Chip, key: Key) -> u32 {
        let Some((register, index)) = key.of::<CpRegister>() else {
            return 0;
        };
        self.processors()
            .and_then(|it| it.cp.reg_read(self.xcc, register, index))
            .unwrap_or_else(|| self.stored.at(register, index))
    }

    fn write(&self, _chip: &Chip, key: Key, value: u32) {
        let (Some(it), Some((register, index))) = (self.processors(), key.of::<CpRegister>())
        else {
            return;
        };
        if BY_PACKET.get() && register.stops_queues() {
            return refuse(&it, &self.register_name(key));
        }
        if !it.cp.reg_write(self.xcc, register, index, value) {
            self.stored.set_at(register, index, value);
        }
    }

    fn reset(&self, _chip: &Chip) {
        self.restore();
    }
}

/// An SDMA engine's registers on the bus.
struct SdmaBlock {
    socket: Socket,
    engine: u8,
    bases: Vec<u32>,
    /// Dwords of its registers.
    dwords: u32,
}

impl Block for SdmaBlock {
    fn name(&self) -> String {
        format!("SDMA{}", self.engine)
    }

    fn registers(&self) -> Vec<Placed> {
        let mut placed = place::<SdmaRegister>(&self.bases);
        placed.truncate(self.dwords as usize);
        placed
    }

    fn register_name(&self, key: Key) -> String {
        format!("+{:#x}", key.index)
    }

    fn read(&self, _chip: &Chip, key: Key) -> u32 {
        let it = self.socket.get().and_then(Weak::upgrade);
        it.and_then(|it| it.sdma.reg_read(self.engine, key.index.into()))
            .unwrap_or(0)
    }

    fn write(&self, _chip: &Chip, key: Key, value: u32) {
        if let Some(it) = self.socket.get().and_then(Weak::upgrade) {
            if BY_PACKET.get() {
                return refuse(&it, &self.register_name(key));
            }
            it.sdma.reg_write(self.engine, key.index.into(), value);
        }
    }

    fn reset(&self, _chip: &Chip) {}
}

fn refuse(it: &Processors, register: &str) {
    it.stats.count("packet that writes queue slot registers");
    warn_limited!(
        it.stats.limited,
        0,
        register,
        "register write by packet refused"
    );
}

/// The blocks, to be put on the bus before there is a chip.
pub struct Sockets {
    socket: Socket,
    /// For the bus.
    pub blocks: Vec<Arc<dyn Block>>,
}

/// Makes the blocks.
pub fn sockets(preset: &Preset) -> Sockets {
    let socket = Socket::default();
    let mut blocks: Vec<Arc<dyn Block>> = Vec::new();
    for xcc in 0..preset.xccs {
        let bases = preset.bases(ip::GC, xcc).to_vec();
        let block = CpBlock {
            socket: socket.clone(),
            xcc,
            bases,
            stored: RegisterFile::new(),
        };
        block.restore();
        blocks.push(Arc::new(block));
    }
    for engine in 0..preset.sdma_engines {
        let bases = preset.bases(ip::SDMA0, engine).to_vec();
        blocks.push(Arc::new(SdmaBlock {
            socket: socket.clone(),
            engine,
            bases,
            dwords: sdma::Places::of(preset.generation).dwords,
        }));
    }
    Sockets { socket, blocks }
}

/// Host threads that run queues.
const THREADS: usize = 2;

/// The command processor and the SDMA engines of a GPU.
pub struct Processors {
    cp: Cp,
    sdma: Arc<Sdma>,
    runner: Arc<Runner>,
    stats: Arc<Stats>,
}

impl Processors {
    /// Starts them on `chip`, whose bus has the blocks of `sockets`.
    pub fn start(chip: Arc<Chip>, sockets: &Sockets, synchronous: bool) -> Arc<Self> {
        let (xccs, engines) = (chip.preset.xccs, chip.preset.sdma_engines);
        let generation = chip.preset.generation;
        let mode = if synchronous {
            Mode::Sync
        } else {
            Mode::Threads(THREADS)
        };
        let busy_of = chip.clone();
        let stats = Arc::new(Stats::default());
        let bus: Arc<dyn Bus> = Arc::new(GpuBus {
            chip,
            stats: stats.clone(),
        });
        let runner = Arc::new(Runner::new(mode, stats.clone()));
        // A chip gets its engines once.
        let _ = busy_of.busy.set(runner.busy());
        let sdma = Arc::new(Sdma::new(
            bus.clone(),
            runner.clone(),
            stats.clone(),
            (generation, engines),
        ));
        let cp = Cp::new(bus, runner.clone(), sdma.clone(), stats.clone(), xccs);
        let it = Arc::new(Processors {
            cp,
            sdma,
            runner,
            stats,
        });
        // Only one chip is ever made with these sockets: the first one stays.
        let _ = sockets.socket.set(Arc::downgrade(&it));
        it
    }
}

impl Drop for Processors {
    fn drop(&mut self) {
        self.sdma.reset(None);
        self.runner.stop();
    }
}

impl Engine for Processors {
    fn name(&self) -> String {
        "CP and SDMA".into()
    }

    fn doorbell(&self, _chip: &Chip, index: DoorbellIndex, value: u64) -> bool {
        let offset = u64::from(index.0) * 4;
        self.sdma.doorbell(offset, value, 8) || self.cp.doorbell(offset, value, 8)
    }

    /// Queues run on threads of their own, or, in synchronous mode, here.
    fn step(&self, _chip: &Chip) -> Progress {
        self.runner.poll();
        if self.runner.is_synchronous() && !self.runner.is_idle() {
            Progress::Polling
        } else {
            Progress::Idle
        }
    }

    /// What software asked for and the processors do not (fully) do, one line each.
    fn burndown(&self) -> String {
        let all = self.stats.all();
        all.iter()
            .map(|(name, count)| format!("{count} {name}\n"))
            .collect()
    }

    fn work(&self) -> String {
        let done = self.stats.all_done();
        done.iter()
            .map(|(name, count)| format!("{count} {name}\n"))
            .collect()
    }

    fn reset(&self, _chip: &Chip) {
        self.cp.reset();
        self.sdma.reset(None);
    }

    fn reset_sdma(&self, engines: u32) {
        (0..32u8)
            .filter(|engine| engines >> engine & 1 != 0)
            .for_each(|engine| self.sdma.reset(Some(engine)));
    }
}

thread_local! {
    /// A packet is writing a register on this thread: its queue's locks are held.
    static BY_PACKET: Cell<bool> = const { Cell::new(false) };
}

/// The chip as the processors see it.
struct GpuBus {
    chip: Arc<Chip>,
    stats: Arc<Stats>,
}

impl GpuBus {
    /// Asks the page tables.
    fn walk(&self, space: Space, address: u64, access: Access) -> Result<Translation, Refusal> {
        let gmc = &self.chip.gmc;
        let found = gmc.translate(&self.chip, space.hub, space.vmid, address, access)?;
        if let Some(mistake) = found.lacks_snooping(self.chip.preset.generation, space.vmid) {
            self.note(mistake, space, address);
        }
        Ok(found)
    }

    /// Counts a mistake of software's, and tells of the first ones.
    fn note(&self, mistake: &'static str, space: Space, address: u64) {
        self.stats.count(mistake);
        let (limited, vmid) = (&self.stats.limited, space.vmid);
        warn_limited!(limited, vmid.into(), vmid, "{mistake}: {address:#x}");
    }

    /// Where `address` leads, with the bytes left in its page.
    fn page(&self, space: Space, address: u64, access: Access) -> Result<Translation, Refusal> {
        let mut found = tlb::lookup(&self.chip, space, address, || {
            let start = address & VA_MASK & !(PAGE - 1);
            self.walk(space, start, access)
                .map_err(|refusal| Refusal {
                    va: address,
                    ..refusal
                })
                .inspect_err(|refusal| tracing::debug!(%refusal, "no translation"))
        })?;
        if !found.permits(access) {
            // Remembered for another kind of access: the page tables may allow this one by now.
            let found = self.walk(space, address, access)?;
            let length = PAGE - address % PAGE;
            return Ok(Translation { length, ..found });
        }
        found.at.address += address % PAGE;
        found.length = PAGE - address % PAGE;
        Ok(found)
    }

    /// Like [`Self::page`] for a long access: asks the page tables, and gets as much as is
    /// contiguous.
    fn extent(
        &self,
        space: Space,
        address: u64,
        bytes: usize,
        access: Access,
    ) -> Result<Translation, Refusal> {
        if bytes as u64 <= PAGE {
            return self.page(space, address, access);
        }
        self.walk(space, address, access)
    }

    fn refusal(&self, space: Space, va: u64, access: Access, reason: FaultReason) -> Refusal {
        Refusal {
            hub: space.hub,
            vmid: space.vmid,
            va,
            access,
            reason,
        }
    }

    /// Reads memory, or what the hub's XCC has newer (hostile mode).
    fn read_at(&self, hub: Hub, at: Physical, out: &mut [u8]) -> Result<(), BusError> {
        let xcc = match hub {
            Hub::Gc(xcc) => Some(xcc),
            Hub::Mm => None,
        };
        match &self.chip.caches {
            Some(caches) => caches.read(xcc, at, out),
            None => self.chip.read(at, out),
        }
    }

    /// Memory is being written past the caches.
    fn probe(&self, at: Physical, length: u64) {
        if let Some(caches) = &self.chip.caches {
            caches.probe(at, length);
        }
    }

    /// Memory is about to do an atomic operation.
    fn settle(&self, at: Physical, length: usize) {
        if let Some(caches) = &self.chip.caches {
            caches.settle(at, length);
        }
    }

    /// Reads memory for a purpose.
    fn read_as(
        &self,
        access: Access,
        space: Space,
        address: u64,
        bytes: &mut [u8],
    ) -> Result<(), Fault> {
        let (mut address, mut left) = (address, bytes);
        while !left.is_empty() {
            let fault = Fault { address, access };
            let page = self
                .extent(space, address, left.len(), access)
                .map_err(|_| fault)?;
            let (now, rest) = left.split_at_mut(
                left.len()
                    .min(usize::try_from(page.length).unwrap_or(usize::MAX)),
            );
            self.read_at(space.hub, page.at, now).map_err(|_| fault)?;
            address = address.wrapping_add(now.len() as u64);
            left = rest;
        }
        Ok(())
    }
}

const fn write_fault(address: u64) -> Fault {
    Fault {
        address,
        access: Access::Write,
    }
}

impl Bus for GpuBus {
    fn read(&self, space: Space, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.read_as(Access::Read, space, address, bytes)
    }

    fn fetch(&self, space: Space, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.read_as(Access::Fetch, space, address, bytes)
    }

    fn write(&self, space: Space, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (mut address, mut left) = (address, bytes);
        while !left.is_empty() {
            let page = self
                .extent(space, address, left.len(), Access::Write)
                .map_err(|_| write_fault(address))?;
            let (now, rest) = left.split_at(
                left.len()
                    .min(usize::try_from(page.length).unwrap_or(usize::MAX)),
            );
            self.probe(page.at, now.len() as u64);
            self.chip
                .write(page.at, now)
                .map_err(|_| write_fault(address))?;
            address = address.wrapping_add(now.len() as u64);
            left = rest;
        }
        Ok(())
    }

    /// By whole pages of whatever size they are mapped with.
    fn zero(&self, space: Space, address: u64, length: u64) -> Result<(), Fault> {
        let (mut address, mut left) = (address, length);
        while left > 0 {
            let page = self
                .walk(space, address, Access::Write)
                .map_err(|_| write_fault(address))?;
            let now = left.min(page.length);
            self.probe(page.at, now);
            self.chip
                .memory(page.at.memory)
                .zero(page.at.address, now)
                .map_err(|_| write_fault(address))?;
            address = address.wrapping_add(now);
            left -= now;
        }
        Ok(())
    }

    fn update32(
        &self,
        space: Space,
        address: u64,
        update: &mut dyn FnMut(u32) -> u32,
    ) -> Result<u32, Fault> {
        let access = Access::Atomic;
        let fault = Fault { address, access };
        let page = self.page(space, address & !3, access).map_err(|_| fault)?;
        self.settle(page.at, 4);
        self.chip
            .memory(page.at.memory)
            .update32(page.at.address, update)
            .map_err(|_| fault)
    }

    fn update64(
        &self,
        space: Space,
        address: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let access = Access::Atomic;
        let fault = Fault { address, access };
        let page = self.page(space, address & !7, access).map_err(|_| fault)?;
        self.settle(page.at, 8);
        self.chip
            .memory(page.at.memory)
            .update64(page.at.address, update)
            .map_err(|_| fault)
    }

    /// Not where the L2 passes it on to PCIe: memory of the system of MTYPE UC.
    fn goes_beyond_pcie(&self, space: Space, address: u64) -> Result<bool, Fault> {
        let page = self.place(space, address, Access::Atomic)?;
        if page.at.memory != Memory::System || page.mtype != Mtype::Uc {
            return Ok(true);
        }
        self.note("atomic operation that PCIe has not", space, address);
        Ok(self.chip.hostile.is_none())
    }

    fn reg_read(&self, xcc: u8, offset: u32) -> u32 {
        self.chip.bus.read(&self.chip, self.register(xcc, offset))
    }

    fn reg_write(&self, xcc: u8, offset: u32, value: u32) {
        let before = BY_PACKET.replace(true);
        let register = self.register(xcc, offset);
        self.chip.bus.write(&self.chip, register, value);
        BY_PACKET.set(before);
    }

    fn pasid(&self, space: Space) -> u16 {
        self.chip.ih.pasid(space.hub, space.vmid)
    }

    fn sdma_doorbells(&self, engine: u8) -> Option<Range<u32>> {
        nbio::sdma_doorbells(&self.chip, engine)
    }

    fn listen(&self, dword: u32) {
        self.chip.doorbells.listen(dword);
    }

    fn ignore(&self, dword: u32) {
        self.chip.doorbells.ignore(dword);
    }

    fn interrupt(&self, interrupt: Interrupt) {
        self.chip.ih.push(&self.chip, interrupt);
    }

    fn fault(&self, space: Space, pasid: u16, fault: Fault, on_fault: OnFault) -> Verdict {
        let access = fault.access;
        // Ask again for the reason. What translates now, and leads to memory, came between the
        // access and here.
        let asked = if self.chip.inject.has_faulted(space.vmid, fault.address) {
            Err(self.refusal(space, fault.address, access, FaultReason::Invalid))
        } else {
            self.page(space, fault.address, access)
        };
        let came = asked.is_ok_and(|page| self.chip.read(page.at, &mut [0]).is_ok());
        let refusal = match asked {
            Err(refusal) => refusal,
            Ok(_) if came => self.refusal(space, fault.address, access, FaultReason::Invalid),
            Ok(_) => self.refusal(space, fault.address, access, FaultReason::Bus),
        };
        tracing::debug!(%refusal, came, pasid, "refused");
        let gmc = &self.chip.gmc;
        if on_fault == OnFault::Repeats && gmc.retries(&self.chip, &refusal) {
            if !came {
                gmc.report_retry(&self.chip, &refusal, Some(pasid));
            }
            return Verdict::Retry;
        }
        gmc.report(&self.chip, &refusal, Some(pasid));
        Verdict::Final
    }

    fn bind(&self, xcc: u8, vmid: u8, binding: &Binding) {
        self.chip
            .bind_vmid(xcc, vmid, binding.pasid, binding.page_table_base);
    }

    fn invalidate_tlb(&self, xcc: u8, vmid: Option<u8>, all_hubs: bool) {
        let mask = vmid.map_or(u16::MAX, |vmid| 1 << (vmid & 15));
        self.chip.invalidate_vmids(Hub::Gc(xcc), mask);
        if all_hubs {
            self.chip.invalidate_vmids(Hub::Mm, mask);
        }
    }

    fn caches(&self) -> Option<&Caches> {
        self.chip.caches.as_ref()
    }

    fn generation(&self) -> u64 {
        self.chip.gmc.generation()
    }

    fn place(&self, space: Space, address: u64, access: Access) -> Result<Place, Fault> {
        let page = self.page(space, address, access);
        let Translation {
            at, length, mtype, ..
        } = page.map_err(|_| Fault { address, access })?;
        Ok(Place { at, length, mtype })
    }

    fn hostile(&self) -> Option<&Hostile> {
        self.chip.hostile.as_deref()
    }

    fn realtime(&self) -> u64 {
        self.chip.clock.ticks()
    }

    fn hangs(&self, queue: &QueueAt) -> Option<Hang> {
        self.chip.inject.hangs(queue)
    }

    fn write_fence(
        &self,
        of: FenceKind,
        space: Space,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let at = (space.hub, space.vmid, address);
        match self.chip.inject.fence(&self.chip, of, at, bytes) {
            Some(bytes) => self.write(space, address, &bytes),
            None => Ok(()),
        }
    }

    fn withholds_signal(&self) -> bool {
        self.chip.inject.fence_fate(FenceKind::Signal).is_some()
    }

    fn cores(&self) -> Cores {
        Cores {
            engines: self.chip.preset.shader_engines as u8,
            units: self.chip.preset.active_cus,
            target: self.chip.preset.target,
        }
    }
}

impl GpuBus {
    /// The absolute place of a register that packets name as XCC 0 has it (amdgpu: XCC_REG_RANGE_0
    /// and _1).
    fn register(&self, xcc: u8, offset: u32) -> u64 {
        let local = matches!(offset, 0x2000..0x3400 | 0xa000..0x1_0000);
        let window = if local {
            self.chip.preset.base(ip::GC, xcc, 0) & !0xffff
        } else {
            0
        };
        u64::from(window | offset)
    }
}

const _: () = assert!(ENGINE_DWORDS == 0x600);

#[cfg(test)]
mod tests;
