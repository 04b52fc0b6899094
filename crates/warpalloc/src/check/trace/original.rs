//! The run before allocation, on virtual registers.

use super::machine::argument_in_memory;
use super::report::{Difference, What};
use super::world::{Trace, World};
use super::{Limits, Module};
use crate::function::{Constraint, Function, Inst, Kind, Operand, VReg};
use crate::target::{PReg, Target};
use cranelift_entity::{EntityRef, SecondaryMap};
use rustc_hash::FxHashMap;

/// The inputs of every instruction of every function, by how often it had run before.
pub(super) type Reads = FxHashMap<(usize, Inst, u32), Vec<u64>>;

/// What one function hands to another, by unit.
type Handed = FxHashMap<PReg, u64>;

pub(super) struct Run {
    pub trace: Trace,
    pub reads: Reads,
}

pub(super) fn run(
    module: Module<'_>,
    target: &Target,
    start: (usize, &[u64]),
    limits: Limits,
    seed: u64,
) -> Result<Run, Box<Difference>> {
    let (number, arguments) = start;
    let mut original = Original {
        module,
        target,
        limits,
        world: World::new(module, seed),
        reads: Reads::default(),
        steps: 0,
    };
    let handed = original.world.arguments(target, number, arguments);
    original.activation(number, &handed)?;
    Ok(Run {
        trace: original.world.trace,
        reads: original.reads,
    })
}

struct Original<'a> {
    module: Module<'a>,
    target: &'a Target,
    limits: Limits,
    world: World<'a>,
    reads: Reads,
    steps: usize,
}

type Values = SecondaryMap<VReg, Vec<u64>>;

impl Original<'_> {
    /// Runs a function from its entry; what it returns, unless the thread ended or time is up.
    fn activation(
        &mut self,
        number: usize,
        handed: &Handed,
    ) -> Result<Option<Handed>, Box<Difference>> {
        let function = &self.module.functions[number];
        let mut values = Values::new();
        for vreg in function.vregs() {
            let width = self.target.width(function.vreg(vreg).class);
            values[vreg] = vec![vreg.index() as u64; width];
        }
        let mut block = function.entry();
        while self.world.trace.blocks < self.limits.blocks {
            self.world.trace.blocks += 1;
            let mut inputs = Vec::new();
            for inst in function.block_insts(block) {
                let operands = function.operands(inst);
                let read = operands.iter().filter(|o| o.role.reads());
                inputs = read.flat_map(|o| values[o.vreg].iter().copied()).collect();
                let visit = self.world.visit(number, inst);
                self.reads.insert((number, inst, visit), inputs.clone());
                self.steps += 1;
                let results = match function.inst(inst).kind {
                    Kind::LiveIn => self.take(number, inst, handed)?,
                    _ => {
                        let results = self.world.execute(number, self.target, inst, &inputs);
                        match self.module.callee(function, inst) {
                            Some(callee) => {
                                let passed = fixed(operands, &values, |o| o.role.reads());
                                let Some(back) = self.activation(callee, &passed)? else {
                                    return Ok(None);
                                };
                                self.take(number, inst, &back)?
                            }
                            None => results,
                        }
                    }
                };
                let mut results = results.into_iter();
                for operand in operands.iter().filter(|o| o.role.writes()) {
                    values[operand.vreg]
                        .iter_mut()
                        .zip(&mut results)
                        .for_each(|(part, result)| *part = result);
                }
            }
            let terminator = function.terminator(block);
            let succs = function.succs(block);
            let way = self.world.way(number, terminator, &inputs, succs.len());
            let Some(edge) = succs.get(way as usize) else {
                let returns = function.inst(terminator).kind == Kind::Return;
                let operands = function.operands(terminator);
                return Ok(returns.then(|| fixed(operands, &values, |_| true)));
            };
            let args: Vec<_> = edge.args.iter().map(|&arg| values[arg].clone()).collect();
            for (&param, arg) in function.block(edge.block).params.iter().zip(args) {
                values[param] = arg;
            }
            block = edge.block;
        }
        Ok(None)
    }

    /// The results of `inst` among what was handed over, part by part.
    fn take(
        &self,
        number: usize,
        inst: Inst,
        handed: &Handed,
    ) -> Result<Vec<u64>, Box<Difference>> {
        let function: &Function = &self.module.functions[number];
        let mut parts = Vec::new();
        for operand in function.operands(inst).iter().filter(|o| o.role.writes()) {
            let refuse = |what| {
                Box::new(Difference {
                    function: number,
                    seed: self.world.seed(),
                    step: self.steps,
                    block: function.block_of(inst),
                    inst,
                    what,
                    edits: Vec::new(),
                })
            };
            if let Constraint::Argument(offset) = operand.constraint {
                let width = self.target.width(function.vreg(operand.vreg).class);
                let seed = self.world.seed();
                parts.extend((0..width).map(|part| argument_in_memory(seed, offset, part)));
                continue;
            }
            let Constraint::Fixed(reg) = operand.constraint else {
                let why = "a function returns a value that the call wants in no fixed register";
                return Err(refuse(What::Malformed(why)));
            };
            for part in 0..self.target.width(function.vreg(operand.vreg).class) {
                let unit = reg.offset(part);
                let name = || self.target.reg_name(unit).to_string();
                let value = handed.get(&unit).copied();
                parts.push(value.ok_or_else(|| refuse(What::NotHanded { reg: name() }))?);
            }
        }
        Ok(parts)
    }
}

/// The values of `operands` in fixed registers, by unit.
fn fixed(operands: &[Operand], values: &Values, which: impl Fn(&Operand) -> bool) -> Handed {
    let mut handed = Handed::default();
    for operand in operands.iter().filter(|o| which(o)) {
        if let Constraint::Fixed(reg) = operand.constraint {
            let parts = values[operand.vreg].iter().enumerate();
            handed.extend(parts.map(|(part, &value)| (reg.offset(part), value)));
        }
    }
    handed
}
