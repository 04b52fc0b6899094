// Sums of points on an elliptic curve over a prime of 256 bits, as multi-scalar multiplication fills
// its buckets: a thread adds affine points that a list picks to a sum in Jacobian coordinates. A
// Montgomery product is 128 products of 32 bits with carries; 24 words of sum stay live around the loop.

typedef unsigned u32;
typedef unsigned long long u64;

constexpr int LIMBS = 8;
// The prime 2^256 - 2^32 - 977, and the negative inverse of its lowest limb.
constexpr u32 LOWEST = 0xfffffc2f, SECOND = 0xfffffffe, OTHERS = 0xffffffff, NEGATED_INVERSE = 0xd2253531;

struct Field {
    u32 limb[LIMBS];
};

__device__ __forceinline__ constexpr u32 prime(int i) {
    return i == 0 ? LOWEST : i == 1 ? SECOND : OTHERS;
}

// The value less the prime where that is not negative; `carry` is the limb above.
__device__ __forceinline__ Field reduced(const Field& a, u32 carry) {
    Field less;
    u32 borrow = 0;
#pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        u64 t = (u64)a.limb[i] - prime(i) - borrow;
        less.limb[i] = (u32)t;
        borrow = (u32)(t >> 32) & 1;
    }
    bool keep = carry < borrow;
#pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        less.limb[i] = keep ? a.limb[i] : less.limb[i];
    }
    return less;
}

__device__ __forceinline__ Field product(const Field& a, const Field& b) {
    u32 t[LIMBS + 2] = {};
#pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        u64 sum = 0;
#pragma unroll
        for (int j = 0; j < LIMBS; j++) {
            sum = (u64)a.limb[j] * b.limb[i] + t[j] + (sum >> 32);
            t[j] = (u32)sum;
        }
        sum = (u64)t[LIMBS] + (sum >> 32);
        t[LIMBS] = (u32)sum;
        t[LIMBS + 1] = (u32)(sum >> 32);
        u32 factor = t[0] * NEGATED_INVERSE;
        sum = (u64)factor * prime(0) + t[0];
#pragma unroll
        for (int j = 1; j < LIMBS; j++) {
            sum = (u64)factor * prime(j) + t[j] + (sum >> 32);
            t[j - 1] = (u32)sum;
        }
        sum = (u64)t[LIMBS] + (sum >> 32);
        t[LIMBS - 1] = (u32)sum;
        t[LIMBS] = t[LIMBS + 1] + (u32)(sum >> 32);
    }
    Field r;
#pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        r.limb[i] = t[i];
    }
    return reduced(r, t[LIMBS]);
}

__device__ __forceinline__ Field difference(const Field& a, const Field& b) {
    Field r;
    u32 borrow = 0;
#pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        u64 t = (u64)a.limb[i] - b.limb[i] - borrow;
        r.limb[i] = (u32)t;
        borrow = (u32)(t >> 32) & 1;
    }
    u32 mask = 0u - borrow, carry = 0;
#pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        u64 t = (u64)r.limb[i] + (prime(i) & mask) + carry;
        r.limb[i] = (u32)t;
        carry = (u32)(t >> 32);
    }
    return r;
}

// Coordinates are below 2^255, which is below the prime.
__device__ __forceinline__ Field coordinate(const uint4* __restrict__ at) {
    uint4 low = at[0], high = at[1];
    return {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w & 0x7fffffff};
}

// A pick is twice an index into the table, plus one where the point is to be subtracted. Points that
// equal the sum so far would have to be doubled, which this leaves out.
extern "C" __global__ void curve_sums(int sums,
                                      int terms,
                                      const int* __restrict__ picks,
                                      const uint4* __restrict__ points,
                                      u32* __restrict__ output) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int first = picks[thread] >> 1;
    Field x = coordinate(points + first * 4), y = coordinate(points + first * 4 + 2);
    // One, in Montgomery's form.
    Field z = {977, 1};
#pragma unroll 1
    for (int term = 1; term < terms; term++) {
        int pick = picks[term * sums + thread];
        const uint4* point = points + (pick >> 1) * 4;
        Field square = product(z, z);
        Field h = difference(product(coordinate(point), square), x);
        Field other = coordinate(point + 2), zero = {}, minus = difference(zero, other);
#pragma unroll
        for (int i = 0; i < LIMBS; i++) {
            other.limb[i] = pick & 1 ? minus.limb[i] : other.limb[i];
        }
        Field r = difference(product(other, product(square, z)), y);
        z = product(z, h);
        Field hh = product(h, h);
        Field hhh = product(hh, h), v = product(x, hh);
        x = difference(difference(difference(product(r, r), hhh), v), v);
        y = difference(product(r, difference(v, x)), product(y, hhh));
    }
#pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        output[i * sums + thread] = x.limb[i];
        output[(LIMBS + i) * sums + thread] = y.limb[i];
        output[(2 * LIMBS + i) * sums + thread] = z.limb[i];
    }
}
