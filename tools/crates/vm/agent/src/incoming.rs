// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What comes from the host, sorted by a thread: requests for the service, and input for the
//! command that runs meanwhile.

use anyhow::{anyhow, Result};
use kfd_vm_protocol::{Frame, Request};
use std::io::Read;
use std::sync::mpsc::{channel, sync_channel, Receiver, Sender};
use std::thread;

/// How many frames of a file may wait for the service: the host's own sending does the rest.
const WAITING: usize = 4;

/// Pieces of a command's input; an empty one at its end.
pub type Input = Receiver<Vec<u8>>;

/// Requests, each with the input of the command that it runs, and the data of files.
pub struct Inbox(Receiver<Result<(Frame, Option<Input>)>>);

impl Inbox {
    pub fn next(&self) -> Result<(Frame, Option<Input>)> {
        self.0.recv().map_err(|_| anyhow!("the port ended"))?
    }
}

/// Reads the port from now on.
pub fn sort(mut port: impl Read + Send + 'static) -> Inbox {
    let (sender, inbox) = sync_channel(WAITING);
    thread::spawn(move || {
        let mut command: Option<Sender<Vec<u8>>> = None;
        loop {
            let item = match Frame::read(&mut port) {
                // It has ended, or reads nothing: nobody misses it.
                Ok(Some(Frame::Stdin(bytes))) => {
                    let _ = command.as_ref().map(|command| command.send(bytes));
                    continue;
                }
                Ok(Some(frame)) => {
                    // What comes behind a request is its command's, however late that starts.
                    let input = match frame {
                        Frame::Request(Request::Run { input: true, .. }) => {
                            let (sender, input) = channel();
                            command = Some(sender);
                            Some(input)
                        }
                        _ => None,
                    };
                    Ok((frame, input))
                }
                Ok(None) => Err(anyhow!("the port ended")),
                Err(error) => Err(error.into()),
            };
            let last = item.is_err();
            if sender.send(item).is_err() || last {
                return;
            }
        }
    });
    Inbox(inbox)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(input: bool) -> Frame {
        Frame::Request(Request::Run {
            argv: vec!["cat".into()],
            env: Vec::new(),
            cwd: "/".into(),
            input,
        })
    }

    #[test]
    fn input_goes_to_the_command_that_was_asked_for_last() {
        let frames = [
            Frame::Stdin(b"nobody's".to_vec()),
            run(true),
            Frame::Stdin(b"one".to_vec()),
            Frame::Stdin(Vec::new()),
            run(true),
            Frame::Stdin(b"two".to_vec()),
            run(false),
            Frame::Request(Request::Hello),
        ];
        let mut bytes = Vec::new();
        frames
            .iter()
            .for_each(|frame| frame.write(&mut bytes).unwrap());
        let inbox = sort(std::io::Cursor::new(bytes));
        let (_, first) = inbox.next().unwrap();
        let (_, second) = inbox.next().unwrap();
        let (_, none) = inbox.next().unwrap();
        assert!(none.is_none());
        assert_eq!(inbox.next().unwrap().0, Frame::Request(Request::Hello));
        assert!(inbox.next().is_err());
        assert_eq!(
            first.unwrap().iter().collect::<Vec<_>>(),
            [b"one".to_vec(), Vec::new()]
        );
        assert_eq!(
            second.unwrap().iter().collect::<Vec<_>>(),
            [b"two".to_vec()]
        );
    }
}
