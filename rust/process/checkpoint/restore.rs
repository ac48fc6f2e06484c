// SPDX-License-Identifier: GPL-2.0-only

//! RESTORE and RESUME: a process is made of a checkpoint, or is as it was before.

use super::{
    image::{
        self,
        object,
        queue_format,
        queue_kind, //
    },
    save::{
        cookie,
        new_file,
        NewFile, //
    },
    Places,
    Sizes, //
};
use crate::{
    ids::{
        QueueId,
        UserVa, //
    },
    kgd::Memory as GpuMemory,
    linux::{
        errno,
        task::is_killed, //
    },
    memory::{
        request::BufferRequest,
        Handle, //
    },
    process::{
        debugger,
        leaving::has_signal,
        memory,
        queues,
        Process,
        ProcessDevice, //
    },
    queue::{
        properties::{
            QueueProperties,
            QueueRequest, //
        },
        SavedQueue, //
    },
    smi::Trigger,
    svm::{
        Attribute,
        Pages,
        PinnedPages,
        Svm, //
    },
    topology,
    uapi::{
        kfd_criu_bo_bucket,
        kfd_criu_device_bucket,
        kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_PREFETCH_LOC,
        kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_SET_FLAGS,
        user_slice,
        KFD_IOC_QUEUE_TYPE_COMPUTE,
        KFD_IOC_QUEUE_TYPE_COMPUTE_AQL,
        KFD_IOC_QUEUE_TYPE_SDMA,
        KFD_IOC_QUEUE_TYPE_SDMA_XGMI, //
    },
};
use core::mem::offset_of;
use kernel::{
    alloc::KVVec,
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    },
    transmute::FromBytes,
    uaccess::UserSliceReader, //
};

/// How soon is looked again whether another RESUME is over.
const STEP: Delta = Delta::from_millis(1);

/// A range of shared virtual memory that is to be restored, with its attributes, each a type and a
/// value.
pub(crate) struct SavedRange {
    pages: Pages,
    attributes: KVec<(u32, u32)>,
}

/// RESTORE: makes what `places` describe in a process that has no VM yet, by the same names. Its
/// queues do not run before [`resume`]. `EBADF`: it is another one's than the current task's;
/// `EOPNOTSUPP`: it is a context beside another process; `EINVAL`: the process has a VM, it is no
/// checkpoint, or does not fit these GPUs; `EIO`: one was reset meanwhile; `EAGAIN`: one is being
/// reset. After another error than that the process is as before, but that it may have VMs, which
/// cannot be given back.
pub(crate) fn restore(process: &Process, places: Places, sizes: Sizes) -> Result {
    // Whoever needs the VMs' memory finds them by the address space in which they were made.
    if !process.is_current() {
        return Err(EBADF);
    }
    if !process.is_primary() {
        return Err(errno::unsupported());
    }
    let mut turn = process.memory_lock();
    // Before anything changes: it is in use, be it as what was restored. Under this lock nobody
    // else gives it one.
    if process.devices().iter().any(|device| device.vm().is_ok()) {
        return Err(EINVAL);
    }
    if let Err(error) = process.evict(Trigger::RESTORE) {
        let _ = process.restore();
        return Err(error);
    }
    let mut made = Made::new(process);
    match made.all(places, sizes) {
        Ok(()) => {
            turn.ranges.owe(made.ranges);
            for (descriptor, file) in made.files {
                descriptor.fd_install(file);
            }
            Ok(())
        }
        Err(error) => {
            // What is left of an error here has been said.
            let _ = match made.undo() {
                true => trust_pages(process),
                false => process.restore(),
            };
            Err(error)
        }
    }
}

/// RESUME: a process that was restored gets its shared virtual memory, and goes on as soon as
/// amdgpu has found the pages of its own that GPUs see. After an error the next RESUME does all of
/// that. `ESRCH`: the caller knows no such process. `EINVAL`: it was not restored, or resumed
/// already. `ERESTARTSYS`: a signal came while another caller resumes it.
pub(crate) fn resume(pid: u32) -> Result {
    let process = debugger::find(pid, false)?;
    loop {
        let ranges = await_ranges(&process)?;
        // Not under the lock: it may wait for a program.
        let given = give_all(&process, &ranges);
        let mut turn = process.memory_lock();
        if turn.ranges.settle(ranges, given)? {
            keep_areas(&process)?;
            return trust_pages(&process);
        }
        // It was not restored before. RESTORE succeeds once: the next time is the last.
    }
}

/// The shared virtual memory that this RESUME is to restore: without it the queues of the process
/// do not run, so that another RESUME waits here for the first. `ERESTARTSYS`: a signal came.
fn await_ranges(process: &Process) -> Result<KVVec<SavedRange>> {
    loop {
        let mut turn = process.memory_lock();
        if let Some(ranges) = turn.ranges.take() {
            return Ok(ranges);
        }
        drop(turn);
        if has_signal() {
            return Err(ERESTARTSYS);
        }
        fsleep(STEP);
    }
}

fn give_all(process: &Process, ranges: &[SavedRange]) -> Result {
    if ranges.is_empty() {
        return Ok(());
    }
    let svm = process.make_svm()?;
    ranges.iter().try_for_each(|range| range.give(process, svm))
}

/// What the process's own memory shows is looked at, and then its queues go on. `EINVAL`: it was
/// not restored, or somebody has done this.
fn trust_pages(process: &Process) -> Result {
    let context = process.context().ok_or(EINVAL)?;
    if !context.trust_pages()? {
        // They still wait for amdgpu, which has stopped them for its own part.
        process.restore()?;
    }
    Ok(())
}

/// Keeps the save areas of queues that are shared virtual memory. `EINVAL`: one is not always
/// mapped.
fn keep_areas(process: &Process) -> Result {
    for (place, device) in process.devices().iter().enumerate() {
        while let Some((id, area)) = device.queues().awaited_area() {
            let svm = process.svm().ok_or(EINVAL)?;
            let pages = PinnedPages::new(svm, place, area.pages()?)?;
            drop(device.queues().give_area(id, pages));
        }
    }
    Ok(())
}

impl SavedRange {
    /// Says of its pages what was said.
    fn give(&self, process: &Process, svm: &Arc<Svm>) -> Result {
        const PREFETCH: u32 = kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_PREFETCH_LOC;
        const SET_FLAGS: u32 = kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_SET_FLAGS;
        let gpu = |id| {
            let mut devices = process.devices().iter();
            let place = devices.position(|device| device.user_id() == id);
            place.filter(|place| svm.is_for(*place))
        };
        let mut change = KVec::with_capacity(self.attributes.len() + 1, GFP_KERNEL)?;
        let mut flags = u32::MAX;
        for &(kind, value) in &self.attributes {
            // Where it was asked to go last, if it was.
            if (kind, value) == (PREFETCH, u32::MAX) {
                continue;
            }
            if kind == SET_FLAGS {
                flags = value;
            }
            let attribute = Attribute::parse(kind, value, gpu).ok_or(EINVAL)?;
            change.push(attribute, GFP_KERNEL)?;
        }
        change.push(Attribute::ClearFlags(!flags), GFP_KERNEL)?;
        svm.set(self.pages, &change)
    }
}

/// What has been made of a checkpoint so far.
struct Made<'a> {
    process: &'a Process,
    xnack: bool,
    /// What the process's own memory shows may not be there yet.
    distrusts: bool,
    buffers: KVVec<(&'a Arc<ProcessDevice>, u32)>,
    files: KVVec<NewFile>,
    /// The process has a signal page, and had none: the buffer's.
    page: Option<Handle>,
    events: KVVec<u32>,
    queues: KVVec<QueueId>,
    ranges: KVVec<SavedRange>,
}

/// What a buffer is to the user who has restored it.
struct NewBuffer {
    mmap_offset: Option<u64>,
    descriptor: u32,
}

/// The next structure. `EINVAL`: there is not so much.
fn next<T: FromBytes>(private: &mut UserSliceReader) -> Result<T> {
    match private.len() < size_of::<T>() {
        true => Err(EINVAL),
        false => private.read(),
    }
}

impl<'a> Made<'a> {
    /// Nothing. The caller has the process's memory lock, and its queues are off.
    fn new(process: &'a Process) -> Self {
        Self {
            process,
            xnack: process.xnack(),
            distrusts: false,
            buffers: KVVec::new(),
            files: KVVec::new(),
            page: None,
            events: KVVec::new(),
            queues: KVVec::new(),
            ranges: KVVec::new(),
        }
    }

    fn all(&mut self, places: Places, sizes: Sizes) -> Result {
        let bytes = usize::try_from(sizes.private)?;
        let mut private = user_slice(places.private, bytes).reader();
        let head: image::Process = next(&mut private)?;
        if head.version != image::VERSION {
            return Err(EINVAL);
        }
        self.process.choose_xnack(head.xnack != 0)?;
        self.devices(places.devices, sizes.devices)?;
        let unknown = image::DEVICE_BYTES * sizes.devices as usize;
        if private.len() < unknown {
            return Err(EINVAL);
        }
        private.skip(unknown)?;
        self.all_buffers(&mut private, places.buffers, sizes.buffers)?;
        for _ in 0..sizes.objects {
            if is_killed() {
                return Err(EINTR);
            }
            self.object(&mut private)?;
        }
        if !private.is_empty() {
            return Err(EINVAL);
        }
        // A reset has told the events that there were by then, and no queue would ever run.
        match self.process.has_lost() {
            true => Err(EIO),
            false => Ok(()),
        }
    }

    fn devices(&mut self, at: u64, count: u32) -> Result {
        let devices = self.process.devices();
        if count as usize != devices.len() {
            return Err(EINVAL);
        }
        let bytes = devices.len() * size_of::<kfd_criu_device_bucket>();
        let mut reader = user_slice(at, bytes).reader();
        // Who is told to come again must not find a VM.
        for device in devices {
            device.node().resets().quiet().map(drop)?;
        }
        let mut named: KVec<u32> = KVec::with_capacity(devices.len(), GFP_KERNEL)?;
        for _ in 0..count {
            let bucket: kfd_criu_device_bucket = reader.read()?;
            let mut actual = devices.iter();
            let device = actual.find(|device| device.gpu_id().raw() == bucket.actual_gpu_id);
            let device = device.ok_or(EINVAL)?;
            let known = named.contains(&bucket.user_gpu_id) || device.vm().is_ok();
            if bucket.user_gpu_id == 0 || known {
                return Err(EINVAL);
            }
            named.push(bucket.user_gpu_id, GFP_KERNEL)?;
            device.set_user_id(bucket.user_gpu_id);
            // CAST: a file descriptor; the ABI has it unsigned.
            let vm = self.process.acquire_vm_locked(device, bucket.drm_fd as i32);
            vm.map_err(|error| if error == EAGAIN { error } else { EINVAL })?;
            device.queues().doorbells(&**device)?;
        }
        Ok(())
    }

    fn all_buffers(&mut self, private: &mut UserSliceReader, at: u64, count: u32) -> Result {
        let count = count as usize;
        let own = count.checked_mul(size_of::<image::Buffer>());
        if own.is_none_or(|own| private.len() < own) {
            return Err(EINVAL);
        }
        if let Some(context) = self.process.context() {
            context.distrust_pages();
            self.distrusts = true;
        }
        let bytes = count * size_of::<kfd_criu_bo_bucket>();
        let mut public = user_slice(at, bytes).reader();
        let mut answers = KVVec::new();
        for _ in 0..count {
            if is_killed() {
                return Err(EINTR);
            }
            let (bucket, own) = (public.read()?, next(private)?);
            answers.push(self.buffer(&bucket, &own)?, GFP_KERNEL_ACCOUNT)?;
        }
        for (index, answer) in (0u64..).zip(answers.iter()) {
            let bucket = at.wrapping_add(index * size_of::<kfd_criu_bo_bucket>() as u64);
            write(
                bucket,
                offset_of!(kfd_criu_bo_bucket, dmabuf_fd),
                &answer.descriptor,
            )?;
            if let Some(offset) = &answer.mmap_offset {
                write(
                    bucket,
                    offset_of!(kfd_criu_bo_bucket, restored_offset),
                    offset,
                )?;
            }
        }
        Ok(())
    }

    /// The device that the process calls so, by whatever error.
    fn device(&self, gpu_id: u32, missing: Error) -> Result<&'a Arc<ProcessDevice>> {
        self.process.device(gpu_id).map_err(|_| missing)
    }

    fn buffer(&mut self, bucket: &kfd_criu_bo_bucket, own: &image::Buffer) -> Result<NewBuffer> {
        let device = self.device(bucket.gpu_id, ENODEV)?;
        let vm = device.vm()?.clone();
        if own.number > i32::MAX as u32 || bucket.size == 0 {
            return Err(EINVAL);
        }
        let mut request = BufferRequest {
            address: bucket.addr,
            size: bucket.size,
            flags: bucket.alloc_flags,
        };
        if request.is_public_vram() && !topology::is_memory_public(device.node()) {
            return Err(EINVAL);
        }
        let offset = memory::source_offset(device, &request, own.user_address)?;
        if request.is_doubled() {
            // Half of it was told.
            request.size = request.size.checked_mul(2).ok_or(EINVAL)?;
        }
        self.buffers.reserve(1, GFP_KERNEL)?;
        self.files.reserve(1, GFP_KERNEL)?;
        let (size, flags) = (request.size, request.flags);
        let make = || GpuMemory::restore(vm, request.place(), size, offset, flags);
        let buffers = device.buffers();
        let offset = buffers.insert_at(own.number, request, make, GpuMemory::mmap_offset)?;
        // Cannot fail: there is room for one. Neither can the next one.
        let _ = self.buffers.push_within_capacity((device, own.number));
        let file = buffers.with(own.number, ENOMEM, |memory| {
            self.show(memory, &own.gpus)?;
            match request.is_exported() {
                true => new_file(memory).map(Some),
                false => Ok(None),
            }
        })?;
        let exported = file
            .as_ref()
            .map(|(descriptor, _)| descriptor.reserved_fd());
        if let Some(file) = file {
            let _ = self.files.push_within_capacity(file);
        }
        Ok(NewBuffer {
            mmap_offset: cookie(device, &request).or(exported.map(|_| offset)),
            descriptor: exported.unwrap_or(u32::MAX),
        })
    }

    /// Maps a buffer to the GPUs that saw it. `EADDRINUSE`: another thread has given attributes of
    /// shared virtual memory to what is there. `EAGAIN`, `EIO`: it has, and unmapped that, and a
    /// GPU may see it still.
    fn show(&self, memory: &GpuMemory, gpus: &[u32]) -> Result {
        let (address, bytes) = memory.place();
        let svm = self.process.svm();
        // Until it is mapped nobody does.
        let claim = svm
            .map(|svm| svm.claim(Pages::around_bytes(address, bytes)))
            .transpose()?;
        let gpus = gpus.iter().take(self.process.devices().len());
        for &gpu in gpus.take_while(|gpu| **gpu != 0) {
            let vm = self.device(gpu, EINVAL)?.vm()?;
            if let Some(claim) = &claim {
                claim.clear(vm)?;
            }
            vm.map(memory)?;
        }
        memory.sync(false)
    }

    fn object(&mut self, private: &mut UserSliceReader) -> Result {
        let kind: u32 = next(&mut private.clone_reader())?;
        match kind {
            object::QUEUE => self.queue(private),
            object::EVENT => self.event(&next(private)?),
            object::RANGE => self.range(private),
            _ => Err(EINVAL),
        }
    }

    /// Whether that is one of the buffers.
    fn has_made(&self, handle: Handle) -> bool {
        let is_it = |(device, number): &(&Arc<ProcessDevice>, u32)| {
            (device.user_id(), *number) == (handle.gpu_id(), handle.index())
        };
        self.buffers.iter().any(is_it)
    }

    fn event(&mut self, event: &image::Event) -> Result {
        if event.id > i32::MAX as u32 {
            return Err(EINVAL);
        }
        if event.page_handle != 0 {
            let handle = Handle::from_raw(event.page_handle);
            // It is given back if RESTORE fails: another buffer would lose its eviction fence then.
            if !self.has_made(handle) {
                return Err(EINVAL);
            }
            memory::take_signal_page(self.process, handle)?;
            self.page = Some(handle);
        }
        self.events.reserve(1, GFP_KERNEL)?;
        self.process.events().restore(&event.saved())?;
        // Cannot fail: there is room for one.
        let _ = self.events.push_within_capacity(event.id);
        Ok(())
    }

    fn range(&mut self, private: &mut UserSliceReader) -> Result {
        let count = image::COMMON_ATTRIBUTES + self.process.devices().len();
        let range: image::Range = next(private)?;
        if private.len() < count * size_of::<u64>() {
            return Err(EINVAL);
        }
        let mut attributes = KVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            let attribute = (private.read()?, private.read()?);
            attributes.push(attribute, GFP_KERNEL_ACCOUNT)?;
        }
        let pages = Pages::of_numbers(range.start, range.size).ok_or(EINVAL)?;
        let range = SavedRange { pages, attributes };
        self.ranges.push(range, GFP_KERNEL_ACCOUNT)?;
        Ok(())
    }

    fn queue(&mut self, private: &mut UserSliceReader) -> Result {
        let head: image::Queue = next(private)?;
        let device = self.device(head.gpu_id, EINVAL)?;
        let node = device.node().queues();
        let (formats, xccs) = (node.generation().formats, node.xccs() as usize);
        let all_stacks = node.save_sizes().control_stack as usize * xccs;
        let (descriptor, most) = match head.kind {
            queue_kind::COMPUTE => (formats.mqd.bytes(), all_stacks),
            // Copy engines have no waves.
            _ => (formats.sdma.bytes(), 0),
        };
        let (descriptors, stacks) = (head.descriptor_bytes as usize, head.stack_bytes as usize);
        if descriptors != descriptor * xccs || stacks > most || stacks % size_of::<u32>() != 0 {
            return Err(EINVAL);
        }
        if private.len() < descriptors + stacks {
            return Err(EINVAL);
        }
        let words = (descriptors + stacks) / size_of::<u32>();
        let mut behind = KVVec::from_elem(0u32, words, GFP_KERNEL_ACCOUNT)?;
        private.read_slice(behind.as_mut_bytes())?;
        let split = behind.split_at_checked(descriptors / size_of::<u32>());
        let (descriptors, stacks) = split.ok_or(EINVAL)?;
        let target = formats.mqd.target_xcc(descriptors);
        let properties = properties(&head, target, node.save_sizes().control_stack)?;
        let id = QueueId::new(head.id).ok_or(EINVAL)?;
        let saved = SavedQueue {
            id,
            doorbell_id: head.doorbell_id as usize,
            sdma_number: head.sdma_number,
            descriptors,
            stacks,
        };
        self.queues.reserve(1, GFP_KERNEL)?;
        queues::restore(self.process, device, &properties, &saved)?;
        // Cannot fail: there is room for one.
        let _ = self.queues.push_within_capacity(id);
        match (head.wave_sync, device.node().wave_sync_slots()) {
            (0, _) => Ok(()),
            (_, 0) => Err(ENODEV),
            _ => device.queues().give_wave_sync(id),
        }
    }

    /// The process has no more than before, but for its VMs, and for buffers that are still in use.
    /// Nothing of it is on a GPU. Whether what its own memory shows is distrusted.
    fn undo(self) -> bool {
        let process = self.process;
        for id in &self.queues {
            // It goes whatever the answer is, or has gone by DESTROY_QUEUE. A debugger's end of its
            // suspension is not waited for.
            let _ = queues::discard(process, *id);
        }
        for device in process.devices() {
            // A GPU that is reset, or does not obey, has the buffers of those queues until then.
            device.queues().give_back(&**device);
        }
        for id in &self.events {
            let _ = process.events().destroy(*id);
        }
        for (device, number) in &self.buffers {
            let devices = process.devices().iter();
            let vms = devices.filter_map(|device| device.vm().ok());
            let is_page = self.page == Some(Handle::new(device.user_id(), *number));
            device.buffers().discard(*number, vms, || {
                if is_page {
                    drop(process.events().take_page());
                }
            });
            if is_page {
                // Should it stay: by the name that the device has next.
                let handle = Handle::new(device.gpu_id().raw(), *number);
                process.events().rename_page(handle.raw());
            }
        }
        if process.xnack() != self.xnack {
            // It has no queue. `ENOMEM`: another thread has given memory attributes since there is
            // a VM, and all of them need it as it is now.
            let _ = process.choose_xnack(self.xnack);
        }
        for device in process.devices() {
            // As before: who has no VM has not been renamed.
            device.set_user_id(device.gpu_id().raw());
        }
        self.distrusts
    }
}

/// What CREATE_QUEUE would have been asked for. `EINVAL`: nobody could have asked for that.
fn properties(head: &image::Queue, target_xcc: u8, control_stack: u32) -> Result<QueueProperties> {
    let queue_type = match (head.kind, head.format) {
        (queue_kind::COMPUTE, queue_format::AQL) => KFD_IOC_QUEUE_TYPE_COMPUTE_AQL,
        (queue_kind::COMPUTE, queue_format::PM4) => KFD_IOC_QUEUE_TYPE_COMPUTE,
        (queue_kind::SDMA, _) => KFD_IOC_QUEUE_TYPE_SDMA,
        (queue_kind::SDMA_XGMI, _) => KFD_IOC_QUEUE_TYPE_SDMA_XGMI,
        _ => return Err(EINVAL),
    };
    let percentage = u8::try_from(head.percentage).map_err(|_| EINVAL)?;
    let request = QueueRequest {
        ring_base_address: head.ring,
        write_pointer_address: head.write_pointer,
        read_pointer_address: head.read_pointer,
        ring_size: u32::try_from(head.ring_bytes).map_err(|_| EINVAL)?,
        queue_type,
        queue_percentage: u32::from(target_xcc) << 8 | u32::from(percentage),
        queue_priority: head.priority,
        eop_buffer_address: head.eop,
        eop_buffer_size: head.eop_bytes.into(),
        ctx_save_restore_address: head.save_area,
        ctx_save_restore_size: head.save_area_bytes,
        ctl_stack_size: control_stack,
        ..QueueRequest::default()
    };
    let limit = UserVa::new(QueueProperties::USER_LIMIT).ok_or(EINVAL)?;
    QueueProperties::new(&request, limit).map_err(|_| EINVAL)
}

/// Writes a field of a user's structure.
fn write<T: kernel::transmute::AsBytes>(structure: u64, field: usize, value: &T) -> Result {
    let at = structure.wrapping_add(field as u64);
    user_slice(at, size_of::<T>()).writer().write(value)
}
