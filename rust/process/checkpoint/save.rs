// SPDX-License-Identifier: GPL-2.0-only

//! PROCESS_INFO, CHECKPOINT and UNPAUSE: what there is of a process, and the user's copy of it.

use super::{
    image::{
        self,
        object,
        queue_format,
        queue_kind, //
    },
    Places,
    Sizes, //
};
use crate::{
    event::SavedEvent,
    ids::QueueId,
    kgd::{
        Memory,
        MemoryFacts, //
    },
    memory::request::{
        BufferRequest,
        Source, //
    },
    mmap::MmapTarget,
    process::{
        Process,
        ProcessDevice, //
    },
    queue::{
        properties::QueueKind,
        QueueIdentity, //
    },
    smi::Trigger,
    svm::{
        Common,
        Pages,
        Stated,
        MAX_GPUS, //
    },
    uapi::{
        kfd_criu_bo_bucket,
        kfd_criu_device_bucket,
        kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_ACCESS,
        kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_GRANULARITY,
        kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_PREFERRED_LOC,
        kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_PREFETCH_LOC,
        kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_SET_FLAGS,
        user_slice, //
    },
};
use kernel::{
    alloc::KVVec,
    fs::{
        file::FileDescriptorReservation,
        File, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
    uaccess::UserSliceWriter, //
};

/// `KFD_INVALID_FD`.
const NO_FILE: u32 = u32::MAX;

/// A file of a buffer's that nobody has a descriptor of yet.
pub(super) type NewFile = (FileDescriptorReservation, ARef<File>);

/// A descriptor for a buffer's file, which is installed when nothing can fail any more.
pub(super) fn new_file(memory: &Memory) -> Result<NewFile> {
    let file = memory.export_file()?;
    // As C, which passes DRM_RDWR: descriptors stay open across execve.
    Ok((FileDescriptorReservation::get_unused_fd_flags(0)?, file))
}

/// What a process has at a moment.
struct Contents<'a> {
    process: &'a Process,
    /// On which device a buffer is, and its number.
    buffers: KVVec<(&'a Arc<ProcessDevice>, u32)>,
    queues: KVVec<(&'a Arc<ProcessDevice>, QueueId, QueueIdentity)>,
    events: KVVec<SavedEvent>,
    ranges: KVVec<Stated>,
}

impl<'a> Contents<'a> {
    /// The caller holds the process's memory lock.
    fn of(process: &'a Process) -> Result<Self> {
        let mut this = Self {
            process,
            buffers: KVVec::new(),
            queues: KVVec::new(),
            events: process.events().saved()?,
            ranges: KVVec::new(),
        };
        for device in process.devices() {
            this.add_buffers(device)?;
            for id in device.queues().ids()? {
                let identity = device.queues().identity(id)?;
                this.queues.push((device, id, identity), GFP_KERNEL)?;
            }
        }
        if let Some(svm) = process.svm() {
            this.ranges = svm.stated()?;
        }
        Ok(this)
    }

    /// All buffers of a device but those that lie where the trap handler does in C, which are not
    /// counted there.
    fn add_buffers(&mut self, device: &'a Arc<ProcessDevice>) -> Result {
        let base = device.apertures().gpuvm.base;
        for number in device.buffers().numbers()? {
            let facts = match device.buffers().with(number, ENOENT, Memory::facts) {
                // It was freed just now.
                Err(error) if error == ENOENT => continue,
                facts => facts?,
            };
            if facts.address == 0 || facts.address > base {
                self.buffers.push((device, number), GFP_KERNEL)?;
            }
        }
        Ok(())
    }

    /// Bytes of a range with its attributes.
    fn range_bytes(&self) -> usize {
        let attributes = image::COMMON_ATTRIBUTES + self.process.devices().len();
        size_of::<image::Range>() + attributes * size_of::<u64>()
    }

    fn sizes(&self) -> Result<Sizes> {
        let devices = self.process.devices().len();
        let objects = self.queues.len() + self.events.len() + self.ranges.len();
        let queues = self.queues.iter().map(|(_, _, identity)| {
            let words = identity.descriptor_words + identity.stack_words;
            size_of::<image::Queue>() + words * size_of::<u32>()
        });
        let private = size_of::<image::Process>()
            + devices * image::DEVICE_BYTES
            + self.buffers.len() * size_of::<image::Buffer>()
            + queues.sum::<usize>()
            + self.events.len() * size_of::<image::Event>()
            + self.ranges.len() * self.range_bytes();
        Ok(Sizes {
            devices: u32::try_from(devices)?,
            buffers: u32::try_from(self.buffers.len())?,
            objects: u32::try_from(objects)?,
            private: private as u64,
        })
    }
}

/// PROCESS_INFO: takes the process's queues off its GPUs, unless that was done, until [`unpause`],
/// and says how much there is to save.
pub(crate) fn pause(process: &Process) -> Result<Sizes> {
    let mut turn = process.memory_lock();
    let before = turn.paused;
    if !before {
        if let Err(error) = process.evict(Trigger::CHECKPOINT) {
            let _ = process.restore();
            return Err(error);
        }
        turn.paused = true;
    }
    let sizes = Contents::of(process).and_then(|contents| contents.sizes());
    if sizes.is_err() && !before {
        let _ = process.restore();
        turn.paused = false;
    }
    sizes
}

/// UNPAUSE: they go on. `EINVAL`: they are not stopped.
pub(crate) fn unpause(process: &Process) -> Result {
    let mut turn = process.memory_lock();
    if !core::mem::take(&mut turn.paused) {
        return Err(EINVAL);
    }
    process.restore()
}

/// CHECKPOINT: writes what there is to where the user wants it, and opens files of the buffers.
/// `EINVAL`: the queues are not stopped, or it is not as much as `sizes` say; `EFAULT`: it cannot
/// be written. After an error there are no files.
pub(crate) fn save(process: &Process, places: Places, sizes: Sizes) -> Result {
    let turn = process.memory_lock();
    if !turn.paused {
        return Err(EINVAL);
    }
    let contents = Contents::of(process)?;
    if contents.sizes()? != sizes {
        return Err(EINVAL);
    }
    let mut private = user_slice(places.private, usize::try_from(sizes.private)?).writer();
    contents.write_process(&mut private)?;
    contents.write_devices(&mut private, places)?;
    let files = contents.write_buffers(&mut private, places)?;
    for (device, id, identity) in &contents.queues {
        write_queue(&mut private, device, *id, identity)?;
    }
    let mut page = process.events().page_handle();
    for event in &contents.events {
        private.write(&image::Event::new(event, core::mem::take(&mut page)))?;
    }
    for range in &contents.ranges {
        contents.write_range(&mut private, range)?;
    }
    for (descriptor, file) in files {
        descriptor.fd_install(file);
    }
    Ok(())
}

impl Contents<'_> {
    fn write_process(&self, private: &mut UserSliceWriter) -> Result {
        private.write(&image::Process {
            version: image::VERSION,
            xnack: self.process.xnack().into(),
        })
    }

    fn write_devices(&self, private: &mut UserSliceWriter, places: Places) -> Result {
        let devices = self.process.devices();
        let bytes = devices.len() * size_of::<kfd_criu_device_bucket>();
        let mut public = user_slice(places.devices, bytes).writer();
        for device in devices {
            public.write(&kfd_criu_device_bucket {
                user_gpu_id: device.user_id(),
                actual_gpu_id: device.gpu_id().raw(),
                ..kfd_criu_device_bucket::default()
            })?;
            private.write(&0u64)?;
        }
        Ok(())
    }

    fn write_buffers(
        &self,
        private: &mut UserSliceWriter,
        places: Places,
    ) -> Result<KVVec<NewFile>> {
        let bytes = self.buffers.len() * size_of::<kfd_criu_bo_bucket>();
        let mut public = user_slice(places.buffers, bytes).writer();
        let mut files = KVVec::new();
        for (device, number) in &self.buffers {
            files.reserve(1, GFP_KERNEL)?;
            let found = device.buffers().with(*number, EINVAL, |memory| {
                let facts = memory.facts()?;
                let (bucket, file) = bucket(device, memory, &facts)?;
                Ok((bucket, self.private_of(memory, *number, &facts), file))
            });
            let (bucket, own, file) = found?;
            if let Some(file) = file {
                // Cannot fail: there is room for one.
                let _ = files.push_within_capacity(file);
            }
            public.write(&bucket)?;
            private.write(&own)?;
        }
        Ok(files)
    }

    fn private_of(&self, memory: &Memory, number: u32, facts: &MemoryFacts) -> image::Buffer {
        let sees = |device: &&Arc<ProcessDevice>| device.vm().is_ok_and(|vm| vm.shows(memory));
        let mut gpus = [0; MAX_GPUS];
        let devices = self.process.devices().iter().filter(sees);
        for (gpu, device) in gpus.iter_mut().zip(devices) {
            *gpu = device.user_id();
        }
        image::Buffer {
            user_address: facts.user_address,
            number,
            gpus,
            pad: 0,
        }
    }

    fn write_range(&self, private: &mut UserSliceWriter, range: &Stated) -> Result {
        const COMMON: [u32; image::COMMON_ATTRIBUTES] = [
            kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_PREFERRED_LOC,
            kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_PREFETCH_LOC,
            kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_SET_FLAGS,
            kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_GRANULARITY,
        ];
        const ACCESS: u32 = kfd_ioctl_svm_attr_type_KFD_IOCTL_SVM_ATTR_ACCESS;
        let pages: Pages = range.pages();
        private.write(&image::Range {
            object: object::RANGE,
            start: pages.start,
            size: pages.len(),
            ..image::Range::default()
        })?;
        let common: Common = range.common();
        let devices = self.process.devices();
        let id = |place: usize| Some(devices.get(place)?.user_id());
        for kind in COMMON {
            let answer = common.answer(kind, 0, |_| None, id).ok_or(EINVAL)?;
            write_attribute(private, answer)?;
        }
        for (place, device) in devices.iter().enumerate() {
            let answer = common.answer(ACCESS, device.user_id(), |_| Some(place), id);
            write_attribute(private, answer.ok_or(EINVAL)?)?;
        }
        Ok(())
    }
}

fn write_attribute(private: &mut UserSliceWriter, (kind, value): (u32, u32)) -> Result {
    private.write(&kind)?;
    private.write(&value)
}

/// What the user is told of a buffer, with its file, if it is memory that has one.
fn bucket(
    device: &ProcessDevice,
    memory: &Memory,
    facts: &MemoryFacts,
) -> Result<(kfd_criu_bo_bucket, Option<NewFile>)> {
    let request = BufferRequest {
        address: facts.address,
        size: facts.size,
        flags: facts.flags,
    };
    let file = match request.is_exported() {
        true => Some(new_file(memory)?),
        false => None,
    };
    let bucket = kfd_criu_bo_bucket {
        addr: facts.address,
        size: facts.size,
        offset: cookie(device, &request).unwrap_or(facts.mmap_offset),
        restored_offset: 0,
        gpu_id: device.user_id(),
        alloc_flags: facts.flags,
        dmabuf_fd: file.as_ref().map_or(NO_FILE, |(it, _)| it.reserved_fd()),
        pad: 0,
    };
    Ok((bucket, file))
}

/// Where mmap on /dev/kfd finds a buffer that shows a device.
pub(super) fn cookie(device: &ProcessDevice, request: &BufferRequest) -> Option<u64> {
    match request.source() {
        Source::Memory => None,
        Source::Doorbells => Some(MmapTarget::Doorbell(device.gpu_id()).to_offset()),
        Source::Registers => Some(MmapTarget::Mmio(device.gpu_id()).to_offset()),
    }
}

/// `enum kfd_queue_type` and `enum kfd_queue_format` of a queue.
fn kind_of(identity: &QueueIdentity) -> (u32, u32) {
    match (identity.properties.kind(), identity.copies) {
        (QueueKind::Aql, _) => (queue_kind::COMPUTE, queue_format::AQL),
        (QueueKind::Pm4, _) => (queue_kind::COMPUTE, queue_format::PM4),
        (QueueKind::Sdma(_), Some((true, _))) => (queue_kind::SDMA_XGMI, queue_format::PM4),
        (QueueKind::Sdma(_), _) => (queue_kind::SDMA, queue_format::PM4),
    }
}

/// Writes a queue, its descriptors and what was saved of its waves. `EINVAL`: its GPU saves none.
fn write_queue(
    private: &mut UserSliceWriter,
    device: &ProcessDevice,
    id: QueueId,
    identity: &QueueIdentity,
) -> Result {
    if !device.node().facts().cwsr_enable {
        return Err(EINVAL);
    }
    let (properties, settings) = (&identity.properties, identity.properties.settings());
    let (eop, eop_bytes) = properties.eop();
    let (save_area, save_area_bytes) = properties.saved_at();
    let (kind, format) = kind_of(identity);
    let bytes = |words: usize| u32::try_from(words * size_of::<u32>());
    let head = image::Queue {
        object: object::QUEUE,
        ring: settings.ring().raw(),
        ring_bytes: settings.ring_bytes().into(),
        read_pointer: properties.read_pointer().raw(),
        write_pointer: properties.write_pointer().raw(),
        eop: eop.raw(),
        save_area: save_area.raw(),
        gpu_id: device.user_id(),
        kind,
        format,
        id: id.raw(),
        priority: settings.priority().into(),
        percentage: settings.percentage().into(),
        doorbell_id: u32::try_from(identity.doorbell_id)?,
        wave_sync: device.queues().has_wave_sync(id).into(),
        sdma_number: identity.copies.map_or(0, |(_, number)| number),
        eop_bytes,
        save_area_bytes,
        stack_bytes: bytes(identity.stack_words)?,
        descriptor_bytes: bytes(identity.descriptor_words)?,
        ..image::Queue::default()
    };
    let words = identity.descriptor_words + identity.stack_words;
    let mut behind = KVVec::from_elem(0u32, words, GFP_KERNEL)?;
    let split = behind.split_at_mut_checked(identity.descriptor_words);
    let (descriptors, stacks) = split.ok_or(EINVAL)?;
    device.queues().save(id, descriptors, stacks)?;
    private.write(&head)?;
    private.write_slice(behind.as_bytes())
}
