// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Compiles the examples' GPU kernels; `KFDCTL_EXAMPLES=FILE` and `KFDCTL_PRINTS=FILE` take code
//! objects made elsewhere instead.

fn main() {
    kfd_kernels::compile("examples", "KFDCTL_EXAMPLES");
    kfd_kernels::compile("prints", "KFDCTL_PRINTS");
}
