// SPDX-License-Identifier: GPL-2.0-only

//! Queue slots of the fake: bits.

use super::*;

impl Fake {
    /// The rings of the queues in these slots, 8 a pipe, are below 1 TiB.
    pub(crate) fn set_low_rings(&self, slots: u64) {
        self.live.lock().low_rings = slots;
    }

    /// None. `EBUSY`: who asks keeps a reset from beginning, and this allocates.
    fn registers(&self) -> Result<KVec<Register>> {
        let live = self.live.lock();
        match (live.in_reset, live.reset_locks) {
            (true, _) => Err(EIO),
            (false, 0) => Ok(KVec::new()),
            (false, _) => Err(EBUSY),
        }
    }

    /// A copy queue stays in slot `queue` of `engine`; it can be reset.
    pub(crate) fn set_stuck_copy(
        &self,
        (engine, queue): (u32, u32),
        doorbell: u32,
        resettable: bool,
    ) {
        let mut live = self.live.lock();
        live.stuck_copy = Some((engine, queue, doorbell));
        live.resettable = resettable;
    }

    /// There are queues in these slots.
    pub(crate) fn occupy(&self, slots: u64) {
        self.live.lock().slots |= slots;
    }
}

impl QueueSlots for Fake {
    fn bind_vmid(&self, binding: &VmidBinding, _xcc_mask: u32) -> Result {
        self.live.lock().vmids |= 1 << binding.vmid.raw();
        Ok(())
    }

    fn unbind_vmid(&self, vmid: Vmid, _xcc_mask: u32) {
        self.live.lock().vmids &= !(1 << vmid.raw());
    }

    fn move_page_directory(&self, _vmid: Vmid, directory: u64, _xcc_mask: u32) {
        self.live.lock().moved_to = directory;
    }

    fn kill_waves(&self, _vmid: Vmid, _xcc_mask: u32) {}

    fn load_queue(
        &self,
        _mqd: &RawKernelBo,
        _offset: usize,
        position: HqdPosition,
        _write_pointer: UserVa,
        _xcc: u32,
    ) -> Result {
        self.live.lock().slots |= slot_bit(position);
        Ok(())
    }

    fn unload_queue(
        &self,
        _mqd: &RawKernelBo,
        _offset: usize,
        position: HqdPosition,
        preempt: Preempt,
        _xcc: u32,
    ) -> Result {
        let mut live = self.live.lock();
        live.last_preempt = Some(preempt);
        if live.stuck {
            return Err(Error::from_errno(-(kernel::bindings::ETIME as i32)));
        }
        live.slots &= !slot_bit(position);
        Ok(())
    }

    fn ring_in_slot(&self, position: HqdPosition, _xcc: u32) -> Option<GpuVa> {
        let live = self.live.lock();
        let seen = live.slots & !live.low_rings & slot_bit(position) != 0;
        GpuVa::new(RING).filter(|_| seen)
    }

    fn slot_is_active(&self, position: HqdPosition, _xcc: u32) -> bool {
        let live = self.live.lock();
        (live.slots | live.hiq_slots) & slot_bit(position) != 0
    }

    fn slot_registers(&self, _position: HqdPosition, _xcc: u32) -> Result<KVec<Register>> {
        self.registers()
    }

    fn sdma_registers(&self, _engine: u32, _queue: u32) -> Result<KVec<Register>> {
        self.registers()
    }

    fn copy_doorbell(&self, engine: u32, queue: u32) -> Option<u32> {
        let mut live = self.live.lock();
        live.copy_looks += 1;
        let (at_engine, at_queue, doorbell) = live.stuck_copy?;
        (at_engine == engine && at_queue == queue).then_some(doorbell)
    }

    fn reset_copy_engine(&self, engine: u32) -> Result {
        let mut live = self.live.lock();
        if !live.resettable {
            return Err(errno::unsupported());
        }
        live.copy_resets |= 1 << engine;
        live.stuck_copy.take_if(|(stuck, ..)| *stuck == engine);
        Ok(())
    }

    fn reset_slot(&self, position: HqdPosition, _xcc: u32) -> Option<GpuVa> {
        let mut live = self.live.lock();
        if !live.resettable || live.low_rings & slot_bit(position) != 0 {
            return None;
        }
        live.slots &= !slot_bit(position);
        GpuVa::new(RING)
    }

    fn load_sdma(
        &self,
        _vm: &VmHandle,
        _mqd: &RawKernelBo,
        _offset: usize,
        _write_pointer: UserVa,
    ) -> Result {
        let mut live = self.live.lock();
        if live.is_foreign {
            return Err(EAGAIN);
        }
        live.copy_queues += 1;
        Ok(())
    }

    fn unload_sdma(&self, _mqd: &RawKernelBo, _offset: usize) -> Result {
        self.live.lock().copy_queues -= 1;
        Ok(())
    }
}

/// The ring of whatever queue is in a slot.
const RING: u64 = 0x7f00_0000_0000;

pub(super) fn slot_bit(position: HqdPosition) -> u64 {
    1u64.checked_shl(position.pipe * 8 + position.queue)
        .unwrap_or(0)
}
