// SPDX-License-Identifier: GPL-2.0-only

//! Processes and their VMs as the fake has them: numbers.

use super::*;

impl Vms for Fake {
    fn create_process(&self, context: u16) -> Result<ProcessHandle> {
        let process = ProcessHandle(own(context)?);
        self.live.lock().processes += 1;
        Ok(process)
    }

    fn destroy_process(&self, process: ProcessHandle) {
        self.live.lock().processes -= 1;
        // SAFETY: from `create_process`, and consumed.
        drop(unsafe { take::<u16>(process.0) });
    }

    fn signal_eviction_fence(&self, _process: &ProcessHandle) -> bool {
        false
    }

    fn restore(&self, _process: &ProcessHandle) -> Result {
        Ok(())
    }

    fn acquire_vm(&self, _process: &ProcessHandle, drm_fd: i32) -> Result<VmHandle> {
        if drm_fd < 0 {
            return Err(EINVAL);
        }
        let vm = VmHandle(own(drm_fd)?);
        self.live.lock().vms += 1;
        Ok(vm)
    }

    fn release_vm(&self, vm: VmHandle) {
        self.live.lock().vms -= 1;
        // SAFETY: from `acquire_vm`, and consumed.
        drop(unsafe { take::<i32>(vm.0) });
    }

    fn keep_file(&self, _: &VmHandle) {
        self.live.lock().kept_files += 1;
    }

    fn vm_is_file(&self, vm: &VmHandle, drm_fd: i32) -> bool {
        // SAFETY: from `acquire_vm`, and not consumed yet.
        (unsafe { vm.0.cast::<i32>().read() }) == drm_fd
    }

    fn vm_task(&self, _: &VmHandle) -> VmTask {
        VmTask::default()
    }

    fn pasid(&self, vm: &VmHandle) -> Result<Pasid> {
        // SAFETY: from `acquire_vm`, and not consumed yet.
        let drm_fd = unsafe { vm.0.cast::<i32>().read() };
        u32::try_from(drm_fd)
            .ok()
            .and_then(Pasid::new)
            .ok_or(EINVAL)
    }

    fn page_directory(&self, _vm: &VmHandle) -> u64 {
        0x1000
    }

    fn flush_tlb(&self, _vm: &VmHandle, _flush: TlbFlush, _xcc_mask: u32) -> Result {
        let live = self.live.lock();
        match (live.in_reset, live.stuck) {
            (true, _) => Err(EAGAIN),
            (false, true) => Err(errno::timer_expired()),
            (false, false) => Ok(()),
        }
    }

    fn get_queue_buffers(&self, _vm: &VmHandle, wanted: &[QueueBuffer]) -> Result<QueueBos> {
        let mut buffers = QueueBos::default();
        let places = buffers.get_mut(..wanted.len()).ok_or(EINVAL)?;
        places.fill_with(|| Some(BoHandle(NonNull::dangling())));
        // CAST: a queue has five.
        self.live.lock().queue_buffers += wanted.len() as u32;
        Ok(buffers)
    }

    fn put_queue_buffers(&self, _vm: &VmHandle, buffers: QueueBos) {
        // CAST: a queue has five.
        self.live.lock().queue_buffers -= buffers.iter().flatten().count() as u32;
    }
}
