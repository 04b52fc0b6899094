//! Which values to compute again.

use super::recipe::Recipes;
use crate::analysis::{Code, LiveSet};
use crate::function::{Block, Role};
use crate::ir::{Facts, Program, Value};
use crate::target::{File, Target};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
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
        sizes: program
            .values
            .values()
            .map(|info| {
                let class = target.class(info.class);
                (class.file, class.width as i64)
            })
            .collect(),
        live: LiveSet::new(program.values.len()),
        units: SmallVec::new(),
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
            for (value, role) in distinct(op.accesses(program.function)) {
                if role.reads() && recipes.leaves(value).is_some() {
                    costs[value] += frequency * f64::from(recipes.cycles(value));
                }
            }
        }
    }
    costs
}

/// Accesses without repetition: a value that is two operands of an instruction takes its
/// units once, and is computed once for both.
fn distinct(accesses: impl Iterator<Item = (Value, Role)>) -> SmallVec<[(Value, Role); 8]> {
    let mut distinct = SmallVec::new();
    for access in accesses {
        if !distinct.contains(&access) {
            distinct.push(access);
        }
    }
    distinct
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
    /// The file of each value, and how many of its units it takes.
    sizes: Vec<(File, i64)>,
    /// Values live after the operation at hand.
    live: LiveSet<Value>,
    /// Units that they take, chosen or not.
    units: Units,
    /// Leaves that are live there for the sake of chosen values alone.
    gained: LiveSet<Value>,
}

/// One number per register file.
type Units = SmallVec<[i64; 4]>;

/// Values with the same leaves.
struct Group<'r> {
    leaves: &'r [Value],
    members: Vec<Value>,
}

impl<'a> Choice<'a, '_> {
    fn block(&mut self, facts: &Facts, block: Block) {
        self.live.clear();
        self.units = SmallVec::from_elem(0, self.target.files().len());
        for value in facts.liveness.live_out(block) {
            self.enter(value);
        }
        let program = self.program;
        for point in program.points(block).rev() {
            let accesses = distinct(program.accesses(point));
            let mut pressure = self.pressure(&accesses);
            for (file, info) in self.target.files() {
                let spare = match file {
                    File::MAIN => SPARE_REGISTERS * info.units_per_reg,
                    _ => 0,
                };
                let here = pressure[file.index()];
                if here > info.capacity as i64 {
                    let room = info.capacity.saturating_sub(spare) as i64;
                    self.relieve(&accesses, file, here - room);
                    pressure = self.pressure(&accesses);
                }
            }
            for &(value, _) in accesses.iter().filter(|(_, role)| role.writes()) {
                if self.live.remove(value) {
                    let (file, width) = self.sizes[value.index()];
                    self.units[file.index()] -= width;
                }
            }
            for &(value, _) in accesses.iter().filter(|(_, role)| role.reads()) {
                self.enter(value);
            }
        }
    }

    fn enter(&mut self, value: Value) {
        if self.live.insert(value) {
            let (file, width) = self.sizes[value.index()];
            self.units[file.index()] += width;
        }
    }

    /// Chooses values until `excess` fewer units of `file` are live around an operation.
    fn relieve(&mut self, accesses: &[(Value, Role)], file: File, mut excess: i64) {
        let recipes = self.recipes;
        let mut groups: Vec<Group<'a>> = Vec::new();
        for value in self.live.iter() {
            let Some(leaves) = recipes.leaves(value) else {
                continue;
            };
            let is_accessed = accesses.iter().any(|(v, _)| *v == value);
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

    /// Units of each file that are live around an operation, given what has been chosen.
    fn pressure(&mut self, accesses: &[(Value, Role)]) -> Units {
        self.gained.clear();
        let mut after = Units::from_slice(&self.units);
        for value in self.live.iter().filter(|&v| self.chosen.contains(v)) {
            for &leaf in self.recipes.leaves(value).unwrap_or_default() {
                if !self.live.contains(leaf) && self.gained.insert(leaf) {
                    let (file, width) = self.sizes[leaf.index()];
                    after[file.index()] += width;
                }
            }
            if !accesses.iter().any(|(v, role)| *v == value && role.reads()) {
                let (file, width) = self.sizes[value.index()];
                after[file.index()] -= width;
            }
        }
        let mut before = Units::from_slice(&after);
        for &(value, role) in accesses {
            let (file, width) = self.sizes[value.index()];
            if role.writes() && !self.live.contains(value) {
                after[file.index()] += width;
            } else if role.writes() && !role.reads() {
                before[file.index()] -= width;
            } else if role.reads() && !self.live.contains(value) {
                before[file.index()] += width;
            }
        }
        after
            .iter_mut()
            .zip(before)
            .for_each(|(a, b)| *a = (*a).max(b));
        after
    }

    fn width(&self, value: Value, file: File) -> i64 {
        match self.sizes[value.index()] {
            (own, width) if own == file => width,
            _ => 0,
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
