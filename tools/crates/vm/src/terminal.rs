// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The terminal that a command in the guest is used from.

use kfd_vm_protocol::{Frame, Window};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{
    isatty, tcgetattr, tcgetwinsize, tcsetattr, OptionalActions, SpecialCodeIndex, Termios,
};
use signal_hook::consts::SIGWINCH;
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// What a terminal has whose size nobody knows.
const USUAL: Window = Window {
    rows: 24,
    columns: 80,
};

/// Whether we are used from a terminal.
pub fn is_ours() -> bool {
    isatty(stdin()) && isatty(stdout())
}

/// What kind of terminal ours is, as programs are told by TERM.
pub fn kind() -> Option<String> {
    std::env::var("TERM").ok().filter(|kind| !kind.is_empty())
}

/// How large ours is.
pub fn size() -> Window {
    let sizes = [
        tcgetwinsize(stdout()),
        tcgetwinsize(stdin()),
        tcgetwinsize(stderr()),
    ];
    let known = sizes
        .iter()
        .flatten()
        .find(|size| size.ws_row > 0 && size.ws_col > 0);
    known.map_or(USUAL, |size| Window {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// Tells the agent, from now on, when our terminal has another size.
pub fn tell_size<W: Write + Send + 'static>(agent: Arc<Mutex<W>>) -> io::Result<()> {
    let mut signals = Signals::new([SIGWINCH])?;
    thread::spawn(move || {
        for _ in signals.forever() {
            let mut agent = agent.lock().unwrap_or_else(PoisonError::into_inner);
            // The session notices by itself that the machine is gone.
            if Frame::Resize(size()).write(&mut *agent).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Our terminal while it is the command's: what is typed goes there as it is, Ctrl-C too. It is
/// what it was before when this is dropped.
pub struct Terminal(Termios);

impl Terminal {
    /// `None`: our input is no terminal.
    pub fn raw() -> io::Result<Option<Self>> {
        if !isatty(stdin()) {
            return Ok(None);
        }
        let before = tcgetattr(stdin())?;
        let mut now = before.clone();
        now.make_raw();
        // A read returns with what there is, and with a byte at least.
        now.special_codes[SpecialCodeIndex::VMIN] = 1;
        now.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Drain, &now)?;
        Ok(Some(Self(before)))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.0);
    }
}
