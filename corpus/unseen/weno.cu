// Advection by WENO of order five: a thread walks along a line of cells with six cells of four fields at hand and
// has the flux of each from left and right. Doubles, divisions; 24 of them around a loop, which move up by one
// place.

constexpr int FIELDS = 4, WINDOW = 6;

// The value at the border behind c, from five cells.
__device__ __forceinline__ double at_border(double a, double b, double c, double d, double e) {
    const double small = 1e-6;
    double bend0 = a - 2.0 * b + c, bend1 = b - 2.0 * c + d, bend2 = c - 2.0 * d + e;
    double slope0 = a - 4.0 * b + 3.0 * c, slope1 = b - d, slope2 = 3.0 * c - 4.0 * d + e;
    double rough0 = small + 13.0 / 12.0 * bend0 * bend0 + 0.25 * slope0 * slope0;
    double rough1 = small + 13.0 / 12.0 * bend1 * bend1 + 0.25 * slope1 * slope1;
    double rough2 = small + 13.0 / 12.0 * bend2 * bend2 + 0.25 * slope2 * slope2;
    double weight0 = 0.1 / (rough0 * rough0), weight1 = 0.6 / (rough1 * rough1), weight2 = 0.3 / (rough2 * rough2);
    double value0 = (2.0 * a - 7.0 * b + 11.0 * c) / 6.0;
    double value1 = (-b + 5.0 * c + 2.0 * d) / 6.0;
    double value2 = (2.0 * c + 5.0 * d - e) / 6.0;
    return (weight0 * value0 + weight1 * value1 + weight2 * value2) / (weight0 + weight1 + weight2);
}

// Lines begin with three cells of a border and end with three more.
extern "C" __global__ void weno(int cells,
                                double ratio,
                                const double* __restrict__ speeds,
                                const double* __restrict__ in,
                                double* __restrict__ out) {
    int line = blockIdx.x * blockDim.x + threadIdx.x, lines = gridDim.x * blockDim.x;
    double speed = speeds[line];
    double window[FIELDS][WINDOW], flux[FIELDS];
    size_t field = (size_t)(cells + WINDOW) * lines;
#pragma unroll
    for (int f = 0; f < FIELDS; f++) {
#pragma unroll
        for (int n = 0; n < WINDOW - 1; n++) {
            window[f][n + 1] = in[f * field + (size_t)n * lines + line];
        }
        flux[f] = speed * window[f][3];
    }
#pragma unroll 1
    for (int cell = 0; cell <= cells; cell++) {
#pragma unroll
        for (int f = 0; f < FIELDS; f++) {
            double* w = window[f];
#pragma unroll
            for (int n = 1; n < WINDOW; n++) {
                w[n - 1] = w[n];
            }
            w[5] = in[f * field + (size_t)(cell + 5) * lines + line];
            double left = at_border(w[0], w[1], w[2], w[3], w[4]);
            double right = at_border(w[5], w[4], w[3], w[2], w[1]);
            double next = 0.5 * (speed * (left + right) - fabs(speed) * (right - left));
            if (cell > 0) {
                out[((size_t)f * cells + cell - 1) * lines + line] = w[2] - ratio * (next - flux[f]);
            }
            flux[f] = next;
        }
    }
}
