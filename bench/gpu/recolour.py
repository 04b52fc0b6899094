#!/usr/bin/env python3
"""Condenses what warpalloc-gpu writes of recoloured cubins into a Markdown table.

    bench/gpu/recolour.py RESULTS.json > bench/results/recolour-h200.md

A cell is registers and the time over that of ptxas's own cubin. Every cell stands for output that
was compared bit by bit; one that differed would read WRONG.
"""
import json
import math
import sys


def cell(row):
    ours = row["ours"]
    if ours["verdict"] == "yes":
        time = f"{row['time_ratio']:.2f}" if row["time_ratio"] else "–"
        return f"{ours['resources']['registers']}, {time}"
    return "–" if ours["verdict"].startswith("not built") else "WRONG"


def main():
    data = json.load(open(sys.argv[1]))
    rows, setup = data["rows"], data["setup"]
    columns = list(dict.fromkeys(row["space"] for row in rows))
    print("# Recoloured cubins\n")
    print("```sh\nbench/gpu/recolour.py RESULTS.json > bench/results/recolour-h200.md\n```\n")
    print("RESULTS.json is what `warpalloc-gpu --caps none --strategies none --fmad` wrote for these rows")
    print("([bench/gpu](../gpu/README.md)): `briggs` and `fatpoint` with `--fewest`, `granule` without, and")
    print("random registers (`--shuffle-registers`).\n")
    print("Setup: " + ", ".join(f"{key} {setup[key]}" for key in sorted(setup)) + ".\n")
    print("| row | kernels | bits equal | not built | fewer registers | saved | geometric mean of times | worst |")
    print("|---" * 8 + "|")
    for column in columns:
        mine = [row for row in rows if row["space"] == column]
        built = [row for row in mine if row["ours"]["verdict"] == "yes"]
        refused = sum(row["ours"]["verdict"].startswith("not built") for row in mine)
        saved = [row["ptxas"]["resources"]["registers"] - row["ours"]["resources"]["registers"] for row in built]
        ratios = [row["time_ratio"] for row in built if row["time_ratio"]]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"| {column} | {len(mine)} | {len(built)} | {refused} | {sum(s > 0 for s in saved)} | {sum(saved)} "
              f"| {mean:.3f} | {max(ratios):.2f} |")
    print("\n| kernel | registers | us | " + " | ".join(columns) + " |")
    print("|---" * (3 + len(columns)) + "|")
    for source, kernel in dict.fromkeys((row["source"], row["kernel"]) for row in rows):
        here = [row for row in rows if (row["source"], row["kernel"]) == (source, kernel)]
        ptxas = here[0]["ptxas"]
        time = f"{ptxas['microseconds']:.1f}" if ptxas.get("microseconds") else "–"
        cells = [f"{source} {kernel}", str(ptxas["resources"]["registers"]), time]
        print("| " + " | ".join(cells + [cell(row) for row in here]) + " |")


main()
