// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Compiles the tests' GPU kernels; `KFD_TESTS_KERNELS=FILE` takes a code object made elsewhere
//! instead.

fn main() {
    kfd_kernels::compile("tests", "KFD_TESTS_KERNELS");
}
