// The forward algorithm of a profile hidden Markov model of 20 nodes, a sequence per thread: floats, 60 of them around
// a loop over letters, odds of letters in shared memory.

typedef unsigned int u32;

constexpr int NODES = 20, LETTERS = 32;

// `odds` holds NODES numbers for each letter. Four letters share a word.
extern "C" __global__ void forward(int words,
                                   float enter,
                                   float open,
                                   float extend,
                                   const float* __restrict__ odds,
                                   const u32* __restrict__ sequences,
                                   float* __restrict__ out) {
    __shared__ float4 table[LETTERS * NODES / 4];
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    for (int n = threadIdx.x; n < LETTERS * NODES / 4; n += blockDim.x) {
        table[n] = reinterpret_cast<const float4*>(odds)[n];
    }
    __syncthreads();
    float match[NODES] = {}, insert[NODES] = {}, erase[NODES] = {};
    float stay = 1.0f - 2.0f * open, close = 1.0f - extend, total = 0.0f;
#pragma unroll 1
    for (int n = 0; n < words; n++) {
        u32 word = sequences[n * threads + thread];
#pragma unroll 1
        for (int letter = 0; letter < 4; letter++) {
            const float4* row = table + (word & (LETTERS - 1)) * (NODES / 4);
            word >>= 8;
            // What the node before held at the letter before, and what it holds now.
            float came = enter, matched = 0.0f, erased = 0.0f;
#pragma unroll
            for (int part = 0; part < NODES / 4; part++) {
                float4 four = row[part];
                float odd[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int lane = 0; lane < 4; lane++) {
                    int node = 4 * part + lane;
                    float now = odd[lane] * came;
                    came = enter + stay * match[node] + close * (insert[node] + erase[node]);
                    insert[node] = open * match[node] + extend * insert[node];
                    erased = open * matched + extend * erased;
                    erase[node] = erased;
                    match[node] = now;
                    matched = now;
                }
            }
            total += matched + erased;
        }
    }
    float rest = 0.0f;
#pragma unroll
    for (int node = 0; node < NODES; node++) {
        rest += match[node] + insert[node] + erase[node];
    }
    out[thread] = logf(total + 1e-30f);
    out[threads + thread] = rest;
}
