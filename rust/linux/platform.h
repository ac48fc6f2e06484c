/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef AMDKFD_LINUX_PLATFORM_H
#define AMDKFD_LINUX_PLATFORM_H

#include <linux/types.h>

struct amdkfd_numa_node {
	u32 cpus;		/* online */
	u32 first_apic_id;	/* of the first of them */
	u64 memory;		/* bytes that the page allocator manages */
};

/* The next NUMA node that is online, after @node; -1 if there is none. Begin with -1. */
int amdkfd_next_numa_node(int node);
/* False if the node, which is online, has no CPU. */
bool amdkfd_numa_node(int node, struct amdkfd_numa_node *out);
/* Any numbers; far away if one is no node. */
u32 amdkfd_numa_distance(u32 from, u32 to);
/* The NUMA node of an ACPI proximity domain, or -1. */
int amdkfd_proximity_node(u32 domain);
bool amdkfd_cpu_is_amd(void);
/* The highest clock of the first CPU; 0 without frequency scaling. */
u32 amdkfd_cpu_max_khz(void);
/* Width in bits and speed in MT/s of the memory modules, as DMI states them; 0 if it does not. */
void amdkfd_memory_modules(u32 *width, u32 *speed);

#endif
