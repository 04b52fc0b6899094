//! What the tests of single phases start from.

use super::code::Code;
use crate::analysis::Liveness;
use crate::ir::Program;
use crate::text::{self, Case};

/// A kernel of `blocks` on a machine with `registers` registers.
pub(super) fn case(registers: usize, blocks: &str) -> Case {
    let text = format!("target hardware sm_90 R={registers}\nkernel f {{\n{blocks}\n}}\n");
    let case = text::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let valid = case.function.validate(&case.target);
    valid.unwrap_or_else(|error| panic!("{error}"));
    case
}

/// The code of a kernel, before registers are found for its pinned values.
pub(super) fn unpinned(case: &Case) -> Code<'_> {
    let program = Program::of_constraints(&case.function, &case.target, None);
    let program = program.unwrap_or_else(|error| panic!("{error}"));
    let liveness = Liveness::compute(&case.function);
    Code::of_function(program, &case.target, &liveness)
}

/// The code of a kernel without pinned values.
pub(super) fn code(case: &Case) -> Code<'_> {
    let mut code = unpinned(case);
    code.set_pins(Vec::new());
    code
}
