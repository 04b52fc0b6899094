//! A module as one kernel sees it.
//!
//! What is tried on one kernel needs no other, and of a library with hundreds of kernels nearly all
//! text is that of others. A slice has blank lines in their place, so that lines keep their numbers.

use crate::ast::{Function, Item, Module, Span};
use crate::lexer::{Lexer, Token};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// The slices of a module.
#[derive(Clone, Debug)]
pub struct Slices<'a> {
    source: &'a str,
    removable: Vec<Removable<'a>>,
}

/// A kernel that nothing else in the module names.
#[derive(Clone, Debug)]
struct Removable<'a> {
    name: &'a str,
    span: Span,
    /// Lines that end in its text.
    lines: usize,
}

impl<'a> Slices<'a> {
    /// Looks for the kernels of a module that others can do without.
    pub fn new(module: &Module<'a>) -> Slices<'a> {
        let source = module.source;
        let kernels = || {
            module
                .functions()
                .filter(|f| f.is_entry && f.body.is_some())
        };
        let mut removable = Vec::new();
        if !module.items.iter().any(names_labels) {
            let names = count_names(source, kernels());
            for kernel in kernels().filter(|kernel| names[kernel.name.text] == 1) {
                let text = kernel.span.text(source);
                removable.push(Removable {
                    name: kernel.name.text,
                    span: kernel.span,
                    lines: text.bytes().filter(|&byte| byte == b'\n').count(),
                });
            }
        }
        Slices { source, removable }
    }

    /// The module without kernels that `kernel` can do without.
    pub fn of(&self, kernel: &str) -> Cow<'a, str> {
        if self.removable.iter().all(|other| other.name == kernel) {
            return Cow::Borrowed(self.source);
        }
        let mut text = String::new();
        let mut copied = 0;
        for other in self.removable.iter().filter(|other| other.name != kernel) {
            text.push_str(Span::new(copied, other.span.start).text(self.source));
            text.extend(std::iter::repeat_n('\n', other.lines));
            copied = other.span.end;
        }
        text.push_str(&self.source[copied as usize..]);
        Cow::Owned(text)
    }
}

/// Whether an item may name labels in functions, as debug information does; strings do not.
fn names_labels(item: &Item) -> bool {
    let Item::Directive(directive) = item else {
        return false;
    };
    match directive.keyword {
        "section" => !directive.args.trim_start().starts_with(".debug_str"),
        keyword => keyword == "@@",
    }
}

/// How often each kernel is named, its definition included. A kernel that launches another names it.
fn count_names<'a, 'f>(
    source: &'a str,
    kernels: impl Iterator<Item = &'f Function<'a>>,
) -> FxHashMap<&'a str, usize>
where
    'a: 'f,
{
    let mut counts: FxHashMap<&str, usize> = kernels.map(|f| (f.name.text, 0)).collect();
    let mut lexer = Lexer::new(source);
    loop {
        match lexer.advance() {
            Token::Ident => {
                if let Some(count) = counts.get_mut(lexer.text()) {
                    *count += 1;
                }
            }
            Token::Eof => return counts,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Slices;

    const KERNELS: &str = "\
.version 8.0
.target sm_90
.address_size 64
.func f()
{
	ret;
}
.entry a()
{
	call f;
	ret;
}
.entry b() { ret; }
.global .u32 g;
";

    fn slice(source: &str, kernel: &str) -> String {
        let module = crate::parse(source).unwrap();
        Slices::new(&module).of(kernel).into_owned()
    }

    #[test]
    fn other_kernels_are_blank_lines() {
        let b = KERNELS.replace(".entry a()\n{\n\tcall f;\n\tret;\n}", "\n\n\n\n");
        assert_eq!(slice(KERNELS, "b"), b);
        let a = KERNELS.replace(".entry b() { ret; }", "");
        assert_eq!(slice(KERNELS, "a"), a);
    }

    #[test]
    fn a_kernel_that_another_launches_stays() {
        let launched = KERNELS.replace("call f;", ".reg .b64 %p; mov.u64 %p, b;");
        assert_eq!(slice(&launched, "a"), launched);
        assert_eq!(
            slice(&launched, "b"),
            launched.replace(
                ".entry a()\n{\n\t.reg .b64 %p; mov.u64 %p, b;\n\tret;\n}",
                "\n\n\n\n"
            )
        );
    }

    #[test]
    fn debug_information_keeps_all_kernels() {
        let debug = format!("{KERNELS}.section .debug_info\n{{\n.b64 $L__func_begin0\n}}\n");
        assert_eq!(slice(&debug, "a"), debug);
        let strings = format!("{KERNELS}.section .debug_str\n{{\n.b8 0\n}}\n");
        assert_eq!(
            slice(&strings, "a"),
            strings.replace(".entry b() { ret; }", "")
        );
    }
}
