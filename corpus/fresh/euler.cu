// One step of a finite-volume scheme for gas dynamics in three dimensions: slopes limited by minmod,
// HLLC fluxes through the six faces of a cell. Doubles, straight-line, divisions and square roots.
// Fields are density, velocity and pressure, with two layers of halo.

constexpr int FIELDS = 5;
constexpr double GAMMA = 1.4;

struct State {
    double v[FIELDS];
};

__device__ __forceinline__ double minmod(double a, double b) {
    return a * b <= 0.0 ? 0.0 : fabs(a) < fabs(b) ? a : b;
}

__device__ __forceinline__ State conserved(const State& p) {
    double kinetic = 0.5 * p.v[0] * (p.v[1] * p.v[1] + p.v[2] * p.v[2] + p.v[3] * p.v[3]);
    return {p.v[0], p.v[0] * p.v[1], p.v[0] * p.v[2], p.v[0] * p.v[3], p.v[4] / (GAMMA - 1.0) + kinetic};
}

// The flux of a side, and behind its wave of speed `wave` where the contact moves at `contact`.
template <int D>
__device__ __forceinline__ State side_flux(const State& p, double wave, double contact, bool behind) {
    State u = conserved(p), f;
    double normal = p.v[1 + D];
#pragma unroll
    for (int k = 0; k < FIELDS; k++) {
        f.v[k] = u.v[k] * normal;
    }
    f.v[1 + D] += p.v[4];
    f.v[4] += p.v[4] * normal;
    double mass = p.v[0] * (wave - normal) / (wave - contact);
    State star = {mass, mass * p.v[1], mass * p.v[2], mass * p.v[3], 0.0};
    star.v[1 + D] = mass * contact;
    star.v[4] = mass
        * (u.v[4] / p.v[0] + (contact - normal) * (contact + p.v[4] / (p.v[0] * (wave - normal))));
#pragma unroll
    for (int k = 0; k < FIELDS; k++) {
        f.v[k] += behind ? wave * (star.v[k] - u.v[k]) : 0.0;
    }
    return f;
}

template <int D>
__device__ __forceinline__ State hllc(const State& l, const State& r) {
    double cl = sqrt(GAMMA * l.v[4] / l.v[0]), cr = sqrt(GAMMA * r.v[4] / r.v[0]);
    double ul = l.v[1 + D], ur = r.v[1 + D];
    double sl = fmin(ul - cl, ur - cr), sr = fmax(ul + cl, ur + cr);
    double ml = l.v[0] * (sl - ul), mr = r.v[0] * (sr - ur);
    double contact = (r.v[4] - l.v[4] + ml * ul - mr * ur) / (ml - mr);
    State left = side_flux<D>(l, sl, contact, sl < 0.0), right = side_flux<D>(r, sr, contact, sr > 0.0);
    State f;
#pragma unroll
    for (int k = 0; k < FIELDS; k++) {
        f.v[k] = contact >= 0.0 ? left.v[k] : right.v[k];
    }
    return f;
}

template <int D>
__device__ __forceinline__ void direction(const double* __restrict__ cell, int stride, size_t plane, State& change) {
    State below, above;
    State here_low, here_high;
#pragma unroll
    for (int k = 0; k < FIELDS; k++) {
        const double* at = cell + k * plane;
        double a = at[-2 * stride], b = at[-stride], c = at[0], d = at[stride], e = at[2 * stride];
        below.v[k] = b + 0.5 * minmod(b - a, c - b);
        double slope = 0.5 * minmod(c - b, d - c);
        here_low.v[k] = c - slope;
        here_high.v[k] = c + slope;
        above.v[k] = d - 0.5 * minmod(d - c, e - d);
    }
    State in = hllc<D>(below, here_low), out = hllc<D>(here_high, above);
#pragma unroll
    for (int k = 0; k < FIELDS; k++) {
        change.v[k] += in.v[k] - out.v[k];
    }
}

extern "C" __global__ void euler_step(int nx,
                                      int ny,
                                      int nz,
                                      double ratio,
                                      const double* __restrict__ fields,
                                      double* __restrict__ updated) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;
    int row = nx + 4, layer = row * (ny + 4);
    size_t plane = (size_t)layer * (nz + 4);
    const double* cell = fields + (z + 2) * layer + (y + 2) * row + x + 2;
    State change = {};
    direction<0>(cell, 1, plane, change);
    direction<1>(cell, row, plane, change);
    direction<2>(cell, layer, plane, change);
    State old;
#pragma unroll
    for (int k = 0; k < FIELDS; k++) {
        old.v[k] = cell[k * plane];
    }
    State u = conserved(old);
#pragma unroll
    for (int k = 0; k < FIELDS; k++) {
        updated[((size_t)(k * nz + z) * ny + y) * nx + x] = u.v[k] + ratio * change.v[k];
    }
}
