//! From a coloured program to an allocation.

mod parallel_moves;

pub use parallel_moves::sequence;

use crate::allocation::{Allocation, Edit, Edits, Frame, Point, SlotAddr, Space};
use crate::error::{Error, Place};
use crate::frame::callee_saves::save_callee_saved;
use crate::frame::layout::FrameLayout;
use crate::frame::slot_colouring;
use crate::function::{Block, Clobbers, Convention, Function, Inst, Kind, VReg};
use crate::ir::{Op, Program, Slot, Value};
use crate::stats::Stats;
use crate::target::{PReg, RegSet, Target};
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// The allocation that gives each value of `program` its register in `colours`.
///
/// Every value that occurs must have one. Copies whose sides ended up in one register
/// vanish, parallel copies are put in sequence, slots get their places, and callee-saved
/// registers that were used are saved, in `space`, and restored.
pub fn emit(
    program: &Program,
    target: &Target,
    space: Space,
    colours: &SecondaryMap<Value, Option<PReg>>,
    mut stats: Stats,
) -> Result<Allocation, Error> {
    let layout = slot_colouring::lay_out(program, target)?;
    stats.shared_slot_bytes = layout.saved;
    let gives_back = program.function.convention() != Convention::Kernel;
    let mut emitter = Emitter {
        program,
        target,
        colours,
        layout: layout.frames,
        places: layout.places,
        registers: vec![PReg::new(crate::target::File::MAIN, 0); program.function.operand_count()],
        edits: Vec::new(),
        waiting: Vec::new(),
        deleted: program.deleted.clone(),
        touched: gives_back.then(|| RegSet::new(target)),
    };
    for block in in_order_of_edits(program) {
        emitter.block(block);
    }
    let entry = program.blocks.keys().next();
    let frame = &mut emitter.layout[space as usize];
    if let Some(touched) = &emitter.touched {
        save_callee_saved(
            program.function,
            target,
            entry.and_then(|block| first_inst(program, block)),
            touched,
            &mut emitter.edits,
            |bytes| frame.push(bytes),
        );
    }
    let frame = emitter.frame(target)?;
    let edits = Edits::new(program.function, emitter.edits);
    stats.edits = edits.counts();
    Ok(Allocation {
        registers: emitter.registers,
        memory: Vec::new(),
        edits,
        deleted: emitter.deleted,
        order: program.order.clone(),
        frame,
        stats,
    })
}

struct Emitter<'a> {
    program: &'a Program<'a>,
    target: &'a Target,
    colours: &'a SecondaryMap<Value, Option<PReg>>,
    layout: [FrameLayout; 2],
    places: SecondaryMap<Slot, Option<SlotAddr>>,
    registers: Vec<PReg>,
    edits: Vec<(Point, Edit)>,
    /// Edits for the next instruction or the block's edge.
    waiting: Vec<Edit>,
    deleted: EntitySet<Inst>,
    /// The registers in use, of functions that must restore callee-saved ones.
    touched: Option<RegSet>,
}

impl Emitter<'_> {
    fn block(&mut self, block: Block) {
        let info = &self.program.blocks[block];
        let mut waiting = std::mem::take(&mut self.waiting);
        for op in &info.ops {
            match op {
                Op::Inst { inst, values } => {
                    if !waiting.is_empty() {
                        let edits = waiting.drain(..).map(|e| (Point::Before(*inst), e));
                        self.edits.extend(edits);
                    }
                    self.instruction(*inst, values);
                }
                other => self.insert(other, &mut waiting),
            }
        }
        if let Some((from, succ)) = info.edge {
            let edits = waiting.drain(..).map(|e| (Point::Edge(from, succ), e));
            self.edits.extend(edits);
        }
        self.waiting = waiting;
    }

    fn instruction(&mut self, inst: Inst, values: &[Value]) {
        let range = self.program.function.operand_range(inst);
        for (register, &value) in self.registers[range].iter_mut().zip(values) {
            *register = register_of(self.colours, value);
        }
        let function = self.program.function;
        if self.touched.is_some() {
            values.iter().for_each(|&value| self.touch(value));
        }
        if let Some(touched) = &mut self.touched
            && function.inst(inst).clobbers != Clobbers::None
        {
            touched.union_with(&function.clobbers(self.target, inst));
        }
        if function.inst(inst).kind == Kind::Copy && self.is_in_place(function, inst) {
            self.deleted.insert(inst);
        }
    }

    /// Whether a copy's results, laid end to end, sit exactly on its inputs.
    fn is_in_place(&self, function: &Function, inst: Inst) -> bool {
        let units = |reads: bool| {
            let operands = function.operands(inst).iter();
            let registers = &self.registers[function.operand_range(inst)];
            operands
                .zip(registers)
                .filter(move |(o, _)| o.role.reads() == reads)
                .flat_map(|(o, &reg)| {
                    self.target
                        .units(reg, self.target.width(function.vreg(o.vreg).class))
                })
        };
        units(true).eq(units(false))
    }

    fn insert(&mut self, op: &Op, out: &mut Vec<Edit>) {
        for (value, _) in op.accesses(self.program.function) {
            self.touch(value);
        }
        let width = |value: Value| self.target.width(self.program.values[value].class);
        match op {
            Op::Inst { .. } => {}
            Op::Copies(pairs) => {
                let moves: SmallVec<[_; 4]> = pairs
                    .iter()
                    .map(|&(to, from)| (self.register(to), self.register(from), width(to)))
                    .filter(|(to, from, _)| to != from)
                    .collect();
                match moves[..] {
                    [] => {}
                    [(to, from, 1)] => out.push(Edit::Move { to, from, width: 1 }),
                    _ => out.extend(sequence(&moves)),
                }
            }
            Op::Transfer { to, from } => {
                let registers = |v: Value| {
                    let class = self.target.class(self.program.values[v].class);
                    class.width / self.target.file(class.file).units_per_reg
                };
                out.push(Edit::Transfer {
                    to: self.register(*to),
                    from: self.register(*from),
                    regs: registers(*to).max(registers(*from)) as u8,
                });
            }
            Op::Store { slot, value } => out.push(Edit::Store {
                to: self.place(*slot),
                from: self.register(*value),
                width: width(*value) as u8,
            }),
            Op::Reload { value, slot } => out.push(Edit::Reload {
                to: self.register(*value),
                from: self.place(*slot),
                width: width(*value) as u8,
            }),
            Op::Recompute { inst, values } => out.push(Edit::Recompute {
                inst: *inst,
                regs: values.iter().map(|&v| self.register(v)).collect(),
            }),
        }
    }

    fn frame(&self, target: &Target) -> Result<Frame, Error> {
        let [local, shared] = [&self.layout[0], &self.layout[1]].map(FrameLayout::size);
        let needed = local.max(shared);
        if needed > target.frame_limit() {
            let (place, value) = self.last_stored();
            return Err(Error::FrameTooLarge {
                place,
                value,
                needed,
                limit: target.frame_limit(),
                help: "raise the register budget, or split the function".into(),
            });
        }
        Ok(Frame { local, shared })
    }

    /// Where the value at the far end of the frame is first stored.
    fn last_stored(&self) -> (Place, Option<VReg>) {
        let slots = self.program.slots.keys();
        let far = slots.min_by_key(|&slot| self.places[slot].map_or(0, |at| at.offset));
        for (block, info) in self.program.blocks.iter() {
            let mut place = Place::Function;
            for op in &info.ops {
                match op {
                    Op::Inst { inst, .. } => place = Place::Inst(block, *inst),
                    Op::Store { slot, value } if Some(*slot) == far => {
                        return (place, self.program.vreg_of(*value));
                    }
                    _ => {}
                }
            }
        }
        (Place::Function, None)
    }

    fn register(&self, value: Value) -> PReg {
        register_of(self.colours, value)
    }

    fn place(&self, slot: Slot) -> SlotAddr {
        debug_assert!(self.places[slot].is_some(), "{slot} has no place");
        self.places[slot].unwrap_or(SlotAddr {
            space: Space::Local,
            offset: i32::MIN,
        })
    }

    fn touch(&mut self, value: Value) {
        let Some(touched) = &mut self.touched else {
            return;
        };
        let width = self.target.width(self.program.values[value].class);
        for unit in self.target.units(register_of(self.colours, value), width) {
            touched.insert(unit);
        }
    }
}

fn register_of(colours: &SecondaryMap<Value, Option<PReg>>, value: Value) -> PReg {
    debug_assert!(colours[value].is_some(), "{value} has no register");
    colours[value].unwrap_or(PReg::new(crate::target::File::MAIN, 0))
}

/// The function's blocks, then those on edges by edge, as edits are kept.
fn in_order_of_edits(program: &Program) -> Vec<Block> {
    let mut blocks: Vec<Block> = program.blocks.keys().collect();
    let on_edges = &mut blocks[program.function.block_count()..];
    on_edges.sort_by_key(|&block| program.blocks[block].edge);
    blocks
}

fn first_inst(program: &Program, block: Block) -> Option<Inst> {
    let mut ops = program.blocks[block].ops.iter();
    ops.find_map(|op| match op {
        Op::Inst { inst, .. } => Some(*inst),
        _ => None,
    })
}
