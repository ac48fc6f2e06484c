// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Whether this user can have machines of the kernel's (KVM).

use anyhow::{bail, Context, Result};
use kvm_ioctls::Kvm;
use std::ffi::CStr;

/// The version of KVM's interface since 2007 (`KVM_API_VERSION` of `<linux/kvm.h>`).
const API_VERSION: i32 = 12;

/// Says why not.
pub fn check() -> Result<()> {
    check_file(c"/dev/kvm")
}

fn check_file(path: &CStr) -> Result<()> {
    let name = || path.to_string_lossy().into_owned();
    let kvm = Kvm::new_with_path(path).with_context(name)?;
    let version = kvm.get_api_version();
    if version != API_VERSION {
        bail!("{} speaks version {version}, not {API_VERSION}", name());
    }
    // In a machine without nested virtualization the file may be there and do nothing.
    kvm.create_vm().with_context(name)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_kvm_is_not_used() {
        assert!(check_file(c"/nonexistent/kvm").is_err());
        let error = check_file(c"/dev/null").unwrap_err();
        assert!(error.to_string().contains("/dev/null"), "{error}");
    }
}
