//! What functions ask of a machine before they are allocated.

use crate::ast::Span;
use crate::diag::Lines;
use crate::job::Job;
use crate::lower::{self, LowerError, Lowered, PassedThrough};
use crate::module::{ModuleOptions, PtxError, functions_with_bodies};
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use warpalloc::analysis::{Liveness, Moment, Pressure, register_floor};
use warpalloc::target::Target;

/// One function in figures.
#[derive(Clone, Debug)]
pub struct FunctionMeasures {
    /// Its name.
    pub name: String,
    /// Whether the host can launch it.
    pub is_entry: bool,
    /// The line of its name.
    pub line: usize,
    /// What was measured, or why it was not.
    pub measures: Result<Measures, PassedThrough>,
}

/// The size of a function and the pressure in it.
#[derive(Clone, Debug)]
pub struct Measures {
    /// Instructions in the text.
    pub instructions: usize,
    /// Independent values that want a register.
    pub vregs: usize,
    /// The greatest pressure on each register file that is used.
    pub peaks: Vec<Peak>,
    /// General registers needed at least, with what calls overwrite and predicates beyond
    /// those the hardware has.
    pub floor: usize,
}

/// The greatest pressure on a register file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The name of the file.
    pub file: String,
    /// Registers in use at once.
    pub registers: usize,
    /// The line of an instruction around which they are.
    pub line: Option<usize>,
}

/// Measures every function of a module.
pub fn measure_module(
    source: &str,
    options: &ModuleOptions,
) -> Result<Vec<FunctionMeasures>, PtxError> {
    let module = crate::parse(source).map_err(Box::new)?;
    let originals = FxHashMap::default();
    let job = Job::new(&module, &[], &originals, options)?;
    let target = job.target()?;
    let functions: Vec<_> = functions_with_bodies(&module).collect();
    functions
        .par_iter()
        .filter(|(function, _)| job.is_wanted(function))
        .map(|(function, body)| {
            let measures = match lower::lower(source, &job.names, function, body, &target) {
                Ok(lowered) => Ok(measures(&lowered, &target, &job.lines)),
                Err(LowerError::Pass(passed)) => Err(passed),
                Err(LowerError::Error(error)) => return Err(PtxError::Source(error)),
            };
            Ok(FunctionMeasures {
                name: function.name.text.to_owned(),
                is_entry: function.is_entry,
                line: job.lines.line(function.name.span.start),
                measures,
            })
        })
        .collect()
}

fn measures(lowered: &Lowered, target: &Target, lines: &Lines) -> Measures {
    let function = &lowered.function;
    let liveness = Liveness::compute(function);
    let pressure = Pressure::compute(function, target, &liveness);
    let span_of = |moment| match moment {
        Moment::Entry(block) => function.block_insts(block).find_map(|i| lowered.span(i)),
        Moment::Before(inst) | Moment::After(inst) => lowered.span(inst),
    };
    let peaks = target.files().filter_map(|(file, info)| {
        let peak = pressure.peak(file);
        let line = |span: Span| lines.line(span.start);
        (peak.units > 0).then(|| Peak {
            file: info.name.clone(),
            registers: peak.units.div_ceil(info.units_per_reg),
            line: peak.at.and_then(span_of).map(line),
        })
    });
    Measures {
        instructions: function
            .insts()
            .filter(|&i| lowered.span(i).is_some())
            .count(),
        vregs: function.vreg_count(),
        peaks: peaks.collect(),
        floor: register_floor(function, target, &liveness),
    }
}
