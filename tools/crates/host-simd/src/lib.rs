// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The same loops compiled for several generations of x86-64 vector units, and the choice between
//! them at run time.
//!
//! A [`Work`] is compiled once for each [`Level`], with all that is inlined into it: what is not
//! inlined is compiled for the target's base, as everything is without this crate. So its `run`,
//! and the functions that hold its loops, are `#[inline(always)]`; work that is to stay a function
//! of its own goes through [`Level::call`]. Values of the levels are the proof that the machine has
//! them: they come from [`Host::run`] alone, and a [`Host`] comes from asking the machine.
//!
//! This is the only unsafe code: a function with target features may be called where the machine
//! has them, and nowhere else.

use std::fmt;

/// A generation of vector units, which this machine has.
pub trait Level: Copy {
    /// `mul_add` is one instruction, not a call.
    const FMA: bool;

    /// Runs work as a function of its own, compiled for this level.
    fn call<W: Work>(self, work: W) -> W::Output;
}

/// The target's base: on x86-64 SSE2.
#[derive(Clone, Copy, Debug)]
pub struct Portable(());

impl Level for Portable {
    const FMA: bool = false;

    #[inline(never)]
    fn call<W: Work>(self, work: W) -> W::Output {
        work.run(self)
    }
}

/// AVX2 and FMA: x86-64-v3.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Level for Avx2 {
    const FMA: bool = true;

    #[inline(always)]
    fn call<W: Work>(self, work: W) -> W::Output {
        // SAFETY: `has_avx2` was true, or there would be no such value.
        unsafe { call_avx2(self, work) }
    }
}

/// AVX-512 F, BW, CD, DQ and VL: x86-64-v4.
#[cfg(all(target_arch = "x86_64", avx512))]
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

#[cfg(all(target_arch = "x86_64", avx512))]
impl Level for Avx512 {
    const FMA: bool = true;

    #[inline(always)]
    fn call<W: Work>(self, work: W) -> W::Output {
        // SAFETY: `has_avx512` was true, or there would be no such value.
        unsafe { call_avx512(self, work) }
    }
}

/// Something to compute.
pub trait Work {
    /// What comes of it.
    type Output;

    /// Computes it. To be `#[inline(always)]`, or it does not get the level's instructions.
    fn run<L: Level>(self, level: L) -> Self::Output;
}

/// Made by [`Host::levels`] alone, which asks the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(all(target_arch = "x86_64", avx512))]
    Avx512,
}

/// A level that this machine has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Host(Kind);

impl Host {
    /// The base, which every machine has.
    pub const PORTABLE: Host = Host(Kind::Portable);

    /// The levels of this machine, the best one last.
    pub fn levels() -> Vec<Host> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut levels = vec![Host::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            levels.push(Host(Kind::Avx2));
            #[cfg(avx512)]
            if has_avx512() {
                levels.push(Host(Kind::Avx512));
            }
        }
        levels
    }

    /// The best level of this machine.
    pub fn best() -> Host {
        Host::levels().last().copied().unwrap_or(Host::PORTABLE)
    }

    /// Runs work compiled for this level.
    #[inline]
    pub fn run<W: Work>(self, work: W) -> W::Output {
        match self.0 {
            Kind::Portable => Portable(()).call(work),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => Avx2(()).call(work),
            #[cfg(all(target_arch = "x86_64", avx512))]
            Kind::Avx512 => Avx512(()).call(work),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "AVX2",
            #[cfg(all(target_arch = "x86_64", avx512))]
            Kind::Avx512 => "AVX-512",
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether the machine and its kernel have all that `call_avx2` enables.
#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("fma") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt")
}

/// Whether they have what `call_avx512` enables beside that.
#[cfg(all(target_arch = "x86_64", avx512))]
fn has_avx512() -> bool {
    use std::arch::is_x86_feature_detected as has;
    let base = has!("avx512f") && has!("avx512bw") && has!("avx512cd");
    base && has!("avx512dq") && has!("avx512vl") && has_avx2()
}

/// # Safety
/// `has_avx2` must be true.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
#[inline(never)]
unsafe fn call_avx2<W: Work>(level: Avx2, work: W) -> W::Output {
    work.run(level)
}

/// # Safety
/// `has_avx512` must be true.
#[cfg(all(target_arch = "x86_64", avx512))]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
#[inline(never)]
unsafe fn call_avx512<W: Work>(level: Avx512, work: W) -> W::Output {
    work.run(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// a · b + c for many.
    struct Fused<'a>([&'a [f64; 100]; 3]);

    impl Work for Fused<'_> {
        type Output = [f64; 100];

        #[inline(always)]
        fn run<L: Level>(self, _level: L) -> [f64; 100] {
            let [a, b, c] = self.0;
            let mut d = [0.0; 100];
            for i in 0..100 {
                d[i] = a[i].mul_add(b[i], c[i]);
            }
            d
        }
    }

    #[test]
    fn all_levels_compute_the_same() {
        let ramp = |step: f64| std::array::from_fn(|i| step * i as f64 + 0.1);
        let (a, b, c) = (ramp(0.3), ramp(-0.7), ramp(1e-9));
        let expected = Host::PORTABLE.run(Fused([&a, &b, &c]));
        for host in Host::levels() {
            assert_eq!(host.run(Fused([&a, &b, &c])), expected, "{host:?}");
        }
    }

    #[test]
    fn the_best_level_is_one_of_the_machine() {
        let levels = Host::levels();
        assert_eq!(levels[0], Host::PORTABLE);
        assert_eq!(levels.last(), Some(&Host::best()));
        assert!(levels.contains(&Host::best()));
    }
}
