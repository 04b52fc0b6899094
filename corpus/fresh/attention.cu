// Attention in one pass (online softmax) on tensor cores: a warp keeps 16 queries of 64 halves and
// their 64 sums in fragments and goes through the keys and values 32 at a time, which the block
// stages in shared memory. Scores and the factors of the rows pass through shared memory too, as
// the layout of a fragment is not known.

#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int DEPTH = 64, KEYS = 32, QUERIES = 16, WARPS = 4;
constexpr int PITCH = DEPTH + 8, SCORES = KEYS + 4, CHANCES = KEYS + 8;

using Sums = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// Multiplies each row of the sums by its factor; two lanes hold the factor of a row.
__device__ __forceinline__ void scale_rows(Sums (&sums)[DEPTH / 16], float* tile, float factor, int lane) {
    __syncwarp();
    float4 four = make_float4(factor, factor, factor, factor);
    float4* row = (float4*)(tile + lane / 2 * SCORES + lane % 2 * 8);
    row[0] = four;
    row[1] = four;
    __syncwarp();
    Sums factors;
    wmma::load_matrix_sync(factors, tile, SCORES, wmma::mem_row_major);
#pragma unroll
    for (int j = 0; j < DEPTH / 16; j++) {
#pragma unroll
        for (int i = 0; i < factors.num_elements; i++) {
            sums[j].x[i] *= factors.x[i];
        }
    }
    __syncwarp();
}

extern "C" __global__ void attention(int length,
                                     float scale,
                                     const half* __restrict__ queries,
                                     const half* __restrict__ keys,
                                     const half* __restrict__ values,
                                     float* __restrict__ output) {
    __shared__ __align__(32) half key_tile[KEYS * PITCH], value_tile[KEYS * PITCH];
    __shared__ __align__(32) float scores[WARPS][QUERIES * SCORES];
    __shared__ __align__(32) half chances[WARPS][QUERIES * CHANCES];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    size_t head = (size_t)blockIdx.y * length * DEPTH;
    size_t first = head + (size_t)(blockIdx.x * WARPS + warp) * QUERIES * DEPTH;
    float* tile = scores[warp];
    half* chance = chances[warp];

    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> query[DEPTH / 16];
    Sums sums[DEPTH / 16];
#pragma unroll
    for (int j = 0; j < DEPTH / 16; j++) {
        wmma::load_matrix_sync(query[j], queries + first + j * 16, DEPTH);
        wmma::fill_fragment(sums[j], 0.f);
    }
    float highest = -1e30f, total = 0.f;
    for (int k = 0; k < length; k += KEYS) {
        __syncthreads();
#pragma unroll
        for (int i = threadIdx.x; i < KEYS * DEPTH / 8; i += WARPS * 32) {
            int at = i / (DEPTH / 8) * PITCH + i % (DEPTH / 8) * 8;
            *(uint4*)(key_tile + at) = ((const uint4*)(keys + head + (size_t)k * DEPTH))[i];
            *(uint4*)(value_tile + at) = ((const uint4*)(values + head + (size_t)k * DEPTH))[i];
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            Sums score;
            wmma::fill_fragment(score, 0.f);
#pragma unroll
            for (int j = 0; j < DEPTH / 16; j++) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> key;
                wmma::load_matrix_sync(key, key_tile + n * 16 * PITCH + j * 16, PITCH);
                wmma::mma_sync(score, query[j], key, score);
            }
            wmma::store_matrix_sync(tile + n * 16, score, SCORES, wmma::mem_row_major);
        }
        __syncwarp();

        // Two lanes share a row, each takes half of its scores.
        float mine[KEYS / 2], top = highest, sum = 0.f;
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            mine[i] = tile[lane / 2 * SCORES + lane % 2 * (KEYS / 2) + i] * scale;
            top = fmaxf(top, mine[i]);
        }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            mine[i] = exp2f(mine[i] - top);
            sum += mine[i];
            chance[lane / 2 * CHANCES + lane % 2 * (KEYS / 2) + i] = __float2half_rn(mine[i]);
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        float factor = exp2f(highest - top);
        total = total * factor + sum;
        highest = top;
        scale_rows(sums, tile, factor, lane);

        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> weight[KEYS / 16];
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            wmma::load_matrix_sync(weight[n], chance + n * 16, CHANCES);
        }
#pragma unroll
        for (int j = 0; j < DEPTH / 16; j++) {
#pragma unroll
            for (int n = 0; n < KEYS / 16; n++) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> value;
                wmma::load_matrix_sync(value, value_tile + n * 16 * PITCH + j * 16, PITCH);
                wmma::mma_sync(sums[j], weight[n], value, sums[j]);
            }
        }
    }
    scale_rows(sums, tile, 1.f / total, lane);
#pragma unroll
    for (int j = 0; j < DEPTH / 16; j++) {
        wmma::store_matrix_sync(output + first + j * 16, sums[j], DEPTH, wmma::mem_row_major);
    }
}
