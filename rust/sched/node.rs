// SPDX-License-Identifier: GPL-2.0-only

//! What a node has for queues: its scheduler, room for descriptors, the slots of its copy engines.
//!
//! One [`NodeQueues`] per node, made when the node comes up. Dropping it takes the scheduler's
//! queue off the hardware, so it goes after the last process has let go of the node.

use super::{
    direct::Direct,
    doorbells::DoorbellPool,
    dump::{
        dump,
        dump_registers, //
    },
    memory::{
        Needs,
        NodeMemory, //
    },
    mqd_pool::MqdPool,
    partition::{
        compute_slots,
        xccs,
        Config,
        Vmids, //
    },
    patience::Patience,
    pause::Pause,
    runlist::Runlist,
    slots::{
        SlotGuard,
        Slots, //
    },
    Scheduler, //
};
use crate::{
    gfx::{
        ContextSaveSizes,
        Generation,
        SdmaChoice,
        SdmaPlace, //
    },
    ids::{
        Pasid,
        Vmid, //
    },
    kgd::{
        gpu_warn,
        GpuFacts,
        HqdPosition,
        Kgd,
        Partition,
        Register, //
    },
    linux::ratelimit::may_complain,
};
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};

/// Queue slots of copy engines (`KFD_MAX_SDMA_QUEUES`).
type EngineSlots = Slots<2>;

/// Copy engines of one kind, numbered from `first` on within the node.
struct Engines {
    first: u32,
    count: u32,
    /// Queues of each.
    queues: u32,
    /// Slot n is queue n / count of engine n % count: new queues spread over the engines.
    slots: Arc<EngineSlots>,
}

/// A copy queue's slot.
pub(crate) struct SdmaSlot {
    slot: SlotGuard<Arc<EngineSlots>, 2>,
    place: SdmaPlace,
}

impl SdmaSlot {
    /// Which one it is.
    pub(crate) fn place(&self) -> SdmaPlace {
        self.place
    }
}

impl Engines {
    fn new(first: u32, count: u32, queues: u32) -> Result<Self> {
        let slots = EngineSlots::new((count * queues) as usize);
        Ok(Self {
            first,
            count,
            queues,
            slots: Arc::new(slots, GFP_KERNEL)?,
        })
    }

    fn slot(&self, slot: SlotGuard<Arc<EngineSlots>, 2>) -> SdmaSlot {
        // CAST: at most 128.
        let place = self.place(slot.index() as u32);
        SdmaSlot { slot, place }
    }

    fn place(&self, index: u32) -> SdmaPlace {
        // Without engines there is no slot to ask for.
        let count = self.count.max(1);
        SdmaPlace {
            engine: self.first + index % count,
            queue: index / count,
        }
    }

    /// All slots.
    fn all(&self) -> impl Iterator<Item = SdmaPlace> + '_ {
        (0..self.queues * self.count).map(|index| self.place(index))
    }

    /// The slots that queues have.
    fn taken(&self) -> impl Iterator<Item = SdmaPlace> + '_ {
        (0..self.queues * self.count)
            .filter(|&index| !self.slots.is_free(index as usize))
            .map(|index| self.place(index))
    }

    fn take(&self) -> Option<SdmaSlot> {
        Slots::take(self.slots.clone()).map(|slot| self.slot(slot))
    }

    /// The slot of that number. `EINVAL`: there is none; `EBUSY`: it is taken.
    fn take_at(&self, index: u32) -> Result<SdmaSlot> {
        if index >= self.queues * self.count {
            return Err(EINVAL);
        }
        let slot = Slots::take_at(self.slots.clone(), index as usize);
        slot.map(|slot| self.slot(slot)).ok_or(EBUSY)
    }

    fn take_on(&self, engine: u32) -> Option<SdmaSlot> {
        let start = engine.checked_sub(self.first)?;
        let slot = Slots::take_every(self.slots.clone(), start as usize, self.count as usize);
        slot.map(|slot| self.slot(slot))
    }
}

/// What a node has for queues.
pub(crate) struct NodeQueues {
    // Dropped from top to bottom: the scheduler lets go of the hardware before its memory goes.
    scheduler: Arc<dyn Scheduler>,
    memory: Arc<NodeMemory>,
    mqds: Arc<MqdPool>,
    pcie: Engines,
    xgmi: Engines,
    kgd: Arc<dyn Kgd>,
    generation: Generation,
    index: u32,
    /// Its logical XCCs, and how many these are.
    xcc_mask: u32,
    xccs: u32,
    save_sizes: ContextSaveSizes,
    /// Queues there are, of all processes.
    queues: AtomicU32,
    /// Processes that have queues.
    processes: AtomicU32,
    /// The XCC at which the next queue's work starts.
    rotation: AtomicU32,
}

/// A queue, as the node counts them.
pub(crate) struct QueueCount(Arc<NodeQueues>);

impl Drop for QueueCount {
    fn drop(&mut self) {
        self.0.queues.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A process that has queues: while there is one, the GPU's power management knows of it.
pub(crate) struct ActiveProcess(Arc<NodeQueues>);

impl Drop for ActiveProcess {
    fn drop(&mut self) {
        if self.0.processes.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.kgd.set_compute_idle(true);
        }
    }
}

/// How many copy engines a node has for PCIe, and how many for traffic between GPUs. A device with
/// xGMI has all but two for that.
fn engine_counts(facts: &GpuFacts) -> (u32, u32) {
    let all = facts.num_sdma_engines / facts.num_partitions.max(1);
    let pcie = if facts.xgmi_supported {
        all.min(2)
    } else {
        all
    };
    (pcie, all - pcie)
}

/// Queues that a node may have, of all processes.
fn max_queues(facts: &GpuFacts) -> u32 {
    /// `KFD_MAX_NUM_OF_QUEUES_PER_DEVICE`
    const MAX: i32 = 4096;
    facts.max_num_of_queues_per_device.clamp(1, MAX) as u32
}

/// The context-save sizes of each XCC of a node.
pub(crate) fn save_sizes(kgd: &dyn Kgd, generation: &Generation, xccs: u32) -> ContextSaveSizes {
    let facts = kgd.facts();
    let cus = facts.cu_count / facts.num_partitions.max(1) / xccs.max(1);
    let engines = facts.max_shader_engines;
    generation.chip.context_save.sizes(cus, engines)
}

/// The scheduler that the user wants.
fn scheduler(
    kgd: &Arc<dyn Kgd>,
    generation: Generation,
    memory: &Arc<NodeMemory>,
    (config, vmids): (Config, Arc<Vmids>),
    doorbells: &Arc<DoorbellPool>,
) -> Result<Arc<dyn Scheduler>> {
    /// `KFD_SCHED_POLICY_NO_HWS`
    const NO_HWS: i32 = 2;
    Ok(match kgd.facts().sched_policy {
        NO_HWS => Direct::start(kgd.clone(), generation.formats, config, vmids)?,
        _ => {
            let own = doorbells.own(config.partition)?;
            Runlist::start(kgd.clone(), generation, memory.clone(), config, own)?
        }
    })
}

impl NodeQueues {
    /// Brings up what a node needs for queues: partition `index` of the device beneath `kgd`, with
    /// those of the device's `vmids` that `vmid_mask` has, and its page of `doorbells`.
    pub(crate) fn new(
        kgd: Arc<dyn Kgd>,
        generation: Generation,
        (index, partition): (u32, &Partition),
        (vmid_mask, vmids): (u32, Arc<Vmids>),
        doorbells: &Arc<DoorbellPool>,
    ) -> Result<Arc<Self>> {
        let facts = kgd.facts();
        let xccs = partition.xcc_mask.count_ones();
        let save_sizes = save_sizes(&*kgd, &generation, xccs);
        let (pcie, xgmi) = engine_counts(facts);
        let slots = generation.chip.sdma_queues_per_engine;
        let needs = Needs {
            xccs: xccs as usize,
            sdma_engines: (pcie + xgmi) as usize,
            queues: max_queues(facts) as usize,
        };
        let memory = NodeMemory::new(kgd.clone(), generation, needs)?;
        let config = Config {
            xcc_mask: partition.xcc_mask,
            vmid_mask,
            partition: index,
            first_engine: index * (pcie + xgmi),
        };
        let stack = save_sizes.control_stack;
        let mqds = MqdPool::new(kgd.clone(), &generation, stack, xccs)?;
        let this = Self {
            scheduler: scheduler(&kgd, generation, &memory, (config, vmids), doorbells)?,
            memory,
            mqds,
            pcie: Engines::new(0, pcie, slots)?,
            xgmi: Engines::new(pcie, xgmi, slots)?,
            kgd,
            generation,
            index,
            xcc_mask: partition.xcc_mask,
            xccs,
            save_sizes,
            queues: AtomicU32::new(0),
            processes: AtomicU32::new(0),
            rotation: AtomicU32::new(0),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The node's scheduler.
    pub(crate) fn scheduler(&self) -> &dyn Scheduler {
        &*self.scheduler
    }

    /// How long is waited for it where it does not obey.
    pub(crate) fn patience(&self) -> &Patience {
        self.scheduler.patience()
    }

    /// The process that has a VMID, if the driver gives them. Legal in a hard interrupt.
    pub(crate) fn pasid_of(&self, vmid: Vmid) -> Option<Pasid> {
        self.scheduler.pasid_of(vmid)
    }

    /// A process of which a queue was reset and that has not been told yet.
    pub(crate) fn take_reset(&self) -> Option<Pasid> {
        self.scheduler.take_reset()
    }

    /// The memory in which descriptors of copy queues lie.
    pub(crate) fn memory(&self) -> &NodeMemory {
        &self.memory
    }

    /// Room for descriptors of compute queues.
    pub(crate) fn mqds(&self) -> &Arc<MqdPool> {
        &self.mqds
    }

    /// The node's generation.
    pub(crate) fn generation(&self) -> &Generation {
        &self.generation
    }

    /// The sizes of a queue's context-save area, of each XCC.
    pub(crate) fn save_sizes(&self) -> &ContextSaveSizes {
        &self.save_sizes
    }

    /// XCCs of the node.
    pub(crate) fn xccs(&self) -> u32 {
        self.xccs
    }

    /// What stands under the node.
    pub(crate) fn kgd(&self) -> &Arc<dyn Kgd> {
        &self.kgd
    }

    /// Takes all queues off the hardware until called with `false` for the same reason.
    pub(crate) fn pause(&self, why: Pause, pause: bool) -> Result {
        self.scheduler.pause(why, pause)
    }

    /// Leaves the hardware: it sleeps, is being reset, or goes away ([`Scheduler::stop`]).
    pub(crate) fn stop(&self) -> Result {
        self.scheduler.stop()
    }

    /// A reset is over, of which amdgpu may not have done the main part. `EBUSY`: something is on
    /// the hardware that was before, and the node refuses all work until the next reset; one that
    /// `sleeps` looks again when it is started. No other may run.
    pub(crate) fn check_reset(&self, sleeps: bool) -> Result {
        if self.is_empty() {
            self.scheduler.trust();
            return Ok(());
        }
        self.scheduler.distrust();
        if !sleeps {
            self.scheduler.refuse();
        }
        Err(EBUSY)
    }

    /// The hardware goes, which is stopped: its power, or the device ([`Scheduler::leave`]).
    pub(crate) fn leave(&self) {
        self.scheduler.leave();
    }

    /// Whether no queue of ours is on the hardware, the scheduler's included, as far as it tells.
    fn is_empty(&self) -> bool {
        let (pipe, queue) = self.generation.chip.hiq_slot;
        let works = |position| {
            xccs(self.xcc_mask).any(|(logical, _)| self.kgd.slot_is_active(position, logical))
        };
        let first = self.index * (self.pcie.count + self.xgmi.count);
        let copies = |place: SdmaPlace| {
            let doorbell = self.kgd.copy_doorbell(first + place.engine, place.queue);
            doorbell.is_some()
        };
        !(works(HqdPosition { pipe, queue })
            || compute_slots(self.kgd.facts()).any(works)
            || self.pcie.all().any(copies)
            || self.xgmi.all().any(copies))
    }

    /// The device wakes up, and its scheduler could not be started: [`Scheduler::want_reset`].
    pub(crate) fn want_reset(&self) {
        self.scheduler.want_reset();
    }

    /// The device's power may go: keeps what of its memory queues need that come back. `anew`: none
    /// of it is kept from a sleep that is not over.
    pub(crate) fn save(&self, anew: bool) -> Result {
        self.mqds.save(anew)
    }

    /// Brings that back.
    pub(crate) fn restore(&self) -> Result {
        self.mqds.restore()
    }

    /// Takes it again ([`Scheduler::start`]). `EBUSY`: a queue that did not leave it is at work
    /// still, and the node refuses all work until the next reset.
    pub(crate) fn start(&self) -> Result {
        if self.scheduler.is_distrusted() {
            self.check_reset(false)?;
        }
        self.scheduler.start()
    }

    /// Shows the run list that the hardware reads.
    pub(crate) fn show_run_list(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, count) = self.memory.listed();
        if count == 0 {
            return f.write_str("  No active runlist\n");
        }
        dump(f, "  ", &words, count)
    }

    /// Hangs the firmware's scheduler, to try what follows ([`Scheduler::hang`]).
    pub(crate) fn hang(&self) -> Result {
        self.scheduler.hang()
    }

    /// Shows the registers of all slots that queues can be in, up to where a reset begins: that is
    /// kept from it for one slot at a time.
    pub(crate) fn show_slots(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (facts, chip) = (self.kgd.facts(), &self.generation.chip);
        let (pipe, queue) = chip.hiq_slot;
        let hiq = HqdPosition { pipe, queue };
        for (xcc, _) in xccs(self.xcc_mask) {
            let of_hiq = core::iter::once((hiq, "HIQ, "));
            let others = compute_slots(facts).map(|at| (at, ""));
            for (at, name) in Iterator::chain(of_hiq, others) {
                let HqdPosition { pipe, queue } = at;
                let read = || self.kgd.slot_registers(at, xcc);
                if !self.show_slot(
                    f,
                    format_args!("XCC {xcc}, {name}pipe {pipe}, queue {queue}"),
                    read,
                )? {
                    return Ok(());
                }
            }
        }
        let engines = self.pcie.count + self.xgmi.count;
        let first = self.index * engines;
        for engine in first..first + engines {
            for queue in 0..chip.sdma_queues_per_engine {
                let read = || self.kgd.sdma_registers(engine, queue);
                if !self.show_slot(f, format_args!("SDMA engine {engine}, queue {queue}"), read)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Shows the registers that `read` reads. False: there are none to be read now.
    fn show_slot(
        &self,
        f: &mut fmt::Formatter<'_>,
        title: fmt::Arguments<'_>,
        read: impl FnOnce() -> Result<KVec<Register>>,
    ) -> Result<bool, fmt::Error> {
        let registers = match self.scheduler.is_stopped() {
            true => Err(EIO),
            false => read(),
        };
        match registers {
            Ok(registers) => {
                writeln!(f, "  {title}")?;
                dump_registers(f, &registers)?;
                Ok(true)
            }
            Err(error) if error == EIO => {
                f.write_str("  Device is stopped\n")?;
                Ok(false)
            }
            Err(_) => Err(fmt::Error),
        }
    }

    /// Shows the descriptors of all queues.
    pub(crate) fn show_descriptors(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |bytes: usize| bytes / size_of::<u32>();
        for place in [&self.pcie, &self.xgmi]
            .into_iter()
            .flat_map(Engines::taken)
        {
            writeln!(f, "  SDMA queue {} of engine {}", place.queue, place.engine)?;
            let mqd = self.memory.sdma_mqd(place, false).map_err(|_| fmt::Error)?;
            dump(
                f,
                "    ",
                &mqd.0,
                words(self.generation.formats.sdma.bytes()),
            )?;
        }
        self.mqds
            .show(words(self.generation.formats.mqd.bytes()), f)
    }

    /// Whether any process has queues here.
    pub(crate) fn is_active(&self) -> bool {
        self.processes.load(Ordering::Relaxed) != 0
    }

    /// Counts a process that has queues.
    pub(crate) fn activate(self: &Arc<Self>) -> ActiveProcess {
        if self.processes.fetch_add(1, Ordering::AcqRel) == 0 {
            self.kgd.set_compute_idle(false);
        }
        ActiveProcess(self.clone())
    }

    /// Counts a queue. `EPERM`: the user allows no more of them on a device.
    pub(crate) fn count(self: &Arc<Self>) -> Result<QueueCount> {
        let max = max_queues(self.kgd.facts());
        let before = self.queues.fetch_add(1, Ordering::Relaxed);
        let counted = QueueCount(self.clone());
        if before >= max {
            if may_complain() {
                let name = self.kgd.facts().pci_name();
                gpu_warn!(
                    name,
                    "max_num_of_queues_per_device allows {max} queues only\n"
                );
            }
            return Err(EPERM);
        }
        Ok(counted)
    }

    /// How many copy engines there are for PCIe, and how many for traffic between GPUs.
    pub(crate) fn copy_engines(&self) -> (u32, u32) {
        (self.pcie.count, self.xgmi.count)
    }

    /// Whether there is a copy engine of that number.
    pub(crate) fn has_engine(&self, engine: u32) -> bool {
        engine < self.pcie.count + self.xgmi.count
    }

    /// Whether a copy engine is one for the links between GPUs.
    pub(crate) fn is_for_xgmi(&self, engine: u32) -> bool {
        engine >= self.xgmi.first
    }

    /// Takes a slot of a copy engine. `ENOMEM`: all are taken.
    pub(crate) fn take_sdma(&self, choice: SdmaChoice) -> Result<SdmaSlot> {
        let slot = match choice {
            SdmaChoice::Pcie => self.pcie.take(),
            SdmaChoice::Xgmi => self.xgmi.take(),
            SdmaChoice::Engine(engine) if engine < self.xgmi.first => self.pcie.take_on(engine),
            SdmaChoice::Engine(engine) => self.xgmi.take_on(engine),
        };
        slot.ok_or_else(|| {
            if may_complain() {
                let name = self.kgd.facts().pci_name();
                gpu_warn!(name, "no SDMA queue is free ({choice:?})\n");
            }
            ENOMEM
        })
    }

    /// Takes the slot of a copy engine of the kind of `choice` that has this number. `EINVAL`:
    /// there is none; `EBUSY`: it is taken.
    pub(crate) fn take_sdma_at(&self, choice: SdmaChoice, number: u32) -> Result<SdmaSlot> {
        match choice {
            SdmaChoice::Pcie => self.pcie.take_at(number),
            SdmaChoice::Xgmi => self.xgmi.take_at(number),
            SdmaChoice::Engine(_) => Err(EINVAL),
        }
    }

    /// Whether a copy engine is one for the links between GPUs, and its slot's number among those
    /// of its kind.
    pub(crate) fn sdma_number(&self, slot: &SdmaSlot) -> (bool, u32) {
        // CAST: at most 128.
        (
            self.is_for_xgmi(slot.place.engine),
            slot.slot.index() as u32,
        )
    }

    /// Where the doorbells of a copy engine begin in a process's pages.
    pub(crate) fn sdma_doorbells(&self, engine: u32) -> Result<usize> {
        let mine = self.index * (self.pcie.count + self.xgmi.count);
        let base = self
            .kgd
            .facts()
            .sdma_doorbell_index
            .get((mine + engine) as usize);
        base.map(|&base| base as usize).ok_or(EINVAL)
    }

    /// At which XCC the work of a new queue starts: each queue at the next one.
    pub(crate) fn next_xcc(&self) -> u32 {
        self.rotation.fetch_add(1, Ordering::Relaxed)
    }
}

#[kernel::macros::kunit_tests(amdkfd_sched_node)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_split_only_with_xgmi() {
        let mut facts = GpuFacts {
            num_sdma_engines: 16,
            num_partitions: 1,
            ..GpuFacts::default()
        };
        assert_eq!(engine_counts(&facts), (16, 0));
        facts.xgmi_supported = true;
        let split = [1, 8, 16].map(|partitions| {
            facts.num_partitions = partitions;
            engine_counts(&facts)
        });
        assert_eq!(split, [(2, 14), (2, 0), (1, 0)]);
    }
}
