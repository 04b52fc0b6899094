// Products of polynomials of 1,024 coefficients modulo x^1024 - 1 over the prime 2^64 - 2^32 + 1, with
// one that was transformed beforehand: a number-theoretic transform and the one back, as four passes
// of radix 32 with 32 values of 64 bits per thread. The roots of unity within a pass are powers of
// two; a pass ends with a product by a table, every other one with a transposition in shared memory.

typedef unsigned long long u64;

constexpr int RADIX = 32, ROWS = 4, PITCH = RADIX + 1, POINTS = RADIX * RADIX;
constexpr u64 PRIME = 0xffffffff00000001;

__device__ __forceinline__ u64 sum(u64 a, u64 b) {
    u64 s = a + b;
    return s < a || s >= PRIME ? s - PRIME : s;
}

__device__ __forceinline__ u64 difference(u64 a, u64 b) {
    u64 d = a - b;
    return a < b ? d + PRIME : d;
}

// 2^64 is 2^32 - 1 and 2^96 is -1.
__device__ __forceinline__ u64 reduced(u64 low, u64 high) {
    u64 top = high >> 32, middle = high & 0xffffffff;
    u64 a = low - top;
    a = low < top ? a + PRIME : a;
    u64 b = (middle << 32) - middle, s = a + b;
    s = s < b ? s + 0xffffffff : s;
    return s >= PRIME ? s - PRIME : s;
}

__device__ __forceinline__ u64 product(u64 a, u64 b) {
    return reduced(a * b, __umul64hi(a, b));
}

__device__ __forceinline__ u64 shifted(u64 a, int by) {
    if (by >= 64) {
        a = reduced(a << 48, a >> 16);
        by -= 48;
    }
    return by == 0 ? a : reduced(a << by, a >> (64 - by));
}

__device__ __forceinline__ constexpr int reversed(int i) {
    return (i & 1) << 4 | (i & 2) << 2 | (i & 4) | (i & 8) >> 2 | (i & 16) >> 4;
}

// Value k of the transform ends at place reversed(k). The root is 2^6.
__device__ __forceinline__ void transform(u64 (&v)[RADIX]) {
#pragma unroll
    for (int half = RADIX / 2; half > 0; half /= 2) {
#pragma unroll
        for (int i = 0; i < RADIX; i++) {
            if ((i & half) == 0) {
                u64 a = v[i], b = v[i + half];
                v[i] = sum(a, b);
                v[i + half] = shifted(difference(a, b), i % half * (RADIX / 2 / half) * 6);
            }
        }
    }
}

// `tables` holds the factors after each pass: roots of unity, the other polynomial's transform by
// 1/1024, the roots again, and ones.
extern "C" __global__ void ntt_product(const u64* __restrict__ tables,
                                       const u64* __restrict__ input,
                                       u64* __restrict__ output) {
    __shared__ u64 tile[ROWS][RADIX * PITCH];
    int column = threadIdx.x % RADIX, row = threadIdx.x / RADIX;
    size_t first = (size_t)(blockIdx.x * ROWS + row) * POINTS + column;
    u64 v[RADIX];
#pragma unroll
    for (int i = 0; i < RADIX; i++) {
        u64 word = input[first + i * RADIX];
        v[i] = word >= PRIME ? word - PRIME : word;
    }
#pragma unroll 1
    for (int pass = 0; pass < 4; pass++) {
        transform(v);
        const u64* factors = tables + pass * POINTS + column;
#pragma unroll
        for (int i = 0; i < RADIX; i++) {
            v[i] = product(v[i], factors[reversed(i) * RADIX]);
        }
        if (pass % 2 == 0) {
            __syncthreads();
#pragma unroll
            for (int i = 0; i < RADIX; i++) {
                tile[row][reversed(i) * PITCH + column] = v[i];
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < RADIX; i++) {
                v[i] = tile[row][column * PITCH + i];
            }
        } else {
            // Renaming: the values in order again.
            u64 moved[RADIX];
#pragma unroll
            for (int i = 0; i < RADIX; i++) {
                moved[reversed(i)] = v[i];
            }
#pragma unroll
            for (int i = 0; i < RADIX; i++) {
                v[i] = moved[i];
            }
        }
    }
    // Two transforms forth leave the coefficients in the order 0, 1023, 1022…
#pragma unroll
    for (int i = 0; i < RADIX; i++) {
        int place = (POINTS - (i * RADIX + column)) % POINTS;
        output[first - column + place] = v[i];
    }
}
