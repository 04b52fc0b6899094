//! Wherever an allocation exists, the naive allocator finds one, at any budget, and what it
//! finds runs like the original.

use warpalloc::check::trace::{self, Limits};
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::text::{Allocated, Case};
use warpalloc::{Options, Strategy, allocate};

/// Both presets at every budget from four registers to all of them.
fn targets() -> Vec<Target> {
    let mut targets = Vec::new();
    for preset in [
        Target::cicc(),
        Target::hardware(90).unwrap(),
        Target::hardware_packed(80).unwrap(),
    ] {
        let most = preset.budget(File::R);
        // Small budgets are where things go wrong.
        let budgets = (4..=most.min(20)).chain((24..=most).step_by(33));
        targets.extend(budgets.map(|k| preset.clone().with_budget(File::R, k)));
        let tight = preset.with_budget(File::R, 4);
        targets.push(tight.with_budget(File::P, 2));
    }
    targets
}

fn succeeds(target: &Target, shape: &Shape, rng: &mut Rng) {
    let case = Case {
        target: target.clone(),
        options: Options::with_strategy(Strategy::Naive),
        function: generate::function(shape, target, rng),
    };
    let allocation = allocate(&case.function, target, &case.options)
        .unwrap_or_else(|error| panic!("{error}\n{case}"));
    for seed in 0..2 {
        let limits = Limits { blocks: 64 };
        trace::compare(&case.function, target, &allocation, limits, seed)
            .unwrap_or_else(|difference| panic!("{difference}\n{case}"));
    }
}

#[test]
fn ten_thousand_functions_at_every_budget() {
    let targets = targets();
    let mut rng = Rng::new(11);
    for number in 0..10_000 {
        let shape = Shape::random(60, &mut rng);
        succeeds(&targets[number % targets.len()], &shape, &mut rng);
    }
}

#[test]
fn larger_functions_of_every_preset_shape() {
    let mut rng = Rng::new(12);
    for target in targets().iter().step_by(5) {
        for shape in [
            Shape::typical(),
            Shape::pressure(150),
            Shape::large(1000),
            Shape::everything(),
        ] {
            succeeds(target, &shape, &mut rng);
        }
    }
}

#[test]
fn an_allocated_function_reads_well() {
    let text = "\
target hardware sm_90 R=8 P=7 UR=63 UP=7
options strategy=naive
kernel scale {
block0:
    v0:r64 = ld.param #1 : remat 2
    v1:r32 = ld v0 : read
    v2:r32 = mul v1, #3
    st v0, v2 : write
    exit : exit write
}
";
    let case = warpalloc::text::parse(text).unwrap();
    let allocation = allocate(&case.function, &case.target, &case.options).unwrap();
    let shown = Allocated {
        function: &case.function,
        target: &case.target,
        allocation: &allocation,
    };
    let shown = shown.to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("kernel scale { ; frame: "), "{shown}");
    let code = lines.iter().filter(|line| !line.starts_with("  + "));
    let opcodes: Vec<&str> = ["ld.param", "ld ", "mul", "st", "exit"].to_vec();
    let found = code.filter(|line| opcodes.iter().any(|o| line.contains(o)));
    assert_eq!(found.count(), 5, "{shown}");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("  + ") && line.contains("local[")),
        "{shown}"
    );
    let mul = lines.iter().find(|line| line.contains("mul")).unwrap();
    assert!(mul.ends_with("; v2 = v1"), "{shown}");
}
