// SHA3-256 of one message per thread: the 25 lanes of 64 bits of Keccak-f[1600] in a loop over
// rounds, inside a loop over blocks of 136 bytes.

typedef unsigned long long u64;

__constant__ u64 ROUND[24] = {
    0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b,
    0x0000000080000001, 0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088,
    0x0000000080008009, 0x000000008000000a, 0x000000008000808b, 0x800000000000008b, 0x8000000000008089,
    0x8000000000008003, 0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008};

__device__ constexpr int OFFSET[25] = {0,  1,  62, 28, 27, 36, 44, 6,  55, 20, 3,  10, 43,
                                       25, 39, 41, 45, 15, 21, 8,  18, 2,  61, 56, 14};

__device__ __forceinline__ u64 rotate(u64 x, int n) {
    return n == 0 ? x : x << n | x >> (64 - n);
}

__device__ __forceinline__ void keccak_round(u64 (&a)[25], u64 constant) {
    u64 c[5], b[25];
#pragma unroll
    for (int x = 0; x < 5; x++) {
        c[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
    }
#pragma unroll
    for (int x = 0; x < 5; x++) {
        u64 d = c[(x + 4) % 5] ^ rotate(c[(x + 1) % 5], 1);
#pragma unroll
        for (int y = 0; y < 5; y++) {
            b[y + (2 * x + 3 * y) % 5 * 5] = rotate(a[x + 5 * y] ^ d, OFFSET[x + 5 * y]);
        }
    }
#pragma unroll
    for (int y = 0; y < 25; y += 5) {
#pragma unroll
        for (int x = 0; x < 5; x++) {
            a[y + x] = b[y + x] ^ ~b[y + (x + 1) % 5] & b[y + (x + 2) % 5];
        }
    }
    a[0] ^= constant;
}

extern "C" __global__ void sha3(int messages, int blocks, const u64* __restrict__ words, u64* __restrict__ digests) {
    int message = blockIdx.x * blockDim.x + threadIdx.x;
    u64 a[25] = {};
    // The last pass absorbs the padding.
    for (int block = 0; block <= blocks; block++) {
        if (block < blocks) {
#pragma unroll
            for (int i = 0; i < 17; i++) {
                a[i] ^= words[(size_t)(block * 17 + i) * messages + message];
            }
        } else {
            a[0] ^= 6;
            a[16] ^= 1ull << 63;
        }
#pragma unroll 2
        for (int round = 0; round < 24; round++) {
            keccak_round(a, ROUND[round]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        digests[(size_t)i * messages + message] = a[i];
    }
}
