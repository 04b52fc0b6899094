// A bank of Kalman filters in doubles: a thread follows one target with position and velocity on
// three axes. State and symmetric covariance, 27 doubles, stay live around the loop over the
// measurements, which are taken in one coordinate at a time.

constexpr int AXES = 3, STATE = 6;

__device__ __forceinline__ constexpr int at(int i, int j) {
    return i < j ? j * (j + 1) / 2 + i : i * (i + 1) / 2 + j;
}

extern "C" __global__ void kalman(int tracks,
                                  int steps,
                                  double dt,
                                  double process,
                                  double noise,
                                  const double* __restrict__ measured,
                                  double* __restrict__ state,
                                  double* __restrict__ likelihood) {
    int track = blockIdx.x * blockDim.x + threadIdx.x;
    double x[STATE], p[STATE * (STATE + 1) / 2] = {}, surprise = 0.0;
#pragma unroll
    for (int i = 0; i < STATE; i++) {
        x[i] = 0.0;
        p[at(i, i)] = 4.0;
    }
    for (int step = 0; step < steps; step++) {
        double z[AXES];
#pragma unroll
        for (int a = 0; a < AXES; a++) {
            z[a] = measured[(size_t)(step * AXES + a) * tracks + track];
        }
        // Positions move by their velocities: P = F P F' + Q.
#pragma unroll
        for (int a = 0; a < AXES; a++) {
            x[a] += dt * x[a + AXES];
        }
#pragma unroll
        for (int a = 0; a < AXES; a++) {
#pragma unroll
            for (int b = a; b < AXES; b++) {
                p[at(a, b)] += dt * (p[at(a, b + AXES)] + p[at(a + AXES, b)] + dt * p[at(a + AXES, b + AXES)]);
            }
        }
#pragma unroll
        for (int a = 0; a < AXES; a++) {
#pragma unroll
            for (int b = 0; b < AXES; b++) {
                p[at(a, b + AXES)] += dt * p[at(a + AXES, b + AXES)];
            }
            p[at(a, a)] += process * dt * dt * dt * (1.0 / 3);
            p[at(a, a + AXES)] += process * dt * dt * 0.5;
            p[at(a + AXES, a + AXES)] += process * dt;
        }
        // A sensor sees each axis with a little of its neighbour.
#pragma unroll
        for (int a = 0; a < AXES; a++) {
            constexpr double CROSS = 0.125;
            int next = (a + 1) % AXES;
            double seen[STATE], gain[STATE];
#pragma unroll
            for (int i = 0; i < STATE; i++) {
                seen[i] = p[at(i, a)] + CROSS * p[at(i, next)];
            }
            double variance = seen[a] + CROSS * seen[next] + noise;
            double inverse = 1.0 / variance, residual = z[a] - x[a] - CROSS * x[next];
#pragma unroll
            for (int i = 0; i < STATE; i++) {
                gain[i] = seen[i] * inverse;
                x[i] += gain[i] * residual;
            }
#pragma unroll
            for (int i = 0; i < STATE; i++) {
#pragma unroll
                for (int j = 0; j <= i; j++) {
                    p[at(i, j)] -= gain[i] * seen[j];
                }
            }
            surprise += residual * residual * inverse;
        }
    }
#pragma unroll
    for (int i = 0; i < STATE; i++) {
        state[(size_t)i * tracks + track] = x[i];
        state[(size_t)(STATE + i) * tracks + track] = p[at(i, i)];
    }
    likelihood[track] = surprise;
}
