// SPDX-License-Identifier: GPL-2.0-only

//! Processes in debugfs: `proc/<pid>` has the pasids of a process, a file for each GPU. One
//! [`Pasids`] for each process, owned by its `ProcessFiles`.

use super::ProcessDevice;
use crate::linux::debugfs::{
    Directory,
    File, //
};
use kernel::{
    fmt,
    prelude::*,
    str::CString,
    sync::{
        global_lock,
        Arc, //
    },
};

global_lock! {
    // SAFETY: `prepare` below runs before anything else in the module.
    unsafe(uninit) static PROC: Mutex<Option<Directory>> = None;
}

/// Makes this file usable.
///
/// # Safety
///
/// Must be called exactly once, before any other function of this file.
pub(crate) unsafe fn prepare() {
    // SAFETY: By this function's own contract.
    unsafe { PROC.init() };
}

/// From now on processes are shown in `directory`; in none: no more are shown.
pub(crate) fn show_in(directory: Option<Directory>) {
    let before = core::mem::replace(&mut *PROC.lock(), directory);
    drop(before);
}

/// The pasids of a process, one for each GPU: a directory. Fields are dropped from top to bottom.
pub(super) struct Pasids {
    _files: KVec<File>,
    directory: Directory,
}

impl Pasids {
    /// Shows those of `devices` in a directory of this name, which is in `parent` or in `proc`.
    pub(super) fn new(
        name: fmt::Arguments<'_>,
        parent: Option<&Self>,
        devices: &[Arc<ProcessDevice>],
    ) -> Result<Self> {
        let name = CString::try_from_fmt(name)?;
        let directory = match parent {
            Some(parent) => Directory::new(&name, Some(&parent.directory)),
            None => Directory::new(&name, Some(PROC.lock().as_ref().ok_or(ENODEV)?)),
        }?;
        let mut files = KVec::with_capacity(devices.len(), GFP_KERNEL)?;
        for device in devices {
            let name = CString::try_from_fmt(fmt!("pasid_{}", device.gpu_id().raw()))?;
            let device = device.clone();
            let file = directory.file(&name, move |f| {
                // Without a VM it has none yet.
                writeln!(f, "{}", device.vm().map_or(0, |vm| vm.pasid().raw()))
            })?;
            files.push(file, GFP_KERNEL)?;
        }
        Ok(Self {
            _files: files,
            directory,
        })
    }
}
