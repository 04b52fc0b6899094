// All-pairs gravity, one body per thread, 256 threads: a shared-memory tile read by an inner loop
// that is unrolled 32 times. Pressure comes from the scheduler's wish to hoist loads.

extern "C" __global__ void nbody(int n,
                                 float dt,
                                 float eps,
                                 const float4* __restrict__ position,
                                 float4* __restrict__ velocity,
                                 float4* __restrict__ moved) {
    __shared__ float4 tile[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    float4 me = position[i];
    float ax = 0, ay = 0, az = 0;
    for (int t = 0; t < n; t += 256) {
        tile[threadIdx.x] = position[t + threadIdx.x];
        __syncthreads();
#pragma unroll 32
        for (int j = 0; j < 256; j++) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + eps);
            float force = tile[j].w * inverse * inverse * inverse;
            ax += dx * force;
            ay += dy * force;
            az += dz * force;
        }
        __syncthreads();
    }
    float4 v = velocity[i];
    v.x += ax * dt;
    v.y += ay * dt;
    v.z += az * dt;
    velocity[i] = v;
    me.x += v.x * dt;
    me.y += v.y * dt;
    me.z += v.z * dt;
    moved[i] = me;
}
