//! Which names must hold their registers' contents where.
//!
//! Backward dataflow over the allocated code. A view is *demanded* at a point if something
//! later reads that name before it is written again. Going backward over an operation, a
//! demand on units it writes turns into demands on what it reads, and where the name it
//! writes is another than the one demanded, a conversion follows it. Every rule maps each
//! demanded view on its own, so the fixpoint over loops is the usual union.
//!
//! Slots have no names: [`memory`] says as what they are stored.

mod memory;

use self::memory::Slots;
use super::view::{Conversion, Kind, Provider, View, ViewSet, Views};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use warpalloc::allocation::{Allocation, Edit, SlotAddr};
use warpalloc::function::{self, Block, Function, Inst, Role};
use warpalloc::target::{File, PReg, Target};

/// One line of PTX to insert, in terms of names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// Another name for the same units.
    Convert(Conversion),
    /// A move.
    Move { to: View, from: View },
    /// An exchange.
    Swap(View, View),
    /// A store to a slot.
    Store { slot: SlotAddr, view: View },
    /// A load from a slot.
    Load { view: View, slot: SlotAddr },
    /// A predicate as 0 or 1 in a register.
    FromPredicate { to: View, from: View },
    /// Whether a register is not 0.
    ToPredicate { to: View, from: View },
    /// An instruction executed again.
    Recompute { inst: Inst, regs: Vec<PReg> },
}

/// An edit that cannot be said in PTX.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotExpressible(pub String);

type Result<T> = std::result::Result<T, NotExpressible>;

/// The allocated code, read as operations on names.
pub(crate) struct Demands<'x> {
    function: &'x Function,
    target: &'x Target,
    allocation: &'x Allocation,
    pub views: Views,
    slots: Slots,
    /// Demand at the start of each block.
    at_start: Vec<ViewSet>,
    /// For the stores of the block at hand that are still ahead: what was last written
    /// there. Where a slot is reloaded as different things at different times, this tells
    /// which one is stored. It steers a choice among sound ones.
    hints: Vec<Option<View>>,
}

impl<'x> Demands<'x> {
    /// Solves the demands of an allocated function.
    pub fn solve(
        function: &'x Function,
        target: &'x Target,
        allocation: &'x Allocation,
    ) -> Result<Demands<'x>> {
        let views = Views::of(target);
        let none = ViewSet::new(&views);
        let mut demands = Demands {
            function,
            target,
            allocation,
            slots: Slots::default(),
            hints: Vec::new(),
            at_start: vec![none; function.block_count()],
            views,
        };
        loop {
            let mut again = false;
            demands.slots.changed = false;
            for block in function.blocks().rev() {
                let mut demand = demands.at_end(block)?;
                demands.through(block, &mut demand, None)?;
                let start = &mut demands.at_start[block.as_u32() as usize];
                if *start != demand {
                    *start = demand;
                    again = true;
                }
            }
            if !again && !demands.slots.changed {
                return Ok(demands);
            }
        }
    }

    /// Demand behind the terminator of `block`.
    fn at_end(&mut self, block: Block) -> Result<ViewSet> {
        let mut demand = ViewSet::new(&self.views);
        for succ in 0..self.function.succs(block).len() as u32 {
            let through = self.edge(block, succ, None)?;
            demand.union(&through);
        }
        Ok(demand)
    }

    /// Demand at the start of an edge; what it takes to go along it is appended to `out`.
    pub fn edge(
        &mut self,
        block: Block,
        succ: u32,
        mut out: Option<&mut Vec<Op>>,
    ) -> Result<ViewSet> {
        self.hints.clear();
        let to = self.function.succs(block)[succ as usize].block;
        let mut demand = self.at_start[to.as_u32() as usize].clone();
        let edits: SmallVec<[&Edit; 8]> = self.allocation.edits.on_edge(block, succ).collect();
        let mut pieces = Vec::new();
        for edit in edits.into_iter().rev() {
            let mut ops = Vec::new();
            self.edit(edit, &mut demand, &mut ops)?;
            pieces.push(ops);
        }
        if let Some(out) = out.as_mut() {
            out.extend(pieces.into_iter().rev().flatten());
        }
        Ok(demand)
    }

    /// Takes the demand behind the terminator of `block` to its start. What each instruction
    /// needs before and after it is appended to `out`, last instruction first.
    fn through(
        &mut self,
        block: Block,
        demand: &mut ViewSet,
        mut out: Option<&mut Vec<Around>>,
    ) -> Result<()> {
        let insts: Vec<Inst> = self.allocation.block_insts(self.function, block).collect();
        self.hints = self.natural_stores(&insts)?;
        for &inst in insts.iter().rev() {
            let mut around = Around {
                inst,
                before: Vec::new(),
                after: Vec::new(),
            };
            let edits: SmallVec<[&Edit; 4]> = self.allocation.edits.after(inst).collect();
            for edit in edits.into_iter().rev() {
                self.prepend(edit, demand, &mut around.after)?;
            }
            let conversions = self.instruction(inst, demand)?;
            around
                .after
                .splice(0..0, conversions.into_iter().map(Op::Convert));
            let edits: SmallVec<[&Edit; 4]> = self.allocation.edits.before(inst).collect();
            for edit in edits.into_iter().rev() {
                self.prepend(edit, demand, &mut around.before)?;
            }
            if let Some(out) = out.as_mut() {
                out.push(around);
            }
        }
        Ok(())
    }

    /// For each store of a block, in order: the view last written where it starts to read.
    fn natural_stores(&self, insts: &[Inst]) -> Result<Vec<Option<View>>> {
        let mut natural: FxHashMap<u16, View> = FxHashMap::default();
        let mut hints = Vec::new();
        let edits = &self.allocation.edits;
        for &inst in insts {
            for edit in edits.before(inst) {
                note_edit(edit, &mut natural, &mut hints);
            }
            let registers = self.allocation.operands(self.function, inst);
            for (operand, &reg) in self.function.operands(inst).iter().zip(registers) {
                if operand.role.writes() && reg.file == File::R {
                    let view = self.operand_view(operand, reg)?;
                    for unit in view.unit..self.views.end(view) {
                        natural.insert(unit, view);
                    }
                }
            }
            for edit in edits.after(inst) {
                note_edit(edit, &mut natural, &mut hints);
            }
        }
        Ok(hints)
    }

    /// What stands around each instruction of `block`, in order.
    pub fn code(&mut self, block: Block) -> Result<Vec<Around>> {
        let mut demand = self.at_end(block)?;
        let mut out = Vec::new();
        self.through(block, &mut demand, Some(&mut out))?;
        out.reverse();
        Ok(out)
    }

    fn prepend(&mut self, edit: &Edit, demand: &mut ViewSet, ops: &mut Vec<Op>) -> Result<()> {
        let mut here = Vec::new();
        self.edit(edit, demand, &mut here)?;
        ops.splice(0..0, here);
        Ok(())
    }

    /// The view of an operand in a register.
    pub fn operand_view(&self, operand: &function::Operand, reg: PReg) -> Result<View> {
        let class = self.function.vreg(operand.vreg).class;
        self.views.of_value(class, reg).ok_or_else(|| {
            let name = self.target.reg_name(reg);
            let class = &self.target.class(class).name;
            NotExpressible(format!("there is no PTX name for {class} in {name}"))
        })
    }

    fn instruction(
        &mut self,
        inst: Inst,
        demand: &mut ViewSet,
    ) -> Result<SmallVec<[Conversion; 4]>> {
        let kind = self.function.inst(inst).kind;
        let registers = self.allocation.operands(self.function, inst);
        if self.allocation.deleted.contains(inst) {
            return match kind {
                function::Kind::Copy => self.deleted_copy(inst, registers, demand),
                _ => Ok(SmallVec::new()),
            };
        }
        if kind == function::Kind::Undef {
            for (operand, &reg) in self.function.operands(inst).iter().zip(registers) {
                let made = self.operand_view(operand, reg)?;
                self.forget(made, demand);
            }
            return Ok(SmallVec::new());
        }
        self.execute(inst, registers, demand)
    }

    /// Whatever an undefined value's units hold will do.
    fn forget(&self, made: View, demand: &mut ViewSet) {
        let predicates = made.kind == Kind::Pred;
        for view in self.views.over(predicates, made.unit, self.views.end(made)) {
            if self.views.contains(made, view) {
                demand.remove(&self.views, view);
            }
        }
    }

    /// A deleted copy changes no register, but it is where the name changes: a good place to
    /// convert, so that a pair built up in a loop is packed behind the loop, and one taken apart
    /// is so here, rather than behind each of its definitions. What reads the source in place of
    /// the result may be anywhere below.
    fn deleted_copy(
        &mut self,
        inst: Inst,
        registers: &[PReg],
        demand: &mut ViewSet,
    ) -> Result<SmallVec<[Conversion; 4]>> {
        let mut reads = Units::new();
        for (operand, &reg) in self.function.operands(inst).iter().zip(registers) {
            if operand.role == Role::Use {
                reads.push(self.operand_view(operand, reg)?);
            }
        }
        let is_read = |unit: u16| {
            let mut sources = reads.iter();
            sources.any(|&v| (v.unit..self.views.end(v)).contains(&unit))
        };
        let mut wanted = Units::new();
        for &source in &reads {
            let predicates = source.kind == Kind::Pred;
            let end = self.views.end(source);
            for view in self.views.over(predicates, source.unit, end) {
                let is_whole = (view.unit..self.views.end(view)).all(is_read);
                let is_new = !reads.contains(&view) && !wanted.contains(&view);
                if is_whole && is_new && demand.has(&self.views, view) {
                    wanted.push(view);
                }
            }
        }
        if wanted.is_empty() {
            return Ok(SmallVec::new());
        }
        let mut provider = Provider::new(&self.views, &reads);
        for view in wanted {
            demand.remove(&self.views, view);
            provider.provide(view);
        }
        for view in reads.iter().chain(&provider.before) {
            demand.insert(&self.views, *view);
        }
        Ok(provider.out)
    }

    /// Any operation that reads and writes whole names.
    fn execute(
        &self,
        inst: Inst,
        registers: &[PReg],
        demand: &mut ViewSet,
    ) -> Result<SmallVec<[Conversion; 4]>> {
        let (mut reads, mut writes) = (Units::new(), Units::new());
        for (operand, &reg) in self.function.operands(inst).iter().zip(registers) {
            let view = self.operand_view(operand, reg)?;
            if operand.role.writes() {
                writes.push(view);
            }
            if operand.role.reads() {
                reads.push(view);
            }
        }
        Ok(self.write(&reads, &writes, demand))
    }

    /// Takes the demand back over an operation; the answer brings other names of what it
    /// wrote up to date.
    fn write(
        &self,
        reads: &[View],
        writes: &[View],
        demand: &mut ViewSet,
    ) -> SmallVec<[Conversion; 4]> {
        let mut provider = Provider::new(&self.views, writes);
        for &written in writes {
            let predicates = written.kind == Kind::Pred;
            let end = self.views.end(written);
            for view in self.views.over(predicates, written.unit, end) {
                if demand.has(&self.views, view) {
                    demand.remove(&self.views, view);
                    provider.provide(view);
                }
            }
        }
        for &view in reads.iter().chain(&provider.before) {
            demand.insert(&self.views, view);
        }
        provider.out
    }

    /// Takes the demand back over an edit and appends its operations to `out`.
    fn edit(&mut self, edit: &Edit, demand: &mut ViewSet, out: &mut Vec<Op>) -> Result<()> {
        match edit {
            &Edit::Move { to, from, width } => {
                let width = u16::from(width);
                let shift = |unit: u16| match unit.checked_sub(to.unit) {
                    Some(distance) if distance < width => from.unit + distance,
                    _ => unit,
                };
                let down = to.unit > from.unit;
                self.permute(to.file, &[(to.unit, width)], shift, down, demand, out)
            }
            &Edit::Swap { a, b, width } => {
                let width = u16::from(width);
                let within = |unit: u16, start: u16| {
                    unit.checked_sub(start).filter(|&distance| distance < width)
                };
                let exchange = |unit: u16| match (within(unit, a.unit), within(unit, b.unit)) {
                    (Some(distance), _) => b.unit + distance,
                    (_, Some(distance)) => a.unit + distance,
                    _ => unit,
                };
                let ranges = [(a.unit, width), (b.unit, width)];
                self.permute(a.file, &ranges, exchange, false, demand, out)
            }
            &Edit::Transfer { to, from, regs } => self.transfer(to, from, regs, demand, out),
            &Edit::Store { to, from, width } => self.store(to, from, width, demand, out),
            &Edit::Reload { to, from, width } => self.reload(to, from, width, demand, out),
            Edit::Recompute { inst, regs } => {
                let conversions = self.execute(*inst, regs, demand)?;
                out.push(Op::Recompute {
                    inst: *inst,
                    regs: regs.to_vec(),
                });
                out.extend(conversions.into_iter().map(Op::Convert));
                Ok(())
            }
        }
    }

    /// Demanded views of a file that meet one of the ranges, which are no longer demanded.
    fn take(&self, file: File, ranges: &[(u16, u16)], demand: &mut ViewSet) -> Result<Units> {
        let predicates = match file {
            File::R => false,
            File::P => true,
            _ => {
                let name = &self.target.file(file).name;
                return Err(NotExpressible(format!(
                    "PTX has no names for registers of {name}"
                )));
            }
        };
        let mut taken = Units::new();
        for &(unit, width) in ranges {
            for view in self.views.over(predicates, unit, unit + width) {
                if demand.has(&self.views, view) {
                    demand.remove(&self.views, view);
                    taken.push(view);
                }
            }
        }
        Ok(taken)
    }

    /// Units change places: `source` tells where the new contents of a unit come from.
    fn permute(
        &self,
        file: File,
        ranges: &[(u16, u16)],
        source: impl Fn(u16) -> u16 + Copy,
        highest_first: bool,
        demand: &mut ViewSet,
        out: &mut Vec<Op>,
    ) -> Result<()> {
        let taken = self.take(file, ranges, demand)?;
        let mut moves: Vec<(View, View)> = Vec::new();
        let mut packs: Vec<View> = Vec::new();
        for view in taken {
            self.moved(view, source, &mut moves, &mut packs)?;
        }
        for &(_, from) in &moves {
            demand.insert(&self.views, from);
        }
        moves.retain(|(to, from)| to != from);
        moves.sort_unstable();
        moves.dedup();
        if highest_first {
            moves.reverse();
        }
        for &(to, from) in &moves {
            if !moves.contains(&(from, to)) {
                out.push(Op::Move { to, from });
            } else if to < from {
                out.push(Op::Swap(to, from));
            }
        }
        let mut packed: Vec<View> = Vec::new();
        for view in packs {
            if !packed.contains(&view) {
                packed.push(view);
                out.push(Op::Convert(Conversion::Pack(view)));
            }
        }
        Ok(())
    }

    /// Where a view comes from: as a whole if its source is a view too, else by its parts.
    fn moved(
        &self,
        view: View,
        source: impl Fn(u16) -> u16 + Copy,
        moves: &mut Vec<(View, View)>,
        packs: &mut Vec<View>,
    ) -> Result<()> {
        let start = source(view.unit);
        let whole = (view.unit..self.views.end(view)).all(|u| source(u) == start + (u - view.unit));
        if whole && let Some(from) = self.views.starting(view.kind, start) {
            moves.push((view, from));
            return Ok(());
        }
        let parts = self.views.parts(view);
        if parts.is_empty() {
            let name = self.views.name(view);
            return Err(NotExpressible(format!("{name} is moved in pieces")));
        }
        for part in parts {
            self.moved(part, source, moves, packs)?;
        }
        packs.push(view);
        Ok(())
    }

    fn transfer(
        &self,
        to: PReg,
        from: PReg,
        regs: u8,
        demand: &mut ViewSet,
        out: &mut Vec<Op>,
    ) -> Result<()> {
        let step = self.views.width(Kind::Word);
        for reg in 0..u16::from(regs) {
            let (to, from, op): (_, _, fn(View, View) -> Op) = match (to.file, from.file) {
                (File::R, File::P) => (
                    self.views.starting(Kind::Word, to.unit + reg * step),
                    self.views.starting(Kind::Pred, from.unit + reg),
                    |to, from| Op::FromPredicate { to, from },
                ),
                (File::P, File::R) => (
                    self.views.starting(Kind::Pred, to.unit + reg),
                    self.views.starting(Kind::Word, from.unit + reg * step),
                    |to, from| Op::ToPredicate { to, from },
                ),
                _ => return Err(NotExpressible("PTX has no uniform registers".to_owned())),
            };
            let (Some(to), Some(from)) = (to, from) else {
                let message = "a predicate travels through part of a register";
                return Err(NotExpressible(message.to_owned()));
            };
            let conversions = self.write(&[from], &[to], demand);
            out.push(op(to, from));
            out.extend(conversions.into_iter().map(Op::Convert));
        }
        Ok(())
    }
}

/// Follows what is written where through an edit.
fn note_edit(edit: &Edit, natural: &mut FxHashMap<u16, View>, hints: &mut Vec<Option<View>>) {
    let mut forget = |reg: PReg, width: u8| {
        if reg.file == File::R {
            for unit in reg.unit..reg.unit + u16::from(width) {
                natural.remove(&unit);
            }
        }
    };
    match *edit {
        Edit::Move { to, width, .. } | Edit::Reload { to, width, .. } => forget(to, width),
        Edit::Swap { a, b, width } => {
            forget(a, width);
            forget(b, width);
        }
        Edit::Transfer { to, regs, .. } => forget(to, 2 * regs),
        Edit::Store { from, .. } => hints.push(natural.get(&from.unit).copied()),
        Edit::Recompute { ref regs, .. } => regs.iter().for_each(|&reg| forget(reg, 8)),
    }
}

type Units = SmallVec<[View; 8]>;

/// An instruction with what is inserted around it.
#[derive(Debug)]
pub(crate) struct Around {
    /// The instruction.
    pub inst: Inst,
    /// Operations in front of it.
    pub before: Vec<Op>,
    /// Operations behind it.
    pub after: Vec<Op>,
}
