// A quadric through scattered samples by least squares: Householder's QR of an 8x5 matrix of doubles
// per thread with its right-hand side, then back substitution. Straight-line; 48 doubles at once,
// divisions and square roots.

constexpr int SAMPLES = 8, TERMS = 5;

extern "C" __global__ void quadric_fit(int fits,
                                       double falloff,
                                       const double* __restrict__ places,
                                       const double* __restrict__ heights,
                                       double* __restrict__ coefficients,
                                       double* __restrict__ residual) {
    int fit = blockIdx.x * blockDim.x + threadIdx.x;
    double a[SAMPLES][TERMS], b[SAMPLES];
#pragma unroll
    for (int i = 0; i < SAMPLES; i++) {
        double x = places[(size_t)(2 * i) * fits + fit], y = places[(size_t)(2 * i + 1) * fits + fit];
        double weight = 1.0 / (1.0 + falloff * (x * x + y * y));
        a[i][0] = weight;
        a[i][1] = weight * x;
        a[i][2] = weight * y;
        a[i][3] = weight * (x * x + y * y);
        a[i][4] = weight * x * y;
        b[i] = weight * heights[(size_t)i * fits + fit];
    }
    double diagonal[TERMS];
#pragma unroll
    for (int k = 0; k < TERMS; k++) {
        double square = 0.0;
#pragma unroll
        for (int i = k; i < SAMPLES; i++) {
            square += a[i][k] * a[i][k];
        }
        // The reflection takes column k to `length` times a unit vector; its vector stays in the column.
        double length = a[k][k] > 0.0 ? -sqrt(square) : sqrt(square);
        double factor = 1.0 / (square - length * a[k][k] + 1e-300);
        a[k][k] -= length;
        diagonal[k] = length;
#pragma unroll
        for (int j = k + 1; j < TERMS; j++) {
            double dot = 0.0;
#pragma unroll
            for (int i = k; i < SAMPLES; i++) {
                dot += a[i][k] * a[i][j];
            }
            dot *= factor;
#pragma unroll
            for (int i = k; i < SAMPLES; i++) {
                a[i][j] -= dot * a[i][k];
            }
        }
        double dot = 0.0;
#pragma unroll
        for (int i = k; i < SAMPLES; i++) {
            dot += a[i][k] * b[i];
        }
        dot *= factor;
#pragma unroll
        for (int i = k; i < SAMPLES; i++) {
            b[i] -= dot * a[i][k];
        }
    }
    double rest = 0.0;
#pragma unroll
    for (int i = TERMS; i < SAMPLES; i++) {
        rest += b[i] * b[i];
    }
    residual[fit] = rest;
#pragma unroll
    for (int k = TERMS - 1; k >= 0; k--) {
        double value = b[k];
#pragma unroll
        for (int j = k + 1; j < TERMS; j++) {
            value -= a[k][j] * b[j];
        }
        // A zero on the diagonal would say that samples coincide.
        b[k] = value / (diagonal[k] == 0.0 ? 1.0 : diagonal[k]);
        coefficients[(size_t)k * fits + fit] = b[k];
    }
}
