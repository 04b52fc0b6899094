// Tensor cores, once through wmma fragments (groups of eight registers) and once through mma.sync
// with 128 accumulators: register groups that are updated in place around a loop.

#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

extern "C" __global__ void wmma_hgemm(const half* __restrict__ A,
                                      const half* __restrict__ B,
                                      float* __restrict__ C,
                                      int M,
                                      int N,
                                      int K) {
    int wm = (blockIdx.y * blockDim.y + threadIdx.y) * 64;
    int wn = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 64;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            wmma::fill_fragment(acc[i][j], 0.f);
        }
    }
    for (int k = 0; k < K; k += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a[4];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            wmma::load_matrix_sync(a[i], A + (size_t)(wm + i * 16) * K + k, K);
            wmma::load_matrix_sync(b[i], B + (size_t)k * N + wn + i * 16, N);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                wmma::mma_sync(acc[i][j], a[i], b[j], acc[i][j]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float* tile = C + (size_t)(wm + i * 16) * N + wn + j * 16;
            wmma::store_matrix_sync(tile, acc[i][j], N, wmma::mem_row_major);
        }
    }
}

#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ void mma_m16n8k16(float* c, const unsigned* a, const unsigned* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void mma_bf16(const unsigned* __restrict__ A,
                                    const unsigned* __restrict__ B,
                                    float* __restrict__ C,
                                    int K) {
    int lane = threadIdx.x & 31;
    float c[4][8][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 8; j++) {
            for (int r = 0; r < 4; r++) {
                c[i][j][r] = 0;
            }
        }
    }
    for (int k = 0; k < K; k++) {
        unsigned a[4][4], b[8][2];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            for (int r = 0; r < 4; r++) {
                a[i][r] = A[((k * 4 + i) * 4 + r) * 32 + lane];
            }
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            for (int r = 0; r < 2; r++) {
                b[j][r] = B[((k * 8 + j) * 2 + r) * 32 + lane];
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                mma_m16n8k16(c[i][j], a[i], b[j]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 8; j++) {
            for (int r = 0; r < 4; r++) {
                C[((i * 8 + j) * 4 + r) * 32 + lane] = c[i][j][r];
            }
        }
    }
}
#endif
