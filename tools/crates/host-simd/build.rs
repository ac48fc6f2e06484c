// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Says by the configuration `avx512` that the compiler knows AVX-512: 1.89 and newer do.

use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(avx512)");
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler).arg("--version").output();
    let text = output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    );
    // "rustc 1.95.0 (…)"
    let mut numbers = text.split(' ').nth(1).unwrap_or("").split('.');
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    if (number(), number()) >= (Some(1), Some(89)) {
        println!("cargo::rustc-cfg=avx512");
    }
}
