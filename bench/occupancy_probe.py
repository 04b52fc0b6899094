"""Ask the CUDA driver for the occupancy of every register count on the GPU at hand.

cuOccupancyMaxActiveBlocksPerMultiprocessor reads a kernel's register count from its cubin, so one
tiny kernel, patched to claim each count from 1 to 255, answers for all of them.

    python3 bench/occupancy_probe.py > crates/warpalloc/tests/data/occupancy_h200.txt

Needs a driver and Python, and ptxas if the driver brings no PTX compiler. A line of the answer reads
`SHARED BLOCK R1:B1 R2:B2 ...`: with SHARED bytes per block (all of it dynamic) and BLOCK threads,
B1 blocks fit while a thread uses up to R1 registers, B2 above that and up to R2, and so on.
"""

import ctypes as c
import glob
import os
import shutil
import struct
import subprocess
import sys
import tempfile

PTX = ".version 7.8\n.target sm_%d\n.address_size 64\n.visible .entry k() { ret; }\n"
BLOCKS = sorted([*range(32, 1025, 32), 1, 31, 33, 100, 500, 777, 1000, 1023])
KIB = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 56, 64, 75, 76, 96, 100, 113, 128, 160, 192, 226, 227]
SHARED = sorted([k * 1024 for k in KIB] + [1, 127, 128, 129, 1000, 6144 + 128, 9001, 49153, 115713, 232449, 233472])
DEVICE = {  # name in the output: CUdevice_attribute
    "registers_per_sm": 82,
    "registers_per_block": 12,
    "threads_per_sm": 39,
    "threads_per_block": 1,
    "blocks_per_sm": 106,
    "shared_per_sm": 81,
    "shared_per_block": 8,
    "shared_per_block_optin": 97,
    "reserved_shared_per_block": 111,
}
NUM_REGS, MAX_DYNAMIC_SHARED = 4, 8  # CUfunction_attribute
EIATTR_REGCOUNT = b"\x04\x2f\x08\x00"

cu = c.CDLL("libcuda.so.1")


def call(name, *args):
    rc = getattr(cu, name)(*args)
    if rc:
        raise RuntimeError(f"{name}: error {rc}")


def get(name, *args):
    out = c.c_int()
    call(name, c.byref(out), *args)
    return out.value


def compile_kernel(sm):
    ptx = (PTX % sm).encode()
    ptxas = shutil.which("ptxas") or next(iter(glob.glob("/usr/local/cuda*/bin/ptxas")), None)
    if ptxas:
        with tempfile.TemporaryDirectory() as d:
            source, cubin = os.path.join(d, "k.ptx"), os.path.join(d, "k.cubin")
            open(source, "wb").write(ptx)
            subprocess.run([ptxas, f"-arch=sm_{sm}", source, "-o", cubin], check=True)
            return open(cubin, "rb").read()
    link, cubin, size = c.c_void_p(), c.c_void_p(), c.c_size_t()
    call("cuLinkCreate_v2", 0, None, None, c.byref(link))
    call("cuLinkAddData_v2", link, 1, ptx + b"\0", c.c_size_t(len(ptx) + 1), b"k", 0, None, None)
    call("cuLinkComplete", link, c.byref(cubin), c.byref(size))
    return c.string_at(cubin, size.value)


def with_registers(cubin, registers):
    """The cubin, claiming that count in the text section's sh_info and in EIATTR_REGCOUNT."""
    image = bytearray(cubin)
    table, = struct.unpack_from("<Q", image, 40)
    entry, count, names = struct.unpack_from("<HHH", image, 58)
    headers = [table + i * entry for i in range(count)]
    strings, = struct.unpack_from("<Q", image, headers[names] + 24)
    patched = 0
    for header in headers:
        name = strings + struct.unpack_from("<I", image, header)[0]
        name = bytes(image[name:image.index(0, name)])
        offset, size = struct.unpack_from("<QQ", image, header + 24)
        if name == b".text.k":
            image[header + 47] = registers
            patched |= 1
        elif name == b".nv.info":
            at = image.index(EIATTR_REGCOUNT, offset, offset + size)
            struct.pack_into("<I", image, at + 8, registers)
            patched |= 2
    assert patched == 3, "no text section or no register count in the cubin"
    return bytes(image)


def load(cubin, registers, opt_in):
    module, kernel = c.c_void_p(), c.c_void_p()
    call("cuModuleLoadData", c.byref(module), with_registers(cubin, registers))
    call("cuModuleGetFunction", c.byref(kernel), module, b"k")
    claimed = get("cuFuncGetAttribute", NUM_REGS, kernel)
    if claimed != registers:
        print(f"the driver sees {claimed} registers, not {registers}", file=sys.stderr)
    call("cuFuncSetAttribute", kernel, MAX_DYNAMIC_SHARED, opt_in)
    return kernel


def runs(answers):
    """(registers, blocks) pairs, keeping the last of each run of equal answers."""
    kept = [a for a, b in zip(answers, answers[1:] + [(0, None)]) if a[1] != b[1]]
    return " ".join(f"{r}:{b}" for r, b in kept)


def main():
    call("cuInit", 0)
    context, name = c.c_void_p(), c.create_string_buffer(64)
    call("cuDevicePrimaryCtxRetain", c.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuDeviceGetName", name, 64, 0)
    sm = get("cuDeviceGetAttribute", 75, 0) * 10 + get("cuDeviceGetAttribute", 76, 0)
    device = {k: get("cuDeviceGetAttribute", v, 0) for k, v in DEVICE.items()}
    cubin = compile_kernel(sm)
    opt_in = device["shared_per_block_optin"]
    kernels = [(r, load(cubin, r, opt_in)) for r in range(1, 256)]
    print(f"# cuOccupancyMaxActiveBlocksPerMultiprocessor on an {name.value.decode()}, driver API {get('cuDriverGetVersion')}.")
    print("# SHARED BLOCK R1:B1 R2:B2 ...: B1 blocks per SM up to R1 registers per thread, B2 up to R2, ...")
    print(f"sm {sm}")
    for key, value in device.items():
        print(key, value)
    ask = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    for shared in SHARED:
        for block in BLOCKS:
            answers = [(r, get(ask, k, block, c.c_size_t(shared))) for r, k in kernels]
            print(shared, block, runs(answers))
    for block in (0, 1025, 2048):  # outside the grid: only the driver's reaction, not data
        blocks = c.c_int(-1)
        rc = getattr(cu, ask)(c.byref(blocks), kernels[31][1], block, c.c_size_t(0))
        print(f"block {block}: error {rc}, blocks {blocks.value}", file=sys.stderr)


if __name__ == "__main__":
    main()
