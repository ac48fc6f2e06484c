// SPDX-License-Identifier: GPL-2.0-only

//! A character device with a class of its own (`include/linux/{fs,device/class}.h`).
//!
//! The kernel crate offers `miscdevice`, but a misc device belongs to class `misc`, and userspace
//! looks for ours under a class name of its own. One [`Registration`] is one major number, one
//! class and one device, all of one name; dropping it takes the device away from new openers.
//! Open files stay: the [`FileOperations`] they use are `'static`, and they pin the module.

use super::{
    class::{
        Class,
        ClassDevice, //
    },
    ffi,
    mmap::Vma,
    task::is_killed, //
};
use core::{
    marker::PhantomData,
    ptr::{
        null_mut,
        NonNull, //
    },
    sync::atomic::{
        AtomicPtr,
        Ordering, //
    },
};
use kernel::{
    bindings,
    error::to_result,
    mm::{
        virt::{
            flags,
            VmaRef, //
        },
        MmWithUser, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    },
    types::ForeignOwnable, //
};

/// What a character device does. Every open file has one `Data`.
pub(crate) trait CharDevice: 'static {
    /// The state of one open file.
    type Data: ForeignOwnable + Send + Sync;

    /// A file is being opened; `minor` is the minor number of its device node.
    fn open(minor: u32) -> Result<Self::Data>;

    /// The `ioctl` system call; what it returns is not negative.
    fn ioctl(
        data: <Self::Data as ForeignOwnable>::Borrowed<'_>,
        cmd: u32,
        arg: usize,
    ) -> Result<u32>;

    /// The `mmap` system call.
    fn mmap(data: <Self::Data as ForeignOwnable>::Borrowed<'_>, vma: &Vma) -> Result;

    /// The bus address of the page at that byte of a mapping, which is touched and not there, or
    /// not any more. `mark` is what the mapping was given (`Vma::map_io`). `EAGAIN`: not now, who
    /// touches it waits. Any other error: it is gone, and whoever touches it gets a SIGBUS. May be
    /// called twice for one touch. mmap_lock, or the lock of the mapping, is held for reading.
    fn touched(
        data: <Self::Data as ForeignOwnable>::Borrowed<'_>,
        offset: u64,
        mark: u64,
    ) -> Result<u64> {
        let _ = (data, offset, mark);
        Err(EFAULT)
    }

    /// The last descriptor of a file is closed.
    fn release(data: Self::Data) {
        drop(data);
    }
}

/// The `file_operations` of a [`CharDevice`]: those of its open files, and those of its number.
///
/// While a module unloads, what it owns cannot be opened: the kernel answers `ENXIO`. So the number
/// belongs to nobody, its `gate` takes the module reference itself, and answers `EAGAIN` when there
/// is none to be had.
pub(crate) struct FileOperations<T: CharDevice> {
    /// What the number leads to: `open` alone.
    gate: bindings::file_operations,
    /// What an open file has; owned by the module.
    raw: bindings::file_operations,
    /// What a mapping has.
    mapped: bindings::vm_operations_struct,
    /// What all open files map of (`Mappings`).
    mappings: AtomicPtr<bindings::address_space>,
    _device: PhantomData<fn() -> T>,
}

// SAFETY: The table is never written after construction; its functions may run on any thread.
unsafe impl<T: CharDevice> Send for FileOperations<T> {}
// SAFETY: As above.
unsafe impl<T: CharDevice> Sync for FileOperations<T> {}

impl<T: CharDevice> FileOperations<T> {
    /// The table. While a file is open, `module` cannot be unloaded.
    pub(crate) fn new(module: &'static ThisModule) -> Self {
        let raw = bindings::file_operations {
            owner: module.as_ptr(),
            open: Some(Self::open),
            release: Some(Self::release),
            unlocked_ioctl: Some(Self::ioctl),
            compat_ioctl: bindings::compat_ptr_ioctl,
            mmap: Some(Self::mmap),
            ..pin_init::zeroed()
        };
        let gate = bindings::file_operations {
            open: Some(Self::pass_gate),
            ..pin_init::zeroed()
        };
        let mapped = bindings::vm_operations_struct {
            fault: Some(Self::fault),
            ..pin_init::zeroed()
        };
        Self {
            gate,
            raw,
            mapped,
            mappings: AtomicPtr::new(null_mut()),
            _device: PhantomData,
        }
    }

    /// # Safety
    ///
    /// `inode` and `file` must be those of a file of this device that is being opened through
    /// `gate`.
    unsafe extern "C" fn pass_gate(
        inode: *mut bindings::inode,
        file: *mut bindings::file,
    ) -> c_int {
        // SAFETY: The file's operations are the field `gate` of a table that lives for ever.
        let table = unsafe { &*kernel::container_of!((*file).f_op.cast_mut(), Self, gate) };
        // SAFETY: The owner is this module, whose structure is there as long as this code is.
        if !unsafe { bindings::try_module_get(table.raw.owner) } {
            return EAGAIN.to_errno();
        }
        // SAFETY: A file that is being opened is the opener's alone. It now holds the reference
        // taken above, which the kernel gives back with the file, or when opening fails.
        unsafe { (*file).f_op = &table.raw };
        // SAFETY: By this function's own contract.
        unsafe { Self::open(inode, file) }
    }

    /// # Safety
    ///
    /// `inode` and `file` must be those of a file of this device that is being opened.
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: The inode is valid for the duration of the call.
        let minor = unsafe { (*inode).i_rdev } & ((1 << bindings::MINORBITS) - 1);
        let data = match T::open(minor) {
            Ok(data) => data,
            Err(error) => return error.to_errno(),
        };
        // SAFETY: The open file's operations are the field `raw` of a table that lives for ever.
        let table = unsafe { &*kernel::container_of!((*file).f_op.cast_mut(), Self, raw) };
        // SAFETY: A file that is being opened is the opener's alone. The mapping outlives it: it
        // goes with the registration, and that not before the module, which the file pins.
        unsafe {
            (*file).private_data = data.into_foreign();
            (*file).f_mapping = table.mappings.load(Ordering::Acquire);
        }
        0
    }

    /// # Safety
    ///
    /// `file` must be a file of this device whose last descriptor is closed.
    unsafe extern "C" fn release(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `open` stored the data, and nobody uses this file any more.
        T::release(unsafe { T::Data::from_foreign((*file).private_data) });
        0
    }

    /// # Safety
    ///
    /// `file` must be an open file of this device.
    unsafe extern "C" fn ioctl(file: *mut bindings::file, cmd: c_uint, arg: c_ulong) -> c_long {
        // SAFETY: `open` stored the data, and `release` cannot run during this call.
        let data = unsafe { T::Data::borrow((*file).private_data) };
        match T::ioctl(data, cmd, arg) {
            // CAST: A 64-bit kernel.
            Ok(number) => number as c_long,
            // CAST: An errno fits every integer.
            Err(error) => error.to_errno() as c_long,
        }
    }

    /// # Safety
    ///
    /// `file` must be an open file of this device, `vma` a mapping of it that is being set up.
    unsafe extern "C" fn mmap(
        file: *mut bindings::file,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        // SAFETY: `open` stored the data, and `release` cannot run during this call.
        let data = unsafe { T::Data::borrow((*file).private_data) };
        // SAFETY: The kernel hands this operation a mapping that is being set up.
        let mapping = unsafe { Vma::from_raw(vma) };
        if let Err(error) = T::mmap(data, mapping) {
            return error.to_errno();
        }
        if !mapping.is_copied_on_write() {
            // SAFETY: The open file's operations are the field `raw` of a table that lives for
            // ever, and the mapping is being set up.
            unsafe {
                let table = &*kernel::container_of!((*file).f_op.cast_mut(), Self, raw);
                (*vma).vm_ops = &raw const table.mapped;
            }
        }
        0
    }

    /// # Safety
    ///
    /// `fault` must be one of a mapping of a file of this device.
    unsafe extern "C" fn fault(fault: *mut bindings::vm_fault) -> c_uint {
        const GONE: c_uint = bindings::vm_fault_reason_VM_FAULT_SIGBUS;
        const AGAIN: c_uint = bindings::vm_fault_reason_VM_FAULT_NOPAGE;
        /// How long one try waits. In between, locks are free, and who touches it can be killed.
        const REST: Delta = Delta::from_millis(10);
        // SAFETY: By this function's own contract; fault and mapping last until this returns.
        let (at, file, mark) = unsafe {
            let at = (*fault).__bindgen_anon_1;
            (at, (*at.vma).vm_file, (*at.vma).vm_private_data)
        };
        // CAST: That is what `Vma::map_io` has put there.
        let mark = mark.addr() as u64;
        let offset = (at.pgoff as u64) << bindings::PAGE_SHIFT;
        let touched = || {
            // SAFETY: `open` stored the data, and `release` cannot run while the mapping has the
            // file.
            let data = unsafe { T::Data::borrow((*file).private_data) };
            T::touched(data, offset, mark)
        };
        let refused = |error| {
            if error != EAGAIN || is_killed() {
                return GONE;
            }
            fsleep(REST);
            AGAIN
        };
        let address = match touched() {
            Ok(address) => address,
            Err(error) => return refused(error),
        };
        // CAST: A 64-bit kernel.
        let number = (address >> bindings::PAGE_SHIFT) as c_ulong;
        // SAFETY: The mapping is of device memory (`Vma::map_io`), not copied on write, and
        // mmap_lock is held. What `touched` names is a page of the device's.
        let ended = unsafe { bindings::vmf_insert_pfn(at.vma, at.address, number) };
        let Err(error) = touched() else {
            return ended;
        };
        // It was taken from all meanwhile; this one may have come too late for that. Others' faults
        // see to their own.
        // SAFETY: The mapping is locked for the fault, and the page is in it.
        unsafe { bindings::zap_special_vma_range(at.vma, at.address, PAGE_SIZE) };
        refused(error)
    }
}

/// A major number of 256 minors.
struct Major {
    first: bindings::dev_t,
    cdev: NonNull<bindings::cdev>,
}

// SAFETY: A character device may be ended from any thread.
unsafe impl Send for Major {}
// SAFETY: Nothing but its end is done with it.
unsafe impl Sync for Major {}

impl Major {
    const MINORS: u32 = 256;

    fn new<T: CharDevice>(name: &'static CStr, fops: &'static FileOperations<T>) -> Result<Self> {
        let (mut first, mut cdev) = (0, null_mut());
        // SAFETY: The name lives for ever.
        to_result(unsafe {
            bindings::alloc_chrdev_region(&mut first, 0, Self::MINORS, name.as_char_ptr())
        })?;
        // SAFETY: The numbers are ours. The table lives as long as this code, which the end of the
        // character device comes before; its `open` does not sleep before it has a reference.
        let added =
            unsafe { ffi::amdkfd_cdev_add(first, Self::MINORS, &raw const fops.gate, &mut cdev) };
        let cdev = to_result(added).and_then(|()| NonNull::new(cdev).ok_or(ENOMEM));
        match cdev {
            Ok(cdev) => Ok(Self { first, cdev }),
            Err(error) => {
                // SAFETY: They lead nowhere.
                unsafe { bindings::unregister_chrdev_region(first, Self::MINORS) };
                Err(error)
            }
        }
    }

    fn number(&self) -> u32 {
        self.first >> bindings::MINORBITS
    }

    fn device(&self, minor: u32) -> bindings::dev_t {
        self.first | minor
    }
}

impl Drop for Major {
    /// A task may still be in `pass_gate`, on its way out: `hooks_remove()` of `attach/hooks.c`
    /// waits for such tasks (`synchronize_rcu_tasks`) before the module goes.
    fn drop(&mut self) {
        // SAFETY: `new` has taken the numbers, and made the character device for them. Who is in
        // its operations is waited for: see above.
        unsafe {
            ffi::amdkfd_cdev_end(self.cdev.as_ptr());
            bindings::unregister_chrdev_region(self.first, Self::MINORS);
        }
    }
}

/// What all open files of a device map of, through whichever device node they were opened: so that
/// it can be taken from all users at once. It is the mapping of an inode that nobody else sees.
pub(crate) struct Mappings {
    inode: NonNull<bindings::inode>,
    /// Where open files look for it.
    shown: &'static AtomicPtr<bindings::address_space>,
}

// SAFETY: An inode may be used and put from any thread.
unsafe impl Send for Mappings {}
// SAFETY: As above.
unsafe impl Sync for Mappings {}

impl Mappings {
    /// `EBUSY`: the table has some, which files that are open map of.
    fn new<T: CharDevice>(name: &'static CStr, fops: &'static FileOperations<T>) -> Result<Self> {
        // SAFETY: The name is a string.
        let inode = unsafe { ffi::amdkfd_anon_inode(name.as_char_ptr()) };
        let inode = NonNull::new(inode).ok_or(ENOMEM)?;
        let shown = &fops.mappings;
        // SAFETY: We hold a reference of the inode.
        let mapping = unsafe { (*inode.as_ptr()).i_mapping };
        let old = shown.compare_exchange(
            null_mut(),
            mapping,
            Ordering::Release,
            Ordering::Relaxed, //
        );
        if old.is_err() {
            // SAFETY: The reference is ours, and nobody else has seen the inode.
            unsafe { bindings::iput(inode.as_ptr()) };
            return Err(EBUSY);
        }
        Ok(Self { inode, shown })
    }

    /// Takes away what users have mapped of the device from byte `offset` on. Meanwhile nobody maps
    /// or unmaps anything of it, or ends who has; and whoever watches one of their address spaces,
    /// for its user, is waited for. So it is for what concerns all of them, such as a reset.
    pub(crate) fn zap(&self, offset: u64, bytes: u64) {
        // CAST: Offsets of mappings are unsigned; the C type is not.
        let (offset, bytes) = (offset as i64, bytes as i64);
        // SAFETY: We hold a reference of the inode, whose mapping lives as long.
        unsafe {
            bindings::unmap_mapping_range((*self.inode.as_ptr()).i_mapping, offset, bytes, 1)
        };
    }

    /// Takes away what has been mapped of the device in one address space, where `wanted` says so
    /// of the byte that a mapping begins with: until it is touched again. Private mappings that can
    /// be written to keep their pages. Other address spaces are not looked at: whoever watches this
    /// one, for its user, is waited for, with its mmap_lock held for reading and nothing else. Its
    /// mappings are looked through, of which there may be as many as `vm.max_map_count` says.
    /// `EAGAIN`: mmap_lock is taken. May sleep.
    pub(crate) fn zap_in(&self, mm: &MmWithUser, wanted: impl Fn(u64) -> bool) -> Result {
        let _lock = mm.mmap_read_trylock().ok_or(EAGAIN)?;
        let mut from = 0;
        loop {
            // SAFETY: mmap_lock is held for reading, and any address may be asked for.
            let found = unsafe { bindings::find_vma(mm.as_raw(), from) };
            if found.is_null() {
                return Ok(());
            }
            // SAFETY: It stays as it is as long as mmap_lock is held.
            let vma = unsafe { VmaRef::from_raw(found) };
            from = vma.end();
            // SAFETY: As above. A mapping keeps its file, and we hold a reference of the inode.
            let (is_ours, first) = unsafe {
                let (file, ours) = ((*found).vm_file, (*self.inode.as_ptr()).i_mapping);
                (
                    !file.is_null() && (*file).f_mapping == ours,
                    (*found).vm_pgoff,
                )
            };
            let is_filled_once = vma.flags() & (flags::SHARED | flags::MAYWRITE) == flags::MAYWRITE;
            if is_ours && !is_filled_once && wanted((first as u64) << bindings::PAGE_SHIFT) {
                vma.zap_vma_range(vma.start(), vma.end() - vma.start());
            }
        }
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        self.shown.store(null_mut(), Ordering::Release);
        // SAFETY: The reference is ours, and open files are gone.
        unsafe { bindings::iput(self.inode.as_ptr()) };
    }
}

/// A device node that users can open. Fields are in the order of teardown.
pub(crate) struct Registration {
    node: ClassDevice,
    _class: Arc<Class>,
    major: Major,
    mappings: Arc<Mappings>,
}

impl Registration {
    /// Publishes minor 0 of a fresh major number as `/dev/<name>`, of class `<name>`. `EBUSY`: the
    /// table has a registration already.
    pub(crate) fn new<T: CharDevice>(
        name: &'static CStr,
        fops: &'static FileOperations<T>,
    ) -> Result<Self> {
        let mappings = Arc::new(Mappings::new(name, fops)?, GFP_KERNEL)?;
        let major = Major::new(name, fops)?;
        let class = Class::new(name)?;
        let node = class.device(major.device(0), name)?;
        Ok(Self {
            node,
            _class: class,
            major,
            mappings,
        })
    }

    /// The major number.
    pub(crate) fn major(&self) -> u32 {
        self.major.number()
    }

    /// What users have mapped of the device.
    pub(crate) fn mappings(&self) -> &Arc<Mappings> {
        &self.mappings
    }

    /// The device, under which others hang their sysfs entries.
    pub(crate) fn device(&self) -> &kernel::device::Device {
        self.node.as_ref()
    }
}

#[kernel::macros::kunit_tests(amdkfd_chrdev)]
mod tests {
    use super::*;

    /// Nobody can open it.
    struct Closed;

    impl CharDevice for Closed {
        type Data = Arc<u8>;

        fn open(_: u32) -> Result<Arc<u8>> {
            Err(EAGAIN)
        }

        fn ioctl(_: <Self::Data as ForeignOwnable>::Borrowed<'_>, _: u32, _: usize) -> Result<u32> {
            Err(ENOTTY)
        }

        fn mmap(_: <Self::Data as ForeignOwnable>::Borrowed<'_>, _: &Vma) -> Result {
            Err(ENODEV)
        }
    }

    // SAFETY: Null is no module, as for code that is built in.
    static NOBODY: ThisModule = unsafe { ThisModule::from_ptr(null_mut()) };

    static TABLE: kernel::sync::SetOnce<FileOperations<Closed>> = kernel::sync::SetOnce::new();

    #[test]
    fn a_table_has_one_registration_at_a_time() {
        TABLE.populate(FileOperations::new(&NOBODY));
        let table = TABLE.as_ref().unwrap();
        let one = Registration::new(c"amdkfd-test-one", table).unwrap();
        let again = Registration::new(c"amdkfd-test-two", table);
        assert_eq!(again.err(), Some(EBUSY));
        // It was not taken from the first.
        assert!(!table.mappings.load(Ordering::Acquire).is_null());
        drop(one);
        drop(Registration::new(c"amdkfd-test-two", table).unwrap());
        assert!(table.mappings.load(Ordering::Acquire).is_null());
    }
}
