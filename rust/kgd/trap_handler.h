/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef AMDKFD_TRAP_HANDLER_H
#define AMDKFD_TRAP_HANDLER_H

#include <linux/types.h>

const u32 *amdkfd_trap_handler(u32 gc_version, size_t *words);

#endif
