// 64-bit and 128-bit values: vector loads and stores of four registers, 64-bit products with
// carries, and 128-bit integers. Pairs and quads must be aligned, which splits free space.

typedef unsigned long long u64;

// Four-limb Montgomery-style multiply-accumulate.
extern "C" __global__ void limbs(const ulonglong2* __restrict__ x,
                                 const ulonglong2* __restrict__ y,
                                 ulonglong2* __restrict__ z,
                                 int rounds) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    ulonglong2 x01 = x[2 * t], x23 = x[2 * t + 1], y01 = y[2 * t], y23 = y[2 * t + 1];
    u64 a[4] = {x01.x, x01.y, x23.x, x23.y};
    u64 b[4] = {y01.x, y01.y, y23.x, y23.y};
    for (int round = 0; round < rounds; round++) {
        u64 product[8] = {0};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u64 carry = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                unsigned __int128 s = (unsigned __int128)a[i] * b[j] + product[i + j] + carry;
                product[i + j] = (u64)s;
                carry = (u64)(s >> 64);
            }
            product[i + 4] = carry;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i] = product[i] ^ product[i + 4];
        }
    }
    z[2 * t] = make_ulonglong2(a[0], a[1]);
    z[2 * t + 1] = make_ulonglong2(a[2], a[3]);
}

// 64-bit carries through the condition-code register, which no allocator may disturb.
extern "C" __global__ void carries(const uint4* __restrict__ x, uint4* __restrict__ y) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    uint4 a = x[2 * t], b = x[2 * t + 1], s, d;
    asm("add.cc.u32 %0, %4, %8;\n\t"
        "addc.cc.u32 %1, %5, %9;\n\t"
        "addc.cc.u32 %2, %6, %10;\n\t"
        "addc.u32 %3, %7, %11;"
        : "=&r"(s.x), "=&r"(s.y), "=&r"(s.z), "=&r"(s.w)
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y), "r"(b.z), "r"(b.w));
    asm("sub.cc.u32 %0, %4, %8;\n\t"
        "subc.cc.u32 %1, %5, %9;\n\t"
        "subc.cc.u32 %2, %6, %10;\n\t"
        "subc.u32 %3, %7, %11;"
        : "=&r"(d.x), "=&r"(d.y), "=&r"(d.z), "=&r"(d.w)
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y), "r"(b.z), "r"(b.w));
    y[2 * t] = s;
    y[2 * t + 1] = d;
}

// Eight quads in flight at once, transposed, then written back.
extern "C" __global__ void quads(const uint4* __restrict__ x, uint4* __restrict__ y, int rounds) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    uint4 q[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        q[i] = x[t * 8 + i];
    }
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            uint4 a = q[i], b = q[i + 1], c = q[i + 2], d = q[i + 3];
            q[i] = make_uint4(a.x, b.x, c.x, d.x + round);
            q[i + 1] = make_uint4(a.y, b.y, c.y + a.x, d.y);
            q[i + 2] = make_uint4(a.z, b.z ^ d.y, c.z, d.z);
            q[i + 3] = make_uint4(a.w * 5, b.w, c.w, d.w);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        y[t * 8 + i] = q[i];
    }
}

#if __CUDA_ARCH__ >= 900
// Registers of type .b128, which exist for 128-bit exchanges; every thread owns its own cell.
extern "C" __global__ void exchange128(ulonglong2* cells, ulonglong2* old, int rounds) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    u64 low = t, high = ~(u64)t;
    for (int i = 0; i < rounds; i++) {
        asm volatile(
            "{\n\t"
            ".reg .b128 next, previous;\n\t"
            "mov.b128 next, {%0, %1};\n\t"
            "atom.global.exch.b128 previous, [%2], next;\n\t"
            "mov.b128 {%0, %1}, previous;\n\t"
            "}"
            : "+l"(low), "+l"(high)
            : "l"(cells + t)
            : "memory");
        low += high ^ i;
    }
    old[t] = make_ulonglong2(low, high);
}
#endif
