// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory that a process's queues have from its render node, and not from the KFD: made there, or
//! imported from another process on the same GPU, as HIP's virtual memory management does. Somebody
//! else fills VRAM: the queues must stop before the memory moves, and see it where it is then.

use crate::opener::render_node;
use crate::pinned::is_restored;
use crate::pressure::{fill_vram, told};
use crate::raw::ioctl;
use crate::running::{fill, moves, pattern, say, two_gpus, wrong_pages_at, Running, PATIENCE};
use crate::waves::Gpu;
use anyhow::{bail, ensure, Context, Result};
use clap::{Args, ValueEnum};
use kfd::topology::{self, Node};
use kfd::{Device, Kfd, Memory, MemoryFlags, SmiEvents};
use kfd_aql::CopyQueue;
use kfd_uapi as uapi;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::{fcntl_setfd, Errno, FdFlags};
use rustix::mm::{mmap, mmap_anonymous, MapFlags, ProtFlags};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Have memory of the render node's moved under a process's queues.
#[derive(Args)]
pub struct SameGpu {
    /// How the process comes by it.
    how: How,
    /// Be the process that exports it.
    #[arg(long, hide = true)]
    owner: bool,
    /// Be the process whose queues use it; this is the file to import, if it imports one.
    #[arg(long, hide = true)]
    user: Option<i32>,
}

/// `Created`: by GEM_CREATE. `Early`: the same, before ACQUIRE_VM. `Moved`: and it moves before
/// that as well. `Imported`: another process has made it by GEM_CREATE, and exported it. `Shared`:
/// another one has it from the KFD. `Freed`: the process itself has exported it, and has freed it
/// as the KFD's since. `Refused`: not at all, as it is another GPU's of its hive.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum How {
    Created,
    Early,
    Moved,
    Imported,
    Shared,
    Freed,
    Refused,
}

const SIZE: usize = 64 << 20;
/// What others want, in MiB: nothing else of the process's needs to move for that.
const WANTED: u64 = 16;
const SEED: u32 = 0x0fed_cba9;
/// `AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE` of amdgpu_drm.h.
const ACCESS: u32 = 1 << 1 | 1 << 2;
const VISIBLE: MemoryFlags = MemoryFlags::VRAM
    .union(MemoryFlags::PUBLIC)
    .union(MemoryFlags::WRITABLE);

impl SameGpu {
    pub fn run(&self) -> Result<()> {
        if self.owner {
            return self.own();
        }
        if let Some(fd) = self.user {
            return self.use_it(fd);
        }
        if self.how == How::Refused {
            return refused();
        }
        let minor = topology::gpus()?
            .first()
            .context("no GPU")?
            .property("drm_render_minor");
        let first = match self.how {
            How::Imported | How::Shared => "--owner",
            _ => "--user=-1",
        };
        let mut command = self.process(first)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (mut input, output) = (child.stdin.take(), child.stdout.take());
        let mut lines = BufReader::new(output.context("no pipe")?).lines();
        let mut client = None;
        while let Some(line) = lines.next().transpose()? {
            match line.as_str() {
                "full" => {
                    client = Some(fill_vram(minor, WANTED)?);
                    go_on(&mut input)?;
                }
                "empty" => {
                    client = None;
                    go_on(&mut input)?;
                }
                text => println!("{text}"),
            }
        }
        drop(client);
        let status = child.wait()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }

    /// This program as one of the processes.
    fn process(&self, argument: &str) -> Result<Command> {
        let how = self.how.to_possible_value().context("no name")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["same-gpu", how.get_name(), argument]);
        Ok(command)
    }

    /// Exports memory, and sees afterwards what the other process has written last.
    fn own(&self) -> Result<()> {
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let (file, _memory, _render);
        if self.how == How::Shared {
            let memory = Memory::allocate(&Device::acquire(&Kfd::open()?, node)?, SIZE, VISIBLE)?;
            file = memory.export()?;
            _memory = memory;
        } else {
            let render = render_node(node)?;
            file = export(&render, create(&render)?)?;
            _render = render;
        }
        fcntl_setfd(&file, FdFlags::empty())?;
        let status = self
            .process(&format!("--user={}", file.as_raw_fd()))?
            .status()?;
        ensure!(status.success(), "{status}");
        let wrong = wrong_by_cpu(&file, SEED + 1)?;
        check(
            wrong == 0,
            &format!("{wrong} pages are not what the other process wrote"),
        );
        Ok(())
    }

    fn use_it(&self, fd: i32) -> Result<()> {
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let render = render_node(node)?;
        if self.how == How::Moved {
            return acquire_moved(&kfd, node, render);
        }
        let early = (self.how == How::Early)
            .then(|| create(&render).and_then(|handle| map(&render, handle)));
        let device = Device::acquire_by(&kfd, node, render)?;
        // Before anything else of the process's: so it is what amdgpu moves first.
        let address = match early {
            Some(address) => address?,
            None => self.get(&device, fd)?,
        };
        let gpu = Gpu::on(device, 8)?;
        let writer = Writer::new(&gpu, address)?;
        writer.write(SEED)?;
        let mut events = told(gpu.device().gpu_id())?;
        let ticks = Memory::gtt(gpu.device(), 4096)?;
        ticks.write(0, &[0u32]);
        let running = Running::start(&gpu, ticks.address())?;
        let count = || ticks.read::<u32>(0, 1)[0];
        ensure!(moves(count), "the kernel does not run");
        ask("full")?;
        writer.is_moved(&mut events)?;
        ask("empty")?;
        ensure!(moves(count), "the kernel does not go on");
        running.finish()
    }

    /// Has the memory in the VM. Returns where.
    fn get(&self, device: &Arc<Device>, fd: i32) -> Result<u64> {
        let render = device.render();
        let handle = match self.how {
            How::Created | How::Early => create(render)?,
            // SAFETY: the parent left it open for this process.
            How::Imported | How::Shared => import(render, &unsafe { OwnedFd::from_raw_fd(fd) })?,
            How::Refused | How::Moved => bail!("it has none"),
            How::Freed => {
                let memory = Memory::vram(device, SIZE)?;
                let handle = import(render, &memory.export()?)?;
                let address = map(render, handle)?;
                drop(memory);
                return Ok(address);
            }
        };
        map(render, handle)
    }
}

/// The page tables show where it was before, when compute gets them.
fn acquire_moved(kfd: &Arc<Kfd>, node: &Node, render: OwnedFd) -> Result<()> {
    let handle = create(&render)?;
    let address = map(&render, handle)?;
    ask("full")?;
    ensure!(evicted(render.as_fd())? == SIZE as u64, "it has not moved");
    let file = export(&render, handle)?;
    let gpu = Gpu::on(Device::acquire_by(kfd, node, render)?, 8)?;
    Writer::new(&gpu, address)?.write(SEED)?;
    let wrong = wrong_by_cpu(&file, SEED)?;
    check(wrong == 0, &format!("{wrong} pages are not where they are"));
    ask("empty")
}

/// How much of what a file of the render node has in VRAM was moved from there, in bytes.
fn evicted(render: BorrowedFd<'_>) -> Result<u64> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", render.as_raw_fd()))?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("amd-evicted-vram:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" KiB"));
    Ok(number.context("no amd-evicted-vram")?.parse::<u64>()? << 10)
}

/// How many pages of what was exported have another first word as the CPU sees it.
fn wrong_by_cpu(file: &OwnedFd, seed: u32) -> Result<usize> {
    // SAFETY: a new mapping, until the process ends.
    let place = unsafe {
        let (nowhere, access) = (std::ptr::null_mut(), ProtFlags::READ);
        mmap(nowhere, SIZE, access, MapFlags::SHARED, file, 0)?.cast::<u32>()
    };
    // SAFETY: within the mapping, to which nobody writes any more.
    let read = |page: usize| unsafe { place.add(page * 1024).read_volatile() };
    let wrong = (0..SIZE / 4096).filter(|page| read(*page) != pattern(*page, seed));
    Ok(wrong.count())
}

/// amdgpu refuses to import what xGMI reaches when the VM has it already.
fn refused() -> Result<()> {
    let kfd = Kfd::open()?;
    let [home, user] = two_gpus(&kfd)?;
    let file = Memory::vram(&home, 1 << 20)?.export()?;
    for _ in 0..16 {
        let error = match import(user.render(), &file) {
            Ok(_) => bail!("it is imported"),
            Err(error) => error,
        };
        let errno = error.downcast_ref::<Errno>();
        ensure!(errno == Some(&Errno::INVAL), "{error:#}");
    }
    println!("ok - the import is refused");
    Ok(())
}

fn check(right: bool, what: &str) {
    let verdict = if right { "ok" } else { "not ok" };
    println!("{verdict} - {what}");
}

fn go_on(input: &mut Option<ChildStdin>) -> Result<()> {
    let input = input.as_mut().context("no pipe")?;
    writeln!(input)?;
    Ok(input.flush()?)
}

/// Has whoever started this do that, and waits until it is done.
fn ask(what: &str) -> Result<()> {
    say(what)?;
    let mut line = String::new();
    ensure!(
        std::io::stdin().read_line(&mut line)? > 0,
        "nobody does that"
    );
    Ok(())
}

fn create(render: impl AsFd) -> Result<u32> {
    create_in(render, uapi::AMDGPU_GEM_DOMAIN_VRAM, SIZE)
}

/// A buffer of so many bytes in these domains (`AMDGPU_GEM_DOMAIN_*`).
pub(crate) fn create_in(render: impl AsFd, domains: u32, size: usize) -> Result<u32> {
    let mut args = uapi::drm_amdgpu_gem_create::default();
    args.in_ = uapi::drm_amdgpu_gem_create_in {
        bo_size: size as u64,
        alignment: 4096,
        domains: domains.into(),
        domain_flags: 0,
    };
    ioctl(render, uapi::IOC_DRM_GEM_CREATE, &mut args).context("GEM_CREATE")?;
    // SAFETY: the call has written this member.
    Ok(unsafe { args.out.handle })
}

/// A file for others, also to be mapped.
pub(crate) fn export(render: impl AsFd, handle: u32) -> Result<OwnedFd> {
    let mut args = uapi::drm_prime_handle {
        handle,
        flags: OFlags::RDWR.bits(),
        ..Default::default()
    };
    ioctl(render, uapi::IOC_DRM_PRIME_HANDLE_TO_FD, &mut args).context("PRIME_HANDLE_TO_FD")?;
    // SAFETY: the kernel has just made it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(args.fd) })
}

pub(crate) fn import(render: impl AsFd, file: &OwnedFd) -> Result<u32> {
    let mut args = uapi::drm_prime_handle {
        fd: file.as_raw_fd(),
        ..Default::default()
    };
    ioctl(render, uapi::IOC_DRM_PRIME_FD_TO_HANDLE, &mut args).context("PRIME_FD_TO_HANDLE")?;
    Ok(args.handle)
}

/// Where the process has nothing else, until it ends.
fn map(render: impl AsFd, handle: u32) -> Result<u64> {
    // SAFETY: new address space, of which nothing is used by the CPU.
    let place = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            SIZE,
            ProtFlags::empty(),
            MapFlags::PRIVATE,
        )?
    };
    let mut args = uapi::drm_amdgpu_gem_va {
        handle,
        operation: uapi::AMDGPU_VA_OP_MAP,
        flags: ACCESS,
        va_address: place as u64,
        map_size: SIZE as u64,
        ..Default::default()
    };
    ioctl(render, uapi::IOC_DRM_GEM_VA, &mut args).context("GEM_VA")?;
    Ok(place as u64)
}

/// What the GPU has at an address.
struct Writer<'a> {
    gpu: &'a Gpu,
    copies: CopyQueue,
    pages: Memory,
    address: u64,
}

impl<'a> Writer<'a> {
    fn new(gpu: &'a Gpu, address: u64) -> Result<Self> {
        Ok(Self {
            gpu,
            copies: CopyQueue::new(gpu.device())?,
            pages: Memory::gtt(gpu.device(), SIZE)?,
            address,
        })
    }

    fn write(&self, seed: u32) -> Result<()> {
        fill(&self.pages, seed);
        let done = self.gpu.signal()?;
        self.copies
            .copy(self.pages.address(), self.address, SIZE as u64, &done)?;
        done.wait(PATIENCE)?;
        Ok(())
    }

    fn wrong(&self, seed: u32) -> Result<u32> {
        wrong_pages_at(self.gpu, [self.address, SIZE as u64], seed, PATIENCE)
    }

    /// While others have its place, or what was.
    fn is_moved(&self, events: &mut SmiEvents) -> Result<()> {
        check(
            is_restored(events, Duration::from_secs(10))?,
            "the queues are stopped and go on",
        );
        let wrong = self.wrong(SEED)?;
        check(
            wrong == 0,
            &format!("{wrong} pages are not the process's own"),
        );
        self.write(SEED + 1)?;
        let wrong = self.wrong(SEED + 1)?;
        check(wrong == 0, &format!("{wrong} pages are not as written"));
        Ok(())
    }
}
