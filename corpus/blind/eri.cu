// Repulsion of electrons in Gaussian orbitals, the class (pp|ps): Obara and Saika's recurrence, summed
// over pairs of primitives on both sides, then the horizontal step. Boys's function comes from a table by
// Taylor's series, or from its asymptote. Doubles, gathers, divisions; 27 sums around two loops.

constexpr int ROWS = 576, STEPS_PER_UNIT = 16, TERMS = 6, ORDERS = 4;

__device__ __forceinline__ void boys(double t, const double* __restrict__ table, double (&f)[ORDERS]) {
    if (t < (ROWS - 1.0) / STEPS_PER_UNIT) {
        int row = __double2int_rn(t * STEPS_PER_UNIT);
        double back = row * (1.0 / STEPS_PER_UNIT) - t, power = 1.0, sum = 0.0;
#pragma unroll
        for (int k = 0; k < TERMS; k++) {
            sum += table[row * TERMS + k] * power;
            power *= back * (1.0 / (k + 1));
        }
        double falloff = exp(-t);
        f[ORDERS - 1] = sum;
#pragma unroll
        for (int m = ORDERS - 2; m >= 0; m--) {
            f[m] = (2.0 * t * f[m + 1] + falloff) * (1.0 / (2 * m + 1));
        }
    } else {
        double inverse = 1.0 / t;
        f[0] = 0.886226925452758 * sqrt(inverse);
#pragma unroll
        for (int m = 1; m < ORDERS; m++) {
            f[m] = (m - 0.5) * inverse * f[m - 1];
        }
    }
}

// Where i <= j.
__device__ __forceinline__ constexpr int at(int i, int j) {
    return j * (j + 1) / 2 + i;
}

// A pair of shells is two centres and its primitives: an exponent each, and a weight and the place between the
// centres. Table rows hold the function of order 3 and the five above it.
extern "C" __global__ void repulsion_ppps(int quartets,
                                          int pairs,
                                          int primitives,
                                          const int2* __restrict__ list,
                                          const double* __restrict__ centres,
                                          const double* __restrict__ exponents,
                                          const double4_32a* __restrict__ products,
                                          const double* __restrict__ table,
                                          double* __restrict__ integrals) {
    int quartet = blockIdx.x * blockDim.x + threadIdx.x;
    int2 sides = list[quartet];
    double a[3], c[3];
#pragma unroll
    for (int x = 0; x < 3; x++) {
        a[x] = centres[x * pairs + sides.x];
        c[x] = centres[x * pairs + sides.y];
    }
    double ps[3][3] = {}, ds[6][3] = {};
#pragma unroll 1
    for (int bra = 0; bra < primitives; bra++) {
        double zeta = exponents[sides.x * primitives + bra];
        double4_32a p = products[sides.x * primitives + bra];
        double place_p[3] = {p.y, p.z, p.w};
#pragma unroll 1
        for (int ket = 0; ket < primitives; ket++) {
            double eta = exponents[sides.y * primitives + ket];
            double4_32a q = products[sides.y * primitives + ket];
            double place_q[3] = {q.y, q.z, q.w};
            double inverse = 1.0 / (zeta + eta), rho = zeta * eta * inverse, square = 0.0;
            double pa[3], qc[3], wp[3], wq[3];
#pragma unroll
            for (int x = 0; x < 3; x++) {
                double apart = place_p[x] - place_q[x];
                square += apart * apart;
                pa[x] = place_p[x] - a[x];
                qc[x] = place_q[x] - c[x];
                wp[x] = -eta * inverse * apart;
                wq[x] = zeta * inverse * apart;
            }
            double f[ORDERS];
            boys(rho * square, table, f);
            double scale = p.x * q.x * sqrt(inverse);
            double half = 0.5 * inverse, half_zeta = 0.5 / zeta, share = eta * inverse;
            // s[m], p1[m] and d1[m] are (ss|ss), (ps|ss) and (ds|ss) of order m.
            double s[ORDERS], p1[3][3], d1[2][6];
#pragma unroll
            for (int m = 0; m < ORDERS; m++) {
                s[m] = scale * f[m];
            }
#pragma unroll
            for (int m = 0; m < 3; m++) {
#pragma unroll
                for (int x = 0; x < 3; x++) {
                    p1[m][x] = pa[x] * s[m] + wp[x] * s[m + 1];
                }
            }
#pragma unroll
            for (int m = 0; m < 2; m++) {
#pragma unroll
                for (int y = 0; y < 3; y++) {
#pragma unroll
                    for (int x = 0; x <= y; x++) {
                        d1[m][at(x, y)] = pa[y] * p1[m][x] + wp[y] * p1[m + 1][x]
                            + (x == y ? half_zeta * (s[m] - share * s[m + 1]) : 0.0);
                    }
                }
            }
#pragma unroll
            for (int k = 0; k < 3; k++) {
#pragma unroll
                for (int y = 0; y < 3; y++) {
                    ps[y][k] += qc[k] * p1[0][y] + wq[k] * p1[1][y] + (y == k ? half * s[1] : 0.0);
#pragma unroll
                    for (int x = 0; x <= y; x++) {
                        ds[at(x, y)][k] += qc[k] * d1[0][at(x, y)] + wq[k] * d1[1][at(x, y)]
                            + (x == k ? half * p1[1][y] : 0.0) + (y == k ? half * p1[1][x] : 0.0);
                    }
                }
            }
        }
    }
#pragma unroll
    for (int y = 0; y < 3; y++) {
        double apart = a[y] - centres[(3 + y) * pairs + sides.x];
#pragma unroll
        for (int x = 0; x < 3; x++) {
#pragma unroll
            for (int k = 0; k < 3; k++) {
                integrals[(size_t)((x * 3 + y) * 3 + k) * quartets + quartet] =
                    ds[x < y ? at(x, y) : at(y, x)][k] + apart * ps[x][k];
            }
        }
    }
}
