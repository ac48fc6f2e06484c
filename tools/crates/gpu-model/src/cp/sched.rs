// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The hardware scheduler's packets: what KIQ and HIQ ask for. One [`Hws`] per GPU, with a part for
//! each XCC.
//!
//! The KIQ (kernel interface queue, amdgpu's) maps queues to slots that it names; the HIQ (HSA
//! interface queue, amdkfd's) gives run lists, and the scheduler chooses VMIDs and slots. Every XCC
//! has both, and the HIQs of a partition listen to one doorbell: each does its part. Who executes
//! their packets holds `serial`. Layouts: `amdkfd/kfd_pm4_headers_ai.h`,
//! `kfd_pm4_headers_aldebaran.h`, `amdgpu/soc15d.h`.

mod runlist;

use std::sync::Arc;
use std::time::Duration;

use super::layout::{
    doorbell_control, invalidate_tlbs as invalidate, map_queues as map, map_queues_engine_sel,
    map_queues_extended_engine_sel as extended, map_queues_queue_type, query_status as query,
    query_status_command, set_resources as resources, set_resources_queue_type,
    unmap_queues as unmap, unmap_queues_action, unmap_queues_queue_sel as queue_sel,
};
use super::mqd::{dw, Mqd};
use super::pm4::{Cx, Flow, Outcome};
use super::queue::{self, Kind, Queue, SlotId};
use super::team::Member;
use super::{saved, Shared, SOURCE_QUERY_STATUS};
use crate::inject::rule::FenceKind;
use crate::processor::bus::{Fault, Hub, OnFault, Space};
use crate::processor::copy::{Filter, RlcQueue};
use crate::processor::lock;
pub use runlist::Rotate;
use runlist::Runlist;

/// What becomes of the waves of a queue that is unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// They go on when it is mapped again.
    Flight,
    /// They are killed.
    Nothing,
    /// They are killed, and the MQD stays as it is: its memory is another queue's already.
    Forgotten,
}

/// A VMID and who has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Vmid {
    pasid: Option<u16>,
    /// XCCs where its process is mapped, by bit.
    users: u32,
}

/// The hardware scheduler's state.
pub struct Hws {
    vmids: [Vmid; 16],
    /// VMIDs that SET_RESOURCES gave each XCC's part, by bit.
    vmid_mask: Vec<u16>,
    /// Queue slots that SET_RESOURCES gave it: bit 32 * (me - 1) + 8 * pipe + queue.
    queue_mask: Vec<u64>,
    /// ENB_XNACK_RETRY_DISABLE_CHECK: no two processes with different RETRY_DISABLE are on at once.
    checks_xnack: Vec<bool>,
    runlists: Vec<Option<Runlist>>,
    rotating: bool,
}

impl Hws {
    /// Nothing mapped, no resources.
    pub fn new(xccs: u8) -> Self {
        Hws {
            vmids: Default::default(),
            vmid_mask: vec![0; xccs.into()],
            queue_mask: vec![0; xccs.into()],
            checks_xnack: vec![false; xccs.into()],
            runlists: (0..xccs).map(|_| None).collect(),
            rotating: false,
        }
    }

    /// The VMID of a process: the one it has, else a free one, else one whose process is mapped
    /// nowhere.
    fn acquire(&mut self, pasid: u16, xcc: u8) -> Option<u8> {
        let usable = |at: &usize| self.vmid_mask[usize::from(xcc)] >> at & 1 != 0;
        let find = |wanted: &dyn Fn(&Vmid) -> bool| {
            (0..16).filter(usable).find(|at| wanted(&self.vmids[*at]))
        };
        let at = find(&|vmid| vmid.pasid == Some(pasid))
            .or_else(|| find(&|vmid| vmid.pasid.is_none()))
            .or_else(|| find(&|vmid| vmid.users == 0))?;
        let users = if self.vmids[at].pasid == Some(pasid) {
            self.vmids[at].users
        } else {
            0
        };
        self.vmids[at] = Vmid {
            pasid: Some(pasid),
            users: users | 1 << xcc,
        };
        Some(at as u8)
    }

    fn release(&mut self, xcc: u8, pasid: Option<u16>) {
        for vmid in &mut self.vmids {
            if pasid.is_none() || vmid.pasid == pasid {
                vmid.users &= !(1 << xcc);
            }
        }
    }

    /// The VMIDs of a process: one, unless several partitions have it.
    fn vmids_of(&self, pasid: u16) -> Vec<u8> {
        (0u8..)
            .zip(&self.vmids)
            .filter(|(_, vmid)| vmid.pasid == Some(pasid))
            .map(|(at, _)| at)
            .collect()
    }
}

/// Hostile mode: queues are taken off when their waves have been saved, which takes a while.
fn take_time(shared: &Shared) {
    const LONGEST: Duration = Duration::from_millis(20);
    if let Some(hostile) = shared.bus.hostile() {
        hostile.pause(LONGEST);
    }
}

/// Before queues are taken off an XCC. False: one does not stop, and only a reset helps.
fn may_unmap(shared: &Shared, xcc: u8) -> bool {
    if shared.has_stuck(xcc) {
        return false;
    }
    take_time(shared);
    true
}

/// MAP_PROCESS has its place in a run list.
pub fn map_process(cx: &mut Cx<'_>, _body: &[u32]) -> Outcome {
    let shared = &cx.queue.shared;
    shared.stats.count("MAP_PROCESS outside a run list");
    tracing::warn!(
        xcc = cx.queue.slot.xcc,
        "MAP_PROCESS outside a run list ignored"
    );
    Ok(Flow::Next)
}

/// SET_RESOURCES: VMID_MASK 15:0, QUEUE_TYPE 31:29 (1 = HIQ), queue mask.
pub fn set_resources(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    // The KIQ's queue mask says nothing that its MAP_QUEUES packets do not.
    if resources::QUEUE_TYPE.of(body) == set_resources_queue_type::HSA_INTERFACE_QUEUE_HIQ {
        let xcc = usize::from(cx.queue.slot.xcc);
        let mut hws = lock(&cx.queue.shared.hws);
        hws.vmid_mask[xcc] = resources::VMID_MASK.of(body) as u16;
        hws.queue_mask[xcc] = resources::QUEUE_MASK_LO.wide(body);
        hws.checks_xnack[xcc] = resources::ENB_XNACK_RETRY_DISABLE_CHECK.is_set(body);
    }
    Ok(Flow::Next)
}

/// MAP_QUEUES.ENGINE_SEL as amdgpu has it for the HIQ (`amdgpu_amdkfd_gfx_v9.c`,
/// kgd_gfx_v9_hiq_mqd_load) and for graphics rings (`gfx_v9_0.c`, gfx_v9_0_kiq_map_queues).
const ENGINE_HIQ: u32 = 1;
const ENGINE_GFX: u32 = 4;

/// A MAP_QUEUES packet, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapQueue {
    engine: EngineSel,
    slot: (u8, u8, u8),
    is_static: bool,
    doorbell: u32,
    mqd: u64,
    wptr: u64,
}

/// ENGINE_SEL and EXTENDED_ENGINE_SEL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EngineSel {
    Compute,
    Hiq,
    Gfx,
    Sdma(u8),
}

impl MapQueue {
    fn decode(body: &[u32]) -> Self {
        let select = map::ENGINE_SEL.of(body);
        let engine = match (map::EXTENDED_ENGINE_SEL.of(body), select) {
            (extended::SDMA0_TO_7_SEL, _) => EngineSel::Sdma(select as u8),
            (extended::SDMA8_TO_15_SEL, _) => EngineSel::Sdma(8 + select as u8),
            (_, map_queues_engine_sel::SDMA0_VI) => EngineSel::Sdma(0),
            (_, map_queues_engine_sel::SDMA1_VI) => EngineSel::Sdma(1),
            (_, ENGINE_HIQ) => EngineSel::Hiq,
            (_, ENGINE_GFX) => EngineSel::Gfx,
            _ => EngineSel::Compute,
        };
        // ME counts from MEC 1 on.
        let me = map::ME.of(body) as u8 + 1;
        let queue_type = map::QUEUE_TYPE.of(body);
        MapQueue {
            engine,
            slot: (me, map::PIPE.of(body) as u8, map::QUEUE.of(body) as u8),
            is_static: queue_type == map_queues_queue_type::NORMAL_LATENCY_STATIC_QUEUE_VI,
            doorbell: map::DOORBELL_OFFSET.of(body),
            mqd: map::MQD_ADDR_LO.wide(body) & !3,
            wptr: map::WPTR_ADDR_LO.wide(body) & !3,
        }
    }
}

/// MAP_QUEUES on the KIQ: to the slot that the packet names. On the HIQ's ring it maps like a run
/// list's.
pub fn map_queues(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let map = MapQueue::decode(body);
    let shared = &cx.queue.shared;
    let xcc = cx.queue.slot.xcc;
    let (me, pipe, queue) = map.slot;
    let slot = SlotId {
        xcc,
        me,
        pipe,
        queue,
    };
    // Mapping over itself would wait for itself.
    let is_own = slot == cx.queue.slot;
    if cx.queue.kind == Kind::Hiq || is_own || me > 2 || map.engine == EngineSel::Gfx {
        shared.stats.count("MAP_QUEUES of an unknown kind");
        tracing::warn!(?slot, ?map, "queue not mapped");
        return Ok(Flow::Next);
    }
    let is_hiq = map.engine == EngineSel::Hiq;
    let mapped = map_compute(shared, slot, &map, map.mqd, |mqd, config| {
        config.kind = if is_hiq {
            Kind::Hiq
        } else {
            queue::kind_of(mqd, 0)
        };
        config.vmid = mqd.hqd().vmid();
        config.is_static = true;
    });
    if let Err(fault) = mapped {
        tracing::warn!(?slot, %fault, "queue not mapped");
        let space = shared.kernel_view(xcc).space;
        shared.bus.fault(space, 0, fault, OnFault::Ends);
    }
    Ok(Flow::Next)
}

/// Loads an MQD into a slot and starts its queue; `adjust` sees to what the two schedulers do
/// differently.
fn map_compute(
    shared: &Arc<Shared>,
    slot: SlotId,
    map: &MapQueue,
    address: u64,
    adjust: impl FnOnce(&Mqd, &mut queue::Config),
) -> Result<(), Fault> {
    // A queue that is still there is one that the driver lost in a reset.
    shared.unmap(slot, Keep::Forgotten);
    let mqd = shared.load_mqd(slot.xcc, address)?;
    let mut config = queue::Config {
        slot,
        kind: Kind::Follower,
        hqd: mqd.hqd(),
        mqd: address,
        sh: mqd.sh(),
        process: Default::default(),
        vmid: 0,
        is_static: false,
        by_hiq: false,
        xcc: Member { index: 0, of: 1 },
        team: None,
        share: queue::share_of(&mqd),
        flight: saved::take(shared, slot.xcc, address, &mqd),
    };
    adjust(&mqd, &mut config);
    config.team = shared.team(config.kind, config.xcc, map.doorbell);
    let hqd = &mut config.hqd;
    hqd.set(dw::CP_HQD_ACTIVE, 1);
    hqd.set(dw::CP_HQD_VMID, config.vmid.into());
    let control = hqd.get(dw::CP_HQD_PQ_DOORBELL_CONTROL);
    let control = doorbell_control::DOORBELL_OFFSET.replace(control, map.doorbell);
    let control = doorbell_control::DOORBELL_EN.replace(control, 1);
    hqd.set(dw::CP_HQD_PQ_DOORBELL_CONTROL, control);
    let (kind, doorbell, vmid) = (config.kind, map.doorbell, config.vmid);
    tracing::debug!(?slot, ?kind, doorbell, vmid, "queue mapped");
    let queue = Queue::new(shared.clone(), config);
    let wptr = (map.wptr != 0 && queue.kind != Kind::Follower).then_some(map.wptr);
    if let Err(fault) = shared.insert(&queue, wptr) {
        queue.fault(&mut queue.body(), fault);
    }
    Ok(())
}

/// UNMAP_QUEUES: ACTION 1:0, QUEUE_SEL 5:4, NUM_QUEUES 31:29; PASID or doorbells.
pub fn unmap_queues(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let shared = &cx.queue.shared;
    let xcc = cx.queue.slot.xcc;
    if !may_unmap(shared, xcc) {
        return Ok(Flow::Wait);
    }
    let keep = match unmap::ACTION.of(body) {
        unmap_queues_action::RESET_QUEUES => Keep::Nothing,
        // PREEMPT_QUEUES_NO_UNMAP (`soc15d.h`) is for the graphics ring.
        unmap_queues_action::RESERVED => {
            shared.stats.count("UNMAP_QUEUES.PREEMPT_QUEUES_NO_UNMAP");
            return Ok(Flow::Next);
        }
        _ => Keep::Flight,
    };
    let by_kiq = cx.queue.kind == Kind::Kiq;
    match unmap::QUEUE_SEL.of(body) {
        queue_sel::PERFORM_REQUEST_ON_SPECIFIED_QUEUES => {
            let count = unmap::NUM_QUEUES.of(body).clamp(1, 4) as usize;
            let doorbells = [
                unmap::DOORBELL_OFFSET0,
                unmap::DOORBELL_OFFSET1,
                unmap::DOORBELL_OFFSET2,
                unmap::DOORBELL_OFFSET3,
            ];
            let doorbells = doorbells[..count].iter().map(|doorbell| doorbell.of(body));
            let doorbells: Vec<u32> = doorbells.collect();
            let me = cx.queue.slot;
            let wanted = |queue: &Queue| {
                queue.slot != me
                    && queue.slot.xcc == xcc
                    && doorbells.contains(&queue.hqd.doorbell())
            };
            let slots = shared.mapped_slots(|queue| wanted(queue) && (by_kiq || queue.by_hiq));
            take_off(shared, cx.queue, slots, keep);
            for doorbell in doorbells {
                unmap_sdma(shared, xcc, keep, Filter::Doorbell(doorbell));
            }
        }
        queue_sel::PERFORM_REQUEST_ON_PASID_QUEUES => {
            let pasid = unmap::PASID.of(body) as u16;
            unmap_where(shared, cx.queue, keep, Some(pasid), |queue| {
                queue.process.pasid == pasid
            });
        }
        queue_sel::UNMAP_ALL_QUEUES => unmap_where(shared, cx.queue, keep, None, |_| true),
        _ => unmap_where(shared, cx.queue, keep, None, |queue| !queue.is_static),
    }
    Ok(Flow::Next)
}

/// Unmaps the HIQ's queues that `wanted` names, and with them the run list they came from.
fn unmap_where(
    shared: &Arc<Shared>,
    hiq: &Queue,
    keep: Keep,
    pasid: Option<u16>,
    wanted: impl Fn(&Queue) -> bool,
) {
    let xcc = hiq.slot.xcc;
    let wanted = |queue: &Queue| queue.by_hiq && queue.slot.xcc == xcc && wanted(queue);
    take_off(shared, hiq, shared.mapped_slots(wanted), keep);
    unmap_sdma(shared, xcc, keep, pasid.map_or(Filter::All, Filter::Pasid));
    let mut hws = lock(&shared.hws);
    hws.release(xcc, pasid);
    let runlist = &mut hws.runlists[usize::from(xcc)];
    match pasid {
        None => *runlist = None,
        Some(pasid) => runlist.iter_mut().for_each(|runlist| runlist.forget(pasid)),
    }
}

/// Unmaps these queues. One that does not stop stays in its slot, and the MQD of the HIQ that asked
/// names it.
fn take_off(shared: &Shared, hiq: &Queue, slots: Vec<SlotId>, keep: Keep) {
    for slot in slots {
        match shared.mapped_at(slot) {
            Some(at) if at.queue.is_abandoned() => abandon(hiq, &at.queue),
            _ => shared.unmap(slot, keep),
        }
    }
}

fn abandon(hiq: &Queue, queue: &Queue) {
    let doorbell = queue.hqd.doorbell();
    tracing::debug!(slot = ?queue.slot, doorbell, "queue does not stop");
    hiq.shared.stats.work("queues that did not stop", 1);
    let name = [(dw::QUEUE_DOORBELL_ID0, doorbell)];
    if let Err(fault) = super::mqd::save(hiq.kernel_view(), hiq.mqd, &name) {
        tracing::warn!(slot = ?hiq.slot, %fault, "MQD not writable");
    }
}

/// An SDMA queue belongs to a partition, not to an XCC: the HIQ that mapped it, the master's, sees
/// to it.
fn unmap_sdma(shared: &Shared, xcc: u8, keep: Keep, filter: Filter) {
    shared.sdma.unmap(Some(xcc), filter, keep == Keep::Flight);
}

/// QUERY_STATUS: COMMAND 31:30, address, data. Everything before it has been done when it is its
/// turn. Of the HIQs of a partition the master's alone answers, which is rung last: another's
/// answer would be there while the master's queues are still being taken off, and their MQDs
/// written.
pub fn query_status(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    if cx.queue.follows() {
        return Ok(Flow::Next);
    }
    let command = query::COMMAND.of(body);
    if command != query_status_command::INTERRUPT_ONLY {
        let (address, value) = (query::ADDR_LO.wide(body) & !7, query::DATA_LO.wide(body));
        let bus = cx.view().bus;
        bus.write_fence(
            FenceKind::QueryStatus,
            cx.source.space,
            address,
            &value.to_le_bytes(),
        )?;
    }
    if matches!(
        command,
        query_status_command::INTERRUPT_ONLY
            | query_status_command::FENCE_WAIT_FOR_WRITE_ACK_SEND_INTERRUPT
    ) {
        let context = query::CONTEXT_ID.of(body);
        let interrupt = cx.queue.interrupt(SOURCE_QUERY_STATUS, [context, 0, 0, 0]);
        cx.queue.shared.bus.interrupt(interrupt);
    }
    Ok(Flow::Next)
}

/// INVALIDATE_TLBS: DST_SEL 3:0 (1 = by pasid), ALL_HUB 4, PASID 20:5.
pub fn invalidate_tlbs(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let (shared, xcc) = (&cx.queue.shared, cx.queue.slot.xcc);
    let pasid = invalidate::PASID.of(body) as u16;
    // gfx_v9_4_3_kiq_invalidate_tlbs: 1 is by PASID.
    let by_pasid = invalidate::DST_SEL.of(body) == 1;
    let all_hubs = invalidate::ALL_HUB.is_set(body);
    if !by_pasid {
        shared
            .stats
            .count("INVALIDATE_TLBS.DST_SEL other than by PASID");
        tracing::warn!(xcc, body = body[0], "INVALIDATE_TLBS");
    }
    // A process that is not mapped has nothing to invalidate: its next VMID starts with an empty
    // TLB.
    let vmids = match by_pasid {
        true => vmids_of(shared, xcc, pasid),
        false => vec![None],
    };
    for vmid in vmids {
        shared.bus.invalidate_tlb(xcc, vmid, all_hubs);
        shared.invalidate_code(vmid);
    }
    Ok(Flow::Next)
}

/// The VMIDs of a process: those that the scheduler gave it, and those that the driver says are
/// its.
fn vmids_of(shared: &Shared, xcc: u8, pasid: u16) -> Vec<Option<u8>> {
    let given = lock(&shared.hws).vmids_of(pasid);
    let hub = Hub::Gc(xcc);
    let said = |vmid: &u8| shared.bus.pasid(Space { hub, vmid: *vmid }) == pasid;
    let others = (1..16).filter(|vmid| !given.contains(vmid) && said(vmid));
    let others: Vec<u8> = others.collect();
    given.into_iter().chain(others).map(Some).collect()
}

/// RUN_LIST: IB base, size and flags. Replaces the XCC's run list and maps what fits.
pub fn run_list(cx: &mut Cx<'_>, body: &[u32]) -> Outcome {
    let shared = &cx.queue.shared;
    let xcc = cx.queue.slot.xcc;
    if !may_unmap(shared, xcc) {
        return Ok(Flow::Wait);
    }
    unmap_where(shared, cx.queue, Keep::Flight, None, |_| true);
    let copy = shared.rank(cx.queue);
    let runlist = Runlist::load(shared, cx.view(), copy, body)?;
    let mut hws = lock(&shared.hws);
    runlist.tell_conflicts(shared, hws.checks_xnack[usize::from(xcc)]);
    hws.runlists[usize::from(xcc)] = Some(runlist);
    runlist::map(shared, &mut hws, xcc);
    Ok(Flow::Next)
}

impl Shared {
    /// Whether a queue of an XCC's scheduler does not stop (fault injection). SDMA's belong to who
    /// mapped them.
    fn has_stuck(&self, xcc: u8) -> bool {
        let stuck = |queue: &Queue| queue.slot.xcc == xcc && queue.is_stuck();
        !self.mapped_slots(stuck).is_empty() || self.sdma.has_stuck(xcc)
    }

    /// Which copy of its HIQ this is: HIQs of a partition share a doorbell, the first is the
    /// master.
    fn rank(&self, hiq: &Queue) -> u8 {
        let state = lock(&self.state);
        let slots = state.doorbells.get(&hiq.hqd.doorbell());
        slots
            .and_then(|slots| slots.iter().position(|slot| *slot == hiq.slot))
            .unwrap_or(0) as u8
    }

    /// A free slot among those that SET_RESOURCES gave to the scheduler.
    fn free_slot(&self, xcc: u8, mask: u64) -> Option<SlotId> {
        let state = lock(&self.state);
        (0..64)
            .filter(|bit| mask >> bit & 1 != 0)
            .map(|bit: u8| SlotId {
                xcc,
                me: bit / 32 + 1,
                pipe: bit / 8 % 4,
                queue: bit % 8,
            })
            .find(|slot| !state.mapped.contains_key(slot))
    }

    /// The MQD of a queue that is about to be mapped.
    pub fn load_mqd(&self, xcc: u8, address: u64) -> Result<Mqd, Fault> {
        let mqd = Mqd::load(self.kernel_view(xcc), address)?;
        if !mqd.has_header() {
            self.stats.count("MQD without its header");
            tracing::warn!(xcc, address, header = mqd.get(dw::HEADER), "MQD");
        }
        Ok(mqd)
    }

    fn map_sdma(&self, engine: u8, queue: RlcQueue) -> bool {
        match self.sdma.map(engine, queue) {
            Ok(mapped) => mapped,
            Err(fault) => {
                tracing::warn!(engine, %fault, "SDMA queue not mapped");
                let space = self.kernel_view(0).space;
                self.bus.fault(space, 0, fault, OnFault::Ends);
                // It is not for want of a slot.
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_keeps_its_vmid_until_another_needs_it() {
        let mut hws = Hws::new(2);
        hws.vmid_mask = vec![0x0300; 2];
        assert_eq!(hws.acquire(10, 0), Some(8));
        assert_eq!(hws.acquire(11, 0), Some(9));
        assert_eq!(hws.acquire(10, 1), Some(8));
        assert_eq!(hws.acquire(12, 0), None);
        hws.release(0, None);
        assert_eq!(hws.acquire(12, 0), Some(9), "8 is in use by XCC 1");
        assert!(hws.vmids_of(11).is_empty());
    }

    #[test]
    fn engines_are_named_in_two_ways() {
        let map = |control| MapQueue::decode(&[control, 0, 0, 0, 0, 0]).engine;
        assert_eq!(map(3 << 26), EngineSel::Sdma(1));
        assert_eq!(map(2 << 26), EngineSel::Sdma(0));
        assert_eq!(map(1 << 26), EngineSel::Hiq);
        assert_eq!(map(1 << 2 | 5 << 26), EngineSel::Sdma(5));
        assert_eq!(map(2 << 2 | 5 << 26), EngineSel::Sdma(13));
        assert_eq!(map(0), EngineSel::Compute);
    }
}
