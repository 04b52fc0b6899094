#!/usr/bin/env python3
"""How good the choices of `--regalloc=best` are: its time over that of ptxas, and over the best of all rows.

    warpalloc-gpu --fmad --spilling --spaces shared --pragma enable_smem_spilling \\
        --strategies best,briggs,briggs:-16,briggs:4,scan,scan:-16,fatpoint,fatpoint:-16 --json RESULTS.json ...
    bench/gpu/choices.py COMMIT RESULTS.json... > bench/results/choices-h200.md
"""
import json
import math
import sys


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")


def pairs(rows):
    """For each kernel and cap where ptxas spills: ratio to ptxas by row title."""
    found = {}
    for row in rows:
        resources = row["ptxas"].get("resources") or {}
        if not row.get("time_ratio") or not resources.get("spill_stores"):
            continue
        key = (row["source"], row["kernel"], row["cap"])
        found.setdefault(key, {"ptxas": 1.0})[f"{row['strategy']} {row['space']}"] = row["time_ratio"]
    return {key: ratios for key, ratios in found.items() if "best chosen" in ratios}


def report(data):
    found = pairs(data["rows"])
    setup = data["setup"]
    print("Setup: " + ", ".join(f"{key} {value}" for key, value in setup.items()) + ".\n")
    counts = data["summary"]
    print("Rows: " + ", ".join(f"{key} {counts[key]}" for key in ("rows", "equal", "different", "failed")) + ".\n")
    chosen = [ratios["best chosen"] for ratios in found.values()]
    best = [min(ratios.values()) for ratios in found.values()]
    pragma = [min(1.0, ratios.get("ptxas enable_smem_spilling", 1.0)) for ratios in found.values()]
    print("| over pairs of kernel and cap where ptxas spills | geometric mean | worst |\n|---|---|---|")
    print(f"| pairs | {len(found)} | |")
    print(f"| choice / ptxas | {mean(chosen):.3f} | {max(chosen):.2f} |")
    against = [c / p for c, p in zip(chosen, pragma)]
    print(f"| choice / the better of ptxas and ptxas with the pragma | {mean(against):.3f} | {max(against):.2f} |")
    print(f"| best candidate / ptxas | {mean(best):.3f} | {max(best):.2f} |")
    far = [c / b for c, b in zip(chosen, best)]
    print(f"| choice / best candidate | {mean(far):.3f} | {max(far):.2f} |")
    for title in sorted({title for ratios in found.values() for title in ratios} - {"ptxas", "best chosen"}):
        here = [ratios[title] for ratios in found.values() if title in ratios]
        print(f"| {title} / ptxas ({len(here)} pairs) | {mean(here):.3f} | {max(here):.2f} |")
    print("\n| kernel | cap | choice | best candidate | which |\n|---|---|---|---|---|")
    for (source, kernel, cap), ratios in found.items():
        which = min(ratios, key=ratios.get)
        print(f"| {source} {kernel} | {cap} | {ratios['best chosen']:.2f} | {ratios[which]:.2f} | {which} |")
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
