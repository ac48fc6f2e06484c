// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Jobs of a render node (`DRM_IOCTL_AMDGPU_CS`) in the VM of its file, which a process of the KFD
//! may have acquired.

use crate::raw::ioctl;
use crate::same_gpu::{create_in, export};
use anyhow::{Context, Result};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, OwnedFd};
use rustix::mm::{mmap, mmap_anonymous, MapFlags, ProtFlags};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Of the buffer: packets in the first, and what they write in the second.
const SIZE: usize = 2 * PAGE;
/// `AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE | AMDGPU_VM_PAGE_EXECUTABLE`.
const ACCESS: u32 = 2 | 4 | 8;
/// PACKET3_WRITE_DATA with one dword, DST_SEL memory, WR_CONFIRM (soc15d.h).
const WRITE_DATA: [u32; 2] = [0xc003_3700, 5 << 8 | 1 << 20];

/// What it takes to submit one: a context, and a buffer for its packets.
pub struct Job {
    pub render: OwnedFd,
    context: u32,
    buffer: u32,
    /// Where the GPU sees the buffer, and where the CPU does.
    address: u64,
    words: *mut u32,
}

impl Job {
    pub fn prepare(render: OwnedFd) -> Result<Self> {
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

    /// One that writes a word. Its number.
    ///
    /// # Errors
    /// [`uapi::IOC_DRM_CS`]'s.
    pub fn submit(&self, target: u64, value: u32) -> Result<u64> {
        let [low, high] = [target as u32, (target >> 32) as u32];
        let packet = [WRITE_DATA[0], WRITE_DATA[1], low, high, value];
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
    pub fn ends(&self, number: u64, within: Duration) -> Result<bool> {
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

    /// The address of a word of the job's own buffer, behind its packets.
    pub fn own_word(&self) -> u64 {
        self.address + PAGE as u64
    }

    /// What is there.
    pub fn read_own_word(&self) -> u32 {
        // SAFETY: within the mapping, to which jobs may have written.
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
