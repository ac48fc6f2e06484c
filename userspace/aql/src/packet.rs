// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The 64-byte packets of the HSA platform system architecture, version 1.2, section 2.9.

use crate::{Error, Result};

/// A packet as the ring holds it. The first two bytes are the header, which is written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Packet(pub(crate) [u32; 16]);

/// Header bits 7:0, "packet type".
const KERNEL_DISPATCH: u32 = 2;
const BARRIER_AND: u32 = 3;
const BARRIER_OR: u32 = 5;
const VENDOR: u32 = 0;
/// The vendor packet's format, bits 23:16: an indirect buffer of PM4.
const PM4_IB: u32 = 1;
/// Header bit 8: wait until all packets before have completed.
const BARRIER: u32 = 1 << 8;
/// Header bits 10:9 and 12:11, acquire and release fence scope: 2 is the whole system.
const SYSTEM_FENCES: u32 = 2 << 9 | 2 << 11;

/// Runs a grid of work-items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelDispatch {
    /// Work-items in a work-group, for each dimension.
    pub workgroup: [u16; 3],
    /// Work-items in the grid, for each dimension.
    pub grid: [u32; 3],
    /// Bytes of scratch for each work-item.
    pub private_segment: u32,
    /// Bytes of local data share for each work-group.
    pub group_segment: u32,
    /// The address of the kernel's descriptor.
    pub kernel: u64,
    /// The address of its arguments.
    pub arguments: u64,
    /// The address of the signal that completion decrements, or 0.
    pub completion: u64,
    /// Whether to wait for all packets before.
    pub barrier: bool,
}

impl From<KernelDispatch> for Packet {
    fn from(dispatch: KernelDispatch) -> Self {
        let header = KERNEL_DISPATCH | SYSTEM_FENCES | if dispatch.barrier { BARRIER } else { 0 };
        let [x, y, z] = dispatch.workgroup.map(u32::from);
        let mut words = [0; 16];
        // Of a dimension that is not in use both sizes must be 1.
        let used = dimensions(dispatch.grid).max(dimensions(dispatch.workgroup.map(u32::from)));
        words[0] = header | used << 16;
        words[1] = x | y << 16;
        words[2] = z;
        words[3..6].copy_from_slice(&dispatch.grid);
        words[6] = dispatch.private_segment;
        words[7] = dispatch.group_segment;
        put(&mut words, 8, dispatch.kernel);
        put(&mut words, 10, dispatch.arguments);
        put(&mut words, 14, dispatch.completion);
        Packet(words)
    }
}

/// How many dimensions a grid or a work-group has: up to the last with more than one work-item.
pub(crate) fn dimensions(sizes: [u32; 3]) -> u32 {
    match sizes {
        [_, 0..=1, 0..=1] => 1,
        [_, _, 0..=1] => 2,
        _ => 3,
    }
}

/// Waits until all of up to five signals are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BarrierAnd {
    /// The signals' addresses; 0 for none.
    pub dependencies: [u64; 5],
    /// The address of the signal that completion decrements, or 0.
    pub completion: u64,
}

impl From<BarrierAnd> for Packet {
    fn from(barrier: BarrierAnd) -> Self {
        let mut words = [0; 16];
        words[0] = BARRIER_AND | SYSTEM_FENCES | BARRIER;
        for (index, dependency) in barrier.dependencies.into_iter().enumerate() {
            put(&mut words, 2 + 2 * index, dependency);
        }
        put(&mut words, 14, barrier.completion);
        Packet(words)
    }
}

/// Waits until one of up to five signals is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BarrierOr {
    /// The signals' addresses; 0 for none.
    pub dependencies: [u64; 5],
    /// The address of the signal that completion decrements, or 0.
    pub completion: u64,
}

impl BarrierAnd {
    /// A barrier on up to five signals, by their addresses.
    pub fn on(signals: &[u64]) -> Result<Self> {
        Ok(Self {
            dependencies: five(signals)?,
            completion: 0,
        })
    }
}

impl BarrierOr {
    /// A barrier on one of up to five signals, by their addresses.
    pub fn on(signals: &[u64]) -> Result<Self> {
        Ok(Self {
            dependencies: five(signals)?,
            completion: 0,
        })
    }
}

fn five(signals: &[u64]) -> Result<[u64; 5]> {
    if signals.len() > 5 {
        return Err(Error::Barrier(signals.len()));
    }
    let mut five = [0; 5];
    five[..signals.len()].copy_from_slice(signals);
    Ok(five)
}

impl From<BarrierOr> for Packet {
    fn from(barrier: BarrierOr) -> Self {
        let BarrierOr {
            dependencies,
            completion,
        } = barrier;
        let mut packet = Packet::from(BarrierAnd {
            dependencies,
            completion,
        });
        packet.0[0] += BARRIER_OR - BARRIER_AND;
        packet
    }
}

/// Has the command processor execute PM4 packets that lie elsewhere: AMD's vendor packet of format
/// 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pm4Buffer {
    /// Their address, a multiple of 4.
    pub address: u64,
    /// How many 32-bit words, at most 2^20 - 1.
    pub words: u32,
    /// The address of the signal that completion decrements, or 0.
    pub completion: u64,
}

impl From<Pm4Buffer> for Packet {
    fn from(buffer: Pm4Buffer) -> Self {
        // PACKET3_INDIRECT_BUFFER with three words behind it; its VALID bit; the words left in the
        // packet after it.
        const INDIRECT_BUFFER: u32 = 3 << 30 | 2 << 16 | 0x3f << 8;
        const VALID: u32 = 1 << 23;
        const LEFT: u32 = 10;
        let mut words = [0; 16];
        words[0] = VENDOR | SYSTEM_FENCES | BARRIER | PM4_IB << 16;
        words[1] = INDIRECT_BUFFER;
        put(&mut words, 2, buffer.address);
        words[4] = buffer.words & 0xf_ffff | VALID;
        words[5] = LEFT;
        put(&mut words, 14, buffer.completion);
        Packet(words)
    }
}

fn put(words: &mut [u32; 16], index: usize, value: u64) {
    words[index] = value as u32;
    words[index + 1] = (value >> 32) as u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dispatch() -> KernelDispatch {
        KernelDispatch {
            workgroup: [256, 1, 1],
            grid: [1000, 1, 1],
            private_segment: 0,
            group_segment: 1024,
            kernel: 0x1_2345_6789,
            arguments: 0x2000,
            completion: 0x3000,
            barrier: true,
        }
    }

    #[test]
    fn a_dispatch_with_barrier_and_system_fences_has_the_header_that_rocr_sends() {
        let Packet(words) = dispatch().into();
        assert_eq!(words[0], 0x1502 | 1 << 16);
        assert_eq!(words[1], 256 | 1 << 16);
        assert_eq!((words[8], words[9]), (0x2345_6789, 1));
    }

    #[test]
    fn dimensions_are_those_in_use() {
        let of = |grid| Packet::from(KernelDispatch { grid, ..dispatch() }).0[0] >> 16;
        assert_eq!(
            [of([8, 1, 1]), of([8, 2, 1]), of([8, 1, 2]), of([8, 2, 2])],
            [1, 2, 3, 3]
        );
        let of = |workgroup| {
            let dispatch = KernelDispatch {
                grid: [16, 1, 1],
                workgroup,
                ..dispatch()
            };
            Packet::from(dispatch).0[0] >> 16
        };
        assert_eq!(
            [of([16, 1, 1]), of([16, 16, 1]), of([4, 1, 4])],
            [1, 2, 3],
            "a work-group that is larger than the grid"
        );
    }

    #[test]
    fn a_barrier_names_its_dependencies() {
        let Packet(words) = BarrierAnd {
            dependencies: [0x10, 0, 0, 0, 0x50],
            completion: 0x60,
        }
        .into();
        assert_eq!(words[0] & 0xffff, 0x1503);
        assert_eq!((words[2], words[10], words[14]), (0x10, 0x50, 0x60));
    }

    #[test]
    fn a_barrier_has_room_for_five() {
        assert!(BarrierAnd::on(&[1; 6]).is_err());
        let Packet(words) = BarrierOr::on(&[1, 2]).expect("two fit").into();
        assert_eq!(words[0] & 0xff, 5);
        assert_eq!((words[2], words[4], words[6]), (1, 2, 0));
    }

    #[test]
    fn a_pm4_buffer_is_an_indirect_buffer() {
        let Packet(words) = Pm4Buffer {
            address: 0x1000,
            words: 8,
            completion: 0x3000,
        }
        .into();
        assert_eq!(words[0] & 0xff, 0);
        assert_eq!(words[1..6], [0xc002_3f00, 0x1000, 0, 0x80_0008, 10]);
    }
}
