#!/usr/bin/env python3
"""Breaks one rule after the other and sees whether a test notices.

    bench/mutants.py --work FOLDER [--only NAME]... > bench/results/mutants.md

Each mutant is one change of the library's text, made in a copy of HEAD under FOLDER, where it is built and tested
as well; FOLDER can be removed afterwards. Suites are run one after the other until one fails; campaigns over random
functions are left out. A mutant that nothing notices is a survivor: exits with 1 where one is not listed as
equivalent. A minute or two for each mutant.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from provenance import commit

LIBRARY, PTX = "crates/warpalloc/src/", "crates/warpalloc-ptx/src/"
BRIGGS, FATPOINT = LIBRARY + "colour/briggs/", LIBRARY + "colour/fatpoint/"
# Campaigns over random functions notice much, and take long.
SLOW = [word for name in ["random", "every", "any"] for word in ("--skip", name)]
SUITES = [
    ["-p", "warpalloc", "--test", "filetests"],
    ["-p", "warpalloc", "--test", "briggs", "--test", "fatpoint", "--", *SLOW],
    ["-p", "warpalloc", "--lib", "--", *SLOW],
]
PTX_SUITES = [["-p", "warpalloc-ptx", "--test", "filetests"], ["-p", "warpalloc-ptx", "--lib", "--", "lower", "flight_names"]]

# Name, file, text, what it becomes.
MUTANTS = [
    ("George's test never passes", BRIGGS + "conservative.rs", "if keeps_places { harmed } else { u32::MAX }", "u32::MAX.max(harmed)"),
    ("Briggs's test never passes", BRIGGS + "conservative.rs", "match briggs.min(george)", "match george.max(briggs.min(0))"),
    ("nothing is merged untested below K/2", BRIGGS + "conservative.rs", "if self.is_small(joint) =>", "if self.is_small(joint) && false =>"),
    ("no merge is too wide", BRIGGS + "conservative.rs", "saturating_sub(2 * places)", "saturating_sub(2000 * places)"),
    ("merges are not undone", BRIGGS + "select.rs", "parts.sort_unstable();\n        parts.dedup();", "parts.sort_unstable();\n        parts.dedup();\n        if parts.len() > 1 {\n            parts.truncate(1);\n        }"),
    ("merges into fixed registers always pass", BRIGGS + "conservative.rs", "harmed => Verdict::After(harmed),", "_ => Verdict::Merge,"),
    ("merges into fixed registers never pass", BRIGGS + "conservative.rs", "match harmed as u32 {\n            0 => Verdict::Merge,", "match harmed as u32 + 1 {\n            0 => Verdict::Merge,"),
    ("freeze is a stack", BRIGGS + "simplify.rs", "self.freezable.pop_front()?", "self.freezable.pop_back()?"),
    ("merges are not verified", BRIGGS + "simplify.rs", "if self.options.verify_coalescing {", "if false {"),
    ("loops do not count in spill costs", LIBRARY + "spill/cost.rs", "let factor = loop_factor(loops.depth(block));", "let factor = loop_factor(0 * loops.depth(block));"),
    ("frequencies do not count in spill costs", LIBRARY + "spill/cost.rs", "let frequency = frequencies.block(block) as f32;", "let frequency = 0.0f32.mul_add(frequencies.block(block) as f32, 1.0);"),
    ("spill costs have no limit", LIBRARY + "spill/cost.rs", ".clamp(0.0, COST_LIMIT)", ".max(0.0)"),
    ("tuples have one width", LIBRARY + "target/preset.rs", "80..=89 => 4,", "80..=89 => 8,"),
    ("R31 is not preserved", LIBRARY + "target/preset.rs", "(24..32).map(general)", "(24..31).map(general)"),
    ("seven argument registers", LIBRARY + "target/preset.rs", "(0..8).map(general)", "(0..7).map(general)"),
    ("slots are not shared", LIBRARY + "frame/slot_colouring.rs", "find(|place| place.is_free(range))", "find(|place| place.is_free(range) && false)"),
    ("slots are shared whatever they hold", LIBRARY + "frame/slot_colouring.rs", "find(|place| place.is_free(range))", "find(|place| place.is_free(range) || true)"),
    ("reloads move to hotter places", LIBRARY + "spill/lazy_reload.rs", "if cost >= saved || entries", "if cost >= saved * 1e6 || entries"),
    ("rematerialisation whatever the ratio", LIBRARY + "spill/remat.rs", "frequency * (ratio * latency - cycles)", "frequency * (ratio * latency - cycles).abs()"),
    ("rematerialisation whatever the depth", LIBRARY + "spill/remat.rs", "_ => LATENCY_L1,", "_ => LATENCY_L2,"),
    ("rematerialisation whatever the inputs", LIBRARY + "spill/remat.rs", "if !inputs(program.function, inst).all(|input| live.contains(input)) {", "if !inputs(program.function, inst).all(|input| live.contains(input) || true) {"),
    ("average degree is off by two", LIBRARY + "stats.rs", "2.0 * self.edges as f64", "self.edges as f64"),
    ("spill rate counts rematerialised values", LIBRARY + "stats.rs", "ratio(self.spilled, self.values)", "ratio(self.spilled + self.rematerialised, self.values)"),
    ("lazy-reload is ignored", BRIGGS + "mod.rs", "options.briggs.lazy_reload.then_some(self.attempt.join)", "Some(self.attempt.join)"),
    ("rematerialise is ignored", BRIGGS + "mod.rs", "options.briggs.rematerialise", "true"),
    ("allocate does not check", LIBRARY + "allocator.rs", "if options.verify {", "if options.verify && false {"),
    ("names are not split into webs", PTX + "lower/mod.rs", "true => webs.split(&model),", "true => model.clone(),"),
    ("clusters do not fall apart", FATPOINT + "assign.rs", "if clusters.info(cluster).parts() == 1 {", "if clusters.info(cluster).parts() >= 1 {"),
    ("guidance knows no rematerialisation", FATPOINT + "mod.rs", "RematLists::find(program, target, &options.knobs).apply(&mut costs);", "let _ = RematLists::find(program, target, &options.knobs);"),
    ("the worse of two trials is kept", FATPOINT + "mod.rs", "if placed.failed.len() < best.failed.len() {", "if placed.failed.len() > best.failed.len() {"),
    ("no extra spills", FATPOINT + "make_room.rs", "chosen.extend(self.extra(problem, ranges, placed, costs));", "let _ = self.extra(problem, ranges, placed, costs);"),
    ("unspillable values wait for their turn", FATPOINT + "place_file.rs", "(trial == Trial::SixLists && stubborn())", "(trial == Trial::SixLists && stubborn() && false)"),
    ("halves are of class 1", FATPOINT + "class.rs", "=> RegClass::RAlt,", "=> RegClass::R,"),
    ("accumulators share names", PTX + "flight_names.rs", "webs_of[span.text(source)].len() > 1", "webs_of[span.text(source)].len() > 1000"),
]

# Survivors that change no result, and why.
EQUIVALENT = {
    "nothing is merged untested below K/2": "two sides of the merged shape with fewer than K/2 neighbours each have fewer "
    "than K together and burden none more than before, so Briggs's test passes as well: the rule saves time alone",
    "merges are not verified": "verifying finds what no input is known to have: an unsound merge",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", action="append")
    args = parser.parse_args()
    source = args.work / "source"
    source.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "archive", "HEAD"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "-C", source], input=archive, check=True)
    environment = os.environ | {"CARGO_TARGET_DIR": str((args.work / "target").resolve()), "RUST_BACKTRACE": "0",
                                "CARGO_PROFILE_DEV_OPT_LEVEL": "0", "CARGO_PROFILE_DEV_DEBUG": "0"}
    print("# Mutants\n")
    print(f"`bench/mutants.py` at {commit()}. Each rule broken once; the first test that notices.\n")
    print("| rule broken | file | noticed by |\n|---|---|---|", flush=True)
    killed = survived = equivalent = 0
    for name, path, text, new in MUTANTS:
        if args.only and name not in args.only:
            continue
        original = (source / path).read_text()
        if original.count(text) != 1:
            sys.exit(f"{name}: `{text}` is {original.count(text)} times in {path}")
        (source / path).write_text(original.replace(text, new))
        try:
            noticed = first_failure(source, environment, PTX_SUITES if path.startswith(PTX) else SUITES)
        finally:
            (source / path).write_text(original)
        if noticed:
            killed += 1
        elif name in EQUIVALENT:
            equivalent += 1
            noticed = "equivalent: " + EQUIVALENT[name]
        else:
            survived += 1
            noticed = "**nothing**"
        print(f"| {name} | `{path.split('src/')[1]}` | {noticed} |", flush=True)
    print(f"\n{killed} of {killed + survived + equivalent} noticed, {equivalent} equivalent, {survived} survivors.")
    sys.exit(survived > 0)


def first_failure(source, environment, suites):
    for suite in suites:
        run = subprocess.run(["cargo", "test", "--quiet", *suite], cwd=source, env=environment, capture_output=True, text=True)
        said = run.stdout + run.stderr
        if run.returncode:
            if re.search(r"^error(\[E\d+\])?:(?! test failed)", said, re.M) and "panicked" not in said:
                sys.exit(said[-2000:])
            failed = re.findall(r"^---- (\S+) stdout ----$", said, re.M)
            files = re.findall(r"^(\w+\.(?:txt|ptx)), ", said, re.M)
            names = list(dict.fromkeys(files or failed))
            return ", ".join(f"`{name}`" for name in names[:3]) or "a crash"
    return None


main()
