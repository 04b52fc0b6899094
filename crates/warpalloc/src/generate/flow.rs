//! Control flow: nested regions.

use super::*;
use crate::function::{Effect, VReg};

/// How deep regions of any kind nest, to bound recursion.
const MAX_NESTING: usize = 24;

/// How deep the code being generated stands.
#[derive(Clone, Copy, Default)]
struct Depth {
    regions: usize,
    loops: usize,
}

impl Depth {
    fn region(self) -> Depth {
        let regions = self.regions + 1;
        Depth { regions, ..self }
    }

    fn in_loop(self) -> Depth {
        Depth {
            loops: self.loops + 1,
            ..self.region()
        }
    }
}

impl Generator<'_> {
    pub(super) fn body(&mut self) {
        self.prologue();
        let blocks = self.shape.blocks.max(1);
        let around = self.next_imm as usize + self.shape.pressure.min(self.shape.insts / 4);
        // Each block also has a terminator and often a compare for it.
        let per_block = self.shape.insts.saturating_sub(around) / blocks;
        self.per_block = per_block.saturating_sub(1).max(1);
        self.region(blocks, Depth::default());
        self.epilogue();
    }

    /// About `blocks` blocks, starting and ending in the current one.
    fn region(&mut self, blocks: usize, depth: Depth) {
        self.straight();
        let mut left = blocks.saturating_sub(1);
        while left > 0 {
            let size = match depth.regions {
                MAX_NESTING.. => 1,
                _ => self.rng.within(1..=left),
            };
            let before = self.blocks;
            self.construct(size, depth);
            left = left.saturating_sub(self.blocks - before);
            self.straight();
        }
    }

    fn construct(&mut self, size: usize, depth: Depth) {
        let loops = depth.loops < self.shape.loop_depth;
        match self.rng.below(10) {
            0..4 if loops => self.natural_loop(size, depth.in_loop()),
            4 if loops && self.shape.irreducible => self.two_entry_loop(size, depth.in_loop()),
            5 => self.early_exit(),
            6 if size > 3 => {
                let arms = self.rng.within(3..=4);
                self.switch(arms, size, depth.region());
            }
            7 | 8 if size > 2 => self.switch(2, size, depth.region()),
            _ => self.skip(size, depth.region()),
        }
    }

    /// Code for one block.
    fn straight(&mut self) {
        let each = self.per_block;
        let count = self.rng.within(each / 2..=each + each / 2);
        let end = self.next_imm + count as u64;
        // What does not fit the target is left out, so not every attempt counts.
        for _ in 0..4 * count {
            if self.next_imm >= end {
                break;
            }
            self.instruction();
        }
    }

    fn new_block(&mut self, depth: Depth) -> Block {
        let block = self.builder.block();
        self.blocks += 1;
        if self.shape.frequencies && self.rng.one_in(2) {
            let times = 8f32.powi(depth.loops as i32) / self.rng.within(1..=4) as f32;
            self.builder.frequency(block, times);
        }
        block
    }

    /// Enters `block` with the values of `window`.
    fn enter(&mut self, block: Block, window: Window) {
        self.block = block;
        self.window = window;
        self.window.forget_due();
    }

    /// Gives `block` up to three parameters of classes that values at hand have.
    fn add_params(&mut self, block: Block) -> Vec<VReg> {
        if !self.shape.params {
            return Vec::new();
        }
        let count = self.rng.below(4);
        let mut params = Vec::new();
        for _ in 0..count {
            let Some(class) = self.window.any_class(self.rng) else {
                break;
            };
            let param = self.builder.vreg(class);
            self.builder.param(block, param);
            params.push(param);
        }
        params
    }

    fn args(&mut self, params: &[VReg]) -> Vec<VReg> {
        let classes: Vec<Class> = params.iter().map(|&p| self.class_of(p)).collect();
        classes.into_iter().map(|class| self.value(class)).collect()
    }

    fn insert_params(&mut self, params: &[VReg]) {
        for &param in params {
            self.result(param);
        }
    }

    fn jump(&mut self, to: Block, params: &[VReg]) {
        let args = self.args(params);
        self.builder.jump(self.block, to, &args);
    }

    /// Ends the current block with a branch to `targets`, each with its parameters.
    fn branch(&mut self, targets: &[(Block, &[VReg])]) {
        let condition = self.condition();
        for (to, params) in targets {
            let args = self.args(params);
            self.builder.edge(self.block, *to, &args);
        }
        let opcode = if targets.len() == 2 { "brp" } else { "brx" };
        self.builder.branch(self.block, opcode).use_(condition);
    }

    /// if (c) { region }
    fn skip(&mut self, size: usize, depth: Depth) {
        let (then, join) = (self.new_block(depth), self.new_block(depth));
        let params = self.add_params(join);
        self.branch(&[(then, &[]), (join, &params)]);
        let before = self.window.clone();
        self.enter(then, before.clone());
        self.region(size.saturating_sub(1), depth);
        self.jump(join, &params);
        self.enter(join, before);
        self.insert_params(&params);
    }

    /// if (c) { region } else { region }, or a switch. Now and then an arm is empty and its
    /// edge leads straight to the join, beside another.
    fn switch(&mut self, arms: usize, size: usize, depth: Depth) {
        let join = self.new_block(depth);
        let params = self.add_params(join);
        let mut targets: Vec<(Block, &[VReg])> = Vec::new();
        let mut bodies = Vec::new();
        for _ in 0..arms {
            if self.rng.one_in(6) {
                targets.push((join, &params));
            } else {
                let arm = self.new_block(depth);
                bodies.push(arm);
                targets.push((arm, &[]));
            }
        }
        self.branch(&targets);
        let before = self.window.clone();
        for arm in bodies {
            self.enter(arm, before.clone());
            self.region(size / arms, depth);
            self.jump(join, &params);
        }
        self.enter(join, before);
        self.insert_params(&params);
    }

    /// if (c) exit
    fn early_exit(&mut self) {
        let depth = Depth::default();
        let (out, on) = (self.new_block(depth), self.new_block(depth));
        self.branch(&[(out, &[]), (on, &[])]);
        let before = self.window.clone();
        self.enter(out, before.clone());
        self.leave();
        self.enter(on, before);
    }

    /// A loop that tests at its start or at its end.
    fn natural_loop(&mut self, size: usize, depth: Depth) {
        let (header, exit) = (self.new_block(depth), self.new_block(depth));
        let carried = self.accumulators();
        let params = self.add_params(header);
        self.jump(header, &params);
        self.block = header;
        self.window.forget_due();
        self.insert_params(&params);
        for &vreg in carried.iter().chain(&params) {
            self.window.keep(vreg);
        }
        let tests_first = self.rng.one_in(2);
        if tests_first {
            self.straight();
            let body = self.new_block(depth);
            self.branch(&[(body, &[]), (exit, &[])]);
            let at_exit = self.window.clone();
            self.enter(body, at_exit.clone());
            self.region(size.saturating_sub(1), depth);
            self.jump(header, &params);
            self.enter(exit, at_exit);
        } else {
            self.region(size, depth);
            self.branch(&[(header, &params), (exit, &[])]);
            self.block = exit;
            self.window.forget_due();
        }
        for &vreg in carried.iter().chain(&params) {
            self.window.release(vreg);
        }
    }

    /// goto a or b; a: …; b: …; if (c) goto a
    fn two_entry_loop(&mut self, size: usize, depth: Depth) {
        let (a, b, exit) = (
            self.new_block(depth),
            self.new_block(depth),
            self.new_block(depth),
        );
        let (to_a, to_b) = (self.add_params(a), self.add_params(b));
        self.branch(&[(a, &to_a), (b, &to_b)]);
        let before = self.window.clone();
        self.enter(a, before.clone());
        self.insert_params(&to_a);
        self.region(size / 2, depth);
        self.jump(b, &to_b);
        self.enter(b, before);
        self.insert_params(&to_b);
        self.region(size / 2, depth);
        self.branch(&[(a, &to_a), (exit, &[])]);
        self.block = exit;
        self.window.forget_due();
    }

    /// Values written anew in each iteration of the loop to come.
    fn accumulators(&mut self) -> Vec<VReg> {
        if self.shape.params {
            return Vec::new();
        }
        let count = self.rng.within(1..=3);
        (0..count).map(|_| self.value(self.classes.word)).collect()
    }

    /// Ends the current block by leaving the function.
    fn leave(&mut self) {
        if !self.shape.device {
            self.builder.exit(self.block, "exit");
            return;
        }
        let classes = match self.module {
            Some((own, signatures)) => signatures[own].results.clone(),
            None => vec![self.classes.word],
        };
        let values: Vec<VReg> = classes.iter().map(|&class| self.value(class)).collect();
        let regs = self.target.result_registers(&classes).unwrap_or_default();
        let mut inst = self.builder.ret(self.block, "ret");
        for (&value, reg) in values.iter().zip(regs) {
            inst = inst.use_fixed(value, reg);
        }
    }

    /// Arguments, and values enough for the wanted pressure.
    fn prologue(&mut self) {
        if self.shape.device {
            self.arguments();
        }
        let most = self.shape.insts / 3;
        for _ in 0..most {
            if self.window.size() >= self.shape.pressure {
                break;
            }
            self.fresh();
        }
    }

    /// Live-ins. A lone argument comes as the result of a first instruction, which is how a
    /// client may put it too, as long as no caller is at hand that really passes something.
    fn arguments(&mut self) {
        let most = self.target.budget(File::MAIN).min(8) / 2;
        let (classes, older) = match self.module {
            Some((own, signatures)) => (signatures[own].arguments.clone(), false),
            None => {
                let count = self.rng.within(1..=most);
                (vec![self.classes.word; count], count == 1)
            }
        };
        let regs = self.target.argument_registers(&classes).unwrap_or_default();
        let values: Vec<VReg> = classes.iter().map(|&c| self.builder.vreg(c)).collect();
        let places = values.iter().copied().zip(regs);
        if older {
            let inst = self.builder.inst(self.block, "args").effect(Effect::Write);
            places.fold(inst, |inst, (value, reg)| inst.def_fixed(value, reg));
        } else {
            places.for_each(|(value, reg)| self.builder.live_in(value, reg));
        }
        for value in values {
            self.result(value);
        }
    }

    /// Last uses for what is still alive, then the end.
    fn epilogue(&mut self) {
        for _ in 0..self.shape.insts / 4 {
            match self.window.take_oldest() {
                Some((vreg, _)) => self.sink(vreg),
                None => break,
            }
        }
        self.leave();
    }
}
