// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Compute wave save and restore (CWSR): a preempted queue's waves go to the context save area of
//! its owner and come back from there. Of one queue at a time, by whoever unmaps or runs it.
//!
//! As on hardware the waves save themselves: TRAPSTS.SAVECTX sends each into the trap handler that
//! the driver has installed, which asks by MSG_SAVEWAVE for a place, stores registers and LDS there
//! and ends. A wave to be restored begins at the handler's second instruction with the place in
//! EXEC. What the model does is the SPI's and the CP's part: places, the control stack behind the
//! MQD, the MQD's CP_HQD_CNTL_STACK_* and CP_HQD_WG_STATE_OFFSET. Sources:
//! `amdkfd/cwsr_trap_handler_gfx9.asm`, `amdkfd/kfd_mqd_manager_v9.c`.

mod stack;

use gcn::wave::status;
use gcn::{CodeCache, Fault, Outcome, Wave, WaveState, Workgroup};

use super::launch::{message_of, settle, Launch, Live, Parked, ScratchRing, Turn, MSG_SAVEWAVE};
use super::mqd::dw;
use super::queue::Queue;
use stack::{Group, Size};

/// The control stack lies in the page after the MQD's.
const STACK_FROM_MQD: u64 = 0x1000;
/// Instructions that a group gets to save itself: far more than the handler needs for 16 waves and
/// all of the LDS.
const BUDGET: u64 = 16 << 20;
/// The address that the SPI gives: FIRST_WAVE is bit 26 of its high dword.
const FIRST_WAVE: u64 = 1 << 58;
/// From the trap handler's beginning to where restored waves begin.
const RESTORE_ENTRY: u64 = 4;

/// Why waves could not be saved.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The queue or its process has no means for it.
    #[error("no save area or no trap handler")]
    Without,
    /// The process's page tables do not lead to its trap handler.
    #[error("the trap handler is not mapped: {0}")]
    Unmapped(Fault),
    /// The area is too small.
    #[error("the save area is too small: {0} bytes needed")]
    Room(u64),
    /// The area's memory refused.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// The handler did not do its work.
    #[error("the trap handler failed: {0}")]
    Handler(String),
    /// What lies in the area is not what was saved.
    #[error("the control stack is corrupt")]
    Corrupt,
}

/// A queue's context save area on one XCC.
#[derive(Clone, Copy, Debug)]
struct Area {
    base: u64,
    size: u64,
    stack_size: u64,
    /// The control stack's room, in the kernel's memory.
    stack: u64,
}

impl Area {
    fn of(queue: &Queue) -> Option<Self> {
        let area = Area {
            base: queue.hqd.save_area(),
            size: queue.hqd.get(dw::CP_HQD_CTX_SAVE_SIZE).into(),
            stack_size: u64::from(queue.hqd.get(dw::CP_HQD_CNTL_STACK_SIZE)) & !3,
            stack: queue.mqd + STACK_FROM_MQD,
        };
        (area.base != 0 && area.stack_size != 0 && area.size > area.stack_size).then_some(area)
    }
}

/// MQD dwords that say what the area holds: CP_HQD_CNTL_STACK_OFFSET and CP_HQD_WG_STATE_OFFSET.
pub type Marks = [(usize, u32); 2];

fn marks(stack_offset: u64, state_offset: u64) -> Marks {
    [
        (dw::CP_HQD_CNTL_STACK_OFFSET, stack_offset as u32),
        (dw::CP_HQD_WG_STATE_OFFSET, state_offset as u32),
    ]
}

/// The marks of an empty area; None: the queue has none.
pub fn empty(queue: &Queue) -> Option<Marks> {
    Area::of(queue).map(|area| marks(area.stack_size, area.stack_size))
}

/// Saves all waves of a dispatch. Afterwards it has no live groups, and what it has parked is in
/// the area.
pub fn save(queue: &Queue, launch: &mut Launch, codes: &mut [CodeCache]) -> Result<Marks, Failure> {
    let area = Area::of(queue).ok_or(Failure::Without)?;
    if !launch.parked().is_empty() {
        // Preempted again before it ran: everything is where it was.
        let marks = [dw::CP_HQD_CNTL_STACK_OFFSET, dw::CP_HQD_WG_STATE_OFFSET];
        return Ok(marks.map(|dword| (dword, queue.hqd.get(dword))));
    }
    finish_restores(queue, launch, codes)?;
    launch.sweep(queue);
    // Before anything is changed: waves that cannot fetch the handler could only be lost.
    let handler = launch.dispatch().tba;
    if handler == 0 {
        return Err(Failure::Without);
    }
    queue.view().read32(handler).map_err(Failure::Unmapped)?;
    let (groups, end) = plan(launch, area, lds_granule(queue));
    let words = stack::encode(&groups);
    let stack_bytes = 4 * words.len() as u64;
    if end > area.size || stack_bytes > area.stack_size {
        return Err(Failure::Room(end.max(stack_bytes)));
    }
    if launch.live().iter_mut().any(|live| !ask(queue, live)) {
        return Err(Failure::Without);
    }
    let parked: Vec<Parked> = launch.live().iter().map(parked).collect();
    run_handlers(queue, launch, &groups, area, codes)?;
    let offset = area.stack_size - stack_bytes;
    queue
        .kernel_view()
        .write_dwords(area.stack + offset, &words)?;
    let waves: usize = groups.iter().map(|group| group.waves.len()).sum();
    queue.shared.stats.work("waves saved", waves as u64);
    let (groups, bytes) = (parked.len(), end - area.stack_size);
    tracing::debug!(target: "cwsr", slot = ?queue.slot, groups, waves, bytes, "saved");
    launch.park(queue, parked);
    Ok(marks(offset, end))
}

/// The numbers of the waves that handlers were asked for.
fn parked(live: &Live) -> Parked {
    let waves = live.group.waves.iter();
    Parked {
        slot: live.slot,
        waves: waves.map(|wave| wave.number).collect(),
    }
}

/// Places for all live waves, and the end of them, from the beginning of the area. Waves that have
/// ended are dropped.
fn plan(launch: &mut Launch, area: Area, granule: u32) -> (Vec<Group>, u64) {
    let ring = launch.scratch();
    let mut end = area.stack_size;
    let mut groups = Vec::with_capacity(launch.live().len());
    for Live { group, .. } in launch.live() {
        let scratch: Vec<_> = group
            .waves
            .iter()
            .filter(|wave| wave.state != WaveState::Ended)
            .map(|wave| scratch_of(ring, wave))
            .collect();
        let (vgprs, accs) = match group.waves.first() {
            Some(wave) => (wave.vgpr.len(), wave.acc.len()),
            None => (0, 0),
        };
        let size = Size::of(vgprs, accs, group.lds.len(), granule);
        let (placed, next) = Group::place(size, &scratch, end);
        end = next;
        groups.push(placed);
    }
    (groups, end)
}

/// The scoreboard's words for a wave's scratch: shader engine and number in it.
fn scratch_of(ring: ScratchRing, wave: &Wave) -> Option<(u8, u16)> {
    const ENGINES: u32 = 4;
    let number = wave.scratch_base().checked_sub(ring.base)? / ring.wave_bytes.max(1);
    let per_engine = (ring.waves / ENGINES).max(1);
    let number = u32::try_from(number).ok().filter(|at| *at < ring.waves)?;
    Some(((number / per_engine) as u8, (number % per_engine) as u16))
}

/// Asks all waves of a group to save themselves. False: they have no handler.
fn ask(queue: &Queue, live: &mut Live) -> bool {
    for (_, request, ticket) in live.gws.drain(..) {
        queue.shared.gws_leave(queue, request, ticket);
    }
    let group = &mut live.group;
    group.waves.retain(|wave| wave.state != WaveState::Ended);
    group.waves.iter_mut().all(Wave::save_context)
}

/// Lets waves that have been launched to restore themselves do so to the end, before their places
/// are given to others.
fn finish_restores(
    queue: &Queue,
    launch: &mut Launch,
    codes: &mut [CodeCache],
) -> Result<(), Failure> {
    let live = launch.live().iter_mut();
    let mut parts: Vec<&mut Live> = live.filter(|live| live.restoring).collect();
    together(queue, &mut parts, codes, |live, code| {
        finish_restore(queue, live, code)
    })
}

/// Runs a group until none of its waves is in the handler that restores it.
fn finish_restore(queue: &Queue, live: &mut Live, code: &mut CodeCache) -> Result<(), Failure> {
    /// Few instructions: waves that are back run the kernel meanwhile.
    const TURN: u64 = 64;
    /// A page that does not come: waves that are back may wait for one, but the others have none to
    /// wait for.
    const WAITS: u32 = 64 * 1024;
    let end = live.group.executed.saturating_add(BUDGET);
    let mut waits = 0;
    while live.is_restoring() {
        if live.group.executed >= end || waits > WAITS {
            return Err(Failure::Handler("it does not restore its waves".into()));
        }
        let outcome = queue.as_wave(live.unit, |memory| live.group.run(memory, code, TURN));
        match settle(queue, live, code, outcome) {
            Turn::On => {}
            Turn::Waits => waits += 1,
            Turn::Done | Turn::Halted => return Ok(()),
            Turn::Hung(why) => return Err(Failure::Handler(why)),
        }
    }
    Ok(())
}

/// Runs the trap handlers of all groups to their ends.
fn run_handlers(
    queue: &Queue,
    launch: &mut Launch,
    groups: &[Group],
    area: Area,
    codes: &mut [CodeCache],
) -> Result<(), Failure> {
    let mut parts: Vec<_> = launch.live().iter_mut().zip(groups).collect();
    together(queue, &mut parts, codes, |(live, group), code| {
        save_group(queue, live, group, area, code)
    })
}

/// Does something to all of these, on all of the crew's threads.
fn together<T: Send>(
    queue: &Queue,
    items: &mut [T],
    codes: &mut [CodeCache],
    work: impl Fn(&mut T, &mut CodeCache) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let chunk = items.len().div_ceil(codes.len().max(1)).max(1);
    let mut parts: Vec<_> = items
        .chunks_mut(chunk)
        .zip(codes)
        .map(|(items, code)| (items, code, Ok(())))
        .collect();
    let work = |(items, code, result): &mut Part<'_, T>| {
        *result = items.iter_mut().try_for_each(|item| work(item, code));
    };
    match &queue.shared.crew {
        Some(crew) => crew.run(&mut parts, work),
        None => parts.iter_mut().for_each(work),
    }
    parts.into_iter().try_for_each(|(.., result)| result)
}

/// A thread's items.
type Part<'a, T> = (&'a mut [T], &'a mut CodeCache, Result<(), Failure>);

/// Runs a group in its trap handler until all its waves have ended, and answers what they ask.
fn save_group(
    queue: &Queue,
    Live { group, unit, .. }: &mut Live,
    places: &Group,
    area: Area,
    code: &mut CodeCache,
) -> Result<(), Failure> {
    let end = group.executed.saturating_add(BUDGET);
    loop {
        let left = end.saturating_sub(group.executed);
        match queue.as_wave(*unit, |memory| group.run(memory, code, left)) {
            Outcome::Done => return Ok(()),
            Outcome::Message { wave, message, .. } if message & 0xf == MSG_SAVEWAVE => {
                let place = places.waves[wave];
                let first = if place.first { FIRST_WAVE } else { 0 };
                group.waves[wave].set_exec((area.base + place.offset) | first);
            }
            Outcome::Message { wave, message, m0 } => message_of(queue, group, wave, message, m0),
            Outcome::Fault { fault, .. } => return Err(fault.into()),
            Outcome::Error { error, .. } => return Err(Failure::Handler(error.to_string())),
            Outcome::Trap { .. } => {}
            other => return Err(Failure::Handler(format!("{other:?}"))),
        }
    }
}

/// What LDS is allocated in.
fn lds_granule(queue: &Queue) -> u32 {
    queue.shared.bus.cores().target.lds_granule()
}

/// Launches the waves that the area holds: they restore themselves when they run.
pub fn restore(queue: &Queue, launch: &mut Launch) -> Result<(), Failure> {
    let area = Area::of(queue).ok_or(Failure::Without)?;
    let offset = u64::from(queue.hqd.get(dw::CP_HQD_CNTL_STACK_OFFSET)).min(area.stack_size);
    let end = queue.hqd.get(dw::CP_HQD_WG_STATE_OFFSET).into();
    let count = (area.stack_size - offset) / 4;
    let words = queue
        .kernel_view()
        .dwords(area.stack + offset, count as usize)?;
    let groups = stack::decode(&words, end, lds_granule(queue)).ok_or(Failure::Corrupt)?;
    let agree = |(group, parked): (&Group, &Parked)| group.waves.len() == parked.waves.len();
    let parked = launch.parked();
    if groups.len() != parked.len() || !groups.iter().zip(parked).all(agree) {
        return Err(Failure::Corrupt);
    }
    let live: Vec<Live> = groups
        .iter()
        .zip(parked)
        .map(|(group, parked)| relaunch(queue, launch, group, parked, area))
        .collect();
    let waves: usize = groups.iter().map(|group| group.waves.len()).sum();
    queue.shared.stats.work("waves restored", waves as u64);
    tracing::debug!(target: "cwsr", slot = ?queue.slot, groups = live.len(), waves, "restored");
    launch.unpark(live);
    Ok(())
}

fn relaunch(queue: &Queue, launch: &Launch, group: &Group, parked: &Parked, area: Area) -> Live {
    let Size {
        vgprs,
        all_vgprs,
        lds_bytes,
        ..
    } = group.size;
    let dispatch = launch.dispatch();
    let (vgprs, accs) = (vgprs as usize, (all_vgprs - vgprs) as usize);
    let wave = |(place, number): (&stack::Saved, &u32)| {
        let mut wave = Wave::new(dispatch.tba + RESTORE_ENTRY, vgprs, accs);
        wave.status = status::PRIV | status::TRAP_EN;
        (wave.tba, wave.tma) = (dispatch.tba, dispatch.tma);
        launch.identify(queue, parked.slot, *number, &mut wave);
        let first = if place.first { FIRST_WAVE } else { 0 };
        wave.set_exec((area.base + place.offset) | first);
        wave
    };
    let waves = group.waves.iter().zip(&parked.waves).map(wave).collect();
    let mut group = Workgroup::new(waves, lds_bytes as usize, dispatch.apertures);
    group.debug = queue.control().debug;
    Live {
        group,
        slot: parked.slot,
        unit: launch.unit(parked.slot),
        gws: Vec::new(),
        restoring: true,
    }
}

/// The saved waves of a control stack: where each record begins in the area, and whether it is its
/// group's first.
#[cfg(test)]
pub fn waves_in_stack(words: &[u32], end: u64, lds_granule: u32) -> Vec<(u64, bool)> {
    let groups = stack::decode(words, end, lds_granule).expect("a control stack");
    let waves = groups.iter().flat_map(|group| &group.waves);
    waves.map(|wave| (wave.offset, wave.first)).collect()
}
