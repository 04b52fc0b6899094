// Monte Carlo of an Asian option in the Heston model, eight paths per thread: each path has a random
// generator of four words, a price, a variance and two running means. Special functions, integer
// arithmetic and floating point in one loop over time.

constexpr int PATHS = 8;

__device__ __forceinline__ unsigned next(unsigned (&s)[4]) {
    unsigned result = s[0] + s[3], t = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = __funnelshift_l(s[3], s[3], 11);
    return result;
}

// In (0, 1].
__device__ __forceinline__ float uniform(unsigned bits) {
    return ((bits >> 9) + 1) * (1.f / 8388608);
}

extern "C" __global__ void heston_asian(int steps,
                                        float dt,
                                        float rate,
                                        float reversion,
                                        float mean,
                                        float volatility,
                                        float correlation,
                                        float strike,
                                        const uint4* __restrict__ seeds,
                                        float* __restrict__ payoff,
                                        float* __restrict__ control) {
    int threads = gridDim.x * blockDim.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned state[PATHS][4];
    float price[PATHS], variance[PATHS], sum[PATHS], sum_of_logs[PATHS];
#pragma unroll
    for (int p = 0; p < PATHS; p++) {
        uint4 seed = seeds[p * threads + i];
        state[p][0] = seed.x;
        state[p][1] = seed.y;
        state[p][2] = seed.z;
        state[p][3] = seed.w | 1;
        price[p] = 0;
        variance[p] = mean;
        sum[p] = sum_of_logs[p] = 0;
    }
    float root_dt = sqrtf(dt), orthogonal = sqrtf(1 - correlation * correlation);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int p = 0; p < PATHS; p++) {
            float radius = sqrtf(-2.f * __logf(uniform(next(state[p])))) * root_dt;
            float angle = 6.2831853f * uniform(next(state[p]));
            float first = radius * __cosf(angle), second = radius * __sinf(angle);
            float v = fmaxf(variance[p], 0.f), root = sqrtf(v);
            price[p] += (rate - 0.5f * v) * dt + root * first;
            variance[p] += reversion * (mean - v) * dt
                + volatility * root * (correlation * first + orthogonal * second);
            sum[p] += __expf(price[p]);
            sum_of_logs[p] += price[p];
        }
    }
    float arithmetic = 0, geometric = 0;
#pragma unroll
    for (int p = 0; p < PATHS; p++) {
        arithmetic += fmaxf(sum[p] / steps - strike, 0.f);
        geometric += fmaxf(__expf(sum_of_logs[p] / steps) - strike, 0.f);
    }
    payoff[i] = arithmetic / PATHS;
    control[i] = geometric / PATHS;
}
