// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The 64-byte packets of the HSA platform system architecture, version 1.2, section 2.9.

/// A packet as the ring holds it. The first two bytes are the header, which is written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Packet(pub(crate) [u32; 16]);

/// Header bits 7:0, "packet type".
const KERNEL_DISPATCH: u32 = 2;
const BARRIER_AND: u32 = 3;
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
        words[0] = header | dimensions(dispatch.grid) << 16;
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

/// How many dimensions a grid has: up to the last with more than one work-item.
pub(crate) fn dimensions(grid: [u32; 3]) -> u32 {
    match grid {
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
}
