// Linear elasticity without a matrix: the forces at the eight nodes of a trilinear hexahedron from
// their displacements, summed over the eight points of a Gauss rule. Floats; coordinates,
// displacements and forces are 72 values live around the loop over the points.

constexpr int NODES = 8, AXES = 3;

extern "C" __global__ void hex8_forces(int elements,
                                       float lambda,
                                       float mu,
                                       const float* __restrict__ shift,
                                       const float* __restrict__ displacement,
                                       float* __restrict__ force) {
    int element = blockIdx.x * blockDim.x + threadIdx.x;
    float x[NODES][AXES], u[NODES][AXES], f[NODES][AXES];
#pragma unroll
    for (int n = 0; n < NODES; n++) {
#pragma unroll
        for (int a = 0; a < AXES; a++) {
            int at = (n * AXES + a) * elements + element;
            x[n][a] = (n >> a & 1 ? 0.5f : -0.5f) + shift[at];
            u[n][a] = displacement[at];
            f[n][a] = 0.f;
        }
    }
#pragma unroll 1
    for (int point = 0; point < 8; point++) {
        float place[AXES];
#pragma unroll
        for (int a = 0; a < AXES; a++) {
            place[a] = point >> a & 1 ? 0.57735027f : -0.57735027f;
        }
        // Derivatives of the shape functions by the local coordinates, then by the global ones.
        float slope[NODES][AXES], jacobian[AXES][AXES] = {};
#pragma unroll
        for (int n = 0; n < NODES; n++) {
            float side[AXES];
#pragma unroll
            for (int a = 0; a < AXES; a++) {
                side[a] = n >> a & 1 ? 1.f + place[a] : 1.f - place[a];
            }
#pragma unroll
            for (int a = 0; a < AXES; a++) {
                float sign = n >> a & 1 ? 0.125f : -0.125f;
                slope[n][a] = sign * side[(a + 1) % 3] * side[(a + 2) % 3];
#pragma unroll
                for (int b = 0; b < AXES; b++) {
                    jacobian[a][b] += slope[n][a] * x[n][b];
                }
            }
        }
        float cofactor[AXES][AXES];
#pragma unroll
        for (int a = 0; a < AXES; a++) {
#pragma unroll
            for (int b = 0; b < AXES; b++) {
                cofactor[a][b] = jacobian[(a + 1) % 3][(b + 1) % 3] * jacobian[(a + 2) % 3][(b + 2) % 3]
                    - jacobian[(a + 1) % 3][(b + 2) % 3] * jacobian[(a + 2) % 3][(b + 1) % 3];
            }
        }
        float volume =
            jacobian[0][0] * cofactor[0][0] + jacobian[0][1] * cofactor[0][1] + jacobian[0][2] * cofactor[0][2];
        float inverse = 1.f / volume;
        float gradient[AXES][AXES] = {};
#pragma unroll
        for (int n = 0; n < NODES; n++) {
            float global[AXES];
#pragma unroll
            for (int b = 0; b < AXES; b++) {
                global[b] =
                    (slope[n][0] * cofactor[0][b] + slope[n][1] * cofactor[1][b] + slope[n][2] * cofactor[2][b])
                    * inverse;
            }
#pragma unroll
            for (int b = 0; b < AXES; b++) {
                slope[n][b] = global[b];
#pragma unroll
                for (int a = 0; a < AXES; a++) {
                    gradient[a][b] += u[n][a] * global[b];
                }
            }
        }
        float spread = lambda * (gradient[0][0] + gradient[1][1] + gradient[2][2]);
        float stress[AXES][AXES];
#pragma unroll
        for (int a = 0; a < AXES; a++) {
#pragma unroll
            for (int b = 0; b < AXES; b++) {
                stress[a][b] = volume * (mu * (gradient[a][b] + gradient[b][a]) + (a == b ? spread : 0.f));
            }
        }
#pragma unroll
        for (int n = 0; n < NODES; n++) {
#pragma unroll
            for (int a = 0; a < AXES; a++) {
                f[n][a] += stress[a][0] * slope[n][0] + stress[a][1] * slope[n][1] + stress[a][2] * slope[n][2];
            }
        }
    }
#pragma unroll
    for (int n = 0; n < NODES; n++) {
#pragma unroll
        for (int a = 0; a < AXES; a++) {
            force[(n * AXES + a) * elements + element] = f[n][a];
        }
    }
}
