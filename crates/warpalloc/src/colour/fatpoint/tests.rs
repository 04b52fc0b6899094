//! Mechanisms of the allocator that take more than one file.

use super::assign::Scene;
use super::{Fatpoint, Placed, affinity, cluster, coalesce, costs, mac};
use crate::allocation::{Allocation, Space};
use crate::analysis::Liveness;
use crate::check::check;
use crate::colour::{Colours, Problem, Verdict};
use crate::cycles::AddedCycles;
use crate::error::Error;
use crate::function::{Builder, Clobbers, Effect, Function, Inst, Kind, VReg};
use crate::generate::{self, Rng, Shape};
use crate::ir::{Facts, LiveRanges, Program, Value};
use crate::options::knobs::KNOBS;
use crate::options::{HoistPolicy, Kind as Values, Knobs, Options, Strategy};
use crate::passes::hoist::hoist_invariants;
use crate::scratch::Scratch;
use crate::stats::Stats;
use crate::target::{Class, File, PReg, Target};
use crate::text;
use cranelift_entity::EntityRef;

/// Calls `check` with the problem that a function in the text format is; its target may be one
/// of `machines`.
pub(super) fn with_problem(text: &str, machines: &[Target], check: impl FnOnce(&Problem)) {
    let case = text::parse_for(text, machines).unwrap();
    case.function.validate(&case.target).unwrap();
    let (target, scratch) = (&case.target, Scratch::default());
    let program = Program::new(&case.function, target, None).unwrap();
    let facts = Facts::of(&program);
    let problem = Problem::new(program, facts, target, &case.options, &scratch);
    check(&problem);
}

/// Calls `check` with what placements of such a function look at, and its clusters.
pub(super) fn with_scene(text: &str, check: impl FnOnce(Scene, cluster::Clusters)) {
    with_problem(text, &[], |problem| {
        let (program, target) = (&problem.program, problem.target);
        let ranges = problem.ranges(&mut Stats::default());
        let knobs = &problem.options.knobs;
        let copies = affinity::affinities(program, target, ranges, &problem.facts.frequencies);
        let mut clusters = cluster::Clusters::new(program, ranges, target.files().len());
        let coalescer = coalesce::Coalescer::new(program, target, ranges, knobs);
        coalescer.run(&mut clusters, &copies);
        let scene = Scene {
            program,
            target,
            ranges,
            knobs,
            priorities: &mac::priorities(program, knobs),
            read_with: None,
            scratch: problem.scratch,
        };
        check(scene, clusters);
    });
}

/// Of two registers, R0 is cheapest to clear for `v2`, as `v0` is read less often than `v1`.
/// Without `v0` it is free for `v4` too, so that `v3` in R1 is not spilled, cheap as it is.
#[test]
fn what_is_spilled_for_one_value_makes_room_for_the_next() {
    let text = "target hardware sm_90 R=2
        kernel f {
        block0:
            v0:r32 = load : read
            v1:r32 = load : read
            v2:r32 = load : read
            store v1, v1, v1 : write
            store v2, v2, v2, v2 : write
            v3:r32 = load : read
            v4:r32 = load : read
            store v0, v0 : write
            store v3 : write
            store v4, v4, v4, v4 : write
            exit : exit write
        }";
    with_problem(text, &[], |problem| {
        let ranges = problem.ranges(&mut Stats::default());
        let clusters =
            cluster::Clusters::new(&problem.program, ranges, problem.target.files().len());
        let of = |number| clusters.of(Value::new(number)).unwrap();
        let failed = vec![of(2), of(4)];
        let mut colours = Colours::new();
        for (value, unit) in [(0, 0), (1, 1), (3, 1)] {
            colours[Value::new(value)] = Some(PReg::new(File::R, unit));
        }
        let placed = Placed {
            clusters,
            colours,
            failed,
        };
        let (costs, stats) = (costs(problem), &mut Stats::default());
        match Fatpoint::default().make_room(problem, &placed, &costs, stats) {
            Verdict::Spill(choice) => assert_eq!(choice.values, [Value::new(0)]),
            _ => panic!("nothing is spilled"),
        }
    });
}

/// Spills that cost no more than twice as much may still be cheaper once reloads are joined.
#[test]
fn an_attempt_with_splitting_ends_where_spills_cost_more_than_twice_as_much() {
    let ends = |is_split, spent, spent_unsplit| {
        let colourer = Fatpoint {
            is_split,
            spent,
            spent_unsplit,
            ..Fatpoint::default()
        };
        colourer.cannot_win()
    };
    assert!(ends(true, 21.0, Some(10.0)));
    assert!(!ends(true, 20.0, Some(10.0)));
    assert!(!ends(false, 21.0, Some(10.0)));
    assert!(!ends(true, 21.0, None));
}

fn allocate(f: &Function, target: &Target, options: &Options) -> Result<Allocation, Error> {
    let options = Options {
        strategy: Strategy::Fatpoint,
        ..options.clone()
    };
    let scratch = Scratch::default();
    crate::pipeline::allocate(f, &Liveness::compute(f), target, &options, &scratch)
}

fn hardware(registers: usize) -> Target {
    Target::hardware(90)
        .unwrap()
        .with_budget(File::R, registers)
}

fn proved(f: &Function, target: &Target, options: &Options) -> Allocation {
    f.validate(target).unwrap();
    let allocation = allocate(f, target, options).unwrap();
    check(f, target, &allocation).unwrap();
    assert!(!allocation.stats.fell_back);
    allocation
}

/// `count` values defined, then all read by stores.
fn crowd(count: usize) -> Function {
    let mut b = Builder::new("crowd");
    let block = b.block();
    let values: Vec<VReg> = (0..count).map(|_| b.vreg(Class::R32)).collect();
    for (i, &v) in values.iter().enumerate() {
        b.inst(block, "ld")
            .def(v)
            .imm(i as u64)
            .effect(Effect::Read);
    }
    for &v in &values {
        b.inst(block, "st").use_(v).effect(Effect::Write);
    }
    b.exit(block, "exit");
    b.finish()
}

/// What fits is placed by the first attempt, without spilling.
#[test]
fn the_first_attempt_spills_nothing_where_everything_fits() {
    let allocation = proved(&crowd(16), &hardware(16), &Options::default());
    assert_eq!(
        (allocation.stats.iterations, allocation.stats.spilled),
        (1, 0)
    );
}

/// Attempts with guidance follow, and spill no more than is too many.
#[test]
fn retries_spill_what_does_not_fit() {
    let options = Options {
        schedule: false,
        ..Options::default()
    };
    let allocation = proved(&crowd(21), &hardware(15), &options);
    assert!(allocation.stats.iterations > 1);
    assert_eq!(allocation.stats.spilled, 6, "{:?}", allocation.stats);
}

/// When attempts run out, the fallback takes over, and its result is sound.
#[test]
fn the_fallback_succeeds_where_attempts_run_out() {
    let mut options = Options {
        schedule: false,
        ..Options::default()
    };
    options.knobs.spill_instruction_count = 0;
    let (f, target) = (crowd(21), hardware(15));
    let allocation = allocate(&f, &target, &options).unwrap();
    assert!(allocation.stats.fell_back);
    check(&f, &target, &allocation).unwrap();
}

/// Shared memory on request, refused with a reason where the convention is used.
#[test]
fn spills_go_to_shared_memory_on_request() {
    let options = Options {
        spill_space: Space::Shared,
        schedule: false,
        ..Options::default()
    };
    let allocation = proved(&crowd(21), &hardware(15), &options);
    assert_eq!(allocation.frame.local, 0);
    assert!(allocation.frame.shared >= 24);
}

/// Block 0 makes `a`, `b` copies it, both ends of a chain that should share one register.
fn chain(steps: usize) -> Function {
    let mut b = Builder::new("chain");
    let block = b.block();
    let mut last = b.vreg(Class::R32);
    b.inst(block, "ld").def(last).effect(Effect::Read);
    for _ in 0..steps {
        let next = b.vreg(Class::R32);
        b.copy(block, next, last);
        last = next;
    }
    b.inst(block, "st").use_(last).effect(Effect::Write);
    b.exit(block, "exit");
    b.finish()
}

/// A chain of copies becomes one cluster, its register is everyone's.
#[test]
fn a_chain_of_copies_needs_one_register_and_no_code() {
    let f = chain(5);
    let allocation = proved(&f, &hardware(255), &Options::default());
    let first = allocation.operands(&f, Inst::new(0))[0];
    for inst in f.insts().take(7) {
        assert!(
            allocation
                .operands(&f, inst)
                .iter()
                .all(|&reg| reg == first)
        );
    }
    assert_eq!(allocation.deleted.iter().count(), 5);
    assert_eq!(allocation.stats.coalesced, 5);
}

fn clusters_of(f: &Function, knobs: &Knobs) -> usize {
    let target = hardware(255);
    let program = Program::new(f, &target, None).unwrap();
    let facts = Facts::of(&program);
    let ranges = LiveRanges::compute(&program, &target, &facts);
    let hints = affinity::affinities(&program, &target, &ranges, &facts.frequencies);
    let mut clusters = cluster::Clusters::new(&program, &ranges, target.files().len());
    let coalescer = coalesce::Coalescer::new(&program, &target, &ranges, knobs);
    coalescer.run(&mut clusters, &hints);
    clusters.iter().count()
}

/// Fan-out, depth and the switch of coalescing.
#[test]
fn coalescing_keeps_its_limits() {
    let f = chain(5);
    assert_eq!(clusters_of(&f, &Knobs::default()), 1);
    let off = Knobs {
        coalescing: false,
        ..Knobs::default()
    };
    assert_eq!(clusters_of(&f, &off), 6);
    let narrow = Knobs {
        coalesce_max_fanout: 2,
        ..Knobs::default()
    };
    assert_eq!(clusters_of(&f, &narrow), 3);
    let shallow = Knobs {
        coalesce_max_depth: 1,
        ..Knobs::default()
    };
    assert!(clusters_of(&f, &shallow) > 1);
}

/// The scalars that a pair is packed from lie where the pair does, so that packing is free.
#[test]
fn packing_is_coalesced_within_the_width_limit() {
    let mut b = Builder::new("pack");
    let block = b.block();
    let (lo, hi, pair) = (b.vreg(Class::R32), b.vreg(Class::R32), b.vreg(Class::R64));
    b.inst(block, "ld").def(lo).effect(Effect::Read);
    b.inst(block, "ld").def(hi).effect(Effect::Read);
    b.inst(block, "mov")
        .def(pair)
        .use_(lo)
        .use_(hi)
        .kind(Kind::Copy);
    b.inst(block, "st").use_(pair).effect(Effect::Write);
    b.exit(block, "exit");
    let f = b.finish();
    assert_eq!(clusters_of(&f, &Knobs::default()), 1);
    let allocation = proved(&f, &hardware(255), &Options::default());
    assert!(allocation.deleted.contains(Inst::new(2)));
}

/// The last of three registers is the first of a pair: together they take four.
#[test]
fn clusters_are_joined_up_to_the_width_limit() {
    let clusters = |widest: u32| {
        let text = format!(
            "target hardware sm_90
            options RegAllocCoalesceMaxWidth={widest}
            kernel f {{
            block0:
                v0:r96 = load : read
                v1:r32, v2:r32, v3:r32 = mov v0 : copy
                store v1, v2 : write
                v4:r32 = load : read
                v5:r64 = mov v3, v4 : copy
                store v5 : write
                exit : exit write
            }}"
        );
        let mut count = 0;
        with_scene(&text, |_, clusters| count = clusters.iter().count());
        count
    };
    assert_eq!([4, 3].map(clusters), [1, 2]);
}

/// Two copies of one value that are both changed cannot share its register.
#[test]
fn values_alive_at_once_are_not_merged() {
    let mut b = Builder::new("apart");
    let block = b.block();
    let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(block, "ld").def(x).effect(Effect::Read);
    b.copy(block, y, x);
    b.inst(block, "inc").use_def(y);
    b.inst(block, "st").use_(x).use_(y).effect(Effect::Write);
    b.exit(block, "exit");
    let f = b.finish();
    assert_eq!(clusters_of(&f, &Knobs::default()), 2);
    proved(&f, &hardware(255), &Options::default());
}

/// A value alive across a call keeps out of what the call overwrites, and counts.
#[test]
fn values_alive_across_calls_avoid_its_registers_and_are_counted() {
    let mut b = Builder::new("call");
    let block = b.block();
    let (kept, other) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(block, "ld").def(kept).effect(Effect::Read);
    b.inst(block, "ld").def(other).effect(Effect::Read);
    b.inst(block, "st").use_(other).effect(Effect::Write);
    b.inst(block, "call")
        .kind(Kind::Call)
        .clobbers(Clobbers::Abi)
        .effect(Effect::Write);
    b.inst(block, "st").use_(kept).effect(Effect::Write);
    b.exit(block, "exit");
    let f = b.finish();
    let allocation = proved(&f, &hardware(255), &Options::default());
    assert_eq!(
        allocation.operands(&f, Inst::new(0)),
        [PReg::new(File::R, 24)]
    );
    assert_eq!(
        allocation.operands(&f, Inst::new(1)),
        [PReg::new(File::R, 0)]
    );
    assert_eq!(allocation.stats.live_through_calls, 1);
}

/// Fixed operands are placed before anything else, and copies follow them.
#[test]
fn fixed_operands_are_precoloured_and_preferred() {
    let mut b = Builder::new("fixed");
    let block = b.block();
    let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(block, "ld").def(x).effect(Effect::Read);
    b.inst(block, "f")
        .def(y)
        .use_fixed(x, PReg::new(File::R, 7));
    b.inst(block, "st").use_(y).effect(Effect::Write);
    b.exit(block, "exit");
    let f = b.finish();
    let allocation = proved(&f, &hardware(255), &Options::default());
    assert_eq!(
        allocation.operands(&f, Inst::new(0)),
        [PReg::new(File::R, 7)]
    );
    assert_eq!(allocation.stats.edits.moves, 0);
    let mut deaf = Options::default();
    deaf.knobs.no_retarget_prefs = true;
    deaf.cleanup = false;
    assert_eq!(proved(&f, &hardware(255), &deaf).stats.edits.moves, 1);
}

/// Two values alive at once never share a register, whatever the threshold.
#[test]
fn no_threshold_makes_a_held_register_available() {
    for threshold in [0, 50, 127, u32::MAX] {
        let mut options = Options::default();
        options.knobs.discard_threshold = threshold;
        let f = crowd(40);
        let allocation = proved(&f, &hardware(255), &options);
        let mut taken: Vec<_> = (0..40)
            .map(|i| allocation.operands(&f, Inst::new(i))[0])
            .collect();
        taken.sort();
        taken.dedup();
        assert_eq!(taken.len(), 40);
    }
}

/// A frame of words and quads has gaps; closing them saves bytes.
#[test]
fn gaps_between_slots_of_different_sizes_are_closed() {
    let mut b = Builder::new("mixed");
    let block = b.block();
    let mut all = Vec::new();
    for i in 0..6 {
        for class in [Class::R32, Class::R128] {
            let v = b.vreg(class);
            b.inst(block, "ld").def(v).imm(i).effect(Effect::Read);
            all.push(v);
        }
    }
    for &v in &all {
        b.inst(block, "st").use_(v).effect(Effect::Write);
    }
    b.exit(block, "exit");
    let f = b.finish();
    let options = Options {
        schedule: false,
        ..Options::default()
    };
    let allocation = proved(&f, &hardware(8), &options);
    let packed = allocation.frame.local;
    let stored: u32 = 6 * 4 + 6 * 16;
    assert!(packed <= stored, "{packed} bytes");
    assert!(allocation.stats.compacted_bytes > 0);
}

/// Within a function of scalars alone, program order packs to the peak.
#[test]
fn scalars_of_straight_code_use_exactly_the_peak() {
    let f = crowd(30);
    let target = hardware(255);
    let allocation = proved(&f, &target, &Options::default());
    let highest = (0..f.inst_count() - 1)
        .flat_map(|i| allocation.operands(&f, Inst::new(i)).to_vec())
        .map(|reg| reg.unit)
        .max();
    assert_eq!(highest, Some(29));
}

/// A value that waits while a crowded loop runs is split around it, so that the loop
/// itself touches no memory for it; the threshold keeps rounds that are not worth it out.
#[test]
fn a_value_idle_in_a_crowded_loop_is_split_around_it() {
    let mut b = Builder::new("loop");
    let (entry, body, end) = (b.block(), b.block(), b.block());
    let idle: Vec<VReg> = (0..6).map(|_| b.vreg(Class::R32)).collect();
    let busy: Vec<VReg> = (0..10).map(|_| b.vreg(Class::R32)).collect();
    for &v in idle.iter().chain(&busy) {
        b.inst(entry, "ld").def(v).effect(Effect::Read);
    }
    for _ in 0..20 {
        for &v in &idle {
            b.inst(entry, "st").use_(v).effect(Effect::Write);
        }
    }
    b.jump(entry, body, &[]);
    for _ in 0..4 {
        for &v in &busy {
            b.inst(body, "inc").use_def(v);
        }
    }
    b.branch(body, "bra").effect(Effect::Read);
    b.edge(body, body, &[]);
    b.edge(body, end, &[]);
    for &v in idle.iter().chain(&busy) {
        b.inst(end, "st").use_(v).effect(Effect::Write);
    }
    b.exit(end, "exit");
    let f = b.finish();
    let target = hardware(12);
    let accesses = |options: &Options| {
        let edits = proved(&f, &target, options).stats.edits;
        edits.stores + edits.reloads
    };
    let options = Options::default();
    let split = accesses(&options);
    let mut dear = options.clone();
    dear.knobs.split_threshold = 1e6;
    let mut unsplit = options.clone();
    unsplit.knobs.split_rounds = 0;
    assert!(split < accesses(&unsplit), "{split}");
    assert_eq!(accesses(&dear), accesses(&unsplit));
}

/// Random functions at budgets where they must spill, each proved with `settings`.
fn crowded(settings: &[&str]) -> Vec<Allocation> {
    let mut options = Options {
        schedule: false,
        split: false,
        ..Options::default()
    };
    for setting in settings {
        options.knobs.set(setting).unwrap();
    }
    let allocate_one = |seed: u64| {
        let target = hardware([5, 6, 8, 12][seed as usize % 4]);
        let shape = Shape {
            insts: 60,
            pressure: 16,
            ..Shape::everything()
        };
        let f = generate::function(&shape, &target, &mut Rng::new(seed));
        let allocation = allocate(&f, &target, &options).unwrap();
        check(&f, &target, &allocation).unwrap();
        allocation
    };
    (0..CROWDED).map(allocate_one).collect()
}

const CROWDED: u64 = 240;

fn differences(a: &[Allocation], b: &[Allocation]) -> usize {
    let pairs = a.iter().zip(b);
    pairs.filter(|(a, b)| a.edits != b.edits).count()
}

/// Each coefficient and breakpoint of the budget model has a say in what is spilled.
#[test]
fn the_budget_model_decides_when_spills_are_forced_and_how_deep_guidance_goes() {
    let steep = [
        "RegTgtBudgetCoefficientB=1000",
        "RegTgtBudgetPressureThreshold=0",
        "RegTgtBudgetMaxThreads=0",
    ];
    let defaults = crowded(&[]);
    let all = crowded(&steep);
    let late = crowded(&[steep[0], steep[1], "RegTgtBudgetMaxThreads=300"]);
    let no_threshold = crowded(&[steep[0], steep[2]]);
    let flat = crowded(&[steep[1], steep[2]]);
    assert!(differences(&defaults, &crowded(&["RegTgtBudgetCoefficientA=100"])) > 0);
    assert!(differences(&defaults, &crowded(&["RegTgtBudgetCoefficientC=1"])) > 0);
    assert!(differences(&flat, &all) > 0, "coefficient B");
    assert!(differences(&no_threshold, &all) > 0, "second breakpoint");
    assert!(differences(&late, &all) > 0, "first breakpoint");
}

/// What `warpalloc knobs` says of a knob without effect is true.
#[test]
fn inert_knobs_change_no_result() {
    let defaults = crowded(&[]);
    let inert = KNOBS.iter().filter(|knob| knob.inert.is_some());
    let mut tried = 0;
    for knob in inert {
        let other = match (knob.kind, knob.default_value().as_str()) {
            (Values::Bool, "true") => "false",
            (Values::Bool, _) => "true",
            _ => "1",
        };
        let setting = format!("{}={other}", knob.name);
        assert_eq!(
            differences(&defaults, &crowded(&[&setting])),
            0,
            "{setting}"
        );
        tried += 1;
    }
    assert!(tried > 0);
}

/// Slots count twice where a register holds two halves (`docs/sources.md#fatpoint-slot-modes`).
#[test]
fn halves_take_one_slot_each_of_two_to_a_register() {
    let mut b = Builder::new("halves");
    let block = b.block();
    let values: Vec<VReg> = (0..30).map(|_| b.vreg(Class::R16)).collect();
    for &v in &values {
        b.inst(block, "produce").def(v).effect(Effect::Write);
    }
    for &v in &values {
        b.inst(block, "consume").use_(v).effect(Effect::Write);
    }
    b.exit(block, "exit");
    let f = b.finish();
    let packed = Target::hardware_packed(80).unwrap();
    let spilled = |target: Target| proved(&f, &target, &Options::default()).stats.spilled;
    assert_eq!(spilled(packed.with_budget(File::R, 15)), 0);
    assert_eq!(spilled(hardware(30)), 0);
    assert!(spilled(hardware(15)) >= 15);
}

/// A cost above the threshold lifts a value out of the select phase.
#[test]
fn the_cost_threshold_changes_who_chooses_first() {
    let dear = crowded(&["RegAllocSpillCostThreshold=10"]);
    assert!(differences(&crowded(&[]), &dear) > 0);
}

/// Iterations by depth decide which loop's values stay in registers.
#[test]
fn assumed_iterations_weigh_spills_by_depth() {
    let outer = crowded(&["RegAllocEstimatedLoopIterations=100,1"]);
    let inner = crowded(&["RegAllocEstimatedLoopIterations=1,100"]);
    assert!(differences(&outer, &inner) > 0);
}

/// Small buckets without a cost threshold, large ones with.
#[test]
fn frames_are_whole_buckets_on_request() {
    let frame = |values: usize, settings: &[&str]| {
        let mut options = Options {
            schedule: false,
            ..Options::default()
        };
        for setting in settings {
            options.knobs.set(setting).unwrap();
        }
        proved(&crowd(values), &hardware(15), &options).frame.local
    };
    let (small, large) = (
        ["RegAllocSpillBuckets=true", "RegAllocSpillCostThreshold=0"],
        ["RegAllocSpillBuckets=true", "RegAllocSpillCostThreshold=-1"],
    );
    assert_eq!([frame(20, &[]), frame(21, &[])], [20, 24]);
    assert_eq!([frame(20, &small), frame(21, &small)], [24, 24]);
    assert_eq!([frame(20, &large), frame(21, &large)], [32, 32]);
}

/// With bank awareness three inputs do not share a bank, and no register more is used.
#[test]
fn inputs_read_together_go_to_different_banks_on_request() {
    let mut b = Builder::new("banks");
    let block = b.block();
    let values: Vec<VReg> = (0..6).map(|_| b.vreg(Class::R32)).collect();
    for &v in &values {
        b.inst(block, "ld").def(v).effect(Effect::Read);
    }
    b.inst(block, "fma")
        .use_(values[0])
        .use_(values[2])
        .use_(values[4])
        .effect(Effect::Write);
    for &v in &values {
        b.inst(block, "st").use_(v).effect(Effect::Write);
    }
    b.exit(block, "exit");
    let f = b.finish();
    let registers = |bank_aware: bool| {
        let mut options = Options::default();
        options.knobs.bank_aware = bank_aware;
        let allocation = proved(&f, &hardware(255), &options);
        let of = |inst: usize| allocation.operands(&f, Inst::new(inst)).to_vec();
        let highest = (0..6).map(|i| of(i)[0].unit).max();
        let banks: Vec<u16> = of(6).iter().map(|reg| reg.unit % 2).collect();
        (highest, banks)
    };
    assert_eq!(registers(false), (Some(5), vec![0, 0, 0]));
    let (highest, banks) = registers(true);
    assert_eq!(highest, Some(5));
    assert_ne!(banks, [0, 0, 0]);
}

/// Without reuse a fixed operand's register is left alone, unless it is needed.
#[test]
fn registers_of_fixed_operands_are_reused_unless_told_otherwise() {
    let mut b = Builder::new("reuse");
    let block = b.block();
    let x = b.vreg(Class::R32);
    b.inst(block, "ld").def(x).effect(Effect::Read);
    b.inst(block, "f")
        .use_fixed(x, PReg::new(File::R, 3))
        .effect(Effect::Write);
    let values: Vec<VReg> = (0..6).map(|_| b.vreg(Class::R32)).collect();
    for &v in &values {
        b.inst(block, "ld").def(v).effect(Effect::Read);
    }
    for &v in &values {
        b.inst(block, "st").use_(v).effect(Effect::Write);
    }
    b.exit(block, "exit");
    let f = b.finish();
    let registers = |reuse: bool, budget: usize| {
        let mut options = Options::default();
        options.knobs.precolor_reuse = reuse;
        let allocation = proved(&f, &hardware(budget), &options);
        let taken = (2..8).map(|i| allocation.operands(&f, Inst::new(i))[0].unit);
        taken.collect::<Vec<_>>()
    };
    assert_eq!(registers(true, 255), [0, 1, 2, 3, 4, 5]);
    assert_eq!(registers(false, 255), [0, 1, 2, 4, 5, 6]);
    assert_eq!(registers(false, 6), [0, 1, 2, 4, 5, 3]);
}

fn with_policy(policy: &str) -> Options {
    let mut options = Options {
        split: false,
        ..Options::default()
    };
    // Values computed again at their readers are weighed after hoisting is.
    options.briggs.rematerialise = false;
    let setting = format!("HoistInvariantsPolicy={policy}");
    options.knobs.set(&setting).unwrap();
    options
}

/// Invariants are computed before the loops that the policy names, and counted.
#[test]
fn invariants_are_hoisted_by_policy_and_counted() {
    let mut b = Builder::new("loops");
    let (entry, outer, inner) = (b.block(), b.block(), b.block());
    let (latch, out) = (b.block(), b.block());
    let [x, c, d] = std::array::from_fn(|_| b.vreg(Class::R32));
    b.inst(entry, "ld").def(x).effect(Effect::Read);
    b.jump(entry, outer, &[]);
    b.inst(outer, "bias").def(d).use_(x).remat(1);
    b.inst(outer, "st").use_(d).effect(Effect::Write);
    b.jump(outer, inner, &[]);
    b.inst(inner, "scale").def(c).use_(x).remat(3);
    b.inst(inner, "st").use_(c).effect(Effect::Write);
    b.edge(inner, inner, &[]);
    b.edge(inner, latch, &[]);
    b.branch(inner, "bra").effect(Effect::Read);
    b.edge(latch, outer, &[]);
    b.edge(latch, out, &[]);
    b.branch(latch, "bra").effect(Effect::Read);
    b.exit(out, "exit");
    let f = b.finish();
    let cycles = ["never", "inner", "always"].map(|policy| {
        let allocation = proved(&f, &hardware(16), &with_policy(policy));
        let cycles = AddedCycles::of(&f, &hardware(16)).net(&allocation);
        (allocation.stats.hoisted, cycles)
    });
    assert_eq!(cycles.map(|(hoisted, _)| hoisted), [0, 1, 2]);
    assert!(cycles[0].1 > cycles[1].1 && cycles[1].1 > cycles[2].1);
}

/// Where values go to memory, hoisting stays only if it saves more than it costs.
#[test]
fn hoisting_that_costs_more_than_it_saves_is_undone() {
    let (mut kept, mut undone) = (0, 0);
    for seed in 0..600 {
        let target = hardware([8, 12, 16, 24][seed as usize % 4]);
        let shape = Shape {
            remat: true,
            ..Shape::random(80, &mut Rng::new(seed))
        };
        let f = generate::function(&shape, &target, &mut Rng::new(seed));
        let mut program = Program::new(&f, &target, None).unwrap();
        let mut facts = Facts::of(&program);
        let policy = HoistPolicy::Always;
        let moved = hoist_invariants(&mut program, &target, &mut facts, policy, true);
        let (Ok(plain), Ok(hoisted)) = (
            allocate(&f, &target, &with_policy("never")),
            allocate(&f, &target, &with_policy("always")),
        ) else {
            continue;
        };
        check(&f, &target, &hoisted).unwrap();
        if moved.is_empty() || hoisted.stats.edits.stores + hoisted.stats.edits.reloads == 0 {
            continue;
        }
        let (least, cycles) = (
            AddedCycles::of(&f, &target).net(&plain),
            AddedCycles::of(&f, &target).net(&hoisted),
        );
        assert!(cycles <= least, "{seed}: {cycles} > {least}");
        match hoisted.stats.hoisted {
            0 => undone += 1,
            _ => kept += 1,
        }
    }
    assert!(kept >= 5 && undone >= 5, "{kept} kept, {undone} undone");
}
