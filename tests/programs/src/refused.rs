// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a runtime learns of packets that the command processor refuses. Both drivers must tell the
//! same.

use crate::raw;
use anyhow::{Context, Result};
use clap::Args;
use kfd::{topology, Device, Event, EventKind, Events, Kfd, Memory, Queue, QueueKind, QueueMemory};
use kfd_uapi as uapi;
use rustix::fd::OwnedFd;
use rustix::mm::{mmap_anonymous, userfaultfd, MapFlags, ProtFlags, UserfaultfdFlags};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

/// A ring with one packet.
const RING: usize = 0x4000;
/// AGENT_DISPATCH, which no GPU takes.
const AGENT_DISPATCH: u32 = 4;
/// KERNEL_DISPATCH with no dimensions.
const NO_DIMENSIONS: u32 = 2;
/// A PM4 packet of type 3 with an opcode that no GPU has. It has no exception code, and no event.
const UNKNOWN_OPCODE: u32 = 0xc000_fe00;
/// TIMEOUT: generous for a busy host; what comes does so at once.
const COMES: Duration = Duration::from_secs(30);
/// What must not come has this long to do so.
const DOES_NOT: Duration = Duration::from_millis(500);

/// What is sent.
#[derive(Args)]
pub struct Refused {
    /// Keep the word of one queue's exceptions where a userfaultfd that nobody answers would have
    /// to bring it in. C waits for it, for ever.
    #[arg(long)]
    unanswered: bool,
}

impl Refused {
    /// Says what came of each bad packet.
    pub fn run(&self) -> Result<()> {
        match self.unanswered {
            true => unanswered(),
            false => with_and_without_runtime(),
        }
    }
}

/// Without a runtime and with one.
fn with_and_without_runtime() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
    let events = Events::new(&device)?;
    let send = |packet| Bad::send(&device, &events, QueueKind::Aql, packet);
    send(AGENT_DISPATCH)?.tell("no runtime", DOES_NOT)?;
    // SAFETY: every queue's save area names a word of a buffer.
    let runtime = unsafe { kfd.enable_runtime(0x1000, false)? };
    send(AGENT_DISPATCH)?.tell("an agent's dispatch", COMES)?;
    send(NO_DIMENSIONS)?.tell("no dimensions", COMES)?;
    Bad::send(&device, &events, QueueKind::Pm4, UNKNOWN_OPCODE)?.tell("no opcode", DOES_NOT)?;
    let [one, two] = [AGENT_DISPATCH, NO_DIMENSIONS].map(send);
    let (one, two) = (one?, two?);
    two.tell("the second of two queues", COMES)?;
    one.tell("the first of two queues", COMES)?;
    drop(runtime);
    Ok(())
}

/// A runtime whose memory nobody brings in, and one whose memory only the kernel has to.
fn unanswered() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
    let events = Events::new(&device)?;
    // SAFETY: every queue's save area names a word of a buffer, or of a page that is for it alone.
    let _runtime = unsafe { kfd.enable_runtime(0x1000, false)? };
    let send = |payload| Bad::send_to(&device, &events, QueueKind::Aql, AGENT_DISPATCH, payload);
    let (missing, _never_answers) = missing_page()?;
    let lost = send(missing)?;
    println!(
        "a page that nobody brings in: told {}",
        lost.event.wait(Some(DOES_NOT))?
    );
    let fresh = fresh_page()?;
    let came = send(fresh)?.event.wait(Some(COMES))?;
    // SAFETY: the page is this function's own.
    let codes = unsafe { (fresh as *const u64).read_volatile() };
    println!("a page that nobody has touched: told {came}, exceptions {codes:#x}");
    Bad::send(&device, &events, QueueKind::Aql, AGENT_DISPATCH)?.tell("a buffer", COMES)
}

/// The address of a page that is not there yet.
fn fresh_page() -> Result<u64> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping replaces nothing.
    let page = unsafe { mmap_anonymous(null_mut(), 4096, access, MapFlags::PRIVATE)? };
    Ok(page as u64)
}

/// The same of one that never will be, as long as what comes with it is kept.
pub fn missing_page() -> Result<(u64, OwnedFd)> {
    // <linux/userfaultfd.h>: UFFDIO_API, UFFDIO_REGISTER, UFFD_API, UFFDIO_REGISTER_MODE_MISSING
    const API: u32 = 0xc018_aa3f;
    const REGISTER: u32 = 0xc020_aa00;
    const VERSION: u64 = 0xaa;
    const MISSING: u64 = 1;
    let page = fresh_page()?;
    // SAFETY: who touches the page waits, and nobody here does.
    let fault = unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC)? };
    raw::ioctl(&fault, API, &mut [VERSION, 0, 0])?;
    raw::ioctl(&fault, REGISTER, &mut [page, 4096, MISSING, 0])?;
    Ok((page, fault))
}

/// A queue with a bad packet, and where it is told of.
struct Bad {
    _queue: Queue,
    event: Event,
    payload: Option<Memory>,
}

impl Bad {
    /// Makes a queue that names an event and a word in its save area, and sends it the packet.
    fn send(
        device: &Arc<Device>,
        events: &Arc<Events>,
        kind: QueueKind,
        packet: u32,
    ) -> Result<Self> {
        let payload = Memory::gtt(device, 4096)?;
        let sent = Self::send_to(device, events, kind, packet, payload.address())?;
        Ok(Self {
            payload: Some(payload),
            ..sent
        })
    }

    /// The same with a word at `payload`.
    fn send_to(
        device: &Arc<Device>,
        events: &Arc<Events>,
        kind: QueueKind,
        packet: u32,
        payload: u64,
    ) -> Result<Self> {
        let place = QueueMemory {
            ring: Memory::gtt(device, RING)?.into(),
            ring_size: RING as u32,
            indices: Memory::gtt(device, 4096)?.into(),
            write_index: 0,
            read_index: 0x80,
        };
        let event = Event::new(events, EventKind::Signal, false)?;
        let queue = Queue::create(device, kind, place)?;
        let area = queue.save_area().context("no save area")?;
        let at = offset_of!(uapi::kfd_context_save_area_header, err_payload_addr);
        area.write(at, &[payload]);
        let at = offset_of!(uapi::kfd_context_save_area_header, err_event_id);
        area.write(at, &[event.id()]);
        let QueueMemory { ring, indices, .. } = queue.memory();
        ring.write(0, &[packet]);
        // AQL counts packets, and the last one rings; PM4 counts dwords, of which this packet has
        // two.
        let (written, doorbell) = match kind {
            QueueKind::Aql => (1, 0),
            _ => (2, 2),
        };
        indices.write(0, &[written]);
        queue.ring_doorbell(doorbell);
        Ok(Self {
            _queue: queue,
            event,
            payload: None,
        })
    }

    /// Waits for the event, and shows the word.
    fn tell(&self, what: &str, limit: Duration) -> Result<()> {
        let came = self.event.wait(Some(limit))?;
        let payload = self.payload.as_ref().context("the word is elsewhere")?;
        let codes = payload.read::<u64>(0, 1)[0];
        println!("{what}: told {came}, exceptions {codes:#x}");
        Ok(())
    }
}
