// Shared memory in the shapes that collide with spilling to shared memory: dynamic and static
// arrays side by side, a three-dimensional block, and launch bounds.

extern __shared__ float dynamic[];

// Separable 3-D smoothing of one brick per block; the block may have any shape.
extern "C" __global__ void brick(const float* __restrict__ in,
                                 float* __restrict__ out,
                                 int rounds) {
    __shared__ float weight[8];
    int nx = blockDim.x, ny = blockDim.y, nz = blockDim.z;
    int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
    int t = (z * ny + y) * nx + x, size = nx * ny * nz;
    if (t < 8) {
        weight[t] = 1.0f / (t + 1);
    }
    dynamic[t] = in[blockIdx.x * size + t];
    __syncthreads();
    for (int i = 0; i < rounds; i++) {
        float left = dynamic[x > 0 ? t - 1 : t];
        float right = dynamic[x + 1 < nx ? t + 1 : t];
        float up = dynamic[y > 0 ? t - nx : t];
        float down = dynamic[y + 1 < ny ? t + nx : t];
        float front = dynamic[z > 0 ? t - nx * ny : t];
        float back = dynamic[z + 1 < nz ? t + nx * ny : t];
        float smooth = dynamic[t] * weight[i & 7] + (left + right) * 0.25f + (up + down) * 0.125f +
                       (front - back) * 0.0625f;
        __syncthreads();
        dynamic[t] = smooth;
        __syncthreads();
    }
    out[blockIdx.x * size + t] = dynamic[t];
}

// 16x16 threads, 4x4 outputs each, tiles in dynamic shared memory, two blocks per multiprocessor.
extern "C" __global__ void __launch_bounds__(256, 2)
    tiled(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    float* tile_a = dynamic;
    float* tile_b = dynamic + 64 * 17;
    int tx = threadIdx.x, ty = threadIdx.y;
    float acc[4][4] = {};
    for (int k0 = 0; k0 < n; k0 += 16) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            tile_a[(ty + 16 * i) * 17 + tx] = a[(blockIdx.y * 64 + ty + 16 * i) * n + k0 + tx];
            tile_b[ty * 65 + tx + 16 * i] = b[(k0 + ty) * n + blockIdx.x * 64 + tx + 16 * i];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; k++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    acc[i][j] += tile_a[(ty + 16 * i) * 17 + k] * tile_b[k * 65 + tx + 16 * j];
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            c[(blockIdx.y * 64 + ty + 16 * i) * n + blockIdx.x * 64 + tx + 16 * j] = acc[i][j];
        }
    }
}
