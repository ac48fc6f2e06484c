// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Kernels for the GPU in Rust, by rustc's own target for it.
//!
//! A kernel is a function of the calling convention "gpu-kernel": each work-item of the grid runs
//! it with the same arguments. It is `unsafe`: only who launches it knows how long the memory is.

#![no_std]
#![feature(abi_gpu_kernel, stdarch_amdgpu)]

use core::arch::amdgpu;
use core::sync::atomic::{AtomicU32, Ordering};

/// Work-items of a work-group, as the host launches all of these.
const GROUP: u32 = 64;

/// The number of this work-item in a grid of one dimension.
fn item() -> usize {
    (amdgpu::workgroup_id_x() * GROUP + amdgpu::workitem_id_x()) as usize
}

/// A pair of floats as a complex number.
#[derive(Clone, Copy)]
struct Complex {
    re: f32,
    im: f32,
}

impl Complex {
    fn norm2(self) -> f32 {
        self.re * self.re + self.im * self.im
    }
}

impl core::ops::Mul for Complex {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

impl core::ops::Add for Complex {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            re: self.re + other.re,
            im: self.im + other.im,
        }
    }
}

/// After how many steps each point of the square around -0.5 leaves the circle of radius 2, at most
/// `limit`: the Mandelbrot set.
///
/// # Safety
/// `out` has `width * width` numbers, and nobody else uses them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "gpu-kernel" fn mandelbrot(out: *mut u32, width: u32, limit: u32) {
    let index = item();
    if index >= (width * width) as usize {
        return;
    }
    let at = |pixel: u32| pixel as f32 * (3.0 / width as f32) - 1.5;
    let point = Complex {
        re: at(index as u32 % width) - 0.5,
        im: at(index as u32 / width),
    };
    let orbit = core::iter::successors(Some(point), |z| Some(*z * *z + point));
    let inside = orbit.take(limit as usize).take_while(|z| z.norm2() <= 4.0);
    // SAFETY: `index` is below what the caller vouches for, and this work-item's alone.
    unsafe { out.add(index).write(inside.count() as u32) };
}

/// Adds all `count` numbers to `sum`.
///
/// # Safety
/// `numbers` has `count` numbers that nobody writes meanwhile; `sum` is used by atomics only.
#[unsafe(no_mangle)]
pub unsafe extern "gpu-kernel" fn add_up(numbers: *const u32, count: u32, sum: *mut u32) {
    // SAFETY: by this function's own contract.
    let numbers = unsafe { core::slice::from_raw_parts(numbers, count as usize) };
    // SAFETY: as above.
    let sum = unsafe { AtomicU32::from_ptr(sum) };
    // What lies beyond the end is not there, and nothing panics.
    if let Some(number) = numbers.get(item()) {
        sum.fetch_add(*number, Ordering::Relaxed);
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The wave stops for good, and a debugger sees where.
    amdgpu::s_sethalt::<1>()
}
