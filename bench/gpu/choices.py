#!/usr/bin/env python3
"""How good the choices of `--regalloc=best` are: their times over those of ptxas, and over the best of all rows.

    warpalloc-gpu --fmad --spilling --spaces shared --pragma enable_smem_spilling \\
        --ptxas-flags level10=-regUsageLevel=10 --ptxas-flags level0=-regUsageLevel=0 \\
        --strategies best,best-any-grid,best-cubin,best-cubin-any-grid,best-no-ptxas,briggs,briggs:-16,fatpoint,fatpoint:-16 \\
        --cubin 'moved=--spills shared --force --dynamic-shared {dynamic}' --json RESULTS.json ...
    bench/gpu/choices.py COMMIT RESULTS.json... > bench/results/choices-h200.md
"""
import json
import math
import sys


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")


CHOICES = ["best", "best-any-grid", "best-cubin", "best-cubin-any-grid", "best-no-ptxas"]


def pairs(rows, spilling=True):
    """For each kernel and cap where ptxas spills, or does not: ratio to ptxas by row title."""
    found = {}
    for row in rows:
        resources = row["ptxas"].get("resources") or {}
        if not row.get("time_ratio") or bool(resources.get("spill_stores")) != spilling:
            continue
        key = (row["source"], row["kernel"], row["cap"])
        title = row["strategy"] if row["strategy"] in CHOICES else f"{row['strategy']} {row['space']}"
        found.setdefault(key, {"ptxas": 1.0})[title] = row["time_ratio"]
    return found


def best(ratios, titles):
    return min(ratio for title, ratio in ratios.items() if titles(title))


def of_ptxas(title):
    return title.startswith("ptxas")


def candidates(choice):
    """What a choice could have taken: text only, or machine code too. A choice is one of its own rows' candidates."""
    is_cubin = "cubin" in choice
    return lambda title: title == choice or title not in CHOICES and (is_cubin or not title.startswith("cubin"))


def cell(ratios):
    return f"{mean(ratios):.3f} ({max(ratios):.2f})" if ratios else "–"


def report(data):
    found = pairs(data["rows"])
    setup = data["setup"]
    print("Setup: " + ", ".join(f"{key} {value}" for key, value in setup.items()) + ".\n")
    counts = data["summary"]
    print("Rows: " + ", ".join(f"{key} {counts[key]}" for key in ("rows", "equal", "different", "failed")) + ".\n")
    print("Geometric mean (worst) over pairs of kernel and cap where ptxas spills.\n")
    print("| choice | pairs | over ptxas | over the best of ptxas's own rows | over the best candidate |\n|---|---|---|---|---|")
    for choice in CHOICES:
        here = [ratios for ratios in found.values() if choice in ratios]
        if not here:
            continue
        chosen = [ratios[choice] for ratios in here]
        own = [ratios[choice] / best(ratios, of_ptxas) for ratios in here]
        far = [ratios[choice] / best(ratios, candidates(choice)) for ratios in here]
        print(f"| {choice} | {len(here)} | {cell(chosen)} | {cell(own)} | {cell(far)} |")
    unspilled = pairs(data["rows"], spilling=False).values()
    for choice in CHOICES:
        here = [ratios[choice] for ratios in unspilled if choice in ratios]
        if here:
            print(f"\nWhere ptxas does not spill, {choice}: {cell(here)} over {len(here)} pairs.")
    titles = {title for ratios in found.values() for title in ratios} - {"ptxas"} - set(CHOICES)
    if titles:
        print("\n| row | pairs | over ptxas |\n|---|---|---|")
    for title in sorted(titles):
        here = [ratios[title] for ratios in found.values() if title in ratios]
        print(f"| {title} | {len(here)} | {cell(here)} |")
    chosen = [choice for choice in CHOICES if any(choice in ratios for ratios in found.values())]
    print("\n| kernel | cap | " + " | ".join(chosen) + " | best row | which |\n|" + "---|" * (4 + len(chosen)))
    for (source, kernel, cap), ratios in found.items():
        which = min(ratios, key=ratios.get)
        cells = " | ".join(f"{ratios[choice]:.2f}" if choice in ratios else "–" for choice in chosen)
        print(f"| {source} {kernel} | {cap or 'none'} | {cells} | {ratios[which]:.2f} | {which} |")
    print()


def main():
    commit, files = sys.argv[1], sys.argv[2:]
    print("# What `--regalloc=best` chooses\n")
    print("```sh\nbench/gpu/choices.py COMMIT RESULTS.json... > bench/results/choices-h200.md\n```\n")
    print(f"RESULTS.json is what `warpalloc-gpu` wrote at {commit}; its arguments stand in the script. Times are over that")
    print("of ptxas at the same cap: below 1 is faster. Every row had every output bit equal to the uncapped original's.\n")
    for file in files:
        print(f"## {file.rsplit('/', 1)[-1].removesuffix('.json')}\n")
        report(json.load(open(file)))


main()
