// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Address watches. As on hardware they sit in the vector memory's cache (TCP_WATCH0_CNTL), so
//! scalar loads and stores go unseen.

use super::lds::lanes;
use super::places::{Place, Places};
use super::Machine;
use crate::debug::{Kind, Watch};
use crate::inst::{Body, Inst, MemInst};
use crate::op::MemOp;
use crate::wave::{mode, trapsts};

impl Machine<'_> {
    /// Bits of TRAPSTS for the watches that will see the instruction's accesses. Before it is
    /// executed: it may overwrite its address.
    pub(crate) fn watched(&self, inst: &Inst, watches: &[Option<Watch>; 4]) -> u32 {
        let Body::Mem(mem) = &inst.body else {
            return 0;
        };
        if watches.iter().all(Option::is_none) || self.wave.mode & mode::VSKIP != 0 {
            return 0;
        }
        let Some(kind) = kind(mem) else {
            return 0;
        };
        let (size, places) = (self.lane_bytes(mem), self.places(mem));
        let sees = |watch: &Watch| {
            lanes(self.wave.exec()).any(|lane| match self.accessed(&places, lane, size) {
                Some((address, size)) => watch.sees(kind, address, size),
                None => false,
            })
        };
        let bits = watches.iter().zip(trapsts::ADDR_WATCH);
        bits.fold(0, |seen, (watch, bit)| match watch {
            Some(watch) if sees(watch) => seen | bit,
            _ => seen,
        })
    }

    /// Where in memory a lane's data begins, and how many bytes of its `size` it accesses there.
    fn accessed(&self, places: &Places, lane: usize, size: u64) -> Option<(u64, u64)> {
        match places.of(lane) {
            Place::Memory(address) => Some((address, size)),
            Place::Part(address, dwords) => Some((address, 4 * u64::from(dwords))),
            Place::Scratch(offset) => Some((self.scratch_address(offset, lane), size)),
            Place::Lds(_) | Place::Nowhere => None,
        }
    }
}

fn kind(mem: &MemInst) -> Option<Kind> {
    match mem.op {
        MemOp::Load(_) | MemOp::LoadNarrow { .. } | MemOp::LoadLds(..) => Some(Kind::Load),
        MemOp::Store(_) | MemOp::StoreNarrow { .. } | MemOp::StoreLds => Some(Kind::Store),
        MemOp::Atomic(..) => Some(Kind::Atomic),
        MemOp::Format(true, ..) => Some(Kind::Store),
        MemOp::Format(false, ..) => Some(Kind::Load),
        MemOp::Cache => None,
    }
}
