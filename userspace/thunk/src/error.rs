// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The one error type: which call, on which object, why.

use rustix::io::Errno as Raw;
use std::path::PathBuf;

/// What the kernel answered: an error number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(Raw);

macro_rules! errnos {
    ($($name:ident = $raw:ident: $about:literal;)*) => {
        impl Errno {
            $(#[doc = $about]
            pub const $name: Self = Self(Raw::$raw);)*
        }

        impl std::fmt::Debug for Errno {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self {
                    $(Self::$name => f.write_str(stringify!($name)),)*
                    _ => write!(f, "errno {}", self.raw()),
                }
            }
        }
    };
}

errnos! {
    EPERM = PERM: "Not this user, or not on this GPU.";
    ENOENT = NOENT: "There is no such thing.";
    EINTR = INTR: "A signal came.";
    EIO = IO: "The hardware does not answer, as after a reset that is not over.";
    ENXIO = NXIO: "There is no such device.";
    EBADF = BADF: "Not in the process that opened it.";
    EAGAIN = AGAIN: "Not now.";
    ENOMEM = NOMEM: "No memory, or over a limit.";
    EACCES = ACCESS: "No access, or the queue is lost.";
    EFAULT = FAULT: "An address where nothing is.";
    EBUSY = BUSY: "Somebody still has it.";
    EEXIST = EXIST: "It was done before.";
    ENODEV = NODEV: "The device is gone.";
    EINVAL = INVAL: "The driver does not take such arguments.";
    ENOTTY = NOTTY: "The driver does not have this call.";
    ENOSPC = NOSPC: "There is no free place for another one.";
    EPIPE = PIPE: "Nobody reads it.";
    ETIME = TIME: "It took too long.";
    EADDRINUSE = ADDRINUSE: "The addresses are taken.";
    EALREADY = ALREADY: "This process has it already.";
    EOPNOTSUPP = OPNOTSUPP: "There is no such thing here.";
}

impl Errno {
    /// The number.
    pub fn raw(self) -> i32 {
        self.0.raw_os_error()
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.raw())
    }
}

/// What a call of this crate can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused a call.
    #[error("{call} on {object}: {errno}{}", hint(errno.0))]
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

    /// For `map_err`: turns an error number into an error that names its call and object.
    pub(crate) fn of(call: &'static str, object: impl Into<String>) -> impl FnOnce(Raw) -> Self {
        move |errno| Error::Call {
            call,
            object: object.into(),
            errno: Errno(errno),
        }
    }
}

/// What usually causes an errno that says little by itself.
fn hint(errno: Raw) -> &'static str {
    match errno {
        Raw::ACCESS | Raw::PERM => " (is this user in the groups render and video?)",
        Raw::NOENT | Raw::NXIO | Raw::NODEV => " (is a KFD loaded, and does it serve this GPU?)",
        Raw::BADF => " (/dev/kfd works only in the process that opened it)",
        Raw::NOMEM => " (out of VRAM, of system memory, or over the KFD's limit)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_call_object_and_cause() {
        let error = Error::of("CREATE_QUEUE", "GPU 7")(Raw::BADF);
        let text = error.to_string();
        assert!(text.starts_with("CREATE_QUEUE on GPU 7: "), "{text}");
        assert!(text.contains("process that opened it"), "{text}");
        assert_eq!(error.errno(), Some(Errno::EBADF));
    }

    #[test]
    fn an_error_number_is_named_and_told_as_the_system_does() {
        assert_eq!(format!("{:?}", Errno::EBUSY), "EBUSY");
        assert_eq!(format!("{:?}", Errno(Raw::XDEV)), "errno 18");
        let error = std::io::Error::from(Errno::EINVAL);
        assert_eq!(error.to_string(), Errno::EINVAL.to_string());
        assert_eq!(error.raw_os_error(), Some(Errno::EINVAL.raw()));
    }
}
