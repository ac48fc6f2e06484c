// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `gpu-model-server`: serves one modelled GPU to QEMU over vfio-user.

fn main() {}
