// Alignment of point clouds, point to plane: the normal equations of six unknowns, summed over points with Huber's
// weights. Floats, a root and a division; 28 sums and the twelve numbers of a pose around a loop.

constexpr int UNKNOWNS = 6, SUMS = UNKNOWNS * (UNKNOWNS + 1) / 2 + UNKNOWNS + 1;

// Points, their partners and normals are arrays of numbers, one coordinate after the other.
extern "C" __global__ void normal_equations(int count,
                                            float limit,
                                            const float* __restrict__ poses,
                                            const float* __restrict__ points,
                                            const float* __restrict__ partners,
                                            const float* __restrict__ normals,
                                            float* __restrict__ out) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    float pose[12];
#pragma unroll
    for (int n = 0; n < 12; n++) {
        pose[n] = poses[n * gridDim.x + blockIdx.x];
    }
    float sums[SUMS] = {};
    int stride = count * threads;
#pragma unroll 1
    for (int i = thread; i < stride; i += threads) {
        float point[3] = {points[i], points[i + stride], points[i + 2 * stride]};
        float normal[3] = {normals[i], normals[i + stride], normals[i + 2 * stride]};
        float moved[3], distance = 0.0f;
#pragma unroll
        for (int n = 0; n < 3; n++) {
            const float* row = pose + 4 * n;
            moved[n] = row[0] * point[0] + row[1] * point[1] + row[2] * point[2] + row[3];
            distance += normal[n] * (moved[n] - partners[i + n * stride]);
        }
        float slope[UNKNOWNS] = {
            moved[1] * normal[2] - moved[2] * normal[1],
            moved[2] * normal[0] - moved[0] * normal[2],
            moved[0] * normal[1] - moved[1] * normal[0],
            normal[0],
            normal[1],
            normal[2],
        };
        float size = fabsf(distance);
        float weight = size <= limit ? 1.0f : sqrtf(limit / size);
        int at = 0;
#pragma unroll
        for (int row = 0; row < UNKNOWNS; row++) {
            float weighted = weight * slope[row];
#pragma unroll
            for (int column = 0; column <= row; column++) {
                sums[at++] += weighted * slope[column];
            }
            sums[at++] += weighted * distance;
        }
        sums[at] += weight * distance * distance;
    }
#pragma unroll
    for (int n = 0; n < SUMS; n++) {
        out[n * threads + thread] = sums[n];
    }
}
