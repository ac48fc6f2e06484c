// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Turns the kernel's `<linux/kfd_ioctl.h>` into Rust with bindgen, and that into tables of structs
//! with their fields and of constants, for programs that show them by name. The header is, in this
//! order of choice:
//!
//! 1. `KFD_UAPI_BINDINGS=FILE`: nobody's, FILE holds bindings made elsewhere;
//! 2. `KFD_UAPI_INCLUDE=DIR:...`: the one in these directories, read by the bindgen of PATH;
//! 3. in the project's tree: the prepared kernel source's, read by the build root's bindgen;
//! 4. elsewhere: the one in /usr/include, read by the bindgen of PATH.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use quote::quote;

fn main() {
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bindings.rs");
    println!("cargo:rerun-if-env-changed=KFD_UAPI_BINDINGS");
    println!("cargo:rerun-if-changed=wrapper.h");
    if let Some(ready) = env::var_os("KFD_UAPI_BINDINGS") {
        fs::copy(ready, &out).expect("KFD_UAPI_BINDINGS names a readable file");
    } else {
        generate(&out);
    }
    let text = fs::read_to_string(&out).expect("just written");
    let file = syn::parse_file(&text).expect("bindgen writes Rust");
    fs::write(out.with_file_name("reflect.rs"), tables(&file).to_string())
        .expect("OUT_DIR is writable");
}

/// Where the header is, and who reads it.
struct Source {
    bindgen: Command,
    include: Vec<PathBuf>,
}

/// Has bindgen write `out`.
fn generate(out: &Path) {
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
    fs::write(out, bindings.stdout).expect("OUT_DIR is writable");
}

const OPTIONS: &[&str] = &[
    "--use-core",
    "--no-layout-tests",
    "--no-doc-comments",
    "--no-prepend-enum-name",
    "--allowlist-type",
    "(kfd_|drm_amdgpu_gem_create|drm_amdgpu_gem_metadata|drm_amdgpu_gem_va|\
     drm_amdgpu_gem_wait_idle).*|drm_prime_handle|KFD_QUEUE_EVICTION_TRIGGERS",
    "--allowlist-var",
    "(KFD_|HSA_|IOC_|AMDGPU_GEM_DOMAIN_|AMDGPU_GEM_METADATA_OP_SET|AMDGPU_VA_OP_MAP|\
     AMDGPU_VM_PAGE_PRT).*",
    "--with-derive-default",
    "--default-enum-style",
    "consts",
];

fn manifest_dir() -> PathBuf {
    PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"))
}

fn source() -> Source {
    println!("cargo:rerun-if-env-changed=KFD_UAPI_INCLUDE");
    let sysroot = manifest_dir().join("../../tools/sysroot/sysroot");
    if let Some(dirs) = env::var_os("KFD_UAPI_INCLUDE") {
        return plain(&dirs);
    }
    match sysroot.canonicalize() {
        Ok(sysroot) => of_the_tree(&sysroot),
        Err(_) => plain(&OsString::from(
            "/usr/include:/usr/include/x86_64-linux-gnu",
        )),
    }
}

fn plain(dirs: &OsString) -> Source {
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

/// The tables of `src/reflect.rs`: every struct and union with its fields, every constant.
fn tables(file: &syn::File) -> proc_macro2::TokenStream {
    let mut structs = Vec::new();
    let mut constants = Vec::new();
    for item in &file.items {
        match item {
            syn::Item::Struct(item) if is_ours(&item.ident) => {
                structs.push(table(&item.ident, &item.fields, false));
            }
            syn::Item::Union(item) if is_ours(&item.ident) => {
                structs.push(table(
                    &item.ident,
                    &syn::Fields::Named(item.fields.clone()),
                    true,
                ));
            }
            syn::Item::Const(item) => {
                let (ident, name) = (&item.ident, item.ident.to_string());
                constants.push(quote! { Constant { name: #name, value: crate::#ident as u32 } });
            }
            _ => {}
        }
    }
    quote! {
        /// Every struct and union of the interface.
        pub static STRUCTS: &[Struct] = &[#(#structs),*];
        /// Every constant of the interface, as its 32 bits.
        pub static CONSTANTS: &[Constant] = &[#(#constants),*];
    }
}

fn is_ours(name: &syn::Ident) -> bool {
    name.to_string().starts_with("kfd_")
}

fn table(owner: &syn::Ident, fields: &syn::Fields, is_union: bool) -> proc_macro2::TokenStream {
    let fields = fields.iter().map(|field| {
        let ident = field.ident.as_ref().expect("C fields have names");
        let name = ident.to_string();
        // bindgen's marks: of a field without a name, and of a name that is a keyword in Rust.
        let name = if name.starts_with("__bindgen_anon") {
            ""
        } else {
            name.trim_end_matches('_')
        };
        let kind = kind(&field.ty);
        quote! {
            Field {
                name: #name,
                offset: ::core::mem::offset_of!(crate::#owner, #ident),
                kind: #kind,
            }
        }
    });
    let name = owner.to_string();
    quote! {
        Struct {
            name: #name,
            size: ::core::mem::size_of::<crate::#owner>(),
            is_union: #is_union,
            fields: &[#(#fields),*],
        }
    }
}

fn kind(ty: &syn::Type) -> proc_macro2::TokenStream {
    match ty {
        syn::Type::Array(array) => {
            let (element, count) = (kind(&array.elem), &array.len);
            quote! { Kind::Array(&#element, #count) }
        }
        syn::Type::Path(path) => {
            let last = path.path.segments.last().expect("a path has a segment");
            match last.ident.to_string().as_str() {
                "__u32" | "__s32" => quote! { Kind::Word },
                "__u64" => quote! { Kind::Long },
                "__IncompleteArrayField" => quote! { Kind::Tail },
                name => quote! { Kind::Struct(#name) },
            }
        }
        _ => panic!("a field of a type that C headers do not have"),
    }
}
