#!/usr/bin/env python3
"""Changes one operator or statement of the passes after the other and sees whether a test notices.

    bench/mutate.py --work FOLDER [--count N] [--seed N] [--jobs N] [--only FOLDER_OF_PASSES]... > bench/results/mutate.md

All mutants are built at once, in a copy of HEAD or --at another commit under FOLDER: each changed line stands beside the original one, behind a
switch that the variable MUTANT turns at run time. Those that do not build are taken out, lines that no test
reaches are counted apart, and the tests that reach a mutant run with it, for all of them or a random sample of --count.
Campaigns over random functions are left out, as in mutants.py, which breaks rules that have a name. A mutant that no test
notices is a survivor, unless mutate_equivalent.txt says why it changes no result: exits with 1 where there is one, or one
that no test reaches.

With --hunt each survivor is held against as many random functions of fixed seeds; those that together show most are printed,
for tests/tables/chosen.txt, and of the survivors that none shows it is said.

FOLDER/results.json keeps what was noticed, by file, line and change; a later run tries only what nothing noticed, unless
--afresh. What was not tried within --minutes is counted as such.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from provenance import commit

LIBRARY = Path("crates/warpalloc/src")
PASSES = ["analysis", "cleanup", "coalesce", "colour", "emit", "frame", "interference", "passes", "pipeline", "spill"]
# Outcomes that tests are to blame for.
MISSED = {"survivors": "**nothing notices**", "unreached": "**no test reaches it**"}
# The first notice most, in the least time.
PROGRAMS = ["filetests", "tables", "warpalloc", "briggs", "scan", "analyses", "pinned", "machines"]
TESTS = ["--lib"] + [word for name in PROGRAMS if name != "warpalloc" for word in ("--test", name)]
# Campaigns over random functions notice much, and take long.
SLOW = [word for name in ["random", "every", "any"] for word in ("--skip", name)]
# Nor is a test run that takes this many seconds.
LONG = 2
# A mutant that takes this many times the seconds of a processor that its tests take without it does not end.
PATIENCE = 3
# A mutant that wants more memory does not end either.
MEMORY = 3 << 30

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
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    /// The mutant that is on; above all numbers until that is known, and where all that are reached are written down.
    static ON: AtomicU32 = AtomicU32::new(u32::MAX);
    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
    #[inline]
    pub fn on(number: u32) -> bool {
        let on = ON.load(Ordering::Relaxed);
        if on < u32::MAX { on == number } else { ask(number) }
    }
    #[cold]
    fn ask(number: u32) -> bool {
        if REACHED[number as usize].load(Ordering::Relaxed) {
            return false;
        }
        if let Some(path) = std::env::var_os("MUTANTS_REACHED") {
            use std::io::Write;
            REACHED[number as usize].store(true, Ordering::Relaxed);
            let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
            file.write_all(format!("{number}\\n").as_bytes()).unwrap();
            return false;
        }
        let on = std::env::var("MUTANT").map_or(COUNT, |number| number.parse().unwrap());
        ON.store(on, Ordering::Relaxed);
        on == number
    }
}
"""

# Survivors that change no result: `FILE`, `LINE`, `CHANGED LINE` and why, one to a paragraph.
EQUIVALENT = Path(__file__).with_name("mutate_equivalent.txt")

# A change, and which of the same changes of equal lines of a file it is.
Mutant = collections.namedtuple("Mutant", "path line old new nth")
# The number of no mutant.
NONE = 10**6
REFUSED = "the compiler refuses it"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", action="append", metavar="FOLDER")
    parser.add_argument("--at", metavar="COMMIT", default="HEAD")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--afresh", action="store_true")
    parser.add_argument("--hunt", type=int, metavar="FUNCTIONS", default=0)
    return parser.parse_args()


def main():
    args = arguments()
    source, original = args.work / "source", args.work / "original"
    shutil.rmtree(original, ignore_errors=True)
    original.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", args.at], capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "-C", original], input=archive, check=True)
    environment = os.environ | {"CARGO_TARGET_DIR": str((args.work / "target").resolve()), "RUST_BACKTRACE": "0"}
    kept = Kept(args.work / "results.json", args.afresh)
    mutants = [mutant for path in sorted((original / LIBRARY).rglob("*.rs")) for mutant in mutations(path, original)]
    mutants, programs = build(mutants, original, source, environment, kept)
    reached, seconds = reach(programs, source, environment, args.work)
    numbers = list(range(len(mutants)))
    if args.only is not None:
        folders = [folder_of(mutant) for mutant in mutants]
        numbers = sorted((number for number in numbers if folders[number] in args.only), key=lambda number: (args.only.index(folders[number]), number))
    if args.count is not None:
        numbers = sorted(random.Random(args.seed).sample(numbers, min(args.count, len(numbers))))
    deadline = time.monotonic() + 60 * args.minutes

    def attempt(number):
        if number not in reached:
            return False
        noticed = kept.noticed(mutants[number])
        if noticed is None and time.monotonic() < deadline:
            noticed = first_failure(programs, reached[number], seconds, source, environment, number)
            kept.keep(mutants[number], noticed)
        # What nothing noticed when it was tried last counts as that where there is no time to try it again.
        return False if noticed is None and kept.survived(mutants[number]) else noticed

    counts, rows, equivalent, survivors = collections.defaultdict(collections.Counter), [], equivalents(), []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for done, (number, noticed) in enumerate(zip(numbers, pool.map(attempt, numbers)), 1):
            mutant = mutants[number]
            why = equivalent.pop(place(mutant), None)
            missed = "survivors" if number in reached else "unreached"
            outcome = "noticed" if noticed else "untried" if noticed is None else "equivalent" if why else missed
            counts[folder_of(mutant)][outcome] += 1
            if outcome in MISSED:
                rows.append((mutant, MISSED[outcome]))
            elif outcome == "equivalent":
                rows.append((mutant, why))
            if outcome == "survivors":
                survivors.append(number)
            print(f"{done} of {len(numbers)}: {mutant.path}:{mutant.line + 1}: {mutant.new.strip()}: {noticed or outcome}", file=sys.stderr, flush=True)
    report(args, len(mutants), counts, rows)
    if args.hunt:
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            hunt(pool, programs["tables"], source, environment, args.hunt, {number: mutants[number] for number in survivors})
    if args.count is None and args.only is None:
        for stale in equivalent:
            print(f"{EQUIVALENT.name} names what is no mutant: {stale}", file=sys.stderr)
    sys.exit(any(tally[outcome] for tally in counts.values() for outcome in MISSED))


def report(args, built, counts, rows):
    """The page, as Markdown."""
    print("# Mutants of every pass\n")
    print(f"`bench/mutate.py{''.join(' ' + word for word in options(args))}` at {commit() if args.at == 'HEAD' else args.at}. One operator turned or one statement dropped; the tests")
    print("are those that need no random functions, and tables of generated functions of fixed seeds.\n")
    print(f"{built} mutants build.\n")
    outcomes = ["noticed", "equivalent", *MISSED, "untried"]
    print(f"| folder | chosen | {' | '.join(outcomes)} |\n|---|{'---|' * (1 + len(outcomes))}")
    everything = sum(counts.values(), collections.Counter())
    for folder, tally in [*sorted(counts.items()), ("all", everything)]:
        print(f"| {folder} | {tally.total()} | {' | '.join(str(tally[outcome]) for outcome in outcomes)} |")
    if rows:
        print("\n| place | line | becomes | |\n|---|---|---|---|")
    for mutant, why in rows:
        print(f"| {mutant.path}:{mutant.line + 1} | {code(mutant.old)} | {code(mutant.new)} | {why} |")


def folder_of(mutant):
    """The folder of a pass; colourers have one each."""
    words = mutant.path.split("/")
    return "/".join(words[:2]) if words[0] == "colour" and len(words) > 2 else words[0].removesuffix(".rs")


def place(mutant):
    return mutant.path, mutant.old.strip(), mutant.new.strip() or "dropped", mutant.nth


def equivalents():
    """Why mutants change no result, by place."""
    found = {}
    for paragraph in EQUIVALENT.read_text().split("\n\n"):
        lines = [line for line in paragraph.splitlines() if not line.startswith("#")]
        if lines:
            path, old, new, why = lines[0], lines[1].strip(), lines[2].strip(), " ".join(line.strip() for line in lines[3:])
            path, _, nth = path.partition(" ")
            found[path, old, new, int(nth or 1) - 1] = why
    return found


class Kept:
    """What is known of mutants from runs before, in a file."""

    def __init__(self, path, afresh):
        self.path, self.lock = path, threading.Lock()
        self.results = json.loads(path.read_text()) if path.exists() and not afresh else {}

    def keep(self, mutant, result):
        with self.lock:
            self.results["\t".join(map(str, place(mutant)))] = result
            self.path.write_text(json.dumps(self.results, indent=0))

    def noticed(self, mutant):
        """The tests that noticed a mutant; nothing where none is known to."""
        return self.results.get("\t".join(map(str, place(mutant)))) or None

    def survived(self, mutant):
        return self.results.get("\t".join(map(str, place(mutant)))) is False

    def builds(self, mutant):
        return self.noticed(mutant) != REFUSED


def options(args):
    if args.count is not None:
        yield f"--count {args.count} --seed {args.seed}"
    yield from (f"--only {folder}" for folder in args.only or [])


def code(line):
    return "`" + line.strip().replace("|", "\\|") + "`" if line.strip() else "dropped"


def mutations(path, source):
    """Every mutant of a file of the passes; tests and text forms have none."""
    inside = str(path.relative_to(source / LIBRARY))
    folder = inside.split("/")[0].removesuffix(".rs")
    if folder not in PASSES or path.stem in ("tests", "display"):
        return
    seen = collections.Counter()

    def mutant(number, line, changed):
        seen[line.strip(), changed.strip()] += 1
        return Mutant(inside, number, line, changed, seen[line.strip(), changed.strip()] - 1)

    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if line.startswith("#[cfg(test)]") and lines[number + 1].endswith("{"):
            return
        if line.lstrip().startswith(("//", "debug_assert", "assert", "use ", "#[", "log", "const ", "static ", "pub ", "fn ")):
            continue
        for old, new in TURNS:
            if line.count(old) == 1 and (old != "!" or re.search(r"(^|[ (&|])!\w", line)):
                changed = line.replace(old, new)
                if nested(line, [changed], [0]):
                    yield mutant(number, line, changed)
        if CALLED.match(line):
            yield mutant(number, line, "")


def build(mutants, original, source, environment, kept):
    """Builds all mutants into one library; drops those that the compiler refuses."""
    mutants = [mutant for mutant in mutants if kept.builds(mutant)]
    originals = {path: (original / LIBRARY / path).read_text() for path in {mutant.path for mutant in mutants}}
    front = (original / LIBRARY / "lib.rs").read_text()
    while True:
        lines = {path: text.splitlines() for path, text in originals.items()}
        by_line = collections.defaultdict(list)
        for number, mutant in enumerate(mutants):
            by_line[mutant.path, mutant.line].append(number)
        for (path, line), numbers in by_line.items():
            lines[path][line] = nested(originals[path].splitlines()[line], [mutants[n].new for n in numbers], numbers)
        changed = {LIBRARY / path: "\n".join(text) + "\n" for path, text in lines.items()}
        changed[LIBRARY / "lib.rs"] = front + SWITCH.replace("COUNT", str(len(mutants)))
        copy(original, source, changed)
        run, messages = cargo(["check"], source, environment)
        if run.returncode == 0:
            run, messages = cargo(["test", "--no-run", *TESTS], source, environment)
        if run.returncode == 0:
            built = {m["target"]["name"]: str(Path(m["executable"]).resolve()) for m in messages if m.get("executable")}
            return mutants, {name: built[name] for name in PROGRAMS}
        errors = [m["message"] for m in messages if m["reason"] == "compiler-message" and m["message"]["level"] == "error"]
        left = [mutant for mutant in mutants if not any(is_blamed(mutant, error, False) for error in errors)]
        if len(left) == len(mutants):
            left = [mutant for mutant in mutants if not any(is_blamed(mutant, error, True) for error in errors)]
        print(f"{len(mutants) - len(left)} mutants do not build", file=sys.stderr, flush=True)
        if len(left) == len(mutants):
            sys.exit(run.stderr[-3000:])
        for mutant in set(mutants) - set(left):
            kept.keep(mutant, REFUSED)
        mutants = left


def copy(original, source, changed):
    """Makes `source` the original with some files changed; what is as it should be keeps its time, and is not built again."""
    for path in [path for path in source.rglob("*") if path.is_file()]:
        if not (original / path.relative_to(source)).exists():
            path.unlink()
    for path in [path for path in original.rglob("*") if path.is_file()]:
        inside = path.relative_to(original)
        content = changed[inside].encode() if inside in changed else path.read_bytes()
        copied = source / inside
        if not copied.exists() or copied.read_bytes() != content:
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(content)
            copied.chmod(path.stat().st_mode)


def cargo(command, source, environment):
    run = subprocess.run(["cargo", *command, "--message-format=json", "-p", "warpalloc"], cwd=source, env=environment, capture_output=True, text=True)
    return run, [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


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
    """The tests that run the line of each mutant, and the seconds of a processor that each test takes."""
    kept = work / "reached.json"
    made = {name: Path(program).stat().st_mtime for name, program in programs.items()}
    if kept.exists() and (known := json.loads(kept.read_text()))["made"] == made:
        tests = known["tests"]
    else:
        tests = [test for name in programs for test in reach_one(name, programs[name], source, environment, work)]
        kept.write_text(json.dumps({"made": made, "tests": tests}))
    reached, seconds = collections.defaultdict(list), {}
    for name, test, taken, numbers in tests:
        seconds[name, test] = taken
        for number in numbers:
            reached[number].append((name, test))
    return reached, seconds


def reach_one(name, program, source, environment, work):
    path = (work / "reached").resolve()
    listed = subprocess.run([program, "--list", "--format=terse", *SLOW], cwd=source / LIBRARY.parent, capture_output=True, text=True, check=True)
    for test in re.findall(r"^(.*): test$", listed.stdout, re.M):
        path.unlink(missing_ok=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        run = subprocess.run([program, "--exact", test], cwd=source / LIBRARY.parent, env=environment | {"MUTANTS_REACHED": str(path)},
                             capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"a test fails without a mutant\n{run.stdout[-3000:]}")
        taken = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        if taken < LONG or name == "tables":
            yield name, test, taken, sorted(map(int, path.read_text().split())) if path.exists() else []


def first_failure(programs, tests, seconds, source, environment, number):
    """The first test that fails; False where all pass."""
    for name, program in programs.items():
        own = [test for program, test in tests if program == name]
        if not own:
            continue
        patience = 3 + int(PATIENCE * sum(seconds[name, test] for test in own))
        run = subprocess.Popen([program, "--exact", *own], cwd=source / LIBRARY.parent, env=environment | {"MUTANT": str(number)}, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=lambda: limit(patience))
        # The rest of the tests need not be waited for.
        failed = next((line for line in run.stdout if line.endswith(" ... FAILED\n")), None)
        if failed:
            run.kill()
        code = run.wait()
        if failed:
            return failed.removeprefix("test ").removesuffix(" ... FAILED\n")
        if code == -signal.SIGXCPU:
            return "it does not end"
        if code:
            return "a crash"
    return False


def hunt(pool, program, source, environment, count, survivors):
    """Says which random functions show survivors."""

    def rows(number):
        # One that does not end is stopped; what it printed until then counts.
        run = subprocess.run([program, "--quiet", "--ignored", "--nocapture", "rows_of_seeds"], cwd=source / LIBRARY.parent,
                             env=environment | {"MUTANT": str(number), "WARPALLOC_SEEDS": f"1,{count}"}, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True, preexec_fn=lambda: limit(10 + count // 20))
        return {int(row.split()[0]): row for row in run.stdout.splitlines() if re.match(r"\d+ \w", row)}

    usual = rows(NONE)
    shown, unseen = {}, []
    for number, found in zip(survivors, pool.map(rows, survivors)):
        seeds = {seed for seed in usual if found.get(seed) != usual[seed]}
        # Of what crashes, only the function with which it does so.
        crashed = min((seed for seed in usual if seed not in found), default=None)
        seeds = {seed for seed in seeds if crashed is None or seed <= crashed}
        if seeds:
            shown[number] = seeds
        else:
            unseen.append(number)
    chosen = []
    while shown:
        tally = collections.Counter(seed for seeds in shown.values() for seed in seeds)
        best = max(sorted(tally), key=tally.get)
        chosen.append(best)
        shown = {number: seeds for number, seeds in shown.items() if best not in seeds}
    print(f"hunted: {len(survivors) - len(unseen)} of {len(survivors)} are shown by seeds {' '.join(map(str, sorted(chosen)))}", file=sys.stderr)
    for number in unseen:
        mutant = survivors[number]
        print(f"unseen: {mutant.path}:{mutant.line + 1}: {mutant.old.strip()} -> {mutant.new.strip() or 'dropped'}", file=sys.stderr)


def limit(seconds):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


main()
