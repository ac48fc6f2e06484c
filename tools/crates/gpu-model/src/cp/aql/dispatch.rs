// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! From a KERNEL_DISPATCH packet to a launch: the kernel descriptor, the queue's scratch, the
//! initial registers.
//!
//! Sources: LLVM's "User Guide for AMDGPU Backend", sections Kernel Descriptor and Initial Kernel
//! Execution State (packed work-item ids; architected flat scratch but on gfx90a); amd_queue_t of
//! ROCr's `amd_hsa_queue.h`.

use super::PacketError;
use crate::cp::launch::{Launch, Order, ScratchRing, Shape};
use crate::cp::pm4::{cu_masks, scratch_ring, share};
use crate::cp::queue::{Body, Queue};
use crate::cp::team::Member;
use crate::processor::bus::{to_dwords, wide, Fault};
use crate::processor::packet::field;

/// Work-items of a work-group, at most.
const MAX_ITEMS: u64 = 1024;
/// Kernels that expect preloaded arguments begin with code that loads them, for older firmware.
const PRELOAD_PROLOGUE: u64 = 256;

/// The runtime's structure around the queue's read index, as far as the command processor reads it.
pub struct AmdQueue {
    address: u64,
    dwords: Vec<u32>,
}

impl AmdQueue {
    const BYTES: usize = 256;
    const READ_DISPATCH_ID: u64 = 128;

    /// Finds it by the offset that the runtime keeps next to the read index. None: the queue has no
    /// such structure (its owner is not an HSA runtime).
    pub fn load(queue: &Queue) -> Result<Option<Self>, Fault> {
        let report = queue.hqd.rptr_report();
        if report == 0 || u64::from(queue.view().read32(report + 8)?) != Self::READ_DISPATCH_ID {
            return Ok(None);
        }
        let Some(address) = report.checked_sub(Self::READ_DISPATCH_ID) else {
            return Ok(None);
        };
        let mut bytes = [0; Self::BYTES];
        queue.shared.bus.read(queue.space, address, &mut bytes)?;
        Ok(Some(AmdQueue {
            address,
            dwords: to_dwords(&bytes),
        }))
    }

    fn at(&self, offset: usize) -> u32 {
        self.dwords[offset / 4]
    }

    fn at64(&self, offset: usize) -> u64 {
        wide(self.at(offset), self.at(offset + 4))
    }

    /// AMD_QUEUE_PROPERTIES_ENABLE_PROFILING.
    pub fn is_profiled(&self) -> bool {
        self.at(180) >> 3 & 1 != 0
    }

    /// queue_inactive_signal.
    pub fn inactive_signal(&self) -> u64 {
        self.at64(192)
    }

    fn scratch_descriptor(&self) -> &[u32] {
        &self.dwords[144 / 4..160 / 4]
    }

    /// The XCC's part of the scratch backing, if a lane gets `lane_bytes` of it.
    fn scratch(&self, xcc: Member, lane_bytes: u32) -> Result<ScratchRing, PacketError> {
        // What an XCC has: scratch_backing_memory_byte_size, or (older runtimes) NUM_RECORDS of the
        // descriptor.
        let bytes = match self.at64(168) {
            0 => self.scratch_descriptor()[2].into(),
            bytes => bytes,
        };
        let part = bytes.wrapping_mul(xcc.index.into());
        let ring = scratch_ring(self.at(140), self.at64(160).wrapping_add(part));
        let lane_room = self.at(176);
        if ring.waves == 0 || ring.wave_bytes == 0 || lane_bytes > lane_room {
            return Err(PacketError::ScratchInsufficient);
        }
        Ok(ring)
    }
}

/// A kernel descriptor (amdhsa), 64 bytes.
struct Descriptor {
    private_bytes: u32,
    entry: u64,
    rsrc1: u32,
    rsrc2: u32,
    rsrc3: u32,
    properties: u32,
    preload: u32,
}

impl Descriptor {
    fn load(queue: &Queue, address: u64) -> Result<Self, Fault> {
        let dwords = queue.view().dwords(address, 16)?;
        Ok(Descriptor {
            private_bytes: dwords[1],
            entry: address.wrapping_add(wide(dwords[4], dwords[5])),
            rsrc3: dwords[11],
            rsrc1: dwords[12],
            rsrc2: dwords[13],
            properties: dwords[14] & 0xffff,
            preload: dwords[14] >> 16,
        })
    }

    /// ENABLE_SGPR_* bits of kernel_code_properties.
    const fn wants(&self, bit: u32) -> bool {
        self.properties >> bit & 1 != 0
    }

    /// Kernel arguments to preload: how many dwords, from which.
    const fn preload(&self) -> (u32, u32) {
        (field(self.preload, 0, 7), field(self.preload, 7, 9))
    }
}

/// The parts of a KERNEL_DISPATCH packet.
struct Packet {
    shape: Shape,
    private_bytes: u32,
    group_bytes: u32,
    kernel_object: u64,
    kernarg: u64,
}

impl Packet {
    /// `lds_bytes`: how much there is.
    fn decode(packet: &[u32], lds_bytes: u32) -> Result<Self, PacketError> {
        let dimensions = field(packet[0], 16, 2) as usize;
        let mut size = [packet[1] & 0xffff, packet[1] >> 16, packet[2] & 0xffff];
        let mut grid = [packet[3], packet[4], packet[5]];
        for d in dimensions..3 {
            (size[d], grid[d]) = (1, 1);
        }
        if dimensions == 0 || size.contains(&0) || grid.contains(&0) {
            return Err(PacketError::DimensionsInvalid);
        }
        if size.iter().map(|n| u64::from(*n)).product::<u64>() > MAX_ITEMS {
            return Err(PacketError::WorkgroupInvalid);
        }
        if packet[7] > lds_bytes {
            return Err(PacketError::GroupSegmentInvalid);
        }
        if packet[8] | packet[9] == 0 {
            return Err(PacketError::CodeInvalid);
        }
        Ok(Packet {
            shape: Shape::of_items(grid, size),
            private_bytes: packet[6],
            group_bytes: packet[7],
            kernel_object: wide(packet[8], packet[9]),
            kernarg: wide(packet[10], packet[11]),
        })
    }
}

/// Makes the launch that the packet at `address` asks for.
pub fn launch(
    queue: &Queue,
    body: &Body,
    address: u64,
    packet: &[u32],
) -> Result<Result<Box<Launch>, PacketError>, Fault> {
    let packet = match Packet::decode(packet, queue.shared.bus.cores().target.lds_bytes()) {
        Ok(packet) => packet,
        Err(error) => return Ok(Err(error)),
    };
    let descriptor = Descriptor::load(queue, packet.kernel_object)?;
    let amd = AmdQueue::load(queue)?;
    let private_bytes = packet.private_bytes.max(descriptor.private_bytes);
    let scratch = match (&amd, private_bytes) {
        (_, 0) => ScratchRing::default(),
        (None, _) => return Ok(Err(PacketError::ScratchInsufficient)),
        (Some(amd), lane_bytes) => match amd.scratch(queue.xcc, lane_bytes) {
            Ok(scratch) => scratch,
            Err(error) => return Ok(Err(error)),
        },
    };
    let sgprs = UserSgprs {
        queue,
        body,
        address,
        packet: &packet,
        amd: amd.as_ref(),
        private_bytes,
    };
    let user_sgprs = sgprs.build(&descriptor)?;
    let prologue = if descriptor.preload().0 != 0 {
        PRELOAD_PROLOGUE
    } else {
        0
    };
    let process = &queue.process;
    let traps = queue.has_handler();
    let dispatch = gcn::Dispatch {
        target: queue.shared.bus.cores().target,
        entry: descriptor.entry.wrapping_add(prologue),
        pgm_rsrc1: descriptor.rsrc1,
        pgm_rsrc2: descriptor.rsrc2,
        pgm_rsrc3: descriptor.rsrc3,
        user_sgprs,
        workgroup_size: packet.shape.size,
        lds_bytes: packet.group_bytes,
        apertures: crate::cp::apertures(process),
        tba: if traps { process.tba } else { 0 },
        tma: if traps { process.tma } else { 0 },
    };
    let order = Order {
        dispatch,
        shape: packet.shape,
        share: share(queue),
        scratch,
        packet: body.rptr % queue.hqd.ring_packets(),
        cu_masks: cu_masks(&body.sh),
    };
    Ok(Ok(Box::new(Launch::new(queue, order))))
}

/// What the user SGPRs are filled from.
struct UserSgprs<'a> {
    queue: &'a Queue,
    body: &'a Body,
    address: u64,
    packet: &'a Packet,
    amd: Option<&'a AmdQueue>,
    private_bytes: u32,
}

impl UserSgprs<'_> {
    /// In the order of the ABI; those that the kernel did not ask for take no room.
    fn build(&self, descriptor: &Descriptor) -> Result<Vec<u32>, Fault> {
        let mut sgprs = Vec::with_capacity(16);
        let pair = |sgprs: &mut Vec<u32>, wanted: bool, value: u64| {
            if wanted {
                sgprs.extend([value as u32, (value >> 32) as u32]);
            }
        };
        if descriptor.wants(0) {
            sgprs.extend(self.amd.map_or(&[0; 4][..], AmdQueue::scratch_descriptor));
        }
        let amd_queue = self.amd.map_or(0, |amd| amd.address);
        let backing = self.amd.map_or(0, |amd| amd.at64(160));
        pair(&mut sgprs, descriptor.wants(1), self.address);
        pair(&mut sgprs, descriptor.wants(2), amd_queue);
        pair(&mut sgprs, descriptor.wants(3), self.packet.kernarg);
        pair(&mut sgprs, descriptor.wants(4), self.body.rptr);
        pair(&mut sgprs, descriptor.wants(5), backing);
        if descriptor.wants(6) {
            sgprs.push(self.private_bytes);
        }
        let (count, first) = descriptor.preload();
        if count != 0 {
            let from = self.packet.kernarg.wrapping_add(4 * u64::from(first));
            sgprs.extend(self.queue.view().dwords(from, count as usize)?);
        }
        Ok(sgprs)
    }
}
