// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A trace of the GPU model (`gpu-model-server serve --trace`) as tracks: queues with their
//! packets, work-groups where they run, waves in flight, interrupts, doorbells.
//!
//! Its times are seconds since the server began. One of its first lines says what the GPU's clock
//! showed then; what `kfdctl trace` read of both clocks leads from there to the guest's time.

use crate::{Reading, Timeline, TrackId, Value};
use std::collections::{BTreeMap, HashMap};

/// Nanoseconds of a tick of the model's clock, which runs at 100 MHz.
const TICK: u64 = 10;
/// The targets of the trace that are read; a trace of these alone will do.
pub const TARGETS: &str = "clock,aql,pm4,sdma,wave,ih,doorbell,cwsr";
/// The kinds of SDMA packets by their opcodes (`SDMA_OP_*` of amdgpu's sdma packet headers).
const SDMA: [(u32, &str); 13] = [
    (0, "NOP"),
    (1, "COPY"),
    (2, "WRITE"),
    (4, "INDIRECT"),
    (5, "FENCE"),
    (6, "TRAP"),
    (7, "SEMAPHORE"),
    (8, "POLL_REGMEM"),
    (9, "COND_EXE"),
    (10, "ATOMIC"),
    (11, "CONST_FILL"),
    (12, "PTEPDE"),
    (13, "TIMESTAMP"),
];

/// How the GPU's clock and the guest's run beside each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clocks {
    first: (u64, u64),
    last: (u64, u64),
}

/// What the guest's part of a timeline knows that the model's needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guest {
    /// The GPUs in their order, each with its clocks.
    pub gpus: Vec<(u64, Clocks)>,
    /// The names of kernels by the addresses of their descriptors.
    pub kernels: HashMap<u64, String>,
}

impl Guest {
    /// From the guest's part.
    pub fn of(reading: &Reading) -> Self {
        let mut moments: Vec<(u64, Vec<(u64, u64)>)> = Vec::new();
        for moment in reading.named("clocks").flat_map(|track| &track.slices) {
            let pair = moment.number("gpu_id").zip(moment.number("ticks"));
            let Some((gpu, ticks)) = pair else { continue };
            let at = (ticks, moment.begin);
            match moments.iter_mut().find(|(known, _)| *known == gpu) {
                Some((_, pairs)) => pairs.push(at),
                None => moments.push((gpu, vec![at])),
            }
        }
        let gpus = moments.into_iter().filter_map(|(gpu, pairs)| {
            let (first, last) = (*pairs.first()?, *pairs.last()?);
            (last.0 > first.0 && last.1 > first.1).then_some((gpu, Clocks { first, last }))
        });
        let slices = reading.tracks.iter().flat_map(|track| &track.slices);
        let named = slices.filter_map(|slice| Some((slice.number("kernel")?, slice.name.clone())));
        Self {
            gpus: gpus.collect(),
            kernels: named.collect(),
        }
    }
}

impl Clocks {
    /// The guest's nanoseconds at a tick, if it lies between the two moments that are known.
    fn time(&self, ticks: u64) -> Option<u64> {
        let (from, to) = (self.first, self.last);
        if !(from.0..=to.0).contains(&ticks) {
            return None;
        }
        let part = u128::from(ticks - from.0) * u128::from(to.1 - from.1);
        Some(from.1 + (part / u128::from(to.0 - from.0)) as u64)
    }
}

/// Adds a model's trace, of the time that `clocks` spans, below a track called `name`.
pub fn add(
    timeline: &mut Timeline,
    name: &str,
    trace: &str,
    clocks: &Clocks,
    kernels: &HashMap<u64, String>,
) -> Result<(), String> {
    // What the clock showed at second 0 of the trace, before it may have begun.
    let start = trace.lines().filter_map(Line::parse).find_map(|line| {
        let ticks = line.text.strip_prefix("ticks ")?.parse::<i64>().ok()?;
        (line.target == "clock").then(|| ticks - (line.at / TICK) as i64)
    });
    let start = start.ok_or("the trace does not say what the GPU's clock showed")?;
    let top = timeline.track(None, name);
    let mut model = Model {
        timeline,
        top,
        kernels,
        tracks: BTreeMap::new(),
        packets: HashMap::new(),
        groups: HashMap::new(),
        waves: 0,
        last: clocks.first.1,
    };
    for mut line in trace.lines().filter_map(Line::parse) {
        let ticks = start + (line.at / TICK) as i64;
        if let Some(at) = clocks.time(ticks.max(0) as u64) {
            line.at = at;
            model.last = at;
            model.line(&line);
        }
    }
    model.end();
    Ok(())
}

/// `SECONDS.NANOSECONDSs TARGET: TEXT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line<'a> {
    /// Nanoseconds.
    at: u64,
    target: &'a str,
    text: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (time, rest) = line.trim_start().split_once("s ")?;
        let (target, text) = rest.trim_start().split_once(": ")?;
        let (seconds, nanos) = time.split_once('.')?;
        let at = seconds.parse::<u64>().ok()? * 1_000_000_000 + nanos.parse::<u64>().ok()?;
        Some(Self { at, target, text })
    }
}

/// A hardware queue, as the trace writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    xcc: u32,
    me: u32,
    pipe: u32,
    queue: u32,
}

impl Slot {
    /// The slot that a text begins with or names, and what follows.
    fn parse(text: &str) -> Option<(Self, &str)> {
        let (_, body) = text.split_once("SlotId { ")?;
        let (body, rest) = body.split_once(" }")?;
        let field = |name: &str| {
            let mut fields = body.split(", ");
            let value = fields.find_map(|field| field.strip_prefix(name)?.strip_prefix(": "));
            value?.parse().ok()
        };
        let slot = Self {
            xcc: field("xcc")?,
            me: field("me")?,
            pipe: field("pipe")?,
            queue: field("queue")?,
        };
        Some((slot, rest.trim_start()))
    }

    fn name(&self) -> String {
        let Self {
            xcc,
            me,
            pipe,
            queue,
        } = self;
        format!("XCC {xcc} MEC {me} pipe {pipe} queue {queue}")
    }
}

/// A packet that runs.
struct Packet {
    index: u64,
    begin: u64,
    name: String,
    facts: Vec<(&'static str, Value)>,
}

/// A work-group that runs: since when, which, with how many waves.
type Group = (u64, String, i64);

struct Model<'a> {
    timeline: &'a mut Timeline,
    top: TrackId,
    kernels: &'a HashMap<u64, String>,
    tracks: BTreeMap<String, TrackId>,
    packets: HashMap<Slot, Packet>,
    groups: HashMap<(Slot, u32, u32), Group>,
    waves: i64,
    last: u64,
}

impl Model<'_> {
    fn track(&mut self, name: &str) -> TrackId {
        let (timeline, top) = (&mut *self.timeline, self.top);
        let known = self.tracks.entry(name.to_owned());
        *known.or_insert_with(|| match name {
            "waves in flight" => timeline.counter(Some(top), name, "waves"),
            _ => timeline.track(Some(top), name),
        })
    }

    fn instant(&mut self, track: &str, at: u64, name: &str, text: &str) {
        let track = self.track(track);
        self.timeline
            .instant(track, at, name, [("says", text.into())]);
    }

    /// What has no such form as it has to have is left out: the trace is text for people.
    fn line(&mut self, line: &Line<'_>) -> Option<()> {
        let (at, text) = (line.at, line.text);
        match line.target {
            "aql" => {
                let (slot, rest) = Slot::parse(text)?;
                let (index, rest) = rest.split_once(' ')?;
                match rest {
                    "done" => self.packet_ends(slot, at, None),
                    _ => self.packet_begins(slot, index.parse().ok()?, at, rest)?,
                }
            }
            "wave" => {
                let (slot, rest) = Slot::parse(text)?;
                self.wave(slot, at, rest)?;
            }
            "cwsr" if text.starts_with("saved") => {
                let (slot, _) = Slot::parse(text)?;
                self.packet_ends(slot, at, Some("preempted"));
            }
            "pm4" => {
                let (track, rest) = match text.strip_prefix("run list ") {
                    Some(rest) => ("run lists".to_owned(), rest),
                    None => {
                        let (slot, rest) = Slot::parse(text)?;
                        (format!("{} PM4", slot.name()), rest)
                    }
                };
                let (name, words) = rest.split_once(' ')?;
                if name != "NOP" {
                    self.instant(&track, at, name, words);
                }
            }
            "sdma" => {
                // The same packet is also there with its address space.
                let (ring, rest) = text.split_once(" vmid ")?;
                let (_, words) = rest.split_once('[')?;
                let opcode = words.split([',', ']']).next()?;
                let opcode = u32::from_str_radix(opcode, 16).ok()? & 0xff;
                let known = SDMA.iter().find(|(code, _)| *code == opcode);
                let name = known.map_or_else(|| format!("{opcode:#x}"), |(_, name)| (*name).into());
                if name != "NOP" {
                    self.instant(&format!("SDMA {ring}"), at, &name, rest);
                }
            }
            "ih" => {
                let field = |name: &str| {
                    let (_, value) = text.split_once(name)?;
                    u32::from_str_radix(value.split(',').next()?, 16).ok()
                };
                let (client, source) = (field("client: ")?, field("source: ")?);
                let name = format!("client {client:#x} source {source}");
                self.instant("interrupts", at, &name, text);
            }
            "doorbell" => self.instant("doorbells", at, text.split(' ').next()?, text),
            _ => {}
        }
        Some(())
    }

    fn packet_begins(&mut self, slot: Slot, index: u64, at: u64, words: &str) -> Option<()> {
        let words = words.strip_prefix('[')?.strip_suffix(']')?.split(", ");
        let word = |word: &str| u32::from_str_radix(word, 16).ok();
        let words: Vec<_> = words.filter_map(word).collect();
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        // One that waits is looked at again and again.
        if self
            .packets
            .get(&slot)
            .is_some_and(|packet| packet.index == index)
        {
            return Some(());
        }
        let mut facts = vec![("packet", Value::from(index))];
        let name = match word(0) & 0xff {
            0 => "vendor packet".to_owned(),
            1 => return Some(()),
            2 => {
                let kernel = u64::from(word(8)) | u64::from(word(9)) << 32;
                let [x, y, z] = [3, 4, 5].map(word);
                facts.push(("grid", format!("{x}x{y}x{z}").into()));
                let [x, y, z] = [word(1) & 0xffff, word(1) >> 16, word(2) & 0xffff];
                facts.push(("workgroup", format!("{x}x{y}x{z}").into()));
                facts.push(("kernel", kernel.into()));
                let name = self.kernels.get(&kernel).cloned();
                name.unwrap_or_else(|| format!("kernel {kernel:#x}"))
            }
            3 => "BARRIER_AND".to_owned(),
            5 => "BARRIER_OR".to_owned(),
            kind => format!("type {kind}"),
        };
        let begin = at;
        let packet = Packet {
            index,
            begin,
            name,
            facts,
        };
        self.packets.insert(slot, packet);
        Some(())
    }

    /// The packet of a slot ends, and with it its work-groups.
    fn packet_ends(&mut self, slot: Slot, at: u64, why: Option<&str>) {
        let mut running: Vec<_> = self.groups.keys().copied().collect();
        running.retain(|(of, _, _)| *of == slot);
        for group in running {
            self.group_ends(group, at);
        }
        if let Some(mut packet) = self.packets.remove(&slot) {
            let track = self.track(&format!("{} AQL", slot.name()));
            packet.facts.extend(why.map(|why| ("ends", why.into())));
            self.timeline
                .slice(track, packet.begin, at, &packet.name, packet.facts);
        }
    }

    /// `starts UNIT PLACE [X, Y, Z] WAVES`, or `ends UNIT PLACE`.
    fn wave(&mut self, slot: Slot, at: u64, text: &str) -> Option<()> {
        let mut words = text.split(' ');
        let what = words.next()?;
        let group = (
            slot,
            words.next()?.parse().ok()?,
            words.next()?.parse().ok()?,
        );
        if what == "ends" {
            self.group_ends(group, at);
            return Some(());
        }
        let id = text.split_once('[')?.1.split_once(']')?.0.to_owned();
        let waves = words.next_back()?.parse().ok()?;
        self.waves += waves;
        self.count(at);
        self.groups.insert(group, (at, id, waves));
        Some(())
    }

    fn group_ends(&mut self, group: (Slot, u32, u32), at: u64) {
        let Some((begin, id, waves)) = self.groups.remove(&group) else {
            return;
        };
        self.waves -= waves;
        self.count(at);
        let (slot, unit, place) = group;
        let (engine, unit) = (unit >> 8, unit & 0xff);
        let name = format!("XCC {} SE {engine} CU {unit} place {place}", slot.xcc);
        let track = self.track(&name);
        let packet = self.packets.get(&slot);
        let name = packet
            .map_or("work-group", |packet| packet.name.as_str())
            .to_owned();
        let facts = [("group", id.into()), ("waves", (waves as u64).into())];
        self.timeline.slice(track, begin, at, &name, facts);
    }

    fn count(&mut self, at: u64) {
        let track = self.track("waves in flight");
        self.timeline.count(track, at, self.waves);
    }

    /// What runs on is shown up to the last line.
    fn end(&mut self) {
        let slots: Vec<_> = self.packets.keys().copied().collect();
        let groups: Vec<_> = self.groups.keys().map(|(slot, ..)| *slot).collect();
        for slot in slots.into_iter().chain(groups) {
            self.packet_ends(slot, self.last, Some("it runs on"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;

    const TRACE: &str = "\
   0.000946901s clock: ticks 84784
   0.500000000s aql: SlotId { xcc: 0, me: 1, pipe: 0, queue: 9 } 0 [11402, 10040, 1, 400, 1, 1]
   1.000000000s doorbell: 0x1002 = 0x1
   1.000100000s aql: SlotId { xcc: 0, me: 1, pipe: 0, queue: 3 } 4 [11402, 10040, 1, 400, 1, 1, \
0, 0, 87316000, 7f0e, 87322000, 7f0e, 0, 0, 871ff880, 7f0e]
   1.000200000s wave: SlotId { xcc: 0, me: 1, pipe: 0, queue: 3 } starts 257 5 [7, 0, 0] 4
   1.000250000s aql: SlotId { xcc: 0, me: 1, pipe: 0, queue: 3 } 4 [11402, 10040, 1, 400, 1, 1]
   1.000300000s wave: SlotId { xcc: 0, me: 1, pipe: 0, queue: 3 } ends 257 5
   1.000350000s wave: SlotId { xcc: 0, me: 1, pipe: 0, queue: 3 } starts 0 6 [8, 0, 0] 4
   1.000400000s aql: SlotId { xcc: 0, me: 1, pipe: 0, queue: 3 } 4 done
   1.000500000s pm4: SlotId { xcc: 0, me: 2, pipe: 1, queue: 0 } NOP []
   1.000600000s pm4: run list MAP_PROCESS [1, 2]
   1.000700000s sdma: 0.1 vmid 8 [6, 0]
   1.000800000s ih: Interrupt { client: 14, source: b5, ring_id: 4, vmid: 8 } pasid 3
   1.000900000s cwsr: saved slot=SlotId { xcc: 0, me: 1, pipe: 0, queue: 3 } groups=0
   1.001000000s aql: SlotId { xcc: 0, me: 1, pipe: 0, queue: 3 } 5 [3, 0]
   3.000000000s doorbell: 0x1002 = 0x1
";

    fn guest() -> Guest {
        // The guest's clock is at 7 s when the trace's is at 1 s, and runs at half of its speed.
        let mut timeline = Timeline::new(1);
        let clocks = timeline.track(None, "clocks");
        for (at, ticks) in [(7_000_000_000, 99_990_094u64), (7_500_000_000, 199_990_094)] {
            let facts = [("gpu_id", 77u64.into()), ("ticks", ticks.into())];
            timeline.instant(clocks, at, "GPU 77", facts);
        }
        let queue = timeline.track(None, "queue 0");
        let facts = [("kernel", 0x7f0e_8731_6000u64.into())];
        timeline.slice(queue, 1, 2, "gemm", facts);
        Guest::of(&read(&timeline.encode()).expect("a timeline"))
    }

    #[test]
    fn a_trace_is_laid_over_the_guests_time() {
        let guest = guest();
        let (gpu, clocks) = guest.gpus[0];
        assert_eq!(gpu, 77);
        let mut timeline = Timeline::new(2);
        add(&mut timeline, "GPU 77", TRACE, &clocks, &guest.kernels).expect("a clock");
        let reading = read(&timeline.encode()).expect("a timeline");
        let slices = |name: &'static str| -> Vec<_> {
            let slices = reading.named(name).flat_map(|track| &track.slices);
            slices
                .map(|slice| (slice.name.as_str(), slice.begin, slice.end))
                .collect()
        };
        let zero = 7_000_000_000;
        assert_eq!(
            slices("doorbells").len(),
            1,
            "what is outside of the time is left out"
        );
        assert_eq!(slices("doorbells")[0].0, "0x1002");
        assert!(slices("doorbells")[0].1.abs_diff(zero) < 1000);
        let packets = slices("XCC 0 MEC 1 pipe 0 queue 3 AQL");
        assert_eq!((packets[0].0, packets[1].0), ("gemm", "BARRIER_AND"));
        assert!(packets[0].1.abs_diff(zero + 50_000) < 1000);
        assert!(packets[0].2.abs_diff(zero + 200_000) < 1000);
        assert_eq!(packets[1].1, packets[1].2, "it has only begun");
        assert_eq!(slices("XCC 0 SE 1 CU 1 place 5")[0].0, "gemm");
        assert_eq!(slices("XCC 0 SE 0 CU 0 place 6").len(), 1);
        assert_eq!(slices("run lists")[0].0, "MAP_PROCESS");
        assert_eq!(slices("SDMA 0.1")[0].0, "TRAP");
        assert_eq!(slices("interrupts")[0].0, "client 0x14 source 181");
        let waves = reading.named("waves in flight").next().expect("a counter");
        let counts: Vec<_> = waves.values.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [4, 0, 4, 0]);
    }

    #[test]
    fn a_trace_without_a_clock_is_refused() {
        let guest = guest();
        let mut timeline = Timeline::new(2);
        let trace = "   1.0s doorbell: 0x1002 = 0x1\n";
        assert!(add(
            &mut timeline,
            "GPU",
            trace,
            &guest.gpus[0].1,
            &guest.kernels
        )
        .is_err());
    }
}
