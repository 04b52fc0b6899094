// The 32 nearest candidates of a query in the plane, in order. A thread sorts 32 distances with their
// indices by a bitonic network in registers and merges them with the 32 best so far: 128 values,
// compares and selects without any branch, in a loop over the candidates.

constexpr int N = 32;

__device__ __forceinline__ void order(float& a, int& x, float& b, int& y, bool ascending) {
    bool swap = ascending ? b < a : a < b;
    float low = swap ? b : a, high = swap ? a : b;
    int low_index = swap ? y : x, high_index = swap ? x : y;
    a = low;
    b = high;
    x = low_index;
    y = high_index;
}

extern "C" __global__ void nearest32(int queries,
                                     int candidates,
                                     const float2* __restrict__ query,
                                     const float2* __restrict__ candidate,
                                     float* __restrict__ distances,
                                     int* __restrict__ indices) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= queries) {
        return;
    }
    float2 me = query[i];
    float best[N];
    int best_index[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        best[k] = 3e38f;
        best_index[k] = -1;
    }
#pragma unroll 1
    for (int start = 0; start < candidates; start += N) {
        float key[N];
        int index[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            float2 other = candidate[start + k];
            float dx = other.x - me.x, dy = other.y - me.y;
            key[k] = fmaf(dx, dx, dy * dy);
            index[k] = start + k;
        }
#pragma unroll
        for (int size = 2; size <= N; size *= 2) {
#pragma unroll
            for (int step = size / 2; step > 0; step /= 2) {
#pragma unroll
                for (int k = 0; k < N; k++) {
                    if ((k & step) == 0) {
                        order(key[k], index[k], key[k + step], index[k + step], (k & size) == 0);
                    }
                }
            }
        }
        // The smaller halves of both lists form a bitonic sequence.
#pragma unroll
        for (int k = 0; k < N; k++) {
            bool take = key[N - 1 - k] < best[k];
            best[k] = take ? key[N - 1 - k] : best[k];
            best_index[k] = take ? index[N - 1 - k] : best_index[k];
        }
#pragma unroll
        for (int step = N / 2; step > 0; step /= 2) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                if ((k & step) == 0) {
                    order(best[k], best_index[k], best[k + step], best_index[k + step], true);
                }
            }
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        distances[k * queries + i] = best[k];
        indices[k * queries + i] = best_index[k];
    }
}
