// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A model of a gfx942 GPU (MI300 series; also of a gfx950 and a gfx90a), as much of it as a stock
//! amdgpu driver and ROCm userspace use.
//!
//! Pure: it knows no sockets, files or hypervisor. Whoever hosts it gives it memory
//! ([`memory::PhysicalMemory`]), an interrupt line ([`chip::InterruptLine`]) and the guest's
//! accesses ([`model::GpuModel`]).
//!
//! - [`preset`]: what GPU this is, as data; [`discovery`]: the same as the driver reads it
//! - [`chip`]: what blocks share; [`bus`]: registers by address, and the list of unmodelled ones;
//!   [`regs`]: how they are declared
//! - [`pci`]: configuration space; [`nbio`], [`gmc`], [`ih`], [`psp`], [`smu`], [`gc`], [`athub`]:
//!   blocks; [`misc`] and [`plain`]: those that only remember what was written; [`firmware`]: the
//!   files the driver loads
//! - [`inject`]: faults from a script; [`hostile`]: what else hardware may do; [`hive`]: GPUs that
//!   xGMI connects
//! - [`limited`]: warnings that cannot fill a disk
//! - [`engine`]: what works on its own and the thread it runs on
//! - [`processor`]: what a processor needs that fetches packets from rings; [`cp`], [`sdma`]: those
//!   that do, the command processor and the copy engines; [`device`]: their place in the GPU

use layout::{Layout, Values};
use regs::{RegisterInfo, RegisterSet};

pub mod athub;
pub mod bus;
pub mod chip;
pub mod cp;
pub mod device;
pub mod discovery;
pub mod doorbells;
pub mod engine;
pub mod firmware;
#[cfg(test)]
mod flat;
pub mod gc;
pub mod gmc;
pub mod hive;
pub mod hostile;
pub mod ih;
pub mod inject;
pub mod layout;
pub mod limited;
pub mod memory;
pub mod mi200;
pub mod misc;
pub mod model;
pub mod nbio;
pub mod pci;
pub mod plain;
pub mod preset;
pub mod processor;
pub mod psp;
pub mod regs;
#[cfg(test)]
mod rig;
pub mod sdma;
pub mod smu;
pub mod traffic;
pub mod vbios;

/// All registers the model declares, by the AMD header that names them
/// (`asic_reg/HEADER_offset.h`): what a check against the kernel's source compares.
pub fn register_tables() -> Vec<(&'static str, Vec<RegisterInfo>)> {
    fn of<R: RegisterSet>() -> (&'static str, Vec<RegisterInfo>) {
        (R::HEADER, R::TABLE.to_vec())
    }
    vec![
        ("athub/athub_1_8_0", athub::of_mi300()),
        ("gc/gc_9_4_2", gmc::hub::of_mi200()),
        of::<mi200::GraphicsRegister>(),
        of::<mi200::RingRegister>(),
        of::<mi200::FabricRegister>(),
        of::<mi200::ThermalRegister>(),
        of::<mi200::ArbiterRegister>(),
        of::<mi200::HostPathRegister>(),
        of::<mi200::DiscoveryRegister>(),
        of::<misc::RomRegister>(),
        of::<misc::VideoRegister>(),
        of::<misc::UmcRegister>(),
        of::<nbio::Nbio74Register>(),
        of::<athub::AthubRegister>(),
        of::<cp::reg::CpRegister>(),
        of::<gc::GcRegister>(),
        of::<gmc::hub::VmRegister>(),
        of::<ih::IhRegister>(),
        of::<misc::DagbRegister>(),
        of::<misc::HdpRegister>(),
        of::<misc::SmuioRegister>(),
        of::<nbio::NbioRegister>(),
        of::<psp::PspRegister>(),
        of::<smu::SmuRegister>(),
    ]
}

/// The layouts of packets, descriptors and interrupt entries that the model decodes and makes, for
/// the same check.
pub fn layouts() -> impl Iterator<Item = &'static Layout> {
    let tables = [
        cp::layout::LAYOUTS,
        sdma::layout::LAYOUTS,
        ih::layout::LAYOUTS,
        nbio::layout::LAYOUTS,
    ];
    tables.into_iter().flatten()
}

/// Constants that go with them.
pub fn values() -> impl Iterator<Item = &'static Values> {
    let tables = [cp::layout::VALUES, sdma::layout::VALUES, ih::layout::VALUES];
    tables.into_iter().flatten()
}
