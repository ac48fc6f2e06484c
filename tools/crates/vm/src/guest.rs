// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What comes out of a running guest: the agent's frames and the console, each read by a thread.

use kfd_vm_protocol::Frame;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// How many frames may wait for the session: a reader of ours that is slow holds the guest up
/// instead of filling our memory.
pub const WAITING: usize = 16;

/// News for the session.
#[derive(Debug)]
pub enum News {
    Frame(Frame),
    /// The agent's stream has ended: the machine is gone.
    Gone(String),
}

/// Reads frames until the stream ends; the last news says so.
pub fn read_frames(stream: UnixStream, news: SyncSender<News>) {
    thread::spawn(move || {
        let mut input = BufReader::new(stream);
        loop {
            let item = match Frame::read(&mut input) {
                Ok(Some(frame)) => News::Frame(frame),
                Ok(None) => News::Gone("the machine stopped".into()),
                Err(error) => News::Gone(format!("the agent's stream broke: {error}")),
            };
            let last = matches!(item, News::Gone(_));
            if news.send(item).is_err() || last {
                return;
            }
        }
    });
}

/// The last of what the console said.
pub struct Console {
    kept: Arc<Kept>,
    input: UnixStream,
}

#[derive(Default)]
struct Kept(Mutex<VecDeque<u8>>);

const KEPT: usize = 64 << 10;

impl Console {
    /// Reads the console to its end, also into a file.
    pub fn read(mut stream: UnixStream, mut copy: Option<File>) -> io::Result<Self> {
        let kept = Arc::new(Kept::default());
        let console = Self {
            kept: kept.clone(),
            input: stream.try_clone()?,
        };
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                kept.push(&buffer[..count]);
                if let Some(file) = &mut copy {
                    // The log is a by-product: a full disk must not end the run.
                    let _ = file.write_all(&buffer[..count]);
                }
            }
        });
        Ok(console)
    }

    pub fn type_in(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.input.write_all(bytes)
    }

    /// The last `count` lines; after a crash, from its first line on.
    pub fn tail(&self, count: usize) -> String {
        self.kept.tail(count)
    }

    pub fn has_crash(&self) -> bool {
        self.kept.tail(usize::MAX).lines().any(is_crash)
    }
}

impl Kept {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let excess = kept.len().saturating_sub(KEPT);
        kept.drain(..excess);
    }

    fn tail(&self, count: usize) -> String {
        let bytes: Vec<u8> = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .copied()
            .collect();
        let text = String::from_utf8_lossy(&bytes).replace('\r', "");
        let lines: Vec<&str> = text.lines().collect();
        let crash = lines
            .iter()
            .position(|line| is_crash(line))
            .unwrap_or(lines.len());
        lines[crash.min(lines.len().saturating_sub(count))..].join("\n")
    }
}

fn is_crash(line: &str) -> bool {
    [
        "Kernel panic - not syncing",
        "BUG: ",
        "Oops: ",
        "general protection fault",
    ]
    .iter()
    .any(|sign| line.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_starts_at_a_crash() {
        let console = Kept::default();
        console.push(b"boot\r\nBUG: kernel NULL pointer\r\n");
        for line in 0..100 {
            console.push(format!("trace {line}\n").as_bytes());
        }
        assert!(console
            .tail(5)
            .starts_with("BUG: kernel NULL pointer\ntrace 0\n"));
    }

    #[test]
    fn only_the_last_lines_are_shown() {
        let console = Kept::default();
        console.push(&b"line\n".repeat(20_000));
        assert_eq!(console.tail(3), "line\nline\nline");
    }

    #[test]
    fn frames_arrive_until_the_stream_ends() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (sender, news) = std::sync::mpsc::sync_channel(8);
        read_frames(ours, sender);
        Frame::Stdout(b"x".to_vec()).write(&mut theirs).unwrap();
        drop(theirs);
        assert!(matches!(news.recv(), Ok(News::Frame(Frame::Stdout(_)))));
        assert!(matches!(news.recv(), Ok(News::Gone(_))));
        assert!(news.recv().is_err());
    }
}
