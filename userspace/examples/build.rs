// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Compiles the examples' GPU kernels; `KFDCTL_EXAMPLES=FILE` takes a code object made elsewhere
//! instead.

fn main() {
    kfd_kernels::compile("examples", "KFDCTL_EXAMPLES");
}
