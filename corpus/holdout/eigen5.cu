// Eigenvalues and eigenvectors of a symmetric 5x5 matrix per thread in double precision: cyclic Jacobi
// sweeps, ten rotations with a division and square roots each, over 15 + 25 doubles.

constexpr int N = 5;

extern "C" __global__ void eigen5(int count,
                                  int sweeps,
                                  const double* __restrict__ upper,
                                  double* __restrict__ values,
                                  double* __restrict__ vectors) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) {
        return;
    }
    // Only the upper triangle is used.
    double a[N][N], v[N][N];
    int next = 0;
#pragma unroll
    for (int r = 0; r < N; r++) {
#pragma unroll
        for (int c = 0; c < N; c++) {
            v[r][c] = r == c ? 1.0 : 0.0;
            if (c >= r) {
                a[r][c] = upper[next++ * count + i];
            }
        }
    }
#pragma unroll 1
    for (int sweep = 0; sweep < sweeps; sweep++) {
#pragma unroll
        for (int p = 0; p < N; p++) {
#pragma unroll
            for (int q = p + 1; q < N; q++) {
                double off = a[p][q];
                double gap = a[q][q] - a[p][p];
                double root = sqrt(gap * gap + 4.0 * off * off);
                double tangent = 2.0 * off / (gap + copysign(root + 1e-300, gap));
                double cosine = rsqrt(1.0 + tangent * tangent);
                double sine = tangent * cosine;
                a[p][p] -= tangent * off;
                a[q][q] += tangent * off;
                a[p][q] = 0.0;
#pragma unroll
                for (int k = 0; k < N; k++) {
                    if (k != p && k != q) {
                        double& kp = k < p ? a[k][p] : a[p][k];
                        double& kq = k < q ? a[k][q] : a[q][k];
                        double x = kp, y = kq;
                        kp = cosine * x - sine * y;
                        kq = sine * x + cosine * y;
                    }
                }
#pragma unroll
                for (int k = 0; k < N; k++) {
                    double x = v[k][p], y = v[k][q];
                    v[k][p] = cosine * x - sine * y;
                    v[k][q] = sine * x + cosine * y;
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < N; r++) {
        values[r * count + i] = a[r][r];
#pragma unroll
        for (int c = 0; c < N; c++) {
            vectors[(r * N + c) * count + i] = v[r][c];
        }
    }
}
