// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl driver use`: loads or unloads amdkfd.ko, after it has looked what stands in the way.

use super::kmsg::Messages;
use super::machine::{words, Machine, Serving};
use super::module::tool;
use super::obstacles::{self, Obstacle};
use super::users::users;
use super::{Choice, Source};
use anyhow::{ensure, Context, Result};
use rustix::io::Errno;
use rustix::system::{delete_module, finit_module};
use serde::Serialize;
use std::ffi::c_int;
use std::fs::File;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How a change came out.
#[derive(Debug, Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Outcome {
    /// The driver that was asked for serves now, or did before.
    Serves { what: String, changed: bool },
    /// Nothing was tried.
    InTheWay { obstacles: Vec<Obstacle> },
    /// The kernel refused; the driver that served before still does.
    Refused {
        why: String,
        hint: Option<&'static str>,
        kernel: Vec<String>,
    },
}

/// How long the last process's end may take to be seen by everybody.
const ENDING: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

/// Has the driver of `choice` serve.
pub fn switch(machine: &Machine, choice: Choice, source: &Source) -> Result<Outcome> {
    match choice {
        Choice::Rust => to_rust(machine, source),
        Choice::C => to_c(machine),
    }
}

fn serves(what: impl Into<String>, changed: bool) -> Outcome {
    Outcome::Serves {
        what: what.into(),
        changed,
    }
}

fn to_rust(machine: &Machine, source: &Source) -> Result<Outcome> {
    if let Some(what) = is_rust(machine) {
        return Ok(serves(format!("{what} already"), false));
    }
    ensure_root()?;
    let obstacles = obstacles::to_rust(machine, source);
    if !obstacles.is_empty() {
        return Ok(Outcome::InTheWay { obstacles });
    }
    let messages = Messages::from_now();
    // It is loaded and does not serve: loaded again it looks again, and says why not.
    if machine.has_rust() {
        if let Err(errno) = unload(machine) {
            return Ok(refused("rmmod amdkfd", errno, &messages));
        }
    }
    if let Err(failure) = load(source)? {
        return Ok(Outcome::Refused {
            why: failure.what,
            hint: failure.errno.and_then(explain),
            kernel: messages.of_ours(),
        });
    }
    Ok(match is_rust(machine) {
        Some(what) => serves(what, true),
        None => Outcome::Refused {
            why: format!(
                "amdkfd.ko is loaded, but the C driver serves ({})",
                machine.rust_state().unwrap_or_default()
            ),
            hint: None,
            kernel: messages.of_ours(),
        },
    })
}

/// What there is to say if amdkfd.ko serves, or will as soon as amdgpu is there.
fn is_rust(machine: &Machine) -> Option<String> {
    let version = machine.rust_version().unwrap_or_default();
    let name = format!("amdkfd.ko {version}").trim_end().to_owned();
    match machine.serving() {
        Serving::Rust => Some(format!("{name} (Rust) serves /dev/kfd")),
        Serving::Nobody if machine.has_rust() => {
            Some(format!("{name} (Rust) is loaded and waits for amdgpu"))
        }
        Serving::C if machine.rust_state().as_deref() == Some("waiting") => {
            Some(format!("{name} (Rust) is loaded and waits for a GPU"))
        }
        _ => None,
    }
}

/// Without root this fails before anything else is looked for.
fn ensure_root() -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "only root may change the driver"
    );
    Ok(())
}

fn to_c(machine: &Machine) -> Result<Outcome> {
    if !machine.has_rust() {
        return Ok(match machine.serving() {
            Serving::C => serves("the C driver serves /dev/kfd already", false),
            _ => serves(
                "amdkfd.ko is not loaded; the C driver comes with amdgpu",
                false,
            ),
        });
    }
    ensure_root()?;
    let in_use = machine.serving() == Serving::Rust;
    let obstacles = if in_use {
        obstacles::to_c(machine)
    } else {
        Vec::new()
    };
    if !obstacles.is_empty() {
        return Ok(Outcome::InTheWay { obstacles });
    }
    let messages = Messages::from_now();
    Ok(match unload(machine) {
        Err(errno) => refused("rmmod amdkfd", errno, &messages),
        Ok(()) if machine.serving() == Serving::C => serves("the C driver serves /dev/kfd", true),
        Ok(()) if !machine.has_amdgpu() => serves(
            "amdkfd.ko is unloaded; the C driver comes with amdgpu",
            true,
        ),
        Ok(()) => Outcome::Refused {
            why: "amdkfd.ko is unloaded, but the C driver does not serve".into(),
            hint: Some("modprobe -r amdgpu and modprobe amdgpu start it anew"),
            kernel: messages.of_ours(),
        },
    })
}

fn refused(what: &str, errno: Errno, messages: &Messages) -> Outcome {
    Outcome::Refused {
        why: format!("{what}: {}", words(errno)),
        hint: explain(errno),
        kernel: messages.of_ours(),
    }
}

/// Unloads amdkfd.ko. A process that has just ended keeps it for a moment.
fn unload(machine: &Machine) -> Result<(), Errno> {
    let start = Instant::now();
    // CAST: a flag of open(2), as delete_module(2) takes it.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as c_int;
    loop {
        match delete_module(c"amdkfd", flags) {
            Err(Errno::AGAIN | Errno::BUSY)
                if start.elapsed() < ENDING && users(machine).is_empty() =>
            {
                sleep(PAUSE);
            }
            result => return result,
        }
    }
}

/// Why a module was not loaded.
struct Failure {
    what: String,
    errno: Option<Errno>,
}

/// Loads the module; the outer error is that it could not be tried.
fn load(source: &Source) -> Result<Result<(), Failure>> {
    match source {
        // modprobe knows the module's dependencies and what /etc/modprobe.d says of it.
        Source::Installed => modprobe(),
        Source::File(file) => insert(file),
    }
}

fn modprobe() -> Result<Result<(), Failure>> {
    let mut command = tool("modprobe");
    let output = command
        .arg("amdkfd")
        .output()
        .context("modprobe, of the package kmod")?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let what = text
        .lines()
        .last()
        .unwrap_or("modprobe failed")
        .trim()
        .to_owned();
    let errno = errno_in(&what);
    Ok(Err(Failure { what, errno }))
}

/// `MODULE_INIT_COMPRESSED_FILE` of `<linux/module.h>`: the kernel is to decompress the file.
const COMPRESSED: c_int = 4;

fn insert(file: &Path) -> Result<Result<(), Failure>> {
    let module = File::open(file).with_context(|| file.display().to_string())?;
    let is_plain = file.extension().is_some_and(|extension| extension == "ko");
    let flags = if is_plain { 0 } else { COMPRESSED };
    let failure = |errno| Failure {
        what: format!("insmod {}: {}", file.display(), words(errno)),
        errno: Some(errno),
    };
    Ok(finit_module(&module, c"", flags).map_err(failure))
}

/// What the kernel's errors mean, when this module is loaded or unloaded.
const MEANINGS: &[(Errno, &str)] = &[
    (
        Errno::PERM,
        "the kernel is locked down and the module not signed, or this user is not root",
    ),
    (
        Errno::NOEXEC,
        "the module was built for another kernel or another amdgpu.ko: build it again",
    ),
    (
        Errno::NOENT,
        "a symbol is missing: the module was built for another kernel or amdgpu.ko",
    ),
    (
        Errno::BUSY,
        "/dev/kfd is in use, a GPU is being reset, or amdgpu is just being loaded",
    ),
    (
        Errno::AGAIN,
        "a process keeps the driver: kfdctl driver names those that can be seen",
    ),
    (
        Errno::NODEV,
        "a GPU is not supported, or could not be started: the C driver serves on",
    ),
    (
        Errno::KEYREJECTED,
        "the kernel does not trust the key of the signature: see kfdctl doctor",
    ),
    (
        Errno::NOKEY,
        "the kernel does not trust the key of the signature: see kfdctl doctor",
    ),
    (
        Errno::BADMSG,
        "the signature is damaged: install the module again",
    ),
    (
        Errno::OPNOTSUPP,
        "this kernel does not decompress modules: unpack the file first",
    ),
];

fn explain(errno: Errno) -> Option<&'static str> {
    let meaning = MEANINGS.iter().find(|(known, _)| *known == errno);
    meaning.map(|(_, meaning)| *meaning)
}

/// The errno of what modprobe prints in words.
fn errno_in(text: &str) -> Option<Errno> {
    // kmod has words of its own for this one.
    if text.contains("Unknown symbol in module") {
        return Some(Errno::NOENT);
    }
    let mut known = MEANINGS.iter().map(|(errno, _)| *errno);
    known.find(|errno| text.contains(&words(*errno)))
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::write;
    use super::*;

    #[test]
    fn what_modprobe_says_is_understood() {
        let said = |words: &str| {
            errno_in(&format!(
                "modprobe: ERROR: could not insert 'amdkfd': {words}"
            ))
        };
        assert_eq!(said("Device or resource busy"), Some(Errno::BUSY));
        assert_eq!(said("Exec format error"), Some(Errno::NOEXEC));
        assert_eq!(
            said("Key was rejected by service"),
            Some(Errno::KEYREJECTED)
        );
        assert_eq!(
            said("Unknown symbol in module, or unknown parameter (see dmesg)"),
            Some(Errno::NOENT)
        );
        assert_eq!(said("Success"), None);
    }

    #[test]
    fn what_serves_already_is_left_alone() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let machine = Machine::at(dir.path());
        let told = |choice| match switch(&machine, choice, &Source::Installed) {
            Ok(Outcome::Serves {
                what,
                changed: false,
            }) => what,
            other => panic!("{other:?}"),
        };
        assert!(told(Choice::C).contains("comes with amdgpu"));
        write(dir.path(), "/sys/class/kfd/kfd/dev", "");
        assert_eq!(told(Choice::C), "the C driver serves /dev/kfd already");
        write(dir.path(), "/sys/module/amdkfd/version", "0.1.0\n");
        assert_eq!(
            told(Choice::Rust),
            "amdkfd.ko 0.1.0 (Rust) serves /dev/kfd already"
        );
    }
}
