// SPDX-License-Identifier: GPL-2.0 OR MIT
// The kernels of kfdctl's examples. OpenCL C without a library: ids come from the compiler's builtins.

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
