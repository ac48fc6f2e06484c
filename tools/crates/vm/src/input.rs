// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Our input becomes the command's: a thread reads and sends, as far as the guest has room.

use kfd_vm_protocol::{Credit, Frame};
use rustix::process::getpgrp;
use rustix::termios::{isatty, tcgetpgrp};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

const PIECE: usize = 32 << 10;

/// Our standard input. From a terminal that another job has it has ended: to read there would stop
/// us (SIGTTIN).
pub struct Standard;

impl Read for Standard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match is_others(rustix::stdio::stdin()) {
            true => Ok(0),
            false => io::stdin().read(buffer),
        }
    }
}

/// Whether `input` is a terminal that another process group has in the foreground.
fn is_others(input: impl AsFd) -> bool {
    isatty(&input) && tcgetpgrp(&input).is_ok_and(|group| group != getpgrp())
}

/// Sends `input` to the agent until it ends or the command does. The thread may be left reading: it
/// ends with the process.
pub fn pass_on<R, W>(mut input: R, agent: Arc<Mutex<W>>, credit: Arc<Credit>)
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    thread::spawn(move || {
        let mut buffer = vec![0; PIECE];
        while let Some(room) = credit.take(PIECE) {
            let count = match input.read(&mut buffer[..room]) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    credit.add(room);
                    continue;
                }
                // What can't be read has ended: closed, or of a terminal that we are not to read.
                Err(_) => 0,
            };
            credit.add(room - count);
            let mut agent = agent.lock().unwrap_or_else(PoisonError::into_inner);
            // The session notices by itself that the machine is gone.
            let sent = Frame::Stdin(buffer[..count].to_vec()).write(&mut *agent);
            if sent.is_err() || count == 0 {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_vm_protocol::INPUT_WINDOW;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn no_more_is_sent_than_there_is_room_for() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let credit = Arc::new(Credit::new(INPUT_WINDOW));
        pass_on(
            std::io::repeat(7),
            Arc::new(Mutex::new(ours)),
            credit.clone(),
        );
        let mut sent = 0;
        let mut read_all = || {
            while let Ok(Some(Frame::Stdin(bytes))) = Frame::read(&mut theirs) {
                sent += bytes.len();
            }
            sent
        };
        assert_eq!(read_all(), INPUT_WINDOW);
        credit.add(1000);
        assert_eq!(read_all(), INPUT_WINDOW + 1000);
        credit.close();
        credit.add(1000);
        assert_eq!(read_all(), INPUT_WINDOW + 1000);
    }

    #[test]
    fn the_end_is_told_once() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let agent = Arc::new(Mutex::new(ours));
        pass_on(&b"hi"[..], agent, Arc::new(Credit::new(INPUT_WINDOW)));
        let mut frames = Vec::new();
        while let Some(frame) = Frame::read(&mut theirs).unwrap() {
            frames.push(frame);
        }
        assert_eq!(
            frames,
            [Frame::Stdin(b"hi".to_vec()), Frame::Stdin(Vec::new())]
        );
    }
}
