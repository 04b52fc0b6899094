//! The whole command, with itself as an external allocator.

use std::process::{Command, Output};

const COMMAND: &str = env!("CARGO_BIN_EXE_warpalloc-rivals");

fn run(external: &str) -> Output {
    Command::new(COMMAND)
        .args(["--parts=generated", "--insts=150", "--registers=8"])
        .args(["--pressures=1.25", "--seeds=2", "--runs=1", "--out=-"])
        .arg("--only=ion,again")
        .arg(format!("--external=again={external}"))
        .output()
        .expect("the command can be started")
}

/// Behind the protocol, an allocator gives the code and so the figures it gives without it.
#[test]
fn an_allocator_behind_the_protocol_gives_the_same_code() {
    let output = run(&format!("{COMMAND} --serve=ion"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        text.contains("4 allocations, every one checked and right."),
        "{text}"
    );
    // Cost, its comparisons, and the counts; time and memory come before and after.
    let figures = |name: &str| {
        let name = format!(" {name} ");
        let rows = text
            .lines()
            .map(|line| line.split('|').collect::<Vec<&str>>());
        let mut rows = rows.filter(|cells| cells.get(3) == Some(&name.as_str()));
        let row = rows.next().expect("a row for the allocator");
        row[5..12].join("|")
    };
    assert_eq!(figures("ion"), figures("again"));
    assert!(
        !figures("ion").starts_with(" 0.00"),
        "nothing spilled: {text}"
    );
}

#[test]
fn a_command_that_does_not_answer_is_named() {
    let output = run("true");
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("external again"), "{errors}");
}
