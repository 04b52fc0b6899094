// Forces of particle mesh Ewald: B-splines of order five and their slopes in three dimensions, and a gather of 125
// cells of a periodic mesh. Floats; 30 of them only read in straight-line code.

constexpr int ORDER = 5;

// Splines of order five at a fraction of a cell, and their slopes.
__device__ __forceinline__ void splines(float fraction, float (&value)[ORDER], float (&slope)[ORDER]) {
    value[0] = 1.0f - fraction;
    value[1] = fraction;
#pragma unroll
    for (int order = 3; order <= ORDER; order++) {
        if (order == ORDER) {
            slope[0] = -value[0];
#pragma unroll
            for (int n = 1; n < ORDER - 1; n++) {
                slope[n] = value[n - 1] - value[n];
            }
            slope[ORDER - 1] = value[ORDER - 2];
        }
        float share = 1.0f / (order - 1);
        value[order - 1] = share * fraction * value[order - 2];
#pragma unroll
        for (int n = order - 2; n > 0; n--) {
            value[n] = share * ((fraction + order - 1 - n) * value[n - 1] + (n + 1 - fraction) * value[n]);
        }
        value[0] *= share * (1.0f - fraction);
    }
}

// The mesh has as many cells along each side, a power of two.
extern "C" __global__ void mesh_forces(int side,
                                       const float* __restrict__ places,
                                       const float* __restrict__ charges,
                                       const float* __restrict__ mesh,
                                       float* __restrict__ forces) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    float value[3][ORDER], slope[3][ORDER];
    int cell[3];
#pragma unroll
    for (int n = 0; n < 3; n++) {
        float place = side * places[n * threads + thread], whole = floorf(place);
        cell[n] = (int)whole;
        splines(place - whole, value[n], slope[n]);
    }
    float force[3] = {};
#pragma unroll
    for (int z = 0; z < ORDER; z++) {
        int slice = ((cell[2] + z) & (side - 1)) * side;
#pragma unroll
        for (int y = 0; y < ORDER; y++) {
            int row = (slice + ((cell[1] + y) & (side - 1))) * side;
            float sum = 0.0f, sloped = 0.0f;
#pragma unroll
            for (int x = 0; x < ORDER; x++) {
                float charge = mesh[row + ((cell[0] + x) & (side - 1))];
                sum += value[0][x] * charge;
                sloped += slope[0][x] * charge;
            }
            force[0] += value[1][y] * value[2][z] * sloped;
            force[1] += slope[1][y] * value[2][z] * sum;
            force[2] += value[1][y] * slope[2][z] * sum;
        }
    }
    float charge = -side * charges[thread];
#pragma unroll
    for (int n = 0; n < 3; n++) {
        forces[n * threads + thread] = charge * force[n];
    }
}
