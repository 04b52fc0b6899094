// Wilson's operator of lattice gauge theory: a thread gathers the spinors of eight neighbours in four
// dimensions, projects each to half, multiplies it by a 3x3 complex matrix of the link between and
// adds it up. Floats, complex, straight-line; a site is 24 floats, a link 18.

constexpr int COLOURS = 3, SPINS = 4;

struct Complex {
    float re, im;
};

__device__ __forceinline__ Complex operator+(Complex a, Complex b) {
    return {a.re + b.re, a.im + b.im};
}

__device__ __forceinline__ Complex operator-(Complex a, Complex b) {
    return {a.re - b.re, a.im - b.im};
}

// i times a.
__device__ __forceinline__ Complex turned(Complex a) {
    return {-a.im, a.re};
}

// The direction's gamma matrix takes the lower two spins to the upper two by a 2x2 matrix, whose row
// `spin` this is of the lower spins.
template <int D>
__device__ __forceinline__ Complex upper(int spin, Complex third, Complex fourth) {
    switch (D) {
        case 0:
            return turned(spin == 0 ? fourth : third);
        case 1:
            return spin == 0 ? Complex{-fourth.re, -fourth.im} : third;
        case 2:
            return spin == 0 ? turned(third) : Complex{fourth.im, -fourth.re};
        default:
            return spin == 0 ? third : fourth;
    }
}

// And the adjoint, which takes the upper two to the lower two.
template <int D>
__device__ __forceinline__ Complex lower(int spin, Complex first, Complex second) {
    switch (D) {
        case 0: {
            Complex a = spin == 0 ? second : first;
            return {a.im, -a.re};
        }
        case 1:
            return spin == 0 ? second : Complex{-first.re, -first.im};
        case 2:
            return spin == 0 ? Complex{first.im, -first.re} : turned(second);
        default:
            return spin == 0 ? first : second;
    }
}

// Adds (1 -+ gamma) U psi of one neighbour: forwards by the link of this site, backwards by the
// adjoint of the neighbour's.
template <int D, bool FORWARDS>
__device__ __forceinline__ void hop(Complex (&sum)[SPINS][COLOURS],
                                    const float2* __restrict__ spinors,
                                    const float2* __restrict__ links,
                                    int sites,
                                    int site,
                                    int neighbour) {
    Complex half[2][COLOURS];
#pragma unroll
    for (int c = 0; c < COLOURS; c++) {
        Complex psi[SPINS];
#pragma unroll
        for (int s = 0; s < SPINS; s++) {
            float2 word = spinors[(s * COLOURS + c) * sites + neighbour];
            psi[s] = {word.x, word.y};
        }
#pragma unroll
        for (int s = 0; s < 2; s++) {
            Complex other = upper<D>(s, psi[2], psi[3]);
            half[s][c] = FORWARDS ? psi[s] - other : psi[s] + other;
        }
    }
    Complex moved[2][COLOURS] = {};
#pragma unroll
    for (int i = 0; i < COLOURS; i++) {
#pragma unroll
        for (int j = 0; j < COLOURS; j++) {
            int entry = FORWARDS ? i * COLOURS + j : j * COLOURS + i;
            float2 u = links[(D * COLOURS * COLOURS + entry) * sites + (FORWARDS ? site : neighbour)];
            float im = FORWARDS ? u.y : -u.y;
#pragma unroll
            for (int s = 0; s < 2; s++) {
                moved[s][i].re += u.x * half[s][j].re - im * half[s][j].im;
                moved[s][i].im += u.x * half[s][j].im + im * half[s][j].re;
            }
        }
    }
#pragma unroll
    for (int c = 0; c < COLOURS; c++) {
#pragma unroll
        for (int s = 0; s < 2; s++) {
            Complex other = lower<D>(s, moved[0][c], moved[1][c]);
            sum[s][c] = sum[s][c] + moved[s][c];
            sum[2 + s][c] = FORWARDS ? sum[2 + s][c] - other : sum[2 + s][c] + other;
        }
    }
}

// The lattice is of `side` sites in three dimensions and of gridDim.y in the fourth, periodic.
extern "C" __global__ void wilson_dslash(int side,
                                         float hopping,
                                         const float2* __restrict__ links,
                                         const float2* __restrict__ spinors,
                                         float2* __restrict__ output) {
    int place = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
    int x = place % side, y = place / side % side, z = place / side / side;
    int layer = side * side, slice = layer * side, sites = slice * gridDim.y, site = t * slice + place;
    Complex sum[SPINS][COLOURS] = {};
    hop<0, true>(sum, spinors, links, sites, site, x + 1 < side ? site + 1 : site + 1 - side);
    hop<0, false>(sum, spinors, links, sites, site, x > 0 ? site - 1 : site - 1 + side);
    hop<1, true>(sum, spinors, links, sites, site, y + 1 < side ? site + side : site + side - layer);
    hop<1, false>(sum, spinors, links, sites, site, y > 0 ? site - side : site - side + layer);
    hop<2, true>(sum, spinors, links, sites, site, z + 1 < side ? site + layer : site + layer - slice);
    hop<2, false>(sum, spinors, links, sites, site, z > 0 ? site - layer : site - layer + slice);
    hop<3, true>(sum, spinors, links, sites, site, t + 1 < gridDim.y ? site + slice : place);
    hop<3, false>(sum, spinors, links, sites, site, t > 0 ? site - slice : site - slice + sites);
#pragma unroll
    for (int s = 0; s < SPINS; s++) {
#pragma unroll
        for (int c = 0; c < COLOURS; c++) {
            int at = (s * COLOURS + c) * sites + site;
            float2 old = spinors[at];
            output[at] = make_float2(old.x - hopping * sum[s][c].re, old.y - hopping * sum[s][c].im);
        }
    }
}
