//! What keeps the memory of graph colouring within bounds.
//!
//! The interference graph has an edge for each pair of values that are live at once, and splitting
//! cuts a value at each loop it is live through. Both grow with the square of a function that
//! keeps everything alive: fifteen thousand values at once are a hundred million edges. Where
//! that is foreseeable, less memory is taken instead: long values stay whole, or `fatpoint`,
//! which builds no graph, allocates the function.

use warpalloc::analysis::{Liveness, Loops, Order, Pressure};
use warpalloc::function::Function;
use warpalloc::target::{File, Target};
use warpalloc::{Options, Strategy};

/// Pairs of a value and one of those that are live with it; about sixteen bytes each.
const MOST_PAIRS: usize = 32 << 20;

/// Values live into loops, counted for each loop.
const MOST_PIECES: usize = 50_000;

/// How to allocate `function`, and a word where that is not what `options` say.
pub(crate) fn bounded(
    function: &Function,
    target: &Target,
    options: &Options,
) -> (Options, Option<String>) {
    let mut options = options.clone();
    let (values, blocks) = (function.vreg_count(), function.block_count());
    // Neither product is ever exceeded, and both cost nothing to know.
    let is_small =
        values.saturating_mul(values) <= MOST_PAIRS && values.saturating_mul(blocks) <= MOST_PIECES;
    if options.strategy != Strategy::Briggs || is_small {
        return (options, None);
    }
    let liveness = Liveness::compute(function);
    let peak = Pressure::compute(function, target, &liveness).max(File::R);
    if values.saturating_mul(peak) > MOST_PAIRS {
        options.strategy = Strategy::Fatpoint;
        let warning = format!(
            "{values} values, {peak} of them live at once, are too many for an interference \
             graph; fatpoint allocates it instead of briggs"
        );
        return (options, Some(warning));
    }
    let loops = Loops::compute(function, &Order::compute(function));
    let live = loops
        .loops()
        .map(|(_, info)| liveness.live_in(info.header).count());
    let pieces: usize = live.sum();
    if options.split && pieces > MOST_PIECES {
        options.split = false;
        let warning = format!(
            "{} loops have {pieces} values live into them, so none is split",
            loops.loop_count()
        );
        return (options, Some(warning));
    }
    (options, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::lower_module;
    use std::fmt::Write;

    fn lowered(declarations: &str, body: &str) -> (Function, Target) {
        let source = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p)\n{{\n\
             {declarations}\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\n{body}ret;\n}}\n"
        );
        let target = Target::hardware(90).unwrap();
        let mut functions = lower_module(&source, &target).unwrap();
        (functions.remove(0), target)
    }

    fn strategy_and_split(function: &Function, target: &Target) -> (Strategy, bool, bool) {
        let (options, warning) = bounded(function, target, &Options::default());
        (options.strategy, options.split, warning.is_some())
    }

    #[test]
    fn a_graph_of_too_many_pairs_is_not_built() {
        let wide = |count: u32| {
            let mut body = String::new();
            for i in 0..count {
                let _ = writeln!(body, "ld.global.u32 %r{i}, [%rd1+{i}];");
            }
            for i in 0..count {
                let _ = writeln!(body, "st.global.u32 [%rd1+{i}], %r{i};");
            }
            lowered(&format!(".reg .b32 %r<{count}>;"), &body)
        };
        let (function, target) = wide(1000);
        let usual = (Strategy::Briggs, true, false);
        assert_eq!(strategy_and_split(&function, &target), usual);
        let (function, target) = wide(6000);
        let told = (Strategy::Fatpoint, true, true);
        assert_eq!(strategy_and_split(&function, &target), told);
    }

    #[test]
    fn values_live_through_very_many_loops_stay_whole() {
        let nest = |depth: u32| {
            let mut body = String::new();
            for i in 0..depth {
                let _ = writeln!(body, "mov.u32 %r{i}, 9;\nL{i}:");
            }
            for i in (0..depth).rev() {
                let _ = writeln!(
                    body,
                    "add.s32 %r{i}, %r{i}, -1;\nsetp.ne.s32 %p1, %r{i}, 0;\n@%p1 bra L{i};"
                );
            }
            lowered(&format!(".reg .pred %p<2>; .reg .b32 %r<{depth}>;"), &body)
        };
        let (function, target) = nest(40);
        let usual = (Strategy::Briggs, true, false);
        assert_eq!(strategy_and_split(&function, &target), usual);
        let (function, target) = nest(400);
        let told = (Strategy::Briggs, false, true);
        assert_eq!(strategy_and_split(&function, &target), told);
    }
}
