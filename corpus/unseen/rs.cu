// Check symbols of a Reed-Solomon code of 32 symbols over bytes, four messages per thread, one in each byte of a
// word: the feedback times every power of two, and exclusive ors by the bits of the generator. Integers; 32 words
// around a loop, which move up by one place.

typedef unsigned int u32;
typedef unsigned char u8;

constexpr int CHECKS = 32;

constexpr u8 doubled(u8 a) {
    return (u8)(a << 1 ^ (a & 0x80 ? 0x1d : 0));
}

constexpr u8 product(u8 a, u8 b) {
    u8 sum = 0;
    for (int bit = 0; bit < 8; bit++) {
        sum ^= b >> bit & 1 ? a : 0;
        a = doubled(a);
    }
    return sum;
}

struct Generator {
    u8 factors[CHECKS + 1];
};

// The product of x - 2^n for each check symbol, the lowest factor first.
constexpr Generator generator() {
    Generator g = {};
    g.factors[0] = 1;
    u8 root = 1;
    for (int degree = 0; degree < CHECKS; degree++) {
        for (int n = degree + 1; n > 0; n--) {
            g.factors[n] = g.factors[n - 1] ^ product(g.factors[n], root);
        }
        g.factors[0] = product(g.factors[0], root);
        root = doubled(root);
    }
    return g;
}

constexpr Generator GENERATOR = generator();

template <int FACTOR>
__device__ __forceinline__ u32 times(const u32 (&powers)[8]) {
    u32 sum = 0;
#pragma unroll
    for (int bit = 0; bit < 8; bit++) {
        sum ^= FACTOR >> bit & 1 ? powers[bit] : 0;
    }
    return sum;
}

template <int N>
__device__ __forceinline__ void step(u32 (&checks)[CHECKS], const u32 (&powers)[8]) {
    constexpr int factor = GENERATOR.factors[N];
    if constexpr (N > 0) {
        checks[N] = checks[N - 1] ^ times<factor>(powers);
        step<N - 1>(checks, powers);
    } else {
        checks[N] = times<factor>(powers);
    }
}

extern "C" __global__ void check_symbols(int length, const u32* __restrict__ in, u32* __restrict__ out) {
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    u32 checks[CHECKS] = {};
#pragma unroll 1
    for (int n = 0; n < length; n++) {
        u32 powers[8];
        powers[0] = checks[CHECKS - 1] ^ in[(size_t)n * threads + thread];
#pragma unroll
        for (int bit = 1; bit < 8; bit++) {
            u32 carry = powers[bit - 1] >> 7 & 0x01010101;
            powers[bit] = (powers[bit - 1] << 1 & 0xfefefefe) ^ carry * 0x1d;
        }
        step<CHECKS - 1>(checks, powers);
    }
#pragma unroll
    for (int n = 0; n < CHECKS; n++) {
        out[(size_t)n * threads + thread] = checks[n];
    }
}
