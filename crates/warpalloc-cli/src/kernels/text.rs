//! Kernels in PTX: as ptxas assembles them, or as the allocator sees them.

use warpalloc::target::occupancy::{Launch, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc_choose::{Assembly, Ptxas, Said};
use warpalloc_ptx::contract::Contraction;
use warpalloc_ptx::module::{
    Allocated, FunctionMeasures, ModuleOptions, Outcome, PtxError, allocate_module, measure_module,
};
use warpalloc_ptx::{EntryFacts, ModuleFacts, entry_facts};
use warpalloc_sass::object::demangle;

use super::{Details, Figure, Figures, Kernel, Origin, Reader, code, for_figures};
use crate::files;

/// The kernels of a PTX text that are asked for.
pub fn kernels(reader: &Reader, file: &str, text: &str) -> anyhow::Result<Vec<Kernel>> {
    let explain = |error: PtxError| files::explain(file, text, error);
    let facts = entry_facts(text).map_err(explain)?;
    let mut found = match reader.ptxas {
        Some(ptxas) => assembled(reader, ptxas, file, text, &facts)?,
        None => allocated(reader, file, text, &facts)?,
    };
    let measures = match reader.details {
        true => measure_module(text, &ModuleOptions::default()).map_err(explain)?,
        false => Vec::new(),
    };
    for kernel in &mut found {
        if let Some(measured) = measures.iter().find(|f| f.name == kernel.symbol) {
            let own = facts.entries.iter().find(|e| e.name == kernel.symbol);
            let own = own.map(|entry| entry.span.text(text).to_owned());
            kernel.details = Some(details(own, measured));
        }
        if let Some(entry) = facts.entries.iter().find(|e| e.name == kernel.symbol) {
            kernel.line = u32::try_from(entry.line).ok();
            kernel.source.clone_from(&entry.source);
        }
    }
    // In the order of the text.
    found.sort_by_key(|kernel| kernel.line);
    Ok(found)
}

/// Of a kernel that is not understood there is only the text.
fn details(text: Option<String>, measured: &FunctionMeasures) -> Details {
    let measures = measured.measures.as_ref().ok();
    let peak = measures.and_then(|m| m.peaks.iter().find(|peak| peak.file == "R"));
    let place = |line: Option<usize>| line.map_or(String::new(), |line| format!("line {line}"));
    Details {
        text,
        instructions: measures.map_or(0, |m| m.instructions),
        peak: peak.map(|peak| (peak.registers, place(peak.line))),
    }
}

/// The machine that a text is for.
fn arch(reader: &Reader, facts: &ModuleFacts) -> anyhow::Result<String> {
    let asked = reader.args.text_arch()?.map(|arch| arch.to_string());
    let declared = || facts.arch.clone();
    Ok(asked
        .or_else(declared)
        .unwrap_or_else(|| "sm_75".to_owned()))
}

fn assembled(
    reader: &Reader,
    ptxas: &Ptxas,
    file: &str,
    text: &str,
    facts: &ModuleFacts,
) -> anyhow::Result<Vec<Kernel>> {
    let arch = arch(reader, facts)?;
    let assembly = Assembly {
        text,
        arch: &arch,
        entry: None,
        contraction: Contraction::default(),
    };
    let options = [&["-v".to_owned()], reader.options].concat();
    let made = ptxas.assemble_with(assembly, &options);
    let made = made.map_err(|error| anyhow::anyhow!("{file}: {error}"))?;
    let said = made.functions();
    let kernels = code::of_cubin(reader, file, &made.cubin, Origin::Ptxas);
    let mut kernels = kernels.map_err(|error| anyhow::anyhow!("{file}: {error}"))?;
    for kernel in &mut kernels {
        let said = said.get(&kernel.symbol);
        if let Ok(figures) = &mut kernel.figures {
            figures.set(Figure::SpillBytes, said.map(Said::spill_bytes));
        }
    }
    Ok(kernels)
}

fn allocated(
    reader: &Reader,
    file: &str,
    text: &str,
    facts: &ModuleFacts,
) -> anyhow::Result<Vec<Kernel>> {
    let arch = arch(reader, facts)?;
    let named = |entry: &&EntryFacts| {
        let demangled = demangle(&entry.name);
        reader.args.wants_name(&entry.name, demangled.as_deref())
    };
    let wanted: Vec<&EntryFacts> = facts.entries.iter().filter(named).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let options = for_figures(&ModuleOptions {
        sm: reader.args.text_arch()?.map(|arch| arch.sm),
        block: reader.args.block(),
        entries: wanted.iter().map(|entry| entry.name.clone()).collect(),
        ..ModuleOptions::default()
    });
    let explain = |error: PtxError| files::explain(file, text, error);
    let result = allocate_module(text, &options, None).map_err(explain)?;
    let mut found = Vec::new();
    for entry in wanted {
        let of_entry = result.functions.iter().find(|f| f.name == entry.name);
        let figures = match of_entry.map(|function| &function.outcome) {
            Some(Outcome::Allocated(allocated)) => Ok(figures(reader, &arch, entry, allocated)),
            Some(outcome) => Err(reason(outcome)),
            None => Err("it was not allocated".to_owned()),
        };
        found.push(Kernel {
            name: demangle(&entry.name).unwrap_or_else(|| entry.name.clone()),
            symbol: entry.name.clone(),
            arch: arch.clone(),
            file: file.to_owned(),
            line: None,
            source: None,
            origin: Origin::Warpalloc,
            block: reader.args.block().or(entry.block_threads),
            figures,
            details: None,
        });
    }
    Ok(found)
}

fn reason(outcome: &Outcome) -> String {
    match outcome {
        Outcome::PassedThrough(passed) => passed.reason.clone(),
        Outcome::Kept(reason) | Outcome::Refused(reason) => reason.clone(),
        Outcome::Allocated(_) | Outcome::Skipped => "it was not asked for".to_owned(),
    }
}

fn figures(reader: &Reader, arch: &str, entry: &EntryFacts, allocated: &Allocated) -> Figures {
    let frame = allocated.frame;
    let block = reader.args.block().or(entry.block_threads);
    let shared = entry
        .shared_bytes
        .saturating_add(u64::from(frame.shared) * u64::from(block.unwrap_or(0)));
    let warps = || {
        let launch = Launch {
            registers_per_thread: allocated.registers.max(1),
            block_threads: block?,
            shared_bytes: u32::try_from(shared).ok()?,
        };
        let sm: Sm = arch.parse().ok()?;
        Some(occupancy(sm, &launch).ok()?.warps)
    };
    let mut figures = Figures::default();
    figures.set(Figure::Registers, Some(allocated.registers));
    figures.set(Figure::SpillBytes, Some(frame.local + frame.shared));
    let local = entry.local_bytes.saturating_add(frame.local.into());
    figures.set(Figure::FrameBytes, Some(local));
    figures.set(Figure::SharedBytes, Some(shared));
    figures.set(Figure::Warps, warps());
    figures
}
