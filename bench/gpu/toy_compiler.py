#!/usr/bin/env python3
"""Runs what the example `toy_compiler` compiles, and compares with its interpreter.

    cargo run --release -p warpalloc --example toy_compiler -- --samples FOLDER
    bench/gpu/toy_compiler.py --ptxas PTXAS FOLDER > bench/results/toy-compiler-h200.md

Each FOLDER/NAME.STRATEGY.REGISTERS.ptx is assembled and launched once; thread i must return
line i of FOLDER/NAME.expected.
"""

import argparse
import collections
import pathlib
import subprocess
import sys
import tempfile

import cupy


def outcome(ptxas, ptx, expected):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        command = [ptxas, "-arch=sm_90", "-o", cubin.name, ptx]
        assembled = subprocess.run(command, capture_output=True, text=True)
        if assembled.returncode:
            return "refused by ptxas: " + assembled.stderr.strip()
        kernel = cupy.RawModule(path=cubin.name).get_function("run")
    out = cupy.full(len(expected), -12345, dtype=cupy.int32)
    kernel((len(expected) // 64,), (64,), (out,))
    got = out.get().tolist()
    wrong = [i for i, pair in enumerate(zip(got, expected)) if pair[0] != pair[1]]
    if not wrong:
        return "right"
    first = wrong[0]
    return f"thread {first} returned {got[first]}, not {expected[first]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    cupy.cuda.runtime.deviceSetLimit(cupy.cuda.runtime.cudaLimitStackSize, 16384)
    rows = collections.defaultdict(lambda: [0, 0])
    failures = []
    for ptx in sorted(args.folder.glob("*.ptx")):
        name, strategy, registers, _ = ptx.name.split(".")
        lines = (args.folder / f"{name}.expected").read_text().split()
        result = outcome(args.ptxas, ptx, [int(line) for line in lines])
        row = rows[name, strategy]
        row[0] += 1
        row[1] += result == "right"
        if result != "right":
            failures.append(f"{ptx.name}: {result}")
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    release = subprocess.run([args.ptxas, "--version"], capture_output=True, text=True).stdout
    print("# The toy compiler on a GPU\n")
    print("`cargo run --release -p warpalloc --example toy_compiler -- --samples FOLDER`, then")
    print(f"`bench/gpu/toy_compiler.py FOLDER`, on an {device} with ptxas {release.split()[-1]}.\n")
    print("Each program was compiled in 8, 10 and 32 registers. 256 threads ran it, and each result was compared")
    print("with the interpreter's.\n")
    print("| program | strategy | compiled | right |\n|---|---|---|---|")
    for (name, strategy), (count, right) in rows.items():
        print(f"| {name} | `{strategy}` | {count} | {right} |")
    for failure in failures:
        print(failure, file=sys.stderr)
    sys.exit(bool(failures))


main()
