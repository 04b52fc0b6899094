// Matrix product with a 128x128x8 block tile and 8x8 accumulators per thread, 256 threads, double
// buffered: 64 accumulators that must stay in registers and address arithmetic that need not.

constexpr int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8;

extern "C" __global__ void sgemm_rb8(int M,
                                     int N,
                                     int K,
                                     float alpha,
                                     const float* __restrict__ A,
                                     const float* __restrict__ B,
                                     float beta,
                                     float* __restrict__ C) {
    __shared__ float As[2][BK][BM];
    __shared__ float Bs[2][BK][BN];
    int tid = threadIdx.x;
    int tr = tid / 16, tc = tid % 16;
    int arow = tid / 2, acol = (tid % 2) * 4;
    int brow = tid / 32, bcol = (tid % 32) * 4;
    const float* Ab = A + (size_t)blockIdx.y * BM * K;
    const float* Bb = B + blockIdx.x * BN;

    float acc[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; i++) {
        for (int j = 0; j < TN; j++) {
            acc[i][j] = 0.f;
        }
    }

    float4 ra = *(const float4*)(Ab + (size_t)arow * K + acol);
    float4 rb = *(const float4*)(Bb + (size_t)brow * N + bcol);
    As[0][acol][arow] = ra.x;
    As[0][acol + 1][arow] = ra.y;
    As[0][acol + 2][arow] = ra.z;
    As[0][acol + 3][arow] = ra.w;
    *(float4*)&Bs[0][brow][bcol] = rb;
    __syncthreads();

    int buf = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        bool more = k0 + BK < K;
        if (more) {
            ra = *(const float4*)(Ab + (size_t)arow * K + k0 + BK + acol);
            rb = *(const float4*)(Bb + (size_t)(brow + k0 + BK) * N + bcol);
        }
#pragma unroll
        for (int k = 0; k < BK; k++) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4) {
                *(float4*)&a[i] = *(float4*)&As[buf][k][tr * TM + i];
            }
#pragma unroll
            for (int i = 0; i < TN; i += 4) {
                *(float4*)&b[i] = *(float4*)&Bs[buf][k][tc * TN + i];
            }
#pragma unroll
            for (int i = 0; i < TM; i++) {
#pragma unroll
                for (int j = 0; j < TN; j++) {
                    acc[i][j] += a[i] * b[j];
                }
            }
        }
        if (more) {
            buf ^= 1;
            As[buf][acol][arow] = ra.x;
            As[buf][acol + 1][arow] = ra.y;
            As[buf][acol + 2][arow] = ra.z;
            As[buf][acol + 3][arow] = ra.w;
            *(float4*)&Bs[buf][brow][bcol] = rb;
            __syncthreads();
        }
    }

#pragma unroll
    for (int i = 0; i < TM; i++) {
#pragma unroll
        for (int j = 0; j < TN; j++) {
            size_t o = (size_t)(blockIdx.y * BM + tr * TM + i) * N + blockIdx.x * BN + tc * TN + j;
            C[o] = alpha * acc[i][j] + beta * C[o];
        }
    }
}
