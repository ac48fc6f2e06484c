// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A MAP_MEMORY_TO_GPU that finds no VRAM for its last page table, when it has written what comes
//! before (fail_function.ko). Nothing of it must be in the page tables afterwards, as its memory is
//! somebody else's.

use crate::opener::{keep_free, reads_at, MIB, OWN, TO_FAULT};
use crate::raw::{ioctl, Outcome};
use crate::running::{vram_and_ticks, wrong_pages, Reader};
use crate::waves::Gpu;
use anyhow::{ensure, Context, Result};
use kfd_uapi as uapi;
use rustix::io::Errno;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

const PAGE: u64 = 4096;
/// What an entry of the lowest directory leads to.
const BLOCK: u64 = 2 << 20;
const BLOCKS: u64 = 3;
/// Nothing else is there.
const PLACE: u64 = 1 << 40;
/// Behind what page tables have, and what no address is.
const BEYOND: [u64; 2] = [1 << 48, 0xffff_8000_0000_0000];

#[derive(clap::Args)]
pub struct MapNoTable {
    /// fail_function.ko
    module: PathBuf,
    /// A restore writes no page tables, and what it has not restored is unmapped.
    #[arg(long)]
    restore: bool,
    /// It is an UNMAP that fails, for lack of memory for what it waits for.
    #[arg(long, conflicts_with = "restore")]
    unmap: bool,
    /// The program ends while its page tables are away, and nothing comes back.
    #[arg(long, conflicts_with_all = ["restore", "unmap"])]
    end: bool,
    /// So many MAPs find none, and the next one does.
    #[arg(long, conflicts_with_all = ["restore", "unmap", "end"])]
    times: Option<u32>,
}

/// Reading it has all that is in VRAM leave it.
const EVICT_VRAM: &str = "/sys/kernel/debug/dri/0/amdgpu_evict_vram";
/// A restore comes each 0.1 s.
const SOME_RESTORES: Duration = Duration::from_secs(2);

struct Buffers<'a>(&'a Gpu);

impl Buffers<'_> {
    fn alloc(&self, va_addr: u64, size: u64) -> Result<u64> {
        self.alloc_of(va_addr, size, uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM)
    }

    fn alloc_of(&self, va_addr: u64, size: u64, kind: u32) -> Result<u64> {
        let mut args = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
            va_addr,
            size,
            gpu_id: self.0.device().gpu_id(),
            flags: kind | uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE,
            ..Default::default()
        };
        ioctl(
            self.0.device().kfd(),
            uapi::IOC_ALLOC_MEMORY_OF_GPU,
            &mut args,
        )
        .context("ALLOC")?;
        Ok(args.handle)
    }

    fn map(&self, handle: u64) -> Outcome {
        let gpu = self.0.device().gpu_id();
        let mut args = uapi::kfd_ioctl_map_memory_to_gpu_args {
            handle,
            device_ids_array_ptr: &raw const gpu as u64,
            n_devices: 1,
            n_success: 0,
        };
        ioctl(
            self.0.device().kfd(),
            uapi::IOC_MAP_MEMORY_TO_GPU,
            &mut args,
        )
    }

    fn unmap(&self, handle: u64) -> Outcome {
        let gpu = self.0.device().gpu_id();
        let mut args = uapi::kfd_ioctl_unmap_memory_from_gpu_args {
            handle,
            device_ids_array_ptr: &raw const gpu as u64,
            n_devices: 1,
            n_success: 0,
        };
        ioctl(
            self.0.device().kfd(),
            uapi::IOC_UNMAP_MEMORY_FROM_GPU,
            &mut args,
        )
    }

    fn free(&self, handle: u64) -> Outcome {
        let mut args = uapi::kfd_ioctl_free_memory_of_gpu_args { handle };
        ioctl(
            self.0.device().kfd(),
            uapi::IOC_FREE_MEMORY_OF_GPU,
            &mut args,
        )
    }
}

impl MapNoTable {
    pub fn run(&self) -> Result<()> {
        let gpu = Gpu::open(4)?;
        if let Some(times) = self.times {
            self.unmapped_often(&gpu, times)
        } else if self.restore {
            self.unrestored(&gpu)
        } else if self.unmap {
            self.half_unmapped(&gpu)
        } else if self.end {
            self.ends(&gpu)
        } else {
            self.unmapped(&gpu)
        }
    }

    fn unmapped_often(&self, gpu: &Gpu, times: u32) -> Result<()> {
        let buffers = Buffers(gpu);
        let page = buffers.alloc(PLACE, PAGE)?;
        self.fail(&["function=amdgpu_bo_create_vm", "times=1000000"])?;
        for time in 0..times {
            let mapped = buffers.map(page);
            ensure!(mapped == Err(Errno::NOMEM), "MAP {time}: {mapped:?}");
        }
        Self::fail_no_more()?;
        buffers.map(page).context("MAP at last")?;
        buffers.unmap(page).context("UNMAP")?;
        buffers.free(page).context("FREE")?;
        Ok(())
    }

    /// A MAP fails when all but its directories' entries is written, and is made once more.
    fn half_mapped(&self, buffers: &Buffers<'_>, kind: u32) -> Result<()> {
        let page = buffers.alloc_of(PLACE, PAGE, kind)?;
        self.fail(&["function=amdgpu_vm_update_pdes"])?;
        let mapped = buffers.map(page);
        Self::fail_no_more()?;
        ensure!(mapped == Err(Errno::NOMEM), "MAP of a page: {mapped:?}");
        buffers.map(page).context("MAP of a page again")?;
        buffers.unmap(page).context("UNMAP of a page")?;
        buffers.free(page).context("FREE of a page")
    }

    /// A queue reads there, with nothing mapped or unmapped in between.
    fn half_unmapped(&self, gpu: &Gpu) -> Result<()> {
        let buffers = Buffers(gpu);
        let buffer = buffers.alloc(PLACE, BLOCK)?;
        buffers.map(buffer).context("MAP of a block")?;
        let reader = Reader::new(gpu, [PLACE, BLOCK], OWN)?;
        self.fail(&["function=amdgpu_sync_resv"])?;
        let unmapped = buffers.unmap(buffer);
        Self::fail_no_more()?;
        unmapped.context("UNMAP")?;
        match reader.wrong_pages(TO_FAULT) {
            Ok(_) => println!("it reads what is unmapped"),
            Err(error) => println!("it faults: {error:#}"),
        }
        buffers.free(buffer).context("FREE")
    }

    fn ends(&self, gpu: &Gpu) -> Result<()> {
        let buffers = Buffers(gpu);
        for block in 0..BLOCKS {
            let buffer = buffers.alloc(PLACE + block * BLOCK, BLOCK)?;
            buffers.map(buffer).context("MAP")?;
        }
        self.fail(&["function=ttm_bo_validate", "times=1000000"])?;
        fs::read(EVICT_VRAM).context("amdgpu_evict_vram")?;
        std::process::exit(0);
    }

    fn unrestored(&self, gpu: &Gpu) -> Result<()> {
        let (memory, _) = vram_and_ticks(gpu.device(), MIB, OWN)?;
        let wrong = wrong_pages(gpu, &memory, OWN)?;
        ensure!(wrong == 0, "{wrong} pages are wrong before");
        // Of those that write pages of a buffer (allow_override).
        let function = "function=amdgpu_vm_update_range";
        self.fail(&[function, "only=5", "after=1", "times=1000000"])?;
        fs::read(EVICT_VRAM).context("amdgpu_evict_vram")?;
        thread::sleep(SOME_RESTORES);
        let (address, size) = (memory.address(), memory.size());
        drop(memory);
        keep_free(address, size)?;
        Self::fail_no_more()?;
        reads_at(gpu, [address, size as u64])
    }

    fn unmapped(&self, gpu: &Gpu) -> Result<()> {
        let buffers = Buffers(gpu);
        for place in BEYOND {
            let beyond = buffers.alloc(place, BLOCK)?;
            let mapped = buffers.map(beyond);
            ensure!(mapped == Err(Errno::INVAL), "MAP at {place:#x}: {mapped:?}");
            buffers.free(beyond).context("FREE of what is beyond")?;
        }
        self.half_mapped(&buffers, uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM)?;
        // The page of registers has a DMA mapping, which there may be one of.
        self.half_mapped(&buffers, uapi::KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP)?;
        // Each leaves its table, in whose place a larger entry comes.
        for block in 0..BLOCKS {
            let page = buffers.alloc(PLACE + block * BLOCK, PAGE)?;
            buffers.map(page).context("MAP of a page")?;
            buffers.unmap(page).context("UNMAP of a page")?;
            buffers.free(page).context("FREE of a page")?;
        }
        let size = BLOCKS * BLOCK + PAGE;
        let whole = buffers.alloc(PLACE, size)?;
        // The table for its last page cannot be had, nor any other.
        self.fail(&["function=amdgpu_bo_create_vm", "times=1000000"])?;
        let mapped = buffers.map(whole);
        Self::fail_no_more()?;
        ensure!(mapped == Err(Errno::NOMEM), "MAP: {mapped:?}");
        buffers.free(whole).context("FREE")?;
        reads_at(gpu, [PLACE, BLOCK])?;
        // Whoever comes next finds the page tables as they shall be.
        let whole = buffers.alloc(PLACE, size)?;
        buffers.map(whole).context("MAP again")?;
        buffers.unmap(whole).context("UNMAP again")?;
        buffers.free(whole).context("FREE again")?;
        Ok(())
    }

    fn fail(&self, how: &[&str]) -> Result<()> {
        let mut insmod = Command::new("insmod");
        insmod.arg(&self.module).arg("result=-12").args(how);
        let status = insmod.status()?;
        ensure!(status.success(), "insmod: {status}");
        Ok(())
    }

    fn fail_no_more() -> Result<()> {
        let status = Command::new("rmmod").arg("fail_function").status()?;
        ensure!(status.success(), "rmmod: {status}");
        Ok(())
    }
}
