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

/// What the last work-group on a compute unit has left.
#[derive(Default)]
struct Left {
    pasid: u16,
    lds: Vec<u8>,
    rows: Vec<Vgpr>,
}

/// An XCC's compute units.
#[derive(Default)]
struct Xcc {
    units: HashMap<u16, Left>,
    /// Units of which nothing is known have zeros, not what was there before the driver.
    is_clean: bool,
}

/// All XCCs of a GPU.
pub struct Leftovers(Vec<Mutex<Xcc>>);

impl Leftovers {
    pub fn new(xccs: u8) -> Self {
        Self((0..xccs).map(|_| Mutex::default()).collect())
    }

    /// A work-group of a process has ended.
    pub fn keep(&self, (xcc, unit): (u8, u16), pasid: u16, group: &mut Workgroup) {
        let Some(xcc) = self.0.get(usize::from(xcc)) else {
            return;
        };
        let first = group.waves.first();
        let rows = first.map_or(0, |wave| wave.vgpr.len().min(ROWS));
        let rows = first.map_or_else(Vec::new, |wave| {
            (0..rows).map(|row| wave.vgpr[row]).collect()
        });
        let lds = std::mem::take(&mut group.lds);
        let mut xcc = lock(xcc);
        let left = xcc.units.entry(unit).or_default();
        *left = Left { pasid, rows, lds };
    }

    /// A work-group begins, and finds what was left: in LDS, and in all vector registers but those
    /// that its launch sets.
    pub fn find(&self, (xcc, unit): (u8, u16), group: &mut Workgroup, hostile: &Hostile) {
        let Some(xcc) = self.0.get(usize::from(xcc)) else {
            return;
        };
        let xcc = lock(xcc);
        let unknown;
        let left = match xcc.units.get(&unit) {
            Some(left) => left,
            None if xcc.is_clean => return,
            None => {
                unknown = Left {
                    pasid: 0,
                    lds: (0..512)
                        .flat_map(|_| hostile.number().to_le_bytes())
                        .collect(),
                    rows: vec![std::array::from_fn(|_| hostile.number() as u32)],
                };
                &unknown
            }
        };
        // Of LDS that a work-group had less of, the rest is what it was: not known.
        let bytes = left.lds.iter().cycle();
        group
            .lds
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        if left.rows.is_empty() {
            return;
        }
        for wave in &mut group.waves {
            for row in LAUNCHED..wave.vgpr.len() {
                wave.vgpr[row] = left.rows[row % left.rows.len()];
            }
            for row in 0..wave.acc.len() {
                wave.acc[row] = left.rows[row % left.rows.len()];
            }
        }
    }

    /// The cleaner shader has run on an XCC. Of a process that stays there the model keeps what it
    /// has left.
    pub fn clean(&self, xcc: u8, stays: Option<u16>) {
        if let Some(xcc) = self.0.get(usize::from(xcc)) {
            let mut xcc = lock(xcc);
            xcc.units.retain(|_, left| Some(left.pasid) == stays);
            xcc.is_clean = true;
        }
    }
}
