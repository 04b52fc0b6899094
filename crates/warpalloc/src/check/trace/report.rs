//! How two runs differ, in words.

use super::Module;
use super::world::Trace;
use crate::allocation::{Edit, Point, SlotAddr, Space};
use crate::function::{Block, Inst, VReg};
use crate::target::{PReg, Target};
use std::fmt;

/// Where the run after allocation first went another way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The number of the function in its module.
    pub function: usize,
    /// The seed of both runs.
    pub seed: u64,
    /// Instructions that the allocated run had executed.
    pub step: usize,
    /// The block.
    pub block: Block,
    /// The instruction.
    pub inst: Inst,
    /// What differs.
    pub what: What,
    /// The last edits executed before, in words.
    pub edits: Vec<String>,
}

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The instruction read something else.
    Input {
        /// Position of the operand.
        operand: usize,
        /// Part of the operand.
        part: usize,
        /// The virtual register it should be.
        value: VReg,
        /// The register's name.
        reg: String,
        /// What it should have read.
        expected: u64,
        /// What it read.
        got: u64,
    },
    /// The instruction is not what should be observed next.
    Event {
        /// What should be, if anything.
        expected: Option<Inst>,
        /// Position among all observable events.
        position: usize,
    },
    /// A preserved register came back changed.
    NotPreserved {
        /// The register's name.
        reg: String,
    },
    /// A function takes an argument, or a call a result, that the other side does not hand
    /// over in that register.
    NotHanded {
        /// The register's name.
        reg: String,
    },
    /// The allocation cannot be executed.
    Malformed(&'static str),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, step, function) = (self.seed, self.step, self.function);
        write!(
            f,
            "seed {seed}, step {step}, function {function}, {}, {}: ",
            self.block, self.inst
        )?;
        match &self.what {
            What::Input {
                operand,
                part,
                value,
                reg,
                expected,
                got,
            } => write!(
                f,
                "operand {operand} reads {got:#018x} from {reg}, but {value} part {part} is {expected:#018x}"
            )?,
            What::Event {
                expected: Some(expected),
                position,
            } => write!(f, "event {position} should be that of {expected}")?,
            What::Event {
                expected: None,
                position,
            } => write!(f, "event {position} is one too many")?,
            What::NotPreserved { reg } => write!(f, "{reg} is not the caller's at the return")?,
            What::NotHanded { reg } => write!(f, "nothing is handed over in {reg}")?,
            What::Malformed(why) => f.write_str(why)?,
        }
        for edit in &self.edits {
            write!(f, "\n  after {edit}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Difference {}

/// The first event in which two traces differ.
pub(super) fn first_event_apart(
    module: Module<'_>,
    start: usize,
    expected: &Trace,
    got: &Trace,
    seed: u64,
) -> Box<Difference> {
    let pairs = expected.events.iter().zip(&got.events);
    let position = pairs.take_while(|(e, g)| e == g).count();
    let at = |trace: &Trace| {
        let event = trace.events.get(position)?;
        Some((event.function, event.inst))
    };
    let wanted = at(expected);
    let entry = || {
        let function = &module.functions[start];
        (start, function.terminator(function.entry()))
    };
    let (number, inst) = at(got).or(wanted).unwrap_or_else(entry);
    Box::new(Difference {
        function: number,
        seed,
        step: position,
        block: module.functions[number].block_of(inst),
        inst,
        what: What::Event {
            expected: wanted.map(|(_, inst)| inst),
            position,
        },
        edits: Vec::new(),
    })
}

/// An edit in words.
pub(super) fn edit_text(target: &Target, point: Point, edit: &Edit) -> String {
    let reg = |reg: PReg| match reg.file.index() < target.files().len() {
        true => target.reg_name(reg).to_string(),
        false => format!("unit {} of file {}", reg.unit, reg.file.index()),
    };
    let slot = |slot: SlotAddr| match slot.space {
        Space::Local => format!("local[{}]", slot.offset),
        Space::Shared => format!("shared[{}]", slot.offset),
        Space::Argument => format!("argument[{}]", slot.offset),
    };
    let what = match *edit {
        Edit::Move { to, from, width } => format!("{} = {} x{width}", reg(to), reg(from)),
        Edit::Swap { a, b, width } => format!("{} <-> {} x{width}", reg(a), reg(b)),
        Edit::Transfer { to, from, regs } => format!("{} = {} x{regs} regs", reg(to), reg(from)),
        Edit::Store { to, from, width } => format!("{} = {} x{width}", slot(to), reg(from)),
        Edit::Reload { to, from, width } => format!("{} = {} x{width}", reg(to), slot(from)),
        Edit::Recompute { inst, ref regs } => {
            let regs: Vec<String> = regs.iter().map(|&r| reg(r)).collect();
            format!("{inst} again in {}", regs.join(", "))
        }
    };
    match point {
        Point::Before(inst) => format!("{what} (before {inst})"),
        Point::After(inst) => format!("{what} (after {inst})"),
        Point::Edge(block, succ) => format!("{what} (on edge {succ} of {block})"),
    }
}
