//! The same code under other names.

use super::*;

/// A virtual register for every place that mentions one, in code order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renaming {
    /// One per operand, in the row of all operands.
    pub operands: Vec<VReg>,
    /// One per block parameter, block after block.
    pub params: Vec<VReg>,
    /// One per edge argument, edge after edge, block after block.
    pub args: Vec<VReg>,
}

impl Function {
    /// A copy that mentions the virtual registers of `names` instead, each described as
    /// its original is. Instructions and operands keep their numbers; a place for which
    /// `names` is too short keeps its register.
    pub fn renamed(&self, names: &Renaming, original: &PrimaryMap<VReg, VReg>) -> Function {
        let mut function = self.clone();
        function.vregs = original
            .values()
            .map(|&vreg| self.vreg(vreg).clone())
            .collect();
        function.table = Table::of(&function.insts, &function.vregs, &function.blocks);
        for (operand, &name) in function.operands.iter_mut().zip(&names.operands) {
            operand.vreg = name;
        }
        let params = function.blocks.values_mut().flat_map(|b| &mut b.params);
        for (param, &name) in params.zip(&names.params) {
            *param = name;
        }
        let edges = function.blocks.values_mut().flat_map(|b| &mut b.succs);
        let args = edges.flat_map(|edge| &mut edge.args);
        for (arg, &name) in args.zip(&names.args) {
            *arg = name;
        }
        function
    }
}
