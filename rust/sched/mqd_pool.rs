// SPDX-License-Identifier: GPL-2.0-only

//! Room for the descriptors of a node's compute queues.
//!
//! A descriptor and the control stack behind it, for all XCCs, are of one size on a node. They are
//! cut from large buffers that the pool allocates as needed and keeps until the node goes. One pool
//! per node, owned by its `NodeQueues`; a queue owns its [`MqdSlot`].

use super::{
    dump::dump,
    memory::BoWindow,
    slots::{
        SlotGuard,
        Slots, //
    },
    Descriptor, //
};
use crate::{
    gfx::{
        MqdFormat,
        PAGE_BYTES, //
    },
    ids::GpuVa,
    kgd::{
        Domain,
        KernelBo, //
        Kgd,
    },
};
use core::ops::Deref;
use kernel::{
    fmt, new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// Bytes of a buffer that descriptors are cut from: a large page of the GPU.
const CHUNK_BYTES: usize = 2 << 20;

/// A buffer and which parts of it are free.
struct MqdChunk {
    bo: Arc<KernelBo>,
    slots: Slots<1>,
    count: usize,
}

/// A chunk that a slot keeps alive.
struct InMqdChunk(Arc<MqdChunk>);

impl Deref for InMqdChunk {
    type Target = Slots<1>;

    fn deref(&self) -> &Slots<1> {
        &self.0.slots
    }
}

/// Room for one queue's descriptors.
pub(crate) struct MqdSlot {
    place: SlotGuard<InMqdChunk, 1>,
    chunk: Arc<MqdChunk>,
    bytes: usize,
    stride: usize,
}

impl MqdSlot {
    fn offset(&self, xcc: u32) -> usize {
        self.place.index() * self.bytes + self.stride * xcc as usize
    }

    /// Where the CPU finds the descriptors.
    pub(crate) fn descriptor(&self) -> Descriptor {
        Descriptor {
            bo: self.chunk.bo.clone(),
            offset: self.offset(0),
            stride: self.stride,
        }
    }

    /// Bytes from one XCC's descriptor to the next one's.
    pub(crate) fn stride(&self) -> u32 {
        // CAST: a fraction of a chunk, which is 2 MiB, or one queue's own buffer.
        self.stride as u32
    }

    /// The words of the `xcc`th XCC's descriptor and where the GPU finds them.
    pub(crate) fn mqd(&self, xcc: u32) -> Result<(BoWindow<'_>, GpuVa)> {
        let offset = self.offset(xcc);
        let va = self.chunk.bo.gpu_va().checked_add(offset as u64);
        Ok((BoWindow::new(&self.chunk.bo, offset), va.ok_or(EINVAL)?))
    }

    /// The words of the control stack behind the `xcc`th XCC's descriptor.
    pub(crate) fn control_stack(&self, xcc: u32) -> BoWindow<'_> {
        BoWindow::new(&self.chunk.bo, self.offset(xcc) + PAGE_BYTES as usize)
    }
}

/// The pool.
#[pin_data]
pub(crate) struct MqdPool {
    kgd: Arc<dyn Kgd>,
    stride: usize,
    xccs: u32,
    #[pin]
    chunks: Mutex<KVec<Arc<MqdChunk>>>,
}

impl MqdPool {
    /// An empty pool for queues with `control_stack` bytes of control stack on each of `xccs`.
    pub(crate) fn new(
        kgd: Arc<dyn Kgd>,
        format: &dyn MqdFormat,
        control_stack: u32,
        xccs: u32,
    ) -> Result<Arc<Self>> {
        let stride = format.stride(control_stack);
        Arc::pin_init(
            pin_init!(Self {
                kgd,
                stride,
                xccs,
                chunks <- new_mutex!(KVec::new(), "MqdPool.chunks"),
            }),
            GFP_KERNEL,
        )
    }

    fn slot_bytes(&self) -> usize {
        self.stride * self.xccs as usize
    }

    /// Whether descriptors lie in the GPU's own memory. If CPU and GPU share theirs, they do not.
    pub(crate) fn in_vram(&self) -> bool {
        !self.kgd.facts().is_app_apu
    }

    fn new_chunk(&self) -> Result<Arc<MqdChunk>> {
        let (bytes, slots, domain) = if self.in_vram() {
            let slots = (CHUNK_BYTES / self.slot_bytes()).clamp(1, 64);
            (slots * self.slot_bytes(), slots, Domain::Vram)
        } else {
            // In system memory the page tables tell descriptor and control stack apart,
            // buffer-wise.
            (self.slot_bytes(), 1, Domain::Gtt)
        };
        let bo = KernelBo::new(self.kgd.clone(), bytes, domain, !self.in_vram())?;
        let chunk = MqdChunk {
            bo: Arc::new(bo, GFP_KERNEL)?,
            slots: Slots::new(slots),
            count: slots,
        };
        Ok(Arc::new(chunk, GFP_KERNEL)?)
    }

    fn slot_in(&self, chunk: &Arc<MqdChunk>) -> Option<MqdSlot> {
        Some(MqdSlot {
            place: Slots::take(InMqdChunk(chunk.clone()))?,
            chunk: chunk.clone(),
            bytes: self.slot_bytes(),
            stride: self.stride,
        })
    }

    /// Shows the descriptors of all queues.
    pub(super) fn show(&self, words: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.chunks.lock().iter() {
            for slot in (0..chunk.count).filter(|&slot| !chunk.slots.is_free(slot)) {
                for xcc in 0..self.xccs as usize {
                    writeln!(f, "  Compute queue, XCC {xcc}")?;
                    let offset = slot * self.slot_bytes() + xcc * self.stride;
                    dump(f, "    ", &BoWindow::new(&chunk.bo, offset), words)?;
                }
            }
        }
        Ok(())
    }

    /// Takes room for a queue, with what one before it may have left there.
    pub(crate) fn take(&self) -> Result<MqdSlot> {
        let found = self
            .chunks
            .lock()
            .iter()
            .find_map(|chunk| self.slot_in(chunk));
        if let Some(slot) = found {
            return Ok(slot);
        }
        let chunk = self.new_chunk()?;
        // Before anybody else knows of the chunk.
        let slot = self.slot_in(&chunk).ok_or(ENOMEM)?;
        self.chunks.lock().push(chunk, GFP_KERNEL)?;
        Ok(slot)
    }
}
