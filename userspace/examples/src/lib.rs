// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the examples share: the code objects of `userspace/kernels`. Each example is a
//! program of its own, in `src/bin`, to be read from top to bottom.

/// The kernels, compiled for gfx942, gfx950 and gfx90a.
pub static KERNELS: [&[u8]; 3] = [
    include_bytes!(concat!(env!("OUT_DIR"), "/examples.co")),
    include_bytes!(concat!(env!("OUT_DIR"), "/examples-gfx950.co")),
    include_bytes!(concat!(env!("OUT_DIR"), "/examples-gfx90a.co")),
];

/// Those that print.
pub static PRINTS: [&[u8]; 3] = [
    include_bytes!(concat!(env!("OUT_DIR"), "/prints.co")),
    include_bytes!(concat!(env!("OUT_DIR"), "/prints-gfx950.co")),
    include_bytes!(concat!(env!("OUT_DIR"), "/prints-gfx90a.co")),
];
