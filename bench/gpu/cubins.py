#!/usr/bin/env python3
"""Condenses rows of cubins and pragmas that warpalloc-gpu writes as JSON into a Markdown table.

    bench/gpu/cubins.py RESULTS.json[,RESULTS.json...] COMMIT [TITLE] > bench/results/FILE.md

A cell is a time over that of ptxas at the same cap, both measured in turns. Every cell stands for
output that was compared bit by bit with that of the uncapped original.
"""
import collections
import json
import math
import re
import sys


def cell(row):
    verdict = row["ours"]["verdict"]
    if verdict == "yes":
        return f"{row['time_ratio']:.2f}" if row["time_ratio"] else "equal"
    return "–" if verdict.startswith("not built") else "WRONG"


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def print_means(title, rows):
    ratios = [row["time_ratio"] for row in rows if row["time_ratio"] and row["ours"]["verdict"] == "yes"]
    wrong = sum(cell(row) == "WRONG" for row in rows)
    cells = ["–"] * 4
    if ratios:
        slower = sum(ratio > 1.03 for ratio in ratios)
        cells = [f"{mean(ratios):.3f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}", str(slower)]
    print(f"| {title} | {len(ratios)} of {len(rows)} | " + " | ".join(cells) + f" | {wrong} |")


def spilled_bytes(row):
    taken = row["ptxas"]["resources"]
    return taken["spill_stores"] + taken["spill_loads"]


def memory(row):
    found = row["ours"]["resources"]
    if row["ours"]["verdict"] != "yes" or not found:
        return "–"
    return f"{found['shared']} / {found['stack']}"


def main():
    path, commit, title = (sys.argv + ["Spills moved to shared memory"])[1:4]
    runs = [json.load(open(part)) for part in path.split(",")]
    rows = [row for run in runs for row in run["rows"] if row["ours"]]
    columns = list(dict.fromkeys((row["strategy"], row["space"]) for row in rows))
    groups = collections.OrderedDict()
    for row in rows:
        key = (row["source"], row["kernel"], row["cap"])
        groups.setdefault(key, {})[(row["strategy"], row["space"])] = row
    setups = dict.fromkeys(", ".join(f"{key} {run['setup'][key]}" for key in sorted(run["setup"])) for run in runs)
    spilled = [spilled_bytes(row) > 0 for row in rows]
    print(f"# {title}\n")
    named = f" '{title}'" if len(sys.argv) > 3 else ""
    print(f"```sh\nbench/gpu/cubins.py RESULTS.json[,RESULTS.json...] COMMIT{named} > bench/results/FILE.md\n```\n")
    print(f"RESULTS.json is what `warpalloc-gpu` wrote ([bench/gpu](../gpu/README.md)) at {commit}.\n")
    for setup in setups:
        print(f"Setup: {setup}.\n")
    where = " at which ptxas spills" if all(spilled) else ""
    print(f"Each row is a kernel at a register cap{where}. `us`: ptxas's time there; then the times")
    print("of other code over it, below 1 is faster. Every cell with a number had every output bit equal to")
    print("the uncapped original's. `–`: not built. `bytes`: shared memory per block and stack per thread.")
    print("A column `cubin NAME` is what `--cubin NAME=FLAGS` of the run made of ptxas's cubin, `ptxas NAME` the")
    print("original with that pragma, `shim` the original with launch bounds through `warpalloc ptxas`.\n")
    print("| column | rows | geometric mean | best | worst | above 1.03 | wrong |")
    print("|---|---|---|---|---|---|---|")
    for column in columns:
        mine = [group[column] for group in groups.values() if column in group]
        print_means(" ".join(column).strip(), mine)
        if not all(spilled):
            print_means(" ".join(column).strip() + ", where ptxas spills", [row for row in mine if spilled_bytes(row)])
        whole = [row for row in mine if (row["ours"]["resources"] or {}).get("stack") == 0]
        print_means(" ".join(column).strip() + ", no stack left", whole)
    print()
    names = [" ".join(column).strip() for column in columns]
    print("| kernel | cap | spilled bytes | us | " + " | ".join(f"{name} | bytes" for name in names) + " |")
    print("|---" * (4 + 2 * len(names)) + "|")
    for (source, kernel, cap), group in groups.items():
        first = next(iter(group.values()))
        ptxas = first["ptxas"]
        time = f"{ptxas['microseconds']:.1f}" if ptxas["microseconds"] else "–"
        cells = [f"{source} {kernel}", str(cap), str(spilled_bytes(first)), time]
        for column in columns:
            row = group.get(column)
            cells += [cell(row), memory(row)] if row else ["", ""]
        print("| " + " | ".join(cells) + " |")
    reasons = collections.Counter()
    for row in rows:
        verdict = row["ours"]["verdict"]
        if verdict != "yes":
            name = f"{row['source']} {row['kernel']} at {row['cap']}, {row['strategy']} {row['space']}"
            # Where the files lay says nothing.
            verdict = re.sub(r"/\S*/", "", verdict)
            reasons[f"{name}: {verdict}"] += 1
    if reasons:
        print("\n## Not built, or wrong\n")
        for reason in reasons:
            print(f"- {reason}")


main()
