// SPDX-License-Identifier: GPL-2.0-only

//! A granule: 2 MiB of an address space, and which of its pages which GPU sees.
//!
//! Whoever gives pages to a GPU, or changes how it sees them, has the granule's turn. Which pages
//! it sees is under the granule's state lock, which a notifier takes without the turn.

use super::{
    attributes::GpuSet,
    block::Block,
    page_bits::{
        PageBits,
        GRANULE_PAGES, //
    },
    pages::Pages,
    Gpu, //
};
use crate::{
    gauge::{
        Gauge,
        Held, //
    },
    kgd::{
        DmaPages,
        TlbFlush,
        Vm, //
    },
    linux::{
        hmm::NoReclaim,
        ratelimit::may_complain, //
    },
};
use core::ops::{
    Deref,
    DerefMut, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        lock::mutex::MutexGuard,
        Arc,
        Mutex, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    },
};

/// Granules of all processes.
pub(crate) static GRANULES: Gauge = Gauge::new();

/// What one GPU sees of a granule.
pub(super) struct View {
    /// The pages that its page tables show.
    pub(super) mapped: PageBits,
    /// Those that they show still, although they were to be unmapped.
    pub(super) stale: PageBits,
    /// Those behind which the next one lies in the GPU's address space for memory as well.
    pub(super) joined: PageBits,
    /// The device's addresses of both; 0: none. Only where they are to be given back.
    addresses: Option<KVec<u64>>,
    /// There are page tables, whatever it sees.
    pub(super) has_tables: bool,
    /// Some of the pages may not be written.
    pub(super) read_only: bool,
    /// The VM was told that there are stale ones.
    owes: bool,
}

impl View {
    const NOTHING: Self = Self {
        mapped: PageBits::NONE,
        stale: PageBits::NONE,
        joined: PageBits::NONE,
        addresses: None,
        has_tables: false,
        read_only: false,
        owes: false,
    };

    /// The pages that the GPU sees, or may see still.
    fn seen(&self) -> PageBits {
        self.mapped.union(self.stale)
    }

    /// Tells the VM whether there are stale pages, after they have changed.
    pub(super) fn tell(&mut self, vm: &Vm) {
        let owes = !self.stale.is_empty();
        if owes != self.owes {
            self.owes = owes;
            vm.set_owes(owes);
        }
    }

    /// Of `pages` the last, if that may be translated together with the one behind it, which the
    /// GPU sees.
    pub(super) fn edge(&self, pages: Pages) -> PageBits {
        let last = pages.end - 1;
        let seen = self.joined.contains(last) && self.seen().contains(pages.end);
        match seen {
            true => PageBits::of(Pages::new(last, pages.end)),
            false => PageBits::NONE,
        }
    }

    /// The pages that the GPU may translate together with one of `wanted`, these among them.
    fn around(&self, wanted: PageBits) -> PageBits {
        wanted.with_blocks(self.joined)
    }

    /// Keeps the addresses of pages that are mapped from `place` on, and hands out those that they
    /// had before. `room`: for the addresses of a whole granule, if some must be kept.
    pub(super) fn exchange(
        &mut self,
        place: usize,
        dma: &mut DmaPages,
        room: &mut Option<KVec<u64>>,
    ) {
        if self.addresses.is_none() && dma.must_be_undone() {
            self.addresses = room.take();
        }
        let count = dma.addresses().len();
        let stored = self.addresses.as_mut();
        if let Some(stored) = stored.and_then(|all| all.get_mut(place..place + count)) {
            dma.exchange(stored);
        }
    }

    /// Gives the addresses of pages back that the GPU does not see any more.
    fn give_back(&mut self, gpu: &Gpu, run: Pages) {
        let (Some(addresses), Ok(vm)) = (&mut self.addresses, gpu.vm()) else {
            return;
        };
        // CAST: less than a granule has pages.
        let place = (run.start % GRANULE_PAGES) as usize;
        if let Some(run) = addresses.get_mut(place..place + run.len() as usize) {
            vm.dma_unmap_pages(run);
            run.fill(0);
        }
    }
}

/// What is under a granule's state lock.
pub(super) struct State {
    /// One for each GPU of the process.
    pub(super) views: KVec<View>,
    /// Pages that a GPU must not miss, even where it retries accesses.
    pub(super) always: PageBits,
    /// Pages that were taken away and have to come back before the process's queues do.
    pub(super) lost: PageBits,
    /// Pages that were lost and are being brought back, by whoever has the granule's turn.
    pub(super) coming: PageBits,
    /// Since when pages of it cannot be had that have to come back.
    pub(super) missed_since: Option<Instant<Monotonic>>,
}

/// A granule.
#[pin_data]
pub(crate) struct Granule {
    /// Its first page.
    pub(super) first: u64,
    /// Whether its region has it still.
    #[pin]
    turn: Mutex<bool>,
    /// The blocks that its pages are put into. Under the turn.
    #[pin]
    blocks: Mutex<KVec<Arc<Block>>>,
    #[pin]
    state: Mutex<State>,
    /// Whether pages are lost or stale, by the state as it was when its lock was let go last: who
    /// looks for such granules takes the locks of these alone.
    incomplete: Atomic<bool>,
    _held: Held,
}

/// The turn of a granule: see the module's documentation.
pub(super) type Turn<'a> = MutexGuard<'a, bool>;

/// A granule's state. Nothing that is allocated while it is locked reclaims memory.
pub(super) struct StateGuard<'a> {
    state: MutexGuard<'a, State>,
    /// It may have changed.
    changed: bool,
    incomplete: &'a Atomic<bool>,
    _no_reclaim: NoReclaim,
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.changed = true;
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        if self.changed {
            self.incomplete.store(self.state.is_incomplete(), Relaxed);
        }
    }
}

impl State {
    /// The lost pages are going to be brought back: those that are lost from here on were taken
    /// meanwhile.
    pub(super) fn begin_to_bring(&mut self) -> PageBits {
        self.coming = core::mem::replace(&mut self.lost, PageBits::NONE);
        self.coming
    }

    fn is_incomplete(&self) -> bool {
        !self.lost.is_empty() || self.views.iter().any(|view| !view.stale.is_empty())
    }
}

impl Granule {
    /// The granule that begins with page `first`, of a process with so many GPUs.
    pub(super) fn new(first: u64, gpus: usize) -> Result<Arc<Self>> {
        let mut views = KVec::with_capacity(gpus, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..gpus {
            views.push(View::NOTHING, GFP_KERNEL_ACCOUNT)?;
        }
        let state = State {
            views,
            always: PageBits::NONE,
            lost: PageBits::NONE,
            coming: PageBits::NONE,
            missed_since: None,
        };
        let granule = try_pin_init!(Self {
            first,
            turn <- new_mutex!(true, "amdkfd::Granule::turn"),
            blocks <- new_mutex!(KVec::new(), "amdkfd::Granule::blocks"),
            state <- new_mutex!(state, "amdkfd::Granule::state"),
            incomplete: Atomic::new(false),
            _held: GRANULES.hold(),
        });
        Arc::pin_init(granule, GFP_KERNEL_ACCOUNT)
    }

    /// Waits for its turn, which may be held across faults of the process's. `None`: it was
    /// dropped meanwhile, and its region may have another one.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        let turn = self.turn.lock();
        turn.then_some(turn)
    }

    /// Whether a block has memory for its pages. Under the turn.
    pub(super) fn has_blocks(&self) -> bool {
        self.blocks.lock().iter().any(|block| block.is_live())
    }

    /// The blocks that its pages are put into.
    pub(super) fn blocks(&self) -> MutexGuard<'_, KVec<Arc<Block>>> {
        self.blocks.lock()
    }

    /// Its pages.
    pub(super) fn pages(&self) -> Pages {
        Pages::new(self.first, self.first + GRANULE_PAGES)
    }

    /// Locks its state.
    pub(super) fn state(&self) -> StateGuard<'_> {
        let no_reclaim = NoReclaim::new();
        StateGuard {
            state: self.state.lock(),
            changed: false,
            incomplete: &self.incomplete,
            _no_reclaim: no_reclaim,
        }
    }

    /// Whether there are page tables of a GPU for it: as long as it sees a page there are.
    pub(super) fn has_tables(&self, gpu: usize) -> bool {
        let state = self.state();
        let has = |view: &View| view.has_tables || !view.seen().is_empty();
        state.views.get(gpu).is_some_and(has)
    }

    /// Addresses in it do not show what they did: a buffer there may get rid of the page tables,
    /// once nothing of it is seen any more.
    pub(super) fn forget_tables(&self) {
        for view in &mut self.state().views {
            view.has_tables = false;
        }
    }

    /// Whether a GPU sees a page, and may write it if it wants to `write`; false if that cannot be
    /// told at once.
    pub(super) fn has(&self, gpu: usize, page: u64, write: bool) -> bool {
        let state = self.state();
        let has = |view: &View| view.mapped.contains(page) && !(write && view.read_only);
        state.views.get(gpu).is_some_and(has)
    }

    /// Whether a GPU sees all of `pages`, or will before a queue of the process's runs.
    pub(super) fn shows(&self, gpu: usize, pages: Pages) -> bool {
        let state = self.state();
        let all = |view: &View| {
            let seen = view.mapped.union(state.lost).union(state.coming);
            PageBits::of(pages).minus(seen).is_empty()
        };
        state.views.get(gpu).is_some_and(all)
    }

    /// The pages that all these GPUs see.
    pub(super) fn seen_by_all(&self, gpus: GpuSet) -> PageBits {
        let state = self.state();
        let views = gpus.iter().map(|gpu| state.views.get(gpu));
        let seen = views.map(|view| view.map_or(PageBits::NONE, |view| view.mapped));
        seen.reduce(PageBits::intersection)
            .unwrap_or(PageBits::NONE)
    }

    /// Whether a GPU may see any of `pages` still, which were to be taken from it.
    pub(super) fn is_stale(&self, gpu: usize, pages: Pages) -> bool {
        let state = self.state();
        let stale = |view: &View| !view.stale.intersection(PageBits::of(pages)).is_empty();
        state.views.get(gpu).is_some_and(stale)
    }

    /// No queue of the process's runs any more, nor will: the device's addresses of all pages are
    /// given back, whatever page tables show.
    pub(super) fn end(&self, gpus: &[Gpu]) {
        for (place, gpu) in gpus.iter().enumerate() {
            let mut state = self.state();
            let Some(view) = state.views.get_mut(place) else {
                continue;
            };
            view.mapped = PageBits::NONE;
            let stale = core::mem::replace(&mut view.stale, PageBits::NONE);
            let addresses = view.addresses.take();
            // Under it what is allocated is the kernel's last.
            drop(state);
            let Ok(vm) = gpu.vm() else {
                continue;
            };
            let mut runs = stale.runs(self.first);
            if let Some(run) = runs.next() {
                // One note for all: nothing else of the process's is mapped in between.
                let end = runs.last().map_or(run.end, |last| last.end);
                let noted = vm.note_pages(run.start, end - run.start);
                if noted.is_err() && may_complain() {
                    pr_warn!("pages of a process that has ended stay mapped: {noted:?}\n");
                }
            }
            if let Some(addresses) = addresses {
                vm.dma_unmap_pages(&addresses);
            }
        }
    }

    /// Whether no GPU sees any of `pages`; false if that cannot be told without waiting.
    pub(super) fn is_free(&self, pages: Pages) -> bool {
        let Some(state) = self.state.try_lock() else {
            return false;
        };
        let wanted = PageBits::of(pages);
        let seen = |view: &View| !view.seen().intersection(view.around(wanted)).is_empty();
        !state.views.iter().any(seen)
    }

    /// Whether it shows nothing to anybody, and nothing has to come back.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        let seen = |view: &View| !view.seen().is_empty();
        state.lost.is_empty() && !state.views.iter().any(seen)
    }

    /// Pages that have to come back cannot be had, `missing`, some of which somebody is to supply.
    /// They are lost again, but for the others if some were missing for longer than `patience`:
    /// whoever uses these misses them. Whether any is lost.
    pub(super) fn lose_again(
        &self,
        missing: PageBits,
        supplied: PageBits,
        patience: Delta,
    ) -> bool {
        let mut state = self.state();
        let others = missing.minus(supplied);
        let mut again = missing;
        if others.is_empty() {
            state.missed_since = None;
        } else {
            let since = *state.missed_since.get_or_insert_with(Instant::now);
            if since.elapsed() > patience {
                state.missed_since = None;
                again = missing.intersection(supplied);
            }
        }
        state.lost = state.lost.union(again);
        !again.is_empty()
    }

    /// All of its pages are looked for before the process's queues come back.
    pub(super) fn lose_all(&self) {
        self.state().lost = PageBits::of(self.pages());
    }

    /// Whether pages are lost or stale.
    pub(super) fn is_incomplete(&self) -> bool {
        self.incomplete.load(Relaxed)
    }

    /// The pages among these that some GPU sees, or may see still, of which `by` is true, with
    /// those that it may translate together with them; and those of all these that no GPU may miss.
    pub(super) fn seen(&self, pages: Pages, by: impl Fn(usize) -> bool) -> (PageBits, PageBits) {
        let state = self.state();
        let wanted = PageBits::of(pages);
        let mut seen = PageBits::NONE;
        for (_, view) in (0..).zip(&state.views).filter(|(place, _)| by(*place)) {
            seen = seen.union(view.seen().intersection(view.around(wanted)));
        }
        (seen, seen.intersection(state.always))
    }

    /// Takes pages from GPUs, those of which `from` is true, with what they may translate together
    /// with them. When this returns true, they do not use them any more. False: page tables could
    /// not be changed, and [`Granule::retry`] must be tried until it is true; no queue of the
    /// process's may run before: that holds for whoever comes for the same pages meanwhile as well.
    /// `back`: which of them are brought back before the queues run again; who wants others faults.
    /// `tell` hears of each run of `pages` that was mapped.
    pub(super) fn take(
        &self,
        gpus: &[Gpu],
        pages: Pages,
        back: PageBits,
        from: impl Fn(usize) -> bool,
        mut tell: impl FnMut(usize, Pages),
    ) -> bool {
        let wanted = PageBits::of(pages);
        let mut state = self.state();
        let mut taken = PageBits::NONE;
        let mut done = true;
        for (place, (gpu, view)) in gpus.iter().zip(state.views.iter_mut()).enumerate() {
            let gone = view.seen().intersection(view.around(wanted));
            if gone.is_empty() || !from(place) {
                continue;
            }
            let mapped = view.mapped.intersection(gone);
            taken = taken.union(mapped);
            view.mapped = view.mapped.minus(gone);
            view.stale = view.stale.union(gone);
            done &= self.forget(gpu, view, gone) == Ok(true);
            let told = mapped.intersection(wanted);
            told.runs(self.first).for_each(|run| tell(place, run));
        }
        state.lost = state.lost.union(taken.intersection(back));
        done
    }

    /// Takes those pages from GPUs that could not be taken when they should have been.
    pub(super) fn retry(&self, gpus: &[Gpu]) -> bool {
        let mut done = true;
        for place in 0..gpus.len() {
            done &= self.retry_on(gpus, place) == Ok(true);
        }
        done
    }

    /// Takes them from one of the GPUs. `false`: its page tables could not be changed. `ETIME`,
    /// `EAGAIN`: it may use what it had translated before ([`Vm::flush_tlb`]).
    pub(super) fn retry_on(&self, gpus: &[Gpu], place: usize) -> Result<bool> {
        let mut state = self.state();
        match (gpus.get(place), state.views.get_mut(place)) {
            (Some(gpu), Some(view)) if !view.stale.is_empty() => {
                let stale = view.stale;
                self.forget(gpu, view, stale)
            }
            _ => Ok(true),
        }
    }

    /// Makes a GPU forget stale pages. See [`Granule::retry_on`].
    fn forget(&self, gpu: &Gpu, view: &mut View, gone: PageBits) -> Result<bool> {
        let Ok(vm) = gpu.vm() else {
            return Ok(true);
        };
        let mut away = false;
        let mut forgotten = self.unmap(gpu, vm, view, gone, &mut away);
        if away && !view.owes {
            view.tell(vm);
            // A job that came before the VM was told has brought the page tables back, and runs.
            forgotten = self.unmap(gpu, vm, view, gone.intersection(view.stale), &mut away);
        }
        view.tell(vm);
        forgotten
    }

    /// `away`: some could not be unmapped because there were no page tables to be changed.
    fn unmap(
        &self,
        gpu: &Gpu,
        vm: &Vm,
        view: &mut View,
        gone: PageBits,
        away: &mut bool,
    ) -> Result<bool> {
        let mut forgotten = PageBits::NONE;
        let mut any = false;
        for run in gone.runs(self.first) {
            let unmapped = vm.unmap_pages(run.start, run.len());
            any |= unmapped != Err(EBUSY);
            match unmapped {
                // Without a device there is nobody who could use them: queues leave it before it
                // is unplugged, or it was pulled out.
                Ok(()) | Err(ENODEV) => forgotten = forgotten.union(PageBits::of(run)),
                Err(error) => {
                    *away |= error == EBUSY;
                    pr_debug!("pages cannot be unmapped: {error:?}\n");
                }
            }
        }
        if *away && !any {
            return Ok(false);
        }
        // After an error the GPU may use them still, as if they were mapped.
        vm.flush_tlb(TlbFlush::Heavyweight, gpu.node().xcc_mask())
            .inspect_err(|error| pr_debug!("translations are not invalidated: {error:?}\n"))?;
        for run in forgotten.runs(self.first) {
            view.give_back(gpu, run);
        }
        view.stale = view.stale.minus(forgotten);
        view.joined = view.joined.minus(forgotten);
        // The page before one of them is mapped alone by now, if it is: else both would be stale.
        for run in forgotten.runs(self.first) {
            let before = run.start.max(self.first + 1) - 1;
            let before = PageBits::of(Pages::new(before, before + 1));
            view.joined = view.joined.minus(before.minus(view.stale));
        }
        Ok(gone == forgotten)
    }
}

#[kernel::macros::kunit_tests(amdkfd_svm_granule)]
mod tests {
    use super::*;
    use crate::{
        gpu::{
            gate::Gate,
            NoSink,
            Node,
            NodeUser, //
        },
        ids::GpuId,
        kgd::fake::Fake,
        svm::told::Counters, //
    };
    use kernel::sync::SetOnce;

    fn gpu(fake: &Arc<Fake>) -> Gpu {
        let sink = Arc::new(NoSink, GFP_KERNEL).unwrap();
        let gpu = crate::gpu::Gpu::new(fake.clone(), Gate::new().unwrap()).unwrap();
        let node = Node::new(gpu, 0, GpuId::new(1).unwrap(), sink).unwrap();
        let vm = SetOnce::new();
        vm.populate(fake.vm().unwrap());
        Gpu {
            vm,
            checkpoint: Atomic::new(0),
            counters: Arc::new(Counters::new(), GFP_KERNEL).unwrap(),
            is_supported: true,
            node: NodeUser::new(node),
        }
    }

    #[test]
    fn pages_are_in_use_until_no_translation_of_them_is_left() {
        let fake = Fake::new().unwrap();
        let gpus = [gpu(&fake)];
        let granule = Granule::new(1024, 1).unwrap();
        let pages = Pages::new(1024, 1030);
        let vm = gpus[0].vm().unwrap().clone();
        let mut dma = DmaPages::new(vm, &[1, 2, 3, 4, 5, 6]).unwrap();
        {
            let mut state = granule.state();
            let mut room = Some(KVec::from_elem(0, 512, GFP_KERNEL).unwrap());
            state.views[0].exchange(0, &mut dma, &mut room);
            state.views[0].mapped = PageBits::of(pages);
        }
        drop(dma);
        let take = || granule.take(&gpus, pages, PageBits::NONE, |_| true, |_, _| ());
        fake.set_stuck(true, false);
        assert!(!granule.is_incomplete() && fake.live().owing == 0);
        assert!(!take() && granule.is_stale(0, pages) && !granule.is_idle());
        assert!(granule.is_incomplete() && fake.live().owing == 1);
        // Who comes for one of them next is not told that nobody uses it.
        let one = Pages::new(1026, 1027);
        assert!(granule.seen(one, |_| true).0.contains(1026));
        assert!(!granule.take(&gpus, one, PageBits::NONE, |_| true, |_, _| ()));
        // Nobody else gets what the GPU may use.
        assert_eq!(fake.live().dma_pages, 6);
        assert!(!granule.retry(&gpus) && granule.is_stale(0, pages));
        fake.set_stuck(false, false);
        assert!(granule.retry(&gpus) && granule.is_idle() && !granule.is_incomplete());
        assert_eq!(fake.live().dma_pages, 0);
        assert_eq!(fake.live().owing, 0);
        // What is lost is looked for, too, until it is there.
        granule.lose_all();
        assert!(granule.is_incomplete());
        granule.state().lost = PageBits::NONE;
        assert!(!granule.is_incomplete());
        // Page tables are away until the VM was told: a job may have brought them back before that.
        granule.state().views[0].mapped = PageBits::of(pages);
        fake.set_tables_out_until_told();
        assert!(take() && granule.is_idle() && !granule.is_incomplete());
        assert!(fake.live().was_told && fake.live().owing == 0);
        // At the end what a GPU may see still is the VM's to take out.
        granule.state().views[0].mapped = PageBits::of(pages);
        fake.set_stuck(true, false);
        assert!(!take() && fake.live().noted_pages == 0);
        granule.end(&gpus);
        assert_eq!(fake.live().noted_pages, 6);
    }

    #[test]
    fn a_page_is_joined_to_the_one_behind_it_while_that_is_seen() {
        let mut view = View::NOTHING;
        let (left, right) = (Pages::new(1024, 1028), Pages::new(1028, 1032));
        view.joined = PageBits::of(Pages::new(1024, 1031));
        view.mapped = PageBits::of(left);
        assert!(view.edge(left).is_empty());
        view.stale = PageBits::of(right);
        assert_eq!(view.edge(left), PageBits::of(Pages::new(1027, 1028)));
        assert!(view.edge(right).is_empty());
    }

    #[test]
    fn what_cannot_be_had_stays_lost_for_a_while() {
        let granule = Granule::new(1024, 1).unwrap();
        let of = |start, end| PageBits::of(Pages::new(start, end));
        let lost = || core::mem::replace(&mut granule.state().lost, PageBits::NONE);
        let (missing, supplied) = (of(1024, 1030), of(1024, 1026));
        let (long, over) = (Delta::from_secs(600), Delta::from_nanos(-1));
        assert!(granule.lose_again(missing, supplied, long));
        assert_eq!(lost(), missing);
        // Who supplies pages is waited for without end.
        assert!(granule.lose_again(missing, supplied, over));
        assert_eq!(lost(), supplied);
        assert!(!granule.lose_again(of(1026, 1030), PageBits::NONE, over));
        assert!(lost().is_empty() && granule.is_idle());
        // Another time begins anew.
        assert!(granule.lose_again(missing, PageBits::NONE, long));
        assert!(granule.state().missed_since.is_some());
        assert!(!granule.lose_again(PageBits::NONE, PageBits::NONE, long));
        assert!(granule.state().missed_since.is_none());
    }
}
