// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Interrupt handler (OSSSYS): puts 32-byte entries into a ring in the guest's memory and raises
//! the MSI.
//!
//! One per GPU, shared through [`Chip`]. Ring 0 takes everything; ring 1 exists as registers: with
//! the retry CAM on, as amdgpu has it on this chip, retry faults come through ring 0 too.

pub mod layout;
mod retry;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::bus::Block;
use crate::chip::Chip;
use crate::engine::DoorbellIndex;
use crate::gmc::{Access, Hub};
use crate::hostile::Hostile;
use crate::memory::{Memory, Physical};
use crate::preset::{ip, Generation, Preset};
use crate::registers;
use crate::regs::{name_of, place, Key, Placed, RegisterFile};
pub use layout::client;
use layout::{doorbell_rptr, entry, rb_cntl, rb_wptr, retry_int_cam_cntl};
pub use retry::Claim;
use retry::RetryCam;

registers! {
    /// The rings' registers and the VMID → PASID tables.
    pub enum IhRegister from "oss/osssys_4_4_2" {
        /// PASID of each graphics VMID, which entries carry.
        IH_VMID_0_LUT[16] = 0 @ 0x0000;
        /// PASID of each multimedia VMID.
        IH_VMID_0_LUT_MM[16] = 0 @ 0x0010;
        /// `RB_ENABLE` 0, `RB_SIZE` 5:1 (log2 dwords), `WPTR_WRITEBACK_ENABLE` 8, `ENABLE_INTR` 17,
        /// `MC_SPACE` 30:28, `WPTR_OVERFLOW_CLEAR` 31.
        IH_RB_CNTL = 0 @ 0x0080;
        /// Ring address >> 8.
        IH_RB_BASE = 0 @ 0x0081;
        IH_RB_BASE_HI = 0 @ 0x0082;
        /// Byte offset of the driver.
        IH_RB_RPTR = 0 @ 0x0083;
        /// Byte offset of the hardware; bit 0: overflow.
        IH_RB_WPTR = 0 @ 0x0084;
        IH_RB_WPTR_ADDR_HI = 0 @ 0x0085;
        IH_RB_WPTR_ADDR_LO = 0 @ 0x0086;
        /// `OFFSET` 25:0, `ENABLE` 28: the doorbell that sets RPTR.
        IH_DOORBELL_RPTR = 0 @ 0x0087;
        IH_DOORBELL_RETRY_CAM = 0 @ 0x0088;
        IH_RB_CNTL_RING1 = 0 @ 0x008c;
        IH_RB_BASE_RING1 = 0 @ 0x008d;
        IH_RB_BASE_HI_RING1 = 0 @ 0x008e;
        IH_RB_RPTR_RING1 = 0 @ 0x008f;
        IH_RB_WPTR_RING1 = 0 @ 0x0090;
        IH_DOORBELL_RPTR_RING1 = 0 @ 0x0093;
        /// `INDEX` 9:0: an entry of the retry CAM is free again.
        IH_RETRY_CAM_ACK = 0 @ 0x00a4;
        IH_CNTL = 0 @ 0x00c0;
        IH_STORM_CLIENT_LIST_CNTL = 0 @ 0x00da;
        IH_CLK_CTRL = 0 @ 0x00db;
        IH_MEM_POWER_CTRL = 0 @ 0x00e9;
        /// `CAM_SIZE` 4:0, `ENABLE` 16.
        IH_RETRY_INT_CAM_CNTL = 0 @ 0x00ea;
        /// Whose tables IH_VMID_0_LUT and _MM are: see [`Node`].
        IH_VMID_LUT_INDEX = 0 @ 0x00ec;
        /// `MC_SPACE_GPA_ENABLE` 4: ring addresses are bus addresses.
        IH_CHICKEN = 0 @ 0x018d;
        IH_INT_DROP_CNTL = 0 @ 0x018f;
    }
}

use IhRegister::*;

/// A die by its number on the interrupt fabric, which is its place in IH_VMID_LUT_INDEX too: every
/// fourth is an I/O die (AID), and its two XCCs follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(pub u8);

impl Node {
    /// The graphics hub's (`amdgpu_irq.h`, `XCDn_NODEID`) or the multimedia hub's. The one
    /// multimedia hub of the model is the first die's.
    pub const fn of(hub: Hub) -> Self {
        match hub {
            Hub::Gc(xcc) => Self(4 * (xcc / 2) + 1 + xcc % 2),
            Hub::Mm => Self(0),
        }
    }
}

/// The tables of all dies: 16 graphics VMIDs each, then 16 multimedia ones.
struct PasidTables(Vec<AtomicU32>);

impl PasidTables {
    const VMIDS: usize = 16;
    const NODES: usize = 16;

    fn new() -> Self {
        let entries = 2 * Self::VMIDS * Self::NODES;
        Self((0..entries).map(|_| AtomicU32::new(0)).collect())
    }

    fn entry(&self, node: Node, vmid: usize, multimedia: bool) -> &AtomicU32 {
        let node = usize::from(node.0) % Self::NODES;
        let row = 2 * node + usize::from(multimedia);
        &self.0[row * Self::VMIDS + vmid % Self::VMIDS]
    }

    fn clear(&self) {
        self.0
            .iter()
            .for_each(|entry| entry.store(0, Ordering::Relaxed));
    }
}

/// One event for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// One of [`client`].
    pub client: u8,
    pub source: u8,
    pub ring_id: u8,
    pub vmid: u8,
    /// The VMID is one of the multimedia hub.
    pub from_mm: bool,
    /// `None`: what the VMID's table entry says.
    pub pasid: Option<u16>,
    /// Physical node: 0 for the first I/O die, its XCCs' are 1 and 2.
    pub node: u8,
    pub data: [u32; 4],
}

impl Interrupt {
    /// Bytes of an entry.
    pub const SIZE: u32 = 32;

    /// Whether all that it says is to look at memory: the end of a pipe, an SDMA queue's trap.
    fn only_hints(&self) -> bool {
        use crate::cp::layout::source::CP_EOP_INTERRUPT;
        use crate::sdma::layout::source::SDMA_TRAP;
        match self.source {
            CP_EOP_INTERRUPT => self.client == client::GRBM_CP,
            SDMA_TRAP => crate::sdma::CLIENTS.contains(&self.client),
            _ => false,
        }
    }

    fn encode(&self, pasid: u16, time: u64) -> [u8; Self::SIZE as usize] {
        let values = [
            (entry::CLIENT_ID, self.client.into()),
            (entry::SOURCE_ID, self.source.into()),
            (entry::RING_ID, self.ring_id.into()),
            (entry::VMID, self.vmid.into()),
            (entry::VMID_TYPE, self.from_mm.into()),
            (entry::PASID, pasid.into()),
            (entry::NODEID, self.node.into()),
            (entry::CONTEXT_ID0, self.data[0]),
            (entry::CONTEXT_ID1, self.data[1]),
            (entry::CONTEXT_ID2, self.data[2]),
            (entry::CONTEXT_ID3, self.data[3]),
        ];
        // 48 bits of time: amdgpu_ih_decode_iv_helper.
        let mut dwords = [0, time as u32, (time >> 32) as u32 & 0xffff, 0, 0, 0, 0, 0];
        for (field, value) in values {
            dwords[field.dword] |= field.place(value);
        }
        let mut bytes = [0; Self::SIZE as usize];
        for (chunk, dword) in bytes.chunks_exact_mut(4).zip(dwords) {
            chunk.copy_from_slice(&dword.to_le_bytes());
        }
        bytes
    }
}

/// `MC_SPACE` of [`IH_RB_CNTL`]: the ring's address is a VMID 0 address, not a bus address.
const MC_SPACE_VIRTUAL: u32 = 4;

const RB_ENABLE: u32 = rb_cntl::RB_ENABLE.mask();
const WPTR_WRITEBACK_ENABLE: u32 = rb_cntl::WPTR_WRITEBACK_ENABLE.mask();
const WPTR_OVERFLOW_ENABLE: u32 = rb_cntl::WPTR_OVERFLOW_ENABLE.mask();
const ENABLE_INTR: u32 = rb_cntl::ENABLE_INTR.mask();
const WPTR_OVERFLOW_CLEAR: u32 = rb_cntl::WPTR_OVERFLOW_CLEAR.mask();
const RB_OVERFLOW: u32 = rb_wptr::RB_OVERFLOW.mask();
const DOORBELL_ENABLE: u32 = doorbell_rptr::ENABLE.mask();
const RETRY_CAM_ENABLE: u32 = retry_int_cam_cntl::ENABLE.mask();

/// The interrupt handler.
pub struct Ih {
    base: u32,
    /// There is one die: entries name none.
    one_die: bool,
    registers: RegisterFile<IhRegister>,
    pasids: PasidTables,
    /// Held while an entry goes in: entries come from several threads.
    push: Mutex<()>,
    retry: RetryCam,
    /// Of each client: how many of its entries are late, and the last one's time (hostile mode).
    waiting: Mutex<BTreeMap<u8, (usize, Instant)>>,
}

impl Ih {
    pub fn new(preset: &Preset) -> Self {
        let base = preset.base(ip::OSSSYS, 0, 0);
        Self {
            base,
            one_die: preset.generation == Generation::Mi200,
            registers: RegisterFile::new(),
            pasids: PasidTables::new(),
            push: Mutex::new(()),
            retry: RetryCam::default(),
            waiting: Mutex::default(),
        }
    }

    /// The die of a hub.
    const fn node(&self, hub: Hub) -> Node {
        match self.one_die {
            true => Node(0),
            false => Node::of(hub),
        }
    }

    /// Which process a VMID of a hub belongs to.
    pub fn set_pasid(&self, hub: Hub, vmid: u8, pasid: u16) {
        let entry = self
            .pasids
            .entry(self.node(hub), vmid.into(), hub == Hub::Mm);
        entry.store(pasid.into(), Ordering::Relaxed);
    }

    /// The process of a hub's VMID.
    pub fn pasid(&self, hub: Hub, vmid: u8) -> u16 {
        let entry = self
            .pasids
            .entry(self.node(hub), vmid.into(), hub == Hub::Mm);
        entry.load(Ordering::Relaxed) as u16
    }

    /// The entry of a table that the driver sees through IH_VMID_LUT_INDEX.
    fn indexed(&self, register: IhRegister, vmid: usize) -> &AtomicU32 {
        let node = Node(self.registers.get(IH_VMID_LUT_INDEX) as u8);
        self.pasids.entry(node, vmid, register == IH_VMID_0_LUT_MM)
    }

    /// Puts an event into the ring and raises the MSI.
    pub fn push(&self, chip: &Chip, mut interrupt: Interrupt) {
        if self.one_die {
            interrupt.node = 0;
        }
        if chip.inject.interrupt(chip, &interrupt) {
            return;
        }
        match &chip.hostile {
            Some(hostile) => self.push_anyhow(chip, hostile, interrupt),
            None => self.deliver(chip, interrupt),
        }
    }

    /// Hostile mode: an event comes late, past those of other clients. One that only says that
    /// memory has changed comes once more later, which is too early for the next one, or in a
    /// burst.
    fn push_anyhow(&self, chip: &Chip, hostile: &Hostile, interrupt: Interrupt) {
        const LATEST: Duration = Duration::from_millis(3);
        const AGAIN: Duration = Duration::from_millis(20);
        let late = hostile.one_in(8).then(|| hostile.time(LATEST));
        self.push_in_order(chip, interrupt, late);
        if interrupt.only_hints() && hostile.one_in(8) {
            let burst = if hostile.one_in(8) { 16 } else { 1 };
            for _ in 0..burst {
                let late = hostile.time(AGAIN);
                chip.inject.defer_interrupt(chip, late, interrupt);
            }
        }
    }

    /// What one client sends stays in its order.
    fn push_in_order(&self, chip: &Chip, interrupt: Interrupt, late: Option<Duration>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, last) = waiting
            .entry(interrupt.client)
            .or_insert((0, Instant::now()));
        if *count == 0 && late.is_none() {
            return self.deliver(chip, interrupt);
        }
        let due = (Instant::now() + late.unwrap_or_default()).max(*last);
        if chip.inject.defer_in_order(chip, due, interrupt) {
            (*count, *last) = (*count + 1, due);
        }
    }

    /// The time of one that waited has come.
    pub fn deliver_late(&self, chip: &Chip, interrupt: Interrupt) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.deliver(chip, interrupt);
        if let Some((count, _)) = waiting.get_mut(&interrupt.client) {
            *count = count.saturating_sub(1);
        }
    }

    /// The same without asking the fault injection.
    pub fn deliver(&self, chip: &Chip, interrupt: Interrupt) {
        let pasid = interrupt
            .pasid
            .unwrap_or_else(|| self.pasid_of_sender(&interrupt));
        tracing::debug!(target: "ih", "{interrupt:x?} pasid {pasid}");
        let control = self.registers.get(IH_RB_CNTL);
        if control & RB_ENABLE == 0 {
            tracing::debug!(target: "ih", "ring is off: entry dropped");
            return;
        }
        let guard = self.push.lock().unwrap_or_else(PoisonError::into_inner);
        self.store(chip, control, &interrupt.encode(pasid, chip.clock.ticks()));
        drop(guard);
        if control & ENABLE_INTR != 0 {
            chip.interrupt.trigger();
        }
    }

    /// Asks the retry CAM whether the driver is to hear of a retry fault.
    pub fn claim_retry(&self, interrupt: &Interrupt) -> Claim {
        let node = if self.one_die { 0 } else { interrupt.node };
        let interrupt = &Interrupt { node, ..*interrupt };
        let pasid = interrupt
            .pasid
            .unwrap_or_else(|| self.pasid_of_sender(interrupt));
        if self.registers.get(IH_RB_CNTL) & RB_ENABLE == 0 {
            // Nobody would hear of it.
            return Claim::Pending;
        }
        match self.registers.get(IH_RETRY_INT_CAM_CNTL) & RETRY_CAM_ENABLE {
            0 => Claim::Off,
            _ => self.retry.claim(interrupt, pasid),
        }
    }

    fn pasid_of_sender(&self, interrupt: &Interrupt) -> u16 {
        let entry = self.pasids.entry(
            Node(interrupt.node),
            interrupt.vmid.into(),
            interrupt.from_mm,
        );
        entry.load(Ordering::Relaxed) as u16
    }

    /// Bytes of ring 0.
    fn ring_size(control: u32) -> u32 {
        4u32.checked_shl(rb_cntl::RB_SIZE.pick(control))
            .unwrap_or(0)
    }

    fn store(&self, chip: &Chip, control: u32, entry: &[u8]) {
        let size = Self::ring_size(control);
        let wptr = self.registers.get(IH_RB_WPTR);
        if size < Interrupt::SIZE {
            tracing::warn!(target: "ih", "ring of {size} bytes cannot hold an entry");
            return;
        }
        let at = wptr & (size - 1) & !(Interrupt::SIZE - 1);
        let ring = self.registers.pair(IH_RB_BASE, IH_RB_BASE_HI, 0) << 8;
        self.write_memory(chip, control, ring.wrapping_add(at.into()), entry);
        let mut next = (at + Interrupt::SIZE) & (size - 1);
        let full = next == self.registers.get(IH_RB_RPTR) & (size - 1);
        if (full && control & WPTR_OVERFLOW_ENABLE != 0) || wptr & RB_OVERFLOW != 0 {
            next |= RB_OVERFLOW;
        }
        self.registers.set(IH_RB_WPTR, next);
        if control & WPTR_WRITEBACK_ENABLE != 0 {
            let place = self
                .registers
                .pair(IH_RB_WPTR_ADDR_LO, IH_RB_WPTR_ADDR_HI, 0);
            self.write_memory(chip, control, place, &next.to_le_bytes());
        }
    }

    fn write_memory(&self, chip: &Chip, control: u32, address: u64, data: &[u8]) {
        let at = if rb_cntl::MC_SPACE.pick(control) == MC_SPACE_VIRTUAL {
            match chip.gmc.translate(chip, Hub::Mm, 0, address, Access::Write) {
                Ok(found) => found.at,
                Err(fault) => {
                    return tracing::error!(target: "ih", "ring does not translate: {fault}")
                }
            }
        } else {
            Physical {
                memory: Memory::System,
                address,
            }
        };
        if let Err(error) = chip.write(at, data) {
            tracing::error!(target: "ih", "ring or write pointer: {error}");
        }
    }

    /// The driver's read pointer may come by doorbell. True if the doorbell is one of the rings'.
    pub fn doorbell(&self, index: DoorbellIndex, value: u64) -> bool {
        let rings = [
            (IH_DOORBELL_RPTR, IH_RB_RPTR),
            (IH_DOORBELL_RPTR_RING1, IH_RB_RPTR_RING1),
        ];
        for (doorbell, pointer) in rings {
            let setting = self.registers.get(doorbell);
            let is_its = doorbell_rptr::OFFSET.pick(setting) == index.0;
            if setting & DOORBELL_ENABLE != 0 && is_its {
                self.registers.set(pointer, value as u32 & 0x3_fffc);
                return true;
            }
        }
        let setting = self.registers.get(IH_DOORBELL_RETRY_CAM);
        let is_cams =
            setting & DOORBELL_ENABLE != 0 && doorbell_rptr::OFFSET.pick(setting) == index.0;
        if is_cams {
            self.retry.release(value as u32);
        }
        is_cams
    }
}

impl Block for Ih {
    fn name(&self) -> String {
        "OSSSYS".into()
    }

    fn registers(&self) -> Vec<Placed> {
        place::<IhRegister>(&[self.base])
    }

    fn register_name(&self, key: Key) -> String {
        name_of::<IhRegister>(key)
    }

    fn read(&self, _chip: &Chip, key: Key) -> u32 {
        match key.of::<IhRegister>() {
            Some((table @ (IH_VMID_0_LUT | IH_VMID_0_LUT_MM), vmid)) => {
                self.indexed(table, vmid).load(Ordering::Relaxed)
            }
            Some((register, index)) => self.registers.at(register, index),
            None => 0,
        }
    }

    fn write(&self, _chip: &Chip, key: Key, value: u32) {
        let Some((register, index)) = key.of::<IhRegister>() else {
            return;
        };
        if matches!(register, IH_VMID_0_LUT | IH_VMID_0_LUT_MM) {
            return self
                .indexed(register, index)
                .store(value, Ordering::Relaxed);
        }
        if register == IH_RETRY_CAM_ACK {
            return self.retry.release(value);
        }
        if register == IH_RETRY_INT_CAM_CNTL && value & RETRY_CAM_ENABLE == 0 {
            self.retry.clear();
        }
        if register == IH_RB_CNTL && value & WPTR_OVERFLOW_CLEAR != 0 {
            let _guard = self.push.lock().unwrap_or_else(PoisonError::into_inner);
            let wptr = self.registers.get(IH_RB_WPTR);
            self.registers.set(IH_RB_WPTR, wptr & !RB_OVERFLOW);
        }
        self.registers.set_at(register, index, value);
    }

    fn reset(&self, _chip: &Chip) {
        self.pasids.clear();
        self.retry.clear();
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        self.registers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;

    /// OSSSYS registers by dword: IH_RB_CNTL, _BASE, _RPTR, _WPTR, _WPTR_ADDR_LO, IH_DOORBELL_RPTR.
    const CNTL: u64 = 0x1120;
    const BASE: u64 = 0x1121;
    const WPTR: u64 = 0x1124;
    const WPTR_ADDR_LO: u64 = 0x1126;
    const DOORBELL_RPTR: u64 = 0x1127;
    const RING: u64 = 0x10_0000;
    const WRITE_BACK: u64 = 0x20_0000;
    /// A ring of 256 bytes (64 dwords): 8 entries.
    const SETTING: u32 =
        RB_ENABLE | 6 << 1 | WPTR_WRITEBACK_ENABLE | WPTR_OVERFLOW_ENABLE | ENABLE_INTR | 1 << 28;

    fn rig() -> Rig {
        let rig = Rig::new();
        rig.write(BASE, (RING >> 8) as u32);
        rig.write(WPTR_ADDR_LO, WRITE_BACK as u32);
        rig.write(DOORBELL_RPTR, DOORBELL_ENABLE | 0x340);
        rig.write(CNTL, SETTING);
        rig
    }

    fn entry(client: u8, source: u8, data: u32) -> Interrupt {
        Interrupt {
            client,
            source,
            ring_id: 3,
            vmid: 9,
            from_mm: false,
            pasid: None,
            node: 1,
            data: [data, 2, 3, 4],
        }
    }

    fn push(rig: &Rig, data: u32) {
        let entry = entry(client::GRBM_CP, 181, data);
        rig.chip().ih.push(rig.chip(), entry);
    }

    fn dword(rig: &Rig, at: u64) -> u32 {
        rig.system().read_u32(RING + at).unwrap()
    }

    #[test]
    fn xccs_have_the_node_ids_of_the_interrupt_cookie() {
        let node = |xcc| Node::of(Hub::Gc(xcc)).0;
        assert_eq!([0, 1, 2, 3].map(node), [1, 2, 5, 6]);
    }

    #[test]
    fn an_entry_carries_all_fields_and_the_pasid_of_its_vmid() {
        let rig = rig();
        rig.chip().bind_vmid(0, 9, 0x8001, 0);
        push(&rig, 77);
        assert_eq!(dword(&rig, 0), 0x0903_b514);
        assert_eq!(dword(&rig, 12), 0x0001_8001);
        assert_eq!([16, 20, 24, 28].map(|at| dword(&rig, at)), [77, 2, 3, 4]);
        assert_eq!(rig.system().read_u32(WRITE_BACK), Ok(32));
        assert_eq!(rig.interrupts(), 1);
    }

    #[test]
    fn the_ring_wraps_as_far_as_the_driver_has_read() {
        let rig = rig();
        for n in 0..20 {
            push(&rig, n);
            let wptr = rig.read(WPTR);
            assert_eq!(wptr, (n + 1) % 8 * 32);
            assert_eq!(dword(&rig, u64::from(n % 8) * 32 + 16), n);
            rig.model.doorbell_write(0x340 * 4, &wptr.to_le_bytes());
        }
    }

    #[test]
    fn traps_of_every_copy_engine_only_hint_at_memory() {
        let trap = |client| entry(client, crate::sdma::layout::source::SDMA_TRAP, 0);
        let engines = [client::SDMA2, client::SDMA3, client::SDMA4];
        assert!(engines.iter().all(|client| trap(*client).only_hints()));
        assert!(!trap(client::GRBM_CP).only_hints());
    }

    #[test]
    fn overflow_shows_until_it_is_cleared() {
        let rig = rig();
        for n in 0..8 {
            push(&rig, n);
        }
        assert_eq!(rig.read(WPTR), RB_OVERFLOW);
        push(&rig, 8);
        assert_eq!(rig.read(WPTR), 32 | RB_OVERFLOW);
        rig.write(CNTL, SETTING | WPTR_OVERFLOW_CLEAR);
        rig.write(CNTL, SETTING);
        assert_eq!(rig.read(WPTR), 32);
    }

    #[test]
    fn a_ring_that_is_off_or_too_small_takes_nothing() {
        let rig = rig();
        rig.write(CNTL, SETTING & !RB_ENABLE);
        push(&rig, 1);
        rig.write(CNTL, RB_ENABLE | ENABLE_INTR);
        push(&rig, 1);
        assert_eq!(rig.read(WPTR), 0);
        assert_eq!(dword(&rig, 16), 0);
    }

    #[test]
    fn a_ring_outside_memory_does_no_harm() {
        let rig = rig();
        rig.write(BASE, u32::MAX);
        rig.write(BASE + 1, u32::MAX);
        push(&rig, 1);
        assert_eq!(rig.read(WPTR), 32);
    }
}
