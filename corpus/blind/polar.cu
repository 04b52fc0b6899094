// A polar code of 64 bits, 32 of them free, decoded by successive cancellation, one frame per thread. The
// tree is unrolled into straight-line code: subtrees that are frozen, free or a repetition are cut short.
// Integers, minima and signs; the halves of every level stay live until their sibling is decoded.

typedef unsigned long long u64;

constexpr int BITS = 64, LEVELS = 6, FREE = 32;

// How well bit i is received, by the polarisation weight: the set bits of i at powers of the fourth root of two.
__host__ __device__ constexpr double weight(int i) {
    double sum = 0, power = 1;
    for (int level = 0; level < LEVELS; level++) {
        sum += i >> level & 1 ? power : 0;
        power *= 1.189207115002721;
    }
    return sum;
}

__host__ __device__ constexpr u64 frozen_bits() {
    u64 frozen = 0;
    for (int i = 0; i < BITS; i++) {
        int better = 0;
        for (int j = 0; j < BITS; j++) {
            better += weight(j) > weight(i) || (weight(j) == weight(i) && j > i);
        }
        frozen |= better >= FREE ? 1ull << i : 0;
    }
    return frozen;
}

constexpr u64 FROZEN = frozen_bits();

__host__ __device__ constexpr int frozen_in(int first, int count) {
    int frozen = 0;
    for (int i = first; i < first + count; i++) {
        frozen += FROZEN >> i & 1;
    }
    return frozen;
}

// Decodes the `COUNT` bits from bit `FIRST` on. `soft` are logarithms of likelihood ratios, `hard` becomes
// the part of the code word: 0, or -1 for a set bit.
template <int FIRST, int COUNT>
__device__ __forceinline__ void decode(const int (&soft)[COUNT], int (&hard)[COUNT]) {
    constexpr int frozen = frozen_in(FIRST, COUNT);
    if constexpr (frozen == COUNT) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            hard[i] = 0;
        }
    } else if constexpr (frozen == 0) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            hard[i] = soft[i] >> 31;
        }
    } else if constexpr (frozen == COUNT - 1) {
        int sum = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            sum += soft[i];
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            hard[i] = sum >> 31;
        }
    } else {
        constexpr int HALF = COUNT / 2;
        int child[HALF], left[HALF], right[HALF];
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            int a = soft[i], b = soft[i + HALF], sign = (a ^ b) >> 31;
            child[i] = (min(abs(a), abs(b)) ^ sign) - sign;
        }
        decode<FIRST, HALF>(child, left);
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            child[i] = soft[i + HALF] + ((soft[i] ^ left[i]) - left[i]);
        }
        decode<FIRST + HALF, HALF>(child, right);
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            hard[i] = left[i] ^ right[i];
            hard[i + HALF] = right[i];
        }
    }
}

// Four values of a byte to a word; `doubt` sums up the values that the decoded word contradicts.
extern "C" __global__ void polar_decode(int frames,
                                        const int* __restrict__ received,
                                        u64* __restrict__ messages,
                                        int* __restrict__ doubt) {
    int frame = blockIdx.x * blockDim.x + threadIdx.x;
    int soft[BITS], hard[BITS];
#pragma unroll
    for (int i = 0; i < BITS; i += 4) {
        int word = received[(size_t)(i / 4) * frames + frame];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            soft[i + k] = (int)((unsigned)word << (24 - 8 * k)) >> 24;
        }
    }
    decode<0, BITS>(soft, hard);
    u64 word = 0;
    int against = 0;
#pragma unroll
    for (int i = 0; i < BITS; i++) {
        word |= (u64)(hard[i] & 1) << i;
        against += max((soft[i] ^ hard[i]) - hard[i], 0) - ((soft[i] ^ hard[i]) - hard[i]);
    }
    // The code is its own inverse: encoding the word gives the bits.
    word ^= word >> 1 & 0x5555555555555555;
    word ^= word >> 2 & 0x3333333333333333;
    word ^= word >> 4 & 0x0f0f0f0f0f0f0f0f;
    word ^= word >> 8 & 0x00ff00ff00ff00ff;
    word ^= word >> 16 & 0x0000ffff0000ffff;
    word ^= word >> 32;
    messages[frame] = word;
    doubt[frame] = against;
}
