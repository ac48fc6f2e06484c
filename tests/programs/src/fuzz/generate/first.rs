// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What comes before anything is fuzzed: amdgpu and the driver keep some of what they first make.

use super::super::program::{Program, Value};
use super::calls::{number, prepared, PLACE};
use super::{of_user, Writer, MOMENT};
use kfd_uapi as uapi;

/// A program that has them make it: a process's first queue of each kind on either GPU, memory of
/// each kind, a dispatch.
pub fn warm() -> Program {
    let mut writer = Writer::new(0, 2);
    for process in 0..2 {
        writer.first(process, "SETUP", &|line| of_user(line, process));
        first_of_all(&mut writer, process);
        for (call, name, value) in [("LAUNCH", "groups", 1), ("AWAIT", "ms", MOMENT)] {
            writer.first(process, call, &|line| line.with(name, number(value)));
        }
    }
    writer.program
}

/// Buffers and queues as programs have them, of the first two GPUs.
fn first_of_all(w: &mut Writer, p: u8) {
    const MEMORY_KINDS: [u32; 2] = [
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT,
    ];
    let queues = [
        uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL,
        uapi::KFD_IOC_QUEUE_TYPE_SDMA,
    ];
    let mut place = 0;
    for end in ["", "2"] {
        let gpu = prepared(&format!("gpu{end}"));
        for flags in MEMORY_KINDS {
            w.first(p, "ALLOC_MEMORY_OF_GPU", &|line| {
                line.with("gpu_id", gpu.clone())
                    .with("va_addr", Value::Prepared("place".into(), place * PLACE))
                    .with("size", number(PLACE))
                    .with("flags", number(flags.into()))
            });
            let (handle, list) = (w.gives('h'), Value::Words(vec![gpu.clone()]));
            w.first(p, "MAP_MEMORY_TO_GPU", &|line| {
                line.with("handle", Value::Label(handle.clone(), 0))
                    .with("device_ids_array_ptr", list.clone())
                    .with("n_devices", number(1))
            });
            place += 1;
        }
        for kind in queues {
            let own = |name: &str| prepared(&format!("{name}{end}"));
            w.first(p, "CREATE_QUEUE", &|line| {
                line.with("gpu_id", gpu.clone())
                    .with("queue_type", number(kind.into()))
                    .with("ring_base_address", own("ring"))
                    .with("ring_size", number(65536))
                    .with("write_pointer_address", own("write"))
                    .with("read_pointer_address", own("read"))
                    .with("eop_buffer_address", own("eop"))
                    .with("eop_buffer_size", number(4096))
                    .with("ctx_save_restore_address", own("area"))
                    .with("ctx_save_restore_size", own("area_size"))
                    .with("ctl_stack_size", own("stack_size"))
                    .with("queue_percentage", number(100))
                    .with("queue_priority", number(7))
            });
        }
    }
}
