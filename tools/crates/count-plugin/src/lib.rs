// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A plugin of QEMU's translator (TCG) that says which of a guest's instructions an operation
//! takes.
//!
//! One per machine, loaded by `-plugin libcount.so,out=FILE`. A program in the guest executes
//! `MARK` before and after the operation; the blocks of code that ran in between are appended to
//! the file, one a line, `address instructions`, and an empty line after the last. An exception in
//! the middle of a block counts all of it, so that a sum may be a few instructions too high.
//!
//! For a guest with one processor: blocks are counted as they run, whoever runs them. The interface
//! is that of `qemu-plugin.h`, version 7.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::fs::File;
use std::io::Write;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `nopl 0xdeadbeef(%rax,%rax)`: does nothing, and no compiler makes it.
const MARK: [u8; 8] = [0x0f, 0x1f, 0x84, 0x00, 0xef, 0xbe, 0xad, 0xde];

/// The version of the interface that this is written for.
#[no_mangle]
pub static qemu_plugin_version: c_int = 7;

type Translated = extern "C" fn(block: *mut c_void, data: *mut c_void);
type Executed = extern "C" fn(processor: c_uint, data: *mut c_void);

/// `QEMU_PLUGIN_CB_NO_REGS`: the callback does not look at registers.
const NO_REGISTERS: c_int = 0;

/// `QEMU_PLUGIN_COND_NE`: the callback is called unless a number of the processor's has a value.
const UNLESS: c_int = 3;

/// `qemu_plugin_u64`: a number of each processor's.
#[derive(Clone, Copy)]
#[repr(C)]
struct Number {
    scoreboard: *mut c_void,
    offset: usize,
}

// SAFETY: QEMU's own table, which any thread may use.
unsafe impl Send for Number {}

extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, call: Translated, data: *mut c_void);
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut c_void,
        call: Executed,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_tb_exec_cond_cb(
        block: *mut c_void,
        call: Executed,
        flags: c_int,
        condition: c_int,
        number: Number,
        value: u64,
        data: *mut c_void,
    );
    fn qemu_plugin_scoreboard_new(bytes: usize) -> *mut c_void;
    fn qemu_plugin_u64_set(number: Number, processor: c_uint, value: u64);
    fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    fn qemu_plugin_tb_vaddr(block: *const c_void) -> u64;
    fn qemu_plugin_tb_get_insn(block: *const c_void, index: usize) -> *mut c_void;
    fn qemu_plugin_insn_size(instruction: *const c_void) -> usize;
    fn qemu_plugin_insn_data(instruction: *const c_void, to: *mut c_void, len: usize) -> usize;
}

/// Code that the guest runs from its first to its last instruction. Lives as long as the machine.
struct Block {
    address: u64,
    instructions: u64,
    runs: AtomicU64,
}

static COUNTING: AtomicBool = AtomicBool::new(false);
/// Not 0 while blocks are counted: QEMU looks at it itself, so that the guest is hardly slowed down
/// else.
static GATE: Mutex<Option<Number>> = Mutex::new(None);
static BLOCKS: Mutex<Vec<&'static Block>> = Mutex::new(Vec::new());
static OUT: Mutex<Option<File>> = Mutex::new(None);

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn count(_processor: c_uint, block: *mut c_void) {
    // SAFETY: `translated` registers this with a block, which lives for ever.
    let block = unsafe { &*block.cast_const().cast::<Block>() };
    block.runs.fetch_add(1, Relaxed);
}

extern "C" fn mark(processor: c_uint, _data: *mut c_void) {
    let ends = COUNTING.fetch_xor(true, Relaxed);
    if let Some(gate) = *lock(&GATE) {
        // SAFETY: the number is of a scoreboard that lives as long as the machine.
        unsafe { qemu_plugin_u64_set(gate, processor, u64::from(!ends)) };
    }
    if ends {
        write();
    }
}

/// Appends what has been counted to the file, and begins anew.
fn write() {
    let mut text = String::new();
    for block in lock(&BLOCKS).iter() {
        let runs = block.runs.swap(0, Relaxed);
        if runs != 0 {
            text += &format!("{:x} {}\n", block.address, runs * block.instructions);
        }
    }
    text.push('\n');
    let mut out = lock(&OUT);
    if let Some(Err(error)) = out.as_mut().map(|file| file.write_all(text.as_bytes())) {
        eprintln!("count: {error}");
    }
}

/// Whether one of the block's instructions is the mark.
fn has_mark(block: *const c_void, instructions: usize) -> bool {
    (0..instructions).any(|index| {
        let mut bytes = [0; MARK.len()];
        // SAFETY: the block is QEMU's for the length of its callback, the index is below its count,
        // and `bytes` has the length that is said.
        let read = unsafe {
            let instruction = qemu_plugin_tb_get_insn(block, index);
            if qemu_plugin_insn_size(instruction) != MARK.len() {
                return false;
            }
            qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), MARK.len())
        };
        read == MARK.len() && bytes == MARK
    })
}

extern "C" fn translated(block: *mut c_void, _data: *mut c_void) {
    // SAFETY: the block is QEMU's for the length of this call.
    let (instructions, address) =
        unsafe { (qemu_plugin_tb_n_insns(block), qemu_plugin_tb_vaddr(block)) };
    if has_mark(block, instructions) {
        // SAFETY: as above; `mark` needs no data.
        unsafe { qemu_plugin_register_vcpu_tb_exec_cb(block, mark, NO_REGISTERS, null_mut()) };
        return;
    }
    let Some(gate) = *lock(&GATE) else {
        return;
    };
    let known: &'static Block = Box::leak(Box::new(Block {
        address,
        instructions: instructions as u64,
        runs: AtomicU64::new(0),
    }));
    lock(&BLOCKS).push(known);
    let data = std::ptr::from_ref(known).cast_mut().cast();
    // SAFETY: as above; `count` gets a block, and `gate` lives as long as the machine.
    unsafe {
        qemu_plugin_register_vcpu_tb_exec_cond_cb(block, count, NO_REGISTERS, UNLESS, gate, 0, data)
    };
}

/// QEMU has loaded the plugin.
///
/// # Safety
///
/// Called by QEMU: `arguments` are `count` strings.
#[no_mangle]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _info: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let path = (0..count as usize).find_map(|index| {
        // SAFETY: by this function's contract.
        let argument = unsafe { CStr::from_ptr(*arguments.add(index)) };
        argument
            .to_str()
            .ok()?
            .strip_prefix("out=")
            .map(String::from)
    });
    let file = path.map(|path| File::create(&path).map_err(|error| format!("{path}: {error}")));
    match file.unwrap_or_else(|| Err("out=FILE is missing".into())) {
        Ok(file) => *lock(&OUT) = Some(file),
        Err(error) => {
            eprintln!("count: {error}");
            return 1;
        }
    }
    // SAFETY: QEMU makes a table of one number for each processor.
    let scoreboard = unsafe { qemu_plugin_scoreboard_new(size_of::<u64>()) };
    *lock(&GATE) = Some(Number {
        scoreboard,
        offset: 0,
    });
    // SAFETY: called while the plugin is installed, as QEMU wants it.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translated, null_mut()) };
    0
}
