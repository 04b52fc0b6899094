// Names and effects: inline assembly whose nested scopes declare the same names again with other
// types, volatile accesses that may not be merged, and assembly that must run exactly once.

extern "C" __global__ void scopes(const unsigned* __restrict__ x, unsigned* __restrict__ y, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned v = x[t];
    for (int i = 0; i < n; i++) {
        asm volatile(
            "{\n\t"
            ".reg .u32 a, b;\n\t"
            ".reg .pred p;\n\t"
            "xor.b32 a, %0, %1;\n\t"
            "setp.lt.u32 p, a, 0x80000000;\n\t"
            "{\n\t"
            ".reg .u64 a;\n\t"
            ".reg .u16 b;\n\t"
            "mul.wide.u32 a, %0, %1;\n\t"
            "cvt.u16.u64 b, a;\n\t"
            "{\n\t"
            ".reg .f32 a<3>;\n\t"
            ".reg .pred p;\n\t"
            "cvt.rn.f32.u16 a0, b;\n\t"
            "setp.gt.f32 p, a0, 0f46000000;\n\t"
            "mul.f32 a1, a0, 0f3F000000;\n\t"
            "selp.f32 a2, a1, a0, p;\n\t"
            "cvt.rzi.u32.f32 %0, a2;\n\t"
            "}\n\t"
            "shr.u64 a, a, 16;\n\t"
            "cvt.u16.u64 b, a;\n\t"
            "{ .reg .u32 b; cvt.u32.u64 b, a; xor.b32 %0, %0, b; }\n\t"
            "}\n\t"
            "@p add.u32 b, a, %0;\n\t"
            "@!p sub.u32 b, %0, a;\n\t"
            "mov.b32 %0, b;\n\t"
            "}"
            : "+r"(v)
            : "r"(i * 2654435761u + t));
    }
    y[t] = v;
}

// Every thread keeps its own cells; volatile keeps each access in place and in order.
extern "C" __global__ void volatiles(volatile unsigned* cells, unsigned* __restrict__ y, int n) {
    __shared__ volatile unsigned scratch[256];
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    scratch[threadIdx.x] = t;
    unsigned a = 0;
    for (int i = 0; i < n; i++) {
        a += cells[t];
        cells[t] = a ^ i;
        scratch[threadIdx.x] = scratch[threadIdx.x] * 3 + cells[t];
        a += scratch[threadIdx.x];
    }
    y[t] = a;
}

// Special registers, read where they stand: some are constant per thread, some must not be cached.
extern "C" __global__ void specials(unsigned* __restrict__ y) {
    unsigned lane, warp, below, size;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    asm("mov.u32 %0, %%nctaid.x;" : "=r"(size));
    warp = threadIdx.x / 32;
    unsigned begin, end;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(begin)::"memory");
    unsigned active = __activemask();
    asm volatile("mov.u32 %0, %%clock;" : "=r"(end)::"memory");
    unsigned moved = end - begin < 0x7fffffffu;
    y[blockIdx.x * blockDim.x + threadIdx.x] =
        lane * 3 + warp * 5 + __popc(below & active) * 7 + size * 11 + moved;
}
