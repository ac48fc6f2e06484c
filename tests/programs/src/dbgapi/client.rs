// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the library asks its client for: memory, and breakpoints in the process's host code. The
//! library's callbacks know no client, so this one's state is the program's own.

use super::library::{
    Callbacks, Callbacks70, Status, ERROR, MEMORY_ACCESS, NOT_AVAILABLE, PROCESS_EXITED, SUCCESS,
};
use nix::libc;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

/// The x86 instruction that breakpoints are.
const INT3: u8 = 0xcc;

/// A breakpoint in a process, and what was there.
#[derive(Clone, Copy)]
pub struct Breakpoint {
    pub pid: u32,
    pub address: u64,
    instead_of: u8,
}

static BREAKPOINTS: Mutex<BTreeMap<u64, Breakpoint>> = Mutex::new(BTreeMap::new());

pub static CALLBACKS_70: Callbacks70 = Callbacks70 {
    allocate_memory,
    deallocate_memory: free,
    get_os_pid,
    insert_breakpoint,
    remove_breakpoint,
    log_message,
};

pub static CALLBACKS: Callbacks = Callbacks {
    allocate_memory,
    deallocate_memory: free,
    client_process_get_info,
    insert_breakpoint,
    remove_breakpoint,
    xfer_global_memory,
    log_message,
};

extern "C" fn allocate_memory(size: usize) -> *mut c_void {
    // SAFETY: the library wants what malloc gives.
    unsafe { libc::malloc(size) }
}

/// Frees what the library has allocated.
pub extern "C" fn free(memory: *mut c_void) {
    // SAFETY: it came from `allocate_memory`, or is NULL.
    unsafe { libc::free(memory) }
}

extern "C" fn client_process_get_info(
    process: usize,
    query: u32,
    size: usize,
    value: *mut c_void,
) -> Status {
    /// `AMD_DBGAPI_CLIENT_PROCESS_INFO_OS_PID`; the other one is of core files.
    const OS_PID: u32 = 1;
    if query != OS_PID {
        return NOT_AVAILABLE;
    }
    if size != size_of::<c_int>() {
        return ERROR;
    }
    get_os_pid(process, value.cast())
}

extern "C" fn get_os_pid(process: usize, pid: *mut c_int) -> Status {
    // SAFETY: the library's own place.
    unsafe { *pid = process as c_int };
    // A process that nobody has waited for yet is not gone.
    match std::fs::exists(format!("/proc/{process}/mem")) {
        Ok(true) => SUCCESS,
        _ => PROCESS_EXITED,
    }
}

extern "C" fn xfer_global_memory(
    process: usize,
    address: u64,
    size: *mut u64,
    read: *mut c_void,
    write: *const c_void,
) -> Status {
    // SAFETY: the library's own place.
    let count = unsafe { *size } as usize;
    let done = memory(process as u32).and_then(|memory| {
        if read.is_null() {
            // SAFETY: one of the two is so many bytes of the library's.
            let bytes = unsafe { std::slice::from_raw_parts(write.cast::<u8>(), count) };
            memory.write_at(bytes, address)
        } else {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts_mut(read.cast::<u8>(), count) };
            memory.read_at(bytes, address)
        }
    });
    match done {
        Ok(done) if done > 0 => {
            // SAFETY: as above.
            unsafe { *size = done as u64 };
            SUCCESS
        }
        _ => MEMORY_ACCESS,
    }
}

/// The process's memory, also where it is only executable.
pub fn memory(pid: u32) -> std::io::Result<File> {
    let path = format!("/proc/{pid}/mem");
    File::options().read(true).write(true).open(path)
}

impl Breakpoint {
    /// Puts the instruction there, or what was there before.
    pub fn set(&self, on: bool) -> std::io::Result<()> {
        let byte = if on { INT3 } else { self.instead_of };
        memory(self.pid)?.write_all_at(&[byte], self.address)
    }

    /// Takes all instructions away, and nothing that the library knows of.
    pub fn clear_all() -> std::io::Result<()> {
        let all = BREAKPOINTS
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        all.values().try_for_each(|known| known.set(false))
    }

    /// The breakpoint at an address of a process, and its id.
    pub fn at(pid: u32, address: u64) -> Option<(u64, Self)> {
        let all = BREAKPOINTS.lock().ok()?;
        all.iter()
            .find(|(_, known)| (known.pid, known.address) == (pid, address))
            .map(|(id, known)| (*id, *known))
    }
}

extern "C" fn insert_breakpoint(process: usize, address: u64, id: u64) -> Status {
    let insert = || -> Option<()> {
        let pid = process as u32;
        let mut instead_of = [0];
        memory(pid)
            .ok()?
            .read_exact_at(&mut instead_of, address)
            .ok()?;
        let [instead_of] = instead_of;
        let breakpoint = Breakpoint {
            pid,
            address,
            instead_of,
        };
        breakpoint.set(true).ok()?;
        BREAKPOINTS.lock().ok()?.insert(id, breakpoint);
        Some(())
    };
    insert().map_or(ERROR, |()| SUCCESS)
}

extern "C" fn remove_breakpoint(_process: usize, id: u64) -> Status {
    let remove = || -> Option<()> {
        let breakpoint = BREAKPOINTS.lock().ok()?.remove(&id)?;
        // A process that has ended has none any more.
        let _ = breakpoint.set(false);
        Some(())
    };
    remove().map_or(ERROR, |()| SUCCESS)
}

extern "C" fn log_message(level: u32, message: *const c_char) {
    // SAFETY: a string that lives until this returns.
    let message = unsafe { CStr::from_ptr(message) };
    eprintln!("dbgapi {level}: {}", message.to_string_lossy());
}
