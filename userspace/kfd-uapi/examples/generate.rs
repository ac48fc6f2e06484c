// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Makes `src/bindings.rs` and `src/reflect/tables.rs` of the kernel's `<linux/kfd_ioctl.h>`, with
//! bindgen; or with `--check` only says whether they are what the header says. The header is, in
//! this order of choice:
//!
//! 1. `KFD_UAPI_INCLUDE=DIR:...`: the one in these directories, read by the bindgen of PATH;
//! 2. in the project's tree: the prepared kernel source's, read by the build root's bindgen;
//! 3. elsewhere: the one in /usr/include, read by the bindgen of PATH.

use quote::quote;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs};

const HEAD: &str = "\
// SPDX-License-Identifier: MIT

// Made by `cargo run -p kfd-uapi --example generate` of the kernel's headers kfd_ioctl.h,
// kfd_sysfs.h and amdgpu_drm.h, which are copyright 2014 and 2021 Advanced Micro Devices, Inc., and
// under the MIT licence. Not to be edited.

";

fn main() -> ExitCode {
    let check = env::args().nth(1).is_some_and(|word| word == "--check");
    let bindings = bindings();
    let file = syn::parse_file(&bindings).expect("bindgen writes Rust");
    let made = [
        ("src/bindings.rs", formatted(&format!("{HEAD}{bindings}"))),
        ("src/reflect/tables.rs", format!("{HEAD}{}", tables(&file))),
    ];
    let mut code = ExitCode::SUCCESS;
    for (name, text) in made {
        let path = manifest_dir().join(name);
        if !check {
            fs::write(&path, text).unwrap_or_else(|why| panic!("{name}: {why}"));
        } else if let Some(line) = first_difference(&fs::read_to_string(&path).unwrap(), &text) {
            println!("{name} differs from the header from line {line} on");
            code = ExitCode::FAILURE;
        } else {
            println!(
                "{name} is what the header says: {} lines",
                text.lines().count()
            );
        }
    }
    code
}

/// The number of the first line that is another one.
fn first_difference(one: &str, other: &str) -> Option<usize> {
    let (mut one, mut other) = (one.lines(), other.lines());
    (1..)
        .map(|number| (number, one.next(), other.next()))
        .find_map(|(number, one, other)| {
            if one.is_none() && other.is_none() {
                return Some(None);
            }
            (one != other).then_some(Some(number))
        })?
}

/// Where the header is, and who reads it.
struct Source {
    bindgen: Command,
    include: Vec<PathBuf>,
}

/// What bindgen makes of the header.
fn bindings() -> String {
    let Source {
        mut bindgen,
        include,
    } = source();
    bindgen.args(OPTIONS).arg(manifest_dir().join("wrapper.h"));
    bindgen.args(["--", "-nostdinc", "-D__user=", "-D__EXPORTED_HEADERS__"]);
    for dir in &include {
        bindgen.arg("-I").arg(dir);
    }
    let bindings = bindgen
        .output()
        .unwrap_or_else(|error| panic!("{:?}: {error}", bindgen.get_program()));
    assert!(
        bindings.status.success(),
        "bindgen could not read linux/kfd_ioctl.h of {include:?}, which must be of KFD 1.23 or \
        newer: {}",
        String::from_utf8_lossy(&bindings.stderr)
    );
    let text = String::from_utf8(bindings.stdout).expect("bindgen writes text");
    // Which bindgen it was does not matter.
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("/* automatically generated"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

const OPTIONS: &[&str] = &[
    "--use-core",
    "--no-layout-tests",
    "--no-doc-comments",
    "--no-prepend-enum-name",
    "--allowlist-type",
    "(kfd_|drm_amdgpu_gem_create|drm_amdgpu_gem_metadata|drm_amdgpu_gem_va|\
     drm_amdgpu_gem_wait_idle|drm_amdgpu_ctx|drm_amdgpu_cs|drm_amdgpu_wait_cs|\
     drm_amdgpu_bo_list_).*|drm_gem_close|drm_prime_handle|KFD_QUEUE_EVICTION_TRIGGERS",
    "--allowlist-var",
    "(KFD_|HSA_|IOC_|AMDGPU_GEM_DOMAIN_|AMDGPU_GEM_METADATA_OP_SET|AMDGPU_VA_OP_MAP|\
     AMDGPU_VM_PAGE_PRT|AMDGPU_CTX_OP_ALLOC|AMDGPU_CHUNK_ID_IB|AMDGPU_CHUNK_ID_BO_HANDLES|\
     AMDGPU_HW_IP_COMPUTE).*",
    "--with-derive-default",
    "--default-enum-style",
    "consts",
];

fn manifest_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn source() -> Source {
    let sysroot = manifest_dir().join("../../tools/sysroot/sysroot");
    if let Some(dirs) = env::var_os("KFD_UAPI_INCLUDE") {
        return plain(&dirs);
    }
    match sysroot.canonicalize() {
        Ok(sysroot) => of_the_tree(&sysroot),
        Err(_) => plain(OsStr::new("/usr/include:/usr/include/x86_64-linux-gnu")),
    }
}

fn plain(dirs: &OsStr) -> Source {
    Source {
        bindgen: Command::new("bindgen"),
        include: env::split_paths(dirs).collect(),
    }
}

/// The prepared kernel source's headers, which are not installed as `make headers_install` does it.
fn of_the_tree(sysroot: &Path) -> Source {
    let tree = kernel_tree(sysroot);
    let mut bindgen = Command::new(sysroot);
    bindgen.args(["run", "bindgen"]);
    let dirs = [
        "include/uapi",
        "arch/x86/include/uapi",
        "arch/x86/include/generated/uapi",
        "include",
    ];
    Source {
        bindgen,
        include: dirs.iter().map(|dir| tree.join(dir)).collect(),
    }
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

/// The same as rustfmt writes it with the project's settings.
fn formatted(text: &str) -> String {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2021", "--config", "max_width=100"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("rustfmt can be run");
    let mut input = rustfmt.stdin.take().expect("it is a pipe");
    let text = text.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = rustfmt.wait_with_output().expect("rustfmt ends");
    writer.join().expect("no panic").expect("rustfmt reads all");
    assert!(output.status.success(), "rustfmt failed");
    String::from_utf8(output.stdout).expect("rustfmt writes text")
}

/// The tables of `src/reflect.rs`: every struct and union with its fields, every constant.
fn tables(file: &syn::File) -> String {
    let mut structs = String::from("structs! {\n");
    let mut constants = String::from("constants! {\n");
    for item in &file.items {
        match item {
            syn::Item::Struct(item) if is_ours(&item.ident) => {
                table(&mut structs, "struct", &item.ident, &item.fields);
            }
            syn::Item::Union(item) if is_ours(&item.ident) => {
                let fields = syn::Fields::Named(item.fields.clone());
                table(&mut structs, "union", &item.ident, &fields);
            }
            syn::Item::Const(item) => {
                writeln!(constants, "    {}", item.ident).expect("a string takes all");
            }
            _ => {}
        }
    }
    format!("use super::{{Constant, Field, Kind, Struct}};\n\n{structs}}}\n\n{constants}}}\n")
}

fn is_ours(name: &syn::Ident) -> bool {
    name.to_string().starts_with("kfd_")
}

fn table(out: &mut String, kind: &str, owner: &syn::Ident, fields: &syn::Fields) {
    writeln!(out, "    {kind} {owner} {{").expect("a string takes all");
    for field in fields {
        let ident = field.ident.as_ref().expect("C fields have names");
        let name = ident.to_string();
        // bindgen's marks: of a field without a name, and of a name that is a keyword in Rust.
        let name = if name.starts_with("__bindgen_anon") {
            ""
        } else {
            name.trim_end_matches('_')
        };
        let kind = kind_of(&field.ty);
        let line = format!("        {ident} {name:?} {kind};");
        let line = match line.len() {
            ..=100 => line,
            _ => format!("        {ident} {name:?}\n            {kind};"),
        };
        writeln!(out, "{line}").expect("a string takes all");
    }
    out.push_str("    }\n");
}

fn kind_of(ty: &syn::Type) -> String {
    match ty {
        syn::Type::Array(array) => {
            let (element, count) = (kind_of(&array.elem), &array.len);
            format!("[{element}; {}]", quote! { #count })
        }
        syn::Type::Path(path) => {
            let last = path.path.segments.last().expect("a path has a segment");
            match last.ident.to_string().as_str() {
                "__u32" | "__s32" => "Word".into(),
                "__u64" => "Long".into(),
                "__IncompleteArrayField" => "Tail".into(),
                name => format!("(Struct {name})"),
            }
        }
        _ => panic!("a field of a type that C headers do not have"),
    }
}
