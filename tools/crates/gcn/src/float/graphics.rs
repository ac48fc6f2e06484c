// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What graphics and libraries use: the faces of a cube map, and segments of 2/π for the range
//! reduction of large angles. Stateless.

/// Which face of a cube a direction hits, and where: `v_cubeid`, `v_cubesc`, `v_cubetc`,
/// `v_cubema`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cube {
    /// Face: 0 and 1 are ±x, 2 and 3 ±y, 4 and 5 ±z.
    pub id: f32,
    /// The coordinate across.
    pub sc: f32,
    /// The coordinate down.
    pub tc: f32,
    /// Twice the major axis.
    pub ma: f32,
}

impl Cube {
    /// Of the direction (x, y, z). On an edge z goes before y, y before x.
    pub fn new(x: f32, y: f32, z: f32) -> Cube {
        let (ax, ay, az) = (x.abs(), y.abs(), z.abs());
        // -0 counts as positive.
        let (id, sc, tc, major) = if az >= ax && az >= ay {
            if z < 0.0 {
                (5.0, -x, -y, z)
            } else {
                (4.0, x, -y, z)
            }
        } else if ay >= ax {
            if y < 0.0 {
                (3.0, x, -z, y)
            } else {
                (2.0, x, z, y)
            }
        } else if x < 0.0 {
            (1.0, z, -y, x)
        } else {
            (0.0, -z, -y, x)
        };
        Cube {
            id,
            sc,
            tc,
            ma: major * 2.0,
        }
    }
}

/// 2/π after the point, in dwords: as many as LLVM has, which knows what the hardware answers.
const TWO_BY_PI: [u32; 37] = [
    0xa2f9_836e,
    0x4e44_1529,
    0xfc27_57d1,
    0xf534_ddc0,
    0xdb62_9599,
    0x3c43_9041,
    0xfe51_63ab,
    0xdebb_c561,
    0xb724_6e3a,
    0x424d_d2e0,
    0x0649_2eea,
    0x09d1_921c,
    0xfe1d_eb1c,
    0xb129_a73e,
    0xe882_35f5,
    0x2ebb_4484,
    0xe99c_7026,
    0xb45f_7e41,
    0x3991_d639,
    0x8353_39f4,
    0x9c84_5f8b,
    0xbdf9_283b,
    0x1ff8_97ff,
    0xde05_980f,
    0xef2f_118b,
    0x5a0a_6d1f,
    0x6d36_7ecf,
    0x27cb_09b7,
    0x4f46_3f66,
    0x9e5f_ea2d,
    0x7527_bac7,
    0xebe5_f17b,
    0x3d07_39f7,
    0x8a52_92ea,
    0x6bfb_5fb1,
    0x1f8d_5d08,
    0x5603_3046,
];

/// `v_trig_preop_f64`: 53 bits of 2/π, the `segment`th that matters for an argument of this
/// exponent, at their place; for very large arguments scaled up by 2^128.
pub fn trig_preop(bits: u64, segment: u32) -> f64 {
    let exponent = (bits >> 52 & 0x7ff) as u32;
    let shift = (segment & 31) * 53 + exponent.saturating_sub(1077);
    let index = (shift / 32) as usize;
    // Beyond what it has, the hardware answers zero; LLVM says so of these dwords.
    if index + 2 >= TWO_BY_PI.len() {
        return 0.0;
    }
    let words = TWO_BY_PI[index..index + 3].iter();
    let wide = words.fold(0u128, |wide, word| wide << 32 | u128::from(*word));
    let part = (wide >> (96 - 53 - shift % 32)) as u64 & ((1 << 53) - 1);
    let scale = -53 - shift as i32 + if exponent >= 1968 { 128 } else { 0 };
    // In two steps: each factor is a normal number.
    let half = scale / 2;
    part as f64 * 2f64.powi(half) * 2f64.powi(scale - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_hit_faces() {
        assert_eq!(Cube::new(1.0, 0.5, -0.5).id, 0.0);
        assert_eq!(Cube::new(-1.0, 0.5, -0.5).id, 1.0);
        assert_eq!(Cube::new(1.0, -2.0, -0.5).id, 3.0);
        let cube = Cube::new(1.0, 2.0, -2.0);
        assert_eq!(
            (cube.id, cube.sc, cube.tc, cube.ma),
            (5.0, -1.0, -2.0, -4.0)
        );
    }

    #[test]
    fn segments_add_up_to_two_by_pi() {
        let sum: f64 = (0..3)
            .map(|segment| trig_preop(1f64.to_bits(), segment))
            .sum();
        assert_eq!(sum, std::f64::consts::FRAC_2_PI);
        // The first segment is cut off, not rounded.
        assert!(trig_preop(1f64.to_bits(), 0) < std::f64::consts::FRAC_2_PI + 1e-30);
        assert_eq!(trig_preop(1f64.to_bits(), 31), 0.0);
    }
}
