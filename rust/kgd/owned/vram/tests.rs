// SPDX-License-Identifier: GPL-2.0-only

//! Tests of buffers of device pages: their memory is a fake device's.

#[kernel::macros::kunit_tests(amdkfd_vram)]
mod tests {
    use super::super::*;
    use crate::kgd::fake::{
        Fake,
        Folio,
        Live, //
    };
    use kernel::sync::atomic::{
        ordering::Relaxed,
        Atomic, //
    };

    /// Counts what it is told.
    struct Counts(Atomic<usize>);

    impl VramOwner for Counts {
        fn wanted(self: Arc<Self>) {
            let _: usize = self.0.fetch_add(1, Relaxed);
        }

        fn fault(self: Arc<Self>, _: &Fault<'_>, _: u32) -> FaultEnd {
            FaultEnd::Lost
        }

        fn freed(self: Arc<Self>) {}
    }

    #[test]
    fn pages_are_found_by_their_numbers() {
        // As blocks of memory: two of them lie one after the other; the last is too long.
        let blocks = [(7, 2), (0, 0), (9, 1), (3, 2), (0, 0), (11, 4)];
        let run_at = |index: u32| {
            let (first, count) = *blocks.get(index as usize)?;
            Some((DevicePage(first), count))
        };
        let runs = runs_of(6, run_at).unwrap();
        let places = [(7, 0, 3), (3, 3, 2), (11, 5, 1)];
        let found = runs.iter().map(|run| (run.first, run.index, run.count));
        assert!(found.eq(places));
        assert_eq!(runs_of(7, run_at).err(), None);
        assert_eq!(runs_of(11, run_at).err(), Some(EINVAL));
    }

    #[test]
    fn a_page_is_taken_once() {
        let mut taken = Taken {
            pages: [0; MAX_PAGES / 64],
            count: 0,
            whole: false,
            closed: false,
        };
        assert_eq!(taken.add(511, 1), Ok(true));
        assert_eq!(taken.add(511, 1), Err(EEXIST));
        assert_eq!(taken.add(0, 1), Ok(false));
        assert!(!taken.remove(511, 1));
        assert_eq!((taken.count, taken.add(511, 1)), (1, Ok(false)));
        // All, or none.
        assert_eq!(taken.add(0, 512), Err(EEXIST));
        assert!(!taken.remove(0, 1) && taken.remove(511, 1));
        assert_eq!((taken.add(0, 512), taken.count), (Ok(true), 512));
        assert_eq!(taken.add(7, 1), Err(EEXIST));
        // As single pages, once the kernel has split it.
        assert!(!taken.remove(7, 1));
        assert_eq!((taken.add(7, 1), taken.count), (Ok(false), 512));
        assert!(taken.remove(0, 512));
        taken.closed = true;
        assert_eq!(taken.add(1, 1), Err(EBUSY));
    }

    /// Where what buffers leave is freed: a box, to be freed by whoever has asked for it.
    fn work_queue() -> *mut OwnedQueue {
        let queue = OwnedQueue::unbound(c"amdkfd_kunit").unwrap();
        KBox::into_raw(KBox::new(queue, GFP_KERNEL).unwrap())
    }

    #[test]
    fn places_of_a_large_folio_are_free_once_it_is_split() {
        let queue = work_queue();
        // SAFETY: It is freed below, when no buffer refers to it any more.
        let shared: &'static OwnedQueue = unsafe { &*queue };
        let fake = Fake::new().unwrap();
        fake.set_folio(Folio::Used);
        let owner = Arc::new(Counts(Atomic::new(0)), GFP_KERNEL).unwrap();
        let new = NewVram {
            partition: -1,
            pages: 512,
        };
        let vram = Vram::alloc(fake.clone(), shared, new, owner).unwrap();
        assert!(vram.has_room_for_large() && !vram.is_whole());
        assert_eq!(vram.taken.lock().add(0, 512), Ok(true));
        assert!(!vram.has_room_for_large() && vram.is_whole());
        // Who cannot split it now may try again.
        assert_eq!(vram.split(), Err(EAGAIN));
        assert!(vram.is_whole());
        fake.set_folio(Folio::Idle);
        assert_eq!(vram.split(), Ok(()));
        assert!(!vram.is_whole() && fake.live().folio == Folio::None);
        assert!(!vram.taken.lock().remove(7, 1));
        assert_eq!(vram.taken.lock().add(7, 1), Ok(false));
        assert!(vram.taken.lock().remove(0, 512) && vram.has_room_for_large());
        // There is none to be split.
        assert_eq!(vram.split(), Ok(()));
        drop(vram);
        shared.settle();
        // SAFETY: The box is the one above, and its last user is gone.
        drop(unsafe { KBox::from_raw(queue) });
    }

    /// What becomes of a copy that does not end in time, into a buffer or from it: whether pages of
    /// the buffer can be taken afterwards, and whether anything else can be copied.
    fn after_a_late_copy(direction: Direction) -> (bool, Result) {
        let queue = work_queue();
        // SAFETY: It is freed below, when no buffer refers to it any more.
        let shared: &'static OwnedQueue = unsafe { &*queue };
        let fake = Fake::new().unwrap();
        let owner = Arc::new(Counts(Atomic::new(0)), GFP_KERNEL).unwrap();
        let new = NewVram {
            partition: -1,
            pages: 4,
        };
        let vram = Vram::alloc(fake.clone(), shared, new, owner).unwrap();
        let mut copies = Copies::new(vram.clone(), direction);
        copies.begin(&[]).unwrap();
        fake.set_stuck(true, false);
        assert_eq!(copies.wait(), Err(errno::timer_expired()));
        assert_eq!((fake.live().copies, fake.live().late_copies), (0, 1));
        let others = Copies::new(vram.clone(), direction).begin(&[]);
        let open = vram.is_open();
        assert_eq!(vram.taken.lock().add(0, 1).is_ok(), open);
        drop(vram);
        shared.settle();
        // SAFETY: The box is the one above, and its last user is gone.
        drop(unsafe { KBox::from_raw(queue) });
        (open, others)
    }

    #[test]
    fn a_copy_that_is_given_up_closes_what_it_writes_to() {
        let refused = Err(EIO);
        assert_eq!(after_a_late_copy(Direction::ToDevice), (false, refused));
        assert_eq!(after_a_late_copy(Direction::ToSystem), (true, refused));
    }

    #[test]
    fn the_owner_is_told_once_that_the_memory_is_wanted() {
        let queue = work_queue();
        // SAFETY: It is freed below, when no buffer refers to it any more.
        let shared: &'static OwnedQueue = unsafe { &*queue };
        let fake = Fake::new().unwrap();
        let owner = Arc::new(Counts(Atomic::new(0)), GFP_KERNEL).unwrap();
        let new = NewVram {
            partition: -1,
            pages: 4,
        };
        let vram = Vram::alloc(fake.clone(), shared, new, owner.clone()).unwrap();
        assert_eq!((vram.len(), vram.taken(), fake.live().vrams), (4, 0, 1));
        let places = (0..5).map(|index| vram.offset(index).map(|offset| offset / 4096));
        assert!(places.eq([Some(0), Some(1), Some(2), Some(4), None]));
        let last = vram.page(3).unwrap();
        assert_eq!(vram.index_of(last), Some(3));
        assert_eq!(vram.index_of(DevicePage(last.0 - 1)), None);
        fake.want(&vram.buffer.raw);
        fake.want(&vram.buffer.raw);
        assert_eq!(owner.0.load(Relaxed), 1);
        assert_eq!(vram.release(), Ok(()));
        drop(vram);
        shared.settle();
        assert_eq!(fake.live(), Live::default());
        // SAFETY: The box is the one above, and its last user is gone.
        drop(unsafe { KBox::from_raw(queue) });
    }
}
