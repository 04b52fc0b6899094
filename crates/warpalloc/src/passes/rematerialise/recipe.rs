//! How values are computed again.

use crate::function::Inst;
use crate::ir::{Op, Program, Value};
use crate::spill::remat::may_run_again;
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Instructions of one recipe.
const MOST_STEPS: u32 = 4;
/// A value with more readers than this is a leaf of other recipes, rather than a part of them,
/// unless it is a constant.
const MOST_READERS_OF_PART: u32 = 2;

/// How one value is computed again.
#[derive(Clone, Debug)]
struct Recipe {
    inst: Inst,
    /// Inputs that the recipe computes too.
    inputs: SmallVec<[Value; 2]>,
    /// Values that must be live wherever it is computed, ascending.
    leaves: SmallVec<[Value; 2]>,
    steps: u32,
    cycles: u32,
}

/// The recipes of a program.
pub(super) struct Recipes {
    of: SecondaryMap<Value, Option<Box<Recipe>>>,
    /// How often each value is read.
    readers: SecondaryMap<Value, u32>,
    count: usize,
}

impl Recipes {
    /// Finds a recipe for every value that has one.
    pub fn find(program: &Program) -> Recipes {
        let function = program.function;
        let mut definitions: SecondaryMap<Value, u32> = SecondaryMap::new();
        let mut readers: SecondaryMap<Value, u32> = SecondaryMap::new();
        let mut by: SecondaryMap<Value, Option<Inst>> = SecondaryMap::new();
        for op in program.blocks.values().flat_map(|block| &block.ops) {
            op.for_each_access(function, |value, role| {
                readers[value] += u32::from(role.reads());
                definitions[value] += u32::from(role.writes());
                by[value] = match op {
                    Op::Inst { inst, .. } if role.writes() => Some(*inst),
                    _ => by[value],
                };
            });
        }
        let mut recipes = Recipes {
            of: SecondaryMap::new(),
            readers,
            count: 0,
        };
        // Definitions come before readers on every path, and inputs before what reads them
        // here as long as blocks are in such an order; an input whose recipe is found later
        // is a leaf.
        for op in program.blocks.values().flat_map(|block| &block.ops) {
            let Op::Inst { inst, values } = op else {
                continue;
            };
            let operands = function.operands(*inst).iter().zip(values);
            let Some((_, &result)) = operands.clone().find(|(o, _)| o.role.writes()) else {
                continue;
            };
            // An operand that is isolated is another value than its virtual register.
            let is_plain = |(o, v): (&crate::function::Operand, &Value)| {
                o.vreg.as_u32() == v.as_u32() && definitions[*v] == 1
            };
            let qualifies = by[result] == Some(*inst)
                && may_run_again(function, *inst)
                && operands.clone().all(is_plain);
            if qualifies {
                let inputs = operands.filter(|(o, _)| o.role.reads()).map(|(_, v)| *v);
                let recipe = recipes.recipe(program, *inst, inputs);
                recipes.of[result] = recipe.map(Box::new);
                recipes.count += usize::from(recipes.of[result].is_some());
            }
        }
        recipes
    }

    fn recipe(
        &self,
        program: &Program,
        inst: Inst,
        inputs: impl Iterator<Item = Value>,
    ) -> Option<Recipe> {
        let mut recipe = Recipe {
            inst,
            inputs: SmallVec::new(),
            leaves: SmallVec::new(),
            steps: 1,
            cycles: u32::from(program.function.inst(inst).remat?),
        };
        for input in inputs {
            let part = self.of[input].as_deref().filter(|part| {
                let is_small = recipe.steps + part.steps <= MOST_STEPS;
                let is_own = self.readers[input] <= MOST_READERS_OF_PART;
                let is_free = part.leaves.is_empty() && part.cycles <= 1;
                is_small && (is_free || is_own)
            });
            match part {
                Some(part) => {
                    recipe.inputs.push(input);
                    recipe.leaves.extend_from_slice(&part.leaves);
                    recipe.steps += part.steps;
                    recipe.cycles += part.cycles;
                }
                None => recipe.leaves.push(input),
            }
        }
        recipe.leaves.sort_unstable();
        recipe.leaves.dedup();
        Some(recipe)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The instruction that computes `value`.
    pub fn inst(&self, value: Value) -> Option<Inst> {
        self.of[value].as_deref().map(|recipe| recipe.inst)
    }

    /// The inputs of that instruction which are computed again too.
    pub fn inputs(&self, value: Value) -> &[Value] {
        self.of[value]
            .as_deref()
            .map_or(&[], |recipe| &recipe.inputs)
    }

    /// What must be live where `value` is computed again, if it can be.
    pub fn leaves(&self, value: Value) -> Option<&[Value]> {
        self.of[value].as_deref().map(|recipe| &recipe.leaves[..])
    }

    /// Cycles that computing `value` again takes.
    pub fn cycles(&self, value: Value) -> u32 {
        self.of[value].as_deref().map_or(0, |recipe| recipe.cycles)
    }

    /// Adds to `chosen` the values whose only readers were definitions of chosen ones: the
    /// recipes of those compute them.
    pub fn add_unread(&self, program: &Program, chosen: &mut EntitySet<Value>) {
        let mut readers = self.readers.clone();
        let mut work: Vec<Value> = chosen.iter().collect();
        while let Some(value) = work.pop() {
            let Some(recipe) = self.of[value].as_deref() else {
                continue;
            };
            for operand in program.function.operands(recipe.inst) {
                let input = Value::from_u32(operand.vreg.as_u32());
                if operand.role.reads() {
                    readers[input] -= 1;
                    let is_part = recipe.inputs.contains(&input);
                    if is_part && readers[input] == 0 && chosen.insert(input) {
                        work.push(input);
                    }
                }
            }
        }
    }
}
