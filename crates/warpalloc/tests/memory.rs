//! Operands in memory: inputs and results in slots of the frame, arguments in the caller's.

use warpalloc::allocation::{Edit, Edits, SlotAddr, Space};
use warpalloc::check::check;
use warpalloc::check::trace::{self, Limits};
use warpalloc::function::Function;
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::text::{self, Case};
use warpalloc::{Allocation, Options, Strategy, allocate};

fn proved(case: &Case, strategy: Strategy) -> Allocation {
    let options = Options::with_strategy(strategy);
    let allocation = allocate(&case.function, &case.target, &options)
        .unwrap_or_else(|error| panic!("{strategy}: {error}\n{case}"));
    for seed in 0..3 {
        let limits = Limits::default();
        let same = trace::compare(&case.function, &case.target, &allocation, limits, seed);
        assert!(same.is_ok(), "{strategy}: {same:?}\n{case}");
    }
    allocation
}

fn slots(function: &Function, allocation: &Allocation) -> usize {
    assert!(allocation.memory.len() <= function.operand_count());
    allocation.memory.len()
}

#[test]
fn inputs_and_results_that_have_to_be_in_memory_are() {
    let case = text::parse(
        "target hardware sm_90 R=8
        kernel f {
        block0:
            v0:r32 = load : read
            v1:r64 = load #1 : read
            v2:r32 memory, v3:r32 = call v0 memory, v1 memory, v0 : write
            store v2, v3 memory : write
            exit : exit write
        }",
    )
    .unwrap();
    for strategy in Strategy::ALL {
        let allocation = proved(&case, strategy);
        assert_eq!(slots(&case.function, &allocation), 4, "{strategy}");
    }
}

/// Sixteen inputs in eight registers: the ones that find none are read from the frame.
#[test]
fn more_inputs_than_registers_are_read_from_memory() {
    let mut text = "target hardware sm_90 R=8\nkernel f {\nblock0:\n".to_owned();
    for n in 0..16 {
        text += &format!("    v{n}:r32 = load #{n} : read\n");
    }
    let inputs: Vec<String> = (0..16).map(|n| format!("v{n} anywhere")).collect();
    text += &format!(
        "    sum {} : write\n    exit : exit write\n}}\n",
        inputs.join(", ")
    );
    let case = text::parse(&text).unwrap();
    for strategy in Strategy::ALL {
        let allocation = proved(&case, strategy);
        assert!(slots(&case.function, &allocation) >= 8, "{strategy}");
    }
}

/// A value that was spilled is read from its slot, and no code is inserted for the reader.
#[test]
fn an_operand_that_may_be_anywhere_is_not_reloaded() {
    let mut text = "target hardware sm_90 R=4\nkernel f {\nblock0:\n".to_owned();
    for n in 0..6 {
        text += &format!("    v{n}:r32 = load #{n} : read\n");
    }
    for n in 0..6 {
        text += &format!("    store v{n} anywhere : write\n");
    }
    text += "    exit : exit write\n}\n";
    let case = text::parse(&text).unwrap();
    for strategy in Strategy::ALL {
        let allocation = proved(&case, strategy);
        let is_reload = |(_, edit): &(_, &Edit)| matches!(edit, Edit::Reload { .. });
        let reloads = allocation.edits.iter().filter(is_reload).count();
        assert_eq!(reloads, 0, "{strategy}");
        assert!(slots(&case.function, &allocation) >= 2, "{strategy}");
    }
}

const ARGUMENTS: &str = "target hardware sm_90 R=4
    device f {
    block0:
        v0:r32 @ R0, v1:r32 argument 0, v2:r64 argument 8 = entry : livein write
        v3:r32 = load v0 : read
        v4:r32 = load v3, #4 : read
        v5:r32 = load v4, #5 : read
        v6:r32 = add v3, v4
        store v5, v6 : write
        store v1, v0 : write
        store v2, v0 anywhere : write
        store v1 anywhere, v2 memory : write
        ret v0 @ R0 : return write
    }";

#[test]
fn arguments_in_memory_are_reloaded_from_where_the_caller_left_them() {
    let case = text::parse(ARGUMENTS).unwrap();
    for strategy in Strategy::ALL {
        let allocation = proved(&case, strategy);
        let from_caller = |(_, edit): &(_, &Edit)| matches!(edit, Edit::Reload { from, .. } if from.space == Space::Argument);
        let reloads = allocation.edits.iter().filter(from_caller).count();
        assert!(reloads > 0, "{strategy}");
    }
}

#[test]
fn operands_that_cannot_be_in_memory_are_refused_with_the_reason() {
    let refused = |code: &str| {
        let text = format!(
            "target hardware sm_90\nkernel f {{\nblock0:\n    v0:r32 = load : read\n    v1:pred = setp v0\n    {code}\n    exit : exit write\n}}"
        );
        let case = text::parse(&text).unwrap();
        let error = allocate(&case.function, &case.target, &Options::default());
        error.unwrap_err().to_string()
    };
    let expect = |code: &str, reason: &str| {
        let error = refused(code);
        assert_eq!(error, format!("invalid function: block0, inst2: {reason}"));
    };
    expect(
        "use inout v0 memory",
        "v0 cannot be in memory: it is neither a plain input nor a plain result",
    );
    expect(
        "use v1 memory",
        "v1 cannot be in memory: its file does not reach memory",
    );
    expect(
        "v2:r32 = mov v0 memory : copy",
        "v0 cannot be in memory: its instruction needs no code",
    );
    expect(
        "v2:r32 tied 1 = add v0 memory",
        "v0 cannot be in memory: others are tied to it or stand beside it",
    );
    expect(
        "v2:r32 argument 4 = load : read",
        "v2 cannot be in memory: only arguments are in the caller's memory, and in no other",
    );
}

/// Random functions in which some inputs and results of arithmetic, loads and stores may be,
/// or have to be, in memory.
fn random_case(seed: u64) -> Option<Case> {
    let mut rng = Rng::new(seed);
    let shape = Shape::random(80, &mut rng);
    let budget = [8, 12, 16, 24, 255][rng.below(5)];
    let target = Target::hardware(90).unwrap().with_budget(File::R, budget);
    let function = generate::function(&shape, &target, &mut rng);
    let case = Case {
        target,
        options: Options::default(),
        function,
    };
    let mut changed = String::new();
    for line in case.to_string().lines() {
        let opcodes = [
            "add ", "mul ", "fma ", "xor ", "ld ", "st ", "sink ", "barrier ",
        ];
        let is_plain = opcodes.iter().any(|opcode| line.contains(opcode))
            && !["tied", "early", "remat", "not {", "@", "group"]
                .iter()
                .any(|w| line.contains(w));
        if !is_plain {
            changed += line;
            changed.push('\n');
            continue;
        }
        let (code, rest) = line
            .split_once(" : ")
            .map_or((line, None), |(c, r)| (c, Some(r)));
        let mut out = String::new();
        let indent = code.len() - code.trim_start().len();
        out += &code[..indent];
        for (number, piece) in code.trim_start().split(", ").enumerate() {
            if number > 0 {
                out += ", ";
            }
            out += piece;
            let ends_in_value = piece.rsplit(' ').next().is_some_and(|word| {
                word.starts_with('v') && !word.contains("pred") && !word.contains("u")
            });
            if ends_in_value && rng.one_in(2) {
                out += [" anywhere", " anywhere", " memory"][rng.below(3)];
            }
        }
        changed += &out;
        if let Some(rest) = rest {
            changed += " : ";
            changed += rest;
        }
        changed.push('\n');
    }
    let case = text::parse(&changed).unwrap_or_else(|error| panic!("{error}\n{changed}"));
    // A predicate or a uniform register cannot.
    case.function.validate(&case.target).ok()?;
    Some(case)
}

#[test]
fn random_functions_with_operands_in_memory_are_proved_and_run_alike() {
    let (mut cases, mut in_memory) = (0, 0);
    for case in (0..300).filter_map(random_case) {
        for strategy in Strategy::ALL {
            let allocation = proved(&case, strategy);
            in_memory += allocation.memory.len();
        }
        cases += 1;
    }
    println!("{cases} functions, {in_memory} operands in memory");
    assert!(cases >= 100 && in_memory >= 1000, "{cases}, {in_memory}");
}

/// Damages allocations with operands in memory. Whatever runs differently, the checker refuses.
#[test]
fn the_checker_catches_damaged_operands_in_memory() {
    let (mut caught, mut harmless) = (0, 0);
    for seed in 0..200 {
        let Some(case) = random_case(seed) else {
            continue;
        };
        let mut rng = Rng::new(seed);
        let strategy = Strategy::ALL[rng.below(4)];
        let allocation = proved(&case, strategy);
        for _ in 0..8 {
            let mut mutant = allocation.clone();
            if !damage(&case, &mut mutant, &mut rng) {
                continue;
            }
            let refused = check(&case.function, &case.target, &mutant).is_err();
            let differs = (0..6).any(|run| {
                let limits = Limits::default();
                trace::compare(&case.function, &case.target, &mutant, limits, run).is_err()
            });
            assert!(refused || !differs, "seed {seed}, {strategy}:\n{case}");
            match refused {
                true => caught += 1,
                false => harmless += 1,
            }
        }
    }
    println!("{caught} caught, {harmless} harmless");
    assert!(caught > 200, "{caught} caught, {harmless} harmless");
}

/// Changes something about an operand in memory, or about the code that fills its slot.
fn damage(case: &Case, mutant: &mut Allocation, rng: &mut Rng) -> bool {
    if mutant.memory.is_empty() {
        return false;
    }
    let at = rng.below(mutant.memory.len());
    match rng.below(4) {
        0 => mutant.memory[at].1.offset += [4, -4, 8, -8][rng.below(4)],
        1 => {
            mutant.memory.remove(at);
        }
        2 => {
            let other: SlotAddr = mutant.memory[rng.below(mutant.memory.len())].1;
            mutant.memory[at].1 = other;
        }
        _ => {
            let touches = |edit: &Edit| match *edit {
                Edit::Store { to: slot, .. } | Edit::Reload { from: slot, .. } => {
                    slot == mutant.memory[at].1
                }
                _ => false,
            };
            let mut left = mutant
                .edits
                .iter()
                .filter(|(_, edit)| touches(edit))
                .count();
            let gone = rng.below(left.max(1));
            let kept = mutant.edits.iter().filter(|(_, edit)| {
                left -= usize::from(touches(edit));
                !(touches(edit) && left == gone)
            });
            let kept = kept.map(|(point, edit)| (point, edit.clone())).collect();
            mutant.edits = Edits::new(&case.function, kept);
        }
    }
    true
}
