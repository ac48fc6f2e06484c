// SPDX-License-Identifier: GPL-2.0-only

//! Tests of shared virtual memory as a whole: the address space is the test's own, the GPUs are
//! fake ones.

#[kernel::macros::kunit_tests(amdkfd_svm)]
mod tests {
    use super::super::{
        attributes::Location,
        page_bits::GRANULE_PAGES,
        places::{
            Places,
            MOST, //
        },
        *, //
    };
    use crate::{
        gpu::{
            self,
            gate::Gate,
            NoSink, //
        },
        ids::{
            GpuId,
            Serial, //
        },
        kgd::{
            fake::Fake,
            DeviceMemory, //
        },
        linux::{
            hmm::Reason,
            test_space,
            users::user_of, //
        }, //
    };
    use kernel::time::delay::fsleep;

    /// How often somebody wants doorbells away while the lock of the address space is taken.
    const REFUSED: u32 = 2;

    /// The queues of a process that has none: how often they were taken off, and how often somebody
    /// wanted their doorbells away.
    struct Queues {
        evictions: Arc<Atomic<u32>>,
        dozes: Arc<Atomic<u32>>,
    }

    impl Host for Queues {
        fn evict(&self) {
            let _: u32 = self.evictions.fetch_add(1, Relaxed);
        }

        fn await_eviction(&self) {}

        fn restore(&self) {}

        fn restore_postponed(&self) {}

        fn doze(&self, _: &MmWithUser) -> Result {
            match self.dozes.fetch_add(1, Relaxed) {
                0..REFUSED => Err(EAGAIN),
                _ => Ok(()),
            }
        }
    }

    /// The shared virtual memory of the test's own address space.
    struct World {
        svm: Option<Arc<Svm>>,
        evictions: Arc<Atomic<u32>>,
        dozes: Arc<Atomic<u32>>,
        queue: *mut OwnedQueue,
    }

    impl World {
        /// On GPUs that have a VM each.
        fn new(fakes: &[&Arc<Fake>]) -> Self {
            Self::of(1, &Places::new().unwrap(), fakes)
        }

        /// The same of a user's process.
        fn of(user: u32, places: &Places, fakes: &[&Arc<Fake>]) -> Self {
            test_space::attach();
            let queue = OwnedQueue::unbound(c"amdkfd_kunit").unwrap();
            let queue = KBox::into_raw(KBox::new(queue, GFP_KERNEL).unwrap());
            // SAFETY: It is freed by `drop`, when nobody uses it any more.
            let shared: &'static OwnedQueue = unsafe { &*queue };
            let mut nodes = KVec::new();
            for (fake, id) in fakes.iter().zip(1..) {
                let sink = Arc::new(NoSink, GFP_KERNEL).unwrap();
                let gpu = gpu::Gpu::new((*fake).clone(), Gate::new().unwrap()).unwrap();
                let node = Node::new(gpu, 0, GpuId::new(id).unwrap(), sink).unwrap();
                let counters = Arc::new(Counters::new(), GFP_KERNEL).unwrap();
                nodes.push((node, counters), GFP_KERNEL).unwrap();
            }
            let subject = Subject {
                pid: 1,
                tgid: 1,
                of: Serial::next(),
            };
            let evictions = Arc::new(Atomic::new(0), GFP_KERNEL).unwrap();
            let dozes = Arc::new(Atomic::new(0), GFP_KERNEL).unwrap();
            let queues = Queues {
                evictions: evictions.clone(),
                dozes: dozes.clone(),
            };
            let host = KBox::new(queues, GFP_KERNEL).unwrap();
            let workers = Workers {
                pages: shared,
                blocks: shared,
                member: places.join(user_of(user)).unwrap(),
            };
            let current = kernel::current!();
            let mm: &Mm = current.mm().unwrap();
            let svm = Svm::new(
                nodes.iter().map(|(node, counters)| (node, counters)),
                (mm.into(), subject),
                false,
                host,
                workers,
            );
            let svm = svm.unwrap();
            for (place, fake) in fakes.iter().enumerate() {
                svm.set_vm(place, &fake.vm().unwrap());
            }
            Self {
                svm: Some(svm),
                evictions,
                dozes,
                queue,
            }
        }

        fn svm(&self) -> &Arc<Svm> {
            self.svm.as_ref().unwrap()
        }
    }

    impl Drop for World {
        fn drop(&mut self) {
            let svm = self.svm.take().unwrap();
            svm.end();
            // SAFETY: It is the queue that `new` has made.
            let queue = unsafe { KBox::from_raw(self.queue) };
            queue.settle();
            drop(svm);
            drop(queue);
        }
    }

    /// New memory, from the begin of a granule on, but for its last page: no large page fits.
    fn memory() -> Pages {
        const BYTES: usize = 2 * (GRANULE_PAGES << PAGE_SHIFT) as usize;
        let start = test_space::map(BYTES, test_space::WRITABLE);
        let all = Pages::of_bytes(start, BYTES as u64).unwrap();
        let first = all.start.next_multiple_of(GRANULE_PAGES);
        let memory = Pages::new(first, first + GRANULE_PAGES - 1);
        for beside in [
            Pages::new(all.start, memory.start),
            Pages::new(memory.end, all.end),
        ] {
            if !beside.is_empty() {
                unmap(beside);
            }
        }
        memory
    }

    /// The process unmaps pages.
    fn unmap(pages: Pages) {
        // CAST: addresses of this kernel's size.
        test_space::unmap(pages.address(), pages.bytes() as usize);
    }

    /// The same, and maps others there.
    fn replace(pages: Pages) {
        unmap(pages);
        // CAST: as above.
        test_space::map_again(pages.address(), pages.bytes() as usize);
    }

    fn part(of: Pages, from: u64, to: u64) -> Pages {
        Pages::new(of.start + from, of.start + to)
    }

    #[test]
    fn no_area_has_attributes_that_a_gpu_has_no_page_tables_for() {
        let area = part(memory(), 0, 4);
        let ends_at = |end: u64, left: u64| {
            let change = |facts: &mut crate::kgd::GpuFacts| {
                // What GPU memory there is is the system's.
                facts.prefers_gtt = true;
                (facts.max_pfn, facts.gpuvm_size) = (end, left << PAGE_SHIFT);
            };
            Fake::with(change).unwrap()
        };
        let large = ends_at(1 << 36, 1 << 35);
        // By one page, of the tables or of what the driver leaves of them.
        for small in [
            ends_at(area.end - 1, 1 << 35),
            ends_at(1 << 36, area.end - 1),
        ] {
            let world = World::new(&[&large, &small]);
            let (svm, before) = (world.svm(), small.live());
            let access = [Attribute::Access(0)];
            assert_eq!(svm.set(area, &access), Err(EFAULT));
            assert_eq!((large.live().reserved, large.live().tables_made), (0, 0));
            // What can be seen is the default's.
            assert!(svm.get(area, || true).is_ok());
            let fault = |page| Fault {
                page,
                write: false,
                timestamp: 1,
            };
            svm.set_xnack(true).unwrap();
            assert_eq!(svm.fault(1, fault(area.end - 1)), Err(EFAULT));
            assert_eq!(svm.fault(0, fault(1 << 44)), Err(EFAULT));
            assert_eq!(small.live(), before);
            // A range that a fault makes ends where the tables do.
            assert_eq!(svm.fault(1, fault(area.start)), Ok(()));
            assert_eq!(small.live().shared_pages, 3);
        }
        assert_eq!(large.live().shared_pages, 0);
        let world = World::new(&[&large]);
        assert_eq!(world.svm().set(area, &[Attribute::Access(0)]), Ok(()));
        assert_eq!(
            (large.live().shared_pages, large.live().tables_made),
            (4, 1)
        );
        assert_eq!(world.evictions.load(Relaxed), 0);
    }

    #[test]
    fn a_gpu_whose_memory_the_cpu_reaches_has_a_part_in_it() {
        let area = memory();
        let fake = Fake::with(|facts| facts.connected_to_cpu = true).unwrap();
        assert!(fake.device_pages().is_err() && is_supported(&*fake));
        // Nothing moves into its memory.
        let world = World::new(&[&fake]);
        let wish = [Attribute::Access(0), Attribute::Preferred(Location::Gpu(0))];
        assert_eq!(world.svm().set(part(area, 0, 4), &wish), Ok(()));
        assert_eq!(fake.live().shared_pages, 4);
    }

    #[test]
    fn page_tables_are_not_made_where_a_page_is_seen() {
        let area = memory();
        let fake = Fake::new().unwrap();
        let world = World::new(&[&fake]);
        let (seen, beside) = (part(area, 0, 4), part(area, 100, 101));
        assert_eq!(world.svm().set(seen, &[Attribute::Access(0)]), Ok(()));
        assert_eq!((fake.live().tables_made, fake.live().shared_pages), (1, 4));
        // For a buffer the page tables of what else lies there may go, but not these.
        unmap(beside);
        let read_only = Attribute::SetFlags(KFD_IOCTL_SVM_FLAG_GPU_RO);
        assert_eq!(world.svm().set(seen, &[read_only]), Ok(()));
        assert_eq!(fake.live().tables_made, 1);
        // Now they may.
        unmap(seen);
        let other = part(area, 200, 204);
        assert_eq!(world.svm().set(other, &[Attribute::Access(0)]), Ok(()));
        assert_eq!(fake.live().tables_made, 2);
        assert_eq!(world.evictions.load(Relaxed), 0);
    }

    #[test]
    fn doorbells_are_taken_away_before_a_long_rest_and_once() {
        let fake = Fake::new().unwrap();
        let world = World::new(&[&fake]);
        let svm = world.svm();
        let rest = || {
            svm.evicting.lock().due = Some(Instant::now() + Delta::from_secs(60));
            let _ = svm.workers.pages.hasten::<_, RESTORE>(svm.clone());
        };
        let dozes = || world.dozes.load(Relaxed);
        // A busy host may take its time.
        let await_dozes = |count| {
            for _ in 0..1000 {
                if dozes() < count {
                    fsleep(Delta::from_millis(10));
                }
            }
        };
        rest();
        await_dozes(REFUSED + 1);
        // Who rests goes on resting.
        rest();
        fsleep(Delta::from_millis(100));
        assert_eq!(dozes(), REFUSED + 1);
        // Somebody has rung: there is one to take away again.
        svm.hurry();
        rest();
        await_dozes(REFUSED + 2);
        assert_eq!(dozes(), REFUSED + 2);
    }

    #[test]
    fn who_waits_for_programs_keeps_no_other_user_from_coming_back() {
        let places = Places::new().unwrap();
        let fakes = [(); 2].map(|()| Fake::new().unwrap());
        let own = World::of(1, &places, &[&fakes[0]]);
        let other = World::of(2, &places, &[&fakes[1]]);
        // Workers of that user's other processes wait for what does not come.
        let member = places.join(user_of(1)).unwrap();
        let mut stuck = KVec::new();
        for _ in 0..MOST {
            stuck.push(member.take().unwrap(), GFP_KERNEL).unwrap();
        }
        let is_off = |world: &World| world.svm().evicting.lock().evicted;
        let comes = |world: &World, tries: u32| {
            (0..tries).any(|_| {
                fsleep(Delta::from_millis(10));
                !is_off(world)
            })
        };
        [&own, &other].map(|world| world.svm().regain());
        assert!(comes(&other, 1000));
        assert!(!comes(&own, 20));
        assert!(own.svm().refused.load(Relaxed) > 1);
        drop(stuck);
        assert!(comes(&own, 1000));
        assert_eq!(own.svm().refused.load(Relaxed), 0);
        drop(member);
    }

    #[test]
    fn a_save_area_is_lost_once() {
        let area = memory();
        let fake = Fake::new().unwrap();
        let world = World::new(&[&fake]);
        let svm = world.svm();
        let (saved, other) = (part(area, 0, 4), part(area, 8, 12));
        let change = [
            Attribute::Access(0),
            Attribute::SetFlags(KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED),
        ];
        let pins = [saved, other].map(|pages| {
            assert_eq!(svm.set(pages, &change), Ok(()));
            PinnedPages::new(svm, 0, pages).unwrap()
        });
        let evictions = || world.evictions.load(Relaxed);
        svm.check_pins(part(area, 4, 8));
        assert_eq!(evictions(), 0);
        unmap(saved);
        assert_eq!(evictions(), 1);
        // Whatever is mapped there next is no save area.
        (0..100).for_each(|_| svm.check_pins(saved));
        assert_eq!(evictions(), 1);
        svm.check_pins(part(area, 11, 13));
        assert_eq!(evictions(), 2);
        drop(pins);
        assert!(svm.pins.lock().is_empty());
    }

    #[test]
    fn a_save_area_that_is_being_brought_back_is_one() {
        let area = memory();
        let fake = Fake::new().unwrap();
        let world = World::new(&[&fake]);
        let svm = world.svm();
        let saved = part(area, 0, 4);
        let change = [
            Attribute::Access(0),
            Attribute::SetFlags(KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED),
        ];
        assert_eq!(svm.set(saved, &change), Ok(()));
        let region = svm.region_of(saved.start).unwrap();
        let granule = region.granule(saved.start).unwrap();
        fake.keep_tables(true);
        svm.take(&granule, saved, Reason::Other);
        assert_eq!(fake.live().shared_pages, 0);
        // The worker waits for page tables.
        for _ in 0..1000 {
            if !fake.live().tables_wanted {
                fsleep(Delta::from_millis(10));
            }
        }
        assert!(fake.live().tables_wanted && granule.state().lost.is_empty());
        let pin = PinnedPages::new(svm, 0, saved);
        fake.keep_tables(false);
        assert!(pin.is_ok());
        for _ in 0..1000 {
            if svm.evicting.lock().evicted {
                fsleep(Delta::from_millis(10));
            }
        }
        assert_eq!(fake.live().shared_pages, 4);
        assert!(granule.state().coming.is_empty());
    }

    #[test]
    fn a_buffer_and_attributes_exclude_each_other() {
        let area = memory();
        let fake = Fake::new().unwrap();
        let world = World::new(&[&fake]);
        let svm = world.svm();
        let in_use = crate::linux::errno::address_in_use();
        let (first, second) = (part(area, 0, 4), part(area, 8, 12));
        let access = [Attribute::Access(0)];
        assert_eq!(svm.set(first, &access), Ok(()));
        assert_eq!(svm.claim(part(area, 3, 5)).err(), Some(in_use));
        // While a buffer is being mapped, nobody comes between.
        let claims = [(); 2].map(|()| svm.claim(second).unwrap());
        for claim in claims {
            assert_eq!(svm.set(part(area, 4, 9), &access), Err(in_use));
            assert_eq!(svm.get(second, || true).err(), Some(in_use));
            assert_eq!(svm.set(part(area, 4, 8), &access), Ok(()));
            drop(claim);
        }
        assert_eq!(svm.set(second, &access), Ok(()));
        unmap(first);
        drop(svm.claim(first).unwrap());
        assert!(svm.book.lock().claims.is_empty());
    }

    #[test]
    fn no_buffer_is_mapped_where_a_gpu_may_see_pages_still() {
        let area = memory();
        let (pages, others) = (part(area, 0, 4), part(area, 8, 12));
        let fakes = [(); 2].map(|()| Fake::new().unwrap());
        let world = World::new(&[&fakes[0], &fakes[1]]);
        let svm = world.svm();
        assert_eq!(svm.set(pages, &[Attribute::Access(0)]), Ok(()));
        fakes[0].set_stuck(true, false);
        unmap(pages);
        assert_eq!(svm.settle_now(), Ok(()));
        assert_eq!(svm.has_ranges(pages), Ok(false));
        // Who would unmap them later, be it a worker, would unmap the buffer.
        let claim = svm.claim(pages).unwrap();
        let clear = |gpu: usize| claim.clear(svm.gpus[gpu].vm().unwrap());
        assert_eq!((clear(0), clear(1)), (Err(EIO), Ok(())));
        fakes[0].set_stuck(false, false);
        assert_eq!(clear(0), Ok(()));
        let is_idle = || {
            let region = svm.region_of(pages.start);
            let granule = region.and_then(|region| region.granule(pages.start));
            granule.is_none_or(|granule| granule.is_idle() && !granule.is_incomplete())
        };
        assert!(is_idle());
        drop(claim);
        // Page tables that are out of VRAM would come back for the buffer, and do before.
        assert_eq!(svm.set(others, &[Attribute::Access(0)]), Ok(()));
        fakes[0].put_tables_out();
        unmap(others);
        let claim = svm.claim(others).unwrap();
        assert_eq!(claim.clear(svm.gpus[0].vm().unwrap()), Ok(()));
        assert!(is_idle() && !fakes[0].live().tables_out);
        assert_eq!(fakes[0].live().table_locks, 0);
    }

    #[test]
    fn a_buffer_is_mapped_behind_a_page_that_is_seen() {
        let area = memory();
        let (page, behind) = (part(area, 16, 17), part(area, 17, 18));
        let fake = Fake::new().unwrap();
        let world = World::new(&[&fake]);
        let svm = world.svm();
        let access = [Attribute::Access(0)];
        assert_eq!(svm.set(part(area, 16, 18), &access), Ok(()));
        fake.put_tables_out();
        unmap(behind);
        // The first one comes back while the other one is stale.
        assert_eq!(svm.settle_now(), Ok(()));
        assert_eq!(svm.set(page, &access), Ok(()));
        let claim = svm.claim(behind).unwrap();
        assert_eq!(claim.clear(svm.gpus[0].vm().unwrap()), Ok(()));
    }

    #[test]
    fn what_is_unmapped_while_no_worker_comes_takes_nothing_else_with_it() {
        const BYTES: usize = 4 * (REGION_PAGES << PAGE_SHIFT) as usize;
        let places = Places::new().unwrap();
        let fake = Fake::new().unwrap();
        let world = World::of(1, &places, &[&fake]);
        let svm = world.svm();
        let member = places.join(user_of(1)).unwrap();
        let mut stuck = KVec::new();
        for _ in 0..MOST {
            stuck.push(member.take().unwrap(), GFP_KERNEL).unwrap();
        }
        let space = Pages::of_bytes(test_space::map(BYTES, test_space::WRITABLE), BYTES as u64);
        let first = space.unwrap().start.next_multiple_of(REGION_PAGES);
        let all = Pages::new(first, first + 3 * REGION_PAGES);
        let give = |pages, granularity| svm.set(pages, &[Attribute::Granularity(granularity)]);
        assert_eq!(give(all, 5), Ok(()));
        let (one, other) = (part(all, 8, 9), part(all, 64, 65));
        for _ in 0..2000 {
            replace(one);
            replace(other);
        }
        let noted = || svm.unmapped.load(Relaxed);
        assert_eq!(noted(), 1);
        // Across three regions.
        let wide = part(all, REGION_PAGES - 3, 2 * REGION_PAGES + 3);
        unmap(wide);
        assert_eq!(noted(), 3);
        assert_eq!(svm.book.lock().ranges.len(), 1);
        // What is given now is of what is there now.
        assert_eq!(give(one, 7), Ok(()));
        let are = |expected: &[(u64, u64, u8)]| {
            let ranges = svm.ranges_in(all).unwrap();
            let found = ranges.iter().map(|(it, said)| (*it, said.granularity));
            found.eq(expected
                .iter()
                .map(|(start, end, said)| (part(all, *start, *end), *said)))
        };
        let left = [
            (0, 8, 5),
            (8, 9, 7),
            (9, 64, 5),
            (65, REGION_PAGES - 3, 5),
            (2 * REGION_PAGES + 3, 3 * REGION_PAGES, 5),
        ];
        assert!(are(&left) && noted() == 0);
        assert!(svm.region_of(first + REGION_PAGES).is_none() && svm.region_of(first).is_some());
        // The worker comes, and finds nothing; then it finds two, in two regions.
        drop(stuck);
        drop(member);
        flush_delayed(&svm.settling);
        assert!(are(&left));
        replace(one);
        unmap(part(all, 3 * REGION_PAGES - 1, 3 * REGION_PAGES));
        for _ in 0..1000 {
            if noted() > 0 {
                fsleep(Delta::from_millis(10));
            }
        }
        let left = [
            (0, 8, 5),
            (9, 64, 5),
            (65, REGION_PAGES - 3, 5),
            (2 * REGION_PAGES + 3, 3 * REGION_PAGES - 1, 5),
        ];
        assert!(are(&left) && noted() == 0);
    }

    #[test]
    fn pages_that_others_take_at_once_are_forgotten_and_those_given_stay() {
        let area = memory();
        let fake = Fake::new().unwrap();
        let world = World::new(&[&fake]);
        let svm = world.svm();
        let give = |pages| svm.set(pages, &[Attribute::Granularity(5)]);
        let page = |number| part(area, number, number + 1);
        assert_eq!(give(part(area, 0, 200)), Ok(()));
        // The worker is at work meanwhile.
        for round in 0..500 {
            let (given, taken) = (page(2 * (round % 50)), page(2 * (round % 50) + 1));
            replace(given);
            assert_eq!(give(given), Ok(()));
            replace(taken);
        }
        assert_eq!(svm.settle_now(), Ok(()));
        let has = |number| svm.has_ranges(page(number)) == Ok(true);
        assert!((0..200).all(|number| has(number) == (number >= 100 || number % 2 == 0)));
    }
}
