//! Which values had better sit in different register banks.

use super::{Op, Program, Value};
use crate::target::{File, Target};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

/// For each single register, the others that some instruction reads at the same time.
pub type ReadWith = SecondaryMap<Value, SmallVec<[Value; 2]>>;

/// Finds the values of each instruction that reads more single registers of the main file than
/// it has banks, by one.
pub fn read_together(program: &Program, target: &Target) -> ReadWith {
    let mut together = ReadWith::new();
    let main = target.file(File::MAIN);
    let (width, banks) = (main.units_per_reg, main.banks);
    if banks == 1 {
        return together;
    }
    let is_single = |v: Value| {
        let class = target.class(program.values[v].class);
        class.file == File::MAIN && class.width == width
    };
    for op in program.blocks.values().flat_map(|block| &block.ops) {
        let Op::Inst { .. } = op else {
            continue;
        };
        let accesses = op.accesses(program.function);
        let reads = accesses.filter(|(v, role)| role.reads() && is_single(*v));
        let reads: SmallVec<[Value; 4]> = reads.map(|(v, _)| v).collect();
        if reads.len() != banks + 1 {
            continue;
        }
        for &v in &reads {
            let others = reads.iter().copied().filter(|&other| other != v);
            together[v].extend(others);
        }
    }
    together
}
