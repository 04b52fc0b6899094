// Texture compression (BC1): a thread finds for 4x4 pixels the two colours of 16 bits and the 32 bits
// of indices that come nearest: principal axis by power iteration, then rounds of assignment and
// least squares that keep the best. 48 floats of pixels stay live around two loops; conversions,
// integer packing, selects.

constexpr int PIXELS = 16, CHANNELS = 3;

// The nearest colour of 5, 6 and 5 bits, and what a decoder makes of it.
__device__ __forceinline__ unsigned packed(float (&colour)[CHANNELS]) {
    unsigned word = 0;
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        float top = c == 1 ? 63.f : 31.f;
        int level = __float2int_rn(fminf(fmaxf(colour[c], 0.f), 1.f) * top);
        colour[c] = level * (1.f / top);
        word = word << (c == 1 ? 6 : 5) | level;
    }
    return word;
}

extern "C" __global__ void bc1_encode(int width,
                                      int rounds,
                                      const uint4* __restrict__ image,
                                      uint2* __restrict__ output) {
    int bx = blockIdx.x * blockDim.x + threadIdx.x, by = blockIdx.y * blockDim.y + threadIdx.y;
    float pixel[PIXELS][CHANNELS], mean[CHANNELS] = {};
#pragma unroll
    for (int row = 0; row < 4; row++) {
        uint4 four = image[((size_t)(by * 4 + row) * width) / 4 + bx];
        unsigned words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int c = 0; c < CHANNELS; c++) {
                float value = (words[i] >> (8 * c) & 0xff) * (1.f / 255);
                pixel[row * 4 + i][c] = value;
                mean[c] += value * (1.f / PIXELS);
            }
        }
    }
    float spread[CHANNELS][CHANNELS] = {};
#pragma unroll
    for (int i = 0; i < PIXELS; i++) {
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
#pragma unroll
            for (int d = 0; d <= c; d++) {
                spread[c][d] += (pixel[i][c] - mean[c]) * (pixel[i][d] - mean[d]);
            }
        }
    }
    float axis[CHANNELS] = {0.9f, 1.f, 0.7f};
#pragma unroll 1
    for (int turn = 0; turn < 8; turn++) {
        float next[CHANNELS], longest = 1e-20f;
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            next[c] = 0.f;
#pragma unroll
            for (int d = 0; d < CHANNELS; d++) {
                next[c] += (d <= c ? spread[c][d] : spread[d][c]) * axis[d];
            }
            longest = fmaxf(longest, fabsf(next[c]));
        }
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            axis[c] = next[c] / longest;
        }
    }
    // The ends are where the outermost pixels meet the axis.
    float least = 1e30f, most = -1e30f, square = 1e-12f;
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        square += axis[c] * axis[c];
    }
#pragma unroll
    for (int i = 0; i < PIXELS; i++) {
        float at = 0.f;
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            at += (pixel[i][c] - mean[c]) * axis[c];
        }
        least = fminf(least, at);
        most = fmaxf(most, at);
    }
    float low[CHANNELS], high[CHANNELS];
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        low[c] = mean[c] + axis[c] * least / square;
        high[c] = mean[c] + axis[c] * most / square;
    }
    float smallest = 1e30f;
    unsigned ends = 0, indices = 0;
#pragma unroll 1
    for (int round = 0; round < rounds; round++) {
        unsigned word_low = packed(low), word_high = packed(high);
        float along[CHANNELS], length = 1e-12f;
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            along[c] = high[c] - low[c];
            length += along[c] * along[c];
        }
        // Steps of a third from the low end; sums of the normal equations of the two ends.
        float scale = 3.f / length, error = 0.f, ll = 0.f, lh = 0.f, hh = 0.f;
        float to_low[CHANNELS] = {}, to_high[CHANNELS] = {};
        unsigned steps = 0;
#pragma unroll
        for (int i = 0; i < PIXELS; i++) {
            float at = 0.f;
#pragma unroll
            for (int c = 0; c < CHANNELS; c++) {
                at += (pixel[i][c] - low[c]) * along[c];
            }
            int step = min(max(__float2int_rn(at * scale), 0), 3);
            steps |= (unsigned)step << (2 * i);
            float part = step * (1.f / 3), rest = 1.f - part;
            ll += rest * rest;
            lh += rest * part;
            hh += part * part;
#pragma unroll
            for (int c = 0; c < CHANNELS; c++) {
                float off = low[c] + part * along[c] - pixel[i][c];
                error += off * off;
                to_low[c] += rest * pixel[i][c];
                to_high[c] += part * pixel[i][c];
            }
        }
        if (error < smallest) {
            smallest = error;
            // Indices 0 and 1 are the ends, the first end the greater word; 2 and 3 lie between.
            bool swap = word_low > word_high;
            unsigned odd = steps & 0x55555555, even = steps >> 1 & 0x55555555;
            unsigned between = odd ^ even, second = swap ? even : ~even & 0x55555555;
            ends = swap ? word_low | word_high << 16 : word_high | word_low << 16;
            indices = word_low == word_high ? 0 : between << 1 | second;
        }
        float determinant = ll * hh - lh * lh;
        if (determinant < 1e-4f) {
            break;
        }
        float inverse = 1.f / determinant;
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            low[c] = (hh * to_low[c] - lh * to_high[c]) * inverse;
            high[c] = (ll * to_high[c] - lh * to_low[c]) * inverse;
        }
    }
    output[(size_t)by * (width / 4) + bx] = make_uint2(ends, indices);
}
