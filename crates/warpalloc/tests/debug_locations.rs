//! Debug locations name places that hold the value whenever execution is there.
//!
//! The oracle shares nothing with the checker: it executes one path of the allocated code on
//! registers and bytes whose contents are symbols, beside the values that virtual registers
//! have at the same time.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use warpalloc::allocation::{Edit, Point, SlotAddr};
use warpalloc::check::{DebugLocation, ValueLabel, ValuePlace};
use warpalloc::function::{Effect, Function, Inst, Kind, VReg};
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, PReg, Target};
use warpalloc::{Allocation, Allocator, Options, Strategy, allocate, text};

/// A piece of a value: its symbol, and which byte of it.
type Symbol = u64;

fn symbol(parts: impl Hash) -> Symbol {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

struct Machine<'a> {
    function: &'a Function,
    target: &'a Target,
    allocation: &'a Allocation,
    /// By virtual register, one symbol per unit.
    values: HashMap<VReg, Vec<Symbol>>,
    units: HashMap<PReg, Symbol>,
    /// By space and byte: a symbol and which byte of it.
    memory: HashMap<SlotAddr, (Symbol, usize)>,
    time: u64,
}

impl Machine<'_> {
    fn width(&self, vreg: VReg) -> usize {
        self.target.width(self.function.vreg(vreg).class)
    }

    /// The results that `inst` has for `inputs`, unit by unit.
    fn results(&self, inst: Inst, inputs: &[Symbol]) -> Vec<Symbol> {
        let info = self.function.inst(inst);
        if info.kind == Kind::Copy {
            return inputs.to_vec();
        }
        let when = match info.effect {
            Effect::Pure if info.kind == Kind::Plain => 0,
            _ => self.time,
        };
        let opcode = self.function.opcode_name(info.opcode);
        let operands = self.function.operands(inst).iter();
        let written = operands.filter(|o| o.role.writes());
        let units = written.map(|o| self.width(o.vreg)).sum::<usize>();
        let result = |unit| symbol((opcode, info.imm, inputs, when, unit));
        (0..units).map(result).collect()
    }

    fn bytes(&self, file: File) -> usize {
        self.target.file(file).unit_bytes
    }

    fn get(&self, reg: PReg) -> Symbol {
        let garbage = || symbol((reg.file.index(), reg.unit, "garbage"));
        self.units.get(&reg).copied().unwrap_or_else(garbage)
    }

    fn execute(&mut self, inst: Inst) {
        self.time += 1;
        let operands = self.function.operands(inst);
        let read = |o: &&warpalloc::function::Operand| o.role.reads();
        let inputs: Vec<Symbol> = operands
            .iter()
            .filter(read)
            .flat_map(|o| self.values[&o.vreg].clone())
            .collect();
        let mut results = self.results(inst, &inputs).into_iter();
        let registers = self.allocation.operands(self.function, inst).to_vec();
        let is_code = !self.allocation.deleted.contains(inst);
        if is_code {
            for unit in self.function.clobbers(self.target, inst).iter() {
                self.units.remove(&self.target.reg_at(unit));
            }
        }
        for (operand, reg) in operands.iter().zip(registers) {
            if operand.role.writes() {
                let width = self.width(operand.vreg);
                let parts: Vec<Symbol> = results.by_ref().take(width).collect();
                for (part, &value) in parts.iter().enumerate().filter(|_| is_code) {
                    self.units.insert(reg.offset(part), value);
                }
                self.values.insert(operand.vreg, parts);
            }
        }
    }

    fn edit(&mut self, edit: &Edit) {
        match *edit {
            Edit::Move { to, from, width } => {
                let read = |i| self.get(from.offset(i));
                let values: Vec<Symbol> = (0..width.into()).map(read).collect();
                for (i, value) in values.into_iter().enumerate() {
                    self.units.insert(to.offset(i), value);
                }
            }
            Edit::Swap { a, b, width } => {
                for i in 0..usize::from(width) {
                    let (x, y) = (self.get(a.offset(i)), self.get(b.offset(i)));
                    self.units.insert(a.offset(i), y);
                    self.units.insert(b.offset(i), x);
                }
            }
            Edit::Transfer { to, from, regs } => {
                // Of the targets here, one unit of each file is a register.
                for i in 0..usize::from(regs) {
                    let value = self.get(from.offset(i));
                    self.units.insert(to.offset(i), value);
                }
            }
            Edit::Store { to, from, width } => {
                let bytes = self.bytes(from.file);
                for i in 0..usize::from(width) * bytes {
                    let value = (self.get(from.offset(i / bytes)), i % bytes);
                    self.memory.insert(beyond(to, i), value);
                }
            }
            Edit::Reload { to, from, width } => {
                let bytes = self.bytes(to.file);
                for i in 0..usize::from(width) {
                    let at = self.memory.get(&beyond(from, i * bytes));
                    let value = at.map_or(0, |&(value, _)| value);
                    self.units.insert(to.offset(i), value);
                }
            }
            Edit::Recompute { inst, ref regs } => {
                let operands = self.function.operands(inst).iter().zip(regs);
                let units = |(o, &reg): (&warpalloc::function::Operand, &PReg)| {
                    (0..self.width(o.vreg))
                        .map(move |i| reg.offset(i))
                        .collect::<Vec<_>>()
                };
                let read = operands.clone().filter(|(o, _)| o.role.reads());
                let inputs: Vec<Symbol> = read.flat_map(units).map(|r| self.get(r)).collect();
                let written: Vec<PReg> = operands
                    .filter(|(o, _)| o.role.writes())
                    .flat_map(units)
                    .collect();
                let results = self.results(inst, &inputs);
                self.units.extend(written.into_iter().zip(results));
            }
        }
    }

    /// Whether `place` holds the value that `vreg` has now.
    fn holds(&self, place: ValuePlace, vreg: VReg) -> bool {
        let Some(value) = self.values.get(&vreg) else {
            return false;
        };
        let file = self.target.class(self.function.vreg(vreg).class).file;
        let bytes = match place {
            ValuePlace::Reg(_) => 1,
            // A predicate takes a word.
            ValuePlace::Slot(_) => self.bytes(if file == File::P { File::R } else { file }),
        };
        value.iter().enumerate().all(|(part, &symbol)| match place {
            ValuePlace::Reg(reg) => self.get(reg.offset(part)) == symbol,
            ValuePlace::Slot(slot) => (0..bytes).all(|byte| {
                let at = beyond(slot, part * bytes + byte);
                self.memory.get(&at) == Some(&(symbol, byte))
            }),
        })
    }
}

fn beyond(slot: SlotAddr, bytes: usize) -> SlotAddr {
    let offset = slot.offset + bytes as i32;
    SlotAddr { offset, ..slot }
}

/// Follows one path and checks every location on it; how many points were looked at.
fn follow(
    function: &Function,
    target: &Target,
    allocation: &Allocation,
    labels: &[ValueLabel],
    locations: &[DebugLocation],
    rng: &mut Rng,
) -> usize {
    let mut machine = Machine {
        function,
        target,
        allocation,
        values: HashMap::new(),
        units: HashMap::new(),
        memory: HashMap::new(),
        time: 0,
    };
    let vreg_of = |label: u32| labels[label as usize].vreg;
    let (mut block, mut looked) = (function.entry(), 0);
    for _ in 0..30 {
        let mut here: Vec<&DebugLocation> = Vec::new();
        let mut look = |machine: &Machine, point: Point| {
            here.extend(locations.iter().filter(|l| l.from == point));
            for location in &here {
                let vreg = vreg_of(location.label);
                assert!(
                    machine.holds(location.place, vreg),
                    "{vreg}: {location:?} at {point:?}"
                );
            }
            looked += here.len();
            here.retain(|l| l.to != point);
        };
        for inst in allocation.block_insts(function, block) {
            allocation.edits.before(inst).for_each(|e| machine.edit(e));
            look(&machine, Point::Before(inst));
            machine.execute(inst);
            if inst != function.terminator(block) {
                look(&machine, Point::After(inst));
            }
            allocation.edits.after(inst).for_each(|e| machine.edit(e));
        }
        let succs = function.succs(block);
        if succs.is_empty() {
            break;
        }
        let way = rng.below(succs.len());
        let on_edge = allocation.edits.on_edge(block, way as u32);
        on_edge.for_each(|e| machine.edit(e));
        let params = function.block(succs[way].block).params.iter().copied();
        let args = succs[way].args.iter().map(|a| machine.values[a].clone());
        let passed: Vec<_> = params.zip(args).collect();
        machine.values.extend(passed);
        block = succs[way].block;
    }
    looked
}

/// A label for every value, over the whole function.
fn everywhere(function: &Function) -> Vec<ValueLabel> {
    let from = Inst::from_u32(0);
    let to = Inst::from_u32(function.inst_count() as u32);
    let label = |(label, vreg)| ValueLabel {
        vreg,
        from,
        to,
        label,
    };
    (0..).zip(function.vregs()).map(label).collect()
}

#[test]
fn every_location_holds_its_value_on_every_path_tried() {
    let mut looked = 0;
    for strategy in Strategy::ALL {
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let budget = [6, 12, 255][seed as usize % 3];
            let target = Target::hardware(90).unwrap().with_budget(File::R, budget);
            let shape = Shape::random(60, &mut rng);
            let function = generate::function(&shape, &target, &mut rng);
            let options = Options::with_strategy(strategy);
            let allocation = allocate(&function, &target, &options).unwrap();
            let labels = everywhere(&function);
            let locations = Allocator::default()
                .debug_locations(&function, &target, &allocation, &labels)
                .unwrap();
            for _ in 0..3 {
                looked += follow(
                    &function,
                    &target,
                    &allocation,
                    &labels,
                    &locations,
                    &mut rng,
                );
            }
        }
    }
    assert!(looked > 10_000, "{looked}");
}

/// A value that goes to memory is reported there for as long as it stays, though it is also
/// reloaded.
#[test]
fn a_spilled_value_is_followed() {
    let function = text::parse(
        "
target hardware sm_90
kernel f {
block0:
    v0:r32 = load #0 : read
    v1:r64 = load #1 : read
    store v1 : write
    store v0 : write
    exit : exit write
}
",
    )
    .unwrap()
    .function;
    let target = Target::hardware(90).unwrap().with_budget(File::R, 2);
    let allocation = allocate(&function, &target, &Options::default()).unwrap();
    let inst = Inst::from_u32;
    let label = |from, to, label| ValueLabel {
        vreg: VReg::from_u32(0),
        from: inst(from),
        to: inst(to),
        label,
    };
    let labels = [label(0, 5, 7), label(1, 2, 8)];
    let found = Allocator::default()
        .debug_locations(&function, &target, &allocation, &labels)
        .unwrap();
    let shown: Vec<String> = found
        .iter()
        .map(|l| {
            let place = match l.place {
                ValuePlace::Reg(reg) => target.reg_name(reg).to_string(),
                ValuePlace::Slot(slot) => format!("local[{}]", slot.offset),
            };
            format!("{} {:?}..={:?} {place}", l.label, l.from, l.to)
        })
        .collect();
    assert_eq!(
        shown,
        [
            "7 After(inst0)..=Before(inst1) R0",
            "7 After(inst1)..=Before(inst4) local[-4]",
            "8 Before(inst1)..=Before(inst1) R0",
            "8 After(inst1)..=After(inst1) local[-4]",
        ]
    );
}
