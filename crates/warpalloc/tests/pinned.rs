//! Pinned values: never moved, stored or reloaded, whatever their operands ask for.

use warpalloc::allocation::Edit;
use warpalloc::check::trace;
use warpalloc::function::Inst;
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, PReg, Target};
use warpalloc::{Allocation, Options, Strategy, allocate, text};

const STRATEGIES: [Strategy; 4] = Strategy::ALL;

fn with(strategy: Strategy) -> Options {
    Options {
        strategy,
        ..Options::default()
    }
}

#[test]
fn random_functions_with_pinned_values_are_proved_and_run_the_same() {
    let mut rng = Rng::new(11);
    let (mut pinned, mut constrained) = (0, 0);
    for number in 0..240 {
        let budget = [32, 40, 48, 255][number % 4];
        let target = Target::hardware(90).unwrap().with_budget(File::R, budget);
        let shape = Shape {
            insts: 90,
            pressure: 48,
            pinned: true,
            calls: budget > 32,
            ..Shape::random(90, &mut rng)
        };
        let f = generate::function(&shape, &target, &mut rng);
        let is_pinned = |v| f.vreg(v).pinned;
        pinned += f.vregs().filter(|&v| is_pinned(v)).count();
        let operands = f.insts().flat_map(|i| f.operands(i).iter());
        constrained += operands
            .filter(|o| is_pinned(o.vreg) && o.constraint != Default::default())
            .count();
        for strategy in STRATEGIES {
            let allocation = allocate(&f, &target, &with(strategy));
            let allocation =
                allocation.unwrap_or_else(|e| panic!("{strategy:?}, function {number}: {e}"));
            let limits = trace::Limits::default();
            let same = trace::compare(&f, &target, &allocation, limits, number as u64);
            assert!(same.is_ok(), "{strategy:?}, function {number}: {same:?}");
        }
    }
    assert!(pinned > 200 && constrained > 60, "{pinned}, {constrained}");
}

/// Allocates `body` on a machine with `registers` registers.
fn case(body: &str, registers: usize, strategy: Strategy) -> Result<Outcome, String> {
    let text = format!("target hardware sm_90 R={registers}\nkernel f {{\nblock0:\n{body}\n}}\n");
    let case = text::parse(&text).map_err(|e| e.to_string())?;
    let allocation = allocate(&case.function, &case.target, &with(strategy));
    Ok(Outcome {
        allocation: allocation.map_err(|e| e.to_string())?,
        case,
    })
}

struct Outcome {
    allocation: Allocation,
    case: text::Case,
}

impl Outcome {
    fn register(&self, inst: usize, operand: usize) -> PReg {
        self.allocation
            .operands(&self.case.function, Inst::from_u32(inst as u32))[operand]
    }
}

#[test]
fn a_fixed_operand_decides_where_a_pinned_value_lives() {
    let body = "
        v0:r32.pinned = async : write
        v1:r32 = ld : read
        peek v0, v1 : write
        wait v0 @ R5 : write
        exit : exit write";
    for strategy in STRATEGIES {
        let outcome = case(body, 16, strategy).unwrap();
        assert_eq!(
            outcome.register(0, 0),
            PReg::new(File::R, 5),
            "{strategy:?}"
        );
    }
}

#[test]
fn an_exclusion_holds_for_the_whole_life_of_a_pinned_value() {
    let body = "
        v0:r32.pinned = async : write
        peek v0 not {R0, R1} : write
        wait v0 not {R2} : write
        exit : exit write";
    for strategy in STRATEGIES {
        let outcome = case(body, 16, strategy).unwrap();
        assert!(outcome.register(0, 0).unit >= 3, "{strategy:?}");
    }
}

/// The copy is another value: it may be moved or stored while the pinned one stays.
#[test]
fn a_copy_of_a_pinned_value_goes_its_own_way() {
    let body = "
        v0:r32.pinned = async : write
        v1:r32 = mov v0 : copy
        v2:r32 = ld : read
        v3:r32 = ld : read
        v4:r32 = ld : read
        use v2, v3, v4 : write
        peek v1 @ R2 : write
        use v2, v3, v4 : write
        wait v0, v1 @ R3 : write
        exit : exit write";
    for strategy in STRATEGIES {
        case(body, 4, strategy).unwrap();
    }
}

#[test]
fn a_pinned_value_wanted_in_two_registers_is_refused_with_a_reason() {
    let body = "
        v0:r32.pinned = async : write
        peek v0 @ R1 : write
        wait v0 @ R2 : write
        exit : exit write";
    for strategy in STRATEGIES {
        let error = case(body, 16, strategy).err().unwrap();
        assert!(error.contains("pin"), "{strategy:?}: {error}");
    }
}

/// What a wait takes back goes on in the same register as an ordinary value: it may be
/// stored and moved from there on, and costs nothing where there is room.
#[test]
fn a_result_tied_to_a_pinned_value_takes_over_its_register() {
    let body = "
        v0:r32.pinned, v1:r32.pinned = async : write
        v2:r32 tied 2, v3:r32 tied 3 = wait v0, v1 : write
        st v2, v3 : write group 0..2 align 2
        exit : exit write";
    for strategy in STRATEGIES {
        let outcome = case(body, 16, strategy).unwrap();
        for lane in 0..2 {
            let home = outcome.register(0, lane);
            assert_eq!(outcome.register(1, lane), home, "{strategy:?}");
            assert_eq!(outcome.register(1, 2 + lane), home, "{strategy:?}");
        }
        if strategy != Strategy::Naive {
            assert!(outcome.allocation.edits.is_empty(), "{strategy:?}");
        }
    }
    let crowded = body.replace(
        "st v2",
        "v4:r32, v5:r32, v6:r32 = ld : read\n use v4, v5, v6 : write\n st v2",
    );
    // The naive allocator sets registers aside for pinned values in the whole function.
    for (strategy, registers) in STRATEGIES.into_iter().zip([5, 4, 4]) {
        case(&crowded, registers, strategy).unwrap();
    }
}

/// Between `async` and `wait` the hardware works on `v0`: what was computed from it before is
/// kept, in memory if need be.
#[test]
fn nothing_is_computed_again_from_a_pinned_value() {
    let list = |from: usize| -> Vec<String> { (from..from + 8).map(|v| format!("v{v}")).collect() };
    let body = format!(
        "
        v0:r32.pinned = ld : read
        {}
        async v0 : write
        {} = ld : read
        use {} : write
        use {} : write
        wait v0 : write
        exit : exit write",
        list(1)
            .iter()
            .map(|v| format!("{v}:r32 = scale v0 : remat 1"))
            .collect::<Vec<_>>()
            .join("\n"),
        list(9).join(":r32, ") + ":r32",
        list(9).join(", "),
        list(1).join(", "),
    );
    for strategy in STRATEGIES {
        let outcome = case(&body, 12, strategy).unwrap();
        let is_again = |edit: &Edit| matches!(edit, Edit::Recompute { .. });
        let mut edits = outcome.allocation.edits.iter().map(|(_, edit)| edit);
        assert!(!edits.any(is_again), "{strategy:?}");
        assert!(!outcome.allocation.edits.is_empty(), "{strategy:?}");
    }
}

/// A pinned value may not be copied into a lane, so that lanes are where they are for good: a
/// quad that is written lane by lane and read as pairs takes four registers, not eight.
#[test]
fn lanes_of_pinned_groups_stay_where_they_are() {
    let body = "
        v0:r32.pinned = ld #0 : write
        v1:r32.pinned = ld #1 : write
        v2:r32.pinned = ld #2 : write
        v3:r32.pinned = ld #3 : write
        st v0, v1 : write group 0..2 align 2
        st v2, v3 : write group 0..2 align 2
        st v0, v1, v2, v3 : write group 0..4 align 4
        exit : exit write";
    for strategy in [Strategy::Briggs, Strategy::Fatpoint, Strategy::Scan] {
        let outcome = case(body, 4, strategy).unwrap();
        assert!(outcome.allocation.edits.is_empty(), "{strategy}");
        let units: Vec<u16> = (0..4).map(|inst| outcome.register(inst, 0).unit).collect();
        assert_eq!(units, [0, 1, 2, 3], "{strategy}");
    }
}

/// Alignment holds for each group of a bundle: a pair in the middle of four lanes leaves the
/// first one at an odd register.
#[test]
fn a_bundle_starts_where_all_of_its_groups_are_aligned() {
    let body = "
        v0:r32.pinned = ld #0 : write
        v1:r32.pinned = ld #1 : write
        v2:r32.pinned = ld #2 : write
        v3:r32.pinned = ld #3 : write
        st v0, v1 : write group 0..2 align 1
        st v1, v2 : write group 0..2 align 2
        st v2, v3 : write group 0..2 align 1
        exit : exit write";
    for strategy in [Strategy::Briggs, Strategy::Fatpoint, Strategy::Scan] {
        let outcome = case(body, 5, strategy).unwrap();
        assert!(outcome.allocation.edits.is_empty(), "{strategy}");
        let units: Vec<u16> = (0..4).map(|inst| outcome.register(inst, 0).unit).collect();
        assert_eq!(units, [1, 2, 3, 4], "{strategy}");
    }
}
