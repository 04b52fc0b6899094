// One step of the lattice-Boltzmann method, D3Q19, two relaxation times, periodic box. A thread
// pulls the nineteen populations of two cells, neighbours in z, and collides both: straight-line
// floating point between many scattered loads and as many stores.

constexpr int Q = 19, CELLS = 2;

// Directions in pairs of opposites: 2k - 1 and 2k.
__device__ constexpr int CX[Q] = {0, 1, -1, 0, 0, 0, 0, 1, -1, 1, -1, 1, -1, 1, -1, 0, 0, 0, 0};
__device__ constexpr int CY[Q] = {0, 0, 0, 1, -1, 0, 0, 1, -1, -1, 1, 0, 0, 0, 0, 1, -1, 1, -1};
__device__ constexpr int CZ[Q] = {0, 0, 0, 0, 0, 1, -1, 0, 0, 0, 0, 1, -1, -1, 1, 1, -1, -1, 1};

__device__ __forceinline__ float share(int q) {
    return q == 0 ? 1.f / 3 : q < 7 ? 1.f / 18 : 1.f / 36;
}

extern "C" __global__ void lattice_step(int nx,
                                        int ny,
                                        int nz,
                                        float omega_even,
                                        float omega_odd,
                                        float gravity,
                                        const float* __restrict__ from,
                                        float* __restrict__ to) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y;
    int z = blockIdx.z * CELLS;
    int cells = nx * ny * nz;

    float f[CELLS][Q];
#pragma unroll
    for (int q = 0; q < Q; q++) {
        int sx = x - CX[q], sy = y - CY[q];
        sx += sx < 0 ? nx : sx >= nx ? -nx : 0;
        sy += sy < 0 ? ny : sy >= ny ? -ny : 0;
#pragma unroll
        for (int cell = 0; cell < CELLS; cell++) {
            int sz = z + cell - CZ[q];
            sz += sz < 0 ? nz : sz >= nz ? -nz : 0;
            f[cell][q] = from[q * cells + (sz * ny + sy) * nx + sx];
        }
    }

    // The force acts on the mean of both cells, so that neither can be finished without the other.
    float density[CELLS], ux[CELLS], uy[CELLS], uz[CELLS], mean = 0;
#pragma unroll
    for (int cell = 0; cell < CELLS; cell++) {
        float rho = 0, jx = 0, jy = 0, jz = 0;
#pragma unroll
        for (int q = 0; q < Q; q++) {
            rho += f[cell][q];
            jx += CX[q] * f[cell][q];
            jy += CY[q] * f[cell][q];
            jz += CZ[q] * f[cell][q];
        }
        float inverse = 1.f / rho;
        density[cell] = rho;
        ux[cell] = jx * inverse;
        uy[cell] = jy * inverse;
        uz[cell] = jz * inverse;
        mean += rho * (1.f / CELLS);
    }
#pragma unroll
    for (int cell = 0; cell < CELLS; cell++) {
        float rho = density[cell];
        uz[cell] += gravity * mean / rho;
        float square = 1.f - 1.5f * (ux[cell] * ux[cell] + uy[cell] * uy[cell] + uz[cell] * uz[cell]);
        int at = ((z + cell) * ny + y) * nx + x;
        to[at] = f[cell][0] - omega_even * (f[cell][0] - share(0) * rho * square);
#pragma unroll
        for (int q = 1; q < Q; q += 2) {
            float along = CX[q] * ux[cell] + CY[q] * uy[cell] + CZ[q] * uz[cell];
            float weight = share(q) * rho;
            float even = weight * (square + 4.5f * along * along);
            float odd = weight * 3.f * along;
            float half_sum = 0.5f * (f[cell][q] + f[cell][q + 1]);
            float half_difference = 0.5f * (f[cell][q] - f[cell][q + 1]);
            float relax_even = omega_even * (half_sum - even);
            float relax_odd = omega_odd * (half_difference - odd);
            to[q * cells + at] = f[cell][q] - relax_even - relax_odd;
            to[(q + 1) * cells + at] = f[cell][q + 1] - relax_even + relax_odd;
        }
    }
}
