// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Random C expressions whose value C defines on every machine: no trap, no overflow that is not
//! wrapped, no dependence on NaN payloads or signs.

use crate::toolchain::Numbers;

/// A scalar type, by its name in the prelude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalar {
    pub name: &'static str,
    pub bits: u32,
    pub float: bool,
}

const fn scalar(name: &'static str, bits: u32, float: bool) -> Scalar {
    Scalar { name, bits, float }
}

/// All scalar types.
pub const SCALARS: [Scalar; 11] = [
    scalar("i32", 32, false),
    scalar("u32", 32, false),
    scalar("f32", 32, true),
    scalar("u64", 64, false),
    scalar("i64", 64, false),
    scalar("i16", 16, false),
    scalar("u16", 16, false),
    scalar("i8", 8, false),
    scalar("u8", 8, false),
    scalar("f64", 64, true),
    scalar("f16", 16, true),
];
pub const I32: Scalar = SCALARS[0];
pub const U32: Scalar = SCALARS[1];
pub const F32: Scalar = SCALARS[2];
pub const U64: Scalar = SCALARS[3];
pub const I64: Scalar = SCALARS[4];
const F64: Scalar = SCALARS[9];
const F16: Scalar = SCALARS[10];

/// Vector types: element and count. Those with one count are converted into each other.
pub const VECTORS: [(Scalar, u32); 18] = [
    (SCALARS[0], 2),
    (SCALARS[1], 2),
    (SCALARS[2], 2),
    (SCALARS[0], 4),
    (SCALARS[1], 4),
    (SCALARS[2], 4),
    (SCALARS[5], 2),
    (SCALARS[6], 2),
    (SCALARS[10], 2),
    (SCALARS[5], 4),
    (SCALARS[6], 4),
    (SCALARS[10], 4),
    (SCALARS[7], 4),
    (SCALARS[8], 4),
    (SCALARS[3], 2),
    (SCALARS[4], 2),
    (SCALARS[9], 2),
    (SCALARS[1], 3),
];

/// A vector type's name.
pub fn vector_name((element, count): (Scalar, u32)) -> String {
    format!("{}x{count}", element.name)
}

/// A variable of the kernel: its C spelling and type; `count` is 1 for scalars.
#[derive(Clone, Debug)]
pub struct Variable {
    pub text: String,
    pub element: Scalar,
    pub count: u32,
}

/// Makes expressions over some variables.
pub struct Expressions<'a> {
    pub numbers: &'a mut Numbers,
    pub variables: Vec<Variable>,
    /// Whether `in` can be read.
    pub memory: bool,
}

impl Expressions<'_> {
    pub fn below(&mut self, end: u64) -> u64 {
        self.numbers.below(end)
    }

    pub fn pick<'b>(&mut self, from: &[&'b str]) -> &'b str {
        from[self.below(from.len() as u64) as usize]
    }

    /// A variable of a type, if there is one.
    fn variable(&mut self, element: Scalar, count: u32) -> Option<String> {
        let fits = |v: &&Variable| v.element == element && v.count == count;
        let found: Vec<String> = self
            .variables
            .iter()
            .filter(fits)
            .map(|v| v.text.clone())
            .collect();
        (!found.is_empty()).then(|| found[self.below(found.len() as u64) as usize].clone())
    }

    fn leaf(&mut self, ty: Scalar) -> String {
        if self.below(6) == 0 {
            return self.constant(ty);
        }
        if self.memory && !ty.float && self.below(8) == 0 {
            let index = self.leaf(U32);
            return format!("(({})in[({index}) & (INPUTS - 1)])", ty.name);
        }
        if let Some(name) = self.variable(ty, 1) {
            return name;
        }
        // Some variable by conversion.
        let scalars: Vec<Variable> = self
            .variables
            .iter()
            .filter(|v| v.count == 1)
            .cloned()
            .collect();
        let other = &scalars[self.below(scalars.len() as u64) as usize];
        self.convert(ty, other.element, &other.text)
    }

    /// A value of one type as another.
    fn convert(&mut self, to: Scalar, from: Scalar, text: &str) -> String {
        let is_zero = text.starts_with("((") && text.ends_with(")0l)");
        // Clang 19 makes ceil(-x) of ceil(0 - x), too.
        let text = &if to.float && is_zero {
            text.replace(")0l)", ")1l)")
        } else {
            text.to_string()
        };
        if (to, from) == (F16, F32) && text.contains('*') {
            // Clang 19 adds +0 to a product that it narrows at once (v_fma_mixlo_f16), which is
            // wrong for -0.
            return format!("half_of({text})");
        }
        if to == F16 && !from.float {
            // C says nothing of an integer that no half holds; of such a single IEEE does.
            return format!("((f16)(f32)({text}))");
        }
        if to.float || !from.float {
            return format!("(({})({text}))", to.name);
        }
        let wide = to.bits == 64;
        let sign = &to.name[..1];
        let function = match (from.bits, wide) {
            (16, _) => "i32_of16".to_string(),
            (32, _) => format!("{sign}{}_of32", if wide { 64 } else { 32 }),
            _ => format!("{sign}{}_of", if wide { 64 } else { 32 }),
        };
        format!("(({}){function}({text}))", to.name)
    }

    fn constant(&mut self, ty: Scalar) -> String {
        if ty.float {
            // No 0: clang 19 makes -x of 0 - x in a product, which is wrong for +0.
            let value = self.pick(&["1.0", "-1.0", "0.5", "2.0", "-4.0", "3.25", "1e-3", "100.0"]);
            return format!("(({}){value})", ty.name);
        }
        let value = match self.below(4) {
            0 => self.below(65) as i64,
            1 => -(self.below(17) as i64),
            2 => 1i64 << self.below(u64::from(ty.bits)),
            _ => self.numbers.next() as i64,
        };
        format!("(({}){}l)", ty.name, value.max(-i64::MAX))
    }

    /// A condition.
    pub fn condition(&mut self, depth: u32) -> String {
        let ty = SCALARS[self.below(11) as usize];
        if depth > 0 && self.below(5) == 0 {
            let (a, b) = (self.condition(depth - 1), self.condition(depth - 1));
            let op = self.pick(&["&&", "||"]);
            return format!("({a} {op} {b})");
        }
        let depth = depth.saturating_sub(1);
        let (a, b) = (self.expression(ty, depth), self.expression(ty, depth));
        let op = self.pick(&["<", "<=", ">", ">=", "==", "!="]);
        if ty.float && self.below(8) == 0 {
            return format!("!({a} {op} {b})");
        }
        format!("({a} {op} {b})")
    }

    /// An expression of a type.
    pub fn expression(&mut self, ty: Scalar, depth: u32) -> String {
        if depth == 0 || self.below(10) == 0 {
            return self.leaf(ty);
        }
        if self.below(12) == 0 {
            let c = self.condition(depth - 1);
            let (a, b) = (
                self.expression(ty, depth - 1),
                self.expression(ty, depth - 1),
            );
            return format!("({c} ? {a} : {b})");
        }
        if self.below(8) == 0 {
            let other = SCALARS[self.below(11) as usize];
            let text = self.expression(other, depth - 1);
            return self.convert(ty, other, &text);
        }
        if self.below(10) == 0 {
            if let Some(text) = self.component(ty) {
                return text;
            }
        }
        if ty.float {
            self.float(ty, depth - 1)
        } else {
            self.integer(ty, depth - 1)
        }
    }

    /// A component of some vector.
    fn component(&mut self, ty: Scalar) -> Option<String> {
        let vectors: Vec<Variable> = self
            .variables
            .iter()
            .filter(|v| v.count > 1)
            .cloned()
            .collect();
        if vectors.is_empty() {
            return None;
        }
        let vector = &vectors[self.below(vectors.len() as u64) as usize];
        let index = if self.below(6) == 0 && vector.count != 3 {
            format!("({}) & {}", self.leaf(U32), vector.count - 1)
        } else {
            self.below(vector.count.into()).to_string()
        };
        let text = format!("{}[{index}]", vector.text);
        Some(self.convert(ty, vector.element, &text))
    }

    fn integer(&mut self, ty: Scalar, depth: u32) -> String {
        let (name, bits) = (ty.name, ty.bits);
        let a = self.expression(ty, depth);
        let b = self.expression(ty, depth);
        match self.below(22) {
            0..=4 => {
                let op = self.pick(&["+", "-", "*", "&", "|", "^"]);
                format!("(({name})({a} {op} {b}))")
            }
            5..=6 => {
                let op = self.pick(&["<<", ">>"]);
                let by = self.shift(bits);
                format!("(({name})({a} {op} {by}))")
            }
            7 => format!("low_{name}({a}, {b})"),
            8 => format!("high_{name}({a}, {b})"),
            9 => format!("middle_{name}({a}, {b}, {})", self.leaf(ty)),
            10 if depth == 0 => {
                let op = self.pick(&["div", "mod"]);
                format!("{op}_{name}({a}, {b})")
            }
            11 => match self.below(2) {
                0 => format!("not_{name}({a})"),
                _ => format!("(({name})(-{a}))"),
            },
            12..=13 => self.counted(ty, &a, &b),
            14 => {
                let c = self.leaf(ty);
                format!("(({name})({a} * {b} + {c}))")
            }
            15 => {
                let c = self.leaf(ty);
                let (first, second) = (
                    self.pick(&["&", "|", "^", "+"]),
                    self.pick(&["|", "^", "+"]),
                );
                format!("(({name})(({a} {first} {b}) {second} {c}))")
            }
            16 => {
                let (by, c) = (self.below(bits.into()), self.leaf(ty));
                format!("(({name})(({a} << {by}) + {c}))")
            }
            17 => self.field(ty, &a),
            18 => self.high_product(ty, &a, &b),
            // Clang promotes narrower operands up to version 19, and then no more.
            19 if bits >= 32 => {
                let op = self.pick(&["add", "sub"]);
                format!("__builtin_elementwise_{op}_sat(({name})({a}), ({name})({b}))")
            }
            20 => self.bits_of_float(ty, depth),
            _ => format!("choose_{name}({a}, {b}, {})", self.leaf(ty)),
        }
    }

    /// A shift distance below `bits`.
    fn shift(&mut self, bits: u32) -> String {
        if self.below(2) == 0 {
            return self.below(bits.into()).to_string();
        }
        format!("({} & {})", self.leaf(U32), bits - 1)
    }

    /// Counts and permutations of bits.
    fn counted(&mut self, ty: Scalar, a: &str, b: &str) -> String {
        let (name, bits) = (ty.name, ty.bits);
        let wide = bits == 64;
        let text = match self.below(6) {
            0 if wide => format!("__builtin_popcountl({a})"),
            0 => format!("__builtin_popcount((u{bits}){a})"),
            1 if wide => format!("lead64({a})"),
            1 => format!("lead32({a})"),
            2 if wide => format!("trail64({a})"),
            2 => format!("trail32({a})"),
            3 => format!("__builtin_bitreverse{bits}({a})"),
            4 if bits > 8 => format!("__builtin_bswap{bits}({a})"),
            _ => {
                let side = self.pick(&["left", "right"]);
                format!("__builtin_rotate{side}{bits}({a}, {b})")
            }
        };
        format!("(({name}){text})")
    }

    /// A field of bits, extended.
    fn field(&mut self, ty: Scalar, a: &str) -> String {
        let (name, bits) = (ty.name, ty.bits);
        let width = 1 + self.below(u64::from(bits) - 1);
        let offset = self.below(u64::from(bits) - width + 1);
        if self.below(2) == 0 {
            let wide = u64::from(bits).max(32);
            let (up, down) = (wide - width - offset, wide - width);
            return format!("(({name})((i{wide})((i{wide}){a} << {up}) >> {down}))");
        }
        let mask = (1u64 << width) - 1;
        format!("(({name})(((u{bits}){a} >> {offset}) & {mask}ul))")
    }

    fn high_product(&mut self, ty: Scalar, a: &str, b: &str) -> String {
        let name = ty.name;
        match (self.below(4), ty.bits) {
            (_, 64) if ty == U64 => {
                let (x, y) = (self.leaf(U32), self.leaf(U32));
                format!("((u64){x} * {y} + {a})")
            }
            (_, 64) => {
                let (x, y) = (self.leaf(I32), self.leaf(I32));
                format!("((i64){x} * {y} + {a})")
            }
            (0, _) => format!("(({name})(((u64)(u32){a} * (u32){b}) >> 32))"),
            (1, _) => format!("(({name})(((i64)(i32){a} * (i32){b}) >> 32))"),
            (2, _) => format!("(({name})(((u32){a} & 0xffffff) * ((u32){b} & 0xffffff)))"),
            _ => format!("(({name})((i32)((u32){a} << 8) >> 8) * ((i32)((u32){b} << 8) >> 8))"),
        }
    }

    fn bits_of_float(&mut self, ty: Scalar, depth: u32) -> String {
        let from = [F32, F64, F16][self.below(3) as usize];
        let text = self.expression(from, depth);
        format!("(({})bits{}({text}))", ty.name, from.bits)
    }

    fn float(&mut self, ty: Scalar, depth: u32) -> String {
        let name = ty.name;
        let a = self.expression(ty, depth);
        let b = self.expression(ty, depth);
        let suffix = if ty == F32 { "f" } else { "" };
        match self.below(18) {
            0..=5 => {
                let op = self.pick(&["+", "-", "*"]);
                format!("({a} {op} {b})")
            }
            6 => format!("(-{a})"),
            7 => format!("low_{name}({a}, {b})"),
            8 => format!("high_{name}({a}, {b})"),
            9 | 10 if ty == F16 => {
                let c = self.leaf(ty);
                format!("((f16)__builtin_fmaf((f32){a}, (f32){b}, (f32){c}))")
            }
            11..=15 if ty == F16 => format!("({a} * {b})"),
            9 | 10 => {
                let c = self.leaf(ty);
                format!("__builtin_fma{suffix}({a}, {b}, {c})")
            }
            11 => {
                let function = self.pick(&["floor", "ceil", "trunc", "rint", "fabs"]);
                format!("__builtin_{function}{suffix}({a})")
            }
            12 => format!("__builtin_copysign{suffix}({a}, signed_{name}({b}))"),
            13 if depth < 2 => format!("({a} / {b})"),
            14 if depth < 2 => format!("__builtin_sqrt{suffix}(__builtin_fabs{suffix}({a}))"),
            15 => {
                let by = self.leaf(I32);
                format!("__builtin_ldexp{suffix}({a}, ({by} & 63) - 32)")
            }
            16 => {
                let c = self.leaf(ty);
                format!("({a} * {b} + {c})")
            }
            _ => {
                let from = if ty.bits == 64 { U64 } else { U32 };
                let text = self.expression(from, depth.min(1));
                format!(
                    "from{}(({}){text})",
                    ty.bits,
                    if ty == F16 { "u16" } else { from.name }
                )
            }
        }
    }

    /// An expression of a vector type.
    pub fn vector(&mut self, ty: (Scalar, u32), depth: u32) -> String {
        let (element, count) = ty;
        let name = vector_name(ty);
        if depth == 0 || self.below(8) == 0 {
            if let (Some(text), false) = (self.variable(element, count), self.below(5) == 0) {
                return text;
            }
            let parts: Vec<String> = (0..count).map(|_| self.leaf(element)).collect();
            return format!("(({name}){{{}}})", parts.join(", "));
        }
        let a = self.vector(ty, depth - 1);
        match self.below(8) {
            0 => self.converted(ty, depth - 1),
            1 => {
                let b = self.vector(ty, depth - 1);
                let picks: Vec<String> = (0..count)
                    .map(|_| self.below(2 * u64::from(count)).to_string())
                    .collect();
                format!("__builtin_shufflevector({a}, {b}, {})", picks.join(", "))
            }
            _ if element.float => self.float_vector(ty, depth - 1, &a),
            _ => self.integer_vector(ty, depth - 1, &a),
        }
    }

    /// From a vector of as many other elements. Floats do not become integers: C says nothing of
    /// those that do not fit.
    fn converted(&mut self, ty: (Scalar, u32), depth: u32) -> String {
        let fits: Vec<(Scalar, u32)> = VECTORS
            .into_iter()
            .filter(|(element, count)| *count == ty.1 && (ty.0.float || !element.float))
            .collect();
        let from = fits[self.below(fits.len() as u64) as usize];
        let mut text = self.vector(from, depth);
        if ty.0 == F16 && !from.0.float {
            let singles = vector_name((F32, ty.1));
            text = format!("__builtin_convertvector({text}, {singles})");
        }
        format!("__builtin_convertvector({text}, {})", vector_name(ty))
    }

    fn float_vector(&mut self, ty: (Scalar, u32), depth: u32, a: &str) -> String {
        let b = self.vector(ty, depth);
        match self.below(6) {
            0..=3 => {
                let op = self.pick(&["+", "-", "*"]);
                format!("({a} {op} {b})")
            }
            4 if ty.0 != F16 => {
                let c = self.vector(ty, 0);
                format!("__builtin_elementwise_fma({a}, {b}, {c})")
            }
            _ => format!("(-{a})"),
        }
    }

    fn integer_vector(&mut self, ty: (Scalar, u32), depth: u32, a: &str) -> String {
        let b = self.vector(ty, depth);
        match self.below(9) {
            0..=3 => {
                let op = self.pick(&["+", "-", "*", "&", "|", "^"]);
                format!("({a} {op} {b})")
            }
            4 => {
                let op = self.pick(&["<<", ">>"]);
                let mask = format!("({})({})", vector_name(ty), ty.0.bits - 1);
                format!("({a} {op} ({b} & {mask}))")
            }
            5 => {
                let function = self.pick(&["min", "max", "add_sat", "sub_sat"]);
                format!("__builtin_elementwise_{function}({a}, {b})")
            }
            6 => format!("(~{a})"),
            7 => format!("({a} * {b} + {a})"),
            _ => {
                let op = self.pick(&["<", "==", ">="]);
                let mask = format!("__builtin_convertvector({a} {op} {b}, {})", vector_name(ty));
                format!("({mask} & {a})")
            }
        }
    }
}
