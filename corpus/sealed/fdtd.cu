// A step of the electric field in dispersive matter, finite differences in time with three Lorentz poles for each
// component: floats, 47 streams of numbers, a loop along columns of cells with coefficients that are only read.

constexpr int POLES = 3, AXES = 3;

// Fields are arrays of cells, one component after the other; currents and polarisations have three components for each
// pole. The grid is periodic. A thread has a column of cells.
extern "C" __global__ void electric_step(int width,
                                         int height,
                                         int depth,
                                         const float* __restrict__ coefficients,
                                         const float* __restrict__ matter,
                                         const float* __restrict__ magnetic,
                                         const float* __restrict__ electric,
                                         const float* __restrict__ currents,
                                         const float* __restrict__ polarisations,
                                         float* __restrict__ electric_out,
                                         float* __restrict__ currents_out,
                                         float* __restrict__ polarisations_out) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int x = thread % width, y = thread / width, plane = width * height, cells = plane * depth;
    int left = x > 0 ? -1 : width - 1, below = y > 0 ? -width : plane - width;
    float keep[POLES], pull[POLES], drive[POLES];
#pragma unroll
    for (int pole = 0; pole < POLES; pole++) {
        keep[pole] = coefficients[3 * pole];
        pull[pole] = coefficients[3 * pole + 1];
        drive[pole] = coefficients[3 * pole + 2];
    }
    float step = coefficients[3 * POLES];
    float behind_x = magnetic[thread + cells - plane], behind_y = magnetic[thread + 2 * cells - plane];
#pragma unroll 1
    for (int i = thread; i < cells; i += plane) {
        float hx = magnetic[i], hy = magnetic[i + cells], hz = magnetic[i + 2 * cells];
        float curl[AXES] = {
            hz - magnetic[i + 2 * cells + below] - (hy - behind_y),
            hx - behind_x - (hz - magnetic[i + 2 * cells + left]),
            hy - magnetic[i + cells + left] - (hx - magnetic[i + below]),
        };
        behind_x = hx;
        behind_y = hy;
        float density = matter[i], permittivity = matter[i + cells];
#pragma unroll
        for (int axis = 0; axis < AXES; axis++) {
            float field = electric[i + axis * cells], total = 0.0f;
#pragma unroll
            for (int pole = 0; pole < POLES; pole++) {
                int at = i + (pole * AXES + axis) * cells;
                float polarisation = polarisations[at];
                float current = keep[pole] * currents[at] - pull[pole] * polarisation + drive[pole] * density * field;
                total += current;
                currents_out[at] = current;
                polarisations_out[at] = polarisation + step * current;
            }
            electric_out[i + axis * cells] = field + permittivity * (curl[axis] - total);
        }
    }
}
