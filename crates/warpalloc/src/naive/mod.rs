//! The naive allocator: every value lives in memory.
//!
//! Before each instruction its inputs are reloaded into registers chosen for that
//! instruction alone, after it its results are stored. Nothing stays in a register from
//! one instruction to the next, so the only question is whether one instruction's operands
//! fit side by side; the allocator succeeds wherever any allocation exists. Every other
//! strategy falls back on it.
//!
//! Pinned values may not touch memory; each gets registers of its own for good.

mod assign_operands;
mod slots;

use crate::allocation::{Allocation, Edit, Edits, Frame, Point, SlotAddr, Space};
use crate::error::{Error, Place};
use crate::frame::callee_saves::save_callee_saved;
use crate::function::{Block, Clobbers, Convention, Function, Inst, Kind, VReg};
use crate::scratch::Scratch;
use crate::stats::Stats;
use crate::target::{Class, File, PReg, RegSet, SpillPath, Target};
use cranelift_entity::EntitySet;
use slots::Homes;

/// Allocates `function` with every value in memory.
pub fn allocate(
    function: &Function,
    target: &Target,
    space: Space,
    scratch: &Scratch,
) -> Result<Allocation, Error> {
    let mut naive = Naive::new(function, target, space, scratch)?;
    for block in function.blocks() {
        for inst in function.block_insts(block) {
            naive.instruction(inst)?;
        }
        for succ in 0..function.succs(block).len() {
            naive.edge(block, succ)?;
        }
    }
    let Naive {
        homes,
        touched,
        edits,
        ..
    } = &mut naive;
    let first = function.insts().next();
    save_callee_saved(function, target, first, touched, edits, |bytes| {
        homes.extra(bytes)
    });
    naive.finish()
}

struct Naive<'a> {
    function: &'a Function,
    target: &'a Target,
    homes: Homes,
    /// Callee-saved registers; used only where no other is left.
    preserved: RegSet,
    registers: Vec<PReg>,
    edits: Vec<(Point, Edit)>,
    touched: RegSet,
    table: assign_operands::Table<'a>,
}

impl<'a> Naive<'a> {
    fn new(
        function: &'a Function,
        target: &'a Target,
        space: Space,
        scratch: &'a Scratch,
    ) -> Result<Naive<'a>, Error> {
        let preserved = match function.convention() {
            Convention::Kernel => RegSet::new(target),
            Convention::Device => target.preserved(),
        };
        Ok(Naive {
            function,
            target,
            homes: Homes::assign(function, target, space)?,
            preserved,
            registers: vec![PReg::new(File::MAIN, 0); function.operand_count()],
            edits: Vec::new(),
            touched: RegSet::new(target),
            table: assign_operands::Table::new(function, target, scratch),
        })
    }

    /// Reload, execute, store.
    fn instruction(&mut self, inst: Inst) -> Result<(), Error> {
        let is_return = self.function.inst(inst).kind == Kind::Return;
        let rules = assign_operands::Rules {
            homes: &self.homes,
            avoid: &self.preserved,
            forbid_avoided: is_return,
        };
        let seats = self.table.seat(inst, &rules)?;
        let operands = self.function.operands(inst);
        for via in [true, false] {
            for (operand, &reg) in operands.iter().zip(&seats) {
                if operand.role.reads() && self.travels_via(operand.vreg).is_some() == via {
                    self.reload(Point::Before(inst), operand.vreg, reg)?;
                }
            }
        }
        for via in [false, true] {
            for (operand, &reg) in operands.iter().zip(&seats) {
                if operand.role.writes() && self.travels_via(operand.vreg).is_some() == via {
                    self.store(Point::After(inst), operand.vreg, reg)?;
                }
            }
        }
        for (operand, &reg) in operands.iter().zip(&seats) {
            self.touch(reg, self.target.width(self.class(operand.vreg)));
        }
        if self.function.inst(inst).clobbers != Clobbers::None {
            let clobbers = self.function.clobbers(self.target, inst);
            self.touched.union_with(&clobbers);
        }
        self.registers[self.function.operand_range(inst)].copy_from_slice(&seats);
        Ok(())
    }

    /// Gives each parameter its argument's value, memory to memory.
    ///
    /// All arguments are set aside first: a parameter may be another one's argument.
    fn edge(&mut self, block: Block, succ: usize) -> Result<(), Error> {
        let edge = &self.function.succs(block)[succ];
        let point = Point::Edge(block, succ as u32);
        let params = &self.function.block(edge.block).params;
        let mut shadows = Vec::new();
        for &arg in &edge.args {
            let aside = self
                .homes
                .shadow(shadows.len(), self.target.spill_bytes(self.class(arg)));
            self.copy_memory(point, arg, self.homes.slot(arg), Some(aside))?;
            shadows.push(aside);
        }
        for (&param, aside) in params.iter().zip(shadows) {
            self.copy_memory(point, param, Some(aside), self.homes.slot(param))?;
        }
        Ok(())
    }

    fn copy_memory(
        &mut self,
        point: Point,
        value: VReg,
        from: Option<SlotAddr>,
        to: Option<SlotAddr>,
    ) -> Result<(), Error> {
        let (Some(from), Some(to)) = (from, to) else {
            return Err(Error::Impossible {
                place: Place::Function,
                value: Some(value),
                message: format!("{value} is pinned, but passed along an edge"),
                help: "copy it into an ordinary virtual register first".into(),
            });
        };
        let (reg, width) = self.carrier(value)?;
        let width = width as u8;
        self.edits.push((
            point,
            Edit::Reload {
                to: reg,
                from,
                width,
            },
        ));
        self.edits.push((
            point,
            Edit::Store {
                to,
                from: reg,
                width,
            },
        ));
        Ok(())
    }

    fn reload(&mut self, point: Point, value: VReg, to: PReg) -> Result<(), Error> {
        let Some(from) = self.homes.slot(value) else {
            return Ok(());
        };
        let units = self.target.width(self.class(value)) as u8;
        if self.travels_via(value).is_none() {
            self.edits.push((
                point,
                Edit::Reload {
                    to,
                    from,
                    width: units,
                },
            ));
            return Ok(());
        }
        let (carrier, width) = self.carrier(value)?;
        let width = width as u8;
        self.edits.push((
            point,
            Edit::Reload {
                to: carrier,
                from,
                width,
            },
        ));
        let transfer = Edit::Transfer {
            to,
            from: carrier,
            regs: units,
        };
        self.edits.push((point, transfer));
        Ok(())
    }

    fn store(&mut self, point: Point, value: VReg, from: PReg) -> Result<(), Error> {
        let Some(to) = self.homes.slot(value) else {
            return Ok(());
        };
        let units = self.target.width(self.class(value)) as u8;
        if self.travels_via(value).is_none() {
            self.edits.push((
                point,
                Edit::Store {
                    to,
                    from,
                    width: units,
                },
            ));
            return Ok(());
        }
        let (carrier, width) = self.carrier(value)?;
        let transfer = Edit::Transfer {
            to: carrier,
            from,
            regs: units,
        };
        self.edits.push((point, transfer));
        let width = width as u8;
        self.edits.push((
            point,
            Edit::Store {
                to,
                from: carrier,
                width,
            },
        ));
        Ok(())
    }

    /// A register between memory and `value`'s file, and its width in units.
    ///
    /// No value rests in a register while it is used, so the first that is not pinned
    /// will do; where a choice exists it is not callee-saved.
    fn carrier(&mut self, value: VReg) -> Result<(PReg, usize), Error> {
        let class = self.target.class(self.class(value));
        let (file, width) = match self.travels_via(value) {
            Some(file) => (file, class.width * self.target.file(file).units_per_reg),
            None => (class.file, class.width),
        };
        let units = self.target.file(file).units;
        let mut classes = self.target.classes();
        let carries = classes.find(|(_, c)| c.file == file && c.width == width);
        let align = carries.map_or(width.next_power_of_two(), |(_, class)| class.align);
        let starts = (0..(units + 1).saturating_sub(width)).step_by(align);
        let free = |unit: &usize| {
            let reg = PReg::new(file, *unit);
            !self.homes.pinned_units().overlaps(self.target, reg, width)
        };
        let unwanted = |unit: &usize| {
            self.preserved
                .overlaps(self.target, PReg::new(file, *unit), width)
        };
        let unit = starts.clone().find(|u| free(u) && !unwanted(u));
        let Some(unit) = unit.or_else(|| starts.clone().find(free)) else {
            return Err(Error::Impossible {
                place: Place::Function,
                value: Some(value),
                message: format!("no register is left to carry {value} to and from memory"),
                help: "raise the register budget or pin fewer values".into(),
            });
        };
        let reg = PReg::new(file, unit);
        self.touch(reg, width);
        Ok((reg, width))
    }

    /// The file through which `value` reaches memory, if its own cannot.
    fn travels_via(&self, value: VReg) -> Option<File> {
        let file = self.target.class(self.class(value)).file;
        match self.target.file(file).spill {
            SpillPath::Memory => None,
            SpillPath::Via(file) => Some(file),
        }
    }

    fn class(&self, value: VReg) -> Class {
        self.function.vreg(value).class
    }

    fn touch(&mut self, reg: PReg, width: usize) {
        for unit in self.target.units(reg, width) {
            self.touched.insert(unit);
        }
    }

    fn finish(self) -> Result<Allocation, Error> {
        let frame: Frame = self.homes.frame();
        let needed = frame.local.max(frame.shared);
        let limit = self.target.frame_limit();
        if needed > limit {
            return Err(Error::FrameTooLarge {
                place: Place::Function,
                value: None,
                needed,
                limit,
                help: "split the function, or use an allocator that keeps values in registers"
                    .into(),
            });
        }
        let edits = Edits::new(self.function, self.edits);
        let values = self.function.vreg_count() as u32;
        Ok(Allocation {
            registers: self.registers,
            memory: Vec::new(),
            stats: Stats {
                values,
                spilled: values,
                iterations: 1,
                edits: edits.counts(),
                ..Stats::default()
            },
            edits,
            deleted: EntitySet::new(),
            order: None,
            frame,
        })
    }
}
