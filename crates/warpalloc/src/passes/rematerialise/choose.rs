//! Which values to compute again.

use super::recipe::Recipes;
use crate::analysis::{Code, LiveSet};
use crate::function::{Block, Role};
use crate::ir::{Facts, Program, Value};
use crate::target::{File, Target};
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// General registers that are left free for pieces and for what alignment wastes.
const SPARE_REGISTERS: usize = 2;

/// Chooses values until, as far as recipes go, no file is over capacity anywhere.
pub(super) fn choose(
    program: &Program,
    target: &Target,
    facts: &Facts,
    recipes: &Recipes,
) -> EntitySet<Value> {
    let mut choice = Choice {
        program,
        target,
        recipes,
        costs: costs(program, facts, recipes),
        chosen: EntitySet::new(),
        kept: EntitySet::new(),
        live: LiveSet::new(program.values.len()),
        gained: LiveSet::new(program.values.len()),
    };
    // Where code runs most often a value is worth most, so the rest of the code chooses
    // first, and what it has chosen may suffice there.
    let mut blocks: Vec<Block> = program.blocks.keys().collect();
    let frequency = |block: &Block| facts.frequencies.block(*block);
    blocks.sort_by(|a, b| frequency(a).total_cmp(&frequency(b)));
    for block in blocks {
        choice.block(facts, block);
    }
    choice.chosen
}

/// Cycles that each value with a recipe would take at its readers.
fn costs(program: &Program, facts: &Facts, recipes: &Recipes) -> SecondaryMap<Value, f64> {
    let mut costs: SecondaryMap<Value, f64> = SecondaryMap::with_default(0.0);
    for (block, info) in program.blocks.iter() {
        let frequency = facts.frequencies.block(block);
        for op in &info.ops {
            op.for_each_access(program.function, |value, role| {
                if role.reads() && recipes.leaves(value).is_some() {
                    costs[value] += frequency * f64::from(recipes.cycles(value));
                }
            });
        }
    }
    costs
}

struct Choice<'a, 'p> {
    program: &'a Program<'p>,
    target: &'a Target,
    recipes: &'a Recipes,
    costs: SecondaryMap<Value, f64>,
    chosen: EntitySet<Value>,
    /// The leaves of chosen values, which are not chosen themselves: computing those again
    /// would compute them again too, and so on.
    kept: EntitySet<Value>,
    /// Values live after the operation at hand.
    live: LiveSet<Value>,
    /// Leaves that are live there for the sake of chosen values alone.
    gained: LiveSet<Value>,
}

/// Values with the same leaves.
struct Group<'r> {
    leaves: &'r [Value],
    members: Vec<Value>,
}

impl<'a> Choice<'a, '_> {
    fn block(&mut self, facts: &Facts, block: Block) {
        self.live.start_at_end(&facts.liveness, block);
        let program = self.program;
        for point in program.points(block).rev() {
            let accesses: SmallVec<[(Value, Role); 8]> = program.accesses(point).collect();
            for (file, info) in self.target.files() {
                let spare = match file {
                    File::MAIN => SPARE_REGISTERS * info.units_per_reg,
                    _ => 0,
                };
                let room = info.capacity.saturating_sub(spare) as i64;
                self.relieve(&accesses, file, info.capacity as i64, room);
            }
            self.live.step_back_over(accesses.iter().copied());
        }
    }

    /// Chooses values until no more than `room` units of `file` are live around an operation,
    /// if more than `capacity` are.
    fn relieve(&mut self, accesses: &[(Value, Role)], file: File, capacity: i64, room: i64) {
        let pressure = self.pressure(accesses, file);
        if pressure <= capacity {
            return;
        }
        let mut excess = pressure - room;
        let recipes = self.recipes;
        let mut groups: Vec<Group<'a>> = Vec::new();
        for value in self.live.iter() {
            let is_accessed = accesses.iter().any(|(v, _)| *v == value);
            let Some(leaves) = recipes.leaves(value) else {
                continue;
            };
            let is_decided = self.chosen.contains(value) || self.kept.contains(value);
            let is_chosen = |leaf: &Value| self.chosen.contains(*leaf);
            let is_out = is_decided || leaves.iter().any(is_chosen);
            if is_accessed || is_out || self.width(value, file) == 0 {
                continue;
            }
            match groups.iter_mut().find(|group| group.leaves == leaves) {
                Some(group) => group.members.push(value),
                None => groups.push(Group {
                    leaves,
                    members: vec![value],
                }),
            }
        }
        while excess > 0 {
            let prices = groups.iter().map(|group| self.price(group));
            let best = prices
                .enumerate()
                .filter_map(|(at, price)| Some((at, price?)));
            let Some((at, _)) = best.min_by(|a, b| a.1.total_cmp(&b.1)) else {
                return;
            };
            let group = groups.swap_remove(at);
            excess -= self.take(group, file, excess);
        }
    }

    /// Units of `file` that are live around an operation, given what has been chosen.
    fn pressure(&mut self, accesses: &[(Value, Role)], file: File) -> i64 {
        self.gained.clear();
        let mut after = 0;
        for value in self.live.iter() {
            let is_read = accesses.iter().any(|(v, role)| *v == value && role.reads());
            if self.chosen.contains(value) {
                for &leaf in self.recipes.leaves(value).unwrap_or_default() {
                    if !self.live.contains(leaf) {
                        self.gained.insert(leaf);
                    }
                }
                after += if is_read { self.width(value, file) } else { 0 };
            } else {
                after += self.width(value, file);
            }
        }
        after += self.gained.iter().map(|v| self.width(v, file)).sum::<i64>();
        let mut before = after;
        for &(value, role) in accesses {
            if role.writes() && !self.live.contains(value) {
                after += self.width(value, file);
            } else if role.writes() && !role.reads() {
                before -= self.width(value, file);
            } else if role.reads() && !self.live.contains(value) {
                before += self.width(value, file);
            }
        }
        after.max(before)
    }

    fn width(&self, value: Value, file: File) -> i64 {
        let class = self.target.class(self.program.values[value].class);
        match class.file == file {
            true => class.width as i64,
            false => 0,
        }
    }

    /// Units that the leaves of a group would newly take.
    fn taken(&self, group: &Group, file: File) -> i64 {
        let is_new = |v: &&Value| !self.live.contains(**v) && !self.gained.contains(**v);
        let new = group.leaves.iter().filter(is_new);
        new.map(|&v| self.width(v, file)).sum()
    }

    /// Cycles per register that taking all of a group costs, if it frees any. Leaves may be in
    /// another file: a predicate that finds no register is carried in a general one, so that
    /// files are weighed against each other register by register.
    fn price(&self, group: &Group) -> Option<f64> {
        let registers = |value: Value| {
            let class = self.target.class(self.program.values[value].class);
            class
                .width
                .div_ceil(self.target.file(class.file).units_per_reg) as i64
        };
        let is_new = |v: &&Value| !self.live.contains(**v) && !self.gained.contains(**v);
        let new = group.leaves.iter().filter(is_new);
        let taken: i64 = new.map(|&v| registers(v)).sum();
        let freed: i64 = group.members.iter().map(|&v| registers(v)).sum();
        let cycles: f64 = group.members.iter().map(|&v| self.costs[v]).sum();
        (freed > taken).then(|| cycles / (freed - taken) as f64)
    }

    /// Chooses members of a group, the cheapest first, until `wanted` units are free beyond what
    /// its leaves take; the units freed.
    fn take(&mut self, group: Group, file: File, wanted: i64) -> i64 {
        let mut freed = -self.taken(&group, file);
        let mut members = group.members;
        // Groups are found before any of them is taken.
        let is_chosen = |leaf: &Value| self.chosen.contains(*leaf);
        if group.leaves.iter().any(is_chosen) {
            return 0;
        }
        members.retain(|&value| !self.kept.contains(value));
        members.sort_by(|a, b| self.costs[*a].total_cmp(&self.costs[*b]).then(a.cmp(b)));
        for value in members {
            if freed >= wanted {
                break;
            }
            freed += self.width(value, file);
            self.chosen.insert(value);
        }
        for &leaf in group.leaves {
            self.kept.insert(leaf);
            if !self.live.contains(leaf) {
                self.gained.insert(leaf);
            }
        }
        freed
    }
}
