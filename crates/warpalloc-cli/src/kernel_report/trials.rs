//! What each allocator makes of a kernel within each cap.

use anyhow::anyhow;
use rayon::prelude::*;
use warpalloc::{Options, Strategy};
use warpalloc_ptx::module::{Allocated, ModuleOptions, Outcome, allocate_module};

use crate::files::Input;
use crate::kernels::MOST_REGISTERS;

/// The allocators that are shown side by side, the slowest first.
pub const STRATEGIES: [Strategy; 3] = [Strategy::Briggs, Strategy::Fatpoint, Strategy::Scan];

/// What one allocator makes of a kernel.
pub struct Trial {
    pub name: &'static str,
    /// What it made, or why it did not.
    pub made: Result<Made, String>,
}

/// An allocation in figures.
pub enum Made {
    /// By one of ours.
    Allocated(Box<Allocated>),
    /// By ptxas.
    Assembled {
        registers: u32,
        frame: u64,
        /// Loads and stores of local memory, where the code can be decoded.
        local: Option<usize>,
        /// Cycles over those of the kernel as it is, alone and full.
        cycles: Option<[f64; 2]>,
    },
}

/// A kernel within a cap, `None` for the kernel as it is.
pub type Trials = (Option<u32>, Vec<Trial>);

/// The kernel that is tried.
pub struct Tried<'t> {
    pub input: &'t Input,
    /// Its name.
    pub entry: &'t str,
    /// How it is allocated, but for the cap and the allocator.
    pub options: ModuleOptions,
    /// Its instructions.
    pub instructions: usize,
    /// The most registers that are live in it at once.
    pub peak: usize,
}

/// What was tried, by cap and allocator.
#[derive(Default)]
pub struct Tries(Vec<(Try, Trial)>);

type Try = (Option<u32>, Strategy);

impl Tries {
    fn of(&self, key: Try) -> Option<&Trial> {
        let found = self.0.iter().find(|(own, _)| *own == key);
        found.map(|(_, trial)| trial)
    }

    /// Every trial.
    pub fn all(&self) -> impl Iterator<Item = &Trial> {
        self.0.iter().map(|(_, trial)| trial)
    }

    /// A row per cap with every allocator.
    pub fn rows(mut self, caps: &[Option<u32>]) -> Vec<Trials> {
        let mut take = |key: Try| {
            let found = self.0.iter().position(|(own, _)| *own == key);
            found.map(|at| self.0.swap_remove(at).1)
        };
        let rows = caps.iter().map(|cap| {
            let trials = STRATEGIES.map(|strategy| {
                take((*cap, strategy)).unwrap_or_else(|| Trial {
                    name: strategy.name(),
                    made: Err("not tried, because the kernel is large: --all tries it".to_owned()),
                })
            });
            (*cap, trials.into())
        });
        rows.collect()
    }
}

/// How much may be tried, in instructions weighted by how long an allocator takes for one. What is left out
/// depends on the kernel alone, not on the machine.
pub struct Effort(Option<usize>);

impl Effort {
    /// All there is to try.
    pub fn all() -> Effort {
        Effort(None)
    }

    /// What is waited for without impatience.
    pub fn brief() -> Effort {
        Effort(Some(90_000))
    }

    /// Whether something is worth its weight, which is taken off.
    pub fn takes(&mut self, weight: usize) -> bool {
        let Some(left) = &mut self.0 else {
            return true;
        };
        match left.checked_sub(weight) {
            Some(rest) => {
                *left = rest;
                true
            }
            None => false,
        }
    }
}

impl Tried<'_> {
    pub fn options(&self, cap: Option<u32>, strategy: Strategy) -> ModuleOptions {
        ModuleOptions {
            maxnreg: cap,
            options: Options::with_strategy(strategy),
            spill_code: true,
            ..self.options.clone()
        }
    }

    /// What a trial counts for. Where everything fits, one round does.
    fn weight(&self, cap: Option<u32>, strategy: Strategy) -> usize {
        let weight = match strategy {
            _ if self.fits(cap) => 1,
            Strategy::Briggs => 16,
            Strategy::Fatpoint => 5,
            _ => 2,
        };
        weight * self.instructions
    }

    /// Whether all of it may fit a cap in the order of the text.
    fn fits(&self, cap: Option<u32>) -> bool {
        self.peak <= cap.unwrap_or(MOST_REGISTERS) as usize
    }

    /// The kernel as it is. Where the order of the text does not fit, the slow allocator has to wait for the
    /// quick ones within caps.
    pub fn as_it_is(&self, effort: &mut Effort) -> anyhow::Result<Tries> {
        let slow = usize::from(!self.fits(None));
        let mut tries = Tries::default();
        self.add(&mut tries, &[None], &STRATEGIES[slow..], effort)?;
        Ok(tries)
    }

    /// Tries caps, as long as the effort lasts.
    pub fn within(
        &self,
        caps: &[Option<u32>],
        effort: &mut Effort,
        tries: &mut Tries,
    ) -> anyhow::Result<()> {
        self.add(tries, caps, &STRATEGIES, effort)
    }

    /// The quick allocators within every cap come before the slow ones.
    fn add(
        &self,
        tries: &mut Tries,
        caps: &[Option<u32>],
        strategies: &[Strategy],
        effort: &mut Effort,
    ) -> anyhow::Result<()> {
        let mut wanted = Vec::new();
        for strategy in strategies.iter().rev() {
            for cap in caps {
                let key = (*cap, *strategy);
                if tries.of(key).is_none() && effort.takes(self.weight(*cap, *strategy)) {
                    wanted.push(key);
                }
            }
        }
        // Those that take longest begin first.
        wanted.reverse();
        let made: anyhow::Result<Vec<_>> = wanted
            .par_iter()
            .map(|key| Ok((*key, self.one(key.0, key.1)?)))
            .collect();
        tries.0.extend(made?);
        Ok(())
    }

    /// What one allocator makes of one cap.
    pub fn one(&self, cap: Option<u32>, strategy: Strategy) -> anyhow::Result<Trial> {
        let result = allocate_module(&self.input.text, &self.options(cap, strategy), None);
        let result = result.map_err(|error| self.input.explain(error))?;
        let mut functions = result.functions.into_iter();
        let own = functions.find(|function| function.name == self.entry);
        let own = own.ok_or_else(|| anyhow!("`{}` has no body", self.entry))?;
        let made = match own.outcome {
            Outcome::Allocated(allocated) => Ok(Made::Allocated(allocated)),
            Outcome::PassedThrough(passed) => Err(passed.reason),
            Outcome::Kept(reason) | Outcome::Refused(reason) => Err(reason),
            Outcome::Skipped => Err("it was not asked for".to_owned()),
        };
        Ok(Trial {
            name: strategy.name(),
            made,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel with sixty values live at once.
    fn kernel() -> Input {
        let mut text = String::from(
            ".version 9.0\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p) {\n\
             .reg .b32 %r<61>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\n",
        );
        for i in 1..=60 {
            text += &format!("ld.volatile.global.u32 %r{i}, [%rd1+{}];\n", 4 * i);
        }
        for i in 1..=60 {
            text += &format!("st.volatile.global.u32 [%rd1], %r{i};\n");
        }
        Input {
            name: "k.ptx".to_owned(),
            text: text + "ret;\n}\n",
        }
    }

    /// A cap, and by allocator whether it made something.
    type Found = (Option<u32>, Vec<(&'static str, bool)>);

    fn tried(effort: Effort) -> Vec<Found> {
        let input = kernel();
        let tried = Tried {
            input: &input,
            entry: "k",
            options: ModuleOptions::default(),
            instructions: 122,
            peak: 62,
        };
        let mut effort = effort;
        let mut tries = tried.as_it_is(&mut effort).unwrap();
        let caps = [None, Some(40)];
        tried.within(&caps, &mut effort, &mut tries).unwrap();
        let found = tries.rows(&caps);
        let of = |(cap, trials): &Trials| {
            let made = trials.iter().map(|trial| (trial.name, trial.made.is_ok()));
            (*cap, made.collect())
        };
        found.iter().map(of).collect()
    }

    #[test]
    fn every_allocator_is_tried_where_there_is_time() {
        let all = vec![("briggs", true), ("fatpoint", true), ("scan", true)];
        let expected = [(None, all.clone()), (Some(40), all)];
        assert_eq!(tried(Effort::all()), expected);
        assert_eq!(tried(Effort::brief()), expected);
    }

    #[test]
    fn quick_allocators_come_first_where_there_is_little() {
        let some =
            |fatpoint, briggs| vec![("briggs", briggs), ("fatpoint", fatpoint), ("scan", true)];
        // As it is the kernel fits: three are one weight each, and two are left for `scan`.
        let found = tried(Effort(Some(5 * 122 + 100)));
        assert_eq!(
            found,
            [(None, some(true, true)), (Some(40), some(false, false))]
        );
    }
}
