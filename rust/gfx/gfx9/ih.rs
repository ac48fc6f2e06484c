// SPDX-License-Identifier: GPL-2.0-only

//! Entries of the interrupt handler's (IH) ring: OSSSYS 4.0 to 4.4, 32 bytes each.
//!
//! Where a field lies is said by `soc15_int.h`; who sends (`client`) by `soc15_ih_clientid.h`. The
//! data of a shader interrupt (SQ) is spread over the two context words.

use crate::gfx::{
    field::Field,
    IhFormat,
    IhSource,
    Interrupt,
    WaveError,
    IH_ENTRY_DWORDS, //
};
use crate::ids::{
    Pasid,
    Vmid, //
};

/// Up to graphics core 9.4.2.
pub(super) const PLAIN: &dyn IhFormat = &Ih { has_nodes: false };
/// Since graphics core 9.4.3.
pub(super) const NODES: &dyn IhFormat = &Ih { has_nodes: true };

struct Ih {
    /// Entries name the hardware node that sent them.
    has_nodes: bool,
}

/// Word 0 and word 3 of an entry.
pub(in crate::gfx) mod entry {
    use super::Field;
    pub(in crate::gfx) const CLIENT_ID: Field = Field::bits(7, 0);
    pub(in crate::gfx) const SOURCE_ID: Field = Field::bits(15, 8);
    pub(in crate::gfx) const RING_ID: Field = Field::bits(23, 16);
    pub(in crate::gfx) const VMID: Field = Field::bits(27, 24);
    pub(in crate::gfx) const PASID: Field = Field::bits(15, 0);
    pub(in crate::gfx) const NODEID: Field = Field::bits(23, 16);
}

/// `SOC15_IH_CLIENTID_*`: on this generation eight copy engines share numbers with other blocks.
pub(in crate::gfx) mod client {
    pub(in crate::gfx) const SDMA: [u32; 8] = [0x08, 0x09, 0x01, 0x04, 0x05, 0x11, 0x13, 0x18];
    /// `SE0SH` to `SE3SH`.
    pub(in crate::gfx) const SHADER_ENGINES: core::ops::RangeInclusive<u32> = 0x0a..=0x0d;
    /// `VMC1`, `VMC` and `UTCL2`.
    pub(in crate::gfx) const VM: [u32; 3] = [0x06, 0x12, 0x1b];
    pub(in crate::gfx) const GRBM_CP: u32 = 0x14;
    /// Not a block: `KFD_IRQ_FENCE_CLIENTID`.
    pub(in crate::gfx) const FENCE: u32 = 0xff;
}

/// `SOC15_INTSRC_*`.
pub(in crate::gfx) mod source {
    pub(in crate::gfx) const VMC_UTCL2_POISON: u32 = 1;
    pub(in crate::gfx) const CP_END_OF_PIPE: u32 = 181;
    pub(in crate::gfx) const CP_BAD_OPCODE: u32 = 183;
    pub(in crate::gfx) const SDMA_ECC: u32 = 220;
    pub(in crate::gfx) const SDMA_TRAP: u32 = 224;
    pub(in crate::gfx) const SQ_INTERRUPT_MSG: u32 = 239;
    /// `KFD_IRQ_FENCE_SOURCEID`
    pub(in crate::gfx) const FENCE: u32 = 0xff;
}

/// `SQ_INTERRUPT_WORD_*_CTXID`: the first context word of a shader interrupt.
mod sq {
    use super::Field;
    pub(super) const PRIV: Field = Field::bit(13);
    pub(super) const ENCODING: Field = Field::bits(27, 26);
    pub(super) const ENCODING_INST: u32 = 1;
    pub(super) const ENCODING_ERROR: u32 = 2;
    /// Of the 24 bits of data: what kind of error.
    pub(super) const ERR_TYPE: Field = Field::bits(23, 20);
    pub(super) const ERR_ILLEGAL_INST: u32 = 1;
    pub(super) const ERR_MEMVIOL: u32 = 2;
}

/// `RING_ID` of a memory fault tells about the access.
pub(in crate::gfx) mod fault {
    use super::Field;
    pub(in crate::gfx) const VALID: Field = Field::bit(3);
    pub(in crate::gfx) const READ: Field = Field::bit(4);
    pub(in crate::gfx) const WRITE: Field = Field::bit(5);
}

/// The first context word of CP_BAD_OPCODE.
pub(in crate::gfx) mod bad_opcode {
    use super::Field;
    pub(in crate::gfx) const DOORBELL_ID: Field = Field::bits(9, 0);
    pub(in crate::gfx) const ECODE: Field = Field::bits(25, 10);
}

/// Bits of context that a TRAP packet carries.
pub(in crate::gfx) const SDMA_CONTEXT: Field = Field::bits(27, 0);

/// The 24 bits that a wave sent: `{context_id1[7:0], context_id0[31:28], context_id0[11:0]}`.
fn sq_data(context0: u32, context1: u32) -> u32 {
    context0 & 0xfff | context0 >> 16 & 0xf000 | (context1 & 0xff) << 16
}

fn shader(pasid: Pasid, client: u32, context0: u32, context1: u32) -> Option<Interrupt> {
    let data = sq_data(context0, context1);

    match sq::ENCODING.get(context0) {
        sq::ENCODING_INST => Some(Interrupt::WaveMessage {
            pasid,
            data,
            privileged: sq::PRIV.get(context0) != 0,
        }),
        sq::ENCODING_ERROR => match sq::ERR_TYPE.get(data) {
            sq::ERR_ILLEGAL_INST => Some(WaveError::IllegalInstruction),
            sq::ERR_MEMVIOL => Some(WaveError::MemoryViolation),
            _ => None,
        }
        .map_or(
            Some(Interrupt::Poison {
                pasid,
                client: client as u8,
            }),
            |error| Some(Interrupt::WaveError { pasid, data, error }),
        ),
        // ENCODING_AUTO, and the value that has no name: its data names an event as well.
        _ => Some(Interrupt::SqAuto {
            pasid,
            status: context0,
            data,
        }),
    }
}

pub(in crate::gfx) fn fault(words: &[u32; IH_ENTRY_DWORDS], pasid: Pasid, vmid: Vmid) -> Interrupt {
    let access = entry::RING_ID.get(words[0]);
    let page = u64::from(words[4]) | u64::from(words[5] & 0xf) << 32;

    Interrupt::VmFault {
        pasid,
        vmid,
        va: page << 12,
        not_present: fault::VALID.get(access) != 0,
        read: fault::READ.get(access) != 0,
        write: fault::WRITE.get(access) != 0,
    }
}

impl IhFormat for Ih {
    fn decode(&self, words: &[u32; IH_ENTRY_DWORDS]) -> Option<Interrupt> {
        let client = entry::CLIENT_ID.get(words[0]);
        let source = entry::SOURCE_ID.get(words[0]);
        let vmid = Vmid::new(entry::VMID.get(words[0]) as u8)?;
        // An entry without a process is nobody's: the firmware sends none for user queues.
        let pasid = Pasid::new(entry::PASID.get(words[3]))?;
        let (context0, context1) = (words[4], words[5]);
        // The firmware also sends end-of-pipe with no event in it: not a signal.
        if source == source::CP_END_OF_PIPE && context0 == 0 {
            return None;
        }
        let poison = Some(Interrupt::Poison {
            pasid,
            client: client as u8,
        });

        match (client, source) {
            (client::FENCE, source::FENCE) => Some(Interrupt::Fence { pasid }),
            (c, _) if client::VM.contains(&c) => match source {
                source::VMC_UTCL2_POISON => poison,
                _ => Some(fault(words, pasid, vmid)),
            },
            (c, source::SDMA_TRAP) if client::SDMA.contains(&c) => Some(Interrupt::SdmaTrap {
                pasid,
                context_id: SDMA_CONTEXT.get(context0),
            }),
            (c, source::SDMA_ECC) if client::SDMA.contains(&c) => poison,
            (c, source) if c == client::GRBM_CP || client::SHADER_ENGINES.contains(&c) => {
                match source {
                    source::CP_END_OF_PIPE => Some(Interrupt::EndOfPipe {
                        pasid,
                        context_id: context0,
                    }),
                    source::SQ_INTERRUPT_MSG => shader(pasid, client, context0, context1),
                    source::CP_BAD_OPCODE => Some(Interrupt::BadPacket {
                        pasid,
                        doorbell: bad_opcode::DOORBELL_ID.get(context0),
                        exception: bad_opcode::ECODE.get(context0),
                    }),
                    _ => None,
                }
            }
            (_, _) => None,
        }
    }

    fn with_pasid(
        &self,
        entry: &[u32; IH_ENTRY_DWORDS],
        pasid: Pasid,
    ) -> Option<[u32; IH_ENTRY_DWORDS]> {
        let mut named = *entry;
        if entry::PASID.get(entry[3]) != 0 {
            return None;
        }
        named[3] = entry::PASID.replace(entry[3], pasid.raw());
        Some(named)
    }

    fn source(&self, words: &[u32; IH_ENTRY_DWORDS]) -> Option<IhSource> {
        Some(IhSource {
            node: if self.has_nodes {
                entry::NODEID.get(words[3])
            } else {
                0
            },
            vmid: Vmid::new(entry::VMID.get(words[0]) as u8)?,
            fence: entry::CLIENT_ID.get(words[0]) == client::FENCE
                && entry::SOURCE_ID.get(words[0]) == source::FENCE,
        })
    }

    fn message_bits(&self) -> u32 {
        24
    }

    fn node_bitmap(&self, xcc_mask: u32) -> u32 {
        if !self.has_nodes {
            return 1;
        }
        // Four node numbers an active interposer die (AID): itself, its two XCCs, one unused. An
        // XCC hears its own and its AID's.
        (0..16)
            .filter(|xcc| xcc_mask & 1 << xcc != 0)
            .fold(0, |bitmap, xcc| {
                let own = if xcc % 2 == 0 { 0b011 } else { 0b101 };
                bitmap | own << (4 * (xcc / 2))
            })
    }
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_gfx9_ih))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::*;
    use crate::gfx::testing::known;

    const PASID: u32 = 0x8001;

    fn pasid() -> Pasid {
        known(Pasid::new(PASID))
    }

    /// An entry for VMID 8 of hardware node 2.
    fn entry(client: u32, source: u32, context0: u32, context1: u32) -> [u32; 8] {
        let word0 = 8 << 24 | source << 8 | client;
        [word0, 0, 0, 2 << 16 | PASID, context0, context1, 0, 0]
    }

    fn decode(client: u32, source: u32, context0: u32, context1: u32) -> Option<Interrupt> {
        NODES.decode(&entry(client, source, context0, context1))
    }

    #[test]
    fn end_of_pipe_carries_an_event() {
        let expected = Interrupt::EndOfPipe {
            pasid: pasid(),
            context_id: 0x1005,
        };
        assert_eq!(decode(0x14, 181, 0x1005, 0), Some(expected));
        assert_eq!(decode(0x0b, 181, 0x1005, 0), Some(expected));
        assert_eq!(decode(0x14, 181, 0, 0), None);
    }

    #[test]
    fn an_entry_that_names_no_process_is_given_one() {
        let unnamed = [8 << 24 | 181 << 8 | 0x14, 0, 0, 2 << 16, 0x1005, 0, 0, 0];
        assert_eq!(NODES.decode(&unnamed), None);
        let named = NODES.with_pasid(&unnamed, pasid());
        assert_eq!(named, Some(entry(0x14, 181, 0x1005, 0)));
        let other = known(Pasid::new(7));
        assert_eq!(NODES.with_pasid(&entry(0x14, 181, 0x1005, 0), other), None);
    }

    #[test]
    fn every_copy_engine_traps() {
        let expected = Interrupt::SdmaTrap {
            pasid: pasid(),
            context_id: 0x0fff_fff1,
        };
        for client in [0x08, 0x09, 0x01, 0x04, 0x05, 0x11, 0x13, 0x18] {
            assert_eq!(decode(client, 224, 0xffff_fff1, 0), Some(expected));
        }
        assert_eq!(decode(0x14, 224, 1, 0), None);
    }

    #[test]
    fn wave_data_is_put_together() {
        let context0 = 1 << 26 | 0xa << 28 | 1 << 13 | 0xbcd;
        let expected = Interrupt::WaveMessage {
            pasid: pasid(),
            data: 0x12_abcd,
            privileged: true,
        };
        assert_eq!(decode(0x14, 239, context0, 0x12), Some(expected));
    }

    #[test]
    fn what_no_wave_sent_names_an_event() {
        for encoding in [0, 3] {
            let context0 = encoding << 26 | 0xbcd;
            let expected = Interrupt::SqAuto {
                pasid: pasid(),
                status: context0,
                data: 0x12_0bcd,
            };
            assert_eq!(decode(0x14, 239, context0, 0x12), Some(expected));
        }
    }

    #[test]
    fn wave_errors_and_poison() {
        let error = |kind: u32| decode(0x0a, 239, 2 << 26, kind << 4);
        let expected = |error, data| Interrupt::WaveError {
            pasid: pasid(),
            data,
            error,
        };
        assert_eq!(
            error(1),
            Some(expected(WaveError::IllegalInstruction, 0x10_0000))
        );
        assert_eq!(
            error(2),
            Some(expected(WaveError::MemoryViolation, 0x20_0000))
        );
        assert_eq!(
            error(3),
            Some(Interrupt::Poison {
                pasid: pasid(),
                client: 0x0a
            })
        );
        assert_eq!(
            decode(0x08, 220, 0, 0),
            Some(Interrupt::Poison {
                pasid: pasid(),
                client: 0x08
            })
        );
    }

    #[test]
    fn a_fault_tells_address_and_access() {
        // The page's number has 36 bits; what else is in the word is not of the address.
        let mut words = entry(0x1b, 0, 0x2345_6789, 0xf3);
        words[0] |= 0x28 << 16;
        let expected = Interrupt::VmFault {
            pasid: pasid(),
            vmid: known(Vmid::new(8)),
            va: 0x3234_5678_9000,
            not_present: true,
            read: false,
            write: true,
        };
        assert_eq!(NODES.decode(&words), Some(expected));
    }

    #[test]
    fn bad_packets_name_the_queue() {
        let expected = Interrupt::BadPacket {
            pasid: pasid(),
            doorbell: 0x155,
            exception: 20,
        };
        assert_eq!(decode(0x14, 183, 20 << 10 | 0x155, 0), Some(expected));
    }

    #[test]
    fn others_are_not_ours() {
        assert_eq!(decode(0x14, 178, 0, 0), None);
        assert_eq!(decode(0x1f, 0, 0, 0), None);
        let mut nobody = entry(0x14, 181, 1, 0);
        nobody[3] = 0;
        assert_eq!(NODES.decode(&nobody), None);
    }

    #[test]
    fn a_fence_comes_back() {
        let fence = Some(Interrupt::Fence { pasid: pasid() });
        assert_eq!(decode(0xff, 0xff, 0, 0), fence);
    }

    #[test]
    fn partitions_hear_their_own_dies() {
        assert_eq!(NODES.node_bitmap(0b1), 0b0011);
        assert_eq!(NODES.node_bitmap(0b10), 0b0101);
        assert_eq!(NODES.node_bitmap(0b1111), 0b0111_0111);
        let source = NODES.source(&entry(0x14, 181, 1, 0));
        let belongs = |nodes, vmids| source.is_some_and(|source| source.belongs_to(nodes, vmids));
        assert!(belongs(0b100, 0xff00));
        assert!(!belongs(0b011, 0xff00));
        assert!(!belongs(0b100, 0xfe00));
    }
}
