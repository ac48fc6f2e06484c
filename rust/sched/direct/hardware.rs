// SPDX-License-Identifier: GPL-2.0-only

//! The registers that the driver itself writes without the firmware's scheduler: who has a VMID
//! ([`Binding`]), and which queue is in which slot ([`HqdSlot`], [`DirectHardware::load`]).
//!
//! One [`DirectHardware`] per node, shared by its scheduler and the VMIDs given away. It knows no
//! lock: the scheduler calls it under `Scheduler.inner`, and keeps resets away meanwhile.

use crate::{
    gfx::{
        Engine,
        Formats,
        HwProcess,
        SdmaPlace, //
    },
    ids::{
        Pasid,
        Vmid, //
    },
    kgd::{
        HqdPosition,
        Kgd,
        Preempt,
        ResetGuard,
        Vm,
        VmidBinding, //
    },
    sched::{
        memory::BoWindow,
        partition::{
            xccs,
            Config,
            Vmids, //
        },
        resets::check_empty,
        slots::{
            SlotGuard,
            Slots, //
        },
        Descriptor,
        SchedQueue, //
    },
};
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Queue slots of a node's first micro engine.
pub(super) type Places = Slots<1>;

/// A VMID that nobody else gets.
pub(super) type VmidPlace = SlotGuard<Arc<Vmids>, 1>;

/// VMIDs that the hardware has.
pub(super) const VMIDS: usize = 16;

/// What the scheduler and the VMIDs that it has given away share.
pub(super) struct DirectHardware {
    pub(super) kgd: Arc<dyn Kgd>,
    formats: &'static Formats,
    /// The node's logical XCCs.
    pub(super) xcc_mask: u32,
    /// The device's number for the node's first copy engine.
    first_engine: u32,
    /// The device's VMIDs, and those of them that are the node's.
    vmids: Arc<Vmids>,
    vmid_mask: u32,
    /// The pasid of each VMID's process; 0: it is free. For interrupts, which may lack it.
    pasids: [AtomicU32; VMIDS],
}

/// A process's VMID. Dropped, the node's hardware knows it no more, and then another process may
/// have it, on whichever node, unless it was withheld.
pub(in crate::sched) struct Binding {
    hardware: Arc<DirectHardware>,
    vmid: Vmid,
    place: Option<VmidPlace>,
}

/// A queue's slot, and whether it is on the hardware.
#[derive(Default)]
pub(in crate::sched) struct HqdSlot {
    descriptor: Option<Descriptor>,
    /// Of a compute queue.
    pub(super) place: Option<SlotGuard<Arc<Places>, 1>>,
    pub(super) loaded: bool,
    /// It did not stop and was reset: it never runs again.
    pub(super) reset: bool,
    /// The hardware did not take it when it was last to be loaded.
    pub(super) refused: bool,
}

impl HqdSlot {
    /// Of a queue that is not in a slot yet.
    pub(in crate::sched) fn new(descriptor: Descriptor) -> Self {
        Self {
            descriptor: Some(descriptor),
            ..Self::default()
        }
    }

    /// The slot of a copy engine that its queue is loaded into.
    pub(in crate::sched) fn copy_slot(&self) -> Option<SdmaPlace> {
        self.descriptor.as_ref()?.copy_slot
    }

    /// The first XCC's descriptor.
    pub(in crate::sched) fn first_mqd(&self) -> Option<BoWindow<'_>> {
        let at = self.descriptor.as_ref()?;
        Some(BoWindow::new(&at.bo, at.offset))
    }
}

impl Binding {
    /// The node's lowest VMID that is free. The hardware does not know the process yet. `ENOSPC`:
    /// there is none.
    pub(super) fn take(hardware: Arc<DirectHardware>) -> Result<Self> {
        let mask = u64::from(hardware.vmid_mask);
        let place = Slots::take_where(hardware.vmids.clone(), |vmid| mask >> vmid & 1 != 0);
        let place = place.ok_or(ENOSPC)?;
        // CAST: less than 16, as the device's mask has it.
        let vmid = Vmid::new(place.index() as u8).ok_or(EINVAL)?;
        Ok(Self {
            hardware,
            vmid,
            place: Some(place),
        })
    }

    /// That nobody has it for as long as what is returned lives: queues may be at work in it.
    pub(super) fn withhold(&mut self) -> Option<VmidPlace> {
        self.place.take()
    }

    /// Its VMID.
    pub(super) fn vmid(&self) -> Vmid {
        self.vmid
    }

    /// Tells the hardware of the process whose VMID it is. The caller keeps resets away.
    pub(super) fn program(&self, process: &HwProcess) -> Result {
        let DirectHardware { kgd, xcc_mask, .. } = &*self.hardware;
        let saves = kgd.facts().cwsr_enable;
        let binding = VmidBinding {
            vmid: self.vmid,
            pasid: process.pasid,
            sh_mem: (process.sh_mem.config, process.sh_mem.bases),
            page_directory: process.page_table_base,
            trap: process.trap.filter(|_| saves),
        };
        kgd.bind_vmid(&binding, *xcc_mask)?;
        self.owner().store(process.pasid.raw(), Ordering::Relaxed);
        Ok(())
    }

    fn owner(&self) -> &AtomicU32 {
        // PANIC: a `Vmid` is below 16.
        &self.hardware.pasids[usize::from(self.vmid.raw()) % VMIDS]
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        self.owner().store(0, Ordering::Relaxed);
        let DirectHardware { kgd, xcc_mask, .. } = &*self.hardware;
        // After a reset there is nothing to take back.
        if let Ok(_guard) = ResetGuard::try_new(&**kgd) {
            kgd.unbind_vmid(self.vmid, *xcc_mask);
        }
    }
}

impl DirectHardware {
    /// Lets the pipes that have queue slots interrupt.
    pub(super) fn init_interrupts(&self) -> Result {
        let Self { kgd, xcc_mask, .. } = self;
        let facts = kgd.facts();
        let (mask, each) = (facts.compute_queue_bitmap, facts.num_queue_per_pipe);
        for (logical, _) in xccs(*xcc_mask) {
            for pipe in 0..facts.num_pipe_per_mec {
                let first = mask.checked_shr(pipe * each).unwrap_or(0);
                if first & ((1 << each.min(63)) - 1) != 0 {
                    kgd.init_interrupts(pipe, logical)?;
                }
            }
        }
        Ok(())
    }

    /// The hardware of a node, of which no process has a VMID.
    pub(super) fn new(
        kgd: Arc<dyn Kgd>,
        formats: &'static Formats,
        config: Config,
        vmids: Arc<Vmids>,
    ) -> Result<Arc<Self>> {
        let hardware = Self {
            kgd,
            formats,
            xcc_mask: config.xcc_mask,
            first_engine: config.first_engine,
            vmids,
            vmid_mask: config.vmid_mask,
            pasids: core::array::from_fn(|_| AtomicU32::new(0)),
        };
        Ok(Arc::new(hardware, GFP_KERNEL)?)
    }

    /// The process that has a VMID. Legal in a hard interrupt.
    pub(super) fn pasid_of(&self, vmid: Vmid) -> Option<Pasid> {
        let owner = self.pasids.get(usize::from(vmid.raw()))?;
        Pasid::new(owner.load(Ordering::Relaxed))
    }

    /// Puts a queue into its slot. The caller keeps resets away.
    pub(super) fn load(
        &self,
        vmid: Vmid,
        vm: Option<&Vm>,
        entry: &mut SchedQueue,
        position: HqdPosition,
    ) -> Result {
        let descriptor = entry.hqd.descriptor.as_ref().ok_or(EINVAL)?;
        let write_pointer = entry.described.write_pointer;
        let Descriptor {
            bo, offset, stride, ..
        } = descriptor;
        if let Engine::Sdma(_) = entry.described.engine {
            let words = BoWindow::new(bo, *offset);
            let place = descriptor.copy_slot.ok_or(EINVAL)?;
            let engine = self.first_engine + place.engine;
            self.formats.sdma.set_vmid(&words, vmid, engine);
            vm.ok_or(EINVAL)?.load_sdma(bo, *offset, write_pointer)?;
            entry.hqd.loaded = true;
            return Ok(());
        }
        for (_, within) in xccs(self.xcc_mask) {
            let words = BoWindow::new(bo, offset + stride * within as usize);
            self.formats.mqd.set_vmid(&words, vmid);
        }
        self.kgd.flush_hdp();
        entry.hqd.loaded = true;
        for (logical, within) in xccs(self.xcc_mask) {
            let mqd = offset + stride * within as usize;
            bo.load_queue(mqd, position, write_pointer, logical)?;
        }
        Ok(())
    }

    /// Takes a queue off the hardware: all XCCs are tried, the first error counts.
    pub(super) fn unload(
        &self,
        entry: &SchedQueue,
        position: HqdPosition,
        preempt: Preempt,
    ) -> Result {
        let Some(Descriptor {
            bo, offset, stride, ..
        }) = entry.hqd.descriptor.as_ref()
        else {
            return Ok(());
        };
        if let Engine::Sdma(_) = entry.described.engine {
            return bo.unload_sdma(*offset);
        }
        let mut result = Ok(());
        for (logical, within) in xccs(self.xcc_mask) {
            let mqd = offset + stride * within as usize;
            result = result.and(bo.unload_queue(mqd, position, preempt, logical));
        }
        result
    }

    /// Resets the slot of a compute queue that did not stop. False: it still has not.
    pub(super) fn reset(&self, vmid: Vmid, position: HqdPosition) -> bool {
        self.kgd.kill_waves(vmid, self.xcc_mask);
        xccs(self.xcc_mask).all(
            |(logical, _)| match self.kgd.ring_in_slot(position, logical) {
                Some(_) => self.kgd.reset_slot(position, logical).is_some(),
                None => check_empty(&*self.kgd, position, logical).is_ok(),
            },
        )
    }
}
