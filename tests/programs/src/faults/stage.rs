// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Stage`]: a process in the state in which an operation begins, and [`Call`], the one system
//! call that it is.

use crate::bench::Bench;
use crate::raw::ioctl_at;
use anyhow::{ensure, Context, Result};
use kfd::topology::{self, Node};
use kfd::{Device, Kfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use rustix::fs::{open, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};
use std::ptr::null_mut;
use std::sync::Arc;

/// Bytes of address space for buffers, and of the process's own memory.
pub const SPACE: usize = 1 << 20;
/// Words of the largest argument: GET_PROCESS_APERTURES.
const WORDS: usize = 64;

/// What an operation needs to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// A process that has not opened `/dev/kfd`.
    Nothing,
    /// An open file.
    File,
    /// A GPU's VM.
    Device,
    /// The buffers of a queue as well.
    Bench,
}

/// The process.
pub struct Stage {
    pub node: Node,
    pub kfd: Option<Arc<Kfd>>,
    pub render: OwnedFd,
    pub device: Option<Arc<Device>>,
    pub bench: Option<Bench>,
    /// Address space that nothing is mapped to.
    pub place: u64,
    /// Memory of this process, all of it touched.
    pub memory: u64,
    /// What the operation's preparation has made: a queue, an event, a buffer.
    pub made: u64,
    /// Files that it has made.
    pub files: Vec<OwnedFd>,
}

impl Stage {
    pub fn new(needs: Needs) -> Result<Self> {
        let node = topology::gpus()?.into_iter().next().context("no GPU")?;
        let render = format!("/dev/dri/renderD{}", node.property("drm_render_minor"));
        let both = OFlags::RDWR | OFlags::CLOEXEC;
        let kfd = (needs >= Needs::File).then(Kfd::open).transpose()?;
        let device = match &kfd {
            Some(kfd) if needs >= Needs::Device => Some(Device::acquire(kfd, &node)?),
            _ => None,
        };
        let bench = match &device {
            Some(device) if needs >= Needs::Bench => Some(Bench::new(device)?),
            _ => None,
        };
        let memory = reserve(ProtFlags::READ | ProtFlags::WRITE)?;
        touch(memory);
        Ok(Self {
            render: open(&render, both, Mode::empty()).context(render)?,
            node,
            kfd,
            device,
            bench,
            place: reserve(ProtFlags::empty())?,
            memory,
            made: 0,
            files: Vec::new(),
        })
    }

    pub fn bench(&self) -> Result<&Bench> {
        self.bench.as_ref().context("the operation needs a bench")
    }

    pub fn gpu_id(&self) -> u32 {
        self.node.gpu_id
    }

    fn kfd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self
            .kfd
            .as_ref()
            .context("the operation needs a file")?
            .as_fd())
    }

    /// An ioctl of `/dev/kfd` with `args`.
    pub fn ioctl<T: Copy>(&self, request: u32, args: T) -> Result<Call> {
        ensure!(size_of::<T>() <= WORDS * 8, "the argument is too large");
        let mut words = Box::new([0; WORDS]);
        // SAFETY: there is room, and ioctl arguments are plain numbers.
        unsafe { words.as_mut_ptr().cast::<T>().write(args) };
        Ok(Call::Ioctl(self.kfd()?.as_raw_fd(), request, words))
    }

    /// Makes an ioctl at once, which must succeed; for preparations.
    pub fn make<T: Copy>(&self, request: u32, args: T) -> Result<T> {
        let mut call = self.ioctl(request, args)?;
        call.make().with_context(|| format!("{request:#x}"))?;
        call.argument()
    }

    /// The process's own memory is new again.
    pub fn renew(&self) -> Result<()> {
        self.renewal().make()?;
        touch(self.memory);
        Ok(())
    }

    /// New memory where the process's own is.
    pub fn renewal(&self) -> Call {
        Call::Renew(self.memory)
    }

    /// A mapping of `/dev/kfd`.
    pub fn mapping(&self, offset: u64, size: usize) -> Result<Call> {
        Ok(Call::Map(self.kfd()?.as_raw_fd(), offset, size))
    }
}

/// Writes to each page of the process's own memory.
fn touch(memory: u64) {
    for page in (memory..memory + SPACE as u64).step_by(4096) {
        // SAFETY: within the mapping, which is for this.
        unsafe { (page as *mut u8).write_volatile(1) };
    }
}

fn reserve(access: ProtFlags) -> Result<u64> {
    // SAFETY: a new mapping where the kernel likes, which stays until the process ends.
    let at = unsafe { mmap_anonymous(null_mut(), SPACE, access, MapFlags::PRIVATE)? };
    Ok(at as u64)
}

/// One system call, with all memory that it needs in place.
#[derive(Clone)]
pub enum Call {
    /// The file, the request, its argument.
    Ioctl(RawFd, u32, Box<[u64; WORDS]>),
    /// Opens `/dev/kfd`.
    Open,
    /// The file, where in it, how much.
    Map(RawFd, u64, usize),
    /// Writes to a file.
    Write(RawFd, Vec<u8>),
    /// Reads from a file.
    Read(RawFd, Vec<u8>),
    /// Writes the first byte of memory at an address to a file.
    Show(RawFd, u64),
    /// Maps new memory at an address.
    Renew(u64),
}

/// What a call gave: a descriptor, an address, bytes.
pub type Answer = std::result::Result<u64, Errno>;

impl Call {
    /// Makes it.
    pub fn make(&mut self) -> Answer {
        // SAFETY: who prepared the call keeps the files open.
        let borrow = |file: &RawFd| unsafe { BorrowedFd::borrow_raw(*file) };
        match self {
            // SAFETY: the argument is at least as large as the request says.
            Self::Ioctl(file, request, words) => unsafe {
                ioctl_at(borrow(file), *request, words.as_mut_ptr() as u64).map(|()| 0)
            },
            Self::Open => open("/dev/kfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
                .map(|file| file.into_raw_fd() as u64),
            Self::Map(file, offset, size) => {
                let access = ProtFlags::READ | ProtFlags::WRITE;
                // SAFETY: a new mapping where the kernel likes.
                unsafe {
                    mmap(
                        null_mut(),
                        *size,
                        access,
                        MapFlags::SHARED,
                        borrow(file),
                        *offset,
                    )
                }
                .map(|at| at as u64)
            }
            Self::Write(file, bytes) => {
                rustix::io::write(borrow(file), bytes).map(|count| count as u64)
            }
            Self::Read(file, bytes) => {
                rustix::io::read(borrow(file), &mut bytes[..]).map(|count| count as u64)
            }
            Self::Show(file, address) => {
                // SAFETY: the kernel checks the address, which is the process's own memory.
                let shown = unsafe { nix::libc::write(*file, *address as *const _, 1) };
                match shown {
                    -1 => {
                        Err(Errno::from_io_error(&std::io::Error::last_os_error())
                            .unwrap_or(Errno::IO))
                    }
                    count => Ok(count as u64),
                }
            }
            // SAFETY: it is the process's own memory, into which nothing points.
            Self::Renew(address) => unsafe {
                mmap_anonymous(
                    *address as *mut _,
                    SPACE,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::FIXED,
                )
                .map(|at| at as u64)
            },
        }
    }

    /// The ioctl's argument, as the kernel has left it.
    pub fn argument<T: Copy>(&self) -> Result<T> {
        match self {
            // SAFETY: it is plain numbers, and there is room for them.
            Self::Ioctl(_, _, words) => Ok(unsafe { words.as_ptr().cast::<T>().read() }),
            _ => anyhow::bail!("it is no ioctl"),
        }
    }

    /// Gives back what opening or mapping gave.
    pub fn release(&self, answer: u64) {
        match self {
            // SAFETY: the descriptor is that call's, and nobody else's.
            Self::Open => drop(unsafe { OwnedFd::from_raw_fd(answer as RawFd) }),
            Self::Map(_, _, size) => {
                // SAFETY: the mapping is that call's, and nothing points into it.
                let _ = unsafe { munmap(answer as *mut _, *size) };
            }
            _ => {}
        }
    }
}
