#!/usr/bin/env python3
"""Writes PTX that Triton makes of the kernels below; no GPU is needed.

    python3 -m venv venv && venv/bin/pip install triton==3.9.0
    venv/bin/python bench/triton_ptx.py FOLDER [sm ...]        (default: 80 90 100 120)

One file per kernel and target, named KERNEL.sm_NN.ptx. Combinations that Triton itself
cannot compile are named and left out.
"""

import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(a, b, c, m, n, k, stride_a, stride_b, stride_c,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TF32: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_at = a + row[:, None] * stride_a + depth[None, :]
    b_at = b + depth[:, None] * stride_b + col[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float64 if a.dtype.element_ty == tl.float64 else tl.float32)
    for step in range(0, tl.cdiv(k, BK)):
        left = k - step * BK
        x = tl.load(a_at, mask=depth[None, :] < left, other=0.0)
        y = tl.load(b_at, mask=depth[:, None] < left, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="tf32" if TF32 else "ieee")
        a_at += BK
        b_at += BK * stride_b
    c_at = c + row[:, None] * stride_c + col[None, :]
    tl.store(c_at, acc.to(c.dtype.element_ty), mask=(row[:, None] < m) & (col[None, :] < n))


@triton.jit
def matmul_registers(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The left operand is computed on, so that it comes from registers."""
    row, col, depth = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, k, BK):
        x = tl.load(a + row[:, None] * k + step + depth[None, :]).to(tl.float16)
        y = tl.load(b + (step + depth)[:, None] * BN + col[None, :])
        acc = tl.dot(tl.exp2(x.to(tl.float32)).to(tl.float16), y, acc)
    tl.store(c + row[:, None] * BN + col[None, :], acc)


@triton.jit
def matmul_descriptors(a, b, c, m, n, k,
                       BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPECIAL: tl.constexpr):
    a_tile = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    b_tile = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BN, BK])
    c_tile = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in tl.range(0, k, BK, warp_specialize=SPECIAL):
        acc = tl.dot(a_tile.load([row, step]), b_tile.load([col, step]).T, acc)
    c_tile.store([row, col], acc.to(c.dtype.element_ty))


@triton.jit
def attention(q, k, v, o, length, scale,
              BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    start = tl.program_id(0) * BM
    row, dim, col = start + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    base = tl.program_id(1).to(tl.int64) * length * D
    query = tl.load(q + base + row[:, None] * D + dim[None, :])
    best = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = start + BM if CAUSAL else length
    for at in range(0, end, BN):
        keys = tl.load(k + base + (at + col)[None, :] * D + dim[:, None])
        score = tl.dot(query, keys) * scale
        if CAUSAL:
            score = tl.where(row[:, None] >= (at + col)[None, :], score, float("-inf"))
        new = tl.maximum(best, tl.max(score, 1))
        weight = tl.exp2(score - new[:, None])
        shrink = tl.exp2(best - new)
        total = total * shrink + tl.sum(weight, 1)
        values = tl.load(v + base + (at + col)[:, None] * D + dim[None, :])
        acc = tl.dot(weight.to(values.dtype), values, acc * shrink[:, None])
        best = new
    tl.store(o + base + row[:, None] * D + dim[None, :], (acc / total[:, None]).to(o.dtype.element_ty))


@triton.jit
def softmax(x, y, columns, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * stride + at, mask=at < columns, other=-float("inf"))
    power = tl.exp(row - tl.max(row, 0))
    tl.store(y + tl.program_id(0) * stride + at, power / tl.sum(power, 0), mask=at < columns)


@triton.jit
def layer_norm(x, y, w, b, mean, rstd, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for off in range(0, columns, BLOCK):
        at = off + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    centre = tl.sum(total, 0) / columns
    square = tl.zeros([BLOCK], tl.float32)
    for off in range(0, columns, BLOCK):
        at = off + tl.arange(0, BLOCK)
        value = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        value = tl.where(at < columns, value - centre, 0.0)
        square += value * value
    scale = tl.rsqrt(tl.sum(square, 0) / columns + eps)
    tl.store(mean + row, centre)
    tl.store(rstd + row, scale)
    for off in range(0, columns, BLOCK):
        at = off + tl.arange(0, BLOCK)
        inside = at < columns
        value = tl.load(x + row * columns + at, mask=inside).to(tl.float32)
        result = (value - centre) * scale * tl.load(w + at, mask=inside) + tl.load(b + at, mask=inside)
        tl.store(y + row * columns + at, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def atomics(x, counts, locks, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.atomic_add(out + at % 64, value, mask=at < n)
    tl.atomic_max(counts + at % 32, at, mask=at < n)
    tl.atomic_xchg(counts + 32 + at % 32, at, mask=at < n)
    while tl.atomic_cas(locks, 0, 1, sem="acquire") == 1:
        pass
    old = tl.load(out + 64)
    tl.store(out + 64, old + tl.sum(value, 0))
    tl.atomic_xchg(locks, 0, sem="release")


@triton.jit
def pair_up(a0, b0, a1, b1):
    return a0 * a1, b0 * a1 + b1


@triton.jit
def scans(x, y, z, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    value = tl.load(x + at)
    tl.store(y + at, tl.cumsum(value, 1))
    gate, state = tl.associative_scan((value, value + 1.0), 1, pair_up, reverse=True)
    tl.store(z + at, gate + state)


@triton.jit
def larger(value1, index1, value2, index2):
    take = (value1 > value2) | ((value1 == value2) & (index1 < index2))
    return tl.where(take, value1, value2), tl.where(take, index1, index2)


@triton.jit
def reductions(x, best, where, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    value = tl.load(x + at)
    most, index = tl.reduce((value, at % BLOCK), 1, larger)
    tl.store(best + tl.arange(0, ROWS), most)
    tl.store(where + tl.arange(0, ROWS), index)
    tl.store(where + ROWS + tl.arange(0, ROWS), tl.argmin(value, 1))
    tl.store(best + ROWS, tl.xor_sum(value.to(tl.int32), None).to(tl.float32))


@triton.jit
def dropout(x, y, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    keep = tl.rand(seed, at) > p
    noise = tl.randn(seed + 1, at)
    tl.store(y + at, tl.where(keep, value / (1 - p) + noise, 0.0), mask=at < n)


@triton.jit
def sorting(x, y, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(y + at, tl.sort(tl.load(x + at), descending=True))


@triton.jit
def gathers(x, index, y, h, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(y + at, tl.gather(tl.load(x + at), tl.load(index + at), 1))
    tl.store(h + tl.arange(0, 64), tl.histogram(tl.reshape(tl.load(index + at), [ROWS * BLOCK]), 64))


@triton.jit
def collatz(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    steps = tl.zeros([BLOCK], tl.int32)
    while tl.max(value, 0) > 1:
        odd = (value & 1) == 1
        alive = value > 1
        value = tl.where(alive, tl.where(odd, 3 * value + 1, value // 2), value)
        steps += alive.to(tl.int32)
    tl.store(y + at, steps)


@triton.jit
def special_functions(x, y, d, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=1.0)
    result = tl.sin(value) + tl.cos(value) * tl.log(value) + tl.erf(value) + tl.sqrt_rn(value)
    wide = tl.load(d + at, mask=at < n, other=1.0)
    tl.store(d + at, tl.exp(wide) / tl.sqrt(wide) + tl.div_rn(result, value).to(tl.float64), mask=at < n)
    tl.store(y + at, tl.floor(result) + tl.fma(value, value, result), mask=at < n)


@triton.jit
def small_types(a, b, c, d, e, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    byte = tl.load(a + at, mask=inside)
    half = tl.load(b + at, mask=inside)
    brain = tl.load(c + at, mask=inside)
    tl.store(d + at, (half * brain.to(tl.float16)).to(tl.float8e5), mask=inside)
    tl.store(a + at, (byte >> 1) ^ brain.to(tl.int8), mask=inside)
    tl.store(e + at, (half.to(tl.float32) + byte).to(tl.bfloat16), mask=inside)


@triton.jit
def own_assembly(x, y, z, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    sums, spread = tl.inline_asm_elementwise(
        """
        {
            .reg .b32 t<3>;
            .reg .pred p;
            prmt.b32 t0, $2, 0, 0x4140;
            prmt.b32 t1, $2, 0, 0x4342;
            vabsdiff4.u32.u32.u32.add $0, t0, t1, t0;
            setp.gt.u32 p, $0, 100;
            @p mov.b32 t2, $2;
            @!p mov.b32 t2, t0;
            mov.b32 $1, t2;
        }
        """,
        "=r,=r,r", [tl.load(x + at)], dtype=(tl.int32, tl.int32), is_pure=True, pack=1)
    tl.store(y + at, sums)
    tl.store(z + at, spread)


def matmul_case(kind, out, bm, bn, bk, warps, stages, tf32=False, maxnreg=None):
    types = [kind, kind, out] + ["i32"] * 6
    return matmul, types, dict(BM=bm, BN=bn, BK=bk, TF32=tf32), dict(
        num_warps=warps, num_stages=stages, **({"maxnreg": maxnreg} if maxnreg else {}))


CASES = {
    "matmul_fp16_64": matmul_case("*fp16", "*fp16", 64, 64, 32, 4, 3),
    "matmul_fp16_128": matmul_case("*fp16", "*fp16", 128, 128, 64, 4, 3),
    "matmul_fp16_256": matmul_case("*fp16", "*fp32", 128, 256, 64, 8, 3),
    "matmul_fp16_capped": matmul_case("*fp16", "*fp16", 128, 128, 64, 8, 4, maxnreg=128),
    "matmul_fp16_unpiped": matmul_case("*fp16", "*fp16", 64, 128, 64, 4, 1),
    "matmul_bf16_128": matmul_case("*bf16", "*bf16", 128, 128, 64, 8, 4),
    "matmul_bf16_256": matmul_case("*bf16", "*bf16", 256, 128, 64, 8, 3),
    "matmul_tf32_128": matmul_case("*fp32", "*fp32", 128, 128, 32, 8, 3, tf32=True),
    "matmul_fp32_64": matmul_case("*fp32", "*fp32", 64, 64, 16, 4, 2),
    "matmul_fp8_128": matmul_case("*fp8e5", "*fp16", 128, 128, 128, 8, 3),
    "matmul_fp8e4_256": matmul_case("*fp8e4nv", "*bf16", 128, 256, 128, 8, 3),
    "matmul_fp64": matmul_case("*fp64", "*fp64", 32, 32, 16, 4, 2),
    "matmul_registers": (matmul_registers, ["*fp32", "*fp16", "*fp32", "i32"],
                         dict(BM=128, BN=128, BK=64), dict(num_warps=4, num_stages=2)),
    "matmul_descriptors": (matmul_descriptors, ["*fp16"] * 3 + ["i32"] * 3,
                           dict(BM=128, BN=128, BK=64, SPECIAL=False), dict(num_warps=4, num_stages=3)),
    "matmul_specialised": (matmul_descriptors, ["*fp16"] * 3 + ["i32"] * 3,
                           dict(BM=128, BN=128, BK=64, SPECIAL=True), dict(num_warps=4, num_stages=3)),
    "matmul_specialised_256": (matmul_descriptors, ["*bf16"] * 3 + ["i32"] * 3,
                               dict(BM=128, BN=256, BK=64, SPECIAL=True), dict(num_warps=8, num_stages=3)),
    "attention_64": (attention, ["*fp16"] * 4 + ["i32", "fp32"],
                     dict(BM=64, BN=64, D=64, CAUSAL=False), dict(num_warps=4, num_stages=2)),
    "attention_128": (attention, ["*bf16"] * 4 + ["i32", "fp32"],
                      dict(BM=128, BN=64, D=128, CAUSAL=True), dict(num_warps=8, num_stages=3)),
    "attention_128_4": (attention, ["*fp16"] * 4 + ["i32", "fp32"],
                        dict(BM=128, BN=128, D=64, CAUSAL=True), dict(num_warps=4, num_stages=2)),
    "softmax": (softmax, ["*fp32", "*fp32", "i32", "i32"], dict(BLOCK=4096), dict(num_warps=8)),
    "softmax_small": (softmax, ["*fp16", "*fp16", "i32", "i32"], dict(BLOCK=256), dict(num_warps=1)),
    "layer_norm": (layer_norm, ["*fp16", "*fp16", "*fp32", "*fp32", "*fp32", "*fp32", "i32", "fp32"],
                   dict(BLOCK=2048), dict(num_warps=8)),
    "atomics": (atomics, ["*fp32", "*i32", "*i32", "*fp32", "i32"], dict(BLOCK=512), {}),
    "atomics_half": (atomics, ["*fp16", "*i32", "*i32", "*fp16", "i32"], dict(BLOCK=512), {}),
    "scans": (scans, ["*fp32"] * 3, dict(BLOCK=256, ROWS=8), {}),
    "reductions": (reductions, ["*fp32", "*fp32", "*i32"], dict(ROWS=16, BLOCK=256), {}),
    "dropout": (dropout, ["*fp32", "*fp32", "i32", "fp32", "i32"], dict(BLOCK=1024), {}),
    "sorting": (sorting, ["*fp32", "*fp32"], dict(ROWS=4, BLOCK=512), {}),
    "sorting_wide": (sorting, ["*i64", "*i64"], dict(ROWS=2, BLOCK=256), {}),
    "gathers": (gathers, ["*fp32", "*i32", "*fp32", "*i32"], dict(ROWS=16, BLOCK=64), {}),
    "collatz": (collatz, ["*i64", "*i32"], dict(BLOCK=256), {}),
    "special_functions": (special_functions, ["*fp32", "*fp32", "*fp64", "i32"], dict(BLOCK=512), {}),
    "small_types": (small_types, ["*i8", "*fp16", "*bf16", "*fp8e5", "*bf16", "i32"], dict(BLOCK=1024), {}),
    "own_assembly": (own_assembly, ["*i32"] * 3, dict(BLOCK=512), {}),
}


def scratch(size, alignment, stream):
    raise RuntimeError("nothing is launched here")


def compiled(name, sm):
    kernel, types, constants, options = CASES[name]
    names = [n for n in kernel.arg_names if n not in constants]
    signature = dict(zip(names, types)) | {n: "constexpr" for n in constants}
    # Pointers and sizes are multiples of 16, as Triton finds them at most launches.
    aligned = {(kernel.arg_names.index(n),): [["tt.divisibility", 16]]
               for n, t in zip(names, types) if t[0] == "*" or t == "i32"}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", sm, 32), options=options)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    triton.set_allocator(scratch)
    for sm in [int(a) for a in sys.argv[2:]] or [80, 90, 100, 120]:
        for name in CASES:
            try:
                text = compiled(name, sm).asm["ptx"]
            except Exception as error:  # Triton raises many kinds
                lines = str(error).strip().splitlines() or [type(error).__name__]
                print(f"{name} sm_{sm}: {lines[-1]}", file=sys.stderr)
                continue
            (folder / f"{name}.sm_{sm}.ptx").write_text(text)


if __name__ == "__main__":
    main()
