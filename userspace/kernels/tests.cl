// SPDX-License-Identifier: GPL-2.0-only OR MIT
// The kernels of kfd-tests. OpenCL C without a library: ids come from the compiler's builtins.

#define GROUP 256
#define LANE __builtin_amdgcn_workitem_id_x()
#define ITEM (__builtin_amdgcn_workgroup_id_x() * GROUP + LANE)

static void barrier_of_group(void)
{
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Works for long with registers, local memory and barriers: each item mixes its number with a
// neighbour's, `rounds` times.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void churn(global uint *out, uint seed, uint rounds)
{
	local uint shared[GROUP];
	uint lane = LANE, x = ITEM * 2654435761u + seed;

	for (uint round = 0; round < rounds; round++) {
		shared[lane] = x;
		barrier_of_group();
		x = x * 1664525u + 1013904223u + shared[(lane + round) % GROUP];
		barrier_of_group();
	}
	out[ITEM] = x;
}

// Waits until *flag is not 0, with something in its registers.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void hold(global uint *flag, global uint *out)
{
	uint x = ITEM * 3 + 1;

	while (!__scoped_atomic_load_n(flag, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM))
		__builtin_amdgcn_s_sleep(1);
	out[ITEM] = x;
}

// Counts in *ticks until *flag is not 0, with something in its registers.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void tick(global uint *flag, global uint *ticks, global uint *out)
{
	uint x = ITEM * 3 + 1;

	while (!__scoped_atomic_load_n(flag, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM)) {
		if (LANE == 0)
			__scoped_atomic_fetch_add(ticks, 1, __ATOMIC_RELAXED,
						  __MEMORY_SCOPE_SYSTEM);
		__builtin_amdgcn_s_sleep(1);
	}
	out[ITEM] = x;
}

// Looks at the first word of a page with each item, and counts those that are not what they should
// be.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void verify(global const uint *data, global uint *wrong, uint seed)
{
	uint page = ITEM;

	if (data[page * 1024ul] != (page * 2654435761u ^ seed))
		__scoped_atomic_fetch_add(wrong, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}

// Writes the first word of each page: `word`, mixed with the page's number times `factor`.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void scatter(global uint *data, uint pages, uint word, uint factor)
{
	uint page = ITEM;

	if (page < pages)
		data[page * 1024ul] = page * factor ^ word;
}

// Reads the first word of each page.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void gather(global const uint *data, global uint *out, uint pages)
{
	uint page = ITEM;

	if (page < pages)
		out[page] = data[page * 1024ul];
}
