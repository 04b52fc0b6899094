#!/usr/bin/env python3
"""Condenses what warpalloc-gpu writes of recoloured cubins into Markdown tables.

    bench/gpu/recolour.py WARPALLOC COMMIT RESULTS.json... > bench/results/recolour-h200.md

A cell is registers and the time over that of ptxas's own cubin. Every cell stands for output that
was compared bit by bit; one that differed would read WRONG. WARPALLOC is the command, which says how
many warps a multiprocessor holds; blocks and dynamic shared memory are those of corpus/manifests.
Rows called `random...` are a table of their own; PTX that was compiled for another architecture than
the GPU's is left out.
"""
import functools
import json
import math
import pathlib
import subprocess
import sys

MANIFESTS = pathlib.Path(__file__).resolve().parents[2] / "corpus" / "manifests"


@functools.cache
def launch(source, kernel):
    """Threads of a block and bytes of dynamic shared memory."""
    manifest = json.loads((MANIFESTS / f"{source.rsplit('.', 1)[0]}.json").read_text())
    found = manifest["kernels"][kernel]
    return math.prod(found["block"]), found.get("dynamic_shared", 0)


@functools.cache
def warps(command, registers, block, shared):
    """Resident warps per multiprocessor."""
    asked = ["--sm", "90", "--regs", str(registers), "--block", str(block), "--smem", str(shared)]
    told = subprocess.run([command, "occupancy", "--json", *asked], check=True, capture_output=True, text=True)
    return json.loads(told.stdout)["warps"]


def resident(command, row, side):
    block, dynamic = launch(row["source"], row["kernel"])
    taken = row[side]["resources"]
    return warps(command, taken["registers"], block, row["ptxas"]["resources"]["shared"] + dynamic)


def is_right(row):
    return row["ours"]["verdict"] == "yes"


def is_refused(row):
    return row["ours"]["verdict"].startswith("not built")


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def saved(row):
    return row["ptxas"]["resources"]["registers"] - row["ours"]["resources"]["registers"]


def cell(row):
    if is_right(row):
        time = f"{row['time_ratio']:.2f}" if row["time_ratio"] else "–"
        return f"{row['ours']['resources']['registers']}, {time}"
    return "–" if is_refused(row) else "WRONG"


def table(header, lines):
    print("| " + " | ".join(header) + " |")
    print("|---" * len(header) + "|")
    for line in lines:
        print("| " + " | ".join(map(str, line)) + " |")
    print()


def summary(command, rows):
    for column in dict.fromkeys(row["space"] for row in rows):
        mine = [row for row in rows if row["space"] == column]
        built = [row for row in mine if is_right(row)]
        gains = [resident(command, row, "ours") - resident(command, row, "ptxas") for row in built]
        ratios = [row["time_ratio"] for row in built if row["time_ratio"]]
        yield (column, len(mine), len(built), sum(map(is_refused, mine)),
               sum(not is_right(row) and not is_refused(row) for row in mine),
               sum(saved(row) > 0 for row in built), sum(saved(row) < 0 for row in built),
               sum(map(saved, built)), sum(gain > 0 for gain in gains), sum(gains),
               f"{mean(ratios):.3f}", f"{max(ratios):.2f}")


def kernels(rows):
    return dict.fromkeys((row["source"], row["kernel"]) for row in rows)


def per_kernel(command, rows):
    for source, kernel in kernels(rows):
        here = [row for row in rows if (row["source"], row["kernel"]) == (source, kernel)]
        ptxas = here[0]["ptxas"]
        time = f"{ptxas['microseconds']:.1f}" if ptxas.get("microseconds") else "–"
        held = resident(command, here[0], "ptxas")
        most = max((resident(command, row, "ours") for row in here if is_right(row)), default=held)
        gain = f"{held} → {most}" if most > held else str(held)
        yield [f"{source} {kernel}", ptxas["resources"]["registers"], gain, time] + [cell(row) for row in here]


def per_random(rows):
    for source, kernel in kernels(rows):
        here = [row for row in rows if (row["source"], row["kernel"]) == (source, kernel)]
        ratios = [row["time_ratio"] for row in here if is_right(row) and row["time_ratio"]]
        yield (f"{source} {kernel}", here[0]["ptxas"]["resources"]["registers"], len(here),
               sum(map(is_right, here)), sum(is_right(row) and saved(row) < 0 for row in here),
               f"{mean(ratios):.3f}", f"{max(ratios):.2f}")


def main():
    command, commit, *paths = sys.argv[1:]
    runs = [json.load(open(path)) for path in paths]
    rows = [row for run in runs for row in run["rows"] if row["source"].endswith(run["setup"]["arch"])]
    setups = dict.fromkeys(", ".join(f"{key} {run['setup'][key]}" for key in sorted(run["setup"])) for run in runs)
    chosen = [row for row in rows if not row["space"].startswith("random")]
    random = [row for row in rows if row["space"].startswith("random")]
    print("# Recoloured cubins\n")
    print("```sh\nbench/gpu/recolour.py WARPALLOC COMMIT RESULTS.json... > bench/results/recolour-h200.md\n```\n")
    print("RESULTS.json is what `warpalloc-gpu --caps none --strategies none --fmad` wrote for these rows")
    print(f"([bench/gpu](../gpu/README.md)) at {commit}: `--regalloc NAME --fewest --strict`, `granule` without a name and")
    print("without `--fewest`, and random registers (`--shuffle-registers SEED --strict`). PTX for older architectures")
    print("is left out.\n")
    for setup in setups:
        print(f"Setup: {setup}.\n")
    print("`warps`: resident warps per multiprocessor at the manifest's launch, and the most that a row of the kernel")
    print("reaches where that is more.\n")
    table(["row", "kernels", "bits equal", "not built", "wrong", "fewer registers", "more registers", "registers saved",
           "more warps", "warps gained", "geometric mean of times", "worst"], summary(command, chosen))
    columns = list(dict.fromkeys(row["space"] for row in chosen))
    table(["kernel", "registers", "warps", "us"] + columns, per_kernel(command, chosen))
    if random:
        print("## Random registers\n")
        table(["kernel", "registers", "recolourings", "bits equal", "more registers", "geometric mean of times", "worst"],
              per_random(random))
    refusals = dict.fromkeys((row["source"], row["kernel"], row["ours"]["verdict"].rsplit("cubin: ", 1)[-1])
                             for row in chosen if is_refused(row))
    if refusals:
        print("## Not built\n")
        for source, kernel, why in refusals:
            print(f"- {source} {kernel}: {why}")


main()
