// Skinning by dual quaternions, eight bones per vertex and six shapes of the face: floats, 16 gathers of four floats,
// a root and a division, straight-line.

typedef unsigned int u32;

constexpr int BONES = 8, SHAPES = 6;

__device__ __forceinline__ float dot(float4 a, float4 b) {
    return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

__device__ __forceinline__ void add(float4& sum, float weight, float4 a) {
    sum.x += weight * a.x;
    sum.y += weight * a.y;
    sum.z += weight * a.z;
    sum.w += weight * a.w;
}

// A vector turned by a quaternion.
__device__ __forceinline__ void turn(float4 q, float (&v)[3]) {
    float x = q.y * v[2] - q.z * v[1] + q.w * v[0];
    float y = q.z * v[0] - q.x * v[2] + q.w * v[1];
    float z = q.x * v[1] - q.y * v[0] + q.w * v[2];
    v[0] += 2.0f * (q.y * z - q.z * y);
    v[1] += 2.0f * (q.z * x - q.x * z);
    v[2] += 2.0f * (q.x * y - q.y * x);
}

// `palette` holds the rotation and the dual part of each bone. Four indices of bones, a byte each, share a word.
// Vertices and shapes are arrays of numbers: position, normal, tangent.
extern "C" __global__ void skinned(const float4* __restrict__ palette,
                                   const float* __restrict__ blend,
                                   const u32* __restrict__ bones,
                                   const float4* __restrict__ weights,
                                   const float* __restrict__ vertices,
                                   const float* __restrict__ shapes,
                                   float* __restrict__ out) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    float vertex[9];
#pragma unroll
    for (int n = 0; n < 9; n++) {
        vertex[n] = vertices[n * threads + thread];
    }
#pragma unroll
    for (int shape = 0; shape < SHAPES; shape++) {
        float share = blend[shape];
#pragma unroll
        for (int n = 0; n < 6; n++) {
            vertex[n] += share * shapes[(shape * 6 + n) * threads + thread];
        }
    }
    float4 real[BONES], dual[BONES];
    float weight[BONES];
#pragma unroll
    for (int four = 0; four < BONES / 4; four++) {
        u32 word = bones[four * threads + thread];
        float4 share = weights[four * threads + thread];
        weight[4 * four] = share.x;
        weight[4 * four + 1] = share.y;
        weight[4 * four + 2] = share.z;
        weight[4 * four + 3] = share.w;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            u32 bone = word >> 8 * n & 0xff;
            real[4 * four + n] = palette[2 * bone];
            dual[4 * four + n] = palette[2 * bone + 1];
        }
    }
    float4 rotation = {}, shift = {};
#pragma unroll
    for (int n = 0; n < BONES; n++) {
        float signed_weight = dot(real[0], real[n]) < 0.0f ? -weight[n] : weight[n];
        add(rotation, signed_weight, real[n]);
        add(shift, signed_weight, dual[n]);
    }
    float scale = 1.0f / sqrtf(dot(rotation, rotation) + 1e-12f);
    rotation = make_float4(scale * rotation.x, scale * rotation.y, scale * rotation.z, scale * rotation.w);
    shift = make_float4(scale * shift.x, scale * shift.y, scale * shift.z, scale * shift.w);
    float moved[3] = {
        2.0f * (rotation.w * shift.x - shift.w * rotation.x + rotation.y * shift.z - rotation.z * shift.y),
        2.0f * (rotation.w * shift.y - shift.w * rotation.y + rotation.z * shift.x - rotation.x * shift.z),
        2.0f * (rotation.w * shift.z - shift.w * rotation.z + rotation.x * shift.y - rotation.y * shift.x),
    };
    float vectors[3][3];
#pragma unroll
    for (int n = 0; n < 3; n++) {
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
            vectors[n][axis] = vertex[3 * n + axis];
        }
        turn(rotation, vectors[n]);
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
            out[(3 * n + axis) * threads + thread] = vectors[n][axis] + (n == 0 ? moved[axis] : 0.0f);
        }
    }
}
