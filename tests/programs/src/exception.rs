// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A process that has a queue and waits for the events of a GPU that failed.

use crate::raw;
use crate::waves::{Gpu, GROUP};
use anyhow::{bail, ensure, Context, Result};
use clap::Args;
use kfd::{topology, Device, Event, EventKind, Events, Kfd, Memory, Queue, QueueKind, QueueMemory};
use kfd_aql::{Launch, Signal};
use kfd_uapi as uapi;
use rustix::io::Errno;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;

/// How long, and with what.
#[derive(Args)]
pub struct Exception {
    /// Seconds to wait for it.
    #[arg(long, default_value_t = 60)]
    timeout: u32,
    /// Have no queue.
    #[arg(long)]
    idle: bool,
    /// Dispatch a kernel, for the GPU model to hang on; what is left of the queue is told
    /// afterwards.
    #[arg(long, conflicts_with = "idle")]
    hang: bool,
    /// What comes afterwards: touch the doorbells, which ends the process where they are gone.
    #[arg(long)]
    ring: bool,
}

impl Exception {
    /// Says "waiting", then what came. Both drivers must say the same.
    pub fn run(&self) -> Result<()> {
        let kfd = Kfd::open()?;
        let nodes = topology::gpus()?;
        let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
        let hanging = match self.hang {
            true => Some(Hanging::start(&device)?),
            false => None,
        };
        // A process has one page of events.
        let events = match &hanging {
            Some(hanging) => hanging.done.event().events().clone(),
            None => Events::new(&device)?,
        };
        let reset = Event::new(&events, EventKind::HardwareException, false)?;
        let memory = Event::new(&events, EventKind::Memory, false)?;
        let queue = if self.idle || self.hang {
            None
        } else {
            Some(idle_queue(&device)?)
        };
        println!("waiting");
        std::io::stdout().flush()?;
        let came = self.wait(&kfd, [reset.id(), memory.id()])?;
        tell(&came, [reset.id(), memory.id()], &device)?;
        if let Some(hanging) = hanging {
            hanging.tell()?;
        }
        if let (true, Some(queue)) = (self.ring, &queue) {
            println!("ringing");
            std::io::stdout().flush()?;
            queue.ring_doorbell(0);
        }
        Ok(())
    }

    /// Until one of the two was signalled.
    fn wait(&self, kfd: &Arc<Kfd>, ids: [u32; 2]) -> Result<[uapi::kfd_event_data; 2]> {
        let mut data = ids.map(|event_id| uapi::kfd_event_data {
            event_id,
            ..Default::default()
        });
        let mut args = uapi::kfd_ioctl_wait_events_args {
            events_ptr: data.as_mut_ptr() as u64,
            num_events: data.len() as u32,
            timeout: self.timeout * 1000,
            ..Default::default()
        };
        loop {
            match raw::ioctl(kfd.as_fd(), uapi::IOC_WAIT_EVENTS, &mut args) {
                Err(Errno::INTR) => continue,
                other => break other?,
            }
        }
        if args.wait_result != uapi::KFD_IOC_WAIT_RESULT_COMPLETE {
            bail!("nothing came in {} s", self.timeout);
        }
        Ok(data)
    }
}

/// A dispatch that never ends, on a queue of its own, and another queue.
struct Hanging {
    queue: kfd_aql::Queue,
    other: Queue,
    _launch: Launch,
    done: Signal,
    _arguments: [Memory; 3],
}

impl Hanging {
    fn start(device: &Arc<Device>) -> Result<Self> {
        let gpu = Gpu::on(device.clone(), 1)?;
        let memory = || Memory::gtt(device, 4096);
        let arguments = [memory()?, memory()?, memory()?];
        let words: Vec<u8> = arguments
            .iter()
            .flat_map(|memory| memory.address().to_le_bytes())
            .collect();
        let (launch, done) = (gpu.launch("tick", GROUP, &words)?, gpu.signal()?);
        let other = idle_queue(device)?;
        let queue = kfd_aql::Queue::new(device, 64)?;
        launch.submit(&queue, &done)?;
        Ok(Self {
            queue,
            other,
            _launch: launch,
            done,
            _arguments: arguments,
        })
    }

    /// What can still be done with it, and with the process's other queue.
    fn tell(self) -> Result<()> {
        let said = |result: kfd::Result<()>| match result {
            Ok(()) => "done".into(),
            Err(error) => error.to_string(),
        };
        let stop = self.queue.kfd_queue().update(0, 7);
        println!("stopping the queue: {}", said(stop));
        let stop = self.other.update(0, 7);
        println!("stopping the other one: {}", said(stop));
        drop(self.queue);
        println!("the queue is gone");
        Ok(())
    }
}

/// An AQL queue with nothing in it, and its memory: the ring and the indices.
fn idle_queue(device: &Arc<Device>) -> Result<Queue> {
    let place = QueueMemory {
        ring: Memory::gtt(device, 0x4000)?.into(),
        ring_size: 0x4000,
        indices: Memory::gtt(device, 4096)?.into(),
        write_index: 0,
        read_index: 0x80,
    };
    Ok(Queue::create(device, QueueKind::Aql, place)?)
}

fn tell(came: &[uapi::kfd_event_data; 2], ids: [u32; 2], device: &Device) -> Result<()> {
    // SAFETY: every member of the union is plain numbers; an event that did not come left zeros.
    let (reset, memory) = unsafe {
        (
            came[0].__bindgen_anon_1.hw_exception_data,
            came[1].__bindgen_anon_1.memory_exception_data,
        )
    };
    ensure!(
        came.iter().map(|data| data.event_id).eq(ids),
        "the events changed places"
    );
    if reset.gpu_id != 0 {
        ensure!(reset.gpu_id == device.gpu_id(), "of GPU {}", reset.gpu_id);
        println!(
            "hardware exception: type {}, cause {}, memory lost {}",
            reset.reset_type, reset.reset_cause, reset.memory_lost
        );
    }
    if memory.gpu_id != 0 {
        ensure!(memory.gpu_id == device.gpu_id(), "of GPU {}", memory.gpu_id);
        println!(
            "memory exception: type {}, imprecise {}",
            memory.ErrorType, memory.failure.imprecise
        );
    }
    Ok(())
}
