// Kernels that call functions of another file. Twelve values live across the calls in the first one.

extern __device__ float times_sine(float x);
extern __device__ float power(float x, float y);
extern __device__ int ackermann(int m, int n);

extern "C" __global__ void wide(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float w[12];
#pragma unroll
    for (int j = 0; j < 12; j++) {
        w[j] = x[i + j] * (j + 1);
    }
    float v = x[i];
    float s = 0;
    for (int k = 0; k < n; k++) {
        s = times_sine(s + v) * v;
#pragma unroll
        for (int j = 0; j < 12; j++) {
            w[j] = w[j] * s + w[(j + 5) % 12];
        }
    }
    float t = power(x[0], v);
#pragma unroll
    for (int j = 0; j < 12; j++) {
        t += w[j];
    }
    y[i] = s + t;
}

extern "C" __global__ void narrow(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = times_sine(x[i]) * 2 + power(x[1], x[2]);
    y[i] = a + ackermann(n & 1, i & 3) + ackermann(1, n);
}
