#!/usr/bin/env python3
"""What fetching the instructions of a loop takes, by its length and by the warps that run it.

    bench/loop_fetch_probe.py [--ptxas PTXAS] > bench/results/loop-fetch.md

Needs CuPy and a GPU of the architecture that --arch names. Loops are of multiply-adds that do not wait for each other.
"""

import argparse
import os
import subprocess
import tempfile

import cupy

LENGTHS = [1024, 1536, 2048, 2560, 3072, 4096, 6144, 7168, 8192, 9216, 10240, 12288, 16384]
WARPS = [4, 8, 16, 32, 48]
CHAINS = 16
TRIPS = 40
BLOCK = 128


def text(length, arch):
    values = range(1, CHAINS)
    body = "".join(f"fma.rn.f32 %f{i % CHAINS}, %f{i % CHAINS}, %f30, %f30;\n" for i in range(length))
    return f""".version 8.0
.target {arch}
.address_size 64
.visible .entry loop(.param .u64 out, .param .u32 trips, .param .f32 factor)
{{
.reg .f32 %f<32>; .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p;
ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [trips]; ld.param.f32 %f30, [factor];
cvta.to.global.u64 %rd1, %rd1;
mov.u32 %r2, %tid.x; cvt.rn.f32.u32 %f0, %r2;
{"".join(f"add.f32 %f{i}, %f0, 0f3F800000;" for i in values)}
AGAIN:
{body}
sub.u32 %r1, %r1, 1; setp.ne.u32 %p, %r1, 0; @%p bra AGAIN;
{"".join(f"add.f32 %f0, %f0, %f{i};" for i in values)}
mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2; st.global.f32 [%rd1], %f0;
ret;
}}
"""


def milliseconds(kernel, blocks, out):
    arguments = (out, cupy.uint32(TRIPS), cupy.float32(0.5))
    times = []
    for _ in range(6):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        kernel((blocks,), (BLOCK,), arguments)
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end))
    return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", default="ptxas")
    parser.add_argument("--arch", default="sm_90")
    args = parser.parse_args()
    facts = cupy.cuda.runtime.getDeviceProperties(0)
    multiprocessors, hertz = facts["multiProcessorCount"], facts["clockRate"] * 1e3
    print("# Fetching the instructions of a loop\n")
    print("```sh\nbench/loop_fetch_probe.py > bench/results/loop-fetch.md\n```\n")
    print(f"{facts['name'].decode()}, {hertz / 1e6:.0f} MHz. Cycles that a scheduler takes per instruction of one of its warps, where")
    print("a multiprocessor, which has four schedulers, holds so many warps. One cycle is what issuing takes.\n")
    print("| instructions of the loop | " + " | ".join(f"{warps} warps" for warps in WARPS) + " |")
    print("|" + "---|" * (len(WARPS) + 1))
    out = cupy.zeros(BLOCK, cupy.float32)
    with tempfile.TemporaryDirectory() as folder:
        for length in LENGTHS:
            # A module is kept by its path.
            source, cubin = (os.path.join(folder, f"{length}.{end}") for end in ("ptx", "cubin"))
            with open(source, "w") as file:
                file.write(text(length, args.arch))
            subprocess.run([args.ptxas, "-arch", args.arch, source, "-o", cubin], check=True)
            kernel = cupy.RawModule(path=cubin).get_function("loop")
            cells = []
            for warps in WARPS:
                cycles = milliseconds(kernel, multiprocessors * warps // 4, out) * 1e-3 * hertz
                cells.append(f"{cycles / (TRIPS * length) / (warps / 4):.2f}")
            print(f"| {length} | " + " | ".join(cells) + " |")


main()
