// A residual network of 64 units per layer on tensor cores (mma.sync): a warp takes 32 rows through
// all layers. What comes out of a layer is packed in registers into what goes into the next; the
// block stages one layer's weights in shared memory at a time, between barriers.

#include <cuda_fp16.h>

constexpr int WIDTH = 64, TILES = 2, STEPS = WIDTH / 16, COLUMNS = WIDTH / 8, WARPS = 4;
// Rows of shared memory are longer by eight halves, so that a fragment's words lie in different banks.
constexpr int PITCH = (WIDTH + 8) / 2;

__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// old + max(0, (low, high)), as two halves.
__device__ __forceinline__ unsigned activated(unsigned old, float low, float high) {
    __half2 sum = __hadd2(*(const __half2*)&old, __floats2half2_rn(fmaxf(low, 0.f), fmaxf(high, 0.f)));
    return *(const unsigned*)&sum;
}

// Weights are rows of outputs, two halves to a word; the head has eight outputs.
extern "C" __global__ void residual_mlp(int layers,
                                        const uint4* __restrict__ weights,
                                        const float* __restrict__ biases,
                                        const unsigned* __restrict__ head,
                                        const unsigned* __restrict__ features,
                                        float2* __restrict__ output) {
    __shared__ __align__(16) unsigned weight[WIDTH * PITCH];
    __shared__ float bias[WIDTH];
    int lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4;
    size_t row = (size_t)(blockIdx.x * WARPS + threadIdx.x / 32) * TILES * 16 + group;
    unsigned a[TILES][STEPS][4];
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
#pragma unroll
            for (int r = 0; r < 4; r++) {
                a[t][s][r] = features[(row + t * 16 + r % 2 * 8) * (WIDTH / 2) + s * 8 + r / 2 * 4 + pair];
            }
        }
    }
#pragma unroll 1
    for (int layer = 0; layer < layers; layer++) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < WIDTH * WIDTH / 8; k += WARPS * 32) {
            int i = k + threadIdx.x;
            uint4* place = (uint4*)(weight + i / (WIDTH / 8) * PITCH + i % (WIDTH / 8) * 4);
            *place = weights[layer * (WIDTH * WIDTH / 8) + i];
        }
        if (threadIdx.x < WIDTH) {
            bias[threadIdx.x] = biases[layer * WIDTH + threadIdx.x];
        }
        __syncthreads();
        float c[TILES][COLUMNS][4];
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            float even = bias[n * 8 + pair * 2], odd = bias[n * 8 + pair * 2 + 1];
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                c[t][n][0] = c[t][n][2] = even;
                c[t][n][1] = c[t][n][3] = odd;
            }
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                const unsigned* at = weight + (n * 8 + group) * PITCH + s * 8 + pair;
                unsigned b0 = at[0], b1 = at[4];
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    multiply(c[t][n], a[t][s], b0, b1);
                }
            }
        }
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    const float(&sums)[4] = c[t][2 * s + r / 2];
                    a[t][s][r] = activated(a[t][s][r], sums[r % 2 * 2], sums[r % 2 * 2 + 1]);
                }
            }
        }
    }
    float c[TILES][4] = {};
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        unsigned b0 = head[group * (WIDTH / 2) + s * 8 + pair], b1 = head[group * (WIDTH / 2) + s * 8 + pair + 4];
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            multiply(c[t], a[t][s], b0, b1);
        }
    }
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        output[(row + t * 16) * 4 + pair] = make_float2(c[t][0], c[t][1]);
        output[(row + t * 16 + 8) * 4 + pair] = make_float2(c[t][2], c[t][3]);
    }
}
