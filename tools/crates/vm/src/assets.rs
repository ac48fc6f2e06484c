// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Where the pieces of a machine lie: what `sysroot` made, and what the project builds.

use crate::args::{Kernel, MachineArgs};
use crate::image::{self, Settings};
use crate::initramfs;
use crate::interrupt::Interrupt;
use crate::place::Place;
use anyhow::{anyhow, bail, Context, Result};
use rustix::process::{kill_process_group, Pid, Signal};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The only suite whose root is there where nothing is fetched.
const FIXED_SUITE: &str = "trixie";
/// How often a step of sysroot is looked at.
const STEP: Duration = Duration::from_millis(20);

pub struct Assets {
    pub cache: PathBuf,
    pub qemu: Qemu,
    pub guest_image: PathBuf,
    /// What the guest's image says of commands.
    pub settings: Settings,
    pub kernel: KernelFiles,
    /// The project's module for that kernel.
    pub module: PathBuf,
}

pub struct Qemu {
    pub root: PathBuf,
}

pub struct KernelFiles {
    pub vmlinuz: PathBuf,
    pub modules_image: PathBuf,
    /// The directory with `modules.dep`.
    pub modules: PathBuf,
}

impl Assets {
    /// Has `sysroot` make what is missing, then checks that it is there.
    pub fn locate(args: &MachineArgs, interrupt: &Interrupt) -> Result<Self> {
        let place = Place::find();
        let sysroot = place.sysroot();
        let image = image_of(&args.root)?;
        let suite = image.as_ref().map_or(args.root.as_str(), |_| "trixie");
        let env = match place.fixed() {
            Some(file) => {
                let text = fs::read_to_string(&file);
                variables(&text.with_context(|| file.display().to_string())?)
            }
            None => sysroot_env(&sysroot, suite, interrupt)?,
        };
        let get = |name: &str| {
            env.get(name)
                .map(PathBuf::from)
                .ok_or_else(|| anyhow!("`sysroot env` says no {name}"))
        };
        let fixed = place.fixed().is_some();
        let ensure = |made: &Path, step: &[&str]| match fixed {
            true if made.exists() => Ok(()),
            true => bail!("{} is not there, and is not made here", made.display()),
            false => ensure(&sysroot, made, step, interrupt),
        };
        if fixed && suite != FIXED_SUITE {
            bail!("there is no root but {FIXED_SUITE} here; --image takes one of your own");
        }
        if !fixed {
            ensure(&get("BUILD_ROOT")?.join(".complete"), &["build-root"])?;
        }
        let cache = get("CACHE")?.join("vm");
        fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
        let kernel = match args.kernel {
            Kernel::Stock => {
                let dir = get("KERNEL_DIR")?;
                ensure(&dir.join(".complete"), &["kernel"])?;
                KernelFiles::find(&dir, "modules-root")?
            }
            Kernel::Debug => KernelFiles::checking("debug", &get("DEBUG_KERNEL_DIR")?)?,
            Kernel::Kasan => KernelFiles::checking("kasan", &get("KASAN_KERNEL_DIR")?)?,
            Kernel::Kcsan => KernelFiles::checking("kcsan", &get("KCSAN_KERNEL_DIR")?)?,
        };
        let mut settings = Settings::default();
        let guest_image = match (&args.image, image) {
            (Some(source), _) => {
                if !initramfs::has_module(&kernel, "squashfs") {
                    bail!("--image needs --kernel stock: this kernel has no squashfs");
                }
                let image = image::obtain(source, &cache, interrupt)?;
                settings = image.settings;
                image.disk
            }
            (None, Some(disk)) => disk,
            (None, None) => {
                ensure(&get("GUEST_IMAGE")?, &["guest-root", &args.root])?;
                get("GUEST_IMAGE")?
            }
        };
        let qemu = Qemu {
            root: get("BUILD_ROOT")?,
        };
        let release = get("KERNEL_RELEASE")?;
        let module = match args.kernel {
            Kernel::Stock => place.module(release.as_os_str(), get("BUILD_DIR")?),
            Kernel::Debug => place.checking_module("debug"),
            Kernel::Kasan => place.checking_module("kasan"),
            Kernel::Kcsan => place.checking_module("kcsan"),
        };
        Ok(Self {
            cache,
            qemu,
            guest_image,
            settings,
            kernel,
            module,
        })
    }
}

impl Qemu {
    /// QEMU of the build root under its own C library, without a change of root.
    pub fn command_line(&self) -> (PathBuf, Vec<String>, (String, PathBuf)) {
        let at = |path: &str| self.root.join(path);
        let libraries = at("usr/lib/x86_64-linux-gnu");
        let args = vec![
            "--library-path".into(),
            libraries.display().to_string(),
            self.binary().display().to_string(),
            "-L".into(),
            at("usr/share/qemu").display().to_string(),
            "-L".into(),
            at("usr/share/seabios").display().to_string(),
        ];
        let modules = ("QEMU_MODULE_DIR".to_string(), libraries.join("qemu"));
        (at("usr/lib64/ld-linux-x86-64.so.2"), args, modules)
    }

    pub fn binary(&self) -> PathBuf {
        self.root.join("usr/bin/qemu-system-x86_64")
    }
}

impl KernelFiles {
    /// A kernel that `sysroot NAME-kernel` builds.
    fn checking(name: &str, dir: &Path) -> Result<Self> {
        if !dir.join(".complete").exists() {
            bail!("there is no {name} kernel yet; `tools/sysroot/sysroot {name}-kernel` makes it");
        }
        Self::find(dir, "install/lib/modules")
    }

    fn find(dir: &Path, modules: &str) -> Result<Self> {
        let root = dir.join(modules);
        let entries = fs::read_dir(&root).with_context(|| root.display().to_string())?;
        let mut trees = entries.flatten().map(|entry| entry.path());
        let modules = trees.find(|tree| tree.join("modules.dep").exists());
        let modules = modules.ok_or_else(|| anyhow!("{} holds no modules.dep", root.display()))?;
        let at = |name: &str| dir.join(name);
        Ok(Self {
            vmlinuz: at("vmlinuz"),
            modules_image: at("modules.img"),
            modules,
        })
    }
}

/// `--root` with a slash in it is a disk image.
fn image_of(root: &str) -> Result<Option<PathBuf>> {
    let image = root.contains('/').then(|| Path::new(root).canonicalize());
    image
        .transpose()
        .with_context(|| format!("the image {root}"))
}

/// Makes what is missing for an answer, which takes 20 minutes the first time.
fn sysroot_env(
    sysroot: &Path,
    suite: &str,
    interrupt: &Interrupt,
) -> Result<HashMap<String, String>> {
    let mut said = tempfile::tempfile().context("a temporary file")?;
    run_step(
        sysroot,
        &["env", suite],
        said.try_clone()?.into(),
        interrupt,
    )?;
    let mut text = String::new();
    said.rewind()?;
    said.read_to_string(&mut text).context("`sysroot env`")?;
    Ok(variables(&text))
}

/// Lines NAME=VALUE.
fn variables(text: &str) -> HashMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

fn ensure(sysroot: &Path, made: &Path, step: &[&str], interrupt: &Interrupt) -> Result<()> {
    if made.exists() {
        return Ok(());
    }
    run_step(sysroot, step, Stdio::inherit(), interrupt)
}

/// Runs a step of sysroot to its end; what it does it says on our standard error. It is a process
/// group of its own, all of which a signal to us ends: its shell alone would leave a download
/// behind.
fn run_step(sysroot: &Path, step: &[&str], stdout: Stdio, interrupt: &Interrupt) -> Result<()> {
    let mut command = Command::new(sysroot);
    command.args(step).process_group(0);
    let child = command.stdin(Stdio::null()).stdout(stdout).spawn();
    let mut child = child.with_context(|| format!("running {}", sysroot.display()))?;
    loop {
        if let Some(status) = child.try_wait()? {
            break match status.success() {
                true => Ok(()),
                false => bail!("`sysroot {}` failed", step.join(" ")),
            };
        }
        if let Err(signal) = interrupt.check() {
            let _ = kill_process_group(Pid::from_child(&child), Signal::TERM);
            child.wait()?;
            return Err(signal);
        }
        sleep(STEP);
    }
}

/// A digest of whatever is fed to it, short enough for a file name.
#[derive(Default)]
pub struct Key(Sha256);

impl Key {
    pub fn text(mut self, text: &str) -> Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
        self
    }

    /// A file that is too large to read: its name, size and time stand for it.
    pub fn large_file(self, path: &Path) -> Result<Self> {
        let data = fs::metadata(path).with_context(|| path.display().to_string())?;
        let stamp = format!(
            "{} {} {}.{}",
            path.display(),
            data.len(),
            data.mtime(),
            data.mtime_nsec()
        );
        Ok(self.text(&stamp))
    }

    /// Names and contents of all files below a directory, in order.
    pub fn tree(self, dir: &Path) -> Result<Self> {
        let mut entries: Vec<_> = fs::read_dir(dir)
            .with_context(|| dir.display().to_string())?
            .flatten()
            .collect();
        entries.sort_by_key(|entry| entry.file_name());
        entries.into_iter().try_fold(self, |key, entry| {
            let key = key.text(&entry.file_name().to_string_lossy());
            match entry.path() {
                path if path.is_dir() => key.tree(&path),
                path => Ok(key.text(&String::from_utf8_lossy(&fs::read(&path)?))),
            }
        })
    }

    pub fn finish(self) -> String {
        self.0
            .finalize()
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_depends_on_everything_and_nothing_else() {
        let key = |parts: &[&str]| {
            parts
                .iter()
                .fold(Key::default(), |key, part| key.text(part))
                .finish()
        };
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
        assert_ne!(key(&["a", "b"]), key(&["ab"]));
        assert_ne!(key(&["a", "b"]), key(&["b", "a"]));
        assert_eq!(key(&["a"]).len(), 16);
    }

    #[test]
    fn a_root_with_a_slash_is_an_image_that_must_be_there() {
        assert_eq!(image_of("trixie").unwrap(), None);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("root.img");
        assert!(image_of(file.to_str().unwrap()).is_err());
        fs::write(&file, "").unwrap();
        let found = image_of(file.to_str().unwrap()).unwrap();
        assert_eq!(found, Some(file.canonicalize().unwrap()));
    }

    #[test]
    fn a_changed_file_changes_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image");
        let key = || Key::default().large_file(&file).unwrap().finish();
        let tree = || Key::default().tree(dir.path()).unwrap().finish();
        fs::write(&file, "one").unwrap();
        let (before, tree_before) = (key(), tree());
        assert_eq!(before, key());
        fs::write(&file, "three").unwrap();
        assert_ne!(before, key());
        assert_ne!(tree_before, tree());
        assert!(Key::default().large_file(&dir.path().join("none")).is_err());
    }
}
