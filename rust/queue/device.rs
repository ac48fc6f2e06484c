// SPDX-License-Identifier: GPL-2.0-only

//! The queues of one process on one GPU: which there are, and whether they may run.
//!
//! One [`Queues`] for each `ProcessDevice`, embedded in it. It holds the process's key at the
//! node's scheduler for as long as there is a queue, and its doorbells from the first need on.

mod copies;
mod debugger;
mod ending;
mod obedience;
mod performance;
mod saved;

pub(super) use debugger::Debugged;
pub(crate) use debugger::{
    Named,
    QueueSnapshot, //
};
use ending::{
    has_obeyed,
    Ended,
    Remains, //
};
pub(crate) use obedience::{
    await_obedience,
    work_elsewhere,
    PATIENCE, //
};

use super::{
    properties::{
        QueueProperties, //
        QueueSettings,
    },
    NewQueue,
    Queue,
    QueueFacts,
    Site, //
};
use crate::{
    doorbell::ProcessDoorbells,
    gfx::{
        SaveArea,
        WaveControl, //
    },
    ids::{
        GpuId,
        QueueId, //
    },
    kgd::gpu_warn,
    linux::{
        timekeeping::monotonic_nanoseconds,
        trace::{
            self,
            ProcessChange, //
        }, //
    },
    sched::{
        node::ActiveProcess,
        Key,
        Meanwhile,
        NewSchedProcess,
        NewSchedQueue, //
    },
};
use kernel::{
    fmt, new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        lock::mutex::MutexGuard,
        CondVar,
        Mutex,
        SetOnce, //
    },
    task::Kuid, //
};

/// A queue that the scheduler knows.
pub(super) struct Scheduled {
    pub(super) key: Key,
    pub(super) queue: Queue,
    pub(super) debugged: Debugged,
}

/// A queue with its place among those of the process.
type QueueNode = RBTreeNode<QueueId, Scheduled>;

/// A queue that was not taken in. To be dropped when nothing is locked that reclaim may take: its
/// memory goes.
pub(crate) struct Refused {
    pub(crate) error: Error,
    _left: (Option<ActiveProcess>, Option<QueueNode>),
}

/// The queues of one process on one GPU.
#[pin_data]
pub(crate) struct Queues {
    /// Whose process it is.
    user: Kuid,
    doorbells: SetOnce<ProcessDoorbells>,
    /// One makes them: of two the other might find none left.
    #[pin]
    making: Mutex<()>,
    /// How long the queues were kept off the hardware, in nanoseconds.
    evicted_for: Atomic<u64>,
    /// What copy queues had counted that are gone. Changed with `inner` locked.
    past_sdma: Atomic<u64>,
    #[pin]
    inner: Mutex<Inner>,
}

struct Inner {
    /// The process has ended here: no queue comes any more.
    closed: bool,
    /// How many reasons there are to keep the queues off the hardware.
    evicted: u32,
    /// Since when, in nanoseconds of [`monotonic_nanoseconds`]. None where the process had no VM:
    /// nothing is kept from running there.
    evicted_at: Option<u64>,
    /// A reset of the GPU took what they worked on: they never run again.
    lost: bool,
    /// The queue that has the GPU's global wave sync.
    wave_sync: Option<QueueId>,
    /// What a debugger has set for the process's waves, if anything.
    control: Option<WaveControl>,
    /// The process's place at the scheduler, while it has queues.
    process: Option<(Key, ActiveProcess)>,
    /// What hardware that did not obey may use, of queues that are gone.
    remains: Option<Remains>,
    /// Of queues that ended with the process, and are off the hardware.
    ended: Option<Ended>,
    /// The process has ended here, and nothing of it is on the hardware any more.
    is_off: bool,
    queues: RBTree<QueueId, Scheduled>,
    /// How many these are.
    count: usize,
}

impl Queues {
    /// No queues, of a process of that user's.
    pub(crate) fn new(user: Kuid) -> impl PinInit<Self> {
        pin_init!(Self {
            user,
            doorbells: SetOnce::new(),
            making <- new_mutex!((), "Queues.making"),
            evicted_for: Atomic::new(0),
            past_sdma: Atomic::new(0),
            inner <- new_mutex!(Inner {
                closed: false,
                evicted: 0,
                evicted_at: None,
                lost: false,
                wave_sync: None,
                control: None,
                process: None,
                remains: None,
                ended: None,
                is_off: false,
                queues: RBTree::new(),
                count: 0,
            }, "Queues.inner"),
        })
    }

    /// How many queues the process has here.
    pub(crate) fn count(&self) -> usize {
        self.inner.lock().count
    }

    /// The queues that the process has here.
    pub(crate) fn ids(&self) -> Result<KVec<QueueId>> {
        let mut ids = KVec::with_capacity(self.count(), GFP_KERNEL)?;
        let inner = self.inner.lock();
        for id in inner.queues.keys() {
            // One more than a moment ago: whoever made it will ask again.
            if ids.push_within_capacity(*id).is_err() {
                break;
            }
        }
        drop(inner);
        Ok(ids)
    }

    /// For tests: calls `act` while nobody else gets at the queues.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn while_locked<R>(&self, act: impl FnOnce() -> R) -> R {
        let _inner = self.inner.lock();
        act()
    }

    /// Whether the process has no queue here.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.lock().queues.is_empty()
    }

    /// The process's doorbells here, made if they are not yet.
    pub(crate) fn doorbells(&self, site: &impl Site) -> Result<&ProcessDoorbells> {
        if let Some(doorbells) = self.doorbells.as_ref() {
            return Ok(doorbells);
        }
        let _making = self.making.lock();
        if self.doorbells.as_ref().is_none() {
            let (node, chip) = (site.node(), &site.node().generation().chip);
            let new = ProcessDoorbells::new(node.doorbells(), node.facts(), chip, self.user)?;
            self.doorbells.populate(new);
        }
        self.doorbells.as_ref().ok_or(EAGAIN)
    }

    /// Keeps all queues off the hardware until as many [`Queues::restore`]. If the hardware fails
    /// this counts nevertheless, and they are off its list. `ETIME`: one that is gone may be at
    /// work.
    pub(crate) fn evict(&self, site: &impl Site) -> Result {
        let mut inner = self.inner.lock();
        let result = inner.evict(site);
        result.and_then(|()| inner.check_remains(site))
    }

    /// Takes back one [`Queues::evict`].
    pub(crate) fn restore(&self, site: &impl Site) -> Result {
        let mut inner = self.inner.lock();
        let was = inner.evicted;
        inner.evicted = was.saturating_sub(1);
        if let Some(since) = inner.evicted_at.take_if(|_| was == 1) {
            let time = monotonic_nanoseconds().saturating_sub(since);
            self.evicted_for.fetch_add(time, Relaxed);
        }
        let result = match &inner.process {
            Some((key, _)) if was == 1 => site.vm().and_then(|vm| {
                let scheduler = site.node().queues().scheduler();
                scheduler.restore(*key, vm.page_directory())
            }),
            _ => Ok(()),
        };
        trace_process(ProcessChange::Restore, site, inner.evicted, &result);
        site.node().notify_resets();
        result
    }

    /// The GPU is reset: nothing that the process has there runs again. The scheduler is stopped.
    pub(crate) fn lose(&self, site: &impl Site) -> Result {
        let mut inner = self.inner.lock();
        match core::mem::replace(&mut inner.lost, true) {
            true => Ok(()),
            false => inner.evict(site),
        }
    }

    /// Hands a queue to the scheduler; the process's first one takes the process in. `EIO`: beside
    /// others, one that is gone may be at work, for the caller has had what it used given back
    /// ([`Queues::give_back`]).
    pub(crate) fn insert(
        &self,
        site: &impl Site,
        process: &mut Option<(NewSchedProcess, ActiveProcess)>,
        new: NewQueue,
    ) -> Result<(), Refused> {
        let id = new.id();
        let NewQueue { entry, node, .. } = new;
        let (mut node, mut active) = (Some(node), None);
        self.try_insert(site, process, (id, entry), (&mut node, &mut active))
            .map_err(|error| Refused {
                error,
                _left: (active, node),
            })
    }

    /// The same; what is left over stays where it is, or comes there.
    fn try_insert(
        &self,
        site: &impl Site,
        process: &mut Option<(NewSchedProcess, ActiveProcess)>,
        (id, entry): (QueueId, NewSchedQueue),
        (node, active): (&mut Option<QueueNode>, &mut Option<ActiveProcess>),
    ) -> Result {
        let scheduler = site.node().queues().scheduler();
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(ESRCH);
        }
        if inner.remains.is_some() {
            return Err(EIO);
        }
        let key = match &inner.process {
            Some((key, _)) => *key,
            None => {
                // `Process.memory` is held: the process's last queue does not end meanwhile.
                let page_directory = site.vm()?.page_directory();
                let (process, active) = process.take().ok_or(EAGAIN)?;
                let meanwhile = Meanwhile {
                    // It may have moved: who was restored since had no process here.
                    page_table_base: page_directory,
                    evicted: inner.evicted > 0,
                    control: inner.control,
                };
                let key = scheduler.add(process, Some(&meanwhile));
                inner.process = Some((key, active));
                key
            }
        };
        let result = scheduler.map(key, entry);
        if result.is_err() {
            *active = inner.let_go(scheduler, scheduler.has_let_go(), node);
            return result;
        }
        if let Some(node) = node.take() {
            inner.queues.insert(node);
            inner.count += 1;
        }
        if let Err(error) = inner.follow_profiler(site, id) {
            let name = site.node().pci_name();
            gpu_warn!(name, "performance counters miss a queue: {error:?}\n");
        }
        Ok(())
    }

    /// Takes a queue from the scheduler and gives back all that it had, as soon as the hardware has
    /// let go of that. `counted`: what it has counted, if it copies, which stays
    /// ([`Queues::sdma_total`]). `EINVAL`: there is no such queue here. `EAGAIN`: it is suspended.
    /// Any other error: it is gone nevertheless.
    pub(crate) fn destroy(&self, site: &impl Site, id: QueueId, counted: u64) -> Result {
        let inner = self.inner.lock();
        let scheduled = inner.queues.get(&id).ok_or(EINVAL)?;
        match scheduled.debugged.is_suspended() {
            true => Err(EAGAIN),
            false => self.take_out(site, inner, (id, counted)),
        }
    }

    /// The same also of one that is suspended; who waits in [`Queues::await_resume`] hears of it by
    /// `resumed`.
    pub(crate) fn discard(
        &self,
        site: &impl Site,
        (id, counted): (QueueId, u64),
        resumed: &CondVar,
    ) -> Result {
        let result = self.take_out(site, self.inner.lock(), (id, counted));
        resumed.notify_all();
        result
    }

    /// The same, suspended or not.
    fn take_out(
        &self,
        site: &impl Site,
        mut inner: MutexGuard<'_, Inner>,
        (id, counted): (QueueId, u64),
    ) -> Result {
        let scheduler = site.node().queues().scheduler();
        let scheduled = inner.queues.get(&id).ok_or(EINVAL)?;
        let key = scheduled.key;
        let (stays, result) = match &inner.process {
            Some((process, _)) => (
                scheduler.may_work_for(*process),
                scheduler.unmap(*process, key),
            ),
            None => (false, Ok(())),
        };
        let obeyed = has_obeyed(scheduler, stays, &result);
        let mut gone = inner.queues.remove_node(&id);
        inner.count -= 1;
        self.past_sdma.fetch_add(counted, Relaxed);
        if inner.wave_sync == Some(id) {
            inner.wave_sync = None;
        }
        let process = inner.let_go(scheduler, obeyed, &mut gone);
        drop(inner);
        drop(process);
        drop(gone);
        result
    }

    /// Shows the queues of `owner`, a process, on this GPU, one a line.
    pub(crate) fn show(
        &self,
        owner: fmt::Arguments<'_>,
        gpu: GpuId,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let inner = self.inner.lock();
        for (id, scheduled) in inner.queues.iter() {
            write!(f, "{owner} gpu_id {} queue {} ", gpu.raw(), id.raw())?;
            scheduled.queue.show(f)?;
            writeln!(f, " evicted {}", u8::from(inner.evicted != 0))?;
        }
        Ok(())
    }

    /// How long the queues were kept off the hardware, in milliseconds, up to the last restore.
    pub(crate) fn evicted_ms(&self) -> u64 {
        self.evicted_for.load(Relaxed) / 1_000_000
    }

    /// What sysfs shows of a queue. `ENODEV`: it is gone.
    pub(crate) fn facts_of(&self, id: QueueId) -> Result<QueueFacts> {
        let inner = self.inner.lock();
        let scheduled = inner.queues.get(&id).ok_or(ENODEV)?;
        Ok(scheduled.queue.facts())
    }

    /// How many compute units the process's waves would fill at this moment.
    pub(crate) fn occupied_cus(&self, site: &impl Site) -> u32 {
        if self.is_empty() {
            return 0;
        }
        let node = site.node();
        let occupancy = node.kgd().occupancy(node.xcc_mask().trailing_zeros());
        let inner = self.inner.lock();
        let waves_at = |doorbell| -> u32 {
            let all = occupancy.queues.iter();
            all.filter(|it| it.waves != 0 && it.doorbell == doorbell)
                .map(|it| it.waves)
                .sum()
        };
        let mut waves: u32 = 0;
        for Scheduled { queue, .. } in inner.queues.values() {
            let Some((doorbell, spread)) = queue.compute_doorbell() else {
                continue;
            };
            let xccs = if spread { node.num_xcc() } else { 1 };
            waves = waves.saturating_add(waves_at(doorbell).saturating_mul(xccs));
        }
        waves.div_ceil(occupancy.max_waves_per_cu.max(1))
    }

    pub(crate) fn has(&self, id: QueueId) -> bool {
        self.inner.lock().queues.get(&id).is_some()
    }

    /// Whether that is still the queue that has this key, which no later one has.
    pub(crate) fn has_key(&self, id: QueueId, key: Key) -> bool {
        let inner = self.inner.lock();
        inner.queues.get(&id).is_some_and(|it| it.key == key)
    }

    /// The key of a compute queue, and where its waves are saved. `None`: there is no such queue
    /// here, or it has no such area.
    pub(crate) fn key_and_save_area(&self, id: QueueId) -> Option<(Key, SaveArea)> {
        let inner = self.inner.lock();
        let Scheduled { key, queue, .. } = inner.queues.get(&id)?;
        queue.properties.compute_format()?;
        Some((*key, queue.properties.save_area()?))
    }

    /// What UPDATE_QUEUE can change of a queue; `None`: there is no such queue here.
    pub(crate) fn settings(&self, id: QueueId) -> Option<QueueSettings> {
        let inner = self.inner.lock();
        let scheduled = inner.queues.get(&id)?;
        Some(*scheduled.queue.properties.settings())
    }

    /// What a queue is. `EFAULT`: there is no such queue here.
    pub(crate) fn properties(&self, id: QueueId) -> Result<QueueProperties> {
        let inner = self.inner.lock();
        let scheduled = inner.queues.get(&id).ok_or(EFAULT)?;
        Ok(scheduled.queue.properties)
    }

    /// The save area of the queue with this doorbell of the process's.
    pub(crate) fn save_area_at(&self, doorbell: usize) -> Option<SaveArea> {
        let inner = self.inner.lock();
        let mut all = inner.queues.values();
        let found = all.find(|it| it.queue.doorbell_id() == doorbell)?;
        found.queue.properties.save_area()
    }

    /// Looks at a queue that nothing brings onto the hardware meanwhile. `EFAULT`: there is no such
    /// queue here; `EINVAL`: it may run.
    pub(crate) fn while_stopped(&self, id: QueueId, look: impl FnOnce(&Queue) -> Result) -> Result {
        let inner = self.inner.lock();
        let (process, key, queue) = inner.get(id).ok_or(EFAULT)?;
        if queue.node.scheduler().may_run(process, key) {
            return Err(EINVAL);
        }
        look(queue)
    }

    /// Gives a queue the GPU's global wave sync: one queue of the process's at a time has it, all
    /// of it. `EBUSY`: one has it. `EINVAL`: there is no such queue here. `EACCES`: a queue of the
    /// process was reset. After any other error it has it all the same.
    pub(crate) fn give_wave_sync(&self, id: QueueId) -> Result {
        let mut inner = self.inner.lock();
        if inner.wave_sync.is_some() {
            return Err(EBUSY);
        }
        inner.set_wave_sync(id, true)
    }

    /// Takes it back, whichever queue has it. `EINVAL`: none has. `EACCES`: a queue of the process
    /// was reset.
    pub(crate) fn take_wave_sync(&self) -> Result {
        let mut inner = self.inner.lock();
        let id = inner.wave_sync.ok_or(EINVAL)?;
        inner.set_wave_sync(id, false)
    }

    /// Whether a queue could be changed now. `EFAULT`: there is no such queue here; others: see
    /// [`Scheduler::check_changeable`].
    pub(crate) fn check_changeable(&self, id: QueueId) -> Result {
        let inner = self.inner.lock();
        let (process, key, queue) = inner.get(id).ok_or(EFAULT)?;
        queue.node.scheduler().check_changeable(process, key)
    }

    /// Starts or stops a queue with settings whose descriptor is the one that it has. `EFAULT`:
    /// there is no such queue here.
    pub(crate) fn set_runs(&self, id: QueueId, settings: QueueSettings) -> Result {
        let mut inner = self.inner.lock();
        let (process, key, queue) = inner.get_mut(id).ok_or(EFAULT)?;
        let node = queue.node.clone();
        node.scheduler().rewrite(process, key, &mut || {
            queue.apply_settings(settings);
            settings.runs()
        })
    }

    /// Changes a queue with `change`, and its descriptor, while it is off the hardware; not if that
    /// does not let go of it. `EACCES`: a queue of the process was reset; nothing changes.
    pub(crate) fn rewrite(&self, id: QueueId, change: &mut dyn FnMut(&mut Queue)) -> Result {
        let mut inner = self.inner.lock();
        let (process, key, queue) = inner.get_mut(id).ok_or(EFAULT)?;
        queue.rewrite(process, key, change)
    }
}

/// Tells whoever traces the module that a process's queues go, or come.
fn trace_process(change: ProcessChange, site: &impl Site, evicted: u32, result: &Result) {
    let pid = site.vm().map_or(0, |vm| vm.task().pid);
    trace::process(change, pid, site.node().id().raw(), evicted, result);
}

impl Inner {
    /// A queue, after the keys of process and queue at the scheduler.
    fn get(&self, id: QueueId) -> Option<(Key, Key, &Queue)> {
        let Scheduled { key, queue, .. } = self.queues.get(&id)?;
        let (process, _) = self.process.as_ref()?;
        Some((*process, *key, queue))
    }

    /// The same, to be changed.
    fn get_mut(&mut self, id: QueueId) -> Option<(Key, Key, &mut Queue)> {
        let Scheduled { key, queue, .. } = self.queues.get_mut(&id)?;
        let (process, _) = self.process.as_ref()?;
        Some((*process, *key, queue))
    }

    fn set_wave_sync(&mut self, id: QueueId, on: bool) -> Result {
        let Scheduled { key, queue, .. } = self.queues.get(&id).ok_or(EINVAL)?;
        let (process, _) = self.process.as_ref().ok_or(EINVAL)?;
        let owner = &mut self.wave_sync;
        let scheduler = queue.node.scheduler();
        scheduler.set_wave_sync(*process, *key, on, &mut || {
            queue.write_wave_sync(on);
            *owner = on.then_some(id);
        })
    }

    /// Keeps all queues off the hardware, as [`Queues::evict`].
    fn evict(&mut self, site: &impl Site) -> Result {
        // Saturates: a debugger may report as many memory violations as it likes.
        self.evicted = self.evicted.saturating_add(1);
        if self.evicted == 1 {
            self.evicted_at = site.vm().ok().map(|_| monotonic_nanoseconds());
        }
        // Each time, not only the first: it may not have obeyed then, and they run still.
        let result = match &self.process {
            Some((key, _)) => site.node().queues().scheduler().evict(*key),
            None => Ok(()),
        };
        trace_process(ProcessChange::Evict, site, self.evicted, &result);
        site.node().notify_resets();
        result
    }
}

mod tests;
