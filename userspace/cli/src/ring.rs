// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl ring PID QUEUE`: the packets in the ring of another program, decoded.

mod aql;
mod pm4;
mod sdma;

use crate::queues::{snapshot, Kind, Memory, Process, Queue};
use crate::top::unit;
use anyhow::{bail, Context, Result};
use clap::Args;
use serde::Serialize;
use std::collections::VecDeque;

/// Which ring, and how much of it.
#[derive(Args)]
pub struct Ring {
    /// The process.
    pid: u32,
    /// The queue, as `kfdctl top` numbers it.
    queue: u32,
    /// Which further context of the process has the queue, as `kfdctl top` numbers it.
    #[arg(long)]
    context: Option<u32>,
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
        let (process, queue) = self.find(&snapshot.processes)?;
        let Packets { packets, more } = packets(queue, &Memory::of(self.pid), self.last)?;
        if json {
            outln!("{}", serde_json::to_string(&packets)?);
            return Ok(());
        }
        outln!(
            "queue {} of process {} ({}){}: the GPU has read to {} and is told of {} {}",
            self.queue,
            process.pid,
            process.name,
            process.of_context(),
            queue.read_index.unwrap_or(0),
            queue.write_index.unwrap_or(0),
            unit(queue.kind)
        );
        for packet in &packets {
            out!("{}", text(packet));
        }
        if more > 0 {
            outln!("           and {more} more {}", unit(queue.kind));
        }
        Ok(())
    }
}

impl Ring {
    /// The process, or its context, and the queue.
    fn find<'a>(&self, processes: &'a [Process]) -> Result<(&'a Process, &'a Queue)> {
        let own = processes.iter().filter(|process| process.pid == self.pid);
        let own: Vec<_> = own.collect();
        if own.is_empty() {
            bail!("process {} has no queue on any GPU", self.pid)
        }
        let queues = own
            .iter()
            .flat_map(|process| process.queues.iter().map(|queue| (*process, queue)));
        let known = queues.filter_map(|(process, queue)| Some((queue.id?, process, queue)));
        let known: Vec<_> = known.collect();
        let found = known
            .iter()
            .find(|(id, process, _)| (*id, process.context) == (self.queue, self.context));
        if let Some((_, process, queue)) = found {
            return Ok((process, queue));
        }
        let known: Vec<_> = known
            .iter()
            .map(|(id, process, _)| match process.context {
                Some(context) => format!("{id} of context {context}"),
                None => id.to_string(),
            })
            .collect();
        let known = match &known[..] {
            [] => "none whose number is known".to_owned(),
            known => known.join(", "),
        };
        let of = match self.context {
            None => String::new(),
            Some(context) => format!(" of context {context}"),
        };
        bail!(
            "process {} has no queue {}{of}; it has: {known}",
            self.pid,
            self.queue
        )
    }
}

/// What is shown of a ring.
pub struct Packets {
    /// The last of those that are done, and the first [`MOST`] of those that are not.
    pub packets: Vec<Packet>,
    /// How much lies behind them, in the units of the ring's indices.
    pub more: u64,
}

/// The most packets that wait that are decoded: how many do is up to the process whose ring it is,
/// and millions of them would take gigabytes of ours.
const MOST: usize = 4096;
/// Up to where a ring is read from its start for those that are done, in bytes: so is how far it
/// has come.
const FAR: u64 = 1 << 20;
/// How much of a ring is read at a time, and the most that is looked at of one packet.
const PART: usize = 64 << 10;
const HEAD: usize = 4096;

/// The packets of a queue's ring.
pub fn packets(queue: &Queue, memory: &Memory, last: usize) -> Result<Packets> {
    let ring = queue
        .ring
        .context("where its ring lies can't be learned here")?;
    let unreadable = "its indices can't be read: neither from its memory nor from the driver";
    let (read, write) = (
        queue.read_index.context(unreadable)?,
        queue.write_index.context(unreadable)?,
    );
    let write = match queue.kind {
        Kind::Aql => write,
        // Nobody writes more of these than there is room for; nor need the last index be larger.
        _ => read.saturating_add(queue.fill().map_or(0, |(waiting, _)| waiting)),
    };
    let bytes = Window::new(queue.ring_size, |at, bytes| {
        memory.read(ring.checked_add(at)?, bytes)
    });
    decode(queue.kind, bytes, read, write, last)
        .with_context(|| format!("the ring at {ring:#x} can't be read"))
}

/// A ring of `size` bytes, of which a part at a time is read.
struct Window<F> {
    size: u64,
    read: F,
    part: Vec<u8>,
    from: u64,
}

impl<F: FnMut(u64, &mut [u8]) -> Option<()>> Window<F> {
    /// `read` fills a slice from a byte of the ring on.
    fn new(size: u64, read: F) -> Self {
        let (part, from) = (Vec::new(), 0);
        Self {
            size,
            read,
            part,
            from,
        }
    }

    /// `count` bytes from `at` on, both less than the size; they may go on at the ring's start.
    fn bytes(&mut self, at: u64, count: usize) -> Option<Vec<u8>> {
        let whole = count.min(usize::try_from(self.size - at).unwrap_or(usize::MAX));
        let mut bytes = self.inner(at, whole)?.to_vec();
        if whole < count {
            bytes.extend_from_slice(self.inner(0, count - whole)?);
        }
        Some(bytes)
    }

    /// The same up to the ring's end.
    fn inner(&mut self, at: u64, count: usize) -> Option<&[u8]> {
        let end = self.from + self.part.len() as u64;
        if at < self.from || at + count as u64 > end {
            let left = usize::try_from(self.size - at).unwrap_or(usize::MAX);
            self.part.resize(left.min(PART), 0);
            self.from = at;
            if (self.read)(at, &mut self.part).is_none() {
                self.part.clear();
                return None;
            }
        }
        let start = (at - self.from) as usize;
        self.part.get(start..start + count)
    }
}

/// The packets of a ring with these indices, which may be anything, since they come out of another
/// program's memory. `None` where the ring can't be read.
fn decode(
    kind: Kind,
    mut ring: Window<impl FnMut(u64, &mut [u8]) -> Option<()>>,
    read: u64,
    write: u64,
    last: usize,
) -> Option<Packets> {
    let unit = kind.unit();
    let capacity = ring.size / unit;
    // Packets of varying length can be parsed only from a known start: the ring's own, as long
    // as it has not come round, and the read index.
    let start = match kind {
        Kind::Aql => read
            .saturating_sub(last as u64)
            .max(write.saturating_sub(capacity)),
        _ if write <= capacity && read <= FAR / unit => 0,
        _ => read,
    };
    let mut packets = VecDeque::new();
    let (mut done, mut waiting, mut walked) = (0, 0, 0);
    let mut index = start;
    while index < write && walked < 2 * capacity && waiting < MOST {
        // A packet may go on at the ring's start.
        let room = (write - index).saturating_mul(unit).min(ring.size);
        let rest = ring.bytes(index % capacity * unit, room.min(HEAD as u64) as usize)?;
        let (name, fields, size) = match kind {
            Kind::Aql => aql::decode(&rest),
            Kind::Pm4 | Kind::Compute => pm4::decode(&words(&rest)),
            Kind::Sdma => sdma::decode(&words(&rest)),
        };
        let is_done = index < read;
        packets.push_back(Packet {
            index,
            done: is_done,
            name,
            fields,
        });
        walked += 1;
        match is_done {
            false => waiting += 1,
            true if done == last => drop(packets.pop_front()),
            true => done += 1,
        }
        index = index.saturating_add((size as u64 / unit).max(1));
    }
    Some(Packets {
        packets: packets.into(),
        more: write.saturating_sub(index),
    })
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

    /// Of a ring that is there.
    fn decode(kind: Kind, ring: &[u8], read: u64, write: u64, last: usize) -> Vec<Packet> {
        packets_of(kind, ring, read, write, last).packets
    }

    /// A queue whose ring is nowhere.
    fn queue_of(id: Option<u32>) -> Queue {
        Queue {
            id,
            gpu_id: 1,
            kind: Kind::Pm4,
            ring: None,
            ring_size: 4096,
            read_pointer: None,
            write_pointer: None,
            doorbell: None,
            priority: None,
            runs: None,
            read_index: None,
            write_index: None,
        }
    }

    fn packets_of(kind: Kind, ring: &[u8], read: u64, write: u64, last: usize) -> Packets {
        let window = Window::new(ring.len() as u64, |at, bytes| {
            bytes.copy_from_slice(&ring[at as usize..][..bytes.len()]);
            Some(())
        });
        super::decode(kind, window, read, write, last).expect("it can be read")
    }

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
    fn no_more_is_decoded_than_anybody_reads() {
        // All that other programs' rings can make us do, whatever their size.
        for kind in [Kind::Aql, Kind::Pm4, Kind::Sdma, Kind::Compute] {
            let (unit, reads) = (kind.unit(), std::cell::Cell::new(0));
            let filler = |at, bytes: &mut [u8]| {
                let at: u64 = at;
                reads.set(reads.get() + bytes.len());
                for (place, byte) in (at..).zip(bytes) {
                    // A filler of PM4; the copy engine's NOPs are 0.
                    *byte = if unit == 4 && place % 4 == 3 { 0x80 } else { 0 };
                }
                Some(())
            };
            let (size, read) = (64 << 20, (32 << 20) / unit);
            let write = read + (24 << 20) / unit;
            let Packets { packets, more } =
                super::decode(kind, Window::new(size, filler), read, write, 8).expect("readable");
            let waits: Vec<_> = packets.iter().filter(|packet| !packet.done).collect();
            assert_eq!(waits.len(), MOST, "{kind:?}");
            assert_eq!(waits[0].index, read);
            let step = waits[1].index - waits[0].index;
            assert_eq!(more, write - read - MOST as u64 * step);
            assert!(reads.get() <= 2 << 20, "{kind:?}: {} bytes", reads.get());
        }
    }

    #[test]
    fn packets_around_the_rings_end_are_whole() {
        let mut ring = vec![0u8; 1 << 17];
        let last = ring.len() - 4;
        // COPY_LINEAR of 64 bytes: its header at the end, all else at the start.
        ring[last] = 1;
        ring[0] = 63;
        let read = ring.len() as u64 - 4;
        let packets = decode(Kind::Sdma, &ring, read, read + 28, 0);
        assert_eq!(packets.len(), 1);
        assert_eq!(packets[0].fields[0], ("bytes", "64".into()));
    }

    #[test]
    fn what_waits_in_a_ring_whose_indices_came_round_is_shown() {
        let ring: Vec<u32> = (0..1024).map(|_| 0x8000_0000).collect();
        let queue = |read, write| Queue {
            ring: Some(ring.as_ptr() as u64),
            read_index: Some(read),
            write_index: Some(write),
            ..queue_of(Some(0))
        };
        let memory = Memory::of(std::process::id());
        let waiting = |read, write| {
            let all = packets(&queue(read, write), &memory, 0).expect("our own memory");
            all.packets.iter().filter(|packet| !packet.done).count()
        };
        assert_eq!(waiting(0xffff_fffe, 3), 5);
        assert_eq!(waiting(7, 7), 0);
        assert_eq!(waiting(9, 7), 0);
    }

    #[test]
    fn a_context_has_its_own_queues() {
        let process = |context, ids: &[Option<u32>]| Process {
            pid: 812,
            context,
            queues: ids.iter().map(|id| queue_of(*id)).collect(),
            ..Process::default()
        };
        let find = |queue, context, processes: &[Process]| {
            let ring = Ring {
                pid: 812,
                queue,
                context,
                last: 8,
            };
            let found = ring.find(processes);
            found.map_or_else(
                |error| error.to_string(),
                |(process, _)| format!("context {:?}", process.context),
            )
        };
        let both = [
            process(None, &[Some(0), Some(2)]),
            process(Some(0), &[Some(0)]),
        ];
        assert_eq!(find(0, None, &both), "context None");
        assert_eq!(find(0, Some(0), &both), "context Some(0)");
        let known = "it has: 0, 2, 0 of context 0";
        assert_eq!(
            find(1, None, &both),
            format!("process 812 has no queue 1; {known}")
        );
        let what = "process 812 has no queue 2 of context 0";
        assert_eq!(find(2, Some(0), &both), format!("{what}; {known}"));
        let alike = [process(None, &[None, None])];
        let none = "process 812 has no queue 0; it has: none whose number is known";
        assert_eq!(find(0, None, &alike), none);
        assert_eq!(find(0, None, &[]), "process 812 has no queue on any GPU");
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
