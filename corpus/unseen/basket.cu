// A path of sixteen correlated prices per thread, for an Asian option on their sum: random numbers by xorshift and
// Box and Muller, correlations in shared memory. Floats, logarithms and exponentials; 32 of them around a loop, 16
// more in each turn.

typedef unsigned int u32;

constexpr int ASSETS = 16, ENTRIES = ASSETS * (ASSETS + 1) / 2;

__device__ __forceinline__ u32 next(u32& state) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

extern "C" __global__ void basket(int steps,
                                  float strike,
                                  const u32* __restrict__ seeds,
                                  const float* __restrict__ factors,
                                  const float* __restrict__ drifts,
                                  float* __restrict__ payoffs,
                                  float* __restrict__ prices) {
    __shared__ float factor[ENTRIES], drift[ASSETS];
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    for (int n = threadIdx.x; n < ENTRIES; n += blockDim.x) {
        factor[n] = factors[n];
    }
    if (threadIdx.x < ASSETS) {
        drift[threadIdx.x] = drifts[threadIdx.x];
    }
    __syncthreads();
    u32 state = seeds[thread] | 1;
    float logarithm[ASSETS] = {}, mean[ASSETS] = {};
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        float normal[ASSETS];
#pragma unroll
        for (int n = 0; n < ASSETS; n += 2) {
            float radius = sqrtf(-2.0f * __logf((float)(next(state) >> 8 | 1) * 0x1p-24f));
            float angle = (float)(next(state) >> 8) * (6.2831853f * 0x1p-24f);
            normal[n] = radius * __cosf(angle);
            normal[n + 1] = radius * __sinf(angle);
        }
#pragma unroll
        for (int n = 0; n < ASSETS; n++) {
            float change = drift[n];
#pragma unroll
            for (int m = 0; m <= n; m++) {
                change += factor[n * (n + 1) / 2 + m] * normal[m];
            }
            logarithm[n] += change;
            mean[n] += __expf(logarithm[n]);
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < ASSETS; n++) {
        sum += mean[n];
        prices[n * threads + thread] = __expf(logarithm[n]);
    }
    payoffs[thread] = fmaxf(sum / (float)(ASSETS * steps) - strike, 0.0f);
}
