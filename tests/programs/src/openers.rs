// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What happens to programs that open `/dev/kfd` while drivers change places behind it.

use anyhow::{ensure, Result};
use clap::{Args, ValueEnum};
use kfd::{topology, Device, Errno, Kfd};
use rustix::fd::AsFd;
use rustix::mm::{mmap, MapFlags, ProtFlags};
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Short-lived openers in a loop.
#[derive(Args)]
pub struct Openers {
    /// For how long.
    seconds: u64,
    /// Only until this file is there, which must happen in that time.
    #[arg(long, value_name = "FILE")]
    until: Option<PathBuf>,
    /// ENXIO is no failure: a kernel with DEBUG_KOBJECT_RELEASE lets go of what a device number led
    /// to up to a second late, and whoever looked its inode up before is led there still.
    #[arg(long)]
    late_release: bool,
    /// Until one gets EAGAIN, which must happen in this time.
    #[arg(long)]
    until_refused: bool,
    /// Who gets EAGAIN or ENOENT tries again without a pause, in two threads, so that all the time
    /// somebody is just using what an opener is led to. One must get EAGAIN.
    #[arg(long)]
    insist: bool,
}

impl Openers {
    /// Opens, asks for the version and closes until the time is over; each time in a new process,
    /// as the KFD keeps a process for as long as its memory lives.
    pub fn run(&self) -> Result<()> {
        if std::env::var_os(ONE).is_some() {
            return if self.insist {
                insist(self.late_release)
            } else {
                one(self.late_release)
            };
        }
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let (mut count, mut refused_ones) = (0u64, 0u64);
        let enough = || self.until.as_ref().is_some_and(|file| file.exists());
        while Instant::now() < end && !enough() {
            let opener = Command::new(std::env::current_exe()?)
                .args(["openers", "0"])
                .args(self.late_release.then_some("--late-release"))
                .args(self.insist.then_some("--insist"))
                .env(ONE, "1")
                .status()?;
            let refused = opener.code() == Some(REFUSED.into());
            ensure!(opener.success() || refused, "an opener: {opener}");
            if self.until_refused && refused {
                println!("an opener is told to try again");
                return Ok(());
            }
            count += 1;
            refused_ones += u64::from(refused);
        }
        ensure!(!self.until_refused, "no opener was told to try again");
        let in_time = self.until.is_none() || enough();
        ensure!(in_time, "{} s were not enough", self.seconds);
        let more = if self.late_release { ", ENXIO" } else { "" };
        println!("{count} openers saw success, ENOENT{more} or EAGAIN");
        ensure!(count > 0, "no opener ran");
        ensure!(!self.insist || refused_ones > 0, "nobody had to insist");
        Ok(())
    }
}

/// Set in the environment of a process that opens once and ends.
const ONE: &str = "KFD_TESTS_OPENER";

/// Status of such a process that gets EAGAIN.
const REFUSED: u8 = 75;

fn one(late_release: bool) -> Result<()> {
    match Kfd::open() {
        Ok(_) => Ok(()),
        Err(error) if error.errno() == Some(Errno::EAGAIN) => std::process::exit(REFUSED.into()),
        Err(error) if late_release && error.errno() == Some(Errno::ENXIO) => Ok(()),
        Err(error) if error.errno() == Some(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// For how long one insists: longer than the drivers take to change places.
const INSISTENCE: Duration = Duration::from_secs(60);

/// Opens until that succeeds, in two threads.
fn insist(late_release: bool) -> Result<()> {
    let end = Instant::now() + INSISTENCE;
    let refused = AtomicBool::new(false);
    let open = || loop {
        match Kfd::open() {
            Ok(_) => return Ok(()),
            Err(error) if error.errno() == Some(Errno::EAGAIN) => {
                refused.store(true, Ordering::Relaxed);
            }
            Err(error) if error.errno() == Some(Errno::ENOENT) => {}
            Err(error) if late_release && error.errno() == Some(Errno::ENXIO) => {}
            Err(error) => return Err(error),
        }
        if Instant::now() > end {
            return Ok(());
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(open);
        open()?;
        other.join().expect("an opener does not panic")
    })?;
    ensure!(Instant::now() < end, "/dev/kfd does not open any more");
    if refused.into_inner() {
        std::process::exit(REFUSED.into());
    }
    Ok(())
}

/// Opens and closes a GPU's render node in a loop: each time amdgpu sets page tables up and the
/// copy engines interrupt, so the KFD gets interrupts all the time, without a user of /dev/kfd.
#[derive(Args)]
pub struct Storm {
    /// For how long.
    seconds: u64,
    /// The render node.
    #[arg(long, default_value = "/dev/dri/renderD128")]
    node: String,
}

impl Storm {
    /// Runs until the time is over.
    pub fn run(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let mut count = 0u64;
        while Instant::now() < end {
            std::fs::File::options()
                .read(true)
                .write(true)
                .open(&self.node)?;
            count += 1;
        }
        println!("{count} render clients came and went");
        Ok(())
    }
}

/// What to hold on to.
#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// An open file.
    File,
    /// A mapping of the doorbells, the file being closed.
    Mapping,
    /// A process whose file is closed.
    Process,
}

/// Holds something that must keep a driver from going away.
#[derive(Args)]
pub struct Hold {
    what: What,
}

impl Hold {
    /// Says "holding" and stays until stdin ends.
    pub fn run(&self) -> Result<()> {
        let held: Box<dyn std::any::Any> = match self.what {
            What::File => Box::new(Kfd::open()?),
            What::Mapping => Box::new(mapping()?),
            What::Process => {
                // The KFD's process lives as long as this one's memory.
                drop(Kfd::open()?);
                Box::new(())
            }
        };
        println!("holding");
        std::io::stdin().read_to_end(&mut Vec::new())?;
        drop(held);
        Ok(())
    }
}

/// Maps this process's doorbells, two pages, and closes the files: what is left is the mapping.
fn mapping() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    ensure!(!nodes.is_empty(), "no GPU");
    let device = Device::acquire(&kfd, &nodes[0])?;
    // KFD_MMAP_TYPE_DOORBELL in bits 63:62, the GPU in bits 61:46.
    let offset = 3 << 62 | u64::from(device.gpu_id()) << 46;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel picks; it stays until the process ends.
    unsafe {
        mmap(
            null_mut(),
            8192,
            access,
            MapFlags::SHARED,
            kfd.as_fd(),
            offset,
        )?
    };
    Ok(())
}
