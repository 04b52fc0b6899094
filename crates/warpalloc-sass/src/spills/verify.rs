//! Reads the result back.

use std::collections::BTreeSet;

use super::refusal::Refusal;
use crate::cfg::Cfg;
use crate::code::Code;
use crate::hazard::{self, Hazard, HazardKind};
use crate::isa::{Control, Effect, Inst, Reg, Space};
use crate::object::{Cubin, NewCode};

/// What stands in the place of one old instruction.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// The old instruction.
    pub index: usize,
    /// The new ones; the last one is in its place.
    pub insts: Vec<Inst>,
}

/// Checks that the cubin holds the old code but for what was replaced, and that it has no
/// hazard that it did not have before.
pub(super) fn verify(
    bytes: &[u8],
    kernel: &str,
    (old, old_cfg): (&Code, &Cfg),
    new: &NewCode,
    expected: &[Expected],
) -> Result<(), Refusal> {
    let cubin = Cubin::read(bytes)?;
    let function = super::kernel(&cubin, kernel)?;
    let code = Code::decode(function.code, cubin.arch.sm)?;
    for (index, inst) in old.insts().iter().enumerate() {
        let replaced = expected.iter().find(|expected| expected.index == index);
        let want = replaced.map_or(std::slice::from_ref(inst), |replaced| &replaced.insts);
        let last = new.instructions[index] / 16;
        for (back, want) in want.iter().rev().enumerate() {
            let found = last.checked_sub(back).and_then(|at| code.insts().get(at));
            if !found.is_some_and(|found| is_same(found, want)) {
                return Err(Refusal::Differs {
                    offset: Code::offset(index),
                    found: found.map_or("nothing".to_owned(), Inst::to_string),
                    expected: want.to_string(),
                });
            }
        }
    }
    let is_wrong = |inst: &&Inst| !inst.is_issuable();
    if let Some(inst) = code.insts().iter().find(is_wrong) {
        return Err(Refusal::Control(inst.to_string()));
    }
    let cfg = Cfg::build(&code, &cubin.links(function, &code))?;
    let before = known(old, old_cfg, new, expected);
    let is_new = |hazard: &&Hazard| {
        let key = (hazard.kind, hazard.reg, hazard.first, hazard.second);
        !before.contains(&key) && !is_in_order(&code, hazard)
    };
    match hazard::check(&code, &cfg).iter().find(is_new) {
        None => Ok(()),
        Some(hazard) => Err(Refusal::Hazard(hazard.to_string())),
    }
}

/// Whether a load overwrites what an earlier access reads, one of the two in shared memory. ptxas
/// wrote no wait between them where both went through the memory queue, which reads in order;
/// accesses to shared memory go through the same queue.
fn is_in_order(code: &Code, hazard: &Hazard) -> bool {
    let memories = [hazard.first, hazard.second].map(|index| code.insts()[index].memory());
    let [Some(first), Some(second)] = memories else {
        return false;
    };
    hazard.kind == HazardKind::WriteAfterRead
        && [first.space, second.space].contains(&Space::Shared)
        && matches!(first.effect, Effect::Load | Effect::Store)
        && second.effect == Effect::Load
}

type Key = (HazardKind, Reg, usize, usize);

/// Hazards that the checker already finds in what ptxas wrote, between instructions that stay as
/// they are, by their places in the new code. The distance between two instructions never shrinks,
/// so that code which ran before runs as well.
fn known(old: &Code, cfg: &Cfg, new: &NewCode, expected: &[Expected]) -> BTreeSet<Key> {
    let stays = |index: usize| !expected.iter().any(|expected| expected.index == index);
    let place = |index: usize| new.instructions[index] / 16;
    hazard::check(old, cfg)
        .into_iter()
        .filter(|hazard| stays(hazard.first) && stays(hazard.second))
        .map(|hazard| {
            (
                hazard.kind,
                hazard.reg,
                place(hazard.first),
                place(hazard.second),
            )
        })
        .collect()
}

/// Whether two instructions are the same but for reuse bits, places in the code that they name,
/// and return addresses.
fn is_same(found: &Inst, want: &Inst) -> bool {
    let plain = |inst: &Inst| {
        inst.with_control(Control {
            reuse: 0,
            ..inst.control()
        })
    };
    let (found, want) = (plain(found), plain(want));
    if found == want {
        return true;
    }
    let names_place = found.place().is_some() && want.place().is_some();
    let same_place = names_place && found.with_place(0).ok() == want.with_place(0).ok();
    let zero = |inst: &Inst| inst.with_moved_immediate(0).ok();
    same_place || zero(&found).is_some() && zero(&found) == zero(&want)
}
