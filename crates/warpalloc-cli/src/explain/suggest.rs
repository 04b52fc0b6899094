//! Suggestions of `warpalloc explain`: each is tried on the kernel and told where it helped.

use anyhow::Context;
use warpalloc::target::occupancy::{Launch, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc_choose::{Assembly, Ptxas};
use warpalloc_ptx::module::{Allocated, ModuleOptions, Outcome, allocate_module};
use warpalloc_ptx::{Decision, EntryFacts, LEAST_CAP, function_values};

use crate::files::Input;
use crate::kernels::for_figures;
use crate::output::counted;

/// Registers are given to warps in groups of so many per thread.
const GRANULE: u32 = 8;

/// Names of values that a suggestion lists.
const MOST_NAMES: usize = 6;

/// Something that was tried on the kernel, and what came of it.
pub struct Suggestion {
    pub what: String,
    /// Registers before and after.
    pub registers: (u32, u32),
    /// What else it changes.
    pub effect: String,
    /// The flags of `warpalloc alloc` that do it; none where the source is to be changed.
    pub flags: Vec<String>,
}

/// The flags of `warpalloc alloc` that allocate so.
fn flags(options: &ModuleOptions) -> Vec<String> {
    let own = for_figures(options);
    let mut flags = vec![format!("--regalloc={}", own.options.strategy.name())];
    flags.extend(own.maxnreg.map(|cap| format!("--maxnreg={cap}")));
    flags.extend(options.promote_local.then(|| "--promote-local".to_owned()));
    flags
}

/// A kernel and who is asked what it takes.
pub struct Trial<'t> {
    pub input: &'t Input,
    pub entry: &'t EntryFacts,
    pub ptxas: Option<&'t Ptxas>,
    pub ptxas_options: &'t [String],
    pub arch: String,
    pub block: Option<u32>,
    /// Without a cap.
    pub options: ModuleOptions,
}

/// What a text takes.
#[derive(Clone, Copy)]
struct Taken {
    registers: u32,
    /// Bytes of local memory.
    frame: u32,
}

impl Trial<'_> {
    /// What helped.
    pub fn suggestions(&self) -> anyhow::Result<Vec<Suggestion>> {
        let before = match self.ptxas {
            Some(_) => self.assembled(&self.input.text)?,
            None => self.allocated(&self.options)?.map(|(a, _)| self.taken(&a)),
        };
        let Some(before) = before else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        found.extend(self.promotion(before)?);
        found.extend(self.unrolling(before)?);
        found.extend(self.recomputation(before)?);
        found.extend(self.caps(before)?);
        Ok(found)
    }

    /// What ptxas makes of a text; nothing without one.
    fn assembled(&self, text: &str) -> anyhow::Result<Option<Taken>> {
        let Some(ptxas) = self.ptxas else {
            return Ok(None);
        };
        let assembly = Assembly {
            text,
            arch: &self.arch,
            entry: None,
            contraction: self.options.contraction,
        };
        let made = ptxas.assemble_with(assembly, self.ptxas_options);
        let made = made.with_context(|| self.input.name.clone())?;
        let cubin = warpalloc_sass::object::Cubin::read(&made.cubin)?;
        let function = cubin.functions.iter().find(|f| f.name == self.entry.name);
        Ok(function.and_then(|function| {
            Some(Taken {
                registers: function.registers?,
                frame: function.stack_bytes?,
            })
        }))
    }

    fn taken(&self, allocated: &Allocated) -> Taken {
        let local = u32::try_from(self.entry.local_bytes).unwrap_or(u32::MAX);
        Taken {
            registers: allocated.registers,
            frame: local.saturating_add(allocated.frame.local),
        }
    }

    /// The kernel allocated so, and the text; `None` where it is not.
    fn allocated(&self, options: &ModuleOptions) -> anyhow::Result<Option<(Allocated, String)>> {
        let result = allocate_module(&self.input.text, &for_figures(options), None);
        let result = result.map_err(|error| self.input.explain(error))?;
        let own = result
            .functions
            .into_iter()
            .find(|f| f.name == self.entry.name);
        Ok(match own.map(|function| function.outcome) {
            Some(Outcome::Allocated(allocated)) => Some((*allocated, result.text)),
            _ => None,
        })
    }

    /// Local variables in registers.
    fn promotion(&self, before: Taken) -> anyhow::Result<Option<Suggestion>> {
        if self.entry.local_bytes == 0 {
            return Ok(None);
        }
        let options = ModuleOptions {
            promote_local: true,
            ..self.options.clone()
        };
        let result = allocate_module(&self.input.text, &for_figures(&options), None);
        let result = result.map_err(|error| self.input.explain(error))?;
        let promoted = result.promoted.as_ref();
        let bytes = promoted.map_or(0, |p| p.variables.iter().map(|v| v.bytes).sum());
        let own = result.functions.iter().find(|f| f.name == self.entry.name);
        let Some(Outcome::Allocated(allocated)) = own.map(|function| &function.outcome) else {
            return Ok(None);
        };
        let after = match self.ptxas {
            Some(_) => self.assembled(&result.text)?,
            None => Some(Taken {
                frame: self.taken(allocated).frame.saturating_sub(bytes as u32),
                ..self.taken(allocated)
            }),
        };
        let after = after.filter(|after| after.frame < before.frame);
        Ok(after.map(|after| Suggestion {
            what: "keep its local arrays in registers: `warpalloc alloc --promote-local`"
                .to_owned(),
            registers: (before.registers, after.registers),
            effect: format!("local memory {} -> {} bytes", before.frame, after.frame),
            flags: flags(&options),
        }))
    }

    /// Loops that ptxas does not unroll. What the compiler before it unrolled stays unrolled, and
    /// without a ptxas there is nobody who would.
    fn unrolling(&self, before: Taken) -> anyhow::Result<Option<Suggestion>> {
        let text = &self.input.text;
        let own = self.entry.span.text(text);
        let Some(open) = own.find('{').filter(|_| self.ptxas.is_some()) else {
            return Ok(None);
        };
        let at = self.entry.span.start as usize + open;
        let rolled = format!("{}.pragma \"nounroll\";\n{}", &text[..at], &text[at..]);
        let after = self.assembled(&rolled)?;
        let after = after.filter(|a| a.registers < before.registers && a.frame <= before.frame);
        Ok(after.map(|after| Suggestion {
            what: "unroll its loops less: `#pragma unroll 1` keeps ptxas from it".to_owned(),
            registers: (before.registers, after.registers),
            effect: "loops run as the text has them".to_owned(),
            flags: Vec::new(),
        }))
    }

    /// Values that are computed again where they are read, so that a group of registers less does
    /// without spill code. The cap is not part of what ptxas is given: it may not lean on it.
    fn recomputation(&self, before: Taken) -> anyhow::Result<Option<Suggestion>> {
        let cap = before.registers.saturating_sub(GRANULE);
        if cap < LEAST_CAP || self.entry.is_capped {
            return Ok(None);
        }
        let options = ModuleOptions {
            maxnreg: Some(cap),
            ..self.options.clone()
        };
        let Some((allocated, text)) = self.allocated(&options)? else {
            return Ok(None);
        };
        if allocated.frame.local + allocated.frame.shared > 0 || allocated.stats.rematerialised == 0
        {
            return Ok(None);
        }
        let text = text.replacen(&format!(".maxnreg {cap}\n"), "", 1);
        let after = match self.ptxas {
            Some(_) => self.assembled(&text)?,
            None => Some(self.taken(&allocated)),
        };
        let Some(after) =
            after.filter(|a| a.registers < before.registers && a.frame <= before.frame)
        else {
            return Ok(None);
        };
        let values = function_values(&self.input.text, &self.entry.name, &for_figures(&options));
        let values = values.map_err(|error| self.input.explain(error))?;
        let is_again = |decision: &Decision| matches!(decision, Decision::Recomputed(_));
        let mut names: Vec<String> = match &values {
            Ok(values) => {
                let all = values.values.iter();
                let again = all.filter(|v| v.decision.as_ref().is_some_and(is_again));
                again.map(|value| value.name.clone()).collect()
            }
            Err(_) => Vec::new(),
        };
        if names.is_empty() {
            return Ok(None);
        }
        let more = names.len().saturating_sub(MOST_NAMES);
        names.truncate(MOST_NAMES);
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Ok(Some(Suggestion {
            what: format!(
                "compute {}{more} again where they are read, instead of keeping them",
                names.join(", ")
            ),
            registers: (before.registers, after.registers),
            effect: "no spill code".to_owned(),
            flags: flags(&options),
        }))
    }

    /// The next steps of occupancy that are reached without spill code.
    fn caps(&self, before: Taken) -> anyhow::Result<Vec<Suggestion>> {
        let (Some(block), Ok(sm)) = (self.block, self.arch.parse::<Sm>()) else {
            return Ok(Vec::new());
        };
        let shared_bytes = u32::try_from(self.entry.shared_bytes).unwrap_or(u32::MAX);
        let resident = |registers_per_thread: u32| {
            let launch = Launch {
                registers_per_thread: registers_per_thread.max(1),
                block_threads: block,
                shared_bytes,
            };
            occupancy(sm, &launch).ok()
        };
        let mut found = Vec::new();
        let mut at = before.registers;
        let most = resident(before.registers).map_or(0, |o| o.warps);
        while let Some(step) = resident(at).and_then(|o| o.next_higher) {
            let cap = step.last_registers;
            if cap < LEAST_CAP {
                break;
            }
            let options = ModuleOptions {
                maxnreg: Some(cap),
                ..self.options.clone()
            };
            let Some((allocated, text)) = self.allocated(&options)? else {
                break;
            };
            if allocated.frame.local + allocated.frame.shared > 0 {
                break;
            }
            let after = match self.ptxas {
                Some(_) => self.assembled(&text)?,
                None => Some(self.taken(&allocated)),
            };
            let Some(after) = after.filter(|a| a.frame <= before.frame && a.registers <= cap)
            else {
                break;
            };
            let again = match allocated.stats.rematerialised {
                0 => String::new(),
                count => format!(", {} computed again", counted(count as usize, "value")),
            };
            found.push(Suggestion {
                what: format!(
                    "cap it at {cap}: `__launch_bounds__({block}, {})`, or `warpalloc alloc --maxnreg {cap}`",
                    step.blocks
                ),
                registers: (before.registers, after.registers),
                effect: format!("warps {most} -> {}, no spill code{again}", step.warps),
                flags: flags(&options),
            });
            at = cap;
        }
        Ok(found)
    }
}
