#!/usr/bin/env python3
"""What ptxas makes of kernels as they are and of our output, at no cap: registers and bytes of spills.

    bench/no_cap.py --ptxas PTXAS --warpalloc WARPALLOC [--regalloc NAME]... [--having WORD] [--count N] \\
        [--title TITLE] GROUP=FILE.ptx... [GROUP=FILE.ptx...]

Kernels are taken in the order of a fixed random sample (--seed) until --count of a group are chosen; without
it, all are. --having leaves out kernels whose text does not have the word. A kernel that we leave as it is
counts as it is. Exits with 1 where our output spills more than the original.
"""

import argparse
import collections
import json
import os
import random
import re
import subprocess
import sys
import tempfile

from provenance import commit, output, version

ENTRY = re.compile(r"\.entry\s+([\w$.%]+)")
MADE = re.compile(r"entry function '([^']+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", re.S)
Made = collections.namedtuple("Made", "registers spills")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--warpalloc", required=True)
    parser.add_argument("--regalloc", action="append")
    parser.add_argument("--having", default="")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--title", default="Registers and spills at no cap")
    parser.add_argument("groups", nargs="+")
    return parser.parse_args()


def chosen(args, files):
    """The kernels to look at, by file; the same for the same files, count and seed."""
    entries = []
    for path in sorted(files):
        parts = ENTRY.split(open(path, errors="replace").read())
        entries += [(path, name) for name, text in zip(parts[1::2], parts[2::2]) if args.having in text]
    if args.count is not None:
        entries = random.Random(args.seed).sample(entries, min(args.count, len(entries)))
    by_file = collections.defaultdict(list)
    for path, name in entries:
        by_file[path].append(name)
    return by_file


def made(args, path, names):
    arch = re.search(r"\.target\s+(sm_\w+)", open(path, errors="replace").read(20000)).group(1)
    command = [args.ptxas, "-v", "-arch", arch, "-o", os.devnull, path, *entries(names)]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found = {m[1]: Made(int(m[4]), int(m[2]) + int(m[3])) for m in MADE.finditer(log)}
    return {name: found[name] for name in names if name in found}


def entries(names):
    return [word for name in names for word in ("--entry", name)]


def measure(args, path, names, strategies, folder):
    """Rows of (kernel, strategy, original, ours, why it was left)."""
    before = made(args, path, names)
    for strategy in strategies:
        out = os.path.join(folder, "out.ptx")
        command = [args.warpalloc, "alloc", path, "-o", out, "--regalloc", strategy, "--ptxas", args.ptxas,
                   "--print-regalloc-stats=json", *entries(names)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        left = {f["name"]: f for f in json.loads(run.stdout)["functions"]}
        after = made(args, out, names)
        for name, original in before.items():
            outcome = left.get(name, {})
            why = None if outcome.get("outcome", "allocated") == "allocated" else outcome.get("reason", "")
            yield f"{os.path.basename(path)} {short(name)}", strategy, original, after[name], why


def short(name):
    inner = re.search(r"IN\d+(\w+?)6KernelE", name)
    return inner.group(1) if inner else name[:60]


def main():
    args = arguments()
    strategies = args.regalloc or ["briggs"]
    groups = collections.defaultdict(list)
    for word in args.groups:
        group, _, path = word.partition("=")
        groups[group].append(path)
    print(f"# {args.title}\n")
    print(f"`{os.path.basename(sys.argv[0])} {' '.join(options(args))}`, {version(args.warpalloc)} at {commit()}, {version(args.ptxas)}.\n")
    print("What ptxas reports for our output, beside what it reports for the kernels as they are. *Allocated*: the others are left as they")
    print("are. *Ratio*: registers over the original's, in the mean. *Most above*: registers over the original's on one kernel.")
    print("*Spills*: bytes of spill stores and loads, all kernels together; *worse*: kernels with more of them.\n")
    print("| kernels | allocator | functions | allocated | ratio | most above | more than 8 above | spills, original | spills, ours | worse |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    worse, notes = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for group, files in groups.items():
            rows = [row for path, names in chosen(args, files).items() for row in measure(args, path, names, strategies, folder)]
            for strategy in strategies:
                own = [row for row in rows if row[1] == strategy]
                above = [ours.registers - original.registers for _, _, original, ours, _ in own]
                ratio = sum(ours.registers / original.registers for _, _, original, ours, _ in own) / max(len(own), 1)
                spilt = [row for row in own if row[3].spills > row[2].spills]
                worse += len(spilt)
                before, after = (sum(row[at].spills for row in own) for at in (2, 3))
                allocated = sum(why is None for *_, why in own)
                over = sum(a > 8 for a in above)
                print(f"| {group} | {strategy} | {len(own)} | {allocated} | {ratio:.3f} | {max(above, default=0)} | {over} | {before} | {after} | {len(spilt)} |")
                left = collections.defaultdict(list)
                for name, _, original, ours, why in own:
                    if why is not None:
                        left[why.removeprefix("left as it is: ")].append(name)
                    if ours.registers > original.registers + 8 or ours.spills > original.spills:
                        notes.append(f"- {name}, `{strategy}`: {original.registers} registers and {original.spills} bytes become "
                                     f"{ours.registers} and {ours.spills}")
                for why, names in left.items():
                    which = f"{len(names)} kernels" if len(names) > 3 else ", ".join(names)
                    notes.append(f"- {group}, `{strategy}`: left as they are: {which}: {why}")
    if notes:
        print("\n" + "\n".join(notes))
    sys.exit(worse > 0)


def options(args):
    for strategy in args.regalloc or []:
        yield f"--regalloc {strategy}"
    if args.having:
        yield f"--having {args.having}"
    if args.count is not None:
        yield f"--count {args.count} --seed {args.seed}"


main()
