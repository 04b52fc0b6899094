//! Which line of the source a statement comes from, as `.file` and `.loc` say.

use std::collections::BTreeMap;

use crate::ast::{Body, Directive, Function, Item, Module, Stmt};

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    /// The file, as `.file` names it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// The lines that the bodies of a module come from.
#[derive(Clone, Debug, Default)]
pub struct SourceLines<'a> {
    /// By the number that `.loc` uses.
    files: BTreeMap<u32, &'a str>,
    /// By byte, from the `{` of each body on; `None` until its first `.loc`.
    rows: Vec<(u32, Option<(u32, u32)>)>,
}

impl<'a> SourceLines<'a> {
    /// Gathers the directives of `module`.
    pub fn of(module: &Module<'a>) -> Self {
        let mut lines = SourceLines::default();
        for item in &module.items {
            match item {
                Item::Directive(directive) => lines.add_file(directive),
                Item::Function(Function {
                    body: Some(body), ..
                }) => {
                    lines.rows.push((body.open, None));
                    lines.add_body(body);
                }
                _ => {}
            }
        }
        lines
    }

    /// The line of the statement at a byte of the text. A `.loc` holds until the next one of
    /// its function.
    pub fn at(&self, offset: u32) -> Option<SourceLine> {
        let behind = self.rows.partition_point(|(start, _)| *start <= offset);
        let (_, row) = self.rows.get(behind.checked_sub(1)?)?;
        self.line(*row)
    }

    /// The first line that the body with its `{` at `open` comes from.
    pub fn first(&self, open: u32) -> Option<SourceLine> {
        let from = self.rows.partition_point(|(start, _)| *start < open);
        let own = self.rows.get(from + 1)?;
        self.line(own.1)
    }

    fn line(&self, row: Option<(u32, u32)>) -> Option<SourceLine> {
        let (file, line) = row?;
        let file = (*self.files.get(&file)?).to_owned();
        Some(SourceLine { file, line })
    }

    /// `.file 1 "a.cu", 0, 0`
    fn add_file(&mut self, directive: &Directive<'a>) {
        if directive.keyword != "file" {
            return;
        }
        let mut parts = directive.args.splitn(3, '"');
        let number = parts.next().and_then(|n| n.trim().parse().ok());
        if let (Some(number), Some(name)) = (number, parts.next()) {
            self.files.insert(number, name);
        }
    }

    fn add_body(&mut self, body: &Body<'a>) {
        for stmt in &body.stmts {
            match stmt {
                Stmt::Directive(directive) if directive.keyword == "loc" => {
                    // `.loc 1 12 3, function_name $L0, inlined_at …`
                    let mut numbers = directive.args.split([' ', '\t', ',']);
                    let mut number = || numbers.find(|n| !n.is_empty())?.parse::<u32>().ok();
                    // Line 0 says that there is none.
                    let place = number().zip(number()).filter(|(_, line)| *line > 0);
                    self.rows.push((directive.span.start, place));
                }
                Stmt::Directive(directive) => self.add_file(directive),
                Stmt::Scope(inner) => self.add_body(inner),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = ".version 9.0\n.target sm_90\n.address_size 64\n\
        .entry a() {\n.loc 1 7 3\nmov.u32 %r1, %tid.x;\n{\n.loc 2 9 1, function_name $L, inlined_at 1 8 2\n\
        ret;\n}\n}\n.entry b() {\nret;\n.loc 1 0 0\nret;\n}\n\
        .file 1 \"k/a.cu\", 123, 45\n.file 2 \"b.h\"\n";

    fn at(text: &str) -> Option<(String, u32)> {
        let module = crate::parse(SOURCE).unwrap();
        let offset = SOURCE.find(text).unwrap() as u32;
        let found = SourceLines::of(&module).at(offset);
        found.map(|line| (line.file, line.line))
    }

    #[test]
    fn a_loc_holds_until_the_next_of_its_function() {
        assert_eq!(at("mov"), Some(("k/a.cu".to_owned(), 7)));
        assert_eq!(at("ret"), Some(("b.h".to_owned(), 9)));
        assert_eq!(at("ret;\n.loc 1 0"), None);
        assert_eq!(at("ret;\n}\n.file"), None);
    }

    #[test]
    fn a_body_starts_at_its_first_loc() {
        let module = crate::parse(SOURCE).unwrap();
        let lines = SourceLines::of(&module);
        let first = |name: &str| {
            let function = module.functions().find(|f| f.name.text == name)?;
            lines.first(function.body.as_ref()?.open)
        };
        assert_eq!(first("a").map(|line| line.line), Some(7));
        assert_eq!(first("b"), None);
    }
}
