// SPDX-License-Identifier: GPL-2.0-only

//! The links of a GPU node: to its CPU, to the GPUs of its hive, and through its CPU to the others.
//!
//! Core-only. A link goes one way, so most come in pairs: there ([`Pair::out`]) and back.

use super::{
    gpu::{
        CopyEngines,
        Description,
        HostLink, //
    },
    Link,
    LinkKind, //
};

/// `HSA_IOLINK_FLAGS_ENABLED`.
const ENABLED: u32 = 1;
/// `HSA_IOLINK_FLAGS_NON_COHERENT`.
const NON_COHERENT: u32 = 2;
/// `HSA_IOLINK_FLAGS_NO_ATOMICS_32_BIT` and `…_64_BIT`.
const NO_ATOMICS: u32 = 4 | 8;

/// Weights (`KFD_CRAT_INTRA_SOCKET_WEIGHT`, `KFD_CRAT_XGMI_WEIGHT`); PCIe's is in C a bare number.
const WEIGHT_ON_PACKAGE: u32 = 13;
const WEIGHT_XGMI: u32 = 15;
const WEIGHT_PCI: u32 = 20;

/// MB/s between the dies of a package, as C states it.
const ON_PACKAGE_MBS: u32 = 819200;

/// A link and, unless the way back is closed, the one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// From the GPU.
    pub(crate) out: Link,
    /// To the GPU.
    pub(crate) back: Option<Link>,
}

/// How two GPUs are connected by xGMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XgmiPath {
    /// As measured between two devices.
    Devices { hops: u32, bandwidth: (u32, u32) },
    /// Partitions: of one device, or of two.
    Partitions { one_device: bool },
}

/// What carries a link, and how well.
struct Carrier {
    kind: LinkKind,
    weight: u32,
    bandwidth: (u32, u32),
}

impl HostLink {
    fn carrier(self) -> Carrier {
        let (kind, weight, bandwidth) = match self {
            Self::PciExpress { bandwidth } => (LinkKind::PciExpress, WEIGHT_PCI, bandwidth),
            Self::Xgmi { bandwidth } => (LinkKind::Xgmi, WEIGHT_XGMI, bandwidth),
            Self::Package => (
                LinkKind::Xgmi,
                WEIGHT_ON_PACKAGE,
                (ON_PACKAGE_MBS, ON_PACKAGE_MBS),
            ),
        };
        Carrier {
            kind,
            weight,
            bandwidth,
        }
    }
}

impl XgmiPath {
    fn carrier(self) -> Carrier {
        let (weight, bandwidth) = match self {
            Self::Devices { hops, bandwidth } => (WEIGHT_XGMI.wrapping_mul(hops), bandwidth),
            Self::Partitions { one_device: true } => {
                (WEIGHT_ON_PACKAGE, (ON_PACKAGE_MBS, ON_PACKAGE_MBS))
            }
            Self::Partitions { one_device: false } => (2 * WEIGHT_ON_PACKAGE + WEIGHT_XGMI, (0, 0)),
        };
        Carrier {
            kind: LinkKind::Xgmi,
            weight,
            bandwidth,
        }
    }
}

impl Carrier {
    fn link(&self, node_from: u32, node_to: u32) -> Link {
        Link {
            kind: self.kind,
            node_from,
            node_to,
            weight: self.weight,
            min_bandwidth: self.bandwidth.0,
            max_bandwidth: self.bandwidth.1,
            recommended_sdma_engine_id_mask: 0,
            flags: ENABLED,
        }
    }
}

impl Link {
    fn reversed(self) -> Self {
        Self {
            node_from: self.node_to,
            node_to: self.node_from,
            ..self
        }
    }

    /// Adds `flags`.
    fn with(self, flags: u32) -> Self {
        Self {
            flags: self.flags | flags,
            ..self
        }
    }
}

/// Flags of a link from this GPU and of one to it. xGMI always has atomics.
fn atomics(gpu: &Description<'_>, kind: LinkKind) -> (u32, u32) {
    let missing = |has: bool| {
        if has || kind == LinkKind::Xgmi {
            0
        } else {
            NO_ATOMICS
        }
    };
    (
        missing(gpu.links.atomics),
        missing(gpu.links.atomic_completer),
    )
}

/// The bits of the engines for PCIe, and of those for xGMI.
fn engines(gpu: &Description<'_>) -> (u32, u32) {
    let bits = |count: u32| 1u32.checked_shl(count).unwrap_or(0).wrapping_sub(1);
    let CopyEngines { pcie, xgmi, .. } = gpu.copy;
    (bits(pcie), bits(xgmi).checked_shl(pcie).unwrap_or(0))
}

/// The GPU's link to the CPU. Only memory in the CPU's sight has a way back.
pub(crate) fn to_cpu(gpu: &Description<'_>, node: u32, cpu: u32) -> Pair {
    let carrier = gpu.links.host.carrier();
    let link = carrier.link(node, cpu);
    let (from_gpu, to_gpu) = atomics(gpu, carrier.kind);
    let incoherent = if carrier.kind == LinkKind::PciExpress {
        NON_COHERENT
    } else {
        0
    };
    if !gpu.memory.is_public() && carrier.kind == LinkKind::PciExpress {
        return Pair {
            out: link.with(from_gpu),
            back: None,
        };
    }
    let link = Link {
        recommended_sdma_engine_id_mask: engines(gpu).0,
        ..link
    };
    Pair {
        out: link.with(from_gpu),
        back: Some(link.reversed().with(to_gpu | incoherent)),
    }
}

/// The GPU's link to a GPU of its hive.
pub(crate) fn to_peer(
    gpu: &Description<'_>,
    node: u32,
    peer: &PeerPosition,
    path: XgmiPath,
) -> Pair {
    let link = path.carrier().link(node, peer.node);
    let (out, back) = peer_engines(gpu, peer);
    let engines = |link: Link, mask| Link {
        recommended_sdma_engine_id_mask: mask,
        ..link
    };
    Pair {
        out: engines(link, out),
        back: Some(engines(link.reversed(), back)),
    }
}

/// Where a GPU of the hive is: its node, and its place in the hive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerPosition {
    pub(crate) node: u32,
    pub(crate) hive_position: u32,
}

/// The copy engine that reaches each GPU of a fully connected hive of eight best, in a device of 16
/// engines: by the place of the source, then of the destination. Hardware fact
/// (`rec_sdma_eng_map`).
const BEST_ENGINE: [[u8; 8]; 8] = [
    [NO_ENGINE, 14, 12, 2, 4, 8, 10, 6],
    [14, NO_ENGINE, 2, 10, 8, 4, 6, 12],
    [10, 2, NO_ENGINE, 12, 14, 6, 4, 8],
    [2, 12, 10, NO_ENGINE, 6, 14, 8, 4],
    [4, 8, 14, 6, NO_ENGINE, 10, 12, 2],
    [8, 4, 6, 14, 12, NO_ENGINE, 2, 10],
    [10, 6, 4, 8, 12, 2, NO_ENGINE, 14],
    [6, 12, 8, 4, 2, 10, 14, NO_ENGINE],
];
const NO_ENGINE: u8 = 0xff;

/// Which engines to use for copies to a peer, and for the peer's copies back.
fn peer_engines(gpu: &Description<'_>, peer: &PeerPosition) -> (u32, u32) {
    let (pcie, xgmi) = engines(gpu);
    let xgmi_count = xgmi.count_ones();
    let mapped =
        gpu.links.engine_map && gpu.partitions == 1 && gpu.links.hive_size == 8 && xgmi_count >= 6;
    let any = if xgmi == 0 { pcie } else { xgmi };
    if !mapped {
        return (any, any);
    }
    // A device with eight engines has every second one of sixteen.
    let halved = u32::from(xgmi_count == 6);
    let best = |from: u32, to: u32| {
        let row = BEST_ENGINE.get(from as usize)?;
        let engine = *row.get(to as usize)?;
        let bit = 1u32.checked_shl(u32::from(engine) >> halved)?;
        (bit & pcie == 0).then_some(bit)
    };
    let (here, there) = (gpu.links.hive_position, peer.hive_position);
    (
        best(here, there).unwrap_or(xgmi),
        best(there, here).unwrap_or(xgmi),
    )
}

/// The way from a GPU to a CPU that is not its own: through its own CPU, over the link `onward`
/// that leads from that CPU's neighbour to it.
pub(crate) fn indirect(gpu: &Description<'_>, direct: &Link, onward: &Link) -> Pair {
    let (from_gpu, to_gpu) = atomics(gpu, direct.kind);
    let link = Link {
        kind: direct.kind,
        node_from: direct.node_from,
        node_to: onward.node_from,
        weight: direct.weight.wrapping_add(onward.weight),
        min_bandwidth: direct.min_bandwidth.min(onward.min_bandwidth),
        max_bandwidth: direct.max_bandwidth.min(onward.max_bandwidth),
        recommended_sdma_engine_id_mask: 0,
        flags: ENABLED,
    };
    let incoherent = if direct.kind == LinkKind::PciExpress {
        NON_COHERENT
    } else {
        0
    };
    let back = link.reversed().with(to_gpu | incoherent);
    Pair {
        out: link.with(from_gpu),
        back: gpu.memory.is_public().then_some(back),
    }
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_topology_link))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;
    use crate::topology::{
        cpu,
        gpu::tests::{
            description,
            BITMAP, //
        },
    };

    #[test]
    fn a_gpu_on_pci_express_has_a_pair() {
        let mut gpu = description(&BITMAP);
        gpu.links.host = HostLink::PciExpress {
            bandwidth: (312, 32000),
        };
        gpu.links.atomics = true;
        let Pair { out, back } = to_cpu(&gpu, 1, 0);
        assert_eq!(
            (out.node_from, out.node_to, out.weight, out.flags),
            (1, 0, 20, ENABLED)
        );
        assert_eq!((out.min_bandwidth, out.max_bandwidth), (312, 32000));
        assert_eq!(out.recommended_sdma_engine_id_mask, 0xf);
        let back = back.unwrap();
        assert_eq!((back.node_from, back.node_to), (0, 1));
        assert_eq!(back.flags, ENABLED | NON_COHERENT | NO_ATOMICS);
    }

    #[test]
    fn memory_out_of_sight_has_no_way_back() {
        let mut gpu = description(&BITMAP);
        gpu.memory.private = 1 << 30;
        let Pair { out, back } = to_cpu(&gpu, 1, 0);
        assert_eq!((back, out.recommended_sdma_engine_id_mask), (None, 0));
        assert_eq!(out.flags, ENABLED | NO_ATOMICS);
    }

    #[test]
    fn a_gpu_on_the_cpus_package_is_near_and_coherent() {
        let mut gpu = description(&BITMAP);
        gpu.links.host = HostLink::Package;
        let Pair { out, back } = to_cpu(&gpu, 1, 0);
        assert_eq!(
            (out.kind, out.weight, out.max_bandwidth),
            (LinkKind::Xgmi, 13, 819200)
        );
        assert_eq!(back.map(|back| back.flags), Some(ENABLED));
    }

    #[test]
    fn a_gpu_that_xgmi_connects_to_the_cpu_is_coherent() {
        let mut gpu = description(&BITMAP);
        gpu.memory.private = 1 << 30;
        gpu.links.host = HostLink::Xgmi {
            bandwidth: (50_000, 50_000),
        };
        let Pair { out, back } = to_cpu(&gpu, 1, 0);
        assert_eq!(
            (out.kind, out.weight, out.max_bandwidth, out.flags),
            (LinkKind::Xgmi, 15, 50_000, ENABLED)
        );
        assert_eq!(
            back.map(|back| (back.weight, back.flags)),
            Some((15, ENABLED))
        );
    }

    #[test]
    fn a_hive_of_eight_has_best_engines() {
        let mut gpu = description(&BITMAP);
        gpu.copy.pcie = 2;
        gpu.copy.xgmi = 14;
        gpu.links.engine_map = true;
        gpu.links.hive_size = 8;
        gpu.links.hive_position = 2;
        let peer = PeerPosition {
            node: 1,
            hive_position: 0,
        };
        let path = XgmiPath::Devices {
            hops: 1,
            bandwidth: (50000, 50000),
        };
        let Pair { out, back } = to_peer(&gpu, 3, &peer, path);
        assert_eq!((out.weight, out.node_from, out.node_to), (15, 3, 1));
        assert_eq!(out.recommended_sdma_engine_id_mask, 1 << 10);
        assert_eq!(
            back.map(|back| back.recommended_sdma_engine_id_mask),
            Some(1 << 12)
        );
        gpu.links.hive_size = 4;
        let Pair { out, .. } = to_peer(&gpu, 3, &peer, path);
        assert_eq!(out.recommended_sdma_engine_id_mask, 0xfffc);
    }

    #[test]
    fn partitions_of_one_device_are_near() {
        let gpu = description(&BITMAP);
        let peer = PeerPosition {
            node: 1,
            hive_position: 0,
        };
        let near = to_peer(&gpu, 2, &peer, XgmiPath::Partitions { one_device: true }).out;
        let far = to_peer(&gpu, 2, &peer, XgmiPath::Partitions { one_device: false }).out;
        assert_eq!((near.weight, near.max_bandwidth), (13, 819200));
        assert_eq!((far.weight, far.max_bandwidth), (41, 0));
    }

    #[test]
    fn the_way_to_another_cpu_adds_up() {
        let mut gpu = description(&BITMAP);
        gpu.links.host = HostLink::PciExpress {
            bandwidth: (312, 32000),
        };
        let direct = to_cpu(&gpu, 2, 0).out;
        let Pair { out, back } = indirect(&gpu, &direct, &cpu::link(1, 0, 21, true));
        assert_eq!((out.node_from, out.node_to, out.weight), (2, 1, 41));
        assert_eq!(
            (out.max_bandwidth, out.recommended_sdma_engine_id_mask),
            (0, 0)
        );
        assert_eq!(
            back.map(|back| (back.node_from, back.node_to)),
            Some((1, 2))
        );
    }
}
