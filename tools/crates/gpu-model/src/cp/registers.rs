// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The CP's registers as MMIO sees them: queue slots banked by GRBM_GFX_CNTL, per-VMID shader
//! settings, interrupt enables. One [`Bank`] per XCC.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::debug::{Control, WatchRegisters};
use super::layout::grbm_gfx_cntl;
use super::mqd::{dw, Hqd, HQD_FIRST};
use super::queue::{self, Kind, Queue, SlotId};
use super::reg::CpRegister::{self, *};
use super::sched::Keep;
use super::team::Member;
use super::waves::wave_control;
use super::{saved, Mapped, Shared};
use crate::processor::bus::{wide, Binding, DebugWords, Hub, OnFault, Space};
use crate::processor::lock;

/// Registers that are only stored and are not 0 after power-on.
pub const STORED_POWER_ON: &[(CpRegister, u32)] = &[];

const MES: usize = 3;
const PIPES: usize = 4;
const QUEUES: usize = 8;

/// Settings of a VMID: SH_MEM_BASES, SH_MEM_CONFIG, SQ_SHADER_TBA_LO to SQ_SHADER_TMA_HI,
/// SPI_GDBG_PER_VMID_CNTL. That its memory operations are precise is in no register.
#[derive(Clone, Copy, Debug, Default)]
struct VmidRegisters {
    sh_mem_bases: u32,
    sh_mem_config: u32,
    traps: [u32; 4],
    spi: u32,
    single_memops: bool,
}

/// Registers of one XCC.
pub struct Bank {
    grbm_gfx_cntl: u32,
    /// GRBM_GFX_INDEX.SE_INDEX.
    engine: usize,
    rlc_cp_schedulers: u32,
    mec_cntl: u32,
    poll_once: bool,
    xcp_ctl: u32,
    hqds: Vec<Hqd>,
    vmids: [VmidRegisters; 16],
    watches: WatchRegisters,
}

impl Bank {
    /// After power-on: all XCCs are one partition (SPX).
    pub fn new(xcc: u8, xccs: u8) -> Self {
        Bank {
            grbm_gfx_cntl: 0,
            engine: 0,
            rlc_cp_schedulers: 0,
            mec_cntl: 0,
            poll_once: false,
            xcp_ctl: Member {
                index: xcc,
                of: xccs,
            }
            .encode(),
            hqds: vec![Hqd::default(); MES * PIPES * QUEUES],
            vmids: Default::default(),
            watches: WatchRegisters::default(),
        }
    }

    /// The XCC in its partition.
    pub fn member(&self) -> Member {
        Member::decode(self.xcp_ctl)
    }

    /// GRBM_GFX_CNTL: PIPEID 1:0, MEID 3:2, VMID 7:4, QUEUEID 10:8.
    fn selected(&self, xcc: u8) -> SlotId {
        SlotId {
            xcc,
            me: grbm_gfx_cntl::MEID.pick(self.grbm_gfx_cntl) as u8,
            pipe: grbm_gfx_cntl::PIPEID.pick(self.grbm_gfx_cntl) as u8,
            queue: grbm_gfx_cntl::QUEUEID.pick(self.grbm_gfx_cntl) as u8,
        }
    }

    fn vmid(&mut self) -> &mut VmidRegisters {
        &mut self.vmids[grbm_gfx_cntl::VMID.pick(self.grbm_gfx_cntl) as usize]
    }

    fn index(slot: SlotId) -> usize {
        let me = usize::from(slot.me).min(MES - 1);
        (me * PIPES + usize::from(slot.pipe) % PIPES) * QUEUES + usize::from(slot.queue) % QUEUES
    }

    /// The slot's registers.
    pub fn hqd_mut(&mut self, slot: SlotId) -> &mut Hqd {
        &mut self.hqds[Self::index(slot)]
    }

    /// The slot is empty again; its pointers stay readable.
    pub fn retire(&mut self, queue: &Queue) {
        let hqd = self.hqd_mut(queue.slot);
        refresh(hqd, queue);
        hqd.set(dw::CP_HQD_ACTIVE, 0);
        hqd.set(dw::CP_HQD_DEQUEUE_REQUEST, 0);
    }

    /// Whether RLC_CP_SCHEDULERS names the slot as the KIQ (scheduler0: valid 7, me 6:5, pipe 4:3,
    /// queue 2:0).
    fn is_kiq(&self, slot: SlotId) -> bool {
        let name =
            0x80 | u32::from(slot.me) << 5 | u32::from(slot.pipe) << 3 | u32::from(slot.queue);
        self.rlc_cp_schedulers & 0xff == name
    }

    /// What the per-VMID registers say of a process.
    fn binding(&self, vmid: u8) -> Binding {
        let VmidRegisters {
            sh_mem_bases,
            sh_mem_config,
            traps,
            spi,
            single_memops,
        } = self.vmids[usize::from(vmid & 15)];
        Binding {
            pasid: 0,
            page_table_base: 0,
            sh_mem_bases,
            sh_mem_config,
            tba: wide(traps[0], traps[1] & 0xff) << 8,
            tma: wide(traps[2], traps[3] & 0xff) << 8,
            gws: 0,
            cleans: false,
            debug: DebugWords {
                spi,
                watches: [0; 4],
                single_memops,
            },
        }
    }

    /// What MAP_PROCESS sets.
    pub fn bind(&mut self, vmid: u8, process: &Binding) {
        let (tba, tma) = (process.tba >> 8, process.tma >> 8);
        self.vmids[usize::from(vmid & 15)] = VmidRegisters {
            sh_mem_bases: process.sh_mem_bases,
            sh_mem_config: process.sh_mem_config,
            traps: [
                tba as u32,
                (tba >> 32) as u32,
                tma as u32,
                (tma >> 32) as u32,
            ],
            spi: process.debug.spi,
            single_memops: process.debug.single_memops,
        };
        self.watches.bind(vmid, process.debug.watches);
    }

    /// What the registers have for debugging a VMID.
    pub fn debug(&self, vmid: u8, target: gcn::Target) -> Control {
        let registers = &self.vmids[usize::from(vmid & 15)];
        Control {
            spi: registers.spi,
            debug: gcn::Debug {
                watches: self.watches.of(vmid, target),
                precise: registers.single_memops,
            },
        }
    }
}

/// Puts a running queue's pointers into its register image.
fn refresh(hqd: &mut Hqd, queue: &Queue) {
    let wptr = queue.wptr_register();
    hqd.set(dw::CP_HQD_PQ_RPTR, queue.rptr_register());
    hqd.set(dw::CP_HQD_PQ_WPTR_LO, wptr as u32);
    hqd.set(dw::CP_HQD_PQ_WPTR_HI, (wptr >> 32) as u32);
}

/// A slot of micro engine 1's `pipe`, for what all its queues share.
fn of_pipe(slot: SlotId, pipe: usize) -> SlotId {
    SlotId {
        me: 1,
        pipe: pipe as u8,
        ..slot
    }
}

/// Reads element `index` of one of the CP's registers. None: it is only stored.
pub fn read(shared: &Shared, xcc: u8, register: CpRegister, index: usize) -> Option<u32> {
    let mut state = lock(&shared.state);
    let bank = state.banks.get_mut(usize::from(xcc))?;
    let slot = bank.selected(xcc);
    Some(match register {
        GRBM_GFX_CNTL => bank.grbm_gfx_cntl,
        CP_MEC_CNTL => bank.mec_cntl,
        RLC_CP_SCHEDULERS => bank.rlc_cp_schedulers,
        CP_HYP_XCP_CTL => bank.xcp_ctl,
        SH_MEM_BASES => bank.vmid().sh_mem_bases,
        SH_MEM_CONFIG => bank.vmid().sh_mem_config,
        SQ_SHADER_TBA_LO => bank.vmid().traps[index],
        SPI_GDBG_PER_VMID_CNTL => bank.vmid().spi,
        TCP_WATCH0_ADDR_H => bank.watches.0[index].high,
        TCP_WATCH0_ADDR_L => bank.watches.0[index].low,
        TCP_WATCH0_CNTL => bank.watches.0[index].control,
        CP_ME1_PIPE0_INT_CNTL => shared
            .int_cntl(of_pipe(slot, index))
            .load(Ordering::Relaxed),
        CPC_INT_CNTL => shared.int_cntl(slot).load(Ordering::Relaxed),
        CPC_INT_STATUS | SPI_COMPUTE_QUEUE_RESET | CP_PQ_WPTR_POLL_CNTL1 => 0,
        // A bit for each queue of micro engine 1: those of a pipe beside each other.
        SPI_CSQ_WF_ACTIVE_STATUS => {
            let slots = state.mapped.keys();
            let slots = slots.filter(|slot| slot.xcc == xcc && slot.me == 1);
            slots.fold(0, |map, slot| {
                map | 1 << (slot.pipe % 4 * 8 + slot.queue % 8)
            })
        }
        // Of the selected pipe's queues, on the selected shader engine.
        SPI_CSQ_WF_ACTIVE_COUNT_0 => {
            let engine = bank.engine;
            let slot = SlotId {
                me: 1,
                queue: index as u8,
                ..slot
            };
            let mapped = state.mapped.get(&slot);
            mapped.map_or(0, |at| at.queue.waves(engine))
        }
        CP_MQD_BASE_ADDR => {
            let running = state.mapped.get(&slot).map(|at| at.queue.clone());
            let hqd = state.banks[usize::from(xcc)].hqd_mut(slot);
            if let Some(queue) = running {
                refresh(hqd, &queue);
            }
            hqd.get(HQD_FIRST + index)
        }
        _ => return None,
    })
}

/// Writes element `index` of one of the CP's registers. False: it is only stored.
pub fn write(
    shared: &Arc<Shared>,
    xcc: u8,
    register: CpRegister,
    index: usize,
    value: u32,
) -> bool {
    let mut state = lock(&shared.state);
    let Some(bank) = state.banks.get_mut(usize::from(xcc)) else {
        return false;
    };
    let slot = bank.selected(xcc);
    match register {
        GRBM_GFX_CNTL => bank.grbm_gfx_cntl = value,
        GRBM_GFX_INDEX => {
            // SE_INDEX 23:16.
            bank.engine = (value >> 16 & 0xff) as usize;
            return false;
        }
        RLC_CP_SCHEDULERS => bank.rlc_cp_schedulers = value,
        CP_HYP_XCP_CTL => bank.xcp_ctl = value & 0x7f,
        SQ_CMD => {
            drop(state);
            wave_control(shared, xcc, value);
        }
        SH_MEM_BASES => bank.vmid().sh_mem_bases = value,
        SH_MEM_CONFIG => bank.vmid().sh_mem_config = value,
        SQ_SHADER_TBA_LO => bank.vmid().traps[index] = value,
        SPI_GDBG_PER_VMID_CNTL => bank.vmid().spi = value,
        TCP_WATCH0_ADDR_H => bank.watches.0[index].high = value,
        TCP_WATCH0_ADDR_L => bank.watches.0[index].low = value,
        TCP_WATCH0_CNTL => bank.watches.0[index].control = value,
        CP_ME1_PIPE0_INT_CNTL => {
            let cntl = shared.int_cntl(of_pipe(slot, index));
            cntl.store(value, Ordering::Relaxed);
        }
        CPC_INT_CNTL => shared.int_cntl(slot).store(value, Ordering::Relaxed),
        CPC_INT_STATUS => {}
        CP_PQ_WPTR_POLL_CNTL1 => bank.poll_once = true,
        CP_MEC_CNTL => {
            let old = std::mem::replace(&mut bank.mec_cntl, value);
            drop(state);
            let halts = value & MEC_HALT != 0;
            reset_pipes(shared, xcc, !old & value, halts);
        }
        SPI_COMPUTE_QUEUE_RESET => {
            drop(state);
            if value & 1 != 0 {
                reset_queue(shared, slot);
            }
        }
        CP_MQD_BASE_ADDR => {
            let dword = HQD_FIRST + index;
            bank.hqd_mut(slot).set(dword, value);
            drop(state);
            written(shared, slot, dword, value);
        }
        _ => return false,
    }
    true
}

/// CP_MEC_CNTL.MEC_ME1_HALT.
const MEC_HALT: u32 = 1 << 30;

/// CP_MEC_CNTL: MEC_ME1_PIPEn_RESET are bits 16 to 19 ([`rose`]: bits that were 0 before). With the
/// whole engine halted nothing resists.
fn reset_pipes(shared: &Arc<Shared>, xcc: u8, rose: u32, halts: bool) {
    let is_reset = |pipe: u8| rose >> (16 + pipe) & 1 != 0;
    let slots = shared.mapped_slots(|queue| {
        queue.slot.xcc == xcc && queue.slot.me == 1 && is_reset(queue.slot.pipe & 3)
    });
    for slot in slots {
        match halts {
            true => shared.unmap(slot, Keep::Nothing),
            false => reset_queue(shared, slot),
        }
    }
}

/// SPI_COMPUTE_QUEUE_RESET: the queue's waves die, and it leaves its slot, unless it is stuck for
/// good.
fn reset_queue(shared: &Shared, slot: SlotId) {
    let stays = |at: &Mapped| at.queue.resists_reset() && at.queue.space.vmid != 0;
    if !shared.mapped_at(slot).is_some_and(|at| stays(&at)) {
        shared.unmap(slot, Keep::Nothing);
    }
}

/// A queue slot's register was written.
fn written(shared: &Arc<Shared>, slot: SlotId, dword: usize, value: u32) {
    let mapped = shared.mapped_at(slot);
    match (dword, mapped) {
        (dw::CP_HQD_ACTIVE, None) if value & 1 != 0 => activate(shared, slot),
        (dw::CP_HQD_ACTIVE, Some(_)) if value & 1 == 0 => shared.unmap(slot, Keep::Nothing),
        // DEQUEUE_REQ: 1 drain the pipe, 2 reset the waves, 3 save them. A drain keeps them, too:
        // the model does not make the driver wait for a kernel that may never end. What hangs does
        // not hear of it.
        (dw::CP_HQD_DEQUEUE_REQUEST, Some(at))
            if at.queue.is_stuck() || at.queue.is_abandoned() => {}
        (dw::CP_HQD_DEQUEUE_REQUEST, Some(_)) if value & 0xf != 0 => {
            let keep = if value & 0xf == 2 {
                Keep::Nothing
            } else {
                Keep::Flight
            };
            shared.unmap(slot, keep);
        }
        (dw::CP_HQD_PQ_WPTR_LO, Some(Mapped { queue, task })) => {
            queue.ring(u64::from(value));
            shared.runner.wake(&task);
        }
        _ => {}
    }
}

/// CP_HQD_ACTIVE: the registers make a queue (the KIQ, or a user's without the hardware scheduler).
fn activate(shared: &Arc<Shared>, slot: SlotId) {
    let (hqd, is_kiq, poll, process, member) = {
        let mut state = lock(&shared.state);
        let bank = &mut state.banks[usize::from(slot.xcc)];
        let poll = std::mem::take(&mut bank.poll_once);
        let hqd = *bank.hqd_mut(slot);
        let mut process = bank.binding(hqd.vmid());
        process.pasid = shared.bus.pasid(Space {
            hub: Hub::Gc(slot.xcc),
            vmid: hqd.vmid(),
        });
        (hqd, bank.is_kiq(slot), poll, process, bank.member())
    };
    let address = hqd.mqd_address();
    let mqd = match shared.load_mqd(slot.xcc, address) {
        Ok(mqd) => mqd,
        Err(fault) => {
            tracing::warn!(?slot, %fault, "queue without an MQD not mapped");
            let space = shared.kernel_view(slot.xcc).space;
            shared.bus.fault(space, 0, fault, OnFault::Ends);
            return;
        }
    };
    // The kernel's own rings are each of one XCC; a user's queue has a copy in every XCC.
    let xcc = if hqd.vmid() == 0 {
        Member { index: 0, of: 1 }
    } else {
        member
    };
    let kind = if is_kiq {
        Kind::Kiq
    } else {
        queue::kind_of(&mqd, xcc.index)
    };
    let queue = Queue::new(
        shared.clone(),
        queue::Config {
            slot,
            kind,
            hqd,
            mqd: address,
            sh: mqd.sh(),
            process,
            vmid: hqd.vmid(),
            is_static: true,
            by_hiq: false,
            xcc,
            team: shared.team(kind, xcc, hqd.doorbell()),
            share: queue::share_of(&mqd),
            flight: saved::take(shared, slot.xcc, address, &mqd),
        },
    );
    tracing::debug!(
        ?slot,
        ?kind,
        doorbell = hqd.doorbell(),
        "queue mapped by registers"
    );
    if let Err(fault) = shared.insert(&queue, poll.then(|| hqd.wptr_poll())) {
        tracing::warn!(?slot, %fault, "write pointer not readable");
    }
}
