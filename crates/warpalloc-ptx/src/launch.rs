//! What the text of a function says of its launches.

use crate::apply::{self, Threads};
use crate::ast::{self, Body, Linkage, Stmt};
use crate::printer::Edits;

/// Threads of the largest block.
const MOST_THREADS: u32 = 1024;

/// The bound on the block that an entry declares.
pub(crate) fn block_threads(function: &ast::Function) -> Option<Threads> {
    let bound = |keyword: &str| function.directives.iter().find(|d| d.keyword == keyword);
    let exact = bound("reqntid");
    let values = &exact.or_else(|| bound("maxntid"))?.values;
    let count = values
        .iter()
        .fold(1u32, |all, &dim| all.saturating_mul(dim.max(1)));
    // `.maxntid` bounds a product, so any shape of that size may be launched.
    let flat = exact.is_some() && values.iter().skip(1).all(|&dim| dim <= 1);
    (count <= MOST_THREADS).then_some(Threads { count, flat })
}

/// Whether a variable takes shared memory of every block.
pub(crate) fn is_static_shared(var: &ast::VarDecl) -> bool {
    var.space.starts_with("shared") && var.linkage != Linkage::Extern
}

/// Bytes of shared memory that the body declares.
pub(crate) fn static_shared(body: &Body) -> u64 {
    let bytes = |stmt: &Stmt| match stmt {
        Stmt::Var(var) if is_static_shared(var) => apply::variable_bytes(var),
        Stmt::Scope(inner) => static_shared(inner),
        _ => 0,
    };
    body.stmts.iter().map(bytes).fold(0, u64::saturating_add)
}

/// Whether the body has an instruction called `mnemonic`.
pub(crate) fn has_instruction(body: &Body, mnemonic: &str) -> bool {
    body.stmts.iter().any(|stmt| match stmt {
        Stmt::Inst(inst) => inst.mnemonic == mnemonic,
        Stmt::Scope(inner) => has_instruction(inner, mnemonic),
        _ => false,
    })
}

/// Puts `.maxnreg` where ptxas looks for it, in place of one that is there.
pub(crate) fn write_cap(function: &ast::Function, cap: u32, edits: &mut Edits) {
    let text = format!(".maxnreg {cap}");
    match function.directives.iter().find(|d| d.keyword == "maxnreg") {
        Some(old) => edits.replace(old.span, &text),
        None => {
            let last = function.directives.iter().map(|d| d.span.end).max();
            let at = last.unwrap_or(function.directives_at);
            edits.insert(at, &format!("\n{text}\n"));
        }
    }
}
