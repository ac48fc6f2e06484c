// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Library`]: AMD's debugger library, librocm-dbgapi 0.70 (ROCm 5.7) and 0.77 (6.4 and 7.2), as
//! far as the test calls it. One per program; the names, numbers and signatures are those of
//! `amd-dbgapi.h`. Of what is called, the two have only [`Callbacks`] not in common.
//!
//! Its ids are structs of one 64-bit number, which the x86-64 ABI passes as the number.

use anyhow::{bail, Context, Result};
use libloading::os::unix::{Library as Object, Symbol};
use std::ffi::{c_char, c_int, c_void, CStr};

pub type Status = c_int;
pub const SUCCESS: Status = 0;
pub const ERROR: Status = -1;
pub const NOT_AVAILABLE: Status = -4;
pub const PROCESS_EXITED: Status = -17;
pub const MEMORY_ACCESS: Status = -37;

/// `amd_dbgapi_callbacks_s` of 0.70, which accesses the process's memory itself.
#[repr(C)]
pub struct Callbacks70 {
    pub allocate_memory: extern "C" fn(usize) -> *mut c_void,
    pub deallocate_memory: extern "C" fn(*mut c_void),
    pub get_os_pid: extern "C" fn(usize, *mut c_int) -> Status,
    pub insert_breakpoint: extern "C" fn(usize, u64, u64) -> Status,
    pub remove_breakpoint: extern "C" fn(usize, u64) -> Status,
    pub log_message: extern "C" fn(u32, *const c_char),
}

/// `amd_dbgapi_callbacks_s` of 0.77.
#[repr(C)]
pub struct Callbacks {
    pub allocate_memory: extern "C" fn(usize) -> *mut c_void,
    pub deallocate_memory: extern "C" fn(*mut c_void),
    /// The client's name for a process is its pid.
    pub client_process_get_info: extern "C" fn(usize, u32, usize, *mut c_void) -> Status,
    pub insert_breakpoint: extern "C" fn(usize, u64, u64) -> Status,
    pub remove_breakpoint: extern "C" fn(usize, u64) -> Status,
    pub xfer_global_memory:
        extern "C" fn(usize, u64, *mut u64, *mut c_void, *const c_void) -> Status,
    pub log_message: extern "C" fn(u32, *const c_char),
}

/// What a list is of: `amd_dbgapi_process_*_list`.
#[derive(Clone, Copy)]
pub enum List {
    Agents,
    CodeObjects,
    Dispatches,
    Queues,
    Waves,
}

/// What information is of: `amd_dbgapi_*_get_info`.
#[derive(Clone, Copy)]
pub enum Of {
    Agent,
    Architecture,
    Dispatch,
    Event,
    Queue,
    Register,
    Wave,
}

type Listing = unsafe extern "C" fn(u64, *mut usize, *mut *mut u64, *mut u32) -> Status;
type Information = unsafe extern "C" fn(u64, u32, usize, *mut c_void) -> Status;

/// The functions that are no lists and no information.
pub struct Library {
    object: Object,
}

/// A process of the library's.
#[derive(Clone, Copy)]
pub struct Process(pub u64);

fn name_of(list: List) -> &'static str {
    match list {
        List::Agents => "amd_dbgapi_process_agent_list",
        List::CodeObjects => "amd_dbgapi_process_code_object_list",
        List::Dispatches => "amd_dbgapi_process_dispatch_list",
        List::Queues => "amd_dbgapi_process_queue_list",
        List::Waves => "amd_dbgapi_process_wave_list",
    }
}

impl Of {
    fn name(self) -> &'static str {
        match self {
            Of::Agent => "amd_dbgapi_agent_get_info",
            Of::Architecture => "amd_dbgapi_architecture_get_info",
            Of::Dispatch => "amd_dbgapi_dispatch_get_info",
            Of::Event => "amd_dbgapi_event_get_info",
            Of::Queue => "amd_dbgapi_queue_get_info",
            Of::Register => "amd_dbgapi_register_get_info",
            Of::Wave => "amd_dbgapi_wave_get_info",
        }
    }
}

impl Library {
    /// Loads and initializes it.
    pub fn open(old: &'static Callbacks70, callbacks: &'static Callbacks) -> Result<Self> {
        // SAFETY: the library's initializers do nothing to this program.
        let object = unsafe { Object::new("librocm-dbgapi.so.0") }.context("librocm-dbgapi0")?;
        let library = Self { object };
        // SAFETY: the header's signature.
        let version: Symbol<unsafe extern "C" fn(*mut u32, *mut u32, *mut u32)> =
            unsafe { library.symbol("amd_dbgapi_get_version")? };
        let [mut major, mut minor, mut patch] = [0u32; 3];
        // SAFETY: three numbers to write to.
        unsafe { version(&mut major, &mut minor, &mut patch) };
        // SAFETY: the header's signature.
        let build: Symbol<unsafe extern "C" fn() -> *const c_char> =
            unsafe { library.symbol("amd_dbgapi_get_build_name")? };
        // SAFETY: what comes is a static string.
        let build = unsafe { CStr::from_ptr(build()).to_string_lossy().into_owned() };
        eprintln!("dbgapi: {build}, interface {major}.{minor}.{patch}");
        // Its interface may change with each minor version before 1.0.
        let callbacks = match (major, minor) {
            (0, 70) => std::ptr::from_ref(old) as u64,
            (0, 77) => std::ptr::from_ref(callbacks) as u64,
            _ => bail!("librocm-dbgapi is {major}.{minor}: this test is made for 0.70 and 0.77"),
        };
        library.call1("amd_dbgapi_initialize", callbacks)?;
        Ok(library)
    }

    /// # Safety
    /// `T` must be the function's type.
    unsafe fn symbol<T>(&self, name: &str) -> Result<Symbol<T>> {
        // SAFETY: passed on.
        unsafe { self.object.get(name.as_bytes()) }.with_context(|| name.to_owned())
    }

    /// A function of one number, or one pointer.
    fn call1(&self, name: &str, value: u64) -> Result<()> {
        // SAFETY: callers name functions of one argument of 64 bits.
        let function: Symbol<unsafe extern "C" fn(u64) -> Status> = unsafe { self.symbol(name)? };
        // SAFETY: ids are checked by the library; the one pointer is to a static.
        self.done(name, unsafe { function(value) })
    }

    fn done(&self, name: &str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let name = name.trim_start_matches("amd_dbgapi_");
        // SAFETY: the header's signature.
        let text: Symbol<unsafe extern "C" fn(Status, *mut *const c_char) -> Status> =
            unsafe { self.symbol("amd_dbgapi_get_status_string")? };
        let mut string = std::ptr::null();
        // SAFETY: a pointer to write to; what comes is a static string.
        let words = unsafe {
            match text(status, &mut string) {
                SUCCESS => CStr::from_ptr(string).to_string_lossy().into_owned(),
                _ => status.to_string(),
            }
        };
        bail!("{name}: {words}")
    }

    /// Begins to debug the process with that pid, which this program traces.
    pub fn attach(&self, pid: u32) -> Result<Process> {
        const NAME: &str = "amd_dbgapi_process_attach";
        // SAFETY: the header's signature.
        let attach: Symbol<unsafe extern "C" fn(usize, *mut u64) -> Status> =
            unsafe { self.symbol(NAME)? };
        let mut process = 0;
        // SAFETY: a number to write to.
        self.done(NAME, unsafe { attach(pid as usize, &mut process) })?;
        Ok(Process(process))
    }

    pub fn detach(&self, process: Process) -> Result<()> {
        self.call1("amd_dbgapi_process_detach", process.0)
    }

    /// Leaves queues suspended that the library has suspended.
    pub fn stand_still(&self, process: Process) -> Result<()> {
        const NAME: &str = "amd_dbgapi_process_set_progress";
        /// `AMD_DBGAPI_PROGRESS_NO_FORWARD`.
        const NO_FORWARD: u32 = 1;
        // SAFETY: the header's signature.
        let set: Symbol<unsafe extern "C" fn(u64, u32) -> Status> = unsafe { self.symbol(NAME)? };
        // SAFETY: no pointers.
        self.done(NAME, unsafe { set(process.0, NO_FORWARD) })
    }

    /// The ids of what a process has.
    pub fn list(&self, process: Process, list: List) -> Result<Vec<u64>> {
        let name = name_of(list);
        // SAFETY: the header's signature, which all lists share.
        let function: Symbol<Listing> = unsafe { self.symbol(name)? };
        let (mut count, mut ids) = (0, std::ptr::null_mut());
        // SAFETY: places to write to; `changed` may be NULL.
        let status = unsafe { function(process.0, &mut count, &mut ids, std::ptr::null_mut()) };
        self.done(name, status)?;
        // SAFETY: the library has allocated `count` ids for this program, which frees them.
        let list = unsafe { std::slice::from_raw_parts(ids, count).to_vec() };
        super::client::free(ids.cast());
        Ok(list)
    }

    /// The registers of a wave.
    pub fn registers(&self, wave: u64) -> Result<Vec<u64>> {
        const NAME: &str = "amd_dbgapi_wave_register_list";
        // SAFETY: the header's signature.
        let function: Symbol<unsafe extern "C" fn(u64, *mut usize, *mut *mut u64) -> Status> =
            unsafe { self.symbol(NAME)? };
        let (mut count, mut ids) = (0, std::ptr::null_mut());
        // SAFETY: places to write to.
        self.done(NAME, unsafe { function(wave, &mut count, &mut ids) })?;
        // SAFETY: as in `list`.
        let list = unsafe { std::slice::from_raw_parts(ids, count).to_vec() };
        super::client::free(ids.cast());
        Ok(list)
    }

    /// A piece of information of type `T`, which the query's documentation must name.
    pub fn info<T: Copy + Default>(&self, of: Of, id: u64, query: u32) -> Result<T> {
        // SAFETY: the header's signature, which all of these share.
        let function: Symbol<Information> = unsafe { self.symbol(of.name())? };
        let mut value = T::default();
        let place = std::ptr::from_mut(&mut value).cast();
        // SAFETY: as many bytes as it is told, or it refuses.
        let status = unsafe { function(id, query, size_of::<T>(), place) };
        self.done(of.name(), status)
            .with_context(|| format!("query {query}"))?;
        Ok(value)
    }

    /// A piece of information that is a string.
    pub fn text(&self, of: Of, id: u64, query: u32) -> Result<String> {
        let string = self.info::<usize>(of, id, query)? as *mut c_char;
        // SAFETY: the library has allocated a string for this program, which frees it.
        let text = unsafe { CStr::from_ptr(string).to_string_lossy().into_owned() };
        super::client::free(string.cast());
        Ok(text)
    }

    /// A wave's breakpoint instruction.
    pub fn breakpoint_instruction(&self, architecture: u64) -> Result<Vec<u8>> {
        const SIZE: u32 = 5;
        const BYTES: u32 = 6;
        let size: u64 = self.info(Of::Architecture, architecture, SIZE)?;
        let bytes = self.info::<usize>(Of::Architecture, architecture, BYTES)? as *mut u8;
        // SAFETY: the library has allocated `size` bytes for this program, which frees them.
        let instruction = unsafe { std::slice::from_raw_parts(bytes, size as usize).to_vec() };
        super::client::free(bytes.cast());
        Ok(instruction)
    }

    pub fn stop(&self, wave: u64) -> Result<()> {
        self.call1("amd_dbgapi_wave_stop", wave)
    }

    /// Lets a wave go on, for one instruction or until something stops it.
    pub fn resume(&self, wave: u64, step: bool) -> Result<()> {
        const NAME: &str = "amd_dbgapi_wave_resume";
        // SAFETY: the header's signature.
        let resume: Symbol<unsafe extern "C" fn(u64, u32, u32) -> Status> =
            unsafe { self.symbol(NAME)? };
        // SAFETY: no pointers.
        self.done(NAME, unsafe { resume(wave, step.into(), 0) })
    }

    /// Reads a register's bytes from `offset` on, or writes them.
    pub fn read_register(
        &self,
        wave: u64,
        register: u64,
        offset: u64,
        value: &mut [u8],
    ) -> Result<()> {
        const NAME: &str = "amd_dbgapi_read_register";
        // SAFETY: the header's signature.
        let read: Symbol<unsafe extern "C" fn(u64, u64, u64, u64, *mut u8) -> Status> =
            unsafe { self.symbol(NAME)? };
        let size = value.len() as u64;
        // SAFETY: as many bytes as it is told.
        let status = unsafe { read(wave, register, offset, size, value.as_mut_ptr()) };
        self.done(NAME, status)
    }

    pub fn write_register(
        &self,
        wave: u64,
        register: u64,
        offset: u64,
        value: &[u8],
    ) -> Result<()> {
        const NAME: &str = "amd_dbgapi_write_register";
        // SAFETY: the header's signature.
        let write: Symbol<unsafe extern "C" fn(u64, u64, u64, u64, *const u8) -> Status> =
            unsafe { self.symbol(NAME)? };
        let size = value.len() as u64;
        // SAFETY: as many bytes as it is told.
        let status = unsafe { write(wave, register, offset, size, value.as_ptr()) };
        self.done(NAME, status)
    }

    /// Reads the process's memory as its GPUs see it (`write`: writes it).
    pub fn memory(
        &self,
        process: Process,
        address: u64,
        bytes: &mut [u8],
        write: bool,
    ) -> Result<()> {
        type Access = unsafe extern "C" fn(u64, u64, u32, u64, u64, *mut u64, *mut u8) -> Status;
        /// `AMD_DBGAPI_LANE_NONE`, `AMD_DBGAPI_ADDRESS_SPACE_GLOBAL`; no wave is 0.
        const LANE_NONE: u32 = u32::MAX;
        const GLOBAL: u64 = 1;
        let name = match write {
            true => "amd_dbgapi_write_memory",
            false => "amd_dbgapi_read_memory",
        };
        // SAFETY: the header's signature, but for a `const`.
        let access: Symbol<Access> = unsafe { self.symbol(name)? };
        let (wanted, mut size) = (bytes.len() as u64, bytes.len() as u64);
        let place = bytes.as_mut_ptr();
        // SAFETY: as many bytes as it is told.
        let status = unsafe { access(process.0, 0, LANE_NONE, GLOBAL, address, &mut size, place) };
        self.done(name, status)?;
        if size != wanted {
            bail!("{name}: {size} of {wanted} bytes")
        }
        Ok(())
    }

    /// Stops waves that store to these bytes.
    pub fn watch(&self, process: Process, address: u64, size: u64) -> Result<u64> {
        const NAME: &str = "amd_dbgapi_set_watchpoint";
        /// `AMD_DBGAPI_WATCHPOINT_KIND_STORE_AND_RMW`.
        const STORES: u32 = 2;
        // SAFETY: the header's signature.
        let watch: Symbol<unsafe extern "C" fn(u64, u64, u64, u32, *mut u64) -> Status> =
            unsafe { self.symbol(NAME)? };
        let mut id = 0;
        // SAFETY: a number to write to.
        self.done(NAME, unsafe {
            watch(process.0, address, size, STORES, &mut id)
        })?;
        Ok(id)
    }

    pub fn unwatch(&self, watch: u64) -> Result<()> {
        self.call1("amd_dbgapi_remove_watchpoint", watch)
    }

    /// Has waves learn of bad accesses at the access (`precise`), or some time later.
    pub fn set_precise(&self, process: Process, precise: bool) -> Result<()> {
        const NAME: &str = "amd_dbgapi_set_memory_precision";
        // SAFETY: the header's signature.
        let set: Symbol<unsafe extern "C" fn(u64, u32) -> Status> = unsafe { self.symbol(NAME)? };
        // SAFETY: no pointers.
        self.done(NAME, unsafe { set(process.0, precise.into()) })
    }

    /// The next event and its kind, if there is one.
    pub fn event(&self, process: Process) -> Result<Option<(u64, u32)>> {
        const NAME: &str = "amd_dbgapi_process_next_pending_event";
        // SAFETY: the header's signature.
        let next: Symbol<unsafe extern "C" fn(u64, *mut u64, *mut u32) -> Status> =
            unsafe { self.symbol(NAME)? };
        let (mut event, mut kind) = (0, 0);
        // SAFETY: numbers to write to.
        self.done(NAME, unsafe { next(process.0, &mut event, &mut kind) })?;
        Ok((event != 0).then_some((event, kind)))
    }

    pub fn event_processed(&self, event: u64) -> Result<()> {
        self.call1("amd_dbgapi_event_processed", event)
    }

    /// Tells of a host thread at a breakpoint of the library's. Whether the thread goes on at once.
    pub fn breakpoint_hit(&self, breakpoint: u64, thread: u32) -> Result<bool> {
        const NAME: &str = "amd_dbgapi_report_breakpoint_hit";
        /// `AMD_DBGAPI_BREAKPOINT_ACTION_RESUME`.
        const RESUME: u32 = 1;
        // SAFETY: the header's signature.
        let report: Symbol<unsafe extern "C" fn(u64, usize, *mut u32) -> Status> =
            unsafe { self.symbol(NAME)? };
        let mut action = 0;
        // SAFETY: a number to write to; the thread's name is the client's own.
        self.done(NAME, unsafe {
            report(breakpoint, thread as usize, &mut action)
        })?;
        Ok(action == RESUME)
    }
}
