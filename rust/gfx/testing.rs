// SPDX-License-Identifier: GPL-2.0-only

//! What the tests of the formats share. Compiled for tests only.

use super::{
    ChipFacts,
    Engine,
    Generation,
    HwProcess,
    HwQueue,
    ShMem,
    Words, //
};
use crate::ids::{
    DoorbellIndex,
    GpuVa,
    IpVersion,
    Pasid,
    UserVa, //
};
use core::cell::Cell;

/// A whole GPU with memory of its own.
pub(crate) const MI300X: ChipFacts = ChipFacts {
    gc: IpVersion::new(9, 4, 3),
    prefers_gtt: false,
    is_apu: false,
    virtual_function: false,
    mec_firmware: u32::MAX,
};

/// What such a GPU is to this driver.
pub(crate) fn mi300x() -> Generation {
    mi300x_as(&MI300X)
}

/// The same with other facts.
pub(crate) fn mi300x_as(facts: &ChipFacts) -> Generation {
    known(Generation::of(facts).ok())
}

/// A process with its page tables somewhere.
pub(crate) fn hw_process(pasid: u32) -> HwProcess {
    HwProcess {
        pasid: known(Pasid::new(pasid)),
        page_table_base: 0x1000,
        sh_mem: ShMem::default(),
        trap: None,
        control: None,
    }
}

/// A queue with its descriptor and its write pointer somewhere.
pub(crate) fn hw_queue(engine: Engine, doorbell: u32) -> HwQueue {
    HwQueue {
        engine,
        doorbell: known(DoorbellIndex::new(doorbell)),
        mqd: known(GpuVa::new(0x1000)),
        write_pointer: known(UserVa::new(0x2000)),
        wave_sync: false,
    }
}

/// Words that nobody else sees: as many as the longest descriptor has.
pub(crate) struct TestWords([Cell<u32>; 512]);

impl TestWords {
    /// All zero.
    pub(crate) fn new() -> Self {
        Self([const { Cell::new(0) }; 512])
    }

    /// Index and value of every word that is not zero.
    pub(crate) fn written(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let words = self.0.iter().map(Cell::get).enumerate();
        words.filter(|&(_, word)| word != 0)
    }
}

impl Words for TestWords {
    fn get(&self, dword: usize) -> u32 {
        self.0[dword].get()
    }

    fn set(&self, dword: usize, value: u32) {
        self.0[dword].set(value);
    }
}

/// A constant of a test, made by a constructor that checks.
pub(crate) fn known<T>(made: Option<T>) -> T {
    match made {
        Some(value) => value,
        // PANIC: in a test, whose constant is wrong.
        None => panic!("a constant of this test is out of range"),
    }
}
