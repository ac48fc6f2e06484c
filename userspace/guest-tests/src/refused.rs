// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a runtime learns of packets that the command processor refuses. Both drivers must tell the
//! same.

use anyhow::{Context, Result};
use kfd::{topology, Device, Event, EventKind, Events, Kfd, Memory, Queue, QueueKind, QueueMemory};
use kfd_uapi as uapi;
use std::mem::offset_of;
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

/// Says what came of each bad packet, without a runtime and with one.
pub fn run() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    let device = Device::acquire(&kfd, nodes.first().context("no GPU")?)?;
    let events = Events::new(&device)?;
    let send = |packet| Bad::send(&device, &events, QueueKind::Aql, packet);
    send(AGENT_DISPATCH)?.tell("no runtime", DOES_NOT)?;
    let runtime = kfd.enable_runtime(0x1000, false)?;
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

/// A queue with a bad packet, and where its exception is reported.
struct Bad {
    /// Gone before what it uses.
    _queue: Queue,
    event: Event,
    payload: Memory,
    _memory: [Memory; 2],
}

impl Bad {
    /// Makes a queue that names an event and a word in its save area, and sends it the packet.
    fn send(
        device: &Arc<Device>,
        events: &Arc<Events>,
        kind: QueueKind,
        packet: u32,
    ) -> Result<Self> {
        let (ring, indices) = (Memory::gtt(device, RING)?, Memory::gtt(device, 4096)?);
        let place = QueueMemory {
            ring: ring.address(),
            ring_size: RING as u32,
            write_index: indices.address(),
            read_index: indices.address() + 0x80,
        };
        let payload = Memory::gtt(device, 4096)?;
        let event = Event::new(events, EventKind::Signal, false)?;
        let queue = Queue::create(device, kind, place)?;
        let area = queue.save_area().context("no save area")?;
        let at = offset_of!(uapi::kfd_context_save_area_header, err_payload_addr);
        area.write(at, &[payload.address()]);
        let at = offset_of!(uapi::kfd_context_save_area_header, err_event_id);
        area.write(at, &[event.id()]);
        ring.write(0, &[packet]);
        // AQL counts packets, and the last one rings; PM4 counts dwords, of which this packet has
        // two.
        let (written, doorbell) = match kind {
            QueueKind::Aql => (1, 0),
            QueueKind::Pm4 | QueueKind::Sdma => (2, 2),
        };
        indices.write(0, &[written]);
        queue.ring_doorbell(doorbell);
        Ok(Self {
            _queue: queue,
            event,
            payload,
            _memory: [ring, indices],
        })
    }

    /// Waits for the event, and shows the word.
    fn tell(&self, what: &str, limit: Duration) -> Result<()> {
        let came = self.event.wait(Some(limit))?;
        let codes = self.payload.read::<u64>(0, 1)[0];
        println!("{what}: told {came}, exceptions {codes:#x}");
        Ok(())
    }
}
