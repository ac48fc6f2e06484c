// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The messages of Perfetto's trace format that a timeline needs, with their field numbers
//! (perfetto.dev, "Trace Packet Proto Reference"). A reader skips what it does not know, so a
//! subset is a whole trace.

use prost::{Message, Oneof};

/// A file.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// What it consists of, in the order of time.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// One unit of a file.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// Nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Who wrote it: events of one writer are in order.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// What it says.
    #[prost(oneof = "Data", tags = "11, 60")]
    pub data: Option<Data>,
}

/// What a packet says.
#[derive(Clone, PartialEq, Oneof)]
pub enum Data {
    /// Something happens on a track.
    #[prost(message, tag = "11")]
    TrackEvent(TrackEvent),
    /// There is a track.
    #[prost(message, tag = "60")]
    TrackDescriptor(TrackDescriptor),
}

/// A track.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// Its number.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// Its name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// It is a process's.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// It is a thread's.
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    /// The track that it is shown below.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// It holds numbers.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// A process.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    /// Its number.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Its name.
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

/// A thread.
#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    /// Its process's number.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// Its own number.
    #[prost(int32, optional, tag = "2")]
    pub tid: Option<i32>,
    /// Its name.
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

/// A counter.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    /// What its numbers count.
    #[prost(string, optional, tag = "6")]
    pub unit_name: Option<String>,
}

/// An event of a track.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// Facts about it.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// What it is.
    #[prost(enumeration = "Kind", optional, tag = "9")]
    pub kind: Option<i32>,
    /// The track.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// Its name.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// A counter's value.
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Kind {
    /// None of the others.
    Unspecified = 0,
    /// A slice begins.
    SliceBegin = 1,
    /// The innermost slice ends.
    SliceEnd = 2,
    /// Something without a length.
    Instant = 3,
    /// A counter has another value.
    Counter = 4,
}

/// A fact.
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// What it is of the event.
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
    /// A number.
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    /// A text.
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
}
