//! Instructions.
//!
//! Each is drafted first. A draft keeps account of the registers that its operands take when
//! none of them overlap, rounded up to their alignment; what would not fit the target is
//! left out. Aligned sizes pack without holes, so what fits by count fits by place; fixed
//! registers and exclusions would break that, so they only go with 32-bit operands.

use super::*;
use crate::function::{
    Alias, Base, Clobbers, Constraint, Effect, Extent, Kind, Operand, OperandGroup, RegList, Role,
    VReg,
};

/// An instruction being put together.
#[derive(Default)]
pub(super) struct Draft {
    opcode: &'static str,
    operands: Vec<Operand>,
    groups: Vec<OperandGroup>,
    pub(super) effect: Effect,
    pub(super) kind: Kind,
    remat: Option<u8>,
    clobbers: Clobbers,
    /// The number of the function it calls, where that is known.
    callee: Option<u64>,
}

impl Draft {
    pub(super) fn new(opcode: &'static str) -> Draft {
        Draft {
            opcode,
            ..Draft::default()
        }
    }

    fn mentions(&self, vreg: VReg) -> bool {
        self.operands.iter().any(|o| o.vreg == vreg)
    }

    pub(super) fn operand(mut self, operand: Operand) -> Draft {
        self.operands.push(operand);
        self
    }

    pub(super) fn reads(self, vreg: VReg) -> Draft {
        self.operand(Operand::reads(vreg))
    }

    pub(super) fn writes(self, vreg: VReg) -> Draft {
        self.operand(Operand::writes(vreg))
    }
}

impl Generator<'_> {
    /// Appends one instruction of any kind, and last uses that are overdue.
    pub(super) fn instruction(&mut self) {
        let s = self.shape;
        match self.rng.below(100) {
            0..8 => self.fresh(),
            8..18 => self.load(),
            18..25 => self.store(),
            25..31 if s.predicates => self.compare(),
            31..33 if s.predicates => self.predicate_logic(),
            33..39 if s.guards => self.guarded(),
            39..44 if s.copies => self.copy(),
            44..48 if s.copies => self.pack(),
            48..52 if s.copies => self.unpack(),
            52..55 if s.groups => self.vector_load(),
            55..58 if s.groups => self.vector_store(),
            58..60 if s.groups => self.matrix(),
            60..63 if s.calls => self.call(),
            63..66 if s.fixed => self.fixed(),
            66..68 if s.fixed => self.clobbering(),
            68..73 if s.uniform => self.uniform(),
            73 => self.emit(Draft {
                effect: Effect::Write,
                ..Draft::new("barrier")
            }),
            74 if s.guards => self.undefined(),
            75..79 if s.pinned => self.flight(),
            79..87 if self.module.is_some() => self.call(),
            _ => self.arithmetic(),
        }
        while self.window.due_count() > 4 {
            if let Some((vreg, _)) = self.window.take_due() {
                self.sink(vreg);
            }
        }
    }

    /// A value of `class` to read; a constant if there is none.
    pub(super) fn value(&mut self, class: Class) -> VReg {
        match self.window.pick(class, self.rng) {
            Some(vreg) => vreg,
            None => self.constant(class),
        }
    }

    /// What a branch decides by.
    pub(super) fn condition(&mut self) -> VReg {
        if !self.shape.predicates {
            return self.value(self.classes.word);
        }
        if self.rng.one_in(2) {
            self.compare();
        }
        self.value(self.classes.flag)
    }

    /// Makes `vreg` readable from here on.
    pub(super) fn result(&mut self, vreg: VReg) {
        let class = self.class_of(vreg);
        let size = match self.target.class(class).file {
            File::MAIN => self.registers(class),
            _ => 0,
        };
        self.window.insert(vreg, class, size);
        self.window.shrink(self.shape.pressure.max(2), self.rng);
    }

    /// Appends a last use of `vreg`.
    pub(super) fn sink(&mut self, vreg: VReg) {
        let draft = Draft::new("sink").reads(vreg);
        self.emit(Draft {
            effect: Effect::Write,
            ..draft
        });
    }

    /// Appends a value out of nothing: a constant or a parameter.
    pub(super) fn fresh(&mut self) {
        let class = self.class();
        self.constant(class);
    }

    fn constant(&mut self, class: Class) -> VReg {
        let vreg = self.builder.vreg(class);
        let in_general_file = self.target.class(class).file == File::MAIN;
        if self.shape.uniform && in_general_file && self.rng.one_in(2) {
            self.builder.uniform(vreg);
        }
        let mut draft = Draft::new("const").writes(vreg);
        draft.remat = self.shape.remat.then_some(1);
        self.emit(draft);
        vreg
    }

    /// Whole registers that a value of `class` takes, rounded up to its alignment.
    fn registers(&self, class: Class) -> usize {
        let info = self.target.class(class);
        let units = info.width.next_multiple_of(info.align);
        units.div_ceil(self.target.file(info.file).units_per_reg)
    }

    /// Whether the operands fit the target beside `extra` more registers of the general
    /// file, which any operand elsewhere needs one of on its way to memory.
    fn fits(&self, draft: &Draft, extra: usize) -> bool {
        // A pinned register anywhere spoils at most a block of eight for wide operands.
        let mut taken = [extra + 8 * self.pins, 0, 0, 0];
        for operand in &draft.operands {
            let class = self.class_of(operand.vreg);
            taken[self.target.class(class).file.index()] += self.registers(class);
        }
        let carried = draft.operands.iter().map(|o| self.class_of(o.vreg));
        let carried = carried.filter(|&c| self.target.class(c).file != File::MAIN);
        let widest = carried.map(|class| self.registers(class)).max();
        taken[0] += widest.map_or(0, |registers| if registers > 2 { registers } else { 1 });
        let files = self.target.files();
        files
            .zip(taken)
            .all(|((_, info), taken)| taken <= info.capacity / info.units_per_reg)
    }

    pub(super) fn class_of(&self, vreg: VReg) -> Class {
        self.builder.class_of(vreg).unwrap_or(self.classes.word)
    }

    /// A class to compute in: mostly 32 bits, at most half of the registers wide.
    fn class(&mut self) -> Class {
        if !self.shape.wide || !self.rng.one_in(4) {
            return self.classes.word;
        }
        let wide = self.rng.pick(&self.classes.wide).copied();
        let wide = wide.unwrap_or(self.classes.word);
        let room = self.target.budget(File::MAIN) / 2;
        if self.registers(wide) <= room {
            wide
        } else {
            self.classes.word
        }
    }

    /// A virtual register to write: mostly a new one; an accumulator or any other where
    /// values may be written more than once.
    fn destination(&mut self, class: Class, draft: &Draft) -> VReg {
        if !self.shape.params && self.rng.one_in(4) {
            let old = match self.window.pick_kept(class, self.rng) {
                Some(kept) => Some(kept),
                None => self.window.pick(class, self.rng),
            };
            let written = |v: VReg| {
                draft
                    .operands
                    .iter()
                    .any(|o| o.vreg == v && o.role.writes())
            };
            if let Some(old) = old.filter(|&v| !written(v)) {
                return old;
            }
        }
        self.builder.vreg(class)
    }

    pub(super) fn emit(&mut self, draft: Draft) {
        let written = self.emit_apart(draft);
        for vreg in written {
            self.result(vreg);
        }
    }

    /// Appends an instruction whose results nobody else may touch; returns them.
    pub(super) fn emit_apart(&mut self, draft: Draft) -> Vec<VReg> {
        let imm = draft.callee.unwrap_or(self.next_imm);
        self.next_imm += 1;
        let mut inst = self.builder.inst(self.block, draft.opcode);
        inst = inst.imm(imm).effect(draft.effect).kind(draft.kind);
        if matches!(draft.opcode, "ld" | "st" | "ldv" | "stv") {
            inst = inst.alias(alias_of(imm));
        }
        inst = inst.clobbers(draft.clobbers);
        if let Some(cycles) = draft.remat {
            inst = inst.remat(cycles);
        }
        for operand in &draft.operands {
            inst = inst.operand(*operand);
        }
        for group in &draft.groups {
            inst = inst.group(group.first, group.len, group.align);
        }
        let written = draft.operands.iter().filter(|o| o.role.writes());
        written.map(|o| o.vreg).collect()
    }

    fn arithmetic(&mut self) {
        const OPCODES: [&str; 6] = ["add", "mul", "fma", "shl", "xor", "min"];
        let class = self.class();
        let opcode = self.rng.pick(&OPCODES).copied().unwrap_or("add");
        let mut draft = Draft::new(opcode);
        let result = self.destination(class, &draft);
        draft = draft.writes(result);
        let inputs = self.rng.within(1..=3);
        for _ in 0..inputs {
            let mixed = if self.rng.one_in(8) {
                self.class()
            } else {
                class
            };
            let input = self.value(mixed);
            let wider = draft.reads(input);
            draft = self.unless_too_large(wider);
        }
        let one_word = |o: &Operand| self.class_of(o.vreg) == self.classes.word;
        let plain = draft.operands.iter().all(one_word);
        self.constrain(&mut draft, plain);
        if self.shape.remat && self.rng.one_in(8) {
            draft.remat = Some(4);
        }
        self.emit(draft);
    }

    /// The draft, less its last operand if that is too much for the target.
    fn unless_too_large(&self, mut draft: Draft) -> Draft {
        if !self.fits(&draft, 0) {
            draft.operands.pop();
        }
        draft
    }

    /// Ties, early results and exclusions, where they make sense.
    fn constrain(&mut self, draft: &mut Draft, plain: bool) {
        let class = self.class_of(draft.operands[0].vreg);
        let same = |o: &Operand| o.role == Role::Use && self.class_of(o.vreg) == class;
        let twin = draft.operands.iter().position(same);
        match self.rng.below(12) {
            0 | 1 if self.shape.ties => {
                if let Some(twin) = twin {
                    draft.operands[0].constraint = Constraint::Tied(twin as u8);
                }
            }
            2 if self.shape.early_defs => draft.operands[0].role = Role::EarlyDef,
            3 if self.shape.except && plain && self.fits(draft, 1) => {
                let at = self.rng.below(draft.operands.len());
                let list = self.register_list(1);
                draft.operands[at].constraint = Constraint::Except(list);
            }
            _ => {}
        }
    }

    pub(super) fn register_list(&mut self, count: usize) -> RegList {
        let candidates = self.common_registers();
        let picks: Vec<PReg> = (0..count)
            .filter_map(|_| self.rng.pick(&candidates).copied())
            .collect();
        self.builder.reg_list(picks)
    }

    /// Registers that are not set aside for pinned values.
    fn common_registers(&self) -> Vec<PReg> {
        let aside: Vec<PReg> = self.set_aside().collect();
        let all = self.target.registers(self.classes.word);
        all.filter(|reg| !aside.contains(reg)).collect()
    }

    /// Registers set aside for pinned values.
    pub(super) fn set_aside(&self) -> impl Iterator<Item = PReg> + use<> {
        let all = match self.shape.calls {
            true => self.target.abi().preserved.clone(),
            false => self.target.registers(self.classes.word).collect(),
        };
        all.into_iter().rev().take(self.pins)
    }

    fn address(&mut self) -> VReg {
        let wide = self.shape.wide && self.target.budget(File::MAIN) >= 8;
        self.value(if wide {
            self.classes.pair
        } else {
            self.classes.word
        })
    }

    fn load(&mut self) {
        let address = self.address();
        let class = self.class();
        let mut draft = Draft::new("ld");
        let result = self.destination(class, &draft);
        draft = draft.writes(result).reads(address);
        draft.effect = Effect::Read;
        if self.fits(&draft, 0) {
            self.emit(draft);
        }
    }

    fn store(&mut self) {
        let address = self.address();
        let class = self.class();
        let value = self.value(class);
        let mut draft = Draft::new("st").reads(address).reads(value);
        draft.effect = Effect::Write;
        if self.fits(&draft, 0) {
            self.emit(draft);
        }
    }

    fn compare(&mut self) {
        let class = self.class();
        let (a, b) = (self.value(class), self.value(self.classes.word));
        let mut draft = Draft::new("setp");
        let result = self.destination(self.classes.flag, &draft);
        draft = self.unless_too_large(draft.writes(result).reads(a));
        draft = self.unless_too_large(draft.reads(b));
        self.emit(draft);
    }

    fn predicate_logic(&mut self) {
        let (a, b) = (self.value(self.classes.flag), self.value(self.classes.flag));
        let mut draft = Draft::new("plop");
        let result = self.destination(self.classes.flag, &draft);
        draft = draft.writes(result).reads(a).reads(b);
        if self.fits(&draft, 0) {
            self.emit(draft);
        }
    }

    /// A definition that happens only if a predicate says so.
    fn guarded(&mut self) {
        let class = match self.rng.below(4) {
            0 if self.shape.predicates => self.classes.flag,
            _ => self.class(),
        };
        let changed = self.value(class);
        let input = self.value(self.classes.word);
        let mut draft = Draft::new("sel");
        draft = draft.operand(Operand::with_role(changed, Role::UseDef));
        draft = self.unless_too_large(draft.reads(input));
        let guard = self.condition();
        draft = self.unless_too_large(draft.reads(guard));
        self.emit(draft);
    }

    /// A value without contents, as before definitions under a guard and its opposite.
    fn undefined(&mut self) {
        let class = self.class();
        let vreg = self.builder.vreg(class);
        let draft = Draft::new("undef").writes(vreg);
        self.emit(Draft {
            kind: Kind::Undef,
            ..draft
        });
    }

    fn copy(&mut self) {
        let class = match self.rng.below(6) {
            0 if self.shape.predicates => self.classes.flag,
            1 if self.shape.uniform => self.classes.scalar,
            _ => self.class(),
        };
        let from = self.value(class);
        let mut draft = Draft::new("mov").reads(from);
        let to = self.destination(class, &draft);
        draft.operands.insert(0, Operand::writes(to));
        draft.kind = Kind::Copy;
        if to != from && self.fits(&draft, 0) {
            self.emit(draft);
        }
    }

    /// A class wide enough to be made of others, one of those, and how many it takes.
    fn parts(&mut self) -> Option<(Class, Class, usize)> {
        let whole = *self.rng.pick(&self.classes.wholes)?;
        let part = *self.rng.pick(&self.classes.parts)?;
        let (wide, narrow) = (self.target.width(whole), self.target.width(part));
        let count = wide / narrow;
        let makes_sense = wide.is_multiple_of(narrow) && (2..=8).contains(&count);
        (self.shape.wide && makes_sense).then_some((whole, part, count))
    }

    fn pack(&mut self) {
        let Some((whole, part, count)) = self.parts() else {
            return self.copy();
        };
        let to = self.builder.vreg(whole);
        let mut draft = Draft::new("pack").writes(to);
        for _ in 0..count {
            let from = self.value(part);
            draft = draft.reads(from);
        }
        draft.kind = Kind::Copy;
        if self.fits(&draft, 0) {
            self.emit(draft);
        }
    }

    fn unpack(&mut self) {
        let Some((whole, part, count)) = self.parts() else {
            return self.copy();
        };
        let mut draft = Draft::new("unpack");
        for _ in 0..count {
            let to = self.builder.vreg(part);
            draft = draft.writes(to);
        }
        if self.registers(whole) <= self.target.budget(File::MAIN) / 2 {
            let from = self.value(whole);
            draft = draft.reads(from);
            draft.kind = Kind::Copy;
            if self.fits(&draft, 0) {
                self.emit(draft);
            }
        }
    }

    /// Adds `count` 32-bit operands in consecutive registers, aligned to their number.
    fn add_group(&mut self, mut draft: Draft, count: usize, role: Role) -> Draft {
        let first = draft.operands.len();
        while draft.operands.len() < first + count {
            let vreg = match role {
                Role::Def => self.builder.vreg(self.classes.word),
                _ => self.value(self.classes.word),
            };
            // A value twice in one group, or written twice, is legal at most as an input.
            let usable = role == Role::Use && self.rng.one_in(8) || !draft.mentions(vreg);
            let vreg = if usable {
                vreg
            } else {
                self.constant(self.classes.word)
            };
            draft = draft.operand(Operand::with_role(vreg, role));
        }
        let unit = self.target.file(File::MAIN).units_per_reg;
        draft.groups.push(OperandGroup {
            first: first as u8,
            len: count as u8,
            align: (count.next_power_of_two() * unit) as u8,
        });
        draft
    }

    /// Lanes of a vector access that fit beside an address.
    fn lanes(&mut self) -> Option<usize> {
        let most = self.target.budget(File::MAIN) / 2;
        let lanes = self.rng.pick(&[2, 2, 3, 4, 4]).copied()?;
        (lanes <= most).then_some(lanes)
    }

    fn vector_load(&mut self) {
        let Some(lanes) = self.lanes() else {
            return self.load();
        };
        let role = match self.rng.below(4) {
            0 if self.shape.guards => Role::UseDef,
            _ => Role::Def,
        };
        let mut draft = self.add_group(Draft::new("ldv"), lanes, role);
        let address = self.address();
        draft = draft.reads(address);
        draft.effect = Effect::Read;
        if self.fits(&draft, 1) {
            self.emit(draft);
        }
    }

    fn vector_store(&mut self) {
        let Some(lanes) = self.lanes() else {
            return self.store();
        };
        let address = self.address();
        let mut draft = self.add_group(Draft::new("stv").reads(address), lanes, Role::Use);
        draft.effect = Effect::Write;
        if self.fits(&draft, 1) {
            self.emit(draft);
        }
    }

    /// d = a × b + c on fragments; with ties, d takes the registers of c.
    fn matrix(&mut self) {
        if self.target.budget(File::MAIN) < 16 {
            return self.arithmetic();
        }
        let mut draft = self.add_group(Draft::new("mma"), 4, Role::Def);
        draft = self.add_group(draft, 4, Role::Use);
        draft = self.add_group(draft, 2, Role::Use);
        draft = self.add_group(draft, 4, Role::Use);
        if self.shape.ties && self.rng.one_in(2) {
            for lane in 0..4 {
                draft.operands[lane].constraint = Constraint::Tied(10 + lane as u8);
            }
        }
        if self.fits(&draft, 0) {
            self.emit(draft);
        }
    }

    fn call(&mut self) {
        if let Some((_, signatures)) = self.module {
            return self.call_one_of(signatures);
        }
        let target = self.target;
        let most = self.shape.pressure.min(target.budget(File::MAIN)) / 2;
        let count = self.rng.within(0..=most.min(4));
        let mut draft = Draft::new("call");
        let class = match self.rng.below(4) {
            0 if self.shape.wide => self.classes.pair,
            _ => self.classes.word,
        };
        if let Some(&reg) = target.abi().results.first() {
            let result = self.builder.vreg(class);
            draft = draft.operand(Operand::writes(result).constrained(Constraint::Fixed(reg)));
        }
        for &reg in target.abi().arguments.iter().take(count) {
            let arg = self.value(self.classes.word);
            draft = draft.operand(Operand::reads(arg).constrained(Constraint::Fixed(reg)));
        }
        draft.effect = Effect::Write;
        draft.kind = Kind::Call;
        draft.clobbers = Clobbers::Abi;
        self.emit(draft);
    }

    /// A call of a function of the same module.
    fn call_one_of(&mut self, signatures: &[Signature]) {
        let callee = self.rng.below(signatures.len());
        let Signature { arguments, results } = &signatures[callee];
        let places = self.target.argument_registers(arguments);
        let backs = self.target.result_registers(results);
        let (Ok(places), Ok(backs)) = (places, backs) else {
            return;
        };
        let mut draft = Draft::new("call");
        draft.callee = Some(callee as u64);
        for (&class, reg) in results.iter().zip(backs) {
            let result = self.builder.vreg(class);
            draft = draft.operand(Operand::writes(result).constrained(Constraint::Fixed(reg)));
        }
        for (&class, reg) in arguments.iter().zip(places) {
            let argument = self.value(class);
            draft = draft.operand(Operand::reads(argument).constrained(Constraint::Fixed(reg)));
        }
        draft.effect = Effect::Write;
        draft.kind = Kind::Call;
        draft.clobbers = Clobbers::Abi;
        self.emit(draft);
    }

    /// An instruction with an input, a result or both in fixed registers.
    fn fixed(&mut self) {
        let regs = self.common_registers();
        let mut draft = Draft::new("fix");
        let to = self.destination(self.classes.word, &draft);
        let mut result = Operand::writes(to);
        if let (false, Some(&reg)) = (self.rng.one_in(3), self.rng.pick(&regs)) {
            result.constraint = Constraint::Fixed(reg);
        }
        draft = draft.operand(result);
        for number in 0..2 {
            let from = self.value(self.classes.word);
            let mut input = Operand::reads(from);
            // Two inputs never ask for the same register: one takes odd, one even ones.
            let pick = self.rng.below(regs.len() / 2) * 2 + number;
            if let (true, Some(&reg)) = (self.rng.one_in(2), regs.get(pick)) {
                input.constraint = Constraint::Fixed(reg);
            }
            draft = draft.operand(input);
        }
        self.emit(draft);
    }

    /// Inline assembly that overwrites a register or two.
    fn clobbering(&mut self) {
        let (a, b) = (self.value(self.classes.word), self.value(self.classes.word));
        let mut draft = Draft::new("asm");
        let to = self.destination(self.classes.word, &draft);
        draft = draft.writes(to).reads(a).reads(b);
        let count = self.rng.within(1..=2);
        if self.fits(&draft, count) {
            draft.clobbers = Clobbers::List(self.register_list(count));
        }
        draft.effect = Effect::Write;
        self.emit(draft);
    }

    fn uniform(&mut self) {
        let (to, from) = match self.rng.below(6) {
            0 => (self.classes.scalar, self.classes.word),
            1 => (self.classes.word, self.classes.scalar),
            2 => (self.classes.scalar_flag, self.classes.scalar),
            3 if self.shape.wide => (self.classes.scalar_pair, self.classes.scalar),
            4 if self.shape.wide => (self.classes.word, self.classes.scalar_pair),
            5 if self.shape.wide && !self.classes.tuples.is_empty() => {
                let tuple = self.rng.pick(&self.classes.tuples).copied();
                let tuple = tuple.unwrap_or(self.classes.scalar);
                (tuple, tuple)
            }
            _ => (self.classes.scalar, self.classes.scalar),
        };
        let input = self.value(from);
        let mut draft = Draft::new("uop").reads(input);
        let result = self.destination(to, &draft);
        draft.operands.insert(0, Operand::writes(result));
        if self.shape.predicates && self.rng.one_in(4) {
            let guard = self.value(self.classes.scalar_flag);
            draft = draft.reads(guard);
        }
        if self.fits(&draft, 0) {
            self.emit(draft);
        }
    }
}

/// The memory that an access touches: any, a space, or bytes of one, as its number says.
fn alias_of(number: u64) -> Alias {
    let (spaces, base, start) = match number % 8 {
        0..3 => return Alias::ANY,
        3 => return Alias::of(1),
        4 => return Alias::of(2),
        5 => (1, Base::Address(0), number % 3),
        6 => (3, Base::Address(1), number % 3),
        _ => (1, Base::Variable((number % 5) as u32), number % 2),
    };
    let extent = Some(Extent {
        base,
        start: 4 * start as i32,
        len: 8,
    });
    Alias { spaces, extent }
}
