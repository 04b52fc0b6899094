// Mean and central moments up to the fourth of eight columns at once, in double precision and one
// pass: 32 accumulators per thread in the loop over the rows, then the blocks' results are merged
// through shuffles and shared memory.

constexpr int COLUMNS = 8, WARPS = 8;

struct Moments {
    double mean, m2, m3, m4;
};

// Both sides stand for n values.
__device__ __forceinline__ Moments merge(const Moments& a, const Moments& b, double n) {
    double delta = b.mean - a.mean, half = 0.5 * delta, square = half * half;
    Moments both;
    both.mean = a.mean + half;
    both.m2 = a.m2 + b.m2 + 2.0 * n * square;
    both.m3 = a.m3 + b.m3 + 3.0 * half * (b.m2 - a.m2);
    both.m4 = a.m4 + b.m4 + 2.0 * n * square * square + 6.0 * square * (a.m2 + b.m2)
        + 4.0 * half * (b.m3 - a.m3);
    return both;
}

extern "C" __global__ void moments8(int rows, const float* __restrict__ table, double* __restrict__ result) {
    __shared__ Moments shared[WARPS][COLUMNS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float4* from = (const float4*)table + 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    int stride = 2 * gridDim.x * blockDim.x;
    Moments acc[COLUMNS] = {};
    for (int row = 0; row < rows; row++, from += stride) {
        float4 low = from[0], high = from[1];
        float in[COLUMNS] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        double before = row, n = row + 1, inverse = 1.0 / n;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            double delta = in[c] - acc[c].mean, part = delta * inverse, square = part * part;
            double term = delta * part * before;
            acc[c].mean += part;
            acc[c].m4 += term * square * (n * n - 3.0 * n + 3.0) + 6.0 * square * acc[c].m2
                - 4.0 * part * acc[c].m3;
            acc[c].m3 += term * part * (n - 2.0) - 3.0 * part * acc[c].m2;
            acc[c].m2 += term;
        }
    }
    double n = rows;
#pragma unroll 1
    for (int offset = 1; offset < 32; offset *= 2, n *= 2) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            Moments other;
            other.mean = __shfl_down_sync(~0u, acc[c].mean, offset);
            other.m2 = __shfl_down_sync(~0u, acc[c].m2, offset);
            other.m3 = __shfl_down_sync(~0u, acc[c].m3, offset);
            other.m4 = __shfl_down_sync(~0u, acc[c].m4, offset);
            acc[c] = merge(acc[c], other, n);
        }
    }
    if (lane == 0) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            shared[warp][c] = acc[c];
        }
    }
    for (int step = 1; step < WARPS; step *= 2, n *= 2) {
        __syncthreads();
        if (lane < COLUMNS && warp % (2 * step) == 0) {
            shared[warp][lane] = merge(shared[warp][lane], shared[warp + step][lane], n);
        }
    }
    if (threadIdx.x < COLUMNS) {
        Moments total = shared[0][threadIdx.x];
        double* to = result + (blockIdx.x * COLUMNS + threadIdx.x) * 4;
        to[0] = total.mean;
        to[1] = total.m2;
        to[2] = total.m3;
        to[3] = total.m4;
    }
}
