//! What a kernel costs one warp, from its text: nobody knows the machine code yet.
//!
//! ptxas orders the instructions of a block as it likes, so a block takes the longest chain of its
//! results, not the sum of its waits.

use super::Machine;
use super::warp::{Cost, Misses, Traffic};
use warpalloc::analysis::{Liveness, Loops, Order, Webs};
use warpalloc::function::{Function, Inst, Kind, Role};
use warpalloc::target::Class;

/// Instructions that ptxas makes of a division.
const DIVISION: f64 = 8.0;

/// The cost of all blocks by their frequency, which loop nesting gives.
pub(super) fn simulate(machine: &Machine, function: &Function, misses: Misses) -> Cost {
    let order = Order::compute(function);
    let loops = Loops::compute(function, &order);
    let lengths = loop_lengths(function, &loops);
    let mut cost = Cost::default();
    for block in function.blocks() {
        let depth = i32::try_from(loops.depth(block)).unwrap_or(i32::MAX);
        let innermost = loops.innermost(block);
        let length = innermost.map_or(0, |innermost| lengths[innermost.as_u32() as usize]);
        let fetch = machine.loop_fetch_cycles(length).max(1.0);
        let mut own = Cost::default();
        // When the value of each virtual register is there.
        let mut ready = vec![0.0_f64; function.vreg_count()];
        for inst in function.block_insts(block) {
            let Some(step) = Step::of(machine, function, inst, misses) else {
                continue;
            };
            let operands = function.operands(inst);
            let inputs = operands.iter().filter(|o| o.role != Role::Def);
            let begin = inputs
                .map(|o| ready[o.vreg.as_u32() as usize])
                .fold(0.0, f64::max);
            let end = begin + step.latency;
            for result in operands.iter().filter(|o| o.role == Role::Def) {
                ready[result.vreg.as_u32() as usize] = end;
            }
            own.latency = own.latency.max(end);
            own.issue += step.issue * fetch;
            own.traffic.add(step.traffic, 1.0);
            if let Some((unit, cycles)) = step.unit {
                own.units[unit] += cycles;
            }
        }
        cost.add(&own, machine.trips.powi(depth));
    }
    cost
}

/// What the code of a kernel is like, before anything is allocated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    /// Instructions of the longest loop.
    pub(crate) longest_loop: usize,
    /// The share of loads from global memory among the instructions that run.
    pub(crate) global_loads: f64,
    /// The share of gathers among the loads from global memory: what they load from depends on
    /// what was loaded before, so that threads of a warp load from many lines.
    pub(crate) gathers: f64,
    /// The share of products of 64 bits and of divisions, of each of which ptxas makes a sequence
    /// with registers of its own.
    pub(crate) expanded: f64,
}

impl Shape {
    pub(crate) fn of(machine: &Machine, function: &Function) -> Shape {
        let loops = Loops::compute(function, &Order::compute(function));
        let (mut all, mut loads, mut gathers, mut expanded) = (0.0, 0.0, 0.0, 0.0);
        // A name may be several values, of which one is loaded.
        let webs = Webs::compute(function, &Liveness::compute(function)).split(function);
        let loaded = loaded(&webs);
        for block in function.blocks() {
            let depth = i32::try_from(loops.depth(block)).unwrap_or(i32::MAX);
            let runs = machine.trips.powi(depth);
            for inst in function.block_insts(block) {
                if Step::of(machine, function, inst, Misses::default()).is_some() {
                    let opcode = function.opcode_name(function.inst(inst).opcode);
                    let runs_if = |is_one: bool| if is_one { runs } else { 0.0 };
                    all += runs;
                    let is_load = loads_global(opcode);
                    loads += runs_if(is_load);
                    gathers += runs_if(is_load && reads_any(&webs, inst, &loaded));
                    expanded += runs_if(is_expanded(opcode));
                }
            }
        }
        let lengths = loop_lengths(function, &loops);
        Shape {
            longest_loop: lengths.into_iter().max().unwrap_or(0),
            global_loads: loads / f64::max(all, 1.0),
            gathers: gathers / f64::max(loads, f64::MIN_POSITIVE),
            expanded: expanded / f64::max(all, 1.0),
        }
    }
}

/// Which virtual registers depend on a value loaded from global memory.
fn loaded(function: &Function) -> Vec<bool> {
    let mut loaded = vec![false; function.vreg_count()];
    loop {
        let mut is_changed = false;
        for inst in function.insts() {
            let opcode = function.opcode_name(function.inst(inst).opcode);
            if loads_global(opcode) || reads_any(function, inst, &loaded) {
                let operands = function.operands(inst).iter();
                for result in operands.filter(|o| o.role == Role::Def) {
                    let known = &mut loaded[result.vreg.as_u32() as usize];
                    is_changed |= !std::mem::replace(known, true);
                }
            }
        }
        if !is_changed {
            return loaded;
        }
    }
}

/// Whether the instruction reads one of `values`, other than in its guard.
fn reads_any(function: &Function, inst: Inst, values: &[bool]) -> bool {
    let mut operands = function.operands(inst).iter();
    operands.any(|o| {
        let is_guard = function.vreg(o.vreg).class == Class::PRED;
        o.role != Role::Def && !is_guard && values[o.vreg.as_u32() as usize]
    })
}

/// Whether it is a load from memory that is neither a block's nor a thread's own, nor constant.
fn loads_global(opcode: &str) -> bool {
    let mut parts = opcode.split('.');
    let is_load = matches!(parts.next(), Some("ld" | "ldu"));
    let others = ["shared", "local", "param", "const"];
    is_load && !parts.any(|part| others.into_iter().any(|other| part.starts_with(other)))
}

/// Whether ptxas makes a sequence of it, which takes registers that the text does not show.
fn is_expanded(opcode: &str) -> bool {
    let has = |modifier: &str| opcode.split('.').any(|part| part == modifier);
    match opcode.split('.').next() {
        Some("mul" | "mad") => has("u64") || has("s64"),
        Some("div" | "rem") => !has("approx") && !has("full"),
        _ => false,
    }
}

/// Instructions of each loop, inner ones included.
fn loop_lengths(function: &Function, loops: &Loops) -> Vec<usize> {
    let mut lengths = vec![0; loops.loop_count()];
    for block in function.blocks() {
        for around in loops.around(block) {
            lengths[around.as_u32() as usize] += function.block_insts(block).count();
        }
    }
    lengths
}

/// One instruction of the text.
struct Step {
    /// Cycles until its results are there.
    latency: f64,
    /// Slots of the scheduler.
    issue: f64,
    /// What it moves to and from memory.
    traffic: Traffic,
    /// The unit that computes it, and for how long.
    unit: Option<(usize, f64)>,
}

impl Step {
    /// `None` for what becomes no instruction: copies are coalesced, and parameters are operands.
    fn of(machine: &Machine, function: &Function, inst: Inst, misses: Misses) -> Option<Step> {
        let info = function.inst(inst);
        if matches!(info.kind, Kind::Undef | Kind::LiveIn | Kind::Copy) {
            return None;
        }
        let opcode = function.opcode_name(info.opcode);
        let name = opcode.split('.').next().unwrap_or(opcode);
        let has = |modifier: &str| opcode.split('.').any(|part| part == modifier);
        let begins = |modifier: &str| opcode.split('.').any(|part| part.starts_with(modifier));
        let on_unit = |latency: f64, issue: f64, unit: usize, cycles: f64| {
            Some(Step {
                latency,
                issue,
                traffic: Traffic::default(),
                unit: Some((unit, cycles)),
            })
        };
        let access = |latency: f64, moves: fn(&mut Traffic) -> &mut f64| {
            let mut traffic = Traffic::default();
            *moves(&mut traffic) = words(opcode);
            Some(Step {
                latency,
                issue: 1.0,
                traffic,
                unit: None,
            })
        };
        let shared = |latency: f64| access(latency, |traffic| &mut traffic.shared);
        let global = |latency: f64| {
            let mut step = access(latency, |traffic| &mut traffic.global)?;
            if loads_global(opcode) {
                step.traffic.global_loads = step.traffic.global;
            }
            Some(step)
        };
        // Spill code reaches the frame by generic addresses, with accesses that ptxas leaves in place.
        let spaces = ["local", "global", "shared", "param", "const"];
        let is_generic = !spaces.into_iter().any(begins);
        let in_frame = has("local") || is_generic && (has("relaxed") || has("volatile"));
        match name {
            "ld" | "ldu" if begins("param") || has("const") => None,
            "ld" | "ldu" if begins("shared") => shared(machine.shared_load),
            "ld" | "ldu" if in_frame => access(
                machine.local_load + misses.first_level * machine.miss,
                |traffic| &mut traffic.local_loads,
            ),
            "ld" | "ldu" => global(machine.global_load),
            "st" if begins("shared") => shared(machine.fixed),
            "st" if in_frame => access(machine.fixed, |traffic| &mut traffic.local_stores),
            "st" => global(machine.fixed),
            "ldmatrix" => shared(machine.shared_load),
            "wmma" if has("load") && begins("shared") => shared(machine.shared_load),
            "wmma" if has("load") => global(machine.global_load),
            "wmma" if has("store") => global(machine.fixed),
            "atom" | "tex" | "tld4" | "suld" => global(machine.global_load),
            "red" | "sust" | "stmatrix" | "cp" => global(machine.fixed),
            "mma" | "wmma" | "wgmma" => on_unit(machine.other, 1.0, 3, machine.tensor),
            "div" => on_unit(machine.other, DIVISION, 4, machine.transcendental),
            "sin" | "cos" | "ex2" | "lg2" | "rcp" | "rsqrt" | "sqrt" | "tanh" => {
                on_unit(machine.other, 1.0, 4, machine.transcendental)
            }
            _ if has("f64") => on_unit(machine.other, 1.0, 2, machine.double),
            "fma" | "mul" | "add" | "sub" if begins("f") || begins("bf") => {
                on_unit(machine.fixed, 1.0, 1, machine.single)
            }
            // Two registers hold a number of 64 bits, and two instructions compute it.
            _ if opcode.ends_with("64") => on_unit(machine.fixed, 2.0, 0, 2.0 * machine.integer),
            _ => on_unit(machine.fixed, 1.0, 0, machine.integer),
        }
    }
}

/// The words of 4 bytes that an access moves per thread.
fn words(opcode: &str) -> f64 {
    let mut parts = opcode.split('.');
    let lanes = |part: &str| part.strip_prefix('v')?.parse().ok();
    let lanes: f64 = parts.clone().find_map(lanes).unwrap_or(1.0);
    let element = parts.next_back().unwrap_or_default();
    let bits = element.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let bits: f64 = bits.parse().unwrap_or(32.0);
    (lanes * bits / 32.0).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpalloc::target::Target;
    use warpalloc_ptx::module::lower_function;

    fn kernel(body: &str) -> Function {
        let text = format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p) {{\n\
             .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<3>; .reg .pred %p;\n\
             .shared .b32 s[64]; .local .b32 l[4];\n{body}\nret;\n}}\n"
        );
        let target = Target::preset("hardware", 90).unwrap();
        lower_function(&text, "k", &target).unwrap().unwrap()
    }

    fn cost(body: &str, misses: Misses) -> Cost {
        simulate(&Machine::H200, &kernel(body), misses)
    }

    #[test]
    fn a_long_loop_takes_more_slots_and_is_told() {
        let held = Machine::H200.held_instructions;
        let body = |adds: usize| {
            let adds = "add.u32 %r1, %r1, %r2;\n".repeat(adds);
            format!("L:\n{adds}setp.ne.u32 %p, %r1, 0;\n@%p bra L;")
        };
        let [short, long] = [held - 8, held].map(body);
        let longest_loop = |body: &str| Shape::of(&Machine::H200, &kernel(body)).longest_loop;
        let lengths = [&short, &long].map(|body| longest_loop(body));
        assert!(lengths[0] <= held && lengths[1] > held, "{lengths:?}");
        let issue = |body: &str| cost(body, Misses::default()).issue;
        assert!(issue(&long) > 1.4 * issue(&short));
        assert_eq!(longest_loop("add.u32 %r1, %r1, %r2;"), 0);
    }

    #[test]
    fn loads_from_global_memory_count_by_the_loops_around_them() {
        let share = |body: &str| Shape::of(&Machine::H200, &kernel(body)).global_loads;
        // The return is one instruction of each, and so is the jump into the loop.
        let once = "ld.param.u64 %rd1, [p]; ld.global.b32 %r1, [%rd1]; ld.shared.b32 %r2, [s];";
        assert_eq!(share(once), 1.0 / 3.0);
        let generic = "ld.b32 %r1, [%rd1]; st.global.b32 [%rd1], %r1; ld.local.b32 %r2, [l];";
        assert_eq!(share(generic), 1.0 / 4.0);
        let looped = "L: ld.global.b32 %r1, [%rd1];\nsetp.ne.u32 %p, %r1, 0;\n@%p bra L;";
        let trips = Machine::H200.trips;
        assert_eq!(share(looped), trips / (3.0 * trips + 2.0));
    }

    #[test]
    fn a_load_from_where_a_loaded_value_says_is_a_gather() {
        let share = |body: &str| Shape::of(&Machine::H200, &kernel(body)).gathers;
        let table =
            "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2; ld.global.b32 %r2, [%rd2];";
        let own = "ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x;";
        assert_eq!(share(&format!("{own} {table}")), 0.0);
        assert_eq!(
            share(&format!("{own} ld.global.b32 %r1, [%rd1]; {table}")),
            0.5
        );
        let shared = "ld.shared.b32 %r1, [s];";
        assert_eq!(share(&format!("{own} {shared} {table}")), 0.0);
        let reused = "ld.global.b32 %r1, [%rd1]; st.global.b32 [%rd1+4], %r1; mov.u32 %r1, %tid.x;";
        assert_eq!(share(&format!("{own} {reused} {table}")), 0.0);
        // What a loaded value only decides is loaded from where it was.
        let guarded =
            "ld.global.b32 %r3, [%rd1]; setp.ne.u32 %p, %r3, 0;\n@%p ld.global.b32 %r2, [%rd1+4];";
        assert_eq!(share(&format!("{own} {guarded}")), 0.0);
        assert_eq!(share("ret;"), 0.0);
    }

    #[test]
    fn products_of_64_bits_and_divisions_become_sequences() {
        let all = ["mul.lo.s64", "mad.hi.cc.u64", "div.rn.f32", "rem.u32"];
        assert!(all.into_iter().all(is_expanded));
        let none = ["mul.wide.u32", "mul.rn.f64", "add.s64", "div.full.f32"];
        assert!(!none.into_iter().any(is_expanded));
        let expanded = |body| Shape::of(&Machine::H200, &kernel(body)).expanded;
        let body =
            "add.u64 %rd1, %rd1, 1; mul.lo.u64 %rd1, %rd1, %rd1; st.global.u64 [%rd1], %rd1;";
        assert_eq!(expanded(body), 0.25, "one of four with the return");
    }

    #[test]
    fn accesses_move_words() {
        assert_eq!(words("ld.shared.b32"), 1.0);
        assert_eq!(words("st.local.v4.f32"), 4.0);
        assert_eq!(words("ld.volatile.shared.v2.b64"), 4.0);
        assert_eq!(words("ld.global.u8"), 1.0);
    }

    /// Spill code in local memory is made of these.
    #[test]
    fn generic_accesses_that_stay_in_place_are_those_of_the_frame() {
        let traffic = |body: &str| cost(body, Misses::default()).traffic;
        let load = traffic("ld.relaxed.cta.b32 %r1, [%rd1];");
        assert_eq!((load.local_loads, load.global), (1.0, 0.0));
        let store = traffic("st.volatile.b32 [%rd1], %r1;");
        assert_eq!((store.local_stores, store.global), (1.0, 0.0));
        for body in ["ld.b32 %r1, [%rd1];", "ld.volatile.global.b32 %r1, [%rd1];"] {
            let others = traffic(body);
            assert_eq!((others.local(), others.global), (0.0, 1.0));
        }
        assert_eq!(traffic("ld.volatile.shared.b32 %r1, [s];").shared, 1.0);
    }

    #[test]
    fn a_block_takes_its_longest_chain() {
        let machine = Machine::H200;
        let apart = "ld.shared.b32 %r1, [s]; ld.shared.b32 %r2, [s+4]; add.s32 %r3, %r1, %r2;\
                     st.shared.b32 [s], %r3;";
        let chained = "ld.shared.b32 %r1, [s]; st.shared.b32 [s], %r1;";
        let (apart, chained) = (
            cost(apart, Misses::default()),
            cost(chained, Misses::default()),
        );
        assert_eq!(apart.latency, machine.shared_load + 2.0 * machine.fixed);
        assert_eq!(chained.latency, machine.shared_load + machine.fixed);
        assert_eq!(apart.traffic.shared, 3.0);
    }

    #[test]
    fn a_loop_counts_its_trips() {
        let body = "mov.b32 %r1, 0;\nL: add.s32 %r1, %r1, 1; setp.lt.s32 %p, %r1, 9;\n@%p bra L;\n";
        let once = cost("add.s32 %r1, 1, 2;", Misses::default());
        let looped = cost(body, Misses::default());
        assert!(looped.issue > Machine::H200.trips * once.issue);
    }

    #[test]
    fn a_frame_beyond_the_cache_is_slower() {
        let body = "ld.local.b32 %r1, [l]; st.local.b32 [l+4], %r1;";
        let misses = Misses {
            first_level: 1.0,
            ..Misses::default()
        };
        let (near, far) = (cost(body, Misses::default()), cost(body, misses));
        assert_eq!(far.latency - near.latency, Machine::H200.miss);
    }
}
