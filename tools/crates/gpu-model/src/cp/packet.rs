// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! PM4 packets: how they are framed, and the table of those that there are ([`PACKETS`]).
//!
//! Source: `amdgpu/soc15d.h` (PACKET3_*) and `amdkfd/kfd_pm4_opcodes.h` (IT_*).

use super::pm4::{self, memory, shader, Cx, Outcome};
use super::sched;

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

/// What becomes of a packet.
#[derive(Clone, Copy)]
pub enum Run {
    /// This executes it.
    Executes(Handler),
    /// This executes it on the scheduling queues; others may not send it.
    Schedules(Handler),
    /// Hardware has it and the model does not: it is counted by its name.
    Lacks,
}
use Run::*;

/// Executes a packet whose body, without the header, is at least as long as the table says.
pub type Handler = fn(&mut Cx<'_>, &[u32]) -> Outcome;

/// All that there is to know of a type 3 packet before it is executed.
pub struct Packet {
    /// Opcode.
    pub op: u8,
    /// AMD's name, without prefix.
    pub name: &'static str,
    /// Dwords that its body has at least: no handler can index beyond.
    pub least: usize,
    /// What becomes of it.
    pub run: Run,
}

impl Packet {
    /// Whether a body is as long as it must be.
    pub const fn fits(&self, body: &[u32]) -> bool {
        body.len() >= self.least
    }
}

/// Declares the packets: `opcode NAME[least dwords of the body] => what becomes of it;`.
macro_rules! packets {
    ($($op:literal $name:ident[$least:literal] => $run:expr;)*) => {
        /// Opcodes by name.
        #[allow(missing_docs)] // The names are the documentation.
        pub mod op {
            $(pub const $name: u8 = $op;)*
        }

        /// All packets, by opcode. `Documentation/packets.md` says who sends them.
        pub static PACKETS: &[Packet] = &[
            $(Packet { op: $op, name: stringify!($name), least: $least, run: $run },)*
        ];
    };
}

packets! {
    0x10 NOP[0] => Executes(pm4::nothing);
    0x11 SET_BASE[0] => Lacks;
    0x12 CLEAR_STATE[0] => Executes(pm4::nothing);
    0x13 INDEX_BUFFER_SIZE[0] => Lacks;
    0x15 DISPATCH_DIRECT[4] => Executes(shader::dispatch_direct);
    0x16 DISPATCH_INDIRECT[2] => Executes(shader::dispatch_indirect);
    0x1d ATOMIC_GDS[0] => Lacks;
    0x1e ATOMIC_MEM[8] => Executes(memory::atomic_mem);
    0x1f OCCLUSION_QUERY[0] => Lacks;
    0x20 SET_PREDICATION[0] => Lacks;
    0x21 REG_RMW[0] => Lacks;
    0x22 COND_EXEC[4] => Executes(memory::cond_exec);
    0x23 PRED_EXEC[1] => Executes(pm4::pred_exec);
    0x28 CONTEXT_CONTROL[0] => Lacks;
    0x33 INDIRECT_BUFFER_CONST[0] => Lacks;
    0x37 WRITE_DATA[3] => Executes(memory::write_data);
    0x39 MEM_SEMAPHORE[0] => Lacks;
    0x3c WAIT_REG_MEM[6] => Executes(memory::wait_reg_mem);
    0x3f INDIRECT_BUFFER[3] => Executes(pm4::indirect_buffer);
    0x40 COPY_DATA[5] => Executes(memory::copy_data);
    0x42 PFP_SYNC_ME[0] => Executes(pm4::nothing);
    0x45 COND_WRITE[0] => Lacks;
    0x46 EVENT_WRITE[0] => Executes(pm4::nothing);
    0x49 RELEASE_MEM[7] => Executes(memory::release_mem);
    0x4a PREAMBLE_CNTL[0] => Lacks;
    0x50 DMA_DATA[6] => Executes(memory::dma_data);
    0x58 ACQUIRE_MEM[5] => Executes(pm4::acquire_mem);
    0x59 REWIND[0] => Lacks;
    0x5e LOAD_UCONFIG_REG[0] => Lacks;
    0x5f LOAD_SH_REG[0] => Lacks;
    0x60 LOAD_CONFIG_REG[0] => Lacks;
    0x61 LOAD_CONTEXT_REG[0] => Lacks;
    0x68 SET_CONFIG_REG[2] => Executes(pm4::set_config_reg);
    0x69 SET_CONTEXT_REG[0] => Lacks;
    0x73 SET_CONTEXT_REG_INDIRECT[0] => Lacks;
    0x76 SET_SH_REG[2] => Executes(shader::set_sh_reg);
    0x77 SET_SH_REG_OFFSET[0] => Lacks;
    0x78 SET_QUEUE_REG[0] => Lacks;
    0x79 SET_UCONFIG_REG[2] => Executes(pm4::set_uconfig_reg);
    0x7d SCRATCH_RAM_WRITE[0] => Lacks;
    0x7e SCRATCH_RAM_READ[0] => Lacks;
    0x8b SWITCH_BUFFER[0] => Lacks;
    0x90 FRAME_CONTROL[0] => Executes(pm4::nothing);
    0x93 WAIT_REG_MEM64[8] => Executes(memory::wait_reg_mem64);
    0x98 INVALIDATE_TLBS[1] => Schedules(sched::invalidate_tlbs);
    0xa0 SET_RESOURCES[7] => Schedules(sched::set_resources);
    0xa1 MAP_PROCESS[18] => Schedules(sched::map_process);
    0xa2 MAP_QUEUES[6] => Schedules(sched::map_queues);
    0xa3 UNMAP_QUEUES[5] => Schedules(sched::unmap_queues);
    0xa4 QUERY_STATUS[6] => Schedules(sched::query_status);
    0xa5 RUN_LIST[3] => Schedules(sched::run_list);
    0xa6 MAP_PROCESS_VM[0] => Lacks;
    0xd2 RUN_CLEANER_SHADER[0] => Executes(pm4::run_cleaner_shader);
}

/// The packet of a type 3 opcode, if hardware has it.
pub fn find(op: u8) -> Option<&'static Packet> {
    let at = PACKETS.binary_search_by_key(&op, |packet| packet.op);
    at.ok().map(|at| &PACKETS[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::packet::check_documented;

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
    fn the_table_is_in_the_order_of_opcodes() {
        let ordered = PACKETS.windows(2).all(|pair| pair[0].op < pair[1].op);
        assert!(ordered, "each opcode once, and found by a binary search");
    }

    #[test]
    fn packets_are_documented_as_they_are() {
        let is_modelled = |packet: &Packet| !matches!(packet.run, Lacks);
        let table = PACKETS.iter().map(|it| (it.name, is_modelled(it)));
        check_documented("PM4", &table.collect::<Vec<_>>());
    }
}
