//! How many registers a function may use.
//!
//! Four sides have a say: the caller with a cap, the entry with `.maxnreg`, the launch bounds of
//! the entry, and a wanted occupancy. The smallest wins, and each time the caller gets less than
//! asked for a warning says so. The occupancy is read off the staircase of the multiprocessor for
//! the block size that the entry declares and its static shared memory: dynamic shared memory is
//! known at launch only, and a block smaller than declared leaves more room, not less.
//!
//! ptxas lets `.maxnreg` override the bound that `.maxntid` alone implies, and the kernel then
//! cannot be launched, so a cap above that bound is never written. Caps below what ptxas can
//! honour (see [`crate::least`]) are refused by the caller of this module.
//!
//! A kernel with `setmaxnreg` shares out the registers of its launch while it runs: some warps
//! give up what others ask for. With fewer at launch these might wait for ever, so that a
//! cap is never written into it.

use crate::ast;
use warpalloc::target::occupancy::{budget_for_occupancy, cliffs, percent_of};
use warpalloc::target::sm::Sm;

/// Registers that one thread can name.
pub(crate) const MOST_REGISTERS: u32 = 255;

/// The registers a function may use, and how that came about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// 32-bit registers.
    pub registers: u32,
    /// The cap to write into the entry, without which a later compiler would not know of it.
    /// Where there is none, the caller asked for no limit.
    pub cap: Option<u32>,
    /// Why the caller does not get what was asked for.
    pub warnings: Vec<String>,
}

/// Who limits the registers of the functions of a module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The machine.
    pub sm: Sm,
    /// The most registers, as the caller says.
    pub maxnreg: Option<u32>,
    /// The wanted occupancy in percent.
    pub occupancy_target: Option<u32>,
}

/// What occupancy depends on besides registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Threads of the block, where they are bounded.
    pub threads: Option<u32>,
    /// Static shared memory.
    pub shared_bytes: u64,
    /// Whether `setmaxnreg` moves registers between its warps.
    pub shares_registers: bool,
}

impl Limits {
    /// The registers that `function` may use when launched in such blocks.
    pub fn budget(&self, function: &ast::Function, block: Block) -> Budget {
        if block.shares_registers {
            return Budget {
                registers: MOST_REGISTERS,
                cap: None,
                warnings: self.left_aside().into_iter().collect(),
            };
        }
        let mut budget = self.without_target(function, block);
        let Some(percent) = self.occupancy_target else {
            return budget;
        };
        let (wanted, shortfall) = self.for_occupancy(function, block, percent);
        budget.warnings.extend(shortfall);
        if let Some(wanted) = wanted {
            budget.registers = budget.registers.min(wanted);
            budget.cap = Some(budget.registers);
        }
        budget
    }

    /// Why a kernel that shares out its registers itself is left as it is.
    fn left_aside(&self) -> Option<String> {
        let wish = match (self.maxnreg, self.occupancy_target) {
            (Some(cap), _) => format!("the cap of {cap} registers"),
            (None, Some(percent)) => format!("the occupancy target of {percent} %"),
            (None, None) => return None,
        };
        Some(format!(
            "{wish} is left aside: `setmaxnreg` shares out the registers of the launch"
        ))
    }

    /// The budget of the cap, the directives and the launch bounds.
    fn without_target(&self, function: &ast::Function, block: Block) -> Budget {
        let own = directive(function, "maxnreg");
        let blocks = directive(function, "minnctapersm");
        // ptxas ignores `.minnctapersm` where so many blocks never fit.
        let resident = blocks.and_then(|blocks| self.launch_bound(block.threads, blocks));
        let blocks = blocks.filter(|_| resident.is_some());
        let launch = resident.or_else(|| self.launch_bound(block.threads, 1));
        let Some(asked) = self.maxnreg else {
            // Without `.minnctapersm`, ptxas follows `.maxnreg` whatever the block.
            let bounds = match (own, blocks) {
                (Some(own), None) => [Some(own), None],
                _ => [own, launch],
            };
            let registers = bounds.into_iter().flatten().min();
            return Budget {
                registers: registers.unwrap_or(MOST_REGISTERS).clamp(1, MOST_REGISTERS),
                cap: None,
                warnings: Vec::new(),
            };
        };
        let mut registers = asked;
        let mut warnings = Vec::new();
        let mut lower = |bound: Option<u32>, why: String| {
            if let Some(bound) = bound.filter(|&bound| bound < registers) {
                registers = bound;
                warnings.push(format!(
                    "the cap of {asked} registers is lowered to {bound}: {why}"
                ));
            }
        };
        lower(
            own,
            "the entry says `.maxnreg`, which is never raised".to_owned(),
        );
        let threads = block.threads.unwrap_or(0);
        let why = match blocks {
            Some(blocks) => format!("{blocks} blocks of {threads} threads are to be resident"),
            None => format!("no block of {threads} threads could be launched with more"),
        };
        lower(launch, why);
        let registers = registers.clamp(1, MOST_REGISTERS);
        Budget {
            registers,
            cap: Some(registers),
            warnings,
        }
    }

    /// The most registers with which so many blocks of so many threads fit a multiprocessor.
    fn launch_bound(&self, threads: Option<u32>, blocks: u32) -> Option<u32> {
        let steps = cliffs(self.sm, threads?, 0).ok()?;
        let fitting = steps.iter().filter(|step| step.blocks >= blocks);
        fitting.map(|step| step.last_registers).max()
    }

    /// The most registers for an occupancy of `percent`, or for the nearest below it that can
    /// be had, and what keeps it from being reached.
    fn for_occupancy(
        &self,
        function: &ast::Function,
        block: Block,
        percent: u32,
    ) -> (Option<u32>, Option<String>) {
        let without = |why: &str| {
            let text = format!("the occupancy target of {percent} % is left aside: {why}");
            (None, Some(text))
        };
        if !function.is_entry {
            return without("the block size of a function that is called is unknown");
        }
        let Some(threads) = block.threads else {
            return without(
                "the block size is unknown: declare `.maxntid` or `.reqntid`, or pass --block",
            );
        };
        let shared = u32::try_from(block.shared_bytes).unwrap_or(u32::MAX);
        let registers = match budget_for_occupancy(self.sm, threads, shared, percent) {
            Ok(registers) => registers,
            Err(error) => return without(&error.to_string()),
        };
        if registers.is_some() {
            return (registers, None);
        }
        // The fewer registers, the more blocks: the first step is the highest.
        let steps = cliffs(self.sm, threads, shared).unwrap_or_default();
        match steps.first() {
            Some(best) if best.warps > 0 => {
                let most = percent_of(best.warps, self.sm.limits().warps_per_sm);
                let text = format!(
                    "the occupancy target of {percent} % is out of reach: blocks of {threads} \
                     threads with {shared} bytes of shared memory reach {most:.1} % at most"
                );
                (Some(best.last_registers), Some(text))
            }
            _ => without("not one block fits a multiprocessor"),
        }
    }
}

/// The first number of a directive of `function`.
fn directive(function: &ast::Function, keyword: &str) -> Option<u32> {
    let found = function.directives.iter().find(|d| d.keyword == keyword);
    found.and_then(|d| d.values.first().copied())
}

#[cfg(test)]
mod tests {
    use crate::module::{ModuleOptions, ModuleResult, Outcome, allocate_module};

    fn allocate(head: &str, body: &str, options: &ModuleOptions) -> ModuleResult {
        let source =
            format!(".version 9.0\n.target sm_90\n.address_size 64\n{head} {{\n{body}\tret;\n}}\n");
        allocate_module(&source, options, None).unwrap()
    }

    fn target(percent: u32) -> ModuleOptions {
        ModuleOptions {
            occupancy_target: Some(percent),
            ..ModuleOptions::default()
        }
    }

    fn budget(result: &ModuleResult) -> u32 {
        match &result.functions[0].outcome {
            Outcome::Allocated(allocated) => allocated.budget,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_occupancy_target_is_turned_into_the_budget() {
        for (percent, registers) in [(50, 64), (75, 40), (100, 32)] {
            for bound in [".maxntid 256", ".reqntid 16, 16"] {
                let result = allocate(&format!(".entry k() {bound}"), "", &target(percent));
                assert_eq!(budget(&result), registers, "{percent} % of {bound}");
                assert!(result.functions[0].warnings.is_empty());
                assert!(result.text.contains(&format!(".maxnreg {registers}\n")));
            }
        }
    }

    #[test]
    fn a_target_never_raises_the_budget() {
        let entry = ".entry k() .maxntid 256 .maxnreg 36";
        assert_eq!(budget(&allocate(entry, "", &target(50))), 36);
        let capped = ModuleOptions {
            maxnreg: Some(24),
            ..target(50)
        };
        let result = allocate(entry, "", &capped);
        assert_eq!(budget(&result), 24);
        assert!(result.text.contains(".maxnreg 24") && !result.text.contains(".maxnreg 36"));
    }

    fn capped(cap: u32) -> ModuleOptions {
        ModuleOptions {
            maxnreg: Some(cap),
            ..ModuleOptions::default()
        }
    }

    /// 96 registers of 1,024 threads do not fit a register file of 65,536, and ptxas would take
    /// them all the same.
    #[test]
    fn no_cap_is_written_that_the_block_cannot_be_launched_with() {
        let result = allocate(".entry k() .maxntid 1024", "", &capped(96));
        assert_eq!(budget(&result), 64);
        assert!(result.text.contains(".maxnreg 64\n"), "{}", result.text);
        let said = result.functions[0].warnings.join("\n");
        assert!(said.contains("96 registers is lowered to 64"), "{said}");
        let fits = allocate(".entry k() .maxntid 512", "", &capped(96));
        assert!(fits.text.contains(".maxnreg 96\n") && fits.functions[0].warnings.is_empty());
    }

    /// ptxas follows the smaller of the two bounds, so a larger budget ends in spills of its own.
    #[test]
    fn the_smaller_of_cap_and_launch_bounds_is_the_budget() {
        let entry = ".entry k() .maxntid 256 .minnctapersm 4";
        let result = allocate(entry, "", &capped(96));
        assert_eq!(budget(&result), 64);
        let said = result.functions[0].warnings.join("\n");
        assert!(said.contains("4 blocks of 256 threads"), "{said}");
        let free = ModuleOptions::default();
        assert_eq!(budget(&allocate(entry, "", &free)), 64);
        let both = ".entry k() .maxntid 256 .minnctapersm 4 .maxnreg 96";
        assert_eq!(budget(&allocate(both, "", &free)), 64);
        let ignored = ".entry k() .maxntid 256 .minnctapersm 12";
        assert_eq!(budget(&allocate(ignored, "", &capped(96))), 96);
    }

    #[test]
    fn a_cap_of_the_source_is_never_raised() {
        let result = allocate(".entry k() .maxnreg 40", "", &capped(64));
        assert_eq!(budget(&result), 40);
        assert!(result.text.contains(".maxnreg 40") && !result.text.contains(".maxnreg 64"));
        let said = result.functions[0].warnings.join("\n");
        assert!(said.contains("64 registers is lowered to 40"), "{said}");
        let result = allocate(".entry k() .maxnreg 40", "", &capped(32));
        assert!(result.text.contains(".maxnreg 32") && result.functions[0].warnings.is_empty());
    }

    #[test]
    fn a_block_size_may_come_from_the_caller() {
        let options = ModuleOptions {
            block: Some(1024),
            ..capped(96)
        };
        assert_eq!(budget(&allocate(".entry k()", "", &options)), 64);
        let declared = allocate(".entry k() .maxntid 256", "", &options);
        assert_eq!(
            budget(&declared),
            96,
            "what the entry says is nearer the truth"
        );
    }

    #[test]
    fn without_a_block_size_a_target_is_left_aside_aloud() {
        for (head, why) in [
            (".entry k()", "`.maxntid` or `.reqntid`"),
            (".func k()", "function that is called"),
        ] {
            let result = allocate(head, "", &target(75));
            assert_eq!(budget(&result), 255, "{head}");
            let said = result.functions[0].warnings.join("\n");
            assert!(said.contains("75 %") && said.contains(why), "{said}");
            assert!(!result.text.contains(".maxnreg"));
        }
    }

    /// Two blocks of 100,000 bytes fit, which is 16 of 64 warps.
    #[test]
    fn where_shared_memory_runs_out_first_registers_are_not_wasted() {
        let body = "\t.shared .b8 s[100000];\n";
        let result = allocate(".entry k() .maxntid 256", body, &target(75));
        assert_eq!(budget(&result), 128);
        let said = result.functions[0].warnings.join("\n");
        assert!(said.contains("reach 25.0 % at most"), "{said}");
        let result = allocate(".entry k() .maxntid 256", body, &target(25));
        assert_eq!(budget(&result), 128);
        assert!(result.functions[0].warnings.is_empty());
    }

    /// With fewer registers at launch than it was written for, warps that ask for more would
    /// wait for ever.
    #[test]
    fn no_cap_is_written_into_a_kernel_that_shares_out_its_registers() {
        let options = ModuleOptions {
            maxnreg: Some(64),
            ..ModuleOptions::default()
        };
        let body = "\t{ setmaxnreg.inc.sync.aligned.u32 232; }\n";
        let result = allocate(".entry k()\n.maxntid 384", body, &options);
        let [report] = &result.functions[..] else {
            panic!("one function")
        };
        assert!(matches!(report.outcome, Outcome::Allocated(_)));
        assert!(!result.text.contains(".maxnreg"), "{}", result.text);
        let said = report.warnings.join("\n");
        assert!(said.contains("cap of 64"), "{said}");
        let result = allocate(".entry k()\n.maxntid 384", body, &ModuleOptions::default());
        assert!(result.functions[0].warnings.is_empty());
    }

    #[test]
    fn no_cap_is_written_into_a_kernel_whose_callee_shares_out_its_registers() {
        let options = ModuleOptions {
            maxnreg: Some(64),
            ..ModuleOptions::default()
        };
        let callee = ".func give() { setmaxnreg.dec.sync.aligned.u32 40; ret; }\n";
        let calls = format!("{callee}.entry k()\n.maxntid 384");
        let result = allocate(&calls, "\tcall.uni give, ();\n", &options);
        assert!(!result.text.contains(".maxnreg"), "{}", result.text);
        let result = allocate(&calls, "", &options);
        assert!(result.text.contains(".maxnreg 64"), "{}", result.text);
    }
}
