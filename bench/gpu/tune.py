#!/usr/bin/env python3
"""Has `warpalloc tune --measure` time kernels of the corpus within every step of occupancy, and checks what it recommends.

    bench/gpu/tune.py --warpalloc WARPALLOC --ptxas PTXAS --json RESULTS.json      needs a GPU; warpalloc-gpu beside WARPALLOC
    bench/gpu/tune.py --table RESULTS.json COMMIT > bench/results/tune-h200.md

Each kernel is tuned twice, in processes of their own: the second run says how far times move.
"""

import argparse
import json
import subprocess
from pathlib import Path

# Tensor cores, 64-bit integers, straight-line floats and integers, shared memory, vectors, and values in a loop.
KERNELS = ["mma mma_bf16", "wide limbs", "fft16 fft32", "sha256 sha256_x3", "dynshared tiled", "wide quads",
           "stencil stencil25", "nbody nbody"]
# What the command takes for an error of the clock.
WORTH_IT = 0.98


def said(*command):
    return subprocess.run(command, capture_output=True, text=True)


def measure(args):
    rows = {}
    for case in args.kernels:
        name, kernel = case.split()
        command = [args.warpalloc, "tune", f"corpus/ptx/{name}.sm_90.ptx", "--kernel", kernel, "--json",
                   "--measure", f"corpus/manifests/{name}.json", "--ptxas", args.ptxas]
        runs = [said(*command) for _ in range(2)]
        rows[case] = [json.loads(run.stdout) if run.returncode == 0 else {"error": run.stderr.strip()} for run in runs]
        for run, row in zip(runs, rows[case]):
            row["warnings"] = run.stderr.strip().splitlines()
        # A run that is cut off leaves what it has.
        gpu = said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").stdout.strip()
        setup = {"gpu": gpu, "ptxas": said(args.ptxas, "--version").stdout.split()[-1]}
        args.json.write_text(json.dumps({"setup": setup, "rows": rows}, indent=1))


def told(row):
    return "no cap" if row["cap"] is None else f"{row['cap']}, {row['by']}"


def fastest(run):
    """What should be recommended, by the times alone."""
    first, best = run["caps"][0], min(run["caps"], key=lambda row: row["microseconds"])
    return best if best["microseconds"] < WORTH_IT * first["microseconds"] else first


def table(path, commit):
    data = json.loads(Path(path).read_text())
    print("# `warpalloc tune --measure`\n")
    print("```sh\nbench/gpu/tune.py --table RESULTS.json COMMIT > bench/results/tune-h200.md\n```\n")
    print(f"RESULTS.json is what `bench/gpu/tune.py --warpalloc WARPALLOC --ptxas PTXAS --json RESULTS.json` wrote at {commit}.\n")
    print("Setup: " + ", ".join(f"{key} {value}" for key, value in sorted(data["setup"].items())) + ".\n")
    print("`recommended` is what the command says, in the first run and in the second; `over no cap` is its time over that of the kernel")
    print("without a cap; `by its times` says whether it is the fastest row, or no cap where none is faster by 2 %. A row whose output differs")
    print("from that without a cap in a bit is left out by the command, with a warning; there were",
          sum(len(run["warnings"]) for runs in data["rows"].values() for run in runs), "warnings.")
    print("`estimate` is cycles over those without a cap, which the command goes by where there is no GPU.\n")
    print("| kernel | recommended | over no cap | by its times | again | over no cap | by its times |")
    print("|---|---|---|---|---|---|---|")
    for case, runs in data["rows"].items():
        cells = []
        for run in runs:
            if "error" in run:
                cells += [run["error"], "–", "–"]
                continue
            says, right = run["recommended"], fastest(run)
            taken = next(row for row in run["caps"] if (row["cap"], row["by"]) == (says["cap"], says["by"]))
            ratio = taken["microseconds"] / run["caps"][0]["microseconds"]
            cells += [told(taken), f"{ratio:.2f}", "right" if taken is right else f"WRONG: {told(right)}"]
        print(f"| {case.split()[1]} | " + " | ".join(cells) + " |")
    for case, runs in data["rows"].items():
        if any("error" in run for run in runs):
            continue
        first, second = runs
        again = {(row["cap"], row["by"]): row["microseconds"] for row in second["caps"]}
        print(f"\n## {case.split()[1]}\n\n{first['block']} threads per block.\n")
        print("| cap | by | registers | warps | frame | estimate | us | again |\n|---|---|---|---|---|---|---|---|")
        for row in first["caps"]:
            # The launch is known, so that both settings are that of the launch.
            estimate = f"{row['cycles']['full']:.2f}" if row["cycles"] else "–"
            second_time = again.get((row["cap"], row["by"]))
            print(f"| {row['cap'] or 'none'} | {row['by']} | {row['registers']} | {row['warps']} | {row['frame_bytes']} | {estimate} | "
                  f"{row['microseconds']:.1f} | " + (f"{second_time:.1f} |" if second_time else "– |"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warpalloc", default="warpalloc")
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("--json", type=Path, default=Path("tune.json"))
    parser.add_argument("--kernels", nargs="*", default=KERNELS, metavar="'FILE KERNEL'")
    parser.add_argument("--table", nargs=2, metavar=("RESULTS", "COMMIT"))
    args = parser.parse_args()
    if args.table:
        table(*args.table)
    else:
        measure(args)


main()
