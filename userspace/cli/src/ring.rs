// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl ring PID QUEUE`: the packets in the ring of another program, decoded.

mod aql;
mod pm4;
mod sdma;

use crate::queues::{snapshot, Kind, Memory, Queue};
use crate::top::unit;
use anyhow::{bail, Context, Result};
use clap::Args;
use serde::Serialize;

/// Which ring, and how much of it.
#[derive(Args)]
pub struct Ring {
    /// The process.
    pid: u32,
    /// The queue, as `kfdctl top` numbers it.
    queue: u32,
    /// How many packets that are done to show before those that are not.
    #[arg(long, short = 'n', default_value_t = 8)]
    last: usize,
}

/// One packet of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Packet {
    /// Where it begins, in the units of the ring's indices.
    pub index: u64,
    /// Whether the GPU has taken it.
    pub done: bool,
    /// Its name.
    pub name: String,
    /// Its fields, by name.
    pub fields: Vec<(&'static str, String)>,
}

/// A packet without its place: name, fields, size in bytes.
type Decoded = (String, Vec<(&'static str, String)>, usize);

impl Ring {
    /// Prints the packets.
    pub fn run(&self, json: bool) -> Result<()> {
        let snapshot = snapshot()?;
        let process = snapshot
            .processes
            .iter()
            .find(|process| process.pid == self.pid);
        let process =
            process.with_context(|| format!("process {} has no queue on any GPU", self.pid))?;
        let queue = process
            .queues
            .iter()
            .find(|queue| queue.id == Some(self.queue));
        let Some(queue) = queue else {
            let known: Vec<_> = process
                .queues
                .iter()
                .filter_map(|queue| queue.id)
                .map(|id| id.to_string())
                .collect();
            bail!(
                "process {} has no queue {}; it has: {}",
                self.pid,
                self.queue,
                known.join(", ")
            )
        };
        let packets = packets(queue, &Memory::of(self.pid), self.last)?;
        if json {
            outln!("{}", serde_json::to_string(&packets)?);
            return Ok(());
        }
        outln!(
            "queue {} of process {} ({}): the GPU has read to {} and is told of {} {}",
            self.queue,
            process.pid,
            process.name,
            queue.read_index.unwrap_or(0),
            queue.write_index.unwrap_or(0),
            unit(queue.kind)
        );
        for packet in &packets {
            out!("{}", text(packet));
        }
        Ok(())
    }
}

/// The packets of a queue's ring: the last of those that are done, and all that are not.
pub fn packets(queue: &Queue, memory: &Memory, last: usize) -> Result<Vec<Packet>> {
    let ring = queue
        .ring
        .context("where its ring lies can't be learned here")?;
    let unreadable = "its indices can't be read: neither from its memory nor from the driver";
    let (read, write) = (
        queue.read_index.context(unreadable)?,
        queue.write_index.context(unreadable)?,
    );
    let mut bytes = vec![0; usize::try_from(queue.ring_size)?];
    memory
        .read(ring, &mut bytes)
        .with_context(|| format!("the ring at {ring:#x} can't be read"))?;
    let write = match queue.kind {
        Kind::Aql => write,
        // Nobody writes more of these than there is room for; nor need the last index be larger.
        _ => read.saturating_add(queue.fill().map_or(0, |(waiting, _)| waiting)),
    };
    Ok(decode(queue.kind, &bytes, read, write, last))
}

/// The packets of a ring with these indices, which may be anything, since they come out of another
/// program's memory: the last of those that are done, and all that are not.
fn decode(kind: Kind, ring: &[u8], read: u64, write: u64, last: usize) -> Vec<Packet> {
    let unit = kind.unit();
    let capacity = ring.len() as u64 / unit;
    // Packets of varying length can be parsed only from a known start: the ring's own, as long
    // as it has not come round, and the read index.
    let start = match kind {
        Kind::Aql => read
            .saturating_sub(last as u64)
            .max(write.saturating_sub(capacity)),
        _ if write <= capacity => 0,
        _ => read,
    };
    let mut packets = Vec::new();
    let mut index = start;
    while index < write && (packets.len() as u64) < 2 * capacity {
        let at = (index % capacity * unit) as usize;
        // A packet may go on at the ring's start.
        let room = (write - index).saturating_mul(unit).min(ring.len() as u64) as usize;
        let rest: Vec<u8> = ring[at..]
            .iter()
            .chain(&ring[..at])
            .take(room.min(4096))
            .copied()
            .collect();
        let (name, fields, size) = match kind {
            Kind::Aql => aql::decode(&rest),
            Kind::Pm4 | Kind::Compute => pm4::decode(&words(&rest)),
            Kind::Sdma => sdma::decode(&words(&rest)),
        };
        packets.push(Packet {
            index,
            done: index < read,
            name,
            fields,
        });
        index = index.saturating_add((size as u64 / unit).max(1));
    }
    let done = packets.iter().filter(|packet| packet.done).count();
    packets.split_off(done.saturating_sub(last))
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |word: &[u8]| u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    bytes.chunks_exact(4).map(word).collect()
}

/// Two words as an address.
fn address(words: &[u32], low: usize) -> String {
    let word = |at: usize| u64::from(words.get(at).copied().unwrap_or(0));
    format!("{:#x}", word(low) | word(low + 1) << 32)
}

fn text(packet: &Packet) -> String {
    let state = if packet.done { "done" } else { "    " };
    let fields: Vec<_> = packet
        .fields
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    format!(
        "{:>10} {state} {} {}\n",
        packet.index,
        packet.name,
        fields.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_has_come_round_shows_what_is_still_there() {
        let ring = vec![0; 64 * 64];
        let packets = decode(Kind::Aql, &ring, 100, 130, 1000);
        // Of what is done, packets 66 to 99 are not yet overwritten.
        assert_eq!(packets.first().map(|packet| packet.index), Some(66));
        assert_eq!(packets.last().map(|packet| packet.index), Some(129));
        assert_eq!(packets.iter().filter(|packet| packet.done).count(), 34);
    }

    #[test]
    fn indices_may_be_anything() {
        let ring = vec![0xa5; 4096];
        for kind in [Kind::Aql, Kind::Pm4, Kind::Sdma, Kind::Compute] {
            for (read, write) in [(0, u64::MAX), (u64::MAX - 3, u64::MAX), (u64::MAX, 0)] {
                let packets = decode(kind, &ring, read, write, 8);
                let room = 2 * ring.len() as u64 / kind.unit();
                assert!(
                    packets.len() as u64 <= room,
                    "{kind:?} {read:#x} {write:#x}"
                );
            }
        }
    }

    #[test]
    fn what_waits_in_a_ring_whose_indices_came_round_is_shown() {
        let ring: Vec<u32> = (0..1024).map(|_| 0x8000_0000).collect();
        let queue = |read, write| Queue {
            id: Some(0),
            gpu_id: 1,
            kind: Kind::Pm4,
            ring: Some(ring.as_ptr() as u64),
            ring_size: 4096,
            read_pointer: None,
            write_pointer: None,
            doorbell: None,
            priority: None,
            runs: None,
            read_index: Some(read),
            write_index: Some(write),
        };
        let memory = Memory::of(std::process::id());
        let waiting = |read, write| {
            let packets = packets(&queue(read, write), &memory, 0).expect("our own memory");
            packets.iter().filter(|packet| !packet.done).count()
        };
        assert_eq!(waiting(0xffff_fffe, 3), 5);
        assert_eq!(waiting(7, 7), 0);
        assert_eq!(waiting(9, 7), 0);
    }

    #[test]
    fn words_of_a_copy_engine_are_walked_by_their_length() {
        let mut ring = vec![0u8; 4096];
        for (at, word) in [(0usize, 6u32), (2, 5)] {
            ring[at * 4..at * 4 + 4].copy_from_slice(&word.to_le_bytes());
        }
        let packets = decode(Kind::Sdma, &ring, 0, 24, 8);
        let names: Vec<_> = packets
            .iter()
            .map(|packet| (packet.index, packet.name.as_str()))
            .collect();
        assert_eq!(names, [(0, "TRAP"), (8, "FENCE")]);
    }
}
