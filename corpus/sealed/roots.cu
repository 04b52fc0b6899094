// All roots of complex polynomials of degree nine at once, by the iteration of Weierstrass: doubles, divisions, 18 of
// them around a loop and 18 that are only read.

constexpr int DEGREE = 9;

// Coefficients of each thread's polynomial, real and imaginary, the lowest first; that of the highest power is one.
extern "C" __global__ void weierstrass(int turns, const double* __restrict__ coefficients, double* __restrict__ out) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    double2 factor[DEGREE], root[DEGREE];
#pragma unroll
    for (int n = 0; n < DEGREE; n++) {
        factor[n].x = coefficients[2 * n * threads + thread];
        factor[n].y = coefficients[(2 * n + 1) * threads + thread];
    }
    root[0] = make_double2(0.4, 0.9);
#pragma unroll
    for (int n = 1; n < DEGREE; n++) {
        double2 last = root[n - 1];
        root[n] = make_double2(0.4 * last.x - 0.9 * last.y, 0.4 * last.y + 0.9 * last.x);
    }
#pragma unroll 1
    for (int turn = 0; turn < turns; turn++) {
#pragma unroll
        for (int n = 0; n < DEGREE; n++) {
            double2 z = root[n], value = make_double2(1.0, 0.0), product = make_double2(1.0, 0.0);
#pragma unroll
            for (int power = DEGREE - 1; power >= 0; power--) {
                value = make_double2(value.x * z.x - value.y * z.y + factor[power].x,
                                     value.x * z.y + value.y * z.x + factor[power].y);
            }
#pragma unroll
            for (int other = 0; other < DEGREE; other++) {
                if (other != n) {
                    double x = z.x - root[other].x, y = z.y - root[other].y;
                    product = make_double2(product.x * x - product.y * y, product.x * y + product.y * x);
                }
            }
            double scale = 1.0 / (product.x * product.x + product.y * product.y + 1e-200);
            root[n].x -= scale * (value.x * product.x + value.y * product.y);
            root[n].y -= scale * (value.y * product.x - value.x * product.y);
        }
    }
#pragma unroll
    for (int n = 0; n < DEGREE; n++) {
        out[2 * n * threads + thread] = root[n].x;
        out[(2 * n + 1) * threads + thread] = root[n].y;
    }
}
