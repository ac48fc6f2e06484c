// SPDX-License-Identifier: GPL-2.0-only

//! What the current task is and may do (`include/linux/{compat,capability,ptrace}.h`).

use super::ffi;
use core::{
    cell::Cell,
    ffi::c_void,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    mm::{
        Mm,
        MmWithUser,
        MmWithUserAsync,
        MmapReadGuard, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef,
    task::{
        Kuid,
        Task, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// Whether the current system call was made in 32-bit mode.
pub(crate) fn in_compat_syscall() -> bool {
    // SAFETY: Reads the current task only.
    unsafe { ffi::amdkfd_in_compat_syscall() }
}

/// Whether the current task is being killed: what takes long is given up.
pub(crate) fn is_killed() -> bool {
    ffi::amdkfd_fatal_signal_pending()
}

/// Calls `act` while the current task's signals wait. What may still look like one (`EINTR`) is a
/// stop, a tracer, a freezer, or that the task is being killed.
pub(crate) fn without_signals<R>(act: impl FnOnce() -> R) -> R {
    // CAST: A small number.
    const SET: c_int = bindings::SIG_SETMASK as c_int;
    let mut before = bindings::sigset_t { sig: [0; 1] };
    let mut all = bindings::sigset_t {
        sig: [c_ulong::MAX; 1],
    };
    // SAFETY: The set of the current task, whose own it is; both places are ours.
    unsafe { bindings::sigprocmask(SET, &mut all, &mut before) };
    let result = act();
    // SAFETY: As above; the old one is not asked for.
    unsafe { bindings::sigprocmask(SET, &mut before, core::ptr::null_mut()) };
    result
}

/// Whether the current task traces `task`.
pub(crate) fn current_traces(task: &Task) -> bool {
    // SAFETY: The task is valid.
    unsafe { ffi::amdkfd_current_traces(task.as_ptr()) }
}

/// Whether a thread of the task's group is frozen: with the machine, which sleeps or is about to,
/// or with its control group (version 1). It does not end before it is thawed, whatever it is sent.
pub(crate) fn is_frozen(task: &Task) -> bool {
    // SAFETY: The task is valid.
    unsafe { ffi::amdkfd_is_frozen(task.as_ptr()) }
}

/// The id of the task's thread group, as its own pid namespace numbers it.
pub(crate) fn thread_group_id(task: &Task) -> i32 {
    // SAFETY: The task is valid.
    unsafe { ffi::amdkfd_thread_group_id(task.as_ptr()) }
}

/// The id of the task's thread group, as the initial pid namespace numbers it: no two live ones
/// have the same.
pub(crate) fn system_thread_group_id(task: &Task) -> i32 {
    // SAFETY: The task is valid.
    unsafe { ffi::amdkfd_system_thread_group_id(task.as_ptr()) }
}

/// Who answers for a task where a user may have so many of something: its real user. In a user
/// namespace whose outermost was not made by root it is that one's owner: whoever has subordinate
/// ids would have as many users as he likes.
pub(crate) fn answerable_user(task: &Task) -> Kuid {
    // SAFETY: The task is valid.
    let val = unsafe { ffi::amdkfd_answerable_user(task.as_ptr()) };
    Kuid::from_raw(bindings::kuid_t { val })
}

/// What is there of an address space that may be another task's, for one who must not wait for
/// programs.
pub(crate) struct PresentMemory {
    mm: ARef<MmWithUserAsync>,
    /// For all that is read.
    patience: Patience,
}

impl PresentMemory {
    /// `ESRCH`: it has ended.
    pub(crate) fn new(mm: &Mm) -> Result<Self> {
        Ok(Self {
            // Whoever lets go of it last tears it down, and with it the process: not here.
            mm: MmWithUser::into_mmput_async(mm.mmget_not_zero().ok_or(ESRCH)?),
            patience: Patience::new(),
        })
    }

    /// A word. `EFAULT`: there is none, or it would have to be brought in first. `ETIMEDOUT`: the
    /// lock of the address space did not come free. May sleep, for a bounded time.
    pub(crate) fn read(&self, address: u64) -> Result<u64> {
        let lock = lock_soon(&self.mm, &self.patience).ok_or(ETIMEDOUT)?;
        // CAST: A 64-bit kernel.
        let vma = lock.vma_lookup(address as usize).ok_or(EFAULT)?;
        let mut word = 0u64;
        let to = (&raw mut word).cast();
        // CAST: As above; a word's size.
        let (address, size) = (address as c_ulong, size_of::<u64>() as c_int);
        // SAFETY: The mapping is valid as long as the lock is held, and `to` has so many bytes.
        let bytes = unsafe { ffi::amdkfd_read_present(vma.as_ptr(), address, to, size) };
        (bytes == size).then_some(word).ok_or(EFAULT)
    }
}

/// How long the lock of an address space is still waited for, whose holder may be waiting for
/// another program.
pub(crate) struct Patience(Cell<u32>);

impl Patience {
    const STEP: Delta = Delta::from_millis(5);

    /// 100 ms.
    pub(crate) fn new() -> Self {
        Self(Cell::new(20))
    }

    /// Waits a little. False: it is used up.
    fn wait(&self) -> bool {
        let left = self.0.get().checked_sub(1);
        if let Some(left) = left {
            self.0.set(left);
            fsleep(Self::STEP);
        }
        left.is_some()
    }
}

/// The lock of the address space. `None`: it did not come free.
pub(crate) fn lock_soon<'a>(mm: &'a MmWithUser, patience: &Patience) -> Option<MmapReadGuard<'a>> {
    loop {
        if let Some(lock) = mm.mmap_read_trylock() {
            return Some(lock);
        }
        if !patience.wait() {
            return None;
        }
    }
}

/// Lends the current kernel thread an address space. `ESRCH`: it has ended. `EINVAL`: the current
/// task is no kernel thread. May sleep.
pub(crate) fn in_address_space<R>(
    mm: &Mm,
    act: impl FnOnce(LentMemory<'_>) -> Result<R>,
) -> Result<R> {
    // SAFETY: The current task is valid, and these flags are its own to change.
    let flags = unsafe { (*kernel::current!().as_ptr()).flags };
    if flags & bindings::PF_KTHREAD == 0 {
        return Err(EINVAL);
    }
    let mm = mm.mmget_not_zero().ok_or(ESRCH)?;
    // Whoever lets go of it last tears it down, and with it the process: not here.
    let mm = MmWithUser::into_mmput_async(mm);
    // SAFETY: The current task is a kernel thread, as was just checked, and it uses no address
    // space: a work item that takes one returns it before it ends. The address space has users as
    // long as `mm` is held.
    unsafe { bindings::kthread_use_mm(mm.as_raw()) };
    let result = act(LentMemory::new(&mm));
    // SAFETY: As above: it is the one that was taken.
    unsafe { bindings::kthread_unuse_mm(mm.as_raw()) };
    result
}

/// User memory of the current task's address space, for one who must not wait for other programs.
/// What a userfaultfd or the server of a file would have to bring in is not there (`EFAULT`); what
/// swap or a device has is. `ETIMEDOUT`: the lock of the address space did not come free. May
/// sleep, for a bounded time.
pub(crate) struct LentMemory<'a> {
    mm: &'a MmWithUser,
    /// For all that is read and written.
    patience: Patience,
}

impl<'a> LentMemory<'a> {
    fn new(mm: &'a MmWithUser) -> Self {
        Self {
            mm,
            patience: Patience::new(),
        }
    }

    /// A word.
    pub(crate) fn read(&self, address: u64) -> Result<u64> {
        let mut word = 0u64;
        let to = (&raw mut word).cast();
        // CAST: an address of this kernel's size.
        let user = address as *const c_void;
        // SAFETY: `to` is a word, and any address may be asked for.
        let copy = || unsafe { bindings::copy_from_user_nofault(to, user, size_of::<u64>()) };
        self.copy(address, 0, copy)?;
        Ok(word)
    }

    /// Writes a word.
    pub(crate) fn write(&self, address: u64, word: u64) -> Result {
        let from = (&raw const word).cast();
        // CAST: an address of this kernel's size.
        let user = address as *mut c_void;
        // SAFETY: `from` is a word, and any address may be asked for.
        let copy = || unsafe { bindings::copy_to_user_nofault(user, from, size_of::<u64>()) };
        self.copy(address, bindings::fault_flag_FAULT_FLAG_WRITE, copy)
    }

    /// Writes words.
    pub(crate) fn write_words(&self, mut address: u64, words: &[u32]) -> Result {
        // What lies on two pages at most is brought in at once.
        for part in words.chunks(PAGE_SIZE / size_of::<u32>()) {
            let bytes = size_of_val(part);
            let from = part.as_ptr().cast();
            // CAST: an address of this kernel's size.
            let user = address as *mut c_void;
            // SAFETY: `from` has so many bytes, and any address may be asked for.
            let copy = || unsafe { bindings::copy_to_user_nofault(user, from, bytes) };
            let last = address.wrapping_add(bytes as u64 - 1);
            self.copy_to(address, last, bindings::fault_flag_FAULT_FLAG_WRITE, copy)?;
            address = address.wrapping_add(bytes as u64);
        }
        Ok(())
    }

    /// Copies a word; once more if that fails, when its pages have been brought in.
    fn copy(&self, address: u64, flags: u32, copy: impl Fn() -> c_long) -> Result {
        let last = address.wrapping_add(size_of::<u64>() as u64 - 1);
        self.copy_to(address, last, flags, copy)
    }

    /// The same of no more than two pages.
    fn copy_to(&self, first: u64, last: u64, flags: u32, copy: impl Fn() -> c_long) -> Result {
        if copy() == 0 {
            return Ok(());
        }
        for byte in [first, last] {
            self.bring_in(byte, flags)?;
        }
        match copy() {
            0 => Ok(()),
            _ => Err(EFAULT),
        }
    }

    fn bring_in(&self, address: u64, flags: u32) -> Result {
        let lock = lock_soon(self.mm, &self.patience).ok_or(ETIMEDOUT)?;
        // CAST: An address of this kernel's size.
        let address = address as usize;
        let vma = lock.vma_lookup(address).ok_or(EFAULT)?;
        // SAFETY: It is valid as long as the lock is held.
        if !unsafe { ffi::amdkfd_faults_alone(vma.as_ptr()) } {
            return Err(EFAULT);
        }
        let flags = flags | bindings::fault_flag_FAULT_FLAG_REMOTE;
        let no_unlock = core::ptr::null_mut();
        // SAFETY: The address space is valid, and its lock is held: with `no_unlock` it stays so.
        let error =
            unsafe { bindings::fixup_user_fault(self.mm.as_raw(), address, flags, no_unlock) };
        kernel::error::to_result(error)
    }
}

/// What a task may be allowed beyond the ordinary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    /// `CAP_CHECKPOINT_RESTORE`
    CheckpointRestore,
    /// `CAP_SYS_ADMIN`
    SysAdmin,
    /// `CAP_SYS_RESOURCE`
    SysResource,
    /// `CAP_PERFMON`
    PerfMon,
}

/// Whether the current task has this capability. Using it is recorded.
pub(crate) fn capable(capability: Capability) -> bool {
    let number = match capability {
        Capability::CheckpointRestore => bindings::CAP_CHECKPOINT_RESTORE,
        Capability::SysAdmin => bindings::CAP_SYS_ADMIN,
        Capability::SysResource => bindings::CAP_SYS_RESOURCE,
        Capability::PerfMon => bindings::CAP_PERFMON,
    };
    // SAFETY: The number is a capability's. CAST: They are below 64.
    unsafe { bindings::capable(number as c_int) }
}

/// Signals that the kernel sends on our account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// What it used is gone.
    Bus,
    /// It must end.
    Kill,
}

impl Signal {
    const fn number(self) -> c_int {
        let number = match self {
            Self::Bus => bindings::SIGBUS,
            Self::Kill => bindings::SIGKILL,
        };
        // CAST: It is below 65.
        number as c_int
    }
}

/// Sends a signal to the thread group that `task` leads. Never sleeps.
pub(crate) fn signal(task: &Task, signal: Signal) {
    // SAFETY: The task is valid.
    unsafe { ffi::amdkfd_signal_group(task.as_ptr(), signal.number()) };
}

/// Sends a signal to each thread group that runs in the address space. Never sleeps.
pub(crate) fn signal_users(mm: &Mm, signal: Signal) {
    // SAFETY: Any address may be asked for; this is one of an address space, which no other has
    // meanwhile.
    unsafe { ffi::amdkfd_signal_users(mm.as_raw(), signal.number()) };
}

/// The task with this id, as the current task numbers them.
pub(crate) fn find_task(id: i32) -> Option<ARef<Task>> {
    // SAFETY: Any number may be asked for. The reference is given back below.
    let pid = unsafe { bindings::find_get_pid(id) };
    // SAFETY: A task may be asked for of any pid, also of none.
    let task = unsafe { bindings::get_pid_task(pid, bindings::pid_type_PIDTYPE_PID) };
    // SAFETY: `find_get_pid` took the reference, if it found one.
    unsafe { bindings::put_pid(pid) };
    // SAFETY: `get_pid_task` took the reference, which is the result's from now on; a `Task` is a
    // transparent `struct task_struct`.
    NonNull::new(task).map(|task| unsafe { ARef::from_raw(task.cast()) })
}

/// The leader of a task's thread group. `None`: it has ended.
pub(crate) fn leader_of(task: &Task) -> Option<ARef<Task>> {
    // SAFETY: The task is valid.
    let leader = unsafe { ffi::amdkfd_get_leader(task.as_ptr()) };
    // SAFETY: The function took the reference, which is the result's from now on.
    NonNull::new(leader).map(|leader| unsafe { ARef::from_raw(leader.cast()) })
}

/// The address space that a task runs in. `None`: a kernel thread, or one that has ended. The last
/// one to let go of it ends it, later and in another context.
pub(crate) fn address_space_of(task: &Task) -> Option<ARef<MmWithUserAsync>> {
    // SAFETY: The task is valid.
    let mm = unsafe { bindings::get_task_mm(task.as_ptr()) };
    // SAFETY: `get_task_mm` took a reference as a user, which is the result's from now on; a
    // `MmWithUserAsync` is a transparent `struct mm_struct`.
    NonNull::new(mm).map(|mm| unsafe { ARef::from_raw(mm.cast()) })
}

#[kernel::macros::kunit_tests(amdkfd_task)]
mod tests {
    use super::*;
    use crate::linux::{
        mmu_notifier::LockedSpace,
        test_space, //
    };
    use kernel::time::{
        Instant,
        Monotonic, //
    };

    const PROTECTIONS: [c_ulong; 2] = [test_space::READ_ONLY, test_space::WRITABLE];

    /// Two pages that nobody has touched, in an address space of the test's own.
    fn map(protection: c_ulong) -> u64 {
        test_space::map(0x2000, protection)
    }

    #[test]
    fn lent_memory_is_brought_in() {
        let [constant, variable] = PROTECTIONS.map(map);
        let current = kernel::current!();
        let memory = LentMemory::new(current.mm().unwrap());
        // Nobody has touched the pages; one word lies on two.
        assert_eq!(memory.read(constant), Ok(0));
        assert_eq!(memory.write(variable + 0xffc, 7), Ok(()));
        assert_eq!(memory.read(variable + 0xffc), Ok(7));
        assert_eq!(memory.write(constant, 7), Err(EFAULT));
        let words = [7u32; 0x600];
        assert_eq!(memory.write_words(variable + 0x400, &words), Ok(()));
        assert_eq!(memory.read(variable + 0x1bf8), Ok(7 << 32 | 7));
        assert_eq!(memory.read(variable + 0x1c00), Ok(0));
        assert!(memory.write_words(variable + 0x1ffc, &words).is_err());
        for nowhere in [0, 8, variable.max(constant) + 0x1ffc, u64::MAX - 3] {
            assert!(memory.read(nowhere).is_err());
        }
    }

    #[test]
    fn a_lock_that_does_not_come_free_is_waited_for_once() {
        let variable = map(PROTECTIONS[1]);
        let current = kernel::current!();
        let mm = current.mm().unwrap();
        let lent = LentMemory::new(mm);
        let present = PresentMemory::new(mm).unwrap();
        let locked = LockedSpace::new(mm).unwrap();
        let begin = Instant::<Monotonic>::now();
        for _ in 0..20 {
            assert_eq!(lent.read(variable), Err(ETIMEDOUT));
            assert_eq!(present.read(variable), Err(ETIMEDOUT));
        }
        let waited = begin.elapsed();
        assert!(waited >= Delta::from_millis(200) && waited < Delta::from_secs(3));
        drop(locked);
        // Nothing is brought in that is not there.
        assert_eq!(present.read(variable), Err(EFAULT));
        assert_eq!(lent.write(variable, 7), Ok(()));
        assert_eq!(present.read(variable), Ok(7));
        for nowhere in [0, variable + 0xffc, u64::MAX - 3] {
            assert_eq!(present.read(nowhere), Err(EFAULT));
        }
    }
}
