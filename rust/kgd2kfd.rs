// SPDX-License-Identifier: GPL-2.0-only

//! The calls that come up from amdgpu: each is translated into one call of ours.
//!
//! `attach/hooks.c` redirects amdgpu's calls here, flattened (`attach/kgd2kfd.h`). A [`Slot`] is
//! what amdgpu holds as the device's `struct kfd_dev`: one per device that amdgpu ever offered,
//! owned by the list of them until amdgpu itself goes, because amdgpu forgets its pointer only
//! after it has told us that the device is gone.

use crate::{
    gpu::{
        self,
        gate::{
            self,
            Gate, //
        },
        Node, //
    },
    ids::IpVersion,
    kfd,
    kgd::{
        amdgpu::Amdgpu,
        vram, //
    },
    linux::removable::{
        InUse,
        Removable, //
    },
    process::{
        self,
        MmId, //
    },
    sched::pause::Pause,
    served::Served,
    smi::Trigger,
    svm, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    fmt,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        global_lock,
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    unreachable_pub
)]
mod c {
    use kernel::ffi;
    use pin_init::MaybeZeroable;

    include!("attach/kgd2kfd_generated.rs");
}

/// Attached to amdgpu, or waiting for it to be loaded. Dropped: /dev/kfd is the C amdkfd's again.
pub(crate) struct Attachment(());

impl Attachment {
    /// Everything that serves a call must be ready: they come at once. Only one may exist.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: it reads a parameter of the module's.
        svm::set_enabled(unsafe { c::amdkfd_svm_enabled() });
        // SAFETY: once, from the module's init; the functions below are ready.
        kernel::error::to_result(unsafe { c::amdkfd_attach() })?;
        Ok(Self(()))
    }
}

/// Do we drive this generation?
fn check_support(gc: IpVersion, virtual_function: bool) -> Result<(), gpu::Unsupported> {
    // SAFETY: it reads a parameter of the module's.
    gpu::check_support(gc, virtual_function, unsafe { c::amdkfd_allows_untested() })
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // SAFETY: after a successful `amdkfd_attach`.
        unsafe { c::amdkfd_detach() };
    }
}

/// A device that amdgpu offered.
struct Slot {
    adev: NonNull<c_void>,
    /// The device's name on its bus.
    name: CString,
    /// Whether amdgpu has it in `adev`. This and the next two change under the lock of the list.
    offered: Atomic<bool>,
    /// amdgpu has taken the device away, and it is being ended.
    leaving: Atomic<bool>,
    /// It was taken from amdgpu, whose device stays until it has ended.
    withdrawn: Atomic<bool>,
    /// Whether processes may get it.
    gate: Arc<Gate>,
    served: Removable<Served>,
}

// SAFETY: `adev` is only handed back to amdgpu, which may be called from any thread.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

global_lock! {
    // SAFETY: `init` below runs before anything else in the module.
    unsafe(uninit) static SLOTS: Mutex<KVec<KBox<Slot>>> = KVec::new();
}

/// Makes the list of slots usable.
///
/// # Safety
///
/// Must be called exactly once, before an [`Attachment`] is made.
pub(crate) unsafe fn init() {
    // SAFETY: by this function's own contract.
    unsafe { SLOTS.init() };
}

impl Slot {
    /// A place for the device; the one it had, if amdgpu offered it before.
    fn of_device(adev: NonNull<c_void>, name: &CStr) -> Result<*mut Self> {
        // Shared only: amdgpu's other calls look at slots without the lock.
        let mut slots = SLOTS.lock();
        if let Some(slot) = slots.iter().find(|slot| slot.adev == adev) {
            slot.offered.store(true, Relaxed);
            return Ok((&raw const **slot).cast_mut());
        }
        let slot = Self {
            adev,
            name: CString::try_from(name)?,
            offered: Atomic::new(true),
            leaving: Atomic::new(false),
            withdrawn: Atomic::new(false),
            gate: Gate::new()?,
            served: Removable::new(),
        };
        slots.push(KBox::new(slot, GFP_KERNEL)?, GFP_KERNEL)?;
        let slot = slots.last().ok_or(ENOMEM)?;
        Ok((&raw const **slot).cast_mut())
    }

    /// amdgpu takes the device away: ends it. amdgpu forgets the slot when this call returns.
    /// False: it had it from another KFD.
    fn take_back(kfd: *mut c::kfd_dev) -> bool {
        let slot = {
            let slots = SLOTS.lock();
            let is_it = |slot: &&KBox<Self>| core::ptr::eq(&raw const ***slot, kfd.cast());
            let Some(slot) = slots.iter().find(is_it) else {
                return false;
            };
            if !slot.offered.xchg(false, Relaxed) {
                return false;
            }
            slot.leaving.store(true, Relaxed);
            &raw const **slot
        };
        // SAFETY: the list keeps a slot that is leaving.
        let slot = unsafe { &*slot };
        // Not under the lock: the end of a device may take long.
        slot.end();
        let _slots = SLOTS.lock();
        slot.leaving.store(false, Relaxed);
        true
    }

    /// Takes the slots from amdgpu where it still has them: of devices that were unbound, and of
    /// which somebody has a file open. False: amdgpu is about to take one away itself, or is just
    /// doing so.
    fn withdraw_all(slots: &[KBox<Self>]) -> bool {
        for slot in slots.iter().filter(|slot| slot.offered.load(Relaxed)) {
            let kfd = (&raw const **slot).cast_mut().cast();
            // SAFETY: the device does not go before `amdkfd_device_exit` has returned, which waits
            // for the list's lock in `take_back`.
            if unsafe { c::amdkfd_withdraw(slot.adev.as_ptr().cast(), kfd) } {
                slot.offered.store(false, Relaxed);
                slot.withdrawn.store(true, Relaxed);
            }
        }
        let is_amdgpus =
            |slot: &KBox<Self>| slot.offered.load(Relaxed) || slot.leaving.load(Relaxed);
        !slots.iter().any(is_amdgpus)
    }

    /// Takes all slots, of which amdgpu has none any more.
    ///
    /// TIMEOUT: none. Who takes a device away is on its way, and waits for no user of a file.
    fn take_all() -> KVec<KBox<Self>> {
        loop {
            {
                let mut slots = SLOTS.lock();
                if Self::withdraw_all(&slots) {
                    return core::mem::replace(&mut *slots, KVec::new());
                }
            }
            fsleep(Delta::from_millis(10));
        }
    }

    /// Ends a device, and lets amdgpu have its own again if it was taken from it.
    fn end_withdrawn(&self) {
        self.end();
        if self.withdrawn.load(Relaxed) {
            // SAFETY: `withdraw_all` has taken it, and nothing of ours uses it any more.
            unsafe { c::amdkfd_let_device_go(self.adev.as_ptr().cast()) };
        }
    }

    /// # Safety
    ///
    /// `kfd` came from [`amdkfd_probe`], and amdgpu has not called [`amdkfd_exit`] since.
    unsafe fn from_raw<'a>(kfd: *mut c::kfd_dev) -> &'a Self {
        // SAFETY: the list keeps the slot until `amdkfd_exit`.
        unsafe { &*kfd.cast::<Self>() }
    }

    /// Begins to serve the device.
    fn begin(&self, resources: *const c_void) -> Result {
        // SAFETY: amdgpu takes the device away (`amdkfd_device_exit`, which ends what is made here)
        // before it goes; `resources` is amdgpu's for the time of this call.
        let kgd = unsafe { Amdgpu::new(self.adev, resources) }?;
        self.served.put(Served::new(kgd, self.gate.clone())?)
    }

    /// Ends it, if it had begun. Returns when nobody uses it, calls of amdgpu's and processes
    /// included (see [`Served`]).
    fn end(&self) {
        self.served.remove();
    }

    /// Runs `action`, which must not sleep, on the device if it is served.
    fn with<R>(&self, action: impl FnOnce(&Served) -> R) -> Option<R> {
        self.served.with(action)
    }

    /// The device if it is served. It does not end before what is returned is dropped.
    fn served(&self) -> Option<InUse<'_, Served>> {
        self.served.get()
    }

    /// Runs `action`, which may sleep, on the device if it is served.
    fn when_served(&self, action: impl FnOnce(&Served)) {
        if let Some(served) = self.served() {
            action(&served);
        }
    }

    /// The same for what may fail.
    fn try_when_served(&self, action: impl FnOnce(&Served) -> Result) -> Result {
        self.served().map_or(Ok(()), |served| action(&served))
    }

    /// Runs `action`, which may sleep, on amdgpu's device `adev` if it is served.
    fn when_device_served(adev: *mut c_void, action: impl FnOnce(&Served)) {
        let slot = {
            let slots = SLOTS.lock();
            let of_device = |slot: &&KBox<Self>| core::ptr::eq(slot.adev.as_ptr(), adev);
            slots.iter().find(of_device).map(|slot| &raw const **slot)
        };
        if let Some(slot) = slot {
            // SAFETY: the list keeps it until `amdkfd_exit`, which comes when amdgpu goes: after
            // the device, whose lock the caller holds.
            unsafe { &*slot }.when_served(action);
        }
    }

    /// [`Served::miss_resume`] of each device.
    fn any_misses_resume() -> bool {
        let mut any = false;
        for place in 0.. {
            let served = {
                let slots = SLOTS.lock();
                let Some(slot) = slots.get(place) else {
                    break;
                };
                let slot = &raw const **slot;
                // SAFETY: the list has it now, and it does not go before its device has ended, for
                // which the end waits for what `served` returns.
                unsafe { &*slot }.served()
            };
            any |= served.is_some_and(|served| served.miss_resume());
        }
        any
    }

    /// Runs `action` on one node of the device, or on all (`index` < 0). The first error counts.
    fn each_node(&self, index: c_int, action: impl Fn(&Node) -> Result) -> Result {
        let Some(served) = self.served() else {
            return Ok(());
        };
        let mut result = Ok(());
        for node in served.nodes() {
            if index < 0 || u32::try_from(index) == Ok(node.index()) {
                result = result.and(action(node));
            }
        }
        result
    }

    /// Stops the schedulers for a reason of amdgpu's, or starts them when it is gone.
    fn pause(&self, index: c_int, why: c::amdkfd_pause, pause: bool) -> Result {
        let why = match why {
            c::amdkfd_pause_AMDKFD_PAUSE_ISOLATION => Pause::Isolation,
            c::amdkfd_pause_AMDKFD_PAUSE_LIMITER => Pause::Limiter,
            _ => Pause::Idle,
        };
        self.each_node(index, |node| node.pause_queues(why, pause))
    }

    /// An entry of the device's interrupt ring.
    fn interrupt(&self, entry: &[u32; 8]) {
        self.with(|served| served.interrupt(entry));
    }
}

/// What a C caller wants to hear.
fn errno(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// Writes what fits of a text, and a NUL. No text: there is no memory to make it.
fn write_text(to: &mut [u8], text: fmt::Arguments<'_>) {
    let Some(room) = to.len().checked_sub(1) else {
        return;
    };
    let text = CString::try_from_fmt(text).ok();
    let text = text.as_deref().map_or(&[][..], CStr::to_bytes);
    let (text, _) = text.split_at(room.min(text.len()));
    to[..text.len()].copy_from_slice(text);
    to[text.len()] = 0;
}

/// Defines the functions that C calls, and checks them against their declaration there.
macro_rules! upcalls {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $type:ty),*) $(-> $ret:ty)? $body:block
    )*) => {
        $(
            $(#[$meta])*
            /// # Safety
            ///
            /// Only for `attach/hooks.c` and `attach/handover.c`; the contract is in `kgd2kfd.h`.
            #[no_mangle]
            unsafe extern "C" fn $name($($arg: $type),*) $(-> $ret)? $body

            const _: unsafe extern "C" fn($($type),*) $(-> $ret)? = c::$name;
        )*
    };
}

/// The same for calls about a device that amdgpu was given a [`Slot`] for: C passes it first.
macro_rules! device_upcalls {
    ($(
        fn $name:ident($slot:ident $(, $arg:ident: $type:ty)*) $(-> $ret:ty)? $body:block
    )*) => {
        upcalls! {$(
            fn $name(kfd: *mut c::kfd_dev $(, $arg: $type)*) $(-> $ret)? {
                // SAFETY: amdgpu passes what `amdkfd_probe` returned, which it forgets before
                // it calls `amdkfd_exit` (kgd2kfd.h).
                let $slot = unsafe { Slot::from_raw(kfd) };
                $body
            }
        )*}
    };
}

upcalls! {
    fn amdkfd_supports(
        gc_version: u32,
        virtual_function: bool,
        why: *mut c_char,
        size: usize
    ) -> bool {
        let gc = IpVersion::from_packed(gc_version);
        match check_support(gc, virtual_function) {
            Ok(()) => true,
            Err(unsupported) => {
                // SAFETY: C passes room for that many bytes, its own for the time of the call.
                let why = unsafe { core::slice::from_raw_parts_mut(why.cast(), size) };
                write_text(why, fmt!("{unsupported}"));
                false
            }
        }
    }

    fn amdkfd_gate(open: bool) {
        if open {
            gate::open();
        } else {
            gate::close();
        }
    }

    fn amdkfd_major() -> u32 {
        kfd::major()
    }

    fn amdkfd_init() -> c_int {
        let result = kfd::publish();
        if let Err(error) = result {
            pr_err!("/dev/kfd cannot be published ({error:?})\n");
        }
        errno(result)
    }

    fn amdkfd_exit() {
        // Not under the lock: the end of a device may take long.
        for slot in &Slot::take_all() {
            slot.end_withdrawn();
        }
        kfd::retract();
    }

    fn amdkfd_probe(
        adev: *mut c::amdgpu_device,
        name: *const c_char,
        gc_version: u32,
        virtual_function: bool
    ) -> *mut c::kfd_dev {
        // SAFETY: C passes a string that ends, and keeps it for the time of the call.
        let bus_name = unsafe { CStr::from_char_ptr(name) };
        let name = bus_name.to_str().unwrap_or("?");
        let version = IpVersion::from_packed(gc_version);
        if let Err(unsupported) = check_support(version, virtual_function) {
            pr_warn!("{name} is not served: {unsupported}\n");
            return null_mut();
        }
        let adev = NonNull::new(adev.cast()).ok_or(EINVAL);
        match adev.and_then(|adev| Slot::of_device(adev, bus_name)) {
            Ok(slot) => slot.cast(),
            Err(error) => {
                pr_warn!("{name} is not served ({error:?})\n");
                null_mut()
            }
        }
    }

    fn amdkfd_device_exit(kfd: *mut c::kfd_dev) {
        // A device that was unbound before we took over ends when its last DRM file is closed.
        if !Slot::take_back(kfd) {
            pr_warn!("what the C amdkfd had of a GPU that was unbound while in use is not freed\n");
        }
    }

    fn amdkfd_unbinding(adev: *mut c::amdgpu_device) {
        Slot::when_device_served(adev.cast(), Served::prepare_unbind);
    }

    fn amdkfd_teardown_processes(kfd: *mut c::kfd_dev) {
        let Some(kfd) = NonNull::new(kfd) else {
            return;
        };
        // SAFETY: amdgpu passes what `amdkfd_probe` returned.
        unsafe { Slot::from_raw(kfd.as_ptr()) }.when_served(Served::end_use);
    }

    fn amdkfd_woke_up() {
        while Slot::any_misses_resume() {
            fsleep(Delta::from_millis(100));
        }
    }

    fn amdkfd_drop_fault(_adev: *mut c::amdgpu_device, _pasid: u32) -> bool {
        false
    }

    fn amdkfd_svm_to_ram(fault: *mut c::vm_fault) -> c_uint {
        // SAFETY: It is the argument of `migrate_to_ram`.
        unsafe { vram::fault(fault.cast()) }
    }

    fn amdkfd_svm_free(folio: *mut c::folio) {
        // SAFETY: It is the argument of `folio_free`.
        unsafe { vram::page_freed(folio.cast()) };
    }

    fn amdkfd_quiesce_mm(mm: *mut c::mm_struct, trigger: u32) -> c_int {
        errno(process::evict_mm(MmId::new(mm.cast()), Trigger::from_raw(trigger)))
    }

    fn amdkfd_page_fault(pasid: u32, page: u64, timestamp: u64, write: bool) -> c_int {
        let fault = svm::Fault {
            page,
            write,
            timestamp,
        };
        errno(process::page_fault(pasid, fault))
    }

    fn amdkfd_hurry(mm: *mut c::mm_struct) {
        process::hurry(MmId::new(mm.cast()));
    }

    fn amdkfd_restore_postponed(mm: *mut c::mm_struct) {
        process::restore_postponed(MmId::new(mm.cast()));
    }

    fn amdkfd_resume_mm(mm: *mut c::mm_struct) -> c_int {
        errno(process::restore_mm(MmId::new(mm.cast())))
    }

    fn amdkfd_schedule_evict_and_restore(
        mm: *mut c::mm_struct,
        context_id: u16,
        fence_seqno: u64
    ) -> c_int {
        errno(process::schedule_eviction(MmId::new(mm.cast()), context_id, fence_seqno))
    }
}

device_upcalls! {
    fn amdkfd_device_init(slot, resources: *const c::kgd2kfd_shared_resources) -> bool {
        let result = slot.begin(resources.cast());
        if let Err(error) = result {
            let name = slot.name.to_str().unwrap_or("?");
            pr_err!("{name}: cannot be brought up: {error:?}\n");
        }
        result.is_ok()
    }

    fn amdkfd_suspend(slot, processes: bool) {
        slot.when_served(|served| served.suspend(processes));
    }

    fn amdkfd_resume(slot, processes: bool) -> c_int {
        errno(slot.try_when_served(|served| served.resume(processes)))
    }

    fn amdkfd_suspend_process(slot) {
        slot.when_served(Served::suspend_processes);
    }

    fn amdkfd_resume_process(slot) -> c_int {
        slot.when_served(Served::resume_processes);
        0
    }

    fn amdkfd_pre_reset(slot, cause: *const c_char) -> c_int {
        // SAFETY: C passes a string that ends, and keeps it for the time of the call.
        let cause = unsafe { CStr::from_char_ptr(cause) }.to_str().unwrap_or("?");
        slot.when_served(|served| served.pre_reset(cause));
        0
    }

    fn amdkfd_post_reset(slot) -> c_int {
        errno(slot.try_when_served(Served::post_reset))
    }

    fn amdkfd_prepare_reset(slot) {
        slot.when_served(Served::prepare_reset);
    }

    fn amdkfd_clear_mappings(slot) {
        slot.when_served(Served::clear_mappings);
    }

    fn amdkfd_interrupt(slot, entry: *const u32) {
        // SAFETY: amdgpu passes an entry of eight dwords.
        slot.interrupt(unsafe { &*entry.cast::<[u32; 8]>() });
    }

    fn amdkfd_set_sram_ecc_flag(slot) {
        slot.with(|served| served.note_ecc_error());
    }

    fn amdkfd_throttle(slot, bitmask: u64) {
        slot.with(|served| served.throttled(bitmask));
    }

    fn amdkfd_check_and_lock(slot) -> c_int {
        slot.gate.close();
        // An opener takes its nodes under the same lock: it is counted, or finds the gate closed.
        let in_use = gpu::with_nodes(|_| slot.with(|served| served.has_processes()));
        if in_use != Some(true) {
            return 0;
        }
        slot.gate.open();
        errno(Err(EBUSY))
    }

    fn amdkfd_unlock(slot) {
        slot.gate.open();
    }

    fn amdkfd_start_sched(slot, node: c_int, why: c::amdkfd_pause) -> c_int {
        errno(slot.pause(node, why, false))
    }

    fn amdkfd_stop_sched(slot, node: c_int, why: c::amdkfd_pause) -> c_int {
        errno(slot.pause(node, why, true))
    }

    fn amdkfd_compute_active(slot, node: u32) -> bool {
        let active = slot.with(|served| {
            let mut nodes = served.nodes().iter();
            nodes.any(|known| known.index() == node && known.queues().is_active())
        });
        active.unwrap_or(false)
    }
}
