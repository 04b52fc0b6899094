// Depth from two pictures, one path of semi-global matching: a thread walks down a column of pixels with
// the costs of 32 disparities, which are Hamming distances of census bits and a price for every jump. The
// block stages a row of the other picture in shared memory, two rows in turn, one barrier per row.
// Integers, minima; 32 costs around a loop.

typedef unsigned long long u64;

constexpr int DISPARITIES = 32, THREADS = 128, SEGMENT = THREADS + DISPARITIES;

// Rows of the right picture begin 32 columns further left. The result is the best disparity in five bits
// and its cost above.
extern "C" __global__ void matching_path(int width,
                                         int height,
                                         int step,
                                         int jump,
                                         const u64* __restrict__ left,
                                         const u64* __restrict__ right,
                                         unsigned short* __restrict__ best) {
    __shared__ u64 segment[2][SEGMENT];
    int x = blockIdx.x * THREADS + threadIdx.x, pitch = width + DISPARITIES;
    left += (size_t)blockIdx.y * width * height + x;
    right += (size_t)blockIdx.y * pitch * height + blockIdx.x * THREADS;
    best += (size_t)blockIdx.y * width * height + x;
    int cost[DISPARITIES] = {}, least = 0;
#pragma unroll 1
    for (int y = 0; y < height; y++) {
        u64* row = segment[y % 2];
        for (int i = threadIdx.x; i < SEGMENT; i += THREADS) {
            row[i] = right[(size_t)y * pitch + i];
        }
        u64 census = left[(size_t)y * width];
        __syncthreads();
        int before = 1 << 20, lowest = 1 << 20, winner = 1 << 20;
#pragma unroll
        for (int d = 0; d < DISPARITIES; d++) {
            int after = d + 1 < DISPARITIES ? cost[d + 1] : 1 << 20;
            int path = min(min(cost[d], least + jump), min(before, after) + step) - least;
            before = cost[d];
            cost[d] = path + __popcll(census ^ row[threadIdx.x + DISPARITIES - d]);
            lowest = min(lowest, cost[d]);
            winner = min(winner, cost[d] * DISPARITIES + d);
        }
        least = lowest;
        best[(size_t)y * width] = winner;
    }
}
