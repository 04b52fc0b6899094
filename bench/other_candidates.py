#!/usr/bin/env python3
"""Candidates that `--regalloc=best` does not have, and what they could give.

    bench/other_candidates.py --warpalloc target/release/warpalloc --ptxas PTXAS --nvdisasm NVDISASM > bench/results/other-candidates.md

For each kernel of the corpus and each cap at which ptxas spills:

- order only: what ptxas spills in a text that was ordered and allocated for all registers, without spill code, at the cap;
- early reloads: how many instructions ptxas puts between a reload from shared memory and the first reader of it;
- mixed space: whether a frame in shared memory costs a resident block, so that only a part of it might be there.
"""
import argparse
import glob
import json
import math
import os
import re
import statistics
import subprocess
import tempfile

import provenance

CAPS = [64, 32]
# An H100's or H200's multiprocessor.
REGISTERS, SHARED, THREADS, BLOCKS, SYSTEM = 65536, 233472, 2048, 32, 1024


def spilled(ptxas, path, kernel, cap, out):
    """Bytes that ptxas stores and loads for lack of registers, and those of shared memory; None where it refuses."""
    command = [ptxas, "-v", "-arch=sm_90", "-e", kernel, "-o", out, path]
    if cap:
        command.insert(1, f"-maxrregcount={cap}")
    said = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said.stderr)
    if said.returncode != 0 or not found:
        return None, None
    shared = re.search(r"(\d+) bytes smem", said.stderr)
    return sum(map(int, found.groups())), int(shared.group(1)) if shared else 0


def allocated(warpalloc, path, kernel, cap, block, margin, out):
    """The figures of an allocation, or None where it was refused or spills elsewhere."""
    command = [warpalloc, "alloc", path, "--regalloc", "briggs", "--spill-space", "shared", "--entry", kernel, "--jobs", "1",
               "--maxnreg", str(cap), "--margin", str(margin), "--block", str(block), "-o", out, "--print-regalloc-stats=json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return None
    own = next(f for f in json.loads(done.stdout)["functions"] if f["name"] == kernel)
    return own if own.get("frame_local") == 0 else None


def distances(nvdisasm, cubin):
    """Instructions from each load of shared memory to its first reader, within a block of code."""
    text = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True).stdout
    found, pending, at = [], {}, 0
    for line in text.splitlines():
        if re.match(r"\.L_|\.text", line.strip()):
            pending = {}
        code = re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line)
        if not code:
            continue
        at += 1
        words = re.sub(r"^@!?U?P\w+\s+", "", code.group(1))
        opcode, _, operands = words.partition(" ")
        registers = re.findall(r"\bR(\d+)\b", operands)
        first = operands.split(",")[0]
        # Stores and branches have no result: all their operands are read.
        has_result = re.match(r"\s*R\d+\s*$", first) is not None
        read = registers[1:] if has_result else registers
        for register in read:
            if register in pending:
                found.append(at - pending.pop(register))
        if has_result:
            pending.pop(registers[0], None)
            if opcode.startswith("LDS"):
                pending[registers[0]] = at
    return found


def resident(registers, block, shared):
    warps = math.ceil(block / 32)
    by_registers = REGISTERS // (math.ceil(registers * 32 / 256) * 256) // 4 * 4 // warps
    by_shared = SHARED // (shared + SYSTEM) if shared else BLOCKS
    return min(BLOCKS, THREADS // (32 * warps), by_registers, by_shared)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--warpalloc", required=True)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--nvdisasm", required=True)
    parser.add_argument("--corpus", default="corpus")
    parser.add_argument("--filter", default="", help="only kernels whose name has this")
    parser.add_argument("--commit", default=provenance.commit(), help="what warpalloc was built from")
    args = parser.parse_args()
    rows, all_distances = [], []
    for path in sorted(glob.glob(f"{args.corpus}/ptx/*.sm_90.ptx")):
        stem = os.path.basename(path).split(".")[0]
        launches = json.load(open(f"{args.corpus}/manifests/{stem}.json"))["kernels"]
        for kernel in re.findall(r"\.entry\s+(\w+)", open(path).read()):
            if not re.search(args.filter, kernel):
                continue
            block = math.prod(launches[kernel]["block"])
            for cap in CAPS:
                with tempfile.TemporaryDirectory() as folder:
                    text, cubin = f"{folder}/a.ptx", f"{folder}/a.cubin"
                    before, own = spilled(args.ptxas, path, kernel, cap, cubin)
                    if not before:
                        continue
                    ordered = allocated(args.warpalloc, path, kernel, cap, block, cap - 255, text)
                    is_order = ordered and not ordered["frame_shared"]
                    order, _ = spilled(args.ptxas, text, kernel, None, cubin) if is_order else (None, None)
                    ours = allocated(args.warpalloc, path, kernel, cap, block, 0, text)
                    far, costs = [], None
                    shared = None
                    if ours and ours["frame_shared"]:
                        _, shared = spilled(args.ptxas, text, kernel, None, cubin)
                    if shared is not None:
                        far = distances(args.nvdisasm, cubin)
                        dynamic = launches[kernel].get("dynamic_shared", 0)
                        costs = resident(cap, block, own + dynamic) - resident(cap, block, shared + dynamic)
                    all_distances += far
                    rows.append((stem, kernel, cap, before, order, statistics.median(far) if far else None, costs))
    print("# Candidates that are not tried\n")
    print("```sh\nbench/other_candidates.py --warpalloc target/release/warpalloc --ptxas PTXAS --nvdisasm NVDISASM > bench/results/other-candidates.md\n```\n")
    print(f"At {args.commit}; ptxas: {provenance.version(args.ptxas)}.\n")
    print("Pairs of kernel and cap where ptxas spills. Spilled bytes are stores and loads that `ptxas -v` reports; blocks are those that")
    print("registers leave resident and the frame of `briggs` in shared memory does not.\n")
    orders = [(order, before) for _, _, _, before, order, _, _ in rows if order is not None]
    fewer = sum(order < before for order, before in orders)
    costly = [costs for *_, costs in rows if costs is not None]
    print("| | |\n|---|---|")
    print(f"| pairs with an ordered text that needs no spill code | {len(orders)} |")
    print(f"| of these, ptxas spills less of it than of the original | {fewer} |")
    if all_distances:
        near = sum(d <= 2 for d in all_distances) / len(all_distances)
        print(f"| reloads from shared memory with a reader in their block | {len(all_distances)} |")
        print(f"| instructions from such a reload to its first reader, median | {statistics.median(all_distances):.0f} |")
        print(f"| share of them with the reader at most two instructions on | {near:.2f} |")
    print(f"| pairs whose frame fits shared memory | {len(costly)} |")
    print(f"| of these, it costs a resident block | {sum(c > 0 for c in costly)} |\n")
    print("| kernel | cap | ptxas spills, bytes | of the ordered text | reload to reader, median | blocks lost |\n|---|---|---|---|---|---|")
    shown = lambda value: "–" if value is None else f"{value:.0f}"
    for stem, kernel, cap, before, order, far, costs in rows:
        print(f"| {stem} {kernel} | {cap} | {before} | {shown(order)} | {shown(far)} | {shown(costs)} |")


main()
