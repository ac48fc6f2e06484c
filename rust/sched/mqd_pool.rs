// SPDX-License-Identifier: GPL-2.0-only

//! Room for the descriptors of a node's compute queues.
//!
//! A descriptor and the control stack behind it, for all XCCs, are of one size on a node. They are
//! cut from large buffers that the pool allocates as needed. Of those that no queue uses any more
//! it keeps a few. One pool per node, owned by its `NodeQueues` and the slots that it gave; a queue
//! owns its [`MqdSlot`].

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
        Generation,
        MqdDomain,
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
    alloc::KVVec,
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

impl MqdChunk {
    fn is_unused(&self) -> bool {
        self.slots.count_free() == self.count
    }
}

/// A chunk that a slot keeps alive.
struct InMqdChunk(Arc<MqdChunk>);

impl Deref for InMqdChunk {
    type Target = Slots<1>;

    fn deref(&self) -> &Slots<1> {
        &self.0.slots
    }
}

/// What a slot had before the power went.
struct SavedSlot {
    chunk: Arc<MqdChunk>,
    offset: usize,
    words: KVVec<u32>,
}

/// Room for one queue's descriptors. Dropping it may free a buffer: not under a lock that reclaim
/// may take.
pub(crate) struct MqdSlot {
    // Dropped from top to bottom: the place is free when the pool looks at the chunk.
    place: SlotGuard<InMqdChunk, 1>,
    chunk: InMqdPool,
    bytes: usize,
    stride: usize,
}

/// A chunk of a pool's, which looks after the use of it whether to keep it.
struct InMqdPool {
    chunk: Arc<MqdChunk>,
    pool: Arc<MqdPool>,
}

impl Deref for InMqdPool {
    type Target = MqdChunk;

    fn deref(&self) -> &MqdChunk {
        &self.chunk
    }
}

impl Drop for InMqdPool {
    fn drop(&mut self) {
        self.pool.trim(&self.chunk);
    }
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
            copy_slot: None,
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
    in_vram: bool,
    #[pin]
    chunks: Mutex<KVec<Arc<MqdChunk>>>,
    /// See [`MqdPool::save`].
    #[pin]
    saved: Mutex<KVec<SavedSlot>>,
}

impl MqdPool {
    /// An empty pool for queues with `control_stack` bytes of control stack on each of `xccs`.
    pub(crate) fn new(
        kgd: Arc<dyn Kgd>,
        generation: &Generation,
        control_stack: u32,
        xccs: u32,
    ) -> Result<Arc<Self>> {
        let stride = generation.formats.mqd.stride(control_stack);
        let in_vram = generation.chip.mqds == MqdDomain::Vram;
        Arc::pin_init(
            pin_init!(Self {
                kgd,
                stride,
                xccs,
                in_vram,
                chunks <- new_mutex!(KVec::new(), "MqdPool.chunks"),
                saved <- new_mutex!(KVec::new(), "MqdPool.saved"),
            }),
            GFP_KERNEL,
        )
    }

    fn slot_bytes(&self) -> usize {
        self.stride * self.xccs as usize
    }

    /// Whether descriptors lie in the GPU's own memory.
    pub(crate) fn in_vram(&self) -> bool {
        self.in_vram
    }

    fn new_chunk(&self) -> Result<Arc<MqdChunk>> {
        let (bytes, slots, domain) = if self.in_vram {
            let slots = (CHUNK_BYTES / self.slot_bytes()).clamp(1, 64);
            (slots * self.slot_bytes(), slots, Domain::Vram)
        } else {
            // In system memory the page tables tell descriptor and control stack apart,
            // buffer-wise.
            (self.slot_bytes(), 1, Domain::Gtt)
        };
        let bo = KernelBo::new(self.kgd.clone(), bytes, domain, !self.in_vram)?;
        let chunk = MqdChunk {
            bo: Arc::new(bo, GFP_KERNEL)?,
            slots: Slots::new(slots),
            count: slots,
        };
        Ok(Arc::new(chunk, GFP_KERNEL)?)
    }

    fn slot_in(self: &Arc<Self>, chunk: &Arc<MqdChunk>) -> Option<MqdSlot> {
        let place = Slots::take(InMqdChunk(chunk.clone()))?;
        Some(MqdSlot {
            place,
            chunk: InMqdPool {
                chunk: chunk.clone(),
                pool: self.clone(),
            },
            bytes: self.slot_bytes(),
            stride: self.stride,
        })
    }

    /// Frees a chunk that nobody uses any more, if there are others for the next queues.
    fn trim(&self, chunk: &Arc<MqdChunk>) {
        if !chunk.is_unused() {
            return;
        }
        let keeps = (CHUNK_BYTES / (chunk.count * self.slot_bytes()).max(1)).max(1);
        let mut chunks = self.chunks.lock();
        // Slots are taken under this lock: one that is unused now stays so.
        let unused = chunks.iter().filter(|other| other.is_unused()).count();
        let at = chunks.iter().position(|other| Arc::ptr_eq(other, chunk));
        let gone = match at {
            Some(at) if unused > keeps && chunk.is_unused() => chunks.remove(at).ok(),
            _ => None,
        };
        drop(chunks);
        drop(gone);
    }

    /// Keeps what queues have in the GPU's own memory: amdgpu does not save buffers that are
    /// pinned, and the power is about to go. The queues are off the hardware, and nobody makes or
    /// changes one until [`MqdPool::restore`].
    pub(super) fn save(&self) -> Result {
        let mut saved = KVec::new();
        if self.in_vram {
            for chunk in self.chunks.lock().iter() {
                for slot in (0..chunk.count).filter(|&slot| !chunk.slots.is_free(slot)) {
                    let offset = slot * self.slot_bytes();
                    let mut words =
                        KVVec::from_elem(0, self.slot_bytes() / size_of::<u32>(), GFP_KERNEL)?;
                    chunk.bo.read_dwords(offset, &mut words)?;
                    let slot = SavedSlot {
                        chunk: chunk.clone(),
                        offset,
                        words,
                    };
                    saved.push(slot, GFP_KERNEL)?;
                }
            }
        }
        let before = core::mem::replace(&mut *self.saved.lock(), saved);
        drop(before);
        Ok(())
    }

    /// Brings back what was kept, for the GPU to read. What was given back meanwhile nobody uses.
    pub(super) fn restore(&self) -> Result {
        let saved = core::mem::replace(&mut *self.saved.lock(), KVec::new());
        for slot in saved.iter() {
            slot.chunk.bo.write_dwords(slot.offset, &slot.words)?;
        }
        if !saved.is_empty() {
            self.kgd.flush_hdp();
        }
        Ok(())
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
    pub(crate) fn take(self: &Arc<Self>) -> Result<MqdSlot> {
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

/// For tests: whoever saves waits until what this returns is dropped.
#[cfg(CONFIG_KUNIT = "y")]
impl MqdPool {
    pub(crate) fn keep_from_saving(&self) -> impl Sized + '_ {
        self.chunks.lock()
    }
}

#[kernel::macros::kunit_tests(amdkfd_sched_mqd_pool)]
mod tests {
    use super::*;
    use crate::{
        gfx::{
            testing::{mi300x_as, MI300X},
            ChipFacts,
            Words, //
        },
        kgd::fake::Fake, //
    };

    /// 80 CUs of 2,048 waves: a stride of 24 KiB.
    fn pool(fake: &Arc<Fake>) -> Arc<MqdPool> {
        let kgd: &dyn Kgd = &**fake;
        let generation = mi300x_as(&ChipFacts {
            prefers_gtt: kgd.facts().prefers_gtt,
            ..MI300X
        });
        MqdPool::new(fake.clone(), &generation, 20 << 10, 6).unwrap()
    }

    fn apu() -> Arc<Fake> {
        Fake::with(|facts| facts.prefers_gtt = true).unwrap()
    }

    /// Takes so many slots, and gives all of them back.
    fn burst(pool: &Arc<MqdPool>, count: usize) {
        let mut slots = KVec::new();
        for _ in 0..count {
            slots.push(pool.take().unwrap(), GFP_KERNEL).unwrap();
        }
    }

    #[test]
    fn an_apu_that_prefers_system_memory_has_descriptors_there() {
        assert!(pool(&Fake::new().unwrap()).in_vram());
        assert!(!pool(&apu()).in_vram());
        // A GPU in one package with its CPU may have memory of its own.
        let own = Fake::with(|facts| facts.is_app_apu = true).unwrap();
        assert!(pool(&own).in_vram());
    }

    #[test]
    fn of_unused_buffers_few_are_kept() {
        for (fake, kept) in [
            (Fake::new().unwrap(), 1),
            (apu(), CHUNK_BYTES / (6 * (24 << 10))),
        ] {
            let pool = pool(&fake);
            burst(&pool, 200);
            // CAST: some tens.
            assert_eq!(fake.live().bos, kept as u32);
            burst(&pool, 1);
            assert_eq!(fake.live().bos, kept as u32);
            drop(pool);
            assert_eq!(fake.live().bos, 0);
        }
    }

    #[test]
    fn descriptors_outlive_the_memory_that_they_are_in() {
        let fake = Fake::new().unwrap();
        let pool = pool(&fake);
        let slots = [0, 1, 2].map(|_| pool.take().unwrap());
        let mark = |slot: &MqdSlot| slot.mqd(5).unwrap().0.get(7);
        for (slot, number) in slots.iter().zip(1..) {
            slot.mqd(5).unwrap().0.set(7, number);
            slot.control_stack(5).set(1, 10 * number);
        }
        pool.save().unwrap();
        for chunk in pool.chunks.lock().iter() {
            let bytes = chunk.count * pool.slot_bytes();
            chunk.bo.fill(0, bytes, 0xff).unwrap();
        }
        assert_eq!(mark(&slots[0]), u32::MAX);
        pool.restore().unwrap();
        for (slot, number) in slots.iter().zip(1..) {
            assert_eq!(mark(slot), number);
            assert_eq!(slot.control_stack(5).get(1), 10 * number);
        }
        // Once.
        slots[0].mqd(5).unwrap().0.set(7, 9);
        pool.restore().unwrap();
        assert_eq!(mark(&slots[0]), 9);
    }

    #[test]
    fn a_buffer_in_use_is_kept() {
        let fake = Fake::new().unwrap();
        let pool = pool(&fake);
        let first = pool.take().unwrap();
        burst(&pool, 200);
        let before = fake.live().bos;
        let second = pool.take().unwrap();
        assert_eq!(fake.live().bos, before);
        drop((first, second));
        assert_eq!(fake.live().bos, 1);
    }
}
