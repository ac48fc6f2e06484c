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
//! has them, and nowhere else; and arrays are taken for vectors, and bytes for dwords.

#[cfg(all(target_arch = "x86_64", avx512))]
mod avx512;
mod rows;

pub use rows::Rows;
use std::fmt;

/// Dwords that the operations of a [`Level`] have.
pub const LANES: usize = 64;
/// A table that lanes look dwords up in, [`Level::look_up`], is of so many each.
pub const TABLE: usize = 32;

/// A generation of vector units, which this machine has.
pub trait Level: Copy {
    /// `mul_add` is one instruction, not a call.
    const FMA: bool;

    /// Runs work as a function of its own, compiled for this level.
    fn call<W: Work>(self, work: W) -> W::Output;

    /// Bit `i` is set where flag `i` is, which is all ones, or else zeros.
    #[inline(always)]
    fn mask(self, flags: &[u32; LANES]) -> u64 {
        gather(flags)
    }

    /// Whether any lane is not zero.
    #[inline(always)]
    fn any(self, lanes: &[u32; LANES]) -> bool {
        let mut any = 0;
        for bits in lanes {
            any |= bits;
        }
        any != 0
    }

    /// Copies the lanes of `mask`.
    #[inline(always)]
    fn put(self, to: &mut [u32; LANES], from: &[u32; LANES], mask: u64) {
        merge(to, from, mask);
    }

    /// To the lanes of `active`, those of the second where `mask` has its bit set, else those of
    /// the first.
    #[inline(always)]
    fn select(
        self,
        to: &mut [u32; LANES],
        [unset, set]: [&[u32; LANES]; 2],
        mask: u64,
        active: u64,
    ) {
        merge(to, unset, active & !mask);
        merge(to, set, active & mask);
    }

    /// For each lane the dword of a table at its index: beyond the end, zero.
    #[inline(always)]
    fn look_up(self, table: &[[u32; TABLE]], index: &[u32; LANES], to: &mut [u32; LANES]) {
        let table = table.as_flattened();
        for (to, index) in to.iter_mut().zip(index) {
            *to = table.get(*index as usize).copied().unwrap_or(0);
        }
    }

    /// Whether any is a NaN of 32 bits.
    #[inline(always)]
    fn any_nan(self, values: &[u32; LANES]) -> bool {
        // By a maximum, which vector units have, where a flag would go from lane to lane.
        let mut most = 0;
        for bits in values {
            most = most.max(bits & 0x7fff_ffff);
        }
        most > 0x7f80_0000
    }
}

/// A vector's bytes, as dwords that are stored with the low byte first.
///
/// The compiler makes one copy of it, where it makes many of a short loop.
#[inline(always)]
pub fn dwords(bytes: &[u8; 64]) -> [u32; 16] {
    // SAFETY: both are 64 bytes, of which any is a value.
    let mut dwords = unsafe { std::mem::transmute::<[u8; 64], [u32; 16]>(*bytes) };
    if cfg!(target_endian = "big") {
        for dword in &mut dwords {
            *dword = u32::from_le(*dword);
        }
    }
    dwords
}

/// A mask of flags: eight at a time, by a multiplication that gathers their bits.
#[allow(clippy::needless_range_loop, reason = "of the form that is vectorised")]
#[inline(always)]
fn gather(flags: &[u32; LANES]) -> u64 {
    let mut mask = 0;
    for index in 0..8 {
        let mut eight = [0; 8];
        for i in 0..8 {
            eight[i] = flags[8 * index + i] as u8 & 1;
        }
        let bits = u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= bits << (8 * index);
    }
    mask
}

/// Each lane's bit in its half of a mask.
static BITS: [u32; LANES] = {
    let mut bits = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        bits[lane] = 1 << (lane % 32);
        lane += 1;
    }
    bits
};

/// All ones for the lanes of a mask, zeros for the others.
#[allow(clippy::needless_range_loop, reason = "of the form that is vectorised")]
#[inline(always)]
pub fn spread(mask: u64, lanes: &mut [u32; LANES]) {
    let (low, high) = lanes.split_at_mut(LANES / 2);
    low.fill(mask as u32);
    high.fill((mask >> 32) as u32);
    for i in 0..LANES {
        lanes[i] = if lanes[i] & BITS[i] != 0 { u32::MAX } else { 0 };
    }
}

/// Copies the lanes of a mask.
#[allow(clippy::needless_range_loop, reason = "of the form that is vectorised")]
#[inline(always)]
fn merge(to: &mut [u32; LANES], from: &[u32; LANES], mask: u64) {
    let mut keep = [0; LANES];
    spread(mask, &mut keep);
    for i in 0..LANES {
        to[i] = from[i] & keep[i] | to[i] & !keep[i];
    }
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

    #[inline(always)]
    fn mask(self, flags: &[u32; LANES]) -> u64 {
        // SAFETY: as above.
        unsafe { avx512::mask(flags) }
    }

    #[inline(always)]
    fn any(self, lanes: &[u32; LANES]) -> bool {
        // SAFETY: as above.
        unsafe { avx512::any(lanes) }
    }

    #[inline(always)]
    fn select(self, to: &mut [u32; LANES], from: [&[u32; LANES]; 2], mask: u64, active: u64) {
        // SAFETY: as above.
        unsafe { avx512::select(to, from, mask, active) }
    }

    #[inline(always)]
    fn look_up(self, table: &[[u32; TABLE]], index: &[u32; LANES], to: &mut [u32; LANES]) {
        // SAFETY: as above.
        unsafe { avx512::look_up(table, index, to) }
    }

    #[inline(always)]
    fn put(self, to: &mut [u32; LANES], from: &[u32; LANES], mask: u64) {
        // SAFETY: as above.
        unsafe { avx512::put(to, from, mask) }
    }

    #[inline(always)]
    fn any_nan(self, values: &[u32; LANES]) -> bool {
        // SAFETY: as above.
        unsafe { avx512::any_nan(values) }
    }
}

/// Something to compute.
pub trait Work {
    /// What comes of it.
    type Output;

    /// Computes it. To be `#[inline(always)]`, or it does not get the level's instructions.
    fn run<L: Level>(self, level: L) -> Self::Output;
}

/// What jobs work on, are to do, and return.
pub trait Task {
    /// What it works on.
    type Context<'a>;
    /// What it is to do.
    type Form;
    /// What comes of it.
    type Output;
}

/// Work that is called through a pointer, [`Host::function`]: what is chosen once need not be
/// looked up again.
pub trait Job<T: Task> {
    /// Does it. To be `#[inline(always)]`, or it does not get the level's instructions.
    fn run<L: Level>(level: L, context: &mut T::Context<'_>, form: &T::Form) -> T::Output;
}

/// A job compiled for a level of this machine, or a function that needs none.
pub struct Function<T: Task>(Pointer<T>);

/// A function for one level.
///
/// # Safety
/// To be called on a machine that has the level.
// SAFETY: a type; `Function::call` says why its call is sound.
type Pointer<T> =
    unsafe fn(&mut <T as Task>::Context<'_>, &<T as Task>::Form) -> <T as Task>::Output;

impl<T: Task> Function<T> {
    /// A function like any other.
    pub fn new(function: fn(&mut T::Context<'_>, &T::Form) -> T::Output) -> Self {
        Function(function)
    }

    /// Calls it.
    #[inline(always)]
    pub fn call(&self, context: &mut T::Context<'_>, form: &T::Form) -> T::Output {
        // SAFETY: it came from a safe function, or from a `Host`, for whose level it is compiled:
        // there is no such host unless the machine has the level.
        unsafe { (self.0)(context, form) }
    }
}

impl<T: Task> Clone for Function<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Task> Copy for Function<T> {}

impl<T: Task> fmt::Debug for Function<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Function")
    }
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

    /// The job compiled for this level.
    pub fn function<T: Task, J: Job<T>>(self) -> Function<T> {
        Function(match self.0 {
            Kind::Portable => portable_job::<T, J>,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => avx2_job::<T, J>,
            #[cfg(all(target_arch = "x86_64", avx512))]
            Kind::Avx512 => avx512_job::<T, J>,
        })
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

fn portable_job<T: Task, J: Job<T>>(context: &mut T::Context<'_>, form: &T::Form) -> T::Output {
    J::run(Portable(()), context, form)
}

/// # Safety
/// `has_avx2` must be true.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn avx2_job<T: Task, J: Job<T>>(context: &mut T::Context<'_>, form: &T::Form) -> T::Output {
    J::run(Avx2(()), context, form)
}

/// # Safety
/// `has_avx512` must be true.
#[cfg(all(target_arch = "x86_64", avx512))]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
unsafe fn avx512_job<T: Task, J: Job<T>>(
    context: &mut T::Context<'_>,
    form: &T::Form,
) -> T::Output {
    J::run(Avx512(()), context, form)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Masks, merged lanes and NaNs of patterns.
    struct Patterns(u64);

    impl Work for Patterns {
        type Output = (u64, [u32; LANES], [bool; 3], bool);

        #[inline(always)]
        fn run<L: Level>(self, level: L) -> Self::Output {
            let flags = std::array::from_fn(|i| 0u32.wrapping_sub((self.0 >> i & 1) as u32));
            let (mut to, from) = ([7; LANES], std::array::from_fn(|i| i as u32));
            level.put(&mut to, &from, self.0);
            let mut values = [f32::NEG_INFINITY.to_bits(); LANES];
            let infinite = level.any_nan(&values);
            values[(self.0 % 64) as usize] = 0xff80_0001;
            let signalling = level.any_nan(&values);
            values[(self.0 % 64) as usize] = 0x7fff_ffff;
            let nan = [infinite, signalling, level.any_nan(&values)];
            (level.mask(&flags), to, nan, level.any(&flags))
        }
    }

    #[test]
    fn lanes_are_masked_and_merged() {
        for mask in [
            0,
            1,
            1 << 63,
            u64::MAX,
            0x5555_5555_5555_5555,
            0x8123_4567_89ab_cdef,
        ] {
            let merged = std::array::from_fn(|i| if mask >> i & 1 == 1 { i as u32 } else { 7 });
            for host in Host::levels() {
                let found = host.run(Patterns(mask));
                let expected = (mask, merged, [false, true, true], mask != 0);
                assert_eq!(found, expected, "{host:?}");
            }
        }
    }

    #[test]
    fn the_low_byte_is_the_first() {
        let bytes = std::array::from_fn(|i| i as u8);
        let expected: [u32; 16] = std::array::from_fn(|i| 0x0302_0100 + 0x0404_0404 * i as u32);
        assert_eq!(dwords(&bytes), expected);
    }

    /// Lanes of two rows, and of a table.
    struct Choice(u64, u64);

    impl Work for Choice {
        type Output = [[u32; LANES]; 2];

        #[inline(always)]
        fn run<L: Level>(self, level: L) -> Self::Output {
            let rows: [[u32; LANES]; 2] =
                [100, 200].map(|first| std::array::from_fn(|i| first + i as u32));
            let mut chosen = [7; LANES];
            level.select(&mut chosen, [&rows[0], &rows[1]], self.0, self.1);
            let table = [0, 1, 2].map(|part| std::array::from_fn(|i| 3 * (32 * part + i as u32)));
            let index = std::array::from_fn(|i| 2 * i as u32);
            let mut found = [9; LANES];
            level.look_up(&table, &index, &mut found);
            [chosen, found]
        }
    }

    #[test]
    fn lanes_are_chosen_and_looked_up() {
        let masks = [
            (0, u64::MAX),
            (u64::MAX, 5),
            (0x1234_5678_9abc_def0, 0xff00_ff00_0fff_fff0),
        ];
        for (mask, active) in masks {
            let chosen = std::array::from_fn(|i| match (active >> i & 1, mask >> i & 1) {
                (0, _) => 7,
                (_, 0) => 100 + i as u32,
                _ => 200 + i as u32,
            });
            let found = std::array::from_fn(|i| if i < 48 { 6 * i as u32 } else { 0 });
            for host in Host::levels() {
                assert_eq!(host.run(Choice(mask, active)), [chosen, found], "{host:?}");
            }
        }
    }

    /// Adds a dword to each.
    struct Add;

    impl Task for Add {
        type Context<'a> = &'a mut [u32];
        type Form = u32;
        type Output = bool;
    }

    impl Job<Add> for Add {
        #[inline(always)]
        fn run<L: Level>(_level: L, context: &mut &mut [u32], form: &u32) -> bool {
            context.iter_mut().for_each(|value| *value += form);
            L::FMA
        }
    }

    #[test]
    fn a_job_is_a_function_of_each_level() {
        for host in Host::levels() {
            let mut values = [1; 100];
            let fused = host
                .function::<Add, Add>()
                .call(&mut values.as_mut_slice(), &2);
            assert_eq!((values, fused), ([3; 100], host != Host::PORTABLE));
        }
    }

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
