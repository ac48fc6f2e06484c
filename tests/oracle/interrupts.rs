// SPDX-License-Identifier: GPL-2.0-only

//! Entries of the interrupt ring: what C does for one, and what ours stands for.

use super::{line::Line, same};
use crate::{
    gfx::{Generation, Interrupt},
    ids::IpVersion, //
};

/// Exceptions of packets (`KFD_EC_MASK_PACKET`): what the firmware can have met.
const PACKET_EXCEPTIONS: std::ops::RangeInclusive<u32> = 16..=23;

/// `EC_DEVICE_MEMORY_VIOLATION`
const MEMORY_VIOLATION: u32 = 33;

/// The calls that C makes for what an interrupt means on this graphics core, whose waves send so
/// many bits.
fn calls(interrupt: Interrupt, gc: IpVersion, message_bits: u32) -> Vec<String> {
    let signal = |pasid: crate::ids::Pasid, id: u32, bits: u32| {
        format!("signal,{:x},{id:x},{bits:x}", pasid.raw())
    };
    match interrupt {
        Interrupt::EndOfPipe { pasid, context_id } => vec![signal(pasid, context_id, 32)],
        Interrupt::SdmaTrap { pasid, context_id } => vec![signal(pasid, context_id, 28)],
        Interrupt::WaveMessage {
            pasid,
            data,
            privileged,
        } => {
            let (doorbell, traps) = (data & 0x3ff, data >> 10 & 0x1ff);
            let debug = format!("debug,{:x},{doorbell:x},{traps:x}", pasid.raw());
            let all = [debug, signal(pasid, data, message_bits)];
            all.into_iter().skip(usize::from(!privileged)).collect()
        }
        Interrupt::WaveError { pasid, data, .. } | Interrupt::SqAuto { pasid, data, .. } => {
            vec![signal(pasid, data, message_bits)]
        }
        Interrupt::BadPacket {
            pasid,
            doorbell,
            exception,
        } if PACKET_EXCEPTIONS.contains(&exception) => {
            let exceptions = 1u64 << (exception - 1);
            vec![format!(
                "debug,{:x},{doorbell:x},{exceptions:x}",
                pasid.raw()
            )]
        }
        Interrupt::BadPacket { .. } => vec![],
        Interrupt::VmFault {
            pasid,
            va,
            not_present,
            write,
            ..
        } => {
            let debug = format!(
                "debug,{:x},ffffffff,{:x},{va:x},{:x},{:x}",
                pasid.raw(),
                1u64 << (MEMORY_VIOLATION - 1),
                u8::from(not_present),
                u8::from(write),
            );
            // From gfx10 on C tells debuggers alone of a fault, and takes nobody off.
            let all = [debug, format!("fault,{:x}", pasid.raw())];
            all.into_iter()
                .take(if gc.major == 9 { 2 } else { 1 })
                .collect()
        }
        Interrupt::Poison { pasid, .. } => vec![format!("poison,{:x}", pasid.raw())],
        Interrupt::Fence { pasid } => vec![format!("drain,{:x}", pasid.raw())],
    }
}

/// What a driver sends itself to learn that all before it has come (`kfd_process_drain_interrupts`)
/// has no VMID. C does not let it through where entries name their node, so that its own does not
/// come back; ours lets it through. It does nothing there.
fn is_a_fence_that_c_drops(entry: &[u32; 8], vmids: u32) -> bool {
    entry[0] & 0xffff == 0xffff && vmids >> (entry[0] >> 24 & 0xf) & 1 == 0
}

pub(super) fn compare(generation: &Generation, line: &Line<'_>) -> Result<(), String> {
    let ih = generation.formats.ih;
    let entry: [u32; 8] = line.numbers("entry").try_into().expect("eight words");
    let is_ours = ih
        .source(&entry)
        .is_some_and(|source| source.belongs_to(line.number("nodes"), line.number("vmids")));
    let ours = ih.decode(&entry).filter(|_| is_ours);
    let ours = ours.map(|interrupt| calls(interrupt, line.gc(), ih.message_bits()));
    let c: Vec<_> = line.made().map(String::from).collect();
    if c.is_empty() && is_a_fence_that_c_drops(&entry, line.number("vmids")) {
        return Ok(());
    }
    same("calls", ours.unwrap_or_default(), c)
}
