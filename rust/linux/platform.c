// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the kernel knows of CPUs and memory and tells only C: per-CPU data, node data, and walks
 * over the firmware's tables.
 */

#include <linux/acpi.h>
#include <linux/cpufreq.h>
#include <linux/cpumask.h>
#include <linux/dmi.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/topology.h>
#include <linux/unaligned.h>
#include <asm/processor.h>

#include "platform.h"

int amdkfd_next_numa_node(int node)
{
	node = node < 0 ? first_online_node : next_online_node(node);
	return node < MAX_NUMNODES ? node : -1;
}

bool amdkfd_numa_node(int node, struct amdkfd_numa_node *out)
{
	const struct cpumask *cpus = cpumask_of_node(node);
	unsigned int first = cpumask_first(cpus);
	u64 pages = 0;
	int zone;

	if (first >= nr_cpu_ids)
		return false;
	for (zone = 0; zone < MAX_NR_ZONES; zone++)
		pages += zone_managed_pages(&NODE_DATA(node)->node_zones[zone]);
	out->cpus = cpumask_weight(cpus);
	out->first_apic_id = cpu_data(first).topo.apicid;
	out->memory = pages << PAGE_SHIFT;
	return true;
}

u32 amdkfd_numa_distance(u32 from, u32 to)
{
	/* node_distance() takes them for signed, and looks at the upper bound alone. */
	if (from >= MAX_NUMNODES || to >= MAX_NUMNODES)
		return REMOTE_DISTANCE;
	return node_distance(from, to);
}

int amdkfd_proximity_node(u32 domain)
{
	return domain <= INT_MAX ? pxm_to_node(domain) : -1;
}

bool amdkfd_cpu_is_amd(void)
{
	return cpu_data(0).x86_vendor == X86_VENDOR_AMD;
}

u32 amdkfd_cpu_max_khz(void)
{
	return cpufreq_quick_get_max(0);
}

/* SMBIOS, "Memory Device (Type 17)": where the fields are, and the value that says "unknown". */
enum {
	MEMORY_TOTAL_WIDTH = 0x08,
	MEMORY_SPEED = 0x15,
	MEMORY_UNKNOWN = 0xffff,
};

struct memory_modules {
	u32 width;
	u32 speed;
};

static void look_at_module(const struct dmi_header *header, void *data)
{
	const u8 *bytes = (const u8 *)header;
	struct memory_modules *modules = data;
	u16 width, speed;

	if (header->type != DMI_ENTRY_MEM_DEVICE || header->length < MEMORY_SPEED + sizeof(u16))
		return;
	width = get_unaligned_le16(bytes + MEMORY_TOTAL_WIDTH);
	speed = get_unaligned_le16(bytes + MEMORY_SPEED);
	if (width && width != MEMORY_UNKNOWN)
		modules->width = width;
	if (speed)
		modules->speed = speed;
}

void amdkfd_memory_modules(u32 *width, u32 *speed)
{
	struct memory_modules modules = {};

	/* A machine without DMI has nothing to say, which is no error. */
	dmi_walk(look_at_module, &modules);
	*width = modules.width;
	*speed = modules.speed;
}
