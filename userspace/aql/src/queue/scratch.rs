// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Scratch`]: the memory behind the private variables of all work-items that a queue can have in
//! flight, and what its `amd_queue_t` says of it. A queue with scratch has one.

use crate::{Error, Result};
use kfd::topology::Node;
use kfd::{Device, Memory, MemoryFlags};
use std::sync::Arc;

const LANES: u64 = 64;
/// `COMPUTE_TMPRING_SIZE.WAVESIZE` counts these bytes on gfx9.
const WAVE_UNIT: u64 = 1024;
/// The largest `WAVES` (12 bits) and `WAVESIZE` (13 bits).
const MOST_WAVES: u64 = 0xfff;
const MOST_UNITS: u64 = 0x1fff;
/// `amd_queue_t` fields by their byte offsets.
const COMPUTE_TMPRING_SIZE: usize = 140;
const SCRATCH_RESOURCE_DESCRIPTOR: usize = 144;
const SCRATCH_BACKING_MEMORY_LOCATION: usize = 160;
const SCRATCH_BACKING_MEMORY_BYTE_SIZE: usize = 168;
const SCRATCH_WAVE64_LANE_BYTE_SIZE: usize = 176;
/// `SQ_BUF_RSRC_WORD1`: `SWIZZLE_ENABLE`.
const SWIZZLE_ENABLE: u32 = 1 << 31;
/// `SQ_BUF_RSRC_WORD3` of gfx9: `DST_SEL_*` X to W, `NUM_FORMAT` UINT, `DATA_FORMAT` 32,
/// `ELEMENT_SIZE` 4 bytes, `INDEX_STRIDE` 64, `ADD_TID_ENABLE`.
const WORD3: u32 = 4 | 5 << 3 | 6 << 6 | 7 << 9 | 4 << 12 | 4 << 15 | 1 << 19 | 3 << 21 | 1 << 23;

#[derive(Debug)]
pub(super) struct Scratch {
    memory: Memory,
    size: Size,
}

/// How much of it there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    lane_bytes: u32,
    /// In flight on one XCC.
    waves: u64,
    /// Of one XCC.
    bytes: u64,
}

impl Scratch {
    /// Memory for `bytes` of each work-item.
    pub(super) fn new(device: &Arc<Device>, bytes: u32) -> Result<Self> {
        let node = device.node();
        let size = Size::of(node, bytes)?;
        let whole = (size.bytes * node.xccs()) as usize;
        let flags = MemoryFlags::VRAM | MemoryFlags::WRITABLE | MemoryFlags::NO_SUBSTITUTE;
        let memory = Memory::allocate(device, whole, flags)?;
        Ok(Self { memory, size })
    }

    pub(super) fn lane_bytes(&self) -> u32 {
        self.size.lane_bytes
    }

    /// Tells the command processor.
    pub(super) fn describe(&self, descriptor: &Memory) {
        let (base, size) = (self.memory.address(), self.size);
        let wave_units = (u64::from(size.lane_bytes) * LANES / WAVE_UNIT) as u32;
        descriptor.write(
            COMPUTE_TMPRING_SIZE,
            &[size.waves as u32 | wave_units << 12],
        );
        let resource = [
            base as u32,
            (base >> 32) as u32 & 0xffff | SWIZZLE_ENABLE,
            size.bytes as u32,
            WORD3,
        ];
        descriptor.write(SCRATCH_RESOURCE_DESCRIPTOR, &resource);
        descriptor.write(SCRATCH_BACKING_MEMORY_LOCATION, &[base]);
        descriptor.write(SCRATCH_BACKING_MEMORY_BYTE_SIZE, &[size.bytes]);
        descriptor.write(SCRATCH_WAVE64_LANE_BYTE_SIZE, &[size.lane_bytes]);
    }
}

impl Size {
    /// For `bytes` of each work-item: whole units for a wave, and all waves that can have scratch,
    /// as far as the resource's NUM_RECORDS, 32 bits of bytes, reaches to the last of them. The
    /// shader engines of an XCC share them evenly.
    fn of(node: &Node, bytes: u32) -> Result<Self> {
        let most = (MOST_UNITS * WAVE_UNIT / LANES) as u32;
        if bytes > most {
            return Err(Error::Scratch(bytes, most));
        }
        let lane_bytes = bytes.next_multiple_of((WAVE_UNIT / LANES) as u32);
        let units = node.compute_units() / node.xccs() * node.property("max_slots_scratch_cu");
        let wave_bytes = u64::from(lane_bytes) * LANES;
        let reached = u64::from(u32::MAX) / wave_bytes.max(1);
        let engines = shader_engines(node);
        let waves = units.min(reached).min(MOST_WAVES) / engines * engines;
        let waves = waves.max(engines);
        let bytes = waves * wave_bytes;
        Ok(Self {
            lane_bytes,
            waves,
            bytes,
        })
    }
}

/// How many shader engines an XCC has. `array_count` is of all XCCs.
fn shader_engines(node: &Node) -> u64 {
    let arrays = node.property("array_count") / node.xccs();
    (arrays / node.property("simd_arrays_per_engine").max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(properties: &[(&str, u64)]) -> Node {
        let named = properties
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value));
        Node {
            id: 1,
            gpu_id: 7,
            name: String::new(),
            properties: named.collect(),
            memory: Vec::new(),
            caches: Vec::new(),
            links: Vec::new(),
        }
    }

    #[test]
    fn every_wave_of_an_xcc_has_whole_units() {
        let cus = [
            ("simd_count", 320),
            ("simd_per_cu", 4),
            ("num_xcc", 4),
            ("max_slots_scratch_cu", 32),
        ];
        let size = Size::of(&node(&cus), 17).expect("it is little");
        assert_eq!(
            size,
            Size {
                lane_bytes: 32,
                waves: 640,
                bytes: 640 * 2048
            }
        );
    }

    #[test]
    fn every_byte_is_within_the_resource() {
        let mi250 = [
            ("simd_count", 440),
            ("simd_per_cu", 4),
            ("num_xcc", 1),
            ("array_count", 8),
            ("simd_arrays_per_engine", 1),
            ("max_slots_scratch_cu", 32),
        ];
        let of = |bytes| Size::of(&node(&mi250), bytes).expect("it can be had");
        assert_eq!(of(16_000).waves, 3520, "all of them: 3.4 GiB");
        let size = of(20_000);
        assert!(u32::try_from(size.bytes).is_ok(), "{} bytes", size.bytes);
        assert_eq!((size.waves, size.bytes), (3352, 3352 * 20_000 * 64));
        assert!(u32::try_from(of(131_056).bytes).is_ok());
    }

    #[test]
    fn the_engines_of_an_xcc_have_the_same_number_of_waves() {
        let mi300 = [
            ("simd_count", 1216),
            ("simd_per_cu", 4),
            ("num_xcc", 8),
            ("array_count", 32),
            ("simd_arrays_per_engine", 1),
            ("max_slots_scratch_cu", 32),
        ];
        let of = |bytes| Size::of(&node(&mi300), bytes).expect("it can be had").waves;
        // 4294967295 bytes have room for 1118 waves.
        assert_eq!((of(16), of(60_000)), (1216, 1116));
        let large = mi300.map(|(name, value)| match name {
            "max_slots_scratch_cu" => (name, 1000),
            _ => (name, value),
        });
        let size = Size::of(&node(&large), 16).expect("it can be had");
        assert_eq!(size.waves, 4092, "of 4095");
    }

    #[test]
    fn what_the_register_cannot_say_is_refused() {
        assert!(Size::of(&node(&[]), 131_056).is_ok());
        assert!(Size::of(&node(&[]), 131_057).is_err());
    }
}
