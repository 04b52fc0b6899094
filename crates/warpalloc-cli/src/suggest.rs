//! Suggestions of `warpalloc explain` and `report`: each is tried on the kernel and told where it helped.

use anyhow::Context;
use serde_json::{Value, json};
use warpalloc::target::occupancy::{Launch, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc_choose::{Assembly, Ptxas};
use warpalloc_ptx::module::{Allocated, ModuleOptions, Outcome, allocate_module};
use warpalloc_ptx::{Decision, EntryFacts, LEAST_CAP, ModuleFacts, function_values};

use crate::files::Input;
use crate::kernels::{MOST_REGISTERS, alone, for_figures};
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

fn spills(allocated: &Allocated) -> bool {
    allocated.frame.local + allocated.frame.shared > 0
}

/// The command that allocates so.
fn command(options: &ModuleOptions) -> String {
    format!("`warpalloc alloc {}`", flags(options).join(" "))
}

/// The flags of `warpalloc alloc` that allocate so.
fn flags(options: &ModuleOptions) -> Vec<String> {
    let own = for_figures(options);
    let mut flags = vec![format!("--regalloc={}", own.options.strategy.name())];
    flags.extend(own.maxnreg.map(|cap| format!("--maxnreg={cap}")));
    flags.extend(options.promote_local.then(|| "--promote-local".to_owned()));
    flags
}

impl Suggestion {
    pub fn as_json(&self) -> Value {
        json!({
            "what": self.what,
            "registers": [self.registers.0, self.registers.1],
            "effect": self.effect,
            "flags": self.flags,
        })
    }
}

/// Suggestions for a terminal; nothing where there are none.
pub fn told(suggestions: &[Suggestion]) -> String {
    let lines = suggestions.iter().map(|suggestion| {
        let (was, is) = suggestion.registers;
        let Suggestion { what, effect, .. } = suggestion;
        format!("  {what}\n    registers {was} -> {is}, {effect}\n")
    });
    match suggestions.is_empty() {
        true => String::new(),
        false => {
            "what would help, each tried on this kernel:\n".to_owned() + &lines.collect::<String>()
        }
    }
}

/// A kernel and who is asked what it takes.
pub struct Trial<'t> {
    pub input: &'t Input,
    pub facts: &'t ModuleFacts,
    pub entry: &'t EntryFacts,
    pub ptxas: Option<&'t Ptxas>,
    pub ptxas_options: &'t [String],
    pub arch: String,
    pub block: Option<u32>,
    /// Without a cap.
    pub options: ModuleOptions,
}

impl Trial<'_> {
    /// What helped.
    pub fn suggestions(self) -> anyhow::Result<Vec<Suggestion>> {
        let input = &alone(self.input, self.facts, self.entry);
        let text = &input.text;
        // Blank kernels move the text.
        let from = text.find(self.entry.span.text(&self.input.text));
        let tried = Tried {
            head: from.and_then(|from| Some((from, from + text[from..].find('{')?))),
            trial: Trial { input, ..self },
            spills_at: 0,
        };
        tried.suggestions()
    }
}

/// What a text takes.
#[derive(Clone, Copy)]
struct Taken {
    registers: u32,
    /// Bytes of local memory.
    frame: u32,
}

/// A kernel without the others of its module.
struct Tried<'t> {
    trial: Trial<'t>,
    /// Where its text begins, and its body.
    head: Option<(usize, usize)>,
    /// The highest cap that was seen to take spill code: those below do too.
    spills_at: u32,
}

impl<'t> std::ops::Deref for Tried<'t> {
    type Target = Trial<'t>;

    fn deref(&self) -> &Trial<'t> {
        &self.trial
    }
}

impl Tried<'_> {
    fn suggestions(mut self) -> anyhow::Result<Vec<Suggestion>> {
        let before = match self.ptxas {
            Some(_) => self.assembled(&self.input.text)?,
            None => match self.allocated(&self.options)? {
                Some((allocated, _)) => {
                    if spills(&allocated) {
                        self.spills_at = MOST_REGISTERS;
                    }
                    Some(self.taken(&allocated))
                }
                None => None,
            },
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

    /// The kernel within a cap, and the text, where that takes no spill code.
    fn without_spills(&mut self, cap: u32) -> anyhow::Result<Option<(Allocated, String)>> {
        if cap <= self.spills_at {
            return Ok(None);
        }
        let found = self.allocated(&self.within(cap))?;
        let found = found.filter(|(allocated, _)| !spills(allocated));
        if found.is_none() {
            self.spills_at = cap;
        }
        Ok(found)
    }

    fn within(&self, cap: u32) -> ModuleOptions {
        ModuleOptions {
            maxnreg: Some(cap),
            ..self.options.clone()
        }
    }

    /// The text with something before the body of the kernel.
    fn with_directives(&self, directives: &str) -> Option<String> {
        let (_, body) = self.head?;
        let text = &self.input.text;
        Some(format!("{}{directives}{}", &text[..body], &text[body..]))
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
            what: format!("keep its local arrays in registers: {}", command(&options)),
            registers: (before.registers, after.registers),
            effect: format!("local memory {} -> {} bytes", before.frame, after.frame),
            flags: flags(&options),
        }))
    }

    /// Loops that ptxas does not unroll. What the compiler before it unrolled stays unrolled, and
    /// without a ptxas there is nobody who would.
    fn unrolling(&self, before: Taken) -> anyhow::Result<Option<Suggestion>> {
        let rolled = self.with_directives(".pragma \"nounroll\";\n");
        let Some(rolled) = rolled.filter(|_| self.ptxas.is_some()) else {
            return Ok(None);
        };
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
    fn recomputation(&mut self, before: Taken) -> anyhow::Result<Option<Suggestion>> {
        let cap = before.registers.saturating_sub(GRANULE);
        if cap < LEAST_CAP || self.entry.is_capped {
            return Ok(None);
        }
        let found = self.without_spills(cap)?;
        let Some((allocated, text)) = found.filter(|(a, _)| a.stats.rematerialised > 0) else {
            return Ok(None);
        };
        let options = self.within(cap);
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
    fn caps(&mut self, before: Taken) -> anyhow::Result<Vec<Suggestion>> {
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
            let bound = self.launch_bound(block, step.blocks, cap, before)?;
            let Some(capped) = (match bound {
                Some(bound) => Some(bound),
                None => self.cap(cap, before)?,
            }) else {
                break;
            };
            found.push(Suggestion {
                effect: format!(
                    "warps {most} -> {}, no spill code{}",
                    step.warps, capped.effect
                ),
                ..capped
            });
            at = cap;
        }
        Ok(found)
    }

    /// What ptxas does with launch bounds that are met within a cap, where the kernel has none yet.
    fn launch_bound(
        &self,
        block: u32,
        blocks: u32,
        cap: u32,
        before: Taken,
    ) -> anyhow::Result<Option<Suggestion>> {
        let Some((from, body)) = self.head.filter(|_| self.ptxas.is_some()) else {
            return Ok(None);
        };
        let declared = &self.input.text[from..body];
        let is_declared = |directive: &str| declared.contains(directive);
        let own = self.entry.block_threads;
        if is_declared(".minnctapersm")
            || is_declared(".maxnreg")
            || own.is_some_and(|t| t != block)
        {
            return Ok(None);
        }
        let most = match own {
            Some(_) => String::new(),
            None => format!(".maxntid {block}\n"),
        };
        let text = self.with_directives(&format!("{most}.minnctapersm {blocks}\n"));
        let after = match text {
            Some(text) => self.assembled(&text)?,
            None => None,
        };
        let after = after.filter(|a| a.frame <= before.frame && a.registers <= cap);
        Ok(after.map(|after| Suggestion {
            what: format!("cap it at {cap}: `__launch_bounds__({block}, {blocks})`"),
            registers: (before.registers, after.registers),
            effect: String::new(),
            flags: Vec::new(),
        }))
    }

    /// What the allocator does within a cap, and ptxas with that.
    fn cap(&mut self, cap: u32, before: Taken) -> anyhow::Result<Option<Suggestion>> {
        let Some((allocated, text)) = self.without_spills(cap)? else {
            return Ok(None);
        };
        let after = match self.ptxas {
            Some(_) => self.assembled(&text)?,
            None => Some(self.taken(&allocated)),
        };
        let after = after.filter(|a| a.frame <= before.frame && a.registers <= cap);
        let options = self.within(cap);
        Ok(after.map(|after| Suggestion {
            what: format!("cap it at {cap}: {}", command(&options)),
            registers: (before.registers, after.registers),
            effect: match allocated.stats.rematerialised {
                0 => String::new(),
                count => format!(", {} computed again", counted(count as usize, "value")),
            },
            flags: flags(&options),
        }))
    }
}
