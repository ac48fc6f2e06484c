// SPDX-License-Identifier: GPL-2.0

//! A run list as the hardware scheduler reads it: each process, followed by its queues.
//!
//! One image per scheduler, rebuilt from packets that were encoded when their process or queue came;
//! building one is copying. The scheduler's lock owns it, and nobody writes it while the hardware
//! may read it.

use crate::gfx::{
    Packet,
    RunList,
    RunlistFormat,
    Words, //
};
use crate::ids::GpuVa;

/// How many processes and queues the scheduler has to fit onto the hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Processes with at least one queue, running or not.
    pub(crate) processes: u32,
    /// Queues that want to run …
    pub(crate) queues: u32,
    /// … and those of them that the compute pipes execute.
    pub(crate) compute_queues: u32,
    /// Those of them that use global wave sync.
    pub(crate) wave_sync_queues: u32,
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
    /// What of `census` does not fit.
    pub(crate) fn exceeded_by(&self, census: &Census) -> Oversubscription {
        Oversubscription {
            processes: census.processes > self.processes.max(1),
            queues: census.compute_queues > self.compute_queues,
            wave_sync: census.wave_sync_queues > 1,
            xnack: false,
        }
    }
}

/// The memory for the image is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// An image that is being built.
pub(crate) struct Image<'a> {
    words: &'a dyn Words,
    address: GpuVa,
    capacity: usize,
    dwords: usize,
}

impl<'a> Image<'a> {
    /// An empty image in `capacity` words that the GPU finds at `address`.
    pub(crate) fn new(words: &'a dyn Words, address: GpuVa, capacity: usize) -> Self {
        Self {
            words,
            address,
            capacity,
            dwords: 0,
        }
    }

    /// Appends `packet`.
    pub(crate) fn push(&mut self, packet: &Packet) -> Result<(), Full> {
        let row = packet.words();
        if row.len() > self.capacity - self.dwords {
            return Err(Full);
        }
        self.words.set_row(self.dwords, row);
        self.dwords += row.len();
        Ok(())
    }

    /// Ends the image and says how to start it. A list that does not fit the hardware ends with a
    /// packet that starts it over (its own length included).
    pub(crate) fn finish(
        mut self,
        format: &dyn RunlistFormat,
        oversubscribed: bool,
        concurrent_processes: u32,
    ) -> Result<RunList, Full> {
        let mut list = RunList {
            address: self.address,
            dwords: self.dwords as u32,
            chain: oversubscribed,
            concurrent_processes,
        };
        if oversubscribed {
            list.dwords += format.run_list(&list).words().len() as u32;
            self.push(&format.run_list(&list))?;
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
    use crate::{
        gfx::{
            testing::{known, Memory},
            Generation, //
        },
        ids::IpVersion,
    };

    fn format() -> &'static dyn RunlistFormat {
        known(Generation::of(IpVersion::new(9, 4, 3)).ok()).runlist
    }

    fn address() -> GpuVa {
        known(GpuVa::new(0xff_0041_2000))
    }

    #[test]
    fn packets_follow_each_other() {
        let words = Memory::new();
        let mut image = Image::new(&words, address(), 512);
        assert_eq!(image.push(&Packet::new([1, 2, 3])), Ok(()));
        assert_eq!(image.push(&Packet::new([4, 5])), Ok(()));
        let list = image.finish(format(), false, 1);
        assert!(words.written().eq([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]));
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
        let words = Memory::new();
        let mut image = Image::new(&words, address(), 512);
        assert_eq!(image.push(&Packet::new([7])), Ok(()));
        let list = image.finish(format(), true, 8);
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
        let words = Memory::new();
        let mut image = Image::new(&words, address(), 4);
        assert_eq!(image.push(&Packet::new([1, 2, 3])), Ok(()));
        assert_eq!(image.push(&Packet::new([4, 5])), Err(Full));
        assert_eq!(image.finish(format(), true, 1).err(), Some(Full));
        assert!(words.written().eq([(0, 1), (1, 2), (2, 3)]));
    }

    #[test]
    fn capacity_is_counted_in_processes_and_queues() {
        let capacity = Capacity {
            processes: 8,
            compute_queues: 24,
        };
        let over = |processes, compute_queues| {
            let census = Census {
                processes,
                queues: 99,
                compute_queues,
                wave_sync_queues: 0,
            };
            let over = capacity.exceeded_by(&census);
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
            let census = Census {
                processes: 2,
                queues: 2,
                compute_queues: 2,
                wave_sync_queues,
            };
            capacity.exceeded_by(&census).any()
        };
        assert!(!over(1) && over(2));
    }

    #[test]
    fn one_process_always_fits() {
        let capacity = Capacity {
            processes: 0,
            compute_queues: 24,
        };
        let census = Census {
            processes: 1,
            queues: 1,
            compute_queues: 1,
            wave_sync_queues: 0,
        };
        assert!(!capacity.exceeded_by(&census).any());
    }
}
