// A recurrent network (GRU) whose weights persist in registers: a warp follows two sequences, a lane
// computes one of the 32 units and holds its rows of weights, 108 floats, around the loop over time. The
// state goes from lane to lane through shared memory, two copies in turn. Floats, exponentials.

constexpr int UNITS = 32, FEATURES = 4, GATES = 3, SEQUENCES = 2, WARPS = 4;

__device__ __forceinline__ float sigmoid(float x) {
    return __fdividef(1.f, 1.f + __expf(-x));
}

// Weights lie by columns, the features' first. The fourth bias of a unit is that of its candidate within
// the reset gate.
extern "C" __global__ void gru(int steps,
                               const float* __restrict__ weights,
                               const float4* __restrict__ biases,
                               const float4* __restrict__ features,
                               float* __restrict__ states) {
    __shared__ __align__(16) float shared[WARPS][2][SEQUENCES][UNITS];
    int warp = threadIdx.x / 32, unit = threadIdx.x % 32;
    int first = (blockIdx.x * WARPS + warp) * SEQUENCES;
    float input_weight[GATES][FEATURES], weight[GATES][UNITS], state[SEQUENCES];
#pragma unroll
    for (int g = 0; g < GATES; g++) {
#pragma unroll
        for (int k = 0; k < FEATURES; k++) {
            input_weight[g][k] = weights[(g * (FEATURES + UNITS) + k) * UNITS + unit];
        }
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            weight[g][k] = weights[(g * (FEATURES + UNITS) + FEATURES + k) * UNITS + unit];
        }
    }
    float4 bias = biases[unit];
#pragma unroll
    for (int s = 0; s < SEQUENCES; s++) {
        state[s] = 0.f;
        shared[warp][0][s][unit] = 0.f;
    }
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        __syncwarp();
#pragma unroll
        for (int s = 0; s < SEQUENCES; s++) {
            float4 x = features[(size_t)(first + s) * steps + step];
            float sum[GATES] = {bias.x, bias.y, bias.z}, recurrent = bias.w;
#pragma unroll
            for (int g = 0; g < GATES; g++) {
                sum[g] += input_weight[g][0] * x.x + input_weight[g][1] * x.y + input_weight[g][2] * x.z
                    + input_weight[g][3] * x.w;
            }
#pragma unroll
            for (int k = 0; k < UNITS; k += 4) {
                float4 four = *(const float4*)&shared[warp][step % 2][s][k];
                float h[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    sum[0] += weight[0][k + i] * h[i];
                    sum[1] += weight[1][k + i] * h[i];
                    recurrent += weight[2][k + i] * h[i];
                }
            }
            float update = sigmoid(sum[0]), reset = sigmoid(sum[1]);
            float candidate = 2.f * sigmoid(2.f * (sum[2] + reset * recurrent)) - 1.f;
            state[s] = candidate + update * (state[s] - candidate);
            shared[warp][(step + 1) % 2][s][unit] = state[s];
        }
    }
#pragma unroll
    for (int s = 0; s < SEQUENCES; s++) {
        states[(first + s) * UNITS + unit] = state[s];
    }
}
