// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Kernels that print.

#include "print.h"

#define GROUP 64
#define ITEM (__builtin_amdgcn_workgroup_id_x() * GROUP + __builtin_amdgcn_workitem_id_x())

// Says what is odd about x: its numbers are to be below `limit`.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void inspect(global const float *x, uint n, float limit)
{
	uint i = ITEM;

	if (i == 0)
		printf("%u numbers, %s %5.1f, at %p:\n", n, "below", limit, x);
	if (i < n && !(x[i] < limit))
		printf("x[%u] = %-8.3f|%v2d|%lx\n", i, x[i], (int2)(i / GROUP, -(int)(i % GROUP)),
		       (ulong)i << 32);
}
