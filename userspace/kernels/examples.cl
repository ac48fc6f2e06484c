// SPDX-License-Identifier: GPL-2.0-only OR MIT
// The kernels of kfdctl's examples. OpenCL C without a library: ids come from the compiler's
// builtins.

#define GROUP 256
#define ITEM (__builtin_amdgcn_workgroup_id_x() * GROUP + __builtin_amdgcn_workitem_id_x())

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void vadd(global const float *a, global const float *b, global float *c, uint n)
{
	uint i = ITEM;

	if (i < n)
		c[i] = a[i] + b[i];
}

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void saxpy(float a, global const float *x, global float *y, uint n)
{
	uint i = ITEM;

	if (i < n)
		y[i] = a * x[i] + y[i];
}

// Each group adds its part in local memory, then adds that to *sum.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void reduce(global const uint *x, global uint *sum, uint n)
{
	local uint part[GROUP];
	uint lane = __builtin_amdgcn_workitem_id_x();
	uint i = ITEM;

	part[lane] = i < n ? x[i] : 0;
	for (uint width = GROUP / 2; width; width /= 2) {
		__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
		__builtin_amdgcn_s_barrier();
		__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
		if (lane < width)
			part[lane] += part[lane + width];
	}
	if (lane == 0)
		__scoped_atomic_fetch_add(sum, part[0], __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}

// Sleeps `rounds` times and counts the groups that came to their end: something to interrupt.
__attribute__((reqd_work_group_size(64, 1, 1)))
kernel void spin(global uint *done, uint rounds)
{
	for (uint round = 0; round < rounds; round++)
		__builtin_amdgcn_s_sleep(1);
	if (__builtin_amdgcn_workitem_id_x() == 0)
		__scoped_atomic_fetch_add(done, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}

// A product of n x n matrices, n a multiple of 16: each group makes a tile of 16 x 16 from tiles in
// local memory.
#define TILE 16
__attribute__((reqd_work_group_size(TILE * TILE, 1, 1)))
kernel void gemm_tiled(global const float *a, global const float *b, global float *c, uint n)
{
	local float ta[TILE][TILE], tb[TILE][TILE];
	uint item = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
	uint x = item % TILE, y = item / TILE;
	uint row = group / (n / TILE) * TILE + y, column = group % (n / TILE) * TILE + x;
	float sum = 0;

	for (uint k = 0; k < n; k += TILE) {
		ta[y][x] = a[row * n + k + x];
		tb[y][x] = b[(k + y) * n + column];
		__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
		__builtin_amdgcn_s_barrier();
		__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
		for (uint i = 0; i < TILE; i++)
			sum += ta[y][i] * tb[i][x];
		__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
		__builtin_amdgcn_s_barrier();
		__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
	}
	c[row * n + column] = sum;
}

// The same with the matrix core, n a multiple of 32: each wave makes a tile of 32 x 32. A lane
// brings one element of a (row lane % 32, column lane / 32) and one of b, and has 16 elements of
// the sum.
typedef float float16_t __attribute__((ext_vector_type(16)));
__attribute__((reqd_work_group_size(64, 1, 1)))
kernel void gemm_mfma(global const float *a, global const float *b, global float *c, uint n)
{
	uint lane = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
	uint row = group / (n / 32) * 32, column = group % (n / 32) * 32;
	uint at = lane % 32, upper = lane / 32;
	float16_t sum = 0;

	for (uint k = 0; k < n; k += 2)
		sum = __builtin_amdgcn_mfma_f32_32x32x2f32(a[(row + at) * n + k + upper],
							   b[(k + upper) * n + column + at], sum,
							   0, 0, 0);
	for (uint i = 0; i < 16; i++)
		c[(row + i / 4 * 8 + upper * 4 + i % 4) * n + column + at] = sum[i];
}

// The same in half precision: sums are single, elements of the matrices half. b comes by columns,
// so that a lane's four elements of either, in rows or columns k + 4 * (lane / 32) on, are next to
// each other.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef half half4_t __attribute__((ext_vector_type(4)));
__attribute__((reqd_work_group_size(64, 1, 1)))
kernel void gemm_half(global const half *a, global const half *b, global half *c, uint n)
{
	uint lane = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
	uint row = group / (n / 32) * 32, column = group % (n / 32) * 32;
	uint at = lane % 32, upper = lane / 32;
	float16_t sum = 0;

	for (uint k = upper * 4; k < n; k += 8)
		sum = __builtin_amdgcn_mfma_f32_32x32x8f16(
			*(global const half4_t *)(a + (row + at) * n + k),
			*(global const half4_t *)(b + (column + at) * n + k), sum, 0, 0, 0);
	for (uint i = 0; i < 16; i++)
		c[(row + i / 4 * 8 + upper * 4 + i % 4) * n + column + at] = sum[i];
}

// Writes to an address that the host chooses: a page fault, where nothing is mapped.
__attribute__((reqd_work_group_size(64, 1, 1)))
kernel void poke(global uint *at)
{
	at[__builtin_amdgcn_workitem_id_x()] = 1;
}

// Sorts each item's own 32 numbers, which lie in its scratch: an array whose index only the run
// tells has no place in registers. Leaves the middle one.
#define OWN 32
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void median(global const uint *x, global uint *middle, uint n)
{
	uint own[OWN], item = ITEM;

	if (item >= n)
		return;
	for (uint i = 0; i < OWN; i++) {
		uint value = x[item * OWN + i], at = i;

		for (; at > 0 && own[at - 1] > value; at--)
			own[at] = own[at - 1];
		own[at] = value;
	}
	middle[item] = own[OWN / 2];
}
