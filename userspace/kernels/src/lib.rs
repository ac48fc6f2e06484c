// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What build scripts share: the kernels beside this crate, compiled with the build root's clang,
//! or with the one that `KFD_CLANG` names.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// OpenCL C without a library, with metadata of code object version 5.
const ARGUMENTS: [&str; 10] = [
    "-x",
    "cl",
    "-cl-std=CL2.0",
    "-target",
    "amdgcn-amd-amdhsa",
    "-mcode-object-version=5",
    "-nogpulib",
    "-O2",
    "-Wall",
    "-Werror",
];

/// From LLVM 21 on a kernel is a function around another with its code, which must not stay by
/// itself: it may not have local memory, and labels in its assembly would be there twice.
const NO_COPIES: [&str; 4] = [
    "-mllvm",
    "-amdgpu-internalize-symbols",
    "-mllvm",
    "-amdgpu-early-inline-all",
];

/// What clang says of a processor that it does not know, by its version.
const UNKNOWN: [&str; 2] = ["unknown target CPU", "invalid target ID"];

/// Makes `OUT_DIR/<name>.co` of `<name>.cl`, for gfx942, `OUT_DIR/<name>-gfx950.co` and
/// `OUT_DIR/<name>-gfx90a.co`. Where `KFD_CLANG` does not know one of them, that is empty. Or takes
/// the code object that the variable `instead` names for all.
///
/// # Panics
/// When that fails, with what the compiler said: it is for build scripts.
pub fn compile(name: &str, instead: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let [newer, older] = ["gfx950", "gfx90a"].map(|cpu| out.join(format!("{name}-{cpu}.co")));
    let out = out.join(name).with_extension("co");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = here.join(name).with_extension("cl");
    println!("cargo:rerun-if-env-changed={instead}");
    println!("cargo:rerun-if-changed={}", source.display());
    println!("cargo:rerun-if-changed={}", here.join("print.h").display());
    if let Some(ready) = env::var_os(instead) {
        for out in [&out, &newer, &older] {
            fs::copy(&ready, out).unwrap_or_else(|why| panic!("{instead}: {why}"));
        }
        return;
    }
    let given = env::var_os("KFD_CLANG").is_some();
    println!("cargo:rerun-if-env-changed=KFD_CLANG");
    for (cpu, out) in [("gfx942", out), ("gfx950", newer), ("gfx90a", older)] {
        let code = match run(clang(here, cpu), cpu, &source) {
            Ok(code) => code,
            Err(said) if given && UNKNOWN.iter().any(|why| said.contains(why)) => Vec::new(),
            Err(said) => panic!("clang: {said}"),
        };
        fs::write(out, code).expect("OUT_DIR is writable");
    }
}

/// The code object, or what the compiler said.
fn run(mut clang: Command, cpu: &str, source: &Path) -> Result<Vec<u8>, String> {
    let compiled = clang
        .args(ARGUMENTS)
        .args(if cpu == "gfx950" { &NO_COPIES[..] } else { &[] })
        .arg(format!("-mcpu={cpu}"))
        .args(["-o", "-"])
        .arg(source)
        .output()
        .unwrap_or_else(|why| panic!("{:?}: {why}", clang.get_program()));
    match compiled.status.success() {
        true => Ok(compiled.stdout),
        false => Err(String::from_utf8_lossy(&compiled.stderr).into_owned()),
    }
}

/// The build root's clang, or a newer one for what that does not know.
fn clang(here: &Path, cpu: &str) -> Command {
    if let Some(given) = env::var_os("KFD_CLANG") {
        return Command::new(given);
    }
    let mut sysroot = Command::new(here.join("../../tools/sysroot/sysroot"));
    sysroot.args(match cpu {
        "gfx950" => ["run-llvm", "clang-21"],
        _ => ["run", "clang"],
    });
    sysroot
}
