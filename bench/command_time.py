#!/usr/bin/env python3
"""How long each command takes over the corpus without ptxas: file by file, and over whole folders.

    bench/command_time.py --warpalloc target/release/warpalloc > bench/results/command_time.md

Wall-clock time and the processor time of all threads, the least of some calls. Exits with 1 where a call fails, or
takes a second or more.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile
import time

import provenance

FOLDERS = ["corpus/ptx", "corpus/holdout/ptx"]
LIMIT = 1.0
# Rows of single files from here on are listed.
LISTED = 0.1


def commands(target, folder):
    """What is called: a name, and the arguments."""
    many = os.path.isdir(target)
    out = f"{folder}/out" if many else f"{folder}/out.ptx"
    yield "stats", ["stats", target]
    yield "check", ["check", target, "--block", "256", "--baseline", f"{folder}/baseline.toml"]
    yield "explain", ["explain", target, "--block", "256"]
    yield "tune", ["tune", target, "--block", "256"]
    yield "compare", ["compare", target, target, "--block", "256"]
    if not many:
        for kernel in re.findall(r"^\s*(?:\.visible\s+|\.weak\s+)?\.entry\s+(\w+)", open(target).read(), re.M):
            yield "report", ["report", target, "--kernel", kernel, "--block", "256", "-o", f"{folder}/page.html"]
    # What is kept from the call before would answer.
    yield "alloc", ["alloc", target, "-o", out, "--no-cache"]
    yield "alloc within 64", ["alloc", target, "-o", out, "--no-cache", "--maxnreg", "64", "--block", "256"]
    for allocator in ["briggs", "fatpoint", "scan"]:
        yield f"alloc {allocator}", ["alloc", target, "-o", out, "--maxnreg", "64", "--regalloc", allocator, "--keep-going"]


def timed(command, environment):
    """Wall-clock and processor seconds of a call, and what it said where it failed."""
    with tempfile.TemporaryFile() as said:
        begin = time.perf_counter()
        child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
    failed = None if child.returncode == 0 else text.splitlines()[-1] if text else str(child.returncode)
    return wall, usage.ru_utime + usage.ru_stime, failed


def measure(warpalloc, target, calls, environment):
    with tempfile.TemporaryDirectory() as folder:
        update = [warpalloc, "check", target, "--block", "256", "--baseline", f"{folder}/baseline.toml", "--update"]
        timed(update, environment)
        if os.path.isdir(target):
            os.makedirs(f"{folder}/out")
        for name, arguments in commands(target, folder):
            times = [timed([warpalloc, *arguments], environment) for _ in range(calls)]
            failed = next((failed for *_, failed in times if failed), None)
            yield name, min(wall for wall, *_ in times), min(cpu for _, cpu, _ in times), failed


def libraries(warpalloc, paths, calls, environment):
    if paths:
        print("\nMachine code, with `--library FILE`; `check` reads a baseline of all its kernels:\n")
        print("| file | MB | kernels | command | wall | cpu |\n|---|---|---|---|---|---|")
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            baseline = f"{folder}/baseline.toml"
            for name, more in [("check --update", ["--update"]), ("check", [])]:
                command = [warpalloc, "check", path, "--baseline", baseline, *more]
                times = [timed(command, environment) for _ in range(calls)]
                kernels = open(baseline).read().count("[[kernel]]")
                wall, cpu = (min(time[at] for time in times) for at in (0, 1))
                print(f"| {os.path.basename(path)} | {os.path.getsize(path) / 1e6:.0f} | {kernels} | {name} "
                      f"| {1e3 * wall:.0f} | {1e3 * cpu:.0f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--warpalloc", required=True)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--commit", help="what was built, where this is no checkout")
    parser.add_argument("--library", action="append", default=[], help="machine code to read: a shared library, a cubin")
    parser.add_argument("targets", nargs="*", default=FOLDERS)
    args = parser.parse_args()
    environment = {"PATH": "/nonexistent", "HOME": "/nonexistent", "WARPALLOC_PTXAS": ""}
    environment = {name: value for name, value in environment.items() if value}
    warpalloc = os.path.abspath(args.warpalloc)
    files, folders, failures, loads = {}, {}, [], []
    for target in args.targets:
        singles = sorted(glob.glob(f"{target}/*.ptx")) if os.path.isdir(target) else [target]
        for path in [*singles, *([target] if os.path.isdir(target) else [])]:
            kept = folders if path == target and os.path.isdir(path) else files
            loads.append(os.getloadavg()[0])
            for name, wall, cpu, failed in measure(warpalloc, path, args.calls, environment):
                kept.setdefault(name, []).append((path, wall, cpu))
                if failed:
                    failures.append((path, name, failed))
    print("# How long commands take without ptxas\n")
    print("```sh\nbench/command_time.py --warpalloc target/release/warpalloc > bench/results/command_time.md\n```\n")
    count = len(next(iter(files.values())))
    print(f"Release build of {args.commit or provenance.commit()} on {os.cpu_count()} cores, no ptxas on the path; the least of {args.calls} calls. `wall` is what a")
    print("person waits, `cpu` what all threads take together; both in milliseconds. `report` is of one kernel each, `alloc NAME` of that")
    print(f"allocator within 64 registers. Between {min(loads):.1f} and {max(loads):.1f} other processes wanted the cores meanwhile.\n")
    print(f"| command | {count} files: mean wall | worst wall | worst cpu | worst file | "
          + " | ".join(f"{target} at once: wall | cpu" for target in args.targets if os.path.isdir(target)) + " |")
    print("|---|" + "---|" * (4 + 2 * sum(map(os.path.isdir, args.targets))))
    for name, rows in files.items():
        worst = max(rows, key=lambda row: row[1])
        none = [(None, 0, 0)] * sum(map(os.path.isdir, args.targets))
        whole = [f"{1e3 * wall:.0f} | {1e3 * cpu:.0f}" if path else "– | –" for path, wall, cpu in folders.get(name, none)]
        cells = [f"{1e3 * sum(row[1] for row in rows) / len(rows):.0f}", f"{1e3 * worst[1]:.0f}",
                 f"{1e3 * max(row[2] for row in rows):.0f}", os.path.basename(worst[0]), *whole]
        print(f"| {name} | " + " | ".join(cells) + " |")
    listed = sorted((row for name, rows in files.items() for row in [(*r, name) for r in rows] if row[1] >= LISTED),
                    key=lambda row: -row[1])
    print(f"\nFiles that take {1e3 * LISTED:.0f} ms or more:\n\n| file | command | wall | cpu |\n|---|---|---|---|")
    for path, wall, cpu, name in listed:
        print(f"| {os.path.basename(path)} | {name} | {1e3 * wall:.0f} | {1e3 * cpu:.0f} |")
    libraries(warpalloc, args.library, args.calls, environment)
    slow = [(path, name, wall) for table in (files, folders) for name, rows in table.items()
            for path, wall, _ in rows if wall >= LIMIT]
    for path, name, failed in failures:
        print(f"{name} {path}: {failed}", file=sys.stderr)
    for path, name, wall in slow:
        print(f"{name} {path}: {wall:.2f} s", file=sys.stderr)
    return 1 if failures or slow else 0


sys.exit(main())
