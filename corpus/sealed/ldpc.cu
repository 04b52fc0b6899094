// Decoding of a quasi-cyclic LDPC code by layers, normalised min-sum: a frame per block, a row of each layer per
// thread. Floats; shared memory, 24 messages and their places between gathers and scatters, a loop with barriers.

typedef unsigned int u32;

constexpr int COLUMNS = 30, LAYERS = 5, DEGREE = 24, LIFT = 128;

// `ratios` and `out` hold COLUMNS * LIFT numbers for each block, `shifts` one number for each edge of a layer. A block
// has LIFT threads.
extern "C" __global__ void min_sum(int rounds,
                                   float factor,
                                   const int* __restrict__ shifts,
                                   const float* __restrict__ ratios,
                                   float* __restrict__ out) {
    __shared__ float beliefs[COLUMNS * LIFT];
    __shared__ float2 least[LAYERS][LIFT];
    __shared__ u32 signs[LAYERS][LIFT];
    int thread = threadIdx.x;
    size_t frame = (size_t)blockIdx.x * COLUMNS * LIFT;
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
        beliefs[n * LIFT + thread] = ratios[frame + n * LIFT + thread];
    }
#pragma unroll
    for (int n = 0; n < LAYERS; n++) {
        least[n][thread] = make_float2(0.0f, 0.0f);
        signs[n][thread] = 0;
    }
    __syncthreads();
#pragma unroll 1
    for (int round = 0; round < rounds; round++) {
#pragma unroll 1
        for (int layer = 0; layer < LAYERS; layer++) {
            float2 old = least[layer][thread];
            u32 word = signs[layer][thread], parity = 0, negative = 0;
            int position = word >> 24, place[DEGREE];
            float message[DEGREE];
            // No two edges of a layer share a column, so no two threads share a place.
#pragma unroll
            for (int n = 0; n < DEGREE; n++) {
                int column = 4 * layer + n;
                column -= column >= COLUMNS ? COLUMNS : 0;
                place[n] = column * LIFT + ((thread + shifts[layer * DEGREE + n]) & (LIFT - 1));
                float size = n == position ? old.y : old.x;
                message[n] = beliefs[place[n]] - (word >> n & 1 ? -size : size);
                u32 sign = __float_as_uint(message[n]) >> 31;
                parity ^= sign;
                negative |= sign << n;
            }
            float first = fabsf(message[0]), second = 1e30f;
            position = 0;
#pragma unroll
            for (int n = 1; n < DEGREE; n++) {
                float size = fabsf(message[n]);
                second = fminf(second, fmaxf(first, size));
                position = size < first ? n : position;
                first = fminf(first, size);
            }
            first *= factor;
            second *= factor;
            word = parity ? ~negative & ((1 << DEGREE) - 1) : negative;
#pragma unroll
            for (int n = 0; n < DEGREE; n++) {
                float size = n == position ? second : first;
                beliefs[place[n]] = message[n] + (word >> n & 1 ? -size : size);
            }
            least[layer][thread] = make_float2(first, second);
            signs[layer][thread] = word | position << 24;
            __syncthreads();
        }
    }
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
        out[frame + n * LIFT + thread] = beliefs[n * LIFT + thread];
    }
}
