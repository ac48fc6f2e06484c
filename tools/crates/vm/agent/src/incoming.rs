// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What comes from the host, sorted by a thread: requests for the service, and what the commands
//! are told that run meanwhile.

use anyhow::{anyhow, Result};
use kfd_vm_protocol::{Credit, Frame, Request, Window, OUTPUT_WINDOW};
use std::collections::HashMap;
use std::io::Read;
use std::sync::mpsc::{channel as mpsc, sync_channel, Receiver, Sender};
use std::sync::{Arc, Weak};
use std::thread;

/// How many frames of a file may wait for the service: the host's own sending does the rest.
const WAITING: usize = 4;

/// What a running command is told.
#[derive(Debug, PartialEq)]
pub enum Word {
    /// A piece of its input; empty at its end.
    Input(Vec<u8>),
    Resize(Window),
    Signal(u8),
    Hangup,
}

/// A command's end of the conversation.
pub struct Line {
    /// 0 for the command that the service itself waits for.
    pub channel: u32,
    /// `None`: it reads nothing.
    pub words: Option<Receiver<Word>>,
    /// How much output may be on its way. Who drops the last one is through.
    pub output: Arc<Credit>,
}

/// Requests, each with the line of the command that it runs, and the data of files.
pub struct Inbox(Receiver<Result<(Frame, Option<Line>)>>);

impl Inbox {
    pub fn next(&self) -> Result<(Frame, Option<Line>)> {
        self.0.recv().map_err(|_| anyhow!("the port ended"))?
    }
}

/// The other end of a [`Line`].
struct Running {
    words: Sender<Word>,
    output: Weak<Credit>,
}

#[derive(Default)]
struct Switchboard(HashMap<u32, Running>);

impl Switchboard {
    /// What comes behind a request is its command's, however late that starts.
    fn connect(&mut self, channel: u32, input: bool) -> Line {
        self.0
            .retain(|_, running| running.output.strong_count() > 0);
        // The host reads what is of no channel while it waits for that command alone.
        let window = if channel == 0 {
            usize::MAX
        } else {
            OUTPUT_WINDOW
        };
        let output = Arc::new(Credit::new(window));
        let (words, heard) = mpsc();
        if input || channel != 0 {
            let output = Arc::downgrade(&output);
            self.0.insert(channel, Running { words, output });
        }
        Line {
            channel,
            words: (input || channel != 0).then_some(heard),
            output,
        }
    }

    /// Takes what is for a command; gives back what is for the service.
    fn pass(&self, channel: u32, frame: Frame) -> Option<Frame> {
        let word = match frame {
            Frame::Stdin(bytes) => Word::Input(bytes),
            Frame::Resize(window) => Word::Resize(window),
            Frame::Signal(number) => Word::Signal(number),
            Frame::Hangup => Word::Hangup,
            Frame::Taken(count) => {
                if let Some(output) = self.0.get(&channel).and_then(|r| r.output.upgrade()) {
                    output.add(count as usize);
                }
                return None;
            }
            other => return Some(other),
        };
        if let Some(running) = self.0.get(&channel) {
            if let (Word::Hangup, Some(output)) = (&word, running.output.upgrade()) {
                output.close();
            }
            // It has ended, or reads nothing: nobody misses it.
            let _ = running.words.send(word);
        }
        None
    }
}

/// Reads the port from now on.
pub fn sort(mut port: impl Read + Send + 'static) -> Inbox {
    let (sender, inbox) = sync_channel(WAITING);
    thread::spawn(move || {
        let mut running = Switchboard::default();
        loop {
            let item = match Frame::read(&mut port) {
                Ok(Some(frame)) => {
                    let (channel, frame) = match frame {
                        Frame::Of(channel, frame) => (channel, *frame),
                        frame => (0, frame),
                    };
                    let Some(frame) = running.pass(channel, frame) else {
                        continue;
                    };
                    let line = match frame {
                        Frame::Request(Request::Run { input, .. }) => {
                            Some(running.connect(channel, input))
                        }
                        _ => None,
                    };
                    Ok((frame, line))
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
            terminal: None,
        })
    }

    fn of(channel: u32, frame: Frame) -> Frame {
        Frame::Of(channel, Box::new(frame))
    }

    fn inbox(frames: &[Frame]) -> Inbox {
        let mut bytes = Vec::new();
        frames
            .iter()
            .for_each(|frame| frame.write(&mut bytes).unwrap());
        sort(std::io::Cursor::new(bytes))
    }

    fn words(line: Option<Line>) -> Vec<Word> {
        line.unwrap().words.unwrap().iter().collect()
    }

    fn input(bytes: &[u8]) -> Word {
        Word::Input(bytes.to_vec())
    }

    #[test]
    fn input_goes_to_the_command_that_was_asked_for_last() {
        let inbox = inbox(&[
            Frame::Stdin(b"nobody's".to_vec()),
            run(true),
            Frame::Stdin(b"one".to_vec()),
            Frame::Stdin(Vec::new()),
            run(true),
            Frame::Stdin(b"two".to_vec()),
            run(false),
            Frame::Request(Request::Hello),
        ]);
        let (_, first) = inbox.next().unwrap();
        let (_, second) = inbox.next().unwrap();
        let (_, none) = inbox.next().unwrap();
        assert!(none.unwrap().words.is_none());
        assert_eq!(inbox.next().unwrap().0, Frame::Request(Request::Hello));
        assert!(inbox.next().is_err());
        assert_eq!(words(first), [input(b"one"), input(b"")]);
        assert_eq!(words(second), [input(b"two")]);
    }

    #[test]
    fn channels_are_kept_apart() {
        let window = Window {
            rows: 1,
            columns: 2,
        };
        let inbox = inbox(&[
            of(1, run(true)),
            of(2, run(true)),
            of(1, Frame::Stdin(b"one".to_vec())),
            of(2, Frame::Resize(window)),
            of(3, Frame::Signal(9)),
            of(1, Frame::Hangup),
        ]);
        let first = inbox.next().unwrap().1.unwrap();
        let second = inbox.next().unwrap().1.unwrap();
        assert!(inbox.next().is_err());
        assert_eq!((first.channel, second.channel), (1, 2));
        assert_eq!(first.output.take(1), None, "nobody reads it any more");
        assert_eq!(second.output.take(usize::MAX), Some(OUTPUT_WINDOW));
        assert_eq!(words(Some(first)), [input(b"one"), Word::Hangup]);
        assert_eq!(words(Some(second)), [Word::Resize(window)]);
    }
}
