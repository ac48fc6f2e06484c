// SPDX-License-Identifier: GPL-2.0-only

//! What a hard interrupt leaves to a worker, which may sleep.
//!
//! An interrupt cannot allocate: a [`Backlog`] has room for a number of items, and what finds none
//! is lost. The worker takes one after the other off the list and handles it with nothing locked;
//! between two of them it lets others of its queue have their turn.

use super::{
    spinlock::{
        new_irq_spinlock,
        IrqSpinLock, //
    },
    workqueue::OwnedQueue, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};

/// An item of a [`Backlog`].
pub(crate) trait Deferred: Copy + Send + Unpin + 'static {
    /// What the worker has to know beside the items.
    type Context: Send + Sync + 'static;

    /// Takes a new item into this one, which waits. False: they are to be handled one by one.
    fn join(&mut self, new: &Self) -> bool;

    /// The queue of the worker, as long as there is one.
    fn queue() -> Option<&'static OwnedQueue>;

    /// Does what is to be done. May sleep.
    fn handle(self, context: &Self::Context);
}

/// A short list without allocation.
pub(crate) struct List<T, const ROOM: usize> {
    places: [Option<T>; ROOM],
    /// Behind the place of the last one that was taken: whoever fills that again comes last.
    next: usize,
}

impl<T: Deferred, const ROOM: usize> List<T, ROOM> {
    /// Nothing waits.
    pub(crate) fn new() -> Self {
        Self {
            places: [None; ROOM],
            next: 0,
        }
    }

    /// Notes an item. False: there is no room.
    pub(crate) fn add(&mut self, new: T) -> bool {
        let mut waiting = self.places.iter_mut().flatten();
        if waiting.any(|known| known.join(&new)) {
            return true;
        }
        let free = self.places.iter_mut().find(|place| place.is_none());
        free.map(|place| *place = Some(new)).is_some()
    }

    fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    /// Takes one item off the list: each is taken before any place's next one.
    pub(crate) fn take(&mut self) -> Option<T> {
        let waits = |at: &usize| self.places.get(*at).is_some_and(Option::is_some);
        let mut places = (0..ROOM).map(|step| (self.next + step) % ROOM);
        let found = places.find(waits)?;
        self.next = (found + 1) % ROOM;
        self.places.get_mut(found)?.take()
    }
}

/// Items that a worker has yet to handle, no more than `ROOM` at a time.
#[pin_data]
pub(crate) struct Backlog<T: Deferred, const ROOM: usize> {
    #[pin]
    list: IrqSpinLock<List<T, ROOM>>,
    #[pin]
    work: Work<Backlog<T, ROOM>>,
    context: T::Context,
}

impl_has_work! {
    impl{T: Deferred, const ROOM: usize} HasWork<Self> for Backlog<T, ROOM> { self.work }
}

impl<T: Deferred, const ROOM: usize> Backlog<T, ROOM> {
    /// Nothing waits. `work` comes from `new_work!`, so that each kind has a lock class of its own.
    pub(crate) fn new(context: T::Context, work: impl PinInit<Work<Self>>) -> Result<Arc<Self>> {
        let backlog = pin_init!(Self {
            list <- new_irq_spinlock!(List::new(), "amdkfd::Backlog"),
            work <- work,
            context,
        });
        Arc::pin_init(backlog, GFP_KERNEL)
    }

    /// Leaves an item to the worker. False: there was no room, and it is lost. Legal in a hard
    /// interrupt.
    pub(crate) fn add(self: &Arc<Self>, new: T) -> bool {
        let noted = self.list.lock().add(new);
        if let Some(queue) = T::queue() {
            // If the worker is on its way already, it will see the item too.
            let _ = queue.enqueue(self.clone());
        }
        noted
    }
}

impl<T: Deferred, const ROOM: usize> WorkItem for Backlog<T, ROOM> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while this.handle_one() {
            // Behind other backlogs of its queue: whoever comes again and again would keep a worker
            // from them for ever.
            if let Some(queue) = T::queue() {
                let _ = queue.enqueue(this);
                return;
            }
        }
    }
}

impl<T: Deferred, const ROOM: usize> Backlog<T, ROOM> {
    /// Handles the next item. Whether more wait.
    fn handle_one(&self) -> bool {
        let item = self.list.lock().take();
        if let Some(item) = item {
            item.handle(&self.context);
        }
        !self.list.lock().is_empty()
    }
}

#[kernel::macros::kunit_tests(amdkfd_backlog)]
mod tests {
    use super::*;
    use kernel::{
        new_work,
        sync::atomic::{
            Atomic,
            Relaxed, //
        }, //
    };

    /// Two tens are one twenty.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Number(usize);

    impl Deferred for Number {
        type Context = Arc<Atomic<usize>>;

        fn join(&mut self, new: &Self) -> bool {
            let both = self.0 == 10 && new.0 == 10;
            if both {
                self.0 = 20;
            }
            both
        }

        fn queue() -> Option<&'static OwnedQueue> {
            None
        }

        fn handle(self, sum: &Arc<Atomic<usize>>) {
            let _: usize = sum.fetch_add(self.0, Relaxed);
        }
    }

    #[test]
    fn items_join_or_wait_while_there_is_room() {
        let mut list = List::<Number, 3>::new();
        let all = [10, 10, 1, 2, 4].map(|number| list.add(Number(number)));
        assert_eq!(all, [true, true, true, true, false]);
        let waiting = core::iter::from_fn(|| list.take());
        assert!(waiting.eq([20, 1, 2].map(Number)));
        assert!(list.add(Number(3)));
    }

    #[test]
    fn nobody_waits_for_who_comes_again_and_again() {
        let mut list = List::<Number, 3>::new();
        assert!([2, 4, 6].map(|number| list.add(Number(number))) == [true; 3]);
        for expected in [2, 4, 6, 2, 2] {
            assert_eq!(list.take(), Some(Number(expected)));
            // At once, at the place that is free.
            assert!(list.add(Number(2)));
        }
    }

    #[test]
    fn the_worker_handles_all_that_wait() {
        let sum = Arc::new(Atomic::new(0), GFP_KERNEL).unwrap();
        let work = new_work!("amdkfd::Backlog::tests");
        let backlog = Backlog::<Number, 2>::new(sum.clone(), work).unwrap();
        assert!(backlog.add(Number(2)) && backlog.add(Number(4)) && !backlog.add(Number(6)));
        assert!(backlog.handle_one());
        assert_eq!(sum.load(Relaxed), 2);
        Backlog::run(backlog.clone());
        assert_eq!(sum.load(Relaxed), 6);
        Backlog::run(backlog);
        assert_eq!(sum.load(Relaxed), 6);
    }
}
