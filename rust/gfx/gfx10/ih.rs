// SPDX-License-Identifier: GPL-2.0-only

//! Entries of the interrupt handler's ring: OSSSYS 5.0 to 5.2.
//!
//! Fields of an entry and numbers of its senders are those of gfx9 (`soc15_int.h`). The data of a
//! shader interrupt lies in one piece (`kfd_int_process_v10.c`): its encoding in the second context
//! word, 23 bits of data in the first. End-of-pipe without an event is a signal, and there are no
//! fences and no poison: C lets neither through.

use crate::gfx::{
    field::Field,
    gfx9::ih::{
        bad_opcode,
        client,
        entry,
        fault,
        source,
        SDMA_CONTEXT, //
    },
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

/// Graphics cores 10.1 and 10.3.
pub(super) const IH: &dyn IhFormat = &Ih;

struct Ih;

/// `SQ_INTERRUPT_WORD_WAVE_CTXID*`
mod sq {
    use super::Field;
    pub(super) const DATA: Field = Field::bits(22, 0);
    pub(super) const PRIV: Field = Field::bit(24);
    /// Of the second context word.
    pub(super) const ENCODING: Field = Field::bits(7, 6);
    pub(super) const ENCODING_INST: u32 = 1;
    pub(super) const ENCODING_ERROR: u32 = 2;
    /// Of the data: what kind of error.
    pub(super) const ERR_TYPE: Field = Field::bits(22, 19);
    pub(super) const ERR_ILLEGAL_INST: u32 = 1;
    pub(super) const ERR_MEMVIOL: u32 = 2;
}

fn shader(pasid: Pasid, context0: u32, context1: u32) -> Interrupt {
    let data = sq::DATA.get(context0);
    let error = match (sq::ENCODING.get(context1), sq::ERR_TYPE.get(context0)) {
        (sq::ENCODING_INST, _) => {
            return Interrupt::WaveMessage {
                pasid,
                data,
                privileged: sq::PRIV.get(context0) != 0,
            }
        }
        (sq::ENCODING_ERROR, sq::ERR_ILLEGAL_INST) => WaveError::IllegalInstruction,
        (sq::ENCODING_ERROR, sq::ERR_MEMVIOL) => WaveError::MemoryViolation,
        (_, _) => {
            return Interrupt::SqAuto {
                pasid,
                status: context0,
                data,
            }
        }
    };
    Interrupt::WaveError { pasid, data, error }
}

impl IhFormat for Ih {
    fn decode(&self, words: &[u32; IH_ENTRY_DWORDS]) -> Option<Interrupt> {
        let client = entry::CLIENT_ID.get(words[0]);
        let source = entry::SOURCE_ID.get(words[0]);
        // CAST: four bits.
        let vmid = Vmid::new(entry::VMID.get(words[0]) as u8)?;
        let pasid = Pasid::new(entry::PASID.get(words[3]))?;
        let (context0, context1) = (words[4], words[5]);
        match (client, source) {
            (c, _) if client::VM.contains(&c) => Some(fault(words, pasid, vmid)),
            (c, source::SDMA_TRAP) if client::SDMA.contains(&c) => Some(Interrupt::SdmaTrap {
                pasid,
                context_id: SDMA_CONTEXT.get(context0),
            }),
            (c, source) if c == client::GRBM_CP || client::SHADER_ENGINES.contains(&c) => {
                match source {
                    source::CP_END_OF_PIPE => Some(Interrupt::EndOfPipe {
                        pasid,
                        context_id: context0,
                    }),
                    source::SQ_INTERRUPT_MSG => Some(shader(pasid, context0, context1)),
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

    fn with_pasid(&self, _: &[u32; IH_ENTRY_DWORDS], _: Pasid) -> Option<[u32; IH_ENTRY_DWORDS]> {
        // C does not: who has no process has none here.
        None
    }

    fn source(&self, words: &[u32; IH_ENTRY_DWORDS]) -> Option<IhSource> {
        Some(IhSource {
            node: 0,
            // CAST: four bits.
            vmid: Vmid::new(entry::VMID.get(words[0]) as u8)?,
            fence: false,
        })
    }

    fn node_bitmap(&self, _: u32) -> u32 {
        1
    }

    fn message_bits(&self) -> u32 {
        23
    }
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_gfx10_ih))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::*;
    use crate::gfx::testing::known;

    fn entry_of(client: u32, source: u32, context: [u32; 2]) -> [u32; IH_ENTRY_DWORDS] {
        let first = client | source << 8 | 8 << 24;
        [first, 0, 0, 7, context[0], context[1], 0, 0]
    }

    #[test]
    fn the_data_of_a_wave_lies_in_one_piece() {
        let pasid = known(Pasid::new(7));
        let decode = |context| Ih.decode(&entry_of(client::GRBM_CP, 239, context));
        let message = |privileged| Interrupt::WaveMessage {
            pasid,
            data: 0x7f_ffff,
            privileged,
        };
        assert_eq!(decode([0x01ff_ffff, 0x40]), Some(message(true)));
        assert_eq!(decode([0x00ff_ffff, 0x7f]), Some(message(false)));
        let error = Interrupt::WaveError {
            pasid,
            data: 1 << 19,
            error: WaveError::IllegalInstruction,
        };
        assert_eq!(decode([1 << 19, 0x80]), Some(error));
    }

    #[test]
    fn an_end_of_pipe_without_an_event_is_a_signal() {
        let signal = Interrupt::EndOfPipe {
            pasid: known(Pasid::new(7)),
            context_id: 0,
        };
        let entry = entry_of(client::GRBM_CP, source::CP_END_OF_PIPE, [0, 0]);
        assert_eq!(Ih.decode(&entry), Some(signal));
        let fence = entry_of(client::FENCE, source::FENCE, [0, 0]);
        assert_eq!(Ih.decode(&fence), None);
    }
}
