// State in small arrays and structures whose every index is a constant. Built without the
// compiler's own promotion (see build.sh), all of it stays in local memory, and `--promote-local`
// has something to do.

struct Body {
    float x, y, z, vx, vy, vz;
};

// Two bodies around a fixed mass, a few hundred steps each.
extern "C" __global__ void orbit(const float* __restrict__ start, float* __restrict__ end, int steps) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int threads = gridDim.x * blockDim.x;
    Body b[2];
    b[0].x = start[t];
    b[0].y = start[t + threads];
    b[0].z = start[t + 2 * threads];
    b[0].vx = 0.5f;
    b[0].vy = -0.25f;
    b[0].vz = 0.125f;
    b[1] = b[0];
    b[1].vx = -b[1].vx;
    for (int i = 0; i < steps; i++) {
        float r0 = b[0].x * b[0].x + b[0].y * b[0].y + b[0].z * b[0].z + 0.01f;
        float r1 = b[1].x * b[1].x + b[1].y * b[1].y + b[1].z * b[1].z + 0.01f;
        float k0 = -0.001f / (r0 * r0), k1 = -0.001f / (r1 * r1);
        b[0].vx += k0 * b[0].x;
        b[0].vy += k0 * b[0].y;
        b[0].vz += k0 * b[0].z;
        b[1].vx += k1 * b[1].x;
        b[1].vy += k1 * b[1].y;
        b[1].vz += k1 * b[1].z;
        b[0].x += 0.01f * b[0].vx;
        b[0].y += 0.01f * b[0].vy;
        b[0].z += 0.01f * b[0].vz;
        b[1].x += 0.01f * b[1].vx;
        b[1].y += 0.01f * b[1].vy;
        b[1].z += 0.01f * b[1].vz;
    }
    end[t] = b[0].x + b[1].x;
    end[t + threads] = b[0].y + b[1].y;
    end[t + 2 * threads] = b[0].z + b[1].z;
}

// A generator of random numbers with four words of state.
extern "C" __global__ void xorshift(const unsigned* __restrict__ seed, unsigned* __restrict__ out, int rounds) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned s[4];
    s[0] = seed[t];
    s[1] = 362436069u;
    s[2] = 521288629u;
    s[3] = 88675123u;
    for (int i = 0; i < rounds; i++) {
        unsigned v = s[0] ^ (s[0] << 11);
        s[0] = s[1];
        s[1] = s[2];
        s[2] = s[3];
        s[3] = s[3] ^ (s[3] >> 19) ^ v ^ (v >> 8);
    }
    out[t] = s[0] + s[3];
}
