// Median of 5x5 pixels, four pixels per thread: forgetful selection, which keeps fourteen of the pixels seen so
// far and drops the least and the greatest with every further one. Floats, minima and maxima; 36 values read
// around straight-line code.

constexpr int SIDE = 6, KEPT = 14;

__device__ __forceinline__ void exchange(float& low, float& high) {
    float least = fminf(low, high);
    high = fmaxf(low, high);
    low = least;
}

// The median of the 25 pixels whose first is at (X, Y) of the window.
template <int X, int Y>
__device__ __forceinline__ float median(const float (&window)[SIDE * SIDE]) {
    float kept[KEPT];
#pragma unroll
    for (int n = 0; n < KEPT; n++) {
        kept[n] = window[(Y + n / 5) * SIDE + X + n % 5];
    }
#pragma unroll
    for (int seen = KEPT; seen < 25; seen++) {
        int count = 2 * KEPT - seen;
#pragma unroll
        for (int n = 1; n < count; n++) {
            exchange(kept[0], kept[n]);
        }
#pragma unroll
        for (int n = 1; n < count - 1; n++) {
            exchange(kept[n], kept[count - 1]);
        }
        // The next pixel takes the place of the least, and the greatest is forgotten.
        kept[0] = window[(Y + seen / 5) * SIDE + X + seen % 5];
    }
    return fmaxf(fminf(kept[0], kept[1]), fminf(fmaxf(kept[0], kept[1]), kept[2]));
}

// The picture has a border of two pixels.
extern "C" __global__ void median25(int width, const float* __restrict__ in, float* __restrict__ out) {
    int x = 2 * (blockIdx.x * blockDim.x + threadIdx.x), y = 2 * blockIdx.y;
    int pitch = width + 4;
    in += (size_t)y * pitch + x;
    float window[SIDE * SIDE];
#pragma unroll
    for (int n = 0; n < SIDE * SIDE; n++) {
        window[n] = in[(n / SIDE) * pitch + n % SIDE];
    }
    out += (size_t)y * width + x;
    out[0] = median<0, 0>(window);
    out[1] = median<1, 0>(window);
    out[width] = median<0, 1>(window);
    out[width + 1] = median<1, 1>(window);
}
