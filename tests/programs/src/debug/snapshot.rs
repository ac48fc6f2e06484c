// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A debugger's snapshots of queues and of GPUs, in entries of any size.

use super::player::outcome;
use super::session::{place, Operation, Session};
use super::words::{show_exceptions, Words};
use anyhow::{bail, Result};
use kfd_uapi as uapi;
use rustix::io::Errno;
use std::mem::offset_of;
use std::time::{Duration, Instant};

type QueueEntry = uapi::kfd_queue_snapshot_entry;
/// Both kinds have the same arguments in the same places.
type Asked = uapi::kfd_ioctl_dbg_trap_queue_snapshot_args;
type DeviceEntry = uapi::kfd_dbg_device_info_entry;

/// What the list is filled with before the call.
const UNTOUCHED: u8 = 0xa5;
/// TIMEOUT: how long an exception may take to come, on a loaded host.
const COMES: Duration = Duration::from_secs(40);
/// Room for what a case asks for.
const ROOM: usize = 16 << 10;

/// A field of an entry, as far as it is there.
struct Field {
    name: &'static str,
    offset: usize,
    size: usize,
}

macro_rules! fields {
    ($of:ident: $($field:ident),* $(,)?) => {
        [$(Field {
            name: stringify!($field),
            offset: offset_of!(uapi::$of, $field),
            size: {
                let entry = uapi::$of::default();
                size_of_val(&entry.$field)
            },
        }),*]
    };
}

fn size_of_entry(of_queues: bool) -> usize {
    match of_queues {
        true => size_of::<QueueEntry>(),
        false => size_of::<DeviceEntry>(),
    }
}

fn of_queue() -> Vec<Field> {
    fields!(kfd_queue_snapshot_entry: exception_status, ring_base_address, write_pointer_address,
        read_pointer_address, ctx_save_restore_address, queue_id, gpu_id, ring_size, queue_type,
        ctx_save_restore_area_size, reserved)
    .into()
}

fn of_device() -> Vec<Field> {
    fields!(kfd_dbg_device_info_entry: exception_status, lds_base, lds_limit, scratch_base,
        scratch_limit, gpuvm_base, gpuvm_limit, gpu_id, location_id, vendor_id, device_id,
        revision_id, subsystem_vendor_id, subsystem_device_id, fw_version, gfx_target_version,
        simd_count, max_waves_per_simd, array_count, simd_arrays_per_engine, num_xcc, capability,
        debug_prop, capability2)
    .into()
}

impl Session {
    pub fn snapshot(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let of_queues = words.word(0)? == "queues";
        let size = size_of_entry(of_queues);
        let mut list = vec![UNTOUCHED; ROOM];
        let clear = words.exceptions("clear", 0)?;
        let at = place(words, list.as_mut_ptr() as u64)?;
        let (count, entry) = (words.or("count", 8)?, words.or("entry", size as u64)?);
        let asked = Asked {
            exception_mask: clear,
            snapshot_buf_ptr: at,
            num_queues: count as u32,
            entry_size: entry as u32,
        };
        let (result, told) = self.list(pid, of_queues, asked);
        let mut said = format!(
            "{}, {} entries of {}",
            outcome(result),
            told.num_queues,
            told.entry_size
        );
        let fields = if of_queues { of_queue() } else { of_device() };
        let filled = list.len()
            - list
                .iter()
                .rev()
                .take_while(|byte| **byte == UNTOUCHED)
                .count();
        for entry in list[..filled].chunks((entry as usize).clamp(1, ROOM)) {
            said += &format!("; {}", self.entry(&fields, entry, of_queues));
        }
        Ok(said)
    }

    fn list(&self, pid: u32, of_queues: bool, asked: Asked) -> (Result<i32, Errno>, Asked) {
        let mut operation = Operation {
            queue_snapshot: asked,
        };
        let op = if of_queues {
            uapi::KFD_IOC_DBG_TRAP_GET_QUEUE_SNAPSHOT
        } else {
            uapi::KFD_IOC_DBG_TRAP_GET_DEVICE_SNAPSHOT
        };
        let result = self.trap(pid, op, &mut operation);
        // SAFETY: all of the union is numbers.
        (result, unsafe { operation.queue_snapshot })
    }

    /// Waits until as many queues or GPUs as `entries=` says, 1 without it, have the exceptions of
    /// `mask=`. Takes none away.
    pub fn exceptions_come(&self, pid: u32, words: &Words<'_>) -> Result<String> {
        let of_queues = words.word(2)? == "queues";
        let (wanted, entries) = (words.exceptions("mask", 0)?, words.or("entries", 1)?);
        let size = size_of_entry(of_queues);
        let begin = Instant::now();
        loop {
            let mut list = vec![0u8; ROOM];
            let asked = Asked {
                exception_mask: 0,
                snapshot_buf_ptr: list.as_mut_ptr() as u64,
                num_queues: 8,
                entry_size: size as u32,
            };
            let (Ok(_), told) = self.list(pid, of_queues, asked) else {
                bail!("there is no snapshot");
            };
            let have = list.chunks(size).take(told.num_queues as usize);
            // Both kinds of entries begin with their exceptions.
            let have = have
                .filter_map(|entry| entry.first_chunk())
                .filter(|first| u64::from_le_bytes(**first) & wanted == wanted)
                .count();
            if have as u64 >= entries {
                return Ok("0".into());
            }
            if begin.elapsed() > COMES {
                return Ok(format!("{have} of {entries} have them"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Takes a snapshot of all queues, which are not new any more.
    pub fn seen(&self, pid: u32) -> Result<String> {
        let said = self.snapshot(pid, &Words::of("queues clear=QUEUE_NEW"))?;
        Ok(said.split(';').next().unwrap_or_default().to_owned())
    }

    /// An entry's fields; those that were not written are left out. Addresses of queues are the
    /// process's, and become names (`stage.rs`); those of GPUs are the same in every process.
    fn entry(&self, fields: &[Field], entry: &[u8], of_queues: bool) -> String {
        let mut said = Vec::new();
        for field in fields {
            let Some(bytes) = entry.get(field.offset..field.offset + field.size) else {
                continue;
            };
            if bytes.iter().all(|byte| *byte == UNTOUCHED) {
                continue;
            }
            let mut number = [0; 8];
            number[..field.size].copy_from_slice(bytes);
            let number = u64::from_le_bytes(number);
            said.push(match field.name {
                "exception_status" => show_exceptions(number),
                "gpu_id" => self.name_of(number as u32),
                name if of_queues => format!("{name} {number:#x}"),
                name => format!("{name} {number:x}"),
            });
        }
        said.join(", ")
    }
}
