// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Makes a failing program smaller: whole processes first, then ever smaller runs of lines, then
//! single fields. Pure; whether a program still fails is asked of the caller.

use super::program::{Program, Value};

/// A program without anything that it can fail without, as far as `fails` says the same each time.
pub fn shrink(program: &Program, fails: &mut dyn FnMut(&Program) -> bool) -> Program {
    let mut best = program.clone();
    loop {
        let before = best.clone();
        processes(&mut best, fails);
        lines(&mut best, fails);
        threads(&mut best, fails);
        fields(&mut best, fails);
        if best == before {
            return best;
        }
    }
}

/// Takes `smaller` if it fails.
fn attempt(best: &mut Program, smaller: Program, fails: &mut dyn FnMut(&Program) -> bool) -> bool {
    let taken = smaller != *best && fails(&smaller);
    if taken {
        *best = smaller;
    }
    taken
}

fn processes(best: &mut Program, fails: &mut dyn FnMut(&Program) -> bool) {
    for process in (0..best.processes()).rev() {
        let mut smaller = best.clone();
        smaller.lines.retain(|line| line.process != process);
        attempt(best, smaller, fails);
    }
}

fn lines(best: &mut Program, fails: &mut dyn FnMut(&Program) -> bool) {
    let mut size = best.lines.len().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        while start < best.lines.len() {
            let mut smaller = best.clone();
            smaller
                .lines
                .drain(start..(start + size).min(best.lines.len()));
            if !attempt(best, smaller, fails) {
                start += size;
            }
        }
        size /= 2;
    }
}

/// One thread instead of several.
fn threads(best: &mut Program, fails: &mut dyn FnMut(&Program) -> bool) {
    let mut smaller = best.clone();
    for line in &mut smaller.lines {
        line.thread = 0;
    }
    attempt(best, smaller, fails);
}

fn fields(best: &mut Program, fails: &mut dyn FnMut(&Program) -> bool) {
    for line in 0..best.lines.len() {
        let mut field = 0;
        while field < best.lines[line].fields.len() {
            let mut smaller = best.clone();
            smaller.lines[line].fields.remove(field);
            if !attempt(best, smaller, fails) {
                plain(best, line, field, fails);
                field += 1;
            }
        }
    }
}

/// A plain 0 or 1 instead of a value.
fn plain(best: &mut Program, line: usize, field: usize, fails: &mut dyn FnMut(&Program) -> bool) {
    for number in [0, 1] {
        let value = &best.lines[line].fields[field].1;
        if !matches!(value, Value::Number(old) if *old > number) {
            continue;
        }
        let mut smaller = best.clone();
        smaller.lines[line].fields[field].1 = Value::Number(number);
        if attempt(best, smaller, fails) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::generate;

    /// Fails where one process allocates and a later line of the same process frees.
    fn fails(program: &Program) -> bool {
        let calls = |name: &'static str| {
            let lines = program.lines.iter().enumerate();
            lines.filter(move |(_, line)| line.call == name)
        };
        calls("ALLOC_MEMORY_OF_GPU").any(|(first, alloc)| {
            calls("FREE_MEMORY_OF_GPU")
                .any(|(second, free)| first < second && alloc.process == free.process)
        })
    }

    #[test]
    fn two_lines_of_a_large_program_are_left() {
        let mut asked = 0;
        let program = (0..)
            .map(|seed| generate::program(seed, 8, 400))
            .find(fails)
            .expect("some program has both calls");
        let small = shrink(&program, &mut |candidate| {
            asked += 1;
            fails(candidate)
        });
        assert!(fails(&small));
        let calls: Vec<&str> = small.lines.iter().map(|line| line.call.as_str()).collect();
        assert_eq!(calls, ["ALLOC_MEMORY_OF_GPU", "FREE_MEMORY_OF_GPU"]);
        assert!(small.lines.iter().all(|line| line.fields.is_empty()));
        assert!(asked < 1000, "asked {asked} times");
    }

    #[test]
    fn what_never_fails_stays() {
        let program = generate::program(3, 2, 20);
        assert_eq!(shrink(&program, &mut |_| false), program);
    }
}
