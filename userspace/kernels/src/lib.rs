// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What build scripts share: the kernels beside this crate, compiled with the build root's clang,
//! or with the one that `KFD_CLANG` names.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// OpenCL C without a library, for the one GPU that there is, with metadata of code object version
/// 5.
const ARGUMENTS: [&str; 11] = [
    "-x",
    "cl",
    "-cl-std=CL2.0",
    "-target",
    "amdgcn-amd-amdhsa",
    "-mcpu=gfx942",
    "-mcode-object-version=5",
    "-nogpulib",
    "-O2",
    "-Wall",
    "-Werror",
];

/// Makes `OUT_DIR/<name>.co` of `<name>.cl`, or takes the code object that the variable `instead`
/// names.
///
/// # Panics
/// When that fails, with what the compiler said: it is for build scripts.
pub fn compile(name: &str, instead: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let out = out.join(name).with_extension("co");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = here.join(name).with_extension("cl");
    println!("cargo:rerun-if-env-changed={instead}");
    println!("cargo:rerun-if-changed={}", source.display());
    if let Some(ready) = env::var_os(instead) {
        fs::copy(ready, &out).unwrap_or_else(|why| panic!("{instead}: {why}"));
        return;
    }
    let mut clang = clang(here);
    let compiled = clang
        .args(ARGUMENTS)
        .args(["-o", "-"])
        .arg(&source)
        .output()
        .unwrap_or_else(|why| panic!("{:?}: {why}", clang.get_program()));
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "clang: {said}");
    fs::write(out, compiled.stdout).expect("OUT_DIR is writable");
}

fn clang(here: &Path) -> Command {
    println!("cargo:rerun-if-env-changed=KFD_CLANG");
    if let Some(given) = env::var_os("KFD_CLANG") {
        return Command::new(given);
    }
    let mut sysroot = Command::new(here.join("../../tools/sysroot/sysroot"));
    sysroot.args(["run", "clang"]);
    sysroot
}
