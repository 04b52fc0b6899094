//! Building functions.

use super::*;
use crate::target::ConventionError;
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Builds a [`Function`] block by block.
///
/// ```
/// use warpalloc::function::{Builder, Effect};
/// use warpalloc::target::Class;
///
/// let mut b = Builder::new("scale");
/// let entry = b.block();
/// let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
/// b.inst(entry, "load").def(x).effect(Effect::Read);
/// b.inst(entry, "mul").def(y).use_(x).imm(3);
/// b.inst(entry, "store").use_(y).effect(Effect::Write);
/// b.exit(entry, "exit");
/// let function = b.finish();
/// assert_eq!(function.inst_count(), 4);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    name: String,
    convention: Convention,
    blocks: Vec<PendingBlock>,
    insts: Vec<InstInfo>,
    operands: Vec<Operand>,
    groups: Vec<OperandGroup>,
    vregs: PrimaryMap<VReg, VRegInfo>,
    opcodes: PrimaryMap<Opcode, String>,
    opcode_ids: FxHashMap<String, Opcode>,
    reg_lists: PrimaryMap<RegList, Vec<PReg>>,
    aliases: PrimaryMap<AliasClass, Alias>,
    alias_ids: FxHashMap<Alias, AliasClass>,
    live_ins: Vec<(VReg, Constraint)>,
    /// What no function can hold, which the validator reports.
    fault: Option<String>,
}

/// An instruction of a function that is still being built.
///
/// It is the handle that [`InstBuilder::handle`] gives back. Once the function is finished,
/// [`Insts`] has the [`Inst`] that it became.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(u32);

/// The instructions that handles became.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Insts(Vec<Inst>);

impl Insts {
    /// The instruction that `handle` became; none if another builder made the handle, or if
    /// the instruction was added to a block that does not exist.
    pub fn get(&self, handle: Handle) -> Option<Inst> {
        let inst = self.0.get(handle.0 as usize).copied();
        inst.filter(|&inst| inst != Inst::NONE)
    }
}

#[derive(Clone, Debug, Default)]
struct PendingBlock {
    params: Vec<VReg>,
    insts: Vec<u32>,
    succs: Vec<Edge>,
    frequency: Option<f32>,
}

impl Builder {
    /// An empty function called `name`.
    pub fn new(name: impl Into<String>) -> Builder {
        Builder {
            name: name.into(),
            ..Builder::default()
        }
    }

    /// Sets what the function owes its caller.
    pub fn convention(&mut self, convention: Convention) {
        self.convention = convention;
    }

    /// Adds a block at the end; the first one is the entry.
    pub fn block(&mut self) -> Block {
        self.blocks.push(PendingBlock::default());
        Block::new(self.blocks.len() - 1)
    }

    /// Adds a virtual register.
    pub fn vreg(&mut self, class: Class) -> VReg {
        self.described(VRegInfo {
            class,
            uniform: false,
            pinned: false,
            hint: None,
        })
    }

    /// Adds a virtual register of this description.
    pub(crate) fn described(&mut self, info: VRegInfo) -> VReg {
        self.vregs.push(info)
    }

    /// Says that all threads of a warp hold the same value in `vreg`.
    pub fn uniform(&mut self, vreg: VReg) {
        if let Some(info) = self.known(vreg, || "is uniform".to_owned()) {
            info.uniform = true;
        }
    }

    /// Says that `vreg` may never be moved, stored or reloaded while it is live, because the
    /// hardware writes it at a time of its own choosing.
    pub fn pin(&mut self, vreg: VReg) {
        if let Some(info) = self.known(vreg, || "is pinned".to_owned()) {
            info.pinned = true;
        }
    }

    /// Says that `vreg` had better be in `reg`, where that is free. The last hint counts.
    pub fn hint(&mut self, vreg: VReg, reg: PReg) {
        let (file, unit) = (reg.file.index(), reg.unit);
        let what = || format!("is hinted to unit {unit} of file {file}");
        if let Some(info) = self.known(vreg, what) {
            info.hint = Some(reg);
        }
    }

    /// The class of `vreg`, if there is such a virtual register.
    pub fn class_of(&self, vreg: VReg) -> Option<Class> {
        self.vregs.get(vreg).map(|info| info.class)
    }

    /// The description of `vreg`. One that does not exist is a fault, which the validator
    /// reports; `what` was to be said of it.
    fn known(&mut self, vreg: VReg, what: impl FnOnce() -> String) -> Option<&mut VRegInfo> {
        if self.vregs.get(vreg).is_none() {
            let fault = || format!("{vreg} does not exist, but {}", what());
            self.fault.get_or_insert_with(fault);
        }
        self.vregs.get_mut(vreg)
    }

    /// Adds a parameter to `block`.
    pub fn param(&mut self, block: Block, vreg: VReg) {
        if let Some(pending) = self.pending(block, || format!("{vreg} is a parameter of it")) {
            pending.params.push(vreg);
        }
    }

    /// Says how often `block` runs, the entry running once.
    pub fn frequency(&mut self, block: Block, frequency: f32) {
        if let Some(pending) = self.pending(block, || "it has a frequency".to_owned()) {
            pending.frequency = Some(frequency);
        }
    }

    /// The block to add to. One that does not exist is a fault, which the validator reports;
    /// `what` was to be added to it.
    fn pending(
        &mut self,
        block: Block,
        what: impl FnOnce() -> String,
    ) -> Option<&mut PendingBlock> {
        if block.index() >= self.blocks.len() {
            let fault = || format!("{block} does not exist, but {}", what());
            self.fault.get_or_insert_with(fault);
        }
        self.blocks.get_mut(block.index())
    }

    /// Keeps a list of registers for constraints and clobbers.
    pub fn reg_list(&mut self, regs: impl IntoIterator<Item = PReg>) -> RegList {
        self.reg_lists.push(regs.into_iter().collect())
    }

    /// Says that `vreg` is in `reg` when the function is entered.
    ///
    /// All of them together become the first instruction of the entry, of kind
    /// [`Kind::LiveIn`]. Nothing is placed above it but the saves of preserved registers.
    pub fn live_in(&mut self, vreg: VReg, reg: PReg) {
        self.live_ins.push((vreg, Constraint::Fixed(reg)));
    }

    /// Says that the caller left `vreg` in memory, `offset` bytes above the first argument
    /// there ([`Space::Argument`](crate::allocation::Space::Argument)). It is reloaded from
    /// there, and needs no slot of its own.
    pub fn live_in_memory(&mut self, vreg: VReg, offset: u32) {
        self.live_ins.push((vreg, Constraint::Argument(offset)));
    }

    /// Says that `vregs` are the arguments of the function, in the registers that the
    /// convention of `target` has for them.
    pub fn arguments(&mut self, target: &Target, vregs: &[VReg]) -> Result<(), ConventionError> {
        let regs = target.argument_registers(&self.classes(vregs))?;
        let places = regs.into_iter().map(Constraint::Fixed);
        self.live_ins.extend(vregs.iter().copied().zip(places));
        Ok(())
    }

    /// The classes of `vregs`. One that does not exist is a fault, which the validator
    /// reports; the first class stands for its own.
    fn classes(&mut self, vregs: &[VReg]) -> Vec<Class> {
        let class = |&vreg: &VReg| {
            let info = self.known(vreg, || "is passed or received".to_owned());
            info.map_or(Class::new(0), |info| info.class)
        };
        vregs.iter().map(class).collect()
    }

    /// Adds an edge from `from` to `to`, after those it already has.
    pub fn edge(&mut self, from: Block, to: Block, args: &[VReg]) {
        let args = args.to_vec();
        let edge = Edge { block: to, args };
        if let Some(pending) = self.pending(from, || format!("an edge leads from it to {to}")) {
            pending.succs.push(edge);
        }
    }

    /// Appends an instruction to `block`.
    pub fn inst(&mut self, block: Block, opcode: &str) -> InstBuilder<'_> {
        let name = opcode;
        let opcode = self.intern(name);
        let index = self.insts.len();
        let operands = self.operands.len() as u32;
        let groups = self.groups.len() as u32;
        self.insts.push(InstInfo {
            opcode,
            operands: operands..operands,
            groups: groups..groups,
            ..InstInfo::NONE
        });
        if let Some(pending) = self.pending(block, || format!("`{name}` is in it")) {
            pending.insts.push(index as u32);
        }
        InstBuilder {
            builder: self,
            index,
            has_clobbers: false,
        }
    }

    /// Appends `to = from`.
    pub fn copy(&mut self, block: Block, to: VReg, from: VReg) -> InstBuilder<'_> {
        self.inst(block, "mov").kind(Kind::Copy).def(to).use_(from)
    }

    /// Appends a call, which overwrites what the target's convention does not preserve unless
    /// [`InstBuilder::clobbers`] says otherwise.
    pub fn call(&mut self, block: Block, opcode: &str) -> InstBuilder<'_> {
        let inst = self.inst(block, opcode).kind(Kind::Call);
        inst.effect(Effect::Write)
    }

    /// Ends `block` with a branch along the edges added for it.
    pub fn branch(&mut self, block: Block, opcode: &str) -> InstBuilder<'_> {
        self.inst(block, opcode).kind(Kind::Branch)
    }

    /// Ends `block` with an unconditional jump to `to`.
    pub fn jump(&mut self, block: Block, to: Block, args: &[VReg]) -> InstBuilder<'_> {
        self.edge(block, to, args);
        self.branch(block, "bra")
    }

    /// Ends `block` by returning.
    pub fn ret(&mut self, block: Block, opcode: &str) -> InstBuilder<'_> {
        let inst = self.inst(block, opcode).kind(Kind::Return);
        inst.effect(Effect::Write)
    }

    /// Ends `block` by ending the thread.
    pub fn exit(&mut self, block: Block, opcode: &str) -> InstBuilder<'_> {
        let inst = self.inst(block, opcode).kind(Kind::Exit);
        inst.effect(Effect::Write)
    }

    /// The finished function, its instructions numbered in code order.
    ///
    /// Opcodes and register lists are numbered by their first mention in code order, so
    /// that functions with the same code are equal, in whatever order they were built.
    ///
    /// Nothing is checked here; [`Function::validate`] does that, and so does
    /// [`allocate`](crate::allocate).
    pub fn finish(self) -> Function {
        self.finish_with_insts().0
    }

    /// The finished function, and the instruction that each [`Handle`] became.
    pub fn finish_with_insts(mut self) -> (Function, Insts) {
        self.place_live_ins();
        let mut numbers = Insts(vec![Inst::NONE; self.insts.len()]);
        let order = self.blocks.iter().flat_map(|block| &block.insts);
        for (new, &old) in order.clone().enumerate() {
            numbers.0[old as usize] = Inst::new(new);
        }
        // Code that was built in its order stays where it is; other code moves.
        if !order.copied().eq(0..self.insts.len() as u32) {
            self.put_in_order();
        }
        let (mut blocks, mut block_of) = (PrimaryMap::new(), Vec::with_capacity(self.insts.len()));
        let preds = predecessors(&self.blocks);
        for (pending, preds) in self.blocks.into_iter().zip(preds) {
            let first = block_of.len() as u32;
            block_of.resize(block_of.len() + pending.insts.len(), blocks.next_key());
            blocks.push(BlockInfo {
                params: pending.params,
                succs: pending.succs,
                frequency: pending.frequency,
                insts: first..block_of.len() as u32,
                preds,
            });
        }
        let mut opcodes = Renumbering::of(&self.opcodes);
        let mut reg_lists = Renumbering::of(&self.reg_lists);
        let mut aliases = Renumbering::of(&self.aliases);
        aliases.new.push(Alias::ANY);
        for info in &mut self.insts {
            let own = info.operands.start as usize..info.operands.end as usize;
            let own = &mut self.operands[own];
            info.is_free = info.groups.is_empty() && own.iter().all(Operand::is_free);
            for operand in own {
                if let Constraint::Except(list) = &mut operand.constraint {
                    *list = reg_lists.new_number(*list);
                }
            }
            if let Clobbers::List(list) = &mut info.clobbers {
                *list = reg_lists.new_number(*list);
            }
            if info.alias != AliasClass::ANY {
                info.alias = aliases.new_number(info.alias);
            }
            info.opcode = opcodes.new_number(info.opcode);
        }
        let insts = PrimaryMap::from(self.insts);
        let function = Function {
            name: self.name,
            convention: self.convention,
            table: Table::of(&insts, &self.vregs, &blocks),
            blocks,
            insts,
            block_of,
            operands: self.operands,
            groups: self.groups,
            vregs: self.vregs,
            opcodes: opcodes.new,
            reg_lists: reg_lists.new,
            aliases: aliases.new,
            fault: self.fault,
        };
        (function, numbers)
    }

    /// Puts instructions, operands and groups in code order; instructions of no block go.
    fn put_in_order(&mut self) {
        let mut insts = Vec::with_capacity(self.insts.len());
        let mut operands = Vec::with_capacity(self.operands.len());
        let mut groups = Vec::with_capacity(self.groups.len());
        for &old in self.blocks.iter().flat_map(|block| &block.insts) {
            let mut info = self.insts[old as usize].clone();
            info.operands = append(&mut operands, &self.operands, info.operands);
            info.groups = append(&mut groups, &self.groups, info.groups);
            insts.push(info);
        }
        (self.insts, self.operands, self.groups) = (insts, operands, groups);
    }

    /// Makes the live-in instruction; without a block there is nowhere to put it, which the
    /// validator says.
    fn place_live_ins(&mut self) {
        let live_ins = std::mem::take(&mut self.live_ins);
        if live_ins.is_empty() || self.blocks.is_empty() {
            return;
        }
        let mut inst = self.inst(Block::new(0), "entry").kind(Kind::LiveIn);
        inst = inst.effect(Effect::Write);
        for (vreg, place) in live_ins {
            inst = inst.operand(Operand::writes(vreg).constrained(place));
        }
        self.blocks[0].insts.rotate_right(1);
    }

    fn intern(&mut self, name: &str) -> Opcode {
        if let Some(&opcode) = self.opcode_ids.get(name) {
            return opcode;
        }
        let opcode = self.opcodes.push(name.to_owned());
        self.opcode_ids.insert(name.to_owned(), opcode);
        opcode
    }
}

/// Numbers the entries of a table anew by their first mention; equal ones become one.
struct Renumbering<'a, K: EntityRef, T> {
    old: &'a PrimaryMap<K, T>,
    new: PrimaryMap<K, T>,
    numbers: FxHashMap<&'a T, K>,
}

impl<'a, K: EntityRef, T: Clone + Eq + Hash> Renumbering<'a, K, T> {
    fn of(old: &'a PrimaryMap<K, T>) -> Self {
        Renumbering {
            old,
            new: PrimaryMap::new(),
            numbers: FxHashMap::default(),
        }
    }

    /// The new number of `key`; one that does not exist is left to the validator.
    fn new_number(&mut self, key: K) -> K {
        match self.old.get(key) {
            Some(entry) => *self
                .numbers
                .entry(entry)
                .or_insert_with(|| self.new.push(entry.clone())),
            None => key,
        }
    }
}

/// Predecessors of each block; edges to blocks that do not exist are left to the validator.
fn predecessors(blocks: &[PendingBlock]) -> Vec<Vec<Block>> {
    let mut preds = vec![Vec::new(); blocks.len()];
    for (index, block) in blocks.iter().enumerate() {
        for edge in &block.succs {
            if let Some(list) = preds.get_mut(edge.block.index()) {
                list.push(Block::new(index));
            }
        }
    }
    preds
}

fn append<T: Copy>(to: &mut Vec<T>, from: &[T], range: Range<u32>) -> Range<u32> {
    let start = to.len() as u32;
    to.extend_from_slice(&from[range.start as usize..range.end as usize]);
    start..to.len() as u32
}

/// Describes the instruction that was just appended.
///
/// Its methods append operands in the client's order and say what else there is to know;
/// [`InstBuilder::handle`] ends the description and gives back the instruction.
pub struct InstBuilder<'a> {
    builder: &'a mut Builder,
    index: usize,
    /// Whether its clobbers were said, rather than implied by its kind.
    has_clobbers: bool,
}

impl InstBuilder<'_> {
    fn info(&mut self) -> &mut InstInfo {
        &mut self.builder.insts[self.index]
    }

    /// The instruction that is described.
    pub fn handle(self) -> Handle {
        Handle(self.index as u32)
    }

    /// Attaches a number of the client's, such as an index into its own instructions, which
    /// [`InstInfo::payload`] has again.
    pub fn payload(mut self, payload: u32) -> Self {
        self.info().payload = payload;
        self
    }

    /// Appends an operand.
    pub fn operand(mut self, operand: Operand) -> Self {
        self.builder.operands.push(operand);
        self.info().operands.end += 1;
        self
    }

    /// Appends an input in any register.
    pub fn use_(self, vreg: VReg) -> Self {
        self.operand(Operand::reads(vreg))
    }

    /// Appends a result in any register.
    pub fn def(self, vreg: VReg) -> Self {
        self.operand(Operand::writes(vreg))
    }

    /// Appends a result in any register that is written while inputs may still be read, so
    /// that it shares no register with any of them.
    pub fn early_def(self, vreg: VReg) -> Self {
        self.operand(Operand::with_role(vreg, Role::EarlyDef))
    }

    /// Appends a result in the register of the input at position `input` among the operands.
    pub fn tied(self, vreg: VReg, input: u8) -> Self {
        self.operand(Operand::writes(vreg).constrained(Constraint::Tied(input)))
    }

    /// Keeps the operand that was just appended out of these registers.
    pub fn except(mut self, regs: impl IntoIterator<Item = PReg>) -> Self {
        let list = self.builder.reg_list(regs);
        if self.info().operands.is_empty() {
            let name = &self.builder.opcodes[self.builder.insts[self.index].opcode];
            let fault = || format!("an exclusion of `{name}` has no operand before it");
            self.builder.fault.get_or_insert_with(fault);
        } else if let Some(operand) = self.builder.operands.last_mut() {
            operand.constraint = Constraint::Except(list);
        }
        self
    }

    /// Appends an operand that is read and written in place.
    pub fn use_def(self, vreg: VReg) -> Self {
        self.operand(Operand::with_role(vreg, Role::UseDef))
    }

    /// Appends an input that must be in `reg`.
    pub fn use_fixed(self, vreg: VReg, reg: PReg) -> Self {
        self.operand(Operand::reads(vreg).constrained(Constraint::Fixed(reg)))
    }

    /// Appends a result that must be in `reg`.
    pub fn def_fixed(self, vreg: VReg, reg: PReg) -> Self {
        self.operand(Operand::writes(vreg).constrained(Constraint::Fixed(reg)))
    }

    /// Appends an input that may be in a register or in a slot of the spill frame.
    pub fn use_anywhere(self, vreg: VReg) -> Self {
        self.operand(Operand::reads(vreg).constrained(Constraint::Anywhere))
    }

    /// Appends an input in a slot of the spill frame.
    pub fn use_in_memory(self, vreg: VReg) -> Self {
        self.operand(Operand::reads(vreg).constrained(Constraint::Memory))
    }

    /// Appends a result that may be in a register or in a slot of the spill frame.
    pub fn def_anywhere(self, vreg: VReg) -> Self {
        self.operand(Operand::writes(vreg).constrained(Constraint::Anywhere))
    }

    /// Appends a result in a slot of the spill frame.
    pub fn def_in_memory(self, vreg: VReg) -> Self {
        self.operand(Operand::writes(vreg).constrained(Constraint::Memory))
    }

    /// Appends inputs that are passed to a function, in the registers that the convention of
    /// `target` has for arguments.
    pub fn pass(self, target: &Target, vregs: &[VReg]) -> Result<Self, ConventionError> {
        let regs = target.argument_registers(&self.builder.classes(vregs))?;
        let inputs = vregs.iter().zip(regs);
        Ok(inputs.fold(self, |inst, (&vreg, reg)| inst.use_fixed(vreg, reg)))
    }

    /// Appends inputs that a return hands to the caller, in the registers that the
    /// convention of `target` has for results.
    pub fn give(self, target: &Target, vregs: &[VReg]) -> Result<Self, ConventionError> {
        let regs = target.result_registers(&self.builder.classes(vregs))?;
        let inputs = vregs.iter().zip(regs);
        Ok(inputs.fold(self, |inst, (&vreg, reg)| inst.use_fixed(vreg, reg)))
    }

    /// Appends results that a call receives, in the registers that the convention of
    /// `target` has for them.
    pub fn receive(self, target: &Target, vregs: &[VReg]) -> Result<Self, ConventionError> {
        let regs = target.result_registers(&self.builder.classes(vregs))?;
        let results = vregs.iter().zip(regs);
        Ok(results.fold(self, |inst, (&vreg, reg)| inst.def_fixed(vreg, reg)))
    }

    /// Demands that `len` operands from position `first` on take consecutive registers.
    pub fn group(mut self, first: u8, len: u8, align: u8) -> Self {
        let group = OperandGroup { first, len, align };
        self.builder.groups.push(group);
        self.info().groups.end += 1;
        self
    }

    /// Sets what distinguishes it from other instructions of its opcode.
    pub fn imm(mut self, imm: u64) -> Self {
        self.info().imm = imm;
        self
    }

    /// Sets what it observes or changes.
    pub fn effect(mut self, effect: Effect) -> Self {
        self.info().effect = effect;
        self
    }

    /// Says which state its effect concerns; any, unless this is said.
    pub fn alias(self, alias: Alias) -> Self {
        let builder = &mut *self.builder;
        if builder.aliases.is_empty() {
            builder.aliases.push(Alias::ANY);
            builder.alias_ids.insert(Alias::ANY, AliasClass::ANY);
        }
        let ids = &mut builder.alias_ids;
        let new = || builder.aliases.push(alias);
        self.builder.insts[self.index].alias = *ids.entry(alias).or_insert_with(new);
        self
    }

    /// Sets what allocation knows of its meaning. A call overwrites what the target's
    /// convention does not preserve, unless its clobbers are said.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.info().kind = kind;
        if kind == Kind::Call && !self.has_clobbers {
            self.info().clobbers = Clobbers::Abi;
        }
        self
    }

    /// Allows executing it again, at this cost in cycles.
    pub fn remat(mut self, cycles: u8) -> Self {
        self.info().remat = Some(cycles);
        self
    }

    /// Lets it keep its place: no instruction changes sides with it.
    pub fn anchored(mut self) -> Self {
        self.info().anchored = true;
        self
    }

    /// Sets the registers it overwrites.
    pub fn clobbers(mut self, clobbers: Clobbers) -> Self {
        self.info().clobbers = clobbers;
        self.has_clobbers = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks are often filled in another order than they stand in, and arguments add an
    /// instruction in front of all others.
    #[test]
    fn a_handle_finds_its_instruction_wherever_it_ends_up() {
        let mut b = Builder::new("f");
        let (first, second) = (b.block(), b.block());
        let x = b.vreg(Class::R32);
        let late = b.ret(second, "ret").payload(70).handle();
        let early = b.inst(first, "use").use_(x).payload(50).handle();
        let stray = b.inst(Block::new(9), "stray").handle();
        let jump = b.jump(first, second, &[]).payload(60).handle();
        b.live_in(x, PReg::new(crate::target::File::R, 4));
        let (f, insts) = b.finish_with_insts();
        let of = |handle| {
            insts
                .get(handle)
                .map(|inst| (inst.index(), f.inst(inst).payload))
        };
        assert_eq!(of(early), Some((1, 50)));
        assert_eq!(of(jump), Some((2, 60)));
        assert_eq!(of(late), Some((3, 70)));
        assert_eq!(of(stray), None);
    }

    #[test]
    fn the_order_of_building_does_not_show() {
        let build = |backwards: bool| {
            let mut b = Builder::new("f");
            let blocks = [b.block(), b.block()];
            let x = b.vreg(Class::R32);
            let fill = |b: &mut Builder, second: bool| match second {
                true => {
                    b.inst(blocks[1], "use").use_(x).group(0, 1, 1).except([]);
                    b.exit(blocks[1], "exit");
                }
                false => {
                    b.inst(blocks[0], "def").early_def(x);
                    b.jump(blocks[0], blocks[1], &[]);
                }
            };
            fill(&mut b, backwards);
            fill(&mut b, !backwards);
            b.finish()
        };
        assert_eq!(build(false), build(true));
    }

    #[test]
    fn a_call_clobbers_by_its_convention_unless_told_otherwise() {
        let mut b = Builder::new("f");
        let block = b.block();
        let calls = [
            b.call(block, "call").handle(),
            b.inst(block, "call").kind(Kind::Call).handle(),
            b.call(block, "call").clobbers(Clobbers::None).handle(),
            b.inst(block, "call")
                .clobbers(Clobbers::None)
                .kind(Kind::Call)
                .handle(),
        ];
        let (f, insts) = b.finish_with_insts();
        let clobbers = calls.map(|call| f.inst(insts.get(call).unwrap()).clobbers);
        assert_eq!(clobbers[..2], [Clobbers::Abi; 2]);
        assert_eq!(clobbers[2..], [Clobbers::None; 2]);
    }
}
