//! Small random functions over arbitrary graphs: irreducible loops, unreachable blocks,
//! endless loops, repeated edges and reads of values never written all occur.

use cranelift_entity::EntityRef;
use warpalloc::function::{Block, Builder, Function, Operand, Role, VReg};
use warpalloc::target::Class;

/// How many functions each property is tried on.
pub const FUNCTIONS: u64 = 4000;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

const CLASSES: [Class; 4] = [Class::R32, Class::R64, Class::R128, Class::PRED];
const ROLES: [Role; 6] = [
    Role::Use,
    Role::Use,
    Role::Use,
    Role::Def,
    Role::UseDef,
    Role::EarlyDef,
];

/// The function with this seed.
pub fn function(seed: u64) -> Function {
    let mut random = Random(seed);
    let mut builder = Builder::new("random");
    let vregs: Vec<VReg> = (0..1 + random.below(8))
        .map(|_| builder.vreg(CLASSES[random.below(4)]))
        .collect();
    let blocks: Vec<Block> = (0..1 + random.below(14)).map(|_| builder.block()).collect();
    let params: Vec<usize> = blocks.iter().map(|_| random.below(8) / 6).collect();
    for &block in &blocks {
        if block.index() > 0 && params[block.index()] > 0 {
            builder.param(block, vregs[random.below(vregs.len())]);
        }
        for _ in 0..random.below(4) {
            add_inst(&mut random, &mut builder, block, &vregs);
        }
        add_edges(&mut random, &mut builder, block, &vregs, &params);
    }
    builder.finish()
}

fn add_inst(random: &mut Random, builder: &mut Builder, block: Block, vregs: &[VReg]) {
    let mut inst = builder.inst(block, "op");
    let mut written = Vec::new();
    for _ in 0..random.below(4) {
        let vreg = vregs[random.below(vregs.len())];
        let role = ROLES[random.below(ROLES.len())];
        if !role.writes() || !written.contains(&vreg) {
            inst = inst.operand(Operand::with_role(vreg, role));
        }
        if role.writes() {
            written.push(vreg);
        }
    }
}

fn add_edges(
    random: &mut Random,
    builder: &mut Builder,
    block: Block,
    vregs: &[VReg],
    params: &[usize],
) {
    let last = params.len() - 1;
    let count = if last == 0 {
        0
    } else {
        [0, 1, 1, 2, 2, 2, 3][random.below(7)]
    };
    for _ in 0..count {
        // Half of the edges stay near, so that structured code is not rare.
        let to = match random.below(2) {
            0 => 1 + random.below(last),
            _ => (block.index() + 1).min(last),
        };
        let args: Vec<VReg> = (0..params[to])
            .map(|_| vregs[random.below(vregs.len())])
            .collect();
        builder.edge(block, Block::new(to), &args);
    }
    if count == 0 {
        builder.exit(block, "exit");
    } else {
        builder
            .branch(block, "bra")
            .use_(vregs[random.below(vregs.len())]);
    }
}
