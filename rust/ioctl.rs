// SPDX-License-Identifier: GPL-2.0-only

//! The ioctls of /dev/kfd: the whole ABI of KFD 1.23 on one screen, and how a call finds its row.
//!
//! A handler gets its arguments as a structure that lies in a copy of the user's bytes, does one
//! thing, and leaves its answer there. The rules around it are the C driver's, and user space
//! relies on them:
//!
//! - Only the number of a command counts; direction and size are the kernel's own, so that user
//!   space may be older or newer. What an older one does not pass is zero; it gets back as many
//!   bytes as it passed.
//! - The answer goes back even when the handler fails.
//! - A file works only for the thread group that opened it.

mod checkpoint;
mod debug;
mod event;
mod memory;
mod process;
mod profiler;
mod queue;

use crate::{
    linux::{
        task::{
            capable,
            current_traces,
            Capability, //
        },
        trace, //
    },
    process::{
        open_file::OpenFile,
        Process, //
    },
    uapi::{
        self,
        *, //
    },
};
use core::cell::Cell;
use kernel::{
    ioctl::_IOC_SIZE,
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// What a handler is given beside its arguments.
pub(crate) struct Call<'a> {
    /// Through which file.
    pub(crate) file: &'a OpenFile,
    /// Who calls.
    pub(crate) process: &'a Process,
    /// Bytes that the user passed, which may be more or less than the structure has.
    pub(crate) user_bytes: usize,
    /// What the call returns if it succeeds: for most, 0.
    pub(crate) returns: Cell<u32>,
}

/// Who may call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// The thread group that opened the file.
    Opener,
    /// Its tracer as well, with the right to checkpoint processes.
    Checkpointer,
}

/// One ioctl.
struct Row {
    command: u32,
    name: &'static str,
    caller: Caller,
    run: fn(&Call<'_>, &mut [u64]) -> Result,
}

/// Checks at build time that a row stands where its number says, and that its arguments are what
/// its command says.
#[expect(dead_code, reason = "called at build time only")]
const fn check(place: usize, number: u32, command: u32, bytes: usize) {
    assert!(
        place + 1 == number as usize,
        "a row is missing or out of order"
    );
    assert!(
        command & 0xff == number,
        "the row's number is not its command's"
    );
    assert!(
        (command >> 8) & 0xff == AMDKFD_IOCTL_BASE as u32,
        "not an ioctl of KFD"
    );
    assert!(
        _IOC_SIZE(command) == bytes,
        "the row's structure is not its command's"
    );
}

/// Declares the table. `built` names a handler, `array` one whose structure is followed by as many
/// 64-bit words as the user passed, `retired` the error of one that is not there any more.
macro_rules! kfd_ioctls {
    ($($number:literal $name:ident($command:ident, $args:ty, $caller:ident)
        $kind:ident $answer:expr;)*) => {
        static ROWS: [Row; [$($number),*].len()] = [$({
            fn run(call: &Call<'_>, words: &mut [u64]) -> Result {
                kfd_ioctls!(@$kind $name, $args, $answer, call, words)
            }
            Row {
                command: $command,
                name: stringify!($name),
                caller: Caller::$caller,
                run,
            }
        }),*];

        const _: () = {
            let mut place = 0;
            $(
                check(place, $number, $command, size_of::<$args>());
                place += 1;
            )*
            assert!(place + 1 == AMDKFD_COMMAND_END as usize, "the ABI has more ioctls");
        };
    };
    (@built $name:ident, $args:ty, $handler:expr, $call:ident, $words:ident) => {{
        let handler: fn(&Call<'_>, &mut $args) -> Result = $handler;
        handler($call, uapi::view($words)?)
    }};
    (@array $name:ident, $args:ty, $handler:expr, $call:ident, $words:ident) => {{
        let handler: fn(&Call<'_>, &mut $args, &mut [u64]) -> Result = $handler;
        let (args, array) = uapi::view_with_array($words)?;
        handler($call, args, array)
    }};
    (@retired $name:ident, $args:ty, $errno:expr, $call:ident, $words:ident) => {{
        let _ = ($call, $words);
        Err($errno)
    }};
}

kfd_ioctls! {
    0x01 GET_VERSION(AMDKFD_IOC_GET_VERSION, kfd_ioctl_get_version_args, Opener)
        built process::get_version;
    0x02 CREATE_QUEUE(AMDKFD_IOC_CREATE_QUEUE, kfd_ioctl_create_queue_args, Opener)
        built queue::create_queue;
    0x03 DESTROY_QUEUE(AMDKFD_IOC_DESTROY_QUEUE, kfd_ioctl_destroy_queue_args, Opener)
        built queue::destroy_queue;
    0x04 SET_MEMORY_POLICY(AMDKFD_IOC_SET_MEMORY_POLICY, kfd_ioctl_set_memory_policy_args, Opener)
        built process::set_memory_policy;
    0x05 GET_CLOCK_COUNTERS(
        AMDKFD_IOC_GET_CLOCK_COUNTERS, kfd_ioctl_get_clock_counters_args, Opener
    )
        built process::get_clock_counters;
    0x06 GET_PROCESS_APERTURES(
        AMDKFD_IOC_GET_PROCESS_APERTURES, kfd_ioctl_get_process_apertures_args, Opener
    )
        built process::get_process_apertures;
    0x07 UPDATE_QUEUE(AMDKFD_IOC_UPDATE_QUEUE, kfd_ioctl_update_queue_args, Opener)
        built queue::update_queue;
    0x08 CREATE_EVENT(AMDKFD_IOC_CREATE_EVENT, kfd_ioctl_create_event_args, Opener)
        built event::create_event;
    0x09 DESTROY_EVENT(AMDKFD_IOC_DESTROY_EVENT, kfd_ioctl_destroy_event_args, Opener)
        built event::destroy_event;
    0x0a SET_EVENT(AMDKFD_IOC_SET_EVENT, kfd_ioctl_set_event_args, Opener)
        built event::set_event;
    0x0b RESET_EVENT(AMDKFD_IOC_RESET_EVENT, kfd_ioctl_reset_event_args, Opener)
        built event::reset_event;
    0x0c WAIT_EVENTS(AMDKFD_IOC_WAIT_EVENTS, kfd_ioctl_wait_events_args, Opener)
        built event::wait_events;
    0x0d DBG_REGISTER(AMDKFD_IOC_DBG_REGISTER_DEPRECATED, kfd_ioctl_dbg_register_args, Opener)
        retired EPERM;
    0x0e DBG_UNREGISTER(AMDKFD_IOC_DBG_UNREGISTER_DEPRECATED, kfd_ioctl_dbg_unregister_args, Opener)
        retired EPERM;
    0x0f DBG_ADDRESS_WATCH(
        AMDKFD_IOC_DBG_ADDRESS_WATCH_DEPRECATED, kfd_ioctl_dbg_address_watch_args, Opener
    )
        retired EPERM;
    0x10 DBG_WAVE_CONTROL(
        AMDKFD_IOC_DBG_WAVE_CONTROL_DEPRECATED, kfd_ioctl_dbg_wave_control_args, Opener
    )
        retired EPERM;
    0x11 SET_SCRATCH_BACKING_VA(
        AMDKFD_IOC_SET_SCRATCH_BACKING_VA, kfd_ioctl_set_scratch_backing_va_args, Opener
    )
        built process::set_scratch_backing_va;
    0x12 GET_TILE_CONFIG(AMDKFD_IOC_GET_TILE_CONFIG, kfd_ioctl_get_tile_config_args, Opener)
        built process::get_tile_config;
    0x13 SET_TRAP_HANDLER(AMDKFD_IOC_SET_TRAP_HANDLER, kfd_ioctl_set_trap_handler_args, Opener)
        built process::set_trap_handler;
    0x14 GET_PROCESS_APERTURES_NEW(
        AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, kfd_ioctl_get_process_apertures_new_args, Opener
    )
        built process::get_process_apertures_new;
    0x15 ACQUIRE_VM(AMDKFD_IOC_ACQUIRE_VM, kfd_ioctl_acquire_vm_args, Opener)
        built process::acquire_vm;
    0x16 ALLOC_MEMORY_OF_GPU(
        AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, kfd_ioctl_alloc_memory_of_gpu_args, Opener
    )
        built memory::alloc_memory_of_gpu;
    0x17 FREE_MEMORY_OF_GPU(
        AMDKFD_IOC_FREE_MEMORY_OF_GPU, kfd_ioctl_free_memory_of_gpu_args, Opener
    )
        built memory::free_memory_of_gpu;
    0x18 MAP_MEMORY_TO_GPU(AMDKFD_IOC_MAP_MEMORY_TO_GPU, kfd_ioctl_map_memory_to_gpu_args, Opener)
        built memory::map_memory_to_gpu;
    0x19 UNMAP_MEMORY_FROM_GPU(
        AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU, kfd_ioctl_unmap_memory_from_gpu_args, Opener
    )
        built memory::unmap_memory_from_gpu;
    0x1a SET_CU_MASK(AMDKFD_IOC_SET_CU_MASK, kfd_ioctl_set_cu_mask_args, Opener)
        built queue::set_cu_mask;
    0x1b GET_QUEUE_WAVE_STATE(
        AMDKFD_IOC_GET_QUEUE_WAVE_STATE, kfd_ioctl_get_queue_wave_state_args, Opener
    )
        built queue::get_queue_wave_state;
    0x1c GET_DMABUF_INFO(AMDKFD_IOC_GET_DMABUF_INFO, kfd_ioctl_get_dmabuf_info_args, Opener)
        built memory::get_dmabuf_info;
    0x1d IMPORT_DMABUF(AMDKFD_IOC_IMPORT_DMABUF, kfd_ioctl_import_dmabuf_args, Opener)
        built memory::import_dmabuf;
    0x1e ALLOC_QUEUE_GWS(AMDKFD_IOC_ALLOC_QUEUE_GWS, kfd_ioctl_alloc_queue_gws_args, Opener)
        built queue::alloc_queue_gws;
    0x1f SMI_EVENTS(AMDKFD_IOC_SMI_EVENTS, kfd_ioctl_smi_events_args, Opener)
        built process::smi_events;
    0x20 SVM(AMDKFD_IOC_SVM, kfd_ioctl_svm_args, Opener)
        array memory::svm;
    0x21 SET_XNACK_MODE(AMDKFD_IOC_SET_XNACK_MODE, kfd_ioctl_set_xnack_mode_args, Opener)
        built process::set_xnack_mode;
    0x22 CRIU_OP(AMDKFD_IOC_CRIU_OP, kfd_ioctl_criu_args, Checkpointer)
        built checkpoint::criu_op;
    0x23 AVAILABLE_MEMORY(AMDKFD_IOC_AVAILABLE_MEMORY, kfd_ioctl_get_available_memory_args, Opener)
        built memory::get_available_memory;
    0x24 EXPORT_DMABUF(AMDKFD_IOC_EXPORT_DMABUF, kfd_ioctl_export_dmabuf_args, Opener)
        built memory::export_dmabuf;
    0x25 RUNTIME_ENABLE(AMDKFD_IOC_RUNTIME_ENABLE, kfd_ioctl_runtime_enable_args, Opener)
        built process::runtime_enable;
    0x26 DBG_TRAP(AMDKFD_IOC_DBG_TRAP, DebugTrapArgs, Opener)
        built debug::debug_trap;
    0x27 CREATE_PROCESS(AMDKFD_IOC_CREATE_PROCESS, (), Opener)
        built process::create_process;
    0x28 PROFILER(AMDKFD_IOC_PROFILER, ProfilerArgs, Opener)
        built profiler::profiler;
}

/// Bit of a command: the kernel reads the arguments.
const IN: u32 = 1 << 30;
/// Bit of a command: the kernel writes the arguments.
const OUT: u32 = 1 << 31;

/// Words of arguments that are kept on the stack: enough for all ioctls but the largest.
const STACK_WORDS: usize = 16;

/// Executes an ioctl of a file.
#[inline(always)]
pub(crate) fn dispatch(file: &OpenFile, command: u32, argument: usize) -> Result<u32> {
    let process: &Process = file.process();
    let row = find(command).ok_or(ENOTTY)?;
    authorise(process, row)?;
    let user_bytes = _IOC_SIZE(command);
    let call = Call {
        file,
        process,
        user_bytes,
        returns: Cell::new(0),
    };
    let words = user_bytes
        .max(_IOC_SIZE(row.command))
        .div_ceil(size_of::<u64>());
    let user = UserSlice::new(UserPtr::from_addr(argument), user_bytes);
    let mut stack = [0; STACK_WORDS];
    if let Some(words) = stack.get_mut(..words) {
        exchange(row, &call, words, user)?;
    } else {
        let mut heap = KVec::from_elem(0, words, GFP_KERNEL)?;
        exchange(row, &call, &mut heap, user)?;
    }
    Ok(call.returns.get())
}

/// The row of a command, by its number alone.
fn find(command: u32) -> Option<&'static Row> {
    ROWS.get(((command & 0xff) as usize).wrapping_sub(1))
}

/// `EBADF` for a stranger, `EACCES` for one without the rights that the row asks for.
fn authorise(process: &Process, row: &Row) -> Result {
    let checkpoint = row.caller == Caller::Checkpointer;
    if !(process.is_current() || checkpoint && current_traces(process.lead())) {
        return Err(EBADF);
    }
    let rights = [Capability::CheckpointRestore, Capability::SysAdmin];
    if checkpoint && !rights.into_iter().any(capable) {
        return Err(EACCES);
    }
    Ok(())
}

/// Copies the arguments in, runs the handler, copies them out. `words` are zero.
fn exchange(row: &Row, call: &Call<'_>, words: &mut [u64], user: UserSlice) -> Result {
    trace::ioctl(row.name);
    let result = copy_and_run(row, call, words, user);
    trace::ioctl_done(row.name, &result);
    if let Err(error) = result {
        pr_debug!(
            "{} of process {}: {:?}\n",
            row.name,
            call.process.lead().pid(),
            error
        );
    }
    result
}

fn copy_and_run(row: &Row, call: &Call<'_>, words: &mut [u64], user: UserSlice) -> Result {
    let (mut reader, mut writer) = user.reader_writer();
    let bytes = call.user_bytes;
    if row.command & IN != 0 {
        reader.read_slice(words.as_mut_bytes().get_mut(..bytes).ok_or(EINVAL)?)?;
    }
    let result = (row.run)(call, words);
    if row.command & OUT != 0 {
        writer.write_slice(words.as_bytes().get(..bytes).ok_or(EINVAL)?)?;
    }
    result
}

#[kernel::macros::kunit_tests(amdkfd_ioctl)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_whole_abi() {
        assert_eq!(ROWS.len(), 0x28);
        assert_eq!(ROWS.len() as u32, AMDKFD_COMMAND_END - AMDKFD_COMMAND_START);
    }

    #[test]
    fn numbers_outside_the_abi_have_no_row() {
        assert!(find(0).is_none());
        assert!(find(0x29).is_none());
        assert!(find(0xff).is_none());
    }

    #[test]
    fn only_the_number_of_a_command_counts() {
        let row = find(AMDKFD_IOC_CREATE_QUEUE).map(|row| row.command);
        assert_eq!(row, Some(AMDKFD_IOC_CREATE_QUEUE));
        for command in [0x02, 0xc058_4b02, 0xffff_ff02] {
            assert_eq!(find(command).map(|row| row.command), row);
        }
    }

    #[test]
    fn directions_are_those_of_the_headers() {
        for (command, direction) in [
            (AMDKFD_IOC_GET_VERSION, OUT),
            (AMDKFD_IOC_SET_EVENT, IN),
            (AMDKFD_IOC_WAIT_EVENTS, IN | OUT),
            (AMDKFD_IOC_CREATE_PROCESS, 0),
        ] {
            assert_eq!(command & (IN | OUT), direction);
        }
    }

    #[test]
    fn only_checkpoints_are_open_to_tracers() {
        let tracers = ROWS.iter().filter(|row| row.caller == Caller::Checkpointer);
        assert!(tracers.map(|row| row.command).eq([AMDKFD_IOC_CRIU_OP]));
    }

    #[test]
    fn most_arguments_fit_the_stack() {
        let large = ROWS
            .iter()
            .filter(|row| _IOC_SIZE(row.command) > STACK_WORDS * 8);
        assert!(large
            .map(|row| row.command)
            .eq([AMDKFD_IOC_GET_PROCESS_APERTURES]));
    }
}
