// A sponge over the prime 2^61 - 1, as proof systems use them (Poseidon's way): twelve words of state,
// rounds that raise all of them or only the first to the 17th power, and a circulant matrix of small
// numbers. Integers of 64 bits with wide products; a loop over rounds in a loop over blocks of the message.

typedef unsigned long long u64;

constexpr int WIDTH = 12, RATE = 8, DIGEST = 4, FULL = 8, PARTIAL = 22;
constexpr u64 PRIME = (1ull << 61) - 1;

__device__ constexpr unsigned ROW[WIDTH] = {3, 1, 10, 25, 6, 14, 2, 9, 31, 5, 18, 12};

// 2^61 is 1. The result is below the prime for every word of 64 bits.
__device__ __forceinline__ u64 reduced(u64 a) {
    a = (a & PRIME) + (a >> 61);
    return a >= PRIME ? a - PRIME : a;
}

__device__ __forceinline__ u64 product(u64 a, u64 b) {
    u64 low = a * b, high = __umul64hi(a, b);
    return reduced((low & PRIME) + (high << 3 | low >> 61));
}

__device__ __forceinline__ u64 raised(u64 a) {
    u64 b = product(a, a);
    b = product(b, b);
    b = product(b, b);
    b = product(b, b);
    return product(a, b);
}

extern "C" __global__ void sponge(int messages,
                                  int blocks,
                                  const u64* __restrict__ constants,
                                  const u64* __restrict__ input,
                                  u64* __restrict__ digests) {
    int message = blockIdx.x * blockDim.x + threadIdx.x;
    u64 state[WIDTH] = {};
#pragma unroll 1
    for (int block = 0; block < blocks; block++) {
#pragma unroll
        for (int i = 0; i < RATE; i++) {
            u64 word = input[(size_t)(block * RATE + i) * messages + message] & PRIME;
            state[i] = reduced(state[i] + word);
        }
#pragma unroll 1
        for (int round = 0; round < FULL + PARTIAL; round++) {
#pragma unroll
            for (int i = 0; i < WIDTH; i++) {
                state[i] = reduced(state[i] + (constants[round * WIDTH + i] & PRIME));
            }
            state[0] = raised(state[0]);
            if (round < FULL / 2 || round >= FULL / 2 + PARTIAL) {
#pragma unroll
                for (int i = 1; i < WIDTH; i++) {
                    state[i] = raised(state[i]);
                }
            }
            // Sums of the halves do not overflow: the row adds up to less than 2^8.
            u64 next[WIDTH];
#pragma unroll
            for (int i = 0; i < WIDTH; i++) {
                u64 low = 0, high = 0;
#pragma unroll
                for (int j = 0; j < WIDTH; j++) {
                    u64 factor = ROW[(j - i + WIDTH) % WIDTH];
                    low += factor * (unsigned)state[j];
                    high += factor * (unsigned)(state[j] >> 32);
                }
                // The high sum counts in units of 2^32, of which 2^29 are one.
                next[i] = reduced(low + ((high & 0x1fffffff) << 32) + (high >> 29));
            }
#pragma unroll
            for (int i = 0; i < WIDTH; i++) {
                state[i] = next[i];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < DIGEST; i++) {
        digests[(size_t)i * messages + message] = state[i];
    }
}
