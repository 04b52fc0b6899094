// A model of the inner ear: a warp listens to one stream, a lane follows nine of its 288 bands. A band
// is two resonators in a row, a rectifier and two smoothers: state and coefficients, 90 floats, stay
// live around the loop over the samples, which are the same for all lanes.

constexpr int BANDS = 9, LANES = 32;

extern "C" __global__ void cochlea(int samples,
                                   int hop,
                                   float lowest,
                                   float octaves,
                                   float width,
                                   const float* __restrict__ tuning,
                                   const float4* __restrict__ sound,
                                   float* __restrict__ energy) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    int stream = thread / LANES, lane = thread % LANES;
    float gain[BANDS], back1[BANDS], back2[BANDS], pace[BANDS];
    float first[BANDS][2] = {}, second[BANDS][2] = {}, fast[BANDS] = {}, slow[BANDS] = {};
#pragma unroll
    for (int b = 0; b < BANDS; b++) {
        float place = (b * LANES + lane + tuning[stream]) * (1.f / (BANDS * LANES));
        // Radians per sample.
        float pitch = lowest * exp2f(octaves * place);
        float damping = width * __sinf(pitch), inverse = 1.f / (1.f + damping);
        gain[b] = damping * inverse;
        back1[b] = -2.f * __cosf(pitch) * inverse;
        back2[b] = (1.f - damping) * inverse;
        pace[b] = 0.002f + 0.02f * pitch;
    }
    int until = hop, frame = 0;
#pragma unroll 1
    for (int n = 0; n < samples; n += 4) {
        float4 four = sound[(stream * samples + n) / 4];
        float x[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
#pragma unroll
            for (int b = 0; b < BANDS; b++) {
                float y = gain[b] * x[k] + first[b][0];
                first[b][0] = first[b][1] - back1[b] * y;
                first[b][1] = -gain[b] * x[k] - back2[b] * y;
                float w = gain[b] * y + second[b][0];
                second[b][0] = second[b][1] - back1[b] * w;
                second[b][1] = -gain[b] * y - back2[b] * w;
                fast[b] += 0.1f * (fmaxf(w, 0.f) - fast[b]);
                slow[b] += pace[b] * (fast[b] - slow[b]);
            }
        }
        until -= 4;
        if (until == 0) {
            until = hop;
#pragma unroll
            for (int b = 0; b < BANDS; b++) {
                energy[(size_t)(frame * BANDS + b) * threads + thread] = fast[b] - 0.5f * slow[b];
            }
            frame++;
        }
    }
}
