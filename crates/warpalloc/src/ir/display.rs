//! The program as text, to be read in the log.

use super::{Op, Program, Value};
use crate::function::Inst;
use std::fmt::{self, Display, Formatter};

impl Display for Program<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (block, info) in self.blocks.iter() {
            match info.edge {
                Some((from, succ)) => writeln!(f, "{block}: ; edge {succ} of {from}")?,
                None => writeln!(f, "{block}:")?,
            }
            for op in &info.ops {
                f.write_str("    ")?;
                self.write_op(f, op)?;
            }
            if !info.succs.is_empty() {
                writeln!(f, "    -> {}", list(info.succs.iter()))?;
            }
        }
        Ok(())
    }
}

impl Program<'_> {
    fn write_op(&self, f: &mut Formatter<'_>, op: &Op) -> fmt::Result {
        match op {
            Op::Inst { inst, values } => self.write_inst(f, "", *inst, values),
            Op::Recompute { inst, values } => self.write_inst(f, "again ", *inst, values),
            Op::Copies(copies) => {
                let copies = copies.iter().map(|(to, from)| format!("{to} = {from}"));
                writeln!(f, "copy {}", list(copies))
            }
            Op::Transfer { to, from } => writeln!(f, "{to} = transfer {from}"),
            Op::Store { slot, value } => writeln!(f, "store {value} to {slot}"),
            Op::Reload { value, slot } => writeln!(f, "{value} = reload {slot}"),
        }
    }

    fn write_inst(
        &self,
        f: &mut Formatter<'_>,
        prefix: &str,
        inst: Inst,
        values: &[Value],
    ) -> fmt::Result {
        let function = self.function;
        let operands = || function.operands(inst).iter().zip(values);
        let results = operands().filter(|(o, _)| o.role.writes());
        let inputs = operands().filter(|(o, _)| o.role.reads());
        let results = list(results.map(|(_, value)| value));
        let inputs = list(inputs.map(|(_, value)| value));
        let opcode = function.opcode_name(function.inst(inst).opcode);
        let equals = if results.is_empty() { "" } else { " = " };
        let space = if inputs.is_empty() { "" } else { " " };
        writeln!(
            f,
            "{results}{equals}{prefix}{opcode}{space}{inputs} ; {inst}"
        )
    }
}

fn list(items: impl Iterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    items.join(", ")
}
