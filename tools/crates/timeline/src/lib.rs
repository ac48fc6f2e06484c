// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A timeline: tracks with slices, instants and numbers, written as Perfetto reads it, and read
//! back. Two files one behind the other are one file, as long as their writers' numbers differ.
//!
//! ```
//! let mut timeline = kfd_timeline::Timeline::new(1);
//! let gpu = timeline.track(None, "GPU 35281");
//! timeline.slice(gpu, 100, 200, "gemm", [("grid", "32x32x1".into())]);
//! let bytes = timeline.encode();
//! assert_eq!(kfd_timeline::read(&bytes).unwrap().tracks[0].slices[0].name, "gemm");
//! ```

pub mod model;
pub mod proto;
pub mod svg;

use prost::Message;
use proto::*;
use std::collections::HashMap;

/// A value of a fact about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Number(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

/// Facts about an event, by name.
pub type Facts = Vec<(String, Value)>;

/// A track of a [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TrackId(usize);

/// Something on a track, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// When it begins.
    pub begin: u64,
    /// When it ends; what is no longer than its beginning is an instant.
    pub end: u64,
    /// Its name.
    pub name: String,
    /// Facts.
    pub facts: Facts,
}

impl Slice {
    /// A fact by its name.
    pub fn fact(&self, name: &str) -> Option<&Value> {
        let mut facts = self.facts.iter();
        facts
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    /// A fact that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.fact(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }
}

/// A track as it is made, and as it is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    /// Its number in the file.
    pub uuid: u64,
    /// Its name.
    pub name: String,
    /// The number of the track that it is shown below.
    pub parent: Option<u64>,
    /// The process, and the thread of it, that it is of.
    pub of: Option<(i32, Option<i32>)>,
    /// What its numbers count.
    pub unit: Option<String>,
    /// Slices and instants.
    pub slices: Vec<Slice>,
    /// Numbers, each from a time on.
    pub values: Vec<(u64, i64)>,
}

/// A timeline in the making.
pub struct Timeline {
    writer: u32,
    tracks: Vec<Track>,
}

impl Timeline {
    /// An empty one, of writer number `writer` of the file that it will be in.
    pub fn new(writer: u32) -> Self {
        Self {
            writer,
            tracks: Vec::new(),
        }
    }

    fn add(&mut self, parent: Option<TrackId>, name: &str) -> TrackId {
        let id = TrackId(self.tracks.len());
        self.tracks.push(Track {
            uuid: u64::from(self.writer) << 32 | (id.0 as u64 + 1),
            name: name.to_owned(),
            parent: parent.map(|parent| self.tracks[parent.0].uuid),
            ..Track::default()
        });
        id
    }

    /// A track, below another.
    pub fn track(&mut self, parent: Option<TrackId>, name: &str) -> TrackId {
        self.add(parent, name)
    }

    /// A process's track.
    pub fn process(&mut self, pid: i32, name: &str) -> TrackId {
        let id = self.add(None, name);
        self.tracks[id.0].of = Some((pid, None));
        id
    }

    /// A thread's track.
    pub fn thread(&mut self, process: TrackId, pid: i32, tid: i32, name: &str) -> TrackId {
        let id = self.add(Some(process), name);
        self.tracks[id.0].of = Some((pid, Some(tid)));
        id
    }

    /// A counter's track.
    pub fn counter(&mut self, parent: Option<TrackId>, name: &str, unit: &str) -> TrackId {
        let id = self.add(parent, name);
        self.tracks[id.0].unit = Some(unit.to_owned());
        id
    }

    /// Something that took from `begin` to `end`. If it does not nest with others of the track it
    /// is cut to, by [`Timeline::encode`].
    pub fn slice<'a>(
        &mut self,
        track: TrackId,
        begin: u64,
        end: u64,
        name: &str,
        facts: impl IntoIterator<Item = (&'a str, Value)>,
    ) {
        let facts = facts.into_iter();
        self.tracks[track.0].slices.push(Slice {
            begin,
            end: end.max(begin),
            name: name.to_owned(),
            facts: facts
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        });
    }

    /// Something without a length.
    pub fn instant<'a>(
        &mut self,
        track: TrackId,
        at: u64,
        name: &str,
        facts: impl IntoIterator<Item = (&'a str, Value)>,
    ) {
        self.slice(track, at, at, name, facts);
    }

    /// A counter's value from a time on.
    pub fn count(&mut self, track: TrackId, at: u64, value: i64) {
        self.tracks[track.0].values.push((at, value));
    }

    /// The tracks so far.
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// The file's bytes. Tracks with nothing on or below them are left out.
    pub fn encode(mut self) -> Vec<u8> {
        let writer = self.writer;
        let is_used = self.used();
        let mut events = Vec::new();
        let mut packets = Vec::new();
        for (track, is_used) in self.tracks.iter_mut().zip(is_used) {
            if is_used {
                packets.push(packet(
                    writer,
                    None,
                    Data::TrackDescriptor(descriptor(track)),
                ));
                nest(&mut track.slices);
                track_events(track, &mut events);
            }
        }
        // Stable: what is at the same time on one track stays in its order.
        events.sort_by_key(|(at, _)| *at);
        let events = events.into_iter();
        packets.extend(events.map(|(at, event)| packet(writer, Some(at), Data::TrackEvent(event))));
        Trace { packet: packets }.encode_to_vec()
    }

    fn used(&self) -> Vec<bool> {
        let of = |track: &Track| !track.slices.is_empty() || !track.values.is_empty();
        let mut used: Vec<_> = self.tracks.iter().map(of).collect();
        // A parent comes before its children.
        for at in (0..self.tracks.len()).rev() {
            let parent = self.tracks[at].parent.filter(|_| used[at]);
            let place = self
                .tracks
                .iter()
                .position(|track| Some(track.uuid) == parent);
            if let Some(place) = place {
                used[place] = true;
            }
        }
        used
    }
}

fn packet(writer: u32, at: Option<u64>, data: Data) -> TracePacket {
    TracePacket {
        timestamp: at,
        trusted_packet_sequence_id: Some(writer),
        data: Some(data),
    }
}

fn descriptor(track: &Track) -> TrackDescriptor {
    let name = Some(track.name.clone());
    let (process, thread) = match track.of {
        None => (None, None),
        Some((pid, None)) => {
            let process = ProcessDescriptor {
                pid: Some(pid),
                process_name: name.clone(),
            };
            (Some(process), None)
        }
        Some((pid, tid)) => {
            let thread = ThreadDescriptor {
                pid: Some(pid),
                tid,
                thread_name: name.clone(),
            };
            (None, Some(thread))
        }
    };
    TrackDescriptor {
        uuid: Some(track.uuid),
        // Those of processes and threads have their names in there.
        name: name.filter(|_| track.of.is_none()),
        process,
        thread,
        parent_uuid: track.parent,
        counter: track.unit.clone().map(|unit| CounterDescriptor {
            unit_name: Some(unit),
        }),
    }
}

/// Puts slices in the order of their beginnings, outer ones first, and cuts those that would end
/// after the one that they begin in.
fn nest(slices: &mut [Slice]) {
    slices.sort_by_key(|slice| (slice.begin, std::cmp::Reverse(slice.end)));
    let mut ends: Vec<u64> = Vec::new();
    for slice in slices {
        while ends.last().is_some_and(|end| *end <= slice.begin) {
            ends.pop();
        }
        if let Some(outer) = ends.last().filter(|outer| **outer < slice.end) {
            slice.end = *outer;
        }
        if slice.end > slice.begin {
            ends.push(slice.end);
        }
    }
}

fn track_events(track: &Track, events: &mut Vec<(u64, TrackEvent)>) {
    let event = |kind: Kind| TrackEvent {
        kind: Some(kind.into()),
        track_uuid: Some(track.uuid),
        ..TrackEvent::default()
    };
    let mut ends: Vec<u64> = Vec::new();
    for slice in &track.slices {
        while ends.last().is_some_and(|end| *end <= slice.begin) {
            events.extend(ends.pop().map(|end| (end, event(Kind::SliceEnd))));
        }
        let is_slice = slice.end > slice.begin;
        let kind = if is_slice {
            Kind::SliceBegin
        } else {
            Kind::Instant
        };
        let mut begin = event(kind);
        begin.name = Some(slice.name.clone());
        begin.debug_annotations = slice.facts.iter().map(annotation).collect();
        events.push((slice.begin, begin));
        if is_slice {
            ends.push(slice.end);
        }
    }
    while let Some(end) = ends.pop() {
        events.push((end, event(Kind::SliceEnd)));
    }
    for (at, value) in &track.values {
        let mut counter = event(Kind::Counter);
        counter.counter_value = Some(*value);
        events.push((*at, counter));
    }
}

fn annotation((name, value): &(String, Value)) -> DebugAnnotation {
    let (uint_value, string_value) = match value {
        Value::Number(number) => (Some(*number), None),
        Value::Text(text) => (None, Some(text.clone())),
    };
    DebugAnnotation {
        name: Some(name.clone()),
        uint_value,
        string_value,
    }
}

/// What was read from a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The tracks, in the order of the file.
    pub tracks: Vec<Track>,
}

impl Reading {
    /// The tracks of that name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Track> {
        self.tracks.iter().filter(move |track| track.name == name)
    }
}

/// Why bytes are no timeline.
#[derive(Debug)]
pub struct Malformed(String);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no timeline: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads a file back. What Perfetto would show elsewhere than meant is an error: an event on a
/// track that is not described, an end without a beginning, a slice that does not end, time that
/// goes back within a writer's events.
pub fn read(bytes: &[u8]) -> Result<Reading, Malformed> {
    let trace = Trace::decode(bytes).map_err(|error| Malformed(error.to_string()))?;
    let mut reading = Reading::default();
    let mut places: HashMap<u64, usize> = HashMap::new();
    let mut open: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut last: HashMap<u32, u64> = HashMap::new();
    for packet in trace.packet {
        let writer = packet.trusted_packet_sequence_id.unwrap_or(0);
        match packet.data {
            Some(Data::TrackDescriptor(descriptor)) => {
                let track = track_of(descriptor);
                places.insert(track.uuid, reading.tracks.len());
                reading.tracks.push(track);
            }
            Some(Data::TrackEvent(event)) => {
                let at = packet.timestamp.unwrap_or(0);
                let last = last.entry(writer).or_default();
                if at < *last {
                    return Err(Malformed(format!("time goes back from {last} to {at}")));
                }
                *last = at;
                let uuid = event.track_uuid.unwrap_or(0);
                let place = places.get(&uuid);
                let place = place.ok_or_else(|| Malformed(format!("there is no track {uuid}")))?;
                take(
                    &mut reading.tracks[*place],
                    open.entry(uuid).or_default(),
                    at,
                    event,
                )?;
            }
            None => {}
        }
    }
    match open.iter().find(|(_, slices)| !slices.is_empty()) {
        Some((uuid, _)) => Err(Malformed(format!("a slice of track {uuid} does not end"))),
        None => Ok(reading),
    }
}

fn track_of(descriptor: TrackDescriptor) -> Track {
    let thread = descriptor.thread.as_ref();
    let process = descriptor.process.as_ref();
    let names = [
        descriptor.name,
        thread.and_then(|thread| thread.thread_name.clone()),
        process.and_then(|process| process.process_name.clone()),
    ];
    let of = match (thread, process) {
        (Some(thread), _) => Some((thread.pid.unwrap_or(0), thread.tid)),
        (None, Some(process)) => Some((process.pid.unwrap_or(0), None)),
        (None, None) => None,
    };
    Track {
        uuid: descriptor.uuid.unwrap_or(0),
        name: names.into_iter().flatten().next().unwrap_or_default(),
        parent: descriptor.parent_uuid,
        of,
        unit: descriptor
            .counter
            .map(|counter| counter.unit_name.unwrap_or_default()),
        ..Track::default()
    }
}

fn take(
    track: &mut Track,
    open: &mut Vec<usize>,
    at: u64,
    event: TrackEvent,
) -> Result<(), Malformed> {
    match event.kind() {
        Kind::SliceBegin | Kind::Instant => {
            if event.kind() == Kind::SliceBegin {
                open.push(track.slices.len());
            }
            let fact = |annotation: DebugAnnotation| {
                let number = annotation.uint_value.map(Value::Number);
                let value = number.or(annotation.string_value.map(Value::Text));
                Some((annotation.name.unwrap_or_default(), value?))
            };
            let kind = event.kind();
            let name = event.name.unwrap_or_default();
            let facts = event.debug_annotations.into_iter().filter_map(fact);
            debug_assert!(matches!(kind, Kind::SliceBegin | Kind::Instant));
            track.slices.push(Slice {
                begin: at,
                end: at,
                name,
                facts: facts.collect(),
            });
        }
        Kind::SliceEnd => {
            let slice = open.pop();
            let slice =
                slice.ok_or_else(|| Malformed(format!("an end without a slice at {at}")))?;
            track.slices[slice].end = at;
        }
        Kind::Counter => track.values.push((at, event.counter_value.unwrap_or(0))),
        Kind::Unspecified => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut timeline = Timeline::new(7);
        let process = timeline.process(12, "gemm");
        let thread = timeline.thread(process, 12, 13, "worker");
        let counter = timeline.counter(Some(process), "waves", "waves");
        let empty = timeline.track(None, "nothing");
        let _ = timeline.track(Some(empty), "nothing either");
        timeline.slice(thread, 10, 90, "WAIT_EVENTS", [("result", 0.into())]);
        timeline.slice(thread, 20, 30, "inner", [("why", "because".into())]);
        timeline.instant(thread, 25, "interrupt", []);
        timeline.count(counter, 15, -3);
        let reading = read(&timeline.encode()).expect("it is well-formed");
        let names: Vec<_> = reading
            .tracks
            .iter()
            .map(|track| track.name.as_str())
            .collect();
        assert_eq!(names, ["gemm", "worker", "waves"]);
        let thread = &reading.tracks[1];
        assert_eq!(
            (thread.of, thread.parent),
            (Some((12, Some(13))), Some(7 << 32 | 1))
        );
        let times: Vec<_> = thread
            .slices
            .iter()
            .map(|slice| (slice.begin, slice.end))
            .collect();
        assert_eq!(times, [(10, 90), (20, 30), (25, 25)]);
        assert_eq!(thread.slices[0].number("result"), Some(0));
        assert_eq!(reading.tracks[2].values, [(15, -3)]);
        assert_eq!(reading.tracks[2].unit.as_deref(), Some("waves"));
    }

    #[test]
    fn slices_that_overlap_are_cut_to_nest() {
        let mut timeline = Timeline::new(1);
        let track = timeline.track(None, "queue");
        for (begin, end) in [(50, 70), (10, 60), (20, 55), (60, 80), (60, 60)] {
            timeline.slice(track, begin, end, "s", []);
        }
        let reading = read(&timeline.encode()).expect("it nests");
        let slices = &reading.tracks[0].slices;
        let times: Vec<_> = slices
            .iter()
            .map(|slice| (slice.begin, slice.end))
            .collect();
        assert_eq!(times, [(10, 60), (20, 55), (50, 55), (60, 80), (60, 60)]);
    }

    #[test]
    fn two_files_are_one() {
        let file = |writer| {
            let mut timeline = Timeline::new(writer);
            let track = timeline.track(None, "t");
            timeline.slice(track, 5, 9, "s", []);
            timeline.encode()
        };
        let both = [file(1), file(2)].concat();
        let reading = read(&both).expect("it is one");
        assert_eq!(reading.named("t").count(), 2);
        assert_ne!(reading.tracks[0].uuid, reading.tracks[1].uuid);
    }

    #[test]
    fn what_perfetto_would_misread_is_an_error() {
        let file = |events: &[(u64, Kind, u64)]| {
            let descriptor = TrackDescriptor {
                uuid: Some(1),
                ..TrackDescriptor::default()
            };
            let mut packets = vec![packet(1, None, Data::TrackDescriptor(descriptor))];
            for (at, kind, track) in events {
                let event = TrackEvent {
                    kind: Some((*kind).into()),
                    track_uuid: Some(*track),
                    ..TrackEvent::default()
                };
                packets.push(packet(1, Some(*at), Data::TrackEvent(event)));
            }
            read(&Trace { packet: packets }.encode_to_vec())
        };
        use Kind::*;
        assert!(file(&[(1, SliceBegin, 1), (2, SliceEnd, 1)]).is_ok());
        assert!(file(&[(1, SliceBegin, 1)]).is_err());
        assert!(file(&[(1, SliceEnd, 1)]).is_err());
        assert!(file(&[(1, Instant, 2)]).is_err());
        assert!(file(&[(2, Instant, 1), (1, Instant, 1)]).is_err());
        assert!(read(&[0xff; 9]).is_err());
    }
}
