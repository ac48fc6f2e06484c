// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The protocol between `kfd-vm` on the host and its agent in the guest.
//!
//! One virtio-serial port carries frames both ways: a kind byte, a little-endian 32-bit length and
//! the payload. The host sends one [`Request`] at a time and the agent answers with one [`Reply`];
//! in between it sends the output of the command it runs, and kernel messages where asked for, and
//! the host sends what the command reads.
//!
//! Beside that conversation there are channels, each for one command: a frame of a channel travels
//! in a [`Frame::Of`]. They run at the same time, and so that none can stop the port, a channel has
//! a window for output ([`OUTPUT_WINDOW`]) as it has for input.

mod credit;

pub use credit::Credit;

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// The name of the virtio-serial port, which the guest finds in sysfs.
pub const PORT: &str = "amdkfd.agent";
/// The mount tag of the shared directory.
pub const SHARE_TAG: &str = "share";
/// Where the guest mounts the shared directory.
pub const SHARE: &str = "/mnt/share";
/// Serial numbers of the two virtio disks.
pub const ROOT_DISK: &str = "root";
/// See [`ROOT_DISK`].
pub const MODULES_DISK: &str = "modules";
/// The list of kernel modules in the initramfs that the agent loads, in this order.
pub const MODULE_LIST: &str = "/modules.list";
/// How many bytes of a command's input may be on their way, sent and not yet [`Frame::Taken`]: a
/// command that reads nothing must not stop the port.
pub const INPUT_WINDOW: usize = 256 << 10;
/// The same for the output of a channel's command: sent, and not yet [`Frame::Taken`] by the host.
pub const OUTPUT_WINDOW: usize = 256 << 10;
/// The longest payload of a frame: longer data goes into several.
pub const MAX_PAYLOAD: usize = 1 << 20;

const HEADER: usize = 5;

/// How large a terminal is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub rows: u16,
    pub columns: u16,
}

/// How far a GPU has to have come until it counts as there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arrival {
    /// It is on the bus, and what drivers there are have been offered it.
    OnBus,
    /// It was there before amdgpu, which had probed all devices when its loading ended.
    Found,
    /// amdgpu was there before it, so that the probe runs beside us: it is over.
    Probed,
}

/// What the host asks of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "request")]
pub enum Request {
    /// Answered with [`Reply::Ready`] as soon as the guest is up.
    Hello,
    /// The first thing after a boot or a restore: what a snapshot cannot know.
    Settle {
        /// The wall clock, in nanoseconds since 1970.
        realtime_ns: u64,
        /// Stream kernel messages from the beginning.
        log: bool,
        /// What commands find in their environment beside what all have.
        #[serde(default)]
        env: Vec<(String, String)>,
        /// Where commands run that do not say.
        #[serde(default)]
        cwd: String,
    },
    /// Mount the shared directory at [`SHARE`].
    MountShare,
    /// Load a module: a file, or one of the kernel's by name with all that it needs.
    LoadModule { name: String, parameters: String },
    /// Wait for the network card, give it its address, and write /etc/resolv.conf.
    SetUpNetwork,
    /// Write a file of `size` bytes, which follow in [`Frame::Data`] frames.
    WriteFile { path: String, mode: u32, size: u64 },
    /// Wait until `count` GPUs have come so far.
    AwaitGpus {
        count: usize,
        timeout_ms: u64,
        arrival: Arrival,
    },
    /// Run a command, stream its output, answer with [`Reply::Exit`].
    Run {
        argv: Vec<String>,
        env: Vec<(String, String)>,
        /// Empty: that of [`Request::Settle`].
        cwd: String,
        /// Whether it reads what comes in [`Frame::Stdin`]; otherwise it reads nothing.
        #[serde(default)]
        input: bool,
        /// Give it a terminal of this size, whose output is all [`Frame::Stdout`].
        #[serde(default)]
        terminal: Option<Window>,
    },
}

/// What the agent answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reply")]
pub enum Reply {
    Ready {
        release: String,
    },
    Done,
    /// The exit status as a shell gives it: 128 + n for a death by signal n.
    Exit {
        status: i32,
    },
    Failed {
        message: String,
    },
}

/// One unit on the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Request(Request),
    Reply(Reply),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// Kernel messages.
    Log(Vec<u8>),
    /// A piece of the file that [`Request::WriteFile`] announced.
    Data(Vec<u8>),
    /// A piece of the running command's input; empty at its end.
    Stdin(Vec<u8>),
    /// So many bytes of input have gone to the command, or nowhere since it reads no more.
    Taken(u32),
    /// The host's terminal has another size now.
    Resize(Window),
    /// The command's process group gets this signal.
    Signal(u8),
    /// Nobody reads the command's output any more: its group gets SIGHUP.
    Hangup,
    /// A frame of a channel; channels are numbered from 1, and a number is used once.
    Of(u32, Box<Frame>),
}

impl Frame {
    fn parts(&self) -> io::Result<(u8, Vec<u8>)> {
        Ok(match self {
            Frame::Request(request) => (b'Q', serde_json::to_vec(request)?),
            Frame::Reply(reply) => (b'R', serde_json::to_vec(reply)?),
            Frame::Stdout(bytes) => (b'1', bytes.clone()),
            Frame::Stderr(bytes) => (b'2', bytes.clone()),
            Frame::Log(bytes) => (b'L', bytes.clone()),
            Frame::Data(bytes) => (b'D', bytes.clone()),
            Frame::Stdin(bytes) => (b'0', bytes.clone()),
            Frame::Taken(count) => (b'T', count.to_le_bytes().to_vec()),
            Frame::Resize(Window { rows, columns }) => {
                (b'W', [rows.to_le_bytes(), columns.to_le_bytes()].concat())
            }
            Frame::Signal(number) => (b'S', vec![*number]),
            Frame::Hangup => (b'H', Vec::new()),
            Frame::Of(channel, frame) => {
                let (kind, payload) = frame.parts()?;
                let mut bytes = channel.to_le_bytes().to_vec();
                bytes.push(kind);
                bytes.extend(payload);
                (b'C', bytes)
            }
        })
    }

    /// Writes the frame in one `write_all`, so that a lock around it keeps frames whole.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (kind, payload) = self.parts()?;
        if payload.len() > MAX_PAYLOAD {
            return Err(bad(format!(
                "a frame of {} bytes is too long",
                payload.len()
            )));
        }
        let mut bytes = Vec::with_capacity(HEADER + payload.len());
        bytes.push(kind);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&payload);
        out.write_all(&bytes)?;
        out.flush()
    }

    /// Reads the next frame; `None` at the end of the stream.
    pub fn read(input: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut kind = [0];
        if input.read(&mut kind)? == 0 {
            return Ok(None);
        }
        let mut length = [0; 4];
        input.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_PAYLOAD {
            return Err(bad(format!("a frame announces {length} bytes")));
        }
        let mut payload = vec![0; length];
        input.read_exact(&mut payload)?;
        Frame::from_parts(kind[0], payload).map(Some)
    }

    fn from_parts(kind: u8, payload: Vec<u8>) -> io::Result<Frame> {
        Ok(match kind {
            b'Q' => Frame::Request(serde_json::from_slice(&payload)?),
            b'R' => Frame::Reply(serde_json::from_slice(&payload)?),
            b'1' => Frame::Stdout(payload),
            b'2' => Frame::Stderr(payload),
            b'L' => Frame::Log(payload),
            b'D' => Frame::Data(payload),
            b'0' => Frame::Stdin(payload),
            b'T' => {
                let count = payload.try_into().map_err(|_| bad("no count".into()))?;
                Frame::Taken(u32::from_le_bytes(count))
            }
            b'W' => match payload[..] {
                [r0, r1, c0, c1] => Frame::Resize(Window {
                    rows: u16::from_le_bytes([r0, r1]),
                    columns: u16::from_le_bytes([c0, c1]),
                }),
                _ => return Err(bad("no size".into())),
            },
            b'S' => match payload[..] {
                [number] => Frame::Signal(number),
                _ => return Err(bad("no signal".into())),
            },
            b'H' => Frame::Hangup,
            b'C' => match payload[..] {
                // A channel in a channel is none.
                [c0, c1, c2, c3, kind, ref rest @ ..] if kind != b'C' => Frame::Of(
                    u32::from_le_bytes([c0, c1, c2, c3]),
                    Box::new(Frame::from_parts(kind, rest.to_vec())?),
                ),
                _ => return Err(bad("no channel".into())),
            },
            other => return Err(bad(format!("unknown frame kind {other:#x}"))),
        })
    }
}

fn bad(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(frame: &Frame) -> Vec<u8> {
        let mut out = Vec::new();
        frame.write(&mut out).unwrap();
        out
    }

    #[test]
    fn every_frame_comes_back_as_it_went() {
        let frames = [
            Frame::Request(Request::Run {
                argv: vec!["echo".into(), "a b".into()],
                env: vec![("K".into(), "ü".into())],
                cwd: "/".into(),
                input: true,
                terminal: Some(Window {
                    rows: 24,
                    columns: 80,
                }),
            }),
            Frame::Request(Request::Settle {
                realtime_ns: u64::MAX,
                log: true,
                env: vec![("A".into(), "b".into())],
                cwd: "/root".into(),
            }),
            Frame::Reply(Reply::Exit { status: -1 }),
            Frame::Stdout(vec![0, 255, b'\n']),
            Frame::Stderr(Vec::new()),
            Frame::Log(b"x".to_vec()),
            Frame::Stdin(b"in".to_vec()),
            Frame::Stdin(Vec::new()),
            Frame::Taken(70_000),
            Frame::Resize(Window {
                rows: 300,
                columns: 1,
            }),
            Frame::Signal(15),
            Frame::Hangup,
            Frame::Of(70_000, Box::new(Frame::Stdout(b"out".to_vec()))),
            Frame::Of(1, Box::new(Frame::Hangup)),
            Frame::Data(vec![7; MAX_PAYLOAD]),
        ];
        let stream: Vec<u8> = frames.iter().flat_map(bytes).collect();
        let mut input = stream.as_slice();
        for frame in &frames {
            assert_eq!(Frame::read(&mut input).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(Frame::read(&mut input).unwrap(), None);
    }

    #[test]
    fn the_wire_format_is_kind_length_payload() {
        assert_eq!(bytes(&Frame::Stdout(b"hi".to_vec())), b"1\x02\0\0\0hi");
    }

    #[test]
    fn a_cut_or_wrong_frame_is_an_error() {
        let whole = bytes(&Frame::Stdout(b"hello".to_vec()));
        for cut in 1..whole.len() {
            assert!(Frame::read(&mut &whole[..cut]).is_err(), "cut at {cut}");
        }
        assert!(Frame::read(&mut &b"?\0\0\0\0"[..]).is_err());
        assert!(Frame::read(&mut &b"T\x02\0\0\0ab"[..]).is_err());
        assert!(Frame::read(&mut &b"W\x02\0\0\0ab"[..]).is_err());
        assert!(Frame::read(&mut &b"S\0\0\0\0"[..]).is_err());
        assert!(Frame::read(&mut &b"C\x04\0\0\0abcd"[..]).is_err());
        assert!(Frame::read(&mut &b"C\x0a\0\0\0abcdCabcdH"[..]).is_err());
        assert!(Frame::read(&mut &b"1\xff\xff\xff\xff"[..]).is_err());
        assert!(Frame::read(&mut &b"Q\x02\0\0\0{}"[..]).is_err());
        assert!(Frame::Data(vec![0; MAX_PAYLOAD + 1])
            .write(&mut Vec::new())
            .is_err());
    }
}
