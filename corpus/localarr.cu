// Arrays indexed at run time, which live in local memory: spill slots must share the frame with
// what the kernel already keeps there.

extern "C" __global__ void localarr(const int* __restrict__ idx,
                                    const float* __restrict__ x,
                                    float* __restrict__ y,
                                    int n) {
    float a[64];
    int t = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        a[i] = x[t * 64 + i];
    }
    for (int i = 0; i < n; i++) {
        int p = idx[i] & 63, q = idx[i + n] & 63;
        float u = a[p];
        a[p] = a[q] * 1.5f;
        a[q] = u;
    }
    float s = 0;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        s += a[i] * i;
    }
    y[t] = s;
}

// The 32 largest values of a column, kept in a heap whose shape depends on the data.
extern "C" __global__ void topk(const float* __restrict__ x, float* __restrict__ y, int n) {
    float heap[32];
    int t = threadIdx.x + blockIdx.x * blockDim.x;
    int stride = gridDim.x * blockDim.x;
    for (int i = 0; i < 32; i++) {
        heap[i] = -1e30f;
    }
    for (int i = 0; i < n; i++) {
        float v = x[i * stride + t];
        if (v > heap[0]) {
            int parent = 0;
            for (;;) {
                int child = 2 * parent + 1;
                if (child >= 32) {
                    break;
                }
                if (child + 1 < 32 && heap[child + 1] < heap[child]) {
                    child++;
                }
                if (heap[child] >= v) {
                    break;
                }
                heap[parent] = heap[child];
                parent = child;
            }
            heap[parent] = v;
        }
    }
    for (int i = 0; i < 32; i++) {
        y[i * stride + t] = heap[i];
    }
}
