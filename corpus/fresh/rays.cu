// Closest hits of a pinhole camera: six rays per thread against all triangles, a tile of them in
// shared memory at a time. Floats, compares and selects; 60 values stay live around the loop.

constexpr int RAYS = 6, TILE = 128;

__device__ __forceinline__ float jitter(unsigned n) {
    n = (n ^ 61) ^ n >> 16;
    n *= 9;
    n ^= n >> 4;
    n *= 0x27d4eb2d;
    n ^= n >> 15;
    return (n >> 8) * (1.f / 16777216) - 0.5f;
}

extern "C" __global__ void closest_hits(int width,
                                        int height,
                                        int triangles,
                                        float lens,
                                        const float* __restrict__ corners,
                                        int* __restrict__ hits,
                                        float4* __restrict__ places) {
    __shared__ float tile[TILE * 9];
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int threads = gridDim.x * blockDim.x;
    float ox[RAYS], oy[RAYS], dx[RAYS], dy[RAYS], dz[RAYS], near[RAYS], bu[RAYS], bv[RAYS];
    int hit[RAYS];
#pragma unroll
    for (int r = 0; r < RAYS; r++) {
        int pixel = r * threads + thread;
        float x = (pixel % width + 0.5f) / width - 0.5f, y = (pixel / width + 0.5f) / height - 0.5f;
        ox[r] = lens * jitter(2 * pixel);
        oy[r] = lens * jitter(2 * pixel + 1);
        float length = rsqrtf(x * x + y * y + 1.f);
        dx[r] = x * length;
        dy[r] = y * length;
        dz[r] = length;
        near[r] = 1e30f;
        bu[r] = bv[r] = 0.f;
        hit[r] = -1;
    }
    for (int first = 0; first < triangles; first += TILE) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * 9; i += blockDim.x) {
            tile[i] = corners[first * 9 + i] + (i % 3 == 2 ? 3.f : 0.f);
        }
        __syncthreads();
#pragma unroll 1
        for (int k = 0; k < TILE; k++) {
            const float* t = tile + k * 9;
            float ax = t[0], ay = t[1], az = t[2];
            float ux = t[3] - ax, uy = t[4] - ay, uz = t[5] - az;
            float vx = t[6] - ax, vy = t[7] - ay, vz = t[8] - az;
#pragma unroll
            for (int r = 0; r < RAYS; r++) {
                float px = dy[r] * vz - dz[r] * vy, py = dz[r] * vx - dx[r] * vz, pz = dx[r] * vy - dy[r] * vx;
                float det = ux * px + uy * py + uz * pz;
                float inverse = __frcp_rn(fabsf(det) < 1e-9f ? 1e-9f : det);
                float sx = ox[r] - ax, sy = oy[r] - ay, sz = -az;
                float u = (sx * px + sy * py + sz * pz) * inverse;
                float qx = sy * uz - sz * uy, qy = sz * ux - sx * uz, qz = sx * uy - sy * ux;
                float v = (dx[r] * qx + dy[r] * qy + dz[r] * qz) * inverse;
                float far = (vx * qx + vy * qy + vz * qz) * inverse;
                bool inside = u >= 0.f && v >= 0.f && u + v <= 1.f && far > 1e-4f && far < near[r];
                near[r] = inside ? far : near[r];
                bu[r] = inside ? u : bu[r];
                bv[r] = inside ? v : bv[r];
                hit[r] = inside ? first + k : hit[r];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < RAYS; r++) {
        int pixel = r * threads + thread;
        hits[pixel] = hit[r];
        places[pixel] = make_float4(ox[r] + near[r] * dx[r], oy[r] + near[r] * dy[r], bu[r], bv[r]);
    }
}
