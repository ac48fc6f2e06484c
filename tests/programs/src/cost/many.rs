// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! As many queues as a process can have: 250 on each GPU, made one after the other, each given a
//! packet, and destroyed. Four GPUs make a thousand.

use super::{call, Meter, Row};
use anyhow::{ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ptr::{null_mut, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Queues of a GPU. Either driver allows a few more (255).
const EACH: usize = 250;

/// How many queues share a row.
const ROW: usize = 50;

/// A process's doorbells on one GPU.
const DOORBELL_SLICE: usize = 8192;

/// Where the GPU puts a queue's read index, behind the write index.
const READ_INDEX: usize = 128;

pub(super) fn all(meter: &Meter, kfd: &Arc<Kfd>) -> Result<()> {
    let gpus: Vec<_> = topology::gpus()?
        .iter()
        .map(|node| Gpu::new(Device::acquire(kfd, node)?))
        .collect::<Result<_>>()?;
    let total = EACH * gpus.len();
    let mut queues = Vec::new();
    let mut rows = Rows::new(meter, "CREATE_QUEUE", total);
    for index in 0..total {
        let gpu = &gpus[index % gpus.len()];
        queues.push(gpu.create(rows.of(index))?);
    }
    rows.print();
    queues.iter_mut().try_for_each(Queue::submit)?;
    // TIMEOUT: some ten times of what the model takes on a loaded machine.
    let end = Instant::now() + Duration::from_secs(300);
    for queue in &queues {
        while !queue.is_done() {
            ensure!(Instant::now() < end, "queue {} has not run", queue.id);
            // A model that works inside the guest's accesses gives the next queues their turn in
            // one.
            let mut clock = uapi::kfd_ioctl_get_clock_counters_args {
                gpu_id: queue.gpu_id,
                ..Default::default()
            };
            call(kfd, uapi::IOC_GET_CLOCK_COUNTERS, &mut clock)?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let mut rows = Rows::new(meter, "DESTROY_QUEUE", total);
    for (index, queue) in queues.into_iter().enumerate() {
        queue.destroy(rows.of(index))?;
    }
    rows.print();
    Ok(())
}

/// One row for so many queues.
struct Rows<'a>(Vec<Row<'a>>);

impl<'a> Rows<'a> {
    fn new(meter: &'a Meter, operation: &str, total: usize) -> Self {
        let name = |first: usize| {
            let last = (first + ROW).min(total);
            meter.row(format!("{operation} {} to {last} of {total}", first + 1))
        };
        Self((0..total).step_by(ROW).map(name).collect())
    }

    fn of(&mut self, index: usize) -> &mut Row<'a> {
        &mut self.0[index / ROW]
    }

    fn print(self) {
        self.0.into_iter().for_each(Row::print);
    }
}

/// A GPU and what its queues share: none of their packets has waves that could be saved.
struct Gpu {
    device: Arc<Device>,
    eop: Memory,
    context: Memory,
}

impl Gpu {
    fn new(device: Arc<Device>) -> Result<Self> {
        let node = device.node();
        let arrays = node.property("array_count") / node.property("simd_arrays_per_engine").max(1);
        let waves = (node.compute_units() / node.xccs() * 40).min(arrays * 512);
        let debugger = (waves * 32).next_multiple_of(64);
        let context = (node.property("cwsr_size") + debugger) * node.xccs();
        Ok(Self {
            eop: Memory::gtt(&device, 4096)?,
            context: Memory::gtt(&device, context as usize)?,
            device,
        })
    }

    fn create(&self, row: &mut Row<'_>) -> Result<Queue> {
        let indices = Memory::gtt(&self.device, 4096)?;
        let ring = Memory::gtt(&self.device, 4096)?;
        let node = self.device.node();
        let mut args = uapi::kfd_ioctl_create_queue_args {
            ring_base_address: ring.address(),
            ring_size: ring.size() as u32,
            write_pointer_address: indices.address(),
            read_pointer_address: indices.address() + READ_INDEX as u64,
            gpu_id: self.device.gpu_id(),
            queue_type: uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL,
            queue_percentage: 100,
            queue_priority: 7,
            eop_buffer_address: self.eop.address(),
            eop_buffer_size: self.eop.size() as u64,
            ctx_save_restore_address: self.context.address(),
            ctx_save_restore_size: node.property("cwsr_size") as u32,
            ctl_stack_size: node.property("ctl_stack_size") as u32,
            ..Default::default()
        };
        let kfd = self.device.kfd();
        row.sample(|| call(kfd, uapi::IOC_CREATE_QUEUE, &mut args))?;
        Ok(Queue {
            kfd: kfd.clone(),
            id: args.queue_id,
            gpu_id: args.gpu_id,
            doorbell: args.doorbell_offset,
            ring,
            indices,
        })
    }
}

struct Queue {
    kfd: Arc<Kfd>,
    id: u32,
    gpu_id: u32,
    doorbell: u64,
    ring: Memory,
    indices: Memory,
}

impl Queue {
    /// One packet that does nothing: BARRIER_AND without signals.
    fn submit(&mut self) -> Result<()> {
        const BARRIER_AND: u32 = 3;
        const BARRIER: u32 = 1 << 8;
        self.ring.write(0, &[BARRIER_AND | BARRIER]);
        self.indices.write(0, &[1u64]);
        let offset = self.doorbell as usize % DOORBELL_SLICE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let place = self.doorbell - offset as u64;
        // SAFETY: a new mapping at an address that the kernel picks.
        let base = unsafe {
            mmap(
                null_mut(),
                DOORBELL_SLICE,
                access,
                MapFlags::SHARED,
                self.kfd.as_fd(),
                place,
            )?
        };
        let base: NonNull<c_void> = NonNull::new(base).context("doorbells at address 0")?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        // SAFETY: within the mapping; a doorbell takes one store of 8 bytes.
        unsafe {
            base.byte_add(offset).cast::<u64>().write_volatile(0);
            munmap(base.as_ptr(), DOORBELL_SLICE)?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.indices.read::<u64>(READ_INDEX, 1) == [1]
    }

    fn destroy(self, row: &mut Row<'_>) -> Result<()> {
        let mut args = uapi::kfd_ioctl_destroy_queue_args {
            queue_id: self.id,
            pad: 0,
        };
        row.sample(|| call(&self.kfd, uapi::IOC_DESTROY_QUEUE, &mut args))
    }
}
