//! Executes a small part of PTX for real, local memory byte by byte, so that a text can be
//! compared before and after promotion. It shares nothing with the code it judges but the
//! parser.

use crate::ast::{Body, Float, Instruction, Operand, Stmt};
use rustc_hash::FxHashMap;

/// Where generic addresses of local memory begin.
const WINDOW: u64 = 0x7000_0000;
/// Where the only variable lies.
const VARIABLE: u64 = 0x1000;

struct Machine<'a> {
    widths: FxHashMap<String, u32>,
    values: FxHashMap<&'a str, u64>,
    memory: FxHashMap<u64, u8>,
    events: Vec<u64>,
}

/// What the first function of a text stores to global memory, in order.
pub(super) fn run(source: &str) -> Vec<u64> {
    let module = crate::parse(source).unwrap();
    let body = module.functions().next().unwrap().body.as_ref().unwrap();
    let mut machine = Machine {
        widths: FxHashMap::default(),
        values: FxHashMap::default(),
        memory: FxHashMap::default(),
        events: Vec::new(),
    };
    machine.run(body);
    machine.events
}

fn bits_of(ty: &str) -> u32 {
    ty.trim_start_matches(|c: char| c.is_ascii_alphabetic())
        .parse()
        .unwrap_or(1)
}

fn low(value: u64, bits: u32) -> u64 {
    value & (u64::MAX >> (64 - bits))
}

/// A value of a type, extended to 64 bits as its sign says.
fn extended(value: u64, ty: &str) -> u64 {
    let shift = 64 - bits_of(ty);
    match ty.starts_with('s') {
        true => (((value << shift) as i64) >> shift) as u64,
        false => (value << shift) >> shift,
    }
}

impl<'a> Machine<'a> {
    fn run(&mut self, body: &Body<'a>) {
        let label = |name: &str| {
            let is_it = |s: &Stmt| matches!(s, Stmt::Label(l) if l.name.text == name);
            body.stmts.iter().position(is_it).unwrap()
        };
        let mut at = 0;
        loop {
            match &body.stmts[at] {
                Stmt::Reg(reg) => {
                    for series in &reg.names {
                        for i in 0..series.count.unwrap_or(1) {
                            let index = series.count.map_or(String::new(), |_| i.to_string());
                            let name = format!("{}{index}", series.name.text);
                            self.widths.insert(name, bits_of(reg.ty));
                        }
                    }
                }
                Stmt::Inst(inst) => {
                    let guard = inst.guard.as_ref();
                    let happens = guard.is_none_or(|g| (self.values[g.reg.text] == 1) != g.negated);
                    match inst.mnemonic {
                        _ if !happens => {}
                        "ret" => return,
                        "bra" => at = label(inst.operands[0].as_name().unwrap().text),
                        _ => self.step(inst),
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn get(&self, operand: &Operand) -> u64 {
        match operand {
            Operand::Int { bits, .. } => *bits,
            Operand::Float { value, .. } => match value {
                Float::Single(bits) => u64::from(*bits),
                Float::Double(bits) => *bits,
                Float::Decimal(_) => panic!("decimal"),
            },
            Operand::Ident(name) if name.text.starts_with('%') => self.values[name.text],
            Operand::Ident(_) => VARIABLE,
            _ => panic!("{operand:?}"),
        }
    }

    fn set(&mut self, operand: &Operand<'a>, value: u64) {
        if let Operand::Ident(name) = operand {
            self.values
                .insert(name.text, low(value, self.widths[name.text]));
        }
    }

    fn step(&mut self, inst: &Instruction<'a>) {
        let ty = *inst.modifiers.last().unwrap();
        let ops = &inst.operands;
        let value = |i: usize| self.get(&ops[i]);
        match inst.mnemonic {
            "mov" => self.set(&ops[0], value(1)),
            "add" => self.set(&ops[0], value(1).wrapping_add(value(2))),
            "sub" => self.set(&ops[0], value(1).wrapping_sub(value(2))),
            "cvta" if inst.has("to") => self.set(&ops[0], value(1) - WINDOW),
            "cvta" => self.set(&ops[0], value(1) + WINDOW),
            "cvt" => {
                let (to, from) = (inst.modifiers[0], ty);
                let result = extended(extended(value(1), from), to);
                self.set(&ops[0], result);
            }
            "setp" => self.set(&ops[0], u64::from(low(value(1), 32) < low(value(2), 32))),
            "st" if inst.has("global") => self.events.push(low(value(1), bits_of(ty))),
            "ld" | "st" => self.access(inst, ty),
            other => panic!("{other}"),
        }
    }

    fn access(&mut self, inst: &Instruction<'a>, ty: &str) {
        let (memory, values) = match inst.operands.as_slice() {
            [Operand::Memory(memory), values] | [values, Operand::Memory(memory)] => {
                (memory, values)
            }
            _ => panic!("{inst:?}"),
        };
        let delta = memory.offset.as_ref().map_or(0, |o| o.as_int().unwrap());
        let mut at = self.get(&memory.base).wrapping_add(delta);
        if !inst.has("local") {
            at -= WINDOW;
        }
        let lanes = match values {
            Operand::Vector(lanes) => lanes.as_slice(),
            one => std::slice::from_ref(one),
        };
        for lane in lanes {
            let bytes = u64::from(bits_of(ty) / 8);
            if inst.mnemonic == "st" {
                let value = self.get(lane);
                for i in 0..bytes {
                    self.memory.insert(at + i, (value >> (8 * i)) as u8);
                }
            } else {
                let byte = |i: u64| u64::from(self.memory[&(at + i)]) << (8 * i);
                let value = (0..bytes).map(byte).sum();
                self.set(lane, extended(value, ty));
            }
            at += bytes;
        }
    }
}
