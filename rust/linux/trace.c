// SPDX-License-Identifier: GPL-2.0-only
/* Makes the tracepoints of trace.h. */

#include <linux/types.h>

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "trace.h"
