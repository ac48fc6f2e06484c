// SPDX-License-Identifier: GPL-2.0-only

//! The pages of a device's doorbells: who has which.
//!
//! amdgpu gives pages of the aperture to anybody who has the render node, too, from which a KFD's
//! would have to be taken away, and leaves none where somebody has taken all. So a device's pool
//! has what amdgpu left of the aperture as long as the device is up. The first pages are those of
//! the nodes' own queues (HIQ), one for each partition; the rest are slices, one for each process
//! on a node.

use crate::{
    gfx::{
        Chip,
        PAGE_BYTES, //
    },
    ids::DoorbellIndex,
    kgd::{
        gpu_warn,
        Doorbells,
        Kgd, //
    },
    linux::users::{
        Share,
        Users, //
    },
    sched::slots::{
        SlotGuard,
        Slots, //
    },
};
use kernel::{
    prelude::*,
    static_lock_class,
    sync::Arc,
    task::Kuid,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// Doorbells of a process on a GPU (`KFD_MAX_NUM_OF_QUEUES_PER_PROCESS`).
pub(crate) const COUNT: usize = 1024;

const PAGE: usize = PAGE_BYTES as usize;

/// Slices that a device may have: of the largest aperture, some 2 MiB, all.
const MAX_SLICES: usize = 1024;

type Slices = Slots<{ MAX_SLICES / 64 }>;

/// The doorbells of a device, while it is up.
pub(crate) struct DoorbellPool {
    pages: Doorbells,
    /// Bytes of the nodes' own pages.
    own: usize,
    /// Bytes of a slice.
    slice: usize,
    slices: Arc<Slices>,
    /// While more are free, who has half of all gets another one.
    spare: usize,
    users: Arc<Users<()>>,
}

/// Bytes of a process's doorbells on such a GPU.
pub(crate) fn slice_bytes(chip: &Chip) -> usize {
    (COUNT * chip.doorbell_bytes).next_multiple_of(PAGE)
}

impl DoorbellPool {
    /// Takes what amdgpu has left. What users of the render node have is taken from them, and is
    /// given to nobody else. `ENOMEM`: there is not even one for each partition and one slice.
    pub(crate) fn new(kgd: Arc<dyn Kgd>, chip: &Chip) -> Result<Arc<Self>> {
        let (own, slice) = (
            kgd.facts().num_partitions.max(1) as usize * PAGE,
            slice_bytes(chip),
        );
        let pages = take(kgd, own + slice)?;
        let rest = pages.size().saturating_sub(own);
        let count = rest.checked_div(slice).unwrap_or(0).min(MAX_SLICES);
        // Others shall get some, however many contexts somebody makes; who is alone has most.
        let max = (count / 2).max(1);
        let class = static_lock_class!();
        let pool = Self {
            pages,
            own,
            slice,
            slices: Arc::new(Slots::new(count), GFP_KERNEL)?,
            spare: count.div_ceil(8),
            users: Users::new(c"amdkfd::DoorbellPool::users", class, max, ENOMEM)?,
        };
        Ok(Arc::new(pool, GFP_KERNEL)?)
    }

    /// The page of the own queue of that partition.
    pub(crate) fn own(self: &Arc<Self>, partition: u32) -> Result<OwnDoorbells> {
        let start = partition as usize * PAGE;
        if start >= self.own {
            return Err(EINVAL);
        }
        let (pool, first) = (self.clone(), self.index(start)?);
        Ok(OwnDoorbells { pool, start, first })
    }

    /// A slice, for a process of that user's on a node. `ENOMEM`: there is none left, or the user
    /// has half of all and no more than an eighth is free, unless `is_exempt` says that this does
    /// not matter. May sleep.
    pub(crate) fn slice(
        self: &Arc<Self>,
        user: Kuid,
        is_exempt: impl Fn() -> bool,
    ) -> Result<DoorbellSlice> {
        let has_spare = || self.slices.count_free() > self.spare;
        let share = self.users.share(user, (), || has_spare() || is_exempt())?;
        let slot = Slots::take(self.slices.clone()).ok_or(ENOMEM)?;
        Ok(DoorbellSlice {
            slot,
            _share: share,
            pool: self.clone(),
        })
    }

    /// The doorbell `start` bytes from the first one.
    fn index(&self, start: usize) -> Result<DoorbellIndex> {
        // CAST: less than the 32-bit aperture.
        let words = (start / size_of::<u32>()) as u32;
        DoorbellIndex::new(self.pages.first().raw() + words).ok_or(EINVAL)
    }
}

/// All of the aperture that can be had, `least` bytes or more. Who has a buffer there that is
/// locked, or that jobs use, is not waited for: it is tried again, then for less.
fn take(kgd: Arc<dyn Kgd>, least: usize) -> Result<Doorbells> {
    const TRIES: u32 = 3;
    const PAUSE: Delta = Delta::from_millis(5);
    const PARTS: usize = 8;
    let facts = kgd.facts();
    let left = facts
        .doorbell_size
        .saturating_sub(facts.doorbell_start_offset);
    // CAST: a BAR of 2 MiB or so.
    let all = left as usize / PAGE;
    let eighths = (1..=PARTS)
        .rev()
        .map(|part| all / PARTS * part + all % PARTS);
    let halves = (4..usize::BITS).map(|shift| all >> shift);
    let sizes = Iterator::chain(eighths, halves).map(|pages| pages * PAGE);
    for size in Iterator::chain(sizes.take_while(|size| *size > least), [least]) {
        for _ in 0..TRIES {
            match Doorbells::new(kgd.clone(), size, true) {
                Err(error) if error == ENOMEM => fsleep(PAUSE),
                taken => {
                    if size + PAGE <= left as usize && taken.is_ok() {
                        let name = facts.pci_name();
                        gpu_warn!(name, "doorbells: has {size} bytes of {left}\n");
                    }
                    return taken;
                }
            }
        }
    }
    Err(ENOMEM)
}

/// The doorbells of a node's own queue, which the kernel rings.
pub(crate) struct OwnDoorbells {
    pool: Arc<DoorbellPool>,
    start: usize,
    first: DoorbellIndex,
}

impl OwnDoorbells {
    /// The first one.
    pub(super) fn first(&self) -> DoorbellIndex {
        self.first
    }

    /// Rings the one at `offset` bytes. Never sleeps.
    pub(super) fn ring(&self, offset: usize, value: u64) -> Result {
        if offset >= PAGE {
            return Err(EINVAL);
        }
        self.pool.pages.ring(self.start + offset, value)
    }
}

/// The doorbells of a process on a node. Fields are dropped from top to bottom.
pub(crate) struct DoorbellSlice {
    slot: SlotGuard<Arc<Slices>, { MAX_SLICES / 64 }>,
    _share: Share<()>,
    pool: Arc<DoorbellPool>,
}

impl DoorbellSlice {
    fn start(&self) -> usize {
        self.pool.own + self.slot.index() * self.pool.slice
    }

    /// The one `offset` bytes from the first one.
    pub(crate) fn index(&self, offset: usize) -> Result<DoorbellIndex> {
        if offset >= self.pool.slice {
            return Err(EINVAL);
        }
        self.pool.index(self.start() + offset)
    }

    /// Where the CPU finds the first one: a physical address.
    pub(crate) fn physical_address(&self) -> u64 {
        // CAST: a size.
        self.pool.pages.physical_address() + self.start() as u64
    }
}

#[kernel::macros::kunit_tests(amdkfd_sched_doorbells)]
mod tests {
    use super::*;
    use crate::{
        gfx::testing::mi300x,
        kgd::fake::{
            Fake,
            Live, //
        },
        linux::users::user_of,
    };

    /// A pool of so many pages, and of two partitions.
    fn pool(pages: u64) -> (Arc<Fake>, Result<Arc<DoorbellPool>>) {
        let fake = Fake::with(|facts| {
            facts.num_partitions = 2;
            facts.doorbell_size = facts.doorbell_start_offset + pages * 4096;
        });
        let fake = fake.unwrap();
        let pool = DoorbellPool::new(fake.clone(), &mi300x().chip);
        (fake, pool)
    }

    #[test]
    fn a_user_has_half_and_nobody_anothers() {
        let (fake, pool) = pool(2 + 8 * 2);
        let pool = pool.unwrap();
        let take = |user| pool.slice(user_of(user), || false);
        let mut first: [_; 4] = core::array::from_fn(|_| take(1).ok());
        let others: [_; 4] = core::array::from_fn(|_| take(2).ok());
        assert_eq!(take(3).err(), Some(ENOMEM));
        assert_eq!(pool.slice(user_of(1), || true).err(), Some(ENOMEM));
        let begin = pool.pages.first().raw();
        let all = [&first, &others].into_iter().flatten().flatten();
        let places = all.map(|slice| slice.index(8).map(DoorbellIndex::raw));
        assert!(places.eq((0..8).map(|place| Ok(begin + 0x800 + place * 0x800 + 2))));
        // What is given back is the next one's, be he exempt.
        let back = first[2].take().unwrap();
        let at = back.physical_address();
        assert_eq!(at, pool.pages.physical_address() + (2 + 2 * 2) * 4096);
        assert_eq!(back.index(8192).err(), Some(EINVAL));
        drop(back);
        let third = pool.slice(user_of(2), || true).unwrap();
        assert_eq!(third.physical_address(), at);
        drop((first, others, third));
        assert_eq!(pool.users.counts(), (0, 0));
        drop(pool);
        assert_eq!(fake.live(), Live::default());
    }

    #[test]
    fn who_is_alone_has_most() {
        let (_fake, pool) = pool(2 + 8 * 2);
        let pool = pool.unwrap();
        let take = |user| pool.slice(user_of(user), || false);
        let alone: [_; 7] = core::array::from_fn(|_| take(1).unwrap());
        assert_eq!(take(1).err(), Some(ENOMEM));
        assert!(take(2).is_ok());
        assert!(pool.slice(user_of(1), || true).is_ok());
        drop(alone);
        // The last eighth is for who has less than half.
        let first: [_; 4] = core::array::from_fn(|_| take(1).unwrap());
        let others: [_; 3] = core::array::from_fn(|_| take(2).unwrap());
        assert_eq!(take(1).err(), Some(ENOMEM));
        assert!(take(2).is_ok());
        drop((first, others));
    }

    #[test]
    fn each_partition_rings_its_own() {
        let (fake, pool) = pool(2 + 2);
        let pool = pool.unwrap();
        let begin = pool.pages.first().raw();
        for (partition, place) in [(0, begin), (1, begin + 0x400)] {
            let own = pool.own(partition).unwrap();
            assert_eq!(own.first().raw(), place);
            own.ring(4088, 1).unwrap();
            assert_eq!(own.ring(4096, 1), Err(EINVAL));
        }
        assert_eq!(fake.live().rings, 2);
        assert!(pool.own(2).is_err());
        // One slice: whoever comes first may have it.
        let one = pool.slice(user_of(1), || false).unwrap();
        assert!(pool.slice(user_of(2), || false).is_err());
        drop(one);
        assert!(pool.slice(user_of(2), || false).is_ok());
    }

    #[test]
    fn what_others_keep_makes_it_smaller() {
        let (fake, _) = pool(2);
        assert_eq!(fake.live(), Live::default());
        assert_eq!(pool(1).1.err(), Some(ENOMEM));
        let (fake, _) = pool(16);
        // Somebody has the last five pages.
        fake.keep_doorbells(5 * 4096);
        let pool = DoorbellPool::new(fake, &mi300x().chip).unwrap();
        assert_eq!(pool.pages.size(), 10 * 4096);
        assert_eq!(pool.slices.count_free(), 4);
        // All but three.
        let fake = Fake::with(|facts| {
            facts.num_partitions = 1;
            facts.doorbell_size = facts.doorbell_start_offset + 64 * 4096;
        });
        let fake = fake.unwrap();
        fake.keep_doorbells(61 * 4096);
        let pool = DoorbellPool::new(fake, &mi300x().chip).unwrap();
        assert_eq!((pool.pages.size(), pool.slices.count_free()), (3 * 4096, 1));
    }
}
