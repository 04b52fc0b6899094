#!/usr/bin/env python3
"""Writes PTX of CUTLASS's warp-specialised products, whose warps share out registers with `setmaxnreg`.

    python3 -m venv venv && venv/bin/pip install nvidia-cutlass==4.2.0.0
    bench/cutlass_ptx.py --cutlass venv/lib/python3.11/site-packages/cutlass_library/source --nvcc NVCC FOLDER [NAME...]

47 kernels in files named NAME.sm_90a.ptx; no GPU is needed. CUTLASS has its own licence: the PTX is for
local use and is never committed. A file takes nvcc some minutes.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

INCLUDES = """#include "cutlass/cutlass.h"
#include "cute/tensor.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/kernel/tile_scheduler.hpp"
#include "cutlass/device_kernel.h"
#include "cutlass/float8.h"
using namespace cute;
"""

# Taking the address of a kernel is what makes nvcc compile it.
KERNEL = """namespace {name} {{
using BlockShape = Shape<_{m}, _{n}, _{k}>;
using ClusterShape = Shape<_{cm}, _{cn}, _1>;
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, BlockShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, {acc}, {acc},
    {out}, cutlass::layout::RowMajor, 16 / sizeof({out}),
    {out}, cutlass::layout::RowMajor, 16 / sizeof({out}), cutlass::epilogue::{epilogue}>::CollectiveOp;
using Main = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp,
    {a}, cutlass::layout::{la}, {aa}, {b}, cutlass::layout::{lb}, {ab}, {acc}, BlockShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::{schedule}>::CollectiveOp;
struct Kernel : cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Main, Epilogue, {scheduler}> {{}};
void *address() {{ return (void *)&cutlass::device_kernel<Kernel>; }}
}}
"""

HALF, BF16, TF32, F32 = "cutlass::half_t", "cutlass::bfloat16_t", "cutlass::tfloat32_t", "float"
E4M3, E5M2, S8, S32 = "cutlass::float_e4m3_t", "cutlass::float_e5m2_t", "int8_t", "int32_t"
BYTES = {HALF: 2, BF16: 2, TF32: 4, F32: 4, E4M3: 1, E5M2: 1, S8: 1}
COOPERATIVE, PINGPONG = "KernelTmaWarpSpecializedCooperative", "KernelTmaWarpSpecializedPingpong"
STREAM_K = "cutlass::gemm::StreamKScheduler"


def product(name, a, b, acc, out, tile, schedule, cluster=(1, 1), layouts="TN", scheduler="void", fast=""):
    epilogue = "TmaWarpSpecializedCooperative" if "Cooperative" in schedule else "TmaWarpSpecialized"
    la = "RowMajor" if layouts[0] == "T" else "ColumnMajor"
    lb = "ColumnMajor" if layouts[1] == "N" else "RowMajor"
    m, n, k = tile
    return KERNEL.format(name=name, a=a, b=b, acc=acc, out=out, m=m, n=n, k=k, cm=cluster[0], cn=cluster[1], la=la, lb=lb,
                         aa=16 // BYTES[a], ab=16 // BYTES[b], schedule=schedule + fast,
                         epilogue=epilogue, scheduler=scheduler)


def cases():
    """The kernels of each file."""
    kinds = {"f16": (HALF, F32, HALF), "bf16": (BF16, F32, BF16), "tf32": (TF32, F32, F32), "e4m3": (E4M3, F32, BF16),
             "e5m2": (E5M2, F32, HALF), "s8": (S8, S32, S32)}
    for kind, (a, acc, out) in kinds.items():
        k = 128 // BYTES[a]
        fast = "FP8FastAccum" if kind in ("e4m3", "e5m2") else ""
        yield kind, [
            product(f"{schedule}_{m}x{n}", a, a, acc, out, (m, n, k), which, fast=fast)
            for schedule, which, tiles in [("pingpong", PINGPONG, [(64, 128), (64, 256), (128, 128)]),
                                           ("cooperative", COOPERATIVE, [(128, 128), (128, 256), (256, 128)])]
            for m, n in tiles]
    yield "others", [
        product("exact_pingpong", E4M3, E4M3, F32, BF16, (64, 128, 128), PINGPONG),
        product("exact_cooperative", E4M3, E4M3, F32, BF16, (128, 128, 128), COOPERATIVE),
        product("cluster_cooperative", HALF, HALF, F32, HALF, (128, 256, 64), COOPERATIVE, (2, 1)),
        product("cluster_pingpong", HALF, HALF, F32, HALF, (64, 128, 64), PINGPONG, (1, 2)),
        product("stream_k", HALF, HALF, F32, HALF, (128, 128, 64), COOPERATIVE, scheduler=STREAM_K),
        product("transposed_cooperative", HALF, HALF, F32, HALF, (128, 128, 64), COOPERATIVE, layouts="NT"),
        product("transposed_pingpong", HALF, HALF, F32, HALF, (64, 128, 64), PINGPONG, (2, 1), "NT"),
        product("mixed_pingpong", E4M3, HALF, F32, HALF, (64, 128, 64), PINGPONG),
        product("mixed_cooperative", S8, BF16, F32, BF16, (128, 128, 64), COOPERATIVE),
    ]
    yield "clusters", [
        product("bytes_cooperative", S8, S8, S32, S32, (128, 128, 128), COOPERATIVE, (2, 1)),
        product("bytes_pingpong", E5M2, E5M2, F32, HALF, (64, 128, 128), PINGPONG, (2, 1), fast="FP8FastAccum"),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cutlass", type=Path, required=True)
    parser.add_argument("--nvcc", required=True)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, kernels in cases():
        if args.names and name not in args.names:
            continue
        target = args.folder / f"{name}.sm_90a.ptx"
        if target.exists():
            continue
        with tempfile.TemporaryDirectory() as work:
            file = Path(work) / f"{name}.cu"
            file.write_text(INCLUDES + "".join(kernels))
            command = [args.nvcc, "-ptx", "-std=c++17", "-O3", "-arch=sm_90a", "--expt-relaxed-constexpr", "-DNDEBUG", "-w",
                       "-I", args.cutlass / "include", "-o", Path(work) / "out.ptx", file]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if "error" in line] or ["failed"]
                print(f"{name}: {lines[0]}", file=sys.stderr)
                continue
            target.write_text((Path(work) / "out.ptx").read_text())


if __name__ == "__main__":
    main()
