#!/usr/bin/env python3
"""Runs recoloured kernels that call functions of other sections, beside those that nvlink wrote.

    bench/gpu/linked.py WARPALLOC COMMIT > bench/results/linked-h200.md

nvcc compiles bench/gpu/linked/*.cu apart and links them, WARPALLOC recolours the kernels of the result with each
allocator and at random. All outputs are compared bit by bit; times are medians of launches in turns.
nvcc and CuPy are needed, and a GPU.
"""
import pathlib
import statistics
import subprocess
import sys
import tempfile

import cupy

SOURCES = pathlib.Path(__file__).resolve().parent / "linked"
SEEDS = 100
ROUNDS = 31
THREADS, BLOCKS = 256, 528
LAUNCHES = {"wide": 37, "narrow": 9}


def run(*command):
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def build(folder, arch):
    objects = []
    for source in sorted(SOURCES.glob("*.cu")):
        objects.append(folder / f"{source.stem}.o")
        run("nvcc", f"-arch={arch}", "-rdc=true", "-c", source, "-o", objects[-1])
    linked = folder / "linked.cubin"
    run("nvcc", f"-arch={arch}", "-dlink", "-cubin", *objects, "-o", linked)
    return linked


def outputs(functions):
    """The bits that each kernel writes."""
    x = cupy.random.RandomState(1).uniform(-3, 3, THREADS * BLOCKS + 16).astype(cupy.float32)
    found = {}
    for name, n in LAUNCHES.items():
        y = cupy.full(THREADS * BLOCKS, 1.5, cupy.float32)
        functions[name]((BLOCKS,), (THREADS,), (x, y, cupy.int32(n)))
        found[name] = y.get().tobytes()
    return found


def times(variants, name):
    """The median time of each variant's launches, which take turns."""
    x = cupy.random.RandomState(1).uniform(-3, 3, THREADS * BLOCKS + 16).astype(cupy.float32)
    y = cupy.empty(THREADS * BLOCKS, cupy.float32)
    found = {variant: [] for variant in variants}
    for turn in range(ROUNDS + 1):
        for variant, functions in variants.items():
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            functions[name]((BLOCKS,), (THREADS,), (x, y, cupy.int32(LAUNCHES[name])))
            end.record()
            end.synchronize()
            if turn:
                found[variant].append(cupy.cuda.get_elapsed_time(start, end))
    return {variant: statistics.median(taken) for variant, taken in found.items()}


def load(path):
    module = cupy.RawModule(path=str(path))
    return {name: module.get_function(name) for name in LAUNCHES}


def main():
    warpalloc, commit = sys.argv[1:]
    device = cupy.cuda.Device()
    arch = f"sm_{device.compute_capability}"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        original = build(folder, arch)
        flags = {name: ["--regalloc", name, "--fewest"] for name in ("briggs", "fatpoint", "scan")}
        flags |= {f"random{seed}": ["--shuffle-registers", str(seed)] for seed in range(1, SEEDS + 1)}
        variants = {"nvlink": load(original)}
        for name, chosen in flags.items():
            path = folder / f"{name}.cubin"
            run(warpalloc, "alloc", original, "-o", path, "--strict", *chosen)
            variants[name] = load(path)
        right = outputs(variants["nvlink"])
        bits = {name: outputs(functions) for name, functions in variants.items()}
        print("# Recoloured kernels that call functions of other sections\n")
        print("```sh\nbench/gpu/linked.py WARPALLOC COMMIT > bench/results/linked-h200.md\n```\n")
        properties = cupy.cuda.runtime.getDeviceProperties(device.id)
        print(f"At {commit}, {properties['name'].decode()}. `bench/gpu/linked/*.cu`, compiled apart and linked. A cell is")
        print("registers and the time over that of nvlink's cubin; WRONG where a bit of the output differs.\n")
        named = [name for name in variants if not name.startswith("random")]
        print("| kernel | us | " + " | ".join(named) + f" | random, {SEEDS} seeds: bits equal |")
        print("|---" * (len(named) + 3) + "|")
        for kernel in LAUNCHES:
            taken = times({name: variants[name] for name in named}, kernel)
            cells = []
            for name in named:
                is_right = bits[name][kernel] == right[kernel]
                ratio = taken[name] / taken["nvlink"]
                cells.append(f"{variants[name][kernel].num_regs}, {ratio:.2f}" if is_right else "WRONG")
            equal = sum(bits[f"random{seed}"][kernel] == right[kernel] for seed in range(1, SEEDS + 1))
            print(f"| {kernel} | {taken['nvlink'] * 1000:.1f} | " + " | ".join(cells) + f" | {equal} |")


main()
