// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The floating-point formats that instructions name, of at most 32 bits. Stateless.

use super::half;
use super::narrow::Narrow;
use super::small::{Small, BF6, FP4, FP6};
use crate::Target;

/// A format by its name in a mnemonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// See [`Small::fp8`].
    Fp8,
    /// See [`Small::bf8`].
    Bf8,
    /// See [`FP6`].
    Fp6,
    /// See [`BF6`].
    Bf6,
    /// See [`FP4`].
    Fp4,
}

impl Format {
    /// The one of that name; `None`: none is called that.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "f32" => Self::F32,
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "fp8" => Self::Fp8,
            "bf8" => Self::Bf8,
            "fp6" => Self::Fp6,
            "bf6" => Self::Bf6,
            "fp4" => Self::Fp4,
            _ => return None,
        })
    }

    /// Its width.
    pub fn bits(self) -> usize {
        match self {
            Self::F32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::Fp8 | Self::Bf8 => 8,
            Self::Fp6 | Self::Bf6 => 6,
            Self::Fp4 => 4,
        }
    }

    /// The value of the low bits.
    pub fn value(self, target: Target, bits: u32) -> f32 {
        match self {
            Self::F32 => f32::from_bits(bits),
            Self::F16 => half::to_f32(bits as u16),
            Self::Bf16 => half::bf16_to_f32(bits as u16),
            Self::Fp8 => Small::fp8(target).to_f32(bits as u8),
            Self::Bf8 => Small::bf8(target).to_f32(bits as u8),
            Self::Fp6 => FP6.to_f32(bits as u8),
            Self::Bf6 => BF6.to_f32(bits as u8),
            Self::Fp4 => FP4.to_f32(bits as u8),
        }
    }

    /// What is rounded to; `saturate`: what is too large for 8 bits becomes the largest.
    pub fn narrow(self, target: Target, saturate: bool) -> Narrow {
        match self {
            Self::F32 => Narrow::F32,
            Self::F16 => Narrow::F16,
            Self::Bf16 => Narrow::BF16,
            Self::Fp8 => Narrow::small(Small::fp8(target), saturate),
            Self::Bf8 => Narrow::small(Small::bf8(target), saturate),
            Self::Fp6 => Narrow::tiny(FP6),
            Self::Bf6 => Narrow::tiny(BF6),
            Self::Fp4 => Narrow::tiny(FP4),
        }
    }
}
