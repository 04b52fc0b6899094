//! What instructions do to values and to the state of the world.

use super::Module;
use crate::function::{AliasClass, Effect, Function, Inst, Kind, Operand, Role};
use crate::target::{PReg, Target};
use cranelift_entity::{EntityRef, SecondaryMap};
use rustc_hash::FxHashMap;

/// Something that can be observed: a write of state, or the choice of a way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number of the function in its module.
    pub function: usize,
    /// The instruction.
    pub inst: Inst,
    /// The parts of its inputs, in operand order.
    pub inputs: Vec<u64>,
    /// A digest of the state that it met, as far as it touches it.
    pub state: u64,
}

/// What a run left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Observable events in order. Those of one execution of a block that may change places,
    /// since they touch different state, are in the order of the function.
    pub events: Vec<Event>,
    /// Blocks executed.
    pub blocks: usize,
}

/// The state that instructions share, and the record of what they did.
pub(super) struct World<'a> {
    module: Module<'a>,
    seed: u64,
    /// By function and alias class: a digest of all writes that may have changed its state.
    /// Each write is added to it, so that only those that touch the same state, and thus meet
    /// each other's digest, leave another sum in another order.
    memory: Vec<SecondaryMap<AliasClass, u64>>,
    /// By function.
    visits: Vec<SecondaryMap<Inst, u32>>,
    pub trace: Trace,
}

impl<'a> World<'a> {
    pub(super) fn new(module: Module<'a>, seed: u64) -> World<'a> {
        World {
            module,
            seed,
            memory: vec![SecondaryMap::with_default(hash(&[seed, 1])); module.functions.len()],
            visits: vec![SecondaryMap::new(); module.functions.len()],
            trace: Trace::default(),
        }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// What the first function is entered with, by unit: the given arguments in the order of
    /// its live-ins, and hashes where none are given.
    pub(super) fn arguments(
        &self,
        target: &Target,
        number: usize,
        given: &[u64],
    ) -> FxHashMap<PReg, u64> {
        let function = &self.module.functions[number];
        let units = function.live_ins().flat_map(|(vreg, reg)| {
            let width = target.width(function.vreg(vreg).class);
            (0..width).map(move |part| reg.offset(part))
        });
        let mut given = given.iter().copied();
        units
            .map(|reg| {
                let (file, unit) = (reg.file.index() as u64, reg.unit as u64);
                let unknown = hash(&[self.seed, file, unit, 10]);
                (reg, given.next().unwrap_or(unknown))
            })
            .collect()
    }

    /// Counts that the program reaches `inst`; how often it did before.
    pub(super) fn visit(&mut self, number: usize, inst: Inst) -> u32 {
        let visits = &mut self.visits[number][inst];
        *visits += 1;
        *visits - 1
    }

    /// Executes `inst`: the parts of its results, in operand order.
    pub(super) fn execute(
        &mut self,
        number: usize,
        target: &Target,
        inst: Inst,
        inputs: &[u64],
    ) -> Vec<u64> {
        let function = &self.module.functions[number];
        let info = function.inst(inst);
        let operands = function.operands(inst);
        let state = match info.effect {
            Effect::Pure => 0,
            Effect::Read | Effect::Write => self.memory[number][function.alias(inst)],
        };
        let doing = self.doing(function, inst, inputs, state);
        if info.effect == Effect::Write || chooses(function, inst) {
            let inputs = inputs.to_vec();
            self.observe(Event {
                function: number,
                inst,
                inputs,
                state,
            });
        }
        if info.effect == Effect::Write {
            self.write(number, inst, hash(&[doing, 2]));
        }
        if info.kind == Kind::Copy && is_faithful(function, target, operands) {
            return inputs.to_vec();
        }
        if let Some(result) = self.meaning(function, inst, inputs) {
            return vec![result];
        }
        let mut results = Vec::new();
        for (position, operand) in operands.iter().enumerate() {
            if operand.role.writes() {
                let width = target.width(function.vreg(operand.vreg).class);
                results.extend((0..width).map(|part| match info.kind {
                    Kind::Undef => hash(&[inst.index() as u64, part as u64, 3]),
                    _ => hash(&[doing, position as u64, part as u64]),
                }));
            }
        }
        results
    }

    /// Records an event, in the order of the function among those it may change places with.
    fn observe(&mut self, event: Event) {
        let function = &self.module.functions[event.function];
        let passes = |earlier: &&Event| {
            earlier.function == event.function
                && function.block_of(earlier.inst) == function.block_of(event.inst)
                && !function.is_barrier(earlier.inst)
                && !function.is_barrier(event.inst)
                && earlier.inst > event.inst
        };
        let passed = self.trace.events.iter().rev().take_while(passes).count();
        let place = self.trace.events.len() - passed;
        self.trace.events.insert(place, event);
    }

    /// Adds a write to the state of all that may see it. What it is to other functions, they
    /// see when they are called.
    fn write(&mut self, number: usize, inst: Inst, digest: u64) {
        let own = self.module.functions[number].alias(inst);
        for (other, function) in self.module.functions.iter().enumerate() {
            for (class, _) in function.alias_classes() {
                if other != number || function.may_alias(own, class) {
                    let state = &mut self.memory[other][class];
                    *state = state.wrapping_add(digest);
                }
            }
        }
    }

    /// Which of `count` ways the terminator `inst`, just executed, takes.
    pub(super) fn way(&self, number: usize, inst: Inst, inputs: &[u64], count: usize) -> u32 {
        let function = &self.module.functions[number];
        let chosen = self.meaning(function, inst, inputs).unwrap_or_else(|| {
            let visits = self.visits[number][inst] as u64;
            hash(&[self.doing(function, inst, inputs, visits), 4])
        });
        (chosen % count.max(1) as u64) as u32
    }

    fn meaning(&self, function: &Function, inst: Inst, inputs: &[u64]) -> Option<u64> {
        self.module.meaning?(function, inst, inputs)
    }

    fn doing(&self, function: &Function, inst: Inst, inputs: &[u64], state: u64) -> u64 {
        let info = function.inst(inst);
        let name = function.opcode_name(info.opcode).bytes();
        let opcode = name.fold(self.seed, |h, byte| hash(&[h, byte as u64]));
        hash(&[opcode, info.imm, state, hash(inputs)])
    }
}

/// Whether results and inputs, each laid end to end, are equally long and apart.
fn is_faithful(function: &Function, target: &Target, operands: &[Operand]) -> bool {
    let width = |o: &Operand| target.width(function.vreg(o.vreg).class);
    let inputs: usize = operands.iter().filter(|o| o.role.reads()).map(width).sum();
    let results: usize = operands.iter().filter(|o| o.role.writes()).map(width).sum();
    inputs == results && operands.iter().all(|o| o.role != Role::UseDef)
}

/// A well-mixed digest of `words`.
pub(super) fn hash(words: &[u64]) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ words.len() as u64;
    for &word in words {
        state = (state ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        state = (state ^ (state >> 32)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        state ^= state >> 29;
    }
    state
}

/// Whether `inst` decides where to go.
fn chooses(function: &Function, inst: Inst) -> bool {
    function.inst(inst).kind == Kind::Branch && function.succs(function.block_of(inst)).len() > 1
}
