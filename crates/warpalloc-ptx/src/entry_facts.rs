//! What the text says of its entries before anything is done to them.

use crate::apply;
use crate::ast::{self, Body, Span, Stmt};
use crate::diag::Lines;
use crate::entry::{declared_threads, module_shared, static_shared};
use crate::module::{PtxError, functions_with_bodies};
use crate::source_line::{SourceLine, SourceLines};

/// A module and its entries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModuleFacts {
    /// The machine that `.target` names, such as `sm_90a`.
    pub arch: Option<String>,
    /// The entries with a body, in the order of the text.
    pub entries: Vec<EntryFacts>,
}

/// An entry.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EntryFacts {
    /// Its name.
    pub name: String,
    /// All of its text.
    pub span: Span,
    /// The line of its name.
    pub line: usize,
    /// The first line of the source that its code comes from.
    pub source: Option<SourceLine>,
    /// The most threads of its blocks.
    pub block_threads: Option<u32>,
    /// Bytes of static shared memory, all that the module declares included.
    pub shared_bytes: u64,
    /// Bytes of the `.local` variables in its body.
    pub local_bytes: u64,
    /// Whether `.maxnreg` or launch bounds limit its registers.
    pub is_capped: bool,
}

/// Reads the entries of a module.
pub fn entry_facts(source: &str) -> Result<ModuleFacts, PtxError> {
    let module = crate::parse(source).map_err(Box::new)?;
    let lines = Lines::of(source);
    let origins = SourceLines::of(&module);
    let shared = module_shared(&module);
    let entries = functions_with_bodies(&module).filter(|(f, _)| f.is_entry);
    let entries = entries.map(|(function, body)| EntryFacts {
        name: function.name.text.to_owned(),
        span: function.span,
        line: lines.line(function.name.span.start),
        source: origins.first(body.open),
        block_threads: declared_threads(function).map(|threads| threads.count),
        shared_bytes: shared.saturating_add(static_shared(body)),
        local_bytes: local_bytes(body),
        is_capped: is_capped(function),
    });
    Ok(ModuleFacts {
        arch: module
            .target
            .iter()
            .find(|name| name.starts_with("sm_"))
            .map(|name| (*name).to_owned()),
        entries: entries.collect(),
    })
}

fn is_capped(function: &ast::Function) -> bool {
    let caps = ["maxnreg", "maxntid", "reqntid", "minnctapersm"];
    function
        .directives
        .iter()
        .any(|d| caps.contains(&d.keyword))
}

fn local_bytes(body: &Body) -> u64 {
    let bytes = |stmt: &Stmt| match stmt {
        Stmt::Var(var) if var.space == "local" => apply::variable_bytes(var),
        Stmt::Scope(inner) => local_bytes(inner),
        _ => 0,
    };
    body.stmts.iter().map(bytes).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_say_what_their_text_says() {
        let source = ".version 9.0\n.target sm_90a\n.address_size 64\n.shared .b32 all[4];\n\
            .func f() { ret; }\n\
            .entry a() .maxntid 128, 2 {\n.local .b8 depot[12];\n.shared .b64 own;\nret;\n}\n\
            .entry b() { .loc 1 3 0\nret; }\n.file 1 \"b.cu\"\n";
        let facts = entry_facts(source).unwrap();
        assert_eq!(facts.arch.as_deref(), Some("sm_90a"));
        let [a, b] = &facts.entries[..] else {
            panic!("{facts:?}")
        };
        assert_eq!((a.name.as_str(), a.line, &a.source), ("a", 6, &None));
        assert_eq!(
            (a.block_threads, a.shared_bytes, a.local_bytes, a.is_capped),
            (Some(256), 24, 12, true)
        );
        assert_eq!(
            (b.block_threads, b.shared_bytes, b.local_bytes, b.is_capped),
            (None, 16, 0, false)
        );
        let line = b.source.as_ref().map(|s| (s.file.as_str(), s.line));
        assert_eq!(line, Some(("b.cu", 3)));
    }
}
