// Chemical kinetics: a thread integrates ten species of one cell with the embedded Runge-Kutta pair
// of Dormand and Prince. Floats; six stages live at once in a loop whose length depends on the data.

constexpr int SPECIES = 10;

struct Rates {
    float k[6];
};

// A made-up network: two chains of dissociation, their recombination, and exchange between them.
__device__ __forceinline__ void derivative(const float (&y)[SPECIES], const Rates& rate, float (&d)[SPECIES]) {
    float r0 = rate.k[0] * y[0] * y[1], r1 = rate.k[1] * y[2] * y[3];
    float r2 = rate.k[2] * y[4] * y[5], r3 = rate.k[3] * y[6] * y[7];
    float r4 = rate.k[4] * y[8] * y[9], r5 = rate.k[5] * y[1] * y[8];
    float r6 = rate.k[0] * y[3] * y[4], r7 = rate.k[2] * y[5] * y[9];
    d[0] = r1 - r0 + r7;
    d[1] = r4 - r0 - r5;
    d[2] = r0 - r1 + r5;
    d[3] = r2 - r1 - r6;
    d[4] = r3 - r2 - r6;
    d[5] = r0 - r2 - r7;
    d[6] = r2 - r3 + r6;
    d[7] = r5 - r3 + r6;
    d[8] = r3 - r4 - r5;
    d[9] = r1 - r4 - r7;
}

extern "C" __global__ void kinetics(int cells,
                                    float end,
                                    float tolerance,
                                    int most,
                                    const float* __restrict__ temperature,
                                    const float* __restrict__ start,
                                    float* __restrict__ result,
                                    int* __restrict__ steps) {
    int cell = blockIdx.x * blockDim.x + threadIdx.x;
    float inverse = 1.f / temperature[cell];
    Rates rate;
#pragma unroll
    for (int r = 0; r < 6; r++) {
        rate.k[r] = (3.f + r) * __expf(-(0.5f + 0.25f * r) * inverse);
    }
    float y[SPECIES], k1[SPECIES];
#pragma unroll
    for (int s = 0; s < SPECIES; s++) {
        y[s] = start[s * cells + cell];
    }
    derivative(y, rate, k1);
    float t = 0.f, h = 0.05f * end;
    int count = 0;
    while (t < end && count < most) {
        h = fminf(h, end - t);
        float k2[SPECIES], k3[SPECIES], k4[SPECIES], k5[SPECIES], k6[SPECIES], k7[SPECIES], at[SPECIES];
#pragma unroll
        for (int s = 0; s < SPECIES; s++) {
            at[s] = y[s] + h * (1.f / 5) * k1[s];
        }
        derivative(at, rate, k2);
#pragma unroll
        for (int s = 0; s < SPECIES; s++) {
            at[s] = y[s] + h * (3.f / 40 * k1[s] + 9.f / 40 * k2[s]);
        }
        derivative(at, rate, k3);
#pragma unroll
        for (int s = 0; s < SPECIES; s++) {
            at[s] = y[s] + h * (44.f / 45 * k1[s] - 56.f / 15 * k2[s] + 32.f / 9 * k3[s]);
        }
        derivative(at, rate, k4);
#pragma unroll
        for (int s = 0; s < SPECIES; s++) {
            at[s] = y[s]
                + h
                    * (19372.f / 6561 * k1[s] - 25360.f / 2187 * k2[s] + 64448.f / 6561 * k3[s]
                       - 212.f / 729 * k4[s]);
        }
        derivative(at, rate, k5);
#pragma unroll
        for (int s = 0; s < SPECIES; s++) {
            at[s] = y[s]
                + h
                    * (9017.f / 3168 * k1[s] - 355.f / 33 * k2[s] + 46732.f / 5247 * k3[s] + 49.f / 176 * k4[s]
                       - 5103.f / 18656 * k5[s]);
        }
        derivative(at, rate, k6);
#pragma unroll
        for (int s = 0; s < SPECIES; s++) {
            at[s] = y[s]
                + h
                    * (35.f / 384 * k1[s] + 500.f / 1113 * k3[s] + 125.f / 192 * k4[s] - 2187.f / 6784 * k5[s]
                       + 11.f / 84 * k6[s]);
        }
        derivative(at, rate, k7);
        float worst = 1e-12f;
#pragma unroll
        for (int s = 0; s < SPECIES; s++) {
            float error = h
                * (71.f / 57600 * k1[s] - 71.f / 16695 * k3[s] + 71.f / 1920 * k4[s] - 17253.f / 339200 * k5[s]
                   + 22.f / 525 * k6[s] - 1.f / 40 * k7[s]);
            worst = fmaxf(worst, fabsf(error) / (tolerance * (1e-2f + fabsf(at[s]))));
        }
        if (worst <= 1.f) {
            t += h;
#pragma unroll
            for (int s = 0; s < SPECIES; s++) {
                y[s] = at[s];
                k1[s] = k7[s];
            }
        }
        h *= fminf(5.f, fmaxf(0.2f, 0.9f * __powf(worst, -0.2f)));
        count++;
    }
#pragma unroll
    for (int s = 0; s < SPECIES; s++) {
        result[s * cells + cell] = y[s];
    }
    steps[cell] = count;
}
