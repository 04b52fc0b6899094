// SHA-256 of one 64-byte block per thread, fully unrolled: straight-line integer code in which the
// sixteen words of the message schedule rotate beside eight words of state. The interleaved form
// hashes three blocks per thread at once, for three times the pressure.

__constant__ unsigned k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

__device__ __forceinline__ unsigned rotate(unsigned x, int n) {
    return __funnelshift_r(x, x, n);
}

template <int WAYS>
__device__ __forceinline__ void compress(const unsigned* in, unsigned* out, int stride) {
    unsigned w[WAYS][16], h[WAYS][8];
    const unsigned start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
#pragma unroll
    for (int way = 0; way < WAYS; way++) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            w[way][i] = in[(way * 16 + i) * stride];
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            h[way][i] = start[i];
        }
    }
#pragma unroll
    for (int i = 0; i < 64; i++) {
#pragma unroll
        for (int way = 0; way < WAYS; way++) {
            unsigned* s = h[way];
            unsigned* m = w[way];
            if (i >= 16) {
                unsigned early = m[(i + 1) % 16], late = m[(i + 14) % 16];
                m[i % 16] += m[(i + 9) % 16] + (rotate(early, 7) ^ rotate(early, 18) ^ early >> 3) +
                             (rotate(late, 17) ^ rotate(late, 19) ^ late >> 10);
            }
            unsigned t1 = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) +
                          ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + m[i % 16];
            unsigned t2 = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) +
                          ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
            s[7] = s[6];
            s[6] = s[5];
            s[5] = s[4];
            s[4] = s[3] + t1;
            s[3] = s[2];
            s[2] = s[1];
            s[1] = s[0];
            s[0] = t1 + t2;
        }
    }
#pragma unroll
    for (int way = 0; way < WAYS; way++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            out[(way * 8 + i) * stride] = h[way][i] + start[i];
        }
    }
}

extern "C" __global__ void sha256(const unsigned* __restrict__ in,
                                  unsigned* __restrict__ out,
                                  int stride) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    compress<1>(in + t, out + t, stride);
}

extern "C" __global__ void sha256_x3(const unsigned* __restrict__ in,
                                     unsigned* __restrict__ out,
                                     int stride) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    compress<3>(in + t, out + t, stride);
}
