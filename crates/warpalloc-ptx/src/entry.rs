//! What the text of a function says of its launches.

use crate::apply::{self, Threads};
use crate::ast::{self, Body, Linkage, Module, Stmt};
use crate::printer::Edits;

/// Threads of the largest block.
const MOST_THREADS: u32 = 1024;

/// The bound on the block that an entry declares, else what the caller says of it.
pub(crate) fn block_threads(function: &ast::Function, said: Option<u32>) -> Option<Threads> {
    let said = said.filter(|&count| (1..=MOST_THREADS).contains(&count));
    declared_threads(function).or(said.map(|count| Threads { count, flat: false }))
}

/// The bound on the block that an entry declares.
pub(crate) fn declared_threads(function: &ast::Function) -> Option<Threads> {
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
fn is_static_shared(var: &ast::VarDecl) -> bool {
    var.space.starts_with("shared") && var.linkage != Linkage::Extern
}

/// Bytes of shared memory declared at module level.
pub(crate) fn module_shared(module: &Module) -> u64 {
    let vars = module.items.iter().filter_map(|item| match item {
        ast::Item::Var(var) if is_static_shared(var) => Some(apply::variable_bytes(var)),
        _ => None,
    });
    vars.fold(0, u64::saturating_add)
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
    write_directive(function, "maxnreg", cap, edits);
}

/// Lets ptxas spill to shared memory. It does so only where the block is bounded.
pub(crate) fn write_shared_spills(body: &Body, edits: &mut Edits) {
    edits.insert(body.open + 1, "\n\t.pragma \"enable_smem_spilling\";");
}

/// Bounds the block, so that no launch has more threads than memory was laid out for.
pub(crate) fn write_block(function: &ast::Function, threads: u32, edits: &mut Edits) {
    write_directive(function, "maxntid", threads, edits);
}

/// Puts the cap of a device function where `ptxas -c` looks for it. Without it, ptxas compiles
/// the function for any caller and then refuses the entries of the module whose cap is lower.
pub(crate) fn write_local_cap(
    function: &ast::Function,
    body: &Body,
    version: (u32, u32),
    cap: u32,
    edits: &mut Edits,
) {
    if version >= (8, 8) {
        write_directive(function, "local_maxnreg", cap, edits);
    } else {
        let text = format!("\n\t.pragma \"local_maxnreg {cap}\";");
        edits.insert(body.open + 1, &text);
    }
}

fn write_directive(function: &ast::Function, keyword: &str, value: u32, edits: &mut Edits) {
    let text = format!(".{keyword} {value}");
    match function.directives.iter().find(|d| d.keyword == keyword) {
        Some(old) => edits.replace(old.span, &text),
        None => {
            let last = function.directives.iter().map(|d| d.span.end).max();
            let at = last.unwrap_or(function.directives_at);
            edits.insert(at, &format!("\n{text}\n"));
        }
    }
}

/// Whether the device functions of a module are compiled for callers in other modules: they are
/// visible, or it calls what others define. The driver's own functions are no sign of that.
pub(crate) fn is_relocatable(module: &Module) -> bool {
    const OF_THE_DRIVER: [&str; 6] = [
        "vprintf",
        "malloc",
        "free",
        "__assertfail",
        "cudaGetParameterBufferV2",
        "cudaLaunchDeviceV2",
    ];
    let mut functions = module.functions().filter(|f| !f.is_entry);
    functions.any(|f| match f.linkage {
        Linkage::Visible | Linkage::Weak => f.body.is_some(),
        Linkage::Extern => !OF_THE_DRIVER.contains(&f.name.text),
        _ => false,
    })
}
