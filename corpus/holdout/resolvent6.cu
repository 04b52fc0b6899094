// A rational function of a 6x6 matrix applied to a vector: the sum over shifts s of
// weight * (A + s I)^-1 b, one matrix per thread in double precision. Gauss-Jordan elimination in
// place keeps 36 doubles in registers across one loop over the shifts; the body is straight-line.

constexpr int N = 6;

extern "C" __global__ void resolvent6(int count,
                                      int shifts,
                                      const double* __restrict__ matrices,
                                      const double* __restrict__ vectors,
                                      const double* __restrict__ shift,
                                      const double* __restrict__ weight,
                                      double* __restrict__ result) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) {
        return;
    }
    double sum[N], b[N];
#pragma unroll
    for (int r = 0; r < N; r++) {
        sum[r] = 0;
        b[r] = vectors[r * count + i];
    }
    for (int s = 0; s < shifts; s++) {
        double a[N][N];
#pragma unroll
        for (int r = 0; r < N; r++) {
#pragma unroll
            for (int c = 0; c < N; c++) {
                a[r][c] = matrices[(r * N + c) * count + i];
            }
            a[r][r] += shift[s];
        }
#pragma unroll
        for (int p = 0; p < N; p++) {
            double pivot = 1.0 / a[p][p];
            a[p][p] = 1.0;
#pragma unroll
            for (int c = 0; c < N; c++) {
                a[p][c] *= pivot;
            }
#pragma unroll
            for (int r = 0; r < N; r++) {
                if (r != p) {
                    double factor = a[r][p];
                    a[r][p] = 0.0;
#pragma unroll
                    for (int c = 0; c < N; c++) {
                        a[r][c] -= factor * a[p][c];
                    }
                }
            }
        }
        double w = weight[s];
#pragma unroll
        for (int r = 0; r < N; r++) {
            double product = 0;
#pragma unroll
            for (int c = 0; c < N; c++) {
                product += a[r][c] * b[c];
            }
            sum[r] += w * product;
        }
    }
#pragma unroll
    for (int r = 0; r < N; r++) {
        result[r * count + i] = sum[r];
    }
}
