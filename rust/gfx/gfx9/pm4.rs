// SPDX-License-Identifier: GPL-2.0-only

//! PM4 packets of the hardware scheduler (HWS): what the driver puts into the scheduler's queue
//! (HIQ) and into run lists.
//!
//! Layouts and names are those of `kfd_pm4_headers_ai.h`. Since graphics core 9.4.2 MAP_PROCESS has
//! the longer form of `kfd_pm4_headers_aldebaran.h`, with debugger settings per VMID. Every packet
//! begins with a type-3 header that says how many words follow.

use crate::gfx::{
    field::{hi, lo, Field},
    Engine,
    HwQueue,
    MapProcess,
    Packet,
    Resources,
    RunList,
    RunlistFormat,
    RunlistWords,
    ShMem,
    ShMemOptions, //
    Watch,
    WaveControl,
    WATCH_POINTS,
};
use crate::ids::GpuVa;

/// Up to graphics core 9.4.1, and 10.1.
pub(in crate::gfx) const SHORT: &dyn RunlistFormat = &Pm4 {
    map_process_words: 16,
    counts_engines: false,
    always_traps: false,
    watch_mask_shift: 6,
};
/// Graphics core 10.3, whose copy engines (SDMA 5.2) are counted in groups only.
pub(in crate::gfx) const COUNTING: &dyn RunlistFormat = &Pm4 {
    map_process_words: 16,
    counts_engines: true,
    always_traps: false,
    watch_mask_shift: 6,
};
/// Graphics core 9.4.2.
pub(super) const LONG: &dyn RunlistFormat = &LONG_FORMAT;
const LONG_FORMAT: Pm4 = Pm4 {
    map_process_words: MAP_PROCESS_WORDS,
    counts_engines: false,
    always_traps: false,
    watch_mask_shift: 6,
};
/// Since graphics core 9.4.3.
pub(super) const TRAPPING: &dyn RunlistFormat = &TRAPPING_FORMAT;
const TRAPPING_FORMAT: Pm4 = Pm4 {
    map_process_words: MAP_PROCESS_WORDS,
    counts_engines: false,
    always_traps: true,
    watch_mask_shift: 7,
};

struct Pm4 {
    map_process_words: usize,
    /// No copy engine has a number of its own (`pm_use_ext_eng`).
    counts_engines: bool,
    /// Waves keep dispatch information whether or not there is a debugger
    /// (`kgd_gfx_v9_4_3_disable_debug_trap`).
    always_traps: bool,
    /// Where the bits of a watch point's address that count begin in the ABI's mask
    /// (`TCP_WATCH0_ADDR_L.ADDR`; `kgd_gfx_aldebaran_set_address_watch`,
    /// `kgd_gfx_v9_4_3_set_address_watch`).
    watch_mask_shift: u32,
}

/// Opcodes (`enum it_opcode_type` of `kfd_pm4_opcodes.h`).
#[rustfmt::skip]
mod opcode {
    pub(super) const NOP: u32 = 0x10;
    pub(super) const WRITE_DATA: u32 = 0x37;
    pub(super) const SET_RESOURCES: u32 = 0xA0;
    pub(super) const MAP_PROCESS: u32 = 0xA1;
    pub(super) const MAP_QUEUES: u32 = 0xA2;
    pub(super) const UNMAP_QUEUES: u32 = 0xA3;
    pub(super) const QUERY_STATUS: u32 = 0xA4;
    pub(super) const RUN_LIST: u32 = 0xA5;
}

/// `union PM4_MES_TYPE_3_HEADER`.
mod header {
    use super::Field;
    pub(super) const OPCODE: Field = Field::bits(15, 8);
    /// Words of the packet, less two.
    pub(super) const COUNT: Field = Field::bits(29, 16);
    pub(super) const TYPE: Field = Field::bits(31, 30);
}

/// `struct pm4_mes_set_resources`.
mod set_resources {
    use super::Field;
    pub(super) const VMID_MASK: Field = Field::bits(15, 0);
    pub(super) const UNMAP_LATENCY: Field = Field::bits(23, 16);
    pub(super) const ENB_XNACK_RETRY_DISABLE_CHECK: Field = Field::bit(28);
    pub(super) const QUEUE_TYPE: Field = Field::bits(31, 29);
    /// `queue_type__mes_set_resources__hsa_interface_queue_hiq`
    pub(super) const HIQ: u32 = 1;
}

/// `struct pm4_mes_map_process` and `struct pm4_mes_map_process_aldebaran`.
mod map_process {
    use super::Field;
    pub(super) const PASID: Field = Field::bits(15, 0);
    /// Each memory operation has ended before the next instruction begins.
    pub(super) const SINGLE_MEMOPS: Field = Field::bit(16);
    /// The cleaner shader runs before it.
    pub(super) const EXEC_CLEANER_SHADER: Field = Field::bit(17);
    /// Milliseconds that the process may keep the hardware while others wait.
    pub(super) const PROCESS_QUANTUM: Field = Field::bits(31, 25);
    pub(super) const NUM_GWS: Field = Field::bits(6, 0);
    pub(super) const SDMA_ENABLE: Field = Field::bit(7);
    pub(super) const NUM_QUEUES: Field = Field::bits(31, 22);
    pub(super) const QUANTUM_MS: u32 = 10;
    /// `SQ_SHADER_TBA_HI.TRAP_EN`: of the shorter form. gfx9 has no such bit, and its firmware
    /// gets it all the same.
    pub(super) const TRAP_EN: Field = Field::bit(31);
}

/// `SPI_GDBG_PER_VMID_CNTL`: what a debugger may change for the waves of one VMID.
mod spi_gdbg_per_vmid_cntl {
    use super::Field;
    pub(super) const LAUNCH_MODE: Field = Field::bits(2, 1);
    /// Traps are taken. Without a debugger nothing else is set.
    pub(super) const TRAP_EN: Field = Field::bit(3);
    pub(super) const EXCP_EN: Field = Field::bits(12, 4);
    pub(super) const EXCP_REPLACE: Field = Field::bit(13);
    pub(super) const TRAP_ON_START: Field = Field::bit(14);
    pub(super) const TRAP_ON_END: Field = Field::bit(15);
}

/// `TCP_WATCH0_CNTL`, whose VMID the firmware fills in.
mod tcp_watch_cntl {
    use super::Field;
    /// Bits 30:7 of the address that count, or 29:6.
    pub(super) const MASK: Field = Field::bits(23, 0);
    pub(super) const MODE: Field = Field::bits(30, 29);
    pub(super) const VALID: Field = Field::bit(31);
}

/// `struct pm4_mes_map_queues`.
mod map_queues {
    use super::Field;
    pub(super) const EXTENDED_ENGINE_SEL: Field = Field::bits(3, 2);
    pub(super) const QUEUE_SEL: Field = Field::bits(5, 4);
    pub(super) const GWS_CONTROL_QUEUE: Field = Field::bit(12);
    pub(super) const ENGINE_SEL: Field = Field::bits(28, 26);
    pub(super) const NUM_QUEUES: Field = Field::bits(31, 29);
    pub(super) const DOORBELL_OFFSET: Field = Field::bits(27, 2);
    /// `queue_sel__mes_map_queues__map_to_hws_determined_queue_slots_vi`
    pub(super) const HWS_DETERMINED: u32 = 1;
    /// `engine_sel__mes_map_queues__compute_vi`
    pub(super) const COMPUTE: u32 = 0;
    /// `engine_sel__mes_map_queues__sdma0_vi`; the second engine is one more.
    pub(super) const SDMA0: u32 = 2;
    /// `extended_engine_sel__mes_map_queues__sdma0_to_7_sel`
    pub(super) const SDMA0_TO_7: u32 = 1;
    /// `extended_engine_sel__mes_map_queues__sdma8_to_15_sel`
    pub(super) const SDMA8_TO_15: u32 = 2;
}

/// `struct pm4_mes_runlist`.
mod run_list {
    use super::Field;
    pub(super) const IB_SIZE: Field = Field::bits(19, 0);
    pub(super) const CHAIN: Field = Field::bit(20);
    pub(super) const CHAINED_RUNLIST_IDLE_DISABLE: Field = Field::bit(22);
    pub(super) const VALID: Field = Field::bit(23);
    pub(super) const PROCESS_CNT: Field = Field::bits(27, 24);
}

/// `struct pm4_mes_unmap_queues`.
mod unmap_queues {
    use super::Field;
    pub(super) const EXTENDED_ENGINE_SEL: Field = Field::bits(3, 2);
    pub(super) const QUEUE_SEL: Field = Field::bits(5, 4);
    /// `queue_sel__mes_unmap_queues__unmap_all_non_static_queues`
    pub(super) const ALL_NON_STATIC: u32 = 3;
}

/// `struct pm4_mes_query_status`.
mod query_status {
    use super::Field;
    pub(super) const COMMAND: Field = Field::bits(31, 30);
    /// `command__mes_query_status__fence_only_after_write_ack`
    pub(super) const FENCE_ONLY_AFTER_WRITE_ACK: u32 = 2;
}

/// `struct pm4_mec_write_data_mmio`.
mod write_data {
    use super::Field;
    /// One register is written, not a row of them.
    pub(super) const ADDR_INCR: Field = Field::bit(16);
    pub(super) const DST_MMREG_ADDR: Field = Field::bits(17, 0);
}

/// `SH_MEM_CONFIG` of `gc_9_4_3_sh_mask.h`.
mod sh_mem_config {
    use super::Field;
    pub(super) const ALIGNMENT_MODE: Field = Field::bits(4, 3);
    /// 8-bit floats are those of this generation.
    pub(super) const F8_MODE: Field = Field::bit(8);
    pub(super) const RETRY_DISABLE: Field = Field::bit(12);
    /// Matrix operations are as precise as they can be (9.5.0).
    pub(super) const PRECISION_MODE: Field = Field::bit(9);
    /// `SH_MEM_ALIGNMENT_MODE_UNALIGNED`
    pub(super) const UNALIGNED: u32 = 3;
}

/// `SH_MEM_BASES`: bits 63:48 of the apertures' addresses.
mod sh_mem_bases {
    use super::Field;
    pub(super) const PRIVATE_BASE: Field = Field::bits(15, 0);
    pub(super) const SHARED_BASE: Field = Field::bits(31, 16);
}

/// Words of the longer MAP_PROCESS, and of MAP_QUEUES.
const MAP_PROCESS_WORDS: usize = 21;
const MAP_QUEUES_WORDS: usize = 7;

/// A packet that is one word long and does nothing: it fills the end of a ring.
const NOP: u32 = header::TYPE.of(3) | header::COUNT.mask() | header::OPCODE.of(opcode::NOP);

/// The first word of the packet `opcode`, which has `len` of them.
const fn header(opcode: u32, len: u32) -> u32 {
    header::TYPE.of(3) | header::COUNT.of(len - 2) | header::OPCODE.of(opcode)
}

/// The packet `opcode` whose first word, the header, is still missing in `words`.
fn packet<const N: usize>(opcode: u32, mut words: [u32; N]) -> Packet {
    if let Some(first) = words.first_mut() {
        *first = header(opcode, N as u32);
    }
    Packet::new(words)
}

/// The first of `words`, which are as many or more.
fn first_words<const N: usize>(words: &[u32]) -> [u32; N] {
    core::array::from_fn(|index| words.get(index).copied().unwrap_or(0))
}

/// `ordinal2` of MAP_QUEUES for `engine`: two engines have a number of their own, the others are
/// counted in two groups of eight. `counts`: all of them are.
fn engine_selection(engine: Engine, counts: bool) -> u32 {
    use map_queues::*;

    let (group, engine) = match engine {
        Engine::Compute => (0, COMPUTE),
        Engine::Sdma(engine) if engine < 2 && !counts => (0, SDMA0 + engine),
        Engine::Sdma(engine) if engine < 8 => (SDMA0_TO_7, engine),
        Engine::Sdma(engine) => (SDMA8_TO_15, engine % 8),
    };
    EXTENDED_ENGINE_SEL.of(group) | ENGINE_SEL.of(engine)
}

/// SPI_GDBG_PER_VMID_CNTL of a process.
fn wave_launch(control: &WaveControl, always_traps: bool) -> u32 {
    use spi_gdbg_per_vmid_cntl::*;

    LAUNCH_MODE.of(control.launch_mode as u32)
        | TRAP_EN.flag(always_traps || control.dispatch_info)
        | EXCP_EN.of(control.traps.exceptions())
        | EXCP_REPLACE.flag(control.replaces_traps)
        | TRAP_ON_START.flag(control.traps.on_start())
        | TRAP_ON_END.flag(control.traps.on_end())
}

/// The words of MAP_PROCESS that a debugger has a say in: SPI_GDBG_PER_VMID_CNTL, TCP_WATCHn_CNTL.
#[cold]
fn wave_words(control: &WaveControl, format: &Pm4) -> [u32; 1 + WATCH_POINTS] {
    let mut words = [wave_launch(control, format.always_traps); 1 + WATCH_POINTS];
    for (word, watch) in words[1..].iter_mut().zip(control.watches) {
        *word = watch.map_or(0, |watch| watch_point(watch, format.watch_mask_shift));
    }
    words
}

/// TCP_WATCHn_CNTL of a watch point.
fn watch_point(watch: Watch, shift: u32) -> u32 {
    use tcp_watch_cntl::*;

    MASK.of(MASK.get(watch.mask() >> shift)) | MODE.of(watch.mode()) | VALID.of(1)
}

impl RunlistFormat for Pm4 {
    fn set_resources(&self, resources: &Resources) -> Packet {
        use set_resources::*;

        packet(
            opcode::SET_RESOURCES,
            [
                0,
                VMID_MASK.of(resources.vmid_mask)
                    | UNMAP_LATENCY.of(resources.unmap_latency)
                    | ENB_XNACK_RETRY_DISABLE_CHECK.flag(resources.xnack_chain)
                    | QUEUE_TYPE.of(HIQ),
                lo(resources.queue_mask),
                hi(resources.queue_mask),
                // All of the global wave sync resource; no ordered append, no global data share.
                u32::MAX,
                u32::MAX,
                0,
                0,
            ],
        )
    }

    fn map_process(&self, process: &MapProcess<'_>) -> Packet {
        use map_process::*;

        let (tba, tma) = match process.process.trap {
            Some((tba, tma)) => (tba >> 8, tma >> 8),
            None => (0, 0),
        };
        let is_long = self.map_process_words == MAP_PROCESS_WORDS;
        let trap_en = TRAP_EN.flag(!is_long && process.process.trap.is_some());
        let [launch, watches @ ..] = match &process.process.control {
            _ if !is_long => [0; 1 + WATCH_POINTS],
            None => {
                let launch = spi_gdbg_per_vmid_cntl::TRAP_EN.flag(self.always_traps);
                [launch, 0, 0, 0, 0]
            }
            Some(control) => wave_words(control, self),
        };
        let mut words = [
            0,
            PASID.of(process.process.pasid.raw())
                | EXEC_CLEANER_SHADER.flag(process.cleans)
                | PROCESS_QUANTUM.of(QUANTUM_MS),
            lo(process.process.page_table_base),
            hi(process.process.page_table_base),
            process.process.sh_mem.bases,
            process.process.sh_mem.config,
            lo(tba),
            hi(tba) | trap_en,
            lo(tma),
            hi(tma),
            // No global data share.
            0,
            0,
            0,
            NUM_GWS.of(process.wave_sync) | SDMA_ENABLE.of(1) | NUM_QUEUES.of(process.queues),
            launch,
            watches[0],
            watches[1],
            watches[2],
            watches[3],
            0,
            0,
        ];
        if !is_long {
            return packet(opcode::MAP_PROCESS, first_words::<16>(&words));
        }
        if let Some(control) = &process.process.control {
            words[1] |= SINGLE_MEMOPS.flag(control.single_memory_operations);
        }
        packet(opcode::MAP_PROCESS, words)
    }

    fn map_queue(&self, queue: &HwQueue) -> Packet {
        use map_queues::*;

        let write_pointer = queue.write_pointer.raw();
        let words: [u32; MAP_QUEUES_WORDS] = [
            0,
            NUM_QUEUES.of(1)
                | QUEUE_SEL.of(HWS_DETERMINED)
                | GWS_CONTROL_QUEUE.flag(queue.wave_sync)
                | engine_selection(queue.engine, self.counts_engines),
            DOORBELL_OFFSET.of(queue.doorbell.raw()),
            lo(queue.mqd.raw()),
            hi(queue.mqd.raw()),
            lo(write_pointer),
            hi(write_pointer),
        ];
        packet(opcode::MAP_QUEUES, words)
    }

    fn run_list(&self, list: &RunList) -> Packet {
        use run_list::*;

        packet(
            opcode::RUN_LIST,
            [
                0,
                lo(list.address.raw()),
                hi(list.address.raw()),
                IB_SIZE.of(list.dwords)
                    | CHAIN.flag(list.chain)
                    | CHAINED_RUNLIST_IDLE_DISABLE.flag(list.chain)
                    | VALID.of(1)
                    | PROCESS_CNT.of(list.concurrent_processes),
            ],
        )
    }

    fn unmap_all(&self, fence: GpuVa, value: u64) -> Packet {
        use {query_status::*, unmap_queues::*};

        let fence = fence.raw();
        Packet::new([
            header(opcode::UNMAP_QUEUES, 6),
            QUEUE_SEL.of(ALL_NON_STATIC) | EXTENDED_ENGINE_SEL.flag(self.counts_engines),
            0,
            0,
            0,
            0,
            header(opcode::QUERY_STATUS, 7),
            COMMAND.of(FENCE_ONLY_AFTER_WRITE_ACK),
            0,
            lo(fence),
            hi(fence),
            lo(value),
            hi(value),
        ])
    }

    fn write_register(&self, register: u32, value: u32) -> Packet {
        use write_data::*;

        let register = DST_MMREG_ADDR.of(register);
        packet(opcode::WRITE_DATA, [0, ADDR_INCR.of(1), register, 0, value])
    }

    fn words(&self) -> RunlistWords {
        RunlistWords {
            process: self.map_process_words,
            queue: MAP_QUEUES_WORDS,
        }
    }

    fn nop(&self) -> u32 {
        NOP
    }
}

/// SH_MEM_CONFIG and SH_MEM_BASES up to graphics core 9.4.2.
pub(super) fn sh_mem(options: ShMemOptions) -> ShMem {
    use sh_mem_config::*;

    ShMem {
        config: ALIGNMENT_MODE.of(UNALIGNED) | RETRY_DISABLE.flag(!options.xnack),
        bases: sh_mem_bases::SHARED_BASE.of(hi(options.lds_base) >> 16)
            | sh_mem_bases::PRIVATE_BASE.of(hi(options.scratch_base) >> 16),
    }
}

/// The same for graphics cores 10.1 and 10.3 (`gc_10_1_0_sh_mask.h`): waves are given three lines
/// of code ahead, and no access is retried.
pub(in crate::gfx) fn sh_mem_10(options: ShMemOptions) -> ShMem {
    const ALIGNMENT_MODE: Field = Field::bits(3, 2);
    const INITIAL_INST_PREFETCH: Field = Field::bits(15, 14);

    ShMem {
        config: ALIGNMENT_MODE.of(sh_mem_config::UNALIGNED) | INITIAL_INST_PREFETCH.of(3),
        ..sh_mem(options)
    }
}

/// The same for graphics cores 9.4.3 and 9.4.4.
pub(super) fn sh_mem_9_4_3(options: ShMemOptions) -> ShMem {
    let plain = sh_mem(options);
    ShMem {
        config: plain.config | sh_mem_config::F8_MODE.of(1),
        ..plain
    }
}

/// The same for graphics core 9.5.0.
pub(super) fn sh_mem_9_5_0(options: ShMemOptions) -> ShMem {
    let plain = sh_mem(options);
    ShMem {
        config: plain.config | sh_mem_config::PRECISION_MODE.flag(options.precise),
        ..plain
    }
}

mod tests;
