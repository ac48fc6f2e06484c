// SPDX-License-Identifier: GPL-2.0-only

//! Tests of blocks: their memory is a fake device's, whose pages are in no address space.

#[kernel::macros::kunit_tests(amdkfd_svm_block)]
mod tests {
    use super::super::{
        super::home::{
            copy_home,
            Job, //
        },
        *, //
    };
    use crate::kgd::{
        fake::Fake,
        Device, //
    };
    use kernel::{
        new_work,
        workqueue::{
            impl_has_work,
            Work, //
        },
    };

    /// Something that a worker does, beside the test.
    #[pin_data]
    struct Beside {
        act: fn(&Beside),
        #[pin]
        vram: IrqSpinLock<Option<DeferredArc<Vram>>>,
        over: Atomic<bool>,
        #[pin]
        work: Work<Beside>,
    }

    impl_has_work! {
        impl HasWork<Self> for Beside { self.work }
    }

    impl WorkItem for Beside {
        type Pointer = Arc<Self>;

        fn run(this: Arc<Self>) {
            (this.act)(&this);
        }
    }

    impl Beside {
        fn start(
            queue: &OwnedQueue,
            vram: Option<DeferredArc<Vram>>,
            act: fn(&Beside),
        ) -> Arc<Self> {
            let this = pin_init!(Self {
                act,
                vram <- new_irq_spinlock!(vram, "amdkfd::Beside"),
                over: Atomic::new(false),
                work <- new_work!("amdkfd::Beside"),
            });
            let this = Arc::pin_init(this, GFP_KERNEL).unwrap();
            assert!(queue.enqueue(this.clone()).is_ok());
            this
        }
    }

    /// Calls `act` with a device and a queue, and ends both.
    fn with_queue(act: fn(&Arc<Fake>, &'static OwnedQueue)) {
        let queue = OwnedQueue::unbound(c"amdkfd_kunit").unwrap();
        let queue = KBox::into_raw(KBox::new(queue, GFP_KERNEL).unwrap());
        // SAFETY: It is freed below, when no block refers to it any more.
        let shared: &'static OwnedQueue = unsafe { &*queue };
        let fake = Fake::new().unwrap();
        act(&fake, shared);
        settle();
        assert_eq!(fake.live().vrams, 0);
        // SAFETY: The box is the one above, and its last user is gone.
        drop(unsafe { KBox::from_raw(queue) });
    }

    fn make(fake: &Arc<Fake>, queue: &'static OwnedQueue) -> Mover {
        make_in(fake, None, queue)
    }

    fn make_in(fake: &Arc<Fake>, memory: Option<i32>, queue: &'static OwnedQueue) -> Mover {
        let audience = Audience::nobody().unwrap();
        let room = Room {
            partition: memory.unwrap_or(-1),
            memory,
            pages: Pages::new(512, 516),
        };
        Block::make(fake.clone(), room, audience, queue).unwrap()
    }

    fn is_known(block: &Arc<Block>) -> bool {
        let all = ALL.lock();
        all.as_ref()
            .is_some_and(|all| all.get(&block.key()).is_some())
    }

    /// Any that is known.
    fn first() -> Option<Arc<Block>> {
        let all = ALL.lock();
        let first = all.as_ref()?.cursor_front()?;
        Some(first.current().1.clone())
    }

    #[test]
    fn devices_have_their_own_blocks() {
        with_queue(|fake, queue| {
            let other = Fake::new().unwrap();
            let movers = [&other, fake, &other, fake].map(|fake| make(fake, queue));
            let own = |fake: &Arc<Fake>| {
                let mut key = (fake.handle(), 0);
                let mut count = 0;
                while let Some(block) = block_behind(key) {
                    key = block.key();
                    count += 1;
                }
                count
            };
            assert_eq!((own(fake), own(&other)), (2, 2));
            drop(movers);
            empty_device(&*other);
            assert_eq!(own(&other), 0);
        });
    }

    #[test]
    fn memory_partitions_have_their_own_blocks() {
        with_queue(|fake, queue| {
            let (device, pages) = (fake.handle(), Pages::new(513, 515));
            let whole = make(fake, queue);
            assert!(whole.block().is_for(device, None, pages));
            assert!(!whole.block().is_for(device, None, Pages::new(511, 515)));
            let second = make_in(fake, Some(1), queue);
            let fits = |partition| second.block().is_for(device, partition, pages);
            assert!(fits(Some(1)) && !fits(Some(0)) && !fits(None));
            let other = Fake::new().unwrap();
            assert!(!second.block().is_for(other.handle(), Some(1), pages));
        });
    }

    #[test]
    fn a_block_is_known_as_long_as_it_has_memory() {
        with_queue(|fake, queue| {
            let forget = |this: &Beside| {
                while !this.over.load(Relaxed) {
                    if let Some(block) = first() {
                        block.forget();
                    }
                }
            };
            let beside = Beside::start(queue, None, forget);
            let known = (0..300).all(|_| is_known(make(fake, queue).block()));
            beside.over.store(true, Relaxed);
            assert!(known);
        });
        // Nor is anything left of the list.
        assert!(first().is_none());
    }

    #[test]
    fn a_device_stays_until_nobody_looks_at_its_pages() {
        with_queue(|fake, queue| {
            let mover = make(fake, queue);
            let look = |this: &Beside| {
                fsleep(Delta::from_millis(50));
                this.over.store(true, Relaxed);
                let vram = this.vram.lock().take();
                drop(vram);
            };
            let beside = Beside::start(queue, Some(mover.vram.clone()), look);
            drop(mover);
            empty_device(&**fake);
            assert!(beside.over.load(Relaxed));
        });
    }

    #[test]
    fn nothing_is_put_into_a_block_that_something_late_writes_to() {
        with_queue(|fake, queue| {
            let mover = make(fake, queue);
            assert!(mover.block().enter().is_some());
            let mut copies = Copies::new(mover.vram.clone(), Direction::ToDevice);
            copies.begin(&[]).unwrap();
            fake.set_stuck(true, false);
            assert_eq!(copies.wait(), Err(errno::timer_expired()));
            assert!(mover.block().enter().is_none());
        });
    }

    #[test]
    fn who_copies_much_does_not_wait_for_himself() {
        with_queue(|fake, queue| {
            let movers = [0; 3].map(|_| make(fake, queue));
            let mut jobs: KVec<Job<'_>> = KVec::new();
            for mover in &movers {
                jobs.push((mover.vram.clone(), KVec::new()), GFP_KERNEL)
                    .unwrap();
            }
            fake.set_most_copies(2);
            assert_eq!(copy_home(&jobs), Ok(()));
            assert_eq!(fake.live().copies, 0);
        });
    }
}
