#!/usr/bin/env python3
"""Registers at no cap: what PTX order needs at least, our allocators, and what ptxas reports.

    bench/registers.py --ptxas PTXAS --warpalloc WARPALLOC FILE.ptx... > bench/results/registers.md

ptxas reports two registers more than the highest it names, and schedules before it allocates, so its
figure may be below or above the pressure of the text.
"""
import argparse
import json
import os
import re
import subprocess

from provenance import commit, output, version

LEGEND = """- *Peak*: pressure in PTX order, a lower bound for any allocator that keeps the order and spills nothing.
- *Floor*: the same bound, counting registers that calls clobber and predicates beyond the seventh, which take one general
  register each.
- `briggs`, `fatpoint`: registers up to the highest in use, and in brackets how many of them are named, where that is
  fewer: PTX names are a function's own, so a register never named costs nothing. A star: with inserted code, for spills
  or hoisted out of loops.
- ptxas: registers that `ptxas -v` reports for the original, which for device functions is nothing.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--warpalloc", required=True)
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    print("# Registers at no cap\n")
    print("```sh\nbench/registers.py --ptxas PTXAS --warpalloc WARPALLOC corpus/ptx/*.ptx > bench/results/registers.md\n```\n")
    print(f"{version(args.warpalloc)} at {commit()}, {version(args.ptxas)}. Registers that each function takes, beside what ptxas reports.\n")
    print(LEGEND)
    print("| kernel | peak | floor | briggs | fatpoint | ptxas |")
    print("|---|---|---|---|---|---|")
    over = {"briggs": [], "fatpoint": []}
    for path in sorted(args.files):
        rows(args, path, over)
    for name, ratios in over.items():
        peak, floor, named = (100 * (sum(column) / len(ratios) - 1) for column in zip(*ratios))
        print(f"\n`{name}` uses {floor:.1f} % more than the floor and {peak:.1f} % more than the peak in the mean of {len(ratios)} functions,")
        print(f"and names {named:.1f} % more than the peak.")


def rows(args, path, over):
    stats = json.loads(output(args.warpalloc, "stats", path, "--json"))["functions"]
    peaks = {f["name"]: next((p["registers"] for p in f["peaks"] if p["file"] == "R"), 0) for f in stats if "peaks" in f}
    floors = {f["name"]: f["floor"] for f in stats if "peaks" in f}
    used = {}
    for strategy in over:
        # The statistics go to standard output, so the PTX must not.
        report = output(args.warpalloc, "alloc", path, "-o", os.devnull, "--regalloc", strategy, "--print-regalloc-stats=json")
        for f in json.loads(report)["functions"]:
            spills = f["stores"] + f["reloads"] + f["recomputes"]
            registers, named = f["registers"], f["registers_named"]
            fewer = f" ({named})" if named < registers else ""
            used[f["name"], strategy] = f"{registers}{'*' if spills else ''}{fewer}"
            peak = peaks.get(f["name"])
            if peak and not spills:
                over[strategy].append((registers / peak, registers / floors[f["name"]], named / peak))
    arch = re.search(r"sm_\w+", open(path, errors="replace").read(4096)).group(0)
    log = subprocess.run([args.ptxas, "-v", "-arch", arch, "-o", os.devnull, path], capture_output=True, text=True).stderr
    theirs = dict(re.findall(r"entry function '([^']+)'.*?Used (\d+) registers", log, re.S))
    for name, peak in peaks.items():
        cells = [used[name, strategy] for strategy in over]
        print(f"| {os.path.basename(path)[:-4]} {name} | {peak} | {floors[name]} | {' | '.join(cells)} | {theirs.get(name, '–')} |")


main()
