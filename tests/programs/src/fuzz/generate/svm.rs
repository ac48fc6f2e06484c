// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Calls about shared virtual memory: attributes of `$svm`, and what programs do to it meanwhile.

use super::super::program::Value;
use super::calls::{number, KERNEL, MEMORY};
use super::Writer;
use kfd_uapi as uapi;

/// The bytes of `struct kfd_ioctl_svm_args`: the attributes follow, a type and a value each.
const HEAD: u64 = size_of::<uapi::kfd_ioctl_svm_args>() as u64;

/// Somewhere in the first half of the memory that is shared with GPUs.
pub fn area(w: &mut Writer) -> Value {
    let page = w.random.below((MEMORY / 4096) as usize / 2) as u64;
    Value::Prepared("svm".into(), page * 4096)
}

/// An attribute's value: mostly one that its type can have.
fn value(w: &mut Writer, kind: u32) -> Value {
    const ODD: &[u64] = &[0, 1, 77, 0xffff_ffff];
    let flags = [
        uapi::KFD_IOCTL_SVM_FLAG_HOST_ACCESS,
        uapi::KFD_IOCTL_SVM_FLAG_COHERENT,
        uapi::KFD_IOCTL_SVM_FLAG_GPU_RO,
        uapi::KFD_IOCTL_SVM_FLAG_GPU_EXEC,
        uapi::KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED,
    ];
    match kind {
        uapi::KFD_IOCTL_SVM_ATTR_PREFERRED_LOC | uapi::KFD_IOCTL_SVM_ATTR_PREFETCH_LOC => {
            let gpu = w.gpu();
            let system = uapi::KFD_IOCTL_SVM_LOCATION_SYSMEM.into();
            w.mostly(60, gpu, &[system, system, 0xffff_ffff])
        }
        uapi::KFD_IOCTL_SVM_ATTR_SET_FLAGS | uapi::KFD_IOCTL_SVM_ATTR_CLR_FLAGS => {
            let flags = w.random.pick(&flags) | w.random.pick(&flags);
            w.mostly(95, number(flags.into()), ODD)
        }
        uapi::KFD_IOCTL_SVM_ATTR_GRANULARITY => w.pick(&[0, 4, 9, 9, 40]),
        _ => w.gpu(),
    }
}

/// SVM: sets some attributes, or asks for some.
pub fn svm(w: &mut Writer, p: u8) {
    let start = area(w);
    let start = w.mostly(94, start, &[0, 8, 1 << 47, KERNEL]);
    let size = w.mostly(94, number(4096), &[0, 1, u64::MAX - 4095]);
    let size = match size {
        Value::Number(4096) => w.pick(&[4096, 8192, 65536, MEMORY / 4, MEMORY / 2]),
        odd => odd,
    };
    let set = u64::from(uapi::KFD_IOCTL_SVM_OP_SET_ATTR);
    let get = u64::from(uapi::KFD_IOCTL_SVM_OP_GET_ATTR);
    let operation = w.mostly(70, number(set), &[get, get, get, 2, 77]);
    let count = w.random.pick(&[1, 1, 1, 2, 3, 0]);
    let mut fields = vec![
        ("start_addr", start),
        ("size", size),
        ("op", operation),
        ("nattr", w.mostly(97, number(count), &[0, 9, 0xffff_ffff])),
    ];
    let bytes = HEAD + 8 * count;
    fields.push((
        "request_bytes",
        w.mostly(97, number(bytes), &[0, 8, 24, 28, 8000]),
    ));
    const AT: [(&str, &str); 3] = [("@24", "@28"), ("@32", "@36"), ("@40", "@44")];
    for (kind_at, value_at) in AT.into_iter().take(count as usize) {
        let last = uapi::KFD_IOCTL_SVM_ATTR_GRANULARITY as usize;
        let kind = match w.random.chance(97) {
            true => w.random.below(last + 1) as u32,
            false => 99,
        };
        let value = value(w, kind);
        fields.extend([(kind_at, number(kind.into())), (value_at, value)]);
    }
    w.ioctl(p, "SVM", fields);
}

/// The CPU writes to some of it: pages that are a GPU's come back.
pub fn poke(w: &mut Writer, p: u8) {
    let (at, bytes) = (area(w), w.pick(&[4096, 65536, MEMORY / 4]));
    w.line(p, "POKE", |line| line.with("at", at).with("bytes", bytes));
}
