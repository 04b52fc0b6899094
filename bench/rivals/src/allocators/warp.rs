//! warpalloc.

use crate::code::{Code, Item, Place};
use crate::function::{Func, Kind};
use anyhow::{Result, anyhow, bail};
use warpalloc::allocation::{Edit, Frame, Label, SlotAddr, Step, ValuePlace};
use warpalloc::function::{Block, Builder, Effect, Function, Inst, VReg};
use warpalloc::target::{Class, File, PReg, Target};
use warpalloc::{Allocation, Options, Strategy, allocate};

/// What differs between the rows of the table.
#[derive(Clone, Copy)]
pub struct Variant {
    pub strategy: Strategy,
    pub schedule: bool,
    pub verify: bool,
}

pub struct Job {
    function: Function,
    target: Target,
    options: Options,
}

impl Job {
    pub fn new(f: &Func, k: usize, changed: &[(String, String)]) -> Result<Job> {
        let mut b = Builder::new(f.name.clone());
        let blocks: Vec<Block> = f.blocks.iter().map(|_| b.block()).collect();
        let vregs: Vec<VReg> = (0..f.vals).map(|_| b.vreg(Class::R32)).collect();
        for (&block, info) in blocks.iter().zip(&f.blocks) {
            b.frequency(block, info.frequency() as f32);
            for &v in &info.params {
                b.param(block, vregs[v as usize]);
            }
            let args: Vec<VReg> = info.args.iter().map(|&v| vregs[v as usize]).collect();
            for &succ in &info.succs {
                b.edge(block, blocks[succ as usize], &args);
            }
            for i in info.insts() {
                let inst = &f.insts[i];
                let mut built = match inst.kind {
                    Kind::Op => b.inst(block, "op"),
                    Kind::Const => b.inst(block, "const").remat(1),
                    Kind::Load => b.inst(block, "load").effect(Effect::Read),
                    Kind::Store => b.inst(block, "store").effect(Effect::Write),
                    Kind::Branch | Kind::Jump => b.branch(block, "bra"),
                    Kind::Ret => b.exit(block, "exit"),
                };
                for &v in &inst.defs {
                    built = built.def(vregs[v as usize]);
                }
                for &v in &inst.uses {
                    built = built.use_(vregs[v as usize]);
                }
                // Otherwise two instructions would be the same computation.
                built.imm(i as u64);
            }
        }
        let mut options = Options::default();
        for (name, value) in changed {
            options.set(name, value).map_err(|e| anyhow!(e))?;
        }
        Ok(Job {
            function: b.finish(),
            target: Target::hardware(90)?.with_budget(File::R, k),
            options,
        })
    }

    pub fn run(&self, variant: Variant) -> Result<Allocation> {
        let options = Options {
            strategy: variant.strategy,
            verify: variant.verify,
            schedule: variant.schedule && self.options.schedule,
            ..self.options.clone()
        };
        Ok(allocate(&self.function, &self.target, &options)?)
    }

    pub fn code(&self, f: &Func, variant: Variant) -> Result<Code> {
        // The library's own proof comes on top of the common checker's.
        let verify = true;
        let a = self.run(Variant { verify, ..variant })?;
        let walk = a.walk(&self.function);
        let mut blocks = Vec::new();
        for label in walk.labels() {
            // Critical edges of these functions are split.
            if let Label::Edge(block, succ) = label {
                bail!("edge {succ} of {block} has a block of its own");
            }
            let mut items = Vec::new();
            for step in walk.steps(label) {
                match step {
                    Step::Edit(edit) => push(&mut items, &a.frame, edit)?,
                    Step::Inst(inst, places) => items.push(Item::Inst {
                        inst: inst.as_u32(),
                        places: places
                            .iter()
                            .map(|place| place_of(&a.frame, place))
                            .collect(),
                    }),
                }
            }
            blocks.push(items);
        }
        // A constant that is rematerialised wherever it is read needs no first execution.
        // Nothing else in these functions can be spared.
        let is_const = |inst: &Inst| f.insts[inst.as_u32() as usize].kind == Kind::Const;
        if let Some(inst) = a.deleted.iter().find(|inst| !is_const(inst)) {
            bail!("{inst} was deleted");
        }
        Ok(Code { blocks })
    }
}

fn place_of(frame: &Frame, place: ValuePlace) -> Place {
    match place {
        ValuePlace::Reg(r) => reg(r),
        ValuePlace::Slot(at) => slot(frame, at, 0),
    }
}

fn reg(r: PReg) -> Place {
    Place::Reg(r.unit)
}

/// The slot of one word; the frame grows downwards from offset 0.
fn slot(frame: &Frame, at: SlotAddr, word: i32) -> Place {
    let bytes = at.offset + frame.size(at.space) as i32 + 4 * word;
    Place::Slot(bytes as u32 / 4)
}

fn push(items: &mut Vec<Item>, frame: &Frame, edit: &Edit) -> Result<()> {
    match *edit {
        Edit::Move { to, from, width } => {
            // A wide move reads everything before it writes anything.
            let up = to.unit > from.unit;
            for n in 0..usize::from(width) {
                let n = if up { usize::from(width) - 1 - n } else { n };
                let (to, from) = (reg(to.offset(n)), reg(from.offset(n)));
                items.push(Item::Move { to, from });
            }
        }
        Edit::Swap { a, b, width } => {
            for n in 0..usize::from(width) {
                let (a, b) = (reg(a.offset(n)), reg(b.offset(n)));
                items.push(Item::Swap { a, b });
            }
        }
        Edit::Store { to, from, width } => {
            for n in 0..i32::from(width) {
                let (to, from) = (slot(frame, to, n), reg(from.offset(n as usize)));
                items.push(Item::Move { to, from });
            }
        }
        Edit::Reload { to, from, width } => {
            for n in 0..i32::from(width) {
                let (to, from) = (reg(to.offset(n as usize)), slot(frame, from, n));
                items.push(Item::Move { to, from });
            }
        }
        Edit::Recompute { inst, ref regs } => items.push(Item::Remat {
            inst: inst.as_u32(),
            to: reg(regs[0]),
        }),
        Edit::Transfer { .. } => bail!("a transfer between files, of which there is one"),
    }
    Ok(())
}
