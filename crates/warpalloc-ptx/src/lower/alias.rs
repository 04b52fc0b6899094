//! Which memory each access touches, so that accesses which cannot meet may change places.
//!
//! State spaces have nothing in common, except that a generic address may point into global,
//! shared, local or parameter memory. Within a space an address is a *base* and a constant: a variable, or a
//! value of which no more is known than that it is the same in both accesses. Addition and
//! subtraction of constants and copies are followed: through registers with one definition
//! everywhere, since such a definition comes before every read, and through others within a
//! block.
//!
//! Accesses that order others (`.volatile`, `.relaxed`, `.acquire`, atomics, fences, barriers,
//! asynchronous copies) and calls touch everything. The carry flag is a space of its own, and so is
//! the convergence of threads, which shuffles and matrix products need and memory does not.

use super::names::Variable;
use crate::ast::{Instruction, Operand as Ast};
use crate::opcode::{Description, type_bits};
use rustc_hash::{FxHashMap, FxHashSet};
use warpalloc::function::{Alias, Base, Block, Effect, Extent, Function, Inst, VReg};

const GLOBAL: u8 = 1;
const SHARED: u8 = 2;
const LOCAL: u8 = 4;
/// Arguments and results of calls.
const PARAM: u8 = 8;
const CARRY: u8 = 16;
const CONVERGENCE: u8 = 32;

/// In blocks with more places than this, accesses are told apart by space alone: each access is
/// compared with each class.
const MOST_PLACES: usize = 512;

/// Offsets beyond this might come around the end of the address space.
const MOST_OFFSET: i64 = 1 << 30;

/// Definitions that are followed for one address.
const MOST_STEPS: usize = 64;

/// What one operand contributes to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// The register of this operand of the model.
    Register(u8),
    Variable(Variable),
}

/// A term and a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    pub term: Term,
    pub constant: i64,
}

/// What an instruction says about addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Addressing {
    /// The spaces that its effect touches; all where it does not say.
    pub spaces: Option<u8>,
    /// The address and the number of bytes there, where it touches no others.
    pub access: Option<(Sum, u32)>,
    /// What its only result is.
    pub result: Option<Sum>,
}

/// The spaces that an instruction touches, where that is not everything.
pub(super) fn spaces(inst: &Instruction, description: &Description) -> Option<u8> {
    if description.carry.reads || description.carry.writes {
        return Some(CARRY);
    }
    let has = |modifiers: &[&str]| modifiers.iter().any(|m| inst.has(m));
    if has(&[
        "volatile", "relaxed", "acquire", "release", "mmio", "async", "bulk",
    ]) {
        return None;
    }
    let in_memory = inst
        .modifiers
        .iter()
        .find_map(|m| match m.split("::").next() {
            Some("global") => Some(GLOBAL),
            Some("shared") => Some(SHARED),
            Some("local") => Some(LOCAL),
            Some("param") => Some(PARAM),
            _ => None,
        });
    let memory = in_memory.unwrap_or(GLOBAL | SHARED | LOCAL | PARAM);
    match inst.mnemonic {
        "ld" | "ldu" | "st" => Some(memory),
        // Each thread sees what lies at the addresses of others.
        "ldmatrix" | "stmatrix" => Some(memory | CONVERGENCE),
        "wmma" if inst.has("load") || inst.has("store") => Some(memory | CONVERGENCE),
        "wmma" | "mma" | "movmatrix" => Some(CONVERGENCE),
        "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => Some(CONVERGENCE),
        _ => None,
    }
}

/// How many bytes a load or store touches, where those are at its address.
pub(crate) fn bytes(inst: &Instruction) -> Option<u32> {
    if !matches!(inst.mnemonic, "ld" | "ldu" | "st") {
        return None;
    }
    let bits = inst.modifiers.iter().rev().find_map(|m| type_bits(m))?;
    let lanes = match () {
        _ if inst.has("v2") => 2,
        _ if inst.has("v4") => 4,
        _ if inst.has("v8") => 8,
        _ => 1,
    };
    Some(u32::from(bits / 8) * lanes)
}

/// The constant that an unguarded addition or subtraction of integers adds, and the operand that
/// it adds it to.
pub(crate) fn added(inst: &Instruction) -> Option<(usize, i64)> {
    let [_, a, b] = inst.operands.as_slice() else {
        return None;
    };
    let [ty] = inst.modifiers.as_slice() else {
        return None;
    };
    if inst.guard.is_some() || !matches!(*ty, "u32" | "s32" | "u64" | "s64") {
        return None;
    }
    // A constant of 32 bits may be written without its sign.
    let constant = |operand: &Ast| match (operand.as_int()?, ty.ends_with("32")) {
        (bits, true) => Some(i64::from(bits as u32 as i32)),
        (bits, false) => Some(bits as i64),
    };
    match inst.mnemonic {
        "add" => constant(b)
            .map(|c| (1, c))
            .or_else(|| constant(a).map(|c| (2, c))),
        "sub" => Some((1, constant(b)?.checked_neg()?)),
        _ => None,
    }
}

/// What an address counts from.
#[derive(Clone, Copy)]
enum Origin {
    Address(u32),
    Variable(Variable),
}

/// An origin and a constant.
type Place = (Origin, i64);

/// Says which memory each access of `function` touches; `addressing` is in the order of its
/// instructions.
pub(super) fn classify(function: Function, addressing: &[Addressing]) -> Function {
    let aliases = Classes::of(&function, addressing).aliases;
    function.with_aliases(|inst| aliases[inst.as_u32() as usize])
}

struct Classes<'f> {
    function: &'f Function,
    addressing: &'f [Addressing],
    definitions: Vec<Definition>,
    /// What registers hold at the present point of a block, where more is known of it than
    /// their only definition says.
    current: FxHashMap<VReg, Place>,
    next_address: u32,
    /// By instruction.
    aliases: Vec<Alias>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Definition {
    None,
    Only(Inst),
    Several,
}

impl<'f> Classes<'f> {
    fn of(function: &'f Function, addressing: &'f [Addressing]) -> Self {
        let mut definitions = vec![Definition::None; function.vreg_count()];
        for inst in function.insts() {
            for operand in function.operands(inst).iter().filter(|o| o.role.writes()) {
                let known = &mut definitions[operand.vreg.as_u32() as usize];
                *known = match *known {
                    Definition::None => Definition::Only(inst),
                    _ => Definition::Several,
                };
            }
        }
        let mut classes = Classes {
            function,
            addressing,
            definitions,
            current: FxHashMap::default(),
            // Smaller numbers are those of registers with one definition.
            next_address: function.vreg_count() as u32,
            aliases: vec![Alias::ANY; function.inst_count()],
        };
        for block in function.blocks() {
            classes.block(block);
        }
        classes
    }

    fn block(&mut self, block: Block) {
        self.current.clear();
        for inst in self.function.block_insts(block) {
            let addressing = self.addressing[inst.as_u32() as usize];
            if let Some(spaces) = addressing.spaces {
                let access = addressing.access;
                let extent = access.and_then(|(sum, len)| self.extent(inst, sum, len));
                self.aliases[inst.as_u32() as usize] = Alias { spaces, extent };
            }
            let place = addressing.result.and_then(|sum| self.place(inst, sum));
            let operands = self.function.operands(inst).iter();
            for operand in operands.filter(|o| o.role.writes()) {
                match place {
                    Some(place) => self.current.insert(operand.vreg, place),
                    // Where it is read next, it is an address of its own.
                    None => self.current.remove(&operand.vreg),
                };
            }
        }
        self.keep_classes_few(block);
    }

    /// What `sum` is at `inst`.
    fn place(&mut self, inst: Inst, sum: Sum) -> Option<Place> {
        let (origin, constant) = match sum.term {
            Term::Variable(variable) => (Origin::Variable(variable), 0),
            Term::Register(operand) => {
                self.value(self.function.operands(inst)[usize::from(operand)].vreg)
            }
        };
        let constant = constant + sum.constant;
        (constant.abs() < MOST_OFFSET).then_some((origin, constant))
    }

    /// What `vreg` holds at the present point.
    fn value(&mut self, vreg: VReg) -> Place {
        if let Some(&place) = self.current.get(&vreg) {
            return place;
        }
        let place = match self.definitions[vreg.as_u32() as usize] {
            Definition::Only(inst) => self.only_value(vreg, inst),
            _ => {
                self.next_address += 1;
                (Origin::Address(self.next_address - 1), 0)
            }
        };
        self.current.insert(vreg, place);
        place
    }

    /// What `vreg`, which `inst` alone defines, holds wherever it is read.
    fn only_value(&self, mut vreg: VReg, mut inst: Inst) -> Place {
        let mut constant = 0i64;
        // In code that never runs, definitions may go in circles.
        for _ in 0..MOST_STEPS {
            let Some(sum) = self.addressing[inst.as_u32() as usize].result else {
                break;
            };
            let next = constant + sum.constant;
            if next.abs() >= MOST_OFFSET {
                break;
            }
            match sum.term {
                Term::Variable(variable) => return (Origin::Variable(variable), next),
                Term::Register(operand) => {
                    let input = self.function.operands(inst)[usize::from(operand)].vreg;
                    let Definition::Only(earlier) = self.definitions[input.as_u32() as usize]
                    else {
                        break;
                    };
                    (vreg, inst, constant) = (input, earlier, next);
                }
            }
        }
        (Origin::Address(vreg.as_u32()), constant)
    }

    fn extent(&mut self, inst: Inst, sum: Sum, len: u32) -> Option<Extent> {
        let (origin, start) = self.place(inst, sum)?;
        let base = match origin {
            Origin::Address(number) => Base::Address(number),
            Origin::Variable(variable) => {
                let end = start + i64::from(len);
                let is_inside = start >= 0 && end <= i64::from(variable.bytes);
                // What leaves its variable may be in another.
                Base::Variable(is_inside.then_some(variable.number)?)
            }
        };
        let start = i32::try_from(start).ok()?;
        Some(Extent { base, start, len })
    }

    fn keep_classes_few(&mut self, block: Block) {
        let insts = self.function.block_insts(block);
        let effects = insts.filter(|&inst| self.function.inst(inst).effect != Effect::Pure);
        let places: FxHashSet<Alias> = effects
            .map(|inst| self.aliases[inst.as_u32() as usize])
            .collect();
        if places.len() > MOST_PLACES {
            for inst in self.function.block_insts(block) {
                self.aliases[inst.as_u32() as usize].extent = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::lower::tests::lowers;
    use warpalloc::function::Effect;

    /// Which effects of a body, by their numbers, may touch the same state.
    fn met(body: &str) -> Vec<(usize, usize)> {
        let declared = ".reg .pred %p; .reg .b32 %r<20>; .reg .b64 %d<20>; .shared .b32 s[4]; \
                        .shared .b32 t[4]; .extern .shared .b8 e[]; .extern .shared .b8 f[];";
        lowers(&format!("{declared}\n{body}\nret;"), |lowered| {
            let function = &lowered.function;
            let effects = function.insts();
            let is_effect = |&inst: &_| function.inst(inst).effect != Effect::Pure;
            let mut effects: Vec<_> = effects.filter(is_effect).collect();
            effects.pop();
            let classes = effects.iter().map(|&inst| function.alias(inst));
            let classes: Vec<_> = classes.collect();
            let pairs = (0..classes.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
            let met = pairs.filter(|&(i, j)| function.may_alias(classes[i], classes[j]));
            met.collect()
        })
    }

    const NONE: [(usize, usize); 0] = [];

    #[test]
    fn spaces_do_not_meet_unless_one_is_generic() {
        let spaces = "ld.global.b32 %r1, [%d1]; st.shared.b32 [%r0], %r1; st.local.b32 [%r0], %r1;";
        assert_eq!(met(spaces), NONE);
        assert_eq!(
            met(&format!("{spaces} ld.b32 %r2, [%d2];")),
            [(0, 3), (1, 3), (2, 3)]
        );
        let strong = "ld.relaxed.cta.shared.b32 %r2, [%r0]; st.global.b32 [%d1], %r2;";
        assert_eq!(met(strong), [(0, 1)]);
    }

    #[test]
    fn offsets_of_one_base_do_not_meet() {
        let apart = "st.global.v4.b32 [%d1], {%r0, %r1, %r2, %r3}; ld.global.b32 %r4, [%d1+16]; \
                     ld.global.b64 %d2, [%d1+-8];";
        assert_eq!(met(apart), NONE);
        assert_eq!(met(&apart.replace("-8", "-4")), [(0, 2)]);
        assert_eq!(
            met(&apart.replace("%r4, [%d1", "%r4, [%d3")),
            [(0, 1), (1, 2)]
        );
    }

    #[test]
    fn constants_are_followed_through_registers() {
        let chain = "add.s64 %d2, %d1, 16; sub.s64 %d3, %d2, 12; mov.b64 %d4, %d3; \
                     st.global.b32 [%d1], %r0; ld.global.b32 %r1, [%d4];";
        assert_eq!(met(chain), NONE);
        assert_eq!(met(&chain.replace("12", "16")), [(0, 1)]);
        assert_eq!(met(&chain.replace("sub", "@%p sub")), [(0, 1)]);
    }

    /// The second store is where the first was, one turn later.
    #[test]
    fn a_base_that_moves_is_another() {
        let moved = "L: st.global.b32 [%d1], %r0; add.s64 %d1, %d1, 4; ld.global.b32 %r1, [%d1]; \
                     @%p bra L;";
        assert_eq!(met(moved), [(0, 2), (1, 2)], "the branch alone");
        assert_eq!(
            met(&moved.replace("1, 4", "1, %d2")),
            [(0, 1), (0, 2), (1, 2)]
        );
        let renewed = "st.global.b32 [%d1], %r0; L: add.s64 %d2, %d1, 4; add.s64 %d1, %d1, 4; \
                       ld.global.b32 %r1, [%d1]; st.global.b32 [%d2], %r0; @%p bra L;";
        assert!(met(renewed).contains(&(1, 2)));
    }

    #[test]
    fn variables_do_not_meet_within_their_bounds() {
        let apart = "st.shared.b32 [s], %r0; ld.shared.b32 %r1, [t+12];";
        assert_eq!(met(apart), NONE);
        assert_eq!(met(&apart.replace("t+12", "t+13")), [(0, 1)]);
        assert_eq!(met(&apart.replace("t+12", "%r2")), [(0, 1)]);
        let named = "mov.u32 %r2, t; add.u32 %r2, %r2, 4; st.shared.b32 [%r2], %r0; \
                     ld.shared.b32 %r1, [s]; ld.shared.b32 %r1, [t+4];";
        assert_eq!(met(named), [(0, 2)]);
        let dynamic = "st.shared.b32 [e], %r0; ld.shared.b32 %r1, [f];";
        assert_eq!(met(dynamic), [(0, 1)], "both begin at the same address");
    }

    #[test]
    fn shuffles_carries_and_products_touch_no_memory() {
        let apart = "shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; add.cc.u32 %r2, %r0, %r0; \
                     st.shared.b32 [s], %r0;";
        assert_eq!(met(apart), NONE);
        let shuffles =
            "shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; shfl.sync.up.b32 %r1, %r0, 1, 0, -1;";
        assert_eq!(met(shuffles), [(0, 1)], "threads meet in their order");
        let matrix = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0]; st.shared.b32 [%r0+64], %r2; \
                      st.global.b32 [%d1], %r2;";
        assert_eq!(
            met(matrix),
            [(0, 1)],
            "each thread reads at the addresses of others"
        );
        let barrier = "st.shared.b32 [s], %r0; bar.sync 0; ld.shared.b32 %r1, [t];";
        assert_eq!(met(barrier), [(0, 1), (1, 2)]);
    }
}
