// SPDX-License-Identifier: GPL-2.0-only

//! A run list as the hardware scheduler reads it: each process, followed by its queues.
//!
//! One [`Image`] per scheduler, kept up to date packet by packet while processes and queues come,
//! go and change: what does not change is not written again. It is the list as it is to be, in
//! memory of our own, and the scheduler's lock owns it. The hardware reads a copy, which is made
//! while it reads none.

use crate::gfx::{
    Packet,
    RunList,
    RunlistFormat,
    Words, //
};
use crate::ids::GpuVa;
use core::ops::{
    AddAssign,
    DerefMut,
    Range,
    SubAssign, //
};

/// How many processes and queues the scheduler has to fit onto the hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Processes with at least one queue, running or not.
    pub(crate) processes: u32,
    /// Queues that want to run …
    pub(crate) queues: u32,
    /// … and those of them that the compute pipes execute.
    pub(crate) compute_queues: u32,
    /// Those of them that use global wave sync.
    pub(crate) wave_sync_queues: u32,
}

impl AddAssign for Counts {
    #[inline(always)]
    fn add_assign(&mut self, more: Self) {
        self.processes += more.processes;
        self.queues += more.queues;
        self.compute_queues += more.compute_queues;
        self.wave_sync_queues += more.wave_sync_queues;
    }
}

impl SubAssign for Counts {
    #[inline(always)]
    fn sub_assign(&mut self, less: Self) {
        self.processes -= less.processes;
        self.queues -= less.queues;
        self.compute_queues -= less.compute_queues;
        self.wave_sync_queues -= less.wave_sync_queues;
    }
}

/// What the hardware holds at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// Processes: as many as there are VMIDs, or fewer if the user says so.
    pub(crate) processes: u32,
    /// Hardware queues of the compute pipes.
    pub(crate) compute_queues: u32,
}

/// Why a list has to be run through again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Oversubscription {
    pub(crate) processes: bool,
    pub(crate) queues: bool,
    /// More than one queue with global wave sync.
    pub(crate) wave_sync: bool,
    /// Processes with and without XNACK, on hardware that cannot mix them.
    pub(crate) xnack: bool,
}

impl Oversubscription {
    /// Whether there is any.
    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }
}

impl Capacity {
    /// What of `counts` does not fit.
    pub(crate) fn exceeded_by(&self, counts: &Counts) -> Oversubscription {
        Oversubscription {
            processes: counts.processes > self.processes.max(1),
            queues: counts.compute_queues > self.compute_queues,
            wave_sync: counts.wave_sync_queues > 1,
            xnack: false,
        }
    }
}

/// The memory for the image is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListFull;

/// The list as it is to be.
///
/// It ends where its room ends and grows towards the front. The newest process is first, and its
/// newest queue, so that what comes and goes most often moves little. Places are told by how many
/// words are behind them: that number stays as it is when something changes in front of it.
pub(crate) struct Image<M> {
    room: M,
    dwords: usize,
}

impl<M: DerefMut<Target = [u32]>> Image<M> {
    /// An empty list that may fill `room`.
    pub(crate) fn new(room: M) -> Self {
        Self { room, dwords: 0 }
    }

    /// Words that it may have.
    pub(crate) fn room(&self) -> usize {
        self.room.len()
    }

    /// Words of the list.
    pub(crate) fn dwords(&self) -> usize {
        self.dwords
    }

    /// Makes `len` words of the `old` ones that have `behind` words behind them, and returns them
    /// to be filled. What is in front of them moves.
    pub(crate) fn replace(
        &mut self,
        behind: usize,
        old: usize,
        len: usize,
    ) -> Result<&mut [u32], ListFull> {
        let room = self.room.len();
        let end = room.checked_sub(behind).ok_or(ListFull)?;
        let front = self.dwords.checked_sub(behind + old).ok_or(ListFull)?;
        let dwords = behind + len + front;
        let start = room.checked_sub(dwords).ok_or(ListFull)?;
        if len != old {
            let from = room - self.dwords;
            // PANIC: both ranges are `front` words within the room.
            self.room.copy_within(from..from + front, start);
            self.dwords = dwords;
        }
        self.room.get_mut(end - len..end).ok_or(ListFull)
    }

    /// As [`Image::replace`], with `packet` in place of the old words. Returns its length.
    pub(crate) fn put(
        &mut self,
        behind: usize,
        old: usize,
        packet: &Packet,
    ) -> Result<usize, ListFull> {
        let words = packet.words();
        self.replace(behind, old, words.len())?
            .copy_from_slice(words);
        Ok(words.len())
    }

    /// Copies these pieces of the list, by their words, to where the hardware will read it.
    pub(crate) fn copy(
        &self,
        pieces: [Range<usize>; 3],
        to: &ListTarget<'_>,
    ) -> Result<usize, ListFull> {
        let (_, list) = self
            .room
            .split_at_checked(self.room.len() - self.dwords)
            .ok_or(ListFull)?;
        let mut copied = 0;
        for piece in pieces {
            let piece = list.get(piece).ok_or(ListFull)?;
            if copied + piece.len() > to.capacity {
                return Err(ListFull);
            }
            if !piece.is_empty() {
                to.words.set_row(copied, piece);
            }
            copied += piece.len();
        }
        Ok(copied)
    }
}

/// Where the hardware reads a list: `capacity` words that the GPU finds at `address`.
pub(crate) struct ListTarget<'a> {
    pub(crate) words: &'a dyn Words,
    pub(crate) address: GpuVa,
    pub(crate) capacity: usize,
}

impl ListTarget<'_> {
    /// Ends the list of `dwords` that was copied here and says how to start it. One that does not
    /// fit the hardware ends with a packet that starts it over (its own length included).
    pub(crate) fn finish(
        &self,
        dwords: usize,
        format: &dyn RunlistFormat,
        oversubscribed: bool,
        concurrent_processes: u32,
    ) -> Result<RunList, ListFull> {
        let mut list = RunList {
            address: self.address,
            dwords: dwords as u32,
            chain: oversubscribed,
            concurrent_processes,
        };
        if oversubscribed {
            list.dwords += format.run_list(&list).words().len() as u32;
            let over = format.run_list(&list);
            if list.dwords as usize > self.capacity {
                return Err(ListFull);
            }
            self.words.set_row(dwords, over.words());
        }
        Ok(RunList {
            chain: false,
            ..list
        })
    }
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_sched_image))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::*;
    use crate::gfx::testing::{
        known,
        mi300x,
        TestWords, //
    };

    fn format() -> &'static dyn RunlistFormat {
        mi300x().formats.runlist
    }

    fn address() -> GpuVa {
        known(GpuVa::new(0xff_0041_2000))
    }

    fn whole(words: usize) -> [Range<usize>; 3] {
        [0..words, 0..0, 0..0]
    }

    fn target(words: &TestWords, capacity: usize) -> ListTarget<'_> {
        ListTarget {
            words,
            address: address(),
            capacity,
        }
    }

    #[test]
    fn packets_come_and_go_anywhere() {
        let (mut room, words) = ([0; 16], TestWords::new());
        let mut image = Image::new(&mut room[..]);
        assert_eq!(image.put(0, 0, &Packet::new([1, 2, 3])), Ok(3));
        // In front of it, between the two, and in place of the one in between.
        assert_eq!(image.put(3, 0, &Packet::new([8, 9])), Ok(2));
        assert_eq!(image.put(3, 0, &Packet::new([5])), Ok(1));
        assert_eq!(image.put(3, 1, &Packet::new([6, 7])), Ok(2));
        assert_eq!(image.copy(whole(7), &target(&words, 16)), Ok(7));
        assert!(words
            .written()
            .map(|(_, word)| word)
            .eq([8, 9, 6, 7, 1, 2, 3]));
        assert_eq!(image.replace(3, 2, 0).map(|gone| gone.len()), Ok(0));
        assert_eq!(image.dwords(), 5);
        let words = TestWords::new();
        assert_eq!(image.copy(whole(5), &target(&words, 16)), Ok(5));
        assert!(words.written().map(|(_, word)| word).eq([8, 9, 1, 2, 3]));
    }

    #[test]
    fn the_pieces_may_come_in_another_order() {
        let (mut room, words) = ([0; 16], TestWords::new());
        let mut image = Image::new(&mut room[..]);
        assert_eq!(image.put(0, 0, &Packet::new([1, 2, 3])), Ok(3));
        assert_eq!(image.put(3, 0, &Packet::new([4, 5])), Ok(2));
        assert_eq!(image.copy([2..5, 0..2, 5..5], &target(&words, 16)), Ok(5));
        assert!(words.written().map(|(_, word)| word).eq([1, 2, 3, 4, 5]));
        let list = target(&words, 16).finish(5, format(), false, 1);
        let expected = RunList {
            address: address(),
            dwords: 5,
            chain: false,
            concurrent_processes: 1,
        };
        assert_eq!(list, Ok(expected));
    }

    #[test]
    fn an_oversubscribed_list_starts_itself_over() {
        let words = TestWords::new();
        let target = target(&words, 512);
        target.words.set(0, 7);
        let list = target.finish(1, format(), true, 8);
        // The start is not chained, the end is; both count the packet at the end.
        assert_eq!(list.map(|list| (list.dwords, list.chain)), Ok((5, false)));
        let expected = [
            (0, 7),
            (1, 0xc002_a500),
            (2, 0x0041_2000),
            (3, 0xff),
            (4, 0x08d0_0005),
        ];
        assert!(words.written().eq(expected));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (mut room, words) = ([0; 4], TestWords::new());
        let mut image = Image::new(&mut room[..]);
        assert_eq!(image.put(0, 0, &Packet::new([1, 2, 3])), Ok(3));
        assert_eq!(image.put(3, 0, &Packet::new([4, 5])), Err(ListFull));
        assert_eq!(image.put(0, 4, &Packet::new([4, 5])), Err(ListFull));
        assert_eq!(image.put(4, 0, &Packet::new([4])), Err(ListFull));
        assert_eq!(image.copy(whole(3), &target(&words, 2)), Err(ListFull));
        assert_eq!(image.copy(whole(3), &target(&words, 4)), Ok(3));
        let full = target(&words, 4).finish(3, format(), true, 1);
        assert_eq!(full.err(), Some(ListFull));
        assert!(words.written().eq([(0, 1), (1, 2), (2, 3)]));
    }

    #[test]
    fn capacity_is_counted_in_processes_and_queues() {
        let capacity = Capacity {
            processes: 8,
            compute_queues: 24,
        };
        let over = |processes, compute_queues| {
            let counts = Counts {
                processes,
                queues: 99,
                compute_queues,
                wave_sync_queues: 0,
            };
            let over = capacity.exceeded_by(&counts);
            (over.processes, over.queues, over.any())
        };
        assert_eq!(over(8, 24), (false, false, false));
        assert_eq!(over(9, 24), (true, false, true));
        assert_eq!(over(1, 25), (false, true, true));
    }

    #[test]
    fn one_queue_at_a_time_has_wave_sync() {
        let capacity = Capacity {
            processes: 8,
            compute_queues: 24,
        };
        let over = |wave_sync_queues| {
            let counts = Counts {
                processes: 2,
                queues: 2,
                compute_queues: 2,
                wave_sync_queues,
            };
            capacity.exceeded_by(&counts).any()
        };
        assert!(!over(1) && over(2));
    }

    #[test]
    fn one_process_always_fits() {
        let capacity = Capacity {
            processes: 0,
            compute_queues: 24,
        };
        let counts = Counts {
            processes: 1,
            queues: 1,
            compute_queues: 1,
            wave_sync_queues: 0,
        };
        assert!(!capacity.exceeded_by(&counts).any());
    }
}
