// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The command processor as drivers and runtimes use it, over a flat memory: rings, run lists, AQL,
//! preemption.

mod aql;
mod broken;
mod caches;
mod cwsr;
mod debug;
mod direct;
mod flood;
mod hostile;
mod inject;
mod kernels;
mod kiq;
mod leftovers;
mod partition;
mod pm4;
mod retry;
mod runlist;
