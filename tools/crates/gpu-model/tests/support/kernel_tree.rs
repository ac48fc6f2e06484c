// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The kernel source with AMD's headers and the C driver, for tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The tree that `tools/sysroot/sysroot env` names as KERNEL_TREE.
///
/// # Panics
///
/// Where there is none: a comparison with nothing compares nothing.
pub fn kernel_tree() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sysroot/sysroot");
    let output = Command::new(script).arg("env").output();
    let text = String::from_utf8(output.expect("sysroot runs").stdout).expect("UTF-8");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("KERNEL_TREE="));
    let tree = PathBuf::from(line.expect("sysroot env prints KERNEL_TREE"));
    assert!(
        tree.join("drivers/gpu/drm/amd").is_dir(),
        "no kernel source at {}; make it with `make sysroot`",
        tree.display()
    );
    tree
}
