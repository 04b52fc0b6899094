// Powers modulo odd numbers of 512 bits by Montgomery's products of 16 words, every thread with a modulus of its own:
// integers, wide products and carries, 48 words around a loop over the bits of an exponent.

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int WORDS = 16;

// `a` times `b` over 2^512, less than the modulus if both are. `inverse` times the modulus is -1 modulo 2^32.
__device__ __forceinline__ void
product(u32 (&out)[WORDS], const u32 (&a)[WORDS], const u32 (&b)[WORDS], const u32 (&modulus)[WORDS], u32 inverse) {
    u32 sum[WORDS + 1] = {};
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        u64 wide = 0;
#pragma unroll
        for (int j = 0; j < WORDS; j++) {
            wide = (u64)a[j] * b[i] + sum[j] + (wide >> 32);
            sum[j] = (u32)wide;
        }
        u64 top = (wide >> 32) + sum[WORDS];
        u32 factor = sum[0] * inverse;
        wide = (u64)factor * modulus[0] + sum[0];
#pragma unroll
        for (int j = 1; j < WORDS; j++) {
            wide = (u64)factor * modulus[j] + sum[j] + (wide >> 32);
            sum[j - 1] = (u32)wide;
        }
        top += wide >> 32;
        sum[WORDS - 1] = (u32)top;
        sum[WORDS] = (u32)(top >> 32);
    }
    u32 less[WORDS], borrow = 0;
#pragma unroll
    for (int n = 0; n < WORDS; n++) {
        u64 difference = (u64)sum[n] - modulus[n] - borrow;
        less[n] = (u32)difference;
        borrow = (u32)(difference >> 63);
    }
    bool keep = sum[WORDS] < borrow;
#pragma unroll
    for (int n = 0; n < WORDS; n++) {
        out[n] = keep ? sum[n] : less[n];
    }
}

// Bases and results are in Montgomery's form. The exponent has its highest bit at place `bits`.
extern "C" __global__ void powers(int bits,
                                  int exponent,
                                  const u32* __restrict__ moduli,
                                  const u32* __restrict__ bases,
                                  u32* __restrict__ out) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    u32 modulus[WORDS], base[WORDS], power[WORDS];
#pragma unroll
    for (int n = 0; n < WORDS; n++) {
        modulus[n] = moduli[n * threads + thread];
        base[n] = bases[n * threads + thread];
    }
    modulus[0] |= 1;
    modulus[WORDS - 1] |= 0x80000000;
    base[WORDS - 1] &= 0x7fffffff;
    u32 inverse = modulus[0];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        inverse *= 2 - modulus[0] * inverse;
    }
    inverse = -inverse;
#pragma unroll
    for (int n = 0; n < WORDS; n++) {
        power[n] = base[n];
    }
#pragma unroll 1
    for (int bit = bits - 1; bit >= 0; bit--) {
        product(power, power, power, modulus, inverse);
        if (exponent >> bit & 1) {
            product(power, power, base, modulus, inverse);
        }
    }
#pragma unroll
    for (int n = 0; n < WORDS; n++) {
        out[n * threads + thread] = power[n];
    }
}
