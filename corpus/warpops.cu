// Instructions whose meaning depends on other lanes: shuffles with predicate results, votes, match,
// redux, activemask, and atomics of every width. Spill code must never change who takes part.

extern "C" __global__ void collectives(const int* __restrict__ x, int* __restrict__ y, int rounds) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x & 31;
    int v = x[t], mixed = 0;
    for (int i = 0; i < rounds; i++) {
        unsigned odd = __ballot_sync(~0u, v & 1);
        int neighbour = __shfl_xor_sync(~0u, v, 1 << (i % 5));
        int above = __shfl_up_sync(~0u, v, 3, 16);
        int below = __shfl_down_sync(~0u, neighbour, 2);
        int chosen = __shfl_sync(~0u, above, (lane * 7 + i) & 31);
        int same;
        unsigned everyone = __match_all_sync(~0u, v & 3, &same);
        unsigned group = __match_any_sync(~0u, v & 7);
        if (__any_sync(~0u, chosen > below) && !__all_sync(~0u, same)) {
            mixed += __popc(group & odd) + __ffs(everyone | 1);
        }
        mixed += __reduce_add_sync(group, v) ^ __reduce_max_sync(~0u, below);
        v = v * 1103515245 + 12345 + chosen;
        if (v & 4) {
            // Only some lanes get here; they agree among themselves.
            unsigned active = __match_any_sync(__activemask(), 1);
            mixed ^= __shfl_sync(active, v, __ffs(active) - 1);
        }
        __syncwarp();
    }
    y[t] = mixed;
}

// Shuffle with its range predicate, as a segmented scan writes it.
extern "C" __global__ void segmented_scan(const float* __restrict__ x, float* __restrict__ y) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[t];
#pragma unroll
    for (int offset = 1; offset < 32; offset <<= 1) {
        asm volatile(
            "{\n\t"
            ".reg .f32 up;\n\t"
            ".reg .pred in_range;\n\t"
            "shfl.sync.up.b32 up|in_range, %0, %1, 0, -1;\n\t"
            "@in_range add.f32 %0, %0, up;\n\t"
            "}"
            : "+f"(v)
            : "r"(offset));
    }
    y[t] = v;
}

// Integer atomics commute, so the result does not depend on the order of the threads.
extern "C" __global__ void histogram(const unsigned* __restrict__ x,
                                     unsigned* bins,
                                     unsigned long long* totals,
                                     int n) {
    __shared__ unsigned local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        local[i] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned v = x[i];
        atomicAdd(&local[v & 255], 1);
        atomicMax(&bins[256 + (v >> 28)], v);
        atomicMin(&bins[272 + (v >> 28)], v);
        atomicXor(&bins[288], v);
        atomicAdd(&totals[v & 3], (unsigned long long)v * v);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        atomicAdd(&bins[i], local[i]);
    }
}

// A compare-and-swap loop: 64-bit values carried around a loop that ends when the memory agrees.
extern "C" __global__ void saturating(unsigned long long* cells, const unsigned* __restrict__ x) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long* cell = cells + (t & 7);
    unsigned long long seen = *cell, assumed;
    do {
        assumed = seen;
        unsigned long long next = assumed + x[t];
        next = next < (1ull << 40) ? next : (1ull << 40);
        seen = atomicCAS(cell, assumed, next);
    } while (seen != assumed);
}
