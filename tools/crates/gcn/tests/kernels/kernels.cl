// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Kernels for tests/kernels.rs: compiled for gfx942 by the build root's clang and run in the
// interpreter.

// No device library: what a kernel needs of it is here, on compiler builtins.

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef float float2 __attribute__((ext_vector_type(2)));
typedef half half2v __attribute__((ext_vector_type(2)));
typedef half half4v __attribute__((ext_vector_type(4)));
typedef short short2v __attribute__((ext_vector_type(2)));

#define ID(d) \
    (__builtin_amdgcn_workgroup_id_##d() * __builtin_amdgcn_workgroup_size_##d() + \
     __builtin_amdgcn_workitem_id_##d())
#define BARRIER() \
    do { \
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); \
        __builtin_amdgcn_s_barrier(); \
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); \
    } while (0)
#define ATOMIC(op, p, v) \
    __opencl_atomic_##op((global atomic_int *)(p), v, __ATOMIC_RELAXED, \
                         __OPENCL_MEMORY_SCOPE_DEVICE)
#define UATOMIC(op, p, v) \
    __opencl_atomic_##op((global atomic_uint *)(p), v, __ATOMIC_RELAXED, \
                         __OPENCL_MEMORY_SCOPE_DEVICE)

kernel void vadd(global const int *a, global const int *b, global int *c, int n) {
    int i = ID(x);
    if (i < n)
        c[i] = a[i] + b[i];
}

kernel void saxpy(float k, global const float *x, global float *y, int n) {
    int i = ID(x);
    if (i < n)
        y[i] = k * x[i] + y[i];
}

// Sum of a work-group's items in LDS, one atomic for each work-group.
kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void reduce(global const uint *x, global uint *sum) {
    local uint partial[256];
    uint l = __builtin_amdgcn_workitem_id_x();
    partial[l] = x[ID(x)];
    BARRIER();
    for (uint s = 128; s > 0; s >>= 1) {
        if (l < s)
            partial[l] += partial[l + s];
        BARRIER();
    }
    if (l == 0)
        UATOMIC(fetch_add, sum, partial[0]);
}

// Integer operations with data-dependent control flow.
kernel void collatz(global const uint *x, global uint *steps) {
    uint i = ID(x);
    ulong v = x[i];
    uint n = 0;
    while (v > 1 && n < 1000) {
        v = (v & 1) ? 3 * v + 1 : v >> 1;
        n++;
    }
    steps[i] = n;
}

kernel void integers(global const int *a, global const int *b, global int *out) {
    uint i = ID(x);
    int x = a[i], y = b[i];
    uint ux = x, uy = y;
    global int *o = out + 24 * i;
    o[0] = y ? x / y : 0;
    o[1] = y ? x % y : 0;
    o[2] = uy ? ux / uy : 0;
    o[3] = uy ? ux % uy : 0;
    o[4] = (int)(((long)x * y) >> 32);
    o[5] = (int)(((ulong)ux * uy) >> 32);
    o[6] = x << (y & 31);
    o[7] = x >> (y & 31);
    o[8] = ux >> (y & 31);
    o[9] = ux ? __builtin_clz(ux) : 32;
    o[10] = __builtin_popcount(ux);
    o[11] = __builtin_rotateleft32(ux, uy);
    o[12] = __builtin_elementwise_add_sat(x, y);
    o[13] = __builtin_elementwise_sub_sat(ux, uy);
    o[14] = x > y ? ux - uy : uy - ux;
    o[15] = __builtin_elementwise_max(__builtin_elementwise_min(x, y), -1000);
    o[16] = (short)x * (short)y;
    o[17] = (char)x + (uchar)y;
    long lx = ((long)x << 20) ^ y, ly = (long)y * 12345 + 1;
    long q = ly ? lx / ly : 0;
    o[18] = (int)q;
    o[19] = (int)(q >> 32);
    o[20] = (int)((ulong)lx >> (y & 63));
    o[21] = (int)((lx * ly) >> 32);
    o[22] = (x & y) + ((x ^ y) >> 1);
    o[23] = (int)(lx < ly) + 2 * (int)((ulong)lx < (ulong)ly);
}

kernel void floats(global const float *a, global const float *b, global float *out) {
    uint i = ID(x);
    float x = a[i], y = b[i];
    global float *o = out + 12 * i;
    o[0] = x / y;
    o[1] = __builtin_sqrtf(__builtin_fabsf(x));
    o[2] = __builtin_fmaf(x, y, 1.5f);
    o[3] = __builtin_floorf(x) + __builtin_ceilf(y);
    o[4] = __builtin_truncf(x) - __builtin_rintf(y);
    o[5] = __builtin_fminf(x, y);
    o[6] = __builtin_fmaxf(x, y);
    o[7] = (float)(int)x + (float)(uint)__builtin_fabsf(y);
    o[8] = (float)((double)x * (double)y);
    o[9] = x < y ? x : -y;
    o[10] = __builtin_copysignf(x, y);
    o[11] = (float)(half)x;
}

kernel void doubles(global const double *a, global const double *b, global double *out) {
    uint i = ID(x);
    double x = a[i], y = b[i];
    global double *o = out + 8 * i;
    o[0] = x + y;
    o[1] = x * y;
    o[2] = x / y;
    o[3] = __builtin_fma(x, y, -1.0);
    o[4] = __builtin_sqrt(__builtin_fabs(x));
    o[5] = __builtin_floor(x);
    o[6] = (double)(int)x;
    o[7] = __builtin_fmax(x, y);
}

// Bytes, shorts and halves.
kernel void narrow(global const uchar *bytes, global const short *shorts, global half *halves,
                   global char *out) {
    uint i = ID(x);
    half h = (half)(float)shorts[i] * (half)0.125f;
    halves[i] = h + halves[i];
    out[i] = (char)(bytes[i] + (shorts[i] >> 3));
}

kernel void packed(global const half2v *a, global const half2v *b, global half2v *out,
                   global const short2v *s, global short2v *t, global const float2 *f,
                   global float2 *g) {
    uint i = ID(x);
    out[i] = a[i] * b[i] + a[i];
    t[i] = s[i] * s[i] + (short2v)(3, -5);
    g[i] = f[i] * f[i] + f[i];
}

// A private array indexed by data: scratch.
kernel void scratch(global const uint *x, global uint *out) {
    uint i = ID(x);
    volatile uint table[32];
    for (uint k = 0; k < 32; k++)
        table[k] = x[i] * k + i;
    uint sum = 0;
    for (uint k = 0; k < 8; k++)
        sum = sum * 3 + table[(x[i] >> k) & 31];
    out[i] = sum;
}

// Generic pointers: the same code reads LDS, scratch and global memory.
uint __attribute__((noinline)) sum_of(const uint *p, uint n) {
    uint s = 0;
    for (uint k = 0; k < n; k++)
        s += p[k];
    return s;
}
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void generic_pointers(global const uint *x, global uint *out) {
    local uint shared[64];
    uint own[4];
    uint l = __builtin_amdgcn_workitem_id_x(), i = ID(x);
    shared[l] = x[i];
    for (uint k = 0; k < 4; k++)
        own[k] = x[i] ^ k;
    BARRIER();
    out[i] = sum_of(shared, 64) + 3 * sum_of(own, 4) + 5 * sum_of((const uint *)x, 3);
}

kernel void atomics(global int *cells, global uint *log) {
    uint i = ID(x);
    ATOMIC(fetch_add, &cells[0], (int)i);
    ATOMIC(fetch_sub, &cells[1], 2);
    ATOMIC(fetch_max, &cells[2], (int)i - 10);
    ATOMIC(fetch_min, &cells[3], 10 - (int)i);
    UATOMIC(fetch_or, &cells[4], 1u << (i & 31));
    UATOMIC(fetch_and, &cells[5], ~(1u << (i & 31)));
    UATOMIC(fetch_xor, &cells[6], i * 77);
    log[i] = UATOMIC(fetch_add, &cells[7], 1u);
    int expected = cells[8];
    while (!__opencl_atomic_compare_exchange_strong(
        (global atomic_int *)&cells[8], &expected, expected + 3, __ATOMIC_RELAXED,
        __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE))
        ;
}

// Three dimensions of work-items and work-groups.
kernel void grid(global uint *out, uint width, uint height) {
    uint x = ID(x), y = ID(y), z = ID(z);
    out[(z * height + y) * width + x] =
        x | y << 8 | z << 16 | __builtin_amdgcn_workgroup_id_z() << 24 |
        __builtin_amdgcn_workitem_id_y() << 28;
}

// The upper half of a register whose lower one is the result: clang takes it for 0.
kernel void widened(global const half4v *in, global uint *out) {
    int i = ID(x);
    half4v v = in[i];
    half least = __builtin_fminf16(__builtin_fminf16(v.x, v.y), v.z);
    half most = __builtin_fmaxf16(__builtin_fmaxf16(v.x, v.y), v.z);
    out[3 * i] = __builtin_astype(__builtin_amdgcn_fmed3h(v.x, v.y, v.z), ushort);
    out[3 * i + 1] = __builtin_astype(least, ushort);
    out[3 * i + 2] = __builtin_astype(most, ushort);
}
