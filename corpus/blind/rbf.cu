// Sums of Gaussians around scattered sources, with four charges each, in 32 dimensions: distances by
// tensor cores (mma.sync, tf32), exponentials and sums in registers. A warp takes 32 targets; the block
// stages 64 sources in shared memory at a time and loads the next ones into registers meanwhile.

constexpr int DIMENSIONS = 32, CHARGES = 4, TILE = 64, WARPS = 4, TILES = 2, STEPS = DIMENSIONS / 8, GROUPS = 4;
// Rows of shared memory are longer by four words, so that a fragment's words lie in different banks.
constexpr int PITCH = DIMENSIONS + 4, LOADS = TILE * DIMENSIONS / 4 / (WARPS * 32);

__device__ __forceinline__ unsigned rounded(float x) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Squares are half the squared lengths of targets and sources; `sharpness` is for powers of two.
extern "C" __global__ void gaussian_sums(int tiles,
                                         float sharpness,
                                         const float* __restrict__ targets,
                                         const float* __restrict__ target_squares,
                                         const float4* __restrict__ sources,
                                         const float* __restrict__ source_squares,
                                         const float4* __restrict__ charges,
                                         float4* __restrict__ sums) {
    __shared__ __align__(16) unsigned source[TILE * PITCH];
    __shared__ float square[TILE];
    __shared__ float4 charge[TILE];
    int lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4;
    int row = (blockIdx.x * WARPS + threadIdx.x / 32) * TILES * 16 + group;
    unsigned a[TILES][STEPS][4];
    float own[TILES][2], sum[TILES][2][CHARGES] = {};
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            own[t][h] = -sharpness * target_squares[row + t * 16 + h * 8];
        }
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
#pragma unroll
            for (int r = 0; r < 4; r++) {
                size_t place = (size_t)(row + t * 16 + r % 2 * 8) * DIMENSIONS + s * 8 + r / 2 * 4 + pair;
                a[t][s][r] = rounded(sharpness * targets[place]);
            }
        }
    }
    float4 ahead[LOADS];
#pragma unroll
    for (int k = 0; k < LOADS; k++) {
        ahead[k] = sources[k * WARPS * 32 + threadIdx.x];
    }
#pragma unroll 1
    for (int tile = 0; tile < tiles; tile++) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < LOADS; k++) {
            int i = k * WARPS * 32 + threadIdx.x;
            uint4 bits = {rounded(ahead[k].x), rounded(ahead[k].y), rounded(ahead[k].z), rounded(ahead[k].w)};
            *(uint4*)(source + i / (DIMENSIONS / 4) * PITCH + i % (DIMENSIONS / 4) * 4) = bits;
        }
        if (threadIdx.x < TILE) {
            square[threadIdx.x] = sharpness * source_squares[tile * TILE + threadIdx.x];
            charge[threadIdx.x] = charges[tile * TILE + threadIdx.x];
        }
        __syncthreads();
        if (tile + 1 < tiles) {
#pragma unroll
            for (int k = 0; k < LOADS; k++) {
                ahead[k] = sources[(tile + 1) * (TILE * DIMENSIONS / 4) + k * WARPS * 32 + threadIdx.x];
            }
        }
#pragma unroll 1
        for (int n = 0; n < TILE; n += GROUPS * 8) {
            float c[TILES][GROUPS][4];
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                float even = square[n + g * 8 + pair * 2], odd = square[n + g * 8 + pair * 2 + 1];
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    c[t][g][0] = own[t][0] - even;
                    c[t][g][1] = own[t][0] - odd;
                    c[t][g][2] = own[t][1] - even;
                    c[t][g][3] = own[t][1] - odd;
                }
            }
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
#pragma unroll
                for (int g = 0; g < GROUPS; g++) {
                    const unsigned* at = source + (n + g * 8 + group) * PITCH + s * 8 + pair;
                    unsigned b0 = at[0], b1 = at[4];
#pragma unroll
                    for (int t = 0; t < TILES; t++) {
                        multiply(c[t][g], a[t][s], b0, b1);
                    }
                }
            }
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    float4 q = charge[n + g * 8 + pair * 2 + k];
#pragma unroll
                    for (int t = 0; t < TILES; t++) {
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                            float value = exp2f(c[t][g][h * 2 + k]);
                            sum[t][h][0] += value * q.x;
                            sum[t][h][1] += value * q.y;
                            sum[t][h][2] += value * q.z;
                            sum[t][h][3] += value * q.w;
                        }
                    }
                }
            }
        }
    }
    // Four lanes hold parts of the same rows.
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int q = 0; q < CHARGES; q++) {
                sum[t][h][q] += __shfl_xor_sync(0xffffffff, sum[t][h][q], 1);
                sum[t][h][q] += __shfl_xor_sync(0xffffffff, sum[t][h][q], 2);
            }
            if (pair == t * 2 + h) {
                sums[row + t * 16 + h * 8] = make_float4(sum[t][h][0], sum[t][h][1], sum[t][h][2], sum[t][h][3]);
            }
        }
    }
}
