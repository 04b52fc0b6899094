//! A second opinion on recoloured code that shares nothing with webs, allocator and checker:
//! each read must be reached by the same definitions as before.

use std::collections::{BTreeMap, BTreeSet};
use warpalloc_sass::isa::{Access, File, Inst, Reg};
use warpalloc_sass::{Cfg, Code};

/// A definition: instruction, operand and lane. No definition is that of nothing.
type Definition = Option<(usize, usize, usize)>;
type Reaching = BTreeMap<Reg, BTreeSet<Definition>>;

fn is_renamed(reg: Reg) -> bool {
    matches!(reg.file, File::R | File::P)
}

fn nothing() -> BTreeSet<Definition> {
    BTreeSet::from([None])
}

fn step(state: &mut Reaching, at: usize, inst: &Inst) {
    for (number, operand) in inst.operands().iter().enumerate() {
        if operand.access == Access::Use {
            continue;
        }
        for (lane, reg) in operand.registers().enumerate() {
            let reached = state.entry(reg).or_insert_with(nothing);
            if inst.guard().is_none() {
                reached.clear();
            }
            reached.insert(Some((at, number, lane)));
        }
    }
}

/// For each read of a general register or predicate, in order, what reaches it.
fn reads(code: &Code, cfg: &Cfg) -> Vec<(usize, BTreeSet<Definition>)> {
    let blocks = cfg.blocks();
    let mut before: Vec<Option<Reaching>> = vec![None; blocks.len()];
    let mut work = cfg.entries().to_vec();
    for &entry in cfg.entries() {
        before[entry] = Some(Reaching::new());
    }
    while let Some(number) = work.pop() {
        let mut state = before[number].clone().unwrap();
        for at in blocks[number].insts.clone() {
            step(&mut state, at, &code.insts()[at]);
        }
        for &succ in &blocks[number].succs {
            let merged = match &before[succ] {
                None => state.clone(),
                Some(known) => {
                    let mut merged = known.clone();
                    for (reg, reached) in &state {
                        merged
                            .entry(*reg)
                            .or_insert_with(nothing)
                            .extend(reached.iter().copied());
                    }
                    for (reg, reached) in &mut merged {
                        if !state.contains_key(reg) {
                            reached.insert(None);
                        }
                    }
                    merged
                }
            };
            if before[succ].as_ref() != Some(&merged) {
                before[succ] = Some(merged);
                work.push(succ);
            }
        }
    }
    let mut found = Vec::new();
    for (block, state) in blocks.iter().zip(before) {
        let Some(mut state) = state else { continue };
        for at in block.insts.clone() {
            let inst = &code.insts()[at];
            let operands = inst.operands().iter();
            let sources = operands.filter(|operand| operand.access == Access::Use);
            let guard = inst.guard().filter(|guard| !guard.never);
            let registers = sources
                .flat_map(|operand| operand.registers())
                .chain(guard.map(|guard| guard.reg));
            for reg in registers.filter(|&reg| is_renamed(reg)) {
                let reached = state.get(&reg).cloned().unwrap_or_else(nothing);
                found.push((at, reached));
            }
            step(&mut state, at, inst);
        }
    }
    found
}

/// Asserts that `new` is `old` with other registers. Where a read may see what was never
/// written, it may see anything there.
pub fn assert_same(name: &str, old: &Code, new: &Code, cfg: &Cfg) {
    let (before, after) = (reads(old, cfg), reads(new, cfg));
    assert_eq!(before.len(), after.len(), "{name}");
    for ((at, old), (_, new)) in before.iter().zip(&after) {
        let offset = Code::offset(*at);
        let known = |set: &BTreeSet<Definition>| -> BTreeSet<Definition> {
            set.iter().copied().filter(Option::is_some).collect()
        };
        assert!(
            known(old).is_subset(&known(new)),
            "{name} 0x{offset:x}: {old:?} became {new:?}"
        );
        assert!(
            old.contains(&None) || known(old) == known(new),
            "{name} 0x{offset:x}: {old:?} became {new:?}"
        );
    }
}
