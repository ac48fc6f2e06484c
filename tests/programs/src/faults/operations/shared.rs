// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Shared virtual memory, where the driver has it: SET_ATTR, memory that goes to VRAM and comes
//! back, and what the kernel does with such memory.

use super::{plain, Operation};
use crate::faults::stage::{Call, Stage};
use anyhow::Result;
use kfd_uapi as uapi;
use rustix::fd::AsRawFd;
use rustix::io::Errno;

/// Bytes of a range: several pages, so that lists are.
const SIZE: u64 = 256 << 10;
/// SET_ATTR and GET_ATTR.
const SET: u32 = 0;
const GET: u32 = 1;
/// The most attributes of a call.
const MOST: usize = 4;

/// `struct kfd_ioctl_svm_args` with room for attributes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    start: u64,
    size: u64,
    op: u32,
    count: u32,
    attributes: [[u32; 2]; MOST],
}

fn is_there() -> bool {
    std::fs::read_to_string("/sys/module/amdkfd/parameters/svm").is_ok_and(|is| is.trim() == "Y")
}

pub(super) fn operations() -> Vec<Operation> {
    if !is_there() {
        return Vec::new();
    }
    let mut all = attributes();
    all.extend(moves());
    all.extend(kernels());
    all
}

fn attributes() -> Vec<Operation> {
    vec![
        plain("SVM SET_ATTR of a new range", |stage| {
            call(stage, SET, SIZE, &[access(stage)])
        })
        // Attributes stay where the memory cannot be shown.
        .keeps()
        .renewed(),
        plain("SVM SET_ATTR of a part", |stage| {
            make(stage, SIZE, &[access(stage)])?;
            let flag = uapi::KFD_IOCTL_SVM_FLAG_GPU_RO;
            let attribute = [uapi::KFD_IOCTL_SVM_ATTR_SET_FLAGS, flag];
            call(stage, SET, SIZE / 2, &[attribute])
        })
        .renewed(),
        plain("SVM SET_ATTR that takes access", |stage| {
            make(stage, SIZE, &[access(stage)])?;
            let attribute = [uapi::KFD_IOCTL_SVM_ATTR_NO_ACCESS, stage.gpu_id()];
            call(stage, SET, SIZE / 2, &[attribute])
        })
        .renewed(),
        plain("SVM GET_ATTR", |stage| {
            make(stage, SIZE, &[access(stage)])?;
            call(stage, GET, SIZE, &[access(stage)])
        })
        .renewed(),
    ]
}

fn moves() -> Vec<Operation> {
    vec![
        plain("SVM prefetch to VRAM", |stage| {
            make(stage, SIZE, &[access(stage)])?;
            call(stage, SET, SIZE, &[fetch(stage.gpu_id())])
        })
        // Pages stay in VRAM where they cannot be shown.
        .keeps()
        .renewed(),
        plain("SVM prefetch to VRAM of a new range", |stage| {
            call(stage, SET, SIZE, &[access(stage), fetch(stage.gpu_id())])
        })
        .keeps()
        .renewed(),
        plain("SVM prefetch from VRAM", |stage| {
            make(stage, SIZE, &[access(stage), fetch(stage.gpu_id())])?;
            call(stage, SET, SIZE, &[fetch(0)])
        })
        .renewed(),
        plain("SVM: the processor looks at a page in VRAM", |stage| {
            make(stage, SIZE, &[access(stage), fetch(stage.gpu_id())])?;
            let (reader, writer) = rustix::pipe::pipe()?;
            let file = writer.as_raw_fd();
            stage.files.extend([reader, writer]);
            Ok(Call::Show(file, stage.memory + 8192))
        })
        // A system call does not do the processor's fault once more that found no memory.
        .also(Errno::FAULT)
        .over(|stage, _, _| {
            stage.files.clear();
            stage.renew()
        }),
    ]
}

/// The kernel's own calls, on such memory.
fn kernels() -> Vec<Operation> {
    vec![
        plain("SVM: mmap over a range", |stage| {
            make(stage, SIZE, &[access(stage)])?;
            Ok(stage.renewal())
        })
        // It fails when the old memory is gone.
        .keeps()
        .renewed(),
        plain("SVM: mmap over a range in VRAM", |stage| {
            make(stage, SIZE, &[access(stage), fetch(stage.gpu_id())])?;
            Ok(stage.renewal())
        })
        // It fails when the old memory is gone.
        .keeps()
        .renewed(),
    ]
}

fn access(stage: &Stage) -> [u32; 2] {
    [uapi::KFD_IOCTL_SVM_ATTR_ACCESS, stage.gpu_id()]
}

fn fetch(location: u32) -> [u32; 2] {
    [uapi::KFD_IOCTL_SVM_ATTR_PREFETCH_LOC, location]
}

/// The arguments, and how many bytes of them the call has.
fn arguments(stage: &Stage, op: u32, size: u64, attributes: &[[u32; 2]]) -> (Args, u32) {
    let mut args = Args {
        start: stage.memory,
        size,
        op,
        count: attributes.len() as u32,
        attributes: [[0; 2]; MOST],
    };
    args.attributes[..attributes.len()].copy_from_slice(attributes);
    let bytes = size_of::<Args>() - size_of::<[u32; 2]>() * (MOST - attributes.len());
    (args, crate::raw::resized(uapi::IOC_SVM, bytes as u32))
}

fn call(stage: &Stage, op: u32, size: u64, attributes: &[[u32; 2]]) -> Result<Call> {
    let (args, request) = arguments(stage, op, size, attributes);
    stage.ioctl(request, args)
}

/// SET_ATTR at once, which must succeed.
fn make(stage: &Stage, size: u64, attributes: &[[u32; 2]]) -> Result<()> {
    let (args, request) = arguments(stage, SET, size, attributes);
    stage.make(request, args).map(drop)
}
