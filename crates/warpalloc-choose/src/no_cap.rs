//! One allocator where nobody asks for a cap.
//!
//! Registers of PTX are names to ptxas, which allocates them again. Without a cap other names gain
//! nothing, and ptxas, whose heuristics heed their order, may take more registers for them or spill
//! where it did not. Where it is at hand, such a kernel stays as it is.

use std::collections::BTreeMap;

use warpalloc::target::sm::Sm;
use warpalloc_ptx::Edits;
use warpalloc_ptx::ast::Module;
use warpalloc_ptx::module::{FunctionReport, ModuleOptions, ModuleResult, Outcome, PtxError};

use crate::choose::{ChooseError, Facts, defined, parse};
use crate::ptxas::{Assembly, Ptxas, PtxasError, Said};

/// Puts kernels back of which ptxas takes more registers, in the portions that a warp gets, or
/// spills more bytes than of the original; `result` is what an allocator made of `source`. Where
/// there is a cap it stays as it is.
pub fn keep_no_worse(
    source: &str,
    options: &ModuleOptions,
    ptxas: &Ptxas,
    result: ModuleResult,
) -> Result<ModuleResult, ChooseError> {
    if options.maxnreg.is_some() || options.occupancy_target.is_some() {
        return Ok(result);
    }
    let module = parse(source)?;
    let worse = worse_kernels(source, &module, options, ptxas, &result)?;
    match worse.is_empty() {
        true => Ok(result),
        false => put_back(source, &module, &worse, result),
    }
}

/// The kernels that an allocator made worse, and why.
fn worse_kernels(
    source: &str,
    module: &Module,
    options: &ModuleOptions,
    ptxas: &Ptxas,
    result: &ModuleResult,
) -> Result<BTreeMap<String, String>, ChooseError> {
    let is_entry = |name: &str| defined(module, name).is_some_and(|f| f.is_entry);
    let allocated = result.functions.iter().filter(|f| is_allocated(f));
    let kernels: Vec<&str> = allocated
        .map(|f| f.name.as_str())
        .filter(|name| is_entry(name))
        .collect();
    if kernels.is_empty() {
        return Ok(BTreeMap::new());
    }
    let arch = Facts::of(module, options).arch;
    let only = kernels.iter().flat_map(|kernel| ["-e", kernel]);
    let flags: Vec<String> = ["-v"].into_iter().chain(only).map(str::to_owned).collect();
    let assemble = |text: &str| {
        let assembly = Assembly {
            text,
            arch: &arch,
            entry: None,
            contraction: options.contraction,
        };
        match ptxas.assemble_with(assembly, &flags) {
            Ok(made) => Ok(Some(made.functions())),
            Err(PtxasError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    };
    // What it refuses as it is, it cannot be asked about.
    let Some(before) = assemble(source)? else {
        return Ok(BTreeMap::new());
    };
    let after = assemble(&result.text)?.unwrap_or_default();
    let portion = portion(&arch);
    let worse = kernels.into_iter().filter_map(|kernel| {
        let before = before.get(kernel)?;
        let reason = match after.get(kernel) {
            Some(after) => reason(portion, before, after)?,
            None => "ptxas refuses its allocated text".to_owned(),
        };
        Some((kernel.to_owned(), reason))
    });
    Ok(worse.collect())
}

/// The module with these kernels as they were, and with all functions that they may call.
fn put_back(
    source: &str,
    module: &Module,
    worse: &BTreeMap<String, String>,
    mut result: ModuleResult,
) -> Result<ModuleResult, ChooseError> {
    let made = parse(&result.text)?;
    let mut edits = Edits::new();
    for function in result.functions.iter_mut().filter(|f| is_allocated(f)) {
        let name = &function.name;
        let (Some(ours), Some(own)) = (defined(&made, name), defined(module, name)) else {
            continue;
        };
        let reason = match worse.get(name) {
            Some(reason) => reason.clone(),
            None if own.is_entry => continue,
            None => "a kernel of its module stays as it is".to_owned(),
        };
        function.outcome = Outcome::Kept(reason);
        edits.replace(ours.span, own.span.text(source));
    }
    let text = edits.apply(&result.text).map_err(PtxError::from)?;
    Ok(ModuleResult { text, ..result })
}

fn is_allocated(function: &FunctionReport) -> bool {
    matches!(function.outcome, Outcome::Allocated(_))
}

/// Registers that each thread of a warp gets at a time.
fn portion(arch: &str) -> u32 {
    let sm = arch.trim_end_matches(['a', 'f']).parse::<Sm>();
    sm.map_or(1, |sm| sm.limits().register_granularity / 32)
}

/// Why `after` is worse than `before`, if it is.
fn reason(portion: u32, before: &Said, after: &Said) -> Option<String> {
    let asked = "and no cap was asked for";
    if after.spill_bytes() > before.spill_bytes() {
        return Some(format!(
            "ptxas spills {} bytes in its allocated text, {} in it as it is, {asked}",
            after.spill_bytes(),
            before.spill_bytes()
        ));
    }
    let (Some(own), Some(ours)) = (before.registers, after.registers) else {
        return None;
    };
    (ours.div_ceil(portion) > own.div_ceil(portion)).then(|| {
        format!(
            "ptxas takes {ours} registers for its allocated text, {own} for it as it is, {asked}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(registers: u32, spill_stores: u32) -> Said {
        let mut said = Said::default();
        (said.registers, said.spill_stores) = (Some(registers), spill_stores);
        said
    }

    #[test]
    fn registers_count_in_portions_and_spills_by_the_byte() {
        let portion = portion("sm_90a");
        assert_eq!(portion, 8);
        let reason = |before, after| reason(portion, &before, &after);
        assert_eq!(reason(said(33, 0), said(40, 0)), None);
        assert_eq!(
            reason(said(40, 0), said(41, 0)).unwrap(),
            "ptxas takes 41 registers for its allocated text, 40 for it as it is, and no cap was asked for"
        );
        assert_eq!(
            reason(said(96, 0), said(80, 4)).unwrap(),
            "ptxas spills 4 bytes in its allocated text, 0 in it as it is, and no cap was asked for"
        );
        assert_eq!(reason(said(80, 8), said(80, 4)), None);
    }
}
