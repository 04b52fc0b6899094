// Generations of Conway's life on tori of 64 by 24 cells, one per thread, a row of cells per word of 64 bits: integers,
// rotations, adders of bits, 24 words around a loop.

typedef unsigned long long u64;

constexpr int ROWS = 24;

// The sum of a cell and its neighbours at the left and the right, in two bits.
struct Sum {
    u64 ones, twos;
};

__device__ __forceinline__ Sum beside(u64 row) {
    u64 left = row << 1 | row >> 63, right = row >> 1 | row << 63;
    return {left ^ row ^ right, (left & row) | (right & (left ^ row))};
}

// A row after a generation: alive are cells with three in the nine around, or with four if alive before.
__device__ __forceinline__ u64 next(u64 row, Sum above, Sum here, Sum below) {
    u64 ones = above.ones ^ here.ones ^ below.ones;
    u64 carry = (above.ones & here.ones) | (below.ones & (above.ones ^ here.ones));
    u64 pair = above.twos ^ here.twos, both = above.twos & here.twos;
    u64 third = below.twos ^ carry, fourth = below.twos & carry;
    u64 twos = pair ^ third, over = pair & third;
    u64 fours = both ^ fourth ^ over, eights = (both & fourth) | (over & (both ^ fourth));
    return (ones & twos & ~fours & ~eights) | (row & ~ones & ~twos & fours & ~eights);
}

// `changes` gets how many cells were born or died, over all generations.
extern "C" __global__ void generations(int count,
                                       const u64* __restrict__ in,
                                       u64* __restrict__ out,
                                       int* __restrict__ changes) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    u64 rows[ROWS];
#pragma unroll
    for (int n = 0; n < ROWS; n++) {
        rows[n] = in[n * threads + thread];
    }
    int changed = 0;
#pragma unroll 1
    for (int generation = 0; generation < count; generation++) {
        Sum first = beside(rows[0]), above = beside(rows[ROWS - 1]), here = first;
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
            Sum below = n + 1 < ROWS ? beside(rows[n + 1]) : first;
            u64 row = next(rows[n], above, here, below);
            changed += __popcll(row ^ rows[n]);
            rows[n] = row;
            above = here;
            here = below;
        }
    }
#pragma unroll
    for (int n = 0; n < ROWS; n++) {
        out[n * threads + thread] = rows[n];
    }
    changes[thread] = changed;
}
