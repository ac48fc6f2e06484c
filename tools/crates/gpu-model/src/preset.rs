// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What kind of GPU a model is, as data: PCI identity, counts of units, and the IP blocks with
//! their versions and addresses.
//!
//! One [`Preset`] per model. The IP list is both what the discovery table has and
//! where the model's blocks put their registers, so the two cannot differ.

use std::collections::BTreeMap;

use gcn::Target;

/// Hardware ids of IP blocks (`linux:drivers/gpu/drm/amd/include/soc15_hw_ip.h`, `*_HWID`).
pub mod ip {
    pub const MP1: u16 = 1;
    pub const THM: u16 = 3;
    pub const SMUIO: u16 = 4;
    pub const GC: u16 = 11;
    /// VCN has the same.
    pub const UVD: u16 = 12;
    pub const MMHUB: u16 = 34;
    pub const ATHUB: u16 = 35;
    pub const OSSSYS: u16 = 40;
    pub const HDP: u16 = 41;
    pub const SDMA0: u16 = 42;
    pub const DF: u16 = 46;
    pub const NBIF: u16 = 108;
    pub const UMC: u16 = 150;
    pub const MP0: u16 = 255;

    /// A block's name, as the headers have it.
    pub fn name(hardware_id: u16) -> &'static str {
        match hardware_id {
            MP1 => "MP1",
            THM => "THM",
            SMUIO => "SMUIO",
            GC => "GC",
            UVD => "UVD",
            MMHUB => "MMHUB",
            ATHUB => "ATHUB",
            OSSSYS => "OSSSYS",
            HDP => "HDP",
            SDMA0 => "SDMA",
            DF => "DF",
            NBIF => "NBIO",
            UMC => "UMC",
            MP0 => "MP0",
            _ => "IP",
        }
    }
}

/// A version as the discovery table has it: major, minor, revision.
pub type Version = (u8, u8, u8);

/// One kind of IP block and all its instances.
#[derive(Clone, Debug)]
pub struct IpBlock {
    pub hardware_id: u16,
    pub version: Version,
    /// Base addresses in dwords, per instance and segment.
    pub instances: Vec<Vec<u32>>,
}

/// Versions of the firmware, by which drivers know what they may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firmware {
    /// The compute micro engines'.
    pub mec: u32,
    /// The system management unit's.
    pub pmfw: u32,
}

impl Firmware {
    /// An APU's power firmware has numbers of its own; this one's metrics are those of a card
    /// (`smu_v13_0_6_get_metrics_version`).
    const APU: Self = Self {
        pmfw: 0x0455_6901,
        ..Self::OLD
    };
    /// MEC 150: before the cleaner shader (153), queue reset (155) and the xnack chain (184), which
    /// the model lacks. PMFW 85.71.0: new enough for frequency control, older than what reports
    /// RAS and per-die metrics.
    const OLD: Self = Self {
        mec: 150,
        pmfw: 0x0055_4700,
    };
    /// Graphics core 9.5.0 counts anew. MEC 14: before the reset of copy engines (15), of queues
    /// (21) and the xnack chain (23), which the model lacks.
    const GC_9_5_0: Self = Self {
        mec: 14,
        ..Self::OLD
    };
    /// MEC 60: what debugging (51) and the global wave sync (0x28) want, before the xnack chain
    /// (98), which the model lacks. PMFW 68.41.0: before the table of memory errors (68.42).
    pub const GC_9_4_2: Self = Self {
        mec: 60,
        pmfw: 0x0044_2900,
    };
    /// The first that reset a copy engine alone (`sdma_v4_4_2_update_reset_mask`,
    /// `smu_v13_0_6_init_caps`).
    const RESETS: Self = Self {
        mec: 0xb0,
        pmfw: 0x0055_7900,
    };
}

/// Which blocks a GPU is made of, where that is more than their versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Aldebaran: drivers know its blocks by the PCI device id, and much of it from a VBIOS.
    Mi200,
    /// MI300 and MI350: drivers read a discovery table.
    Mi300,
}

/// `AMDGPU_PKG_TYPE_APU`, as `smuio_v13_0_3_get_pkg_type` reads it.
const PACKAGE_APU: u32 = 2;

/// A kind of GPU.
#[derive(Clone, Debug)]
pub struct Preset {
    pub name: &'static str,
    pub generation: Generation,
    pub device_id: u16,
    /// Accelerator core complexes (XCC).
    pub xccs: u8,
    /// Shader engines of an XCC.
    pub shader_engines: u32,
    /// Compute units of a shader engine, working or not.
    pub cus_per_engine: u32,
    /// How many work, of each shader engine.
    pub active_cus: [u8; 4],
    pub sdma_engines: u8,
    /// SMUIO_MCM_CONFIG: how it is packed.
    pub package: u32,
    pub firmware: Firmware,
    /// What its waves execute.
    pub target: Target,
    /// Local memory if the user names no size.
    pub default_vram: u64,
    pub ips: Vec<IpBlock>,
}

/// Names of all presets.
pub const NAMES: &[&str] = &[
    "mi300x",
    "mi300x-resets",
    "mi300x-full",
    "mi300a",
    "mi308x",
    "gc-9.4.4",
    "mi350x",
    "mi350x-full",
    "mi250x",
];

impl Preset {
    /// A preset by its name.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "mi300x" => Some(Self::mi300x()),
            "mi300x-resets" => Some(Self::mi300x_resets()),
            "mi300x-full" => Some(Self::mi300x_full()),
            "mi300a" => Some(Self::mi300a()),
            "mi308x" => Some(Self::mi308x()),
            "gc-9.4.4" => Some(Self::gc_9_4_4()),
            "mi350x" => Some(Self::mi350x()),
            "mi350x-full" => Some(Self::mi350x_full()),
            "mi250x" => Some(Self::mi250x()),
            _ => None,
        }
    }

    /// MI300X (1002:74A1) cut down to one XCC with 4 compute units: small, so that tests are quick.
    pub fn mi300x() -> Self {
        Self::gfx942("mi300x", 0x74a1, 1, [1; 4])
    }

    /// As `mi300x` with firmware that resets a copy engine alone.
    pub fn mi300x_resets() -> Self {
        Self {
            firmware: Firmware::RESETS,
            ..Self::gfx942("mi300x-resets", 0x74a1, 1, [1; 4])
        }
    }

    /// MI300X as it is sold, but for its copy engines: 8 XCCs with 38 compute units each, 192 GiB.
    pub fn mi300x_full() -> Self {
        Self {
            default_vram: 192 << 30,
            ..Self::gfx942("mi300x-full", 0x74a1, 8, [10, 10, 9, 9])
        }
    }

    /// MI300A (1002:74A0): an APU with 6 XCCs of 38 compute units, in carve-out mode: part of its
    /// memory is the GPU's, behind BAR0. Without one (`is_app_apu`) amdgpu asks ACPI for memory and
    /// discovery table.
    pub fn mi300a() -> Self {
        Self {
            package: PACKAGE_APU,
            firmware: Firmware::APU,
            default_vram: 4 << 30,
            ..Self::gfx942("mi300a", 0x74a0, 6, [10, 10, 9, 9])
        }
    }

    /// MI308X (1002:74A2): 4 XCCs, 80 compute units; scratch for one queue takes gigabytes.
    pub fn mi308x() -> Self {
        Self {
            default_vram: 8 << 30,
            ..Self::gfx942("mi308x", 0x74a2, 4, [5; 4])
        }
    }

    /// As `mi300x` with the next version of the graphics core: one that amdgpu and its amdkfd know,
    /// for drivers that do not.
    pub fn gc_9_4_4() -> Self {
        let mut preset = Self::gfx942("gc-9.4.4", 0x74a1, 1, [1; 4]);
        for block in &mut preset.ips {
            if block.hardware_id == ip::GC {
                block.version = (9, 4, 4);
            }
        }
        preset
    }

    /// MI350X (1002:75A0) cut down to one XCC with 4 compute units, as `mi300x` is.
    pub fn mi350x() -> Self {
        Self::gfx950("mi350x", 1, [1; 4])
    }

    /// MI350X as it is sold, but for its copy engines: 8 XCCs with 32 compute units each, 288 GiB.
    pub fn mi350x_full() -> Self {
        Self {
            default_vram: 288 << 30,
            ..Self::gfx950("mi350x-full", 8, [8; 4])
        }
    }

    /// Of the 36 compute units of an XCC 32 work ("AMD CDNA 4 Architecture", white paper).
    fn gfx950(name: &'static str, xccs: u8, active_cus: [u8; 4]) -> Self {
        let mut preset = Self {
            cus_per_engine: 9,
            firmware: Firmware::GC_9_5_0,
            target: Target::Gfx950,
            ..Self::gfx942(name, 0x75a0, xccs, active_cus)
        };
        for block in &mut preset.ips {
            block.version = gfx950_version(block.hardware_id).unwrap_or(block.version);
        }
        preset
    }

    fn gfx942(name: &'static str, device_id: u16, xccs: u8, active_cus: [u8; 4]) -> Self {
        Self {
            name,
            generation: Generation::Mi300,
            device_id,
            xccs,
            shader_engines: 4,
            cus_per_engine: 10,
            active_cus,
            sdma_engines: 2,
            package: 0,
            firmware: Firmware::OLD,
            target: Target::Gfx942,
            default_vram: 2 << 30,
            ips: gfx942_ips(xccs),
        }
    }

    /// One of an MI250X's two dies (1002:7408) cut down to 4 of its 8 shader engines with a compute
    /// unit each, without its video blocks.
    pub fn mi250x() -> Self {
        Self {
            generation: Generation::Mi200,
            cus_per_engine: 14,
            sdma_engines: 5,
            firmware: Firmware::GC_9_4_2,
            target: Target::Gfx90a,
            ips: gfx90a_ips(),
            ..Self::gfx942("mi250x", 0x7408, 1, [1; 4])
        }
    }

    /// All compute units that work.
    pub fn compute_units(&self) -> u32 {
        let of_xcc: u32 = self.active_cus.iter().map(|it| u32::from(*it)).sum();
        u32::from(self.xccs) * of_xcc
    }

    /// A block's segment bases; empty if the preset has no such block.
    pub fn bases(&self, hardware_id: u16, instance: u8) -> &[u32] {
        let block = self.ips.iter().find(|b| b.hardware_id == hardware_id);
        block
            .and_then(|b| b.instances.get(usize::from(instance)))
            .map_or(&[], Vec::as_slice)
    }

    /// Where each segment of each block's instances begins, and a name for it such as `GC[1].0`.
    pub fn segments(&self) -> BTreeMap<u64, String> {
        let mut segments = BTreeMap::new();
        for block in &self.ips {
            for (instance, bases) in block.instances.iter().enumerate() {
                for (segment, base) in bases.iter().enumerate() {
                    let name = ip::name(block.hardware_id);
                    let name = format!("{name}[{instance}].{segment}");
                    segments.entry(u64::from(*base)).or_insert(name);
                }
            }
        }
        segments
    }

    /// One segment base of a block; 0 if there is none.
    pub fn base(&self, hardware_id: u16, instance: u8, segment: usize) -> u32 {
        self.bases(hardware_id, instance)
            .get(segment)
            .copied()
            .unwrap_or(0)
    }
}

/// Where XCC `n` has its registers: each XCC but the first in a 64 Ki-dword window of its own.
fn xcc_bases(xcc: u8) -> Vec<u32> {
    let window = if xcc == 0 {
        0
    } else {
        (u32::from(xcc) + 1) << 16
    };
    vec![window + 0x2000, window + 0xa000, 0x240_2c00]
}

/// The IP blocks of a gfx942 GPU whose security processor is new enough for a driver without VBIOS
/// and without RAS.
fn gfx942_ips(xccs: u8) -> Vec<IpBlock> {
    let one = |hardware_id, version, bases: &[u32]| IpBlock {
        hardware_id,
        version,
        instances: vec![bases.to_vec()],
    };
    let mp = [0x1_6000, 0xdc_0000, 0xe0_0000, 0xe4_0000, 0x243_fc00];
    let nbif = [
        0, 0x14, 0xd20, 0x1_0400, 0x241_b000, 0x404_0000, 0, 0, 0x800_0000,
    ];
    vec![
        IpBlock {
            hardware_id: ip::GC,
            version: (9, 4, 3),
            instances: (0..xccs).map(xcc_bases).collect(),
        },
        // Anywhere whose low half is not an XCC's: the driver strips high halves from XCC registers
        // in packets, and knows them by the low half alone (`gfx_v9_4_3_normalize_xcc_reg_offset`).
        one(ip::MMHUB, (1, 8, 0), &[0x1_8000, 0x240_8800]),
        one(ip::ATHUB, (1, 8, 0), &[0xc20, 0x240_8c00]),
        one(ip::OSSSYS, (4, 4, 2), &[0x10a0, 0x240_a000]),
        one(ip::HDP, (4, 4, 2), &[0xf20, 0x240_a400]),
        IpBlock {
            hardware_id: ip::SDMA0,
            version: (4, 4, 2),
            instances: vec![vec![0x1260], vec![0x1860]],
        },
        one(ip::NBIF, (7, 9, 0), &nbif),
        // 13.0.2, not MI300X's 13.0.6: with 13.0.6 the driver wants RAS capabilities that only a
        // VBIOS gives.
        one(ip::MP0, (13, 0, 2), &mp),
        one(ip::MP1, (13, 0, 6), &mp),
        one(
            ip::SMUIO,
            (13, 0, 3),
            &[0x1_6800, 0x1_6a00, 0x240_1000, 0x344_0000],
        ),
        one(ip::THM, (13, 0, 6), &[0x1_6600, 0x240_0c00]),
        one(ip::DF, (4, 6, 2), &[0x7000, 0x240_b800, 0x7c0_0000]),
        // The driver refuses a GPU without a video block's version; it adds no block for this one.
        one(ip::UVD, (2, 0, 3), &[0x7800, 0x7e00, 0x240_3000]),
    ]
}

/// The IP blocks of an Aldebaran (`linux:drivers/gpu/drm/amd/include/aldebaran_ip_offset.h`; the
/// copy engines' registers are counted from where `sdma_v4_0_get_reg_offset` has them).
fn gfx90a_ips() -> Vec<IpBlock> {
    let one = |hardware_id, version, bases: &[u32]| IpBlock {
        hardware_id,
        version,
        instances: vec![bases.to_vec()],
    };
    let mp = [0x1_6000, 0xdc_0000, 0xe0_0000, 0xe4_0000, 0x243_fc00];
    let sdma = [0x1260, 0x1860, 0x1_e000, 0x1_e400, 0x1_e800];
    vec![
        one(ip::GC, (9, 4, 2), &[0x2000, 0xa000, 0x240_2c00]),
        one(ip::MMHUB, (9, 4, 2), &[0x1_a000, 0x240_8800]),
        one(ip::ATHUB, (9, 4, 2), &[0xc20, 0x240_8c00]),
        one(ip::OSSSYS, (4, 4, 0), &[0x10a0, 0x240_a000]),
        one(ip::HDP, (4, 4, 0), &[0xf20, 0x240_a400]),
        IpBlock {
            hardware_id: ip::SDMA0,
            version: (4, 4, 0),
            instances: sdma.map(|base| vec![base]).to_vec(),
        },
        one(ip::NBIF, (7, 4, 4), &[0, 0x14, 0xd20, 0x1_0400, 0x241_b000]),
        one(ip::MP0, (13, 0, 2), &mp),
        one(ip::MP1, (13, 0, 2), &mp),
        one(
            ip::SMUIO,
            (13, 0, 2),
            &[0x1_6800, 0x1_6a00, 0x240_1000, 0x344_0000],
        ),
        one(ip::THM, (13, 0, 2), &[0x1_6600, 0x240_0c00]),
        one(ip::DF, (3, 6, 2), &[0x7000, 0x240_b800, 0x7c0_0000]),
        one(ip::UMC, (6, 7, 0), &[0x1_4000, 0x5_4000, 0x242_5800]),
        IpBlock {
            hardware_id: ip::UVD,
            version: (2, 6, 0),
            instances: vec![
                vec![0x7800, 0x7e00, 0x240_3000],
                vec![0x7a00, 0x9000, 0x244_5000],
            ],
        },
    ]
}

/// Versions of a gfx950 GPU's blocks, where they are not those of gfx942 (the cases of 4.4.5, 1.8.1
/// and 7.9.1 in amdgpu): its registers are where 9.4.3's are, for amdgpu has one driver for both.
fn gfx950_version(hardware_id: u16) -> Option<Version> {
    match hardware_id {
        ip::GC => Some((9, 5, 0)),
        ip::MMHUB => Some((1, 8, 1)),
        ip::OSSSYS | ip::HDP | ip::SDMA0 => Some((4, 4, 5)),
        ip::NBIF => Some((7, 9, 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_preset() {
        for name in NAMES {
            assert_eq!(Preset::by_name(name).map(|p| p.name), Some(*name));
        }
        assert!(Preset::by_name("mi999").is_none());
    }

    #[test]
    fn no_other_block_looks_like_an_xcc_register() {
        let low_half = Preset::mi300x().base(ip::MMHUB, 0, 0) & 0xffff;
        for range in [0x2000..0x3400, 0xa000..0x1_0000] {
            assert!(!range.contains(&low_half) && !range.contains(&(low_half + 0xfff)));
        }
    }

    #[test]
    fn xccs_keep_the_low_half_of_their_addresses() {
        for (preset, units) in [
            (Preset::mi308x(), 80),
            (Preset::mi300x_full(), 304),
            (Preset::mi350x_full(), 256),
        ] {
            assert_eq!(preset.compute_units(), units);
            for xcc in 0..preset.xccs {
                assert_eq!(preset.base(ip::GC, xcc, 0) & 0xffff, 0x2000);
                assert_eq!(preset.base(ip::GC, xcc, 1) & 0xffff, 0xa000);
            }
        }
    }
}
