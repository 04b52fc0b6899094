// ChaCha20, two blocks of the key stream side by side in each thread. Integers: sums, exclusive ors, rotations;
// 32 words around a loop over rounds in a loop over blocks.

typedef unsigned int u32;

__device__ __forceinline__ u32 rotated(u32 word, int bits) {
    return __funnelshift_l(word, word, bits);
}

__device__ __forceinline__ void quarter(u32& a, u32& b, u32& c, u32& d) {
    a += b;
    d = rotated(d ^ a, 16);
    c += d;
    b = rotated(b ^ c, 12);
    a += b;
    d = rotated(d ^ a, 8);
    c += d;
    b = rotated(b ^ c, 7);
}

__device__ __forceinline__ void double_round(u32 (&x)[16]) {
#pragma unroll
    for (int n = 0; n < 4; n++) {
        quarter(x[n], x[4 + n], x[8 + n], x[12 + n]);
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        quarter(x[n], x[4 + (n + 1) % 4], x[8 + (n + 2) % 4], x[12 + (n + 3) % 4]);
    }
}

__device__ __forceinline__ u32 start(const u32* key, u32 counter, u32 stream, int word) {
    const u32 constants[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    u32 own = word == 12 ? counter : stream;
    return word < 4 ? constants[word] : word < 12 ? key[word - 4] : word < 14 ? own : key[word - 6];
}

// `key` has eight words of key and two of nonce. Each thread has a stream of its own.
extern "C" __global__ void chacha20(int pairs,
                                    const u32* __restrict__ key,
                                    const u32* __restrict__ in,
                                    u32* __restrict__ out) {
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
#pragma unroll 1
    for (int pair = 0; pair < pairs; pair++) {
        u32 a[16], b[16];
#pragma unroll
        for (int n = 0; n < 16; n++) {
            a[n] = start(key, 2 * pair, thread, n);
            b[n] = start(key, 2 * pair + 1, thread, n);
        }
#pragma unroll 1
        for (int round = 0; round < 10; round++) {
            double_round(a);
            double_round(b);
        }
#pragma unroll
        for (int n = 0; n < 16; n++) {
            size_t at = (size_t)(32 * pair + n) * threads + thread;
            out[at] = in[at] ^ (a[n] + start(key, 2 * pair, thread, n));
            at += (size_t)16 * threads;
            out[at] = in[at] ^ (b[n] + start(key, 2 * pair + 1, thread, n));
        }
    }
}
