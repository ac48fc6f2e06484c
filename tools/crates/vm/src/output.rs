// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Where the guest's output goes. Whoever reads it may be slow, or not read at all: that ends no
//! limit and keeps no signal waiting.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// As much as a pipe takes without a wait once it takes anything (`PIPE_BUF`).
const PIECE: usize = 4096;
/// How soon it is noticed that a wait is over.
const POLL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// What takes output. While it can't, `waits` is asked now and then whether to wait on: if not, the
/// rest is lost and the error's kind is `TimedOut`.
pub trait Sink {
    fn stdout(&mut self, bytes: &[u8], waits: &mut dyn FnMut() -> bool) -> io::Result<()>;
    fn stderr(&mut self, bytes: &[u8], waits: &mut dyn FnMut() -> bool) -> io::Result<()>;
}

/// The guest's output is ours.
pub struct PassThrough;

impl Sink for PassThrough {
    fn stdout(&mut self, bytes: &[u8], waits: &mut dyn FnMut() -> bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        // What was printed before comes before.
        out.flush()?;
        write(out.as_fd(), bytes, waits)
    }

    fn stderr(&mut self, bytes: &[u8], waits: &mut dyn FnMut() -> bool) -> io::Result<()> {
        write(io::stderr().lock().as_fd(), bytes, waits)
    }
}

fn write(to: BorrowedFd<'_>, bytes: &[u8], waits: &mut dyn FnMut() -> bool) -> io::Result<()> {
    let mut left = bytes;
    let mut wait = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    while !left.is_empty() {
        match poll(&mut [PollFd::new(&to, PollFlags::OUT)], Some(&wait)) {
            // An error is the write's to tell.
            Ok(1..) => match rustix::io::write(to, &left[..left.len().min(PIECE)]) {
                Ok(count) => left = &left[count..],
                Err(Errno::INTR | Errno::AGAIN) => wait = POLL,
                Err(error) => return Err(error.into()),
            },
            Ok(0) | Err(Errno::INTR) => {
                if !waits() {
                    return Err(ErrorKind::TimedOut.into());
                }
                wait = POLL;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::thread;
    use std::time::Duration;

    fn pipe() -> (File, File) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (reader.into(), writer.into())
    }

    #[test]
    fn a_reader_that_does_not_read_ends_the_wait() {
        let (reader, writer) = pipe();
        let mut asked = 0;
        let mut waits = || {
            asked += 1;
            asked < 3
        };
        let error = write(writer.as_fd(), &[7; 1 << 20], &mut waits).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(asked, 3);
        // Where there is room nobody waits.
        drop(reader);
        let (_reader, writer) = pipe();
        write(writer.as_fd(), &[7; 30_000], &mut || false).unwrap();
    }

    #[test]
    fn a_slow_reader_gets_all_and_one_that_leaves_is_told() {
        let (mut reader, writer) = pipe();
        let slow = thread::spawn(move || {
            let (mut all, mut piece) = (Vec::new(), [0; 50_000]);
            loop {
                match reader.read(&mut piece).unwrap() {
                    0 => return all,
                    count => all.extend_from_slice(&piece[..count]),
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        let bytes: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
        write(writer.as_fd(), &bytes, &mut || true).unwrap();
        drop(writer);
        assert!(slow.join().unwrap() == bytes);

        let (reader, writer) = pipe();
        drop(reader);
        let error = write(writer.as_fd(), b"x", &mut || true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
