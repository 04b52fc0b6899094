// 16-bit arithmetic: packed pairs, scalar halves that share a 32-bit register, bf16, conversions,
// and unpacking whose two results die at different times.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void half_poly(const half2* __restrict__ x,
                                     const half* __restrict__ coefficients,
                                     half2* __restrict__ y,
                                     int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    half c[12];
#pragma unroll
    for (int i = 0; i < 12; i++) {
        c[i] = coefficients[i];
    }
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        half2 v = x[i];
        half2 packed = __half2half2(c[0]);
        half low = c[11], high = c[10];
#pragma unroll
        for (int k = 1; k < 12; k++) {
            packed = __hfma2(packed, v, __halves2half2(c[k], c[11 - k]));
            low = __hfma(low, __low2half(v), c[11 - k]);
            high = __hadd(__hmul(high, __high2half(v)), c[k]);
        }
        y[i] = __hadd2(packed, __halves2half2(low, high));
    }
}

extern "C" __global__ void bf16_softmax(const __nv_bfloat162* __restrict__ x,
                                        __nv_bfloat162* __restrict__ y) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_bfloat162 v[16];
    __nv_bfloat162 top = x[t * 16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        v[i] = x[t * 16 + i];
        top = __hmax2(top, v[i]);
    }
    __nv_bfloat16 peak = __hmax(__low2bfloat16(top), __high2bfloat16(top));
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float low = __expf(__bfloat162float(__low2bfloat16(v[i])) - __bfloat162float(peak));
        float high = __expf(__bfloat162float(__high2bfloat16(v[i])) - __bfloat162float(peak));
        sum += low + high;
        v[i] = __floats2bfloat162_rn(low, high);
    }
    __nv_bfloat162 scale = __bfloat162bfloat162(__float2bfloat16(1.0f / sum));
#pragma unroll
    for (int i = 0; i < 16; i++) {
        y[t * 16 + i] = __hmul2(v[i], scale);
    }
}

// Short integers: 16-bit registers that are never half of anything.
extern "C" __global__ void shorts(const short* __restrict__ x, short* __restrict__ y, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    short a = x[t], b = x[t + n];
    unsigned short mask = (unsigned short)(a ^ b);
    for (int i = 0; i < n; i++) {
        short v = x[i];
        a = (short)(a * v + b);
        b = (short)(b - (v >> 3));
        mask = (unsigned short)((mask << 1) | (a > b));
    }
    y[t] = (short)(a ^ b ^ mask);
}
