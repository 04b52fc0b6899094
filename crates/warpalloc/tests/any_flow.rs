//! Random functions of any control flow, allocated, proved and executed.
//!
//! Functions that `generate` makes look like compiled code. These do not: edges lead anywhere,
//! so that loops have several entries and some blocks are never reached, blocks take parameters
//! that are also ordinary values and pass them to themselves, and instructions have early
//! results, ties, groups, fixed registers and clobbers in any combination.

use warpalloc::check::trace;
use warpalloc::function::{
    Block, Builder, Clobbers, Constraint, Effect, Function, Kind, Operand, Role, VReg,
};
use warpalloc::generate::Rng;
use warpalloc::options::HoistPolicy;
use warpalloc::target::{Class, File, PReg, Target};
use warpalloc::{Options, Strategy, allocate};

const FUNCTIONS: u64 = 500;

struct Draft<'a> {
    b: Builder,
    rng: &'a mut Rng,
    vregs: Vec<VReg>,
    blocks: Vec<Block>,
    params: Vec<Vec<VReg>>,
}

fn function(rng: &mut Rng) -> Function {
    let mut b = Builder::new("any");
    let blocks: Vec<Block> = (0..rng.within(2..=9)).map(|_| b.block()).collect();
    let class = |rng: &mut Rng| [Class::R64, Class::PRED, Class::R32, Class::R32][rng.below(4)];
    let vregs = (0..rng.within(3..=12)).map(|_| b.vreg(class(rng)));
    let vregs: Vec<VReg> = vregs.collect();
    for (number, &vreg) in vregs.iter().enumerate() {
        let load = b.inst(blocks[0], "load").def(vreg).imm(number as u64);
        load.effect(Effect::Read);
    }
    let mut draft = Draft {
        params: vec![Vec::new(); blocks.len()],
        b,
        rng,
        vregs,
        blocks,
    };
    draft.add_parameters();
    for number in 0..draft.blocks.len() {
        for _ in 0..draft.rng.within(0..=6) {
            draft.add_instruction(draft.blocks[number]);
        }
        draft.end(number);
    }
    draft.b.finish()
}

impl Draft<'_> {
    fn any(&mut self) -> VReg {
        self.vregs[self.rng.below(self.vregs.len())]
    }

    fn add_parameters(&mut self) {
        for number in 1..self.blocks.len() {
            let param = self.any();
            if self.rng.one_in(3) {
                self.params[number].push(param);
                self.b.param(self.blocks[number], param);
            }
        }
    }

    fn end(&mut self, number: usize) {
        let (block, last) = (self.blocks[number], self.blocks.len() - 1);
        if number == last || (number > 0 && self.rng.one_in(9)) {
            self.b.exit(block, "exit");
            return;
        }
        for _ in 0..self.rng.within(1..=3) {
            let to = match self.rng.one_in(2) {
                true => number + 1,
                false => self.rng.within(1..=last),
            };
            let passes_itself = self.rng.one_in(2);
            let mut args = self.params[to].clone();
            for arg in args.iter_mut().filter(|_| !passes_itself) {
                let other = self.vregs[self.rng.below(self.vregs.len())];
                if self.b.class_of(other) == self.b.class_of(*arg) {
                    *arg = other;
                }
            }
            self.b.edge(block, self.blocks[to], &args);
        }
        self.b.branch(block, "br").imm(number as u64);
    }

    fn add_instruction(&mut self, block: Block) {
        let (x, y, z) = (self.any(), self.any(), self.any());
        let Draft { b, rng, .. } = self;
        let alike = b.class_of(x) == b.class_of(y);
        let is_single = |b: &Builder, v: VReg| b.class_of(v) == Some(Class::R32);
        let singles = is_single(b, x) && is_single(b, y);
        let operand = |vreg, role, constraint| Operand {
            vreg,
            role,
            constraint,
        };
        let mut fixed = || PReg::new(File::R, rng.below(3));
        let (first, second) = (fixed(), fixed());
        match rng.below(12) {
            0 => {
                b.inst(block, "inc").use_def(x);
            }
            1 if alike => {
                b.copy(block, x, y);
            }
            2 => {
                let early = operand(x, Role::EarlyDef, Constraint::Any);
                let asm = b.inst(block, "asm").operand(early).use_(y);
                if z != x {
                    asm.def(z);
                }
            }
            3 => {
                let list = b.reg_list([first]);
                let clobbers = [Clobbers::Abi, Clobbers::List(list)][rng.below(2)];
                let call = b.inst(block, "call").def(x).use_(y).use_(z);
                call.effect(Effect::Write)
                    .kind(Kind::Call)
                    .clobbers(clobbers);
            }
            4 if singles => {
                let fix = b.inst(block, "fix").def_fixed(x, first);
                fix.use_fixed(y, second);
            }
            5 if alike => {
                let tied = operand(x, Role::Def, Constraint::Tied(1));
                b.inst(block, "tied").operand(tied).use_(y).use_(z);
            }
            6 if singles && x != y => {
                let pair = b.inst(block, "pair").def(x).def(y).use_(z);
                pair.group(0, 2, 2);
            }
            7..=10 if x != y && x != z => {
                b.inst(block, "scale").def(x).use_(y).use_(z).remat(3);
            }
            _ => {
                let store = b.inst(block, "store").use_(x).use_(y);
                store.effect(Effect::Write);
            }
        }
    }
}

#[test]
fn functions_of_any_control_flow_are_allocated_right() {
    let mut rng = Rng::new(5);
    let (mut allocated, mut hoisted) = (0, 0);
    for seed in 0..FUNCTIONS {
        let function = function(&mut rng);
        let budget = [8, 10, 12, 24, 70, 255][rng.below(6)];
        let target = Target::hardware(90).unwrap().with_budget(File::R, budget);
        // Fixed registers may collide, and parameters are not written on every path.
        if function.validate(&target).is_err() {
            continue;
        }
        for strategy in Strategy::ALL {
            let mut options = Options::with_strategy(strategy);
            options.knobs.hoist_policy = HoistPolicy::Always;
            let allocation = allocate(&function, &target, &options);
            let allocation = allocation.unwrap_or_else(|e| panic!("{seed}, {strategy:?}: {e}"));
            let limits = trace::Limits::default();
            trace::compare(&function, &target, &allocation, limits, seed)
                .unwrap_or_else(|e| panic!("{seed}, {strategy:?}: {e}"));
            allocated += 1;
            hoisted += allocation.stats.hoisted;
        }
    }
    assert!(
        allocated > FUNCTIONS && hoisted > 5,
        "{allocated} {hoisted}"
    );
}
