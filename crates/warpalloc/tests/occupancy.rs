//! Occupancy against what the driver of an H200 answered, for every register count.
//!
//! The data comes from `bench/occupancy_probe.py`, which also says how to read it.

use warpalloc::target::occupancy::{Launch, cliffs, occupancy};
use warpalloc::target::sm::Sm;

const RECORDED: &str = include_str!("data/occupancy_h200.txt");

/// One line of answers: the last register count of each run, with its blocks.
struct Row {
    shared_bytes: u32,
    block_threads: u32,
    runs: Vec<(u32, u32)>,
}

fn lines() -> impl Iterator<Item = &'static str> {
    RECORDED.lines().filter(|line| !line.starts_with('#'))
}

fn number(text: &str) -> u32 {
    text.parse()
        .unwrap_or_else(|_| panic!("`{text}` is no number"))
}

fn rows() -> Vec<Row> {
    lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .map(|line| {
            let mut words = line.split(' ');
            let mut next = || {
                words
                    .next()
                    .expect("a line has shared memory and block size")
            };
            let (shared_bytes, block_threads) = (number(next()), number(next()));
            let pair = |word: &str| {
                let (registers, blocks) = word.split_once(':').expect("a run is REGISTERS:BLOCKS");
                (number(registers), number(blocks))
            };
            Row {
                shared_bytes,
                block_threads,
                runs: words.map(pair).collect(),
            }
        })
        .collect()
}

fn reported(name: &str) -> u32 {
    let value = lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    number(value.unwrap_or_else(|| panic!("the recording has no {name}")))
}

#[test]
fn limits_are_what_the_device_reports() {
    assert_eq!(reported("sm"), Sm::Sm90.number());
    let limits = Sm::Sm90.limits();
    assert_eq!(reported("registers_per_sm"), limits.registers_per_sm);
    assert_eq!(reported("registers_per_block"), limits.registers_per_block);
    assert_eq!(reported("threads_per_sm"), limits.threads_per_sm());
    assert_eq!(reported("threads_per_block"), limits.threads_per_block);
    assert_eq!(reported("blocks_per_sm"), limits.blocks_per_sm);
    assert_eq!(reported("shared_per_sm"), limits.shared_per_sm);
    assert_eq!(reported("shared_per_block"), limits.shared_per_block);
    assert_eq!(
        reported("shared_per_block_optin"),
        limits.shared_per_block_opt_in
    );
    assert_eq!(
        reported("reserved_shared_per_block"),
        limits.reserved_shared_per_block
    );
}

#[test]
fn every_recorded_answer_is_ours() {
    let mut answers = 0;
    for row in rows() {
        let mut first = 1;
        for &(last, blocks) in &row.runs {
            for registers_per_thread in first..=last {
                let launch = Launch {
                    registers_per_thread,
                    block_threads: row.block_threads,
                    shared_bytes: row.shared_bytes,
                };
                let ours = occupancy(Sm::Sm90, &launch).expect("a recorded launch is in range");
                assert_eq!(ours.blocks, blocks, "{launch:?}");
                answers += 1;
            }
            first = last + 1;
        }
        assert_eq!(first, 256, "the recording covers 1 to 255 registers");
    }
    assert_eq!(
        answers,
        255 * 40 * 40,
        "40 block sizes, 40 amounts of shared memory"
    );
}

#[test]
fn the_recorded_staircases_are_ours() {
    for row in rows() {
        let ours = cliffs(Sm::Sm90, row.block_threads, row.shared_bytes).expect("in range");
        let ours: Vec<(u32, u32)> = ours
            .iter()
            .map(|step| (step.last_registers, step.blocks))
            .collect();
        assert_eq!(
            ours, row.runs,
            "{} bytes, {} threads",
            row.shared_bytes, row.block_threads
        );
    }
}
