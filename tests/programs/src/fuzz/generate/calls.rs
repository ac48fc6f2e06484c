// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One generated call of each kind, mostly a good one: what it takes, and what later calls know
//! from it. The fields' names are the header's.

use super::super::program::{Line, Value};
use super::{debugger, svm, Labels, Writer};
use kfd_uapi as uapi;

/// An address that is the kernel's.
pub const KERNEL: u64 = 0xffff_8000_0000_0000;
/// Bytes of a place for a buffer, and how many of them a process has ([`super::super::execute`]).
pub const PLACE: u64 = 256 << 10;
pub const PLACES: usize = 256;
/// Bytes of the process's own memory there.
pub const MEMORY: u64 = 1 << 20;

type Call = fn(&mut Writer, u8);
type Kind = fn(&Labels) -> &[String];

/// What is drawn from, and how often.
const CALLS: &[(usize, Call)] = &[
    (14, alloc),
    (8, map),
    (6, unmap),
    (5, free),
    (3, export),
    (3, import),
    (2, dmabuf_info),
    (1, available),
    (8, create_queue),
    (5, destroy_queue),
    (5, update_queue),
    (2, cu_mask),
    (2, wave_state),
    (2, gws),
    (6, create_event),
    (3, destroy_event),
    (5, set_event),
    (2, reset_event),
    (7, wait_events),
    (2, smi),
    (6, svm::svm),
    (2, svm::poke),
    (9, debugger::debug),
    (9, process),
    (1, unsupported),
    (1, context),
    (3, mmap),
    (2, munmap),
    (2, touch),
    (2, discard),
    (3, send),
    (3, receive),
    (2, close),
    (2, open),
    (2, fork),
    (4, launch),
    (3, wait_launched),
    (2, sleep),
    (1, die),
];

/// One of them for `process`.
pub fn any(writer: &mut Writer, process: u8) {
    let mut left = writer
        .random
        .below(CALLS.iter().map(|(weight, _)| weight).sum());
    for (weight, call) in CALLS {
        match left.checked_sub(*weight) {
            Some(rest) => left = rest,
            None => return call(writer, process),
        }
    }
}

pub fn number(value: u64) -> Value {
    Value::Number(value)
}

pub fn prepared(name: &str) -> Value {
    Value::Prepared(name.to_owned(), 0)
}

/// Values as calls want them.
impl Writer {
    /// `good`, `percent` times of a hundred; else one of these.
    pub fn mostly(&mut self, percent: usize, good: Value, others: &[u64]) -> Value {
        match self.random.chance(percent) {
            true => good,
            false => number(self.random.pick(others)),
        }
    }

    pub fn pick(&mut self, from: &[u64]) -> Value {
        number(self.random.pick(from))
    }

    /// What SETUP has prepared of this name; in one of four calls that of the second GPU.
    fn prepared(&mut self, name: &str, second: bool) -> Value {
        prepared(&format!("{name}{}", if second { "2" } else { "" }))
    }

    pub fn gpu(&mut self) -> Value {
        let second = self.random.chance(25);
        let gpu = self.prepared("gpu", second);
        self.mostly(95, gpu, &[0, 1, 0xffff, 0xffff_ffff])
    }

    /// One of these labels; else one of the numbers.
    fn one_of(&mut self, labels: &[String], others: &[u64]) -> Value {
        // The last ones are the likeliest to be there still.
        let from = match self.random.chance(60) {
            true => labels.len().saturating_sub(4),
            false => 0,
        };
        let index = from + self.random.below(labels.len() - from);
        match labels.get(index) {
            Some(label) if self.random.chance(95) => Value::Label(label.clone(), 0),
            _ => self.pick(others),
        }
    }

    /// Mostly one of the process's labels of a kind: where there is none, `make` adds a line that
    /// gives one.
    fn of(&mut self, process: u8, which: Kind, make: Call, others: &[u64]) -> Value {
        let labels = |w: &Self| which(&w.labels[usize::from(process)]).to_vec();
        let mut known = labels(self);
        if known.is_empty() && self.random.chance(85) {
            make(self, process);
            known = labels(self);
        }
        self.one_of(&known, others)
    }

    /// A buffer of the process's; now and then one that nobody was given, beside it.
    fn handle(&mut self, process: u8) -> Value {
        match self.of(process, |it| &it.handles, alloc, &[0, 1, 1 << 32, u64::MAX]) {
            Value::Label(name, _) if self.random.chance(3) => {
                Value::Label(name, self.random.pick(&[1, 77, 1 << 20]))
            }
            value => value,
        }
    }

    fn queue(&mut self, process: u8) -> Value {
        let odd = &[0, 1, 2, 77, 1023, 1024, 0xffff_ffff];
        self.of(process, |it| &it.queues, create_queue, odd)
    }

    fn event(&mut self, process: u8) -> Value {
        let odd = &[0, 1, 255, 4095, 4096, 0x8000_0000, 0xffff_ffff];
        self.of(process, |it| &it.events, create_event, odd)
    }

    fn signal(&mut self, process: u8) -> Value {
        match self.random.chance(85) {
            true => self.of(process, |it| &it.signals, create_signal, &[0, 4096]),
            false => self.event(process),
        }
    }

    fn file(&mut self, process: u8) -> Value {
        self.of(process, |it| &it.files, open, &[0x7777, 0xffff_ffff])
    }

    fn dmabuf(&mut self, process: u8) -> Value {
        match self.random.chance(90) {
            true => self.of(process, |it| &it.dmabufs, export, &[0x7777]),
            false => self.file(process),
        }
    }

    pub fn place(&mut self) -> Value {
        let slot = self.random.below(PLACES) as u64;
        let place = Value::Prepared("place".into(), slot * PLACE);
        self.mostly(95, place, &[0, 4096, 1 << 47, KERNEL])
    }

    pub fn memory(&mut self) -> Value {
        let page = self.random.below((MEMORY / 4096) as usize / 2) as u64;
        Value::Prepared("memory".into(), page * 4096)
    }

    /// Adds a line, now and then through another file of the process.
    pub fn ioctl(&mut self, process: u8, name: &str, fields: Vec<(&str, Value)>) {
        let has_file = fields.iter().any(|(name, _)| *name == "fd");
        let other = (!has_file && self.random.chance(3)).then(|| self.file(process));
        self.line(process, name, |mut line: Line| {
            for (name, value) in fields {
                line = line.with(name, value);
            }
            match other {
                Some(file) => line.with("fd", file),
                None => line,
            }
        });
    }

    /// The line that was just added gives this.
    pub fn gives(&mut self, kind: char) -> String {
        let label = self.label(kind);
        if let Some(line) = self.program.lines.last_mut() {
            line.label = Some(label.clone());
        }
        label
    }
}

fn alloc(w: &mut Writer, p: u8) {
    let kinds = [
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_VRAM | uapi::KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT | uapi::KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM,
        0,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT | uapi::KFD_IOC_ALLOC_MEM_FLAGS_USERPTR,
    ];
    let extra = [
        0,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE | uapi::KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_COHERENT,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE,
    ];
    let kind = w.random.pick(&kinds);
    let flags = kind | w.random.pick(&extra);
    // As large as the process's doorbells are, and the page of registers; a place has room for the
    // others.
    let right = match kind {
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL => 8192,
        uapi::KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP => 4096,
        _ => w.random.pick(&[4096, 4096, 8192, 65536, 262_144]),
    };
    let size = w.mostly(92, number(right), &[4096, 8192, 1 << 21, 1 << 45, 0, 1]);
    let (gpu, place, own) = (w.gpu(), w.place(), w.memory());
    let offset = w.mostly(90, own, &[0, 8, KERNEL]);
    let fields = vec![
        ("gpu_id", gpu),
        ("va_addr", place),
        ("size", size),
        ("mmap_offset", offset),
        ("flags", number(flags.into())),
    ];
    w.ioctl(p, "ALLOC_MEMORY_OF_GPU", fields);
    let label = w.gives('h');
    w.labels[usize::from(p)].handles.push(label.clone());
    // A buffer that no GPU sees is of little use.
    if w.random.chance(60) {
        map_one(w, p, Value::Label(label, 0));
    }
}

/// Memory that is there for all that may be done with memory.
fn alloc_plain(w: &mut Writer, p: u8) {
    let flags = uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT | uapi::KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE;
    let (gpu, slot) = (prepared("gpu"), w.random.below(PLACES) as u64);
    let fields = vec![
        ("gpu_id", gpu),
        ("va_addr", Value::Prepared("place".into(), slot * PLACE)),
        ("size", w.pick(&[4096, 65536])),
        ("flags", number(flags.into())),
    ];
    w.ioctl(p, "ALLOC_MEMORY_OF_GPU", fields);
    let label = w.gives('h');
    w.labels[usize::from(p)].handles.push(label);
}

fn map_one(w: &mut Writer, p: u8, handle: Value) {
    if let Value::Label(name, 0) = &handle {
        w.labels[usize::from(p)].mapped.push(name.clone());
    }
    let count = w.random.pick(&[1, 1, 1, 1, 1, 1, 1, 2, 2, 0]);
    let gpus: Vec<Value> = (0..count).map(|_| w.gpu()).collect();
    let list = w.mostly(97, Value::Words(gpus), &[0, KERNEL]);
    let done = w.mostly(95, number(0), &[1, 2, 5]);
    let fields = vec![
        ("handle", handle),
        ("device_ids_array_ptr", list),
        ("n_devices", number(count)),
        ("n_success", done),
    ];
    w.ioctl(p, "MAP_MEMORY_TO_GPU", fields);
}

fn map(w: &mut Writer, p: u8) {
    let handle = w.handle(p);
    map_one(w, p, handle);
}

fn unmap(w: &mut Writer, p: u8) {
    let handle = w.of(p, |it| &it.mapped, map, &[0, 1, u64::MAX]);
    unmap_one(w, p, handle);
}

fn unmap_one(w: &mut Writer, p: u8, handle: Value) {
    let gpu = w.gpu();
    let done = w.mostly(95, number(0), &[1, 5]);
    let fields = vec![
        ("handle", handle),
        ("device_ids_array_ptr", Value::Words(vec![gpu])),
        ("n_devices", number(1)),
        ("n_success", done),
    ];
    w.ioctl(p, "UNMAP_MEMORY_FROM_GPU", fields);
}

fn free(w: &mut Writer, p: u8) {
    let handle = w.handle(p);
    if w.random.chance(40) {
        unmap_one(w, p, handle.clone());
    }
    w.ioctl(p, "FREE_MEMORY_OF_GPU", vec![("handle", handle)]);
}

fn export(w: &mut Writer, p: u8) {
    let handle = match w.random.chance(50) {
        true => {
            alloc_plain(w, p);
            let label = w.labels[usize::from(p)].handles.last().cloned();
            label.map_or(number(0), |label| Value::Label(label, 0))
        }
        false => w.handle(p),
    };
    let flags = w.pick(&[0, 2, 2, 0o2_000_000, 0o2_000_002, 0xffff_ffff]);
    w.ioctl(
        p,
        "EXPORT_DMABUF",
        vec![("handle", handle), ("flags", flags)],
    );
    let label = w.gives('d');
    w.labels[usize::from(p)].files.push(label.clone());
    w.labels[usize::from(p)].dmabufs.push(label);
}

fn import(w: &mut Writer, p: u8) {
    let (gpu, place, file) = (w.gpu(), w.place(), w.dmabuf(p));
    let fields = vec![("gpu_id", gpu), ("va_addr", place), ("dmabuf_fd", file)];
    w.ioctl(p, "IMPORT_DMABUF", fields);
    let label = w.gives('h');
    w.labels[usize::from(p)].handles.push(label);
}

fn dmabuf_info(w: &mut Writer, p: u8) {
    let (file, own) = (w.dmabuf(p), w.memory());
    let room = w.mostly(80, own, &[0, KERNEL]);
    let size = w.pick(&[0, 64, 256]);
    let fields = vec![
        ("dmabuf_fd", file),
        ("metadata_ptr", room),
        ("metadata_size", size),
    ];
    w.ioctl(p, "GET_DMABUF_INFO", fields);
}

fn available(w: &mut Writer, p: u8) {
    let gpu = w.gpu();
    w.ioctl(p, "AVAILABLE_MEMORY", vec![("gpu_id", gpu)]);
}

fn create_queue(w: &mut Writer, p: u8) {
    const BAD: &[u64] = &[0, 8, 4096, KERNEL];
    let second = w.random.chance(25);
    let gpu = w.prepared("gpu", second);
    // What SETUP has of that GPU.
    let own = |w: &mut Writer, name: &str| {
        let value = w.prepared(name, second);
        w.mostly(99, value, BAD)
    };
    let kind = w.pick(&[0, 1, 2, 2, 2, 2, 3, 4, 5, 0xff]);
    let fields = vec![
        ("gpu_id", w.mostly(97, gpu, &[0, 1, 0xffff])),
        ("queue_type", kind),
        ("ring_base_address", own(w, "ring")),
        (
            "ring_size",
            w.mostly(96, number(65536), &[0, 256, 1024, 4096, 65537, 131_072]),
        ),
        ("write_pointer_address", own(w, "write")),
        ("read_pointer_address", own(w, "read")),
        ("eop_buffer_address", own(w, "eop")),
        ("eop_buffer_size", w.mostly(98, number(4096), &[0, 1, 8192])),
        ("ctx_save_restore_address", own(w, "area")),
        ("ctx_save_restore_size", own(w, "area_size")),
        ("ctl_stack_size", own(w, "stack_size")),
        (
            "queue_percentage",
            w.mostly(94, number(100), &[0, 1, 50, 101]),
        ),
        ("queue_priority", w.mostly(90, number(7), &[0, 11, 15, 16])),
        ("sdma_engine_id", w.pick(&[0, 1, 2, 9])),
    ];
    w.ioctl(p, "CREATE_QUEUE", fields);
    let label = w.gives('q');
    w.labels[usize::from(p)].queues.push(label);
}

fn destroy_queue(w: &mut Writer, p: u8) {
    let queue = w.queue(p);
    w.ioctl(p, "DESTROY_QUEUE", vec![("queue_id", queue)]);
}

fn update_queue(w: &mut Writer, p: u8) {
    let fields = vec![
        ("queue_id", w.queue(p)),
        (
            "ring_base_address",
            w.mostly(92, prepared("ring"), &[0, 8, KERNEL]),
        ),
        (
            "ring_size",
            w.mostly(92, number(65536), &[0, 256, 1000, 4096]),
        ),
        (
            "queue_percentage",
            w.pick(&[0, 0, 100, 100, 100, 100, 50, 101]),
        ),
        ("queue_priority", w.pick(&[0, 7, 7, 7, 15, 16])),
    ];
    w.ioctl(p, "UPDATE_QUEUE", fields);
}

fn cu_mask(w: &mut Writer, p: u8) {
    let word = w.pick(&[0, 1, 0xffff_ffff, 0x5555_5555]);
    let fields = vec![
        ("queue_id", w.queue(p)),
        ("num_cu_mask", w.pick(&[0, 31, 32, 64, 128, 1024, 2048])),
        (
            "cu_mask_ptr",
            w.mostly(90, Value::Words(vec![word; 64]), &[0, KERNEL]),
        ),
    ];
    w.ioctl(p, "SET_CU_MASK", fields);
}

/// Of a queue that is not to run, mostly.
fn wave_state(w: &mut Writer, p: u8) {
    let queue = w.queue(p);
    if w.random.chance(75) {
        let fields = vec![
            ("queue_id", queue.clone()),
            ("ring_base_address", prepared("ring")),
            ("ring_size", number(65536)),
            ("queue_percentage", number(0)),
            ("queue_priority", number(7)),
        ];
        w.ioctl(p, "UPDATE_QUEUE", fields);
    }
    let fields = vec![
        ("queue_id", queue),
        (
            "ctl_stack_address",
            w.mostly(85, prepared("area"), &[0, 8, KERNEL]),
        ),
    ];
    w.ioctl(p, "GET_QUEUE_WAVE_STATE", fields);
}

fn gws(w: &mut Writer, p: u8) {
    let fields = vec![
        ("queue_id", w.queue(p)),
        ("num_gws", w.pick(&[0, 64, 64, 1])),
    ];
    w.ioctl(p, "ALLOC_QUEUE_GWS", fields);
}

fn create_event(w: &mut Writer, p: u8) {
    let fields = vec![
        ("event_type", w.pick(&[0, 0, 0, 0, 1, 2, 3, 5, 7, 8, 9, 77])),
        ("auto_reset", w.pick(&[0, 1])),
        (
            "event_page_offset",
            w.mostly(97, number(0), &[1, 4096, 1 << 40]),
        ),
    ];
    w.ioctl(p, "CREATE_EVENT", fields);
    let label = w.gives('e');
    w.labels[usize::from(p)].events.push(label);
}

fn create_signal(w: &mut Writer, p: u8) {
    let fields = vec![("event_type", number(0)), ("auto_reset", w.pick(&[0, 1]))];
    w.ioctl(p, "CREATE_EVENT", fields);
    let label = w.gives('e');
    w.labels[usize::from(p)].events.push(label.clone());
    w.labels[usize::from(p)].signals.push(label);
}

fn destroy_event(w: &mut Writer, p: u8) {
    let event = w.event(p);
    w.ioctl(p, "DESTROY_EVENT", vec![("event_id", event)]);
}

fn set_event(w: &mut Writer, p: u8) {
    let event = w.signal(p);
    w.ioctl(p, "SET_EVENT", vec![("event_id", event)]);
}

fn reset_event(w: &mut Writer, p: u8) {
    let event = w.signal(p);
    w.ioctl(p, "RESET_EVENT", vec![("event_id", event)]);
}

fn wait_events(w: &mut Writer, p: u8) {
    let count = w.random.below(5);
    let events = (0..count)
        .map(|_| (w.event(p), w.random.pick(&[0, 0, 1, 2])))
        .collect();
    let fields = vec![
        (
            "events_ptr",
            w.mostly(97, Value::Events(events), &[0, KERNEL]),
        ),
        ("num_events", number(count as u64)),
        ("wait_for_all", w.pick(&[0, 1])),
        ("timeout", w.pick(&[0, 0, 1, 5, 30])),
    ];
    w.ioctl(p, "WAIT_EVENTS", fields);
}

fn smi(w: &mut Writer, p: u8) {
    let gpu = w.gpu();
    w.ioctl(p, "SMI_EVENTS", vec![("gpuid", gpu)]);
    let label = w.gives('s');
    w.labels[usize::from(p)].files.push(label);
}

/// What is about the process as a whole.
fn process(w: &mut Writer, p: u8) {
    let (gpu, place, own) = (w.gpu(), w.place(), w.memory());
    let room = w.mostly(85, own, &[0, KERNEL]);
    match w.random.below(12) {
        0 => w.ioctl(p, "GET_VERSION", vec![]),
        1 => {
            let fields = vec![
                ("gpu_id", gpu),
                ("default_policy", w.pick(&[0, 1, 2])),
                ("alternate_policy", w.pick(&[0, 1, 2])),
                ("alternate_aperture_base", w.pick(&[0, 1 << 32, KERNEL])),
                ("alternate_aperture_size", w.pick(&[0, 65536, 1 << 40])),
            ];
            w.ioctl(p, "SET_MEMORY_POLICY", fields);
        }
        2 => w.ioctl(p, "GET_CLOCK_COUNTERS", vec![("gpu_id", gpu)]),
        3 => w.ioctl(p, "GET_PROCESS_APERTURES", vec![]),
        4 => {
            let count = w.pick(&[0, 1, 2, 7, 0xffff_ffff]);
            let fields = vec![
                ("kfd_process_device_apertures_ptr", room),
                ("num_of_nodes", count),
            ];
            w.ioctl(p, "GET_PROCESS_APERTURES_NEW", fields);
        }
        5 => {
            let fields = vec![("gpu_id", gpu), ("va_addr", place)];
            w.ioctl(p, "SET_SCRATCH_BACKING_VA", fields);
        }
        6 => {
            let count = w.pick(&[0, 1, 16, 64]);
            let fields = vec![
                ("gpu_id", gpu),
                ("tile_config_ptr", room.clone()),
                ("macro_tile_config_ptr", room),
                ("num_tile_configs", count.clone()),
                ("num_macro_tile_configs", count),
            ];
            w.ioctl(p, "GET_TILE_CONFIG", fields);
        }
        7 => {
            let data = w.place();
            let fields = vec![("gpu_id", gpu), ("tba_addr", place), ("tma_addr", data)];
            w.ioctl(p, "SET_TRAP_HANDLER", fields);
        }
        8 => {
            let file = w.file(p);
            w.ioctl(p, "ACQUIRE_VM", vec![("gpu_id", gpu), ("drm_fd", file)]);
        }
        9 => {
            let mode = w.pick(&[0, 1, 0xffff_ffff]);
            w.ioctl(p, "SET_XNACK_MODE", vec![("xnack_enabled", mode)]);
        }
        10 => {
            let fields = vec![("r_debug", place), ("mode_mask", w.pick(&[0, 1, 2, 3, 4]))];
            w.ioctl(p, "RUNTIME_ENABLE", fields);
        }
        _ => profiler(w, p, gpu),
    }
}

fn profiler(w: &mut Writer, p: u8, gpu: Value) {
    // `pmc` of the union: GPU, lock, counters.
    let fields = vec![
        ("op", w.pick(&[0, 0, 1, 2, 3, 77])),
        ("@4", gpu),
        ("@8", w.pick(&[0, 1, 1, 2])),
        ("@12", w.pick(&[0, 1])),
    ];
    w.ioctl(p, "PROFILER", fields);
}

/// Another context of the process, with a VM, and something in it.
fn context(w: &mut Writer, p: u8) {
    open_one(w, p, 1);
    let render = w.labels[usize::from(p)].files.last().cloned();
    open_kfd(w, p);
    let file = w.labels[usize::from(p)].files.last().cloned();
    let of = |label: Option<String>| label.map_or(number(0x7777), |it| Value::Label(it, 0));
    let (render, file, gpu) = (of(render), of(file), prepared("gpu"));
    let here = vec![("fd", file.clone())];
    w.ioctl(p, "CREATE_PROCESS", here.clone());
    let mut acquire = here.clone();
    acquire.extend([("gpu_id", gpu.clone()), ("drm_fd", render)]);
    w.ioctl(p, "ACQUIRE_VM", acquire);
    let (place, flags) = (w.place(), uapi::KFD_IOC_ALLOC_MEM_FLAGS_GTT);
    let mut memory = here.clone();
    memory.extend([
        ("gpu_id", gpu),
        ("va_addr", place),
        ("size", number(8192)),
        ("flags", number(flags.into())),
    ]);
    w.ioctl(p, "ALLOC_MEMORY_OF_GPU", memory);
    let mut event = here;
    event.push(("event_type", number(7)));
    w.ioctl(p, "CREATE_EVENT", event);
}

/// What no driver does any more; another context; and steps of a checkpoint. One that stops the
/// queues lets them go on at once.
fn unsupported(w: &mut Writer, p: u8) {
    let name = w.random.pick(&[
        "CREATE_PROCESS",
        "CREATE_PROCESS",
        "CRIU_OP",
        "DBG_REGISTER_DEPRECATED",
        "DBG_UNREGISTER_DEPRECATED",
        "DBG_ADDRESS_WATCH_DEPRECATED",
        "DBG_WAVE_CONTROL_DEPRECATED",
    ]);
    let operation = w.pick(&[0, 1, 2, 3, 4, 77]);
    let fields = match name {
        // Through another file: the process's own would have a context without a VM from then on.
        "CREATE_PROCESS" => vec![("fd", w.of(p, |it| &it.kfds, open_kfd, &[0x7777]))],
        "CRIU_OP" => vec![("op", operation)],
        _ => vec![],
    };
    w.ioctl(p, name, fields);
    if name == "CRIU_OP" {
        w.ioctl(p, name, vec![("op", number(2))]);
    }
}

fn mmap(w: &mut Writer, p: u8) {
    let file = w.file(p);
    // Registers, nothing, events, doorbells; and how much of each there is.
    let (kind, whole) = w
        .random
        .pick(&[(0, 4096), (1, 4096), (2, 32768), (3, 8192), (3, 8192)]);
    let (kind, gpu) = (number(kind), w.gpu());
    let bytes = w.mostly(85, number(whole), &[4096, 8192, 65536, 0]);
    let access = w.pick(&[3, 3, 1, 0, 7]);
    let other = w.random.chance(20);
    w.line(p, "MMAP", |line| {
        let line = line
            .with("kind", kind)
            .with("gpu", gpu)
            .with("bytes", bytes)
            .with("access", access);
        match other {
            true => line.with("fd", file),
            false => line,
        }
    });
    let label = w.gives('m');
    w.labels[usize::from(p)].mappings.push(label);
}

fn mapping(w: &mut Writer, p: u8) -> Value {
    let labels = w.labels[usize::from(p)].mappings.clone();
    w.one_of(&labels, &[0])
}

fn munmap(w: &mut Writer, p: u8) {
    let at = mapping(w, p);
    w.line(p, "MUNMAP", |line| line.with("at", at));
}

fn touch(w: &mut Writer, p: u8) {
    let at = mapping(w, p);
    w.line(p, "TOUCH", |line| line.with("at", at));
}

/// Other pages in place of some of the process's own.
fn discard(w: &mut Writer, p: u8) {
    let bytes = w.pick(&[4096, 16384, 262_144]);
    let at = match w.random.chance(50) {
        true => w.memory(),
        false => svm::area(w),
    };
    w.line(p, "DISCARD", |line| {
        line.with("at", at).with("bytes", bytes)
    });
}

fn send(w: &mut Writer, p: u8) {
    let (file, own) = (w.file(p), prepared("kfd"));
    let file = match w.random.chance(70) {
        true => file,
        false => own,
    };
    let to = number(w.random.below(w.labels.len()) as u64);
    w.line(p, "SEND", |line| line.with("file", file).with("to", to));
}

fn receive(w: &mut Writer, p: u8) {
    w.line(p, "RECEIVE", |line| line);
    let label = w.gives('f');
    w.labels[usize::from(p)].files.push(label);
}

fn close(w: &mut Writer, p: u8) {
    let file = w.file(p);
    w.line(p, "CLOSE", |line| line.with("file", file));
}

fn open(w: &mut Writer, p: u8) {
    match w.random.below(3) {
        0 => open_one(w, p, 1),
        _ => open_kfd(w, p),
    }
}

fn open_kfd(w: &mut Writer, p: u8) {
    open_one(w, p, 0);
    let labels = &mut w.labels[usize::from(p)];
    labels.kfds.extend(labels.files.last().cloned());
}

fn open_one(w: &mut Writer, p: u8, render: u64) {
    w.line(p, "OPEN", |line| line.with("render", number(render)));
    let label = w.gives('f');
    w.labels[usize::from(p)].files.push(label);
}

fn fork(w: &mut Writer, p: u8) {
    let lines = w.pick(&[0, 1, 3, 6]);
    w.line(p, "FORK", |line| line.with("lines", lines));
}

fn launch(w: &mut Writer, p: u8) {
    let (groups, rounds) = (w.pick(&[1, 1, 2]), w.pick(&[1, 1, 10, 100]));
    w.line(p, "LAUNCH", |line| {
        line.with("groups", groups).with("rounds", rounds)
    });
}

fn wait_launched(w: &mut Writer, p: u8) {
    let milliseconds = w.pick(&[0, 10, 200]);
    w.line(p, "AWAIT", |line| line.with("ms", milliseconds));
}

fn sleep(w: &mut Writer, p: u8) {
    let milliseconds = w.pick(&[0, 1, 10, 30]);
    w.line(p, "SLEEP", |line| line.with("ms", milliseconds));
}

/// The process kills itself, whatever its other threads are doing.
fn die(w: &mut Writer, p: u8) {
    if w.random.chance(40) {
        w.line(p, "DIE", |line| line);
    }
}
