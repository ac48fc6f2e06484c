// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What is saved of a process, as text without addresses.

use anyhow::{ensure, Context, Result};
use kfd::Checkpoint;

/// `enum kfd_criu_object_type`.
const QUEUE: u32 = 0;
const EVENT: u32 = 1;

/// Words of a compute queue's descriptor that are addresses, or whose turn it is: the first XCC;
/// the MQD's own, the ring's, the pointers', the end-of-pipe ring's, the save area's.
const ADDRESSES: [usize; 14] = [
    39, 128, 129, 136, 137, 139, 140, 141, 142, 143, 165, 166, 171, 172,
];
/// Those of a copy queue's.
const SDMA_ADDRESSES: [usize; 5] = [1, 2, 8, 9, 22];

/// Bytes that are taken from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(count).context("too short")?;
        self.0 = rest;
        Ok(first)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into()?))
    }

    fn words(&mut self, bytes: u32) -> Result<Vec<u32>> {
        let bytes = self.take(bytes as usize)?.chunks_exact(4);
        Ok(bytes
            .map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]))
            .collect())
    }
}

/// Prints it; `gpu_id` is the GPU's. How many bytes the control stacks are, of which the C driver
/// of 7.3 saves none.
pub fn print(saved: &Checkpoint, gpu_id: u32) -> Result<usize> {
    let own = |id: u32| if id == gpu_id { "own" } else { "other" };
    for device in &saved.devices {
        let (user, actual) = (own(device.user_gpu_id), own(device.actual_gpu_id));
        println!("device: {user} {actual}");
    }
    let mut bytes = Bytes(&saved.private);
    println!("version {}, xnack {}", bytes.u32()?, bytes.u32()?);
    println!("devices' own: {:?}", bytes.take(8 * saved.devices.len())?);
    for buffer in &saved.buffers {
        let (user, number) = (bytes.u64()?, bytes.u32()?);
        let gpus = bytes.words(4 * 65)?;
        let seen: Vec<_> = gpus
            .iter()
            .filter(|it| **it != 0)
            .map(|it| own(*it))
            .collect();
        println!(
            "buffer {number}: {} bytes, flags {:x}, of {}, file {}, at all {}, cookie {:x}, \
             shows {}, restored {}, seen by {seen:?}",
            buffer.size,
            buffer.alloc_flags,
            own(buffer.gpu_id),
            buffer.dmabuf_fd != u32::MAX,
            buffer.addr != 0,
            buffer.offset >> 62,
            user != 0,
            buffer.restored_offset,
        );
    }
    let (mut lines, mut stacks) = (Vec::new(), 0);
    for _ in 0..saved.objects {
        let kind = bytes.u32()?;
        match kind {
            QUEUE => lines.push(queue(&mut bytes, own, &mut stacks)?),
            EVENT => lines.push(event(&mut bytes)?),
            other => lines.push(format!("object of type {other}")),
        }
    }
    ensure!(bytes.0.is_empty(), "{} bytes are left", bytes.0.len());
    // The one driver lists its queues from the last on.
    lines.sort();
    lines.iter().for_each(|line| println!("{line}"));
    Ok(stacks)
}

fn queue(
    bytes: &mut Bytes<'_>,
    own: impl Fn(u32) -> &'static str,
    stacks: &mut usize,
) -> Result<String> {
    bytes.u32()?;
    let (ring, ring_bytes) = (bytes.u64()?, bytes.u64()?);
    let (read, write) = (bytes.u64()?, bytes.u64()?);
    let _offset = bytes.u64()?;
    let (eop, area) = (bytes.u64()?, bytes.u64()?);
    let (gpu, kind, format, id) = (bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?);
    let (priority, percent, doorbell) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
    let (gws, sdma, eop_bytes) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
    let (area_bytes, stack, mqd) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
    bytes.u32()?;
    let words = bytes.words(mqd)?;
    bytes.take(stack as usize)?;
    *stacks += stack as usize;
    let hidden: &[usize] = if kind == 0 {
        &ADDRESSES
    } else {
        &SDMA_ADDRESSES
    };
    let shown = words.iter().enumerate().filter(|(index, word)| {
        let each = if kind == 0 { 512 } else { 128 };
        **word != 0 && !hidden.contains(&(index % each))
    });
    let shown: Vec<_> = shown
        .map(|(index, word)| format!("{index}={word:x}"))
        .collect();
    Ok(format!(
        "queue {id} of {}: kind {kind}, format {format}, priority {priority}, percent {percent}, \
         doorbell {doorbell}, gws {gws}, sdma {sdma}, ring {} of {ring_bytes}, pointers {} {}, \
         eop {} of {eop_bytes}, area {} of {area_bytes}, descriptors {mqd}: {}",
        own(gpu),
        ring != 0,
        read != 0,
        write != 0,
        eop != 0,
        area != 0,
        shown.join(" ")
    ))
}

fn event(bytes: &mut Bytes<'_>) -> Result<String> {
    bytes.u32()?;
    let page = bytes.u64()?;
    let (id, auto, kind, signalled) = (bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?);
    let data = bytes.words(32)?;
    Ok(format!(
        "event {id:x}: page {}, type {kind}, auto {auto}, signalled {signalled}, {data:x?}",
        page as u32
    ))
}
