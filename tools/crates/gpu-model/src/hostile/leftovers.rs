// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What waves leave in registers and LDS, for the next ones to find: hardware clears neither. One
//! [`Leftovers`] per GPU, in its command processor; used in hostile mode alone.

use std::collections::HashMap;
use std::sync::Mutex;

use gcn::wave::Vgpr;
use gcn::Workgroup;

use super::Hostile;
use crate::processor::lock;

/// VGPRs that a launch may set: those of the work-item's id.
const LAUNCHED: usize = 3;
/// VGPRs of a wave that are kept.
const ROWS: usize = 32;

/// Bytes of LDS that have one owner: what processors allocate is a multiple of it.
const BLOCK: usize = 256;

/// What the work-groups on a compute unit have left: of each byte and register the last one that
/// had it, and the PASID of its process.
#[derive(Default)]
struct Left {
    lds: Vec<u8>,
    /// Of each [`BLOCK`].
    owners: Vec<u16>,
    rows: Vec<(u16, Vgpr)>,
}

impl Left {
    fn keep(&mut self, pasid: u16, group: &Workgroup) {
        let bytes = group.lds.len();
        let blocks = bytes.div_ceil(BLOCK);
        if bytes > self.lds.len() {
            self.lds.resize(bytes, 0);
            self.owners.resize(blocks, 0);
        }
        self.lds[..bytes].copy_from_slice(&group.lds);
        self.owners[..blocks].fill(pasid);
        let Some(wave) = group.waves.first() else {
            return;
        };
        for (at, lanes) in wave.vgpr.iter().take(ROWS).enumerate() {
            match self.rows.get_mut(at) {
                Some(row) => *row = (pasid, *lanes),
                None => self.rows.push((pasid, *lanes)),
            }
        }
    }

    /// Zeroes what is not of this process.
    fn clean(&mut self, stays: Option<u16>) {
        for (block, owner) in self.lds.chunks_mut(BLOCK).zip(&self.owners) {
            if Some(*owner) != stays {
                block.fill(0);
            }
        }
        for (owner, lanes) in &mut self.rows {
            if Some(*owner) != stays {
                lanes.fill(0);
            }
        }
    }
}

/// An XCC's compute units.
#[derive(Default)]
struct Xcc {
    units: HashMap<u16, Left>,
    /// What nothing is known of is zero, not what was there before the driver.
    is_clean: bool,
}

/// All XCCs of a GPU.
pub struct Leftovers(Vec<Mutex<Xcc>>);

impl Leftovers {
    pub fn new(xccs: u8) -> Self {
        Self((0..xccs).map(|_| Mutex::default()).collect())
    }

    /// A work-group of a process goes: it has ended, was saved or killed.
    pub fn keep(&self, (xcc, unit): (u8, u16), pasid: u16, group: &Workgroup) {
        if let Some(xcc) = self.0.get(usize::from(xcc)) {
            lock(xcc).units.entry(unit).or_default().keep(pasid, group);
        }
    }

    /// A work-group begins, and finds what was left: in LDS, and in all vector registers but those
    /// that its launch sets.
    pub fn find(&self, (xcc, unit): (u8, u16), group: &mut Workgroup, hostile: &Hostile) {
        let Some(xcc) = self.0.get(usize::from(xcc)) else {
            return;
        };
        let xcc = lock(xcc);
        let nothing = Left::default();
        let Left { lds, rows, .. } = xcc.units.get(&unit).unwrap_or(&nothing);
        let unknown = |is_known: bool| match is_known || xcc.is_clean {
            true => 0,
            false => hostile.number(),
        };
        // Of LDS that work-groups had less of, the rest is what it was: not known.
        let other: Vec<u8> = (0..512)
            .flat_map(|_| unknown(!lds.is_empty()).to_le_bytes())
            .collect();
        let bytes = if lds.is_empty() { &other } else { lds };
        let bytes = bytes.iter().cycle();
        group
            .lds
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        let other = [(0, std::array::from_fn(|_| unknown(!rows.is_empty()) as u32))];
        let rows = if rows.is_empty() {
            &other[..]
        } else {
            rows.as_slice()
        };
        for wave in &mut group.waves {
            for row in LAUNCHED..wave.vgpr.len() {
                wave.vgpr[row] = rows[row % rows.len()].1;
            }
            for row in 0..wave.acc.len() {
                wave.acc[row] = rows[row % rows.len()].1;
            }
        }
    }

    /// The cleaner shader has run on an XCC. Of a process that stays there the model keeps what it
    /// has left.
    pub fn clean(&self, xcc: u8, stays: Option<u16>) {
        if let Some(xcc) = self.0.get(usize::from(xcc)) {
            let mut xcc = lock(xcc);
            xcc.units.values_mut().for_each(|left| left.clean(stays));
            xcc.is_clean = true;
        }
    }
}
