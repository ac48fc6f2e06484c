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

#define HANDLER(code)				\
	do {					\
		*words = ARRAY_SIZE(code);	\
		return code;			\
	} while (0)

/* Code of one graphics core, or NULL. gc_version: major << 24 | minor << 16 | revision << 8. */
const u32 *amdkfd_trap_handler(u32 gc_version, size_t *words)
{
	switch (gc_version) {
	case IP_VERSION(9, 0, 1):
	case IP_VERSION(9, 1, 0):
	case IP_VERSION(9, 2, 1):
	case IP_VERSION(9, 2, 2):
	case IP_VERSION(9, 3, 0):
	case IP_VERSION(9, 4, 0):
		HANDLER(cwsr_trap_gfx9_hex);
	case IP_VERSION(9, 4, 1):
		HANDLER(cwsr_trap_arcturus_hex);
	case IP_VERSION(9, 4, 2):
		HANDLER(cwsr_trap_aldebaran_hex);
	case IP_VERSION(9, 4, 3):
	case IP_VERSION(9, 4, 4):
		HANDLER(cwsr_trap_gfx9_4_3_hex);
	case IP_VERSION(9, 5, 0):
		HANDLER(cwsr_trap_gfx9_5_0_hex);
	/* More than a page. */
	case IP_VERSION(10, 1, 1) ... IP_VERSION(10, 1, 4):
	case IP_VERSION(10, 1, 10):
		HANDLER(cwsr_trap_nv1x_hex);
	case IP_VERSION(10, 3, 0) ... IP_VERSION(10, 3, 7):
		HANDLER(cwsr_trap_gfx10_hex);
	default:
		return NULL;
	}
}
