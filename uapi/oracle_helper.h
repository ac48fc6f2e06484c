/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What bindgen reads to give the tests AMD's own idea of the structures that our formats encode:
 * memory queue descriptors and PM4 packets. An oracle for layout checks; no code uses these types.
 */
#include <linux/types.h>
#include "v9_structs.h"
#include "kfd_pm4_headers_ai.h"
