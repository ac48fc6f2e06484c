// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory that others have by a dma-buf, and that moves. A driver that cannot follow pins it
//! (pin_dmabuf.ko), and when that lets it go the process's queues must be stopped before it moves
//! again. Another GPU that has imported it follows, although the exporter has given it back.

use crate::opener::render_node;
use crate::pressure::{is_of, settled, told};
use crate::raw::{change_mapping, ioctl};
use crate::running::{
    fill, moves, pattern, say, two_gpus, vram_and_ticks, wrong_pages, wrong_pages_at, Running,
    PATIENCE,
};
use crate::same_gpu::{create_in, export, import as import_by};
use crate::waves::Gpu;
use anyhow::{ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Kfd, Memory, MemoryFlags, SmiEvents};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use rustix::fs::{open, Mode, OFlags};
use rustix::io::{fcntl_setfd, Errno, FdFlags};
use rustix::mm::{mmap, MapFlags, ProtFlags};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Have a buffer pinned through its dma-buf, and let go.
#[derive(Args)]
pub struct Pinned {
    /// Instead: import it on another GPU, give it back on its own, and have it moved.
    #[arg(long)]
    elsewhere: bool,
    /// As `elsewhere`, but the exporter's GPU is unbound then, which ends this process (SIGBUS).
    #[arg(long)]
    unbound: bool,
    /// Instead: import VRAM of the one GPU on the other when there is that file.
    #[arg(long)]
    stuck: Option<PathBuf>,
    /// So much, in MiB.
    #[arg(long, default_value_t = 4 * MIB, requires = "stuck")]
    mib: usize,
    /// Import another driver's dma-buf that no GPU has room for.
    #[arg(long, hide = true)]
    too_large: bool,
    /// Instead: import system memory of that render node, whose GPU the KFD does not serve, and see
    /// that the queues stop when it is unbound.
    #[arg(long)]
    orphaned: Option<PathBuf>,
    /// Import these dma-bufs on the GPU that is left when the other one is unbound.
    #[arg(long, hide = true, requires = "minor")]
    late: Vec<RawFd>,
    /// The render node of the one that is unbound.
    #[arg(long, hide = true)]
    minor: Option<u64>,
    /// Have system memory of everybody's swapped out through the render node of that number.
    #[arg(long, hide = true)]
    squeeze: Option<u64>,
}

/// Of pin_dmabuf.ko.
const PIN_DMABUF: &str = "/sys/kernel/debug/pin_dmabuf";
/// How many pages of system memory buffers may have, of all processes.
const PAGES_LIMIT: &str = "/sys/module/ttm/parameters/pages_limit";
const MIB: usize = 4;
const SEED: u32 = 0x1357_9bdf;

impl Pinned {
    pub fn run(&self) -> Result<()> {
        if let Some(minor) = self.squeeze {
            return squeeze(minor);
        }
        if let Some(node) = &self.orphaned {
            return orphaned(node);
        }
        if self.too_large {
            return import_huge();
        }
        if let Some(minor) = self.minor {
            return late(&self.late, minor);
        }
        if let Some(go) = &self.stuck {
            return stuck(go, self.mib);
        }
        match self.elsewhere || self.unbound {
            true => self.elsewhere(),
            false => pinned(),
        }
    }

    fn elsewhere(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        let [home, user] = two_gpus(&kfd)?;
        let user = Gpu::on(user, 4)?;
        let (exported, ticks) = vram_and_ticks(&home, MIB, SEED)?;
        drop(ticks);
        let file = exported.export()?;
        let imported = Memory::import(user.device(), file.as_fd())?;
        let refused = change_mapping(uapi::IOC_MAP_MEMORY_TO_GPU, &imported, home.gpu_id());
        check(
            refused == Err(Errno::INVAL),
            &format!("what one GPU has imported is not mapped on another: {refused:?}"),
        );
        order(&format!("look {}", file.as_raw_fd()))?;
        drop(exported);
        let said = state_soon("guarded tells")?;
        check(
            said == "guarded tells",
            &format!("the exporter's buffer is there for the importer: {said}"),
        );
        if self.unbound {
            let minor = nodes[0].property("drm_render_minor");
            let (local, _ticks) = vram_and_ticks(&home, MIB, SEED)?;
            let files = [local.export()?, Memory::gtt(&home, MIB << 20)?.export()?];
            let mut late = Command::new(std::env::current_exe()?);
            late.args(["pinned", "--minor", &minor.to_string()]);
            for file in &files {
                fcntl_setfd(file, FdFlags::empty())?;
                late.args(["--late", &file.as_raw_fd().to_string()]);
            }
            late.spawn()?;
            return unbind(minor);
        }
        let wrong = wrong_pages(&user, &imported, SEED)?;
        check(wrong == 0, &format!("{wrong} pages are not the exporter's"));
        let mut events = told(user.device().gpu_id())?;
        let ticks = Memory::gtt(user.device(), 4096)?;
        ticks.write(0, &[0u32]);
        let running = Running::start(&user, ticks.address())?;
        // What lies in VRAM must go for that.
        order(&format!("pin {}", file.as_raw_fd()))?;
        let was_local = is_restored(&mut events, Duration::from_secs(2))?;
        order("unpin")?;
        println!("figure: it was in the exporter's VRAM: {was_local}");
        let limit = fs::read_to_string(PAGES_LIMIT)?;
        fs::write(PAGES_LIMIT, "1")?;
        let minor = nodes[0].property("drm_render_minor").to_string();
        let squeezed = Command::new(std::env::current_exe()?)
            .args(["pinned", "--squeeze", &minor])
            .status();
        fs::write(PAGES_LIMIT, limit.trim())?;
        ensure!(squeezed?.success(), "nothing was swapped out");
        check(
            is_restored(&mut events, PATIENCE)?,
            "the importer is evicted and restored",
        );
        fill(&imported, !SEED);
        let wrong = wrong_pages(&user, &imported, !SEED)?;
        check(
            wrong == 0,
            &format!("{wrong} pages are seen where they were before"),
        );
        running.finish()?;
        given_back(imported)
    }
}

fn check(right: bool, what: &str) {
    let verdict = if right { "ok" } else { "not ok" };
    println!("{verdict} - {what}");
}

fn order(text: &str) -> Result<()> {
    fs::write(PIN_DMABUF, text).with_context(|| format!("pin_dmabuf: {text}"))
}

/// What the module says of the dma-buf.
fn state() -> Result<String> {
    Ok(fs::read_to_string(PIN_DMABUF)?.trim().to_owned())
}

/// What it says once that is `wanted`, or a while has passed: an import may move the memory, and
/// nobody is to be asked then until the process, which was evicted for it, is restored.
fn state_soon(wanted: &str) -> Result<String> {
    let begin = Instant::now();
    loop {
        let said = state()?;
        if said == wanted || begin.elapsed() > Duration::from_secs(10) {
            return Ok(said);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether this process is evicted, which `within` that time begins, and has been restored.
pub fn is_restored(events: &mut SmiEvents, within: Duration) -> Result<bool> {
    let (begin, mut all) = (Instant::now(), Vec::new());
    while all.is_empty() || !settled(&all) {
        if all.is_empty() && begin.elapsed() > within {
            return Ok(false);
        }
        ensure!(begin.elapsed() < PATIENCE, "not restored: {all:?}");
        let mut more = events.read(Duration::from_millis(100))?;
        more.retain(|event| is_of(event, std::process::id()));
        all.extend(more);
    }
    Ok(true)
}

fn pinned() -> Result<()> {
    let gpu = Gpu::open(4)?;
    freed(gpu.device())?;
    foreign(&gpu)?;
    let (memory, ticks) = vram_and_ticks(gpu.device(), MIB, SEED)?;
    let file = memory.export()?;
    let mut events = told(gpu.device().gpu_id())?;
    let running = Running::start(&gpu, ticks.address())?;
    let count = || ticks.read::<u32>(0, 1)[0];
    ensure!(moves(count), "the kernel does not run");
    order(&format!("pin {}", file.as_raw_fd()))?;
    check(
        is_restored(&mut events, PATIENCE)?,
        "queues are stopped for who pins memory",
    );
    ensure!(moves(count), "the kernel does not go on");
    order("unpin")?;
    let said = state()?;
    check(
        said == "guarded tells",
        &format!("and will be when it moves next: {said}"),
    );
    running.finish()?;
    let wrong = wrong_pages(&gpu, &memory, SEED)?;
    check(wrong == 0, &format!("{wrong} pages have changed"));
    Ok(())
}

/// What the process has imported and freed may move, and go, without its queues; not while its
/// render node has it, too.
fn freed(device: &Arc<Device>) -> Result<()> {
    let nodes = topology::gpus()?;
    let stranger = render_node(nodes.first().context("no GPU")?)?;
    let handle = create_in(&stranger, uapi::AMDGPU_GEM_DOMAIN_GTT, MIB << 20)?;
    let file = export(&stranger, handle)?;
    order(&format!("look {}", file.as_raw_fd()))?;
    let imported = Memory::import(device, file.as_fd())?;
    let said = state_soon("guarded tells")?;
    check(
        said == "guarded tells",
        &format!("it is asked for what it has imported: {said}"),
    );
    drop(imported);
    let said = state_soon("unguarded tells")?;
    check(
        said == "unguarded tells",
        &format!("not for what it has freed: {said}"),
    );
    import_by(device.render(), &file)?;
    drop(Memory::import(device, file.as_fd())?);
    let said = state_soon("unguarded tells")?;
    check(
        said == "guarded tells",
        &format!("but for what its render node has: {said}"),
    );
    Ok(())
}

/// Another driver's memory (vgem's) is seen, and its buffer tells when it moves, though who made it
/// has closed his handle.
fn foreign(gpu: &Gpu) -> Result<()> {
    too_large(gpu.device())?;
    let card = open_vgem()?;
    let size = MIB << 20;
    let made = create_dumb(&card, size)?;
    let file = export(&card, made)?;
    // SAFETY: a new mapping, until the process ends.
    let place = unsafe {
        let (nowhere, access) = (std::ptr::null_mut(), ProtFlags::WRITE);
        mmap(nowhere, size, access, MapFlags::SHARED, &file, 0)?.cast::<u32>()
    };
    for page in 0..size / 4096 {
        // SAFETY: within the mapping, which nobody else uses.
        unsafe { place.add(page * 1024).write_volatile(pattern(page, SEED)) };
    }
    let handle = import(gpu.device(), file.as_raw_fd())?;
    let mut close = uapi::drm_gem_close {
        handle: made,
        pad: 0,
    };
    ioctl(&card, uapi::IOC_DRM_GEM_CLOSE, &mut close).context("GEM_CLOSE")?;
    order(&format!("look {}", file.as_raw_fd()))?;
    let said = state_soon("guarded tells")?;
    check(
        said == "guarded tells",
        &format!("another driver's buffer is there for the importer: {said}"),
    );
    let kfd = gpu.device().kfd();
    map_imported(gpu.device(), handle)?;
    let wrong = wrong_pages_at(gpu, [IMPORTED_AT, size as u64], SEED, PATIENCE)?;
    check(wrong == 0, &format!("{wrong} pages are not that driver's"));
    change_imported(gpu.device(), uapi::IOC_UNMAP_MEMORY_FROM_GPU, handle)
        .context("UNMAP_MEMORY_FROM_GPU")?;
    let mut free = uapi::kfd_ioctl_free_memory_of_gpu_args { handle };
    ioctl(kfd, uapi::IOC_FREE_MEMORY_OF_GPU, &mut free).context("FREE_MEMORY_OF_GPU")?;
    let said = state_soon("unguarded silent")?;
    check(
        said == "unguarded silent",
        &format!("until it frees it: {said}"),
    );
    Ok(())
}

/// The pages are given back with that GPU, whoever shows them.
fn orphaned(node: &Path) -> Result<()> {
    let stranger = open(node, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let handle = create_in(&stranger, uapi::AMDGPU_GEM_DOMAIN_GTT, MIB << 20)?;
    let file = export(&stranger, handle)?;
    let gpu = Gpu::open(4)?;
    let device = gpu.device();
    map_imported(device, import(device, file.as_raw_fd())?)?;
    let ticks = Memory::gtt(device, 4096)?;
    ticks.write(0, &[0u32]);
    let mut events = told(device.gpu_id())?;
    let _running = Running::start(&gpu, ticks.address())?;
    let count = || ticks.read::<u32>(0, 1)[0];
    ensure!(moves(count), "the kernel does not run");
    say("imported")?;
    let (begin, mut evicted) = (Instant::now(), false);
    while !evicted && begin.elapsed() < PATIENCE {
        let mut more = events.read(Duration::from_millis(100))?;
        more.retain(|event| is_of(event, std::process::id()));
        evicted = !more.is_empty();
    }
    check(evicted, "the queues are stopped");
    // Longer than the driver waits before it brings a process back.
    std::thread::sleep(Duration::from_secs(2));
    let before = count();
    std::thread::sleep(Duration::from_secs(1));
    check(count() == before, "and do not go on");
    // Its queues would be waited for.
    std::process::exit(0);
}

/// Maps it on the one GPU.
fn map_imported(device: &Device, handle: u64) -> Result<()> {
    change_imported(device, uapi::IOC_MAP_MEMORY_TO_GPU, handle).context("MAP_MEMORY_TO_GPU")
}

fn change_imported(device: &Device, request: u32, handle: u64) -> Result<()> {
    let gpu_id = device.gpu_id();
    let mut mapping = uapi::kfd_ioctl_map_memory_to_gpu_args {
        handle,
        device_ids_array_ptr: &raw const gpu_id as u64,
        n_devices: 1,
        n_success: 0,
    };
    Ok(ioctl(device.kfd(), request, &mut mapping)?)
}

/// More than can be in system memory for the GPU is refused, and nobody makes room for it.
fn too_large(device: &Arc<Device>) -> Result<()> {
    let _memory = Memory::gtt(device, MIB << 20)?;
    let mut events = told(device.gpu_id())?;
    let status = Command::new(std::env::current_exe()?)
        .args(["pinned", "--too-large"])
        .status()?;
    ensure!(status.success(), "{status}");
    let stopped = is_restored(&mut events, Duration::from_secs(1))?;
    check(!stopped, "others' queues go on");
    Ok(())
}

/// Another process, since nobody's own memory goes for what he asks for.
fn import_huge() -> Result<()> {
    let kfd = Kfd::open()?;
    let device = Device::acquire(&kfd, topology::gpus()?.first().context("no GPU")?)?;
    let card = open_vgem()?;
    let file = export(&card, create_dumb(&card, HUGE)?)?;
    let refused = import(&device, file.as_raw_fd()).map(drop);
    check(
        refused == Err(Errno::NOMEM),
        &format!("what is too large is refused: {refused:?}"),
    );
    Ok(())
}

fn create_dumb(card: &OwnedFd, size: usize) -> Result<u32> {
    let mut dumb = Dumb {
        height: 1,
        width: size as u32,
        bpp: 8,
        ..Dumb::default()
    };
    ioctl(card, CREATE_DUMB, &mut dumb).context("CREATE_DUMB")?;
    Ok(dumb.handle)
}

/// Twice what the test gives the GPU (gttsize).
const HUGE: usize = 512 << 20;

/// `struct drm_mode_create_dumb` of drm_mode.h.
#[repr(C)]
#[derive(Default)]
struct Dumb {
    height: u32,
    width: u32,
    bpp: u32,
    flags: u32,
    handle: u32,
    pitch: u32,
    size: u64,
}

/// `DRM_IOCTL_MODE_CREATE_DUMB`.
const CREATE_DUMB: u32 = 0xc020_64b2;

/// vgem's node, which the test has loaded.
fn open_vgem() -> Result<OwnedFd> {
    for entry in fs::read_dir("/sys/class/drm")? {
        let entry = entry?;
        let device = fs::read_link(entry.path().join("device")).unwrap_or_default();
        let name = entry.file_name();
        if device.ends_with("vgem") && name.as_encoded_bytes().starts_with(b"card") {
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            return Ok(open(
                Path::new("/dev/dri").join(name),
                flags,
                Mode::empty(),
            )?);
        }
    }
    anyhow::bail!("no vgem")
}

/// The exporter's buffer is there for the importer as long as that has not freed its own.
fn given_back(imported: Memory) -> Result<()> {
    let mut free = uapi::kfd_ioctl_free_memory_of_gpu_args {
        handle: imported.handle(),
    };
    let refused = ioctl(
        imported.device().kfd(),
        uapi::IOC_FREE_MEMORY_OF_GPU,
        &mut free,
    );
    let said = state()?;
    check(
        refused == Err(Errno::BUSY) && said.ends_with("tells"),
        &format!("nor does FREE of what is mapped change that: {refused:?}, {said}"),
    );
    drop(imported);
    let said = state()?;
    check(said.ends_with("silent"), &format!("after FREE: {said}"));
    Ok(())
}

/// Has amdgpu let go of a GPU, which waits for this process's end.
fn unbind(minor: u64) -> Result<()> {
    let device = fs::read_link(format!("/sys/class/drm/renderD{minor}/device"))?;
    let address = device.file_name().context("no address")?;
    let address = address.to_str().context("no text")?;
    Command::new("sh")
        .args(["-c", "echo \"$0\" >/sys/bus/pci/drivers/amdgpu/unbind"])
        .arg(address)
        .spawn()?;
    std::thread::sleep(PATIENCE);
    anyhow::bail!("the process goes on")
}

/// Of the memory of a GPU that has been unbound nobody gets the addresses any more.
fn late(files: &[RawFd], minor: u64) -> Result<()> {
    let begin = Instant::now();
    // The node goes when drm calls the device unplugged.
    while fs::exists(format!("/sys/class/drm/renderD{minor}"))? {
        ensure!(begin.elapsed() < PATIENCE, "the GPU is not unbound");
        std::thread::sleep(Duration::from_millis(10));
    }
    let kfd = Kfd::open()?;
    let device = Device::acquire(&kfd, topology::gpus()?.first().context("no GPU")?)?;
    for file in files {
        let refused = import(&device, *file).map(drop);
        check(
            refused == Err(Errno::NODEV),
            &format!("memory of a GPU that has gone is not imported: {refused:?}"),
        );
    }
    Ok(())
}

/// Where the GPU sees what is imported so.
const IMPORTED_AT: u64 = 1 << 36;

/// What no GPU of the KFD need have made. Returns its handle.
fn import(device: &Device, file: RawFd) -> Result<u64, Errno> {
    let mut args = uapi::kfd_ioctl_import_dmabuf_args {
        va_addr: IMPORTED_AT,
        gpu_id: device.gpu_id(),
        dmabuf_fd: file as u32,
        ..Default::default()
    };
    ioctl(device.kfd(), uapi::IOC_IMPORT_DMABUF, &mut args)?;
    Ok(args.handle)
}

/// The exporter's copy engine moves it to where the importer sees it, or does not.
fn stuck(go: &Path, mib: usize) -> Result<()> {
    let kfd = Kfd::open()?;
    let [home, user] = two_gpus(&kfd)?;
    // More jobs than an engine takes at a time.
    let flags = MemoryFlags::VRAM | MemoryFlags::PUBLIC | MemoryFlags::WRITABLE;
    let exported = Memory::allocate(&home, mib << 20, flags)?;
    let file = exported.export()?;
    say("ready")?;
    while !go.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let imported = import(&user, file.as_raw_fd()).map(drop);
    say(&format!("imported: {imported:?}"))
}

/// A buffer in system memory, for which there is no room.
fn squeeze(minor: u64) -> Result<()> {
    let path = format!("/dev/dri/renderD{minor}");
    let file = open(path.as_str(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut args = uapi::drm_amdgpu_gem_create::default();
    args.in_ = uapi::drm_amdgpu_gem_create_in {
        bo_size: 16 << 20,
        alignment: 4096,
        domains: uapi::AMDGPU_GEM_DOMAIN_GTT.into(),
        domain_flags: 0,
    };
    Ok(ioctl(&file, uapi::IOC_DRM_GEM_CREATE, &mut args)?)
}
