// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Turns the kernel source's `<linux/kfd_ioctl.h>` into Rust with the build root's bindgen.
//!
//! `KFD_UAPI_BINDINGS=FILE` takes bindings made elsewhere instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bindings.rs");
    println!("cargo:rerun-if-env-changed=KFD_UAPI_BINDINGS");
    println!("cargo:rerun-if-changed=wrapper.h");
    if let Some(ready) = env::var_os("KFD_UAPI_BINDINGS") {
        fs::copy(ready, &out).expect("KFD_UAPI_BINDINGS names a readable file");
        return;
    }
    let project = Path::new("../..")
        .canonicalize()
        .expect("the project directory");
    let sysroot = project.join("tools/sysroot/sysroot");
    let tree = kernel_tree(&sysroot);
    let bindings = Command::new(&sysroot)
        .args([
            "run",
            "bindgen",
            "--use-core",
            "--no-layout-tests",
            "--no-doc-comments",
            "--no-prepend-enum-name",
        ])
        .args([
            "--allowlist-type",
            "kfd_.*",
            "--allowlist-var",
            "(KFD_|HSA_|IOC_).*",
        ])
        .args(["--with-derive-default", "--default-enum-style", "consts"])
        .arg(project.join("userspace/kfd-uapi/wrapper.h"))
        .args([
            "--",
            "-nostdinc",
            "-D__user=",
            "-D__EXPORTED_HEADERS__",
            "-I",
        ])
        .arg(tree.join("include/uapi"))
        .arg("-I")
        .arg(tree.join("arch/x86/include/uapi"))
        .arg("-I")
        .arg(tree.join("arch/x86/include/generated/uapi"))
        .arg("-I")
        .arg(tree.join("include"))
        .output()
        .expect("tools/sysroot/sysroot can be run");
    assert!(
        bindings.status.success(),
        "bindgen: {}",
        String::from_utf8_lossy(&bindings.stderr)
    );
    fs::write(out, bindings.stdout).expect("OUT_DIR is writable");
}

/// Where the prepared kernel source is, by `sysroot env`; made when it is not there yet.
fn kernel_tree(sysroot: &Path) -> PathBuf {
    let made = Command::new(sysroot)
        .arg("kernel-tree")
        .status()
        .expect("tools/sysroot/sysroot can be run");
    assert!(made.success(), "tools/sysroot/sysroot kernel-tree failed");
    let env = Command::new(sysroot)
        .arg("env")
        .output()
        .expect("tools/sysroot/sysroot can be run");
    let text = String::from_utf8(env.stdout).expect("sysroot env prints text");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("KERNEL_TREE="));
    PathBuf::from(line.expect("sysroot env names KERNEL_TREE"))
}
