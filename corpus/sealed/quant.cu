// A product with weights of four bits, which are turned into halves and scaled by groups before they go to tensor
// cores (mma.sync): fragments, 64 sums around a loop in a loop, without shared memory.

#include <cuda_fp16.h>

typedef unsigned int u32;

constexpr int ROWS = 32, COLUMNS = 64, WARPS = 4, GROUP = 64, STEP = 16;

__device__ __forceinline__ void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two weights of four bits, eight less than the bits say, times a scale.
__device__ __forceinline__ u32 weights_of(u32 bits, __half2 scale) {
    u32 biased = (bits & 0x000f000f) | 0x64006400;
    __half2 pair = *reinterpret_cast<__half2*>(&biased);
    pair = __hmul2(__hsub2(pair, __float2half2_rn(1032.0f)), scale);
    return *reinterpret_cast<u32*>(&pair);
}

// The rows of `a` are contiguous. `weights` holds for each 64 columns and each step what the lanes need, one lane after
// the other. `scales` has a row for each group of steps. A block has four warps side by side.
extern "C" __global__ void quantised_product(int depth,
                                             int columns,
                                             const u32* __restrict__ a,
                                             const uint4* __restrict__ weights,
                                             const __half* __restrict__ scales,
                                             float* __restrict__ out) {
    int lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
    int strip = blockIdx.x * WARPS + threadIdx.x / 32;
    int row = blockIdx.y * ROWS + group, column = strip * COLUMNS;
    float sums[ROWS / 16][COLUMNS / 8][4] = {};
    // A word is two numbers.
    int pitch = depth / 2;
    const u32* left = a + row * pitch + member;
    const uint4* right = weights + strip * (depth / STEP) * 32 + lane;
    const __half* scale = scales + column + group;
#pragma unroll 1
    for (int first = 0; first < depth; first += GROUP) {
        __half2 factors[COLUMNS / 8];
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++) {
            factors[n] = __half2half2(scale[8 * n]);
        }
        scale += columns;
#pragma unroll 1
        for (int k = 0; k < GROUP; k += STEP) {
            u32 fragments[ROWS / 16][4];
#pragma unroll
            for (int n = 0; n < ROWS / 16; n++) {
                fragments[n][0] = left[16 * n * pitch];
                fragments[n][1] = left[(16 * n + 8) * pitch];
                fragments[n][2] = left[16 * n * pitch + 4];
                fragments[n][3] = left[(16 * n + 8) * pitch + 4];
            }
            uint4 packed = *right;
            left += STEP / 2;
            right += 32;
            u32 words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++) {
                u32 bits = words[n / 2] >> 8 * (n % 2);
                u32 b0 = weights_of(bits, factors[n]), b1 = weights_of(bits >> 4, factors[n]);
#pragma unroll
                for (int m = 0; m < ROWS / 16; m++) {
                    multiply(sums[m][n], fragments[m], b0, b1);
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; m < ROWS / 16; m++) {
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float* place = out + (size_t)(row + 16 * m + 8 * half) * columns + column + 8 * n + 2 * member;
                *reinterpret_cast<float2*>(place) = make_float2(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
            }
        }
    }
}
