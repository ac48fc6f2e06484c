// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The functions of a source file, and how long they are.
//!
//! Rust is read by rustc's own kind of lexer, so functions inside macros count as well. C, shell
//! and Python are read by their indentation, which the house's style makes reliable.

use anyhow::{anyhow, Result};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A function: its name, its first line, and its lines from the signature to the closing brace.
#[derive(Debug, PartialEq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

/// The functions of a file, in order; none if it is in no language that is known here.
pub fn of(path: &str, text: &str) -> Result<Vec<Function>> {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let first = text.lines().next().unwrap_or("");
    match extension {
        "rs" => rust(text),
        "c" | "h" | "cpp" | "hip" | "cl" => Ok(c(text)),
        "py" => Ok(python(text)),
        _ if first.starts_with("#!") && first.contains("python") => Ok(python(text)),
        _ if extension == "sh" || first.starts_with("#!/bin/") => Ok(shell(text)),
        _ => Ok(Vec::new()),
    }
}

fn rust(text: &str) -> Result<Vec<Function>> {
    let tokens: TokenStream = text
        .parse()
        .map_err(|error: proc_macro2::LexError| anyhow!("{error} at {:?}", error.span().start()))?;
    let mut found = Vec::new();
    in_tokens(tokens, &mut found);
    Ok(found)
}

/// `fn NAME`, up to the next braces that are not followed by anything of the signature.
fn in_tokens(tokens: TokenStream, found: &mut Vec<Function>) {
    // The function whose body has not come yet: its name and first line.
    let mut open: Option<(String, usize)> = None;
    let mut after_fn: Option<usize> = None;
    for token in tokens {
        match token {
            TokenTree::Ident(word) if word == "fn" => {
                after_fn = Some(word.span().start().line);
                continue;
            }
            TokenTree::Ident(word) => {
                if let Some(line) = after_fn {
                    open = Some((word.to_string(), line));
                }
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => open = None,
            TokenTree::Group(group) => {
                if group.delimiter() == Delimiter::Brace {
                    found.extend(open.take().map(|open| with_body(open, &group)));
                }
                in_tokens(group.stream(), found);
            }
            _ => {}
        }
        after_fn = None;
    }
}

fn with_body((name, line): (String, usize), body: &Group) -> Function {
    let lines = body.span_close().end().line + 1 - line;
    Function { name, line, lines }
}

/// Functions begin and end in the first column: `}`, and `{` or a line that ends with `) {`.
fn c(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut first = None;
    for (at, line) in lines.iter().enumerate() {
        let opens =
            line.starts_with('{') || !line.starts_with([' ', '\t']) && line.ends_with(") {");
        if opens && first.is_none() {
            first = Some(signature(&lines, at));
        } else if line.starts_with('}') {
            if let Some(first) = first.take() {
                let name = lines[first].split('(').next().unwrap_or("");
                let name = name.rsplit([' ', '*']).next().unwrap_or("").to_string();
                found.push(Function {
                    name,
                    line: first + 1,
                    lines: at + 1 - first,
                });
            }
        }
    }
    found
}

/// The first line of what ends at an opening brace.
fn signature(lines: &[&str], brace: usize) -> usize {
    let ends = |line: &str| {
        line.is_empty() || line.ends_with([';', '}', '/', '>']) || line.starts_with('#')
    };
    (0..brace)
        .rev()
        .take_while(|&at| !ends(lines[at]))
        .last()
        .unwrap_or(brace)
}

/// `NAME() {`, up to the brace that stands below it.
fn shell(text: &str) -> Vec<Function> {
    let mut found = Vec::new();
    let mut open: Option<(String, usize, usize)> = None;
    for (at, line) in text.lines().enumerate() {
        let word = line.trim_start();
        let indentation = line.len() - word.len();
        match &open {
            None => {
                if let Some(name) = word.strip_suffix("() {") {
                    open = Some((name.to_string(), at, indentation));
                }
            }
            Some((name, first, outer)) if indentation == *outer && word.starts_with('}') => {
                let (name, line, lines) = (name.clone(), first + 1, at + 1 - first);
                found.push(Function { name, line, lines });
                open = None;
            }
            Some(_) => {}
        }
    }
    found
}

/// `def`, up to the last line that is indented more.
fn python(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix("def ") else {
            continue;
        };
        let body = lines[at + 1..]
            .iter()
            .take_while(|below| below.trim().is_empty() || indentation(below) > indentation(line));
        let last = body
            .enumerate()
            .filter(|(_, below)| !below.trim().is_empty())
            .last();
        found.push(Function {
            name: rest.split('(').next().unwrap_or("").to_string(),
            line: at + 1,
            lines: last.map_or(1, |(below, _)| below + 2),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(String, usize, usize)> {
        let functions = of(path, text).unwrap();
        functions
            .into_iter()
            .map(|function| (function.name, function.line, function.lines))
            .collect()
    }

    fn function(name: &str, line: usize, lines: usize) -> (String, usize, usize) {
        (name.to_string(), line, lines)
    }

    #[test]
    fn rust_functions_in_items_and_macros() {
        let text = "/// Doc.\nfn a(f: fn(u8) -> u8) -> u8 {\n    f(1)\n}\n\
            trait T {\n    fn declared(&self);\n    fn b(&self) {}\n}\n\
            make! {\n    fn c<const N: usize>()\n    where\n        [u8; N]: Sized,\n    {\n\
            fn d() {\n        }\n    }\n}\n";
        assert_eq!(
            found("a.rs", text),
            [
                function("a", 2, 3),
                function("b", 7, 1),
                function("c", 10, 7),
                function("d", 14, 2),
            ]
        );
    }

    #[test]
    fn text_of_strings_and_comments_is_no_function() {
        let text = "// fn a() {\nconst A: &str = \"fn b() {\";\n/* fn c() { */\n";
        assert_eq!(found("a.rs", text), []);
    }

    #[test]
    fn rust_that_cannot_be_read_is_an_error() {
        assert!(of("a.rs", "fn a() {").is_err());
    }

    #[test]
    fn c_functions_in_both_styles() {
        let text = "#include <a>\nstruct s {\n\tint a;\n};\n\nstatic int f(int a,\n\t     int b)\n\
            {\n\treturn 0;\n}\n\nkernel void g(int a) {\n    if (a) {\n    }\n}\n";
        assert_eq!(
            found("a.c", text),
            [function("f", 6, 5), function("g", 12, 4)]
        );
    }

    #[test]
    fn shell_functions() {
        let text =
            "#!/bin/bash\nf() { true; }\ng() {\n    { true; }\n    if true; then\n    fi\n}\n";
        assert_eq!(found("g", text), [function("g", 3, 5)]);
    }

    #[test]
    fn python_functions() {
        let text =
            "class A:\n    def f(self):\n        pass\n\n        pass\n\n\ndef g():\n    pass\n";
        assert_eq!(
            found("a.py", text),
            [function("f", 2, 4), function("g", 8, 2)]
        );
    }
}
