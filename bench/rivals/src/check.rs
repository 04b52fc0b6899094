//! Proves allocated code: whatever path is taken, every operand is in a register that holds
//! its value.
//!
//! The checker follows, for every place, the set of values it is known to hold: a definition
//! puts one value there, a move copies the set, a jump adds the parameters whose arguments are
//! in the set, and where paths meet the sets are intersected until nothing changes. It knows
//! only the function and the common form of code, nothing of any allocator.

use crate::code::{Code, Item, Place};
use crate::function::{Block, Func, Kind, Val};

/// The values known to be in each place, as sorted pairs.
type Facts = Vec<(Place, Val)>;

/// Proves `code` for `k` registers, or says which instruction goes wrong.
pub fn check(f: &Func, code: &Code, k: usize) -> Result<(), String> {
    if code.blocks.len() != f.blocks.len() {
        let (have, want) = (code.blocks.len(), f.blocks.len());
        return Err(format!("{have} blocks of code for {want} of the function"));
    }
    let slots = check_places(code, k)?;
    for (b, block) in f.blocks.iter().enumerate() {
        check_order(f, block, &code.blocks[b]).map_err(|e| format!("block {b}: {e}"))?;
    }
    // A block without facts has not been reached yet. Facts only shrink, so this ends.
    let mut facts: Vec<Option<Facts>> = vec![None; f.blocks.len()];
    facts[0] = Some(Facts::new());
    let mut state = State::new(k, slots);
    let mut stale = vec![false; f.blocks.len()];
    stale[0] = true;
    while let Some(first) = stale.iter().position(|&s| s) {
        for b in first..f.blocks.len() {
            if !std::mem::replace(&mut stale[b], false) {
                continue;
            }
            let Some(known) = &facts[b] else { continue };
            state.load(known);
            // An operand that is wrong here may be reported too early, never wrongly: later
            // rounds know less.
            for item in &code.blocks[b] {
                state.step(f, item).map_err(|e| format!("block {b}: {e}"))?;
            }
            for &s in &f.blocks[b].succs {
                let arriving = state.along(&f.blocks[b], &f.blocks[s as usize]);
                let target = &mut facts[s as usize];
                let met = match target {
                    None => arriving,
                    Some(known) => intersection(known, &arriving),
                };
                if target.as_ref() != Some(&met) {
                    *target = Some(met);
                    stale[s as usize] = true;
                }
            }
        }
    }
    Ok(())
}

/// Checks that every register is below `k` and every operand of an instruction is in one;
/// returns the number of slots.
fn check_places(code: &Code, k: usize) -> Result<usize, String> {
    let mut slots = 0;
    let mut see = |place: Place| match place {
        Place::Reg(r) if usize::from(r) < k => Ok(()),
        Place::Reg(r) => Err(format!("r{r} is not one of {k} registers")),
        Place::Slot(s) => {
            slots = slots.max(s as usize + 1);
            Ok(())
        }
    };
    for item in code.blocks.iter().flatten() {
        match item {
            Item::Inst { inst, places } => {
                if let Some(Place::Slot(s)) = places.iter().find(|p| matches!(p, Place::Slot(_))) {
                    return Err(format!("inst {inst} has an operand in slot {s}"));
                }
                places.iter().try_for_each(|&p| see(p))?;
            }
            Item::Move { to, from } => {
                see(*to)?;
                see(*from)?;
                if matches!((to, from), (Place::Slot(_), Place::Slot(_))) {
                    return Err(format!("a move from {from:?} to {to:?}"));
                }
            }
            Item::Swap { a, b } => {
                for place in [a, b] {
                    see(*place)?;
                    if matches!(place, Place::Slot(_)) {
                        return Err(format!("a swap of {place:?}"));
                    }
                }
            }
            Item::Remat { to, .. } => see(*to)?,
        }
    }
    Ok(slots)
}

/// Checks that a block has each of its instructions once, in an order that keeps stores in
/// place among all accesses to memory, with the terminator at the end.
fn check_order(f: &Func, block: &Block, items: &[Item]) -> Result<(), String> {
    let mut seen = vec![false; block.insts().count()];
    let (mut last_load, mut last_store) = (0, 0);
    for (n, item) in items.iter().enumerate() {
        let Item::Inst { inst, places } = item else {
            continue;
        };
        let place = inst.checked_sub(block.insts.start).map(|at| at as usize);
        let Some(seen) = place.and_then(|at| seen.get_mut(at)) else {
            return Err(format!("inst {inst} is of another block"));
        };
        if std::mem::replace(seen, true) {
            return Err(format!("inst {inst} stands twice"));
        }
        let info = &f.insts[*inst as usize];
        if places.len() != info.defs.len() + info.uses.len() {
            return Err(format!("inst {inst} has {} operands", places.len()));
        }
        let in_order = match info.kind {
            Kind::Load => *inst >= last_store,
            Kind::Store => *inst >= last_store.max(last_load),
            kind => !kind.is_terminator() || n + 1 == items.len(),
        };
        if !in_order {
            return Err(format!("inst {inst} is out of order"));
        }
        match info.kind {
            Kind::Load => last_load = last_load.max(*inst),
            Kind::Store => last_store = *inst,
            _ => {}
        }
    }
    // A constant that is rematerialised wherever it is read may be gone.
    let missing = block
        .insts()
        .zip(seen)
        .find(|&(i, seen)| !seen && f.insts[i].kind != Kind::Const);
    missing.map_or(Ok(()), |(i, _)| Err(format!("inst {i} is missing")))
}

fn intersection(a: &Facts, b: &Facts) -> Facts {
    let both = a.iter().filter(|fact| b.binary_search(fact).is_ok());
    both.copied().collect()
}

/// The values known to be in each place, by place.
struct State {
    regs: Vec<Vec<Val>>,
    slots: Vec<Vec<Val>>,
}

impl State {
    fn new(k: usize, slots: usize) -> State {
        State {
            regs: vec![Vec::new(); k],
            slots: vec![Vec::new(); slots],
        }
    }

    fn load(&mut self, facts: &Facts) {
        self.regs.iter_mut().for_each(Vec::clear);
        self.slots.iter_mut().for_each(Vec::clear);
        for &(place, v) in facts {
            self.at(place).push(v);
        }
    }

    fn at(&mut self, place: Place) -> &mut Vec<Val> {
        match place {
            Place::Reg(r) => &mut self.regs[usize::from(r)],
            Place::Slot(s) => &mut self.slots[s as usize],
        }
    }

    fn step(&mut self, f: &Func, item: &Item) -> Result<(), String> {
        match item {
            Item::Inst { inst, places } => {
                let info = &f.insts[*inst as usize];
                let (defs, uses) = places.split_at(info.defs.len());
                for (v, &place) in info.uses.iter().zip(uses) {
                    if !self.at(place).contains(v) {
                        return Err(format!("inst {inst} reads v{v}, which is not in {place:?}"));
                    }
                }
                // In SSA no place can hold a value before its definition: some path reaches
                // the definition for the first time, and facts hold on all paths.
                for (n, (&v, &place)) in info.defs.iter().zip(defs).enumerate() {
                    if defs[..n].contains(&place) {
                        return Err(format!("inst {inst} writes {place:?} twice"));
                    }
                    *self.at(place) = vec![v];
                }
            }
            Item::Move { to, from } => {
                let values = self.at(*from).clone();
                *self.at(*to) = values;
            }
            Item::Swap { a, b } => {
                let of_a = std::mem::take(self.at(*a));
                let of_b = std::mem::replace(self.at(*b), of_a);
                *self.at(*a) = of_b;
            }
            Item::Remat { inst, to } => {
                let info = f
                    .insts
                    .get(*inst as usize)
                    .filter(|i| i.kind == Kind::Const);
                let Some(info) = info else {
                    return Err(format!("inst {inst} must not be executed again"));
                };
                *self.at(*to) = info.defs.clone();
            }
        }
        Ok(())
    }

    /// What holds after the edge between two blocks.
    fn along(&self, from: &Block, to: &Block) -> Facts {
        let regs = self.regs.iter().enumerate();
        let regs = regs.map(|(r, values)| (Place::Reg(r as u16), values));
        let slots = self.slots.iter().enumerate();
        let slots = slots.map(|(s, values)| (Place::Slot(s as u32), values));
        let mut facts = Facts::new();
        for (place, values) in regs.chain(slots) {
            // What was a parameter of the last iteration is not this iteration's.
            let kept = values.iter().filter(|v| !to.params.contains(v));
            facts.extend(kept.map(|&v| (place, v)));
            let passed = to.params.iter().zip(&from.args);
            let passed = passed.filter(|(_, arg)| values.contains(arg));
            facts.extend(passed.map(|(&param, _)| (place, param)));
        }
        facts.sort_unstable();
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    /// `v1` and `v2` are carried around the loop and exchanged; the exit stores both.
    const FUNCTION: &str = "
        function hand registers 3
        block depth 0
        op v0 =
        op v3 = v0
        jump args v0 v3 to 1
        block depth 1 params v1 v2
        branch v1 to 2 3
        block depth 1
        jump args v2 v1 to 1
        block depth 0
        store v1 v2
        ret
        end";

    const CODE: &str = "
        block
        inst 0 r0
        inst 1 r1 r0
        inst 2
        block
        inst 3 r0
        block
        move r2 r0
        move r0 r1
        move r1 r2
        inst 4
        block
        inst 5 r0 r1
        inst 6
        end";

    fn result_of(code: &str) -> Result<(), String> {
        let (f, k) = text::function(FUNCTION).expect("a function");
        f.validate().expect("a valid function");
        check(&f, &text::code(code).expect("code"), k)
    }

    #[test]
    fn right_code_is_accepted() {
        assert_eq!(result_of(CODE), Ok(()));
        let swapped = CODE.replace(
            "move r2 r0\n        move r0 r1\n        move r1 r2",
            "swap r0 r1",
        );
        assert_ne!(swapped, CODE);
        assert_eq!(result_of(&swapped), Ok(()));
        let through_memory = CODE
            .replace("move r2 r0", "move s0 r0")
            .replace("move r1 r2", "move r1 s0");
        assert_eq!(result_of(&through_memory), Ok(()));
    }

    /// The first iteration is right in each case but the first two; only the second time
    /// round does the value turn up in the wrong register.
    #[test]
    fn a_wrong_move_is_found() {
        let cases = [
            (
                "inst 3 r0",
                "inst 3 r1",
                "block 1: inst 3 reads v1, which is not in Reg(1)",
            ),
            (
                "inst 5 r0 r1",
                "inst 5 r1 r1",
                "block 3: inst 5 reads v1, which is not in Reg(1)",
            ),
            (
                "move r1 r2",
                "move r1 r0",
                "block 3: inst 5 reads v2, which is not in Reg(1)",
            ),
            (
                "move r0 r1",
                "move r0 s4",
                "block 1: inst 3 reads v1, which is not in Reg(0)",
            ),
        ];
        for (from, to, expected) in cases {
            assert!(CODE.contains(from));
            assert_eq!(result_of(&CODE.replace(from, to)), Err(expected.to_owned()));
        }
    }

    #[test]
    fn places_that_do_not_exist_and_lost_instructions_are_found() {
        let cases = [
            ("inst 0 r0", "inst 0 r3", "r3 is not one of 3 registers"),
            ("inst 0 r0", "inst 0 s0", "inst 0 has an operand in slot 0"),
            ("inst 1 r1 r0", "", "block 0: inst 1 is missing"),
            ("inst 1 r1 r0", "inst 0 r0", "block 0: inst 0 stands twice"),
            (
                "inst 5 r0 r1",
                "inst 5 r0",
                "block 3: inst 5 has 1 operands",
            ),
            (
                "inst 4",
                "inst 4\nmove r0 r0\ninst 5 r0 r1",
                "block 2: inst 4 is out of order",
            ),
            (
                "move r0 r1",
                "remat 1 r0",
                "block 2: inst 1 must not be executed again",
            ),
        ];
        for (from, to, expected) in cases {
            assert!(CODE.contains(from));
            assert_eq!(result_of(&CODE.replace(from, to)), Err(expected.to_owned()));
        }
    }

    #[test]
    fn loads_stay_between_the_same_stores() {
        let (f, k) = text::function(
            "function memory registers 3
             block depth 0
             load v0 =
             load v1 =
             store v0
             load v2 =
             store v1 v2
             ret
             end",
        )
        .expect("a function");
        let order = |lines: &str| {
            let code = format!("block\n{lines}\ninst 5\nend");
            check(&f, &text::code(&code).expect("code"), k)
        };
        let swapped_loads = "inst 1 r1\ninst 0 r0\ninst 2 r0\ninst 3 r0\ninst 4 r1 r0";
        assert_eq!(order(swapped_loads), Ok(()));
        let early = "inst 0 r0\ninst 2 r0\ninst 1 r1\ninst 3 r0\ninst 4 r1 r0";
        assert_eq!(order(early), Err("block 0: inst 1 is out of order".into()));
        let late = "inst 0 r0\ninst 1 r1\ninst 3 r2\ninst 2 r0\ninst 4 r1 r2";
        assert_eq!(order(late), Err("block 0: inst 2 is out of order".into()));
    }

    #[test]
    fn two_results_need_two_registers() {
        let text = "function pair registers 2\nblock depth 0\nop v0 v1 =\nstore v1\nret\nend";
        let (f, k) = text::function(text).expect("a function");
        let result_of = |first: &str| {
            let code = format!("block\ninst 0 {first} r1\ninst 1 r1\ninst 2\nend");
            check(&f, &text::code(&code).expect("code"), k)
        };
        assert_eq!(result_of("r0"), Ok(()));
        let twice = "block 0: inst 0 writes Reg(1) twice";
        assert_eq!(result_of("r1"), Err(twice.to_owned()));
    }
}
