// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Kfd`], the open `/dev/kfd`, one per process; [`Device`], one per GPU the process uses.

use crate::event::{own_pages, Pages};
use crate::ioctl::call;
use crate::range::{page, Range};
use crate::topology::Node;
use crate::{Error, Result};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{open, Mode, OFlags};
use rustix::ioctl::{NoArg, Opcode};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

const DEVICE_FILE: &str = "/dev/kfd";

/// The open `/dev/kfd`. The kernel ties it to the process that opened it: it is of no use after
/// `fork`.
#[derive(Debug)]
pub struct Kfd {
    fd: OwnedFd,
    version: (u32, u32),
    /// The context's event page.
    event_page: Pages,
    /// Whether the context's mode was said by [`Kfd::set_xnack`].
    chosen: Arc<AtomicBool>,
    /// The GPUs of this file, and how often their memory was written, and how often by the last
    /// flush.
    devices: Mutex<Vec<Weak<Device>>>,
    writes: AtomicU64,
    flushed: AtomicU64,
}

/// Whether this process's own context has had its mode chosen: it lasts beyond one file.
fn own_choice() -> Arc<AtomicBool> {
    static OWN: LazyLock<Mutex<(u32, Arc<AtomicBool>)>> = LazyLock::new(Default::default);
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    // A child of fork has a context of its own.
    if own.0 != std::process::id() {
        *own = (std::process::id(), Arc::default());
    }
    own.1.clone()
}

impl Kfd {
    /// Opens `/dev/kfd` and asks for the version of its interface.
    pub fn open() -> Result<Arc<Self>> {
        Self::open_file(own_pages(), own_choice()).map(Arc::new)
    }

    fn open_file(event_page: Pages, chosen: Arc<AtomicBool>) -> Result<Self> {
        let fd = open(DEVICE_FILE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(Error::of("open", DEVICE_FILE))?;
        let mut args = uapi::kfd_ioctl_get_version_args::default();
        // SAFETY: the struct holds no pointer.
        unsafe { call(&fd, || DEVICE_FILE.into(), &mut args)? };
        Ok(Self {
            fd,
            version: (args.major_version, args.minor_version),
            event_page,
            chosen,
            devices: Mutex::default(),
            writes: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
        })
    }

    /// Opens `/dev/kfd` with a context of its own: GPUs, memory, queues and events apart from those
    /// of this process's other ones. Needs the interface's version 1.19.
    pub fn open_secondary() -> Result<Arc<Self>> {
        let kfd = Self::open_file(Pages::default(), Arc::default())?;
        // SAFETY: the request has no argument.
        unsafe {
            rustix::ioctl::ioctl(
                &kfd.fd,
                NoArg::<{ uapi::IOC_CREATE_PROCESS as Opcode }>::new(),
            )
        }
        .map_err(Error::of("CREATE_PROCESS", DEVICE_FILE))?;
        Ok(Arc::new(kfd))
    }

    /// A GPU's clock and the system's, read together. The GPU need not be acquired.
    pub fn clocks(&self, gpu_id: u32) -> Result<Clocks> {
        let mut args = uapi::kfd_ioctl_get_clock_counters_args {
            gpu_id,
            ..Default::default()
        };
        // SAFETY: the struct holds no pointer.
        unsafe { call(self, || format!("GPU {gpu_id}"), &mut args)? };
        Ok(Clocks {
            gpu_clock_counter: args.gpu_clock_counter,
            cpu_clock_counter: args.cpu_clock_counter,
            system_clock_counter: args.system_clock_counter,
            system_clock_freq: args.system_clock_freq,
        })
    }

    /// The apertures of at most seven GPUs with their ids, as the first version of the interface
    /// told them.
    pub fn first_apertures(&self) -> Result<Vec<(u32, Apertures)>> {
        let mut args = uapi::kfd_ioctl_get_process_apertures_args::default();
        // SAFETY: the struct holds no pointer.
        unsafe { call(self, || DEVICE_FILE.into(), &mut args)? };
        let told = args
            .process_apertures
            .iter()
            .take(args.num_of_nodes as usize);
        Ok(told.map(|own| (own.gpu_id, Apertures::of(own))).collect())
    }

    /// Where its context has its event page.
    pub(crate) fn event_page(&self) -> &Pages {
        &self.event_page
    }

    /// The interface's major and minor version.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Whether faulting accesses of this process are retried (XNACK).
    pub fn xnack(&self) -> Result<bool> {
        // A negative value only asks.
        Ok(self.xnack_mode(-1)? != 0)
    }

    /// Has faulting accesses retried, or not. EBUSY when the process has queues, EPERM where a GPU
    /// can't.
    ///
    /// Without this they are not: [`Device::acquire`] turns it off where an administrator's
    /// `amdgpu.noretry=0` has it on.
    ///
    /// # Safety
    /// With `retry`, and a driver that has shared virtual memory, waves get whatever memory of this
    /// process they touch, for reading and, where it is mapped so, writing. So no kernel may run
    /// that touches what Rust believes to be its own; see [`Kfd::set_svm`].
    ///
    /// ```compile_fail,E0133
    /// # fn of(kfd: &kfd::Kfd) -> kfd::Result<()> {
    /// kfd.set_xnack(true)
    /// # }
    /// ```
    pub unsafe fn set_xnack(&self, retry: bool) -> Result<()> {
        self.xnack_mode(retry.into())?;
        self.chosen.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Sees to it that accesses are retried only where somebody has asked for it.
    fn settle_xnack(&self) -> Result<()> {
        if !self.chosen.load(Ordering::Relaxed) && self.xnack()? {
            self.xnack_mode(0)?;
        }
        Ok(())
    }

    fn xnack_mode(&self, mode: i32) -> Result<i32> {
        let mut args = uapi::kfd_ioctl_set_xnack_mode_args {
            xnack_enabled: mode,
        };
        // SAFETY: the struct holds no pointer.
        unsafe { call(self, || DEVICE_FILE.into(), &mut args)? };
        Ok(args.xnack_enabled)
    }

    /// Tells debuggers where the runtime describes itself; `ttmp` asks for dispatch information in
    /// the trap temporaries of waves. Dropping what is returned takes it back.
    ///
    /// EBUSY when queues exist already, EEXIST when it was done before.
    ///
    /// # Safety
    /// From then on, and until what is returned is dropped, the kernel sets bits wherever in this
    /// process a queue's save area says (`err_payload_addr` of `kfd_context_save_area_header`),
    /// when the queue has an exception: a trap, or a packet that the GPU does not take.
    /// [`crate::Queue::save_area`] writes there, and so do waves. So it says 0, or an address where
    /// Rust believes nothing to be its own, whenever a queue of the process has an exception; and
    /// no kernel runs that writes there.
    ///
    /// ```compile_fail,E0133
    /// # fn of(kfd: &std::sync::Arc<kfd::Kfd>) -> kfd::Result<kfd::Runtime> {
    /// kfd.enable_runtime(0x1000, false)
    /// # }
    /// ```
    pub unsafe fn enable_runtime(self: &Arc<Self>, r_debug: u64, ttmp: bool) -> Result<Runtime> {
        let ttmp = if ttmp {
            uapi::KFD_RUNTIME_ENABLE_MODE_TTMP_SAVE_MASK
        } else {
            0
        };
        let mut args = uapi::kfd_ioctl_runtime_enable_args {
            r_debug,
            mode_mask: uapi::KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK | ttmp,
            ..Default::default()
        };
        // SAFETY: the kernel only hands `r_debug` on to debuggers, which read it as the process's
        // memory. The caller answers for what queues' save areas say.
        unsafe { call(self.as_ref(), || "the runtime".into(), &mut args)? };
        Ok(Runtime(self.clone()))
    }

    /// The apertures of every GPU, by GPU id.
    fn apertures(&self) -> Result<Vec<uapi::kfd_process_device_apertures>> {
        let mut args = uapi::kfd_ioctl_get_process_apertures_new_args::default();
        // SAFETY: with no entries the kernel only tells their number.
        unsafe { call(self, || DEVICE_FILE.into(), &mut args)? };
        let mut entries =
            vec![uapi::kfd_process_device_apertures::default(); args.num_of_nodes as usize];
        args.kfd_process_device_apertures_ptr = entries.as_mut_ptr() as u64;
        // SAFETY: the pointer is to `num_of_nodes` entries, which live until after the call.
        unsafe { call(self, || DEVICE_FILE.into(), &mut args)? };
        entries.truncate(args.num_of_nodes as usize);
        Ok(entries)
    }
}

impl AsFd for Kfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A runtime that debuggers know of: see [`Kfd::enable_runtime`].
#[derive(Debug)]
pub struct Runtime(Arc<Kfd>);

impl Drop for Runtime {
    fn drop(&mut self) {
        let mut args = uapi::kfd_ioctl_runtime_enable_args::default();
        // SAFETY: the struct holds no pointer. A failure leaves it to the exit of the process.
        let _ = unsafe { call(self.0.as_ref(), String::new, &mut args) };
    }
}

/// Clocks that were read together, in their ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Clocks {
    /// The GPU's.
    pub gpu_clock_counter: u64,
    /// The CPU's: CLOCK_MONOTONIC_RAW, in nanoseconds.
    pub cpu_clock_counter: u64,
    /// The system's: CLOCK_BOOTTIME, in nanoseconds.
    pub system_clock_counter: u64,
    /// Ticks of the system's clock in a second.
    pub system_clock_freq: u64,
}

/// How the GPU caches what it shares with the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// Kept coherent by hardware.
    Coherent,
    /// Made coherent by flushes.
    NonCoherent,
}

impl CachePolicy {
    fn raw(self) -> u32 {
        match self {
            CachePolicy::Coherent => uapi::KFD_IOC_CACHE_POLICY_COHERENT,
            CachePolicy::NonCoherent => uapi::KFD_IOC_CACHE_POLICY_NONCOHERENT,
        }
    }
}

/// Ranges of GPU addresses with a meaning of their own.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Apertures {
    /// First address at which a flat access goes to the work-group's local data share.
    pub lds_base: u64,
    /// First address at which a flat access goes to the work-item's scratch.
    pub scratch_base: u64,
    /// First and last address for buffers.
    pub gpuvm: (u64, u64),
}

impl Apertures {
    fn of(told: &uapi::kfd_process_device_apertures) -> Self {
        Self {
            lds_base: told.lds_base,
            scratch_base: told.scratch_base,
            gpuvm: (told.gpuvm_base, told.gpuvm_limit),
        }
    }
}

/// How images lie in memory: `GB_ADDR_CONFIG`, and a mode for each kind of tile.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TileConfig {
    /// The register `GB_ADDR_CONFIG`.
    pub gb_addr_config: u32,
    /// Banks of memory.
    pub banks: u32,
    /// Ranks of memory.
    pub ranks: u32,
    /// The registers `GB_TILE_MODE*`; those of GPUs since gfx9 hold nothing.
    pub tiles: Vec<u32>,
    /// The registers `GB_MACROTILE_MODE*`.
    pub macro_tiles: Vec<u32>,
}

/// A GPU whose address space belongs to this process; it lasts as long as anything made on it.
#[derive(Debug)]
pub struct Device {
    kfd: Arc<Kfd>,
    node: Node,
    render: OwnedFd,
    apertures: Apertures,
    /// The page with the registers that flush, if the GPU has one.
    flush: OnceLock<Option<FlushPage>>,
    /// How often there was no memory for it.
    tries: AtomicU32,
}

/// A page of the GPU's registers that user space may write: `KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL` is
/// the first of them.
#[derive(Debug)]
struct FlushPage {
    kfd: Arc<Kfd>,
    range: Range,
    handle: u64,
}

impl Drop for FlushPage {
    fn drop(&mut self) {
        free(&self.kfd, self.handle);
    }
}

impl Device {
    /// Opens the GPU's render node and makes its address space the one of this process's queues.
    ///
    /// Once per GPU and process: the kernel refuses a second render file with EBUSY.
    pub fn acquire(kfd: &Arc<Kfd>, node: &Node) -> Result<Arc<Self>> {
        let path = format!("/dev/dri/renderD{}", node.property("drm_render_minor"));
        let render = open(path.as_str(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(Error::of("open", path))?;
        let mut args = uapi::kfd_ioctl_acquire_vm_args {
            drm_fd: render.as_raw_fd() as u32,
            gpu_id: node.gpu_id,
        };
        // SAFETY: the struct holds no pointer; the kernel takes its own reference on the file.
        unsafe { call(kfd.as_ref(), || object(node), &mut args)? };
        kfd.settle_xnack()?;
        let own = kfd
            .apertures()?
            .into_iter()
            .find(|entry| entry.gpu_id == node.gpu_id);
        let own =
            own.ok_or_else(|| Error::Invalid(format!("{} has no apertures", object(node))))?;
        let apertures = Apertures::of(&own);
        let device = Arc::new(Self {
            kfd: kfd.clone(),
            node: node.clone(),
            render,
            apertures,
            flush: OnceLock::new(),
            tries: AtomicU32::new(0),
        });
        let mut devices = kfd.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|device| device.strong_count() > 0);
        devices.push(Arc::downgrade(&device));
        drop(devices);
        Ok(device)
    }

    /// A device of no driver, all of whose calls fail (ENOTTY).
    #[cfg(test)]
    pub(crate) fn without_a_driver() -> Arc<Self> {
        let file = || open("/dev/null", OFlags::RDWR, Mode::empty()).expect("/dev/null");
        let kfd = Kfd {
            fd: file(),
            version: (0, 0),
            event_page: Pages::default(),
            chosen: Arc::default(),
            devices: Mutex::default(),
            writes: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
        };
        let node = Node {
            id: 1,
            gpu_id: 7,
            name: String::new(),
            properties: Default::default(),
            memory: Vec::new(),
            caches: Vec::new(),
            links: Vec::new(),
        };
        Arc::new(Self {
            kfd: Arc::new(kfd),
            node,
            render: file(),
            apertures: Apertures {
                lds_base: 0,
                scratch_base: 0,
                gpuvm: (0, 0),
            },
            flush: OnceLock::new(),
            tries: AtomicU32::new(0),
        })
    }

    /// The open `/dev/kfd` this came from.
    pub fn kfd(&self) -> &Arc<Kfd> {
        &self.kfd
    }

    /// What the topology says of this GPU.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The id that the KFD's calls take.
    pub fn gpu_id(&self) -> u32 {
        self.node.gpu_id
    }

    /// The special ranges of this GPU's addresses.
    pub fn apertures(&self) -> Apertures {
        self.apertures
    }

    /// VRAM in bytes that could be allocated now.
    pub fn available_memory(&self) -> Result<u64> {
        let mut args = uapi::kfd_ioctl_get_available_memory_args {
            gpu_id: self.gpu_id(),
            ..Default::default()
        };
        // SAFETY: the struct holds no pointer.
        unsafe { call(self.kfd.as_ref(), || self.to_string(), &mut args)? };
        Ok(args.available)
    }

    /// The GPU's clock and the system's, read together.
    pub fn clocks(&self) -> Result<Clocks> {
        self.kfd.clocks(self.gpu_id())
    }

    /// How images lie in this GPU's memory.
    pub fn tile_config(&self) -> Result<TileConfig> {
        // No GPU has more of either.
        let (mut tiles, mut macro_tiles) = (vec![0u32; 32], vec![0u32; 16]);
        let mut args = uapi::kfd_ioctl_get_tile_config_args {
            tile_config_ptr: tiles.as_mut_ptr() as u64,
            macro_tile_config_ptr: macro_tiles.as_mut_ptr() as u64,
            num_tile_configs: tiles.len() as u32,
            num_macro_tile_configs: macro_tiles.len() as u32,
            gpu_id: self.gpu_id(),
            ..Default::default()
        };
        // SAFETY: the pointers are to as many words as the args say, which live until after the
        // call.
        unsafe { call(self.kfd.as_ref(), || self.to_string(), &mut args)? };
        tiles.truncate(args.num_tile_configs as usize);
        macro_tiles.truncate(args.num_macro_tile_configs as usize);
        Ok(TileConfig {
            gb_addr_config: args.gb_addr_config,
            banks: args.num_banks,
            ranks: args.num_ranks,
            tiles,
            macro_tiles,
        })
    }

    /// Sets the policy of all memory, and another for one range of addresses (base, size).
    pub fn set_memory_policy(
        &self,
        default: CachePolicy,
        range: (u64, u64),
        other: CachePolicy,
    ) -> Result<()> {
        let mut args = uapi::kfd_ioctl_set_memory_policy_args {
            alternate_aperture_base: range.0,
            alternate_aperture_size: range.1,
            gpu_id: self.gpu_id(),
            default_policy: default.raw(),
            alternate_policy: other.raw(),
            misc_process_flag: 0,
        };
        // SAFETY: the struct holds no pointer that the kernel follows.
        unsafe { call(self.kfd.as_ref(), || self.to_string(), &mut args) }
    }

    /// Tells where the process's scratch lies on this GPU.
    pub fn set_scratch_backing(&self, address: u64) -> Result<()> {
        let mut args = uapi::kfd_ioctl_set_scratch_backing_va_args {
            va_addr: address,
            gpu_id: self.gpu_id(),
            ..Default::default()
        };
        // SAFETY: only the GPU uses the address, within the process's own address space there.
        unsafe { call(self.kfd.as_ref(), || self.to_string(), &mut args) }
    }

    /// Has traps handled by the code at `code`, with `data` for it; 0 for none.
    pub fn set_trap_handler(&self, code: u64, data: u64) -> Result<()> {
        let mut args = uapi::kfd_ioctl_set_trap_handler_args {
            tba_addr: code,
            tma_addr: data,
            gpu_id: self.gpu_id(),
            ..Default::default()
        };
        // SAFETY: as for the scratch.
        unsafe { call(self.kfd.as_ref(), || self.to_string(), &mut args) }
    }

    /// Sees to it that waves see what this process has written to the memory of any GPU of this
    /// [`Kfd`] by [`crate::Memory::write`] until now. Costs two loads if there is nothing new.
    ///
    /// Of another process's GPU, whose memory came by a dma-buf, it knows nothing.
    pub fn flush_writes(&self) {
        let kfd = &self.kfd;
        let writes = kfd.writes.load(Ordering::Acquire);
        if kfd.flushed.load(Ordering::Acquire) < writes {
            let devices = kfd.devices.lock().unwrap_or_else(PoisonError::into_inner);
            let devices: Vec<_> = devices.iter().filter_map(Weak::upgrade).collect();
            devices.iter().for_each(|device| device.flush_hdp());
            // Others wait with theirs until it is done.
            kfd.flushed.fetch_max(writes, Ordering::AcqRel);
        }
    }

    /// Empties the GPU's host data path (HDP), in which writes of CPUs to its memory may stay for a
    /// while. Where user space can't reach the register that does so, there is none to empty (the
    /// CPU is the GPU's own), or the driver does it with each submission.
    pub fn flush_hdp(&self) {
        if let Some(page) = self.flush_registers() {
            std::sync::atomic::fence(Ordering::SeqCst);
            page.range.write(0, &[1u32]);
            // Its answer comes when the write has arrived.
            page.range.read::<u32>(0, 1);
        }
    }

    fn flush_registers(&self) -> Option<&FlushPage> {
        /// ENOMEM is what a driver says that has no such page, and one that is short of memory.
        const TRIES: u32 = 8;
        if let Some(found) = self.flush.get() {
            return found.as_ref();
        }
        let page = match self.flush_page() {
            Err(error) if error.errno() == Some(crate::Errno::ENOMEM) => {
                if self.tries.fetch_add(1, Ordering::Relaxed) < TRIES {
                    return None;
                }
                None
            }
            other => other.ok(),
        };
        self.flush.get_or_init(|| page).as_ref()
    }

    /// Somebody has written to the GPU's memory.
    pub(crate) fn note_write(&self) {
        self.kfd.writes.fetch_add(1, Ordering::Release);
    }

    fn flush_page(&self) -> Result<FlushPage> {
        let mut range = Range::reserve(page())?;
        let flags = uapi::KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP;
        let mut args = uapi::kfd_ioctl_alloc_memory_of_gpu_args {
            va_addr: range.address(),
            size: page() as u64,
            gpu_id: self.gpu_id(),
            flags: flags | uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE,
            ..Default::default()
        };
        let object = || format!("the flush registers of {self}");
        // SAFETY: the address is a reservation, which lasts until after FREE.
        unsafe { call(self.kfd.as_ref(), object, &mut args)? };
        let handle = args.handle;
        range
            .back_with_file(self.kfd.as_fd(), args.mmap_offset)
            .inspect_err(|_| free(&self.kfd, handle))?;
        Ok(FlushPage {
            kfd: self.kfd.clone(),
            range,
            handle,
        })
    }

    /// The GPU's render node as it was opened: calls to it concern the same address space.
    pub fn render(&self) -> BorrowedFd<'_> {
        self.render.as_fd()
    }
}

fn free(kfd: &Kfd, handle: u64) {
    let mut args = uapi::kfd_ioctl_free_memory_of_gpu_args { handle };
    // SAFETY: the struct holds no pointer. A failure leaves it to the exit of the process.
    let _ = unsafe { call(kfd, String::new, &mut args) };
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&object(&self.node))
    }
}

fn object(node: &Node) -> String {
    format!("GPU {} (node {})", node.gpu_id, node.id)
}
