// Two coupled qubits that decay and dephase, driven by a pulse: the master equation of their 4x4
// density matrix, Hermitian, 16 doubles, by a Runge-Kutta scheme of two registers per unknown. A loop
// over stages in a loop over steps carries 32 doubles.

constexpr int LEVELS = 4, STAGES = 5;

// Carpenter and Kennedy's scheme of fourth order.
__constant__ double OLD[STAGES] = {0.0, -567301805773.0 / 1357537059087.0, -2404267990393.0 / 2016746695238.0,
                                   -3550918686646.0 / 2091501179385.0, -1275806237668.0 / 842570457699.0};
__constant__ double NEW[STAGES] = {1432997174477.0 / 9575080441755.0, 5161836677717.0 / 13612068292357.0,
                                   1720146321549.0 / 2090206949498.0, 3134564353537.0 / 4481467310338.0,
                                   2277821191437.0 / 14882151754819.0};
__constant__ double WHEN[STAGES] = {0.0, 1432997174477.0 / 9575080441755.0, 2526269341429.0 / 6820363962896.0,
                                    2006345519317.0 / 3224310063776.0, 2802321613138.0 / 2924317926251.0};

// Above the diagonal are the real parts, below it the imaginary parts of what is above.
struct Matrix {
    double v[LEVELS][LEVELS];
};

__device__ __forceinline__ double real(const Matrix& m, int i, int j) {
    return i < j ? m.v[i][j] : m.v[j][i];
}

__device__ __forceinline__ double imaginary(const Matrix& m, int i, int j) {
    return i == j ? 0.0 : i < j ? m.v[j][i] : -m.v[i][j];
}

// Levels count the first qubit's excitation by two, the second's by one.
__device__ __forceinline__ Matrix change(const Matrix& rho,
                                         const double (&energy)[LEVELS],
                                         double drive1,
                                         double drive2,
                                         double coupling,
                                         double decay,
                                         double dephasing) {
    // Row i of the Hamiltonian has three or four entries: its energy, a flip of each qubit, the exchange.
    Matrix k;
#pragma unroll
    for (int i = 0; i < LEVELS; i++) {
#pragma unroll
        for (int j = i; j < LEVELS; j++) {
            // C = H rho - rho H.
            double re = (energy[i] - energy[j]) * real(rho, i, j), im = (energy[i] - energy[j]) * imaginary(rho, i, j);
            re += drive1 * (real(rho, i ^ 2, j) - real(rho, i, j ^ 2));
            im += drive1 * (imaginary(rho, i ^ 2, j) - imaginary(rho, i, j ^ 2));
            re += drive2 * (real(rho, i ^ 1, j) - real(rho, i, j ^ 1));
            im += drive2 * (imaginary(rho, i ^ 1, j) - imaginary(rho, i, j ^ 1));
            if (i == 1 || i == 2) {
                re += coupling * real(rho, 3 - i, j);
                im += coupling * imaginary(rho, 3 - i, j);
            }
            if (j == 1 || j == 2) {
                re -= coupling * real(rho, i, 3 - j);
                im -= coupling * imaginary(rho, i, 3 - j);
            }
            // -iC, and what is lost: half the decay per excitation, dephasing per qubit that differs.
            int excited = (i >> 1) + (i & 1) + (j >> 1) + (j & 1);
            int differ = ((i ^ j) >> 1) + ((i ^ j) & 1);
            double loss = 0.5 * decay * excited + dephasing * differ;
            double dre = im - loss * real(rho, i, j), dim = -re - loss * imaginary(rho, i, j);
#pragma unroll
            for (int qubit = 1; qubit <= 2; qubit++) {
                if ((i & qubit) == 0 && (j & qubit) == 0) {
                    dre += decay * real(rho, i | qubit, j | qubit);
                    dim += decay * imaginary(rho, i | qubit, j | qubit);
                }
            }
            k.v[i][j] = dre;
            if (i != j) {
                k.v[j][i] = dim;
            }
        }
    }
    return k;
}

extern "C" __global__ void lindblad(int systems,
                                    int steps,
                                    double length,
                                    double decay,
                                    double dephasing,
                                    const double* __restrict__ detunings,
                                    const double* __restrict__ couplings,
                                    double* __restrict__ final_states,
                                    double* __restrict__ purity) {
    int system = blockIdx.x * blockDim.x + threadIdx.x;
    double first = detunings[system], second = detunings[systems + system], coupling = couplings[system];
    double energy[LEVELS] = {-0.5 * (first + second), 0.5 * (second - first), 0.5 * (first - second),
                             0.5 * (first + second)};
    double dt = length / steps;
    Matrix rho = {}, rest = {};
    rho.v[0][0] = 1.0;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
#pragma unroll 1
        for (int stage = 0; stage < STAGES; stage++) {
            double at = (step + WHEN[stage]) / steps, pulse = 6.0 * at * (1.0 - at);
            Matrix k = change(rho, energy, pulse, 0.6 * pulse, coupling, decay, dephasing);
            double old = OLD[stage], fresh = NEW[stage];
#pragma unroll
            for (int i = 0; i < LEVELS; i++) {
#pragma unroll
                for (int j = 0; j < LEVELS; j++) {
                    rest.v[i][j] = old * rest.v[i][j] + dt * k.v[i][j];
                    rho.v[i][j] += fresh * rest.v[i][j];
                }
            }
        }
    }
    double squares = 0.0;
#pragma unroll
    for (int i = 0; i < LEVELS; i++) {
#pragma unroll
        for (int j = 0; j < LEVELS; j++) {
            squares += (i == j ? 1.0 : 2.0) * rho.v[i][j] * rho.v[i][j];
            final_states[(size_t)(i * LEVELS + j) * systems + system] = rho.v[i][j];
        }
    }
    purity[system] = squares;
}
