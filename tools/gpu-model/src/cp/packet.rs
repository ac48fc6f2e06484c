// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The frame of PM4 packets: headers and opcode names. Pure; one [`Header`] per packet.
//!
//! Source: `amdgpu/soc15d.h` (PACKET3_*) and `amdkfd/kfd_pm4_opcodes.h` (IT_*).

/// A packet header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// PACKET_TYPE3: an opcode and `body` dwords after the header.
    Type3 {
        /// Opcode.
        op: u8,
        /// Dwords that follow.
        body: usize,
    },
    /// PACKET_TYPE2: one dword of padding.
    Type2,
    /// PACKET_TYPE0 and 1: register writes of old hardware, illegal for compute.
    Other(u32),
}

impl Header {
    /// Splits a header dword. A count of 0x3fff says "no body": that is how rings are padded with
    /// NOP.
    pub const fn decode(dword: u32) -> Self {
        match dword >> 30 {
            3 => {
                let count = (dword >> 16) & 0x3fff;
                let body = if count == 0x3fff {
                    0
                } else {
                    count as usize + 1
                };
                Header::Type3 {
                    op: (dword >> 8) as u8,
                    body,
                }
            }
            2 => Header::Type2,
            _ => Header::Other(dword),
        }
    }
}

/// Opcodes by name.
#[allow(missing_docs)] // The names are the documentation.
pub mod op {
    pub const NOP: u8 = 0x10;
    pub const CLEAR_STATE: u8 = 0x12;
    pub const DISPATCH_DIRECT: u8 = 0x15;
    pub const DISPATCH_INDIRECT: u8 = 0x16;
    pub const ATOMIC_MEM: u8 = 0x1e;
    pub const COND_EXEC: u8 = 0x22;
    pub const PRED_EXEC: u8 = 0x23;
    pub const WRITE_DATA: u8 = 0x37;
    pub const WAIT_REG_MEM: u8 = 0x3c;
    pub const INDIRECT_BUFFER: u8 = 0x3f;
    pub const COPY_DATA: u8 = 0x40;
    pub const PFP_SYNC_ME: u8 = 0x42;
    pub const EVENT_WRITE: u8 = 0x46;
    pub const RELEASE_MEM: u8 = 0x49;
    pub const DMA_DATA: u8 = 0x50;
    pub const ACQUIRE_MEM: u8 = 0x58;
    pub const SET_CONFIG_REG: u8 = 0x68;
    pub const SET_SH_REG: u8 = 0x76;
    pub const SET_UCONFIG_REG: u8 = 0x79;
    pub const FRAME_CONTROL: u8 = 0x90;
    pub const WAIT_REG_MEM64: u8 = 0x93;
    pub const INVALIDATE_TLBS: u8 = 0x98;
    pub const SET_RESOURCES: u8 = 0xa0;
    pub const MAP_PROCESS: u8 = 0xa1;
    pub const MAP_QUEUES: u8 = 0xa2;
    pub const UNMAP_QUEUES: u8 = 0xa3;
    pub const QUERY_STATUS: u8 = 0xa4;
    pub const RUN_LIST: u8 = 0xa5;
    pub const RUN_CLEANER_SHADER: u8 = 0xd2;
}

const NAMES: &[(u8, &str)] = &[
    (op::NOP, "NOP"),
    (0x11, "SET_BASE"),
    (op::CLEAR_STATE, "CLEAR_STATE"),
    (0x13, "INDEX_BUFFER_SIZE"),
    (op::DISPATCH_DIRECT, "DISPATCH_DIRECT"),
    (op::DISPATCH_INDIRECT, "DISPATCH_INDIRECT"),
    (0x1d, "ATOMIC_GDS"),
    (op::ATOMIC_MEM, "ATOMIC_MEM"),
    (0x1f, "OCCLUSION_QUERY"),
    (0x20, "SET_PREDICATION"),
    (0x21, "REG_RMW"),
    (op::COND_EXEC, "COND_EXEC"),
    (op::PRED_EXEC, "PRED_EXEC"),
    (0x28, "CONTEXT_CONTROL"),
    (0x33, "INDIRECT_BUFFER_CONST"),
    (op::WRITE_DATA, "WRITE_DATA"),
    (0x39, "MEM_SEMAPHORE"),
    (op::WAIT_REG_MEM, "WAIT_REG_MEM"),
    (op::INDIRECT_BUFFER, "INDIRECT_BUFFER"),
    (op::COPY_DATA, "COPY_DATA"),
    (op::PFP_SYNC_ME, "PFP_SYNC_ME"),
    (0x45, "COND_WRITE"),
    (op::EVENT_WRITE, "EVENT_WRITE"),
    (op::RELEASE_MEM, "RELEASE_MEM"),
    (0x4a, "PREAMBLE_CNTL"),
    (op::DMA_DATA, "DMA_DATA"),
    (op::ACQUIRE_MEM, "ACQUIRE_MEM"),
    (0x59, "REWIND"),
    (0x5e, "LOAD_UCONFIG_REG"),
    (0x5f, "LOAD_SH_REG"),
    (0x60, "LOAD_CONFIG_REG"),
    (0x61, "LOAD_CONTEXT_REG"),
    (op::SET_CONFIG_REG, "SET_CONFIG_REG"),
    (0x69, "SET_CONTEXT_REG"),
    (0x73, "SET_CONTEXT_REG_INDIRECT"),
    (op::SET_SH_REG, "SET_SH_REG"),
    (0x77, "SET_SH_REG_OFFSET"),
    (0x78, "SET_QUEUE_REG"),
    (op::SET_UCONFIG_REG, "SET_UCONFIG_REG"),
    (0x7d, "SCRATCH_RAM_WRITE"),
    (0x7e, "SCRATCH_RAM_READ"),
    (0x8b, "SWITCH_BUFFER"),
    (op::FRAME_CONTROL, "FRAME_CONTROL"),
    (op::WAIT_REG_MEM64, "WAIT_REG_MEM64"),
    (op::INVALIDATE_TLBS, "INVALIDATE_TLBS"),
    (op::SET_RESOURCES, "SET_RESOURCES"),
    (op::MAP_PROCESS, "MAP_PROCESS"),
    (op::MAP_QUEUES, "MAP_QUEUES"),
    (op::UNMAP_QUEUES, "UNMAP_QUEUES"),
    (op::QUERY_STATUS, "QUERY_STATUS"),
    (op::RUN_LIST, "RUN_LIST"),
    (0xa6, "MAP_PROCESS_VM"),
    (op::RUN_CLEANER_SHADER, "RUN_CLEANER_SHADER"),
];

/// Name of a type 3 opcode, if hardware has it.
pub fn name(op: u8) -> Option<&'static str> {
    NAMES
        .iter()
        .find(|(known, _)| *known == op)
        .map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_decode_and_the_padding_nop_has_no_body() {
        assert_eq!(
            Header::decode(0xffff_1000),
            Header::Type3 {
                op: op::NOP,
                body: 0
            }
        );
        assert_eq!(
            Header::decode(0xc003_3700),
            Header::Type3 {
                op: op::WRITE_DATA,
                body: 4
            }
        );
        assert_eq!(Header::decode(0x8000_0000), Header::Type2);
        assert_eq!(Header::decode(0x0001_0000), Header::Other(0x0001_0000));
    }

    #[test]
    fn no_opcode_is_named_twice() {
        for (at, (opcode, _)) in NAMES.iter().enumerate() {
            assert!(
                NAMES[at + 1..].iter().all(|(other, _)| other != opcode),
                "{opcode:#x}"
            );
        }
    }
}
