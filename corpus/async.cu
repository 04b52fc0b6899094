// Asynchronous copies: cp.async with groups, mbarrier with transaction counts, and the bulk copy of
// sm_90. Memory changes behind the program's back, so nothing may be recomputed across a wait.

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

// Three stages of cp.async, 16 bytes per thread and stage; 128 threads.
extern "C" __global__ void pipeline(const float4* __restrict__ in,
                                    float4* __restrict__ out,
                                    int stages) {
    __shared__ float4 buffer[3][128];
    int t = threadIdx.x;
    const float4* source = in + blockIdx.x * stages * 128 + t;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int i = 0; i < 2 && i < stages; i++) {
        asm volatile(
            "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&buffer[i][t])),
            "l"(source + i * 128)
            : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (int i = 0; i < stages; i++) {
        if (i + 2 < stages) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                             shared_address(&buffer[(i + 2) % 3][t])),
                         "l"(source + (i + 2) * 128)
                         : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 2;" ::: "memory");
        __syncthreads();
        float4 v = buffer[i % 3][(t * 5 + i) & 127];
        sum.x += v.x;
        sum.y = sum.y * 0.5f + v.y;
        sum.z -= v.z;
        sum.w = fmaxf(sum.w, v.w);
        __syncthreads();
    }
    out[blockIdx.x * 128 + t] = sum;
}

#if __CUDA_ARCH__ >= 900
// One thread asks for 4 KB tiles with bulk copies, everyone waits on the barrier's phase; 256
// threads.
extern "C" __global__ void bulk(const float* __restrict__ in, float* __restrict__ out, int tiles) {
    __shared__ alignas(128) float tile[2][1024];
    __shared__ alignas(8) unsigned long long full[2];
    int t = threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < 2; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[i]))
                         : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    float sum[4] = {0, 0, 0, 0};
    for (int i = 0; i < tiles; i++) {
        int slot = i & 1;
        unsigned barrier = shared_address(&full[slot]);
        if (t == 0) {
            asm volatile(
                "{\n\t"
                ".reg .b64 state;\n\t"
                "fence.proxy.async.shared::cta;\n\t"
                "mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], 4096;\n\t"
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%1], [%2], "
                "4096, [%0];\n\t"
                "}" ::"r"(barrier),
                "r"(shared_address(tile[slot])), "l"(in + (size_t)(blockIdx.x * tiles + i) * 1024)
                : "memory");
        }
        asm volatile(
            "{\n\t"
            ".reg .pred done;\n"
            "wait:\n\t"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
            "@!done bra wait;\n\t"
            "}" ::"r"(barrier),
            "r"((i >> 1) & 1)
            : "memory");
#pragma unroll
        for (int j = 0; j < 4; j++) {
            sum[j] = sum[j] * 0.75f + tile[slot][(t + j * 256) ^ (i & 31)];
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        out[blockIdx.x * 1024 + j * 256 + t] = sum[j];
    }
}
#endif
