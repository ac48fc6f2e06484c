// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The one error type: which call, on which object, why.

use rustix::io::Errno;
use std::path::PathBuf;

/// What a call of this crate can fail with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a call.
    #[error("{call} on {object}: {errno}{}", hint(*errno))]
    Call {
        /// The ioctl's or system call's name.
        call: &'static str,
        /// What it was about, such as "GPU 35969".
        object: String,
        /// What the kernel answered.
        errno: Errno,
    },
    /// A file of the topology is missing or holds what it should not.
    #[error("{}: {reason}", path.display())]
    Topology {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The arguments can't be right, whatever the kernel would say.
    #[error("{0}")]
    Invalid(String),
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What the kernel answered, if it was the kernel that refused.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Call { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// For `map_err`: turns an [`Errno`] into an error that names its call and object.
    pub(crate) fn of(call: &'static str, object: impl Into<String>) -> impl FnOnce(Errno) -> Self {
        move |errno| Error::Call {
            call,
            object: object.into(),
            errno,
        }
    }
}

/// What usually causes an errno that says little by itself.
fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS | Errno::PERM => " (is this user in the groups render and video?)",
        Errno::NOENT | Errno::NXIO | Errno::NODEV => {
            " (is a KFD loaded, and does it serve this GPU?)"
        }
        Errno::BADF => " (/dev/kfd works only in the process that opened it)",
        Errno::NOMEM => " (out of VRAM, of system memory, or over the KFD's limit)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_call_object_and_cause() {
        let error = Error::of("CREATE_QUEUE", "GPU 7")(Errno::BADF);
        let text = error.to_string();
        assert!(text.starts_with("CREATE_QUEUE on GPU 7: "), "{text}");
        assert!(text.contains("process that opened it"), "{text}");
        assert_eq!(error.errno(), Some(Errno::BADF));
    }
}
