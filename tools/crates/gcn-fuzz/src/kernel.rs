// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One random kernel: variables of a work-item, statements in two phases with a barrier between
//! them, LDS, atomics on shared cells, and a result for each variable.
//!
//! What work-items do to each other is such that their order does not matter: the host runs them
//! one after the other.

use crate::expr::{vector_name, Expressions, Variable, F32, I32, I64, SCALARS, U32, U64, VECTORS};
use crate::toolchain::Numbers;

/// A kernel's source for either side, and its results: how many quadwords a work-item writes, and
/// their names.
pub struct Kernel {
    /// For gfx942.
    pub device: String,
    /// For the host.
    pub host: String,
    pub results: usize,
    pub names: Vec<String>,
}

/// Atomics that commute. Each has four cells of its own.
const ATOMICS: [&str; 8] = ["add", "sub", "and", "or", "xor", "min", "max", "umax"];

struct Generator<'a> {
    expressions: Expressions<'a>,
    index: u64,
    /// Variables that are the same in all work-items.
    uniform: Vec<Variable>,
    /// Inside a branch or loop that not all work-items take alike.
    divergent: bool,
    /// Loops that are open: they name their counters.
    loops: u32,
    /// After the barrier: LDS can be read.
    second: bool,
    /// How deep expressions are.
    depth: u32,
}

/// The kernel of this index.
pub fn generate(index: u64, numbers: &mut Numbers) -> Kernel {
    let variables = variables(numbers);
    let uniform: Vec<Variable> = [
        ("s->w0", U32),
        ("s->w1", U32),
        ("s->y0", I32),
        ("s->z0", U64),
        ("s->z1", I64),
    ]
    .into_iter()
    .map(|(text, element)| Variable {
        text: text.into(),
        element,
        count: 1,
    })
    .collect();
    let mut generator = Generator {
        expressions: Expressions {
            numbers,
            variables: variables.clone(),
            memory: true,
        },
        index,
        uniform,
        divergent: false,
        loops: 0,
        second: false,
        depth: 2,
    };
    // Most kernels are small: compiling takes all the time, and more for a statement of a large
    // one.
    let (most, depth, second) = match generator.below(48) {
        0..=36 => (1, 0, 8),
        37 => (8, 2, 2),
        _ => (2, 1, 2),
    };
    generator.depth = if generator.below(4) == 0 { 3 } else { 2 };
    let count = 1 + generator.below(most);
    let mut first: String = (0..count).map(|_| generator.statement(depth)).collect();
    generator.second = generator.below(second) == 0;
    let count = if generator.second {
        1 + generator.below(most)
    } else {
        0
    };
    let second: String = (0..count).map(|_| generator.statement(depth)).collect();
    if second.contains("ld") {
        first += &generator.share();
    }
    let helper = generator.helper();
    assemble(index, &variables, &helper, &first, &second)
}

/// Variables of random types, with those that others are made of.
fn variables(numbers: &mut Numbers) -> Vec<Variable> {
    let mut variables = Vec::new();
    let mut add = |element: crate::expr::Scalar, count: u32| {
        let number = variables.len();
        variables.push(Variable {
            text: format!("s->v{number}"),
            element,
            count,
        });
    };
    for element in [I32, U32, U32, F32, U64] {
        add(element, 1);
    }
    for _ in 0..3 + numbers.below(3) {
        add(SCALARS[numbers.below(11) as usize], 1);
    }
    for _ in 0..1 + numbers.below(3) {
        let (element, count) = VECTORS[numbers.below(18) as usize];
        add(element, count);
    }
    variables
}

impl Generator<'_> {
    fn below(&mut self, end: u64) -> u64 {
        self.expressions.below(end)
    }

    /// Runs `make` with only the uniform variables.
    fn uniformly<T>(&mut self, make: impl FnOnce(&mut Expressions) -> T) -> T {
        let all = std::mem::replace(&mut self.expressions.variables, self.uniform.clone());
        self.expressions.memory = false;
        let made = make(&mut self.expressions);
        self.expressions.memory = true;
        self.expressions.variables = all;
        made
    }

    fn block(&mut self, depth: u32) -> String {
        let count = 1 + self.below(2);
        (0..count).map(|_| self.statement(depth)).collect()
    }

    fn statement(&mut self, depth: u32) -> String {
        match self.below(24) {
            0..=2 if depth > 0 => self.branch(depth - 1),
            3..=4 if depth > 0 => self.looped(depth - 1),
            5 if depth > 0 => self.switch(depth - 1),
            6 => self.element(),
            7 => self.array(),
            8 | 9 => self.atomic(),
            10 => self.own_atomic(),
            11..=13 if !self.divergent => self.uniform_assignment(),
            14 => format!(
                "s->v1 = helper{}({}, {});\n",
                self.index,
                self.expressions.expression(U32, 1),
                self.expressions.expression(F32, 1)
            ),
            15..=16 if self.second => self.shared(),
            _ => self.assignment(),
        }
    }

    fn assignment(&mut self) -> String {
        let variables = &self.expressions.variables;
        let variable =
            variables[self.expressions.numbers.below(variables.len() as u64) as usize].clone();
        let value = if variable.count == 1 {
            self.expressions.expression(variable.element, self.depth)
        } else {
            self.expressions
                .vector((variable.element, variable.count), self.depth - 1)
        };
        format!("{} = {value};\n", variable.text)
    }

    fn uniform_assignment(&mut self) -> String {
        let index = self.below(self.uniform.len() as u64) as usize;
        let variable = self.uniform[index].clone();
        let depth = self.depth;
        let value = self.uniformly(|expressions| expressions.expression(variable.element, depth));
        format!("{} = {value};\n", variable.text)
    }

    /// Runs `make` as the body of something that work-items may take differently.
    fn body(&mut self, uniform: bool, make: impl FnOnce(&mut Self) -> String) -> String {
        let before = self.divergent;
        self.divergent |= !uniform;
        let text = make(self);
        self.divergent = before;
        text
    }

    fn branch(&mut self, depth: u32) -> String {
        let uniform = self.below(3) == 0;
        let condition = if uniform {
            self.uniformly(|expressions| expressions.condition(1))
        } else {
            self.expressions.condition(2)
        };
        let then = self.body(uniform, |generator| generator.block(depth));
        if self.below(2) == 0 {
            return format!("if ({condition}) {{\n{then}}}\n");
        }
        let other = self.body(uniform, |generator| generator.block(depth));
        format!("if ({condition}) {{\n{then}}} else {{\n{other}}}\n")
    }

    fn looped(&mut self, depth: u32) -> String {
        let uniform = self.below(2) == 0;
        let count = if uniform {
            self.uniformly(|expressions| expressions.expression(U32, 1))
        } else {
            self.expressions.expression(U32, 1)
        };
        let counter = format!("i{}", self.loops);
        self.loops += 1;
        self.expressions.variables.push(Variable {
            text: counter.clone(),
            element: crate::expr::SCALARS[0],
            count: 1,
        });
        let body = self.body(uniform, |generator| generator.block(depth));
        let out = if self.below(3) == 0 {
            let condition = self.expressions.condition(1);
            format!("if ({condition}) break;\n")
        } else {
            String::new()
        };
        // A counter must not be assigned: it leaves the pool with its loop, and `assignment` only
        // picks it inside. So it is a copy.
        self.expressions
            .variables
            .retain(|variable| variable.text != counter);
        self.loops -= 1;
        // Clang 19 gives a lane that has left the loop the counter of those that have not.
        let hide = match (uniform, out.is_empty()) {
            (true, true) => String::new(),
            _ => format!("HIDE({counter});\n"),
        };
        let limit = format!("n{counter}");
        let step = format!("c{counter}");
        format!(
            "for (u32 {step} = 0, {limit} = ({count}) & 7; {step} < {limit}; {step}++) {{\n\
             i32 {counter} = (i32){step};\n{hide}{body}{out}}}\n"
        )
    }

    fn switch(&mut self, depth: u32) -> String {
        let value = self.expressions.expression(U32, 1);
        let mut text = format!("switch (({value}) & 7) {{\n");
        for case in 0..2 + self.below(3) {
            let body = self.body(false, |generator| generator.block(depth));
            let end = if self.below(4) == 0 { "" } else { "break;\n" };
            text += &format!("case {}:\n{body}{end}", case * 2 % 7);
        }
        text + "default:\nbreak;\n}\n"
    }

    /// A component of a vector.
    fn element(&mut self) -> String {
        let vectors: Vec<Variable> = self
            .expressions
            .variables
            .iter()
            .filter(|v| v.count > 1)
            .cloned()
            .collect();
        let vector = &vectors[self.below(vectors.len() as u64) as usize];
        let value = self.expressions.expression(vector.element, 2);
        let index = self.below(vector.count.into());
        format!("{}[{index}] = {value};\n", vector.text)
    }

    /// The work-item's array, by an index that it computes: in scratch, or registers by index.
    fn array(&mut self) -> String {
        let (at, from) = (
            self.expressions.expression(U32, 1),
            self.expressions.expression(U32, 1),
        );
        let value = self.expressions.expression(U32, 2);
        format!("s->a[({at}) & 7] = {value};\ns->v2 ^= s->a[({from}) & 7];\n")
    }

    /// Changes a cell that others change too, in memory or in LDS.
    fn atomic(&mut self) -> String {
        let kind = self.below(8) as usize;
        let at = self.expressions.expression(U32, 1);
        let (value, lds) = (self.expressions.expression(U64, 1), self.below(2) == 0);
        let (name, sign) = match ATOMICS[kind] {
            "umax" => ("max", "u"),
            "add" | "sub" | "and" | "or" | "xor" => (ATOMICS[kind], "u"),
            name => (name, "i"),
        };
        let index = format!("{} + (({at}) & 3)", 4 * kind);
        if lds && !self.second {
            return format!(
                "__atomic_fetch_{name}((LOCAL_POINTER {sign}32 *)&ldc{}[{index}], \
                ({sign}32){value}, __ATOMIC_RELAXED);\n",
                self.index
            );
        }
        // The width is the kernel's: halves of a cell are not mixed with the whole.
        let bits = if self.index % 2 == 0 { 64 } else { 32 };
        let scale = if bits == 32 { "2 * " } else { "" };
        format!(
            "__atomic_fetch_{name}((GLOBAL {sign}{bits} *)cells + {scale}({index}), \
            ({sign}{bits}){value}, __ATOMIC_RELAXED);\n"
        )
    }

    /// Changes what only this work-item changes, and takes the old value.
    fn own_atomic(&mut self) -> String {
        let names = [
            "fetch_add",
            "fetch_sub",
            "fetch_xor",
            "fetch_max",
            "fetch_min",
            "exchange_n",
            "fetch_nand",
        ];
        let name = self.expressions.pick(&names);
        let (bits, to) = [(32, "s->v1"), (64, "s->v4")][self.below(2) as usize];
        let element = if bits == 32 { U32 } else { U64 };
        let value = self.expressions.expression(element, 1);
        if self.below(3) == 0 {
            let desired = self.expressions.expression(element, 1);
            return format!(
                "{{ u{bits} old = {value}; s->v2 += __atomic_compare_exchange_n((GLOBAL u{bits} \
                *)(out + s->id), &old, ({desired}), 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED); {to} \
                ^= old; }}\n"
            );
        }
        format!(
            "{to} += __atomic_{name}((GLOBAL u{bits} *)(out + s->id), {value}, \
        __ATOMIC_RELAXED);\n"
        )
    }

    /// What the second phase reads of the first, through LDS.
    fn share(&mut self) -> String {
        let k = self.index;
        let dword = self.expressions.expression(U32, 1);
        let quadword = self.expressions.expression(U64, 1);
        let byte = self.expressions.expression(U32, 1);
        let half = self.expressions.expression(U32, 1);
        let part = self.below(4);
        format!(
            "lda{k}[s->id] = {dword};\nldq{k}[s->id] = {quadword};\n\
             ldb{k}[s->id * 4 + {part}] = (u8){byte};\nldh{k}[s->id] = (u16){half};\n"
        )
    }

    /// Reads what other work-items left in LDS.
    fn shared(&mut self) -> String {
        let k = self.index;
        let at = self.expressions.expression(U32, 1);
        match self.below(6) {
            0 | 1 => format!("s->v1 ^= lda{k}[({at}) % ITEMS];\n"),
            2 => format!("s->v4 ^= ldq{k}[({at}) % ITEMS];\n"),
            3 => {
                format!("s->v2 += (u32)(i8)ldb{k}[s->id * 4 + (({at}) & 3)] + ldb{k}[s->id * 4];\n")
            }
            4 => format!("s->v2 -= (u32)(i16)ldh{k}[({at}) % ITEMS];\n"),
            _ => format!("s->v1 += ldc{k}[({at}) & 31];\n"),
        }
    }

    /// A function that is called.
    fn helper(&mut self) -> String {
        let parameters = [("a", U32), ("b", F32)].map(|(text, element)| Variable {
            text: text.into(),
            element,
            count: 1,
        });
        let all = std::mem::replace(&mut self.expressions.variables, parameters.to_vec());
        self.expressions.memory = false;
        let condition = self.expressions.condition(1);
        let (early, value) = (
            self.expressions.expression(U32, 2),
            self.expressions.expression(U32, 3),
        );
        self.expressions.memory = true;
        self.expressions.variables = all;
        format!(
            "CALLED u32 helper{}(u32 a, f32 b) {{ if ({condition}) return {early}; return {value}; \
            }}\n",
            self.index
        )
    }
}

/// How a variable begins: from the inputs, a row of which each work-item has.
fn initial(number: usize, variable: &Variable) -> String {
    let value = |at: usize| match (variable.element.float, variable.element.bits) {
        (true, 16) => format!("from16((u16)row[{at}])"),
        (true, 32) => format!("from32(row[{at}])"),
        (true, _) => format!(
            "(f64)from32(row[{at}]) + (f64)(i32)row[{}] * 0x1p-40",
            at + 5
        ),
        (false, 64) => format!(
            "({})(row[{at}] | (u64)row[{}] << 32)",
            variable.element.name,
            at + 5
        ),
        (false, _) => format!("({})row[{at}]", variable.element.name),
    };
    if variable.count == 1 {
        return format!("{} = {};\n", variable.text, value(number));
    }
    let parts: Vec<String> = (0..variable.count as usize)
        .map(|part| value(number + part))
        .collect();
    let name = vector_name((variable.element, variable.count));
    format!("{} = ({name}){{{}}};\n", variable.text, parts.join(", "))
}

/// Whether statements name a variable.
fn is_named(text: &str, variable: &str) -> bool {
    text.match_indices(variable)
        .map(|(at, _)| &text[at + variable.len()..])
        .any(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
}

/// Whether statements assign to a variable or to a part of it.
fn is_assigned(text: &str, variable: &str) -> bool {
    let after = |(at, _)| &text[at + variable.len()..];
    text.match_indices(variable).map(after).any(|rest| {
        ["[", " =", " +=", " -=", " ^="]
            .iter()
            .any(|start| rest.starts_with(start))
    })
}

/// The kernel's text around its statements. What they do not use is left out.
fn assemble(k: u64, variables: &[Variable], helper: &str, first: &str, second: &str) -> Kernel {
    let body = format!("{first}{second}");
    let (shares, calls) = (body.contains("ld"), body.contains("helper"));
    let mut members = String::from("u32 id, w0, w1, a[8]; i32 y0; u64 z0; i64 z1;\n");
    let (mut begin, mut end) = (String::new(), String::new());
    let mut names = Vec::new();
    if body.contains("s->a[") {
        begin += "for (u32 i = 0; i < 8; i++) s->a[i] = row[i];\n";
    }
    let used = |variable: &&Variable| is_named(&body, &variable.text);
    for (number, variable) in variables.iter().filter(used).enumerate() {
        let ty = match variable.count {
            1 => variable.element.name.to_string(),
            count => vector_name((variable.element, count)),
        };
        members += &format!("{ty} {};\n", &variable.text[3..]);
        begin += &initial(3 * number, variable);
        if is_assigned(&body, &variable.text) {
            end += &result(variable, &ty, &mut names);
        }
    }
    begin += &uniform(&body, &mut end, &mut names);
    if shares {
        begin += &format!(
            "if (s->id < 32) ldc{k}[s->id] = 0;\n\
            for (u32 i = 0; i < 4; i++) ldb{k}[s->id * 4 + i] = 0;\n"
        );
    }
    let mut common = format!("struct state{k} {{\n{members}}};\n");
    if shares {
        common += &format!(
            "LOCAL u32 lda{k}[ITEMS], ldc{k}[32];\nLOCAL u64 ldq{k}[ITEMS];\n\
            LOCAL u8 ldb{k}[ITEMS * 4];\nLOCAL u16 ldh{k}[ITEMS];\n"
        );
    }
    if calls {
        common += helper;
    }
    let phases = [begin.as_str(), first, second, end.as_str()];
    Kernel {
        device: common.clone() + &device(k, phases, shares),
        host: common + &host(k, phases),
        results: names.len(),
        names,
    }
}

/// Statements that write a variable's results.
fn result(variable: &Variable, ty: &str, names: &mut Vec<String>) -> String {
    let mut text = String::new();
    for part in 0..variable.count {
        let component = match variable.count {
            1 => variable.text.clone(),
            _ => format!("{}[{part}]", variable.text),
        };
        let bits = match variable.element.float {
            true => format!("bits{}({component})", variable.element.bits),
            false => format!("(u64){component}"),
        };
        text += &format!("out[{} * ITEMS + s->id] = {bits};\n", names.len());
        names.push(format!("{ty} {component}"));
    }
    text
}

/// The uniform variables' beginnings; the results of those that change, and one at least.
fn uniform(body: &str, end: &mut String, names: &mut Vec<String>) -> String {
    let values = [
        ("s->w0", "x"),
        ("s->w1", "y"),
        ("s->y0", "(i32)(x * 3 + y)"),
        ("s->z0", "(u64)x << 32 | y"),
        ("s->z1", "(i64)(i32)x * (i32)y"),
    ];
    let mut begin = String::new();
    for (name, value) in values {
        if name == "s->w0" || is_named(body, name) {
            begin += &format!("{name} = {value};\n");
        }
        if name == "s->w0" || is_assigned(body, name) {
            *end += &format!("out[{} * ITEMS + s->id] = (u64){name};\n", names.len());
            names.push(name.into());
        }
    }
    begin
}

const INPUTS: &str = "const GLOBAL u32 *in, GLOBAL u64 *out, GLOBAL u64 *cells, u32 x, u32 y";

/// One function: of a work-item.
fn device(k: u64, [begin, first, second, end]: [&str; 4], shares: bool) -> String {
    let barrier = if shares { "BARRIER\n" } else { "" };
    format!(
        "__attribute__((amdgpu_kernel))\nvoid kernel{k}({INPUTS}) {{\n\
        struct state{k} state, *s = &state;\n\
         s->id = __builtin_amdgcn_workitem_id_x();\nconst GLOBAL u32 *row = in + s->id * ROW;\n\
         {begin}{barrier}{first}{barrier}{second}{end}}}\n"
    )
}

/// One function: each phase for all work-items.
fn host(k: u64, phases: [&str; 4]) -> String {
    let mut text =
        format!("static void host{k}({INPUTS}) {{\nstatic struct state{k} states[ITEMS];\n");
    for phase in phases.iter().filter(|phase| !phase.is_empty()) {
        text += &format!(
            "for (u32 id = 0; id < ITEMS; id++) {{\nstruct state{k} *s = &states[id];\n\
            s->id = id;\n\
             const GLOBAL u32 *row = in + id * ROW;\n{phase}}}\n"
        );
    }
    text + "}\n"
}
