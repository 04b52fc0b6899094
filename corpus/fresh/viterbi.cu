// A Viterbi decoder for the convolutional code of constraint length 7 (171, 133): a thread decodes
// one frame, its 64 path metrics two to a register. Integers of 16 bits: add, compare, select
// around a loop over the symbols; then the way back through the decisions, load by load.

constexpr int WORDS = 32;

__device__ __forceinline__ constexpr int parity(int x) {
    return (x ^ x >> 1 ^ x >> 2 ^ x >> 3 ^ x >> 4 ^ x >> 5 ^ x >> 6) & 1;
}

// The two bits that the encoder sends when a zero enters state j.
__device__ __forceinline__ constexpr int sent(int j) {
    return parity(2 * j & 0171) * 2 + parity(2 * j & 0133);
}

extern "C" __global__ void viterbi(int frames,
                                   int steps,
                                   const uchar2* __restrict__ soft,
                                   uint2* __restrict__ decisions,
                                   unsigned* __restrict__ bits) {
    int frame = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned metric[WORDS];
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        metric[w] = w == 0 ? 0x10000000 : 0x10001000;
    }
    for (int step = 0; step < steps; step++) {
        uchar2 symbol = soft[(size_t)step * frames + frame];
        unsigned first = symbol.x & 15, second = symbol.y & 15;
        unsigned distance[4] = {first + second, first + 15 - second, 15 - first + second, 30 - first - second};
        unsigned next[WORDS], low = 0, high = 0;
#pragma unroll
        for (int w = 0; w < WORDS / 2; w++) {
            unsigned same = distance[sent(2 * w)] | distance[sent(2 * w + 1)] << 16;
            unsigned other = distance[3 - sent(2 * w)] | distance[3 - sent(2 * w + 1)] << 16;
            unsigned a = metric[w], b = metric[w + WORDS / 2];
            unsigned even_a = __vadd2(a, same), even_b = __vadd2(b, other);
            unsigned odd_a = __vadd2(a, other), odd_b = __vadd2(b, same);
            unsigned even = __vminu2(even_a, even_b), odd = __vminu2(odd_a, odd_b);
            unsigned chosen = __vcmpgtu2(even_a, even_b) & 0x00040001 | __vcmpgtu2(odd_a, odd_b) & 0x00080002;
            chosen = (chosen | chosen >> 16) & 15;
            (w < WORDS / 4 ? low : high) |= chosen << (w * 4 % 32);
            next[2 * w] = __byte_perm(even, odd, 0x5410);
            next[2 * w + 1] = __byte_perm(even, odd, 0x7632);
        }
        decisions[(size_t)step * frames + frame] = make_uint2(low, high);
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            metric[w] = next[w];
        }
    }
    unsigned best = ~0u;
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        best = min(best, min((metric[w] & 0xffff) << 6 | 2 * w, metric[w] >> 16 << 6 | (2 * w + 1)));
    }
    unsigned state = best & 63, word = 0;
#pragma unroll 1
    for (int step = steps - 1; step >= 0; step--) {
        uint2 decision = decisions[(size_t)step * frames + frame];
        unsigned from = (state < 32 ? decision.x : decision.y) >> state % 32 & 1;
        word |= (state & 1) << step % 32;
        state = state >> 1 | from << 5;
        if (step % 32 == 0) {
            bits[(size_t)(step / 32) * frames + frame] = word;
            word = 0;
        }
    }
}
