// SPDX-License-Identifier: GPL-2.0-only

//! The memory that a node's scheduler shares with the hardware.
//!
//! One buffer in system memory per node: the scheduler's queue (HIQ) with what belongs to it, the
//! descriptors of all copy queues, and the run list. It is as large as it will ever need to be, so
//! that nothing is allocated while queues come and go. The node's `NodeQueues` owns it; the
//! scheduler and every copy queue share it.

use super::Descriptor;
use crate::{
    gfx::{
        Generation,
        Packet,
        RunlistWords,
        SdmaPlace,
        Words,
        PAGE_BYTES, //
    },
    ids::GpuVa,
    kgd::{
        gpu_warn,
        Domain,
        KernelBo,
        Kgd, //
    },
};
#[cfg(CONFIG_KUNIT = "y")]
use core::ptr::NonNull;
use core::{
    ops::Range,
    sync::atomic::{
        AtomicUsize,
        Ordering, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Bytes of the scheduler's queue (`KFD_KERNEL_QUEUE_SIZE`).
pub(crate) const RING_BYTES: usize = 2048;

/// Bytes between things that hardware writes on its own account, so that they share no cache line.
const APART: usize = 512;

/// How much a node needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) xccs: usize,
    pub(crate) sdma_engines: usize,
    /// Queues of all processes. Each may be the only one of a process.
    pub(crate) queues: usize,
}

/// A part of a kernel buffer, as words.
pub(crate) struct BoWindow<'a> {
    bo: &'a KernelBo,
    offset: usize,
}

impl<'a> BoWindow<'a> {
    /// The words from byte `offset` of `bo` on.
    pub(crate) fn new(bo: &'a KernelBo, offset: usize) -> Self {
        Self { bo, offset }
    }

    fn at(&self, dword: usize) -> usize {
        self.offset + dword * size_of::<u32>()
    }

    /// Formats only touch words of their own structures, for which the layout has room.
    fn outside(&self, dword: usize) {
        gpu_warn!(
            self.bo.pci_name(),
            "dword {dword} lies outside of its buffer\n"
        );
    }
}

impl Words for BoWindow<'_> {
    fn get(&self, dword: usize) -> u32 {
        self.bo.read_u32(self.at(dword)).unwrap_or_else(|_| {
            self.outside(dword);
            0
        })
    }

    fn get_row(&self, dword: usize, row: &mut [u32]) {
        if self.bo.read_dwords(self.at(dword), row).is_err() {
            self.outside(dword);
            row.fill(0);
        }
    }

    fn set(&self, dword: usize, value: u32) {
        if self.bo.write_u32(self.at(dword), value).is_err() {
            self.outside(dword);
        }
    }

    fn set_row(&self, dword: usize, row: &[u32]) {
        if self.bo.write_dwords(self.at(dword), row).is_err() {
            self.outside(dword);
        }
    }

    fn clear(&self, dwords: Range<usize>) {
        let bytes = dwords.len() * size_of::<u32>();
        if self.bo.fill(self.at(dwords.start), bytes, 0).is_err() {
            self.outside(dwords.start);
        }
    }
}

/// The buffer and where things lie in it, in bytes.
pub(crate) struct NodeMemory {
    bo: Arc<KernelBo>,
    generation: Generation,
    hiq_mqds: usize,
    sdma_mqds: usize,
    run_list: Range<usize>,
    /// Words of the run list that the hardware reads; 0: none.
    listed: AtomicUsize,
}

impl NodeMemory {
    /// Where the scheduler's queue reports how far it has read.
    const READ_POINTER: usize = RING_BYTES;
    /// Where it finds how far it has been written.
    const WRITE_POINTER: usize = Self::READ_POINTER + APART;
    /// Where it confirms that it has come past a point.
    const FENCE: usize = Self::WRITE_POINTER + APART;
    /// Its end-of-pipe ring: one page.
    const EOP: usize = PAGE_BYTES as usize;

    /// Allocates the buffer.
    pub(crate) fn new(
        kgd: Arc<dyn Kgd>,
        generation: Generation,
        needs: Needs,
    ) -> Result<Arc<Self>> {
        let page = PAGE_BYTES as usize;
        let hiq_mqds = Self::EOP + page;
        let sdma_mqds = hiq_mqds + generation.formats.mqd.bytes() * needs.xccs;
        let slots = needs.sdma_engines * generation.chip.sdma_queues_per_engine as usize;
        let run_list = (sdma_mqds + generation.formats.sdma.bytes() * slots).next_multiple_of(page);
        let RunlistWords { process, queue } = generation.formats.runlist.words();
        // A process for each queue, and a packet that starts over at the end.
        let words = needs.queues * (process + queue) + Packet::MAX;
        let end = (run_list + words * size_of::<u32>()).next_multiple_of(page);
        let memory = Self {
            bo: Arc::new(KernelBo::new(kgd, end, Domain::Gtt, false)?, GFP_KERNEL)?,
            generation,
            hiq_mqds,
            sdma_mqds,
            run_list: run_list..end,
            listed: AtomicUsize::new(0),
        };
        Ok(Arc::new(memory, GFP_KERNEL)?)
    }

    /// What firmware does for tests: it has read the ring of the buffer at `memory` up to
    /// `written`, and confirms what was to be confirmed there last. Returns whether there was
    /// anything.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn confirm(memory: NonNull<u8>, written: u64) -> bool {
        /// The words of a QUERY_STATUS, and its opcode.
        const LEN: u64 = 7;
        const OPCODE: u32 = 0xa4;
        const DWORDS: u64 = RING_BYTES as u64 / 4;
        let word = |back: u64| {
            let at = (written.wrapping_sub(back) % DWORDS) as usize * size_of::<u32>();
            // SAFETY: The caller's buffer is a `NodeMemory`'s, which begins with the ring.
            unsafe { memory.add(at).cast::<u32>().read_volatile() }
        };
        // SAFETY: As above; the pointer is a word of it.
        unsafe {
            let pointer = memory.add(Self::READ_POINTER).cast::<u32>();
            pointer.write_volatile((written % DWORDS) as u32);
        }
        let asked = written >= LEN && word(LEN) >> 8 & 0xff == OPCODE;
        if asked {
            let value = u64::from(word(2)) | u64::from(word(1)) << 32;
            // SAFETY: As above; the fence is two words of it.
            unsafe { memory.add(Self::FENCE).cast::<u64>().write_volatile(value) };
        }
        asked
    }

    fn gpu_va(&self, offset: usize) -> Result<GpuVa> {
        let va = self.bo.gpu_va().checked_add(offset as u64);
        va.ok_or(EINVAL)
    }

    /// Forgets what the scheduler's queue has been told and has said.
    pub(crate) fn forget(&self) -> Result {
        self.set_listed(0);
        self.bo.fill(0, self.sdma_mqds, 0)
    }

    /// The buffer itself, to load the scheduler's queue from.
    pub(crate) fn bo(&self) -> &KernelBo {
        &self.bo
    }

    /// The scheduler's ring and where the GPU finds it.
    pub(crate) fn ring(&self) -> (BoWindow<'_>, GpuVa) {
        (BoWindow::new(&self.bo, 0), self.bo.gpu_va())
    }

    /// The GPU addresses of the scheduler's read pointer, write pointer and end-of-pipe ring.
    pub(crate) fn pointers(&self) -> Result<(GpuVa, GpuVa, GpuVa)> {
        Ok((
            self.gpu_va(Self::READ_POINTER)?,
            self.gpu_va(Self::WRITE_POINTER)?,
            self.gpu_va(Self::EOP)?,
        ))
    }

    /// How far the hardware has read the scheduler's ring, in words within it.
    pub(crate) fn read_pointer(&self) -> Result<u32> {
        self.bo.read_u32(Self::READ_POINTER)
    }

    /// Tells the hardware how far the scheduler's ring is written.
    pub(crate) fn set_write_pointer(&self, written: u64) -> Result {
        self.bo.write_u64(Self::WRITE_POINTER, written)
    }

    /// The fence's value.
    pub(crate) fn fence(&self) -> Result<u64> {
        self.bo.read_u64(Self::FENCE)
    }

    /// The GPU address of the fence.
    pub(crate) fn fence_va(&self) -> Result<GpuVa> {
        self.gpu_va(Self::FENCE)
    }

    /// The HIQ's descriptor for the `xcc`th XCC of the node: its offset, words and GPU address.
    pub(crate) fn hiq_mqd(&self, xcc: u32) -> Result<(usize, BoWindow<'_>, GpuVa)> {
        let offset = self.hiq_mqds + self.generation.formats.mqd.bytes() * xcc as usize;
        Ok((
            offset,
            BoWindow::new(&self.bo, offset),
            self.gpu_va(offset)?,
        ))
    }

    /// How many user queues a copy engine has slots for.
    pub(super) fn slots_per_engine(&self) -> u32 {
        self.generation.chip.sdma_queues_per_engine
    }

    fn sdma_offset(&self, place: SdmaPlace) -> usize {
        let slots = self.slots_per_engine();
        let slot = (place.engine * slots + place.queue) as usize;
        self.sdma_mqds + slot * self.generation.formats.sdma.bytes()
    }

    /// Where the CPU finds the descriptor of the copy queue at `place`.
    pub(crate) fn sdma_descriptor(&self, place: SdmaPlace) -> Descriptor {
        Descriptor {
            bo: self.bo.clone(),
            offset: self.sdma_offset(place),
            stride: 0,
            copy_slot: Some(place),
        }
    }

    /// The descriptor of the copy queue at `place`, cleared if it is for a new one.
    pub(crate) fn sdma_mqd(&self, place: SdmaPlace, new: bool) -> Result<(BoWindow<'_>, GpuVa)> {
        let bytes = self.generation.formats.sdma.bytes();
        let offset = self.sdma_offset(place);
        if new {
            self.bo.fill(offset, bytes, 0)?;
        }
        Ok((BoWindow::new(&self.bo, offset), self.gpu_va(offset)?))
    }

    /// Notes how much of the run list the hardware reads now.
    pub(crate) fn set_listed(&self, dwords: usize) {
        self.listed.store(dwords, Ordering::Relaxed);
    }

    /// The run list that the hardware reads, and its words; none if it reads none.
    pub(crate) fn listed(&self) -> (BoWindow<'_>, usize) {
        let words = BoWindow::new(&self.bo, self.run_list.start);
        (words, self.listed.load(Ordering::Relaxed))
    }

    /// Words of the list itself: behind it the packet has room that starts it over.
    pub(crate) fn list_room(&self) -> usize {
        self.run_list.len() / size_of::<u32>() - Packet::MAX
    }

    /// The room for a run list: its words, GPU address and how many words there are.
    pub(crate) fn run_list(&self) -> Result<(BoWindow<'_>, GpuVa, usize)> {
        Ok((
            BoWindow::new(&self.bo, self.run_list.start),
            self.gpu_va(self.run_list.start)?,
            self.run_list.len() / size_of::<u32>(),
        ))
    }
}

#[kernel::macros::kunit_tests(amdkfd_sched_memory)]
mod tests {
    use super::*;
    use crate::{
        gfx::{
            testing::{
                hw_process,
                hw_queue,
                mi300x, //
            },
            Engine,
            RunlistFormat, //
        },
        kgd::fake::Fake,
        sched::{
            image::ListTarget,
            runlist_state::RunlistState,
            NewSchedProcess,
            NewSchedQueue, //
        },
    };

    fn process() -> NewSchedProcess {
        NewSchedProcess::new(hw_process(1), false, None).unwrap()
    }

    fn queue() -> NewSchedQueue {
        NewSchedQueue::undescribed(hw_queue(Engine::Compute, 1), true).unwrap()
    }

    #[test]
    fn each_queue_may_be_another_process() {
        const QUEUES: usize = 4096;
        let generation = mi300x();
        let format: &dyn RunlistFormat = generation.formats.runlist;
        let needs = Needs {
            xccs: 1,
            sdma_engines: 2,
            queues: QUEUES,
        };
        let memory = NodeMemory::new(Fake::new().unwrap(), generation, needs).unwrap();
        let mut state = RunlistState::new(format, 64, memory.list_room()).unwrap();
        for _ in 0..QUEUES {
            let process = state.add(process(), None);
            state.insert(process, queue()).unwrap();
        }
        let (words, address, capacity) = memory.run_list().unwrap();
        let target = ListTarget {
            words: &words,
            address,
            capacity,
        };
        let dwords = state.copy(&target).unwrap();
        assert!(target.finish(dwords, format, true, 1).is_ok());
    }

    #[test]
    fn a_full_list_has_room_to_start_itself_over() {
        let generation = mi300x();
        let needs = Needs {
            xccs: 1,
            sdma_engines: 2,
            queues: 1,
        };
        let memory = NodeMemory::new(Fake::new().unwrap(), generation, needs).unwrap();
        let (words, address, capacity) = memory.run_list().unwrap();
        let target = ListTarget {
            words: &words,
            address,
            capacity,
        };
        let full = target.finish(memory.list_room(), generation.formats.runlist, true, 1);
        assert!(full.is_ok());
    }
}
