//! From decoded code to the allocator's function.
//!
//! Every web of a general register or predicate is a virtual register one unit wide, and the
//! lanes of a wide operand are a group. All virtual registers are pinned: nothing may be
//! inserted, so that a value sits in one register wherever it is live, and the lanes of a
//! group keep their distances for good. A pair that two instructions write and a third reads,
//! or a vector written lane by lane, needs no rule of its own: its lanes are separate values
//! in one bundle.
//!
//! Control flow stands in block terminators that have no code. Every instruction counts as
//! one with effects, so that none is moved, deleted or executed twice.
//!
//! Where spill code may be inserted ([`Form::Spilled`]), only predicates and the stack pointer
//! are pinned, an instruction that moves control is its block's terminator, so that nothing is
//! put behind it, and instructions that [`recompute`] names may run again.

use super::webs::{Lane, Part, Web, Webs, is_renamed};
use super::{RecolourError, constraints, recompute};
use crate::cfg::{Cfg, Leave};
use crate::code::Code;
use crate::isa::{File, Flow, Inst, Operand, Reg};
use crate::liveness::Liveness;
use warpalloc::function::{
    self, Block, Builder, Constraint, Effect, Function, Kind, OperandGroup, Role, VReg,
};
use warpalloc::target::{self, Class, PReg};

/// The register that holds the stack pointer. Code outside of the function relies on it.
pub(crate) const STACK_POINTER: Reg = Reg {
    file: File::R,
    index: 1,
};

/// The function of some code, and which lanes are which of its operands.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub function: Function,
    /// The register that each virtual register has in the code.
    pub registers: Vec<Reg>,
    /// For each instruction of the code, its number in the function, unless no path reaches it.
    pub insts: Vec<Option<function::Inst>>,
    /// For each instruction of the code, how many lanes its renamed operands have.
    pub lanes: Vec<usize>,
}

/// Which registers keep their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// Those that something outside of the code or the instruction itself names.
    Implied,
    /// These and all predicates.
    Predicates,
}

/// What may become of the function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Its values get other registers, and nothing is inserted.
    Coloured,
    /// Copies and spill code may be inserted.
    Spilled,
}

/// What a terminator without code has for its instruction's number.
const NO_CODE: u64 = u64::MAX;

/// The register of the allocator's target for a register of the code.
pub(crate) fn preg(reg: Reg) -> PReg {
    let file = match reg.file {
        File::P => target::File::P,
        _ => target::File::R,
    };
    PReg::new(file, usize::from(reg.index))
}

/// The register of the code for one of the target.
pub(crate) fn reg(preg: PReg) -> Reg {
    Reg {
        file: match preg.file {
            target::File::P => File::P,
            _ => File::R,
        },
        // A target has fewer than 256 units of each of these files.
        index: preg.unit as u8,
    }
}

/// Lowers reachable code, or says which instruction can't be renamed. Instructions from `own` on
/// are of functions that others may call too, and keep their registers.
pub(crate) fn lower(
    name: &str,
    code: &Code,
    cfg: &Cfg,
    own: usize,
    keep: Keep,
    form: Form,
) -> Result<Lowered, RecolourError> {
    check(code, cfg, own)?;
    let liveness = Liveness::compute(code, cfg);
    let webs = Webs::find(code, cfg, &liveness, constraints::writes_early);
    let mut lower = Lower {
        code,
        builder: Builder::new(name),
        vregs: Vec::new(),
        own,
        keep,
        form,
        may_recompute: recompute::Allowed::of(code),
    };
    lower.vregs = webs
        .registers
        .iter()
        .map(|reg| {
            let class = match reg.file {
                File::P => Class::PRED,
                _ => Class::R32,
            };
            let vreg = lower.builder.vreg(class);
            if form == Form::Coloured || class == Class::PRED {
                lower.builder.pin(vreg);
            }
            vreg
        })
        .collect();
    lower.build(cfg, &webs)?;
    let function = lower.builder.finish();
    let lanes = webs.lanes.iter().map(Vec::len).collect();
    let mut registers = webs.registers;
    registers.push(STACK_POINTER);
    let mut insts = vec![None; code.insts().len()];
    for inst in function.insts() {
        let info = function.inst(inst);
        let has_code = match info.kind {
            Kind::Plain => true,
            Kind::Branch | Kind::Exit => info.imm != NO_CODE,
            _ => false,
        };
        if has_code {
            insts[info.imm as usize] = Some(inst);
        }
    }
    Ok(Lowered {
        function,
        registers,
        insts,
        lanes,
    })
}

/// Refuses code of which something outside of it knows registers.
fn check(code: &Code, cfg: &Cfg, own: usize) -> Result<(), RecolourError> {
    if let [_, other, ..] = cfg.entries() {
        let offset = Code::offset(cfg.blocks()[*other].insts.start);
        return Err(RecolourError::SecondEntry { offset });
    }
    for (number, block) in cfg.blocks().iter().enumerate() {
        let last = block.insts.end - 1;
        let refuse = |at: usize, why: &'static str| {
            Err(RecolourError::Instruction {
                offset: Code::offset(at),
                inst: code.insts()[at].to_string(),
                why,
            })
        };
        if !cfg.is_reachable(number) {
            let names = |inst: &Inst| inst.operands().iter().any(|o| o.file == File::R);
            let named = block.insts.clone().find(|&at| names(&code.insts()[at]));
            if let Some(at) = named {
                return refuse(at, "no path reaches it, and it names registers");
            }
            continue;
        }
        if block.calls_outside {
            return refuse(last, "it calls code that is not here");
        }
        if block.leaves == Leave::Return {
            return refuse(last, "it returns to code that is not here");
        }
        for at in block.insts.clone() {
            let inst = &code.insts()[at];
            // These wait for another grid or let it begin, and touch no register.
            let is_inert = matches!(inst.mnemonic(), "ACQBULK" | "PREEXIT");
            if !inst.is_rewritable() && !is_inert && at < own {
                return refuse(at, "its registers may not be renamed");
            }
        }
    }
    Ok(())
}

struct Lower<'a> {
    code: &'a Code,
    builder: Builder,
    /// The virtual register of each web.
    vregs: Vec<VReg>,
    /// How many instructions are the kernel's own.
    own: usize,
    keep: Keep,
    form: Form,
    may_recompute: recompute::Allowed,
}

impl Lower<'_> {
    fn build(&mut self, cfg: &Cfg, webs: &Webs) -> Result<(), RecolourError> {
        let entry = self.builder.block();
        let stack_pointer = self.builder.vreg(Class::R32);
        self.builder.pin(stack_pointer);
        self.builder.live_in(stack_pointer, preg(STACK_POINTER));
        let blocks: Vec<Option<Block>> = (0..cfg.blocks().len())
            .map(|block| cfg.is_reachable(block).then(|| self.builder.block()))
            .collect();
        let first = cfg.entries().first().and_then(|&block| blocks[block]);
        let first = first.ok_or(RecolourError::Empty)?;
        self.builder.edge(entry, first, &[]);
        self.builder.branch(entry, "go").imm(NO_CODE);
        for (number, block) in cfg.blocks().iter().enumerate() {
            let Some(here) = blocks[number] else { continue };
            for at in block.insts.clone() {
                for &web in &webs.undefined_before[at] {
                    self.undefined(here, webs, web);
                }
                let is_last = at + 1 == block.insts.end;
                let moves_control = is_last && self.code.insts()[at].flow() != Flow::Next;
                if self.form == Form::Coloured || !moves_control {
                    self.instruction(here, at, &webs.lanes[at], stack_pointer)?;
                }
            }
            for &web in &webs.undefined_behind[number] {
                self.undefined(here, webs, web);
            }
            for &succ in &block.succs {
                if let Some(succ) = blocks[succ] {
                    self.builder.edge(here, succ, &[]);
                }
            }
            let ends_in = match self.form {
                Form::Spilled => Some(block.insts.end - 1),
                Form::Coloured => None,
            };
            let ends_in = ends_in.filter(|&at| self.code.insts()[at].flow() != Flow::Next);
            let lanes = ends_in.map(|at| (at, &webs.lanes[at]));
            let (operands, groups) = match lanes {
                Some((at, lanes)) => self.operands(at, lanes, stack_pointer)?,
                None => Default::default(),
            };
            let mut last = match block.succs.is_empty() {
                true => self.builder.exit(here, "leave"),
                false => self.builder.branch(here, "go").effect(Effect::Write),
            };
            last = last.imm(ends_in.map_or(NO_CODE, |at| at as u64));
            for operand in operands {
                last = last.operand(operand);
            }
            for group in groups {
                last = last.group(group.first, group.len, group.align);
            }
            if block.leaves == Leave::Exit {
                last.use_fixed(stack_pointer, preg(STACK_POINTER));
            }
        }
        Ok(())
    }

    /// A web with unspecified contents from here on.
    fn undefined(&mut self, block: Block, webs: &Webs, web: Web) {
        if webs.registers[web as usize] == STACK_POINTER {
            return;
        }
        let vreg = self.vregs[web as usize];
        self.builder
            .inst(block, "undef")
            .kind(Kind::Undef)
            .def(vreg);
    }

    fn instruction(
        &mut self,
        block: Block,
        at: usize,
        lanes: &[Lane],
        stack_pointer: VReg,
    ) -> Result<(), RecolourError> {
        let (operands, groups) = self.operands(at, lanes, stack_pointer)?;
        let inst = &self.code.insts()[at];
        let cycles = self.may_recompute.cycles(inst);
        let cycles = cycles.filter(|_| self.form == Form::Spilled);
        let mut built = self.builder.inst(block, inst.mnemonic()).imm(at as u64);
        built = match cycles {
            Some(cycles) => built.remat(cycles),
            None => built.effect(Effect::Write),
        };
        for operand in operands {
            built = built.operand(operand);
        }
        for group in groups {
            built = built.group(group.first, group.len, group.align);
        }
        Ok(())
    }

    /// The operands of an instruction and the runs among them.
    fn operands(
        &self,
        at: usize,
        lanes: &[Lane],
        stack_pointer: VReg,
    ) -> Result<(Vec<function::Operand>, Vec<OperandGroup>), RecolourError> {
        let inst = &self.code.insts()[at];
        let keeps = at >= self.own;
        let mut operands: Vec<function::Operand> = Vec::with_capacity(lanes.len());
        let mut groups: Vec<OperandGroup> = Vec::new();
        let mut lanes = lanes.iter();
        let is_early = constraints::writes_early(inst);
        let renamed = inst.operands().iter().filter(|o| is_renamed(o.file));
        let mut before: Option<&Operand> = None;
        for operand in renamed {
            let before = before.replace(operand);
            if before.is_some_and(|before| constraints::is_one_run(inst, before, operand)) {
                self.extend_run(&mut groups, &operands, operand);
            } else if operand.width > 1 {
                groups.push(OperandGroup {
                    // An instruction has far fewer than 256 lanes.
                    first: operands.len() as u8,
                    len: operand.width,
                    align: constraints::alignment(operand.first, operand.width),
                });
            }
            for (reg, lane) in operand.registers().zip(&mut lanes) {
                let role = match lane.part {
                    Part::Read => Role::Use,
                    Part::Update => Role::UseDef,
                    Part::Write if is_early => Role::EarlyDef,
                    Part::Write => Role::Def,
                };
                let is_implied = operand.field.is_none() || keeps;
                operands.push(self.operand(lane, role, reg, is_implied, stack_pointer));
            }
        }
        if let (Some(guard), Some(lane)) = (inst.guard(), lanes.next()) {
            operands.push(self.operand(lane, Role::Use, guard.reg, keeps, stack_pointer));
        }
        let mut written: Vec<VReg> = operands
            .iter()
            .filter(|operand| operand.role.writes())
            .map(|operand| operand.vreg)
            .collect();
        written.sort_unstable();
        if written.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(RecolourError::Instruction {
                offset: Code::offset(at),
                inst: inst.to_string(),
                why: "it writes one register twice",
            });
        }
        Ok((operands, groups))
    }

    /// Makes `operand` the end of the run that the last operand is.
    fn extend_run(
        &self,
        groups: &mut Vec<OperandGroup>,
        operands: &[function::Operand],
        operand: &Operand,
    ) {
        let width = operand.width;
        let run = OperandGroup {
            first: operands.len() as u8 - width,
            len: 2 * width,
            align: constraints::alignment(operand.first - width, 2 * width),
        };
        groups.retain(|group| group.first != run.first);
        groups.push(run);
    }

    fn operand(
        &self,
        lane: &Lane,
        role: Role,
        reg: Reg,
        is_implied: bool,
        stack_pointer: VReg,
    ) -> function::Operand {
        if reg == STACK_POINTER {
            // One value for all of the code, so that nothing else is ever put there.
            let fixed = Constraint::Fixed(preg(reg));
            let role = match role {
                Role::Use => Role::Use,
                _ => Role::UseDef,
            };
            return function::Operand::with_role(stack_pointer, role).constrained(fixed);
        }
        let vreg = self.vregs[lane.web as usize];
        let is_kept = reg.file == File::P && self.keep == Keep::Predicates;
        match is_implied || is_kept {
            true => {
                function::Operand::with_role(vreg, role).constrained(Constraint::Fixed(preg(reg)))
            }
            false => function::Operand::with_role(vreg, role),
        }
    }
}
