//! What a report tells of a kernel.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use warpalloc::Strategy;
use warpalloc::target::occupancy::{Cliff, Launch, Occupancy, cliffs, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc_choose::Ptxas;
use warpalloc_choose::judge::{Estimate, Setting, gathers};
use warpalloc_ptx::module::{Allocated, ModuleOptions, Treatment, allocate_module};
use warpalloc_ptx::{EntryFacts, ModuleFacts, entry_facts, function_values};
use warpalloc_sass::object::demangle;

use super::ReportArgs;
use super::listing::Listing;
use super::machine::{self, MachineCode, Wanted};
use super::source::{SourceFile, sources};
use super::trials::{Effort, Made, Trial, Trials, Tried, Tries};
use crate::assembled::Assembler;
use crate::assembler;
use crate::files::Input;
use crate::kernels::{alone, named_entry};
use crate::occupancy::caps_below;
use crate::stats_cubin::{CodeFile, Source};
use crate::suggest::{self, Suggestion};

/// The block that occupancy is told for where nobody says.
const USUAL_BLOCK: u32 = 256;

/// The most caps that are tried: small blocks have a step for every few registers.
const MOST_CAPS: usize = 8;

/// What suggestions count for by instruction: about as many allocations as are shown side by side.
const SUGGESTION_WEIGHT: usize = 15;

/// A kernel and what is known of it.
pub struct KernelReport {
    pub file: String,
    /// As the source has it.
    pub name: String,
    pub symbol: String,
    pub arch: String,
    pub launch: KernelLaunch,
    /// What it takes as it is.
    pub taken: Option<Taken>,
    /// What is resident of it, and the staircase.
    pub occupancy: Option<Occupancy>,
    pub staircase: Vec<Cliff>,
    /// Its PTX, where there is PTX.
    pub code: Option<Listing>,
    pub machine: Option<MachineCode>,
    pub sources: Vec<SourceFile>,
    /// As it is first, then within each cap, the highest first.
    pub caps: Vec<Within>,
    /// What would help, tried on the kernel.
    pub suggestions: Vec<Suggestion>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// How the kernel is launched.
pub struct KernelLaunch {
    pub block: u32,
    /// Whether nobody said how large blocks are.
    pub is_assumed: bool,
    pub shared_bytes: u32,
}

/// What a kernel takes as it is.
pub struct Taken {
    pub registers: u32,
    /// Bytes of local memory per thread.
    pub frame: u64,
    /// Who says so.
    pub by: String,
}

/// A kernel within a cap.
pub struct Within {
    /// `None` for the kernel as it is.
    pub cap: Option<u32>,
    pub warps: Option<u32>,
    pub allocators: Vec<Trial>,
}

impl KernelReport {
    /// Looks at what the command line names.
    pub fn gather(args: &ReportArgs) -> anyhow::Result<KernelReport> {
        match Source::open(&args.input)? {
            Source::Text(input) => Text::new(args, &input)?.report(),
            Source::Code(file) => of_code(args, &file),
        }
    }

    /// The code that pressure is shown along: the PTX, else the machine code.
    pub fn main_listing(&self) -> Option<&Listing> {
        let machine = self.machine.as_ref().map(|machine| &machine.listing);
        self.code.as_ref().or(machine)
    }
}

/// A kernel of which there is nothing but machine code.
fn of_code(args: &ReportArgs, file: &CodeFile) -> anyhow::Result<KernelReport> {
    if args.cubin.is_some() {
        return Err(crate::UsageError(
            "--cubin goes with PTX, and the input is machine code".to_owned(),
        )
        .into());
    }
    let arch = args.sm.map(|sm| sm.to_string());
    let wanted = Wanted {
        kernel: args.kernel.as_deref(),
        arch: arch.as_deref(),
    };
    let code = match file {
        CodeFile::OnDisk { .. } => machine::read(&args.input, &wanted)?,
        CodeFile::InMemory { name, bytes } => machine::from_bytes(name, bytes, &wanted)?,
    };
    let sm: Option<Sm> = code.arch.parse().ok();
    let launch = KernelLaunch::new(args, code.block_threads, code.shared_bytes);
    let taken = code.registers.map(|registers| Taken {
        registers,
        frame: code.frame_bytes,
        by: "the cubin".to_owned(),
    });
    let occupancy = taken
        .as_ref()
        .and_then(|t| launch.resident(sm?, t.registers));
    let mut notes: Vec<String> = launch.note().into_iter().collect();
    notes.extend(
        code.refused
            .iter()
            .map(|why| format!("its registers are not followed: {why}")),
    );
    notes.push("allocators are tried on PTX, and there is machine code only".to_owned());
    let warps = occupancy.as_ref().map(|o| o.warps);
    Ok(KernelReport {
        file: file.name().to_owned(),
        name: demangle(&code.symbol).unwrap_or_else(|| code.symbol.clone()),
        symbol: code.symbol.clone(),
        arch: code.arch.clone(),
        staircase: launch.staircase(sm),
        occupancy,
        caps: vec![Within {
            cap: None,
            warps,
            allocators: Vec::new(),
        }],
        launch,
        taken,
        code: None,
        sources: sources(std::iter::once(&code.listing), &folders(args)),
        machine: Some(code),
        suggestions: Vec::new(),
        notes,
    })
}

/// Where sources are looked for: in the folder that was named, in that of the kernel and in the one
/// around it.
fn folders(args: &ReportArgs) -> Vec<PathBuf> {
    if args.no_source {
        return Vec::new();
    }
    let own = args.input.parent().map(Path::to_owned).unwrap_or_default();
    let around = own.join("..");
    let named = args.source.iter().cloned();
    named.chain([own, around]).collect()
}

impl KernelLaunch {
    fn new(args: &ReportArgs, declared: Option<u32>, shared: u64) -> KernelLaunch {
        let known = args.block.or(declared);
        let shared = u32::try_from(shared).unwrap_or(u32::MAX);
        KernelLaunch {
            block: known.unwrap_or(USUAL_BLOCK),
            is_assumed: known.is_none(),
            shared_bytes: shared.saturating_add(args.smem),
        }
    }

    fn note(&self) -> Option<String> {
        self.is_assumed.then(|| {
            format!(
                "the kernel does not say how large its blocks are: warps are told for {} threads, and \
                 --block N says otherwise",
                self.block
            )
        })
    }

    fn resident(&self, sm: Sm, registers: u32) -> Option<Occupancy> {
        let launch = Launch {
            registers_per_thread: registers.max(1),
            block_threads: self.block,
            shared_bytes: self.shared_bytes,
        };
        occupancy(sm, &launch).ok()
    }

    /// The staircase; none for a machine that the table of limits leaves out.
    fn staircase(&self, sm: Option<Sm>) -> Vec<Cliff> {
        let steps = sm.and_then(|sm| cliffs(sm, self.block, self.shared_bytes).ok());
        steps.unwrap_or_default()
    }
}

/// A kernel in a PTX file.
struct Text<'t> {
    args: &'t ReportArgs,
    input: &'t Input,
    facts: ModuleFacts,
    entry: EntryFacts,
    arch: String,
    launch: KernelLaunch,
}

impl<'t> Text<'t> {
    fn new(args: &'t ReportArgs, input: &'t Input) -> anyhow::Result<Text<'t>> {
        let facts = entry_facts(&input.text).map_err(|error| input.explain(error))?;
        let entry = named_entry(&facts, &input.name, args.kernel.as_deref())?.clone();
        let declared = facts.arch.clone().unwrap_or_else(|| "sm_75".to_owned());
        Ok(Text {
            args,
            input,
            launch: KernelLaunch::new(args, entry.block_threads, entry.shared_bytes),
            arch: args.sm.map_or(declared, |sm| sm.to_string()),
            facts,
            entry,
        })
    }

    fn options(&self) -> ModuleOptions {
        ModuleOptions {
            sm: self.args.sm.map(|sm| sm.number()),
            block: self.args.block,
            entries: vec![self.entry.name.clone()],
            ..ModuleOptions::default()
        }
    }

    fn report(self) -> anyhow::Result<KernelReport> {
        let explain = |error| self.input.explain(error);
        let options = self.options();
        let values = function_values(&self.input.text, &self.entry.name, &options);
        let values = values.map_err(explain)?;
        let mut notes: Vec<String> = self.launch.note().into_iter().collect();
        if let Err(passed) = &values {
            notes.push(format!("it is not understood: {}", passed.reason));
        }
        let span = self.entry.span;
        let before = &self.input.text[..span.start as usize];
        let code = Listing::of_text(
            span.text(&self.input.text),
            before.matches('\n').count() + 1,
            values.as_ref().ok(),
        );

        let ptxas = self.args.ptxas.ptxas()?;
        let assembler = ptxas.as_ref().map(|ptxas| Assembler {
            file: &self.input.name,
            entry: &self.entry.name,
            ptxas,
            options: self.args.ptxas.options(),
            arch: &self.arch,
            contraction: self.options().contraction,
            setting: Setting {
                block_threads: Some(self.launch.block),
                blocks: None,
                dynamic_shared: self.args.smem,
                gathers: gathers(&self.input.text, &self.entry.name),
            },
        });
        let release = ptxas.as_ref().and_then(assembler::release);
        let (machine, as_it_is) = self.machine_code(assembler.as_ref(), &mut notes)?;

        let alone = alone(self.input, &self.facts, &self.entry);
        let tried = Tried {
            input: &alone,
            entry: &self.entry.name,
            instructions: code.rows.len(),
            peak: code.most().unwrap_or(0),
            options,
        };
        let mut effort = match self.args.all {
            true => Effort::all(),
            false => Effort::brief(),
        };
        let mut tries = match values.is_ok() {
            true => tried.as_it_is(&mut effort)?,
            // Code that is not understood is tried by ptxas alone.
            false => Tries::default(),
        };
        let taken = match (&self.args.cubin, &machine) {
            (Some(path), Some(code)) => code.registers.map(|registers| Taken {
                registers,
                frame: code.frame_bytes,
                by: path.display().to_string(),
            }),
            (None, Some(code)) => code.registers.map(|registers| Taken {
                registers,
                frame: code.frame_bytes,
                by: format!("ptxas {}", release.unwrap_or_default()),
            }),
            _ => self.as_allocated(&tried, &tries, &mut notes)?,
        };

        let sm: Option<Sm> = self.arch.parse().ok();
        let staircase = self.launch.staircase(sm);
        let registers = taken.as_ref().map(|taken| taken.registers);
        let mut caps = registers.map_or_else(Vec::new, |most| caps_below(&staircase, most));
        if caps.len() > MOST_CAPS && !self.args.all {
            notes.push(format!(
                "of {} steps of occupancy the {MOST_CAPS} with the most registers are tried, and --all \
                 tries the rest",
                caps.len()
            ));
            caps.truncate(MOST_CAPS);
        }
        caps.extend(self.args.maxnreg);
        caps.sort_unstable_by(|a, b| b.cmp(a));
        caps.dedup();
        let caps: Vec<Option<u32>> = [None]
            .into_iter()
            .chain(caps.into_iter().map(Some))
            .collect();
        let (mut trials, suggestions): (Vec<Trials>, _) = match values.is_ok() {
            true => {
                let (within, suggestions) = rayon::join(
                    || tried.within(&caps, &mut effort, &mut tries),
                    || self.suggestions(ptxas.as_ref(), code.rows.len(), &mut notes),
                );
                within?;
                (tries.rows(&caps), suggestions?)
            }
            false => {
                let none = |cap: &Option<u32>| (*cap, Vec::new());
                (caps.iter().map(none).collect(), Vec::new())
            }
        };
        if let Some(assembler) = &assembler {
            let base = as_it_is.as_ref();
            let made: Vec<Trial> = trials
                .par_iter()
                .map(|(cap, _)| assembled(assembler, &tried, *cap, base))
                .collect();
            for ((_, trials), made) in trials.iter_mut().zip(made) {
                trials.push(made);
            }
        }
        let occupancy = taken
            .as_ref()
            .and_then(|t| self.launch.resident(sm?, t.registers));
        let warps = |cap: Option<u32>| match cap {
            None => Some(occupancy.as_ref()?.warps),
            Some(cap) => Some(self.launch.resident(sm?, cap)?.warps),
        };
        let caps = trials.into_iter().map(|(cap, allocators)| Within {
            cap,
            warps: warps(cap),
            allocators,
        });
        let caps = caps.collect();
        let machine_listing = machine.as_ref().map(|machine| &machine.listing);
        let listings = std::iter::once(&code).chain(machine_listing);
        let sources = sources(listings, &folders(self.args));
        Ok(KernelReport {
            file: self.input.name.clone(),
            name: demangle(&self.entry.name).unwrap_or_else(|| self.entry.name.clone()),
            symbol: self.entry.name.clone(),
            arch: self.arch.clone(),
            taken,
            occupancy,
            staircase,
            sources,
            code: Some(code),
            machine,
            caps,
            suggestions,
            notes,
            launch: self.launch,
        })
    }

    /// What would help, unless trying takes too long.
    fn suggestions(
        &self,
        ptxas: Option<&Ptxas>,
        instructions: usize,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<Vec<Suggestion>> {
        if !self.args.all && !Effort::brief().takes(SUGGESTION_WEIGHT * instructions) {
            let why = "what would help is not tried, because the kernel is large: --all tries it";
            notes.push(why.to_owned());
            return Ok(Vec::new());
        }
        let trial = suggest::Trial {
            input: self.input,
            facts: &self.facts,
            entry: &self.entry,
            ptxas,
            ptxas_options: self.args.ptxas.options(),
            arch: self.arch.clone(),
            block: Some(self.launch.block),
            options: self.options(),
        };
        trial.suggestions()
    }

    /// The machine code that was given, or that ptxas makes of the kernel, and what it is expected to
    /// cost.
    fn machine_code(
        &self,
        assembler: Option<&Assembler>,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<(Option<MachineCode>, Option<Estimate>)> {
        let wanted = Wanted {
            kernel: Some(&self.entry.name),
            arch: None,
        };
        let given = match &self.args.cubin {
            Some(path) => Some(machine::read(path, &wanted)?),
            None => None,
        };
        let Some(assembler) = assembler else {
            return Ok((given, None));
        };
        // Line information changes no instruction, and says which line of the PTX one comes from.
        let options = [assembler.options, &["-lineinfo".to_owned()]].concat();
        let assembler = Assembler {
            options: &options,
            ..*assembler
        };
        let judged = match assembler.judged(&self.input.text) {
            Ok(judged) => judged,
            Err(error) => {
                notes.push(format!("{error:#}"));
                return Ok((given, None));
            }
        };
        let machine = match given {
            Some(given) => given,
            None => machine::from_bytes(&self.input.name, &judged.cubin, &wanted)?,
        };
        notes.extend(
            machine
                .refused
                .iter()
                .map(|why| format!("the registers of its machine code are not followed: {why}")),
        );
        Ok((Some(machine), judged.estimate))
    }

    /// The fewest registers that an allocator needs; of a kernel that does not fit, what one makes of all
    /// registers.
    fn as_allocated(
        &self,
        tried: &Tried,
        tries: &Tries,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<Option<Taken>> {
        let taken = |name: &str, allocated: &Allocated| Taken {
            registers: allocated.registers,
            frame: self.entry.local_bytes + u64::from(allocated.frame.local),
            by: format!("warpalloc's {name}, without a ptxas"),
        };
        let made = tries.all().filter_map(|trial| match &trial.made {
            Ok(Made::Allocated(allocated)) => Some(taken(trial.name, allocated)),
            _ => None,
        });
        if let Some(fewest) = made.min_by_key(|taken| taken.registers) {
            return Ok(Some(fewest));
        }
        if tries.all().next().is_none() {
            return Ok(None);
        }
        let all = tried.one(Some(255), Strategy::Scan)?;
        Ok(match &all.made {
            Ok(Made::Allocated(allocated)) => Some(taken(all.name, allocated)),
            Ok(_) => None,
            Err(why) => {
                notes.push(format!("what it takes is not known: {why}"));
                None
            }
        })
    }
}

/// What ptxas makes of the kernel with nothing but the cap.
fn assembled(
    assembler: &Assembler,
    tried: &Tried,
    cap: Option<u32>,
    base: Option<&Estimate>,
) -> Trial {
    let judged = || {
        let options = ModuleOptions {
            treatment: Treatment::Leave,
            ..tried.options(cap, Strategy::default())
        };
        let left = allocate_module(&tried.input.text, &options, None)?;
        assembler.judged(&left.text)
    };
    let made = judged().map(|judged| Made::Assembled {
        registers: judged.registers,
        frame: judged.frame,
        local: judged.local,
        cycles: base
            .zip(judged.estimate.as_ref())
            .map(|(base, own)| own.over(base)),
    });
    Trial {
        name: assembler::PTXAS,
        made: made.map_err(|error| format!("{error:#}")),
    }
}
