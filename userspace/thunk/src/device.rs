// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Kfd`], the open `/dev/kfd`, one per process; [`Device`], one per GPU the process uses.

use crate::context::Context;
use crate::flush::Register;
use crate::ioctl::call;
use crate::topology::Node;
use crate::{Error, Result};
use kfd_uapi as uapi;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{open, Mode, OFlags};
use rustix::ioctl::{NoArg, Opcode};
use std::sync::atomic::Ordering;
use std::sync::Arc;

const DEVICE_FILE: &str = "/dev/kfd";

/// The open `/dev/kfd`. The kernel ties it to the process that opened it: it is of no use after
/// `fork`.
#[derive(Debug)]
pub struct Kfd {
    fd: OwnedFd,
    version: (u32, u32),
    context: Arc<Context>,
}

impl Kfd {
    /// Opens `/dev/kfd` and asks for the version of its interface.
    pub fn open() -> Result<Arc<Self>> {
        Self::open_file(Context::own()).map(Arc::new)
    }

    fn open_file(context: Arc<Context>) -> Result<Self> {
        let fd = open(DEVICE_FILE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(Error::of("open", DEVICE_FILE))?;
        let mut args = uapi::kfd_ioctl_get_version_args::default();
        // SAFETY: the struct holds no pointer.
        unsafe { call(&fd, || DEVICE_FILE.into(), &mut args)? };
        Ok(Self {
            fd,
            version: (args.major_version, args.minor_version),
            context,
        })
    }

    /// Opens `/dev/kfd` with a context of its own: GPUs, memory, queues and events apart from those
    /// of this process's other ones. Needs the interface's version 1.19.
    pub fn open_secondary() -> Result<Arc<Self>> {
        let kfd = Self::open_file(Arc::default())?;
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

    /// Its context: the process's own, or a secondary one.
    pub(crate) fn context(&self) -> &Context {
        &self.context
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
        self.context.chosen.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Sees to it that accesses are retried only where somebody has asked for it.
    fn settle_xnack(&self) -> Result<()> {
        if !self.context.chosen.load(Ordering::Relaxed) && self.xnack()? {
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
    register: Register,
}

impl Device {
    /// Opens the GPU's render node and makes its address space the one of this process's queues.
    ///
    /// Once per GPU and process: the kernel refuses a second render file with EBUSY.
    pub fn acquire(kfd: &Arc<Kfd>, node: &Node) -> Result<Arc<Self>> {
        let path = format!("/dev/dri/renderD{}", node.property("drm_render_minor"));
        let render = open(path.as_str(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(Error::of("open", path))?;
        Self::acquire_by(kfd, node, render)
    }

    /// The same by a file of the render node that somebody else may have opened, as for a process
    /// that may not. EINVAL: it is another GPU's, or was acquired before.
    pub fn acquire_by(kfd: &Arc<Kfd>, node: &Node, render: OwnedFd) -> Result<Arc<Self>> {
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
            register: Register::default(),
        });
        kfd.context.writes.add(&device);
        Ok(device)
    }

    /// A device of no driver, all of whose calls fail (ENOTTY).
    #[cfg(test)]
    pub(crate) fn without_a_driver() -> Arc<Self> {
        Self::in_context(&Arc::default())
    }

    /// Two of one context, by a file for each.
    #[cfg(test)]
    pub(crate) fn two_without_a_driver() -> [Arc<Self>; 2] {
        let context = Arc::default();
        [Self::in_context(&context), Self::in_context(&context)]
    }

    #[cfg(test)]
    fn in_context(context: &Arc<Context>) -> Arc<Self> {
        let file = || open("/dev/null", OFlags::RDWR, Mode::empty()).expect("/dev/null");
        let kfd = Kfd {
            fd: file(),
            version: (0, 0),
            context: context.clone(),
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
        let device = Arc::new(Self {
            kfd: Arc::new(kfd),
            node,
            render: file(),
            apertures: Apertures {
                lds_base: 0,
                scratch_base: 0,
                gpuvm: (0, 0),
            },
            register: Register::default(),
        });
        context.writes.add(&device);
        device
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

    /// What empties its host data path.
    pub(crate) fn register(&self) -> &Register {
        &self.register
    }

    /// The GPU's render node as it was opened: calls to it concern the same address space.
    pub fn render(&self) -> BorrowedFd<'_> {
        self.render.as_fd()
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&object(&self.node))
    }
}

fn object(node: &Node) -> String {
    format!("GPU {} (node {})", node.gpu_id, node.id)
}
