// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Fields of the registers that send doorbells to engines. [`crate::layout`] says how they are
//! checked.

use crate::layout::layouts;
use crate::layout::Source::Register;

layouts! {
    doorbell_entry from [Register("include/asic_reg/nbio/nbio_7_9_0_sh_mask.h",
        "DOORBELL0_CTRL_ENTRY_0")] after 0 {
        BIF_DOORBELL0_RANGE_OFFSET_ENTRY = 0: 0, 10;
        BIF_DOORBELL0_RANGE_SIZE_ENTRY = 0: 10, 5;
    }
    sdma_doorbell_range from [Register("include/asic_reg/nbio/nbio_7_4_sh_mask.h",
        "BIF_SDMA0_DOORBELL_RANGE")] after 0 {
        OFFSET = 0: 2, 10;
        SIZE = 0: 16, 5;
    }
}
