// The lossy half of a picture codec: a thread takes 8x8 bytes, transforms rows and columns (DCT-II)
// and quantises by a table. Straight-line floats, all 64 coefficients live between the passes.

__device__ __forceinline__ void dct8(float& a, float& b, float& c, float& d, float& e, float& f, float& g, float& h) {
    constexpr float C1 = 0.49039264f, C2 = 0.46193977f, C3 = 0.41573481f, C4 = 0.35355339f, C5 = 0.27778512f,
                    C6 = 0.19134172f, C7 = 0.09754516f;
    float s0 = a + h, s1 = b + g, s2 = c + f, s3 = d + e;
    float d0 = a - h, d1 = b - g, d2 = c - f, d3 = d - e;
    float even = s0 + s3, odd = s1 + s2, outer = s0 - s3, inner = s1 - s2;
    a = C4 * (even + odd);
    e = C4 * (even - odd);
    c = C2 * outer + C6 * inner;
    g = C6 * outer - C2 * inner;
    b = C1 * d0 + C3 * d1 + C5 * d2 + C7 * d3;
    d = C3 * d0 - C7 * d1 - C1 * d2 - C5 * d3;
    f = C5 * d0 - C1 * d1 + C7 * d2 + C3 * d3;
    h = C7 * d0 - C5 * d1 + C3 * d2 - C1 * d3;
}

extern "C" __global__ void dct_quantise(int pitch,
                                        const unsigned char* __restrict__ image,
                                        const float* __restrict__ table,
                                        uint4* __restrict__ coefficients) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    const unsigned char* from = image + (size_t)row * 8 * pitch + column * 8;
    float v[8][8];
#pragma unroll
    for (int y = 0; y < 8; y++) {
        uint2 bytes = *(const uint2*)(from + y * pitch);
#pragma unroll
        for (int x = 0; x < 8; x++) {
            unsigned word = x < 4 ? bytes.x : bytes.y;
            v[y][x] = (float)(word >> (x % 4 * 8) & 255) - 128.f;
        }
    }
#pragma unroll
    for (int y = 0; y < 8; y++) {
        dct8(v[y][0], v[y][1], v[y][2], v[y][3], v[y][4], v[y][5], v[y][6], v[y][7]);
    }
#pragma unroll
    for (int x = 0; x < 8; x++) {
        dct8(v[0][x], v[1][x], v[2][x], v[3][x], v[4][x], v[5][x], v[6][x], v[7][x]);
    }
    uint4* to = coefficients + ((size_t)row * (pitch / 8) + column) * 8;
#pragma unroll
    for (int y = 0; y < 8; y++) {
        unsigned words[4];
#pragma unroll
        for (int x = 0; x < 8; x += 2) {
            unsigned low = __float2int_rn(v[y][x] * table[y * 8 + x]);
            unsigned high = __float2int_rn(v[y][x + 1] * table[y * 8 + x + 1]);
            words[x / 2] = low & 0xffff | high << 16;
        }
        to[y] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}
