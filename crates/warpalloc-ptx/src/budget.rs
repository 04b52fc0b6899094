//! How many registers a function may use.
//!
//! Three sides have a say: the caller with a cap, the entry with its directives, and a wanted
//! occupancy. The cap takes the place of what the entry says; the occupancy only ever lowers
//! the result. It is read off the staircase of the multiprocessor for the block size that the
//! entry declares and its static shared memory: dynamic shared memory is known at launch only,
//! and a block smaller than declared leaves more room, not less.
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
    pub cap: Option<u32>,
    /// Why the wanted occupancy is not what will be had.
    pub shortfall: Option<String>,
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
    /// Threads of the block, where the entry bounds them.
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
                shortfall: self.left_aside(),
            };
        }
        let registers = self.without_target(function, block);
        let mut budget = Budget {
            registers,
            cap: self.maxnreg,
            shortfall: None,
        };
        let Some(percent) = self.occupancy_target else {
            return budget;
        };
        let (wanted, shortfall) = self.for_occupancy(function, block, percent);
        budget.shortfall = shortfall;
        if let Some(wanted) = wanted {
            budget.registers = registers.min(wanted);
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

    /// What the caller asks for, else what the entry says.
    fn without_target(&self, function: &ast::Function, block: Block) -> u32 {
        let directive = |keyword: &str| {
            let found = function.directives.iter().find(|d| d.keyword == keyword);
            found.and_then(|d| d.values.first().copied())
        };
        let cap = self.maxnreg.or_else(|| directive("maxnreg"));
        let cap = cap.or_else(|| {
            let blocks = directive("minnctapersm").unwrap_or(1);
            let steps = cliffs(self.sm, block.threads?, 0).ok()?;
            let fitting = steps.iter().filter(|step| step.blocks >= blocks);
            fitting.map(|step| step.last_registers).max()
        });
        cap.unwrap_or(MOST_REGISTERS).clamp(1, MOST_REGISTERS)
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
            return without("the block size is unknown without `.maxntid` or `.reqntid`");
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
                assert_eq!(result.functions[0].shortfall, None);
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

    #[test]
    fn without_a_block_size_a_target_is_left_aside_aloud() {
        for (head, why) in [
            (".entry k()", "`.maxntid` or `.reqntid`"),
            (".func k()", "function that is called"),
        ] {
            let result = allocate(head, "", &target(75));
            assert_eq!(budget(&result), 255, "{head}");
            let said = result.functions[0].shortfall.as_deref().unwrap_or_default();
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
        let said = result.functions[0].shortfall.as_deref().unwrap_or_default();
        assert!(said.contains("reach 25.0 % at most"), "{said}");
        let result = allocate(".entry k() .maxntid 256", body, &target(25));
        assert_eq!(
            (budget(&result), &result.functions[0].shortfall),
            (128, &None)
        );
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
        assert!(matches!(report.outcome, Outcome::Passed(_)));
        assert!(!result.text.contains(".maxnreg"), "{}", result.text);
        let said = report.shortfall.as_deref().unwrap_or_default();
        assert!(said.contains("cap of 64"), "{said}");
        let result = allocate(".entry k()\n.maxntid 384", body, &ModuleOptions::default());
        assert_eq!(result.functions[0].shortfall, None);
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
