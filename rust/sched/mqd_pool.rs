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
        Words,
        PAGE_BYTES, //
    },
    ids::GpuVa,
    kgd::{
        Domain,
        KernelBo, //
        Kgd,
    },
};
use core::{
    cell::Cell,
    ops::Deref, //
};
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

impl SavedSlot {
    /// Whether it is that of the slot at `offset` of a chunk.
    fn is_of(&self, chunk: &Arc<MqdChunk>, offset: usize) -> bool {
        self.offset == offset && Arc::ptr_eq(&self.chunk, chunk)
    }
}

/// What is kept of one descriptor.
struct KeptWords<'a>(&'a [Cell<u32>]);

impl Words for KeptWords<'_> {
    fn get(&self, dword: usize) -> u32 {
        self.0.get(dword).map_or(0, Cell::get)
    }

    fn set(&self, dword: usize, value: u32) {
        if let Some(word) = self.0.get(dword) {
            word.set(value);
        }
    }
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

    /// Writes into the `xcc`th XCC's descriptor: `write` is called with its words, and with what is
    /// kept of them while the device sleeps, if anything is, for that is what comes back. Takes
    /// `MqdPool.saved`.
    pub(crate) fn write(&self, xcc: u32, write: impl Fn(&dyn Words)) -> Result {
        let InMqdPool { chunk, pool } = &self.chunk;
        let mut saved = pool.saved.lock();
        write(&self.mqd(xcc)?.0);
        let kept = saved
            .iter_mut()
            .find(|kept| kept.is_of(chunk, self.offset(0)));
        // CAST: a node has few XCCs.
        let first = self.stride * xcc as usize / size_of::<u32>();
        if let Some(words) = kept.and_then(|kept| kept.words.get_mut(first..)) {
            write(&KeptWords(Cell::from_mut(words).as_slice_of_cells()));
        }
        Ok(())
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
    /// changes one until this returns. `anew`: else a sleep before has not come to its end, and
    /// what it has kept stays so; of a queue that was made since there is nothing yet.
    ///
    /// What is kept is that of who has the place: a queue that is made drops it
    /// ([`MqdPool::take`]), and one that is changed has it changed ([`MqdSlot::write`]).
    pub(super) fn save(&self, anew: bool) -> Result {
        if anew {
            let before = core::mem::replace(&mut *self.saved.lock(), KVec::new());
            drop(before);
        }
        let mut saved = KVec::new();
        if self.in_vram {
            for chunk in self.chunks.lock().iter() {
                for slot in (0..chunk.count).filter(|&slot| !chunk.slots.is_free(slot)) {
                    let offset = slot * self.slot_bytes();
                    let is_kept = |kept: &SavedSlot| kept.is_of(chunk, offset);
                    if self.saved.lock().iter().any(is_kept) {
                        continue;
                    }
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
        // Nobody else adds to them.
        let kept = self.saved.lock().len();
        saved.reserve(kept, GFP_KERNEL)?;
        let mut all = self.saved.lock();
        core::mem::swap(&mut *all, &mut saved);
        while let Some(slot) = saved.pop() {
            all.push_within_capacity(slot).map_err(|_| ENOMEM)?;
        }
        Ok(())
    }

    /// Brings back what was kept, for the GPU to read. Where it was of a queue that is gone, nobody
    /// uses the place. Tasks may run: who takes it, or changes a queue, does so before its
    /// words are back or afterwards.
    pub(super) fn restore(&self) -> Result {
        let mut any = false;
        loop {
            let mut saved = self.saved.lock();
            let Some(slot) = saved.pop() else { break };
            slot.chunk.bo.write_dwords(slot.offset, &slot.words)?;
            drop(saved);
            // Dropped with nothing locked: the chunk may go with it.
            drop(slot);
            any = true;
        }
        if any {
            self.kgd.flush_hdp();
        }
        Ok(())
    }

    /// Shows the descriptors of all queues. Others take and give back places meanwhile: memory is
    /// read, over the bus, with nothing locked.
    pub(super) fn show(&self, words: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for number in 0.. {
            let Some(chunk) = self.chunks.lock().get(number).cloned() else {
                break;
            };
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

    /// Nothing is kept of a slot any more: what was is returned, to be dropped with nothing locked.
    fn forget(&self, slot: &MqdSlot) -> Option<SavedSlot> {
        let mut saved = self.saved.lock();
        let mut all = saved.iter();
        let place = all.position(|kept| kept.is_of(&slot.chunk.chunk, slot.offset(0)))?;
        saved.remove(place).ok()
    }

    /// Takes room for a queue, with what one before it may have left there.
    pub(crate) fn take(self: &Arc<Self>) -> Result<MqdSlot> {
        let chunks = self.chunks.lock();
        if let Some(slot) = chunks.iter().find_map(|chunk| self.slot_in(chunk)) {
            // Under that lock: who keeps what queues have finds the place without, or free.
            let former = self.forget(&slot);
            drop(chunks);
            drop(former);
            return Ok(slot);
        }
        drop(chunks);
        let chunk = self.new_chunk()?;
        // Before anybody else knows of the chunk.
        let slot = self.slot_in(&chunk).ok_or(ENOMEM)?;
        self.chunks.lock().push(chunk, GFP_KERNEL)?;
        Ok(slot)
    }
}

/// For tests.
#[cfg(CONFIG_KUNIT = "y")]
impl MqdPool {
    /// Whoever saves waits until what this returns is dropped.
    pub(crate) fn keep_from_saving(&self) -> impl Sized + '_ {
        self.chunks.lock()
    }

    /// The power goes.
    pub(crate) fn lose(&self) -> Result {
        for chunk in self.chunks.lock().iter() {
            chunk.bo.fill(0, chunk.count * self.slot_bytes(), 0xff)?;
        }
        Ok(())
    }
}

#[kernel::macros::kunit_tests(amdkfd_sched_mqd_pool)]
mod tests {
    use super::*;
    use crate::{
        gfx::{
            testing::{mi300x_as, MI300X},
            ChipFacts, //
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
        pool.save(true).unwrap();
        pool.lose().unwrap();
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
    fn what_is_kept_is_that_of_who_has_the_place() {
        let fake = Fake::new().unwrap();
        let pool = pool(&fake);
        let mark = |slot: &MqdSlot| slot.mqd(5).unwrap().0.get(7);
        let set = |slot: &MqdSlot, number| {
            slot.write(5, |words| words.set(7, number)).unwrap();
        };
        let [first, second, third] = [1, 2, 3].map(|number| {
            let slot = pool.take().unwrap();
            set(&slot, number);
            slot
        });
        pool.save(true).unwrap();
        pool.lose().unwrap();
        // The device has not come back, but tasks run: a queue goes, others are made or changed.
        drop(first);
        let [again, more] = [9, 4].map(|number| {
            let slot = pool.take().unwrap();
            set(&slot, number);
            slot
        });
        assert_eq!(
            (again.offset(0), more.offset(0)),
            (0, 3 * pool.slot_bytes())
        );
        set(&second, 20);
        // It sleeps once more.
        pool.save(false).unwrap();
        pool.lose().unwrap();
        pool.restore().unwrap();
        let marks = [&again, &second, &third, &more].map(mark);
        assert_eq!(marks, [9, 20, 3, 4]);
        // Of another sleep nothing is left of that.
        set(&second, 21);
        pool.save(true).unwrap();
        set(&second, 22);
        pool.save(true).unwrap();
        pool.lose().unwrap();
        pool.restore().unwrap();
        assert_eq!((mark(&second), mark(&third)), (22, 3));
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
