//! From a function to a program.

use super::bundles::Bundles;
use super::{Link, Op, Origin, Program, ProgramBlock, Value, ValueInfo};
use crate::error::{Error, Place};
use crate::function::{
    Block, Constraint, Convention, Function, Inst, Kind, Operand, OperandGroup, Role,
};
use crate::ir::constraints::{Body, Member, bodies};
use crate::target::{PReg, RegSet, Target};
use cranelift_entity::{EntityRef, EntitySet, PrimaryMap};
use smallvec::SmallVec;

impl<'a> Program<'a> {
    /// The program of `function`, its instructions in `order` if one is given.
    pub fn new(
        function: &'a Function,
        target: &'a Target,
        order: Option<Vec<Inst>>,
    ) -> Result<Program<'a>, Error> {
        let mut program = Program::of_constraints(function, target, order)?;
        program.complete();
        program.put_copies_on_edges();
        Ok(program)
    }

    /// The same with no block on any edge: what edges pass is not part of the program. Neither
    /// are the operations of blocks where nothing is constrained.
    pub(crate) fn of_constraints(
        function: &'a Function,
        target: &'a Target,
        order: Option<Vec<Inst>>,
    ) -> Result<Program<'a>, Error> {
        let own = function.vregs().map(|vreg| {
            let info = function.vreg(vreg);
            ValueInfo {
                class: info.class,
                origin: Origin::VReg(vreg),
                uniform: info.uniform,
                unspillable: info.pinned,
                is_result: false,
                forbidden: None,
            }
        });
        // With some room for what isolates constraints.
        let count = function.vreg_count();
        let mut values = Vec::with_capacity(count + count / 8);
        values.extend(own);
        let program = Program {
            function,
            values: PrimaryMap::from(values),
            slots: PrimaryMap::new(),
            links: Vec::new(),
            blocks: PrimaryMap::with_capacity(function.block_count() * 5 / 4),
            order,
            deleted: EntitySet::new(),
            has_hints: function.has_hints(),
        };
        let mut build = Build {
            program,
            target,
            bundles: Bundles::default(),
        };
        build.blocks()?;
        build.program.links.extend(build.bundles.links());
        Ok(build.program)
    }
}

struct Build<'a> {
    program: Program<'a>,
    target: &'a Target,
    /// Pinned values that are lanes of groups or have a fixed register.
    bundles: Bundles,
}

/// Copies before and after an instruction.
#[derive(Default)]
struct Around {
    before: SmallVec<[(Value, Value); 2]>,
    after: SmallVec<[(Value, Value); 2]>,
}

impl Build<'_> {
    fn blocks(&mut self) -> Result<(), Error> {
        let function = self.program.function;
        for block in function.blocks() {
            let mut ops = Vec::new();
            if !self.is_unconstrained(block) {
                let insts = function.block_insts(block).len();
                ops.reserve_exact(insts + insts / 8);
                for inst in function.block_insts(block) {
                    self.instruction(self.program.at(inst), &mut ops)?;
                }
            }
            self.program.blocks.push(ProgramBlock {
                ops,
                succs: function.succ_blocks(block).iter().copied().collect(),
                preds: function.preds(block).iter().copied().collect(),
                edge: None,
            });
        }
        Ok(())
    }

    fn instruction(&mut self, inst: Inst, ops: &mut Vec<Op>) -> Result<(), Error> {
        let function = self.program.function;
        let mut values = values_of(function.operands(inst));
        if !self.is_constrained(inst) {
            ops.push(Op::Inst { inst, values });
            return Ok(());
        }
        let mut around = Around::default();
        for body in bodies(function, self.target, inst)? {
            let free = body.is_free(function, inst) && !self.overwrites_input(inst, &body);
            if self.is_pinned_bundle(inst, &body) && self.bundle(inst, &body) {
                continue;
            }
            if let Some(pinned) = self.pinned_seat(inst, &body) {
                let seat = values[pinned];
                self.restrict(inst, seat, pinned)?;
                for m in body.members.iter().filter(|m| m.operand != pinned) {
                    around.after.push((values[m.operand], seat));
                    values[m.operand] = seat;
                }
            } else if !free || self.is_return_of_device(inst) {
                self.isolate(inst, &body, &mut values, &mut around);
            }
        }
        if !around.before.is_empty() {
            ops.push(Op::Copies(around.before));
        }
        ops.push(Op::Inst { inst, values });
        if !around.after.is_empty() {
            ops.push(Op::Copies(around.after));
        }
        Ok(())
    }

    /// Whether `body` has several operands, all of pinned values, and no two values at one
    /// place.
    fn is_pinned_bundle(&self, inst: Inst, body: &Body) -> bool {
        let function = self.program.function;
        let vreg = |m: &Member| function.operands(inst)[m.operand].vreg;
        let is_early = |m: &Member| function.operands(inst)[m.operand].role == Role::EarlyDef;
        let alone = |m: &Member| {
            let mut others = body.members.iter().filter(|o| o.offset == m.offset);
            others.all(|o| vreg(o) == vreg(m))
        };
        body.members.len() > 1
            && body
                .members
                .iter()
                .all(|m| function.vreg(vreg(m)).pinned && alone(m))
            && !(body.members.iter().any(is_early) && self.overwrites_input(inst, body))
    }

    /// Keeps the values of `body` at their distances wherever they are live, unless other
    /// groups say otherwise.
    fn bundle(&mut self, inst: Inst, body: &Body) -> bool {
        let operands = self.program.function.operands(inst);
        let members = body.members.iter();
        let members = members.map(|m| {
            let value = Value::new(operands[m.operand].vreg.index());
            (value, m.offset as i32)
        });
        let fixed = self.only_start(inst, body);
        let is_put = self.bundles.put(members, body.align, fixed);
        if is_put {
            for m in &body.members {
                self.forbid(
                    inst,
                    m.operand,
                    Value::new(operands[m.operand].vreg.index()),
                );
            }
        }
        is_put
    }

    /// The operand of a pinned value that makes up `body`, alone or with unpinned results
    /// that are tied to it. It cannot be copied to the register that an operand asks for, so
    /// it is there all along, and results that take its register are copied from there.
    fn pinned_seat(&self, inst: Inst, body: &Body) -> Option<usize> {
        let function = self.program.function;
        let in_group = |operand| {
            let mut groups = function.groups(inst).iter();
            groups.any(|g: &OperandGroup| g.range().contains(&operand))
        };
        if body.members.iter().any(|m| in_group(m.operand)) {
            return None;
        }
        let operand = |m: &Member| &function.operands(inst)[m.operand];
        let is_pinned = |m: &&Member| function.vreg(operand(m).vreg).pinned;
        let mut pinned = body.members.iter().filter(is_pinned);
        let first = pinned.next()?;
        let gives = body.members.len() == 1 || operand(first).role == Role::Use;
        (gives && pinned.next().is_none()).then_some(first.operand)
    }

    /// Holds `value` to what the operand of `inst` asks for, wherever it lives.
    fn restrict(&mut self, inst: Inst, value: Value, operand: usize) -> Result<(), Error> {
        self.forbid(inst, operand, value);
        let asked = self.program.function.operands(inst)[operand];
        let Constraint::Fixed(reg) = asked.constraint else {
            return Ok(());
        };
        match self.bundles.put(std::iter::once((value, 0)), 1, Some(reg)) {
            true => Ok(()),
            false => Err(Error::Impossible {
                place: Place::Inst(self.program.function.block_of(inst), inst),
                value: Some(asked.vreg),
                message: format!("{} is pinned and wanted in two registers", asked.vreg),
                help: "copy it into an ordinary virtual register first".into(),
            }),
        }
    }

    /// Whether each instruction of `block` touches values that may be anywhere, and nothing
    /// else.
    fn is_unconstrained(&self, block: Block) -> bool {
        let function = self.program.function;
        let is_plain = |inst| {
            let traits = function.traits(inst);
            traits.is_free() && !traits.clobbers() && !self.is_return_of_device(inst)
        };
        !function.has_pinned() && function.block_insts(block).all(is_plain)
    }

    fn is_constrained(&self, inst: Inst) -> bool {
        !self.program.function.is_free(inst) || self.is_return_of_device(inst)
    }

    /// Whether an early result of `body` is also an input of `inst`: as one value it could
    /// not sit in two registers.
    fn overwrites_input(&self, inst: Inst, body: &Body) -> bool {
        let operands = self.program.function.operands(inst);
        body.members.iter().any(|m| {
            let result = &operands[m.operand];
            let reads_it = |o: &Operand| o.vreg == result.vreg && o.role.reads();
            result.role == Role::EarlyDef && operands.iter().any(reads_it)
        })
    }

    /// A returning function gives the preserved registers back before its results are
    /// read, so results may not be in them.
    fn is_return_of_device(&self, inst: Inst) -> bool {
        self.program.function.convention() == Convention::Device
            && self.program.function.inst(inst).kind == Kind::Return
    }

    /// Gives each operand of `body` a value of its own, linked as the body demands.
    fn isolate(&mut self, inst: Inst, body: &Body, values: &mut [Value], around: &mut Around) {
        let function = self.program.function;
        let operands = function.operands(inst);
        let mut link = Link {
            members: SmallVec::new(),
            align: body.align,
            fixed: self.only_start(inst, body),
        };
        // Members at one offset are one register: a tied result continues its input.
        let mut seats: SmallVec<[(usize, Value); 4]> = SmallVec::new();
        for m in &body.members {
            let operand = &operands[m.operand];
            let real = Value::new(operand.vreg.index());
            let class = function.vreg(operand.vreg).class;
            let known = seats
                .iter()
                .find(|&&(at, v)| at == m.offset && self.program.values[v].class == class);
            let seat = match known {
                Some(&(_, seat)) => seat,
                None => {
                    let seat = self.program.values.push(ValueInfo {
                        class,
                        origin: Origin::Constraint(inst),
                        uniform: false,
                        unspillable: true,
                        is_result: false,
                        forbidden: None,
                    });
                    seats.push((m.offset, seat));
                    link.members.push((seat, m.offset as u16));
                    seat
                }
            };
            self.forbid(inst, m.operand, seat);
            if operand.role.reads() && !around.before.contains(&(seat, real)) {
                around.before.push((seat, real));
            }
            if operand.role.writes() {
                self.program.values[seat].is_result = true;
                around.after.push((real, seat));
            }
            values[m.operand] = seat;
        }
        self.program.links.push(link);
    }

    fn only_start(&self, inst: Inst, body: &Body) -> Option<PReg> {
        let operands = self.program.function.operands(inst);
        body.members
            .iter()
            .find_map(|m| match operands[m.operand].constraint {
                Constraint::Fixed(reg) => {
                    let unit = (reg.unit as usize).checked_sub(m.offset)?;
                    Some(PReg::new(reg.file, unit))
                }
                _ => None,
            })
    }

    fn forbid(&mut self, inst: Inst, operand: usize, seat: Value) {
        let function = self.program.function;
        let mut forbidden = self.program.values[seat].forbidden.take();
        let mut add = |regs: &[PReg]| {
            let set = RegSet::of_registers(self.target, regs.iter().copied());
            forbidden
                .get_or_insert_with(|| Box::new(RegSet::new(self.target)))
                .union_with(&set);
        };
        if let Constraint::Except(list) = function.operands(inst)[operand].constraint {
            add(function.reg_list(list));
        }
        if self.is_return_of_device(inst) {
            add(&self.target.abi().preserved);
        }
        self.program.values[seat].forbidden = forbidden;
    }
}

impl Program<'_> {
    /// The instruction that stands where the function has `inst`.
    pub(crate) fn at(&self, inst: Inst) -> Inst {
        let order = self.order.as_ref();
        order.map_or(inst, |order| order[inst.index()])
    }

    /// Adds the operations of blocks where nothing is constrained, if they are missing.
    pub(crate) fn complete(&mut self) {
        let function = self.function;
        for block in function.blocks() {
            let insts = function.block_insts(block);
            if !self.blocks[block].ops.is_empty() {
                continue;
            }
            let mut ops = Vec::with_capacity(insts.len() + insts.len() / 8);
            ops.extend(insts.map(|inst| {
                let inst = self.at(inst);
                let values = values_of(function.operands(inst));
                Op::Inst { inst, values }
            }));
            self.blocks[block].ops = ops;
        }
    }

    /// Puts a block with a parallel copy on every edge that passes arguments.
    pub(crate) fn put_copies_on_edges(&mut self) {
        let function = self.function;
        for block in function.blocks() {
            for (index, edge) in function.succs(block).iter().enumerate() {
                let params = &function.block(edge.block).params;
                let value = |v: &crate::function::VReg| Value::new(v.index());
                let pairs = params.iter().zip(&edge.args);
                let copies: SmallVec<_> = pairs
                    .map(|(to, from)| (value(to), value(from)))
                    .filter(|(to, from)| to != from)
                    .collect();
                if !copies.is_empty() {
                    let on_edge = self.split_edge(block, index);
                    self.blocks[on_edge].ops.push(Op::Copies(copies));
                }
            }
        }
    }

    /// The block on the edge of `block` at position `succ`, made if there is none yet.
    /// A block that stands on an edge itself has but one way to go and is its own.
    pub fn split_edge(&mut self, block: Block, succ: usize) -> Block {
        if self.blocks[block].edge.is_some() {
            return block;
        }
        let to = self.blocks[block].succs[succ];
        if self.blocks[to].edge == Some((block, succ as u32)) {
            return to;
        }
        let on_edge = self.blocks.push(ProgramBlock {
            ops: Vec::new(),
            succs: SmallVec::from_slice(&[to]),
            preds: SmallVec::from_slice(&[block]),
            edge: Some((block, succ as u32)),
        });
        self.blocks[block].succs[succ] = on_edge;
        // Parallel edges between the same blocks: exactly one entry is this edge's.
        if let Some(pred) = self.blocks[to].preds.iter_mut().find(|p| **p == block) {
            *pred = on_edge;
        }
        on_edge
    }
}

/// The values of virtual registers have the same numbers.
fn values_of(operands: &[Operand]) -> SmallVec<[Value; 4]> {
    let value = |operand: &Operand| Value::new(operand.vreg.index());
    let few = |index: usize| operands.get(index).map_or(Value::new(0), value);
    match operands.len() {
        // Most instructions: no loop, and nothing to grow.
        len @ 0..=4 => SmallVec::from_buf_and_len(std::array::from_fn(few), len),
        _ => operands.iter().map(value).collect(),
    }
}
