#!/usr/bin/env python3
"""Measures what the judge's table of constants holds: latencies, and how fast cold code arrives.

Needs a GPU, CuPy and ptxas. Prints Markdown.

    bench/judge_probe.py --ptxas PTXAS [--arch sm_90] > bench/results/judge.md
"""

import argparse
import pathlib
import statistics
import subprocess
import tempfile

HEAD = ".version 8.0\n.target {arch}\n.address_size 64\n"
CHAIN = 64
TIMES = 16


def chain(space):
    """A chain of loads, each of which gives the address of the next: its own."""
    wide = space.startswith(("global", "local"))
    reg, bits = ("%rd", "u64") if wide else ("%r", "u32")
    declare = {
        "shared": ".shared .align 8 .b8 cell[64];",
        "local": ".local .align 8 .b8 cell[64];",
    }.get(space, "")
    address = (
        f"mov.{bits} {reg}1, cell;" if declare else "ld.param.u64 %rd1, [p1];\n\tcvta.to.global.u64 %rd1, %rd1;"
    )
    load = {"global.l1": "ld.global.ca", "global.l2": "ld.global.cg"}.get(space, f"ld.{space}")
    store = "st.global" if space.startswith("global") else f"st.{space}"
    loads = "\n".join(f"\t{load}.{bits} {reg}1, [{reg}1];" for _ in range(CHAIN))
    return f""".entry k(.param .u64 p0, .param .u64 p1) {{
	.reg .b32 %r<8>;
	.reg .b64 %rd<8>;
	.reg .pred %p<2>;
	{declare}
	{address}
	{store}.{bits} [{reg}1], {reg}1;
	bar.sync 0;
	mov.u32 %r2, 0;
again:
	mov.u32 %r3, %clock;
{loads}
	mov.u32 %r4, %clock;
	sub.u32 %r5, %r4, %r3;
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, {TIMES};
	@%p1 bra again;
	ld.param.u64 %rd2, [p0];
	cvta.to.global.u64 %rd2, %rd2;
	{"cvt.u32.u64 %r6, %rd1;" if wide else "mov.u32 %r6, %r1;"}
	st.global.u32 [%rd2], %r5;
	st.global.u32 [%rd2+4], %r6;
	ret;
}}
"""


def straight(count):
    """`count` independent additions in a loop of two iterations; both are timed."""
    adds = "\n".join(f"\tadd.rn.f32 %f{i % 16 + 1}, %f{i % 16 + 1}, %f0;" for i in range(count))
    init = "\n".join(f"\tcvt.rn.f32.u32 %f{i}, %r1;" for i in range(17))
    total = "\n".join(f"\tadd.rn.f32 %f1, %f1, %f{i + 1};" for i in range(1, 16))
    return f""".entry k(.param .u64 p0, .param .u64 p1) {{
	.reg .b32 %r<8>;
	.reg .f32 %f<20>;
	.reg .b64 %rd<8>;
	.reg .pred %p<2>;
	ld.param.u64 %rd2, [p0];
	cvta.to.global.u64 %rd2, %rd2;
	mov.u32 %r1, %tid.x;
{init}
	mov.u32 %r2, 0;
again:
	mov.u32 %r3, %clock;
	bar.warp.sync -1;
{adds}
	bar.warp.sync -1;
	mov.u32 %r4, %clock;
	sub.u32 %r5, %r4, %r3;
	st.volatile.global.u32 [%rd2], %r5;
	add.s64 %rd2, %rd2, 4;
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, 2;
	@%p1 bra again;
{total}
	st.global.f32 [%rd2], %f1;
	ret;
}}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--arch", default="sm_90")
    args = parser.parse_args()
    import cupy

    def run(text, warps=1):
        with tempfile.TemporaryDirectory() as folder:
            ptx, cubin = pathlib.Path(folder, "k.ptx"), pathlib.Path(folder, "k.cubin")
            ptx.write_text(HEAD.format(arch=args.arch) + text)
            subprocess.run([args.ptxas, "-arch", args.arch, "-o", cubin, ptx], check=True)
            module = cupy.RawModule(path=str(cubin))
            kernel = module.get_function("k")
            out = cupy.zeros(64, dtype=cupy.uint32)
            cell = cupy.zeros(64, dtype=cupy.uint64)
            kernel((1,), (32 * warps,), (out, cell))
            cupy.cuda.Device().synchronize()
            return [int(x) for x in out.get()[:2]]

    print("# What the judge's constants were measured by\n")
    print("```sh\nbench/judge_probe.py --ptxas PTXAS > bench/results/judge.md\n```\n")
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"{name}, {args.arch}. Cycles from a load to the load that needs it, one warp, medians of 5 launches.\n")
    print("| load | cycles |\n|---|---|")
    for space in ("shared", "local", "global.l1", "global.l2"):
        cycles = statistics.median(run(chain(space))[0] for _ in range(5))
        print(f"| {space} | {cycles / CHAIN:.1f} |")
    print("\nCycles per instruction of straight-line code, one warp: the first time, and again.\n")
    print("| instructions | first | again |\n|---|---|---|")
    for count in (256, 512, 1024, 2048, 4096, 8192, 16384):
        first, again = run(straight(count))
        print(f"| {count} | {first / count:.2f} | {again / count:.2f} |")


if __name__ == "__main__":
    main()
