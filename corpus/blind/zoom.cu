// A volume enlarged by cubic convolution (Catmull and Rom's splines): a thread holds the 4x4x4 samples
// around one cell and makes all finer samples within it. Floats; 64 values that are only read stay live
// around three nested loops.

constexpr int TAPS = 4;

__device__ __forceinline__ void weigh(float t, float (&w)[TAPS]) {
    float u = 1.f - t;
    w[0] = -0.5f * t * u * u;
    w[1] = 1.f + t * t * (1.5f * t - 2.5f);
    w[2] = 1.f + u * u * (1.5f * u - 2.5f);
    w[3] = -0.5f * u * t * t;
}

// A thread is a cell, a layer of blocks one layer of cells; along each axis the volume has three samples
// more than cells.
extern "C" __global__ void zoom(int width,
                                int height,
                                int parts,
                                const float* __restrict__ volume,
                                float* __restrict__ finer) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
    float sample[TAPS][TAPS][TAPS];
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
#pragma unroll
        for (int j = 0; j < TAPS; j++) {
#pragma unroll
            for (int i = 0; i < TAPS; i++) {
                size_t row = (size_t)(z + k) * (height + TAPS - 1) + y + j;
                sample[k][j][i] = volume[row * (width + TAPS - 1) + x + i];
            }
        }
    }
    float part = 1.f / parts;
    for (int fz = 0; fz < parts; fz++) {
        float w[TAPS], plane[TAPS][TAPS];
        weigh(fz * part, w);
#pragma unroll
        for (int j = 0; j < TAPS; j++) {
#pragma unroll
            for (int i = 0; i < TAPS; i++) {
                plane[j][i] = w[0] * sample[0][j][i] + w[1] * sample[1][j][i] + w[2] * sample[2][j][i]
                    + w[3] * sample[3][j][i];
            }
        }
        for (int fy = 0; fy < parts; fy++) {
            float v[TAPS], line[TAPS];
            weigh(fy * part, v);
#pragma unroll
            for (int i = 0; i < TAPS; i++) {
                line[i] = v[0] * plane[0][i] + v[1] * plane[1][i] + v[2] * plane[2][i] + v[3] * plane[3][i];
            }
            size_t row = (size_t)(z * parts + fz) * (height * parts) + y * parts + fy;
            float* output = finer + (row * width + x) * parts;
            for (int fx = 0; fx < parts; fx++) {
                float u[TAPS];
                weigh(fx * part, u);
                output[fx] = u[0] * line[0] + u[1] * line[1] + u[2] * line[2] + u[3] * line[3];
            }
        }
    }
}
