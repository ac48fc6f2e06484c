// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The trusted application (TA) that describes the GPU's hive to the driver. The driver puts a
//! command into a buffer that both see, invokes it, and finds the answer there. Stateless: what it
//! knows is the [`Hive`].
//!
//! Commands and layouts as in `linux:drivers/gpu/drm/amd/amdgpu/ta_xgmi_if.h`.

use crate::gmc::{Refusal, Vm};
use crate::hive::{Hive, MAX_NODES};

/// What its binary begins with, in our firmware file.
pub const MARK: &[u8; 8] = b"XGMI-TA:";

/// `enum ta_command_xgmi`.
mod command {
    pub const INITIALIZE: u32 = 0;
    pub const GET_NODE_ID: u32 = 1;
    pub const GET_HIVE_ID: u32 = 2;
    pub const GET_TOPOLOGY_INFO: u32 = 3;
    pub const SET_TOPOLOGY_INFO: u32 = 4;
    pub const GET_PEER_LINKS: u32 = 0xb;
    pub const GET_EXTEND_PEER_LINKS: u32 = 0xc;
}

/// `enum ta_xgmi_status`.
mod status {
    pub const SUCCESS: u32 = 0;
    pub const GENERIC_FAILURE: u32 = 1;
    pub const INVALID_NODE_NUM: u32 = 5;
    pub const INVALID_NODE_ID: u32 = 6;
}

/// Offsets in `struct ta_xgmi_shared_memory`: cmd_id, resp_id, xgmi_status, flag_extend_link_record
/// and caps_flag, xgmi_in_message, xgmi_out_message.
const COMMAND: u64 = 0;
const RESPONSE: u64 = 4;
const STATUS: u64 = 8;
const EXTENDED: u64 = 12;
const CAPABILITIES: u64 = 13;
const INPUT: u64 = 16;
const OUTPUT: u64 = 1048;
/// In the messages with nodes: the first one behind `num_nodes`.
const NODES: u64 = 8;
/// Bytes of `struct ta_xgmi_node_info`, `ta_xgmi_peer_link_info` and
/// `ta_xgmi_extend_peer_link_info`.
const NODE: u64 = 16;
const LINKS: u64 = 16;
const EXTEND_LINKS: u64 = 32;
/// `EXTEND_PEER_LINK_INFO_CMD_FLAG`: it says which ports are connected.
const KNOWS_PORTS: u8 = 1;
/// `RSP_ID_MASK`.
const ANSWERED: u32 = 1 << 31;
/// `TA_XGMI_ASSIGNED_SDMA_ENGINE__NOT_ASSIGNED`.
const NO_ENGINE: u32 = u32::MAX;

/// The application at work: a hive and the buffer.
struct Session<'a, 'b> {
    hive: &'a Hive,
    vm: &'a mut Vm<'b>,
    buffer: u64,
}

/// Does what the buffer says, and answers there.
pub fn invoke(hive: &Hive, vm: &mut Vm<'_>, buffer: u64) -> Result<(), Refusal> {
    let mut session = Session { hive, vm, buffer };
    let id = session.read(COMMAND)?;
    let status = session.run(id)?;
    tracing::debug!(target: "psp", "XGMI command {id:#x}: status {status}");
    session.write(RESPONSE, id | ANSWERED)?;
    session.write(STATUS, status)
}

impl Session<'_, '_> {
    fn read(&mut self, at: u64) -> Result<u32, Refusal> {
        self.vm.read_u32(self.buffer.wrapping_add(at))
    }

    fn write(&mut self, at: u64, value: u32) -> Result<(), Refusal> {
        self.vm.write_u32(self.buffer.wrapping_add(at), value)
    }

    fn write64(&mut self, at: u64, value: u64) -> Result<(), Refusal> {
        self.vm.write_u64(self.buffer.wrapping_add(at), value)
    }

    fn bytes(&mut self, at: u64, bytes: &[u8]) -> Result<(), Refusal> {
        self.vm.write(self.buffer.wrapping_add(at), bytes)
    }

    /// All links fit the first set of records: the driver asks for a second one, which is empty.
    fn is_second_set(&mut self) -> Result<bool, Refusal> {
        Ok(self.read(EXTENDED & !3)? & 0xff != 0)
    }

    fn run(&mut self, id: u32) -> Result<u32, Refusal> {
        match id {
            command::INITIALIZE => self.bytes(CAPABILITIES, &[KNOWS_PORTS])?,
            command::GET_NODE_ID => {
                let own = self.hive.node_id(self.hive.node());
                self.write64(OUTPUT, own)?;
            }
            command::GET_HIVE_ID => self.write64(OUTPUT, self.hive.id())?,
            command::GET_TOPOLOGY_INFO => return self.topology(),
            command::SET_TOPOLOGY_INFO => {
                return Ok(self.nodes(INPUT, NODE)?.err().unwrap_or(status::SUCCESS))
            }
            command::GET_PEER_LINKS => return self.links(LINKS),
            command::GET_EXTEND_PEER_LINKS => return self.links(EXTEND_LINKS),
            _ => {
                tracing::warn!(target: "psp", "XGMI command {id:#x} is not modelled");
                return Ok(status::GENERIC_FAILURE);
            }
        }
        Ok(status::SUCCESS)
    }

    /// The nodes that a message names, or what is wrong with it.
    fn nodes(&mut self, message: u64, size: u64) -> Result<Result<Vec<u8>, u32>, Refusal> {
        let count = self.read(message)?;
        if count == 0 || count as usize > MAX_NODES {
            return Ok(Err(status::INVALID_NODE_NUM));
        }
        let mut nodes = Vec::new();
        for index in 0..u64::from(count) {
            let at = self.buffer.wrapping_add(message + NODES + index * size);
            let Some(node) = self.hive.node_of(self.vm.read_u64(at)?) else {
                return Ok(Err(status::INVALID_NODE_ID));
            };
            nodes.push(node);
        }
        Ok(Ok(nodes))
    }

    /// Every node is one hop from every other.
    fn topology(&mut self) -> Result<u32, Refusal> {
        let nodes = match self.nodes(INPUT, NODE)? {
            Ok(nodes) => nodes,
            Err(status) => return Ok(status),
        };
        self.write(OUTPUT, nodes.len() as u32)?;
        for (index, node) in (0..).zip(nodes) {
            let at = OUTPUT + NODES + index * NODE;
            let hops = u32::from(node != self.hive.node());
            let sharing = 1 << 8;
            self.write64(at, self.hive.node_id(node))?;
            self.write(at + 8, hops | sharing)?;
            self.write(at + 12, NO_ENGINE)?;
        }
        Ok(status::SUCCESS)
    }

    /// One link to each of the nodes that the answer's room names.
    fn links(&mut self, size: u64) -> Result<u32, Refusal> {
        let nodes = match self.nodes(OUTPUT, size)? {
            Ok(nodes) => nodes,
            Err(status) => return Ok(status),
        };
        let second = self.is_second_set()?;
        for (index, node) in (0..).zip(nodes) {
            let at = OUTPUT + NODES + index * size + 8;
            let own = self.hive.node();
            let links = u8::from(node != own && !second);
            self.bytes(at, &[links])?;
            if size == EXTEND_LINKS && links != 0 {
                // xgmi_connected_port_num: the peer's port, then ours.
                self.bytes(at + 1, &[port(node, own), port(own, node)])?;
            }
        }
        Ok(status::SUCCESS)
    }
}

/// The port by which a node is connected with another one: they are in the order of the other
/// nodes.
const fn port(node: u8, peer: u8) -> u8 {
    if peer > node {
        peer - 1
    } else {
        peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gmc::Hub;
    use crate::memory::HeapMemory;
    use crate::rig::{Rig, FB, VRAM};
    use std::sync::Arc;

    /// Node 1 of three.
    fn rig() -> Rig {
        let memory = || Arc::new(HeapMemory::new(VRAM as usize)) as Arc<_>;
        let hive = Hive::new(1, VRAM, vec![memory(), memory(), memory()]);
        Rig::in_hive(hive.expect("a hive of three"))
    }

    const AT: u64 = 0x8000;

    fn run(rig: &Rig, command: u32) -> u32 {
        let chip = rig.chip();
        rig.vram().write_u32(AT + COMMAND, command).unwrap();
        let hive = chip.hive.as_ref().unwrap();
        invoke(hive, &mut chip.vm(Hub::Mm, 0), FB + VRAM + AT).unwrap();
        assert_eq!(
            rig.vram().read_u32(AT + RESPONSE),
            Ok(command | 0x8000_0000)
        );
        rig.vram().read_u32(AT + STATUS).unwrap()
    }

    fn name(rig: &Rig, message: u64, size: u64, nodes: &[u8]) {
        let hive = rig.chip().hive.as_ref().unwrap();
        rig.vram()
            .write_u32(AT + message, nodes.len() as u32)
            .unwrap();
        for (index, node) in (0..).zip(nodes) {
            let at = AT + message + NODES + index * size;
            rig.vram().write_u64(at, hive.node_id(*node)).unwrap();
        }
    }

    fn byte(rig: &Rig, at: u64) -> u8 {
        let mut byte = [0];
        rig.vram()
            .read(AT + OUTPUT + NODES + at, &mut byte)
            .unwrap();
        byte[0]
    }

    #[test]
    fn it_tells_who_and_where_the_gpu_is() {
        let rig = rig();
        assert_eq!(run(&rig, command::INITIALIZE), status::SUCCESS);
        assert_eq!(rig.vram().read_u32(AT + 12), Ok(0x100));
        assert_eq!(run(&rig, command::GET_HIVE_ID), status::SUCCESS);
        let hive = rig.vram().read_u64(AT + OUTPUT).unwrap();
        assert_eq!(run(&rig, command::GET_NODE_ID), status::SUCCESS);
        assert_eq!(rig.vram().read_u64(AT + OUTPUT), Ok(hive + 2));
        assert_eq!(run(&rig, 0x77), status::GENERIC_FAILURE);
    }

    #[test]
    fn peers_are_a_hop_and_a_link_away() {
        let rig = rig();
        name(&rig, INPUT, NODE, &[2, 1, 0]);
        assert_eq!(run(&rig, command::SET_TOPOLOGY_INFO), status::SUCCESS);
        assert_eq!(run(&rig, command::GET_TOPOLOGY_INFO), status::SUCCESS);
        assert_eq!([8, 24, 40].map(|at| byte(&rig, at)), [1, 0, 1], "hops");
        assert_eq!([9, 25, 41].map(|at| byte(&rig, at)), [1; 3], "sharing");
        name(&rig, OUTPUT, LINKS, &[2, 1, 0]);
        assert_eq!(run(&rig, command::GET_PEER_LINKS), status::SUCCESS);
        assert_eq!([8, 24, 40].map(|at| byte(&rig, at)), [1, 0, 1]);
        name(&rig, OUTPUT, EXTEND_LINKS, &[2, 0]);
        assert_eq!(run(&rig, command::GET_EXTEND_PEER_LINKS), status::SUCCESS);
        assert_eq!([8, 9, 10].map(|at| byte(&rig, at)), [1, 1, 1]);
        assert_eq!([40, 41, 42].map(|at| byte(&rig, at)), [1, 0, 0]);
        // The second set of records.
        rig.vram().write_u32(AT + EXTENDED, 1).unwrap();
        assert_eq!(run(&rig, command::GET_EXTEND_PEER_LINKS), status::SUCCESS);
        assert_eq!([byte(&rig, 8), byte(&rig, 40)], [0, 0]);
    }

    #[test]
    fn nodes_that_are_not_there_are_refused() {
        let rig = rig();
        name(&rig, INPUT, NODE, &[]);
        assert_eq!(
            run(&rig, command::GET_TOPOLOGY_INFO),
            status::INVALID_NODE_NUM
        );
        rig.vram().write_u32(AT + INPUT, 65).unwrap();
        assert_eq!(
            run(&rig, command::SET_TOPOLOGY_INFO),
            status::INVALID_NODE_NUM
        );
        name(&rig, INPUT, NODE, &[0, 3]);
        assert_eq!(
            run(&rig, command::GET_TOPOLOGY_INFO),
            status::INVALID_NODE_ID
        );
    }
}
