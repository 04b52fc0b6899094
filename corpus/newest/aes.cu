// CBC-MAC with AES-128 of eight messages per thread: tables of the rounds in shared memory, made by the
// block itself; 32 words of state around a loop over rounds in a loop over blocks. Integers, bytes
// that become addresses, scattered shared loads.

typedef unsigned u32;

constexpr int MESSAGES = 8, ROUNDS = 10, ENTRIES = 256;

// The product in the field of 256 elements.
__device__ __forceinline__ u32 product(u32 a, u32 b) {
    u32 p = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        p ^= b >> i & 1 ? a : 0;
        a = a << 1 ^ (a & 0x80 ? 0x11b : 0);
    }
    return p;
}

__device__ __forceinline__ u32 substituted(u32 x) {
    // The inverse is x^254 = x^2 x^4 … x^128.
    u32 power = x, inverse = 1;
#pragma unroll 1
    for (int i = 1; i < 8; i++) {
        power = product(power, power);
        inverse = product(inverse, power);
    }
    u32 twice = inverse << 8 | inverse;
    return (inverse ^ twice >> 7 ^ twice >> 6 ^ twice >> 5 ^ twice >> 4 ^ 0x63) & 0xff;
}

__device__ __forceinline__ u32 byte(u32 word, int i) {
    return word >> (8 * i) & 0xff;
}

extern "C" __global__ void aes_mac(int messages,
                                   int blocks,
                                   const u32* __restrict__ round_keys,
                                   const uint4* __restrict__ text,
                                   uint4* __restrict__ tags) {
    __shared__ u32 table[4][ENTRIES], keys[4 * (ROUNDS + 1)];
    for (int i = threadIdx.x; i < ENTRIES; i += blockDim.x) {
        u32 s = substituted(i), two = product(s, 2), column = two | s << 8 | s << 16 | (two ^ s) << 24;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            table[k][i] = k == 0 ? column : column << (8 * k) | column >> (32 - 8 * k);
        }
    }
    for (int i = threadIdx.x; i < 4 * (ROUNDS + 1); i += blockDim.x) {
        keys[i] = round_keys[i];
    }
    __syncthreads();
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    u32 state[MESSAGES][4] = {};
#pragma unroll 1
    for (int block = 0; block < blocks; block++) {
#pragma unroll
        for (int m = 0; m < MESSAGES; m++) {
            uint4 words = text[(size_t)(block * MESSAGES + m) * messages + thread];
            state[m][0] ^= words.x ^ keys[0];
            state[m][1] ^= words.y ^ keys[1];
            state[m][2] ^= words.z ^ keys[2];
            state[m][3] ^= words.w ^ keys[3];
        }
#pragma unroll 1
        for (int round = 1; round < ROUNDS; round++) {
#pragma unroll
            for (int m = 0; m < MESSAGES; m++) {
                u32 next[4];
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    next[c] = table[0][byte(state[m][c], 0)] ^ table[1][byte(state[m][(c + 1) % 4], 1)]
                        ^ table[2][byte(state[m][(c + 2) % 4], 2)] ^ table[3][byte(state[m][(c + 3) % 4], 3)]
                        ^ keys[4 * round + c];
                }
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    state[m][c] = next[c];
                }
            }
        }
        // The last round does not mix columns: the plain byte is in the table twice.
#pragma unroll
        for (int m = 0; m < MESSAGES; m++) {
            u32 next[4];
#pragma unroll
            for (int c = 0; c < 4; c++) {
                next[c] = byte(table[0][byte(state[m][c], 0)], 1)
                    ^ byte(table[0][byte(state[m][(c + 1) % 4], 1)], 1) << 8
                    ^ byte(table[0][byte(state[m][(c + 2) % 4], 2)], 1) << 16
                    ^ byte(table[0][byte(state[m][(c + 3) % 4], 3)], 1) << 24 ^ keys[4 * ROUNDS + c];
            }
#pragma unroll
            for (int c = 0; c < 4; c++) {
                state[m][c] = next[c];
            }
        }
    }
#pragma unroll
    for (int m = 0; m < MESSAGES; m++) {
        tags[(size_t)m * messages + thread] = make_uint4(state[m][0], state[m][1], state[m][2], state[m][3]);
    }
}
