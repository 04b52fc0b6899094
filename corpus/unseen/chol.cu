// Cholesky's factors of 10x10, the solution for one right side and the logarithm of the determinant: the likelihood
// of a Gaussian process. Floats, divisions, roots; straight-line.

constexpr int N = 10, ENTRIES = N * (N + 1) / 2;

// The lower triangle, row by row; what is added to the diagonal makes it positive.
extern "C" __global__ void likelihood(float noise,
                                      const float* __restrict__ matrices,
                                      const float* __restrict__ sides,
                                      float* __restrict__ solutions,
                                      float* __restrict__ logarithms) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    float l[ENTRIES], x[N];
#pragma unroll
    for (int n = 0; n < ENTRIES; n++) {
        l[n] = matrices[n * threads + thread];
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        l[n * (n + 3) / 2] += noise;
        x[n] = sides[n * threads + thread];
    }
    float logarithm = 0.0f;
#pragma unroll
    for (int column = 0; column < N; column++) {
        float pivot = l[column * (column + 3) / 2];
        float inverse = 1.0f / sqrtf(pivot);
        logarithm += __logf(pivot);
        l[column * (column + 3) / 2] = inverse;
#pragma unroll
        for (int row = column + 1; row < N; row++) {
            l[row * (row + 1) / 2 + column] *= inverse;
        }
#pragma unroll
        for (int row = column + 1; row < N; row++) {
#pragma unroll
            for (int other = column + 1; other <= row; other++) {
                l[row * (row + 1) / 2 + other] -= l[row * (row + 1) / 2 + column] * l[other * (other + 1) / 2 + column];
            }
        }
    }
#pragma unroll
    for (int row = 0; row < N; row++) {
#pragma unroll
        for (int column = 0; column < row; column++) {
            x[row] -= l[row * (row + 1) / 2 + column] * x[column];
        }
        x[row] *= l[row * (row + 3) / 2];
    }
#pragma unroll
    for (int row = N - 1; row >= 0; row--) {
#pragma unroll
        for (int below = row + 1; below < N; below++) {
            x[row] -= l[below * (below + 1) / 2 + row] * x[below];
        }
        x[row] *= l[row * (row + 3) / 2];
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        solutions[n * threads + thread] = x[n];
    }
    logarithms[thread] = logarithm;
}
