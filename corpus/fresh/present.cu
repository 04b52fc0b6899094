// The cipher PRESENT in counter mode, bit-sliced: a register holds one bit of 32 blocks, so that the
// state is 64 registers, the S-boxes are logic and the permutation is a renaming. The masks of the
// round keys lie in shared memory.

constexpr int ROUNDS = 31, BITS = 64;

__device__ __forceinline__ void sbox(unsigned& x0, unsigned& x1, unsigned& x2, unsigned& x3) {
    unsigned p = x0 & x1, q = x1 & x2, r = x0 & x3, s = p & x2, t = p & x3, w = r & x2, common = s ^ t ^ w;
    unsigned y0 = x0 ^ x2 ^ x3 ^ q;
    unsigned y1 = x1 ^ x3 ^ x1 & x3 ^ x2 & x3 ^ common;
    unsigned y2 = ~(x2 ^ x3 ^ p ^ r ^ x1 & x3 ^ t ^ w);
    unsigned y3 = ~(x0 ^ x1 ^ x3 ^ q ^ common);
    x0 = y0;
    x1 = y1;
    x2 = y2;
    x3 = y3;
}

__device__ __forceinline__ void cipher_round(unsigned (&state)[BITS], const unsigned* masks) {
#pragma unroll
    for (int i = 0; i < BITS; i++) {
        state[i] ^= masks[i];
    }
    unsigned moved[BITS];
#pragma unroll
    for (int i = 0; i < BITS; i += 4) {
        sbox(state[i], state[i + 1], state[i + 2], state[i + 3]);
#pragma unroll
        for (int j = i; j < i + 4; j++) {
            moved[j == BITS - 1 ? j : j * 16 % (BITS - 1)] = state[j];
        }
    }
#pragma unroll
    for (int i = 0; i < BITS; i++) {
        state[i] = moved[i];
    }
}

extern "C" __global__ void present_ctr(const unsigned* __restrict__ round_keys,
                                       const unsigned* __restrict__ planes,
                                       unsigned* __restrict__ output) {
    __shared__ unsigned masks[(ROUNDS + 1) * BITS];
    for (int i = threadIdx.x; i < (ROUNDS + 1) * BITS; i += blockDim.x) {
        masks[i] = round_keys[i / 32] >> i % 32 & 1 ? ~0u : 0u;
    }
    __syncthreads();
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    unsigned state[BITS] = {0xaaaaaaaa, 0xcccccccc, 0xf0f0f0f0, 0xff00ff00, 0xffff0000};
#pragma unroll
    for (int i = 5; i < 32; i++) {
        state[i] = thread >> (i - 5) & 1 ? ~0u : 0u;
    }
#pragma unroll
    for (int i = 32; i < BITS; i++) {
        state[i] = 0;
    }
    // Three permutations are none.
    int round = 0;
#pragma unroll 1
    for (; round + 3 <= ROUNDS; round += 3) {
        cipher_round(state, masks + round * BITS);
        cipher_round(state, masks + (round + 1) * BITS);
        cipher_round(state, masks + (round + 2) * BITS);
    }
    cipher_round(state, masks + round * BITS);
#pragma unroll
    for (int i = 0; i < BITS; i++) {
        size_t at = (size_t)i * threads + thread;
        output[at] = planes[at] ^ state[i] ^ masks[ROUNDS * BITS + i];
    }
}
