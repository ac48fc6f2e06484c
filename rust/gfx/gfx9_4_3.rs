// SPDX-License-Identifier: GPL-2.0-only

//! Graphics core 9.4.3 (gfx942: MI300A, MI300X and their partitions) with SDMA 4.4.2.
//!
//! [`generation`] is the only thing the rest of the driver sees of this module.

mod chip;
mod ih;
mod mqd;
#[cfg(CONFIG_RUST)]
mod oracle;
mod pm4;
mod sdma;

use super::{
    ChipFacts,
    Formats,
    Generation, //
};

static FORMATS: Formats = Formats {
    mqd: mqd::MQD,
    sdma: sdma::SDMA,
    runlist: pm4::RUNLIST,
    ih: ih::IH,
    sh_mem: pm4::sh_mem,
};

/// The generation of graphics core 9.4.3, of a GPU with these facts.
pub(super) fn generation(facts: &ChipFacts) -> Generation {
    Generation {
        chip: chip::chip(facts),
        formats: &FORMATS,
    }
}
