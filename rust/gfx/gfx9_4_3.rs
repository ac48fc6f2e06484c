// SPDX-License-Identifier: GPL-2.0-only

//! Graphics core 9.4.3 (gfx942: MI300A, MI300X and their partitions) with SDMA 4.4.2.
//!
//! `GFX9_4_3` is the only thing the rest of the driver sees of this module.

mod ih;
mod mqd;
#[cfg(CONFIG_RUST)]
mod oracle;
mod pm4;
mod props;
mod sdma;

use super::Generation;

/// The generation of graphics core 9.4.3.
pub(super) const GFX9_4_3: Generation = Generation {
    name: "gfx9.4.3",
    features: props::FEATURES,
    mqd: mqd::MQD,
    sdma: sdma::SDMA,
    runlist: pm4::RUNLIST,
    ih: ih::IH,
};
