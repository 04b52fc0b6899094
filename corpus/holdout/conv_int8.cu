// Convolution 3x3 of bytes, four input channels to a word (dp4a), one stage of shared memory. A block
// of 128 threads makes 32x32 pixels of eight output channels, a thread 4x8 pixels of two: 64
// accumulators beside a row of inputs and the weights. The result is scaled, clamped and packed.

constexpr int TILE = 32, HALO = TILE + 2, ROWS = 4, WIDTH = 8, OUTS = 2;

extern "C" __global__ void conv3x3_int8(int width,
                                        int height,
                                        int groups,
                                        float scale,
                                        const int* __restrict__ image,
                                        const int* __restrict__ weights,
                                        const float* __restrict__ bias,
                                        signed char* __restrict__ output) {
    __shared__ int tile[HALO * HALO];
    __shared__ int filter[8 * 9];
    int tid = threadIdx.x;
    int tx = tid % 4 * WIDTH, ty = tid / 4 % 8 * ROWS, to = tid / 32 * OUTS;
    int x0 = blockIdx.x * TILE, y0 = blockIdx.y * TILE, out0 = blockIdx.z * 8;
    int pitch = width + 2;

    int acc[OUTS][ROWS][WIDTH];
#pragma unroll
    for (int o = 0; o < OUTS; o++) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                acc[o][r][c] = 0;
            }
        }
    }

    for (int g = 0; g < groups; g++) {
        const int* plane = image + (size_t)g * pitch * (height + 2);
        for (int k = tid; k < HALO * HALO; k += 128) {
            tile[k] = plane[(y0 + k / HALO) * pitch + x0 + k % HALO];
        }
        if (tid < 72) {
            filter[tid] = weights[((out0 + tid / 9) * groups + g) * 9 + tid % 9];
        }
        __syncthreads();
        int w[OUTS][9];
#pragma unroll
        for (int o = 0; o < OUTS; o++) {
#pragma unroll
            for (int k = 0; k < 9; k++) {
                w[o][k] = filter[(to + o) * 9 + k];
            }
        }
#pragma unroll
        for (int line = 0; line < ROWS + 2; line++) {
            int in[WIDTH + 2];
#pragma unroll
            for (int c = 0; c < WIDTH + 2; c++) {
                in[c] = tile[(ty + line) * HALO + tx + c];
            }
#pragma unroll
            for (int dy = 0; dy < 3; dy++) {
                int r = line - dy;
                if (r >= 0 && r < ROWS) {
#pragma unroll
                    for (int dx = 0; dx < 3; dx++) {
#pragma unroll
                        for (int c = 0; c < WIDTH; c++) {
#pragma unroll
                            for (int o = 0; o < OUTS; o++) {
                                acc[o][r][c] = __dp4a(in[c + dx], w[o][dy * 3 + dx], acc[o][r][c]);
                            }
                        }
                    }
                }
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int o = 0; o < OUTS; o++) {
        int channel = out0 + to + o;
        float offset = bias[channel];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            unsigned words[2] = {0, 0};
#pragma unroll
            for (int c = 0; c < WIDTH; c++) {
                int value = __float2int_rn(acc[o][r][c] * scale + offset);
                value = min(max(value, -128), 127);
                words[c / 4] |= (unsigned)(value & 255) << (c % 4 * 8);
            }
            size_t at = ((size_t)channel * height + y0 + ty + r) * width + x0 + tx;
            *(uint2*)(output + at) = make_uint2(words[0], words[1]);
        }
    }
}
