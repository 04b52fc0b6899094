#!/usr/bin/env python3
"""How good the choices of `--regalloc=best` are: their times over those of ptxas, and over the best of all rows.

    warpalloc-gpu --corpus FOLDER --filter sm_90 --fmad --spilling --spaces shared --reps 5 --caps CAPS \\
        --pragma enable_smem_spilling --strategies best,best-cubin,best-no-ptxas,briggs,briggs:4,fatpoint,fatpoint:-16 \\
        --cubin 'moved=--spills shared --force --dynamic-shared {dynamic}' --json RESULTS.json ...
    bench/gpu/choices.py COMMIT RESULTS.json... [COMMIT RESULTS.json...] > bench/results/choices-h200.md

Each RESULTS.json is a group of the table, called as the file is; several joined by `+` are one group, of the usual caps. CAPS are these:
128, 96, 80, 64, 48, 40, 32 and 24. corpus-sm80.json is of the corpus with --filter sm_80, corpus-none.json without --spilling, with --caps none and the first three strategies.
"""
import json
import math
import sys


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")


# Holds the titles of rows whose machine code is that of ptxas at the cap.
UNCHANGED = "unchanged"

USUAL_CAPS = [128, 96, 80, 64, 48, 40, 32, 24]
CHOICES = ["best", "best-any-grid", "best-cubin", "best-cubin-any-grid", "best-no-ptxas"]


def pairs(rows, spilling=True):
    """For each kernel and cap where ptxas spills, or does not: ratio to ptxas by row title."""
    found = {}
    for row in rows:
        resources = row["ptxas"].get("resources") or {}
        if not row.get("time_ratio") or bool(resources.get("spill_stores")) != spilling:
            continue
        key = (row["source"], row["kernel"], row["cap"])
        # The same machine code: what its times differ by is noise.
        ratio = 1.0 if row.get("unchanged") else row["time_ratio"]
        title = row["strategy"] if row["strategy"] in CHOICES else f"{row['strategy']} {row['space']}"
        found.setdefault(key, {"ptxas": 1.0})[title] = ratio
        if row.get("unchanged"):
            found[key].setdefault(UNCHANGED, set()).add(title)
    for ratios in found.values():
        ratios.setdefault(UNCHANGED, set())
    return found


def best(ratios, titles):
    return min(ratio for title, ratio in ratios.items() if title != UNCHANGED and titles(title))


def of_ptxas(title):
    return title.startswith("ptxas")


def ptxas_or_pragma(title):
    return title in ("ptxas", "ptxas enable_smem_spilling")


def candidates(choice):
    """What a choice could have taken: text only, or machine code too. A choice is one of its own rows' candidates."""
    is_cubin = "cubin" in choice
    return lambda title: title == choice or title not in CHOICES and (is_cubin or not title.startswith("cubin"))


def cell(ratios):
    return f"{mean(ratios):.3f} ({max(ratios):.2f})" if ratios else "–"


def report_others(choice, where, found):
    """One line on pairs that stand in no table."""
    here = [ratios for ratios in found.values() if choice in ratios]
    if here:
        unchanged = sum(choice in ratios[UNCHANGED] for ratios in here)
        print(f"\n{where}, {choice}: {cell([ratios[choice] for ratios in here])} over {len(here)} pairs, {unchanged} of them unchanged.")


def shown(ratios, title):
    """The ratio of a row, or that its machine code is that of ptxas."""
    if title not in ratios:
        return "–"
    return "unchanged" if title in ratios[UNCHANGED] else f"{ratios[title]:.2f}"


def report(data):
    found = pairs(data["rows"])
    setup = data["setup"]
    print("Setup: " + ", ".join(f"{key} {value}" for key, value in setup.items()) + ".\n")
    counts = data["summary"]
    print("Rows: " + ", ".join(f"{key} {counts[key]}" for key in ("rows", "equal", "different", "failed")) + ".\n")
    print("Geometric mean (worst) over pairs of kernel and cap where ptxas spills.\n")
    print("| choice | pairs | over ptxas | over the better of ptxas and the pragma | over the best of ptxas's own rows "
          "| over the best candidate |\n|---|---|---|---|---|---|")
    for choice in CHOICES:
        here = [ratios for ratios in found.values() if choice in ratios]
        if not here:
            continue
        chosen = [ratios[choice] for ratios in here]
        better = [ratios[choice] / best(ratios, ptxas_or_pragma) for ratios in here]
        own = [ratios[choice] / best(ratios, of_ptxas) for ratios in here]
        far = [ratios[choice] / best(ratios, candidates(choice)) for ratios in here]
        print(f"| {choice} | {len(here)} | {cell(chosen)} | {cell(better)} | {cell(own)} | {cell(far)} |")
    unspilled = pairs(data["rows"], spilling=False)
    for choice in CHOICES:
        report_others(choice, "Where ptxas does not spill", unspilled)
    uncapped = {key: ratios for key, ratios in {**found, **unspilled}.items() if key[2] is None}
    for choice in CHOICES:
        report_others(choice, "At no cap", uncapped)
    titles = {title for ratios in found.values() for title in ratios} - {"ptxas", UNCHANGED} - set(CHOICES)
    if titles:
        print("\n| row | pairs | over ptxas |\n|---|---|---|")
    for title in sorted(titles):
        here = [ratios[title] for ratios in found.values() if title in ratios]
        print(f"| {title} | {len(here)} | {cell(here)} |")
    chosen = [choice for choice in CHOICES if any(choice in ratios for ratios in found.values())]
    print("\n| kernel | cap | " + " | ".join(chosen) + " | best row | which |\n|" + "---|" * (4 + len(chosen)))
    for (source, kernel, cap), ratios in found.items():
        which = min((title for title in ratios if title != UNCHANGED), key=ratios.get)
        cells = " | ".join(shown(ratios, choice) for choice in chosen)
        print(f"| {source} {kernel} | {cap or 'none'} | {cells} | {ratios[which]:.2f} | {which} |")
    print()


def joined(groups):
    """One group as it is, or several, at the usual caps."""
    if len(groups) == 1:
        return groups[0]
    rows = [row for group in groups for row in group["rows"] if row["cap"] in USUAL_CAPS]
    counts = {"rows": len(rows), "equal": sum(bool(row.get("time_ratio")) for row in rows)}
    counts |= {key: sum(group["summary"][key] for group in groups) for key in ("different", "failed")}
    return {"rows": rows, "setup": groups[0]["setup"], "summary": counts}


def main():
    print("# What `--regalloc=best` chooses\n")
    print("```sh\nbench/gpu/choices.py COMMIT RESULTS.json... [COMMIT RESULTS.json...] > bench/results/choices-h200.md\n```\n")
    print("RESULTS.json is what `warpalloc-gpu` wrote at COMMIT; its arguments stand in the script. Times are over that")
    print("of ptxas at the same cap: below 1 is faster. A row whose machine code is that of ptxas at the cap is unchanged and")
    print("counts as 1.00. Every row had every output bit equal to the uncapped original's.\n")
    commit = None
    for argument in sys.argv[1:]:
        if not argument.endswith(".json"):
            commit = argument
            continue
        names = [path.rsplit("/", 1)[-1].removesuffix(".json") for path in argument.split("+")]
        print(f"## {' and '.join(names)}, at {commit}\n")
        report(joined([json.load(open(path)) for path in argument.split("+")]))


main()
