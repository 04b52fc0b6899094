//! `warpalloc occupancy`: what a launch leaves of a multiprocessor, and what a register costs.

use clap::Args;
use serde_json::{Value, json};
use warpalloc::target::occupancy::{
    Cliff, Launch, Limiter, Occupancy, cliffs, occupancy, percent_of,
};
use warpalloc::target::sm::Sm;
use warpalloc_ptx::LEAST_CAP;

use crate::UsageError;

/// What to compute the occupancy of.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpalloc occupancy --sm 90 --regs 80 --block 256
  warpalloc occupancy --sm 90 --regs 80 --block 256 --smem 49152 --json")]
pub struct OccupancyArgs {
    /// The multiprocessor: 90, sm_90 or sm_90a
    #[arg(long)]
    sm: Sm,
    /// Registers per thread
    #[arg(long)]
    regs: u32,
    /// Threads per block
    #[arg(long)]
    block: u32,
    /// Bytes of shared memory per block, static and dynamic together
    #[arg(long, default_value_t = 0)]
    smem: u32,
    /// Print JSON, see docs/json.md
    #[arg(long)]
    json: bool,
}

/// Prints the occupancy of the launch `args` describe.
pub fn run(args: OccupancyArgs) -> anyhow::Result<()> {
    let launch = Launch {
        registers_per_thread: args.regs,
        block_threads: args.block,
        shared_bytes: args.smem,
    };
    let usage = |error: warpalloc::target::occupancy::OccupancyError| UsageError(error.to_string());
    let answer = occupancy(args.sm, &launch).map_err(usage)?;
    let staircase = cliffs(args.sm, args.block, args.smem).map_err(usage)?;
    let output = if args.json {
        format!("{:#}\n", as_json(args.sm, &launch, &answer, &staircase))
    } else {
        as_text(args.sm, &launch, &answer, &staircase)
    };
    crate::output::print(&output)
}

fn as_text(sm: Sm, launch: &Launch, answer: &Occupancy, staircase: &[Cliff]) -> String {
    let title = format!(
        "{sm}: {} registers per thread, {} threads and {} bytes of shared memory per block",
        launch.registers_per_thread, launch.block_threads, launch.shared_bytes
    );
    let mut lines = vec![title];
    lines.extend(summary(answer).map(|(what, value)| format!("  {what:<15} {value}")));
    lines.push("  registers       blocks  warps  occupancy".to_owned());
    lines.extend(
        staircase
            .iter()
            .map(|step| table_line(step, launch, answer)),
    );
    lines.join("\n") + "\n"
}

fn summary(answer: &Occupancy) -> impl Iterator<Item = (&'static str, String)> {
    let (warps, max) = (answer.warps, answer.max_warps);
    let share = percent(warps, answer);
    let rows = [
        ("blocks per SM", Some(answer.blocks.to_string())),
        (
            "warps per SM",
            Some(format!("{warps} of {max} ({share} %)")),
        ),
        (
            "can't launch",
            answer.refusal.map(|refusal| refusal.to_string()),
        ),
        ("limited by", Some(names(answer).join(", "))),
        ("room in blocks", Some(room(answer))),
        ("next cliff up", Some(cliff_up(answer))),
        ("next cliff down", Some(cliff_down(answer))),
    ];
    rows.into_iter()
        .filter_map(|(what, value)| Some((what, value?)))
}

fn cliff_up(answer: &Occupancy) -> String {
    match &answer.next_higher {
        Some(step) => {
            let there = resident(step, answer);
            format!("{} registers or fewer: {there}", step.last_registers)
        }
        None => "none: fewer registers gain nothing".to_owned(),
    }
}

fn cliff_down(answer: &Occupancy) -> String {
    match &answer.next_lower {
        Some(step) => {
            let there = resident(step, answer);
            format!("{} registers or more: {there}", step.first_registers)
        }
        None if answer.blocks == 0 => "none: no block is left to lose".to_owned(),
        None => "none: more registers cost nothing".to_owned(),
    }
}

fn resident(step: &Cliff, answer: &Occupancy) -> String {
    let (blocks, warps, share) = (step.blocks, step.warps, percent(step.warps, answer));
    let plural = if blocks == 1 { "" } else { "s" };
    format!("{blocks} block{plural}, {warps} warps ({share} %)")
}

fn table_line(step: &Cliff, launch: &Launch, answer: &Occupancy) -> String {
    let (first, last) = (step.first_registers, step.last_registers);
    let here = (first..=last).contains(&launch.registers_per_thread);
    let mark = if here { '>' } else { ' ' };
    let span = format!("{first}-{last}");
    let share = format!("{} %", percent(step.warps, answer));
    format!(
        "{mark} {span:<15} {:>6}  {:>5}  {share:>9}",
        step.blocks, step.warps
    )
}

fn names(answer: &Occupancy) -> Vec<String> {
    answer
        .limiters()
        .map(|limiter| limiter.to_string())
        .collect()
}

fn room(answer: &Occupancy) -> String {
    let entry = |limiter: Limiter| match answer.room.of(limiter) {
        Some(blocks) => format!("{limiter} {blocks}"),
        None => format!("{limiter} unlimited"),
    };
    Limiter::ALL.map(entry).join(", ")
}

/// At most one decimal: occupancies are multiples of 1/64 or 1/48.
fn percent(warps: u32, answer: &Occupancy) -> f64 {
    (percent_of(warps, answer.max_warps) * 10.0).round() / 10.0
}

fn as_json(sm: Sm, launch: &Launch, answer: &Occupancy, staircase: &[Cliff]) -> Value {
    let mut value = answer_json(answer);
    value["schema"] = crate::report::SCHEMA.into();
    value["sm"] = sm.number().into();
    value["registers_per_thread"] = launch.registers_per_thread.into();
    value["block_threads"] = launch.block_threads.into();
    value["shared_bytes"] = launch.shared_bytes.into();
    value["cliffs"] = staircase
        .iter()
        .map(|c| step_json(c, answer.max_warps))
        .collect();
    value
}

/// The caps that reach each step of occupancy below a number of registers, the highest first.
pub fn caps_below(staircase: &[Cliff], registers: u32) -> Vec<u32> {
    let caps = staircase.iter().rev().filter(|step| step.blocks > 0);
    let caps = caps.map(|step| step.last_registers);
    caps.filter(|cap| (LEAST_CAP..registers).contains(cap))
        .collect()
}

/// What is resident and why not more, without the launch it was asked for.
pub fn answer_json(answer: &Occupancy) -> Value {
    json!({
        "blocks": answer.blocks,
        "warps": answer.warps,
        "max_warps": answer.max_warps,
        "percent": answer.percent(),
        "limiters": names(answer),
        "room": {
            "warps": answer.room.warps,
            "blocks": answer.room.blocks,
            "registers": answer.room.registers,
            "shared_memory": answer.room.shared_memory,
        },
        "refusal": answer.refusal.map(|refusal| refusal.to_string()),
        "next_higher": answer.next_higher.as_ref().map(|c| step_json(c, answer.max_warps)),
        "next_lower": answer.next_lower.as_ref().map(|c| step_json(c, answer.max_warps)),
    })
}

pub fn step_json(step: &Cliff, max_warps: u32) -> Value {
    json!({
        "first_registers": step.first_registers,
        "last_registers": step.last_registers,
        "blocks": step.blocks,
        "warps": step.warps,
        "percent": percent_of(step.warps, max_warps),
    })
}
