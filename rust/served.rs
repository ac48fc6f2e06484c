// SPDX-License-Identifier: GPL-2.0-only

//! A device that is up, from `kgd2kfd_device_init` to `kgd2kfd_device_exit`: one [`Served`] for
//! each, owned by its slot in `kgd2kfd.rs`. Here stands what amdgpu's calls about a device come to
//! that sleeps, is reset, or goes away.
//!
//! amdgpu pairs a suspend with a resume or with the end of the device, which is the drop of its
//! [`Served`], and a pre-reset with a post-reset. One exception: a sleep that it gives up on, when
//! its own queues of user mode cannot be stopped, it does not undo ([`Served::miss_resume`]). Pairs
//! of one device may overlap: a reset, or the reset of one copy engine, which is a suspend and a
//! resume, comes from a worker that no sleep stops. What is open of them is the [`Sleep`]: whoever
//! ends the last one starts the schedulers.

use self::sleep::Sleep;
use crate::{
    gfx::Evidence,
    gpu::{
        self,
        gate::Gate,
        Gpu,
        Node, //
    },
    ids::GpuId,
    interrupt::Interrupts,
    kgd::{
        gpu_err,
        gpu_info,
        gpu_warn,
        GpuFacts,
        Kgd,
        PciName, //
    },
    linux::task::Signal,
    mappings,
    mmap::MmapTarget,
    process::power::{
        self,
        Cause, //
    },
    sched::{
        doorbells::slice_bytes,
        NodeQueues, //
    },
    smi::SmiEvent,
    svm,
    topology::{
        self,
        GivenId, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};

/// A device that is up: what amdgpu's calls about it reach. Dropped, its nodes are unknown again,
/// and no process uses them any more: that may take as long as [`Served::end_processes`].
pub(crate) struct Served {
    gpu: Arc<Gpu>,
    nodes: KVec<Arc<Node>>,
    /// The nodes' numbers.
    ids: KVec<GivenId>,
    sleep: Sleep,
    /// Errors of its memory that could not be corrected, since the last reset.
    ecc: Atomic<bool>,
    /// It goes away: see [`Served::retire`].
    retired: Atomic<bool>,
}

impl Served {
    /// Brings a device up, and makes its nodes known.
    pub(crate) fn new(kgd: Arc<dyn Kgd>, gate: Arc<Gate>) -> Result<Self> {
        let gpu = Gpu::new(kgd, gate)?;
        let mut served = Self {
            gpu: gpu.clone(),
            nodes: KVec::new(),
            ids: KVec::new(),
            sleep: Sleep::new()?,
            ecc: Atomic::new(false),
            retired: Atomic::new(false),
        };
        for index in listed(gpu.facts()) {
            let memory = gpu.kgd().local_memory(index);
            let id = topology::give_id(gpu.facts(), &memory, gpu.partition(index)?)?;
            let node = node(&gpu, index, id.id())?;
            served.ids.push(id, GFP_KERNEL)?;
            served.add(node)?;
        }
        Ok(served)
    }

    fn add(&mut self, node: Arc<Node>) -> Result {
        self.nodes.push(node.clone(), GFP_KERNEL)?;
        gpu::register(node.clone())?;
        topology::add(&node)?;
        gpu_info!(
            node.pci_name(),
            "serves GPU {} ({})\n",
            node.id().raw(),
            node.generation().chip.name
        );
        if node.generation().evidence != Evidence::RunOnModel {
            gpu_warn!(
                node.pci_name(),
                "{} was compared with the C driver and never run: served for allow_untested=1\n",
                node.generation().chip.name
            );
        }
        Ok(())
    }

    /// An entry of the device's interrupt ring. Legal in a hard interrupt.
    pub(crate) fn interrupt(&self, entry: &[u32; 8]) {
        for node in &self.nodes {
            node.interrupt(entry);
        }
    }

    /// The device slows down for heat, of which its first node tells, as in C. Never sleeps.
    pub(crate) fn throttled(&self, reasons: u64) {
        if let Some(node) = self.nodes.first() {
            let count = node.kgd().throttle_count();
            node.listeners()
                .notify(SmiEvent::Throttle { reasons, count });
        }
    }

    /// Whether a process has it, one that is ending included. A process that the device cgroup
    /// keeps from it has not, nor has who reads the topology: the end of the device waits for that.
    /// With the gate closed and the nodes locked the answer `false` stays true. Never sleeps.
    pub(crate) fn has_processes(&self) -> bool {
        self.gpu.processes() != 0
    }

    /// Its nodes.
    pub(crate) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // amdgpu of Linux 7.2 ends a device that was pulled out without a suspend, and without
        // asking for the end of its processes first, as it does else (`end_use`). That lasts as
        // long as one of them does: nobody else waits for it.
        self.retire(false);
        self.end_processes();
        // Pages of theirs may be in its memory still: those of children.
        svm::block::empty_device(&**self.gpu.kgd());
        self.sleep.open(self.gpu.gate());
    }
}

/// The partitions that are GPUs for user space: those with a render node, for without one nobody
/// can have memory there.
fn listed(facts: &GpuFacts) -> impl Iterator<Item = u32> + '_ {
    let all = (0u32..).zip(facts.partitions());
    all.filter(|(index, partition)| {
        if partition.no_render_node {
            let name = facts.pci_name();
            gpu_warn!(
                name,
                "partition {index} has no render node, and is left out\n"
            );
        }
        !partition.no_render_node
    })
    .map(|(index, _)| index)
}

/// Partition `index` of a device, called `id`, with its scheduler running. It is not
/// registered yet.
fn node(gpu: &Arc<Gpu>, index: u32, id: GpuId) -> Result<Arc<Node>> {
    let facts = gpu.facts();
    let evicts = !facts.no_queue_eviction_on_vm_fault;
    let interrupts = Interrupts::new(facts.pci_name(), evicts, gpu.message_bits())?;
    Node::new(gpu.clone(), index, id, Arc::new(interrupts, GFP_KERNEL)?)
}

/// So long after amdgpu has ceased to suspend the device no copy engine is reset any more whose
/// reset began before.
const SETTLED: Delta = Delta::from_secs(3);

/// How long a process may take to end by itself when its GPU goes away.
const GRACE: Delta = Delta::from_secs(3);

/// How long waiting goes on without a word, or at all.
const PATIENCE: Delta = Delta::from_secs(10);

impl Served {
    fn pci_name(&self) -> PciName {
        self.gpu.facts().pci_name()
    }

    /// All nodes are tried; the first error counts.
    fn each_queues(&self, act: impl Fn(&NodeQueues) -> Result) -> Result {
        let mut result = Ok(());
        for node in self.nodes() {
            result = result.and(act(node.queues()));
        }
        result
    }

    fn stop(&self) {
        if let Err(error) = self.each_queues(NodeQueues::stop) {
            gpu_err!(self.pci_name(), "cannot stop the queues: {error:?}\n");
        }
    }

    fn start(&self) -> Result {
        self.each_queues(NodeQueues::start)
            .inspect_err(|error| gpu_err!(self.pci_name(), "cannot start the queues: {error:?}\n"))
    }

    /// Power is about to go, or the device, or a copy engine is reset. `processes`: their buffers
    /// are about to go, too.
    pub(crate) fn suspend(&self, processes: bool) {
        let suspending = self.gpu.kgd().is_suspending();
        // Power does not go in the reset of a copy engine, whatever else goes on: another suspend
        // comes before that. And whoever that one waits for may wait for the engine.
        let sleeps = suspending && !self.gpu.kgd().resets_copy_engine();
        let mut stops = self.sleep.stops.lock();
        if !suspending {
            self.sleep.end_sleeps(&mut stops);
        }
        let begins = stops.begins != 0;
        stops.count += 1;
        stops.sleeps += u32::from(sleeps);
        stops.begins += u32::from(sleeps);
        stops.missed = None;
        self.stop();
        // Of two that begin at a time the first has what there was. Where one is open that amdgpu
        // has not brought to its end, tasks may have run, and made queues.
        let anew = stops.saved.is_none();
        let saves = sleeps && (anew || !begins);
        if sleeps {
            self.leave();
            stops.saved.get_or_insert(Ok(()));
            stops.saving += u32::from(saves);
        }
        drop(stops);
        if sleeps {
            self.keep(saves.then_some(anew));
        }
        // Of a device that was pulled out amdgpu tells when it has none any more, and never undoes
        // it.
        if processes {
            self.sleep.begin_processes(sleeps);
        }
        if sleeps {
            let mut stops = self.sleep.stops.lock();
            stops.begins -= 1;
            stops.missed = None;
        }
    }

    /// What does not leave the hardware goes with its power, or with the device.
    fn leave(&self) {
        self.nodes().iter().for_each(|node| node.queues().leave());
    }

    /// The device goes away: when this returns no process finds it any more, those that have it are
    /// off all GPUs for good, and all others go on, whether it went asleep or not. Done once.
    /// `works`: a queue that does not stop is at work still, until the device is reset; so long is
    /// waited.
    fn retire(&self, works: bool) {
        if self.retired.xchg(true, Relaxed) {
            return;
        }
        for node in &self.nodes {
            topology::remove(node);
        }
        gpu::unregister(&self.nodes);
        // For good: nobody starts it again.
        let mut stops = self.sleep.stops.lock();
        stops.count += 1;
        let used = self.has_processes();
        if used {
            self.stop();
        }
        drop(stops);
        if used {
            if works {
                self.await_obedience();
            }
            self.leave();
            power::leave(self.gpu.kgd().handle());
        }
        self.sleep.retire();
    }

    /// Waits until nothing is on the hardware any more. What does not stop has asked for a reset.
    ///
    /// TIMEOUT: [`PATIENCE`], also for a reset that runs: the caller has the device's lock, which
    /// resets take by PCI, and the steps of a PCI error's recovery, which is one from end to end.
    fn await_obedience(&self) {
        const STEP: Delta = Delta::from_millis(10);
        let begin = Instant::<Monotonic>::now();
        let has_let_go = || {
            let mut queues = self.nodes().iter().map(|node| node.queues());
            queues.all(|queues| queues.scheduler().has_let_go())
        };
        while !has_let_go() {
            if begin.elapsed() >= PATIENCE {
                gpu_err!(self.pci_name(), "a queue does not stop: its memory goes\n");
                break;
            }
            fsleep(STEP);
        }
    }

    /// The device is about to go, and works still: no process uses it any more when this returns,
    /// and what they have in its memory is in the system's. As soon as amdgpu calls it unplugged,
    /// which is long before it suspends us, nothing is taken out of page tables any more.
    pub(crate) fn prepare_unbind(&self) {
        // Where a queue does not stop, the device is reset, and its memory may be lost.
        svm::block::save_device(self.gpu.kgd().handle());
        self.retire(true);
        // Again: what is brought home now goes nowhere afterwards.
        svm::block::save_device(self.gpu.kgd().handle());
    }

    /// Keeps what queues have in the device's memory, or waits for who does: power may go when this
    /// returns. With nothing locked: it allocates, and reclaim may have to wait for a reset, be it
    /// of a copy engine, which does not come here. Nobody wakes the device up before this returns.
    ///
    /// `anew`: nothing is kept yet; `None`: another one keeps it.
    ///
    /// TIMEOUT: none. Who keeps it waits for nothing but reclaim.
    fn keep(&self, anew: Option<bool>) {
        const STEP: Delta = Delta::from_millis(10);
        if let Some(anew) = anew {
            let saved = self.save(anew);
            let mut stops = self.sleep.stops.lock();
            stops.saving -= 1;
            if let Some(known) = stops.saved.as_mut() {
                *known = known.and(saved);
            }
            return;
        }
        while self.sleep.stops.lock().saving != 0 {
            fsleep(STEP);
        }
    }

    /// Keeps what queues have in the device's memory.
    fn save(&self, anew: bool) -> Result {
        let saved = self.each_queues(|queues| queues.save(anew));
        saved.inspect_err(|error| {
            gpu_err!(self.pci_name(), "cannot keep what queues have: {error:?}\n");
        })
    }

    /// Brings it back. Processes whose queues have lost it never run again.
    fn restore(&self, saved: Result) {
        let restored = self.each_queues(NodeQueues::restore);
        if saved.and(restored).is_err() {
            power::lose(self.gpu.kgd().handle(), Cause::Hang);
        }
    }

    /// Undoes [`Served::suspend`], as far as the device works: one that does not is reset, and
    /// keeps nobody from the others. That reset comes when amdgpu has resumed the device, which it
    /// gives up on after an error: so this is none then.
    pub(crate) fn resume(&self, processes: bool) -> Result {
        let started = self.wake();
        if processes {
            self.resume_processes();
        }
        match self.gpu.kgd().is_suspending() {
            true => Ok(()),
            false => started,
        }
    }

    /// One suspend is over. After the last the schedulers start, but not during a reset.
    fn wake(&self) -> Result {
        let mut stops = self.sleep.stops.lock();
        stops.count = stops.count.saturating_sub(1);
        stops.sleeps = stops.sleeps.min(stops.count);
        if stops.count != 0 {
            return Ok(());
        }
        let saved = stops.saved.take();
        self.go_on(saved)
    }

    /// Nothing stops the schedulers any more, but for a reset. `saved`: what is to be brought back
    /// before. The caller holds `Sleep.stops`.
    fn go_on(&self, saved: Option<Result>) -> Result {
        if self.sleep.gate.load(Relaxed) && self.gpu.kgd().in_reset() {
            // The reset took what was saved, and those it was of.
            return Ok(());
        }
        if let Some(saved) = saved {
            self.restore(saved);
        }
        self.start().inspect_err(|_| {
            self.nodes()
                .iter()
                .for_each(|node| node.queues().want_reset());
        })
    }

    /// Tasks run again, and amdgpu may have given up a sleep, or a resume: then it is over here,
    /// too, when amdgpu has not suspended the device for [`SETTLED`]. A sleep that began meanwhile
    /// is another. False: none is open, or none is any more; true: look again soon.
    pub(crate) fn miss_resume(&self) -> bool {
        let mut stops = self.sleep.stops.lock();
        let (open, begins) = self.sleep.sleeps(&stops);
        if !open || self.gpu.kgd().is_suspending() {
            stops.missed = None;
            return false;
        }
        if begins {
            stops.missed = None;
            return true;
        }
        let now = Instant::now();
        if now - *stops.missed.get_or_insert(now) < SETTLED {
            return true;
        }
        stops.missed = None;
        gpu_warn!(
            self.pci_name(),
            "amdgpu has given up a sleep: queues go on\n"
        );
        let (stopped, saved) = (stops.count != 0, stops.saved.take());
        self.sleep.end_sleeps(&mut stops);
        if stopped && stops.count == 0 {
            // The log has the error, and a reset follows.
            let _ = self.go_on(saved);
        }
        false
    }

    /// Takes all processes off all GPUs.
    pub(crate) fn suspend_processes(&self) {
        let loses = self.gpu.kgd().is_suspending();
        self.sleep.begin_processes(loses);
    }

    /// Undoes it, if no other device sleeps.
    pub(crate) fn resume_processes(&self) {
        self.sleep.end_processes();
    }

    /// A reset begins: from now until [`Served::post_reset`] the hardware is amdgpu's alone.
    pub(crate) fn pre_reset(&self, cause: &str) {
        self.gpu.resets().prepare();
        for node in self.nodes() {
            node.listeners().notify_reset(false, cause);
        }
        self.sleep.close(self.gpu.gate());
        // What was mapped since they were cleared; it comes back after the reset.
        self.empty_mappings();
        self.stop();
        let cause = match self.ecc.load(Relaxed) {
            true => Cause::Ecc,
            false => Cause::Hang,
        };
        self.gpu.resets().begin();
        power::lose(self.gpu.kgd().handle(), cause);
    }

    /// The reset is over. New queues run, unless the device sleeps; those from before it never
    /// will.
    ///
    /// `EBUSY`: it was none. amdgpu leaves out what resets the hardware if the job for which it
    /// began has ended by then. What was on the hardware is there still, so another reset follows,
    /// and the first is not over before.
    pub(crate) fn post_reset(&self) -> Result {
        let mut stops = self.sleep.stops.lock();
        if !self.gpu.kgd().is_suspending() {
            self.sleep.end_sleeps(&mut stops);
        }
        let sleeps = stops.count != 0;
        // What a wake-up has started since `pre_reset` is not on the hardware any more. amdgpu has
        // it for itself still, so that no order is given.
        self.stop();
        if let Err(error) = self.each_queues(|queues| queues.check_reset(sleeps)) {
            gpu_err!(
                self.pci_name(),
                "was not reset: queues are at work still; requesting another reset\n"
            );
            self.gpu.kgd().request_reset();
            return Err(error);
        }
        let started = match sleeps {
            true => Ok(()),
            false => self.start(),
        };
        if sleeps && !self.gpu.kgd().is_suspending() {
            gpu_warn!(
                self.pci_name(),
                "reset, but stays stopped until amdgpu resumes it\n"
            );
        }
        self.ecc.store(false, Relaxed);
        self.gpu.resets().end();
        self.sleep.open(self.gpu.gate());
        drop(stops);
        // What amdgpu cleared and moved when the reset came has failed.
        self.gpu.kgd().heal_engines_soon();
        for node in self.nodes() {
            node.listeners().notify_reset(true, "");
        }
        started
    }

    /// The device's memory had an error that could not be corrected. Never sleeps.
    pub(crate) fn note_ecc_error(&self) {
        self.ecc.store(true, Relaxed);
    }

    /// The current task resets the device: amdgpu has locked it for that, and the others of its
    /// hive, which come to [`Served::pre_reset`] one after the other.
    pub(crate) fn prepare_reset(&self) {
        self.gpu.resets().prepare();
    }

    /// Takes the user's mappings of doorbells and registers away: whoever touches them gets a
    /// SIGBUS. amdgpu calls it when it has locked the device for its reset, before
    /// [`Served::pre_reset`], and from the same task; of a hive, for one device.
    pub(crate) fn clear_mappings(&self) {
        self.prepare_reset();
        // Before: who touches them meanwhile does not get them back.
        self.nodes().iter().for_each(|node| node.note_cleared());
        self.empty_mappings();
    }

    /// The same, but they come back when they are touched.
    fn empty_mappings(&self) {
        for node in self.nodes() {
            let bytes = slice_bytes(&node.generation().chip);
            mappings::zap(MmapTarget::Doorbell(node.id()), bytes);
            mappings::zap(MmapTarget::Mmio(node.id()), PAGE_SIZE);
        }
    }

    /// Waits until no process uses the device, or the time is over.
    fn wait_for_users(&self, time: Delta) -> bool {
        const STEP: Delta = Delta::from_millis(10);
        for _ in 0..time.as_millis() / STEP.as_millis() {
            if self.gpu.users() == 0 {
                return true;
            }
            fsleep(STEP);
        }
        self.gpu.users() == 0
    }

    /// The device goes away: nobody uses it any more when this returns, nor has a page in its
    /// memory. Who does not know it waits for none of that. A device that is unbound is ended when
    /// the last reference of its DRM device is gone, but its device pages go before, and wait for
    /// who has one.
    pub(crate) fn end_use(&self) {
        self.retire(false);
        self.end_processes();
        svm::block::empty_device(&**self.gpu.kgd());
    }

    /// The device goes away: its processes are asked to end, then made to. Returns when all have
    /// let go of it, and who looked at it. Who came to a process's address space after its SIGKILL
    /// gets the next one.
    ///
    /// TIMEOUT: none beyond that. What amdgpu frees next is theirs. Who is left is a file of
    /// /dev/kfd that was passed on to another process, a task that cannot be killed, or one that is
    /// frozen. If that is since the machine sleeps, nobody thaws it: who wakes the machine up waits
    /// for the lock of the device, which our caller has.
    pub(crate) fn end_processes(&self) {
        if self.gpu.users() == 0 {
            return;
        }
        let handle = self.gpu.kgd().handle();
        power::end(handle, Signal::Bus);
        if self.wait_for_users(GRACE) {
            return;
        }
        power::end(handle, Signal::Kill);
        while !self.wait_for_users(PATIENCE) {
            power::end(handle, Signal::Kill);
            let (left, frozen) = (self.gpu.users(), power::count_frozen(handle));
            gpu_warn!(
                self.pci_name(),
                "is removed: waiting for {left} processes to end\n"
            );
            if frozen != 0 {
                gpu_warn!(
                    self.pci_name(),
                    "{frozen} of them are frozen, and cannot end before they are thawed\n"
                );
            }
        }
    }
}

mod sleep;
mod tests;
