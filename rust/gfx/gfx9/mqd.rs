// SPDX-License-Identifier: GPL-2.0-only

//! Memory queue descriptors (MQD) of the command processor: `struct v9_mqd` of `v9_structs.h`.
//!
//! Where a node is made of several XCCs (9.4.3 and later), a compute queue has one descriptor per
//! XCC, all alike but for a few words; the hardware scheduler's queue (HIQ) likewise. Words 128 and
//! up are an image of the hardware queue descriptor's registers (`CP_MQD_BASE_ADDR` onwards), which
//! the firmware loads when it maps the queue and writes back when it preempts it: an update must
//! leave alone what the hardware keeps there. Register fields are those of `gc_9_4_3_sh_mask.h`,
//! which are those of `gc_9_0_sh_mask.h` where that has them.

use crate::gfx::{
    field::{hi, lo},
    ComputeFormat,
    ComputeQueue,
    CuMask,
    HiqQueue,
    MqdFormat,
    SavedWaves,
    Words,
    XccMqd,
    PAGE_BYTES, //
};
use crate::ids::{DoorbellIndex, GpuVa, Vmid};
use core::cell::Cell;

/// Up to graphics core 9.4.1.
pub(super) const PLAIN: &dyn MqdFormat = &Mqd {
    xccs: Xccs::One,
    spreads_waves: false,
    is_gfx10: false,
};
/// Graphics core 9.4.2.
pub(super) const SPREADING: &dyn MqdFormat = &Mqd {
    xccs: Xccs::One,
    spreads_waves: true,
    is_gfx10: false,
};
/// Graphics core 9.4.3 and later.
pub(super) const MANY_XCCS: &dyn MqdFormat = &Mqd {
    xccs: Xccs::Many,
    spreads_waves: true,
    is_gfx10: false,
};
/// Graphics cores 10.1 and 10.3: `struct v10_compute_mqd` of `v10_structs.h`, whose words are where
/// `struct v9_mqd` has them.
pub(in crate::gfx) const GFX10: &dyn MqdFormat = &Mqd {
    xccs: Xccs::One,
    spreads_waves: false,
    is_gfx10: true,
};

/// Bytes of `struct v9_mqd`.
pub(super) const BYTES: usize = 2048;

/// How many XCCs read a ring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Xccs {
    One,
    /// Those of the node, of which each has a descriptor.
    Many,
}

struct Mqd {
    xccs: Xccs,
    /// The hardware can spread the waves of a queue over all SIMDs (`FORCE_SIMD_DIST`).
    spreads_waves: bool,
    is_gfx10: bool,
}

/// Indices of words in `struct v9_mqd`, by the names it gives them.
#[rustfmt::skip]
pub(super) mod dword {
    pub(crate) const HEADER: usize = 0;
    pub(crate) const COMPUTE_PIPELINESTAT_ENABLE: usize = 11;
    pub(crate) const COMPUTE_PERFCOUNT_ENABLE: usize = 12;
    pub(crate) const COMPUTE_PGM_RSRC2: usize = 20;
    pub(crate) const COMPUTE_RESOURCE_LIMITS: usize = 22;
    /// `compute_static_thread_mgmt_se0` to `_se7`: not in one row. Cores of many XCCs have only
    /// the first four; to them the others are the next two constants, and two that stay.
    pub(crate) const COMPUTE_STATIC_THREAD_MGMT_SE: [usize; 8] = [23, 24, 26, 27, 39, 40, 41, 42];
    pub(crate) const COMPUTE_CURRENT_LOGIC_XCC_ID: usize = 39;
    pub(crate) const COMPUTE_TG_CHUNK_SIZE: usize = 41;
    pub(crate) const CP_MQD_BASE_ADDR_LO: usize = 128;
    pub(crate) const CP_HQD_VMID: usize = 131;
    pub(crate) const CP_HQD_PERSISTENT_STATE: usize = 132;
    pub(crate) const CP_HQD_PIPE_PRIORITY: usize = 133;
    pub(crate) const CP_HQD_QUANTUM: usize = 135;
    pub(crate) const CP_HQD_PQ_BASE_LO: usize = 136;
    pub(crate) const CP_HQD_PQ_RPTR_REPORT_ADDR_LO: usize = 139;
    pub(crate) const CP_HQD_PQ_WPTR_POLL_ADDR_LO: usize = 141;
    pub(crate) const CP_HQD_PQ_DOORBELL_CONTROL: usize = 143;
    pub(crate) const CP_HQD_PQ_CONTROL: usize = 145;
    pub(crate) const CP_HQD_IB_CONTROL: usize = 149;
    pub(crate) const CP_HQD_IQ_TIMER: usize = 150;
    pub(crate) const CP_HQD_HQ_STATUS0: usize = 160;
    pub(crate) const CP_MQD_CONTROL: usize = 162;
    pub(crate) const CP_HQD_EOP_BASE_ADDR_LO: usize = 165;
    pub(crate) const CP_HQD_EOP_CONTROL: usize = 167;
    pub(crate) const CP_HQD_CTX_SAVE_BASE_ADDR_LO: usize = 171;
    pub(crate) const CP_HQD_CTX_SAVE_CONTROL: usize = 173;
    pub(crate) const CP_HQD_CNTL_STACK_OFFSET: usize = 174;
    pub(crate) const CP_HQD_CNTL_STACK_SIZE: usize = 175;
    pub(crate) const CP_HQD_WG_STATE_OFFSET: usize = 176;
    pub(crate) const CP_HQD_CTX_SAVE_SIZE: usize = 177;
    pub(crate) const CP_HQD_AQL_CONTROL: usize = 181;
    pub(crate) const PM4_TARGET_XCC_IN_XCP: usize = 225;
    pub(crate) const CP_MQD_STRIDE_SIZE: usize = 226;
    pub(crate) const QUEUE_DOORBELL_ID0: usize = 240;
}

/// `header`: what the firmware expects at the head of every compute descriptor.
const HEADER: u32 = 0xC031_0800;

/// Limit of `CP_HQD_EOP_CONTROL.EOP_SIZE`: 2^(0xA + 1) words. The field is not clamped by the
/// hardware, and a shader engine counts end-of-pipe events in 8 bits.
const EOP_SIZE_MAX: u32 = 0xA;

mod compute_pgm_rsrc2 {
    use crate::gfx::field::Field;
    /// Waves have a trap handler to go to.
    pub(super) const TRAP_PRESENT: Field = Field::bit(6);
}

mod compute_resource_limits {
    use crate::gfx::field::Field;
    /// Waves are spread over all SIMDs, however few they are.
    pub(super) const FORCE_SIMD_DIST: Field = Field::bit(23);
}

mod cp_hqd_persistent_state {
    use crate::gfx::field::Field;
    /// The queue's state is fetched ahead of being mapped, this much of it.
    pub(super) const PRELOAD_REQ: Field = Field::bit(0);
    pub(super) const PRELOAD_SIZE: Field = Field::bits(17, 8);
    /// Preempting the queue saves its waves instead of waiting for them.
    pub(super) const QSWITCH_MODE: Field = Field::bit(30);
}

mod cp_hqd_quantum {
    use crate::gfx::field::Field;
    pub(super) const QUANTUM_EN: Field = Field::bit(0);
    pub(super) const QUANTUM_SCALE: Field = Field::bit(4);
    pub(super) const QUANTUM_DURATION: Field = Field::bits(13, 8);
}

pub(super) mod cp_hqd_pq_control {
    use crate::gfx::field::Field;
    /// log2 of the ring's words, less one.
    pub(crate) const QUEUE_SIZE: Field = Field::bits(5, 0);
    /// How many words are read before the read pointer is reported, log2 less one.
    pub(crate) const RPTR_BLOCK_SIZE: Field = Field::bits(13, 8);
    pub(crate) const QUEUE_FULL_EN: Field = Field::bit(14);
    pub(crate) const WPP_CLAMP_EN: Field = Field::bit(16);
    /// The write pointer counts packets (2: of 64 bytes) instead of words.
    pub(crate) const SLOT_BASED_WPTR: Field = Field::bits(26, 25);
    /// The same of gfx10.
    pub(crate) const SLOT_BASED_WPTR_GFX10: Field = Field::bits(19, 18);
    /// The read pointer is somebody else's to report.
    pub(crate) const NO_UPDATE_RPTR: Field = Field::bit(27);
    pub(crate) const UNORD_DISPATCH: Field = Field::bit(28);
    pub(crate) const PRIV_STATE: Field = Field::bit(30);
    pub(crate) const KMD_QUEUE: Field = Field::bit(31);
}

mod cp_hqd_pq_doorbell_control {
    use crate::gfx::field::Field;
    pub(super) const DOORBELL_BIF_DROP: Field = Field::bit(1);
    pub(super) const DOORBELL_OFFSET: Field = Field::bits(27, 2);
}

mod cp_hqd_ib_control {
    use crate::gfx::field::Field;
    pub(super) const MIN_IB_AVAIL_SIZE: Field = Field::bits(21, 20);
    pub(super) const IB_EXE_DISABLE: Field = Field::bit(23);
}

mod cp_mqd_control {
    use crate::gfx::field::Field;
    pub(super) const PRIV_STATE: Field = Field::bit(8);
}

mod cp_hqd_hq_status0 {
    use crate::gfx::field::Field;
    /// The command processor keeps DISPATCH_PTR, which a debugger reads.
    pub(super) const DISPATCH_PTR: Field = Field::bit(14);
}

mod cp_hqd_aql_control {
    use crate::gfx::field::Field;
    pub(super) const CONTROL0: Field = Field::bits(14, 0);
}

/// What a user's and the scheduler's queue have in common.
struct Common {
    ring: GpuVa,
    read_pointer: u64,
    write_pointer: u64,
    doorbell: DoorbellIndex,
    eop: (GpuVa, u32),
    priority: u8,
}

/// Words that say something; those behind are 0 in a new descriptor.
const DRAFT_WORDS: usize = 256;

const _: () = assert!(dword::QUEUE_DOORBELL_ID0 < DRAFT_WORDS && DRAFT_WORDS * 4 <= BYTES);

/// A new descriptor in our own memory. The hardware's gets it in one row.
struct Draft<'a>(&'a [Cell<u32>]);

impl Words for Draft<'_> {
    #[inline]
    fn get(&self, dword: usize) -> u32 {
        self.0.get(dword).map_or(0, Cell::get)
    }

    #[inline]
    fn set(&self, dword: usize, value: u32) {
        if let Some(word) = self.0.get(dword) {
            word.set(value);
        }
    }
}

fn set_address(words: &(impl Words + ?Sized), dword: usize, address: u64) {
    words.set(dword, lo(address));
    words.set(dword + 1, hi(address));
}

/// `CP_HQD_PQ_CONTROL.QUEUE_SIZE` for a ring of `bytes`, a power of two.
fn queue_size(bytes: u32) -> u32 {
    (bytes / 4).max(2).ilog2() - 1
}

/// `CP_HQD_EOP_CONTROL.EOP_SIZE` for `bytes` of end-of-pipe ring: 2^(x + 1) words, rounded up.
fn eop_size(bytes: u32) -> u32 {
    match bytes / 8 {
        0 => 0,
        entries => (u32::BITS - (entries - 1).leading_zeros()).min(EOP_SIZE_MAX),
    }
}

/// The three pipe priorities of the hardware for the 16 of user space (`pipe_priority_map`).
fn pipe_priority(priority: u8) -> u32 {
    match priority {
        0..=6 => 0,
        7..=10 => 1,
        _ => 2,
    }
}

/// Words that are the same for every new descriptor, of a core with so many shader engines.
fn encode_defaults(words: &(impl Words + ?Sized), at: XccMqd, engines: usize) {
    use cp_hqd_persistent_state as state;
    use cp_hqd_quantum as quantum;

    words.set(dword::HEADER, HEADER);
    words.set(dword::COMPUTE_PIPELINESTAT_ENABLE, 1);
    for &index in dword::COMPUTE_STATIC_THREAD_MGMT_SE.iter().take(engines) {
        words.set(index, u32::MAX);
    }
    words.set(
        dword::CP_HQD_PERSISTENT_STATE,
        state::PRELOAD_REQ.of(1) | state::PRELOAD_SIZE.of(0x53),
    );
    words.set(dword::CP_MQD_CONTROL, cp_mqd_control::PRIV_STATE.of(1));
    set_address(words, dword::CP_MQD_BASE_ADDR_LO, at.address.raw());
    words.set(
        dword::CP_HQD_QUANTUM,
        quantum::QUANTUM_EN.of(1) | quantum::QUANTUM_SCALE.of(1) | quantum::QUANTUM_DURATION.of(1),
    );
    words.set(
        dword::CP_HQD_HQ_STATUS0,
        cp_hqd_hq_status0::DISPATCH_PTR.of(1),
    );
}

/// Words that say where the ring is and how it is driven.
fn encode_common(words: &(impl Words + ?Sized), queue: &Common, is_gfx10: bool) {
    set_address(words, dword::CP_HQD_PQ_BASE_LO, queue.ring.raw() >> 8);
    set_address(
        words,
        dword::CP_HQD_PQ_RPTR_REPORT_ADDR_LO,
        queue.read_pointer,
    );
    set_address(
        words,
        dword::CP_HQD_PQ_WPTR_POLL_ADDR_LO,
        queue.write_pointer,
    );
    words.set(
        dword::CP_HQD_PQ_DOORBELL_CONTROL,
        cp_hqd_pq_doorbell_control::DOORBELL_OFFSET.of(queue.doorbell.raw()),
    );
    words.set(
        dword::CP_HQD_IB_CONTROL,
        cp_hqd_ib_control::MIN_IB_AVAIL_SIZE.of(3)
            | cp_hqd_ib_control::IB_EXE_DISABLE.flag(!is_gfx10),
    );
    words.set(dword::CP_HQD_EOP_CONTROL, eop_size(queue.eop.1));
    set_address(
        words,
        dword::CP_HQD_EOP_BASE_ADDR_LO,
        queue.eop.0.raw() >> 8,
    );
    words.set(dword::CP_HQD_IQ_TIMER, 0);
    words.set(dword::CP_HQD_VMID, 0);
    words.set(dword::CP_HQD_PIPE_PRIORITY, pipe_priority(queue.priority));
}

/// `CP_HQD_PQ_CONTROL` of a new queue.
fn new_pq_control(ring_bytes: u32) -> u32 {
    cp_hqd_pq_control::QUEUE_SIZE.of(queue_size(ring_bytes))
        | cp_hqd_pq_control::RPTR_BLOCK_SIZE.of(5)
        | cp_hqd_pq_control::UNORD_DISPATCH.of(1)
}

/// Words of a ring whose packets are AQL's. `reports`: the command processor says how far it has
/// read.
fn encode_aql(words: &(impl Words + ?Sized), reports: bool, is_gfx10: bool) {
    use cp_hqd_pq_control as control;

    let kept = words.get(dword::CP_HQD_PQ_CONTROL) & !control::NO_UPDATE_RPTR.mask();
    let counts = match is_gfx10 {
        true => control::SLOT_BASED_WPTR_GFX10.of(2),
        false => control::SLOT_BASED_WPTR.of(2) | control::WPP_CLAMP_EN.of(1),
    };
    words.set(
        dword::CP_HQD_PQ_CONTROL,
        kept | counts | control::QUEUE_FULL_EN.of(1) | control::NO_UPDATE_RPTR.flag(!reports),
    );
    let doorbell = words.get(dword::CP_HQD_PQ_DOORBELL_CONTROL);
    words.set(
        dword::CP_HQD_PQ_DOORBELL_CONTROL,
        doorbell | cp_hqd_pq_doorbell_control::DOORBELL_BIF_DROP.of(1),
    );
}

/// Words that say which share of the work an XCC has.
fn encode_share(words: &(impl Words + ?Sized), format: ComputeFormat) {
    match format {
        ComputeFormat::Aql => words.set(dword::COMPUTE_TG_CHUNK_SIZE, 1),
        ComputeFormat::Pm4 { target_xcc } => {
            words.set(dword::COMPUTE_CURRENT_LOGIC_XCC_ID, 0);
            words.set(dword::COMPUTE_TG_CHUNK_SIZE, 0);
            words.set(dword::PM4_TARGET_XCC_IN_XCP, target_xcc.into());
        }
    }
}

/// Words of a queue whose waves can be saved.
fn encode_save_area(words: &(impl Words + ?Sized), xcc: u32, area: crate::gfx::SaveArea) {
    let state = words.get(dword::CP_HQD_PERSISTENT_STATE);
    words.set(
        dword::CP_HQD_PERSISTENT_STATE,
        state | cp_hqd_persistent_state::QSWITCH_MODE.of(1),
    );
    let mine = u64::from(xcc) * u64::from(area.bytes);
    set_address(
        words,
        dword::CP_HQD_CTX_SAVE_BASE_ADDR_LO,
        area.address.raw().wrapping_add(mine),
    );
    words.set(dword::CP_HQD_CTX_SAVE_SIZE, area.bytes);
    // Both grow from the end of the control stack: it downwards, the wave state upwards.
    words.set(dword::CP_HQD_CNTL_STACK_SIZE, area.control_stack);
    words.set(dword::CP_HQD_CNTL_STACK_OFFSET, area.control_stack);
    words.set(dword::CP_HQD_WG_STATE_OFFSET, area.control_stack);
}

fn common(queue: &ComputeQueue) -> Common {
    Common {
        ring: queue.ring,
        read_pointer: queue.read_pointer.raw(),
        write_pointer: queue.write_pointer.raw(),
        doorbell: queue.doorbell,
        eop: queue.eop,
        priority: queue.priority,
    }
}

impl Mqd {
    /// Shader engines that a new descriptor has a word for.
    fn engines_of_new(&self) -> usize {
        if self.is_gfx10 {
            4
        } else {
            8
        }
    }

    /// All words of a new descriptor.
    fn encode_new(&self, words: &Draft<'_>, at: XccMqd, queue: &ComputeQueue) {
        encode_defaults(words, at, self.engines_of_new());
        encode_common(words, &common(queue), self.is_gfx10);
        words.set(dword::CP_HQD_PQ_CONTROL, new_pq_control(queue.ring_bytes));
        if queue.trap_handler && !self.is_gfx10 {
            let trap = compute_pgm_rsrc2::TRAP_PRESENT.of(1);
            words.set(dword::COMPUTE_PGM_RSRC2, trap);
        }
        if let Some(area) = queue.save_area {
            encode_save_area(words, at.xcc, area);
        }
        if let ComputeFormat::Aql = queue.format {
            let control = cp_hqd_aql_control::CONTROL0.of(1);
            words.set(dword::CP_HQD_AQL_CONTROL, control);
        }
        if self.xccs == Xccs::Many {
            words.set(dword::CP_MQD_STRIDE_SIZE, at.stride);
            words.set(dword::COMPUTE_CURRENT_LOGIC_XCC_ID, at.logical_xcc);
        }
        self.encode_format(words, at.xcc, queue.format);
    }

    /// Words that depend on who reads the ring: the packet format and this XCC's share of the work.
    fn encode_format(&self, words: &(impl Words + ?Sized), xcc: u32, format: ComputeFormat) {
        if let ComputeFormat::Aql = format {
            // XCCs of one node read the same ring; only the master reports how far. One that is
            // alone does not.
            encode_aql(words, self.xccs == Xccs::Many && xcc == 0, self.is_gfx10);
        }
        if self.xccs == Xccs::Many {
            encode_share(words, format);
        }
    }
}

impl MqdFormat for Mqd {
    fn bytes(&self) -> usize {
        BYTES
    }

    fn stride(&self, control_stack: u32) -> usize {
        // gfx10 has it in the user's save area.
        if self.is_gfx10 {
            return BYTES;
        }
        // The command processor finds the control stack at the page after the descriptor.
        (PAGE_BYTES + control_stack.next_multiple_of(PAGE_BYTES)) as usize
    }

    fn compute(&self, words: &dyn Words, at: XccMqd, queue: &ComputeQueue) {
        let mut new = [0; DRAFT_WORDS];
        self.encode_new(
            &Draft(Cell::from_mut(&mut new[..]).as_slice_of_cells()),
            at,
            queue,
        );
        words.set_row(0, &new);
        words.clear(DRAFT_WORDS..BYTES / size_of::<u32>());
    }

    fn take_over(&self, words: &dyn Words, queue: &ComputeQueue, saved: &[u32], xccs: u32) {
        self.take_saved(words, queue, saved, xccs);
    }

    fn target_xcc(&self, saved: &[u32]) -> u8 {
        let word = saved.get(dword::PM4_TARGET_XCC_IN_XCP);
        match self.xccs {
            Xccs::One => 0,
            // CAST: the low byte, as UPDATE_QUEUE has it.
            Xccs::Many => word.map_or(0, |word| *word as u8),
        }
    }

    fn update(&self, words: &dyn Words, xcc: u32, queue: &ComputeQueue) {
        let old = words.get(dword::CP_HQD_PQ_CONTROL);
        let size = queue_size(queue.ring_bytes);
        encode_common(words, &common(queue), self.is_gfx10);
        words.set(
            dword::CP_HQD_PQ_CONTROL,
            cp_hqd_pq_control::QUEUE_SIZE.replace(old, size),
        );
        if queue.save_area.is_some() {
            words.set(dword::CP_HQD_CTX_SAVE_CONTROL, 0);
        }
        self.encode_format(words, xcc, queue.format);
    }

    fn set_cu_mask(&self, words: &dyn Words, mask: CuMask) {
        let engines = match self.xccs {
            Xccs::One => self.engines_of_new(),
            Xccs::Many => 4,
        };
        let places = dword::COMPUTE_STATIC_THREAD_MGMT_SE
            .into_iter()
            .take(engines);
        for (index, engine) in places.zip(mask) {
            words.set(index, engine);
        }
    }

    fn count_performance(&self, words: &dyn Words, count: bool) {
        words.set(dword::COMPUTE_PERFCOUNT_ENABLE, count.into());
    }

    fn spread_waves(&self, words: &dyn Words, spread: bool) {
        if !self.spreads_waves {
            return;
        }
        let old = words.get(dword::COMPUTE_RESOURCE_LIMITS);
        words.set(
            dword::COMPUTE_RESOURCE_LIMITS,
            compute_resource_limits::FORCE_SIMD_DIST.replace(old, spread.into()),
        );
    }

    fn ring(&self, words: &dyn Words) -> Option<GpuVa> {
        let low = words.get(dword::CP_HQD_PQ_BASE_LO);
        let high = words.get(dword::CP_HQD_PQ_BASE_LO + 1);
        GpuVa::new((u64::from(high) << 32 | u64::from(low)) << 8)
    }

    fn set_vmid(&self, words: &dyn Words, vmid: Vmid) {
        words.set(dword::CP_HQD_VMID, vmid.raw().into());
    }

    fn hiq(&self, words: &dyn Words, at: XccMqd, queue: &HiqQueue) {
        use cp_hqd_pq_control as control;

        encode_defaults(words, at, self.engines_of_new());
        encode_common(
            words,
            &Common {
                ring: queue.ring,
                read_pointer: queue.read_pointer.raw(),
                write_pointer: queue.write_pointer.raw(),
                doorbell: queue.doorbell,
                eop: queue.eop,
                priority: 1,
            },
            self.is_gfx10,
        );
        if self.is_gfx10 {
            // As C has it, although no wave ever comes of this queue.
            let state = words.get(dword::CP_HQD_PERSISTENT_STATE);
            words.set(
                dword::CP_HQD_PERSISTENT_STATE,
                state | cp_hqd_persistent_state::QSWITCH_MODE.of(1),
            );
        }
        words.set(
            dword::CP_HQD_PQ_CONTROL,
            new_pq_control(queue.ring_bytes)
                | control::NO_UPDATE_RPTR.flag(at.xcc != 0)
                | control::PRIV_STATE.of(1)
                | control::KMD_QUEUE.of(1),
        );
        if self.xccs == Xccs::Many {
            words.set(dword::CP_MQD_STRIDE_SIZE, at.stride);
        }
    }

    fn saved_waves(&self, words: &dyn Words) -> SavedWaves {
        SavedWaves {
            control_stack_offset: words.get(dword::CP_HQD_CNTL_STACK_OFFSET),
            control_stack_size: words.get(dword::CP_HQD_CNTL_STACK_SIZE),
            wave_state_offset: words.get(dword::CP_HQD_WG_STATE_OFFSET),
        }
    }

    fn take_failed_doorbell(&self, words: &dyn Words) -> Option<u32> {
        let doorbell = words.get(dword::QUEUE_DOORBELL_ID0);
        if doorbell == 0 {
            return None;
        }
        words.set(dword::QUEUE_DOORBELL_ID0, 0);
        Some(doorbell)
    }
}

mod saved;
mod tests;
