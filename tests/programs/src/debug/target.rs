// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Target`]: a debugged process's steps.
//!
//! ```text
//! acquire [GPU]           acquires the VM of a GPU, by its place in the topology
//! runtime on|off|ttmp     RUNTIME_ENABLE
//! handler                 installs a trap handler that tells the driver
//! queue aql|raw|pm4|sdma [gpu=]   creates a queue; a raw one takes packets of AQL, no kernels
//! hold QUEUE              dispatches a kernel that counts until it is told to end
//! raise QUEUE WHAT        dispatches one that does that first (userspace/kernels/tests.cl)
//! release QUEUE           tells the kernel to end
//! finish QUEUE            the same, and looks at what it wrote
//! moves, stands QUEUE     whether the kernel counts
//! bad QUEUE HEADER        puts a packet with that header into a raw queue's ring, and rings
//! header QUEUE            the header of the queue's save area
//! listen QUEUE            names an event and a word for the queue's exceptions
//! payload, silent QUEUE   whether the event came, or comes soon, and the word
//! fault                   makes an event of memory faults
//! faulted [soon]          whether it came, and with what; soon: waits for it
//! stop, start QUEUE       UPDATE_QUEUE to no share of the time, or all of it
//! destroy QUEUE           DESTROY_QUEUE
//! wipe QUEUE              fills the header of the queue's save area with ones
//! entry KERNEL            the address of its first instruction
//! places QUEUE            where its kernel's words lie: the flag, what it counts, what it writes
//! mask QUEUE WORD         SET_CU_MASK to 32 times that word
//! saved QUEUE             GET_QUEUE_WAVE_STATE
//! ```

use super::player::outcome;
use super::words::Words;
use crate::raw::ioctl;
use crate::running::{moves, PATIENCE};
use crate::waves::{Gpu, GROUP};
use anyhow::{bail, ensure, Context, Result};
use kfd::{topology, Device, Event, EventKind, Kfd, Memory, QueueKind, QueueMemory};
use kfd_aql::{Launch, Signal};
use kfd_uapi as uapi;
use rustix::fd::AsFd;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;

/// What the runtime says of itself; no address that a page could have.
const R_DEBUG: u64 = 0xabc;
const RING: usize = 0x4000;
/// What must not come has this long to do so.
const DOES_NOT: Duration = Duration::from_millis(300);
/// TIMEOUT: what comes does so at once, but on a loaded host.
const COMES: Duration = Duration::from_secs(40);
type Header = uapi::kfd_context_save_area_header;

pub struct Target {
    kfd: Arc<Kfd>,
    gpus: Vec<(Gpu, Arc<Device>)>,
    queues: Vec<Queue>,
    fault: Option<Event>,
    events: Option<Signal>,
}

/// A queue, and what it does.
struct Queue {
    id: u32,
    ring: Ring,
    work: Option<Work>,
    listens: Option<(Event, Memory)>,
}

enum Ring {
    Aql(Box<kfd_aql::Queue>),
    Plain(Box<kfd::Queue>),
}

struct Work {
    _launch: Launch,
    done: Signal,
    flag: Memory,
    ticks: Memory,
    out: Memory,
    items: u32,
}

impl Target {
    pub const KNOWS: &[&str] = &[
        "acquire", "runtime", "handler", "queue", "hold", "raise", "finish", "moves", "stands",
        "bad", "header", "wipe", "listen", "payload", "silent", "fault", "faulted", "stop",
        "start", "destroy", "entry", "release", "places", "mask", "saved",
    ];

    pub fn new(kfd: &Arc<Kfd>) -> Self {
        Self {
            kfd: kfd.clone(),
            gpus: Vec::new(),
            queues: Vec::new(),
            fault: None,
            events: None,
        }
    }

    pub fn step(&mut self, words: &Words<'_>) -> Result<String> {
        match words.word(0)? {
            "acquire" => self.acquire(words.number(1).unwrap_or(0) as usize),
            "runtime" => self.runtime(words.word(1)?),
            "handler" => self.handler(),
            "entry" => Ok(format!("0, at {:#x}", self.gpu()?.entry(words.word(1)?)?)),
            "queue" => self.create(words.word(1)?, words.or("gpu", 0)? as usize),
            "hold" => self.dispatch(words, "tick"),
            "raise" => self.dispatch(words, "raise"),
            "fault" => self.listen_for_faults(),
            "faulted" => self.faulted(match words.word(1) {
                Ok("soon") => COMES,
                _ => DOES_NOT,
            }),
            verb => {
                let id = words.number(1)? as u32;
                let at = self.queues.iter().position(|queue| queue.id == id);
                match (verb, at) {
                    ("destroy", at) => self.destroy(id, at),
                    ("listen", Some(at)) => self.listen(at),
                    (_, Some(at)) => self.queues[at].step(&self.kfd, verb, words),
                    (_, None) => bail!("there is no queue {id}"),
                }
            }
        }
    }

    fn gpu(&self) -> Result<&Gpu> {
        Ok(&self.gpus.first().context("no GPU is acquired")?.0)
    }

    fn device(&self) -> Result<&Arc<Device>> {
        Ok(&self.gpus.first().context("no GPU is acquired")?.1)
    }

    fn acquire(&mut self, at: usize) -> Result<String> {
        let nodes = topology::gpus()?;
        let device = Device::acquire(&self.kfd, nodes.get(at).context("no such GPU")?)?;
        // One page of events is the process's.
        let gpu = match self.gpus.first() {
            Some((first, _)) => first.beside(device.clone(), 16)?,
            None => Gpu::on(device.clone(), 16)?,
        };
        self.gpus.push((gpu, device));
        Ok("0".into())
    }

    fn runtime(&self, mode: &str) -> Result<String> {
        let mut args = uapi::kfd_ioctl_runtime_enable_args {
            r_debug: R_DEBUG,
            mode_mask: match mode {
                "off" => 0,
                "on" => uapi::KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK,
                _ => {
                    uapi::KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK
                        | uapi::KFD_RUNTIME_ENABLE_MODE_TTMP_SAVE_MASK
                }
            },
            ..Default::default()
        };
        Ok(outcome(ioctl(
            self.kfd.as_fd(),
            uapi::IOC_RUNTIME_ENABLE,
            &mut args,
        )))
    }

    fn handler(&self) -> Result<String> {
        self.device()?
            .set_trap_handler(self.gpu()?.entry("on_trap")?, 0)?;
        Ok("0".into())
    }

    fn create(&mut self, kind: &str, gpu: usize) -> Result<String> {
        let (_, device) = self.gpus.get(gpu).context("that GPU is not acquired")?;
        let plain = |kind| -> Result<(u32, Ring)> {
            let memory = QueueMemory {
                ring: Memory::gtt(device, RING)?.into(),
                ring_size: RING as u32,
                indices: Memory::gtt(device, 4096)?.into(),
                write_index: 0,
                read_index: 0x80,
            };
            let queue = kfd::Queue::create(device, kind, memory)?;
            Ok((queue.id(), Ring::Plain(Box::new(queue))))
        };
        let (id, ring) = match kind {
            "aql" => {
                let queue = kfd_aql::Queue::new(device, 64)?;
                (queue.id(), Ring::Aql(Box::new(queue)))
            }
            "raw" => plain(QueueKind::Aql)?,
            "pm4" => plain(QueueKind::Pm4)?,
            "sdma" => plain(QueueKind::Sdma)?,
            _ => bail!("no queue is {kind}"),
        };
        let address = ring.memory().address();
        self.queues.push(Queue {
            id,
            ring,
            work: None,
            listens: None,
        });
        Ok(format!("{id}, ring {address:#x}"))
    }

    fn destroy(&mut self, queue_id: u32, at: Option<usize>) -> Result<String> {
        let mut args = uapi::kfd_ioctl_destroy_queue_args {
            queue_id,
            ..Default::default()
        };
        let done = ioctl(self.kfd.as_fd(), uapi::IOC_DESTROY_QUEUE, &mut args);
        if let (Ok(()), Some(at)) = (done, at) {
            // Its memory; there is no queue of this id any more.
            self.queues.remove(at);
        }
        Ok(outcome(done))
    }

    fn dispatch(&mut self, words: &Words<'_>, kernel: &str) -> Result<String> {
        let id = words.number(1)? as u32;
        let device = self.device()?.clone();
        let memory = || Memory::gtt(&device, 4096);
        let (flag, ticks, out) = (memory()?, memory()?, memory()?);
        for memory in [&flag, &ticks] {
            memory.write(0, &[0u32]);
        }
        let gpu = self.gpu()?;
        let (items, arguments) = match kernel {
            "tick" => (GROUP, vec![flag.address(), ticks.address(), out.address()]),
            // The third is where nothing lies; the last has 32 bits.
            _ => (
                64,
                vec![flag.address(), out.address(), 1 << 45, words.number(2)?],
            ),
        };
        let mut arguments: Vec<u8> = arguments.into_iter().flat_map(u64::to_le_bytes).collect();
        arguments.truncate(28);
        let launch = gpu.launch_in(kernel, items, items, &arguments)?;
        let done = gpu.signal()?;
        let queue = self.queues.iter_mut().find(|queue| queue.id == id);
        let queue = queue.with_context(|| format!("there is no queue {id}"))?;
        let Ring::Aql(ring) = &queue.ring else {
            bail!("queue {id} takes no kernels")
        };
        launch.submit(ring, &done)?;
        queue.work = Some(Work {
            _launch: launch,
            done,
            flag,
            ticks,
            out,
            items,
        });
        Ok("0".into())
    }

    /// An event of the process's page of events, which the signals have.
    fn event(&mut self, kind: EventKind) -> Result<Event> {
        if self.events.is_none() {
            self.events = Some(self.gpu()?.signal()?);
        }
        let signal = self.events.as_ref().context("it was made")?;
        Ok(Event::new(signal.event().events(), kind, false)?)
    }

    fn listen(&mut self, at: usize) -> Result<String> {
        let event = self.event(EventKind::Signal)?;
        let word = Memory::gtt(self.device()?, 4096)?;
        word.write(0, &[0u64]);
        let queue = &mut self.queues[at];
        let area = queue.ring.save_area()?;
        area.write(offset_of!(Header, err_payload_addr), &[word.address()]);
        area.write(offset_of!(Header, err_event_id), &[event.id()]);
        queue.listens = Some((event, word));
        Ok("0".into())
    }

    fn listen_for_faults(&mut self) -> Result<String> {
        self.fault = Some(self.event(EventKind::Memory)?);
        Ok("0".into())
    }

    fn faulted(&self, limit: Duration) -> Result<String> {
        let event = self.fault.as_ref().context("nobody listens")?;
        let mut data = uapi::kfd_event_data {
            event_id: event.id(),
            ..Default::default()
        };
        let mut args = uapi::kfd_ioctl_wait_events_args {
            events_ptr: std::ptr::from_mut(&mut data) as u64,
            num_events: 1,
            timeout: limit.as_millis() as u32,
            ..Default::default()
        };
        ioctl(self.kfd.as_fd(), uapi::IOC_WAIT_EVENTS, &mut args)?;
        if args.wait_result != uapi::KFD_IOC_WAIT_RESULT_COMPLETE {
            return Ok("nothing".into());
        }
        // SAFETY: every member of the union is plain numbers.
        let fault = unsafe { data.__bindgen_anon_1.memory_exception_data };
        Ok(format!(
            "at {:x}, not present {}, read only {}, imprecise {}",
            fault.va, fault.failure.NotPresent, fault.failure.ReadOnly, fault.failure.imprecise
        ))
    }
}

impl Ring {
    fn queue(&self) -> &kfd::Queue {
        match self {
            Ring::Aql(queue) => queue.kfd_queue(),
            Ring::Plain(queue) => queue,
        }
    }

    fn memory(&self) -> &Memory {
        match self {
            Ring::Aql(queue) => queue.packets(),
            Ring::Plain(queue) => &queue.memory().ring,
        }
    }

    fn save_area(&self) -> Result<&Memory> {
        self.queue().save_area().context("it has no save area")
    }
}

impl Queue {
    fn step(&mut self, kfd: &Kfd, verb: &str, words: &Words<'_>) -> Result<String> {
        match verb {
            "finish" => self.finish(),
            "release" => {
                self.work()?.flag.write(0, &[1u32]);
                Ok("0".into())
            }
            "moves" => Ok(self.counts(true)?.to_string()),
            "stands" => Ok((!self.counts(false)?).to_string()),
            "bad" => self.bad(words.number(2)? as u32),
            "header" => self.header(),
            "wipe" => {
                self.ring.save_area()?.write(0, &[u32::MAX; 4]);
                Ok("0".into())
            }
            "payload" => self.payload(COMES),
            "silent" => self.payload(DOES_NOT),
            "places" => self.places(),
            "mask" => Ok(self.cu_mask(kfd, words.number(2)? as u32)),
            "saved" => self.saved(kfd),
            "stop" => Ok(self.share(kfd, 0)),
            "start" => Ok(self.share(kfd, uapi::KFD_MAX_QUEUE_PERCENTAGE)),
            _ => bail!("no step is called {verb}"),
        }
    }

    fn work(&self) -> Result<&Work> {
        self.work.as_ref().context("no kernel runs")
    }

    fn finish(&mut self) -> Result<String> {
        let work = self.work.take().context("no kernel runs")?;
        let told = work.flag.read::<u32>(0, 1)[0] != 0;
        ensure!(
            told || work.done.load() == 1,
            "the kernel ended before it was told"
        );
        work.flag.write(0, &[1u32]);
        work.done.wait(PATIENCE)?;
        let right: Vec<u32> = (0..work.items).map(|item| item * 3 + 1).collect();
        let got = work.out.read::<u32>(0, work.items as usize);
        Ok(if got == right {
            "right"
        } else {
            "wrong results"
        }
        .into())
    }

    /// Whether the kernel counts; that it does not is seen after a while.
    fn counts(&self, it_should: bool) -> Result<bool> {
        let ticks = &self.work()?.ticks;
        let read = || ticks.read::<u32>(0, 1)[0];
        if it_should {
            return Ok(moves(read));
        }
        let before = read();
        std::thread::sleep(DOES_NOT);
        Ok(read() != before)
    }

    fn bad(&self, header: u32) -> Result<String> {
        let Ring::Plain(queue) = &self.ring else {
            bail!("it is no raw queue")
        };
        queue.memory().ring.write(0, &[header]);
        queue.memory().indices.write(0, &[1u64]);
        queue.ring_doorbell(0);
        Ok("0".into())
    }

    fn header(&self) -> Result<String> {
        let words = self.ring.save_area()?.read::<u32>(0, 6);
        let [stack, stack_bytes, waves, wave_bytes, debug, debug_bytes] = words[..] else {
            bail!("six words")
        };
        Ok(format!(
            "control stack {stack:#x} + {stack_bytes:#x}, waves {waves:#x} + {wave_bytes:#x}, \
            debugger's {debug:#x} + {debug_bytes:#x}"
        ))
    }

    fn payload(&self, limit: Duration) -> Result<String> {
        let (event, word) = self.listens.as_ref().context("nobody listens")?;
        let came = event.wait(Some(limit))?;
        let codes = word.read::<u64>(0, 1)[0];
        Ok(format!(
            "told {came}, {}",
            super::words::show_exceptions(codes)
        ))
    }

    fn places(&self) -> Result<String> {
        let Work {
            flag, ticks, out, ..
        } = self.work()?;
        let [flag, ticks, out] = [flag, ticks, out].map(Memory::address);
        Ok(format!("flag {flag:#x}, ticks {ticks:#x}, out {out:#x}"))
    }

    fn cu_mask(&self, kfd: &Kfd, word: u32) -> String {
        let mask = [word; 32];
        let mut args = uapi::kfd_ioctl_set_cu_mask_args {
            queue_id: self.id,
            num_cu_mask: 32 * mask.len() as u32,
            cu_mask_ptr: mask.as_ptr() as u64,
        };
        outcome(ioctl(kfd.as_fd(), uapi::IOC_SET_CU_MASK, &mut args))
    }

    fn saved(&self, kfd: &Kfd) -> Result<String> {
        let mut args = uapi::kfd_ioctl_get_queue_wave_state_args {
            queue_id: self.id,
            ctl_stack_address: self.ring.save_area()?.address(),
            ..Default::default()
        };
        let done = ioctl(kfd.as_fd(), uapi::IOC_GET_QUEUE_WAVE_STATE, &mut args);
        Ok(format!(
            "{}, control stack {}, waves {}",
            outcome(done),
            args.ctl_stack_used_size,
            args.save_area_used_size
        ))
    }

    fn share(&self, kfd: &Kfd, percentage: u32) -> String {
        let ring = self.ring.memory();
        let mut args = uapi::kfd_ioctl_update_queue_args {
            queue_id: self.id,
            ring_base_address: ring.address(),
            ring_size: ring.size() as u32,
            queue_percentage: percentage,
            queue_priority: 7,
        };
        outcome(ioctl(kfd.as_fd(), uapi::IOC_UPDATE_QUEUE, &mut args))
    }
}
