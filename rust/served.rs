// SPDX-License-Identifier: GPL-2.0-only

//! A device that is up, from `kgd2kfd_device_init` to `kgd2kfd_device_exit`: one [`Served`] for
//! each, owned by its slot in `kgd2kfd.rs`. Here stands what amdgpu's calls about a device come to
//! that sleeps, is reset, or goes away.
//!
//! amdgpu makes these calls one after the other for a device. It pairs a suspend with a resume or
//! with the end of the device, which is the drop of its [`Served`], and a pre-reset with a
//! post-reset. What is open between the two is the [`Sleep`].

use crate::{
    doorbell,
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
    sched::NodeQueues,
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
        Delta, //
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
            sleep: Sleep::new(),
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
        self.retire();
        self.end_processes();
        // Pages of theirs may be in its memory still: those of children.
        svm::block::empty_device(&**self.gpu.kgd());
        self.sleep.end(self.gpu.gate());
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
    let interrupts = Interrupts::new(id, facts.pci_name(), evicts, gpu.message_bits())?;
    Node::new(gpu.clone(), index, id, Arc::new(interrupts, GFP_KERNEL)?)
}

/// What a device has to undo when it comes back, or ends instead.
struct Sleep {
    /// Processes are off all GPUs for it.
    processes: Atomic<bool>,
    /// What its memory has may be lost meanwhile.
    loses: Atomic<bool>,
    /// Its gate is closed for its reset.
    gate: Atomic<bool>,
    /// What queues had in its memory could not be kept.
    lost: Atomic<bool>,
}

impl Sleep {
    fn new() -> Self {
        Self {
            processes: Atomic::new(false),
            loses: Atomic::new(false),
            gate: Atomic::new(false),
            lost: Atomic::new(false),
        }
    }

    fn begin_processes(&self, loses: bool) {
        if !self.processes.xchg(true, Relaxed) {
            self.loses.store(loses, Relaxed);
            power::suspend(loses);
        }
    }

    fn end_processes(&self) {
        if self.processes.xchg(false, Relaxed) {
            power::resume(self.loses.load(Relaxed));
        }
    }

    fn close(&self, gate: &Gate) {
        match self.gate.xchg(true, Relaxed) {
            false => gate.close(),
            // A reset before came to no good end, of which nobody tells.
            true => gate.again(),
        }
    }

    fn open(&self, gate: &Gate) {
        if self.gate.xchg(false, Relaxed) {
            gate.open();
        }
    }

    /// The device ends, asleep or not.
    fn end(&self, gate: &Gate) {
        self.open(gate);
        self.end_processes();
    }
}

/// How long a process may take to end by itself when its GPU goes away.
const GRACE: Delta = Delta::from_secs(3);

/// How long waiting goes on without a word.
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

    /// Power is about to go, or the device. `processes`: their buffers are too.
    pub(crate) fn suspend(&self, processes: bool) {
        self.stop();
        if self.gpu.kgd().is_suspending() {
            self.save();
        }
        // Of a device that was pulled out amdgpu tells when it has none any more, and never undoes
        // it.
        if processes && !self.retired.load(Relaxed) {
            self.suspend_processes();
        }
    }

    /// The device goes away: when this returns no process finds it any more, those that have it are
    /// off all GPUs for good, and all others go on, whether it went asleep or not. Done once.
    fn retire(&self) {
        if self.retired.xchg(true, Relaxed) {
            return;
        }
        for node in &self.nodes {
            topology::remove(node);
        }
        gpu::unregister(&self.nodes);
        if self.has_processes() {
            self.stop();
            power::leave(self.gpu.kgd().handle());
        }
        self.sleep.end_processes();
    }

    /// The device is about to go, and works still: what processes have in its memory comes into the
    /// system's.
    pub(crate) fn save_memory(&self) {
        svm::block::save_device(self.gpu.kgd().handle());
    }

    /// Keeps what queues have in the device's memory.
    fn save(&self) {
        let saved = self.each_queues(NodeQueues::save);
        if let Err(error) = saved {
            gpu_err!(self.pci_name(), "cannot keep what queues have: {error:?}\n");
        }
        self.sleep.lost.store(saved.is_err(), Relaxed);
    }

    /// Brings it back. Processes whose queues have lost it never run again.
    fn restore(&self) {
        let restored = self.each_queues(NodeQueues::restore);
        if self.sleep.lost.xchg(false, Relaxed) || restored.is_err() {
            power::lose(self.gpu.kgd().handle(), Cause::Hang);
        }
    }

    /// Undoes [`Served::suspend`], as far as the device works: one that does not is reset, and
    /// keeps nobody from the others. That reset comes when amdgpu has resumed the device, which it
    /// gives up on after an error: so this is none then.
    pub(crate) fn resume(&self, processes: bool) -> Result {
        self.restore();
        let started = self.start();
        if started.is_err() {
            self.nodes()
                .iter()
                .for_each(|node| node.queues().want_reset());
        }
        if processes {
            self.resume_processes();
        }
        match self.gpu.kgd().is_suspending() {
            true => Ok(()),
            false => started,
        }
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

    /// The reset is over. New queues run; those from before it never will.
    ///
    /// `EBUSY`: it was none. amdgpu leaves out what resets the hardware if the job for which it
    /// began has ended by then. What was on the hardware is there still, so another reset follows,
    /// and the first is not over before.
    pub(crate) fn post_reset(&self) -> Result {
        if let Err(error) = self.each_queues(NodeQueues::check_reset) {
            gpu_err!(
                self.pci_name(),
                "was not reset: queues are at work still; requesting another reset\n"
            );
            self.gpu.kgd().request_reset();
            return Err(error);
        }
        let started = self.start();
        self.ecc.store(false, Relaxed);
        self.gpu.resets().end();
        self.sleep.open(self.gpu.gate());
        for node in self.nodes() {
            node.listeners().notify_reset(true, "");
        }
        started
    }

    /// The device's memory had an error that could not be corrected. Never sleeps.
    pub(crate) fn note_ecc_error(&self) {
        self.ecc.store(true, Relaxed);
    }

    /// Takes the user's mappings of doorbells and registers away: whoever touches them gets a
    /// SIGBUS.
    pub(crate) fn clear_mappings(&self) {
        // Before: who touches them meanwhile does not get them back.
        self.nodes().iter().for_each(|node| node.note_cleared());
        self.empty_mappings();
    }

    /// The same, but they come back when they are touched.
    fn empty_mappings(&self) {
        for node in self.nodes() {
            let bytes = doorbell::bytes(&node.generation().chip);
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
        self.retire();
        self.end_processes();
        svm::block::empty_device(&**self.gpu.kgd());
    }

    /// The device goes away: its processes are asked to end, then made to. Returns when all have
    /// let go of it, and who looked at it.
    ///
    /// TIMEOUT: none beyond that. What amdgpu frees next is theirs. Who is left is a file of
    /// /dev/kfd that was passed on to another process, or a task that cannot be killed.
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
            let left = self.gpu.users();
            gpu_warn!(
                self.pci_name(),
                "is removed: waiting for {left} processes to end\n"
            );
        }
    }
}

#[kernel::macros::kunit_tests(amdkfd_served)]
mod tests {
    use super::*;
    use crate::{
        gfx::{
            testing::{
                hw_process,
                hw_queue, //
            },
            Engine, //
        },
        gpu::NodeUser,
        kgd::fake::Fake,
        linux::errno,
        sched::{
            NewSchedProcess,
            NewSchedQueue, //
        },
    };

    fn two_partitions() -> Arc<Fake> {
        let fake = Fake::with(|facts| {
            facts.num_partitions = 2;
            facts.partitions[1] = facts.partitions[0];
        });
        fake.unwrap()
    }

    /// A device of two partitions with a node each, which nobody knows.
    fn two_nodes() -> Served {
        served(two_partitions())
    }

    fn served(fake: Arc<Fake>) -> Served {
        let gpu = Gpu::new(fake, Gate::new().unwrap()).unwrap();
        let mut nodes = KVec::new();
        for index in 0..2 {
            let id = GpuId::new(index + 1).unwrap();
            nodes
                .push(node(&gpu, index, id).unwrap(), GFP_KERNEL)
                .unwrap();
        }
        Served {
            gpu,
            nodes,
            ids: KVec::new(),
            sleep: Sleep::new(),
            ecc: Atomic::new(false),
            retired: Atomic::new(false),
        }
    }

    #[test]
    fn a_partition_without_a_render_node_is_left_out() {
        let fake = Fake::with(|facts| {
            facts.num_partitions = 3;
            facts.partitions[1].no_render_node = true;
        });
        let fake = fake.unwrap();
        assert!(listed(crate::kgd::Device::facts(&*fake)).eq([0, 2]));
    }

    #[test]
    fn who_reads_the_topology_is_no_process() {
        let served = two_nodes();
        let reader = NodeUser::new(served.nodes[0].clone());
        assert!(!served.has_processes());
        let process = NodeUser::process(served.nodes[1].clone());
        assert!(served.has_processes());
        drop((reader, process));
        assert!(!served.has_processes());
    }

    #[test]
    fn one_that_does_not_wake_up_is_reset_and_the_others_go_on() {
        let fake = two_partitions();
        let served = served(fake.clone());
        served.suspend(true);
        assert!(served.sleep.processes.load(Relaxed));
        fake.refuse_hiq();
        assert_eq!(served.resume(true).err(), Some(errno::timer_expired()));
        assert!(fake.live().in_reset && !served.sleep.processes.load(Relaxed));
    }

    #[test]
    fn pages_stay_away_from_memory_that_may_be_lost() {
        let fake = two_partitions();
        let served = served(fake.clone());
        for sleeps in [false, true] {
            fake.set_suspending(sleeps);
            served.suspend(true);
            assert!(served.sleep.processes.load(Relaxed));
            assert_eq!(svm::sleep::is_asleep(), sleeps);
            // It may wake up for another reason.
            fake.set_suspending(false);
            served.resume(true).unwrap();
            assert!(!svm::sleep::is_asleep());
        }
    }

    #[test]
    fn one_that_wakes_up_is_not_reset_before_it_is_awake() {
        let fake = two_partitions();
        let served = served(fake.clone());
        fake.set_suspending(true);
        served.suspend(true);
        fake.refuse_hiq();
        assert_eq!(served.resume(true), Ok(()));
        assert_eq!(fake.live().resets_asked, 0);
        fake.set_suspending(false);
        let scheduler = served.nodes[0].queues().scheduler();
        let new = NewSchedProcess::new(hw_process(1), false, None).unwrap();
        let process = scheduler.add(new, None);
        for _ in 0..2 {
            let queue = NewSchedQueue::undescribed(hw_queue(Engine::Compute, 1), true);
            assert_eq!(scheduler.map(process, queue.unwrap()), Err(EIO));
            assert_eq!(fake.live().resets_asked, 1);
        }
    }

    #[test]
    fn a_reset_that_was_none_is_followed_by_another() {
        let fake = two_partitions();
        let served = served(fake.clone());
        fake.set_in_reset(true);
        served.pre_reset("");
        assert_eq!(served.post_reset(), Err(EBUSY));
        assert_eq!(fake.live().resets_asked, 1);
        assert!(served.gpu.gate().is_closed() && served.gpu.resets().quiet().is_err());
        served.pre_reset("");
        fake.reset_hardware();
        assert_eq!(served.post_reset(), Ok(()));
        assert_eq!((fake.live().resets_asked, fake.live().hiqs), (1, 1));
        assert!(!served.gpu.gate().is_closed() && served.gpu.resets().quiet().is_ok());
        fake.set_in_reset(false);
    }

    #[test]
    fn the_first_node_tells_that_the_device_throttles() {
        let served = two_nodes();
        let reader = |index: usize| served.nodes[index].listeners().read_all_events().unwrap();
        let (first, second) = (reader(0), reader(1));
        served.throttled(0x20);
        assert!(first.has_read(b"2 20:0\n") && second.has_read(b""));
    }
}
