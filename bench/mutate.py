#!/usr/bin/env python3
"""Changes one operator or statement of the passes after the other and sees whether a test notices.

    bench/mutate.py --work FOLDER [--count N] [--seed N] [--jobs N] [--only FOLDER_OF_PASSES]... > bench/results/mutate.md

All mutants are built at once, in a copy of HEAD under FOLDER: each changed line stands beside the original one, behind a
switch that the variable MUTANT turns at run time. Those that do not build are taken out, lines that no test
reaches are counted apart, and the tests run once per mutant that is left, or for a random sample of --count. Campaigns over
random functions are left out, as in mutants.py, which breaks rules that have a name. A mutant that no test notices
is a survivor, unless EQUIVALENT says why it changes no result: exits with 1 where there is one.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

from provenance import commit

LIBRARY = Path("crates/warpalloc/src")
PASSES = ["analysis", "cleanup", "coalesce", "colour", "emit", "frame", "interference", "passes", "pipeline", "spill"]
TESTS = ["--lib", "--test", "filetests", "--test", "briggs", "--test", "fatpoint", "--test", "scan"]
# Campaigns over random functions notice much, and take long.
SLOW = [word for name in ["random", "every", "any"] for word in ("--skip", name)]
# A test takes seconds; a mutant that needs this many does not end.
PATIENCE = 240

# What becomes what. Both sides are as rustfmt sets them, so generics and paths are left alone.
TURNS = [
    (" < ", " <= "), (" > ", " >= "), (" <= ", " < "), (" >= ", " > "), (" == ", " != "), (" != ", " == "),
    (" && ", " || "), (" || ", " && "), (" + ", " - "), (" - ", " + "), (" * ", " + "), (" / ", " * "),
    ("!", ""), ("true", "false"), ("false", "true"), (".min(", ".max("), (".max(", ".min("), (".rev()", ""),
    (".any(", ".all("), (".all(", ".any("), (".is_some()", ".is_none()"), (".is_none()", ".is_some()"),
    (" += ", " -= "), (" -= ", " += "),
]
# Lines that can be switched as a whole: what stands before the expression, and behind it.
SHAPES = [
    re.compile(r"^(\s*(?:\} else )?(?:if|while) )(?!let )(.+)( \{)$"),
    re.compile(r"^(\s*let (?:mut )?\w+(?:: [^=]+)? = )(?!if |match )([^{}]+)(;)$"),
    re.compile(r"^(\s*return )([^{}]+)(;)$"),
    re.compile(r"^(\s*(?:\S+ )?\S+ => )(?!match |if )([^{}]+)(,)$"),
]
ASSIGNED = re.compile(r"^(\s*)(\S.* (?:\+|-)?= [^{}]+;)$")
CALLED = re.compile(r"^(\s*)([\w.\[\]()]+\.(?:push|insert|extend|remove|union|clear|retain|sort\w*|dedup|truncate)\([^{}]*\);)$")

SWITCH = """
/// Turns one mutant on, and tells which are reached.
pub(crate) mod mutant {
    use std::sync::atomic::{AtomicBool, Ordering};
    static ON: std::sync::LazyLock<u32> =
        std::sync::LazyLock::new(|| std::env::var("MUTANT").map_or(u32::MAX, |number| number.parse().unwrap()));
    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
    static FILE: std::sync::LazyLock<Option<std::sync::Mutex<std::fs::File>>> = std::sync::LazyLock::new(|| {
        let path = std::env::var_os("MUTANTS_REACHED")?;
        Some(std::sync::Mutex::new(std::fs::File::options().create(true).append(true).open(path).unwrap()))
    });
    pub fn on(number: u32) -> bool {
        if let Some(file) = &*FILE
            && !REACHED[number as usize].swap(true, Ordering::Relaxed)
        {
            use std::io::Write;
            writeln!(file.lock().unwrap(), "{number}").unwrap();
        }
        *ON == number
    }
}
"""

# Survivors that change no result, by file and changed line, and why.
EQUIVALENT = {}

Mutant = collections.namedtuple("Mutant", "path line old new")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", action="append")
    return parser.parse_args()


def main():
    args = arguments()
    source = args.work / "source"
    source.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "archive", "HEAD"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "-C", source], input=archive, check=True)
    environment = os.environ | {"CARGO_TARGET_DIR": str((args.work / "target").resolve()), "RUST_BACKTRACE": "0"}
    mutants = [mutant for path in sorted((source / LIBRARY).rglob("*.rs")) for mutant in mutations(path, source, args.only)]
    mutants, programs = build(mutants, source, environment)
    reached = reach(programs, source, environment, args.work)
    numbers = sorted(reached)
    if args.count is not None:
        numbers = sorted(random.Random(args.seed).sample(numbers, min(args.count, len(numbers))))
    print("# Mutants of every pass\n")
    print(f"`bench/mutate.py{''.join(' ' + word for word in options(args))}` at {commit()}. One operator turned or one statement dropped; the tests")
    print("are those that need no random functions.\n")
    print(f"{len(mutants)} mutants build, {len(reached)} of them are reached by a test; {len(numbers)} were tried.\n")
    counts, rows = collections.defaultdict(collections.Counter), []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        tried = pool.map(lambda number: first_failure(programs, source, environment, number), numbers)
        for done, (number, noticed) in enumerate(zip(numbers, tried), 1):
            mutant = mutants[number]
            key = (mutant.path, mutant.new.strip())
            outcome = "noticed" if noticed else "equivalent" if key in EQUIVALENT else "survivors"
            counts[mutant.path.split("/")[0].removesuffix(".rs")][outcome] += 1
            if outcome != "noticed":
                rows.append((mutant, EQUIVALENT.get(key, "**nothing notices**")))
            print(f"{done} of {len(numbers)}: {mutant.path}:{mutant.line + 1}: {mutant.new.strip()}: {noticed or outcome}", file=sys.stderr, flush=True)
    print("| folder | tried | noticed | equivalent | survivors |\n|---|---|---|---|---|")
    for folder, tally in sorted(counts.items()):
        print(f"| {folder} | {tally.total()} | {tally['noticed']} | {tally['equivalent']} | {tally['survivors']} |")
    everything = sum(counts.values(), collections.Counter())
    print(f"| all | {everything.total()} | {everything['noticed']} | {everything['equivalent']} | {everything['survivors']} |")
    if rows:
        print("\n| place | line | becomes | |\n|---|---|---|---|")
    for mutant, why in rows:
        print(f"| {mutant.path}:{mutant.line + 1} | {code(mutant.old)} | {code(mutant.new)} | {why} |")
    sys.exit(everything["survivors"] > 0)


def options(args):
    if args.count is not None:
        yield f"--count {args.count} --seed {args.seed}"
    yield from (f"--only {folder}" for folder in args.only or [])


def code(line):
    return "`" + line.strip().replace("|", "\\|") + "`" if line.strip() else "dropped"


def mutations(path, source, only):
    """Every mutant of a file of the passes; tests and text forms have none."""
    inside = str(path.relative_to(source / LIBRARY))
    folder = inside.split("/")[0].removesuffix(".rs")
    if folder not in (only or PASSES) or path.stem in ("tests", "display"):
        return
    for number, line in enumerate(path.read_text().splitlines()):
        if line.startswith("#[cfg(test)]"):
            return
        if line.lstrip().startswith(("//", "debug_assert", "assert", "use ", "#[", "log", "const ", "static ", "pub ", "fn ")):
            continue
        for old, new in TURNS:
            if line.count(old) == 1 and (old != "!" or re.search(r"(^|[ (&|])!\w", line)):
                changed = line.replace(old, new)
                if nested(line, [changed], [0]):
                    yield Mutant(inside, number, line, changed)
        if CALLED.match(line):
            yield Mutant(inside, number, line, "")


def build(mutants, source, environment):
    """Builds all mutants into one library; drops those that the compiler refuses."""
    originals = {path: (source / LIBRARY / path).read_text() for path in {mutant.path for mutant in mutants}}
    crate = source / LIBRARY / "lib.rs"
    front = crate.read_text()
    while True:
        lines = {path: text.splitlines() for path, text in originals.items()}
        by_line = collections.defaultdict(list)
        for number, mutant in enumerate(mutants):
            by_line[mutant.path, mutant.line].append(number)
        for (path, line), numbers in by_line.items():
            lines[path][line] = nested(originals[path].splitlines()[line], [mutants[n].new for n in numbers], numbers)
        for path, text in lines.items():
            (source / LIBRARY / path).write_text("\n".join(text) + "\n")
        crate.write_text(front + SWITCH.replace("COUNT]", f"{len(mutants)}]").replace("; COUNT", f"; {len(mutants)}"))
        run = subprocess.run(["cargo", "test", "--no-run", "--message-format=json", "-p", "warpalloc", *TESTS], cwd=source, env=environment,
                             capture_output=True, text=True)
        messages = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        if run.returncode == 0:
            return mutants, {m["target"]["name"]: m["executable"] for m in messages if m.get("executable")}
        errors = [m["message"] for m in messages if m["reason"] == "compiler-message" and m["message"]["level"] == "error"]
        left = [mutant for mutant in mutants if not any(is_blamed(mutant, error, False) for error in errors)]
        if len(left) == len(mutants):
            left = [mutant for mutant in mutants if not any(is_blamed(mutant, error, True) for error in errors)]
        print(f"{len(mutants) - len(left)} mutants do not build", file=sys.stderr, flush=True)
        if len(left) == len(mutants):
            sys.exit(run.stderr[-3000:])
        mutants = left


def is_blamed(mutant, error, between):
    """Whether an error points at the line of a mutant, or to lines before and behind it, as where a borrow lasts too long."""
    lines = [span["line_start"] - 1 for span in error["spans"] if span["file_name"].endswith(f"src/{mutant.path}")]
    return bool(lines) and min(lines) <= mutant.line <= max(lines) if between else mutant.line in lines


def nested(old, changes, numbers):
    """A line behind as many switches as it has mutants; nothing where it has no shape for that."""
    for shape in SHAPES:
        if (first := shape.match(old)) and all((m := shape.match(new)) and m[1] == first[1] for new in changes):
            inner = first[2]
            for new, number in zip(changes, numbers):
                inner = f"if crate::mutant::on({number}) {{ {shape.match(new)[2]} }} else {{ {inner} }}"
            return f"{first[1]}({inner}){first[3]}"
    first = None if old.lstrip().startswith("let ") else CALLED.match(old) or ASSIGNED.match(old)
    if not first or not all(not new or CALLED.match(new) or ASSIGNED.match(new) for new in changes):
        return None
    inner = first[2]
    for new, number in zip(changes, numbers):
        inner = f"if crate::mutant::on({number}) {{ {new.strip()} }} else {{ {inner} }}"
    return first[1] + inner


def reach(programs, source, environment, work):
    """The mutants whose line a test runs."""
    path = (work / "reached").resolve()
    path.unlink(missing_ok=True)
    for program in programs.values():
        run = subprocess.run([program, "--quiet", *SLOW], cwd=source / LIBRARY.parent, env=environment | {"MUTANTS_REACHED": str(path)},
                             capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"the tests fail without a mutant\n{run.stdout[-3000:]}")
    return {int(line) for line in path.read_text().split()}


def first_failure(programs, source, environment, number):
    """The tests that fail first; nothing where all pass."""
    for program in programs.values():
        try:
            run = subprocess.run([program, "--quiet", *SLOW], cwd=source / LIBRARY.parent, env=environment | {"MUTANT": str(number)},
                                 capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return "it does not end"
        if run.returncode:
            said = run.stdout + run.stderr
            names = re.findall(r"^(\w+\.(?:txt|ptx)), ", said, re.M) or re.findall(r"^---- (\S+) stdout ----$", said, re.M)
            return ", ".join(dict.fromkeys(names[:3])) or "a crash"
    return None


main()
