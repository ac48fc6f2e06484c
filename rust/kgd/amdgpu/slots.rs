// SPDX-License-Identifier: GPL-2.0-only

//! Queue slots of an amdgpu device, for a scheduler without the firmware's.

use super::*;

impl QueueSlots for Amdgpu {
    fn bind_vmid(&self, binding: &VmidBinding, xcc_mask: u32) -> Result {
        let (tba, tma) = binding.trap.unwrap_or_default();
        let raw = c::bridge_vmid {
            vmid: binding.vmid.raw().into(),
            pasid: binding.pasid.raw(),
            sh_mem_config: binding.sh_mem.0,
            sh_mem_bases: binding.sh_mem.1,
            page_directory: binding.page_directory,
            has_trap_handler: binding.trap.is_some(),
            tba,
            tma,
        };
        // SAFETY: By the type invariant, the device is valid.
        to_result(unsafe { c::bridge_vmid_bind(self.adev(), &raw, xcc_mask) })
    }

    fn unbind_vmid(&self, vmid: Vmid, xcc_mask: u32) {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_vmid_unbind(self.adev(), vmid.raw().into(), xcc_mask) };
    }

    fn move_page_directory(&self, vmid: Vmid, directory: u64, xcc_mask: u32) {
        let vmid = vmid.raw().into();
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_vmid_page_directory(self.adev(), vmid, directory, xcc_mask) };
    }

    fn kill_waves(&self, vmid: Vmid, xcc_mask: u32) {
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_vmid_kill_waves(self.adev(), vmid.raw().into(), xcc_mask) };
    }

    fn load_queue(
        &self,
        mqd: &RawKernelBo,
        offset: usize,
        position: HqdPosition,
        write_pointer: UserVa,
        xcc: u32,
    ) -> Result {
        let HqdPosition { pipe, queue } = position;
        let (mqd, wptr) = (mqd_at(mqd, offset), write_pointer.raw());
        // SAFETY: By the type invariant, the device is valid; `mqd` is an MQD of its generation
        // (trait).
        to_result(unsafe { c::bridge_queue_load(self.adev(), mqd, pipe, queue, wptr, xcc) })
    }

    fn unload_queue(
        &self,
        mqd: &RawKernelBo,
        offset: usize,
        position: HqdPosition,
        preempt: Preempt,
        xcc: u32,
    ) -> Result {
        let HqdPosition { pipe, queue } = position;
        let preempt = match preempt {
            Preempt::Drain => c::BRIDGE_PREEMPT_DRAIN,
            Preempt::Reset => c::BRIDGE_PREEMPT_RESET,
            Preempt::Save => c::BRIDGE_PREEMPT_SAVE,
        };
        let (mqd, time) = (mqd_at(mqd, offset), self.facts().unmap_latency_ms());
        // SAFETY: as in `load_queue`.
        to_result(unsafe {
            c::bridge_queue_unload(self.adev(), mqd, preempt, time, pipe, queue, xcc)
        })
    }

    fn ring_in_slot(&self, position: HqdPosition, xcc: u32) -> Option<GpuVa> {
        let HqdPosition { pipe, queue } = position;
        // SAFETY: By the type invariant, the device is valid.
        let address = unsafe { c::bridge_queue_address(self.adev(), pipe, queue, xcc) };
        GpuVa::new(address).filter(|_| address != 0)
    }

    fn slot_is_active(&self, position: HqdPosition, xcc: u32) -> bool {
        let HqdPosition { pipe, queue } = position;
        // SAFETY: By the type invariant, the device is valid.
        unsafe { c::bridge_queue_is_active(self.adev(), pipe, queue, xcc) }
    }

    fn slot_registers(&self, position: HqdPosition, xcc: u32) -> Result<KVec<Register>> {
        let HqdPosition { pipe, queue } = position;
        registers(self, |out| {
            // SAFETY: By the type invariant, the device is valid, and there is room for as many as
            // it says at most.
            unsafe { c::bridge_queue_registers(self.adev(), pipe, queue, xcc, out) }
        })
    }

    fn sdma_registers(&self, engine: u32, queue: u32) -> Result<KVec<Register>> {
        registers(self, |out| {
            // SAFETY: as above.
            unsafe { c::bridge_sdma_registers(self.adev(), engine, queue, out) }
        })
    }

    fn copy_doorbell(&self, engine: u32, queue: u32) -> Option<u32> {
        // SAFETY: By the type invariant, the device is valid.
        let doorbell = unsafe { c::bridge_sdma_doorbell(self.adev(), engine, queue) };
        (doorbell != 0).then_some(doorbell)
    }

    fn reset_copy_engine(&self, engine: u32) -> Result {
        // SAFETY: By the type invariant, the device is valid.
        to_result(unsafe { c::bridge_sdma_reset_engine(self.adev(), engine) })
    }

    fn reset_slot(&self, position: HqdPosition, xcc: u32) -> Option<GpuVa> {
        let (HqdPosition { pipe, queue }, time) = (position, self.facts().unmap_latency_ms());
        // SAFETY: By the type invariant, the device is valid.
        let address = unsafe { c::bridge_queue_reset(self.adev(), time, pipe, queue, xcc) };
        GpuVa::new(address).filter(|_| address != 0)
    }

    fn load_sdma(
        &self,
        handle: &VmHandle,
        mqd: &RawKernelBo,
        offset: usize,
        write_pointer: UserVa,
    ) -> Result {
        let (mqd, wptr) = (mqd_at(mqd, offset), write_pointer.raw());
        // SAFETY: By their invariants, device and VM are valid; `mqd` is a copy queue's MQD of the
        // generation (trait).
        to_result(unsafe { c::bridge_sdma_load(self.adev(), vm(handle), mqd, wptr) })
    }

    fn unload_sdma(&self, mqd: &RawKernelBo, offset: usize) -> Result {
        let (mqd, time) = (mqd_at(mqd, offset), self.facts().unmap_latency_ms());
        // SAFETY: as in `load_sdma`.
        to_result(unsafe { c::bridge_sdma_unload(self.adev(), mqd, time) })
    }
}
