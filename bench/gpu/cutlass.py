#!/usr/bin/env python3
"""Launches CUTLASS's warp-specialised products as they are and allocated, and compares every bit of their results.

    bench/cutlass_ptx.py --cutlass CUTLASS --nvcc NVCC FOLDER
    bench/gpu/cutlass.py build --cutlass CUTLASS --nvcc NVCC --warpalloc WARPALLOC FOLDER
    bench/gpu/cutlass.py run --ptxas PTXAS FOLDER > bench/results/cutlass-h200.md

`build` needs no GPU. It allocates each NAME.sm_90a.ptx with `briggs` and `fatpoint` and compiles a host program that launches the
file's kernels from whatever cubins it is given. `run` assembles all texts and starts the programs.
"""

import argparse
import concurrent.futures
import json
import math
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import cutlass_ptx

# `scan` leaves functions with registers in flight, which all of these are, to `briggs`.
STRATEGIES = ["briggs", "fatpoint"]

HOST = r"""
#include "cutlass/util/packed_stride.hpp"
#include "cutlass/kernel_hardware_info.hpp"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <vector>

static void must(cudaError_t error, const char *what) {
  if (error != cudaSuccess) {
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(2);
  }
}

// Small whole numbers: every element type holds them, and sums of products differ where a product is lost.
template <class T> static T *random_buffer(size_t count, unsigned seed) {
  std::vector<T> host(count);
  unsigned state = seed;
  for (auto &element : host) {
    state = state * 1664525u + 1013904223u;
    element = static_cast<T>(static_cast<float>(static_cast<int>(state >> 24) % 7 - 3));
  }
  T *device;
  must(cudaMalloc(&device, count * sizeof(T)), "cudaMalloc");
  must(cudaMemcpy(device, host.data(), count * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return device;
}

template <class Kernel> static void run(const char *name, const char *entry, int count, char **cubins) {
  const int m = 4128, n = 2064, k = 2064, reps = 21;
  using A = typename Kernel::ElementA;
  using B = typename Kernel::ElementB;
  using C = typename Kernel::ElementC;
  using D = typename Kernel::ElementD;
  A *a = random_buffer<A>(size_t(m) * k, 1);
  B *b = random_buffer<B>(size_t(n) * k, 2);
  C *c = random_buffer<C>(size_t(m) * n, 3);
  const size_t bytes = size_t(m) * n * sizeof(D);
  D *d;
  must(cudaMalloc(&d, bytes), "cudaMalloc");
  cutlass::KernelHardwareInfo hardware;
  must(cudaGetDevice(&hardware.device_id), "cudaGetDevice");
  hardware.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(hardware.device_id);
  typename Kernel::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {m, n, k, 1},
      {a, cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, {m, k, 1}),
       b, cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, {n, k, 1})},
      {{1, 1}, c, cutlass::make_cute_packed_stride(typename Kernel::StrideC{}, {m, n, 1}),
       d, cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, {m, n, 1})},
      hardware};
  if (!Kernel::can_implement(arguments)) {
    printf("{\"kernel\": \"%s\", \"error\": \"cannot be launched with this shape\"}\n", name);
    return;
  }
  void *workspace = nullptr;
  if (size_t size = Kernel::get_workspace_size(arguments)) must(cudaMalloc(&workspace, size), "cudaMalloc");
  auto params = Kernel::to_underlying_arguments(arguments, workspace);
  using Cluster = typename Kernel::DispatchPolicy::ClusterShape;

  struct Variant {
    cudaKernel_t kernel;
    std::vector<float> times;
    bool equal = true;
  };
  std::vector<Variant> variants(count);
  std::vector<char> expected(bytes), got(bytes);
  cudaEvent_t before, after;
  must(cudaEventCreate(&before), "cudaEventCreate");
  must(cudaEventCreate(&after), "cudaEventCreate");
  for (int i = 0; i < count; i++) {
    cudaLibrary_t library;
    must(cudaLibraryLoadFromFile(&library, cubins[i], nullptr, nullptr, 0, nullptr, nullptr, 0), cubins[i]);
    must(cudaLibraryGetKernel(&variants[i].kernel, library, entry), entry);
    must(cudaFuncSetAttribute((const void *)variants[i].kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              Kernel::SharedStorageSize), "cudaFuncSetAttribute");
  }
  for (int round = 0; round < reps; round++) {
    for (int i = 0; i < count; i++) {
      must(cudaMemset(d, 0xcd, bytes), "cudaMemset");
      if (workspace && Kernel::initialize_workspace(arguments, workspace) != cutlass::Status::kSuccess) exit(3);
      cudaLaunchConfig_t config{};
      config.gridDim = Kernel::get_grid_shape(params);
      config.blockDim = Kernel::get_block_shape();
      config.dynamicSmemBytes = Kernel::SharedStorageSize;
      cudaLaunchAttribute attribute;
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim.x = cute::size<0>(Cluster{});
      attribute.val.clusterDim.y = cute::size<1>(Cluster{});
      attribute.val.clusterDim.z = cute::size<2>(Cluster{});
      config.attrs = &attribute;
      config.numAttrs = 1;
      void *pointers[] = {&params};
      must(cudaEventRecord(before), "cudaEventRecord");
      must(cudaLaunchKernelExC(&config, (const void *)variants[i].kernel, pointers), cubins[i]);
      must(cudaEventRecord(after), "cudaEventRecord");
      must(cudaDeviceSynchronize(), cubins[i]);
      float milliseconds;
      must(cudaEventElapsedTime(&milliseconds, before, after), "cudaEventElapsedTime");
      if (round) variants[i].times.push_back(milliseconds * 1000);
      if (round == 0 || round == reps - 1) {
        auto &into = round == 0 && i == 0 ? expected : got;
        must(cudaMemcpy(into.data(), d, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
        if (&into == &got && memcmp(expected.data(), got.data(), bytes)) variants[i].equal = false;
      }
    }
  }
  size_t written = bytes - std::count(expected.begin(), expected.end(), char(0xcd));
  for (int i = 0; i < count; i++) {
    std::sort(variants[i].times.begin(), variants[i].times.end());
    printf("{\"kernel\": \"%s\", \"cubin\": \"%s\", \"equal\": %s, \"microseconds\": %.2f, \"written\": %zu}\n", name, cubins[i],
           variants[i].equal ? "true" : "false", variants[i].times[reps / 2], written);
  }
  fflush(stdout);
  cudaFree(a), cudaFree(b), cudaFree(c), cudaFree(d), cudaFree(workspace);
}
"""


def entry_names(text):
    """The mangled entry of each kernel's namespace."""
    return {name: entry for entry in re.findall(r"\.entry\s+(\w+)", text)
            for length, name in re.findall(r"device_kernelIN(\d+)(\w+?)6KernelE", entry) if len(name) == int(length)}


def host_program(kernels, entries):
    names = [re.search(r"namespace (\w+) {", kernel)[1] for kernel in kernels]
    wanted = 'argc > 1 && (!strcmp(argv[1], "all") || !strcmp(argv[1], "{0}"))'
    calls = "".join(f'  if ({wanted.format(name)}) run<{name}::Kernel>("{name}", "{entries[name]}", argc - 2, argv + 2);\n'
                    for name in names if name in entries)
    # A kernel whose address is taken would be compiled for the device once more.
    kernels = [re.sub(r"void \*address\(\).*\n", "", kernel) for kernel in kernels]
    return cutlass_ptx.INCLUDES + HOST + "".join(kernels) + f"int main(int argc, char **argv) {{\n{calls}  return 0;\n}}\n"


def build(args):
    for name, kernels in cutlass_ptx.cases():
        ptx = args.folder / f"{name}.sm_90a.ptx"
        if not ptx.exists():
            continue
        for strategy in STRATEGIES:
            out = args.folder / f"{name}.{strategy}.ptx"
            subprocess.run([args.warpalloc, "alloc", ptx, f"--regalloc={strategy}", "--keep-going", "-o", out], check=True)
        program = args.folder / name
        if program.exists():
            continue
        source = args.folder / f"{name}.cu"
        source.write_text(host_program(kernels, entry_names(ptx.read_text())))
        # The toolkit from PyPI has its libraries in `lib`, where nvcc does not look.
        libraries = Path(args.nvcc).resolve().parent.parent / "lib"
        command = [args.nvcc, "-std=c++17", "-O1", "-L", libraries, "-arch=sm_90a", "--expt-relaxed-constexpr", "-DNDEBUG", "-w",
                   "-I", args.cutlass / "include", "-I", args.cutlass / "tools/util/include", "-o", program, source]
        subprocess.run(command, check=True)


def assembled(ptxas, ptx):
    cubin = ptx.with_suffix(".cubin")
    command = [ptxas, "-arch=sm_90a", "-o", cubin, ptx]
    subprocess.run(command, check=True, capture_output=True)
    return cubin


def mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))


def run(args):
    programs = sorted(path for path in args.folder.iterdir() if path.suffix == "" and os.access(path, os.X_OK) and path.is_file())
    texts = [args.folder / f"{program.name}.{kind}.ptx" for program in programs for kind in ["sm_90a", *STRATEGIES]]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda text: assembled(args.ptxas, text), texts))
    release = subprocess.run([args.ptxas, "--version"], capture_output=True, text=True).stdout.split()[-1]
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    print("# CUTLASS's warp-specialised products on a GPU\n")
    print(f"`bench/gpu/cutlass.py run`, on an {gpu} with ptxas {release}.\n")
    print("Each kernel was launched as it is and allocated at no cap, in turns, 21 rounds; every bit of the result was compared")
    print("with the original's. *Ratio*: median time over the original's.\n")
    print("| file | kernel | microseconds | " + " | ".join(f"{s}: equal | ratio" for s in STRATEGIES) + " |")
    print("|---" * (3 + 2 * len(STRATEGIES)) + "|")
    ratios = {strategy: [] for strategy in STRATEGIES}
    wrong = []
    for program in programs:
        cubins = [args.folder / f"{program.name}.{kind}.cubin" for kind in ["sm_90a", *STRATEGIES]]
        done = subprocess.run([program.resolve(), "all", *cubins], capture_output=True, text=True)
        if done.returncode:
            wrong.append(f"{program.name}: {done.stderr.strip()}")
        rows = {}
        for line in map(json.loads, done.stdout.splitlines()):
            if "error" in line:
                wrong.append(f"{program.name} {line['kernel']}: {line['error']}")
            else:
                rows.setdefault(line["kernel"], []).append(line)
        for kernel, variants in rows.items():
            original = variants[0]
            cells = []
            for strategy, variant in zip(STRATEGIES, variants[1:]):
                ratio = variant["microseconds"] / original["microseconds"]
                ratios[strategy].append(ratio)
                cells += ["yes" if variant["equal"] else "**no**", f"{ratio:.3f}"]
                if not variant["equal"]:
                    wrong.append(f"{program.name} {kernel}, {strategy}: different")
            if not original["equal"] or original["written"] == 0:
                wrong.append(f"{program.name} {kernel}: the original does not repeat itself or writes nothing")
            print(f"| {program.name} | {kernel} | {original['microseconds']} | " + " | ".join(cells) + " |")
    print()
    for strategy, found in ratios.items():
        if found:
            print(f"- `{strategy}`: {len(found)} kernels, geometric mean of ratios {mean(found):.3f}, worst {max(found):.3f}")
    for line in wrong:
        print(f"- {line}")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("build")
    command.add_argument("--cutlass", type=Path, required=True)
    command.add_argument("--nvcc", required=True)
    command.add_argument("--warpalloc", required=True)
    command.set_defaults(call=build)
    command.add_argument("folder", type=Path)
    command = commands.add_parser("run")
    command.add_argument("--ptxas", default="ptxas")
    command.set_defaults(call=run)
    command.add_argument("folder", type=Path)
    args = parser.parse_args()
    return args.call(args)


if __name__ == "__main__":
    sys.exit(main())
