#!/usr/bin/env python3
"""What a choice takes: processor time of `warpalloc alloc` on one core over that of one ptxas run, and of the same call again.

    bench/choose_time.py --warpalloc target/release/warpalloc --ptxas PTXAS > bench/results/choose-time.md

For each kernel of the corpus and each cap, pinned to one core and told the launch, so that every candidate is built;
medians of three calls. The second call finds the choice in the cache.
"""
import argparse
import glob
import json
import math
import os
import re
import resource
import statistics
import subprocess
import tempfile

CAPS = [32, 64]


def used():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds(command, environment):
    """Processor time of a command and of what it starts: on one core that is how long it takes on an idle machine."""
    begin = used()
    done = subprocess.run(["taskset", "-c", "0", *command], env=environment, capture_output=True)
    return used() - begin if done.returncode == 0 else None


def median(command, environment, before=lambda: None, calls=3):
    times = []
    for _ in range(calls):
        before()
        times.append(seconds(command, environment))
    return None if None in times else statistics.median(times)


def launch(manifests, path, kernel):
    """The flags that say how a kernel is launched."""
    stem = os.path.basename(path).split(".")[0]
    described = json.load(open(f"{manifests}/{stem}.json"))["kernels"][kernel]
    block, grid = math.prod(described["block"]), math.prod(described["grid"])
    return ["--block", str(block), "--grid", str(grid), "--dynamic-shared", str(described.get("dynamic_shared", 0))]


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--warpalloc", required=True)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--corpus", default="corpus/ptx")
    parser.add_argument("--manifests", default="corpus/manifests")
    args = parser.parse_args()
    rows = []
    for path in sorted(glob.glob(f"{args.corpus}/*.sm_90.ptx")):
        text = open(path).read()
        for kernel in re.findall(r"\.entry\s+(\w+)", text):
            for cap in CAPS:
                with tempfile.TemporaryDirectory() as folder:
                    environment = dict(os.environ, XDG_CACHE_HOME=f"{folder}/cache")
                    forget = lambda: subprocess.run(["rm", "-rf", f"{folder}/cache"])
                    assemble = [args.ptxas, "-arch=sm_90", "-e", kernel, f"-maxrregcount={cap}", path, "-o", f"{folder}/a"]
                    choose = [args.warpalloc, "alloc", path, "--entry", kernel, "--maxnreg", str(cap), "--jobs", "1",
                              "--ptxas", args.ptxas, "-o", f"{folder}/b.ptx", *launch(args.manifests, path, kernel)]
                    once = median(assemble, environment)
                    first = median(choose, environment, forget)
                    again = median(choose, environment)
                if None not in (once, first, again):
                    rows.append((os.path.basename(path), kernel, cap, once, first, again))
    print("# What a choice takes\n")
    print("```sh\nbench/choose_time.py --warpalloc target/release/warpalloc --ptxas PTXAS > bench/results/choose-time.md\n```\n")
    print("Processor time on one core, the launch known; medians of three calls. The second call finds the choice in the cache.\n")
    ratios = [first / once for *_, once, first, _ in rows]
    seconds_again = [again for *_, again in rows]
    print("| | mean | worst |\n|---|---|---|")
    print(f"| first call over one ptxas run ({len(rows)} kernels and caps) | {mean(ratios):.1f} | {max(ratios):.1f} |")
    print(f"| second call, ms | {1e3 * statistics.mean(seconds_again):.0f} | {1e3 * max(seconds_again):.0f} |\n")
    print("| kernel | cap | ptxas, ms | first call, ms | second call, ms |\n|---|---|---|---|---|")
    for file, kernel, cap, once, first, again in rows:
        print(f"| {file} {kernel} | {cap} | {1e3 * once:.0f} | {1e3 * first:.0f} | {1e3 * again:.0f} |")


main()
