// Orbits of satellites by a multistep method of order 8, predictor and corrector: the accelerations of the
// last eight steps move up by one place in every turn of the loop. Zonal harmonics to J4, the moon and drag;
// Runge and Kutta's method starts it. Doubles, divisions, roots; 30 doubles around the loop.

constexpr int ORDER = 8, AXES = 3;

// Weights of accelerations, the latest first, in what one step adds to a velocity and to a place.
__device__ constexpr double VELOCITY_AHEAD[ORDER] = {
    434241 / 120960., -1152169 / 120960., 2183877 / 120960., -2664477 / 120960.,
    2102243 / 120960., -1041723 / 120960., 295767 / 120960., -36799 / 120960.};
__device__ constexpr double PLACE_AHEAD[ORDER] = {
    2233547 / 1814400., -4604594 / 1814400., 8393037 / 1814400., -10066240 / 1814400.,
    7865845 / 1814400., -3873642 / 1814400., 1095059 / 1814400., -135812 / 1814400.};
__device__ constexpr double VELOCITY[ORDER] = {
    36799 / 120960., 139849 / 120960., -121797 / 120960., 123133 / 120960.,
    -88547 / 120960., 41499 / 120960., -11351 / 120960., 1375 / 120960.};
__device__ constexpr double PLACE[ORDER] = {
    135812 / 1814400., 1147051 / 1814400., -801858 / 1814400., 787565 / 1814400.,
    -559400 / 1814400., 260373 / 1814400., -70906 / 1814400., 8563 / 1814400.};

constexpr double J2 = 1.0826e-3, J3 = -2.5327e-6, J4 = -1.6196e-6, MOON = 0.0123;

// Units are the earth's radius and mass; the moon's place is in units of 60 radii.
__device__ __forceinline__ void accelerate(const double (&r)[AXES],
                                           const double (&v)[AXES],
                                           double drag,
                                           const double* __restrict__ moon,
                                           double (&a)[AXES]) {
    double square = r[0] * r[0] + r[1] * r[1] + r[2] * r[2], inverse = 1.0 / sqrt(square);
    double i2 = inverse * inverse, s = r[2] * inverse, s2 = s * s;
    double w2 = 1.5 * J2 * i2, w3 = 2.5 * J3 * i2 * inverse, w4 = 0.625 * J4 * i2 * i2;
    double radial = 1.0 + w2 * (1.0 - 5.0 * s2) + w3 * s * (3.0 - 7.0 * s2) - w4 * (3.0 - 42.0 * s2 + 63.0 * s2 * s2);
    double polar = 2.0 * w2 * s + w3 * (3.0 * s2 - 0.6) - w4 * s * (12.0 - 28.0 * s2);
    double pull = i2 * inverse;
    // The air thins out by e in a hundredth of a radius, and is as dense below the ground as on it.
    double air = drag * fmin(exp(100.0 * (1.0 - square * inverse)), 1.0);
    double speed = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    double apart[AXES], far = 0.0, away = 0.0;
#pragma unroll
    for (int x = 0; x < AXES; x++) {
        double m = 60.0 * moon[x];
        apart[x] = m - r[x];
        far += apart[x] * apart[x];
        away += m * m;
    }
    double near = MOON / (far * sqrt(far)), own = MOON / (away * sqrt(away));
#pragma unroll
    for (int x = 0; x < AXES; x++) {
        a[x] = -pull * radial * r[x] - (x == 2 ? i2 * polar : 0.0) - air * speed * v[x] + near * apart[x]
            - own * 60.0 * moon[x];
    }
}

// `moons` holds the moon's place at every step.
extern "C" __global__ void orbits(int satellites,
                                  int steps,
                                  double h,
                                  double drag,
                                  const double* __restrict__ moons,
                                  const double* __restrict__ places,
                                  const double* __restrict__ velocities,
                                  double* __restrict__ ends) {
    int satellite = blockIdx.x * blockDim.x + threadIdx.x;
    double r[AXES], v[AXES], past[ORDER][AXES] = {};
#pragma unroll
    for (int x = 0; x < AXES; x++) {
        r[x] = places[x * satellites + satellite];
        v[x] = velocities[x * satellites + satellite];
    }
    accelerate(r, v, drag, moons, past[0]);
#pragma unroll 1
    for (int step = 1; step < ORDER; step++) {
        double r_sum[AXES] = {}, v_sum[AXES] = {}, r_at[AXES], v_at[AXES], a_at[AXES];
#pragma unroll
        for (int x = 0; x < AXES; x++) {
            r_at[x] = r[x];
            v_at[x] = v[x];
            a_at[x] = past[0][x];
        }
#pragma unroll 1
        for (int stage = 0; stage < 4; stage++) {
            double weight = stage == 0 || stage == 3 ? h / 6 : h / 3, ahead = stage == 2 ? h : h / 2;
#pragma unroll
            for (int x = 0; x < AXES; x++) {
                r_sum[x] += weight * v_at[x];
                v_sum[x] += weight * a_at[x];
                r_at[x] = r[x] + (stage < 3 ? ahead * v_at[x] : r_sum[x]);
                v_at[x] = v[x] + (stage < 3 ? ahead * a_at[x] : v_sum[x]);
            }
            accelerate(r_at, v_at, drag, moons + 3 * step, a_at);
        }
#pragma unroll
        for (int x = 0; x < AXES; x++) {
            r[x] = r_at[x];
            v[x] = v_at[x];
#pragma unroll
            for (int k = ORDER - 1; k > 0; k--) {
                past[k][x] = past[k - 1][x];
            }
            past[0][x] = a_at[x];
        }
    }
#pragma unroll 1
    for (int step = ORDER; step < steps; step++) {
        double r_at[AXES], v_at[AXES], a_at[AXES];
#pragma unroll
        for (int x = 0; x < AXES; x++) {
            double to_r = 0.0, to_v = 0.0;
#pragma unroll
            for (int k = 0; k < ORDER; k++) {
                to_r += PLACE_AHEAD[k] * past[k][x];
                to_v += VELOCITY_AHEAD[k] * past[k][x];
            }
            r_at[x] = r[x] + h * (v[x] + h * to_r);
            v_at[x] = v[x] + h * to_v;
        }
        accelerate(r_at, v_at, drag, moons + 3 * step, a_at);
#pragma unroll
        for (int x = 0; x < AXES; x++) {
            double to_r = PLACE[0] * a_at[x], to_v = VELOCITY[0] * a_at[x];
#pragma unroll
            for (int k = 1; k < ORDER; k++) {
                to_r += PLACE[k] * past[k - 1][x];
                to_v += VELOCITY[k] * past[k - 1][x];
            }
            r[x] += h * (v[x] + h * to_r);
            v[x] += h * to_v;
#pragma unroll
            for (int k = ORDER - 1; k > 0; k--) {
                past[k][x] = past[k - 1][x];
            }
            past[0][x] = a_at[x];
        }
    }
#pragma unroll
    for (int x = 0; x < AXES; x++) {
        ends[x * satellites + satellite] = r[x];
        ends[(AXES + x) * satellites + satellite] = v[x];
    }
}
