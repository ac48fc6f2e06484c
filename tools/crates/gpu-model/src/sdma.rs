// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The SDMA engines (4.4.2, and 4.4.0 of MI200): copies, fills, page-table updates and fences. One
//! [`Sdma`] per GPU.
//!
//! Each engine has ten rings: GFX and PAGE, set up by the kernel through registers, and RLC0 to 7
//! for user queues, loaded from an MQD by the hardware scheduler or through registers by the
//! driver. A ring is registers and nothing else; who runs it is the engine of
//! [`crate::processor::runner`]. Addresses go through MMHUB.

pub mod layout;
mod packet;
mod ring;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::engine::Progress;
use crate::ih::client;
use crate::preset::Generation;
use crate::processor::bus::{Bus, Fault, Hub, Space, View};
use crate::processor::copy::{self, CopyEngines, Filter, RlcQueue};
use crate::processor::lock;
use crate::processor::runner::{Job, Runner, Task};
use crate::processor::saved::Saved;
use crate::processor::stats::Stats;
use layout::{cntl, context, f32_cntl, reg, reg_4_4_0, status_reg};
use ring::{Flight, Ring};

/// Clients of the interrupt handler, by engine of a die.
pub const CLIENTS: [u8; 5] = [
    client::SDMA0,
    client::SDMA1,
    client::SDMA2,
    client::SDMA3,
    client::SDMA4,
];
/// Dwords of an engine's register space.
pub const ENGINE_DWORDS: u32 = 0x600;
/// Rings of an engine: GFX, PAGE, RLC0 to RLC7.
const FIRST_RLC: usize = 2;
const RINGS: usize = FIRST_RLC + copy::RINGS;
/// Registers from one user ring to the next.
const CONTEXT: u32 = reg::RLC1_RB_CNTL - reg::RLC0_RB_CNTL;

/// Dwords of struct v9_sdma_mqd that the model reads.
pub const MQD_DWORDS: usize = 42;
/// A reserved dword of it: names what was kept of a preempted queue.
pub const MQD_SAVED_TOKEN: u64 = 42;

/// The ring register that MQD dword `dword` images.
pub const fn context_of_mqd(dword: usize) -> usize {
    match dword {
        0..=18 => dword,
        19..=24 => dword + 0x28 - 19,
        25..=31 => dword + 0x2f - 25,
        32..=40 => dword + 0x40 - 32,
        _ => 0x4b,
    }
}

struct Unit {
    registers: Mutex<Vec<u32>>,
    rings: Vec<(Arc<Ring>, Arc<Task>)>,
}

/// What generations have otherwise: registers of an engine that are not a ring's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// F32_CNTL.
    pub f32_cntl: u32,
    /// CNTL.
    pub cntl: u32,
    /// Dwords of an engine's register space.
    pub dwords: u32,
    /// Engines that a die has clients of the interrupt handler for.
    pub engines_of_die: u8,
}

impl Places {
    /// SDMA 4.4.2.
    const MI300: Self = Self {
        f32_cntl: reg::F32_CNTL,
        cntl: reg::CNTL,
        dwords: ENGINE_DWORDS,
        engines_of_die: 4,
    };
    /// SDMA 4.4.0 (`sdma_4_4_0_offset.h`).
    const MI200: Self = Self {
        f32_cntl: reg_4_4_0::F32_CNTL,
        cntl: reg_4_4_0::CNTL,
        dwords: 0x400,
        engines_of_die: 5,
    };

    /// A generation's.
    pub const fn of(generation: Generation) -> Self {
        match generation {
            Generation::Mi200 => Self::MI200,
            Generation::Mi300 => Self::MI300,
        }
    }
}

/// What all engines share.
struct Common {
    places: Places,
    bus: Arc<dyn Bus>,
    stats: Arc<Stats>,
}

/// The engines.
pub struct Sdma {
    common: Arc<Common>,
    runner: Arc<Runner>,
    units: Vec<Arc<Unit>>,
    saved: Mutex<Saved<Flight>>,
    /// Serialises map and unmap.
    serial: Mutex<()>,
}

/// Slices of a kernel ring that a write to its doorbell waits for.
const KERNEL_SLICES: usize = 4;

impl Sdma {
    /// `count` engines of a generation at rest.
    pub fn new(
        bus: Arc<dyn Bus>,
        runner: Arc<Runner>,
        stats: Arc<Stats>,
        (generation, count): (Generation, u8),
    ) -> Self {
        let places = Places::of(generation);
        let common = Arc::new(Common { places, bus, stats });
        let units = (0..count).map(|index| Unit::new(&common, index)).collect();
        Sdma {
            common,
            runner,
            units,
            saved: Mutex::default(),
            serial: Mutex::default(),
        }
    }

    fn unit(&self, engine: u8) -> Option<&Arc<Unit>> {
        self.units.get(usize::from(engine))
    }

    fn kernel_view(&self) -> View<'_> {
        View {
            bus: &*self.common.bus,
            space: Space {
                hub: Hub::Mm,
                vmid: 0,
            },
        }
    }

    /// A register of an engine; `offset` in dwords from its base.
    pub fn reg_read(&self, engine: u8, offset: u32) -> Option<u32> {
        let unit = self.unit(engine)?;
        if let Some((ring, at)) = unit.ring_at(offset) {
            return Some(ring.reg_read(at));
        }
        if offset == reg::STATUS_REG {
            return Some(status_reg::IDLE.place(unit.is_idle().into()));
        }
        lock(&unit.registers).get(offset as usize).copied()
    }

    /// Writes a register. False: there is none.
    pub fn reg_write(&self, engine: u8, offset: u32, value: u32) -> bool {
        let Some(unit) = self.unit(engine) else {
            return false;
        };
        if let Some((ring, at)) = unit.ring_at(offset) {
            if ring.reg_write(at, value) {
                self.wake(unit, ring);
            }
            return true;
        }
        let known = match lock(&unit.registers).get_mut(offset as usize) {
            Some(register) => {
                *register = value;
                true
            }
            None => false,
        };
        match offset {
            _ if offset == self.common.places.cntl => unit
                .rings
                .iter()
                .for_each(|(ring, _)| ring.enable_traps(cntl::TRAP_ENABLE.pick(value) != 0)),
            _ if offset == self.common.places.f32_cntl => {
                for (ring, task) in &unit.rings {
                    ring.halt(f32_cntl::HALT.pick(value) != 0);
                    self.runner.wake(task);
                }
            }
            _ => {}
        }
        known
    }

    fn wake(&self, unit: &Unit, ring: &Arc<Ring>) {
        if let Some((_, task)) = unit.rings.iter().find(|(at, _)| Arc::ptr_eq(at, ring)) {
            self.runner.wake(task);
        }
    }

    /// A write to the doorbell aperture. False if no ring listens.
    pub fn doorbell(&self, offset: u64, value: u64, bytes: usize) -> bool {
        let dword = (offset / 4) as u32;
        let mut found = false;
        let rings = self
            .units
            .iter()
            .flat_map(|unit| unit.rings.iter().enumerate());
        for (number, (ring, task)) in rings {
            if ring.listens(dword) {
                found = true;
                ring.ring(if bytes == 4 {
                    ring.wptr() & !0xffff_ffff | value
                } else {
                    value
                });
                if let Some(late) = self.lateness() {
                    self.runner.wake_later(task, late);
                } else if number >= FIRST_RLC || !self.finishes(ring) {
                    self.runner.wake(task);
                }
            }
        }
        if found {
            self.runner.poll();
        }
        found
    }

    /// How late a doorbell is heard, if it is (hostile mode).
    fn lateness(&self) -> Option<Duration> {
        const LATEST: Duration = Duration::from_millis(3);
        let hostile = self.common.bus.hostile()?;
        hostile.one_in(2).then(|| hostile.time(LATEST))
    }

    /// Runs a ring of the kernel's on this thread for a few slices: true if that was all. What it
    /// is asked for is short, a chip has done it within microseconds, and its driver gives it
    /// little time.
    fn finishes(&self, ring: &Ring) -> bool {
        (0..KERNEL_SLICES)
            .map(|_| self.runner.guard(|| ring.step()))
            .find(|progress| *progress != Progress::Busy)
            == Some(Progress::Idle)
    }

    fn save(&self, ring: &Ring, mqd: u64, flight: Flight, keep: bool) -> Result<(), Fault> {
        let view = self.kernel_view();
        let (rptr, wptr) = (ring.rptr(), ring.wptr());
        view.write64(mqd + 4 * context::RB_RPTR as u64, rptr)?;
        view.write64(mqd + 4 * context::RB_WPTR as u64, wptr)?;
        if keep && !flight.is_empty() {
            let token = lock(&self.saved).put(mqd, flight);
            view.write32(mqd + 4 * MQD_SAVED_TOKEN, token)?;
        }
        Ok(())
    }

    /// Resets one engine (the SMU's message), or all: registers are 0, nothing is mapped.
    pub fn reset(&self, engine: Option<u8>) {
        let _serial = lock(&self.serial);
        for (index, unit) in (0u8..).zip(&self.units) {
            if engine.is_none_or(|engine| engine == index) {
                unit.rings.iter().for_each(|(ring, _)| ring.reset());
                lock(&unit.registers).fill(0);
            }
        }
        if engine.is_none() {
            *lock(&self.saved) = Saved::default();
        }
    }
}

impl CopyEngines for Sdma {
    fn engines(&self) -> u32 {
        self.units.len() as u32
    }

    fn map(&self, engine: u8, queue: RlcQueue) -> Result<bool, Fault> {
        let _serial = lock(&self.serial);
        let Some(unit) = self.unit(engine) else {
            self.common
                .stats
                .count("MAP_QUEUES to an SDMA engine that is not there");
            tracing::warn!(engine, "no such SDMA engine");
            return Ok(true);
        };
        // The last one: whoever counts on the number in the MQD is wrong.
        let free = unit.rings[FIRST_RLC..]
            .iter()
            .rfind(|(ring, _)| !ring.is_enabled());
        let Some((ring, task)) = free else {
            return Ok(false);
        };
        let mqd = self.kernel_view().dwords(queue.mqd, MQD_DWORDS + 1)?;
        let token = mqd[MQD_SAVED_TOKEN as usize];
        let flight = lock(&self.saved).take(queue.mqd, token);
        if token != 0 {
            self.kernel_view()
                .write32(queue.mqd + 4 * MQD_SAVED_TOKEN, 0)?;
        }
        ring.load(&queue, &mqd[..MQD_DWORDS], flight);
        if queue.wptr != 0 {
            ring.poll_wptr(queue.wptr);
        }
        tracing::debug!(engine, ?queue, "SDMA queue mapped");
        self.runner.wake(task);
        Ok(true)
    }

    fn unmap(&self, xcc: Option<u8>, filter: Filter, keep: bool) {
        let _serial = lock(&self.serial);
        for (ring, _) in self.units.iter().flat_map(|unit| &unit.rings[FIRST_RLC..]) {
            let Some((mqd, flight)) = ring.unload(xcc, filter) else {
                continue;
            };
            if let Err(fault) = self.save(ring, mqd, flight, keep) {
                tracing::warn!(mqd, %fault, "SDMA MQD not saved");
            }
        }
    }

    fn has_stuck(&self, xcc: u8) -> bool {
        let mut rings = self.units.iter().flat_map(|unit| &unit.rings[FIRST_RLC..]);
        rings.any(|(ring, _)| ring.is_stuck(xcc))
    }
}

impl Unit {
    fn new(common: &Arc<Common>, index: u8) -> Arc<Self> {
        let held_by = ring::unheld();
        let rings = (0..RINGS as u8)
            .map(|number| {
                let ring = Ring::new(common.clone(), index, number, held_by.clone());
                let ring = Arc::new(ring);
                (ring.clone(), Task::new(ring))
            })
            .collect();
        Arc::new(Unit {
            registers: Mutex::new(vec![0; ENGINE_DWORDS as usize]),
            rings,
        })
    }

    /// The ring that a register belongs to, and its place among the ring's.
    fn ring_at(&self, offset: u32) -> Option<(&Arc<Ring>, usize)> {
        let (number, at) = match offset {
            reg::GFX_RB_CNTL..reg::PAGE_RB_CNTL => (0, offset - reg::GFX_RB_CNTL),
            reg::PAGE_RB_CNTL..reg::RLC0_RB_CNTL => (1, offset - reg::PAGE_RB_CNTL),
            _ => {
                let from = offset.checked_sub(reg::RLC0_RB_CNTL)?;
                (FIRST_RLC as u32 + from / CONTEXT, from % CONTEXT)
            }
        };
        self.rings
            .get(number as usize)
            .map(|(ring, _)| (ring, at as usize))
    }

    fn is_idle(&self) -> bool {
        self.rings.iter().all(|(ring, _)| ring.is_idle())
    }
}
