//! An allocated function for people to read.

use super::print::{Name, attributes, convention_name};
use crate::allocation::{Allocation, Edit, SlotAddr, Space};
use crate::function::{Block, Function, Inst, Role};
use crate::target::{PReg, Target};
use std::fmt::{self, Display, Formatter};

/// Displays a function in its registers, the code to insert between its instructions.
///
/// Inserted code is marked `+`, instructions that need no code `-`. Virtual registers stand
/// in a comment behind each instruction.
pub struct Allocated<'a> {
    /// The function.
    pub function: &'a Function,
    /// Where it was allocated.
    pub target: &'a Target,
    /// Its allocation.
    pub allocation: &'a Allocation,
}

/// Column where comments start.
const COMMENT: usize = 44;

impl Display for Allocated<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (function, frame) = (self.function, self.allocation.frame);
        let convention = convention_name(function.convention());
        let name = Name(function.name());
        write!(f, "{convention} {name} {{")?;
        let (local, shared) = (frame.local, frame.shared);
        writeln!(f, " ; frame: {local} bytes local, {shared} bytes shared")?;
        for block in function.blocks() {
            self.block(f, block)?;
        }
        f.write_str("}\n")
    }
}

impl Allocated<'_> {
    fn block(&self, f: &mut Formatter<'_>, block: Block) -> fmt::Result {
        writeln!(f, "{block}:")?;
        for inst in self.allocation.block_insts(self.function, block) {
            for edit in self.allocation.edits.before(inst) {
                self.edit(f, edit)?;
            }
            self.inst(f, inst)?;
            for edit in self.allocation.edits.after(inst) {
                self.edit(f, edit)?;
            }
        }
        for (position, edge) in self.function.succs(block).iter().enumerate() {
            writeln!(f, "  -> {}", edge.block)?;
            for edit in self.allocation.edits.on_edge(block, position as u32) {
                self.edit(f, edit)?;
            }
        }
        Ok(())
    }

    fn inst(&self, f: &mut Formatter<'_>, inst: Inst) -> fmt::Result {
        let function = self.function;
        let info = function.inst(inst);
        let opcode = Name(function.opcode_name(info.opcode));
        let regs = self.allocation.operands(function, inst);
        let place = |i: usize| match self.allocation.slot(function, inst, i) {
            Some(addr) => slot(&addr),
            None => self.reg(regs[i]),
        };
        let (results, inputs) = self.sides(inst, place);
        let mut code = format!("{results}{opcode}{inputs}");
        if info.imm != 0 {
            code += &format!(" #{}", info.imm);
        }
        let attributes = attributes(function, self.target, inst);
        if !attributes.is_empty() {
            code += &format!(" : {}", attributes.join(" "));
        }
        let deleted = self.allocation.deleted.contains(inst);
        let mark = if deleted { '-' } else { ' ' };
        let (results, inputs) = self.sides(inst, |i| function.operands(inst)[i].vreg.to_string());
        let values = format!("{results}{}", inputs.trim_start());
        writeln!(f, "  {mark} {code:COMMENT$} ; {values}")
    }

    /// Written operands before ` = ` and read ones after it; one that is both is on both.
    fn sides(&self, inst: Inst, name: impl Fn(usize) -> String) -> (String, String) {
        let operands = self.function.operands(inst);
        let names = |wanted: &dyn Fn(Role) -> bool| {
            let chosen = operands.iter().enumerate().filter(|(_, o)| wanted(o.role));
            let names: Vec<String> = chosen.map(|(i, _)| name(i)).collect();
            names.join(", ")
        };
        let (mut results, mut inputs) = (names(&Role::writes), names(&Role::reads));
        if !results.is_empty() {
            results += " = ";
        }
        if !inputs.is_empty() {
            inputs.insert(0, ' ');
        }
        (results, inputs)
    }

    fn reg(&self, reg: PReg) -> String {
        self.target.reg_name(reg).to_string()
    }

    fn edit(&self, f: &mut Formatter<'_>, edit: &Edit) -> fmt::Result {
        let units = |n: &u8| match n {
            1 => "1 unit".to_owned(),
            n => format!("{n} units"),
        };
        let (code, size) = match edit {
            Edit::Move { to, from, width } => (
                format!("{} = move {}", self.reg(*to), self.reg(*from)),
                units(width),
            ),
            Edit::Swap { a, b, width } => (
                format!("swap {}, {}", self.reg(*a), self.reg(*b)),
                units(width),
            ),
            Edit::Transfer { to, from, regs } => (
                format!("{} = transfer {}", self.reg(*to), self.reg(*from)),
                format!("{regs} registers"),
            ),
            Edit::Store { to, from, width } => (
                format!("{} = store {}", slot(to), self.reg(*from)),
                units(width),
            ),
            Edit::Reload { to, from, width } => (
                format!("{} = reload {}", self.reg(*to), slot(from)),
                units(width),
            ),
            Edit::Recompute { inst, regs } => {
                let regs: Vec<String> = regs.iter().map(|&r| self.reg(r)).collect();
                (
                    format!("recompute {inst} in {}", regs.join(", ")),
                    String::new(),
                )
            }
        };
        writeln!(f, "  + {code:COMMENT$} ; {size}")
    }
}

fn slot(slot: &SlotAddr) -> String {
    match slot.space {
        Space::Local => format!("local[{}]", slot.offset),
        Space::Shared => format!("shared[{}]", slot.offset),
        Space::Argument => format!("argument[{}]", slot.offset),
    }
}
