// SPDX-License-Identifier: GPL-2.0-only
/*
 * The trap handlers that the kernel source brings along, as machine code. They are included where
 * they are built, never copied.
 */

#include <linux/bug.h>
#include <linux/types.h>

#include "amdgpu.h"
#include "cwsr_trap_handler.h"

#include "trap_handler.h"

/* Code of one graphics core, or NULL. gc_version: major << 24 | minor << 16 | revision << 8. */
const u32 *amdkfd_trap_handler(u32 gc_version, size_t *words)
{
	switch (gc_version) {
	case IP_VERSION(9, 4, 3):
		*words = ARRAY_SIZE(cwsr_trap_gfx9_4_3_hex);
		return cwsr_trap_gfx9_4_3_hex;
	default:
		return NULL;
	}
}
