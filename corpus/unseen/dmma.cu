// A product of matrices of doubles on tensor cores, 32x32 per warp: 16 fragments of sums around a loop, without
// shared memory.

#include <mma.h>

using namespace nvcuda;

constexpr int SIDE = 8, DEPTH = 4, TILES = 4, WARPS = 4;

// The rows of `a` and the columns of `b` are contiguous. A block has four warps side by side.
extern "C" __global__ void dgemm(int depth,
                                 int columns,
                                 const double* __restrict__ a,
                                 const double* __restrict__ b,
                                 double* __restrict__ out) {
    int row = blockIdx.y * TILES * SIDE;
    int column = (blockIdx.x * WARPS + threadIdx.x / 32) * TILES * SIDE;
    wmma::fragment<wmma::accumulator, SIDE, SIDE, DEPTH, double> sums[TILES][TILES];
#pragma unroll
    for (int y = 0; y < TILES; y++) {
#pragma unroll
        for (int x = 0; x < TILES; x++) {
            wmma::fill_fragment(sums[y][x], 0.0);
        }
    }
#pragma unroll 1
    for (int k = 0; k < depth; k += DEPTH) {
        wmma::fragment<wmma::matrix_a, SIDE, SIDE, DEPTH, double, wmma::row_major> left[TILES];
        wmma::fragment<wmma::matrix_b, SIDE, SIDE, DEPTH, double, wmma::col_major> right[TILES];
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            wmma::load_matrix_sync(left[n], a + (size_t)(row + n * SIDE) * depth + k, depth);
            wmma::load_matrix_sync(right[n], b + (size_t)(column + n * SIDE) * depth + k, depth);
        }
#pragma unroll
        for (int y = 0; y < TILES; y++) {
#pragma unroll
            for (int x = 0; x < TILES; x++) {
                wmma::mma_sync(sums[y][x], left[y], right[x], sums[y][x]);
            }
        }
    }
#pragma unroll
    for (int y = 0; y < TILES; y++) {
#pragma unroll
        for (int x = 0; x < TILES; x++) {
            double* place = out + (size_t)(row + y * SIDE) * columns + column + x * SIDE;
            wmma::store_matrix_sync(place, sums[y][x], columns, wmma::mem_row_major);
        }
    }
}
