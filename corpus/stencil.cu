// A 25-point stencil that marches along z with a queue of nine planes in registers: values rotate
// from iteration to iteration, so copies and loop-carried lifetimes dominate.

extern "C" __global__ void stencil25(const float* __restrict__ in,
                                     float* __restrict__ out,
                                     int nx,
                                     int ny,
                                     int nz,
                                     float c0,
                                     float c1,
                                     float c2,
                                     float c3,
                                     float c4) {
    int x = blockIdx.x * blockDim.x + threadIdx.x + 4;
    int y = blockIdx.y * blockDim.y + threadIdx.y + 4;
    if (x >= nx - 4 || y >= ny - 4) {
        return;
    }
    size_t plane = (size_t)nx * ny;
    size_t column = (size_t)y * nx + x;
    float c[5] = {c0, c1, c2, c3, c4};
    float queue[9];
#pragma unroll
    for (int k = 0; k < 8; k++) {
        queue[k] = in[column + k * plane];
    }
#pragma unroll 4
    for (int z = 4; z < nz - 4; z++) {
        size_t o = column + z * plane;
        queue[8] = in[o + 4 * plane];
        float r = c0 * queue[4];
#pragma unroll
        for (int k = 1; k <= 4; k++) {
            r += c[k] * (queue[4 - k] + queue[4 + k] + in[o - k] + in[o + k] +
                         in[o - (size_t)k * nx] + in[o + (size_t)k * nx]);
        }
        out[o] = r;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            queue[k] = queue[k + 1];
        }
    }
}
