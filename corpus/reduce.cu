// Grid-stride sums that end in warp shuffles and one atomic: vector loads, collective instructions
// under divergent control, and 64-bit values that travel through 32-bit shuffles (reduce_f64).

template <typename T>
__device__ __forceinline__ T warp_sum(T v) {
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) {
        v += __shfl_down_sync(~0u, v, offset);
    }
    return v;
}

template <typename T>
__device__ __forceinline__ void block_sum(T v, T* out) {
    __shared__ T partial[32];
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) {
        partial[threadIdx.x >> 5] = v;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : T(0);
        v = warp_sum(v);
        if (threadIdx.x == 0) {
            atomicAdd(out, v);
        }
    }
}

extern "C" __global__ void reduce_f32(const float4* __restrict__ x, float* out, int n) {
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 t = x[i];
        v += t.x + t.y + t.z + t.w;
    }
    block_sum(v, out);
}

extern "C" __global__ void reduce_f64(const double2* __restrict__ x, double* out, int n) {
    double v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        double2 t = x[i];
        v += t.x + t.y;
    }
    block_sum(v, out);
}
