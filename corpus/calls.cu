// Calls of every kind: direct, recursive, and indirect through a table. Values live across calls,
// and the called functions have frames of their own.

__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0) {
        return n + 1;
    }
    if (n == 0) {
        return ackermann(m - 1, 1);
    }
    return ackermann(m - 1, ackermann(m, n - 1));
}

__device__ __noinline__ float polynomial(float x, const float* coefficients, int n) {
    float r = 0;
    for (int i = 0; i < n; i++) {
        r = r * x + coefficients[i];
    }
    return r;
}

__device__ __noinline__ float times_sine(float x) {
    return sinf(x) * x;
}

__device__ __noinline__ float exponential_excess(float x) {
    return expf(x) - x;
}

__device__ __noinline__ float power(float x) {
    return powf(x, 1.7f);
}

typedef float (*Function)(float);
__device__ Function table[3] = {times_sine, exponential_excess, power};

extern "C" __global__ void calls(
    const float* x, float* y, const float* coefficients, int n, int* z) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    float a = polynomial(v, coefficients, n);
    float b = polynomial(a + v, coefficients, n);
    float d = polynomial(b - a, coefficients, n);
    Function f = table[i % 3];
    y[i] = f(a) + b * d + f(b) * v;
    z[i] = ackermann(i & 3, i & 1);
}
