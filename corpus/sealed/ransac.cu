// Homographies by random samples: eight equations of four pairs of points, solved by elimination with pivots, and a
// count of the pairs that agree, which lie in shared memory. Floats; 72 of them in straight-line code with swaps,
// eight around a loop.

typedef unsigned int u32;

constexpr int PAIRS = 128, SIZE = 8;

// `pairs` holds PAIRS pairs for each block. A thread has a sample of its own, a pair from each quarter of them.
extern "C" __global__ void homographies(float limit,
                                        const float4* __restrict__ pairs,
                                        const u32* __restrict__ seeds,
                                        float* __restrict__ out,
                                        int* __restrict__ counts) {
    __shared__ float4 shared[PAIRS];
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    for (int n = threadIdx.x; n < PAIRS; n += blockDim.x) {
        shared[n] = pairs[blockIdx.x * PAIRS + n];
    }
    __syncthreads();
    float rows[SIZE][SIZE + 1];
    u32 seed = seeds[thread];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float4 pair = shared[n * (PAIRS / 4) + (seed >> 8 * n & (PAIRS / 4 - 1))];
        float from[3] = {pair.x, pair.y, 1.0f};
#pragma unroll
        for (int column = 0; column < 3; column++) {
            rows[2 * n][column] = from[column];
            rows[2 * n][column + 3] = 0.0f;
            rows[2 * n + 1][column] = 0.0f;
            rows[2 * n + 1][column + 3] = from[column];
        }
#pragma unroll
        for (int column = 0; column < 2; column++) {
            rows[2 * n][column + 6] = -pair.z * from[column];
            rows[2 * n + 1][column + 6] = -pair.w * from[column];
        }
        rows[2 * n][SIZE] = pair.z;
        rows[2 * n + 1][SIZE] = pair.w;
    }
#pragma unroll
    for (int pivot = 0; pivot < SIZE; pivot++) {
#pragma unroll
        for (int row = pivot + 1; row < SIZE; row++) {
            bool swap = fabsf(rows[row][pivot]) > fabsf(rows[pivot][pivot]);
#pragma unroll
            for (int column = pivot; column <= SIZE; column++) {
                float upper = rows[pivot][column], lower = rows[row][column];
                rows[pivot][column] = swap ? lower : upper;
                rows[row][column] = swap ? upper : lower;
            }
        }
        float inverse = 1.0f / rows[pivot][pivot];
#pragma unroll
        for (int column = pivot + 1; column <= SIZE; column++) {
            rows[pivot][column] *= inverse;
        }
#pragma unroll
        for (int row = pivot + 1; row < SIZE; row++) {
#pragma unroll
            for (int column = pivot + 1; column <= SIZE; column++) {
                rows[row][column] -= rows[row][pivot] * rows[pivot][column];
            }
        }
    }
    float h[SIZE];
#pragma unroll
    for (int row = SIZE - 1; row >= 0; row--) {
        h[row] = rows[row][SIZE];
#pragma unroll
        for (int column = row + 1; column < SIZE; column++) {
            h[row] -= rows[row][column] * h[column];
        }
    }
    int count = 0;
#pragma unroll 4
    for (int n = 0; n < PAIRS; n++) {
        float4 pair = shared[n];
        float w = h[6] * pair.x + h[7] * pair.y + 1.0f;
        float x = h[0] * pair.x + h[1] * pair.y + h[2] - w * pair.z;
        float y = h[3] * pair.x + h[4] * pair.y + h[5] - w * pair.w;
        count += x * x + y * y < limit * w * w;
    }
#pragma unroll
    for (int n = 0; n < SIZE; n++) {
        out[n * threads + thread] = h[n];
    }
    counts[thread] = count;
}
