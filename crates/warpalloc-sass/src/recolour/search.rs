//! The fewest registers that a colouring without copies and spills can do with.

use super::bundles::operand_registers;
use super::lower::{Lowered, preg, reg};
use crate::isa::{Reg, Sm};
use warpalloc::allocation::{Allocation, Edits, Frame};
use warpalloc::analysis::{Liveness, register_floor};
use warpalloc::check::check;
use warpalloc::stats::Stats;
use warpalloc::target::{File, Target};
use warpalloc::{Error, Options, Strategy};

/// A function to colour and the bounds of its register count.
pub(super) struct Search<'a> {
    lowered: &'a Lowered,
    target: Target,
    floor: usize,
    /// Registers that the original takes.
    used: u8,
}

impl<'a> Search<'a> {
    /// Takes a function whose original assignment the checker can prove.
    pub fn new(lowered: &'a Lowered, sm: Sm, used: u8) -> Result<Search<'a>, Error> {
        let target =
            Target::hardware(sm.number()).map_err(|error| Error::Unproved(error.to_string()))?;
        let function = &lowered.function;
        function.validate(&target)?;
        let liveness = Liveness::compute(function);
        let search = Search {
            lowered,
            floor: register_floor(function, &target, &liveness),
            target,
            used,
        };
        search.prove(&lowered.registers)?;
        Ok(search)
    }

    /// No colouring takes fewer registers.
    pub fn floor(&self) -> usize {
        self.floor
    }

    /// A register for each virtual register within the fewest registers that were found to
    /// do, and their number; nothing if the original takes no more.
    pub fn fewest(&self, strategy: Strategy) -> Result<Option<(Vec<Reg>, u8)>, Error> {
        let options = Options {
            schedule: false,
            split: false,
            cleanup: false,
            shrink: false,
            ..Options::with_strategy(strategy)
        };
        // Everything from `high` on is known to do, nothing below `low` is tried.
        let (mut low, mut high) = (self.floor.max(1), usize::from(self.used));
        let mut best = None;
        while low < high {
            let budget = usize::midpoint(low, high);
            match self.colour(budget, &options)? {
                Some(assignment) => {
                    high = budget;
                    best = Some((assignment, budget as u8));
                }
                None => low = budget + 1,
            }
        }
        Ok(best)
    }

    /// A register for each virtual register, if the strategy finds a colouring that inserts
    /// nothing.
    fn colour(&self, budget: usize, options: &Options) -> Result<Option<Vec<Reg>>, Error> {
        let target = self.target.clone().with_budget(File::R, budget);
        let function = &self.lowered.function;
        let allocation = match warpalloc::allocate(function, &target, options) {
            Ok(allocation) => allocation,
            Err(Error::Impossible { .. } | Error::FrameTooLarge { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_plain = allocation.edits.is_empty()
            && allocation.order.is_none()
            && allocation.frame == Frame::default();
        Ok(is_plain.then(|| self.assignment(&allocation)))
    }

    fn assignment(&self, allocation: &Allocation) -> Vec<Reg> {
        let function = &self.lowered.function;
        let mut assignment = self.lowered.registers.clone();
        for inst in function.insts() {
            let registers = allocation.operands(function, inst);
            for (operand, &register) in function.operands(inst).iter().zip(registers) {
                assignment[operand.vreg.as_u32() as usize] = reg(register);
            }
        }
        assignment
    }

    /// Proves that the function computes the same with these registers and nothing inserted.
    pub fn prove(&self, assignment: &[Reg]) -> Result<(), Error> {
        let function = &self.lowered.function;
        debug_assert!(assignment.iter().all(|&r| reg(preg(r)) == r));
        let allocation = Allocation {
            registers: operand_registers(self.lowered, assignment),
            memory: Vec::new(),
            edits: Edits::new(function, Vec::new()),
            deleted: Default::default(),
            order: None,
            frame: Frame::default(),
            stats: Stats::default(),
        };
        Ok(check(function, &self.target, &allocation)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lower::{Form, Keep, lower};
    use super::*;
    use crate::{Cfg, Code, Links};
    use warpalloc::analysis::LiveRanges;
    use warpalloc::function::VReg;

    /// LDG.E R4, desc[UR4][R2.64]; FADD R6, R4, R5; STG.E desc[UR4][R2.64], R6; EXIT
    const WORDS: [u128; 4] = [
        0x000f_e800_0c1e_1900_0000_0004_0204_7981,
        0x000f_e200_0000_0000_0000_0005_0406_7221,
        0x000f_e800_0c10_1906_0000_0004_0200_7986,
        0x000f_ea00_0380_0000_0000_0000_0000_794d,
    ];

    /// Whatever is assigned, values that are live at once in one register are not proved.
    #[test]
    fn a_register_that_two_live_values_share_is_caught() {
        let bytes: Vec<u8> = WORDS.iter().flat_map(|word| word.to_le_bytes()).collect();
        let code = Code::decode(&bytes, 90).unwrap();
        let cfg = Cfg::build(&code, &Links::default()).unwrap();
        let lowered = lower(
            "f",
            &code,
            &cfg,
            usize::MAX,
            Keep::Predicates,
            Form::Coloured,
        )
        .unwrap();
        let search = Search::new(&lowered, code.sm(), 7).unwrap();
        let liveness = Liveness::compute(&lowered.function);
        let ranges = LiveRanges::compute(&lowered.function, &liveness);
        let vreg = |number: usize| VReg::from_u32(number as u32);
        let count = lowered.registers.len();
        let mut caught = 0;
        for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
            let mut mutant = lowered.registers.clone();
            mutant[a] = lowered.registers[b];
            if a == b || !ranges.overlap(vreg(a), vreg(b)) {
                continue;
            }
            assert!(search.prove(&mutant).is_err(), "{a} in the register of {b}");
            caught += 1;
        }
        assert!(caught > 10, "{caught}");
    }
}
