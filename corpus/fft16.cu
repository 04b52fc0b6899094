// Fully unrolled FFT butterflies of radix 8 to 64: straight-line floating point whose pressure
// grows with the radix, from comfortable to far beyond 255 registers.

struct c32 {
    float x, y;
};

__device__ __forceinline__ c32 add(c32 a, c32 b) {
    return {a.x + b.x, a.y + b.y};
}

__device__ __forceinline__ c32 sub(c32 a, c32 b) {
    return {a.x - b.x, a.y - b.y};
}

__device__ __forceinline__ c32 mul(c32 a, c32 b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}

template <int N>
__device__ __forceinline__ void fft(c32* v) {
    if constexpr (N == 2) {
        c32 t = v[0];
        v[0] = add(t, v[1]);
        v[1] = sub(t, v[1]);
    } else {
        c32 even[N / 2], odd[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            even[i] = v[2 * i];
            odd[i] = v[2 * i + 1];
        }
        fft<N / 2>(even);
        fft<N / 2>(odd);
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            float c = cosf(-6.2831853071795864f * i / N);
            float s = sinf(-6.2831853071795864f * i / N);
            c32 t = mul(odd[i], {c, s});
            v[i] = add(even[i], t);
            v[i + N / 2] = sub(even[i], t);
        }
    }
}

template <int R>
__device__ __forceinline__ void pass(const c32* in, c32* out, int n, int ns) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    c32 v[R];
    float angle = -6.2831853f * (j % ns) / (ns * R);
#pragma unroll
    for (int r = 0; r < R; r++) {
        v[r] = in[j + r * (n / R)];
        float s, c;
        __sincosf(r * angle, &s, &c);
        v[r] = mul(v[r], {c, s});
    }
    fft<R>(v);
    int d = (j / ns) * ns * R + (j % ns);
#pragma unroll
    for (int r = 0; r < R; r++) {
        out[d + r * ns] = v[r];
    }
}

extern "C" __global__ void fft8(const c32* in, c32* out, int n, int ns) {
    pass<8>(in, out, n, ns);
}

extern "C" __global__ void fft16(const c32* in, c32* out, int n, int ns) {
    pass<16>(in, out, n, ns);
}

extern "C" __global__ void fft32(const c32* in, c32* out, int n, int ns) {
    pass<32>(in, out, n, ns);
}

extern "C" __global__ void fft64(const c32* in, c32* out, int n, int ns) {
    pass<64>(in, out, n, ns);
}
