// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Opcodes of VOP3P: packed arithmetic, dot products, and the matrix core (MFMA).

use super::ops;
use crate::Target;

ops! {
    /// Packed vector and matrix.
    Vop3p {
        0 v_pk_mad_i16 [P16 P16 P16 P16],
        1 v_pk_mul_lo_u16 [P16 P16 P16],
        2 v_pk_add_i16 [P16 P16 P16],
        3 v_pk_sub_i16 [P16 P16 P16],
        4 v_pk_lshlrev_b16 [P16 P16 P16],
        5 v_pk_lshrrev_b16 [P16 P16 P16],
        6 v_pk_ashrrev_i16 [P16 P16 P16],
        7 v_pk_max_i16 [P16 P16 P16],
        8 v_pk_min_i16 [P16 P16 P16],
        9 v_pk_mad_u16 [P16 P16 P16 P16],
        10 v_pk_add_u16 [P16 P16 P16],
        11 v_pk_sub_u16 [P16 P16 P16],
        12 v_pk_max_u16 [P16 P16 P16],
        13 v_pk_min_u16 [P16 P16 P16],
        14 v_pk_fma_f16 [PF16 PF16 PF16 PF16],
        15 v_pk_add_f16 [PF16 PF16 PF16],
        16 v_pk_mul_f16 [PF16 PF16 PF16],
        17 v_pk_min_f16 [PF16 PF16 PF16],
        18 v_pk_max_f16 [PF16 PF16 PF16],
        26 v_dot2_f32_bf16 [F32 PBf16 PBf16 F32] Gfx950,
        27 v_pk_minimum3_f16 [PF16 PF16 PF16 PF16] Gfx950,
        28 v_pk_maximum3_f16 [PF16 PF16 PF16 PF16] Gfx950,
        32 v_fma_mix_f32 [F32 F32 F32 F32],
        33 v_fma_mixlo_f16 [B32 F32 F32 F32],
        34 v_fma_mixhi_f16 [B32 F32 F32 F32],
        35 v_dot2_f32_f16 [F32 PF16 PF16 F32],
        38 v_dot2_i32_i16 [B32 P16 P16 B32],
        39 v_dot2_u32_u16 [B32 P16 P16 B32],
        40 v_dot4_i32_i8 [B32 B32 B32 B32],
        41 v_dot4_u32_u8 [B32 B32 B32 B32],
        42 v_dot8_i32_i4 [B32 B32 B32 B32],
        43 v_dot8_u32_u4 [B32 B32 B32 B32],
        44 v_mfma_ld_scale_b32 [N B32 B32] Gfx950,
        45 v_mfma_f32_16x16x128_f8f6f4 [B128 B256 B256 B128] Gfx950,
        46 v_mfma_f32_32x32x64_f8f6f4 [B512 B256 B256 B512] Gfx950,
        48 v_pk_fma_f32 [PF32 PF32 PF32 PF32],
        49 v_pk_mul_f32 [PF32 PF32 PF32],
        50 v_pk_add_f32 [PF32 PF32 PF32],
        51 v_pk_mov_b32 [PF32 PF32 PF32],
        53 v_mfma_f32_16x16x32_bf16 [B128 B128 B128 B128] Gfx950,
        54 v_mfma_i32_16x16x64_i8 [B128 B128 B128 B128] Gfx950,
        55 v_mfma_f32_32x32x16_bf16 [B512 B128 B128 B512] Gfx950,
        56 v_mfma_i32_32x32x32_i8 [B512 B128 B128 B512] Gfx950,
        57 v_smfmac_f32_16x16x64_bf16 [B128 B128 B256 B32] Gfx950,
        58 v_smfmac_i32_16x16x128_i8 [B128 B128 B256 B32] Gfx950,
        59 v_smfmac_f32_16x16x128_bf8_bf8 [B128 B128 B256 B32] Gfx950,
        60 v_smfmac_f32_16x16x128_bf8_fp8 [B128 B128 B256 B32] Gfx950,
        61 v_smfmac_f32_16x16x128_fp8_bf8 [B128 B128 B256 B32] Gfx950,
        62 v_mfma_f32_16x16x8_xf32 [B128 B64 B64 B128] Gfx942,
        63 v_mfma_f32_32x32x4_xf32 [B512 B64 B64 B512] Gfx942,
        64 v_mfma_f32_32x32x1_2b_f32 [B1024 B32 B32 B1024],
        65 v_mfma_f32_16x16x1_4b_f32 [B512 B32 B32 B512],
        66 v_mfma_f32_4x4x1_16b_f32 [B128 B32 B32 B128],
        67 v_smfmac_f32_16x16x128_fp8_fp8 [B128 B128 B256 B32] Gfx950,
        68 v_mfma_f32_32x32x2_f32 [B512 B32 B32 B512],
        69 v_mfma_f32_16x16x4_f32 [B128 B32 B32 B128],
        70 v_smfmac_f32_32x32x32_bf16 [B512 B128 B256 B32] Gfx950,
        71 v_smfmac_i32_32x32x64_i8 [B512 B128 B256 B32] Gfx950,
        72 v_mfma_f32_32x32x4_2b_f16 [B1024 B64 B64 B1024],
        73 v_mfma_f32_16x16x4_4b_f16 [B512 B64 B64 B512],
        74 v_mfma_f32_4x4x4_16b_f16 [B128 B64 B64 B128],
        75 v_smfmac_f32_32x32x64_bf8_bf8 [B512 B128 B256 B32] Gfx950,
        76 v_mfma_f32_32x32x8_f16 [B512 B64 B64 B512],
        77 v_mfma_f32_16x16x16_f16 [B128 B64 B64 B128],
        78 v_smfmac_f32_32x32x64_bf8_fp8 [B512 B128 B256 B32] Gfx950,
        79 v_smfmac_f32_32x32x64_fp8_bf8 [B512 B128 B256 B32] Gfx950,
        80 v_mfma_i32_32x32x4_2b_i8 [B1024 B32 B32 B1024],
        81 v_mfma_i32_16x16x4_4b_i8 [B512 B32 B32 B512],
        82 v_mfma_i32_4x4x4_16b_i8 [B128 B32 B32 B128],
        83 v_smfmac_f32_32x32x64_fp8_fp8 [B512 B128 B256 B32] Gfx950,
        84 v_mfma_f32_16x16x32_f16 [B128 B128 B128 B128] Gfx950,
        85 v_mfma_f32_32x32x16_f16 [B512 B128 B128 B512] Gfx950,
        86 v_mfma_i32_32x32x16_i8 [B512 B64 B64 B512] Gfx942 Gfx950,
        87 v_mfma_i32_16x16x32_i8 [B128 B64 B64 B128] Gfx942 Gfx950,
        88 v_accvgpr_read_b32 [B32 B32],
        89 v_accvgpr_write_b32 [B32 B32],
        90 v_smfmac_f32_16x16x64_f16 [B128 B128 B256 B32] Gfx950,
        91 v_smfmac_f32_32x32x32_f16 [B512 B128 B256 B32] Gfx950,
        93 v_mfma_f32_32x32x4_2b_bf16 [B1024 B64 B64 B1024],
        94 v_mfma_f32_16x16x4_4b_bf16 [B512 B64 B64 B512],
        95 v_mfma_f32_4x4x4_16b_bf16 [B128 B64 B64 B128],
        96 v_mfma_f32_32x32x8_bf16 [B512 B64 B64 B512],
        97 v_mfma_f32_16x16x16_bf16 [B128 B64 B64 B128],
        98 v_smfmac_f32_16x16x32_f16 [B128 B64 B128 B32] Gfx942 Gfx950,
        100 v_smfmac_f32_32x32x16_f16 [B512 B64 B128 B32] Gfx942 Gfx950,
        102 v_smfmac_f32_16x16x32_bf16 [B128 B64 B128 B32] Gfx942 Gfx950,
        104 v_smfmac_f32_32x32x16_bf16 [B512 B64 B128 B32] Gfx942 Gfx950,
        106 v_smfmac_i32_16x16x64_i8 [B128 B64 B128 B32] Gfx942 Gfx950,
        108 v_smfmac_i32_32x32x32_i8 [B512 B64 B128 B32] Gfx942 Gfx950,
        110 v_mfma_f64_16x16x4_f64 [B256 B64 B64 B256],
        111 v_mfma_f64_4x4x4_4b_f64 [B64 B64 B64 B64],
        112 v_mfma_f32_16x16x32_bf8_bf8 [B128 B64 B64 B128] Gfx942 Gfx950,
        113 v_mfma_f32_16x16x32_bf8_fp8 [B128 B64 B64 B128] Gfx942 Gfx950,
        114 v_mfma_f32_16x16x32_fp8_bf8 [B128 B64 B64 B128] Gfx942 Gfx950,
        115 v_mfma_f32_16x16x32_fp8_fp8 [B128 B64 B64 B128] Gfx942 Gfx950,
        116 v_mfma_f32_32x32x16_bf8_bf8 [B512 B64 B64 B512] Gfx942 Gfx950,
        117 v_mfma_f32_32x32x16_bf8_fp8 [B512 B64 B64 B512] Gfx942 Gfx950,
        118 v_mfma_f32_32x32x16_fp8_bf8 [B512 B64 B64 B512] Gfx942 Gfx950,
        119 v_mfma_f32_32x32x16_fp8_fp8 [B512 B64 B64 B512] Gfx942 Gfx950,
        120 v_smfmac_f32_16x16x64_bf8_bf8 [B128 B64 B128 B32] Gfx942 Gfx950,
        121 v_smfmac_f32_16x16x64_bf8_fp8 [B128 B64 B128 B32] Gfx942 Gfx950,
        122 v_smfmac_f32_16x16x64_fp8_bf8 [B128 B64 B128 B32] Gfx942 Gfx950,
        123 v_smfmac_f32_16x16x64_fp8_fp8 [B128 B64 B128 B32] Gfx942 Gfx950,
        124 v_smfmac_f32_32x32x32_bf8_bf8 [B512 B64 B128 B32] Gfx942 Gfx950,
        125 v_smfmac_f32_32x32x32_bf8_fp8 [B512 B64 B128 B32] Gfx942 Gfx950,
        126 v_smfmac_f32_32x32x32_fp8_bf8 [B512 B64 B128 B32] Gfx942 Gfx950,
        127 v_smfmac_f32_32x32x32_fp8_fp8 [B512 B64 B128 B32] Gfx942 Gfx950,
        212 v_mfma_i32_32x32x8_i8 [B512 B32 B32 B512] Gfx90a,
        213 v_mfma_i32_16x16x16_i8 [B128 B32 B32 B128] Gfx90a,
        232 v_mfma_f32_32x32x2_2b_bf16 [B1024 B32 B32 B1024] Gfx90a,
        233 v_mfma_f32_16x16x2_4b_bf16 [B512 B32 B32 B512] Gfx90a,
        235 v_mfma_f32_4x4x2_16b_bf16 [B128 B32 B32 B128] Gfx90a,
        236 v_mfma_f32_32x32x4_bf16 [B512 B32 B32 B512] Gfx90a,
        237 v_mfma_f32_16x16x8_bf16 [B128 B32 B32 B128] Gfx90a,
    }
}

/// Where [`Vop3p`] has opcodes whose numbers others have on newer processors.
const OLDER: u32 = 128;

impl Vop3p {
    /// The opcode of this code on a processor. gfx90a has most bfloat16 products elsewhere.
    pub fn of(target: Target, code: u32) -> Option<Self> {
        let code = match (target, code) {
            (_, OLDER..) | (Target::Gfx90a, 93..=97) => return None,
            (Target::Gfx90a, 99..=103) => code - 6,
            (Target::Gfx90a, 84 | 85 | 104..=109) => code + OLDER,
            _ => code,
        };
        Self::from_code(code).filter(|op| op.is_on(target))
    }

    /// Its name on a processor: gfx90a's assembler writes blocks and types otherwise.
    pub fn spelled(self, target: Target) -> String {
        let name = self.mnemonic();
        if target != Target::Gfx90a || !self.is_matrix() {
            return name.to_string();
        }
        let parts: Vec<&str> = name.split('_').collect();
        let (head, kind) = (parts[..4].join("_"), parts[parts.len() - 1]);
        // Of bfloat16 there are two generations.
        let suffix = match self as u32 {
            93..=97 => "_1k",
            _ => "",
        };
        format!("{head}{kind}{suffix}")
    }
}
