// Minimizers of DNA reads, one read per thread: the least hash of 32 neighbouring words of 21 letters, each
// the lesser of itself and its reverse complement, written where it changes. Least values of a window come
// from suffixes of the last 32 hashes and the prefix of the current ones: 64-bit integers, 32 of them around
// a loop.

typedef unsigned long long u64;

constexpr int LETTERS = 21, WINDOW = 32, PLACE_BITS = 12;
constexpr u64 MASK = (1ull << (2 * LETTERS)) - 1;

// One to one on words of 42 bits: products by odd numbers and shifted sums.
__device__ __forceinline__ u64 mixed(u64 x) {
    x = x * 0x9e3779b97f4a7c15 & MASK;
    x ^= x >> 20;
    x = x * 0xd1342543de82ef95 & MASK;
    return x ^ x >> 23;
}

// Reads come 32 letters to a word of two bits each, the first lowest.
extern "C" __global__ void minimizers(int reads,
                                      int words,
                                      int limit,
                                      const u64* __restrict__ letters,
                                      u64* __restrict__ found,
                                      int* __restrict__ counts) {
    int read = blockIdx.x * blockDim.x + threadIdx.x;
    u64 suffix[WINDOW], forward = 0, backward = 0, last = ~0ull;
#pragma unroll
    for (int i = 0; i < WINDOW; i++) {
        suffix[i] = ~0ull;
    }
    int count = 0;
#pragma unroll 1
    for (int word = 0; word < words; word++) {
        u64 packed = letters[(size_t)word * reads + read], prefix = ~0ull;
#pragma unroll
        for (int i = 0; i < WINDOW; i++) {
            u64 letter = packed >> (2 * i) & 3;
            forward = (forward << 2 | letter) & MASK;
            backward = backward >> 2 | (3 - letter) << (2 * (LETTERS - 1));
            int place = word * WINDOW + i;
            u64 value = mixed(min(forward, backward)) << PLACE_BITS | place;
            if (i < LETTERS - 1) {
                // The first word of letters is not complete.
                value = word == 0 ? ~0ull : value;
            }
            prefix = min(prefix, value);
            u64 least = i + 1 < WINDOW ? min(prefix, suffix[i + 1]) : prefix;
            suffix[i] = value;
            if (least != last && place >= LETTERS + WINDOW - 2) {
                last = least;
                if (count < limit) {
                    found[(size_t)count * reads + read] = least;
                }
                count++;
            }
        }
#pragma unroll
        for (int i = WINDOW - 2; i >= 0; i--) {
            suffix[i] = min(suffix[i], suffix[i + 1]);
        }
    }
    counts[read] = count;
}
