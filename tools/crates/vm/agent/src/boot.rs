// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! From the bare initramfs to the guest's root: a read-only disk image under a writable tmpfs,
//! the kernel's modules from a second disk, and the kernel's own file systems.

use anyhow::{bail, Context, Result};
use kfd_vm_protocol::{MODULES_DISK, MODULE_LIST, ROOT_DISK, SHARE};
use rustix::mount::{mount, mount_move, MountFlags};
use rustix::process::{chdir, chroot};
use rustix::system::{finit_module, sethostname};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// TIMEOUT: the disks are there before init runs; only their probe may still be on its way.
const DISK_TIMEOUT: Duration = Duration::from_secs(10);
const ROOT: &str = "/newroot";
/// How a squashfs begins.
const SQUASHFS: &[u8; 4] = b"hsqs";
/// Where a root that has not merged /lib into /usr/lib looks for modules.
const LIB_MODULES: &str = "/lib/modules";

pub fn build_root() -> Result<()> {
    for (fs, at) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        attach(fs, fs, at, MountFlags::empty(), "")?;
    }
    load_modules()?;
    mount_layers()?;
    for at in ["/dev", "/proc", "/sys"] {
        let target = format!("{ROOT}{at}");
        // A root of somebody's own may have none.
        fs::create_dir_all(&target).with_context(|| format!("making {target}"))?;
        mount_move(at, &target).with_context(|| format!("moving {at}"))?;
    }
    switch_root()?;
    mount_kernel_filesystems()?;
    if !Path::new(LIB_MODULES).exists() {
        fs::create_dir_all("/lib")?;
        symlink("/usr/lib/modules", LIB_MODULES).context(LIB_MODULES)?;
    }
    sethostname(b"kfd-vm").context("setting the host name")?;
    fs::create_dir_all(SHARE).context("making the share's mount point")
}

fn attach(fs: &str, source: &str, at: &str, flags: MountFlags, data: &str) -> Result<()> {
    fs::create_dir_all(at).with_context(|| format!("making {at}"))?;
    let data = CString::new(data)?;
    mount(source, at, fs, flags, &*data)
        .with_context(|| format!("mounting {source} ({fs}) on {at}"))
}

/// Loads the initramfs's modules and frees the memory that their files take.
fn load_modules() -> Result<()> {
    for name in fs::read_to_string(MODULE_LIST)
        .context(MODULE_LIST)?
        .lines()
    {
        let file = File::open(name).with_context(|| format!("opening {name}"))?;
        match finit_module(&file, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => bail!("loading {name}: {error}"),
        }
        fs::remove_file(name)?;
    }
    Ok(())
}

fn mount_layers() -> Result<()> {
    attach_disk(ROOT_DISK, "/lower")?;
    attach(
        "tmpfs",
        "upper",
        "/upper",
        MountFlags::empty(),
        "mode=0755,size=75%",
    )?;
    for dir in ["/upper/data", "/upper/work"] {
        fs::create_dir(dir).with_context(|| format!("making {dir}"))?;
    }
    let layers = "lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work";
    attach("overlay", "root", ROOT, MountFlags::NOATIME, layers)?;
    attach_disk(MODULES_DISK, &format!("{ROOT}/usr/lib/modules"))
}

/// Mounts the disk of that name, read-only, as what its first bytes say it is.
fn attach_disk(name: &str, at: &str) -> Result<()> {
    let disk = disk(name)?;
    let mut magic = [0; SQUASHFS.len()];
    let read = File::open(&disk).and_then(|mut file| file.read_exact(&mut magic));
    read.with_context(|| format!("reading {disk}"))?;
    let kind = if &magic == SQUASHFS {
        "squashfs"
    } else {
        "ext4"
    };
    attach(
        kind,
        &disk,
        at,
        MountFlags::RDONLY | MountFlags::NOATIME,
        "",
    )
}

/// The device node of the virtio disk with this serial number.
fn disk(serial: &str) -> Result<String> {
    let deadline = Instant::now() + DISK_TIMEOUT;
    loop {
        for entry in fs::read_dir("/sys/block")?.flatten() {
            let found = fs::read_to_string(entry.path().join("serial")).unwrap_or_default();
            if found.trim() == serial {
                return Ok(PathBuf::from("/dev")
                    .join(entry.file_name())
                    .display()
                    .to_string());
            }
        }
        if Instant::now() > deadline {
            bail!("no disk with the serial number {serial:?}");
        }
        sleep(Duration::from_millis(5));
    }
}

fn switch_root() -> Result<()> {
    chdir(ROOT).context("entering the root")?;
    mount_move(".", "/").context("moving the root")?;
    chroot(".").context("changing the root")?;
    chdir("/").context("entering the root")
}

fn mount_kernel_filesystems() -> Result<()> {
    let safe = MountFlags::NOSUID | MountFlags::NODEV;
    attach("tmpfs", "run", "/run", safe, "mode=0755")?;
    attach("tmpfs", "tmp", "/tmp", safe, "mode=1777,size=75%")?;
    attach("tmpfs", "shm", "/dev/shm", safe, "mode=1777")?;
    attach(
        "devpts",
        "devpts",
        "/dev/pts",
        MountFlags::NOSUID,
        "ptmxmode=0666,mode=0620,gid=5",
    )?;
    // A kernel may be built without these.
    for (fs, at) in [
        ("debugfs", "/sys/kernel/debug"),
        ("tracefs", "/sys/kernel/tracing"),
    ] {
        optional(fs, at);
    }
    optional("cgroup2", "/sys/fs/cgroup");
    for (link, target) in [("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0")] {
        let _ = symlink(target, Path::new("/dev").join(link));
    }
    for (link, target) in [("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")] {
        let _ = symlink(target, Path::new("/dev").join(link));
    }
    Ok(())
}

fn optional(fs: &str, at: &str) {
    if Path::new(at).exists() {
        let _ = attach(fs, fs, at, MountFlags::empty(), "");
    }
}
