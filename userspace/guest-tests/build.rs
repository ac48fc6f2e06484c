// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Compiles the tests' GPU kernels with the build root's clang.
//!
//! `KFD_TESTS_KERNELS=FILE` takes a code object made elsewhere instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("tests.co");
    let project = Path::new("../..")
        .canonicalize()
        .expect("the project directory");
    let source = project.join("userspace/kernels/tests.cl");
    println!("cargo:rerun-if-env-changed=KFD_TESTS_KERNELS");
    println!("cargo:rerun-if-changed={}", source.display());
    if let Some(ready) = env::var_os("KFD_TESTS_KERNELS") {
        fs::copy(ready, &out).expect("KFD_TESTS_KERNELS names a readable file");
        return;
    }
    let compiled = Command::new(project.join("tools/sysroot/sysroot"))
        .args([
            "run",
            "clang",
            "-x",
            "cl",
            "-cl-std=CL2.0",
            "-target",
            "amdgcn-amd-amdhsa",
            "-mcpu=gfx942",
        ])
        .args([
            "-mcode-object-version=5",
            "-nogpulib",
            "-O2",
            "-Wall",
            "-Werror",
            "-o",
            "-",
        ])
        .arg(&source)
        .output()
        .expect("tools/sysroot/sysroot can be run");
    assert!(
        compiled.status.success(),
        "clang: {}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    fs::write(out, compiled.stdout).expect("OUT_DIR is writable");
}
