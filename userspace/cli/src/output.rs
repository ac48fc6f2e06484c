// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Standard output that may end before we do, such as the pipe of `kfdctl doctor | head`: std's
//! `println!` panics then.

use std::io;

/// As `print!`, in a function that returns an error where the text cannot be written.
macro_rules! out {
    ($($argument:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout(), format_args!($($argument)*))?
    };
}

/// As `println!`, in a function that returns an error where the text cannot be written.
macro_rules! outln {
    ($($argument:tt)*) => {
        out!("{}\n", format_args!($($argument)*))
    };
}

/// `text`, which somebody else chose, such as the name of a process or a kernel, with a `?` for
/// each control character, as `ps` has it: a terminal would execute what they are a part of.
pub fn shown(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// What printing came to, where the result matters to more than the reader, who may leave.
pub fn unless_closed(printed: anyhow::Result<()>) -> anyhow::Result<()> {
    printed.or_else(|error| match is_closed(&error) {
        true => Ok(()),
        false => Err(error),
    })
}

/// Whether `error` only says that the reader of our output is gone.
pub fn is_closed(error: &anyhow::Error) -> bool {
    let is_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error
        .chain()
        .any(|cause| cause.downcast_ref().is_some_and(is_pipe))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_elses_text_controls_the_terminal() {
        assert_eq!(shown("\x1b]0;ok\x07\x1bc\n\u{9b}"), "?]0;ok??c??");
        assert_eq!(shown("ein Name: \u{fc}\u{3b2}"), "ein Name: \u{fc}\u{3b2}");
    }

    #[test]
    fn a_closed_pipe_is_told_from_other_errors() {
        let closed = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_closed(&closed.context("standard output")));
        let full = || anyhow::Error::from(io::Error::from(io::ErrorKind::StorageFull));
        assert!(!is_closed(&full()) && unless_closed(Err(full())).is_err());
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(unless_closed(Err(closed.into())).is_ok());
    }
}
