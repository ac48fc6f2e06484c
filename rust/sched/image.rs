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
