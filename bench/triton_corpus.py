#!/usr/bin/env python3
"""Writes Triton's kernels for sm_90 with manifests, so that bench/gpu can run them.

    python3 -m venv venv && venv/bin/pip install triton==3.9.0
    venv/bin/python bench/triton_corpus.py FOLDER
    target/release/warpalloc-gpu --corpus FOLDER --arch sm_90a --warpalloc target/release/warpalloc --ptxas PTXAS

FOLDER/ptx gets the PTX, FOLDER/manifests the launches; our own wgmma kernels go with them. Neither needs
a GPU. The PTX says version 8.8, which it keeps to, so that older drivers and assemblers take it.
"""

import json
import re
import sys
from pathlib import Path

import triton
import triton_ptx

TYPES = {"*fp16": "f16", "*bf16": "bf16", "*fp32": "f32", "*fp64": "f64", "*fp8e5": "i8", "*fp8e4nv": "i8",
         "*i32": "i32", "*i64": "i64", "*i8": "i8"}
SMALL = {"uniform": [-1, 1]}
# Bytes that are finite numbers in both eight-bit formats.
FINITE = {"values": [0x38, 0x34, 0xB0, 0x30, 0x2C, 0xB8, 0x3C, 0x01, 0xA9, 0x22, 0x39]}
M, N, K = 512, 512, 256


def buffer(kind, count, access="in", init=None):
    described = {"type": TYPES.get(kind, kind), "count": count, "access": access}
    if init:
        described["init"] = init
    return {"buffer": described}


def out(kind, count):
    return buffer(kind, count, "out")


def i32(*numbers):
    return [{"i32": number} for number in numbers]


def matmul(types, const):
    init = FINITE if "fp8" in types[0] else SMALL
    sides = [buffer(types[0], M * K, init=init), buffer(types[1], K * N, init=init)]
    return [M // const["BM"], N // const["BN"]], sides + [out(types[2], M * N)] + i32(M, N, K, K, N, N)


def matmul_registers(types, const):
    return [1], [buffer("f32", 128 * K, init=SMALL), buffer("f16", K * 128, init=SMALL), out("f32", 128 * 128)] + i32(K)


def attention(types, const):
    length, heads = 1024, 4
    count = length * heads * const["D"]
    inputs = [buffer(types[0], count, init=SMALL)] * 3
    return [length // const["BM"], heads], inputs + [out(types[0], count)] + i32(length) + [{"f32": 0.125}]


def softmax(types, const):
    width = const["BLOCK"]
    return [64], [buffer(types[0], 64 * width, init=SMALL), out(types[1], 64 * width)] + i32(width - 16, width)


def layer_norm(types, const):
    width = 4992
    weights = [buffer("f32", width, init=SMALL)] * 2
    ends = [out("f32", 64)] * 2 + i32(width) + [{"f32": 1e-5}]
    return [64], [buffer("f16", 64 * width, init=SMALL), out("f16", 64 * width)] + weights + ends


def scans(types, const):
    return [1], [buffer("f32", 2048, init=SMALL), out("f32", 2048), out("f32", 2048)]


def reductions(types, const):
    return [1], [buffer("f32", 4096, init={"uniform": [-100, 100]}), out("f32", 17), out("i32", 32)]


def dropout(types, const):
    count = 1 << 20
    ends = i32(count) + [{"f32": 0.3}] + i32(1234)
    return [count // 1024], [buffer("f32", count, init=SMALL), out("f32", count)] + ends


def sorting(types, const):
    count = const["ROWS"] * const["BLOCK"]
    init = SMALL if types[0] == "*fp32" else None
    return [1], [buffer(types[0], count, init=init), out(types[0], count)]


def gathers(types, const):
    indices = buffer("i32", 1024, init={"below": 64})
    return [1], [buffer("f32", 1024, init=SMALL), indices, out("f32", 1024), out("i32", 64)]


def collatz(types, const):
    return [1], [buffer("i64", 256, init={"values": [27, 97, 871, 6171, 1, 2, 3]}), out("i32", 256)]


def special_functions(types, const):
    positive = {"uniform": [0.1, 3]}
    doubles = buffer("f64", 4096, "inout", positive)
    return [8], [buffer("f32", 4096, init=positive), out("f32", 4096), doubles] + i32(4096)


def small_types(types, const):
    halves = [buffer("f16", 4096, init=SMALL), buffer("bf16", 4096, init=SMALL)]
    return [4], [buffer("i8", 4096, "inout")] + halves + [out("i8", 4096), out("bf16", 4096)] + i32(4096)


def own_assembly(types, const):
    return [1], [buffer("i32", 512), out("i32", 512), out("i32", 512)]


LAUNCHES = [matmul, matmul_registers, attention, softmax, layer_norm, scans, reductions, dropout, sorting, gathers,
            collatz, special_functions, small_types, own_assembly]
WGMMA = {
    "wgmma_pipeline": {"grid": [1], "block": [128], "arguments": [
        buffer("f16", 16384, init=SMALL), buffer("i32", 128 * 36, "inout"), *i32(8)]},
    "wgmma_registers": {"grid": [1], "block": [128], "arguments": [
        buffer("f16", 8192, init={"uniform": [-0.2, 0.2]}),
        buffer("f16", 128 * 32, "inout", {"uniform": [-0.5, 0.5]}), *i32(6)]},
}


def main():
    folder = Path(sys.argv[1])
    for part in ["ptx", "manifests"]:
        (folder / part).mkdir(parents=True, exist_ok=True)
    triton.set_allocator(triton_ptx.scratch)
    launches = {launch.__name__: launch for launch in LAUNCHES}
    for name, (kernel, types, const, _) in triton_ptx.CASES.items():
        if launch := launches.get(kernel.__name__):
            grid, arguments = launch(types, const)
            write(folder, name, triton_ptx.compiled(name, 90), grid, arguments)
    own = Path(__file__).parent.parent / "crates/warpalloc-ptx/tests/inflight/wgmma.sm_90a.ptx"
    (folder / "ptx" / own.name).write_text(own.read_text())
    manifest(folder, "wgmma", WGMMA)


def write(folder, name, compiled, grid, arguments):
    text = re.sub(r"^\.version .*", ".version 8.8", compiled.asm["ptx"], flags=re.M)
    entry, parameters = re.search(r"\.entry (\w+)\((.*?)\)", text, re.S).groups()
    # Triton adds pointers to scratch memory, of which these kernels use none.
    arguments = arguments + [{"i64": 0}] * (parameters.count(".param") - len(arguments))
    (folder / "ptx" / f"{name}.sm_90.ptx").write_text(text)
    block = [32 * compiled.metadata.num_warps]
    launch = {"grid": grid, "block": block, "dynamic_shared": compiled.metadata.shared, "arguments": arguments}
    manifest(folder, name, {entry: launch})


def manifest(folder, name, kernels):
    (folder / "manifests" / f"{name}.json").write_text(json.dumps({"kernels": kernels}))


if __name__ == "__main__":
    main()
