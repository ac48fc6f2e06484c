// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A process is killed while copy engines, which write its page tables, stand still; another one
//! has the file of its render node, and a job in the same VM. What the first has shared is somebody
//! else's memory by then: the job must wait until it is taken out.

use crate::late_update::share;
use crate::opener::render_node;
use crate::raw::ioctl;
use crate::same_gpu::{create_in, export};
use anyhow::{bail, ensure, Context, Result};
use kfd::topology::{self, Node};
use kfd::{Device, Kfd, Memory};
use kfd_uapi as uapi;
use nix::libc;
use nix::sys::{signal, wait};
use nix::unistd::Pid;
use rustix::fd::{AsFd, OwnedFd};
use rustix::mm::{mmap, mmap_anonymous, MapFlags, ProtFlags};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Kill a process at /tmp/go-kill, give its VM a job at /tmp/go-job, and wait for that at
/// /tmp/go-wait.
#[derive(clap::Args)]
pub struct LeftMapped {
    /// Close a handle of the file before the job.
    #[arg(long)]
    close: bool,
}

const PAGE: usize = 4096;
/// Of the buffer: packets in the first, and what they write in the second.
const SIZE: usize = 2 * PAGE;
const MARK: u32 = 0x5eed_0031;
/// `AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE | AMDGPU_VM_PAGE_EXECUTABLE`.
const ACCESS: u32 = 2 | 4 | 8;
/// PACKET3_WRITE_DATA with one dword, DST_SEL memory, WR_CONFIRM (soc15d.h).
const WRITE_DATA: [u32; 2] = [0xc003_3700, 5 << 8 | 1 << 20];
/// How long a job that need not wait takes, with room to spare.
const AT_ONCE: Duration = Duration::from_secs(3);

impl LeftMapped {
    pub fn run(&self) -> Result<()> {
        let nodes = topology::gpus()?;
        let node = nodes.first().context("no GPU")?;
        let job = Job::prepare(render_node(node)?)?;
        let unused = create_in(&job.render, uapi::AMDGPU_GEM_DOMAIN_GTT, PAGE)?;
        // SAFETY: there is no other thread.
        let child = match unsafe { libc::fork() } {
            0 => {
                if let Err(error) = be_killed(node, &job.render) {
                    println!("{error:#}");
                }
                std::process::exit(1);
            }
            child => Pid::from_raw(child),
        };
        ensure!(
            child.as_raw() > 0,
            "fork: {}",
            std::io::Error::last_os_error()
        );
        await_file("/tmp/go-kill");
        signal::kill(child, signal::Signal::SIGKILL)?;
        wait::waitpid(child, None)?;
        say("killed")?;
        await_file("/tmp/go-job");
        if self.close {
            let mut args = uapi::drm_gem_close {
                handle: unused,
                pad: 0,
            };
            ioctl(&job.render, uapi::IOC_DRM_GEM_CLOSE, &mut args).context("GEM_CLOSE")?;
        }
        let number = job.submit()?;
        match job.ends(number, AT_ONCE)? {
            true => say("not ok - the job runs before")?,
            false => say("ok - the job waits")?,
        }
        await_file("/tmp/go-wait");
        ensure!(
            job.ends(number, Duration::from_secs(30))?,
            "it does not end"
        );
        ensure!(job.mark() == MARK, "it has not run");
        say("ok - the job runs behind")
    }
}

fn await_file(name: &str) {
    while !Path::new(name).exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn say(text: &str) -> Result<()> {
    println!("{text}");
    Ok(std::io::stdout().flush()?)
}

/// Shares pages with the GPU by the file's VM, and has a buffer there, until it is killed.
fn be_killed(node: &Node, render: &OwnedFd) -> Result<()> {
    let kfd = Kfd::open()?;
    let device = Device::acquire_by(&kfd, node, render.try_clone()?)?;
    let _memory = Memory::gtt(&device, PAGE)?;
    share(&device, 64)?;
    say("waiting")?;
    std::thread::sleep(Duration::from_secs(500));
    bail!("it was not killed");
}

/// A job of the render node's that writes a mark, ready to be submitted.
struct Job {
    render: OwnedFd,
    context: u32,
    buffer: u32,
    /// Where the GPU sees the buffer, and where the CPU does.
    address: u64,
    words: *mut u32,
}

impl Job {
    fn prepare(render: OwnedFd) -> Result<Self> {
        let buffer = create_in(&render, uapi::AMDGPU_GEM_DOMAIN_GTT, SIZE)?;
        let file = export(&render, buffer)?;
        let (nowhere, access) = (std::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: two new mappings, until the process ends.
        let (words, place) = unsafe {
            let words = mmap(nowhere, SIZE, access, MapFlags::SHARED, &file, 0)?;
            let place = mmap_anonymous(nowhere, SIZE, ProtFlags::empty(), MapFlags::PRIVATE)?;
            (words.cast::<u32>(), place as u64)
        };
        let mut map = uapi::drm_amdgpu_gem_va {
            handle: buffer,
            operation: uapi::AMDGPU_VA_OP_MAP,
            flags: ACCESS,
            va_address: place,
            map_size: SIZE as u64,
            ..Default::default()
        };
        ioctl(&render, uapi::IOC_DRM_GEM_VA, &mut map).context("GEM_VA")?;
        let mut context = uapi::drm_amdgpu_ctx {
            in_: uapi::drm_amdgpu_ctx_in {
                op: uapi::AMDGPU_CTX_OP_ALLOC_CTX,
                ..Default::default()
            },
        };
        ioctl(&render, uapi::IOC_DRM_CTX, &mut context).context("CTX")?;
        Ok(Self {
            render,
            // SAFETY: the call has written this member.
            context: unsafe { context.out.alloc.ctx_id },
            buffer,
            address: place,
            words,
        })
    }

    fn submit(&self) -> Result<u64> {
        let target = self.address + PAGE as u64;
        let [low, high] = [target as u32, (target >> 32) as u32];
        let packet = [WRITE_DATA[0], WRITE_DATA[1], low, high, MARK];
        // SAFETY: within the mapping, which nobody else uses.
        unsafe {
            self.words
                .copy_from_nonoverlapping(packet.as_ptr(), packet.len())
        };
        let entry = uapi::drm_amdgpu_bo_list_entry {
            bo_handle: self.buffer,
            bo_priority: 0,
        };
        let list = uapi::drm_amdgpu_bo_list_in {
            operation: !0,
            list_handle: !0,
            bo_number: 1,
            bo_info_size: size_of_val(&entry) as u32,
            bo_info_ptr: &raw const entry as u64,
        };
        let ib = uapi::drm_amdgpu_cs_chunk_ib {
            va_start: self.address,
            ib_bytes: size_of_val(&packet) as u32,
            ip_type: uapi::AMDGPU_HW_IP_COMPUTE,
            ..Default::default()
        };
        let chunks = [
            chunk(uapi::AMDGPU_CHUNK_ID_BO_HANDLES, &list),
            chunk(uapi::AMDGPU_CHUNK_ID_IB, &ib),
        ];
        let places = chunks.each_ref().map(|chunk| &raw const *chunk as u64);
        let mut args = uapi::drm_amdgpu_cs {
            in_: uapi::drm_amdgpu_cs_in {
                ctx_id: self.context,
                num_chunks: 2,
                chunks: places.as_ptr() as u64,
                ..Default::default()
            },
        };
        ioctl(self.render.as_fd(), uapi::IOC_DRM_CS, &mut args).context("CS")?;
        // SAFETY: the call has written this member.
        Ok(unsafe { args.out.handle })
    }

    /// Whether the job ends within that time.
    fn ends(&self, number: u64, within: Duration) -> Result<bool> {
        let end = Instant::now() + within;
        loop {
            let mut args = uapi::drm_amdgpu_wait_cs {
                in_: uapi::drm_amdgpu_wait_cs_in {
                    handle: number,
                    ip_type: uapi::AMDGPU_HW_IP_COMPUTE,
                    ctx_id: self.context,
                    ..Default::default()
                },
            };
            ioctl(self.render.as_fd(), uapi::IOC_DRM_WAIT_CS, &mut args).context("WAIT_CS")?;
            // SAFETY: the call has written this member.
            let busy = unsafe { args.out.status } != 0;
            if !busy || Instant::now() > end {
                return Ok(!busy);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn mark(&self) -> u32 {
        // SAFETY: within the mapping, to which the job has written.
        unsafe { self.words.add(PAGE / 4).read_volatile() }
    }
}

fn chunk<T>(id: u32, data: &T) -> uapi::drm_amdgpu_cs_chunk {
    uapi::drm_amdgpu_cs_chunk {
        chunk_id: id,
        length_dw: (size_of::<T>() / 4) as u32,
        chunk_data: &raw const *data as u64,
    }
}
