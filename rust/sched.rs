// SPDX-License-Identifier: GPL-2.0-only

//! The scheduler of a node: which queues are on the hardware.
//!
//! One [`Scheduler`] per node, made at bring-up and owned by the node's
//! [`NodeQueues`]. [`runlist`] hands all queues to the firmware's hardware
//! scheduler (HWS); [`direct`] does without one and gives each queue a hardware slot of its own.
//!
//! A process takes a [`SchedProcess`] before its first queue and gives it up after its last. What
//! goes into a process or a queue's entry is allocated by the caller beforehand: nothing here
//! allocates, because eviction runs where memory is being reclaimed.

mod copy_slots;
mod direct;
pub(crate) mod doorbells;
mod dump;
mod hiq;
pub(crate) mod image;
pub(crate) mod memory;
pub(crate) mod mqd_pool;
pub(crate) mod node;
pub(crate) mod partition;
pub(crate) mod patience;
pub(crate) mod pause;
mod preemption;
mod resets;
pub(crate) mod ring;
mod runlist;
mod runlist_state;
pub(crate) mod slots;

pub(crate) use node::NodeQueues;

use crate::{
    gfx::{
        HwProcess,
        HwQueue,
        SdmaPlace, //
        WaveControl,
    },
    ids::{
        Pasid,
        Vmid, //
    },
    kgd::{
        KernelBo,
        Vm, //
    },
};
use core::sync::atomic::{
    AtomicU64,
    Ordering, //
};
use direct::{
    Binding,
    HqdSlot, //
};
use image::Counts;
use pause::Pause;
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::Arc, //
};
use patience::Patience;

/// The name of a process or of a queue's entry. Newer names sort first, as the hardware gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u64);

impl Key {
    /// A name that nothing has had.
    pub(crate) fn next() -> Self {
        /// Counts downwards from the top, for every process and every queue of every node.
        static NEXT: AtomicU64 = AtomicU64::new(u64::MAX);
        Self(NEXT.fetch_sub(1, Ordering::Relaxed))
    }

    /// Set in the name of a process without XNACK, clear in that of one with.
    const NO_XNACK: u64 = 1 << 63;

    /// A name for a process: those of one XNACK mode sort next to each other.
    fn next_process(xnack: bool) -> Self {
        let age = Self::next().age();
        Self(if xnack { age } else { age | Self::NO_XNACK })
    }

    /// Where it is from the newest to the oldest, whatever the mode.
    fn age(self) -> u64 {
        self.0 & !Self::NO_XNACK
    }
}

/// A process at a scheduler.
struct SchedProcess {
    /// What the hardware is told of it.
    described: HwProcess,
    /// Its queues, those that do not run as well. Counted for the run list only.
    queue_count: u32,
    /// None of its queues may be on the hardware.
    evicted: bool,
    queues: RBTree<Key, SchedQueue>,
    part: Part,
    /// Words that it has in the run list if all its queues run.
    reserved: usize,
    /// What it has in the run list.
    counts: Counts,
    /// A queue of it was reset: its queues do not change any more.
    has_reset: bool,
    /// It may have something on hardware that does not obey.
    stranded: bool,
    /// It goes as soon as its queues have left the hardware.
    leaving: bool,
    /// Its page directory has moved, and its VMID does not know it.
    moved: bool,
    /// Its VMID, if the driver itself gives them.
    binding: Option<Binding>,
    vm: Option<Arc<Vm>>,
}

/// Where a process's part of the run list is, in words.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// What follows it in the list.
    behind: usize,
    /// All of it.
    dwords: usize,
    /// The process's packet, which is in front. 0: it is not in the list yet.
    head: usize,
}

/// A queue at a scheduler.
struct SchedQueue {
    described: HwQueue,
    /// Why it is kept off the hardware, beside that its process is evicted: `STOPPED`, `SUSPENDED`,
    /// `LEAVING`.
    /// One number, for all queues of a process are asked for it when that is evicted.
    kept: u8,
    /// Words of its packet in the run list. 0: it is not in it.
    listed: usize,
    /// Its slot, if the driver itself gives them.
    hqd: HqdSlot,
}

impl SchedQueue {
    /// It is not meant to run.
    const STOPPED: u8 = 1;
    /// A debugger keeps it off.
    const SUSPENDED: u8 = 2;
    /// It goes as soon as it has left the hardware.
    const LEAVING: u8 = 4;

    /// Whether it is meant to run.
    fn runs(&self) -> bool {
        self.kept & (Self::STOPPED | Self::LEAVING) == 0
    }

    /// Keeps it off for that reason or not; returns whether that is new.
    fn keep(&mut self, reason: u8, keeps: bool) -> bool {
        let before = self.kept;
        self.kept = if keeps {
            before | reason
        } else {
            before & !reason
        };
        self.kept != before
    }
}

/// A process that no scheduler has yet. It is large, and stays where it is made.
pub(crate) struct NewSchedProcess {
    key: Key,
    node: RBTreeNode<Key, SchedProcess>,
}

/// What may have changed since a process was made for a scheduler.
#[derive(Clone, Copy)]
pub(crate) struct Meanwhile {
    /// Where its page table is by now.
    pub(crate) page_table_base: u64,
    /// Its queues shall not run until they are restored.
    pub(crate) evicted: bool,
    /// What a debugger has set by now.
    pub(crate) control: Option<WaveControl>,
}

impl NewSchedProcess {
    /// The process that `process` tells the hardware of. `vm`: for who loads queues of its memory.
    pub(crate) fn new(process: HwProcess, xnack: bool, vm: Option<Arc<Vm>>) -> Result<Self> {
        let key = Key::next_process(xnack);
        let process = SchedProcess {
            described: process,
            queue_count: 0,
            evicted: false,
            queues: RBTree::new(),
            part: Part::default(),
            reserved: 0,
            counts: Counts::default(),
            has_reset: false,
            stranded: false,
            leaving: false,
            moved: false,
            binding: None,
            vm,
        };
        let node = RBTreeNode::new(key, process, GFP_KERNEL)?;
        Ok(Self { key, node })
    }

    /// Takes it into `processes`; `None`: it is as it was made.
    fn insert(
        self,
        processes: &mut RBTree<Key, SchedProcess>,
        meanwhile: Option<&Meanwhile>,
        behind: usize,
    ) -> Key {
        let Self { key, node } = self;
        // No process has had that name.
        let before = processes.insert(node);
        drop(before);
        if let Some(at) = processes.get_mut(&key) {
            at.part.behind = behind;
            if let Some(meanwhile) = meanwhile {
                at.described.page_table_base = meanwhile.page_table_base;
                at.described.control = meanwhile.control;
                at.evicted = meanwhile.evicted;
            }
        }
        key
    }
}

/// A queue that no scheduler has yet.
pub(crate) struct NewSchedQueue {
    key: Key,
    node: RBTreeNode<Key, SchedQueue>,
}

impl NewSchedQueue {
    /// An entry called `key` for `queue`, whose descriptors lie there.
    pub(crate) fn new(
        key: Key,
        queue: HwQueue,
        runs: bool,
        descriptor: Descriptor,
    ) -> Result<Self> {
        Self::with_slot(key, queue, runs, HqdSlot::new(descriptor))
    }

    /// The same without descriptors, for tests of the run list.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn undescribed(queue: HwQueue, runs: bool) -> Result<Self> {
        Self::with_slot(Key::next(), queue, runs, HqdSlot::default())
    }

    fn with_slot(key: Key, queue: HwQueue, runs: bool, hqd: HqdSlot) -> Result<Self> {
        let entry = SchedQueue {
            described: queue,
            kept: if runs { 0 } else { SchedQueue::STOPPED },
            listed: 0,
            hqd,
        };
        let node = RBTreeNode::new(key, entry, GFP_KERNEL)?;
        Ok(Self { key, node })
    }

    /// The name that it will have.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn key(&self) -> Key {
        self.key
    }
}

/// Where the CPU finds a queue's descriptors: the first XCC's, and how far on the next one's is.
pub(crate) struct Descriptor {
    pub(crate) bo: Arc<KernelBo>,
    pub(crate) offset: usize,
    pub(crate) stride: usize,
    /// The slot that a copy queue's descriptor names.
    pub(crate) copy_slot: Option<SdmaPlace>,
}

/// How queues are suspended, or that they are not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspension {
    /// Waves that run are given so long to end by themselves, in units of 1000 clocks of the GPU;
    /// `None`: as long as usual.
    Begin { grace: Option<u32> },
    /// They may run again.
    End,
}

/// Puts queues onto the hardware and takes them off.
///
/// Every method that changes what is to run returns after the hardware has done so. `EIO`: the
/// device is being reset, or was given up on earlier. `ETIME`: the hardware did not answer and is
/// given up on now; the node refuses all work from then on, until it is started again. A queue that
/// does not stop is reset, if that can be done, and the others go on: see
/// [`Scheduler::take_reset`].
pub(crate) trait Scheduler: Send + Sync {
    /// Takes a process in, with what has changed since it was made, if anything.
    fn add(&self, process: NewSchedProcess, meanwhile: Option<&Meanwhile>) -> Key;
    /// Lets a process go with all its queues; they are off the list even if this fails.
    fn remove(&self, process: Key) -> Result;
    /// Takes a queue in and runs it if it is to run. On error it is not taken in. `EPERM`: it would
    /// be more to run than the user allows.
    fn map(&self, process: Key, queue: NewSchedQueue) -> Result;
    /// Lets a queue go; it is off the list even if this fails.
    fn unmap(&self, process: Key, queue: Key) -> Result;
    /// Takes a queue off the hardware, calls `change`, and goes on with the queue if that says so.
    /// If the hardware does not let go of it `change` is not called, and the error says why.
    /// `EACCES`: a queue of the process was reset; nothing changes.
    fn rewrite(&self, process: Key, queue: Key, change: &mut dyn FnMut() -> bool) -> Result;
    /// Takes a process's queues off the hardware until they are restored; once is enough.
    fn evict(&self, process: Key) -> Result;
    /// Runs an evicted process's queues again, with its page table now at `page_table_base`.
    fn restore(&self, process: Key, page_table_base: u64) -> Result;
    /// Gives a queue the node's global wave sync, or takes it back, and calls `change` while it is
    /// off the hardware. `ENODEV`: there is none, as without a scheduler in the firmware; `EACCES`:
    /// a queue of the process was reset. In both cases nothing changes.
    fn set_wave_sync(
        &self,
        _process: Key,
        _queue: Key,
        _on: bool,
        _change: &mut dyn FnMut(),
    ) -> Result {
        Err(ENODEV)
    }
    /// What a debugger has set for the waves of a process is this from now on; `None`: nothing.
    /// After an error it is all the same, but the hardware does not know. `EINVAL`: the scheduler
    /// cannot do that.
    fn set_control(&self, _process: Key, _control: Option<WaveControl>) -> Result {
        Err(EINVAL)
    }
    /// Suspends queues of a process, or takes that back: their waves are saved, and they do not
    /// run, whatever else happens to them. Whether all queues of the process had left the hardware,
    /// and what that has saved of them is there ([`Scheduler::keeps_saved`]). After an error they
    /// are suspended all the same, but may still be at work. `EINVAL`: the scheduler cannot do
    /// that.
    fn suspend(
        &self,
        _process: Key,
        _queues: &mut dyn Iterator<Item = Key>,
        _suspension: Suspension,
    ) -> Result<bool> {
        Err(EINVAL)
    }
    /// Whether what the hardware has saved of a process's queues that do not run is there: they
    /// have left it, and neither is it reset nor does its power go.
    fn keeps_saved(&self, _process: Key) -> bool {
        false
    }
    /// Whether a queue may be on the hardware: it is meant to run, its process is not evicted, and
    /// it was neither suspended nor reset.
    fn may_run(&self, process: Key, queue: Key) -> bool;
    /// Whether a queue could be changed now. `EACCES`: a queue of the process was reset; `EIO`: the
    /// node refuses all work.
    fn check_changeable(&self, process: Key, queue: Key) -> Result;
    /// Whether it has left the hardware, which may be asleep then.
    fn is_stopped(&self) -> bool;
    /// Whether nothing is on the hardware of what had to leave it: false from an order that failed
    /// until a later one is obeyed, or the GPU has been reset, or goes ([`Scheduler::leave`]).
    fn has_let_go(&self) -> bool;
    /// Whether hardware that did not obey may be at work for a process, though it was evicted, or
    /// in the middle of a reset that has begun: until it has been reset, or has obeyed.
    fn may_work_for(&self, process: Key) -> bool;
    /// Since when hardware does not obey.
    fn patience(&self) -> &Patience;
    /// Gives orders again that failed because amdgpu had the hardware for itself, which need not
    /// end in a reset. What comes of that [`Scheduler::has_let_go`] says.
    fn ask_again(&self);
    /// Whether there are such orders: to take something off, or to put it back.
    fn owes(&self) -> bool;
    /// Hangs the firmware's scheduler, to try what follows: a reset of the GPU. `ENODEV`: there is
    /// none.
    fn hang(&self) -> Result {
        Err(ENODEV)
    }
    /// The process that has a VMID, where the driver itself gives them. Legal in a hard interrupt.
    fn pasid_of(&self, _vmid: Vmid) -> Option<Pasid> {
        None
    }
    /// A process of which a queue has been reset since it was last asked for: it is to be told.
    fn take_reset(&self) -> Option<Pasid> {
        None
    }
    /// Takes all queues off the hardware until called with `false` for each reason.
    fn pause(&self, why: Pause, pause: bool) -> Result;
    /// Leaves the hardware, which may go away or be reset then: queues come and go in memory only.
    /// During a reset the hardware is not touched. An error: it may still be at work; it is left
    /// all the same.
    fn stop(&self) -> Result;
    /// The hardware goes, its power or the device: nobody waits for what did not leave it. For a
    /// stopped scheduler.
    fn leave(&self);
    /// Nothing is on the hardware: it was looked at. For a stopped scheduler.
    fn trust(&self);
    /// What was on the hardware is there still. For a stopped scheduler.
    fn distrust(&self);
    /// Whether something may be on the hardware that did not leave it, unless its power has gone.
    /// For a stopped scheduler.
    fn is_distrusted(&self) -> bool;
    /// The node refuses all work until the next reset. For a stopped scheduler.
    fn refuse(&self);
    /// If it could not be started: asks for a reset, as soon as that can be had.
    fn want_reset(&self);
    /// Takes the hardware as it is after power-up, and runs what is to run. For a stopped
    /// scheduler; any other goes on. After an error the node refuses all work. The caller keeps
    /// resets away, or is the end of one.
    fn start(&self) -> Result;
}
