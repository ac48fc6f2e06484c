// SPDX-License-Identifier: GPL-2.0-only

//! What differs between generations of AMD's graphics core, as formats and as data.
//!
//! A [`Generation`] has two halves. [`Formats`] say how memory queue descriptors (MQD), packets for
//! the hardware scheduler, SDMA descriptors and interrupt ring entries are written or read; they
//! are pure: they turn values into words and words into values, and touch neither registers nor
//! memory of their own. A [`Chip`] has the numbers and policies of one GPU, which follow from its
//! [`ChipFacts`]. Formats of a generation are a module beneath this file, and one match chooses
//! formats and chip: [`chips`].

mod chip;
mod chips;
pub(crate) mod cu_mask;
pub(crate) mod field;
mod gfx10;
mod gfx9;
#[cfg(any(test, CONFIG_KUNIT = "y"))]
pub(crate) mod testing;
mod wave_control;

pub(crate) use chip::{
    ApertureBases,
    CacheLines,
    CacheSizes,
    Chip,
    ChipFacts,
    Coherence,
    ContextSave,
    ContextSaveSizes,
    Evidence,
    MqdDomain,
    SystemMemory,
    WaveSync, //
};
pub(crate) use wave_control::{
    LaunchMode,
    TrapMask,
    Watch,
    WaveControl,
    WATCH_POINTS, //
};

use crate::ids::{
    DoorbellIndex,
    GpuVa,
    IpVersion,
    Pasid,
    UserVa,
    Vmid, //
};
use core::ops::Range;

/// What one GPU is to this driver.
#[derive(Clone, Copy)]
pub(crate) struct Generation {
    /// Its numbers and policies.
    pub(crate) chip: Chip,
    /// How its engines are written to and read.
    pub(crate) formats: &'static Formats,
    /// What speaks for them.
    pub(crate) evidence: Evidence,
}

/// The formats of a generation, which all of its chips have in common.
pub(crate) struct Formats {
    /// Memory queue descriptors of the command processor (compute queues and the HIQ).
    pub(crate) mqd: &'static dyn MqdFormat,
    /// Memory queue descriptors of the copy engines.
    pub(crate) sdma: &'static dyn SdmaFormat,
    /// Packets for the hardware scheduler (HWS).
    pub(crate) runlist: &'static dyn RunlistFormat,
    /// Entries of the interrupt handler's (IH) ring.
    pub(crate) ih: &'static dyn IhFormat,
    /// SH_MEM_CONFIG and SH_MEM_BASES of a process.
    pub(crate) sh_mem: fn(ShMemOptions) -> ShMem,
}

/// A graphics core that is not driven, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownGeneration {
    /// Nobody knows it here.
    Unknown(IpVersion),
    /// It is driven only if somebody asks for it: [`Evidence::Compared`].
    Untested(IpVersion),
    /// [`Evidence::FormatsCompared`]
    Unfinished(IpVersion),
}

/// `modinfo -F graphics_cores`: `kfdctl driver` looks there before it loads the module.
#[cfg(CONFIG_RUST)]
#[used]
#[link_section = ".modinfo"]
static MODINFO: [u8; MODINFO_NAME.len() + chips::RUN_ON_MODEL.len() + 1] = {
    let mut bytes = [0; MODINFO_NAME.len() + chips::RUN_ON_MODEL.len() + 1];
    let (name, cores) = (MODINFO_NAME.as_bytes(), chips::RUN_ON_MODEL.as_bytes());
    let mut at = 0;
    while at < name.len() + cores.len() {
        bytes[at] = if at < name.len() {
            name[at]
        } else {
            cores[at - name.len()]
        };
        at += 1;
    }
    bytes
};
#[cfg(CONFIG_RUST)]
const MODINFO_NAME: &str = "graphics_cores=";

impl core::fmt::Display for UnknownGeneration {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            // amdgpu has no table of the parts of such a chip, and no version.
            Self::Unknown(IpVersion { major: 0, .. }) => write!(
                f,
                "a graphics core of before gfx9 is not supported; this driver knows {}",
                chips::RUN_ON_MODEL
            ),
            Self::Unknown(gc) => write!(
                f,
                "graphics core {gc} is not supported; this driver knows {}",
                chips::RUN_ON_MODEL
            ),
            Self::Untested(gc) => write!(
                f,
                "graphics core {gc} was compared with C and never run; allow_untested=1 serves it"
            ),
            Self::Unfinished(gc) => {
                write!(
                    f,
                    "graphics core {gc} is not supported; only its formats are known"
                )
            }
        }
    }
}

// The kernel's messages want its own.
#[cfg(CONFIG_RUST)]
impl kernel::fmt::Display for UnknownGeneration {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

impl Generation {
    /// What the GPU with these facts is, whether or not it is driven.
    pub(crate) fn of(facts: &ChipFacts) -> Result<Generation, UnknownGeneration> {
        let core = chips::core(facts.gc).ok_or(UnknownGeneration::Unknown(facts.gc))?;
        Ok(core.generation(facts))
    }

    /// Whether this driver drives the graphics core. `allow_untested`: also one that it has never
    /// run.
    pub(crate) fn check(gc: IpVersion, allow_untested: bool) -> Result<(), UnknownGeneration> {
        let core = chips::core(gc).ok_or(UnknownGeneration::Unknown(gc))?;
        match core.evidence {
            Evidence::Compared if !allow_untested => Err(UnknownGeneration::Untested(gc)),
            Evidence::FormatsCompared => Err(UnknownGeneration::Unfinished(gc)),
            Evidence::Compared | Evidence::RunOnModel => Ok(()),
        }
    }

    /// Whether anything is known of the graphics core.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn knows(gc: IpVersion) -> bool {
        chips::core(gc).is_some()
    }
}

/// Bytes of a page, the CPU's and the GPU's.
pub(crate) const PAGE_BYTES: u32 = 4096;

/// A run of 32-bit words that hardware reads: device memory in the module, an array in tests.
pub(crate) trait Words {
    /// The word at index `dword`.
    fn get(&self, dword: usize) -> u32;
    /// Reads a row of words from index `dword` on. Of what is written meanwhile it reads the old
    /// words, the new ones, or some of each.
    fn get_row(&self, dword: usize, row: &mut [u32]) {
        for (index, word) in row.iter_mut().enumerate() {
            *word = self.get(dword + index);
        }
    }
    /// Sets the word at index `dword`.
    fn set(&self, dword: usize, value: u32);
    /// Sets a row of words from index `dword` on.
    fn set_row(&self, dword: usize, row: &[u32]) {
        for (index, &value) in row.iter().enumerate() {
            self.set(dword + index, value);
        }
    }
    /// Sets a row of words to 0.
    fn clear(&self, dwords: Range<usize>) {
        dwords.for_each(|dword| self.set(dword, 0));
    }
}

/// How the commands of a compute queue are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComputeFormat {
    /// HSA's architected queueing language: 64-byte packets.
    Aql,
    /// AMD's own packets, executed by the XCC of this number within the node.
    Pm4 { target_xcc: u8 },
}

/// Where the waves of a queue are saved when it is taken off the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SaveArea {
    /// The area of the first XCC; the others follow.
    pub(crate) address: GpuVa,
    /// Bytes of each XCC's area, control stack included.
    pub(crate) bytes: u32,
    /// Bytes of the control stack.
    pub(crate) control_stack: u32,
}

/// Where an XCC has put the waves of a queue that left it, in bytes of its save area. The hardware
/// wrote all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SavedWaves {
    /// Where the used part of the control stack begins; it grows down.
    pub(crate) control_stack_offset: u32,
    /// Where the control stack ends and the waves' state begins.
    pub(crate) control_stack_size: u32,
    /// Where the waves' state ends.
    pub(crate) wave_state_offset: u32,
}

impl SavedWaves {
    /// The first word of the control stack that is in use, at most `words`. What lies before it may
    /// be another queue's.
    pub(crate) fn first_word(&self, words: usize) -> usize {
        let offset = self.control_stack_offset.min(self.control_stack_size);
        (offset as usize / size_of::<u32>()).min(words)
    }
}

/// Everything about a compute queue that its MQD says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComputeQueue {
    pub(crate) format: ComputeFormat,
    pub(crate) ring: GpuVa,
    /// Bytes of the ring: a power of two.
    pub(crate) ring_bytes: u32,
    pub(crate) read_pointer: UserVa,
    pub(crate) write_pointer: UserVa,
    pub(crate) doorbell: DoorbellIndex,
    /// End-of-pipe ring: address and bytes; the hardware does without one if it has no bytes.
    pub(crate) eop: (GpuVa, u32),
    pub(crate) save_area: Option<SaveArea>,
    /// The process has a trap handler.
    pub(crate) trap_handler: bool,
    /// 0 (lowest) to 15, as user space counts.
    pub(crate) priority: u8,
}

/// The hardware scheduler's own queue (HIQ).
#[derive(Clone, Copy, Debug)]
pub(crate) struct HiqQueue {
    pub(crate) ring: GpuVa,
    pub(crate) ring_bytes: u32,
    pub(crate) read_pointer: GpuVa,
    pub(crate) write_pointer: GpuVa,
    pub(crate) eop: (GpuVa, u32),
    pub(crate) doorbell: DoorbellIndex,
}

/// Which of a node's XCCs a descriptor is for, and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XccMqd {
    /// Counted within the node: 0 is the master.
    pub(crate) xcc: u32,
    /// GPU address of this XCC's descriptor.
    pub(crate) address: GpuVa,
    /// Bytes from one XCC's descriptor to the next one's.
    pub(crate) stride: u32,
    /// The XCC that takes this queue's first work-group, so that queues do not all start on one.
    pub(crate) logical_xcc: u32,
}

/// Compute units a queue may use, per shader engine, of one XCC.
pub(crate) type CuMask = [u32; 8];

/// Descriptors of queues that the command processor executes.
///
/// All indices are in words; each method writes the descriptor of one XCC and takes memory that was
/// cleared before (`compute`, `hiq`) or that held the same queue before (`update`).
pub(crate) trait MqdFormat: Sync {
    /// Bytes of a descriptor.
    fn bytes(&self) -> usize;
    /// Bytes of a compute queue's descriptor and of the control stack that must follow it.
    fn stride(&self, control_stack: u32) -> usize;
    /// Writes a new compute queue, whatever was there before.
    fn compute(&self, words: &dyn Words, at: XccMqd, queue: &ComputeQueue);
    /// Takes over into the descriptor of a new compute queue what `saved` has of another one's,
    /// which somebody has brought: it may say anything. `xccs` is how many the node has.
    fn take_over(&self, words: &dyn Words, queue: &ComputeQueue, saved: &[u32], xccs: u32);
    /// The XCC that executes the packets of a PM4 queue, of which `saved` is a descriptor.
    fn target_xcc(&self, saved: &[u32]) -> u8;
    /// Writes what UPDATE_QUEUE can change of a queue that is off the hardware.
    fn update(&self, words: &dyn Words, xcc: u32, queue: &ComputeQueue);
    /// Restricts a queue that is off the hardware to some compute units.
    fn set_cu_mask(&self, words: &dyn Words, mask: CuMask);
    /// Says whether performance counters count a queue that is off the hardware.
    fn count_performance(&self, words: &dyn Words, count: bool);
    /// Whether a queue's waves are spread over all SIMDs, as those are that wait for each other
    /// (global wave sync).
    fn spread_waves(&self, words: &dyn Words, spread: bool);
    /// Says which VMID a queue has that the driver itself loads.
    fn set_vmid(&self, words: &dyn Words, vmid: Vmid);
    /// Writes the scheduler's own queue.
    fn hiq(&self, words: &dyn Words, at: XccMqd, queue: &HiqQueue);
    /// What was saved of a compute queue that is off the hardware.
    fn saved_waves(&self, words: &dyn Words) -> SavedWaves;
    /// Where a compute queue's ring is.
    fn ring(&self, words: &dyn Words) -> Option<GpuVa>;
    /// Takes out of the HIQ's descriptor the doorbell of a queue whose preemption failed.
    fn take_failed_doorbell(&self, words: &dyn Words) -> Option<u32>;
}

/// Everything about a copy queue that its descriptor says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SdmaQueue {
    pub(crate) ring: GpuVa,
    pub(crate) ring_bytes: u32,
    pub(crate) read_pointer: UserVa,
    pub(crate) doorbell: DoorbellIndex,
    pub(crate) place: SdmaPlace,
}

/// A queue slot of a copy engine, both counted within the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SdmaPlace {
    pub(crate) engine: u32,
    pub(crate) queue: u32,
}

/// Which copy engine a queue shall be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SdmaChoice {
    /// Any of those for traffic over PCIe.
    Pcie,
    /// Any of those for traffic between GPUs.
    Xgmi,
    /// This one.
    Engine(u32),
}

/// Descriptors of copy (SDMA) queues.
pub(crate) trait SdmaFormat: Sync {
    /// Bytes of a descriptor.
    fn bytes(&self) -> usize;
    /// Writes a new queue into cleared memory, or what UPDATE_QUEUE changed into an old descriptor.
    fn encode(&self, words: &dyn Words, queue: &SdmaQueue);
    /// Takes over into the descriptor of a new queue what `saved` has of another one's, which
    /// somebody has brought: it may say anything.
    fn take_over(&self, words: &dyn Words, saved: &[u32]);
    /// Says which VMID a queue has that the driver itself loads, and into which of the device's
    /// engines: [`SdmaFormat::encode`] names that by its number within the node.
    fn set_vmid(&self, words: &dyn Words, vmid: Vmid, engine: u32);
}

/// A packet for the hardware scheduler, or packets that go together: up to `MAX` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    words: [u32; Self::MAX],
    len: usize,
}

impl Packet {
    /// Words of the longest packet.
    pub(crate) const MAX: usize = 24;

    /// The packet made of `words`, which are at most [`Packet::MAX`].
    pub(crate) const fn new<const N: usize>(words: [u32; N]) -> Self {
        const { assert!(N <= Self::MAX) };
        let mut all = [0; Self::MAX];
        let mut i = 0;
        while i < N {
            all[i] = words[i];
            i += 1;
        }
        Self { words: all, len: N }
    }

    /// The words of the packet.
    pub(crate) fn words(&self) -> &[u32] {
        self.words.get(..self.len).unwrap_or(&[])
    }
}

/// What the hardware scheduler may use (SET_RESOURCES).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resources {
    /// Bit n: VMID n is the scheduler's.
    pub(crate) vmid_mask: u32,
    /// Bit n: hardware queue n (8 per pipe, 4 pipes) is the scheduler's.
    pub(crate) queue_mask: u64,
    /// How long a preemption may take, in units of 100 ms.
    pub(crate) unmap_latency: u32,
    /// Processes with and without XNACK must not share the hardware.
    pub(crate) xnack_chain: bool,
}

/// What the hardware needs to know of a process, however it is scheduled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HwProcess {
    pub(crate) pasid: Pasid,
    pub(crate) page_table_base: u64,
    pub(crate) sh_mem: ShMem,
    /// Trap handler and its memory (TBA and TMA); not sign-extended, as the shader wants them.
    pub(crate) trap: Option<(u64, u64)>,
    /// What a debugger has set; `None`: nothing, as for nearly all.
    pub(crate) control: Option<WaveControl>,
}

/// A process in a run list (MAP_PROCESS).
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapProcess<'a> {
    pub(crate) process: &'a HwProcess,
    /// Queues that follow, or could.
    pub(crate) queues: u32,
    /// Slots of global wave sync (GWS) that its queues may use.
    pub(crate) wave_sync: u32,
    /// What the process before it left in registers and LDS is cleared.
    pub(crate) cleans: bool,
}

/// How the shader sees memory: SH_MEM_CONFIG and SH_MEM_BASES.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShMem {
    pub(crate) config: u32,
    pub(crate) bases: u32,
}

/// Which engine executes a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Compute,
    Sdma(u32),
}

/// What the hardware needs to know of a queue to load it, however it is scheduled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HwQueue {
    pub(crate) engine: Engine,
    pub(crate) doorbell: DoorbellIndex,
    pub(crate) mqd: GpuVa,
    pub(crate) write_pointer: UserVa,
    /// It uses global wave sync: no other queue that does may run at the same time.
    pub(crate) wave_sync: bool,
}

/// A list of processes and queues in memory (RUN_LIST).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunList {
    pub(crate) address: GpuVa,
    pub(crate) dwords: u32,
    /// The list does not fit the hardware: start over at its end (over-subscription).
    pub(crate) chain: bool,
    /// Processes that may be on the hardware at the same time.
    pub(crate) concurrent_processes: u32,
}

/// Packets of the hardware scheduler's queue and of its run lists.
pub(crate) trait RunlistFormat: Sync {
    /// Says what the scheduler may use, once before anything else.
    fn set_resources(&self, resources: &Resources) -> Packet;
    /// Opens a process in a run list.
    fn map_process(&self, process: &MapProcess<'_>) -> Packet;
    /// Adds a queue to the process before it in a run list (MAP_QUEUES).
    fn map_queue(&self, queue: &HwQueue) -> Packet;
    /// Words of the packets of a process and of a queue.
    fn words(&self) -> RunlistWords;
    /// Starts a run list, or starts it over from within.
    fn run_list(&self, list: &RunList) -> Packet;
    /// Takes every queue but the statically mapped ones off the hardware, and writes `value` to
    /// `fence` once that is done: two packets.
    fn unmap_all(&self, fence: GpuVa, value: u64) -> Packet;
    /// Writes a register, given as dword offset.
    fn write_register(&self, register: u32, value: u32) -> Packet;
    /// A packet that is one word long and does nothing.
    fn nop(&self) -> u32;
}

/// How long packets are, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunlistWords {
    pub(crate) process: usize,
    pub(crate) queue: usize,
}

/// What a process's view of memory depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShMemOptions {
    /// First address of the LDS aperture.
    pub(crate) lds_base: u64,
    /// First address of the scratch aperture.
    pub(crate) scratch_base: u64,
    /// A faulting access is retried.
    pub(crate) xnack: bool,
    /// Matrix operations shall be as precise as they can be, where there is a choice.
    pub(crate) precise: bool,
}

/// What the GPU interrupted us for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// A compute queue finished a packet that asked for an interrupt. `context_id` is the event.
    EndOfPipe { pasid: Pasid, context_id: u32 },
    /// A copy queue executed TRAP; 28 bits of context.
    SdmaTrap { pasid: Pasid, context_id: u32 },
    /// A wave executed S_SENDMSG; [`IhFormat::message_bits`] of data.
    WaveMessage {
        pasid: Pasid,
        data: u32,
        privileged: bool,
    },
    /// A wave did what it must not.
    WaveError {
        pasid: Pasid,
        data: u32,
        error: WaveError,
    },
    /// The command processor met a packet it does not know; an exception code of the debugger ABI.
    BadPacket {
        pasid: Pasid,
        doorbell: u32,
        exception: u32,
    },
    /// A memory access failed.
    VmFault {
        pasid: Pasid,
        vmid: Vmid,
        va: u64,
        /// The page is not there (rather than not permitted).
        not_present: bool,
        read: bool,
        write: bool,
    },
    /// Data that memory had marked as lost was consumed by `client`.
    Poison { pasid: Pasid, client: u8 },
    /// A shader engine reports about itself (overflows, thread trace), or in an encoding that has
    /// no name.
    SqAuto {
        pasid: Pasid,
        status: u32,
        data: u32,
    },
    /// The entry that a driver puts into the ring to see all before it delivered.
    Fence { pasid: Pasid },
}

/// Errors of a wave (`SQ_INTERRUPT_ERROR_TYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaveError {
    IllegalInstruction,
    MemoryViolation,
}

/// Words of an entry of the interrupt ring.
pub(crate) const IH_ENTRY_DWORDS: usize = 8;

/// Entries of the interrupt ring.
pub(crate) trait IhFormat: Sync {
    /// What `entry` says, if it is for user queues at all.
    fn decode(&self, entry: &[u32; IH_ENTRY_DWORDS]) -> Option<Interrupt>;
    /// `entry` as the process `pasid`'s, if it names none.
    fn with_pasid(
        &self,
        entry: &[u32; IH_ENTRY_DWORDS],
        pasid: Pasid,
    ) -> Option<[u32; IH_ENTRY_DWORDS]>;
    /// The hardware node that sent `entry` and the VMID it belongs to: what tells apart the
    /// partitions of one GPU.
    fn source(&self, entry: &[u32; IH_ENTRY_DWORDS]) -> Option<IhSource>;
    /// Bit n: entries of hardware node n belong to a node made of the XCCs of `xcc_mask`.
    fn node_bitmap(&self, xcc_mask: u32) -> u32;
    /// Bits of the data that a wave sends.
    fn message_bits(&self) -> u32;
}

/// Where an interrupt comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IhSource {
    /// The sender's number on the interrupt fabric.
    pub(crate) node: u32,
    pub(crate) vmid: Vmid,
    /// Entries without a VMID of their own are for whoever waits for them.
    pub(crate) fence: bool,
}

impl IhSource {
    /// Whether an entry from here belongs to a node with these bitmaps of hardware nodes and VMIDs.
    pub(crate) fn belongs_to(&self, node_bitmap: u32, vmid_mask: u32) -> bool {
        let vmid = 1u32.checked_shl(self.vmid.raw().into()).unwrap_or(0);
        let node = 1u32.checked_shl(self.node).unwrap_or(0);
        node_bitmap & node != 0 && (self.fence || vmid_mask & vmid != 0)
    }
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_gfx))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;

    #[test]
    fn only_known_generations_are_served() {
        let check =
            |gc: (u8, u8, u8), allow| Generation::check(IpVersion::new(gc.0, gc.1, gc.2), allow);
        for allow in [false, true] {
            for gc in [(9, 4, 2), (9, 4, 3), (9, 5, 0)] {
                assert_eq!(check(gc, allow), Ok(()));
            }
            for gc in [(9, 4, 5), (11, 0, 0), (0, 0, 0)] {
                let unknown = UnknownGeneration::Unknown(IpVersion::new(gc.0, gc.1, gc.2));
                assert_eq!(check(gc, allow), Err(unknown));
            }
            let unfinished = UnknownGeneration::Unfinished(IpVersion::new(9, 4, 1));
            assert_eq!(check((9, 4, 1), allow), Err(unfinished));
        }
        let untested = UnknownGeneration::Untested(IpVersion::new(9, 4, 4));
        assert_eq!(check((9, 4, 4), false), Err(untested));
        assert_eq!(check((9, 4, 4), true), Ok(()));
    }

    #[test]
    fn what_is_told_to_be_driven_has_been_run() {
        let told = chips::RUN_ON_MODEL;
        for number in 0..2000u16 {
            let digits = |unit: u16, base: u16| (number / unit % base) as u8;
            let gc = IpVersion::new(digits(100, 20), digits(10, 10), digits(1, 10));
            let is_told = told.split(", ").any(|name| is_named(gc, name));
            assert_eq!(Generation::check(gc, false).is_ok(), is_told);
        }
    }

    #[test]
    fn a_chip_is_named_by_its_version() {
        for number in 0..1000u16 {
            let digits = |unit: u16| (number / unit % 10) as u8;
            let gc = IpVersion::new(digits(100), digits(10), digits(1));
            let facts = ChipFacts {
                gc,
                ..testing::MI300X
            };
            if let Ok(known) = Generation::of(&facts) {
                let name = known.chip.name.strip_prefix("gfx");
                assert!(name.is_some_and(|name| is_named(gc, name)));
            }
        }
    }

    fn is_named(gc: IpVersion, name: &str) -> bool {
        let mut parts = name.split('.').map(str::parse);
        [gc.major, gc.minor, gc.revision]
            .iter()
            .all(|part| parts.next() == Some(Ok(*part)))
            && parts.next().is_none()
    }
}
