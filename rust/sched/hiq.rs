// SPDX-License-Identifier: GPL-2.0-only

//! The HIQ (HSA interface queue): the queue of ours through which the firmware's scheduler takes
//! its orders.
//!
//! One [`Hiq`] per node, part of its run-list scheduler. Where its ring stands is a [`Cursor`],
//! which the scheduler keeps under its lock: orders are given one after the other.

use super::{
    doorbells::OwnDoorbells,
    memory::{
        NodeMemory,
        RING_BYTES, //
    },
    partition::{
        xccs,
        Config, //
    },
    preemption::check_available,
    ring::Ring, //
};
use crate::{
    gfx::{
        Generation,
        HiqQueue,
        Packet,
        Resources,
        Words,
        XccMqd,
        PAGE_BYTES, //
    },
    ids::DoorbellIndex,
    kgd::{
        gpu_err,
        GpuFacts,
        HqdPosition,
        Kgd, //
    },
    linux::{
        barrier::mb,
        errno, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// The firmware has so long at least to confirm an order, whatever amdgpu's parameter says.
const SHORTEST_TIMEOUT_MS: u32 = 10;

/// How long the firmware waits for a queue, in tenths of a second. More than its field holds is as
/// much as it holds.
fn unmap_latency(facts: &GpuFacts) -> u32 {
    let tenths = facts.unmap_latency_ms() / 100;
    u8::try_from(tenths).unwrap_or(u8::MAX).into()
}

/// How far the HIQ has been written, and its fence.
pub(super) struct Cursor {
    ring: Ring<{ RING_BYTES as u64 / 4 }>,
    /// The value that the fence had, or will have, last.
    fence: u64,
    /// `CP_IQ_WAIT_TIME2`, where queues leave as usual.
    wait_times: u32,
}

impl Cursor {
    /// The beginning.
    pub(super) const fn new() -> Self {
        Self {
            ring: Ring::new(),
            fence: 0,
            wait_times: 0,
        }
    }
}

/// The queue.
pub(super) struct Hiq {
    kgd: Arc<dyn Kgd>,
    generation: Generation,
    memory: Arc<NodeMemory>,
    doorbells: OwnDoorbells,
    config: Config,
}

impl Hiq {
    /// A queue that is not on the hardware yet.
    pub(super) fn new(
        kgd: Arc<dyn Kgd>,
        generation: Generation,
        memory: Arc<NodeMemory>,
        config: Config,
        doorbells: OwnDoorbells,
    ) -> Self {
        Self {
            doorbells,
            kgd,
            generation,
            memory,
            config,
        }
    }

    /// Loads it onto the hardware and sends SET_RESOURCES. The caller sees to it
    /// that no reset comes in between, or is the end of one.
    pub(super) fn start(&self) -> Result<Cursor> {
        self.memory.forget()?;
        let mut cursor = Cursor::new();
        self.load()?;
        self.set_resources(&mut cursor)?;
        Ok(cursor)
    }

    /// The node's logical XCCs.
    pub(super) fn xcc_mask(&self) -> u32 {
        self.config.xcc_mask
    }

    /// The device's number for the node's first copy engine.
    pub(super) fn first_engine(&self) -> u32 {
        self.config.first_engine
    }

    /// Which partition of its device the node is.
    pub(super) fn partition(&self) -> u32 {
        self.config.partition
    }

    /// Takes it off the hardware: all XCCs are tried, the first error counts.
    pub(super) fn stop(&self) -> Result {
        let mut result = Ok(());
        for (logical, _) in xccs(self.config.xcc_mask) {
            let off = self.kgd.unmap_hiq(self.doorbell(), logical);
            if let Err(error) = off {
                let name = self.kgd.facts().pci_name();
                gpu_err!(name, "XCC {logical}: cannot unmap the HIQ: {error:?}\n");
            }
            result = result.and(off);
        }
        result
    }

    /// The HIQ has the first doorbell of the node's page.
    fn doorbell(&self) -> DoorbellIndex {
        self.doorbells.first()
    }

    /// Writes the HIQ's descriptors and loads them, one for each XCC.
    fn load(&self) -> Result {
        let (read_pointer, write_pointer, eop) = self.memory.pointers()?;
        let queue = HiqQueue {
            ring: self.memory.ring().1,
            ring_bytes: RING_BYTES as u32,
            read_pointer,
            write_pointer,
            eop: (eop, PAGE_BYTES),
            doorbell: self.doorbell(),
        };
        let (pipe, slot) = self.generation.chip.hiq_slot;
        let position = HqdPosition { pipe, queue: slot };
        for (_, within) in xccs(self.config.xcc_mask) {
            let (_, words, address) = self.memory.hiq_mqd(within)?;
            let at = XccMqd {
                xcc: within,
                address,
                stride: self.generation.formats.mqd.bytes() as u32,
                logical_xcc: 0,
            };
            self.generation.formats.mqd.hiq(&words, at, &queue);
        }
        for (logical, within) in xccs(self.config.xcc_mask) {
            let (offset, _, _) = self.memory.hiq_mqd(within)?;
            let bo = self.memory.bo();
            bo.load_hiq(offset, position, self.doorbell(), logical)?;
        }
        Ok(())
    }

    /// Sends SET_RESOURCES: the VMIDs and queues that the firmware may use. Enables interrupts.
    fn set_resources(&self, cursor: &mut Cursor) -> Result {
        let facts = self.kgd.facts();
        let resources = Resources {
            vmid_mask: self.config.vmid_mask,
            queue_mask: facts.set_resources_queue_mask,
            unmap_latency: unmap_latency(facts),
            xnack_chain: self.xnack_chain(),
        };
        let mut wait_times = 0;
        for (logical, _) in xccs(self.config.xcc_mask) {
            if wait_times == 0 {
                wait_times = self.kgd.iq_wait_times(logical);
            }
            for pipe in (0..8).filter(|pipe| resources.queue_mask >> (8 * pipe) & 0xff != 0) {
                self.kgd.init_interrupts(pipe, logical)?;
            }
        }
        // On an APU a queue is given up sooner; on all, an idle one is asked again after 1 µs.
        let grace = u32::from(facts.is_app_apu && !facts.emulation);
        let wait = self.kgd.dequeue_wait_counts(wait_times, grace, 1);
        let format = self.generation.formats.runlist;
        cursor.wait_times = wait.value;
        self.submit(cursor, &format.set_resources(&resources))?;
        self.submit(cursor, &format.write_register(wait.offset, wait.value))
    }

    /// Says how long waves have to end by themselves when their queue is to leave, in units of 1000
    /// clocks, from 1 to 255 (`CP_IQ_WAIT_TIME2.SCH_WAVE`; others mean the nearest of these).
    /// `None`: as long as usual.
    pub(super) fn set_grace(&self, cursor: &mut Cursor, grace: Option<u32>) -> Result {
        // Firmware has taken 0 for "for ever", and a debugger means at once.
        let grace = grace.map_or(0, |grace| grace.clamp(1, u8::MAX.into()));
        let wait = self.kgd.dequeue_wait_counts(cursor.wait_times, grace, 0);
        let format = self.generation.formats.runlist;
        self.submit(cursor, &format.write_register(wait.offset, wait.value))
    }

    fn timeout_ms(&self) -> u32 {
        self.kgd.facts().queue_preemption_timeout_ms
    }

    /// Whether processes with and without XNACK must not be on the hardware together.
    pub(super) fn xnack_chain(&self) -> bool {
        /// `AMDGPU_GMC_XNACK_FLAG_CHAIN`
        const CHAIN: u16 = 1 << 0;
        self.kgd.facts().xnack_flags & CHAIN != 0
    }

    /// Puts `packet` into the HIQ, in one piece, and rings its doorbell. `EIO`: nobody would read
    /// it, for a fatal error.
    pub(super) fn submit(&self, cursor: &mut Cursor, packet: &Packet) -> Result {
        if self.kgd.has_fatal_error() {
            return Err(EIO);
        }
        let words = packet.words();
        let read = self.memory.read_pointer()?;
        let place = cursor.ring.reserve(read, words.len()).ok_or(ENOMEM)?;
        let (ring, _) = self.memory.ring();
        for dword in place.fill_from..place.fill_from + place.fill {
            ring.set(dword, self.generation.formats.runlist.nop());
        }
        ring.set_row(place.start, words);
        // The packet is in memory before the pointer, and the pointer before the doorbell. The
        // GPU reads them, and the ring may be mapped write-combined.
        mb();
        self.memory.set_write_pointer(cursor.ring.written())?;
        mb();
        self.doorbells.ring(0, cursor.ring.written())
    }

    /// Waits until the fence has `value`. `EIO`: a reset or a fatal error comes first. `ETIME`:
    /// nothing comes.
    fn wait(&self, value: u64) -> Result {
        // An idle GPU has confirmed before anybody looks at the clock.
        if self.memory.fence()? == value {
            return Ok(());
        }
        // TIMEOUT: amdgpu.queue_preemption_timeout_ms, which the firmware's own limit is part of.
        // The C driver counts jiffies: 1 ms is up to two of them.
        let timeout = Delta::from_millis(self.timeout_ms().max(SHORTEST_TIMEOUT_MS).into());
        let start = Instant::<Monotonic>::now();
        let mut pause_us = 10;
        while self.memory.fence()? != value {
            check_available(&*self.kgd)?;
            // Looked at once more: nobody may have run here since.
            if start.elapsed() > timeout && self.memory.fence()? != value {
                return Err(errno::timer_expired());
            }
            fsleep(Delta::from_micros(pause_us));
            pause_us = (pause_us * 2).min(1000);
        }
        Ok(())
    }

    /// Takes all queues off the hardware, and waits until the firmware has confirmed that.
    pub(super) fn unmap_all(&self, cursor: &mut Cursor) -> Result {
        let value = cursor.fence + 1;
        let fence = self.memory.fence_va()?;
        self.submit(
            cursor,
            &self.generation.formats.runlist.unmap_all(fence, value),
        )?;
        cursor.fence = value;
        self.wait(value)
    }

    /// The doorbells of queues that did not let go, of each XCC at most one. The firmware confirms
    /// an UNMAP_QUEUES even so; it leaves the queue's doorbell in the HIQ's descriptor then. Asking
    /// forgets them.
    pub(super) fn take_stuck(&self, mut found: impl FnMut(u32, u32)) -> Result {
        for (logical, within) in xccs(self.config.xcc_mask) {
            let (_, words, _) = self.memory.hiq_mqd(within)?;
            if let Some(doorbell) = self.generation.formats.mqd.take_failed_doorbell(&words) {
                found(logical, doorbell);
            }
        }
        Ok(())
    }
}

#[kernel::macros::kunit_tests(amdkfd_sched_hiq)]
mod tests {
    use super::*;

    #[test]
    fn the_firmware_gives_up_before_we_do() {
        // `KFD_UNMAP_LATENCY_MS`, of amdgpu's default first, and what the firmware gets of it.
        let all = [9000, 0, 60_000, u32::MAX].map(|timeout| {
            let facts = GpuFacts {
                queue_preemption_timeout_ms: timeout,
                ..GpuFacts::default()
            };
            (facts.unmap_latency_ms(), unmap_latency(&facts))
        });
        assert_eq!(all[..3], [(4050, 40), (0, 0), (27_000, 255)]);
        assert_eq!(all[3], (1_932_735_283, 255));
    }
}
