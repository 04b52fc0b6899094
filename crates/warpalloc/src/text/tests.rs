//! Texts that parse, texts that do not, and everything back again.

use super::*;
use crate::generate::{self, Rng, Shape};
use crate::target::File;

const SAMPLE: &str = "\
target hardware sm_90 R=32 P=7 UR=63 UP=7
options strategy=naive verify=true spill=local

kernel saxpy {
block0:
    v0:r64.uniform = ld.param #1 : remat 2
    v1:r32, v2:r32 = ld.v2 v0 : read group 0..2 align 2
    v3:pred = setp v1, v2 : anchored
    brp v3 -> block1(v1), block2
block1(v4:r32) freq 0.5:
    fma inout v2, v4, v3
    v5:r32 tied 1 = add v2
    v6:r32 @ R0 = call v5 @ R0 : call write clobbers abi
    early v7:r32 not {R0, R1} = asm v6 : clobbers {R2}
    \"st global\" v0, v7, #18446744073709551615 : write
    bra -> block2
block2:
    mix v0, def v8:r32.pinned, early v9:r32
    exit : exit write
vregs v10:r16
}
";

#[test]
fn the_sample_prints_as_it_is_written() {
    let case = parse(SAMPLE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(case.to_string(), SAMPLE);
    assert_eq!(case.target.budget(File::R), 32);
    assert_eq!(case.function.validate(&case.target), Ok(()));
}

#[test]
fn the_example_of_the_module_parses() {
    let doc = include_str!("mod.rs").lines();
    let text: Vec<&str> = doc
        .skip_while(|line| !line.contains("```text"))
        .skip(1)
        .take_while(|line| !line.contains("```"))
        .map(|line| line.trim_start_matches("//!"))
        .collect();
    let case = parse(&text.join("\n")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(case.function.validate(&case.target), Ok(()));
}

#[test]
fn a_value_may_be_used_above_the_line_that_declares_it() {
    let text = "target cicc sm_80\nkernel f {\nblock0:\n bra -> block2\nblock1:\n\
                use v0\n exit: exit\nblock2:\n v0:r32 = def\n bra -> block1\n}";
    let case = parse(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(case.function.validate(&case.target), Ok(()));
    assert_eq!(parse(&case.to_string()).unwrap(), case);
}

#[test]
fn generated_functions_come_back_equal() {
    let mut rng = Rng::new(7);
    let targets = [
        Target::cicc(),
        Target::hardware(90).unwrap(),
        Target::hardware_packed(80)
            .unwrap()
            .with_budget(File::R, 20),
    ];
    for number in 0..1000 {
        let shape = Shape::random(80, &mut rng);
        let target = &targets[number % targets.len()];
        let case = Case {
            target: target.clone(),
            options: Options::default(),
            function: generate::function(&shape, target, &mut rng),
        };
        let text = case.to_string();
        let back = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!(back == case, "{text}");
        assert_eq!(back.to_string(), text);
    }
}

/// Checks that `body` in a function fails at `line`:`column` of the body with `message`.
fn fails(body: &str, line: usize, column: usize, message: &str) {
    let text = format!("target cicc sm_80\nkernel f {{\nblock0:\n{body}\n}}");
    let error = parse(&text).expect_err(&text);
    let place = (error.line - 3, error.column);
    assert_eq!(place, (line, column), "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn errors_point_at_what_is_wrong() {
    fails("  v0:r33 = op", 1, 6, "a class (r16, r32");
    fails(
        "  op v0",
        1,
        6,
        "a class, here or where else the value occurs",
    );
    fails("  v0:r32 = op\n  v0:r64 = op", 2, 6, "as given before");
    fails("  v0:r32 @ Q7 = op", 1, 12, "a register such as");
    fails("  v4000000000:r32 = op", 1, 3, "a smaller number");
    fails("  bra -> block9", 1, 10, "a block of this function");
    fails(
        "  bra -> block4294967295",
        1,
        10,
        "a block of this function",
    );
    fails("block2:", 1, 1, "`block1` was expected");
    fails("  op : often", 1, 8, "an attribute such as");
    fails("  op : remat 256", 1, 14, "at most 255");
    fails("  op : group 3..2 align 1", 1, 19, "ends before it starts");
    fails("  op #1, #2", 1, 11, "one immediate");
    fails("  op \"x", 1, 6, "never ends");
    fails("  op ä", 1, 6, "no token starts");
    fails("  bra -> block0\n  op", 2, 3, "a block was expected");
    fails(
        "  v0:r32.shiny = op",
        1,
        6,
        "`.uniform`, `.pinned` and `.hint_R0`",
    );
}

#[test]
fn errors_outside_functions() {
    let error = |text: &str| parse(text).expect_err(text).to_string();
    assert!(error("").contains("a function was expected"));
    assert!(error("kernel f {").contains("a `target` line before"));
    assert!(error("target cicc sm_80\nkernel f {\nblock0:").contains("`}` was expected"));
    assert!(error("target vax sm_80").contains("no preset `vax`"));
    assert!(error("target hardware sm_12").contains("sm_12 is not a supported"));
    assert!(error("target cicc sm_90").contains("this preset is for sm_80"));
    assert!(error("target cicc sm_80 R=16").contains("this file has 15 registers"));
    assert!(error("options verfy=true").contains("did you mean `verify`?"));
    assert!(error("target cicc sm_80\nkernel f {\n}\nmore").contains("the end of the text"));
}

#[test]
fn an_error_shows_the_line() {
    let error = parse("target cicc sm_80\nkernel f {\nblock0:\n\tv0:r33 = op\n}").unwrap_err();
    let shown = error.to_string();
    let tail = "found `r33`\n     v0:r33 = op\n        ^^^";
    assert!(shown.ends_with(tail), "{shown}");
}

#[test]
fn odd_names_are_quoted() {
    for name in [
        "v0", "block3", "early", "vregs", "a b", "\"", "\\", "", "ä", "x\ny", "x-y", "9",
    ] {
        let mut b = crate::function::Builder::new(name);
        let entry = b.block();
        b.exit(entry, name);
        let case = Case {
            target: Target::cicc(),
            options: Options::default(),
            function: b.finish(),
        };
        let text = case.to_string();
        let back = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(back, case, "{text}");
    }
}
