// SPDX-License-Identifier: GPL-2.0-only

//! Graphics cores 10.1 and 10.3 with SDMA 5: what of their formats is not that of gfx9.

mod ih;

use super::{
    gfx9::{
        mqd,
        pm4,
        sdma, //
    },
    Formats,
};

/// Graphics cores 10.1.
pub(super) static GFX10_1: Formats = Formats {
    mqd: mqd::GFX10,
    sdma: sdma::SDMA_5,
    runlist: pm4::SHORT,
    ih: ih::IH,
    sh_mem: pm4::sh_mem_10,
};

/// Graphics cores 10.3.
pub(super) static GFX10_3: Formats = Formats {
    runlist: pm4::COUNTING,
    ..GFX10_1
};
