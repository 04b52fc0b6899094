#!/usr/bin/env python3
"""Condenses the JSON that warpalloc-gpu writes into Markdown tables, one per strategy.

    bench/gpu/summary.py RESULTS.json COMMIT > bench/results/gpu-h200.md

A cell is the time of our code over the time of what ptxas makes of the original at the same
cap, for spills to local / shared memory. Every cell stands for output that was compared bit
by bit; one that differed would read WRONG.
"""
import json
import math
import sys


def cell(row):
    ours, ptxas = row["ours"], row["ptxas"]
    verdict = ours.get("verdict", "")
    if verdict == "yes":
        ratio = row.get("time_ratio")
        return f"{ratio:.2f}" if ratio else "equal"
    if ptxas.get("verdict", "").startswith("not built"):
        return "·"
    return "–" if verdict.startswith("not built") else "WRONG"


def name_of_cap(cap):
    return "none" if cap is None else str(cap)


def table(rows, caps):
    print("| kernel | " + " | ".join(map(name_of_cap, caps)) + " |")
    print("|---" * (len(caps) + 1) + "|")
    for kernel in sorted({(r["source"], r["kernel"]) for r in rows}):
        cells = []
        for cap in caps:
            here = [r for r in rows if (r["source"], r["kernel"]) == kernel and r["cap"] == cap]
            pair = [next((cell(r) for r in here if r["space"] == s), "") for s in ("local", "shared")]
            cells.append(" / ".join(pair))
        print(f"| {kernel[0]} {kernel[1]} | " + " | ".join(cells) + " |")
    means = []
    for cap in caps:
        pair = []
        for space in ("local", "shared"):
            logs = [math.log(r["time_ratio"]) for r in rows
                    if r["cap"] == cap and r["space"] == space and r.get("time_ratio")]
            pair.append(f"{math.exp(sum(logs) / len(logs)):.2f}" if logs else "")
        means.append(" / ".join(pair))
    print("| **geometric mean** | " + " | ".join(means) + " |")


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def summary_table(rows):
    """One line per strategy and memory: all rows, those where ptxas spills, those without a cap."""
    def spills(row):
        return row["ptxas"]["resources"]["spill_stores"] > 0

    print("| strategy | memory | all rows | ptxas spills | no cap |\n|---|---|---|---|---|")
    timed = [r for r in rows if r.get("time_ratio")]
    for strategy in sorted({r["strategy"] for r in timed}):
        for space in ("local", "shared"):
            here = [r for r in timed if (r["strategy"], r["space"]) == (strategy, space)]
            groups = [here, list(filter(spills, here)), [r for r in here if r["cap"] is None]]
            ratios = [[r["time_ratio"] for r in group] for group in groups]
            cells = [f"{mean(g):.3f} ({max(g):.2f}), {len(g)} rows" if g else "" for g in ratios]
            print(f"| {strategy} | {space} | " + " | ".join(cells) + " |")


def main():
    data = json.load(open(sys.argv[1]))
    commit = sys.argv[2] if len(sys.argv) > 2 else "an unnamed commit"
    setup, summary, rows = data["setup"], data["summary"], data["rows"]
    caps = sorted({r["cap"] for r in rows}, key=lambda cap: -(cap or 1000))
    print("# The corpus on a GPU\n")
    print("```sh\nbench/gpu/summary.py RESULTS.json COMMIT > bench/results/gpu-h200.md\n```\n")
    print(f"RESULTS.json is what `warpalloc-gpu` wrote ([bench/gpu](../gpu/README.md)) at {commit}.\n")
    print("Setup: " + ", ".join(f"{key} {value}" for key, value in setup.items()) + ".\n")
    print("Rows: " + ", ".join(f"{key} {value}" for key, value in summary.items()) + ".\n")
    print("Each cell: our time over ptxas's at the same register cap, spilling to local / shared memory; below 1 we")
    print("are faster. Every cell with a number had every output bit equal to the uncapped original's. `–`: refused by")
    print("warpalloc (shared memory does not fit or the kernel makes calls; the cap leaves too few registers for one")
    print("instruction). `·`: ptxas cannot build the original at this cap either. Products and sums are contracted in")
    print("all builds alike: by ptxas in the originals, by `--contract` in ours." if setup["fmad"] else
          "all builds alike: never (`-fmad false`, `--contract off`).")
    print("\n## Geometric means (worst)\n")
    summary_table(rows)
    for strategy in sorted({r["strategy"] for r in rows}):
        print(f"\n## {strategy}\n")
        table([r for r in rows if r["strategy"] == strategy], caps)


main()
