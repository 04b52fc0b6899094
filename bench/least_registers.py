#!/usr/bin/env python3
"""The fewest registers with which ptxas assembles each kind of matrix instruction.

One kernel per instruction is assembled with `.maxnreg 24` and up; the first cap that ptxas takes
is printed. `crates/warpalloc-ptx/src/least.rs` has the rules that these numbers follow.

    bench/least_registers.py --ptxas "$(scripts/get-ptxas.sh)"
"""

import argparse
import pathlib
import subprocess
import tempfile


def names(stem, count):
    return [f"%{stem}{i}" for i in range(count)]


def braces(registers):
    return "{" + ", ".join(registers) + "}"


def loads(registers, kind):
    return "".join(f"ld.global.{kind} {r}, [%p+{8 * i}];\n" for i, r in enumerate(registers))


def stores(registers, kind):
    return "".join(f"st.global.{kind} [%p+{8 * i}], {r};\n" for i, r in enumerate(registers))


def mma(kind, d, a, b, types, width="32"):
    d, a, b = names(f"d{width}_", d), names(f"a{width}_", a), names(f"b{width}_", b)
    code = "".join(loads(r, f"b{width}") for r in (d, a, b))
    code += f"mma.sync.aligned.{kind}.row.col.{types} {braces(d)}, {braces(a)}, {braces(b)}, {braces(d)};\n"
    return "sm_90", code + stores(d, f"b{width}")


def sparse_mma():
    d, a, b = names("d32_", 4), names("a32_", 4), names("b32_", 4)
    code = "".join(loads(r, "b32") for r in (d, a, b)) + "ld.global.b32 %e, [%p];\n"
    code += ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 "
             f"{braces(d)}, {braces(a)}, {braces(b)}, {braces(d)}, %e, 0;\n")
    return "sm_90", code + stores(d, "b32")


def wmma():
    d, a, b = names("d32_", 8), names("a32_", 8), names("b32_", 8)
    code = "".join(loads(r, "b32") for r in (d, a, b))
    code += f"wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {braces(d)}, {braces(a)}, {braces(b)}, {braces(d)};\n"
    return "sm_90", code + stores(d, "b32")


def wgmma(columns, in_registers, sparse=False):
    d, a = names("d32_", columns // 2), names("a32_", 4)
    code = loads(d, "b32") + loads(a, "b32")
    code += "ld.global.b64 %x, [%p];\nld.global.b64 %y, [%p+8];\nld.global.b32 %e, [%p];\n"
    left, flags = (braces(a), "1, 1, 1, 0") if in_registers else ("%x", "1, 1, 1, 0, 0")
    more, k = (".sp", 32) if sparse else ("", 16)
    metadata = "%e, 0, " if sparse else ""
    code += "wgmma.fence.sync.aligned;\n"
    code += (f"wgmma.mma_async{more}.sync.aligned.m64n{columns}k{k}.f32.f16.f16 "
             f"{braces(d)}, {left}, %y, {metadata}{flags};\n")
    code += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
    return "sm_90a", code + stores(d, "b32")


def tensor_memory(count, load):
    registers = names("d32_", count)
    if load:
        code = f"tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {braces(registers)}, [%e];\n"
        code += "tcgen05.wait::ld.sync.aligned;\n" + stores(registers, "b32")
    else:
        code = loads(registers, "b32")
        code += f"tcgen05.st.sync.aligned.32x32b.x{count}.b32 [%e], {braces(registers)};\n"
        code += "tcgen05.wait::st.sync.aligned;\n"
    return "sm_100a", "ld.global.b32 %e, [%p];\n" + code


CASES = {
    "add": ("sm_90", "ld.global.b32 %e, [%p];\nadd.u32 %e, %e, 1;\nst.global.b32 [%p], %e;\n"),
    "mma m16n8k8 bf16": mma("m16n8k8", 4, 2, 1, "f32.bf16.bf16.f32"),
    "mma m16n8k16 bf16": mma("m16n8k16", 4, 4, 2, "f32.bf16.bf16.f32"),
    "mma m16n8k16 f16": mma("m16n8k16", 2, 4, 2, "f16.f16.f16.f16"),
    "mma m16n8k32 s8": mma("m16n8k32", 4, 4, 2, "s32.s8.s8.s32"),
    "mma m8n8k4 f64": mma("m8n8k4", 2, 1, 1, "f64.f64.f64.f64", "64"),
    "mma m16n8k4 f64": mma("m16n8k4", 4, 2, 1, "f64.f64.f64.f64", "64"),
    "mma m16n8k8 f64": mma("m16n8k8", 4, 4, 2, "f64.f64.f64.f64", "64"),
    "mma m16n8k16 f64": mma("m16n8k16", 4, 8, 4, "f64.f64.f64.f64", "64"),
    "mma.sp m16n8k32 bf16": sparse_mma(),
    "wmma m16n16k16": wmma(),
    **{f"wgmma n{n}, A in {'registers' if r else 'shared memory'}": wgmma(n, r)
       for n in (8, 32, 64, 128, 256) for r in (False, True)},
    "wgmma.sp n64, A in shared memory": wgmma(64, False, True),
    "wgmma.sp n64, A in registers": wgmma(64, True, True),
    **{f"tcgen05.{'ld' if load else 'st'} x{n}": tensor_memory(n, load)
       for n in (4, 8, 16, 32, 64, 128) for load in (True, False)},
}


def kernel(arch, code, cap):
    return (f".version 8.8\n.target {arch}\n.address_size 64\n"
            f".visible .entry k(.param .b64 p)\n.maxnreg {cap}\n{{\n"
            ".reg .b64 %p, %x, %y, %d64_<9>, %a64_<9>, %b64_<9>;\n"
            ".reg .b32 %e, %d32_<129>, %a32_<9>, %b32_<9>;\n"
            f"ld.param.b64 %p, [p];\n{code}ret;\n}}\n")


def least(ptxas, folder, arch, code):
    source = folder / "k.ptx"
    for cap in range(24, 256):
        source.write_text(kernel(arch, code, cap))
        command = [ptxas, "-arch", arch, source, "-o", folder / "k.cubin"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return cap
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ptxas", default="ptxas")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, (arch, code) in CASES.items():
            print(f"{name:<36} {least(args.ptxas, pathlib.Path(folder), arch, code)}")


if __name__ == "__main__":
    main()
