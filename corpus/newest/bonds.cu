// The surroundings of an atom, as potentials fitted by machine learning describe them: real spherical
// harmonics to degree 5 of the directions to its neighbours, summed with two radial weights. A loop
// over a list of neighbours gathers places and carries 72 sums; then power spectra.

constexpr int DEGREES = 6, TERMS = DEGREES * DEGREES, WEIGHTS = 2;

extern "C" __global__ void bond_spectra(int atoms,
                                        int neighbours,
                                        float cutoff,
                                        const int* __restrict__ list,
                                        const float4* __restrict__ places,
                                        float* __restrict__ spectra) {
    int atom = blockIdx.x * blockDim.x + threadIdx.x;
    float4 here = places[atom];
    float sum[WEIGHTS][TERMS] = {};
    float inverse_cutoff = 1.f / cutoff;
#pragma unroll 1
    for (int n = 0; n < neighbours; n++) {
        float4 there = places[list[n * atoms + atom]];
        float dx = there.x - here.x, dy = there.y - here.y, dz = there.z - here.z;
        float square = dx * dx + dy * dy + dz * dz + 1e-12f, inverse = rsqrtf(square);
        float x = dx * inverse, y = dy * inverse, z = dz * inverse, t = square * inverse * inverse_cutoff;
        float within = fmaxf(1.f - t * t, 0.f), weight[WEIGHTS];
        // The fourth coordinate is what kind of atom it is.
        weight[0] = within * within * there.w;
        weight[1] = weight[0] * (2.f * t - 1.f);
        // cosine + i sine = (x + iy)^m; the polynomials in z by their recurrence in the degree.
        float cosine = 1.f, sine = 0.f, start = 1.f;
#pragma unroll
        for (int m = 0; m < DEGREES; m++) {
            float before = 0.f, legendre = start;
#pragma unroll
            for (int l = m; l < DEGREES; l++) {
#pragma unroll
                for (int w = 0; w < WEIGHTS; w++) {
                    float scaled = weight[w] * legendre;
                    sum[w][l * (l + 1) + m] += scaled * cosine;
                    if (m > 0) {
                        sum[w][l * (l + 1) - m] += scaled * sine;
                    }
                }
                float next = ((2 * l + 1) * z * legendre - (l + m) * before) * (1.f / (l - m + 1));
                before = legendre;
                legendre = next;
            }
            float turned = x * cosine - y * sine;
            sine = x * sine + y * cosine;
            cosine = turned;
            start *= -(2 * m + 1);
        }
    }
#pragma unroll
    for (int l = 0; l < DEGREES; l++) {
        // The factors (l - m)! / (l + m)!, twice that where m is not 0, make spectra independent of the axes.
        float power[3] = {}, factor = 1.f;
#pragma unroll
        for (int m = 0; m < DEGREES; m++) {
            if (m <= l) {
                int cosines = l * (l + 1) + m, sines = l * (l + 1) - m;
                factor *= m == 0 ? 1.f : (m == 1 ? 2.f : 1.f) / ((l + m) * (l - m + 1));
                power[0] += factor * sum[0][cosines] * sum[0][cosines];
                power[1] += factor * sum[0][cosines] * sum[1][cosines];
                power[2] += factor * sum[1][cosines] * sum[1][cosines];
                if (m > 0) {
                    power[0] += factor * sum[0][sines] * sum[0][sines];
                    power[1] += factor * sum[0][sines] * sum[1][sines];
                    power[2] += factor * sum[1][sines] * sum[1][sines];
                }
            }
        }
#pragma unroll
        for (int p = 0; p < 3; p++) {
            spectra[(size_t)(l * 3 + p) * atoms + atom] = power[p];
        }
    }
}
