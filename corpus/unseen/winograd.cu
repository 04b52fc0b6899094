// Convolution by Winograd's algorithm F(4x4, 3x3): a thread has one tile of one output channel. Floats; 36 sums
// around a loop over input channels, each of which transforms 6x6 pixels; filters in shared memory.

constexpr int SIDE = 6, TILE = SIDE * SIDE;

// One column or row of the transform of the input.
__device__ __forceinline__ void transform(float& a, float& b, float& c, float& d, float& e, float& f) {
    float even = d - 4.0f * b, odd = e - 4.0f * c;
    float near = 2.0f * (d - b), far = e - c;
    float first = 4.0f * a - 5.0f * c + e, last = 4.0f * b - 5.0f * d + f;
    a = first;
    b = odd + even;
    c = odd - even;
    d = far + near;
    e = far - near;
    f = last;
}

// Filters are transformed already. The picture has a border, so that tiles overlap by two pixels.
extern "C" __global__ void winograd(int channels,
                                    int tiles,
                                    const float* __restrict__ in,
                                    const float* __restrict__ filters,
                                    float* __restrict__ out) {
    __shared__ float filter[TILE];
    int x = threadIdx.x, y = blockIdx.x, to = blockIdx.y;
    int pitch = 4 * tiles + 2;
    size_t plane = (size_t)pitch * (4 * gridDim.x + 2);
    float sums[TILE] = {};
#pragma unroll 1
    for (int from = 0; from < channels; from++) {
        __syncthreads();
        if (x < TILE) {
            filter[x] = filters[((size_t)to * channels + from) * TILE + x];
        }
        __syncthreads();
        const float* pixels = in + from * plane + (size_t)(4 * y) * pitch + 4 * x;
        float d[TILE];
#pragma unroll
        for (int n = 0; n < TILE; n++) {
            d[n] = pixels[(n / SIDE) * pitch + n % SIDE];
        }
#pragma unroll
        for (int n = 0; n < SIDE; n++) {
            transform(d[n], d[6 + n], d[12 + n], d[18 + n], d[24 + n], d[30 + n]);
        }
#pragma unroll
        for (int n = 0; n < TILE; n += SIDE) {
            transform(d[n], d[n + 1], d[n + 2], d[n + 3], d[n + 4], d[n + 5]);
        }
#pragma unroll
        for (int n = 0; n < TILE; n++) {
            sums[n] += d[n] * filter[n];
        }
    }
    float rows[4][SIDE];
#pragma unroll
    for (int n = 0; n < SIDE; n++) {
        float plus = sums[6 + n] + sums[12 + n], minus = sums[6 + n] - sums[12 + n];
        float plus2 = sums[18 + n] + sums[24 + n], minus2 = sums[18 + n] - sums[24 + n];
        rows[0][n] = sums[n] + plus + plus2;
        rows[1][n] = minus + 2.0f * minus2;
        rows[2][n] = plus + 4.0f * plus2;
        rows[3][n] = minus + 8.0f * minus2 + sums[30 + n];
    }
    out += ((size_t)to * 4 * gridDim.x + 4 * y) * 4 * tiles + 4 * x;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float* r = rows[n];
        float plus = r[1] + r[2], minus = r[1] - r[2], plus2 = r[3] + r[4], minus2 = r[3] - r[4];
        float* place = out + (size_t)n * 4 * tiles;
        place[0] = r[0] + plus + plus2;
        place[1] = minus + 2.0f * minus2;
        place[2] = plus + 4.0f * plus2;
        place[3] = minus + 8.0f * minus2 + r[5];
    }
}
