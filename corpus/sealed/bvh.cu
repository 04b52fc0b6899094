// Rays in pairs through a tree of boxes with eight children per node, the nearest child first: floats and integers,
// gathers of 48 floats, a sorting network, a loop whose length depends on the data and a short one in it.

typedef unsigned int u32;

constexpr int RAYS = 2, WIDTH = 8, LEVELS = 4;
// The key of a box that is not hit.
constexpr u32 NONE = 0xffffffff;

// The children of node n are the nodes from 8n + 1; the tree is complete, and what lies below LEVELS levels of nodes
// are leaves. For each node, `centres` and `extents` hold the boxes of its children: eight numbers for each axis.
extern "C" __global__ void nearest_leaves(const float4* __restrict__ centres,
                                          const float4* __restrict__ extents,
                                          const float* __restrict__ rays,
                                          float* __restrict__ distances,
                                          int* __restrict__ leaves) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    float origin[RAYS][3], inverse[RAYS][3], best[RAYS];
    int leaf[RAYS];
#pragma unroll
    for (int ray = 0; ray < RAYS; ray++) {
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
            origin[ray][axis] = rays[(6 * ray + axis) * threads + thread];
            float direction = rays[(6 * ray + axis + 3) * threads + thread];
            inverse[ray][axis] = 1.0f / copysignf(fmaxf(fabsf(direction), 1e-6f), direction);
        }
        best[ray] = 1e30f;
        leaf[ray] = -1;
    }
    // Lists of children still to be seen, three bits for each below a one.
    u32 lists[LEVELS - 1] = {1, 1, 1};
    int node = 0, level = 0;
    while (true) {
        float enter[RAYS][WIDTH], leave[RAYS][WIDTH];
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
#pragma unroll
            for (int part = 0; part < 2; part++) {
                float4 centre = centres[(node * 3 + axis) * 2 + part], extent = extents[(node * 3 + axis) * 2 + part];
                float middle[4] = {centre.x, centre.y, centre.z, centre.w};
                float half[4] = {extent.x, extent.y, extent.z, extent.w};
#pragma unroll
                for (int ray = 0; ray < RAYS; ray++) {
#pragma unroll
                    for (int n = 0; n < 4; n++) {
                        int child = 4 * part + n;
                        float at = (middle[n] - origin[ray][axis]) * inverse[ray][axis];
                        float reach = half[n] * fabsf(inverse[ray][axis]);
                        enter[ray][child] = axis ? fmaxf(enter[ray][child], at - reach) : at - reach;
                        leave[ray][child] = axis ? fminf(leave[ray][child], at + reach) : at + reach;
                    }
                }
            }
        }
        // Distances are not negative, so their bits sort as they do.
        u32 keys[RAYS][WIDTH];
#pragma unroll
        for (int ray = 0; ray < RAYS; ray++) {
#pragma unroll
            for (int child = 0; child < WIDTH; child++) {
                float from = fmaxf(enter[ray][child], 0.0f);
                bool hit = from <= leave[ray][child] && from < best[ray];
                keys[ray][child] = hit ? (__float_as_uint(from) & ~7u) | child : NONE;
            }
        }
        u32 list = 1;
        if (level == LEVELS - 1) {
#pragma unroll
            for (int ray = 0; ray < RAYS; ray++) {
                u32 key = keys[ray][0];
#pragma unroll
                for (int child = 1; child < WIDTH; child++) {
                    key = min(key, keys[ray][child]);
                }
                if (key != NONE) {
                    best[ray] = __uint_as_float(key & ~7u);
                    leaf[ray] = WIDTH * node + 1 + (key & 7);
                }
            }
            node = (node - 1) / WIDTH;
            level--;
            list = lists[LEVELS - 2];
        } else {
            u32 order[WIDTH];
#pragma unroll
            for (int child = 0; child < WIDTH; child++) {
                order[child] = min(keys[0][child], keys[1][child]);
            }
#pragma unroll
            for (int size = 2; size <= WIDTH; size *= 2) {
#pragma unroll
                for (int step = size / 2; step > 0; step /= 2) {
#pragma unroll
                    for (int n = 0; n < WIDTH; n++) {
                        int other = step == size / 2 ? n ^ (size - 1) : n ^ step;
                        if (other > n) {
                            u32 low = min(order[n], order[other]), high = max(order[n], order[other]);
                            order[n] = low;
                            order[other] = high;
                        }
                    }
                }
            }
#pragma unroll
            for (int n = WIDTH - 1; n >= 0; n--) {
                list = order[n] != NONE ? list << 3 | (order[n] & 7) : list;
            }
        }
        while (list == 1 && level > 0) {
            node = (node - 1) / WIDTH;
            level--;
            list = level == 0 ? lists[0] : lists[1];
        }
        if (list == 1) {
            break;
        }
        node = WIDTH * node + 1 + (list & 7);
        list >>= 3;
        lists[0] = level == 0 ? list : lists[0];
        lists[1] = level == 1 ? list : lists[1];
        lists[2] = level == 2 ? list : lists[2];
        level++;
    }
#pragma unroll
    for (int ray = 0; ray < RAYS; ray++) {
        distances[ray * threads + thread] = best[ray];
        leaves[ray * threads + thread] = leaf[ray];
    }
}
