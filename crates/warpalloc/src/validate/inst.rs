//! Rules for single instructions.

use super::*;
use crate::target::{RegSet, SpillPath};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::num::NonZeroU16;

/// Memory shared by the checks of all instructions.
struct Scratch {
    /// The last instruction that read each virtual register; empty until somebody asks.
    read_by: Vec<u32>,
    /// The last instruction that wrote each virtual register.
    written_by: Vec<u32>,
    /// Whether an exclusion leaves a class any register.
    exclusions: FxHashMap<(RegList, Class), bool>,
    /// The units each virtual register takes, none if its class is unknown.
    widths: Vec<Option<NonZeroU16>>,
    /// Units of the smallest file: operands of no more units in all fit any.
    smallest_file: usize,
}

/// What one pass over the operands of an instruction tells.
#[derive(Default)]
struct Overview {
    /// Units of all operands together.
    units: usize,
    /// Whether a register is demanded that others have to make way for.
    demanding: bool,
    has_result: bool,
    changes_in_place: bool,
    /// Whether a result was written before.
    is_written_again: bool,
}

impl Rules<'_> {
    /// Checks all instructions; whether each virtual register is written at one place.
    pub(super) fn instructions(&self) -> Result<bool, Error> {
        let f = self.function;
        let width = |vreg| {
            let class = f.vreg(vreg).class;
            let known = class.index() < self.target.classes().len();
            known.then(|| self.target.width(class) as u16)
        };
        let mut scratch = Scratch {
            widths: f
                .vregs()
                .map(|v| width(v).and_then(NonZeroU16::new))
                .collect(),
            read_by: Vec::new(),
            written_by: vec![u32::MAX; f.vreg_count()],
            exclusions: FxHashMap::default(),
            smallest_file: self
                .target
                .files()
                .map(|(_, info)| info.capacity)
                .min()
                .unwrap_or(0),
        };
        if f.has_hints() {
            self.hints()?;
        }
        let mut is_single = true;
        for inst in f.insts() {
            let mut overview = Overview::default();
            self.operands(inst, &mut scratch, &mut overview)?;
            is_single &= !overview.is_written_again;
            let info = f.inst(inst);
            if info.kind != Kind::Plain {
                self.kind(self.place(inst), inst)?;
            }
            if info.remat.is_some() {
                self.remat(self.place(inst), inst, &overview)?;
            }
            if let Clobbers::List(list) = info.clobbers {
                self.list(self.place(inst), list)?;
            }
            if overview.demanding || !f.groups(inst).is_empty() {
                self.placement(self.place(inst), inst)?;
            }
            if overview.units > scratch.smallest_file {
                self.capacity(self.place(inst), inst, &mut scratch)?;
            }
        }
        for &param in f.blocks().flat_map(|block| &f.block(block).params) {
            let before = std::mem::replace(&mut scratch.written_by[param.index()], 0);
            is_single &= before == u32::MAX;
        }
        // Those that nothing mentions have a class all the same.
        if scratch.widths.contains(&None) {
            f.vregs()
                .try_for_each(|vreg| self.vreg(Place::Function, vreg))?;
        }
        Ok(is_single)
    }

    fn hints(&self) -> Result<(), Error> {
        let f = self.function;
        for vreg in f.vregs() {
            let info = f.vreg(vreg);
            let Some(reg) = info.hint else { continue };
            self.vreg(Place::Function, vreg)?;
            self.file(Place::Function, reg)?;
            let class = self.target.class(info.class);
            if reg.file != class.file {
                let (name, class) = (self.target.reg_name(reg), &class.name);
                let message = format!("{vreg} is hinted to {name}, where no {class} starts");
                return invalid(Place::Function, message);
            }
        }
        Ok(())
    }

    /// Where to look, if something is wrong with `inst`.
    fn place(&self, inst: Inst) -> Place {
        Place::Inst(self.function.block_of(inst), inst)
    }

    fn operands(
        &self,
        inst: Inst,
        scratch: &mut Scratch,
        overview: &mut Overview,
    ) -> Result<(), Error> {
        let f = self.function;
        let operands = f.operands(inst);
        if operands.len() > MAX_OPERANDS {
            let count = operands.len();
            return invalid(
                self.place(inst),
                format!("it has {count} operands, {MAX_OPERANDS} is the most"),
            );
        }
        for operand in operands {
            let vreg = operand.vreg;
            match scratch.widths.get(vreg.index()) {
                Some(Some(width)) => overview.units += usize::from(width.get()),
                // Which it is is told by what checks the two one after the other.
                _ => self.vreg(self.place(inst), vreg)?,
            }
            if operand.role.writes() {
                overview.has_result = true;
                overview.changes_in_place |= operand.role == Role::UseDef;
                let seen = &mut scratch.written_by[vreg.index()];
                if *seen == inst.index() as u32 {
                    return invalid(self.place(inst), format!("it writes {vreg} twice"));
                }
                overview.is_written_again |= *seen != u32::MAX;
                *seen = inst.index() as u32;
            }
            if operand.constraint != Constraint::Any {
                overview.demanding |= self.constraint(inst, operand, scratch)?;
            }
        }
        Ok(())
    }

    /// Whether others have to make way for `operand`, whose constraint makes sense.
    fn constraint(
        &self,
        inst: Inst,
        operand: &Operand,
        scratch: &mut Scratch,
    ) -> Result<bool, Error> {
        let place = self.place(inst);
        match operand.constraint {
            Constraint::Any => return Ok(false),
            Constraint::Fixed(reg) => self.fixed(place, operand.vreg, reg)?,
            Constraint::Tied(position) => self.tie(place, inst, operand, position)?,
            Constraint::Except(list) => {
                self.exclusion(place, operand.vreg, list, scratch)?;
                return Ok(false);
            }
            Constraint::Anywhere | Constraint::Memory | Constraint::Argument(_) => {
                self.in_memory(place, inst, operand)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Operands that may be in memory are plain, stand alone, and get there by themselves.
    fn in_memory(&self, place: Place, inst: Inst, operand: &Operand) -> Result<(), Error> {
        let f = self.function;
        let vreg = operand.vreg;
        let info = f.vreg(vreg);
        let class = self.target.class(info.class);
        let kind = f.inst(inst).kind;
        let operands = f.operands(inst);
        let at = operands.iter().position(|o| std::ptr::eq(o, operand));
        let at = at.unwrap_or(usize::MAX);
        let is_argument = matches!(operand.constraint, Constraint::Argument(_));
        let is_tied = |o: &Operand| o.constraint == Constraint::Tied(at as u8);
        let in_group = |g: &OperandGroup| g.range().contains(&at);
        let problem = if is_argument != (kind == Kind::LiveIn) {
            "only arguments are in the caller's memory, and in no other"
        } else if !matches!(operand.role, Role::Use | Role::Def) {
            "it is neither a plain input nor a plain result"
        } else if info.pinned {
            "it is pinned"
        } else if matches!(kind, Kind::Copy | Kind::Undef) {
            "its instruction needs no code"
        } else if operands.iter().any(is_tied) || f.groups(inst).iter().any(in_group) {
            "others are tied to it or stand beside it"
        } else if self.target.file(class.file).spill != SpillPath::Memory
            && operand.constraint != Constraint::Anywhere
        {
            "its file does not reach memory"
        } else {
            return self.argument_alignment(place, inst, operand);
        };
        invalid(place, format!("{vreg} cannot be in memory: {problem}"))
    }

    /// Arguments in memory lie at multiples of their units, and apart.
    fn argument_alignment(&self, place: Place, inst: Inst, own: &Operand) -> Result<(), Error> {
        let Constraint::Argument(offset) = own.constraint else {
            return Ok(());
        };
        let f = self.function;
        let class = |o: &Operand| f.vreg(o.vreg).class;
        let unit = self
            .target
            .file(self.target.class(class(own)).file)
            .unit_bytes as u32;
        let vreg = own.vreg;
        if !offset.is_multiple_of(unit) || offset > i32::MAX as u32 / 2 {
            let message = format!("{vreg} is an argument at {offset}, no multiple of {unit} bytes");
            return invalid(place, message);
        }
        let end = |o: &Operand, start: u32| start + self.target.spill_bytes(class(o));
        for other in f.operands(inst).iter().filter(|o| o.vreg != vreg) {
            self.vreg(place, other.vreg)?;
            if let Constraint::Argument(start) = other.constraint
                && start < end(own, offset)
                && offset < start.saturating_add(self.target.spill_bytes(class(other)))
            {
                let message = format!("arguments {vreg} and {} overlap in memory", other.vreg);
                return invalid(place, message);
            }
        }
        Ok(())
    }

    fn fixed(&self, place: Place, vreg: VReg, reg: PReg) -> Result<(), Error> {
        self.file(place, reg)?;
        let class = self.target.class(self.function.vreg(vreg).class);
        let name = self.target.reg_name(reg);
        if reg.file != class.file || !(reg.unit as usize).is_multiple_of(class.align) {
            let class = &class.name;
            return invalid(
                place,
                format!("{vreg} is fixed to {name}, where no {class} starts"),
            );
        }
        if self.target.is_reserved(reg, class.width) {
            return invalid(
                place,
                format!("{vreg} is fixed to {name}, which is reserved"),
            );
        }
        let end = reg.unit as usize + class.width;
        if end > self.target.file(reg.file).units {
            let what = format!("{vreg}, fixed to {name},");
            return self.out_of_registers(place, Some(vreg), &what, reg.file, end);
        }
        Ok(())
    }

    fn tie(&self, place: Place, inst: Inst, operand: &Operand, to: u8) -> Result<(), Error> {
        let f = self.function;
        let vreg = operand.vreg;
        if operand.role != Role::Def {
            let message = format!("{vreg} is tied, but only plain results can be");
            return invalid(place, message);
        }
        let Some(input) = f.operands(inst).get(to as usize) else {
            return invalid(
                place,
                format!("{vreg} is tied to operand {to}, which does not exist"),
            );
        };
        if input.role != Role::Use {
            let other = input.vreg;
            return invalid(
                place,
                format!("{vreg} is tied to operand {to}, {other}, which is no input"),
            );
        }
        self.vreg(place, input.vreg)?;
        if f.vreg(input.vreg).class != f.vreg(vreg).class {
            let other = input.vreg;
            return invalid(
                place,
                format!("{vreg} is tied to {other}, which has another class"),
            );
        }
        Ok(())
    }

    fn exclusion(
        &self,
        place: Place,
        vreg: VReg,
        list: RegList,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let regs = self.list(place, list)?;
        let class = self.function.vreg(vreg).class;
        let width = self.target.width(class);
        let leaves_some = *scratch.exclusions.entry((list, class)).or_insert_with(|| {
            let excluded = RegSet::of_registers(self.target, regs.iter().copied());
            let mut candidates = self.target.registers(class).peekable();
            candidates.peek().is_none()
                || candidates.any(|reg| !excluded.overlaps(self.target, reg, width))
        });
        if !leaves_some {
            let class = &self.target.class(class).name;
            let message = format!("the exclusion of {vreg} leaves no {class} within the budget");
            return invalid(place, message);
        }
        Ok(())
    }

    fn list(&self, place: Place, list: RegList) -> Result<&[PReg], Error> {
        let Some(regs) = self.function.known_reg_list(list) else {
            return invalid(place, format!("register list {list} does not exist"));
        };
        regs.iter().try_for_each(|&reg| self.file(place, reg))?;
        Ok(regs)
    }

    fn file(&self, place: Place, reg: PReg) -> Result<(), Error> {
        if reg.file.index() >= self.target.files().len() {
            let (file, target) = (reg.file.index(), self.target.name());
            return invalid(
                place,
                format!("target {target} has no register file {file}"),
            );
        }
        Ok(())
    }

    fn kind(&self, place: Place, inst: Inst) -> Result<(), Error> {
        let info = self.function.inst(inst);
        let operands = self.function.operands(inst);
        let opcode = || self.function.opcode_name(info.opcode);
        let quiet = info.effect == Effect::Pure && info.clobbers == Clobbers::None;
        match info.kind {
            Kind::Copy => {
                if !quiet {
                    let opcode = opcode();
                    return invalid(place, format!("copy `{opcode}` has effects or clobbers"));
                }
                self.copy(place, inst)
            }
            Kind::Undef => {
                if let Some(input) = operands.iter().find(|o| o.role.reads()) {
                    let (vreg, opcode) = (input.vreg, opcode());
                    return invalid(place, format!("`{opcode}` makes no value of {vreg}"));
                }
                if !quiet {
                    let opcode = opcode();
                    return invalid(
                        place,
                        format!(
                            "`{opcode}` makes nothing but undefined values, yet has effects or clobbers"
                        ),
                    );
                }
                Ok(())
            }
            Kind::LiveIn => self.live_in(place, inst),
            kind if kind.is_terminator() => match operands.iter().find(|o| o.role.writes()) {
                Some(result) => {
                    let (vreg, opcode) = (result.vreg, opcode());
                    invalid(place, format!("terminator `{opcode}` writes {vreg}"))
                }
                None => self.results_to_caller(place, inst),
            },
            _ => Ok(()),
        }
    }

    /// Arguments are in fixed registers before anything else happens. That each of these
    /// exists and that no two overlap is a matter of `fixed` and `placement`.
    fn live_in(&self, place: Place, inst: Inst) -> Result<(), Error> {
        let f = self.function;
        let opcode = f.opcode_name(f.inst(inst).opcode);
        if f.live_in_inst() != Some(inst) {
            let message =
                format!("`{opcode}` is live-in, but not the function's first instruction");
            return invalid(place, message);
        }
        let info = f.inst(inst);
        if info.effect != Effect::Write || info.clobbers != Clobbers::None {
            let message = format!("`{opcode}` is live-in: it is a write of state without clobbers");
            return invalid(place, message);
        }
        let in_place = |o: &&Operand| {
            let is_placed = matches!(o.constraint, Constraint::Fixed(_) | Constraint::Argument(_));
            o.role == Role::Def && is_placed
        };
        match f.operands(inst).iter().find(|o| !in_place(o)) {
            Some(operand) => {
                let vreg = operand.vreg;
                invalid(
                    place,
                    format!("{vreg} is live-in, but no plain result in a fixed register"),
                )
            }
            None => Ok(()),
        }
    }

    /// A result that a device function returns is in no register that it has to give back.
    fn results_to_caller(&self, place: Place, inst: Inst) -> Result<(), Error> {
        let f = self.function;
        if f.convention() != Convention::Device || f.inst(inst).kind != Kind::Return {
            return Ok(());
        }
        let preserved = self.target.preserved();
        for operand in f.operands(inst) {
            let Constraint::Fixed(reg) = operand.constraint else {
                continue;
            };
            let width = self.target.width(f.vreg(operand.vreg).class);
            if preserved.overlaps(self.target, reg, width) {
                let (vreg, name) = (operand.vreg, self.target.reg_name(reg));
                return invalid(
                    place,
                    format!("{vreg} is returned in {name}, which the caller wants back unchanged"),
                );
            }
        }
        Ok(())
    }

    fn copy(&self, place: Place, inst: Inst) -> Result<(), Error> {
        let f = self.function;
        let (mut read, mut written) = (0, 0);
        let mut file = None;
        for operand in f.operands(inst) {
            let vreg = operand.vreg;
            let class = self.target.class(f.vreg(vreg).class);
            if *file.get_or_insert(class.file) != class.file {
                return invalid(place, format!("the copy crosses files at {vreg}"));
            }
            match operand.role {
                Role::Use => read += class.width,
                Role::Def => written += class.width,
                Role::UseDef | Role::EarlyDef => {
                    return invalid(
                        place,
                        format!("{vreg} is neither a plain input nor a plain result of the copy"),
                    );
                }
            }
        }
        if read != written || read == 0 {
            return invalid(
                place,
                format!("the copy reads {read} units and writes {written}"),
            );
        }
        Ok(())
    }

    fn remat(&self, place: Place, inst: Inst, overview: &Overview) -> Result<(), Error> {
        let info = self.function.inst(inst);
        let problem = if info.effect != Effect::Pure {
            "it has effects"
        } else if info.anchored {
            "it is anchored"
        } else if info.clobbers != Clobbers::None {
            "it clobbers registers"
        } else if !matches!(info.kind, Kind::Plain | Kind::Copy) {
            "it is no plain instruction"
        } else if overview.changes_in_place {
            "it changes an operand in place"
        } else if !overview.has_result {
            "it has no result"
        } else {
            return Ok(());
        };
        let opcode = self.function.opcode_name(info.opcode);
        invalid(place, format!("`{opcode}` cannot be recomputed: {problem}"))
    }

    /// Checks that inputs fit the files together, and so do results.
    fn capacity(&self, place: Place, inst: Inst, scratch: &mut Scratch) -> Result<(), Error> {
        let f = self.function;
        let files = self.target.files().len();
        let mut inputs: SmallVec<[usize; 4]> = SmallVec::from_elem(0, files);
        let mut results = inputs.clone();
        for operand in f.operands(inst) {
            let vreg = operand.vreg;
            let class = self.target.class(f.vreg(vreg).class);
            let file = class.file.index();
            if operand.constraint.allows_memory() {
                continue;
            }
            if class.width > self.target.file(class.file).units {
                let what = format!("{vreg}:{}", class.name);
                return self.out_of_registers(place, Some(vreg), &what, class.file, class.width);
            }
            let first_read = operand.role.reads() && {
                scratch.read_by.resize(f.vreg_count(), u32::MAX);
                let seen = &mut scratch.read_by[vreg.index()];
                std::mem::replace(seen, inst.index() as u32) != inst.index() as u32
            };
            if first_read || operand.role == Role::EarlyDef {
                inputs[file] += class.width;
            }
            if operand.role.writes() {
                results[file] += class.width;
            }
        }
        for (file, info) in self.target.files() {
            for (needed, what) in [(&inputs, "what it reads"), (&results, "what it writes")] {
                if needed[file.index()] > info.capacity {
                    return self.out_of_registers(place, None, what, file, needed[file.index()]);
                }
            }
        }
        Ok(())
    }
}
