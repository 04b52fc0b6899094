// The assignment step of k-means: four points of sixteen dimensions per thread stay in registers while
// a loop reads the centroids from shared memory; nearest and second nearest are kept.

constexpr int POINTS = 4, DIMENSIONS = 16, TILE = 64;

extern "C" __global__ void kmeans_assign(int points,
                                         int centroids,
                                         const float* __restrict__ point,
                                         const float* __restrict__ centroid,
                                         int* __restrict__ nearest,
                                         float* __restrict__ margin) {
    __shared__ float4 tile[TILE * DIMENSIONS / 4];
    int i = blockIdx.x * blockDim.x * POINTS + threadIdx.x;
    float p[POINTS][DIMENSIONS], first[POINTS], second[POINTS];
    int index[POINTS];
#pragma unroll
    for (int k = 0; k < POINTS; k++) {
#pragma unroll
        for (int d = 0; d < DIMENSIONS; d++) {
            p[k][d] = point[d * points + i + k * blockDim.x];
        }
        first[k] = second[k] = 3e38f;
        index[k] = 0;
    }
    for (int start = 0; start < centroids; start += TILE) {
        __syncthreads();
        for (int k = threadIdx.x; k < TILE * DIMENSIONS / 4; k += blockDim.x) {
            tile[k] = ((const float4*)centroid)[start * DIMENSIONS / 4 + k];
        }
        __syncthreads();
#pragma unroll 2
        for (int c = 0; c < TILE; c++) {
            float distance[POINTS] = {};
#pragma unroll
            for (int d = 0; d < DIMENSIONS / 4; d++) {
                float4 q = tile[c * DIMENSIONS / 4 + d];
#pragma unroll
                for (int k = 0; k < POINTS; k++) {
                    float a = p[k][d * 4] - q.x, b = p[k][d * 4 + 1] - q.y;
                    float e = p[k][d * 4 + 2] - q.z, f = p[k][d * 4 + 3] - q.w;
                    distance[k] = fmaf(a, a, fmaf(b, b, fmaf(e, e, fmaf(f, f, distance[k]))));
                }
            }
#pragma unroll
            for (int k = 0; k < POINTS; k++) {
                bool nearer = distance[k] < first[k];
                second[k] = nearer ? first[k] : fminf(second[k], distance[k]);
                first[k] = nearer ? distance[k] : first[k];
                index[k] = nearer ? start + c : index[k];
            }
        }
    }
#pragma unroll
    for (int k = 0; k < POINTS; k++) {
        nearest[i + k * blockDim.x] = index[k];
        margin[i + k * blockDim.x] = second[k] - first[k];
    }
}
