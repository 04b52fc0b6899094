#!/usr/bin/env python3
"""Runs Triton's kernels on a GPU as Triton compiles them, with the allocator in its pipeline and without.

    warpalloc shim install SHIM --ptxas "$(python3 -c 'from triton import knobs; print(knobs.nvidia.ptxas.path)')"
    bench/gpu/triton_shim.py --shim SHIM/bin/ptxas --hook --json RESULTS.json     needs PyTorch, Triton and a GPU
    bench/gpu/triton_shim.py --table RESULTS.json COMMIT > bench/results/triton-hook-h200.md

Each kernel of bench/triton_ptx.py that has a launch is compiled and run through Triton's own launcher, at its own cap on
registers and at those of `--caps`: with Triton's ptxas, with TRITON_PTXAS_PATH set to the shim, and, with `--hook`, after
`warpalloc.triton.install()`. Every byte behind every argument is compared with what Triton's ptxas gave. Each way has a
process of its own; they take turns `--turns` times, and a time is the least of the medians of its turns.
"""

import argparse
import hashlib
import json
import logging
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
WAYS = ["ptxas", "shim", "hook"]


def names():
    import triton_corpus
    import triton_ptx
    launched = {launch.__name__ for launch in triton_corpus.LAUNCHES}
    return [name for name, (kernel, *_) in triton_ptx.CASES.items() if kernel.__name__ in launched]


def tensor(described, kind, seed):
    """What a buffer of a manifest holds, as Triton's type has it."""
    import torch
    generator = torch.Generator(device="cuda").manual_seed(seed)
    dtype = {"*fp16": torch.float16, "*bf16": torch.bfloat16, "*fp32": torch.float32, "*fp64": torch.float64,
             "*fp8e5": torch.float8_e5m2, "*fp8e4nv": torch.float8_e4m3fn, "*i32": torch.int32, "*i64": torch.int64,
             "*i8": torch.int8}[kind]
    count, init = described["count"], described.get("init") or {}
    if "uniform" in init:
        low, high = init["uniform"]
        return (torch.rand(count, generator=generator, device="cuda") * (high - low) + low).to(dtype)
    if "below" in init:
        return torch.randint(init["below"], (count,), generator=generator, device="cuda").to(dtype)
    if "values" in init:
        values = torch.tensor(init["values"], device="cuda").repeat(count // len(init["values"]) + 1)[:count]
        return values.to(torch.uint8).view(dtype) if "fp8" in kind else values.to(dtype)
    width = torch.empty(0, dtype=dtype).element_size()
    return torch.randint(256, (count * width,), generator=generator, device="cuda", dtype=torch.uint8).view(dtype)


def launch(name, cap):
    """A kernel, its grid, its arguments and its options."""
    import triton_corpus
    import triton_ptx
    kernel, types, const, options = triton_ptx.CASES[name]
    grid, described = getattr(triton_corpus, kernel.__name__)(types, const)
    arguments = []
    for position, (argument, kind) in enumerate(zip(described, types)):
        [(form, value)] = argument.items()
        arguments.append(tensor(value, kind, position) if form == "buffer" else value)
    options = {**options, **const, **({"maxnreg": cap} if cap else {})}
    return kernel, tuple(grid), arguments, options


def work(args):
    """One way's turn: a line of JSON per kernel and cap."""
    import torch
    import triton
    if args.way == "hook":
        import warpalloc.triton
        logger = logging.getLogger("warpalloc.triton")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(logging.FileHandler(os.environ["WARPALLOC_HOOK_LOG"]))
        warpalloc.triton.install()
    for index, (name, cap) in enumerate((name, cap) for name in names() for cap in args.caps):
        if args.part and index % args.part[1] != args.part[0]:
            continue
        row = {"kernel": name, "cap": cap}
        try:
            kernel, grid, arguments, options = launch(name, cap)
            run = lambda: kernel[grid](*arguments, **options)
            compiled = run()
            torch.cuda.synchronize()
            if not args.part:
                bits = hashlib.sha256()
                for argument in arguments:
                    if isinstance(argument, torch.Tensor):
                        bits.update(argument.view(torch.uint8).cpu().numpy().tobytes())
                row |= {"bits": bits.hexdigest(), "registers": compiled.n_regs, "spills": compiled.n_spills,
                        "cubin": hashlib.sha256(compiled.asm["cubin"]).hexdigest(),
                        "microseconds": 1000 * triton.testing.do_bench(run, warmup=5, rep=25, return_mode="median")}
        except Exception as error:  # Triton raises many kinds
            lines = str(error).strip().splitlines() or [type(error).__name__]
            row["error"] = lines[-1]
        print(json.dumps(row), flush=True)


def turn(args, way, cache, part=None):
    command = [sys.executable, __file__, "--way", way, "--caps", ",".join(str(cap) for cap in args.caps)]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache / way), "WARPALLOC_SHIM_LOG": str(cache / f"{way}.log"),
                   "WARPALLOC_HOOK_LOG": str(cache / f"{way}-{part and part[0]}.txt")}
    if way == "shim":
        environment |= {"TRITON_PTXAS_PATH": args.shim, "TRITON_PTXAS_BLACKWELL_PATH": args.shim}
    if part:
        command += ["--part", "/".join(map(str, part))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def measure(args):
    import torch
    import triton
    rows = {}
    ways = ["ptxas"] + ["shim"] * bool(args.shim) + ["hook"] * args.hook
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        # Compiled side by side; what is measured comes from the cache.
        for way in ways:
            for process in [turn(args, way, cache, (part, args.jobs)) for part in range(args.jobs)]:
                process.communicate()
        for _ in range(args.turns):
            for way in ways:
                lines = turn(args, way, cache).communicate()[0].splitlines()
                # Triton prints what ptxas complains of.
                for found in map(json.loads, filter(lambda line: line.startswith('{"kernel"'), lines)):
                    row = rows.setdefault(f"{found.pop('kernel')} {found.pop('cap')}", {})
                    row.setdefault(way, []).append(found)
        log = cache / "shim.log"
        calls = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        hooked = [line for part in cache.glob("hook-[0-9]*.txt") for line in part.read_text().splitlines()]
    setup = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
             "turns": args.turns}
    told = [call["outcome"] + (f": {call['reason']}" if call.get("reason") else "") for call in calls]
    # The kernel's name is that of the function, which several cases share.
    hooked = [line.split(": ", 1)[1] for line in hooked if ": " in line]
    data = {"setup": setup, "rows": rows, "shim": Counter(told), "hook": Counter(hooked)}
    args.json.write_text(json.dumps(data, indent=1))


def time(turns):
    return min((turn["microseconds"] for turn in turns if "error" not in turn), default=None)


def table(path, commit):
    data = json.loads(Path(path).read_text())
    ways = [way for way in WAYS[1:] if any(way in row for row in data["rows"].values())]
    print("# Triton with the allocator in its pipeline\n")
    print("```sh\nbench/gpu/triton_shim.py --table RESULTS.json COMMIT > bench/results/triton-hook-h200.md\n```\n")
    hook = " --hook" if "hook" in ways else ""
    print(f"RESULTS.json is what `bench/gpu/triton_shim.py --shim SHIM{hook} --json RESULTS.json` wrote at {commit}.\n")
    print("Setup: " + ", ".join(f"{key} {value}" for key, value in sorted(data["setup"].items())) + ".\n")
    told = "`shim`: through TRITON_PTXAS_PATH" + ("; `hook`: after `warpalloc.triton.install()`" if hook else "")
    print(f"{told}. A cell is the time over that with")
    print("Triton's own ptxas, of kernels whose machine code is another; `=`: the same machine code. Ratios of equal")
    print("machine code tell the noise.\n")
    print("| way | kernels | equal bits | other bits | failed | replaced | mean | best | worst | above 1.03 |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    lines, noise = [], []
    summary = {way: {"kernels": 0, "equal": 0, "other": 0, "failed": 0, "ratios": []} for way in ways}
    for name, row in data["rows"].items():
        first = row["ptxas"][0]
        if "error" in first:
            lines.append(f"| {name}: Triton does not compile it | – | – | – | " + " | ".join("–" for _ in ways) + " |")
            continue
        cells = []
        for way in ways:
            found, total = row[way], summary[way]
            total["kernels"] += 1
            if any("error" in turn for turn in found):
                total["failed"] += 1
                cells.append("FAILED")
                continue
            is_equal = all(turn["bits"] == first["bits"] for turn in found)
            total["equal" if is_equal else "other"] += 1
            ratio = time(found) / time(row["ptxas"])
            if not is_equal:
                cells.append("WRONG")
            elif found[0]["cubin"] == first["cubin"]:
                noise.append(ratio)
                cells.append("=")
            else:
                total["ratios"].append(ratio)
                cells.append(f"{ratio:.2f}")
        lines.append(f"| {name} | {first['registers']} | {first['spills']} | {time(row['ptxas']):.1f} | " + " | ".join(cells) + " |")
    for way, total in summary.items():
        ratios = total["ratios"]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
        told = [f"{mean:.3f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}"] if ratios else ["–"] * 3
        slower = sum(ratio > 1.03 for ratio in ratios)
        print(f"| {way} | {total['kernels']} | {total['equal']} | {total['other']} | {total['failed']} | {len(ratios)} | "
              + " | ".join(told) + f" | {slower} |")
    if noise:
        print(f"\nEqual machine code: {len(noise)} ratios from {min(noise):.2f} to {max(noise):.2f}.\n")
    print("| kernel and cap | registers | spilled words | us | " + " | ".join(ways) + " |")
    print("|---" * (4 + len(ways)) + "|")
    print("\n".join(lines))
    for way in filter(data.get, ways):
        print(f"\nWhat the {way} logged:\n")
        for reason, count in sorted(data[way].items(), key=lambda item: -item[1]):
            # Where files lay says nothing.
            print(f"- {count} × {re.sub(r'/[^ ]*/', '', reason)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", help="the ptxas that `warpalloc shim install` laid out")
    parser.add_argument("--hook", action="store_true", help="try `warpalloc.triton.install()` too")
    parser.add_argument("--json", type=Path, default=Path("triton-shim.json"))
    parser.add_argument("--caps", default="None,64", type=lambda text: [None if cap == "None" else int(cap) for cap in text.split(",")])
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=lambda text: tuple(map(int, text.split("/"))), help=argparse.SUPPRESS)
    parser.add_argument("--table", nargs=2, metavar=("RESULTS", "COMMIT"))
    args = parser.parse_args()
    if args.table:
        table(*args.table)
    elif args.way:
        work(args)
    else:
        measure(args)


main()
