//! The rules a function keeps, checked before anything else looks at it.
//!
//! Everything downstream relies on these rules and repeats none of them. A breach is
//! reported as [`Error::Invalid`] with its place. What would be legal with more registers
//! is [`Error::Impossible`] instead, with the budget that would do.
//!
//! The rules, in the order they are checked:
//! - *shape* (here): there is an entry without parameters and predecessors; every block ends
//!   in its only terminator; edges lead to blocks that exist and carry one argument of the
//!   right class per parameter; frequencies are numbers;
//! - *instructions* (`inst`): operands exist and are written at most once; terminators write
//!   nothing; ties, exclusions, copies, undefined values and rematerialisation make sense;
//! - *placement* (`placement`): fixed registers, ties and groups of one instruction can all
//!   be satisfied at once;
//! - *definedness* (`defined`): on every path, a value is written before it is read;
//! - *pinned values* (`pinned`): nothing has to move them.
//!
//! All of it is linear in the size of the function, save definedness, which takes time in
//! proportion to the blocks that values live through.

mod defined;
mod inst;
mod pinned;
mod placement;

use crate::analysis::Liveness;
use crate::error::{Error, Place};
use crate::function::*;
use crate::scratch::Scratch;
use crate::target::{Class, File, PReg, Target};
use cranelift_entity::EntityRef;

/// Operands one instruction may have: ties and groups name them by a byte.
const MAX_OPERANDS: usize = 256;

impl Function {
    /// Checks that the function keeps the rules of the model and that each instruction, on
    /// its own, can be given registers of `target`.
    pub fn validate(&self, target: &Target) -> Result<(), Error> {
        self.validated(target, &Scratch::default()).map(|_| ())
    }

    /// Validates it, and returns the liveness that took.
    pub(crate) fn validated(&self, target: &Target, scratch: &Scratch) -> Result<Valid, Error> {
        let rules = Rules {
            function: self,
            target,
        };
        rules.shape()?;
        let is_single = rules.instructions()?;
        let liveness = rules.defined_before_use(scratch)?;
        rules.pinned(&liveness)?;
        Ok(Valid {
            liveness,
            is_single,
        })
    }
}

/// What is found out about a function on the way.
pub(crate) struct Valid {
    pub liveness: Liveness,
    /// Whether each virtual register is written at one place.
    pub is_single: bool,
}

/// A function and the target it is judged against.
#[derive(Clone, Copy)]
struct Rules<'a> {
    function: &'a Function,
    target: &'a Target,
}

#[cold]
fn invalid<T>(place: Place, message: String) -> Result<T, Error> {
    Err(Error::Invalid { place, message })
}

impl Rules<'_> {
    fn shape(&self) -> Result<(), Error> {
        let f = self.function;
        if let Some(fault) = f.fault() {
            return invalid(Place::Function, fault.to_owned());
        }
        if f.block_count() == 0 {
            return invalid(Place::Function, "it has no blocks".to_owned());
        }
        self.entry()?;
        let mut param_of = vec![u32::MAX; f.vreg_count()];
        for block in f.blocks() {
            self.block(block)?;
            for &param in &f.block(block).params {
                self.vreg(Place::Block(block), param)?;
                let seen = &mut param_of[param.index()];
                if *seen == block.index() as u32 {
                    let message = format!("{param} is a parameter of it twice");
                    return invalid(Place::Block(block), message);
                }
                *seen = block.index() as u32;
            }
        }
        f.blocks().try_for_each(|block| self.edges(block))
    }

    fn entry(&self) -> Result<(), Error> {
        let entry = self.function.entry();
        let place = Place::Block(entry);
        if let Some(param) = self.function.block(entry).params.first() {
            return invalid(
                place,
                format!("the entry has a parameter, {param}, but nobody passes it"),
            );
        }
        if let Some(pred) = self.function.preds(entry).first() {
            return invalid(place, format!("{pred} leads back to the entry"));
        }
        Ok(())
    }

    fn block(&self, block: Block) -> Result<(), Error> {
        let f = self.function;
        let place = Place::Block(block);
        let info = f.block(block);
        if f.block_insts(block).len() == 0 {
            return invalid(place, "it has no instructions".to_owned());
        }
        if let Some(frequency) = info.frequency
            && !(frequency.is_finite() && frequency >= 0.0)
        {
            return invalid(place, format!("{frequency} is no frequency"));
        }
        let last = f.terminator(block);
        for inst in f.block_insts(block) {
            let kind = f.inst(inst).kind;
            if kind.is_terminator() == (inst == last) {
                continue;
            }
            let opcode = f.opcode_name(f.inst(inst).opcode);
            if inst != last {
                let message = format!("`{opcode}` ends the block, but more follows");
                return invalid(Place::Inst(block, inst), message);
            }
            let message = format!("the block ends in `{opcode}`, which is no terminator");
            return invalid(Place::Inst(block, inst), message);
        }
        let place = Place::Inst(block, last);
        let opcode = f.opcode_name(f.inst(last).opcode);
        match (f.inst(last).kind, info.succs.first()) {
            (Kind::Branch, None) => invalid(place, format!("branch `{opcode}` leads nowhere")),
            (Kind::Return | Kind::Exit, Some(edge)) => {
                let to = edge.block;
                invalid(
                    place,
                    format!("`{opcode}` leaves the function, but leads to {to}"),
                )
            }
            _ => Ok(()),
        }
    }

    fn edges(&self, block: Block) -> Result<(), Error> {
        let f = self.function;
        for edge in f.succs(block) {
            let to = edge.block;
            let place = Place::Inst(block, f.terminator(block));
            if to.index() >= f.block_count() {
                return invalid(place, format!("it leads to {to}, which does not exist"));
            }
            let params = &f.block(to).params;
            if params.len() != edge.args.len() {
                let (given, wanted) = (edge.args.len(), params.len());
                let message =
                    format!("it passes {given} arguments to {to}, which has {wanted} parameters");
                return invalid(place, message);
            }
            for (&arg, &param) in edge.args.iter().zip(params) {
                self.vreg(place, arg)?;
                let (given, wanted) = (f.vreg(arg).class, f.vreg(param).class);
                if given != wanted {
                    let given = &self.target.class(given).name;
                    let wanted = &self.target.class(wanted).name;
                    let message = format!("it passes {arg}:{given} for {param}:{wanted} of {to}");
                    return invalid(place, message);
                }
            }
        }
        Ok(())
    }

    /// Checks that `vreg` exists and that its class does on this target.
    fn vreg(&self, place: Place, vreg: VReg) -> Result<(), Error> {
        if vreg.index() >= self.function.vreg_count() {
            return invalid(place, format!("{vreg} does not exist"));
        }
        let class = self.function.vreg(vreg).class;
        if class.index() >= self.target.classes().len() {
            let target = self.target.name();
            let number = class.index();
            let message = format!("{vreg} has class number {number}, unknown to target {target}");
            return invalid(place, message);
        }
        Ok(())
    }

    /// Refuses something that needs the first `units` units of `file`: with the budget that
    /// would do where one exists.
    fn out_of_registers<T>(
        &self,
        place: Place,
        value: Option<VReg>,
        what: &str,
        file: File,
        units: usize,
    ) -> Result<T, Error> {
        let info = self.target.file(file);
        let needed = units.div_ceil(info.units_per_reg);
        let name = &info.name;
        let reserved = info.units - info.capacity;
        if needed > info.registers - reserved / info.units_per_reg {
            let target = self.target.name();
            let message =
                format!("{what} needs {needed} registers of {name}, more than {target} has");
            return invalid(place, message);
        }
        let have = self.target.budget(file);
        Err(Error::Impossible {
            place,
            value,
            message: format!("{what} needs {needed} registers of {name}, the budget is {have}"),
            help: format!("raise the budget of {name} to at least {needed}"),
        })
    }
}

#[cfg(test)]
mod tests;
